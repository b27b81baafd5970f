/* The text format of Prometheus. */
#include "serve/status.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/status_facts.h"

static void family(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct buf *out, const char *name, const char *help, double value)
{
    family(out, name, "gauge", help);
    buf_printf(out, "%s %.15g\n", name, value);
}

static void counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
    family(out, name, "counter", help);
    buf_printf(out, "%s %llu\n", name, (unsigned long long)value);
}

static void add_label(struct buf *out, sv value)
{
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] == '\n')
            buf_add(out, SV("\\n"));
        else if (value.ptr[i] == '"' || value.ptr[i] == '\\')
            buf_printf(out, "\\%c", value.ptr[i]);
        else
            buf_char(out, value.ptr[i]);
    }
}

/* Names that are not of a rule are listed once there is something to count. */
static bool is_listed(size_t i, const struct stats_rule *rule)
{
    uint64_t all = 0;
    for (int k = 0; k < OUTCOMES; k++)
        all += rule->counts[k];
    return all > 0 || i == 0 || (strcmp(rule->id, STATS_OTHER) != 0 && strcmp(rule->id, STATS_THROTTLE) != 0);
}

static void add_decisions(const struct stats *stats, struct buf *out)
{
    static const char *const outcomes[OUTCOMES] = { "allowed", "refused", "shadow", "peeked" };
    family(
        out, "weir_decisions_total", "counter",
        "Decisions by rule (empty: none applied) and outcome; shadow: this shadow rule would have refused; peeked: asked "
        "without a charge, whatever the answer. The rule " STATS_THROTTLE " counts calls of CL.THROTTLE.");
    size_t count = stats_rule_count(stats);
    for (size_t i = 0; i < count; i++) {
        struct stats_rule rule;
        stats_rule(stats, i, &rule);
        if (!is_listed(i, &rule))
            continue;
        for (int k = 0; k < OUTCOMES; k++) {
            buf_add(out, SV("weir_decisions_total{rule=\""));
            add_label(out, weir_str(rule.id));
            buf_printf(out, "\",outcome=\"%s\"} %llu\n", outcomes[k], (unsigned long long)rule.counts[k]);
        }
    }
}

static void add_applied(struct buf *out, const char *rule, const char *limit, const char *outcome, uint64_t count)
{
    buf_add(out, SV("weir_rule_applied_total{rule=\""));
    add_label(out, weir_str(rule));
    buf_add(out, SV("\",limit=\""));
    add_label(out, weir_str(limit));
    buf_printf(out, "\",outcome=\"%s\"} %llu\n", outcome, (unsigned long long)count);
}

/* Names that are not of a rule are listed once there is something to count. */
static void add_all_applied(const struct stats *stats, struct buf *out)
{
    static const size_t of_no_rule = 3;
    struct stats_rule rule;
    family(
        out, "weir_rule_applied_total", "counter",
        "Requests by rule that applied to them, whatever other rules said, and outcome; limit: the one that had no room; "
        "would_refuse: the same in shadow mode.");
    size_t count = stats_rule_count(stats);
    for (size_t i = 0; i < count; i++) {
        stats_rule(stats, i, &rule);
        if (i >= of_no_rule || rule.passed > 0)
            add_applied(out, rule.id, "", "passed", rule.passed);
    }
    count = stats_limit_count(stats);
    for (size_t i = 0; i < count; i++) {
        struct stats_limit limit;
        stats_limit(stats, i, &limit);
        stats_rule(stats, limit.rule, &rule);
        if (i == 0 && limit.refused + limit.would_refuse == 0)
            continue;
        add_applied(out, rule.id, limit.name, "refused", limit.refused);
        add_applied(out, rule.id, limit.name, "would_refuse", limit.would_refuse);
    }
    counter(out, "weir_requests_without_rule_total", "Requests that no rule applied to, not even one in shadow mode.",
            stats_without_rule(stats));
}

static void add_by_rule(struct buf *out, const char *name, const char *rule, uint64_t count)
{
    buf_printf(out, "%s{rule=\"", name);
    add_label(out, weir_str(rule));
    buf_printf(out, "\"} %llu\n", (unsigned long long)count);
}

/* Most rules have no overdraft: only those that were overdrawn are listed. */
static void add_overdrawn(const struct stats *stats, struct buf *out)
{
    family(out, "weir_overdrawn_total", "counter",
           "Units that requests were charged beyond max, by rule, of limits with overdraft.");
    size_t count = stats_rule_count(stats);
    for (size_t i = 0; i < count; i++) {
        struct stats_rule rule;
        stats_rule(stats, i, &rule);
        if (rule.overdrawn > 0)
            add_by_rule(out, "weir_overdrawn_total", rule.id, rule.overdrawn);
    }
}

/* Rules that have penalties. */
static void add_penalties(const struct stats *stats, struct buf *out)
{
    static const char begun[] = "weir_penalties_total", refused[] = "weir_penalty_refusals_total";
    size_t count = stats_rule_count(stats);
    for (int k = 0; k < 2; k++) {
        family(out, k ? refused : begun, "counter",
               k ? "Requests that a rule refused because of a penalty, whatever its limits say."
                 : "Penalties that began, by rule.");
        for (size_t i = 0; i < count; i++) {
            struct stats_rule rule;
            stats_rule(stats, i, &rule);
            if (rule.penalises)
                add_by_rule(out, k ? refused : begun, rule.id, k ? rule.penalised : rule.penalties);
        }
    }
}

static void add_hold(const struct weir_in_flight *in_flight, void *data)
{
    struct buf *out = data;
    buf_add(out, SV("weir_holds{rule=\""));
    add_label(out, in_flight->rule);
    buf_add(out, SV("\",limit=\""));
    add_label(out, in_flight->limit);
    buf_printf(out, "\"} %llu\n", (unsigned long long)in_flight->holds);
}

static void add_holds(struct weir *weir, int64_t now_us, struct buf *out)
{
    family(out, "weir_holds", "gauge",
           "Holds on this host that are not over, by rule and limit; of a limit with concurrent: requests in flight.");
    if (weir_each_in_flight(weir, now_us, add_hold, out) < 0)
        out->failed = true;
}

static void add_latency(const struct stats *stats, struct buf *out)
{
    struct stats_latency latency;
    uint64_t count = 0;
    stats_latency(stats, &latency);
    family(out, "weir_decision_seconds", "histogram", "Time from reading a request to its decision.");
    for (int i = 0; i < STATS_BUCKETS; i++) {
        count += latency.buckets[i];
        buf_printf(out, "weir_decision_seconds_bucket{le=\"%g\"} %llu\n", (double)stats_bounds_ns[i] / 1e9,
                   (unsigned long long)count);
    }
    count += latency.buckets[STATS_BUCKETS];
    buf_printf(out, "weir_decision_seconds_bucket{le=\"+Inf\"} %llu\nweir_decision_seconds_sum %.9f\n",
               (unsigned long long)count, (double)latency.sum_ns / 1e9);
    buf_printf(out, "weir_decision_seconds_count %llu\n", (unsigned long long)count);
}

static void add_rules(const struct status_facts *facts, struct buf *out)
{
    gauge(out, "weir_rules", "Rules in force.", (double)facts->engine.rules);
    /* Without a sample while it is not known. */
    family(out, "weir_rules_age_seconds", "gauge",
           "Time since the rules in force were last known to equal those of the source.");
    if (facts->age_known)
        buf_printf(out, "weir_rules_age_seconds %.3f\n", facts->age_s);
    gauge(out, "weir_rules_problems", "Bad rows of the source.", (double)facts->source.problem_count);
    gauge(out, "weir_source_reachable", "1: the source of the rules is reachable.", facts->source.reachable);
}

static void add_table(const struct status_facts *facts, struct buf *out)
{
    const struct weir_status *e = &facts->engine;
    gauge(out, "weir_table_cells", "Cells of the table.", (double)e->cells);
    gauge(out, "weir_table_bytes", "Size of the table.", (double)e->bytes);
    gauge(out, "weir_table_used_cells", "Cells in use; measured every ten seconds, in a large table by a sample.",
          (double)facts->used_cells);
    counter(out, "weir_table_drops_total", "Live cells dropped for new ones, since the table was created.", e->drops);
    counter(out, "weir_table_drops_at_limit_total", "Dropped cells that were at their limit: the table is too small.",
            e->drops_at_limit);
    if (!facts->saving.active)
        return;
    gauge(out, "weir_save_age_seconds",
          "Time since the last completed save began: a power cut loses counts that are younger.", facts->saving.age_s);
    counter(out, "weir_saves_total", "Completed saves of the counts in memory.", facts->saving.saves);
    counter(out, "weir_save_failures_total", "Saves that failed.", facts->saving.failures);
    counter(out, "weir_save_bytes_total", "Bytes written by saves.", facts->saving.bytes);
}

static void add_store(const struct weir_store_status *store, struct buf *out)
{
    if (!store->configured)
        return;
    gauge(out, "weir_store_up", "1: the store of the counters is available.", store->up);
    gauge(out, "weir_store_nodes", "Servers that the store is made of: 1, or the masters of a cluster.", store->nodes);
    gauge(out, "weir_store_nodes_up", "Those of them that answer.", store->nodes_up);
    gauge(out, "weir_store_hosts", "Hosts that share the store.", store->hosts);
    gauge(out, "weir_store_clock_offset_seconds", "Clock of the store minus the clock of this host.",
          (double)store->offset_us / (double)US_PER_S);
    for (size_t i = 0; i < STATUS_STORE_COUNTS; i++) {
        char name[60];
        bool lease = strncmp(status_store_counts[i].name, "lease_", 6) == 0;
        snprintf(name, sizeof name, "weir_%s%s_total", lease ? "" : "store_", status_store_counts[i].name);
        counter(out, name, status_store_counts[i].help, status_store_value(store, i));
    }
    gauge(
        out, "weir_lease_tokens_held",
        "Tokens that this host has borrowed and not spent. At most what all hosts hold together may be refused too early.",
        (double)store->held);
}

static void add_connections(const struct status_facts *facts, struct buf *out)
{
    family(out, "weir_connections", "gauge", "Open connections by front.");
    for (int front = 0; front < FRONTS; front++)
        buf_printf(out, "weir_connections{front=\"%s\"} %llu\n", front_names[front],
                   (unsigned long long)facts->open[front]);
    counter(out, "weir_connections_accepted_total", "Connections that were accepted.", facts->accepted);
    counter(out, "weir_connections_turned_away_total", "Connections that were refused because there were too many.",
            facts->turned_away);
    counter(out, "weir_connections_gave_way_total", "Idle connections that were closed to make room for new ones.",
            facts->gave_way);
    counter(out, "weir_connections_overdue_total", "Connections that were closed because they timed out.", facts->overdue);
}

static void add_certificate(const struct server *server, struct buf *out)
{
    int64_t until_us = __atomic_load_n(&server->certificate_until_us, __ATOMIC_RELAXED);
    if (until_us > 0)
        gauge(out, "weir_certificate_expiry_seconds", "When the certificate of the listeners expires, since 1970.",
              (double)until_us / (double)US_PER_S);
}

void status_write_metrics(struct server *server, struct buf *out)
{
    CLEANUP(status_facts_done) struct status_facts facts = { 0 };
    if (!status_gather(server, &facts)) {
        out->failed = true;
        return;
    }
    family(out, "weir_build_info", "gauge", "1, with the version.");
    buf_printf(out, "weir_build_info{version=\"%s\"} 1\n", weir_version());
    gauge(out, "weir_start_time_seconds", "When the service was started, since 1970.",
          (double)server->started_us / (double)US_PER_S);
    add_decisions(facts.stats, out);
    add_all_applied(facts.stats, out);
    add_overdrawn(facts.stats, out);
    add_penalties(facts.stats, out);
    counter(out, "weir_refunds_total", "Charges that were refunded, to one limit at least.", stats_refunds(facts.stats));
    add_holds(server->weir, facts.now_us, out);
    add_latency(facts.stats, out);
    add_rules(&facts, out);
    add_table(&facts, out);
    add_store(&facts.store, out);
    add_connections(&facts, out);
    add_certificate(server, out);
}
