/* Decides: a ruleset bound to a table of cells, and the path of one request through it. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/arena.h"
#include "cells/cells.h"
#include "match/match.h"

/* ---- a ruleset bound to a table ---- */

/* The current window of a calendar limit, kept until it has passed. */
struct kept_window {
    uint64_t version; /* odd while it is written */
    struct window window;
};

struct bound_limit {
    struct limit limit;
    uint64_t id; /* hash of the cell's identity but for the subject's values */
    const struct rule_limit *spec;
    sv field; /* in the store; of rules that count there */
    struct kept_window kept;
};

/* Where a rule counts. */
enum counting {
    COUNT_LOCAL,  /* in the cells */
    COUNT_LEASED, /* in slices of the store's counts, which lie in the cells */
    COUNT_EXACT,  /* in the store */
};

struct bound_rule {
    const struct rule *rule;
    struct bound_limit *limits;
    enum rule_mode mode;  /* of rule, as is … */
    uint32_t limit_count; /* … this: a decision need not go there */
    uint32_t by_class;    /* equal for rules with the same `by`: their subjects are hashed once */
    enum counting counting;
    bool by_path; /* or by route: it counts for every reading of the path that it matches */
    sv key_end;   /* of its keys in the store: see keys.h */
};

struct bound {
    struct ruleset *ruleset;
    struct cells *cells;
    struct bound_rule *rules; /* as in the ruleset */
    struct bound_limit *limits;
    uint64_t version; /* of the rules of this engine; rises */
    bool wants_user;  /* some rule looks at the user */
    bool by_path;     /* some rule counts by path or route */
    bool shared;      /* some rule does not count in the cells alone */
    unsigned waiting; /* decisions that wait for a store and need it; atomic */
    struct arena keys;
    struct bound *next_retired;
};

/* Without a store all rules count in the cells, whatever they say. */
struct bound_sharing {
    bool store;  /* there is one: rules count there unless they say otherwise */
    bool leases; /* rules that say so count in slices in any case: one may come */
};
int bound_new(struct bound **ret, struct ruleset *ruleset, struct cells *cells, struct bound_sharing sharing,
              struct weir_error *error);
void bound_free(struct bound *bound);
/* The bound rule of this id, or NULL. */
const struct bound_rule *bound_find(const struct bound *bound, sv id);

/* The values of a rule's `by` in these facts, hashed. */
uint64_t subject_hash(const struct bound *bound, const struct bound_rule *rule, struct facts *facts);
/* The same by hand: one value after another, between hash_init with the cells' key and hash_final. */
static inline void subject_add(struct hash *hash, sv value)
{
    hash_text(hash, value.ptr, value.len);
}
/* Both halves are hashes under the table's secret already, so they only have to be stirred. */
static inline uint64_t cell_key(const struct bound_limit *limit, uint64_t subject)
{
    uint64_t x = subject ^ limit->id;
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}
struct window limit_current_window(const struct bound_limit *limit, int64_t now_us);

/* ---- decisions ---- */

enum { PLAN_INLINE = 32 }; /* limits of one request beyond which its plan takes memory from the heap */

/* One cell that a request touches. */
struct plan_entry {
    const struct bound_rule *rule;
    const struct bound_limit *limit;
    uint64_t subject;
    struct window window;
    struct cells_ask ask;
    struct cells_look look;
    struct cells_taken taken;
    bool fits;
    uint8_t reading;                 /* of the path, for the subject: see facts_use */
    const struct limit_state *state; /* after the decision: what is reported, at ask.now_us */
};

/* Where plans are made: `cap` of each. */
struct plan_room {
    struct plan_entry *entries;
    struct plan_entry **order; /* for plan_decide alone: plans that are decided one after another may share it */
    size_t cap;
};

/* The cells that one request touches: those of enforced rules first, then those of shadow rules, each in file order. A rule
 * that counts by path has its limits once for each subject, one subject after another. */
struct plan {
    struct plan_entry *entries;
    struct plan_entry **order;
    size_t enforced, count;
    const struct weir_request *request;
    int64_t now_us;
    sv repeated; /* the request is refused, since it repeats this header with different values: there are no entries */
    bool shared; /* some of them are not counted in the cells alone: plan_decide is not for it, see shared.h */
};

/* Works out the plan. false: there is no room; *ret_needed is how much there has to be, or 0 if there is no memory. */
bool plan_make(struct plan *ret, const struct bound *bound, const struct weir_request *request, sv user, int64_t now_us,
               const struct plan_room *room, size_t *ret_needed);
_Static_assert(sizeof(struct weir_verdict) <= 400, "a verdict is small: what is long is asked for");
/* Empties what a request asks for beside the verdict. */
static inline void request_clear(const struct weir_request *request)
{
    if (__builtin_expect(request->receipt != NULL, 0))
        request->receipt->count = 0;
    if (__builtin_expect(request->shadows != NULL, 0))
        request->shadows->count = 0;
}
/* Of no rule, and refused. */
void verdict_blank(struct weir_verdict *verdict);
/* Of no rule, and refused as a bad request: it repeats this header with different values. */
void verdict_repeated(struct weir_verdict *verdict, sv header);
static inline bool verdict_is_repeated(const struct weir_verdict *verdict)
{
    return !verdict->allowed && !verdict->applied && verdict->status == WEIR_BAD_REQUEST;
}
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
const struct rule *verdict_rule(const struct bound *bound, const struct weir_verdict *verdict);
/* What a verdict says of a plan whose entries are decided: `fits` and `state` of each enforced one. */
void plan_report(const struct plan *plan, const struct bound *bound, bool allowed, struct weir_verdict *ret);
/* Adds a shadow rule that would have refused; its name is added to plan->request->shadows. */
void verdict_add_shadow(struct weir_verdict *verdict, const struct plan *plan, const struct bound_rule *rule);
bool plan_charges(const struct plan *plan);
/* How many entries from i on are of the same rule. */
size_t plan_rule_entries(const struct plan *plan, size_t i);
/* Once it is decided: all limits of the rule of entry i have room; else none of them was charged. */
bool plan_rule_fits(const struct plan *plan, size_t i);

/* A part of a plan that passes or fails as one. */
struct group {
    struct plan_entry *entries;
    struct plan_entry **order; /* room for `count` */
    size_t count;
};
bool decide_group(const struct group *g, struct cells *cells, bool charge);
/* A cell that refuses has to know it, or its subject would be locked out by a clock that was wrong, or dropped and be free
 * after its limit was lowered. */
void entry_tell_refusal(struct cells *cells, const struct plan_entry *entry);

/* Decides on it, charging if the request passes and is no peek. */
void plan_decide(struct plan *plan, const struct bound *bound, struct weir_verdict *ret);
/* The same for several, in order; those of one limit that come one after another are loaded from memory at the same time.
 */
void plans_decide(struct plan *plans, size_t count, const struct bound *bound, struct weir_verdict *ret);

#endif
