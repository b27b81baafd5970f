/* Decisions that touch counts of many hosts: what a plan needs beside plan_decide.
 *
 *   here     local cells, and slices of leased rules, are taken first: all or none
 *   store    then one call decides on all cells that are counted in the store; refused there, what was taken here is given
 *            back
 *   failure  where no slice comes in time, or the store does not answer, each rule does what its on_store_failure says
 *
 * A decision is begun, may have to wait for slices or for the store, and is then taken up again: by an event loop (loop.c)
 * or by a thread that blocks (wait.c). Nothing in here waits. */
#ifndef ENGINE_SHARED_H
#define ENGINE_SHARED_H

#include "engine/engine.h"
#include "engine/store.h"

struct weir;

/* How an entry of a plan is decided on. */
enum way {
    WAY_CELLS,  /* in this host's cells */
    WAY_SLICE,  /* from a slice in this host's cells */
    WAY_STORE,  /* in the store */
    WAY_PASS,   /* not at all: the store is away, and the rule allows then */
    WAY_DENIED, /* not at all: … and the rule denies */
};

/* What an entry has beside a struct plan_entry. */
struct shared_entry {
    enum way way;
    bool taken;      /* charged here: cells or slice */
    bool instead;    /* of the store: WAY_CELLS, `limit` is this host's share; or WAY_PASS, it is the rule's own */
    bool too_little; /* of the slice: more has to come */
    bool renew;      /* of the slice little is left */
    uint32_t held;   /* for weir_explain: tokens of the slice */
    bool claimed;    /* this call alone pays what is owed */
    uint32_t debt;   /* … which is so much, and was seen so */
    struct limit_state seen;
    int64_t seen_us;
    int64_t end_us; /* of the window that the slice belongs to */
    struct limit limit;
    struct limit_state owed; /* `taken` and `instead`: the cell of what is owed, after the charge */
    struct store_cell *cell; /* WAY_STORE, once it is asked about */
    size_t key_len;          /* of the rule's key in the store, at the first entry of a rule; 0: not made yet */
    char key[STORE_KEY_MAX];
};

struct shared {
    struct weir *weir;
    const struct bound *bound;
    struct plan plan;
    struct weir_request request; /* its numbers and flags; what it points to may be gone after shared_begin */
    size_t cap;                  /* entries that there is room for */
    struct shared_entry *more;   /* one for each entry */
    struct store_rule *rules;
    struct store_cell *cells;
    struct store_call call;
    int64_t since_us; /* clock_steady_us when plan.now_us was read */
    unsigned stale;   /* answers that the windows are not the store's */
    bool exact;       /* the store itself has to be asked */
    bool allowed;     /* once it is decided */
    bool late;        /* counted in weir->late */
    bool holds;       /* the bound rules are kept by their `waiting` */
    void *waiting;    /* of whoever waits for it */
};

enum step {
    STEP_DECIDED, /* *ret_verdict is filled */
    STEP_SLICES,  /* nothing is charged; slices were asked for: shared_again when they may have come */
    STEP_STORE,   /* s->call is to be sent: shared_answered when it is done */
};

/* Bytes of a decision with room for so many entries. */
#define SHARED_BYTES(cap)                                                                             \
    (sizeof(struct shared) +                                                                          \
     (cap) * (sizeof(struct plan_entry) + sizeof(struct plan_entry *) + sizeof(struct shared_entry) + \
              sizeof(struct store_rule) + sizeof(struct store_cell)))
static inline size_t shared_bytes(size_t cap)
{
    return SHARED_BYTES(cap);
}
/* In memory of that size. */
struct shared *shared_init(void *memory, size_t cap, struct weir *weir);

/* Planned, in memory of the heap that begins at plan.entries. NULL: there is none. */
struct shared *shared_new(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                          int64_t now_us, size_t cap);
/* Names in the store, of the entries that go this way; to be made before they are asked for. */
void shared_make_keys(struct shared *s, const struct weir_request *request, sv user, enum way way);
sv shared_key(const struct shared *s, size_t i);
/* Works out the plan. False as plan_make. */
bool shared_plan(struct shared *s, const struct bound *bound, const struct weir_request *request, sv user, int64_t now_us,
                 size_t *ret_needed);
/* may_wait false: never STEP_SLICES. */
enum step shared_begin(struct shared *s, sv user, bool may_wait, struct weir_verdict *ret_verdict);
/* After STEP_SLICES. */
enum step shared_again(struct shared *s, int64_t now_us, bool may_wait, struct weir_verdict *ret_verdict);
/* After STEP_STORE: s->call is done. STEP_STORE: it is to be sent once more. */
enum step shared_answered(struct shared *s, struct weir_verdict *ret_verdict);
/* After STEP_STORE: nobody waits for the answer any more. Always decides. */
void shared_late(struct shared *s, struct weir_verdict *ret_verdict);
/* After shared_late: the call is done at last. What was charged twice, or for nothing, is given back. */
void shared_aftermath(struct shared *s);

/* Instead of shared_begin, for weir_explain: looks at every entry and charges nothing. STEP_STORE: s->call is to be sent;
 * shared_looked when it is done. */
enum step shared_look(struct shared *s, sv user);
void shared_looked(struct shared *s);

/* The request's clock, now. */
static inline int64_t shared_now_us(const struct shared *s)
{
    return s->plan.now_us + clock_steady_us() - s->since_us;
}

/* Keeps the rules that it was planned with from being freed while it waits. */
void shared_hold(struct shared *s);
void shared_release(struct shared *s);

/* The cells of a limit in this host's table besides its own: the slice; the stand-in, which bounds what this host lets
 * through in place of the store; and what of that the store has yet to charge. */
uint64_t slice_cell(const struct cells *cells, const struct bound_limit *limit, uint64_t subject);
uint64_t standin_cell(const struct bound_limit *limit, uint64_t subject);
uint64_t owed_cell(const struct bound_limit *limit, uint64_t subject);

#endif
