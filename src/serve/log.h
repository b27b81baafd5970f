/* The log of the service: lines on stderr, plain or JSON. For everything that runs in src/serve; the folders below it do
 * not log. Any thread may log. Tokens and passwords are never logged. */
#ifndef SERVE_LOG_H
#define SERVE_LOG_H

#include <weir/weir.h>

#include "serve/trace.h"

struct subject; /* refused/subject.h */

enum log_level { LEVEL_ERROR, LEVEL_WARNING, LEVEL_INFO };

/* format: enum config_log. refusals_per_second 0: none are logged. */
void log_setup(int format, unsigned refusals_per_second);

/* plain: "2026-11-15T10:46:17Z info rules: 12 rules are in force"; JSON: time, level, event, message. A line that stderr
 * does not take at once is dropped, so that no thread waits for the reader of the log; the next one says how many were
 * (not_logged). */
void log_say(enum log_level level, const char *event, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Events that clients can repeat as often as they like: mistakes that a gateway would hide from people, wrong tokens, and
 * connections without a file descriptor. */
enum seldom {
    SELDOM_CHECK,
    SELDOM_CHECK_TOKEN,
    SELDOM_AUTH,
    SELDOM_AUTH_TOKEN,
    SELDOM_RESP_TOKEN,
    SELDOM_ADMIN_TOKEN,
    SELDOM_GRPC,
    SELDOM_GRPC_TOKEN,
    SELDOM_TLS,
    SELDOM_ACCEPT,
    SELDOMS
};

/* One line per minute for each kind, whatever the number of clients and threads. */
void log_limited(enum seldom kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The counts of a subject were reset. */
void log_freed(const struct subject *subject, struct weir_str author, const char *from);
/* The same for a penalty. */
void log_lifted(const struct subject *subject, struct weir_str author, const char *from);
/* A person penalised a subject. */
void log_penalised(const struct subject *subject, int64_t length_us, struct weir_str author, const char *from);

/* One refused request, sampled: the maximum of log_setup per second; the first line of a later second says how many were
 * left out. The trace is that of the request's headers; if they have none, the one that `trace`, which may be NULL, finds.
 * Most refusals of a flood are not logged, and it is not called for these. */
void log_refusal(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict, int64_t now_us,
                 trace_find *trace, const void *of);

#endif
