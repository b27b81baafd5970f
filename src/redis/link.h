/* Links from the inside: commands of any kind, in the order in which they were sent. */
#ifndef REDIS_LINK_H
#define REDIS_LINK_H

#include "base/buf.h"
#include "redis/reply.h"
#include "redis/store_state.h"

/* What becomes of a command. */
struct link_kind {
    bool script;              /* it may be sent again where the store has forgotten its scripts */
    void (*late)(void *data); /* or NULL */
    /* STORE_DECIDED: `reply` is no error; STORE_FAILED: it is one; else there is none. */
    void (*done)(struct store_link *link, void *data, enum store_result how, const struct reply *reply);
};

/* May something be sent now, or at once when the connection is there? */
bool link_usable(const struct store_link *link);
bool link_connected(const struct store_link *link);
struct store *link_store(const struct store_link *link);
/* Commands that wait for their answers. */
size_t link_in_flight(const struct store_link *link);
/* Sends what was written. */
void link_flush(struct store_link *link);

/* Decisions that were asked for in this turn, and will go together (decisions.c). */
struct bunch {
    struct store_call *first, **end;
    size_t count, cells;
    int64_t deadline_us; /* of the first */
};
struct bunch *link_bunch(struct store_link *link);
/* The store is at work for this link, and its answer is not late: what is asked meanwhile goes together when it has come.
 */
bool link_gathers(const struct store_link *link);
/* Decisions that could not be sent, and have to be told so. */
struct store_call **link_refused(struct store_link *link);
/* store_link_run is to be called at this time at the latest. */
void link_wake_by(struct store_link *link, int64_t steady_us);
/* Decisions that wait: gathered, written or sent. */
size_t link_calls(const struct store_link *link);
void link_count_calls(struct store_link *link, int more);

/* A command is written into what link_begin returns, and counts with link_end. False: too much waits already, and nothing
 * will be called. */
struct buf *link_begin(struct store_link *link);
bool link_end(struct store_link *link, const struct link_kind *kind, void *data, int64_t deadline_us);
/* The last command is for so many decisions: its failure is that of each. */
void link_weigh(struct store_link *link, unsigned decisions);

void link_write_words(struct buf *out, size_t count, const sv *words);
#define LINK_WRITE(out, ...) \
    link_write_words(out, sizeof((const sv[]){ __VA_ARGS__ }) / sizeof(sv), (const sv[]){ __VA_ARGS__ })

/* ---- from other threads, with store->lock held ---- */

enum link_news { LINK_CONNECTION = 1, LINK_NUDGE = 2, LINK_AWAY = 4, LINK_REPLACED = 8 };
void link_poke(struct store_link *link, unsigned news);
/* Takes the connection over. */
void link_hand(struct store_link *link, int fd, uint64_t server);
bool link_wants(const struct store_link *link);
struct store_link *link_next(const struct store_link *link);

#endif
