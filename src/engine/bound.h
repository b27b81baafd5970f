/* A ruleset bound to a table of cells. */
#ifndef ENGINE_BOUND_H
#define ENGINE_BOUND_H

#include "base/arena.h"
#include "cells/cells.h"
#include "engine/seal.h"
#include "match/match.h"

/* The current window of a calendar limit, cached until it has passed. */
struct window_cache {
    uint64_t version; /* odd while it is written */
    struct window window;
};

/* Names that verdicts have are followed by zeros, to a multiple of so many bytes: they are copied in such pieces. */
enum { NAME_PIECE = 16 };

/* What a limit says: its numbers, its unit and its name. Limits of a block that say the same share it (see terms.h): there
 * may be very many limits, of a few kinds, and then it stays in the cache. A decision reads three cache lines, for a window
 * only the first and the third. */
struct bound_terms {
    _Alignas(64) struct limit limit;
    const struct rule_limit *spec; /* that of the first of these limits: those of the others are equal */

    const char *name; /* of spec, as verdict_copy() wants it */
    uint8_t name_len;
    bool unnamed;      /* the rules do not name it */
    bool counts_other; /* it counts something else than the cost in requests */
    struct window_cache cache;
    sv field; /* its name in the store; only if a leased or exact rule has it */
};
_Static_assert(offsetof(struct bound_terms, name) == 128, "of a window the first and the third line are read");
_Static_assert(sizeof(struct bound_terms) == 192, "three lines");

/* The part of a limit that belongs to one rule alone. With many rules in use it comes from memory. */
struct bound_limit {
    _Alignas(16) const struct bound_terms *terms; /* NULL: nothing uses this place of its block */
    uint64_t id;                                  /* hash of the cell's identity but for the subject's values */
};
_Static_assert(sizeof(struct bound_limit) == 16, "a quarter of a line");

/* The kinds of counters: see counter.h. */
enum counter_kind {
    COUNTER_CELL,    /* local rules: a cell of this host's table */
    COUNTER_SLICE,   /* leased rules: a slice of the store's count, which lies in this host's table */
    COUNTER_STORE,   /* exact rules: the store */
    COUNTER_STANDIN, /* leased and exact rules while the store is unavailable: what their on_store_failure says */
    COUNTER_JOINED,  /* another counter of the decision is the same, and counts for both: see parts.c */
    COUNTER_COUNTED, /* it was charged or given back, whatever the others say: its outcome stands */
};

/* The limits that a subject counts with: the rule's own, those of its plan, or those of its override. */
struct bound_set {
    const struct bound_limit *limits;
    uint32_t limit_count;
    enum counter_kind
        counter; /* the rule's; COUNTER_CELL for an override that denies, since no store is asked about that */
};

enum { BOUND_BY_PLAIN = 3 };

/* What few rules have: those with plans, overrides or a penalty, those that replace others or count in the store. */
struct bound_rule_rest {
    const uint32_t *replaces; /* the rules that do not count where this one applies, by their number, rising */
    uint32_t replace_count;
    const struct bound_set *plans; /* as in `rule` */
    const sv *plan_names;          /* of plans that a path chooses, as paths are counted; NULL: as in `rule` */
    uint64_t id;                   /* hash of the rule's id */
    uint64_t penalty_id;           /* as the id of a limit, for the cell of a subject's penalty */
    sv key_end;                    /* of its keys in the store: see keys.h */
};

/* One cache line, which is all that a decision reads unless the rule has something out of the ordinary. It is copied for
 * each version of the rules. */
struct bound_rule {
    _Alignas(64) struct bound_set own;
    const struct rule *rule;
    const struct bound_rule_rest *rest; /* never NULL */
    /* The rule's id, as verdict_copy() wants it: most ids are shorter than a piece. */
    union {
        char name[NAME_PIECE];
        const char *long_name; /* from name_len NAME_PIECE on */
    };
    uint32_t by_class;             /* equal for rules with the same `by`: their subjects are hashed once */
    uint8_t limit_most;            /* in one of its sets */
    enum rule_mode mode : 8;       /* copies from `rule`, so that a decision need not read it */
    enum counter_kind counter : 8; /* of its limits, whatever set they are in */
    uint8_t name_len;
    uint16_t status;                  /* of its refusals */
    uint8_t plain_by_count;           /* UINT8_MAX: `by` of the rule says what it counts by; else … */
    uint8_t plain_by[BOUND_BY_PLAIN]; /* … these, none of which has a name: enum attribute */
    bool by_path : 1;                 /* or by route: it counts for every reading of the path that it matches */
    bool chooses : 1;                 /* it has plans or overrides: bound_choose() says which limits count */
    bool penalises : 1;               /* it has a penalty, and is enforced */
    bool given : 1;                   /* requests bring its limit; it does not apply to one that brings none */
    bool special : 1;                 /* it penalises, or its limit is given */
    bool one_cell : 1;                /* all that it does is to count requests in one cell */
    bool overridden : 1;
    bool units : 1, slots : 1; /* some limit of its own or of its plans counts something else than requests; slots */
};
_Static_assert(sizeof(struct bound_rule) == 64, "one cache line");
_Static_assert(WEIR_ID_MAX <= UINT8_MAX, "name_len");
_Static_assert(RULE_LIMITS_MAX <= UINT8_MAX, "limit_most");

/* The effect of an override. Many overrides share one effect, which then stays in the cache. */
struct override_effect {
    struct bound_set set;
    int64_t expires_us;
};

struct override_slot {
    uint64_t key;    /* of its rule and subject */
    uint32_t effect; /* number */
    uint32_t index;  /* in the rules */
};

/* All overrides: open addressing, at most half full. Most subjects have none, and only a tag is read for them. A key may be
 * there more than once: two spellings of a path are one subject. The first that has not expired is in force. */
struct override_table {
    uint8_t *tags; /* 0: empty; else a part of the key */
    struct override_slot *slots;
    size_t mask;
    struct override_effect *effects;
    uint32_t effect_count;
};

/* All verdicts on requests that pass a rule of one cell are the same but for what is left; not those of a calendar limit,
 * which tell how long its window still lasts. */
struct verdict_like {
    struct weir_verdict verdict;
    const struct limit *limit;
    /* Names are copied in pieces of NAME_PIECE bytes. 0: one of them is long. */
    uint8_t rule_pieces, limit_pieces;
};

/* The rules that apply to the requests of a prepared check: see prepared.c. */
struct prepared_plan {
    int64_t from_us, until_us; /* in between they are these: none of them expires */
    enum {
        PREPARED_ORDINARY, /* it cannot be said beforehand: ask weir_check */
        PREPARED_RULES,    /* `rules` apply */
        PREPARED_CELL,     /* one rule applies, and all that it does is to count in one cell */
    } kind;
    uint32_t rule_count;
    /* PREPARED_CELL. The value that varies is the last one of `by`. */
    const struct bound_rule *rule;
    const struct bound_terms *terms; /* of its limit */
    uint64_t limit_id;
    bool alone;                 /* `by` has no other value */
    bool same;                  /* all verdicts on requests that pass are the same but for what is left */
    struct hash subject;        /* of the values before it */
    struct verdict_like passes; /* if `same` */
    struct prepared_plan *older;
    unsigned age; /* how many older ones there are */
    uint32_t rules[];
};

/* Prepared checks of a handle have numbers below PREPARED_MAX. */
enum { PREPARED_PART = 64, PREPARED_PARTS = 64, PREPARED_MAX = PREPARED_PART * PREPARED_PARTS };
struct prepared_part {
    struct prepared_plan *plans[PREPARED_PART];
};

/* Without a store all rules count in the cells, whatever they say. */
struct bound_sharing {
    bool store;  /* this process has a store: rules count there unless they say otherwise */
    bool leases; /* leased rules count in slices even without a store: a lender may come later */
};

/* The limits that were bound for one version of the rules, and the texts of these rules. Later versions share them. */
struct bound_block {
    struct bound_limit *limits;
    size_t limit_count;            /* room; those that nothing uses are zero */
    struct policy_text **policies; /* of each limit; atomic: made when headers first need one, see src/present/headers.c */
    struct arena keys;
    struct rules *rules; /* held: terms point to limits of rules that later versions may not have */
    unsigned users;      /* versions of the rules of one handle, which frees one at a time */
};
/* Blocks of a version: one for the limits of its overrides, which is not shared, as many as sets of rules can share, and
 * its own. The number of a limit is that of its block, and its place there. */
enum { BOUND_BLOCKS_MAX = RULES_BASES_MAX + 2, BOUND_PLACE_BITS = 25 };
_Static_assert(BOUND_BLOCKS_MAX < 1 << (32 - BOUND_PLACE_BITS), "1 + a number fits into 32 bits");
_Static_assert(RULES_VALUES_MAX + RULES_OVERRIDES_MAX * RULE_LIMITS_MAX < 1 << BOUND_PLACE_BITS, "limits of a set");

struct bound {
    /* What every decision reads. */
    struct ruleset *ruleset;
    struct cells *cells;
    struct hash_key hash_key; /* of the cells: subjects and limits are hashed with it */
    struct bound_rule *rules; /* as in the ruleset */
    uint64_t version;         /* of the rules of this engine; rises */
    bool wants_user;          /* some rule looks at the user */
    bool by_path;             /* some rule counts by path or route */
    bool remote;              /* some rule is leased or exact */
    bool units;               /* some limit counts something else than requests */
    bool slots;               /* some limit counts what is in flight */
    bool leaves_out;          /* some rule that matches may be left out: it is replaced, or its limit is given */
    bool replaces;            /* some rule replaces others */
    uint32_t matches;         /* bits of the attributes that conditions and exceptions of rules look at */

    struct prepared_part *prepared[PREPARED_PARTS]; /* by number; atomic, as are their plans: made when they are needed */
    struct bound_block *blocks[BOUND_BLOCKS_MAX];   /* that of the overrides comes first, its own last */
    unsigned block_count;
    size_t limits_in_use; /* of rules */
    struct bound_sharing sharing;
    struct override_table overrides;
    uint32_t *by_id; /* 1 + numbers of limits, by their ids and rates: open addressing, at most 2/5 full */
    uint32_t by_id_size;
    unsigned waiting; /* number of decisions that wait and need these rules; atomic */
    struct bound *next_retired;
    struct seal_key seal_key; /* of the table's secret */
};

/* The rules that others follow, of the same cells; and of each of the others its number there, as ruleset_follow() says it.
 * NULL, both: there are none, or too many differ. */
struct bound_before {
    const struct bound *bound;
    const uint32_t *was;
};
/* Takes over the ruleset. Rules that have not changed are not bound again. */
int bound_new(struct bound **ret, struct ruleset *ruleset, struct cells *cells, struct bound_sharing sharing,
              struct bound_before before, struct weir_error *error);
void bound_free(struct bound *bound);
/* Makes by_id, once all rules are bound. `before`: whose rules are shared, under the same numbers, all but these; NULL:
 * they are not. False: no memory. */
bool bound_index_limits(struct bound *bound, const struct bound *before, const uint32_t *fresh, size_t fresh_count);
void prepared_plan_free(struct prepared_plan *plan); /* and the older ones */
/* Returns the limit with this number, or NULL if there is none. */
static inline struct bound_limit *bound_limit_at(const struct bound *bound, uint32_t number)
{
    uint32_t block = number >> BOUND_PLACE_BITS, place = number & ((UINT32_C(1) << BOUND_PLACE_BITS) - 1);
    return block < bound->block_count && place < bound->blocks[block]->limit_count ? &bound->blocks[block]->limits[place]
                                                                                   : NULL;
}
/* The inverse. */
static inline uint32_t bound_limit_number(const struct bound *bound, const struct bound_limit *limit)
{
    for (uint32_t i = bound->block_count; i-- > 0;) {
        size_t place = ((uintptr_t)limit - (uintptr_t)bound->blocks[i]->limits) / sizeof *limit;
        if (place < bound->blocks[i]->limit_count)
            return i << BOUND_PLACE_BITS | (uint32_t)place;
    }
    return UINT32_MAX;
}
/* Returns where the policy of a limit of this number is kept, or NULL if out of memory. */
struct policy_text **bound_policy(const struct bound *bound, uint32_t number);
/* Returns what tells the rate of a bucket from another, and the windows of a sliding one; 0 for other windows, whose states
 * say when they end. (Slots have their time to live in its place.) */
static inline uint64_t limit_rate(const struct limit *limit)
{
    if (limit->algorithm == LIMIT_SLIDING_WINDOW)
        return (uint64_t)limit->per_us;
    return limit->algorithm == LIMIT_TOKEN_BUCKET ? key_mix((uint64_t)limit->per_us, limit->max) : 0;
}
/* Where the search for a hash begins in by_id, and where it goes on. */
static inline size_t by_id_slot(const struct bound *bound, uint64_t hash)
{
    return (size_t)((hash & UINT32_MAX) * bound->by_id_size >> 32);
}
static inline size_t by_id_next(const struct bound *bound, size_t slot)
{
    return slot + 1 < bound->by_id_size ? slot + 1 : 0;
}
/* Returns a limit with this id: the rule's own if there is one, of slots the one with the shortest time to live; those of
 * plans and overrides have the same id. NULL: there is none. *ret_slot: its place in by_id. */
static inline const struct bound_limit *bound_first_limit(const struct bound *bound, uint64_t id, size_t *ret_slot)
{
    uint32_t number;
    for (size_t slot = by_id_slot(bound, id); (number = bound->by_id[slot]) != 0; slot = by_id_next(bound, slot)) {
        const struct bound_limit *limit = bound_limit_at(bound, number - 1);
        *ret_slot = slot;
        if (limit->id == id)
            return limit;
    }
    return NULL;
}
/* Where the search for a limit begins whose rate is not that of the first one with its id. */
static inline size_t bound_rate_slot(const struct bound *bound, uint64_t id, uint64_t rate)
{
    return by_id_slot(bound, key_mix(id, rate));
}
/* Returns a limit with this id and rate, or NULL. */
static inline const struct bound_limit *bound_limit_of_rate(const struct bound *bound, uint64_t id, uint64_t rate)
{
    size_t slot;
    const struct bound_limit *limit = bound_first_limit(bound, id, &slot);
    if (!limit || limit_rate(&limit->terms->limit) == rate)
        return limit;
    uint32_t number;
    for (slot = bound_rate_slot(bound, id, rate); (number = bound->by_id[slot]) != 0; slot = by_id_next(bound, slot)) {
        limit = bound_limit_at(bound, number - 1);
        if (limit->id == id && limit_rate(&limit->terms->limit) == rate)
            return limit;
    }
    return NULL;
}
/* As the id of a limit, for the cell of a subject's penalty: also that of a rule that has no penalty any more. */
uint64_t penalty_id(const struct hash_key *key, const struct rule *rule);
/* The bound rule of this id, or NULL. */
const struct bound_rule *bound_find(const struct bound *bound, sv id);

/* Returns the plan that the request chooses, whatever overrides say; NULL: none. */
const struct rule_plan *bound_plan(const struct bound_rule *rule, struct facts *facts);
/* The limits that count for a subject of a rule that `chooses`, in the reading of the path that is in use. */
const struct bound_set *bound_choose(const struct bound *bound, const struct bound_rule *rule, struct facts *facts,
                                     uint64_t subject, int64_t now_us);
/* The same for any rule. */
static inline const struct bound_set *bound_limits(const struct bound *bound, const struct bound_rule *rule,
                                                   struct facts *facts, uint64_t subject, int64_t now_us)
{
    return __builtin_expect(rule->chooses, 0) ? bound_choose(bound, rule, facts, subject, now_us) : &rule->own;
}
/* Returns the next override with this key, or NULL after the last one. They come in the order of the rules. *slot is where
 * the search begins (override_first_slot()) or goes on; at the end it is an empty slot. */
const struct override_slot *override_next(const struct override_table *table, uint64_t key, size_t *slot);
static inline size_t override_first_slot(const struct override_table *table, uint64_t key)
{
    return (size_t)key & table->mask;
}
static inline uint8_t override_tag(uint64_t key)
{
    return (uint8_t)(key >> 56 | 1);
}
/* Returns whether `rule` replaces the rule of this number. */
bool bound_replaces(const struct bound_rule *rule, uint32_t replaced);
/* Returns the override of a subject that is in force, or NULL. */
const struct override_slot *bound_override(const struct bound *bound, const struct bound_rule *rule, uint64_t subject,
                                           int64_t now_us);
/* Returns the name of a limit: the rules give it, or it was made. */
static inline sv limit_name(const struct bound_limit *limit)
{
    return limit->terms->spec->name;
}
/* Returns whether this is the limit of an override that denies; its name is `deny`. */
bool limit_denies(const struct bound_limit *limit);

/* Returns a value that a person wrote in the form in which it is counted; empty if it is not valid for this attribute. The
 * result is valid as long as `facts` and `value`; the content of `facts` does not matter. */
sv counted_value(struct facts *facts, const struct ruleset *ruleset, const struct rule_by *by, sv value);
/* The values of a rule's `by` in these facts, hashed. */
uint64_t subject_hash(const struct bound *bound, const struct bound_rule *rule, struct facts *facts);
/* The same by hand: one value after another, between hash_init with the cells' key and hash_final. */
static inline void subject_add(struct hash *hash, sv value)
{
    hash_text(hash, value.ptr, value.len);
}
static inline uint64_t cell_key(const struct bound_limit *limit, uint64_t subject)
{
    return key_mix(limit->id, subject);
}
/* Returns what a cost counts as: one that is too high never passes, or is, with overdraft, the most that can be owed. */
static inline uint64_t limit_cost_within(const struct bound_terms *terms, uint64_t cost)
{
    if (__builtin_expect(terms->limit.overdraft, 0)) {
        uint64_t most = limit_overdraft_cost(&terms->limit);
        return cost <= most ? cost : most;
    }
    return cost <= WEIR_AMOUNT_MAX ? cost : WEIR_AMOUNT_MAX + 1;
}
/* Returns what a request costs a limit: at most WEIR_AMOUNT_MAX + 1, which never passes, so that no sum of counts
 * overflows. A limit with overdraft has a smaller bound, and passes it: see limit_overdraft_cost. */
uint64_t limit_cost_by_unit(const struct bound_terms *terms, const struct weir_request *request);
static inline uint64_t limit_cost(const struct bound_terms *terms, const struct weir_request *request)
{
    return limit_cost_within(terms,
                             __builtin_expect(terms->counts_other, 0) ? limit_cost_by_unit(terms, request) : request->cost);
}
struct window limit_current_window(const struct bound_terms *terms, int64_t now_us);

#endif
