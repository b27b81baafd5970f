/* HTTP/1.1: libmicrohttpd, driven from a loop. It reads requests whole, within bounds, hands each to a handler, and sends
 * what the handler answers: whole, or piece by piece (streams). No other file knows of libmicrohttpd. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include "base/buf.h"
#include "base/sv.h"
#include "serve/event_loop.h"

struct http;

enum { HTTP_HEADERS_MAX = 100 };

/* One request. It lives until its answer is out. */
struct http_call {
    struct loop *loop;
    struct conn *conn;
    sv method;
    sv path;  /* as sent, without the query */
    sv query; /* as sent, after the `?`; for parameters use http_parameter */
    const struct weir_header *headers;
    size_t header_count;
    sv body;                  /* valid until the answer */
    const void *data;         /* for `screen` and `handle` */
    struct weir_header extra; /* a further header of the answer, such as Allow, if it has a name */
    unsigned wait_ms;         /* the answer is sent after so long; see http_waiting */
    unsigned tokens;          /* their generation when the headers were screened */
    bool too_large;           /* the headers are over their bounds, and not all of them are here */
};

/* The functions that answer calls, in the loop's thread. */
struct http_service {
    /* Called with the headers, before the body was read. False: it has answered, and the body is dropped. */
    bool (*screen)(struct http_call *call, void *data);
    /* Called with the complete request. Has to answer, now or (after http_suspend) later. */
    void (*handle)(struct http_call *call, void *data);
    void *data;
    /* May be NULL. Called with the method, the path and the headers: the most bytes that the body may have; 0: as many as
     * the option request-bytes says. */
    size_t (*body_max)(const struct http_call *call, void *data);
    /* That each answer has, unless it has its own of the same name. */
    const struct weir_header *headers;
    size_t header_count;
};

int http_new(struct http **ret, struct loop *loop, enum front front, const struct http_service *service);
/* See struct loop_acceptor. */
void http_free(void *http);
void http_accept(void *http, int fd, const struct sockaddr_storage *peer);

sv http_header(const struct http_call *call, const char *lower_case_name); /* the first one of several; ptr NULL: none */
/* The body is JSON, as Content-Type says; else the call has been answered. A page of another origin can send any text, but
 * not this type without a preflight request, which is never allowed. */
bool http_is_json(struct http_call *call);
/* A parameter of the query, decoded. ptr NULL: it is not there. `i` counts those of the same name. */
sv http_parameter(struct http_call *call, const char *name, unsigned i);
/* Without its %XX; in a query a `+` is a blank. ptr NULL: no memory. */
sv http_decode(struct http_call *call, sv text, bool query);
/* The body of the call belongs to the caller from now on, who may need it for longer. */
struct buf http_take_body(struct http_call *call);
/* Memory that lives as long as the call. NULL: no memory. */
void *http_alloc(struct http_call *call, size_t bytes);

struct http_answer {
    unsigned status;
    sv content_type;                   /* empty: application/json */
    sv body;                           /* is copied */
    const struct weir_header *headers; /* after some KB the rest is left out */
    size_t header_count;
};
void http_answer(struct http_call *call, const struct http_answer *answer);
/* 431, for calls that are too_large. */
void http_too_large(struct http_call *call);
/* 405, with the methods that this path allows. */
void http_bad_method(struct http_call *call, sv allow);
/* {"error": "…", "hint": "…"}; hint may be NULL. */
void http_error(struct http_call *call, unsigned status, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* How many answers of this listener wait, because of wait_ms. Whoever sets it has to keep this within a bound: a connection
 * that waits is one less for others. */
unsigned http_waiting(const struct http_call *call);

/* The handler may return without an answer, and answer later in the loop's thread (loop_post). May be called again. */
void http_suspend(struct http_call *call);

/* ---- answers without an end ---- */

/* An answer 200 whose body is sent as it comes. All of it in the loop's thread. A peer that receives nothing for as long as
 * a request may take loses its connection; so does every stream when the loop begins to drain. */
struct http_stream;
/* Answers the call, which is not HEAD: libmicrohttpd would send the end of a body. `gone` is called once, when the
 * connection has ended or was lost, and not by the functions below: the stream is not to be used any more. It may be called
 * as soon as the handler has returned. NULL: no memory, and the call has been answered. */
struct http_stream *http_stream_begin(struct http_call *call, sv content_type, void (*gone)(void *data), void *data);
/* Sends a piece, or keeps it until the peer takes it. False: the peer has not taken the earlier ones, more than
 * HTTP_STREAM_BYTES_MAX; the stream ends without this piece. */
bool http_stream_send(struct http_stream *stream, sv piece);
/* Ends the answer after what was sent. */
void http_stream_end(struct http_stream *stream);

enum { HTTP_STREAM_BYTES_MAX = 64 << 10 };

#endif
