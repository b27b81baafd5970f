/* The facts for all reports: status*.c, counts.c and live.c use them. */
#ifndef SERVE_STATUS_FACTS_H
#define SERVE_STATUS_FACTS_H

#include "serve/rule_sync.h"
#include "serve/saving.h"
#include "serve/server.h"
#include "serve/stats.h"

struct status_facts {
    int64_t now_us;
    struct rule_sync_state source;
    bool age_known;
    double age_s; /* of the rules */
    struct weir_status engine;
    uint64_t rules_version; /* rises with each change of the rules, since the start */
    struct weir_store_status store;
    struct saving_status saving; /* not active: a plain file, or another process saves */
    uint64_t used_cells;
    double used_age_s;
    uint64_t open[FRONTS], accepted, turned_away, gave_way, overdue; /* connections */
    struct stats *stats;                                             /* of all loops */
};

/* A count of the store, for status ("late") and metrics ("weir_store_late_total"; those of leases are "weir_lease_…"). */
struct status_store_count {
    const char *name, *help;
    size_t offset; /* in struct weir_store_status */
};
enum { STATUS_STORE_COUNTS = 13 };
extern const struct status_store_count status_store_counts[STATUS_STORE_COUNTS];

static inline uint64_t status_store_value(const struct weir_store_status *store, size_t i)
{
    return *(const uint64_t *)(const void *)((const char *)store + status_store_counts[i].offset);
}

/* Everything but `stats`, which stays NULL. */
void status_look(struct server *server, struct status_facts *ret);
/* Holds that are not over, of all limits; without memory 0. */
uint64_t status_holds(struct server *server, int64_t now_us);
/* Decisions that the store should have made and did not: it did not answer in time (or the connection broke), it refused,
 * or it was not asked. */
static inline uint64_t status_store_errors(const struct weir_store_status *store)
{
    return store->late + store->failed + store->unsent;
}
/* Returns false if there is no memory. */
bool status_gather(struct server *server, struct status_facts *ret);
void status_facts_done(struct status_facts *facts);

#endif
