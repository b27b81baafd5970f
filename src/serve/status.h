/* GET /v1/status, GET /v1/top, GET /v1/penalties and GET /metrics: what the service reports about itself. openapi.json
 * describes the documents. Called in the thread of the admin loop, so that no decision waits. */
#ifndef SERVE_STATUS_H
#define SERVE_STATUS_H

#include "base/buf.h"

struct server;
struct subject;  /* refused/subject.h */
struct top_list; /* refused/most_refused.h */

enum { STATUS_TOP_DEFAULT = 20, STATUS_TOP_MAX = 1000, STATUS_BYTES_MAX = 32 << 20 };

/* `out` is complete unless out->failed. Its maximum is to be STATUS_BYTES_MAX. */
void status_write(struct server *server, struct buf *out);
/* At most `most` subjects; `rule` empty: of all rules. */
void status_write_top(struct server *server, unsigned most, sv rule, struct buf *out);
/* The same for a list that is sorted, of the time from start_us on. */
void status_write_top_list(const struct top_list *list, int64_t start_us, int64_t now_us, unsigned most, sv rule,
                           struct buf *out);
/* The same for penalties that run. */
void status_write_penalties(struct server *server, unsigned most, sv rule, struct buf *out);

/* Adds "rule": …, "by": […], "cut": …. */
void status_write_whom(const struct subject *subject, struct buf *out);

#define STATUS_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"
void status_write_metrics(struct server *server, struct buf *out);

#endif
