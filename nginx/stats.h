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
    STATS_RULES = 16384,  /* further ones are counted under STATS_OTHER; unused slots take no memory */
    STATS_LIMITS = 16384, /* the same, of limits that refused */
    STATS_PROBES = 64,
    STATS_KNOWN_BITS = 8,
};

/* The same name as in `weir serve`. */
#define STATS_OTHER "(other)"

struct stats_rule {
    uint64_t hash; /* 0: free */
    uint32_t named;
    uint64_t counts[OUTCOMES]; /* before the name, because each decision uses them */
    uint64_t passed;           /* requests that it applied to, and had room for */
    uint64_t overdrawn;        /* units that requests were charged beyond `max`, of limits with overdraft */
    uint64_t penalties;        /* that began */
    uint64_t penalised;        /* requests that it refused because of one */
    char id[WEIR_ID_MAX + 4];
};

/* Requests that a limit had no room for. */
struct stats_limit {
    uint64_t hash; /* 0: free */
    uint32_t named;
    uint64_t refused, would_refuse;
    char rule[WEIR_ID_MAX + 4], name[WEIR_NAME_MAX + 2];
};

struct stats {
    uint64_t no_rule;                        /* requests that no enforced rule applied to */
    uint64_t without_rule;                   /* those of them that no shadow rule applied to either */
    uint64_t waited;                         /* for a slice of a leased rule */
    uint64_t logged_version_ns, logged_hash; /* of the last report on the rules in the log */
    struct stats_rule other;
    struct stats_rule rules[STATS_RULES];
    struct stats_limit other_limit;
    struct stats_limit limits[STATS_LIMITS];
};

/* Where a worker has found the counts of rules, because looking for an id takes longer than to count. While the version of
 * the rules stays the same, so does the place of a rule's id in memory. */
struct stats_known {
    uint64_t rules; /* their version; 0: it knows nothing */
    struct {
        const char *id;
        struct stats_rule *rule;
    } slots[1 << STATS_KNOWN_BITS];
};

/* The rules of one request that were counted. */
struct stats_counted {
    struct stats_rule *passed; /* the last one that lets the request pass; NULL: none */
    unsigned rules;
};

/* Counts a verdict: for its rule, and for the shadow rules that would have refused. */
void stats_count(struct stats *stats, const struct weir_verdict *verdict, const struct weir_shadows *shadows,
                 enum outcome outcome, const struct stats_counted *counted);

/* Counts what one rule says. `rules` is the version of the rules, or 0 if it is unknown; dry_run: a refusal does not hold.
 */
void stats_count_rule(struct stats *stats, struct stats_known *known, uint64_t rules, const struct weir_rule_said *said,
                      bool dry_run, struct stats_counted *counted);

void stats_count_wait(struct stats *stats);

/* Whether the caller has to log this report: true for the first worker that has it, unless a later version was logged. The
 * caller holds a lock. */
bool stats_claim_report(struct stats *stats, uint64_t version_ns, const char *text);

#endif
