/* A lane: the connection of one link to one server. Commands of any kind, in the order in which they were sent. */
#ifndef REDIS_LANE_H
#define REDIS_LANE_H

#include "base/buf.h"
#include "redis/reply.h"
#include "redis/store_state.h"

struct lane;

/* Decisions that travel together, in one call of the script (decision_calls.c). */
struct batch {
    struct store_call *first, **end; /* gathered in this turn */
    size_t count, cells;
    int64_t deadline_us; /* of the first */
};

/* The result of a command. */
struct lane_kind {
    bool script;              /* is sent once more if the store has forgotten its scripts */
    int64_t patience_us;      /* after its deadline, while its slot is being moved; not of decisions */
    void (*late)(void *data); /* or NULL */
    /* STORE_DECIDED: `reply` is not an error; STORE_FAILED: it is an error; else there is no reply. */
    void (*done)(struct lane *lane, void *data, enum store_result how, const struct reply *reply);
};

/* A command that was queued or sent, and has no answer yet. */
struct command {
    const struct lane_kind *kind;
    void *data;
    int64_t deadline_us;
    int64_t until_us;   /* link.c's: it is not sent again after this; 0: its deadline and the patience of its kind */
    unsigned decisions; /* that it is for, at least 1 */
    uint16_t place;     /* in a cluster: the slot of its keys; PLACE_NONE: it is for this very server */
    uint8_t waits;      /* number of times that it was told to wait, up to 255 … */
    uint8_t moves;      /* … and of servers that have sent it elsewhere since */
    bool one_key;       /* it touches no key but the one that it names: it may follow ASK */
    bool told_late, resent;
};

/* Other files of this folder use `store`, `node`, `link`, `batch`, `server`, and `first` == `end` (nothing is in flight);
 * the rest is lane.c's. */
struct lane {
    struct lane_inbox inbox;
    struct store *store;
    struct node *node;
    struct store_link *link; /* that it is part of */
    void (*nudged)(void *data);
    void *nudged_data;
    int epoll, timer;
    int64_t overdue_us;
    int64_t timer_us; /* what it is set to; 0: it is not */
    int64_t wake_us;  /* lane_wake_at */

    /* Bytes are counted from when the lane was made. `out` holds those from `base` on: of commands without an answer, which
     * may have to be sent again, and of those that were not sent yet, from `sent` on. */
    struct buf out;
    uint64_t base, sent;
    size_t mark;        /* of out, at lane_begin */
    struct batch batch; /* decision_calls.c's */
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
    uint64_t server; /* see struct node */
    bool blocked;    /* the system takes no more: epoll tells when it does */
    bool broken;     /* to be closed as soon as no function is using it */
    bool dropping, loading;
    bool shut;     /* for good */
    char why[128]; /* it is broken */
    char *in;
    size_t in_len, in_max;

    /* In a cluster, of an error, or (no text) of a command that was not sent: returns whether it goes another way. NULL:
     * there is no cluster. */
    bool (*redirect)(struct lane *lane, const struct command *command, sv bytes, sv error);
};

int lane_new(struct lane **ret, struct node *node, struct store_link *link);

/* Whether a command may be queued: it is sent now, or as soon as there is a connection. */
bool lane_usable(const struct lane *lane);
bool lane_connected(const struct lane *lane);
/* Sends what was written. */
void lane_flush(struct lane *lane);

/* The store is working for this lane, and no answer is late: decisions that are asked for meanwhile go together when the
 * answer has come. */
bool lane_gathers(const struct lane *lane);
/* The lane is to be run at this time at the latest. */
void lane_wake_by(struct lane *lane, int64_t steady_us);
/* `nudged` is called at this time at the latest; 0: no more. */
void lane_wake_at(struct lane *lane, int64_t steady_us);

/* A command is written into what lane_begin returns, and queued by lane_end. False: the queue is full, and `kind` will not
 * be called. */
struct buf *lane_begin(struct lane *lane);
bool lane_end(struct lane *lane, const struct lane_kind *kind, void *data, int64_t deadline_us);
/* The command that was queued last: for changes. */
struct command *lane_last(struct lane *lane);
/* Queues the bytes of a command that another lane has had. */
bool lane_resend(struct lane *lane, const struct command *command, sv bytes);
/* Takes back the command that was queued last. Nothing was flushed since. */
void lane_take_back(struct lane *lane);

/* ---- turns ---- */

/* Reads signals and answers, looks at deadlines, gives up a broken connection. True: a deadline has come, so what was
 * gathered has to go now. */
bool lane_run(struct lane *lane);
/* Gives up the connection for good: what waits is told, and what is asked for from now on is refused. */
void lane_shut(struct lane *lane);
void lane_free(struct lane *lane);

#endif
