/* Penalties: whom a rule refuses too often, it refuses for longer. See penalty.c. */
#ifndef ENGINE_PENALTY_H
#define ENGINE_PENALTY_H

#include "engine/bound.h"
#include "engine/decision.h"

/* A subject's penalty at some time. */
struct penalty_view {
    int64_t rest_us;  /* of the one that runs; 0: none does */
    unsigned level;   /* number of penalties in a row, with the last one: how long the next one is; 0: none is remembered */
    unsigned refused; /* refusals that count towards the next one */
    bool by_hand;     /* a person began the one that runs */
};

enum { PENALTY_LEVEL_MAX = 63 };

/* Returns how long the penalty number `level` in a row lasts. */
int64_t penalty_length_us(const struct rule_penalty *penalty, unsigned level);

/* The rule penalises. */
static inline uint64_t penalty_cell(const struct bound_rule *rule, uint64_t subject)
{
    return key_mix(rule->rest->penalty_id, subject);
}

/* The rule penalises (rule->penalises). Writes nothing. */
struct penalty_view penalty_look(const struct cells *cells, const struct bound_rule *rule, uint64_t subject,
                                 int64_t now_us);
/* The same before a decision: if the clock was set back, the penalty is shortened so that it does not run again. */
struct penalty_view penalty_check(struct cells *cells, const struct bound_rule *rule, uint64_t subject, int64_t now_us);
/* Counts a refusal. Returns true if a penalty begins with it; *ret is what holds afterwards. */
bool penalty_refused(struct cells *cells, const struct bound_rule *rule, uint64_t subject, int64_t now_us,
                     struct penalty_view *ret);
/* Penalises the subject for this long from now on, as if the rule had. At most PENALTY_BY_HAND_MAX_US. */
#define PENALTY_BY_HAND_MAX_US (31 * 86400 * US_PER_S)
struct penalty_view penalty_begin(struct cells *cells, const struct bound_rule *rule, uint64_t subject, int64_t length_us,
                                  int64_t now_us);
/* Lifts a penalty that runs, and forgets earlier ones. Returns whether there was anything to forget; the rule may have no
 * penalty any more. */
bool penalty_forget(struct cells *cells, const struct bound_rule *rule, uint64_t subject);

/* ---- of a decision ---- */

/* Before anything is taken: finds the subjects of enforced rules that are penalised. Returns whether there are any; then
 * the request is refused. */
bool decision_find_penalties(struct decision *d);
/* The request is refused: counts that for each enforced rule whose own limits have refused it. */
void decision_count_refusals(struct decision *d);

#endif
