/* Counts of decisions by rule, in shared memory: all workers write them, and none waits for another. */
#ifndef NGINX_STATS_H
#define NGINX_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

enum outcome { OUTCOME_ALLOWED, OUTCOME_REFUSED, OUTCOME_WOULD_REFUSE, OUTCOME_SHADOW, OUTCOMES };

extern const char *const outcome_names[OUTCOMES];

enum {
    STATS_RULES = 16384, /* what is more is counted under STATS_OTHER; memory that is not used is not taken */
    STATS_PROBES = 64,
};

/* As `weir serve` calls them. */
#define STATS_OTHER "(other)"

struct stats_rule {
    uint64_t hash; /* 0: free */
    uint32_t named;
    uint64_t counts[OUTCOMES]; /* before the name: they are what is wanted at each decision */
    char id[WEIR_ID_MAX + 4];
};

struct stats {
    uint64_t no_rule;                    /* requests that no rule applied to */
    uint64_t waited;                     /* for a slice of a leased rule */
    uint64_t told_version_ns, told_hash; /* what the log has of the rules */
    struct stats_rule other;
    struct stats_rule rules[STATS_RULES];
};

/* Counts a verdict: for its rule, and for the shadow rules that would have refused. */
void stats_count(struct stats *stats, const struct weir_verdict *verdict, const struct weir_shadows *shadows,
                 enum outcome outcome);

void stats_count_wait(struct stats *stats);

/* True for the first who comes with this news of the rules, unless somebody has told of a later version. Not for two at a
 * time. */
bool stats_tell(struct stats *stats, uint64_t version_ns, const char *text);

#endif
