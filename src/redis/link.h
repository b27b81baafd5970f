/* Links from the inside: commands of any kind, in the order in which they were sent. */
#ifndef REDIS_LINK_H
#define REDIS_LINK_H

#include "base/buf.h"
#include "redis/reply.h"
#include "redis/store_state.h"

/* What becomes of a command. */
struct link_kind {
    bool script;              /* is sent once more if the store has forgotten its scripts */
    void (*late)(void *data); /* or NULL */
    /* STORE_DECIDED: `reply` is not an error; STORE_FAILED: it is an error; else there is no reply. */
    void (*done)(struct store_link *link, void *data, enum store_result how, const struct reply *reply);
};

/* Whether a command may be queued: it is sent now, or as soon as there is a connection. */
bool link_usable(const struct store_link *link);
bool link_connected(const struct store_link *link);
struct store *link_store(const struct store_link *link);
/* Commands that wait for their answers. */
size_t link_in_flight(const struct store_link *link);
/* Sends what was written. */
void link_flush(struct store_link *link);

/* Decisions that travel together, in one call of the script (decisions.c). */
struct batch {
    struct store_call *first, **end; /* gathered in this turn */
    size_t count, cells;
    int64_t deadline_us;        /* of the first */
    size_t waiting;             /* decisions without an answer: gathered, written or sent */
    struct store_call *refused; /* that could not be sent, and have to be told so */
};
struct batch *link_batch(struct store_link *link);
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
void link_weigh(struct store_link *link, unsigned decisions);

/* ---- turns: decisions.c has store_link_run and store_link_free ---- */

/* Reads signals and answers, looks at deadlines, gives up a broken connection. True: a deadline has come, so what was
 * gathered has to go now. */
bool link_run(struct store_link *link);
/* Gives up the connection for good: what waits is told, and what is asked for from now on is refused. */
void link_shut(struct store_link *link);
void link_free(struct store_link *link);

#endif
