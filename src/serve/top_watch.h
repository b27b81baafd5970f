/* The most refused subjects of a longer time: collects the lists of all loops, in the admin loop. */
#ifndef SERVE_TOP_WATCH_H
#define SERVE_TOP_WATCH_H

#include "base/buf.h"

struct server;
struct top_watch;

/* Before the admin loop starts. */
int top_watch_start(struct top_watch **ret, struct server *server);
/* After loop_done of the admin loop. */
void top_watch_free(struct top_watch *watch);

/* GET /v1/top?last=…: as status_write_top. last_us is at most TOP_COARSE_KEPT_US. In the admin loop. */
void top_watch_write(struct top_watch *watch, int64_t last_us, unsigned most, sv rule, struct buf *out);

#endif
