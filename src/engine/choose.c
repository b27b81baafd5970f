/* Which limits a subject counts with: those of its override, of its plan, or the rule's own. */
#include "engine/bound.h"

/* ---- subjects ---- */

uint64_t subject_hash(const struct bound *bound, const struct bound_rule *rule, struct facts *facts)
{
    struct hash h;
    hash_init(&h, &bound->hash_key);
    if (__builtin_expect(rule->plain_by_count != UINT8_MAX, 1))
        for (size_t i = 0; i < rule->plain_by_count; i++)
            subject_add(&h, facts_text(facts, (enum attribute)rule->plain_by[i]));
    else
        for (size_t i = 0; i < rule->rule->kind->by_count; i++)
            subject_add(&h, facts_attribute(facts, &rule->rule->kind->by[i]));
    return hash_final(&h);
}

/* ---- overrides ---- */

const struct override_slot *override_next(const struct override_table *table, uint64_t key, size_t *slot)
{
    for (size_t i = *slot;; i = (i + 1) & table->mask) {
        if (!table->tags[i]) {
            *slot = i;
            return NULL;
        }
        if (table->tags[i] == override_tag(key) && table->slots[i].key == key) {
            *slot = (i + 1) & table->mask;
            return &table->slots[i];
        }
    }
}

const struct override_slot *bound_override(const struct bound *bound, const struct bound_rule *rule, uint64_t subject,
                                           int64_t now_us)
{
    if (!rule->overridden)
        return NULL;
    const struct override_table *table = &bound->overrides;
    uint64_t key = key_mix(rule->rest->id, subject);
    size_t slot = override_first_slot(table, key);
    const struct override_slot *override = override_next(table, key, &slot);
    while (override && now_us >= table->effects[override->effect].expires_us)
        override = override_next(table, key, &slot);
    return override;
}

/* ---- plans ---- */

const struct rule_plan *bound_plan(const struct bound_rule *rule, struct facts *facts)
{
    const struct rule *r = rule->rule;
    sv value = r->kind->rest->plan_count > 0 ? facts_attribute(facts, &r->kind->rest->plan) : (sv){ 0 };
    for (size_t i = 0; i < r->kind->rest->plan_count; i++) {
        sv name =
            __builtin_expect(rule->rest->plan_names != NULL, 0) ? rule->rest->plan_names[i] : r->kind->rest->plans[i].name;
        if (r->kind->ignore_case ? sv_eq_nocase(value, name) : sv_eq(value, name))
            return &r->kind->rest->plans[i];
    }
    return NULL;
}

const struct bound_set *bound_choose(const struct bound *bound, const struct bound_rule *rule, struct facts *facts,
                                     uint64_t subject, int64_t now_us)
{
    const struct override_slot *override = bound_override(bound, rule, subject, now_us);
    if (override)
        return &bound->overrides.effects[override->effect].set;
    const struct rule_plan *plan = bound_plan(rule, facts);
    return plan ? &rule->rest->plans[plan - rule->rule->kind->rest->plans] : &rule->own;
}

/* ---- values that people write ---- */

/* Returns one value as facts spell it. They are made from a request that has nothing else. */
static sv spell(struct facts *facts, const struct ruleset *ruleset, const struct rule_by *by, sv value)
{
    struct weir_header header = { by->name, value };
    struct weir_request request = { .headers = &header, .header_count = by->attribute == ATTR_HEADER };
    if (by->attribute == ATTR_ROUTE)
        request.path = value;
    else if (by->attribute != ATTR_HEADER)
        request_set(&request, by->attribute, value);
    facts_init(facts, ruleset, &request, request.user);
    return facts_attribute(facts, by);
}

/* A route as people were shown it: its `#` stand for ids. In a path they would end it, as a `?` would, so both are encoded.
 */
static sv spell_route(struct facts *facts, const struct ruleset *ruleset, const struct rule_by *by, sv value)
{
    char path[PATH_BYTES_MAX];
    size_t len = 0;
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        sv text = c == '#' ? SV("%23") : c == '?' ? SV("%3F") : sv_of(&c, 1);
        if (len + text.len > sizeof path)
            return (sv){ 0 };
        memcpy(path + len, text.ptr, text.len);
        len += text.len;
    }
    return spell(facts, ruleset, by, sv_of(path, len));
}

/* All entries of a descriptor, as descriptor_text() writes them. */
static sv spell_descriptor(struct facts *facts, sv value)
{
    char bytes[DESCRIPTOR_TEXT_MAX];
    struct weir_header entries[WEIR_DESCRIPTOR_MAX];
    if (value.len > sizeof bytes)
        return (sv){ 0 };
    struct weir_request request = { .descriptor = entries, .descriptor_count = descriptor_read(value, bytes, entries) };
    return descriptor_text(&request, facts->descriptor_buf);
}

/* A network is counted as it is: people copy what they were shown. */
sv counted_value(struct facts *facts, const struct ruleset *ruleset, const struct rule_by *by, sv value)
{
    if (by->attribute == ATTR_ROUTE && value.len && memchr(value.ptr, '#', value.len))
        return spell_route(facts, ruleset, by, value);
    if (by->attribute == ATTR_DESCRIPTOR && by->name.len == 0)
        return spell_descriptor(facts, value);
    if (by->attribute == ATTR_DESCRIPTOR || by->attribute == ATTR_DESCRIPTOR_KEYS)
        return value;
    if (by->attribute != ATTR_IP)
        return spell(facts, ruleset, by, value);
    sv network = sv_trim_ows(value), address = sv_cut(&network, '/'); /* as the ip of a request is */
    sv counted = spell(facts, ruleset, by, address), of = counted;
    sv_cut(&of, '/');
    return network.len == 0 || sv_eq(network, of) ? counted : (sv){ 0 };
}
