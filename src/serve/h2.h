/* HTTP/2 for gRPC: nghttp2, driven from a loop. h2_conn.c has the connections, h2_session.c their streams; no other file
 * knows of nghttp2. A service gets each request as a stream: its headers one by one, then its whole body, together with the
 * other requests of the same read; and answers with a message and a status, at once or later.
 *
 * All of it belongs to the thread of the loop. */
#ifndef SERVE_H2_H
#define SERVE_H2_H

#include "serve/byte_queue.h"
#include "serve/event_loop.h"
#include "serve/h2_fields.h"
#include "serve/trace.h"

enum {
    H2_STREAMS_MAX = 256, /* of a connection at the same time; a client opens another connection for more */
    H2_HEADERS_MAX = 100, /* of a request */
    H2_WATCHES_MAX = 256, /* streams of a loop that stay open */
    H2_PATH_MAX = 120,    /* bytes of a path that are kept */
    H2_INLINE = 512,      /* bytes of a request, and then of its answer, that need no memory of their own */
};

/* Codes of gRPC. */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
    GRPC_STATUSES = 17,
};

/* Reasons to answer a stream that the service has not answered. */
enum h2_refusal {
    H2_HEADERS_TOO_LARGE,
    H2_BODY_TOO_LARGE,
    H2_NO_MEMORY,
    H2_OVERDUE, /* its deadline, or the time that a request may take, has passed */
};

struct h2_conn;

/* A request. It lives until its stream is closed. */
struct h2_stream {
    struct loop *loop;
    struct h2_conn *conn;
    int32_t id;
    uint64_t began_ns;    /* uv_hrtime() when its headers came */
    uint64_t deadline_ns; /* UINT64_MAX: none; the service sets it */
    sv body;              /* whole; valid until the answer */

    /* The service's. */
    const void *method; /* what the path names */
    bool post, grpc, token, bad_timeout;
    unsigned tokens; /* token: the generation that it was judged by, and its hash */
    unsigned char token_hash[SHA256_SIZE];
    bool drop;       /* its body is not needed */
    void *data;      /* of a decision that is pending */
    unsigned traces; /* how many there were; `trace` is the first one, if it is valid */
    size_t trace_len;

    /* Private to h2_session.c. */
    struct h2_stream *prev, *next; /* of its connection, oldest first */
    enum { H2_RECEIVING, H2_READY, H2_HANDED, H2_ANSWERED } state;
    unsigned ready_at; /* H2_READY: its place in `ready` of struct h2 */
    unsigned generation;
    bool watch, ended; /* a stream of several messages; its last one is known */
    bool plain;        /* without trailers */
    size_t header_bytes, header_count, header_bytes_most;
    struct h2_fields fields;
    size_t body_cap, answer_len, answer_cap, answer_sent;
    char *body_ptr, *answer_ptr;
    enum grpc_status status; /* of the trailers */

    /* Bytes that are not zeros at first. */
    char room[H2_INLINE];   /* the body, and then the answer; where it is short */
    char path[H2_PATH_MAX]; /* the service's: a path that names no method */
    char trace[TRACE_LEN];  /* the service's: a traceparent */
};

/* The functions that answer requests. Each has to return soon. */
struct h2_service {
    unsigned (*wants)(sv name); /* the service's number for headers with this name, in lower case; 0: it needs none */
    void (*header)(struct h2_stream *stream, unsigned number, sv value);
    void (*headers_done)(struct h2_stream *stream);                   /* may set `drop` */
    void (*complete)(struct h2_stream *const *streams, size_t count); /* answers each, now or later */
    void (*refuse)(struct h2_stream *stream, enum h2_refusal why);
    void (*gone)(struct h2_stream *stream);  /* a stream that `complete` has not answered will not be answered any more */
    void (*drain)(struct h2_stream *stream); /* of a watch, when the loop begins to drain: ends it */
};

/* uv_hrtime() when its connection was read last. */
uint64_t h2_read_ns(const struct h2_stream *stream);

/* ---- answering ---- */

/* Answers with one message, whose bytes are copied, and the status GRPC_OK. */
void h2_reply(struct h2_stream *stream, sv message);
/* Answers without a message. `message` is text for people, in UTF-8. */
void h2_fail(struct h2_stream *stream, enum grpc_status status, const char *message);
/* Answers clients that do not speak gRPC, with a status of HTTP and a text. */
void h2_fail_http(struct h2_stream *stream, const char *http_status, sv text);

/* A stream of several messages. False: there are too many, or no memory. */
bool h2_watch(struct h2_stream *stream);
bool h2_watch_send(struct h2_stream *stream, sv message); /* false: no memory; the stream has ended */
void h2_watch_end(struct h2_stream *stream, enum grpc_status status);

/* ---- the listener ---- */

struct h2;
/* Returns 0 or an error of libuv. */
int h2_new(struct h2 **ret, struct loop *loop, const struct h2_service *service);
/* See struct loop_acceptor. */
void h2_accept(void *h2, int fd, const struct sockaddr_storage *peer);
void h2_drain(void *h2);
void h2_free(void *h2);

#endif
