/* Finds the rules that know a value: it is the subject of a rule that counts by one attribute, and has a count, a penalty
 * or an override there. */
#include "base/err.h"
#include "engine/decision.h"
#include "engine/explain.h"
#include "engine/handle.h"
#include "engine/hazard.h"

struct finding {
    const struct bound *bound;
    int64_t now_us;
};

static bool is_used_at(const struct finding *f, const struct limit *limit, uint64_t key, const struct window *window)
{
    struct cells_ask ask = { key, limit, window, f->now_us, 0 };
    struct cells_look look;
    cells_look(f->bound->cells, &ask, &look);
    return limit_report(limit, window, look.state, f->now_us, 0).remaining < limit->capacity;
}

/* Each length of a window has a count of its own. */
static bool is_used_given(const struct finding *f, const struct bound_limit *limit, uint64_t subject)
{
    bool used = false;
    for (size_t i = 0; i < GIVEN_LENGTHS && !used; i++) {
        struct counter c = { .limit = limit, .subject = subject, .given = true, .length_us = given_lengths_us[i] };
        struct window window = counter_window(&c, f->now_us);
        used = is_used_at(f, &limit->terms->limit, cell_key(limit, counter_subject(&c)), &window);
    }
    return used;
}

static bool is_used(const struct finding *f, const struct bound_set *set, uint64_t subject)
{
    bool used = false;
    for (size_t i = 0; i < set->limit_count && !used; i++) {
        const struct bound_limit *limit = &set->limits[i];
        struct window window = limit_current_window(limit->terms, f->now_us);
        used = limit->terms->spec->given ? is_used_given(f, limit, subject)
                                         : is_used_at(f, &limit->terms->limit, cell_key(limit, subject), &window);
    }
    return used;
}

/* A subject has had limits of any plan. */
static bool is_counted(const struct finding *f, const struct bound_rule *rule, uint64_t subject)
{
    bool used = is_used(f, &rule->own, subject);
    for (size_t i = 0; i < rule->rule->kind->rest->plan_count && !used; i++)
        used = is_used(f, &rule->rest->plans[i], subject);
    return used;
}

static void look_at(const struct finding *f, const struct bound_rule *rule, sv value, struct found_subject *ret)
{
    struct hash hash;
    hash_init(&hash, cells_hash_key(f->bound->cells));
    subject_add(&hash, value);
    uint64_t subject = hash_final(&hash);
    const struct override_slot *override = bound_override(f->bound, rule, subject, f->now_us);
    *ret = (struct found_subject){ .rule = rule->rule, .value = value, .overridden = override };
    ret->known = rule->counter == COUNTER_CELL;
    if (override) /* its own limits count */
        ret->used = ret->known && is_used(f, &f->bound->overrides.effects[override->effect].set, subject);
    ret->used = ret->used || (ret->known && is_counted(f, rule, subject));
    ret->penalised = rule->penalises && penalty_look(f->bound->cells, rule, subject, f->now_us).rest_us > 0;
}

/* Returns the number of the first rule after the one with this id; that of the first rule if it is empty. */
static size_t first_after(const struct bound *bound, sv id)
{
    const struct bound_rule *rule = id.len > 0 ? bound_find(bound, id) : NULL;
    return rule ? (size_t)(rule - bound->rules) + 1 : 0;
}

int weir_find_subjects(struct weir *weir, const struct subject_search *search, int64_t now_us,
                       bool (*show)(const struct found_subject *found, void *data), void *data, struct weir_error *error)
{
    if (!clock_valid(now_us))
        return err_set(error, WEIR_E_INVALID, "the clock is out of its range");
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    struct finding f = { bound, now_us };
    bool more = search->after.len == 0 || bound_find(bound, search->after);
    int r = more ? 0 : err_set(error, WEIR_E_UNKNOWN_RULE, "there is no rule `%.*s`", SV_SHOWN(search->after, WEIR_ID_MAX));
    size_t count = ruleset_rules(bound->ruleset)->rule_count;
    for (size_t i = first_after(bound, search->after); more && i < count; i++) {
        const struct bound_rule *rule = &bound->rules[i];
        struct facts facts;
        struct found_subject found;
        if (rule->mode == MODE_OFF || rule->rule->kind->by_count != 1)
            continue;
        sv value = counted_value(&facts, bound->ruleset, &rule->rule->kind->by[0], search->value);
        if (value.len == 0)
            continue;
        look_at(&f, rule, value, &found);
        if (found.used || found.penalised || found.overridden || !found.known)
            more = show(&found, data);
    }
    hazard_release();
    return r;
}
