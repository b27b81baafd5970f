/* Links from the inside: commands of any kind, in the order in which they were sent. */
#ifndef REDIS_LINK_H
#define REDIS_LINK_H

#include "base/buf.h"
#include "redis/reply.h"
#include "redis/store_state.h"

/* Decisions that travel together, in one call of the script (decision_calls.c). */
struct batch {
    struct store_call *first, **end; /* gathered in this turn */
    size_t count, cells;
    int64_t deadline_us;        /* of the first */
    size_t waiting;             /* decisions without an answer: gathered, written or sent */
    struct store_call *refused; /* that could not be sent, and have to be told so */
};

/* Other files of this folder use `store`, `batch`, and `first` == `end` (nothing is in flight); the rest is link.c's. */
struct store_link {
    struct link_inbox inbox;
    struct store *store;
    void (*nudged)(void *data);
    void *nudged_data;
    int epoll, timer;
    int64_t overdue_us;
    int64_t timer_us; /* what it is set to; 0: it is not */
    int64_t wake_us;  /* store_link_wake_at */

    /* Bytes are counted from when the link was made. `out` holds those from `base` on: of commands without an answer, which
     * may have to be sent again, and of those that were not sent yet, from `sent` on. */
    struct buf out;
    uint64_t base, sent;
    size_t mark;        /* of out, at link_begin */
    struct batch batch; /* decisions.c's */
    /* A ring. Slots are numbered, too: the first is that of the oldest command. */
    struct slot *slots;
    size_t slot_max; /* a power of two */
    uint64_t first, end;
    uint64_t untold; /* those before were told late */

    int socket; /* -1: none */
    /* With TLS one record leaves after the other: so many bytes of it have not left yet, and so many of `out`, from `sent`
     * on, are in it. They are sent when all of it is. */
    struct tls *tls; /* NULL: none */
    size_t record, sealed;
    uint64_t server; /* see struct store */
    bool blocked;    /* the system takes no more: epoll tells when it does */
    bool broken;     /* to be closed as soon as no function is using it */
    bool dropping, loading;
    bool shut;     /* for good */
    char why[128]; /* it is broken */
    char *in;
    size_t in_len, in_max;
};

/* The result of a command. */
struct link_kind {
    bool script;              /* is sent once more if the store has forgotten its scripts */
    void (*late)(void *data); /* or NULL */
    /* STORE_DECIDED: `reply` is not an error; STORE_FAILED: it is an error; else there is no reply. */
    void (*done)(struct store_link *link, void *data, enum store_result how, const struct reply *reply);
};

/* Whether a command may be queued: it is sent now, or as soon as there is a connection. */
bool link_usable(const struct store_link *link);
bool link_connected(const struct store_link *link);
/* Sends what was written. */
void link_flush(struct store_link *link);

/* The store is working for this link, and no answer is late: decisions that are asked for meanwhile go together when the
 * answer has come. */
bool link_gathers(const struct store_link *link);
/* store_link_run is to be called at this time at the latest. */
void link_wake_by(struct store_link *link, int64_t steady_us);

/* A command is written into what link_begin returns, and queued by link_end. False: the queue is full, and `kind` will not
 * be called. */
struct buf *link_begin(struct store_link *link);
bool link_end(struct store_link *link, const struct link_kind *kind, void *data, int64_t deadline_us);
/* The last command is for so many decisions: its failure is that of each. */
void link_set_decisions(struct store_link *link, unsigned decisions);

/* ---- turns: decisions.c has store_link_run and store_link_free ---- */

/* Reads signals and answers, looks at deadlines, gives up a broken connection. True: a deadline has come, so what was
 * gathered has to go now. */
bool link_run(struct store_link *link);
/* Gives up the connection for good: what waits is told, and what is asked for from now on is refused. */
void link_shut(struct store_link *link);
void link_free(struct store_link *link);

#endif
