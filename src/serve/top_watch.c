#include "serve/top_watch.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "refused/top_history.h"
#include "serve/counts.h"
#include "serve/server.h"
#include "serve/stats.h"
#include "serve/status.h"

enum { LOOK_MS = 5000 }; /* several times in each window */

struct top_watch {
    uv_timer_t timer;
    struct server *server;
    struct top_history *history;
    int64_t since_us; /* the start of the first list of an earlier run, or of this run */
};

/* Adds a window of all loops to the list. */
static int collect(const struct top_watch *watch, int64_t now_us, int64_t number, struct top_list *list)
{
    const struct server *server = watch->server;
    int r = 0;
    for (unsigned i = 0; r == 0 && i <= server->loop_count; i++)
        if (server->loops[i].stats)
            r = stats_collect_top_window(server->loops[i].stats, now_us, number, list);
    return r;
}

/* Puts a window into the history, and hands it over to the file. Without memory it is lost. The file gets an empty list,
 * too: it keeps so many lists, and old ones must not stay because nobody is refused any more. */
static void finish_window(struct top_watch *watch, int64_t now_us, int64_t number)
{
    CLEANUP(top_list_done) struct top_list list = { 0 };
    if (collect(watch, now_us, number, &list) < 0)
        return;
    top_list_sort(&list);
    top_history_add(watch->history, number, &list);
    top_list_cut(&list, TOP_HISTORY_SUMMED);
    counts_keep_window(watch->server->counts, number * TOP_WINDOW_US, &list);
}

static void look(struct top_watch *watch, int64_t now_us)
{
    int64_t number;
    if (top_history_due(watch->history, now_us, &number))
        finish_window(watch, now_us, number);
}

static void on_timer(uv_timer_t *timer)
{
    look(timer->data, clock_now_us());
}

void top_watch_restore(struct top_watch *watch, struct top_history *earlier, int64_t since_us)
{
    top_history_take_over(watch->history, earlier);
    if (since_us > 0 && since_us < watch->since_us)
        watch->since_us = since_us;
}

void top_watch_stop(struct top_watch *watch)
{
    if (!watch)
        return;
    int64_t now_us = clock_now_us();
    look(watch, now_us);
    finish_window(watch, now_us, now_us / TOP_WINDOW_US);
}

int top_watch_start(struct top_watch **ret, struct server *server)
{
    struct top_watch *watch = calloc(1, sizeof *watch);
    int r = watch ? top_history_new(&watch->history) : WEIR_E_NO_MEMORY;
    if (r < 0) {
        free(watch);
        return r;
    }
    watch->server = server;
    watch->since_us = server->started_us;
    watch->timer.data = watch;
    uv_timer_init(&server->loops[server->loop_count].uv, &watch->timer);
    uv_timer_start(&watch->timer, on_timer, LOOK_MS, LOOK_MS);
    *ret = watch;
    return 0;
}

void top_watch_free(struct top_watch *watch)
{
    if (!watch)
        return;
    top_history_free(watch->history);
    free(watch);
}

void top_watch_write(struct top_watch *watch, int64_t last_us, unsigned most, sv rule, struct buf *out)
{
    CLEANUP(top_list_done) struct top_list list = { 0 };
    int64_t now_us = clock_now_us(), from_us = now_us > last_us ? now_us - last_us : 0;
    look(watch, now_us);
    if (top_history_read(watch->history, from_us, now_us, &list) < 0 ||
        collect(watch, now_us, now_us / TOP_WINDOW_US, &list) < 0) {
        out->failed = true;
        return;
    }
    top_list_sort(&list);
    int64_t start_us = top_history_start(from_us, now_us);
    status_write_top_list(&list, start_us > watch->since_us ? start_us : watch->since_us, now_us, most, rule, out);
}
