#include "engine/named.h"

#include "base/err.h"
#include "engine/handle.h"
#include "engine/hazard.h"

const int64_t given_lengths_us[GIVEN_LENGTHS] = { US_PER_S,           60 * US_PER_S,     3600 * US_PER_S,
                                                  86400 * US_PER_S,   604800 * US_PER_S, 2592000 * US_PER_S,
                                                  31536000 * US_PER_S };

static int wrong_count(const struct rule *rule, size_t given, struct weir_error *error)
{
    struct buf names;
    buf_init(&names, RULE_BY_MAX * (RULE_BY_TEXT_MAX + 2));
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        buf_add(&names, i ? SV(", ") : SV(""));
        rule_by_text(&rule->kind->by[i], &names);
    }
    int r =
        err_set(error, WEIR_E_INVALID, "rule %.*s counts by %s: give %d %s%s, not %zu", SV_FMT(rule->id),
                names.len ? names.ptr : "nothing, for all together", rule->kind->by_count,
                rule->kind->by_count == 1 ? "value" : "values", rule->kind->by_count > 1 ? " in this order" : "", given);
    buf_done(&names);
    return r;
}

static int find(struct named *ret, const struct subject_name *name, struct weir_error *error)
{
    const struct bound *bound = ret->bound;
    const struct bound_rule *found = bound_find(bound, weir_str(name->rule));
    if (!found)
        return err_set(error, WEIR_E_UNKNOWN_RULE, "there is no rule `%s`", name->rule);
    const struct rule *rule = found->rule;
    if (name->by_count != rule->kind->by_count)
        return wrong_count(rule, name->by_count, error);
    struct hash subject;
    hash_init(&subject, cells_hash_key(bound->cells));
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        struct facts facts;
        sv value = counted_value(&facts, bound->ruleset, &rule->kind->by[i], name->by[i]);
        if (value.len == 0 && !by_may_be_empty(&rule->kind->by[i]))
            return err_set(error, WEIR_E_INVALID, "rule %.*s counts by %s, and `%.*s` is not a valid value",
                           SV_FMT(rule->id), attribute_table[rule->kind->by[i].attribute].name.ptr, SV_FMT(name->by[i]));
        subject_add(&subject, value);
        ret->values[i] = arena_copy(&ret->arena, value);
        if (!ret->values[i].ptr)
            return err_no_memory(error);
    }
    ret->rule = found;
    ret->hash = hash_final(&subject);
    return 0;
}

int named_begin(struct weir *weir, const struct subject_name *name, struct named *ret, struct weir_error *error)
{
    *ret = (struct named){ .bound = hazard_acquire((void *const *)&weir->current) };
    if (!ret->bound)
        return err_no_memory(error);
    int r = find(ret, name, error);
    if (r < 0)
        named_end(ret);
    return r;
}

void named_end(struct named *named)
{
    hazard_release();
    arena_done(&named->arena);
}
