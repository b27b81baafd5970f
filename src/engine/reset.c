/* Forgetting what a subject has used. */
#include "base/err.h"
#include "engine/handle.h"
#include "engine/keys.h"
#include "engine/named.h"
#include "engine/penalty.h"
#include "engine/remote.h"

static bool is_counted(const struct bound *bound, const struct bound_terms *terms, uint64_t key, int64_t now_us)
{
    struct window window = limit_current_window(terms, now_us);
    struct cells_ask ask = { key, &terms->limit, &window, now_us, 0 };
    struct cells_look look;
    cells_look(bound->cells, &ask, &look);
    struct limit_report report = limit_report(&terms->limit, &window, look.state, now_us, 0);
    return report.remaining < terms->limit.capacity || report.reset_us > 0;
}

/* True: something was counted on this host. */
static bool forget_limit(const struct bound *bound, const struct bound_rule *rule, const struct bound_limit *limit,
                         uint64_t subject, int64_t now_us)
{
    /* A cell that has decayed may be there still, and is as good as none. */
    bool found = is_counted(bound, limit->terms, cell_key(limit, subject), now_us);
    cells_forget(bound->cells, cell_key(limit, subject));
    if (rule->counter == COUNTER_CELL)
        return found;
    found = is_counted(bound, limit->terms, standin_cell_of(limit, subject), now_us) || found;
    cells_forget(bound->cells, standin_cell_of(limit, subject));
    found = cells_forget(bound->cells, debt_cell_of(limit, subject)) || found;
    return cells_forget(bound->cells, slice_cell_of(bound->cells, rule, limit, subject)) || found;
}

/* Slices of this host end with their time to live. */
static bool forget_given(const struct bound *bound, const struct bound_limit *limit, uint64_t subject)
{
    bool found = false;
    for (size_t i = 0; i < GIVEN_LENGTHS; i++) {
        struct counter c = { .limit = limit, .subject = subject, .given = true, .length_us = given_lengths_us[i] };
        found = cells_forget(bound->cells, cell_key(limit, counter_subject(&c))) || found;
        found = cells_forget(bound->cells, standin_cell_of(limit, counter_subject(&c))) || found;
        found = cells_forget(bound->cells, debt_cell(&c)) || found;
    }
    return found;
}

static bool forget_limits(const struct bound *bound, const struct bound_rule *rule, const struct bound_set *set,
                          uint64_t subject, int64_t now_us)
{
    bool found = false;
    for (size_t i = 0; i < set->limit_count; i++) {
        const struct bound_limit *limit = &set->limits[i];
        found = (limit->terms->spec->given ? forget_given(bound, limit, subject)
                                           : forget_limit(bound, rule, limit, subject, now_us)) ||
                found;
    }
    return found;
}

/* The limits of all overrides, even of one that has expired. */
static bool forget_overrides(const struct bound *bound, const struct bound_rule *rule, uint64_t subject, int64_t now_us)
{
    const struct override_table *table = &bound->overrides;
    uint64_t key = key_mix(rule->rest->id, subject);
    size_t slot = override_first_slot(table, key);
    const struct override_slot *override;
    bool found = false;
    while ((override = override_next(table, key, &slot)))
        found = forget_limits(bound, rule, &table->effects[override->effect].set, subject, now_us) || found;
    return found;
}

/* Returns what was forgotten. */
static struct penalty_view forget_penalty(const struct bound *bound, const struct bound_rule *rule, uint64_t subject,
                                          int64_t now_us)
{
    struct penalty_view view = { 0 };
    if (rule->penalises)
        view = penalty_look(bound->cells, rule, subject, now_us);
    penalty_forget(bound->cells, rule, subject);
    return view;
}

/* The limits of all plans: it is not known which of them the subject has, or has had. */
static bool forget_subject(const struct bound *bound, const struct bound_rule *rule, uint64_t subject, int64_t now_us)
{
    bool found = forget_limits(bound, rule, &rule->own, subject, now_us);
    for (size_t i = 0; i < rule->rule->kind->rest->plan_count; i++)
        found = forget_limits(bound, rule, &rule->rest->plans[i], subject, now_us) || found;
    if (rule->overridden)
        found = forget_overrides(bound, rule, subject, now_us) || found;
    return forget_penalty(bound, rule, subject, now_us).level > 0 || found;
}

/* The part of a subject's state that is to be forgotten. */
enum part { PART_ALL, PART_PENALTY };

/* Forgets it here. Returns the length of `key`, the key that is to be forgotten in the store, too; 0: none. */
static size_t forget_here(const struct named *named, enum part part, int64_t now_us, struct weir_forgotten *ret,
                          char key[STORE_KEY_MAX])
{
    const struct bound *bound = named->bound;
    const struct bound_rule *rule = named->rule;
    subject_fill(&ret->subject, rule->rule, named->values, cells_hash_key(bound->cells));
    if (part == PART_PENALTY)
        ret->counted = forget_penalty(bound, rule, named->hash, now_us).rest_us > 0;
    else
        ret->counted = forget_subject(bound, rule, named->hash, now_us);
    return part == PART_PENALTY || rule->counter == COUNTER_CELL ? 0 : key_write(key, rule, named->values);
}

static int forget_part(struct weir *weir, enum part part, const struct subject_name *name, int64_t now_us,
                       struct weir_forgotten *ret, struct weir_error *error)
{
    char key[STORE_KEY_MAX];
    struct named named;
    int r = named_begin(weir, name, &named, error);
    if (r < 0)
        return r;
    size_t key_len = forget_here(&named, part, now_us, ret, key);
    named_end(&named);
    if (key_len == 0 || !weir->store)
        return 0;
    r = weir->ops->forget(weir->store, &(struct weir_str){ key, key_len }, 1, error);
    if (r > 0)
        ret->counted = true;
    return r < 0 ? r : 0;
}

int weir_forget(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count, int64_t now_us,
                struct weir_forgotten *ret, struct weir_error *error)
{
    return forget_part(weir, PART_ALL, &(struct subject_name){ rule_id, by, by_count }, now_us, ret, error);
}

int weir_lift(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count, int64_t now_us,
              struct weir_forgotten *ret, struct weir_error *error)
{
    return forget_part(weir, PART_PENALTY, &(struct subject_name){ rule_id, by, by_count }, now_us, ret, error);
}

int weir_reset(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count, struct weir_error *error)
{
    struct weir_forgotten forgotten;
    return weir_forget(weir, rule_id, by, by_count, clock_now_us(), &forgotten, error);
}
