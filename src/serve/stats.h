/* The counts of one loop: decisions by rule and outcome, how long they took, and the subjects that were refused most. Only
 * its loop writes them; other threads read them at any time.
 *
 * A request is counted twice: under the rule that its verdict names, and under each rule that applies to it.
 *
 * One thread raises a counter, and any thread may load it, so that a decision needs neither a lock nor an atomic addition.
 * Only refusals take a lock, once for a batch, and some by shadow rules; otherwise only readers of the lists of refused
 * subjects and requests take it. */
#ifndef SERVE_STATS_H
#define SERVE_STATS_H

#include <weir/weir.h>

#include "base/buf.h"

struct stats;
struct top_list;
struct penalised_list;

int stats_new(struct stats **ret);
void stats_free(struct stats *stats);

/* Has the request counted under each rule that applies to it, unless it only looks. The loop that the stats are of makes
 * the decision. */
void stats_count_rules_of(struct stats *stats, struct weir_request *request);
/* Some decisions that were made together, by requests that asked for shadow rules. elapsed_ns: from the time that they were
 * read to the time that they were decided, each. */
void stats_decided(struct stats *stats, struct weir *weir, const struct weir_request *requests,
                   const struct weir_verdict *verdicts, size_t count, int64_t now_us, uint64_t elapsed_ns);

/* The shadow rules that would have refused a request which is decided together with others: `verdict` is its own. */
void stats_shadowed(struct stats *stats, struct weir *weir, const struct weir_request *request,
                    const struct weir_verdict *verdict, int64_t now_us);

enum outcome {
    OUTCOME_ALLOWED,
    OUTCOME_REFUSED,
    OUTCOME_SHADOW,
    OUTCOME_PEEKED, /* asked and not charged, whatever the answer: no decision */
    OUTCOMES,
};

/* A CL.THROTTLE, which has no rule; `space` as for throttle_take. */
void stats_throttled(struct stats *stats, struct weir *weir, enum outcome outcome, unsigned space, sv key, int64_t now_us);

/* A charge that was given back. */
void stats_refunded(struct stats *stats);

/* ---- reading ---- */

/* Different rules that are counted apart, since the start; further ones share STATS_OTHER. */
enum { STATS_RULES_MAX = 20000 };
#define STATS_OTHER "(other)"
#define STATS_THROTTLE "(cl.throttle)"

struct stats_rule {
    char id[WEIR_ID_MAX + 1]; /* "": of decisions that no rule applied to */
    uint64_t counts[OUTCOMES];
    uint64_t passed;      /* requests that it applied to, and had room for */
    uint64_t overdrawn;   /* units that requests were charged beyond `max`, of limits with overdraft */
    bool penalises;       /* it has, or had, penalties */
    uint64_t penalties;   /* that began */
    uint64_t penalised;   /* requests that it refused because of one */
    uint32_t first_limit; /* private */
};

/* Different limits that are counted apart, since the start; further ones share STATS_OTHER. */
enum { STATS_LIMITS_MAX = 50000 };

/* Requests that the limit of a rule had no room for. */
struct stats_limit {
    uint32_t rule; /* its number, for stats_rule */
    char name[WEIR_NAME_MAX + 1];
    uint64_t refused, would_refuse;
    uint32_t next; /* private */
};

enum { STATS_BUCKETS = 19 };
extern const uint64_t stats_bounds_ns[STATS_BUCKETS];

struct stats_latency {
    uint64_t buckets[STATS_BUCKETS + 1]; /* up to that bound, and above the one before; the last: above all */
    uint64_t sum_ns;
};

size_t stats_rule_count(const struct stats *stats);
void stats_rule(const struct stats *stats, size_t i, struct stats_rule *ret);
size_t stats_limit_count(const struct stats *stats);
void stats_limit(const struct stats *stats, size_t i, struct stats_limit *ret);
/* Requests that no rule applied to, not even one in shadow mode. */
uint64_t stats_without_rule(const struct stats *stats);
void stats_latency(const struct stats *stats, struct stats_latency *ret);
uint64_t stats_refunds(const struct stats *stats);
/* The judgements of a rule on the requests that it applied to, whatever other rules said: it had room, or it refused, or it
 * would have refused in shadow mode. For STATS_THROTTLE they are the answers of CL.THROTTLE. */
struct stats_said {
    uint64_t passed, refused, would_refuse;
};
/* Adds what the first `count` rules said, each to sums[places[i]], and the decisions by outcome to `totals`. No counter is
 * read as less than by an earlier call. */
void stats_add_said(const struct stats *stats, const uint32_t *places, size_t count, struct stats_said *sums,
                    uint64_t totals[OUTCOMES]);
const char *stats_rule_id(const struct stats *stats, size_t i); /* valid as long as the stats */

/* Returns whether the rule is counted. Only the thread that counts may ask. */
bool stats_find_rule(const struct stats *stats, sv id, size_t *ret);

/* Counts a rule, or one of its limits, from now on, if only with zeroes. Returns the number of the rule, for stats_rule. */
size_t stats_add_rule(struct stats *stats, sv id);
void stats_add_limit(struct stats *stats, sv id, sv limit);
void stats_add_penalty(struct stats *stats, sv id);
/* Adds what another one counted (but not who was refused) to `sum`, which belongs to the caller alone. */
void stats_add(struct stats *sum, const struct stats *stats);
int stats_collect_top(struct stats *stats, int64_t now_us, struct top_list *list);
/* Adds the newest refusals, see recent_collect, and to *left_out those that were not noted. */
struct recent_list;
int stats_collect_recent(struct stats *stats, uint64_t after, uint64_t until, sv rule, unsigned most,
                         struct recent_list *list, uint64_t *left_out);
/* A subject that a person penalised. From any thread. */
struct penalised_entry;
void stats_add_penalised(struct stats *stats, const struct penalised_entry *entry, int64_t now_us);
/* The same for one window: see top_collect_window. */
int stats_collect_top_window(struct stats *stats, int64_t now_us, int64_t number, struct top_list *list);
int stats_collect_penalised(struct stats *stats, struct penalised_list *list);

#endif
