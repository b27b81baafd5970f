/* Private to h2_conn.c and h2_session.c. */
#ifndef SERVE_H2_SESSION_H
#define SERVE_H2_SESSION_H

#include <nghttp2/nghttp2.h>

#include "serve/h2.h"
#include "serve/h2_memory.h"

enum {
    H2_INPUT_BYTES = 64 << 10,
    H2_OUTPUT_BYTES = 128 << 10, /* for one write */
    H2_FRAME_MAX = 40 << 10,     /* bytes of the longest frame that is sent: an answer */
    H2_SPARE_STREAMS = 512,
    H2_READY_MAX = H2_STREAMS_MAX, /* requests of one read that are handed to the service together */
    H2_KNOWN_FIELDS = 16,
    H2_KNOWN_BYTES = 256, /* of a field that is remembered */
};

/* Shared by all connections of a loop. */
struct h2 {
    struct loop *loop;
    const struct h2_service *service;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct h2_memory memory;   /* of the sessions */
    struct byte_budget budget; /* of streams, and of bodies, answers and output that do not fit into what each stream has */
    struct h2_conn *conns;
    struct h2_conn *dirty; /* have something to send, outside of their turn */
    struct h2_stream *spare;
    unsigned spare_count, watches;
    /* Streams that are complete, and that the service does not have yet; NULL: the stream is gone. Empty between turns. */
    struct h2_stream *ready[H2_READY_MAX];
    unsigned ready_count;
    uint64_t due_ns; /* the earliest deadline that the timer `due` has to notice; UINT64_MAX: none */
    bool due_changed;
    uv_idle_t flush;
    uv_idle_cb flush_cb; /* settles the dirty ones */
    uv_timer_t tick, due;
    unsigned handles; /* that are not closed yet */
    char input[H2_INPUT_BYTES];
    char output[H2_OUTPUT_BYTES];
};

/* A field that came before. Most clients send the same fields in the same order with each request, and few of their bytes:
 * nghttp2 gives the same buffers then. A buffer that is referred to here has the same bytes for ever. */
struct h2_known {
    nghttp2_rcbuf *name, *value; /* NULL: none */
    sv name_text, value_text;
    struct h2_field field;
    uint32_t bytes;  /* as they count for the maximum; at most UINT32_MAX */
    unsigned number; /* the service's; 0: it does not need it */
};
_Static_assert(sizeof(struct h2_known) == 64, "one is found by a shift");

struct h2_conn {
    struct conn conn;
    uv_poll_t poll;
    struct h2 *h2;
    nghttp2_session *session;       /* NULL: nothing has come yet */
    struct h2_stream *first, *last; /* streams, oldest first */
    struct h2_stream *current;      /* the one that was looked up last */
    unsigned open, watching, receiving;
    unsigned generation, generation_open; /* streams whose time the connection's is */
    bool closed_some;                     /* a stream was closed in this turn */
    bool in_turn, is_dirty, blocked, noticed, ending, shut_down;
    uint64_t read_ns;
    uint64_t due_ns;                   /* no stream has an earlier deadline */
    int32_t last_id, gap_from, gap_to; /* the newest stream, and those that the client has skipped last */
    int64_t pinged_ms;
    int64_t allowance; /* of frames that ask for nothing; … */
    int64_t allowance_ms;
    struct h2_known known[H2_KNOWN_FIELDS]; /* by their number in a request, and then the last one */
    struct byte_queue out;
    int events;
    struct h2_conn *prev, *next, *dirty_next;
};

/* Sets h2->callbacks and h2->option. Returns 0 or an error of libuv. */
int h2_session_setup(struct h2 *h2);
void h2_session_teardown(struct h2 *h2);

/* The client's first bytes are there. False: no memory. */
bool h2_session_begin(struct h2_conn *c);
/* Passes the first bytes of the input buffer to nghttp2, and the requests that are complete then to the service. False: the
 * session has failed. */
bool h2_session_receive(struct h2_conn *c, size_t len);
void h2_session_end(struct h2_conn *c); /* its streams are gone */

/* Answers or resets streams that began before, or whose deadline is before, these times. */
void h2_session_sweep(struct h2_conn *c, uint64_t began_before_ns, uint64_t now_ns);
/* Sets c->due_ns to the earliest deadline of a stream that is not answered. */
void h2_session_find_due(struct h2_conn *c);

#endif
