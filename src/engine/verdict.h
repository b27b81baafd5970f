/* Filling a verdict. */
#ifndef ENGINE_VERDICT_H
#define ENGINE_VERDICT_H

#include "engine/decision.h"

_Static_assert(sizeof(struct weir_verdict) <= 400, "a verdict is small: what is long is asked for");

/* Refuses, and names no rule. */
void verdict_blank(struct weir_verdict *verdict);

/* Empties what a request asks for besides the verdict. */
static inline void request_clear(const struct weir_request *request)
{
    if (request->own_shadow)
        verdict_blank(request->own_shadow);
    if (request->receipt)
        request->receipt->count = 0;
    if (request->shadows)
        request->shadows->count = 0;
    if (request->usage)
        request->usage->count = 0;
}

/* Refuses, and names no rule, for a request (may be NULL) that could not be judged. */
void verdict_unjudged(struct weir_verdict *verdict, const struct weir_request *request);
/* The same for a bad request: it repeats this header with different values. */
void verdict_repeated(struct weir_verdict *verdict, sv header);
static inline bool verdict_is_repeated(const struct weir_verdict *verdict)
{
    return !verdict->allowed && !verdict->applied && verdict->status == WEIR_BAD_REQUEST;
}

/* Fills the verdict by d->allowed, and the `outcome` and `state` of the counters of enforced rules. */
void verdict_fill(const struct decision *d);
/* The same for a decision of one cell (d->one_cell), which nothing else can refuse. */
void verdict_of_cell(const struct decision *d);
/* The same for a request that is refused: if that is because the store is unavailable, it says so, and names a rule that
 * denies then. */
void verdict_refuse(struct decision *d);
/* Fills request->usage, after verdict_fill. */
void usage_fill(const struct decision *d);
/* Fills *ret as if the shadow rules whose counters these are were enforced, and no others. */
void verdict_of_shadows(const struct decision *d, struct weir_verdict *ret, size_t from, size_t end);
/* Calls request->each_rule for each rule of the decision, by the `outcome` of its counters. */
void verdict_each_rule(const struct decision *d);
/* The same for a decision of one cell. */
void verdict_rule_of_cell(const struct decision *d);
/* Adds a shadow rule that would have refused; its name goes to the request's `shadows`, which may be NULL. */
void verdict_add_shadow(struct weir_verdict *verdict, struct weir_shadows *shadows, const struct bound_rule *rule);

/* ---- verdicts that are alike ---- */

/* `like->verdict` is the verdict on a request that passed this limit. */
void verdict_like_init(struct verdict_like *like, const struct limit *limit);
void verdict_add_left(struct weir_verdict *verdict, const struct limit *limit, struct limit_state state, int64_t now_us);

static inline void verdict_of_passed(const struct verdict_like *like, struct limit_state state, int64_t now_us, bool brief,
                                     struct weir_verdict *ret)
{
    const struct weir_verdict *from = &like->verdict;
    if (__builtin_expect(like->rule_pieces == 0, 0)) {
        *ret = *from;
    } else {
        memcpy(ret, from, offsetof(struct weir_verdict, rule));
        for (size_t i = 0; i < like->rule_pieces; i++)
            memcpy(ret->rule + i * NAME_PIECE, from->rule + i * NAME_PIECE, NAME_PIECE);
        for (size_t i = 0; i < like->limit_pieces; i++)
            memcpy(ret->limit + i * NAME_PIECE, from->limit + i * NAME_PIECE, NAME_PIECE);
        ret->unit[0] = '\0';
        ret->private_rule = from->private_rule;
        ret->private_rules = from->private_rules;
    }
    if (!brief)
        verdict_add_left(ret, like->limit, state, now_us);
}

/* ---- which rules a verdict is of ---- */

/* A verdict says in private_rules which version of the rules it is of, and which reading of the path it is about. */
enum { VERDICT_VERSION_BITS = 56 };
static inline uint64_t verdict_version(const struct weir_verdict *verdict)
{
    return verdict->private_rules & ((UINT64_C(1) << VERDICT_VERSION_BITS) - 1);
}
static inline size_t verdict_reading(const struct weir_verdict *verdict)
{
    return (size_t)(verdict->private_rules >> VERDICT_VERSION_BITS);
}
/* The rule that a verdict names, as these rules have it; NULL: they have none of its id. */
const struct bound_rule *verdict_rule(const struct bound *bound, const struct weir_verdict *verdict);

#endif
