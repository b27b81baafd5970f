/* What the service says of itself: for people and programs as JSON, for Prometheus as text. Called in the admin loop's
 * thread; nobody who decides is held up.
 *
 * GET /v1/status
 *   { "version": "0.1.0", "started": "2026-11-15T10:46:17Z", "uptime_s": 12, "threads": 2,
 *     "listeners": { "http": "127.0.0.1:8080", "resp": "off", "admin": "unix:/run/weir.sock" },
 *     "source": { "address": "sqlite:rules.db", "read_only": false, "reachable": true, "from_copy": false,
 *                 "problem": null or "connection refused" },
 *     "rules": { "count": 4, "age_s": 0.3 or null, "problem_count": 1,
 *                "problems": [ { "table": "WEIR_RULES", "row": "ocr", "rule": "ocr" or null, "text": "max: must be …" } ]
 * }, "table": { "cells": 1048576, "bytes": 33554432, "used": 5, "fill": 0.000005, "measured_s": 2.5, "drops": 0,
 * "drops_at_limit": 0 }, "store": null or { "address": "redis://10.0.0.5:6379/0", "up": true, "hosts": 3, "clock_offset_s":
 * 0.000012, "calls": 10, … }, "connections": { "open": 3, "http": 1, "resp": 1, "admin": 1, "accepted": 10, "turned_away":
 * 0, "gave_way": 0, "overdue": 0 }, "decisions": { "allowed": 10, "refused": 2, "shadow": 1 } } `measured_s`: so long ago
 * the table was counted. `shadow`: refusals that shadow rules would have made. Peeks are no decisions.
 *
 * GET /v1/top?most=20&rule=ID
 *   { "window_s": 47.1, "refused": 12345, "unlisted_at_most": 0,
 *     "subjects": [ { "rule": "login", "by": [ { "name": "ip", "value": "203.0.113.9" } ], "cut": false,
 *                     "refused": 120, "error": 0 } ] }
 * Most refused first. Each was refused at most `refused` times and at least `refused - error`, in the last `window_s`; one
 * that is not kept (as many as there may be are) at most `unlisted_at_most` times. `cut`: a value was too long to be kept.
 * Keys of CL.THROTTLE are listed as those of a rule "(cl.throttle)".
 */
#ifndef SERVE_STATUS_H
#define SERVE_STATUS_H

#include "base/buf.h"

struct server;

enum { STATUS_TOP_DEFAULT = 20, STATUS_TOP_MAX = 1000, STATUS_BYTES_MAX = 32 << 20 };

/* What is written is whole unless out->failed. Give `out` STATUS_BYTES_MAX. */
void status_write(struct server *server, struct buf *out);
/* At most so many; `rule` empty: of all rules. */
void status_write_top(struct server *server, unsigned most, sv rule, struct buf *out);

#define STATUS_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"
void status_write_metrics(struct server *server, struct buf *out);

#endif
