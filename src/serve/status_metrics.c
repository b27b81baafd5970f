/* The text format of Prometheus. */
#include "serve/status.h"

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

/* What stands for no rule in force is listed once there is something to count. */
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
    family(out, "weir_decisions_total", "counter",
           "Decisions by the rule that the verdict names (empty: none applied) and outcome; shadow: this shadow rule would "
           "have refused; peeked: asked without being charged, whatever the answer. Calls of CL.THROTTLE are those "
           "of " STATS_THROTTLE ".");
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

static void add_refunds(const struct stats *stats, struct buf *out)
{
    counter(out, "weir_refunds_total", "Charges that were given back, to one limit at least.", stats_refunds(stats));
}

static void add_latency(const struct stats *stats, struct buf *out)
{
    struct stats_latency latency;
    uint64_t count = 0;
    stats_latency(stats, &latency);
    family(out, "weir_decision_seconds", "histogram", "From the time that a request was read to its decision.");
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
    family(out, "weir_rules_age_seconds", "gauge", "Since the rules in force were last known to be those of their source.");
    if (facts->age_known)
        buf_printf(out, "weir_rules_age_seconds %.3f\n", facts->age_s);
    gauge(out, "weir_rules_problems", "Bad rows of the source.", (double)facts->source.problem_count);
    gauge(out, "weir_source_reachable", "1: the source of the rules answers.", facts->source.reachable);
}

static void add_table(const struct status_facts *facts, struct buf *out)
{
    const struct weir_status *e = &facts->engine;
    gauge(out, "weir_table_cells", "Cells of the table.", (double)e->cells);
    gauge(out, "weir_table_bytes", "Size of the table.", (double)e->bytes);
    gauge(out, "weir_table_used_cells", "Cells in use; measured every ten seconds, in a large table by a sample.",
          (double)facts->used_cells);
    counter(out, "weir_table_drops_total", "Live cells dropped for a newcomer, since the table was made.", e->drops);
    counter(out, "weir_table_drops_at_limit_total", "Those of them that were at their limit: the table is too small.",
            e->drops_at_limit);
}

static void add_store(const struct weir_store_status *store, struct buf *out)
{
    if (!store->configured)
        return;
    gauge(out, "weir_store_up", "1: the store of the counters answers.", store->up);
    gauge(out, "weir_store_hosts", "Hosts that count there.", store->hosts);
    gauge(out, "weir_store_clock_offset_seconds", "Its clock less that of this host.",
          (double)store->offset_us / (double)US_PER_S);
    counter(out, "weir_store_calls_total", "Scripts that were called: decisions, slices, refunds.", store->calls);
    counter(out, "weir_store_late_total", "Decisions whose answer was not there by the deadline.", store->late);
    counter(out, "weir_store_failed_total", "Calls that the store refused.", store->failed);
    counter(out, "weir_store_lost_total", "Calls of which nobody knows what came: the connection broke.", store->lost);
    counter(out, "weir_store_unsent_total", "Decisions that did not ask: the store was away, or too much waited.",
            store->unsent);
    counter(out, "weir_store_refunded_total", "Answers that came too late to be used, and were given back.",
            store->refunded);
    counter(out, "weir_store_breaker_opened_total", "Times that the store was given up after repeated failures.",
            store->opened);
    counter(out, "weir_store_replaced_total", "Times that another server answered, or the same one started again.",
            store->replaced);
    counter(out, "weir_store_emptied_total", "Times that its counts were gone.", store->emptied);
    counter(out, "weir_store_reconciled_tokens_total", "Tokens charged there that were spent while it was away.",
            store->reconciled);
    counter(out, "weir_lease_slices_total", "Slices of leased rules that were lent to this host.", store->slices);
    counter(out, "weir_lease_tokens_lent_total", "Tokens of these slices.", store->lent);
    counter(out, "weir_lease_tokens_returned_total", "Tokens that were given back, unspent.", store->returned);
    gauge(out, "weir_lease_tokens_held",
          "Tokens that this host has and has not spent. What all hosts hold together is the most that may be refused too "
          "early.",
          (double)store->held);
}

static void add_connections(const struct status_facts *facts, struct buf *out)
{
    family(out, "weir_connections", "gauge", "Open connections by front.");
    for (int front = 0; front < FRONTS; front++)
        buf_printf(out, "weir_connections{front=\"%s\"} %llu\n", front_names[front],
                   (unsigned long long)facts->open[front]);
    counter(out, "weir_connections_accepted_total", "Connections that were let in.", facts->accepted);
    counter(out, "weir_connections_turned_away_total", "Connections that there was no room for.", facts->turned_away);
    counter(out, "weir_connections_gave_way_total", "Idle connections that were closed for a newcomer.", facts->gave_way);
    counter(out, "weir_connections_overdue_total", "Connections that were closed since their time was over.",
            facts->overdue);
}

void status_write_metrics(struct server *server, struct buf *out)
{
    struct status_facts facts;
    if (!status_gather(server, &facts)) {
        out->failed = true;
        return;
    }
    family(out, "weir_build_info", "gauge", "1, with the version.");
    buf_printf(out, "weir_build_info{version=\"%s\"} 1\n", weir_version());
    gauge(out, "weir_start_time_seconds", "When the service was started, since 1970.",
          (double)server->started_us / (double)US_PER_S);
    add_decisions(facts.stats, out);
    add_refunds(facts.stats, out);
    add_latency(facts.stats, out);
    add_rules(&facts, out);
    add_table(&facts, out);
    add_store(&facts.store, out);
    add_connections(&facts, out);
    status_facts_done(&facts);
}
