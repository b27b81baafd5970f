#include "engine/terms.h"

#include <stdlib.h>

#include "engine/keys.h"

const struct rule_limit deny_limit = {
    .name = { "deny", 4 }, .named = true, .algorithm = LIMIT_FIXED_WINDOW, .max = 0, .per_us = US_PER_S
};

bool limit_denies(const struct bound_limit *limit)
{
    return limit->terms->spec == &deny_limit;
}

uint64_t limit_cost_by_unit(const struct bound_terms *terms, const struct weir_request *request)
{
    /* A request that is in flight is one, whatever it costs, unless it only looks. */
    if (terms->limit.algorithm == LIMIT_CONCURRENT)
        return request->cost > 0 || request->cost_count > 0;
    for (size_t i = 0; i < request->cost_count; i++)
        if (sv_eq(request->costs[i].unit, terms->spec->cost_unit))
            return request->costs[i].amount;
    return 0;
}

const char *name_copy(struct arena *arena, sv name)
{
    char *to = arena_alloc(arena, name.len / NAME_PIECE * NAME_PIECE + NAME_PIECE);
    if (to && name.len > 0)
        memcpy(to, name.ptr, name.len);
    return to;
}

/* ---- limits that say the same ---- */

/* A zone is read again with rules that are read again, and may have changed meanwhile: its name alone does not tell. The
 * limit of overrides that deny is told from others by where it is. */
static bool says_same(const struct rule_limit *a, const struct rule_limit *b)
{
    return a == b || (a != &deny_limit && b != &deny_limit && a->zone == b->zone && rule_limits_same(a, 1, b, 1));
}

/* ---- the table ---- */

bool terms_table_init(struct terms_table *table, size_t limits, struct arena *arena)
{
    size_t size = 2;
    while (size < 2 * limits)
        size *= 2;
    *table = (struct terms_table){ .arena = arena, .mask = size - 1 };
    table->slots = calloc(size, sizeof *table->slots);
    return table->slots != NULL;
}

void terms_table_done(struct terms_table *table)
{
    free(table->slots);
}

/* Some at a time, since each begins a cache line and arenas know nothing of lines. NULL: no memory. */
static struct bound_terms *take_room(struct terms_table *table)
{
    enum { AT_A_TIME = 8, LINE = _Alignof(struct bound_terms) };
    if (table->left == 0) {
        uintptr_t room = (uintptr_t)arena_alloc(table->arena, AT_A_TIME * sizeof *table->room + LINE - 1);
        if (!room)
            return NULL;
        table->room = (struct bound_terms *)((room + LINE - 1) & ~(uintptr_t)(LINE - 1));
        table->left = AT_A_TIME;
    }
    table->left--;
    return table->room++;
}

static struct bound_terms *new_terms(struct terms_table *table, const struct rule_limit *spec)
{
    const char *name = name_copy(table->arena, spec->name);
    struct bound_terms *terms = name ? take_room(table) : NULL;
    if (!terms)
        return NULL;
    terms->spec = spec;
    terms->name = name;
    terms->name_len = (uint8_t)spec->name.len;
    terms->unnamed = !spec->named;
    terms->counts_other = spec->cost_unit.len > 0 || spec->algorithm == LIMIT_CONCURRENT;
    limit_init(&terms->limit, spec->algorithm, spec->given ? LIMIT_MAX_MAX : spec->max, spec->burst, spec->per_us);
    terms->limit.overdraft = spec->overdraft;
    return terms;
}

/* Returns false if out of memory. */
static bool set_field(struct terms_table *table, struct bound_terms *terms)
{
    char field[STORE_FIELD_MAX];
    if (!terms->field.ptr)
        terms->field = arena_copy(table->arena, sv_of(field, field_write(field, terms->spec)));
    return terms->field.ptr != NULL;
}

const struct bound_terms *terms_of(struct terms_table *table, const struct hash_key *key, const struct rule_limit *spec,
                                   bool in_store)
{
    struct hash h;
    hash_init(&h, key);
    rule_limit_hash(spec, &h);
    size_t slot = hash_final(&h) & table->mask;
    while (table->slots[slot] && !says_same(table->slots[slot]->spec, spec))
        slot = (slot + 1) & table->mask;
    struct bound_terms *terms = table->slots[slot];
    if (!terms)
        terms = table->slots[slot] = new_terms(table, spec);
    return terms && (!in_store || set_field(table, terms)) ? terms : NULL;
}
