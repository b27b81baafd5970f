/* The most refused subjects of a longer time: collects the lists of all loops, in the admin loop. */
#ifndef SERVE_TOP_WATCH_H
#define SERVE_TOP_WATCH_H

#include "base/buf.h"

struct server;
struct top_history;
struct top_watch;

/* Before the admin loop starts. */
int top_watch_start(struct top_watch **ret, struct server *server);
/* Takes over the lists of earlier runs, which begin at since_us; 0: there are none. In the admin loop. */
void top_watch_restore(struct top_watch *watch, struct top_history *earlier, int64_t since_us);
/* After the loops have ended: hands over what they have counted until now. */
void top_watch_stop(struct top_watch *watch);
/* After loop_done of the admin loop. */
void top_watch_free(struct top_watch *watch);

/* GET /v1/top?last=…: as status_write_top. last_us is at most TOP_COARSE_KEPT_US. In the admin loop. */
void top_watch_write(struct top_watch *watch, int64_t last_us, unsigned most, sv rule, struct buf *out);

#endif
