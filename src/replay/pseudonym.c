#include "replay/pseudonym.h"

#include "replay/intern.h"

/* ---- values ---- */

uint64_t pseudonym_hash(const struct hash_key *key, enum attribute attribute, sv text)
{
    struct hash h;
    hash_init(&h, key);
    hash_word(&h, (uint64_t)attribute);
    hash_text(&h, text.ptr, text.len);
    return hash_final(&h);
}

size_t pseudonym_text(uint64_t hash, char out[PSEUDONYM_TEXT_MAX])
{
    static const char digits[] = "0123456789abcdef";
    memcpy(out, "hash:", 5);
    for (int i = 0; i < 16; i++)
        out[5 + i] = digits[hash >> (60 - 4 * i) & 15];
    out[21] = '\0';
    return 21;
}

void buf_json_pseudonym(struct buf *out, sv value, bool mark)
{
    char room[sizeof "hash:" + CIDR_TEXT_MAX];
    struct buf text;
    if (!mark) {
        buf_json(out, value);
        return;
    }
    buf_over(&text, room, sizeof room);
    buf_add(&text, SV("hash:"));
    buf_add(&text, value);
    buf_json(out, buf_sv(&text));
}

/* The bits of a byte, from the highest: whether one is flipped depends on those before it, which choose one of the 255
 * nodes of a tree. */
static uint8_t replace_byte(uint64_t seed, uint8_t byte)
{
    unsigned out = 0;
    for (unsigned i = 0; i < 8; i++) {
        unsigned node = 1U << i | byte >> (8 - i);
        uint64_t flips = key_mix(seed, node / 64 + 1);
        out = out << 1 | ((byte >> (7 - i) ^ flips >> node % 64) & 1);
    }
    return (uint8_t)out;
}

/* The first bytes of an IPv4 address say that it is one. */
struct ip pseudonym_ip(const struct hash_key *key, const struct ip *ip)
{
    struct ip out = *ip;
    unsigned first = ip_is_v4(ip) ? 12 : 0;
    struct hash h;
    hash_init(&h, key);
    hash_word(&h, (uint64_t)ATTR_IP << 8 | first);
    for (unsigned i = first; i < sizeof ip->bytes; i++) {
        struct hash before = h;
        out.bytes[i] = replace_byte(hash_final(&before), ip->bytes[i]);
        hash_word(&h, ip->bytes[i]);
    }
    return out;
}

/* ---- rules ---- */

struct rewriter {
    const struct hash_key *key;
    struct rules *rules;
    pseudonym_unjudged *each;
    void *data;
    bool failed; /* no memory */
};

static void keep(struct rewriter *w, const char *text, size_t len, sv *ret)
{
    *ret = arena_copy(&w->rules->arena, sv_of(text, len));
    w->failed = w->failed || !ret->ptr;
}

/* Rules share lists, which never change. */
static void *copy_list(struct rewriter *w, const void *from, size_t size)
{
    void *copy = size > 0 ? arena_alloc(&w->rules->arena, size) : NULL;
    if (copy)
        memcpy(copy, from, size);
    w->failed = w->failed || (size > 0 && !copy);
    return copy;
}

static void rewrite_network(const struct rewriter *w, struct cidr *cidr)
{
    cidr->ip = pseudonym_ip(w->key, &cidr->ip);
    ip_mask(&cidr->ip, cidr->prefix);
}

/* An address, or the network that a subject is: "2001:db8::/64". */
static void rewrite_address(struct rewriter *w, sv *text)
{
    char out[CIDR_TEXT_MAX];
    struct cidr cidr;
    if (!cidr_parse(sv_trim_ows(*text), &cidr))
        return;
    rewrite_network(w, &cidr);
    keep(w, out, cidr_text(&cidr, out), text);
}

/* All entries of a descriptor: their values are hashed, and their keys are not. */
static void rewrite_descriptor(struct rewriter *w, sv *text)
{
    struct weir_header entries[WEIR_DESCRIPTOR_MAX];
    char bytes[DESCRIPTOR_TEXT_MAX], room[DESCRIPTOR_TEXT_MAX], hashes[WEIR_DESCRIPTOR_MAX][PSEUDONYM_TEXT_MAX];
    size_t count = text->len <= sizeof bytes ? descriptor_read(*text, bytes, entries) : 0;
    for (size_t i = 0; i < count; i++)
        if (entries[i].value.len > 0)
            entries[i].value =
                sv_of(hashes[i], pseudonym_text(pseudonym_hash(w->key, ATTR_DESCRIPTOR, entries[i].value), hashes[i]));
    sv made = descriptor_text(&(struct weir_request){ .descriptor = entries, .descriptor_count = count }, room);
    keep(w, made.ptr, made.len, text);
}

/* A value as rules see it. */
static void rewrite_value(struct rewriter *w, const struct rule_by *by, sv *text)
{
    enum attribute attribute = by->attribute;
    char out[PSEUDONYM_TEXT_MAX];
    if (attribute == ATTR_IP) {
        rewrite_address(w, text);
        return;
    }
    if (attribute == ATTR_DESCRIPTOR && by->name.len == 0) {
        rewrite_descriptor(w, text);
        return;
    }
    sv value = attribute == ATTR_HEADER ? sv_trim_ows(*text) : *text;
    if (pseudonym_hides(attribute) && value.len > 0)
        keep(w, out, pseudonym_text(pseudonym_hash(w->key, attribute, value), out), text);
}

static void rewrite_except(struct rewriter *w, const struct rule_except *except)
{
    for (size_t i = 0; i < except->ip_count; i++)
        rewrite_network(w, &except->ips[i]);
    for (size_t i = 0; i < except->user_count; i++)
        rewrite_value(w, &(struct rule_by){ .attribute = ATTR_USER }, &except->users[i]);
}

/* Values of conditions are compared as they are written, and a header without the blanks around it. */
static void rewrite_values(struct rewriter *w, enum attribute attribute, struct rule_values *values)
{
    char out[PSEUDONYM_TEXT_MAX];
    struct rule_value *list = copy_list(w, values->list, values->count * sizeof *list);
    for (size_t i = 0; list && i < values->count; i++) {
        struct rule_value *value = &list[i];
        if (value->kind == VALUE_NETWORK)
            rewrite_network(w, &value->network);
        else if (value->text.len > 0)
            keep(w, out, pseudonym_text(pseudonym_hash(w->key, attribute, value->text), out), &value->text);
    }
    values->list = list ? list : values->list;
}

static const struct rule_condition *rewrite_conditions(struct rewriter *w, const struct rule_condition *from, size_t count)
{
    struct rule_condition *list = copy_list(w, from, count * sizeof *list);
    for (size_t i = 0; list && i < count; i++) {
        if (!pseudonym_hides(list[i].attribute))
            continue;
        rewrite_values(w, list[i].attribute, &list[i].is);
        rewrite_values(w, list[i].attribute, &list[i].is_not);
    }
    return list ? list : from;
}

static bool has_pattern(const struct rule_values *values)
{
    for (size_t i = 0; i < values->count; i++)
        if (values->list[i].kind == VALUE_PREFIX || values->list[i].kind == VALUE_GLOB)
            return true;
    return false;
}

/* NULL: hashes are enough to judge it. */
static const char *why_not(const struct rule *rule)
{
    for (size_t i = 0; i < rule->kind->condition_count; i++) {
        const struct rule_condition *c = &rule->kind->conditions[i];
        if (pseudonym_hides(c->attribute) && (has_pattern(&c->is) || has_pattern(&c->is_not)))
            return "it matches a prefix or a pattern of a value that is hashed";
        if (rule->kind->ignore_case && c->attribute == ATTR_HEADER && c->is.count + c->is_not.count > 0)
            return "it ignores case in the value of a header, and these are hashed";
    }
    if (rule->kind->ignore_case && rule->kind->rest->plan_count > 0 && rule->kind->rest->plan.attribute != ATTR_IP &&
        pseudonym_hides(rule->kind->rest->plan.attribute))
        return "it ignores case in the name of a plan, and these are hashed";
    return NULL;
}

/* Rules share their kinds, but not those with plans or exceptions. */
static void rewrite_rule(struct rewriter *w, struct rule *rule)
{
    const char *why = rule->kind->mode == MODE_OFF ? NULL : why_not(rule);
    struct rule_kind *kind = copy_list(w, rule->kind, sizeof *kind);
    if (!kind)
        return;
    rule->kind = kind;
    if (why) {
        w->each(rule->id, why, w->data);
        rule_disable(kind);
    }
    kind->conditions = rewrite_conditions(w, kind->conditions, kind->condition_count);
    for (size_t i = 0; i < kind->rest->plan_count; i++)
        rewrite_value(w, &kind->rest->plan, &kind->rest->plans[i].name);
    rewrite_except(w, &kind->rest->except);
}

static void rewrite_overrides(struct rewriter *w)
{
    struct rules *rules = w->rules;
    struct intern ids; /* each rule's number is its index */
    intern_init(&ids, RULES_MAX, SIZE_MAX);
    for (size_t i = 0; rules->override_count > 0 && i < rules->rule_count; i++)
        w->failed = w->failed || intern_add(&ids, rules->rules[i]->id) != i;
    for (size_t i = 0; i < rules->override_count && !w->failed; i++) {
        struct rule_override *o = &rules->overrides[i];
        uint32_t rule = intern_find(&ids, o->rule);
        for (size_t k = 0; rule != INTERN_NONE && k < o->value_count; k++)
            rewrite_value(w, &rules->rules[rule]->kind->by[k], &o->values[k]);
    }
    intern_done(&ids);
}

bool pseudonym_rules(const struct hash_key *key, struct rules *rules, pseudonym_unjudged *each, void *data)
{
    struct rewriter w = { key, rules, each, data, false };
    rewrite_except(&w, &rules->settings.except);
    for (size_t i = 0; i < rules->rule_count; i++)
        rewrite_rule(&w, rules->rules[i]);
    rewrite_overrides(&w);
    return !w.failed;
}
