/* One decision: the counters that a request touches, and its way from the request to the verdict.
 *
 *                        ┌────────────────────────────────────────────┐
 *                        ▼                                            │
 *   plan ──► TAKE ──► REPORT ──► DONE                                 │
 *             │ ▲ ▲                                                   │
 *             │ │ └── SLICES          a slice is short: wait for it   │
 *             │ └──── WITHOUT ◄─┐     the store does not answer       │
 *             └─────► CALL ──► SETTLE ──────── the store's answer ────┘
 *
 *   state     what it does                                       next
 *   TAKE      looks at penalties, then at all counters,          REPORT    refused, or nothing is left to take
 *             then takes those of this host, all or none         SLICES    a slice is short, and may be waited for
 *                                                                TAKE      it may not: stand-ins replace slices
 *                                                                CALL      some counters are in the store
 *                                                                WITHOUT   … which is unavailable
 *   SLICES    waits: slices were asked for, nothing is charged   TAKE
 *   CALL      waits: one call asks the store                     SETTLE    answered
 *             to take its counters, all or none                  WITHOUT   late
 *   SETTLE    takes in the store's answer                        REPORT
 *                                                                CALL      its clock has other windows: ask again
 *                                                                WITHOUT   the call failed
 *   WITHOUT   gives everything back; stand-ins replace           TAKE      the store may be asked about the others
 *             the counters whose server does not answer
 *   REPORT    gives everything back if the request is refused;   DONE
 *             fills the verdict; decides on shadow rules
 *   DONE      the verdict is filled
 *
 * A request that touches local rules only goes from TAKE to REPORT to DONE. The others may stop at SLICES and at CALL; a
 * driver (block.c, loop.c) resumes them. Nothing in here waits. */
#ifndef ENGINE_DECISION_H
#define ENGINE_DECISION_H

#include "engine/bound.h"

struct weir;
struct remote;

enum counter_outcome {
    COUNTER_REFUSES,
    COUNTER_FITS,
    COUNTER_SHORT, /* too little of the slice is left on this host: more has to be fetched first */
};

/* Whether the subject of a counter is penalised by its rule. */
enum counter_penalty {
    PENALTY_NONE,
    PENALTY_RUNS,
    PENALTY_BEGINS, /* with this refusal */
};

/* One limit of one subject, as this decision counts it. */
struct counter {
    const struct bound_rule *rule;
    const struct bound_limit *limit;
    uint64_t subject;
    struct window window;
    /* Its cell in this host's table; and the numbers, the clock and the cost that count. A counter whose cost is 0 is
     * looked at, and never taken. */
    struct cells_ask ask;
    struct cells_look look;
    struct cells_taken taken;
    const struct limit_state *state; /* after look or take: what is reported, at ask.now_us */
    uint64_t origin;                 /* of a hold: cells_origin */
    enum counter_kind kind : 8;
    enum counter_outcome outcome : 8; /* of the last look or take */
    bool joinable;                    /* on_hold: it may be joined with others: see cells_terms */
    bool held;                        /* charged by this decision, and not given back */
    bool on_hold;                     /* … and the charge is a hold */
    uint8_t reading;                  /* of the path, for the subject: see facts_select_reading */
    enum counter_penalty penalty : 8;
    uint8_t part;                    /* number of the request that it belongs to, of those decided together */
    enum weir_charging charging : 8; /* what happens to the cost */
    bool given;                      /* the request brings the limit: `numbers` */
    bool first;                      /* of the limits of its rule and subject */
    /* Only where several requests are decided together, see parts.c: the counter that counts for this one, too, or its own
     * number; and the costs of all that it counts for, up to this one and with it. */
    uint32_t leader;
    uint64_t so_far;
    struct limit_state own_state;
    struct counter_view {
        uint64_t cost;
        const struct limit_state *state;
        enum counter_outcome outcome;
    } view;
    struct limit numbers; /* given: those of the request … */
    int64_t length_us;    /* … and the length of its window */
};

/* Makes the counter of a limit for one subject, as long as nothing else is known of it. */
static inline __attribute__((always_inline)) void counter_init(struct counter *c, const struct bound_rule *rule,
                                                               const struct bound_limit *limit, enum counter_kind kind,
                                                               uint64_t subject, int64_t now_us, uint64_t cost)
{
    c->rule = rule;
    c->limit = limit;
    c->subject = subject;
    c->kind = kind;
    c->held = c->on_hold = false;
    c->reading = 0;
    c->penalty = PENALTY_NONE;
    c->part = 0;
    c->charging = WEIR_CHARGE_IF_ROOM;
    c->given = false;
    const struct bound_terms *terms = limit->terms;
    if (terms->limit.algorithm == LIMIT_CALENDAR)
        c->window = limit_current_window(terms, now_us);
    c->ask = (struct cells_ask){ cell_key(limit, subject), &terms->limit, &c->window, now_us, cost };
}

/* Returns the numbers of the counter's limit. A stand-in may have others: ask.limit. */
static inline const struct limit *counter_limit(const struct counter *c)
{
    return __builtin_expect(c->given, 0) ? &c->numbers : &c->limit->terms->limit;
}

/* Returns the subject as it is part of the keys of its cells. Limits that requests bring count apart for each length of
 * their window. */
static inline uint64_t counter_subject(const struct counter *c)
{
    return __builtin_expect(c->given, 0) ? c->subject ^ key_mix((uint64_t)c->length_us, 1) : c->subject;
}

/* Returns whether it is charged, or given back, whatever the other counters say. */
static inline bool counter_insists(const struct counter *c)
{
    return __builtin_expect(c->charging != WEIR_CHARGE_IF_ROOM, 0) && c->ask.cost > 0;
}

/* Returns the window of a calendar limit at this time. Those of limits that requests bring are counted from 1970. */
static inline struct window counter_window(const struct counter *c, int64_t now_us)
{
    if (__builtin_expect(!c->given, 1))
        return limit_current_window(c->limit->terms, now_us);
    int64_t start_us = now_us - now_us % c->length_us;
    return (struct window){ start_us, start_us + c->length_us };
}

enum decision_state {
    DECISION_TAKE,
    DECISION_SETTLE,
    DECISION_WITHOUT,
    DECISION_REPORT,
    DECISION_STOPS, /* it stops at the following */
    DECISION_SLICES = DECISION_STOPS,
    DECISION_CALL,
    DECISION_DONE,
};

struct decision {
    enum decision_state state;
    bool allowed; /* from REPORT on */
    bool charges; /* it is not a peek, and some cost is not 0 */
    bool holds;   /* some charges are holds: those of a request with a ttl_ms, and slots */
    uint32_t hold_id;
    /* Some enforced rule has penalties. Only then the following count: from TAKE on, the counter of the penalised subject
     * that has to wait longest, and how long; NULL: none is penalised. */
    bool penalties;
    bool insists;  /* some request charges always, or gives back */
    bool one_cell; /* it charges one cell, and the request asks for nothing but the verdict: see one_cell.h */
    const struct counter *penalised;
    int64_t penalty_us;
    const struct bound *bound;
    const struct weir_request *request; /* the first of those decided together */
    size_t parts;                       /* how many there are */
    uint64_t matched; /* a bit for each of them: some rule applies to it, if only one that limits nothing */
    int64_t now_us;
    /* Those of enforced rules first, then those of shadow rules; of each mode one request after another, in file order. A
     * rule that counts by path has its limits once for each subject, one subject after another. */
    struct counter *counters;
    struct counter **order; /* decisions that are run one after another may share it */
    size_t cap;             /* of both */
    bool grows; /* if there is too little room, the plan takes more from the heap: `grown`, for the caller to free */
    void *grown;
    size_t enforced, count;
    sv repeated; /* a request repeats this header with different values: all are refused, and there are no counters */
    size_t repeated_part; /* which one */
    struct weir_verdict *verdict;
    struct remote *remote; /* NULL: all counters are cells of this host */
    size_t remote_from;    /* number of the first counter in remote->counters; 0, but for a part: see parts.c */
};

enum { PLAN_LOADS = 4 }; /* counters whose cells the plan starts to load; decision_run() does the same for the others */

enum { COUNTERS_INLINE = 32 }; /* a request with more limits takes memory from the heap */

/* Makes the counters of a request, and of those that are decided together with it, in d->counters and d->order, which have
 * room for d->cap; d->remote may be NULL. `users` has the user of each. Returns false if there is too little room, and d
 * does not grow: *ret_needed is the room that is needed, or 0 if out of memory. */
bool decision_plan(struct decision *d, const struct bound *bound, const struct weir_request *request, const sv *users,
                   int64_t now_us, size_t *ret_needed);
/* The same for a request that is decided alone, and whose rules are known. */
struct matched;
bool decision_plan_matched(struct decision *d, const struct bound *bound, const struct matched *request,
                           size_t *ret_needed);
/* Makes the counters of a rule for one subject. Returns their end. */
struct counter *decision_plan_set(struct counter *counters, const struct bound *bound, const struct bound_rule *rule,
                                  const struct bound_set *set, uint64_t subject, const struct weir_request *request,
                                  int64_t now_us);

/* Runs until it stops: at DECISION_DONE d->verdict is filled. */
void decision_run(struct decision *d);
/* From DECISION_SLICES on: slices may have come, or it cannot wait any more. */
void decision_resume(struct decision *d, int64_t now_us);
/* From DECISION_CALL on: the store has answered. It stops at DECISION_CALL again, or at DECISION_DONE. */
void decision_answered(struct decision *d);
/* From DECISION_CALL on: nobody waits for the answer any more. Ends at DECISION_DONE. */
void decision_late(struct decision *d);
/* After decision_late, or after a decision_look that nobody waits for any more, when the call is done at last: gives back
 * what was charged twice, or for a request that was refused. */
void decision_aftermath(struct decision *d);

/* In place of decision_run, for weir_explain: looks at every counter and charges nothing. At DECISION_CALL the store has to
 * be asked; decision_looked when it has answered. */
void decision_look(struct decision *d);
void decision_looked(struct decision *d);

/* Returns how many counters from i on are of the same rule, and of the same request. */
static inline size_t decision_rule_counters(const struct decision *d, size_t i)
{
    size_t end = i;
    while (end < d->count && d->counters[end].rule == d->counters[i].rule && d->counters[end].part == d->counters[i].part)
        end++;
    return end - i;
}

#endif
