#include "serve/refusals.h"

#include <stdlib.h>

#include "serve/server.h"
#include "serve/stats.h"

struct refusals {
    const struct server *server;
    struct recent *earlier; /* of earlier runs */
    uint64_t taken;         /* the newest that refusals_take has seen */
};

int refusals_new(struct refusals **ret, struct server *server)
{
    struct refusals *refusals = calloc(1, sizeof *refusals);
    if (!refusals || recent_new(&refusals->earlier, RECENT_SLOTS) < 0) {
        free(refusals);
        return WEIR_E_NO_MEMORY;
    }
    refusals->server = server;
    *ret = refusals;
    return 0;
}

void refusals_free(struct refusals *refusals)
{
    if (!refusals)
        return;
    recent_free(refusals->earlier);
    free(refusals);
}

/* ---- of earlier runs ---- */

void refusals_restore(struct refusals *refusals, const struct recent_list *list)
{
    for (size_t i = list->count; i-- > 0;)
        recent_restore(refusals->earlier, &list->entries[i]);
}

static int collect_earlier(const struct refusals *refusals, uint64_t after, uint64_t until, sv rule, unsigned most,
                           struct recent_list *list)
{
    int r = recent_list_reserve(list, most < RECENT_SLOTS ? most : RECENT_SLOTS);
    if (r == 0)
        recent_collect(refusals->earlier, after, until, rule, most, list);
    return r;
}

/* ---- of all ---- */

int refusals_collect(const struct refusals *refusals, uint64_t after, uint64_t until, sv rule, unsigned most,
                     struct recent_list *list, uint64_t *ret_left_out)
{
    const struct server *server = refusals->server;
    *ret_left_out = 0;
    int r = collect_earlier(refusals, after, until, rule, most, list);
    for (unsigned i = 0; r == 0 && i <= server->loop_count; i++)
        if (server->loops[i].stats)
            r = stats_collect_recent(server->loops[i].stats, after, until, rule, most, list, ret_left_out);
    recent_list_sort(list);
    return r;
}

/* The list is cut after each loop: with many loops it would take much memory. */
int refusals_take(struct refusals *refusals, unsigned most, struct recent_list *list)
{
    const struct server *server = refusals->server;
    uint64_t after = refusals->taken, until = recent_newest(), left_out = 0;
    int r = 0;
    if (until == after)
        return 0;
    for (unsigned i = 0; r == 0 && i <= server->loop_count; i++) {
        if (!server->loops[i].stats)
            continue;
        r = stats_collect_recent(server->loops[i].stats, after, until, SV(""), most, list, &left_out);
        recent_list_sort(list);
        if (list->count > most)
            list->count = most;
    }
    if (r == 0)
        refusals->taken = until;
    return r;
}
