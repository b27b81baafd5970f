/* What all reports are made of. Private to report*.c. */
#ifndef SERVE_REPORT_FACTS_H
#define SERVE_REPORT_FACTS_H

#include "serve/keeper.h"
#include "serve/server.h"
#include "serve/stats.h"

struct report_facts {
    int64_t now_us;
    struct keeper_state source;
    bool age_known;
    double age_s; /* of the rules */
    struct weir_status engine;
    struct weir_store_status store;
    uint64_t used_cells;
    double used_age_s;
    uint64_t open[FRONTS], accepted, turned_away, gave_way, overdue; /* connections */
    struct stats *stats;                                             /* of all loops */
};

extern const char *const report_fronts[FRONTS];

/* False: out of memory. */
bool report_gather(struct server *server, struct report_facts *ret);
void report_facts_done(struct report_facts *facts);

#endif
