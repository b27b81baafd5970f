#include "serve/status.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/instant.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/penalty.h"
#include "refused/most_refused.h"
#include "serve/status_facts.h"

enum { FILL_CELLS = 1 << 20, FILL_AGE_MAX_S = 10 };

#define COUNT(name, field, help)                              \
    {                                                         \
        name, help, offsetof(struct weir_store_status, field) \
    }
const struct status_store_count status_store_counts[STATUS_STORE_COUNTS] = {
    COUNT("calls", calls, "Scripts that were called: decisions, slices, refunds."),
    COUNT("late", late, "Decisions that timed out: the store did not answer by the deadline."),
    COUNT("failed", failed, "Calls that the store refused."),
    COUNT("lost", lost, "Calls with unknown results: the connection broke."),
    COUNT("unsent", unsent, "Decisions that did not ask the store: it was unavailable, or too many were waiting."),
    COUNT("refunded", refunded, "Answers that came too late to be used, and were refunded."),
    COUNT("breaker_opened", opened, "Times that the store was given up after repeated failures."),
    COUNT("replaced", replaced, "Times that another server answered, or the same one had restarted."),
    COUNT("emptied", emptied, "Times that the counts of the store were gone."),
    COUNT("reconciled_tokens", reconciled, "Tokens charged in the store that were spent while it was unavailable."),
    COUNT("lease_slices", slices, "Slices of leased rules that this host has borrowed."),
    COUNT("lease_tokens_lent", lent, "Tokens of these slices."),
    COUNT("lease_tokens_returned", returned, "Tokens that were returned unspent."),
};

/* ---- gathering ---- */

/* Reads up to 32 MB, so not for every request. */
static void measure_fill(struct server *server, struct status_facts *ret)
{
    int64_t steady_us = clock_steady_us();
    if (server->fill.steady_us == 0 || steady_us - server->fill.steady_us >= FILL_AGE_MAX_S * US_PER_S) {
        server->fill.used = cells_estimate_live(server->weir->cells, ret->now_us, FILL_CELLS);
        server->fill.steady_us = steady_us;
    }
    ret->used_cells = server->fill.used;
    ret->used_age_s = (double)(steady_us - server->fill.steady_us) / (double)US_PER_S;
}

/* The loops change them meanwhile. */
static void gather_conns(const struct conns *conns, struct status_facts *ret)
{
    for (int front = 0; front < FRONTS; front++)
        ret->open[front] += __atomic_load_n(&conns->open[front], __ATOMIC_RELAXED);
    ret->accepted += __atomic_load_n(&conns->accepted, __ATOMIC_RELAXED);
    ret->turned_away += __atomic_load_n(&conns->turned_away, __ATOMIC_RELAXED);
    ret->gave_way += __atomic_load_n(&conns->gave_way, __ATOMIC_RELAXED);
    ret->overdue += __atomic_load_n(&conns->overdue, __ATOMIC_RELAXED);
}

static void know_limits(struct stats *stats, const struct rule *rule, const struct rule_limit *limits, size_t count)
{
    for (size_t i = 0; i < count; i++)
        stats_add_limit(stats, rule->id, limits[i].name);
}

/* Rules that have not decided yet: a series that begins with its first decision has no rate for it. */
static void gather_rules(struct weir *weir, struct stats *stats)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return;
    const struct rules *rules = ruleset_rules(bound->ruleset);
    for (size_t i = 0; i < rules->rule_count; i++) {
        const struct rule *rule = rules->rules[i];
        if (rule->kind->mode == MODE_OFF)
            continue;
        stats_add_rule(stats, rule->id);
        if (rule->kind->rest->penalty.after > 0)
            stats_add_penalty(stats, rule->id);
        know_limits(stats, rule, rule->kind->limits, rule->kind->limit_count);
        for (size_t k = 0; k < rule->kind->rest->plan_count; k++)
            know_limits(stats, rule, rule->kind->rest->plans[k].limits, rule->kind->rest->plans[k].limit_count);
    }
    hazard_release();
}

static uint64_t rules_version(struct weir *weir)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    uint64_t version = bound ? bound->version : 0;
    if (bound)
        hazard_release();
    return version;
}

static void add_up(const struct weir_in_flight *in_flight, void *data)
{
    *(uint64_t *)data += in_flight->holds;
}

uint64_t status_holds(struct server *server, int64_t now_us)
{
    uint64_t sum = 0;
    weir_each_in_flight(server->weir, now_us, add_up, &sum);
    return sum;
}

void status_look(struct server *server, struct status_facts *ret)
{
    *ret = (struct status_facts){ .now_us = clock_now_us() };
    rule_sync_state(server->rule_sync, &ret->source);
    ret->age_known = ret->source.good_us > 0;
    if (ret->age_known && ret->now_us > ret->source.good_us)
        ret->age_s = (double)(ret->now_us - ret->source.good_us) / (double)US_PER_S;
    weir_status(server->weir, &ret->engine);
    ret->rules_version = rules_version(server->weir);
    weir_store_status(server->weir, &ret->store);
    if (server->saving)
        saving_status(server->saving, &ret->saving);
    measure_fill(server, ret);
    for (unsigned i = 0; i <= server->loop_count; i++)
        gather_conns(&server->loops[i].conns, ret);
}

bool status_gather(struct server *server, struct status_facts *ret)
{
    status_look(server, ret);
    if (stats_new(&ret->stats) < 0)
        return false;
    for (unsigned i = 0; i <= server->loop_count; i++)
        if (server->loops[i].stats)
            stats_add(ret->stats, server->loops[i].stats);
    gather_rules(server->weir, ret->stats);
    return true;
}

void status_facts_done(struct status_facts *facts)
{
    if (facts)
        stats_free(facts->stats);
}

/* ---- status ---- */

static const char *truth(bool yes)
{
    return yes ? "true" : "false";
}

/* `before`, then the text as JSON, or null if it is empty. */
static void add_text(struct buf *out, const char *before, sv text)
{
    buf_add(out, weir_str(before));
    if (text.len)
        buf_json(out, text);
    else
        buf_add(out, SV("null"));
}

static void add_listeners(const struct server *server, struct buf *out)
{
    for (int front = 0; front < FRONTS; front++) {
        buf_printf(out, "%s\"%s\": ", front ? ", " : "\"listeners\": {", front_names[front]);
        buf_json(out, weir_str(server->where[front]));
    }
    buf_add(out, SV("},\n"));
}

static void add_source(const struct rule_sync_state *source, struct buf *out)
{
    add_text(out, "\"source\": {\"address\": ", weir_str(source->source));
    buf_printf(out, ", \"read_only\": %s, \"reachable\": %s, \"from_copy\": %s", truth(source->is_file),
               truth(source->reachable), truth(source->from_copy));
    add_text(out, ", \"problem\": ", source->reachable ? SV("") : weir_str(source->problem));
    buf_add(out, SV("},\n"));
}

static void add_problem(const struct source_problem *problem, void *data)
{
    struct buf *out = data;
    add_text(out, out->ptr[out->len - 1] == '[' ? "{\"table\": " : ", {\"table\": ", problem->table);
    add_text(out, ", \"row\": ", problem->row);
    add_text(out, ", \"rule\": ", problem->rule);
    add_text(out, ", \"text\": ", problem->text);
    buf_char(out, '}');
}

static void add_rules(struct server *server, const struct status_facts *facts, struct buf *out)
{
    buf_printf(out, "\"rules\": {\"count\": %llu, \"age_s\": ", (unsigned long long)facts->engine.rules);
    if (facts->age_known)
        buf_printf(out, "%.3f", facts->age_s);
    else
        buf_add(out, SV("null"));
    buf_printf(out, ", \"problem_count\": %zu, \"problems\": [", facts->source.problem_count);
    if (!out->failed)
        rule_sync_problems(server->rule_sync, add_problem, out);
    buf_add(out, SV("]},\n"));
}

static void add_table(const struct server *server, const struct status_facts *facts, struct buf *out)
{
    const struct weir_status *e = &facts->engine;
    const struct saving_status *s = &facts->saving;
    buf_printf(out,
               "\"table\": {\"cells\": %llu, \"bytes\": %llu, \"used\": %llu, \"fill\": %.6f, \"measured_s\": %.3f, "
               "\"drops\": %llu, \"drops_at_limit\": %llu, ",
               (unsigned long long)e->cells, (unsigned long long)e->bytes, (unsigned long long)facts->used_cells,
               e->cells ? (double)facts->used_cells / (double)e->cells : 0, facts->used_age_s, (unsigned long long)e->drops,
               (unsigned long long)e->drops_at_limit);
    add_text(out, "\"file\": ", weir_str(server->table_place.path));
    if (server->table_place.live)
        add_text(out, ", \"memory\": ", weir_str(server->table_place.live));
    else
        buf_add(out, SV(", \"memory\": null"));
    if (s->active)
        buf_printf(out, ", \"saved\": {\"age_s\": %.3f, \"saves\": %llu, \"failures\": %llu, \"bytes\": %llu}},\n",
                   s->age_s, (unsigned long long)s->saves, (unsigned long long)s->failures, (unsigned long long)s->bytes);
    else
        buf_add(out, SV(", \"saved\": null},\n"));
}

static void add_store(const struct weir_store_status *store, struct buf *out)
{
    if (!store->configured) {
        buf_add(out, SV("\"store\": null,\n"));
        return;
    }
    add_text(out, "\"store\": {\"address\": ", weir_str(store->address));
    buf_printf(out, ", \"up\": %s", truth(store->up));
    add_text(out, ", \"problem\": ", weir_str(store->problem));
    buf_printf(out, ", \"nodes\": %u, \"nodes_up\": %u", store->nodes, store->nodes_up);
    buf_printf(out, ", \"hosts\": %u, \"clock_offset_s\": %.6f", store->hosts, (double)store->offset_us / (double)US_PER_S);
    for (size_t i = 0; i < STATUS_STORE_COUNTS; i++)
        buf_printf(out, ", \"%s\": %llu", status_store_counts[i].name, (unsigned long long)status_store_value(store, i));
    buf_printf(out, ", \"lease_tokens_held\": %llu},\n", (unsigned long long)store->held);
}

static void add_connections(const struct status_facts *facts, struct buf *out)
{
    uint64_t all = 0;
    for (int front = 0; front < FRONTS; front++)
        all += facts->open[front];
    buf_printf(out, "\"connections\": {\"open\": %llu", (unsigned long long)all);
    for (int front = 0; front < FRONTS; front++)
        buf_printf(out, ", \"%s\": %llu", front_names[front], (unsigned long long)facts->open[front]);
    buf_printf(out, ", \"accepted\": %llu, \"turned_away\": %llu, \"gave_way\": %llu, \"overdue\": %llu},\n",
               (unsigned long long)facts->accepted, (unsigned long long)facts->turned_away,
               (unsigned long long)facts->gave_way, (unsigned long long)facts->overdue);
}

static void add_hold(const struct weir_in_flight *in_flight, void *data)
{
    struct buf *out = data;
    add_text(out, out->ptr[out->len - 1] == '[' ? "{\"rule\": " : ", {\"rule\": ", in_flight->rule);
    add_text(out, ", \"limit\": ", in_flight->limit);
    buf_printf(out, ", \"holds\": %llu}", (unsigned long long)in_flight->holds);
}

static void add_holds(struct weir *weir, int64_t now_us, struct buf *out)
{
    buf_add(out, SV("\"holds\": ["));
    if (!out->failed && weir_each_in_flight(weir, now_us, add_hold, out) < 0)
        out->failed = true;
    buf_add(out, SV("],\n"));
}

static void add_decisions(const struct stats *stats, struct buf *out)
{
    uint64_t totals[OUTCOMES] = { 0 };
    for (size_t i = 0, count = stats_rule_count(stats); i < count; i++) {
        struct stats_rule rule;
        stats_rule(stats, i, &rule);
        for (int k = 0; k < OUTCOMES; k++)
            totals[k] += rule.counts[k];
    }
    buf_printf(out, "\"decisions\": {\"allowed\": %llu, \"refused\": %llu, \"shadow\": %llu}}\n",
               (unsigned long long)totals[OUTCOME_ALLOWED], (unsigned long long)totals[OUTCOME_REFUSED],
               (unsigned long long)totals[OUTCOME_SHADOW]);
}

void status_write(struct server *server, struct buf *out)
{
    CLEANUP(status_facts_done) struct status_facts facts = { 0 };
    if (!status_gather(server, &facts)) {
        out->failed = true;
        return;
    }
    char started[INSTANT_TEXT_MAX];
    instant_text(server->started_us - server->started_us % US_PER_S, started);
    int64_t uptime_s = (facts.now_us - server->started_us) / US_PER_S;
    buf_printf(out, "{\"version\": \"%s\", \"started\": \"%s\", \"uptime_s\": %lld, \"threads\": %u,\n", weir_version(),
               started, (long long)(uptime_s > 0 ? uptime_s : 0), server->loop_count);
    add_listeners(server, out);
    add_source(&facts.source, out);
    add_rules(server, &facts, out);
    add_table(server, &facts, out);
    add_store(&facts.store, out);
    add_connections(&facts, out);
    add_holds(server->weir, facts.now_us, out);
    add_decisions(facts.stats, out);
}

/* ---- the most refused ---- */

void status_write_whom(const struct subject *subject, struct buf *out)
{
    add_text(out, "\"rule\": ", subject_rule(subject));
    buf_add(out, SV(", \"by\": ["));
    for (size_t i = 0; i < subject->by_count; i++) {
        add_text(out, i ? ", {\"name\": " : "{\"name\": ", subject_name(subject, i));
        buf_add(out, SV(", \"value\": "));
        buf_json(out, subject_value(subject, i));
        buf_char(out, '}');
    }
    buf_printf(out, "], \"cut\": %s", truth(subject->cut));
}

static void add_subject(const struct top_entry *entry, bool first, struct buf *out)
{
    const struct subject *subject = &entry->subject;
    buf_add(out, first ? SV("\n{") : SV(",\n{"));
    status_write_whom(subject, out);
    buf_printf(out, ", \"refused\": %llu, \"error\": %llu}", (unsigned long long)entry->count,
               (unsigned long long)entry->error);
}

void status_write_top_list(const struct top_list *list, int64_t start_us, int64_t now_us, unsigned most, sv rule,
                           struct buf *out)
{
    buf_printf(out, "{\"window_s\": %.3f, \"refused\": %llu, \"unlisted_at_most\": %llu, \"subjects\": [",
               now_us > start_us ? (double)(now_us - start_us) / (double)US_PER_S : 0, (unsigned long long)list->total,
               (unsigned long long)list->unlisted);
    unsigned listed = 0;
    for (size_t i = 0; i < list->count && listed < most; i++)
        if (rule.len == 0 || sv_eq(subject_rule(&list->entries[i].subject), rule))
            add_subject(&list->entries[i], listed++ == 0, out);
    buf_add(out, SV("]}\n"));
}

/* From the start of the window before the current one. */
void status_write_top(struct server *server, unsigned most, sv rule, struct buf *out)
{
    CLEANUP(top_list_done) struct top_list list = { 0 };
    int64_t now_us = clock_now_us();
    for (unsigned i = 0; i <= server->loop_count; i++)
        if (server->loops[i].stats && stats_collect_top(server->loops[i].stats, now_us, &list) < 0) {
            out->failed = true;
            return;
        }
    top_list_sort(&list);
    int64_t start_us = (now_us / TOP_WINDOW_US - 1) * TOP_WINDOW_US;
    status_write_top_list(&list, start_us > server->started_us ? start_us : server->started_us, now_us, most, rule, out);
}

/* ---- penalties ---- */

static void add_penalty(const struct penalised_entry *entry, const struct penalty_view *view, int64_t now_us, bool first,
                        struct buf *out)
{
    char until[INSTANT_TEXT_MAX];
    int64_t ends_us = clock_within(now_us + view->rest_us);
    instant_text(ends_us - ends_us % US_PER_MS, until);
    buf_add(out, first ? SV("\n{") : SV(",\n{"));
    status_write_whom(&entry->subject, out);
    buf_printf(out, ", \"until\": \"%s\", \"rest_ms\": %lld, \"level\": %u}", until,
               (long long)((view->rest_us + US_PER_MS - 1) / US_PER_MS), view->level);
}

/* The names are those that this service has refused; whether their penalties run is what the table says now. */
void status_write_penalties(struct server *server, unsigned most, sv rule, struct buf *out)
{
    CLEANUP(penalised_list_done) struct penalised_list list = { 0 };
    int64_t now_us = clock_now_us();
    for (unsigned i = 0; i <= server->loop_count; i++)
        if (server->loops[i].stats && stats_collect_penalised(server->loops[i].stats, &list) < 0) {
            out->failed = true;
            return;
        }
    penalised_list_sort(&list);
    CLEANUP_FREE struct penalty_view *views = cleanup_calloc(list.count + 1, sizeof *views);
    if (!views) {
        out->failed = true;
        return;
    }
    weir_look_penalties(server->weir, list.entries, list.count, now_us, views);
    size_t running = 0, listed = 0;
    buf_add(out, SV("{\"penalties\": ["));
    for (size_t i = 0; i < list.count; i++) {
        if (views[i].rest_us == 0 || (rule.len > 0 && !sv_eq(subject_rule(&list.entries[i].subject), rule)))
            continue;
        if (running++ < most)
            add_penalty(&list.entries[i], &views[i], now_us, listed++ == 0, out);
    }
    char since[INSTANT_TEXT_MAX];
    instant_text(server->started_us - server->started_us % US_PER_S, since);
    buf_printf(out, "],\n\"running\": %zu, \"left_out\": %llu, \"since\": \"%s\"}\n", running,
               (unsigned long long)list.left_out, since);
}
