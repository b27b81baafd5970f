/* Equal lists of a set are one: most rules have the limits of many others, their conditions, and count by the same. So is
 * what few rules have, if many have the same, such as a lease. The kinds of rules come last, since equal ones have the same
 * lists. */
#include <stdlib.h>

#include "base/hash.h"
#include "rules/reader.h"

/* Nobody can make reading slow by lists with equal hashes: a list whose places are taken by others is not shared. */
enum { SLOTS_FIRST = 64, PROBES_MAX = 64 };

enum list_kind { LIST_LIMITS, LIST_BY, LIST_CONDITIONS, ONE_REST, ONE_KIND };

struct shared_list {
    const void *list; /* NULL: the slot is free */
    uint32_t hash;
    uint16_t count;
    enum list_kind kind : 16;
};

void shared_lists_done(struct shared_lists *s)
{
    free(s->slots);
    *s = (struct shared_lists){ 0 };
}

/* Compares kinds whose lists are shared. */
static bool same_kinds(const struct rule_kind *a, const struct rule_kind *b)
{
    return a->conditions == b->conditions && a->by == b->by && a->limits == b->limits && a->rest == b->rest &&
           a->condition_count == b->condition_count && a->by_count == b->by_count && a->limit_count == b->limit_count &&
           a->mode == b->mode && a->enabled_mode == b->enabled_mode && a->counters == b->counters &&
           a->on_failure == b->on_failure && a->disabled == b->disabled && a->ignore_case == b->ignore_case &&
           a->unlimited == b->unlimited;
}

static bool same_list(const struct shared_list *a, const struct shared_list *b)
{
    if (a->hash != b->hash || a->kind != b->kind)
        return false;
    switch (a->kind) {
    case LIST_LIMITS:
        return rule_limits_same(a->list, a->count, b->list, b->count);
    case LIST_BY:
        return same_by_lists(a->list, a->count, b->list, b->count);
    case LIST_CONDITIONS:
        return same_conditions(a->list, a->count, b->list, b->count);
    case ONE_REST:
        return same_short_rests(a->list, b->list);
    case ONE_KIND:
        return same_kinds(a->list, b->list);
    }
    return false;
}

/* Returns the slot of an equal list, or the one in which the list can be; NULL: there is none. */
static struct shared_list *find_slot(const struct shared_lists *s, const struct shared_list *list)
{
    for (size_t i = 0; i < PROBES_MAX && i < s->size; i++) {
        struct shared_list *slot = &s->slots[(list->hash + i) & (s->size - 1)];
        if (!slot->list || same_list(slot, list))
            return slot;
    }
    return NULL;
}

/* The table is at most half full. Without memory for a larger one, new lists are not shared. */
static bool has_room(struct shared_lists *s)
{
    if (2 * s->count < s->size)
        return true;
    struct shared_lists larger = { .size = s->size ? 2 * s->size : SLOTS_FIRST };
    larger.slots = calloc(larger.size, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < s->size; i++) {
        struct shared_list *slot = s->slots[i].list ? find_slot(&larger, &s->slots[i]) : NULL;
        if (slot) {
            *slot = s->slots[i];
            larger.count++;
        }
    }
    shared_lists_done(s);
    *s = larger;
    return true;
}

static const void *share(struct shared_lists *s, const struct shared_list *list)
{
    struct shared_list *slot = has_room(s) ? find_slot(s, list) : NULL;
    if (!slot)
        return list->list;
    if (!slot->list) {
        *slot = *list;
        s->count++;
    }
    return slot->list;
}

/* The key is known, see PROBES_MAX. */
static const struct hash_key key = { 0, 0 };

const struct rule_limit *share_limits(struct shared_lists *s, const struct rule_limit *limits, size_t count)
{
    if (!limits || count == 0)
        return limits;
    struct hash h;
    hash_init(&h, &key);
    for (size_t i = 0; i < count; i++)
        rule_limit_hash(&limits[i], &h);
    struct shared_list list = { limits, (uint32_t)hash_final(&h), (uint16_t)count, LIST_LIMITS };
    return share(s, &list);
}

const struct rule_by *share_by(struct shared_lists *s, const struct rule_by *by, size_t count)
{
    if (!by || count == 0)
        return by;
    struct hash h;
    hash_init(&h, &key);
    for (size_t i = 0; i < count; i++) {
        hash_word(&h, by[i].attribute);
        hash_text(&h, by[i].name.ptr, by[i].name.len);
    }
    struct shared_list list = { by, (uint32_t)hash_final(&h), (uint16_t)count, LIST_BY };
    return share(s, &list);
}

static void hash_values(struct hash *h, const struct rule_values *values)
{
    hash_word(h, values->count);
    for (size_t i = 0; i < values->count; i++) {
        const struct rule_value *value = &values->list[i];
        bool network = value->kind == VALUE_NETWORK;
        hash_word(h, (uint64_t)value->kind << 8 | (network ? value->network.prefix : 0));
        if (network)
            hash_text(h, (const char *)&value->network.ip, sizeof value->network.ip);
        else
            hash_text(h, value->text.ptr, value->text.len);
    }
}

const struct rule_condition *share_conditions(struct shared_lists *s, const struct rule_condition *conditions, size_t count)
{
    if (!conditions || count == 0)
        return conditions;
    struct hash h;
    hash_init(&h, &key);
    for (size_t i = 0; i < count; i++) {
        const struct rule_condition *c = &conditions[i];
        hash_word(&h, (uint64_t)c->attribute << 8 | c->presence);
        hash_text(&h, c->name.ptr, c->name.len);
        hash_values(&h, &c->is);
        hash_values(&h, &c->is_not);
    }
    struct shared_list list = { conditions, (uint32_t)hash_final(&h), (uint16_t)count, LIST_CONDITIONS };
    return share(s, &list);
}

static bool is_short(const struct rule_rest *rest)
{
    const struct rule_reject *reject = &rest->reject;
    return rest->plan_count == 0 && rest->except.ip_count == 0 && rest->except.user_count == 0 &&
           rest->replace_count == 0 && reject->header_count == 0 && !reject->has_body && reject->content_type.len == 0;
}

const struct rule_rest *share_rest(struct shared_lists *s, const struct rule_rest *rest)
{
    _Static_assert(sizeof *rest == 216, "a new field is looked at by is_short(), or by same_short_rests() and in the hash");
    if (!is_short(rest))
        return rest;
    struct hash h;
    hash_init(&h, &key);
    hash_word(&h, (uint64_t)rest->lease.slice << 33 | (uint64_t)rest->lease.ttl_ms << 1 | rest->lease.on);
    hash_word(&h, (uint64_t)rest->expires_us);
    hash_word(&h, (uint64_t)rest->hold_max_percent << 32 | rest->reject.status);
    hash_word(&h, (uint64_t)rest->penalty.after << 32 | rest->penalty.grow);
    hash_word(&h, (uint64_t)rest->penalty.within_us);
    hash_word(&h, (uint64_t)rest->penalty.for_us);
    hash_word(&h, (uint64_t)rest->penalty.most_us);
    hash_text(&h, rest->file.ptr, rest->file.len);
    struct shared_list one = { rest, (uint32_t)hash_final(&h), 1, ONE_REST };
    return share(s, &one);
}

const struct rule_kind *share_kind(struct shared_lists *s, const struct rule_kind *kind)
{
    _Static_assert(sizeof *kind == 40, "a new field is compared in same_kinds()");
    const void *const lists[] = { kind->conditions, kind->by, kind->limits, kind->rest };
    struct hash h;
    hash_init(&h, &key);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        hash_word(&h, (uintptr_t)lists[i]);
    hash_word(&h, (uint64_t)kind->enabled_mode << 8 | (uint64_t)kind->mode << 4 | (uint64_t)kind->counters << 2 |
                      kind->on_failure);
    struct shared_list one = { kind, (uint32_t)hash_final(&h), 1, ONE_KIND };
    return share(s, &one);
}
