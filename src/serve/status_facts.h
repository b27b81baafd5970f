/* What all reports are made of. Private to report*.c. */
#ifndef SERVE_STATUS_FACTS_H
#define SERVE_STATUS_FACTS_H

#include "serve/rule_sync.h"
#include "serve/server.h"
#include "serve/stats.h"

struct status_facts {
    int64_t now_us;
    struct rule_sync_state source;
    bool age_known;
    double age_s; /* of the rules */
    struct weir_status engine;
    struct weir_store_status store;
    uint64_t used_cells;
    double used_age_s;
    uint64_t open[FRONTS], accepted, turned_away, gave_way, overdue; /* connections */
    struct stats *stats;                                             /* of all loops */
};

/* False: out of memory. */
bool status_gather(struct server *server, struct status_facts *ret);
void status_facts_done(struct status_facts *facts);

#endif
