/* The part of a decision that is needed only if some of its counters count in a store that many hosts share: asking for
 * slices, the call to the store, and deciding without the store. */
#ifndef ENGINE_REMOTE_H
#define ENGINE_REMOTE_H

#include "base/check.h"
#include "engine/decision.h"
#include "engine/store.h"
#include "slices/debt.h"

/* Fields of a counter that only leased and exact rules need. */
struct remote_counter {
    int64_t end_us;  /* slice: end of the window that it belongs to */
    bool renew;      /* slice: little is left, and nobody has asked for more yet */
    uint32_t tokens; /* slice: how many are left, for weir_explain */
    uint32_t spent;  /* slice, stand-in for one: the part of the cost that was taken out of it; the rest is owed */
    bool owes;       /* stand-in: what it let through is owed: see counters_owe() */
    bool insisted;   /* stand-in: it was charged, whatever the others say, and is owed */
    bool late;       /* stand-in: counted in weir->late */
    bool withheld;   /* store: something is owed, but a late answer may undo it: see remote_withholds() */
    enum rule_on_failure standin; /* stand-in: what it does */
    struct limit share;           /* stand-in: the limit that it applies; if it allows everything, the rule's own */
    struct limit_state owed;      /* stand-in, overdrawn slice: the cell of what is owed, after the charge */
    struct payment payment;       /* store: of what is owed */
    int64_t clock_us;             /* store: what its server's clock said last in this decision; 0: nothing yet */
    struct store_cell *cell;      /* store: in the call */
    const struct store_rule *of;  /* … and the rule that it is part of there */
    size_t key_len; /* of the rule's key in the store, at the first counter of a rule and subject; 0: not made */
    char key[STORE_KEY_MAX];
    size_t field_len; /* of a limit that the request brings: its name within the key */
    char field[STORE_FIELD_MAX];
};

struct remote {
    struct weir *weir;
    struct remote_counter *counters; /* one for each of the decision's */
    struct weir_request request;     /* a copy; its strings are valid only while `fresh`, and so are … */
    const sv *users;                 /* … the users of all requests */
    bool fresh;                      /* the decision has not stopped yet */
    bool may_wait;                   /* set by the driver: it may stop at DECISION_SLICES */
    int64_t retry_us;         /* at DECISION_SLICES: resume it after this time in any case, since an ask may be lost */
    bool late;                /* the decision was made before the answer came */
    bool holds_rules;         /* counted in bound->waiting */
    bool gave_up;             /* the store does not answer: it is not asked any more */
    bool failed;              /* the call was answered: only the counters of rules that failed are replaced */
    bool refused;             /* by this host: the store is asked only to charge what is charged all the same */
    unsigned stale;           /* number of answers that the windows are not the store's */
    int64_t since_us;         /* clock_steady_us() when the decision's now_us was read */
    struct store_cell *cells; /* of the rules of the call */
    struct store_call call;
    void *driver; /* of whoever waits for the call */
};

/* ---- memory ---- */

/* Bytes of a decision with room for so many counters. */
#define DECISION_BYTES(cap)                                                                       \
    (sizeof(struct decision) + sizeof(struct remote) +                                            \
     (cap) * (sizeof(struct counter) + sizeof(struct counter *) + sizeof(struct remote_counter) + \
              sizeof(struct store_rule) + sizeof(struct store_cell)))
/* In memory of that size, aligned to 16 bytes. The memory begins at its `counters`. */
struct decision *decision_init(void *memory, size_t cap, struct weir *weir);
/* On the heap, and planned: to be freed with decision_free. Returns NULL if there is no memory. */
struct decision *decision_new(struct weir *weir, const struct bound *bound, const struct weir_request *request,
                              const sv *users, int64_t now_us, size_t cap);
/* The same with the counters of one subject that was named, whose limits are `set`, in the store; only to be looked at. */
struct named;
struct decision *decision_new_for(struct weir *weir, const struct bound *bound, const struct named *named,
                                  const struct bound_set *set, const struct weir_request *request, int64_t now_us);
void decision_free(struct decision *d);

/* Keeps the rules of a decision from being freed while it waits. */
void remote_hold_rules(struct decision *d);
void remote_release_rules(struct decision *d);

static inline struct remote_counter *remote_of(const struct decision *d, const struct counter *c)
{
    CHECK(d->remote);
    return &d->remote->counters[d->remote_from + (size_t)(c - d->counters)];
}

static inline struct decision *decision_of(struct store_call *call)
{
    struct remote *r = (struct remote *)((char *)call - offsetof(struct remote, call));
    return (struct decision *)r - 1;
}

/* Returns the request's clock, now. */
static inline int64_t decision_now_us(const struct decision *d)
{
    return d->remote ? clock_within(d->now_us + clock_steady_us() - d->remote->since_us) : d->now_us;
}

/* ---- the parts of a decision's steps ---- */

/* Some counters are not cells: makes them what they are. For decision_plan. */
void remote_init(struct decision *d, const sv *users);
/* Time has passed. */
void remote_set_now(struct decision *d, int64_t now_us);

/* Makes the names in the store, unless that was done. To be called before the decision first stops. */
void remote_make_keys(struct decision *d);
/* Returns the name of the counter's rule and subject in the store. */
sv remote_key(const struct decision *d, const struct counter *c);
/* Returns the name of the counter's limit within that. */
sv remote_field(const struct decision *d, const struct counter *c);

/* Returns the store's clock less this host's, as far as is known, also without a connection of its own. */
int64_t remote_offset_us(const struct decision *d);
/* Returns whether the store has to be asked. */
bool remote_wants_store(const struct decision *d);
/* Returns whether something has to be charged or given back there, whatever the others say. */
bool remote_insists_in_store(const struct decision *d);
/* Fills d->remote->call with everything that counts in the store. Once more after an answer: with what is still to be
 * asked, and with the windows of the clocks that the answer told. */
void remote_make_call(struct decision *d);
/* Returns whether the call leaves out a debt, since a late answer may undo it. */
bool remote_withholds(const struct decision *d);
/* The call is about to be sent, and late answers may have come since it was made: makes it once more. */
void remote_take_debts_along(struct decision *d);
/* The answer is late. The decision will be made without it, and the answer may undo the debts of the decision: nobody pays
 * them until then. */
void remote_count_late(struct decision *d);
/* The opposite. settled: the answer has come. Else the decision was made: the debts that it has left, and those that its
 * call has taken along, stay counted. */
void remote_uncount_late(struct decision *d, bool settled);
/* Settles what the call has charged: with 0, or, if it is kept, with what it was, so that nothing of it is a hold any more
 * and its slots are free. */
void remote_settle_call(struct decision *d, bool keep);
/* The store has charged what insists after all: the stand-ins take it back. Returns whether there was anything. */
bool remote_undo_insisted(struct decision *d);
/* Adds the counter to d->remote->call; returns its cell there, which has no windows and no debt yet. */
struct store_cell *remote_add_to_call(struct decision *d, struct counter *c);
/* The call is over: what was owed is paid, or is owed still. */
void remote_end_payments(struct decision *d);
/* The store has answered: its counters' outcomes. If the call failed, only of those that were charged or given back
 * nevertheless, whatever the others say. */
void remote_take_answer(struct decision *d);

/* Asks for slices that are short. Returns false if it cannot: the store is unavailable. */
bool remote_ask_for_short(struct decision *d);
/* Asks for slices that are nearly spent, and for those of shadow rules that are short. Nobody waits for them. */
void remote_renew_slices(struct decision *d);
/* The request has passed: the store is told of what it owes for slices that it overdrew. */
void remote_report_overdrafts(struct decision *d);
/* Replaces the counters of enforced rules by stand-ins: COUNTER_STORE all, COUNTER_SLICE those of rules that are short. */
void remote_replace(struct decision *d, enum counter_kind kind);
/* The call has failed: replaces the counters of the rules that failed, and of no others. Returns false if there are none.
 */
bool remote_replace_failed(struct decision *d);
/* The same for counters whose server is known to be down: of COUNTER_SLICE those of rules that are short. */
bool remote_replace_unreachable(struct decision *d, enum counter_kind kind);

/* If the store does not answer: makes a stand-in of a counter of an enforced rule, and returns true. */
bool remote_stand_in(struct decision *d, struct counter *c);

/* ---- cells of a limit in this host's table besides its own ---- */

uint64_t slice_cell_of(const struct cells *cells, const struct bound_rule *rule, const struct bound_limit *limit,
                       uint64_t subject);
uint64_t slice_cell(const struct decision *d, const struct counter *c);
/* Bounds what this host lets through in place of the store. */
uint64_t standin_cell_of(const struct bound_limit *limit, uint64_t subject);
/* Counts the part of it that the store has yet to charge. */
uint64_t debt_cell_of(const struct bound_limit *limit, uint64_t subject);
static inline uint64_t debt_cell(const struct counter *c)
{
    return debt_cell_of(c->limit, counter_subject(c));
}
/* Returns how many tokens a full slice has. */
uint32_t slice_size(const struct counter *c);

#endif
