/* GET /v1/refusals: the newest refused requests. */
#include "base/cleanup.h"
#include "base/instant.h"
#include "serve/admin.h"
#include "serve/refusals.h"
#include "serve/stats.h"
#include "serve/status.h"
#include <inttypes.h>
#include <stdio.h>

enum { MOST_MAX = 1000, MOST_DEFAULT = 50 };

static void add_text(struct buf *out, const char *before, sv text)
{
    buf_add(out, weir_str(before));
    if (text.len > 0)
        buf_json(out, text);
    else
        buf_add(out, SV("null"));
}

/* ["KEY=VALUE", …] */
static bool add_descriptor(const struct recent_request *request, bool first, struct buf *out)
{
    struct weir_header entries[WEIR_DESCRIPTOR_MAX];
    char bytes[RECENT_DESCRIPTOR_MAX], room[RECENT_DESCRIPTOR_MAX];
    size_t count = descriptor_read(sv_of(request->descriptor, request->descriptor_len), bytes, entries);
    for (size_t i = 0; i < count; i++) {
        struct buf text;
        buf_over(&text, room, sizeof room);
        buf_add(&text, entries[i].name);
        buf_char(&text, '=');
        buf_add(&text, entries[i].value);
        buf_add(out, i ? SV(", ") : first ? SV("\"descriptor\": [") : SV(", \"descriptor\": ["));
        buf_json(out, buf_sv(&text));
    }
    buf_add(out, count > 0 ? SV("]") : SV(""));
    return count > 0;
}

/* The parameters of GET /v1/explain for the same request. Of its headers only the one that has chosen a plan is known. */
static void add_request(const struct recent_request *request, const struct recent_plan *plan, struct buf *out)
{
    bool first = true;
    buf_add(out, SV(", \"request\": {"));
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv value = recent_value(request, i);
        if (value.len == 0)
            continue;
        buf_printf(out, "%s\"%s\": ", first ? "" : ", ", attribute_table[i].name.ptr);
        buf_json(out, value);
        first = false;
    }
    first = !add_descriptor(request, first, out) && first;
    buf_printf(out, "%s\"cost\": [\"%" PRIu64 "\"", first ? "" : ", ", request->cost);
    for (size_t i = 0; i < request->cost_count; i++) /* the name of a unit needs no escapes */
        buf_printf(out, ", \"%s:%" PRIu64 "\"", request->costs[i].unit, request->costs[i].amount);
    buf_char(out, ']');
    if (plan->header[0]) {
        char text[sizeof plan->header + sizeof plan->name];
        snprintf(text, sizeof text, "%s:%s", plan->header, plan->name);
        buf_add(out, SV(", \"header\": ["));
        buf_json(out, weir_str(text));
        buf_char(out, ']');
    }
    buf_printf(out, "}, \"request_cut\": %s", request->cut ? "true" : "false");
}

/* Refusals in a row that are the same but for their requests: the newest one, and the time of the oldest. */
struct run {
    const struct recent_refusal *newest;
    int64_t first_us;
    size_t count;
};

static bool is_same(const struct recent_refusal *a, const struct recent_refusal *b)
{
    return a->subject.key == b->subject.key && sv_eq(subject_rule(&a->subject), subject_rule(&b->subject)) &&
           strcmp(a->limit, b->limit) == 0 && a->reason == b->reason && a->shadow == b->shadow;
}

/* The run that begins with entry i of the list; one entry alone unless they are grouped. */
static struct run run_from(const struct recent_list *list, size_t i, bool grouped)
{
    struct run run = { &list->entries[i], list->entries[i].at_us, 1 };
    while (grouped && i + run.count < list->count && is_same(run.newest, &list->entries[i + run.count]))
        run.first_us = list->entries[i + run.count++].at_us;
    return run;
}

static void add_times(const struct run *run, struct buf *out)
{
    char at[INSTANT_TEXT_MAX], first[INSTANT_TEXT_MAX];
    instant_text(run->newest->at_us / US_PER_MS * US_PER_MS, at);
    instant_text(run->first_us / US_PER_MS * US_PER_MS, first);
    buf_printf(out, "\"number\": %" PRIu64 ", \"time\": \"%s\", \"first\": \"%s\", \"count\": %zu, ", run->newest->number,
               at, first, run->count);
}

static void add_run(const struct run *run, bool first, struct buf *out)
{
    static const char *const reasons[RECENT_REASONS] = {
        [RECENT_LIMIT] = "limit",
        [RECENT_PENALTY] = "penalty",
        [RECENT_UNAVAILABLE] = "unavailable",
        [RECENT_REPEATED] = "repeated_header",
        [RECENT_UNJUDGED] = "unjudged",
    };
    const struct recent_refusal *r = run->newest;
    buf_add(out, first ? SV("\n{") : SV(",\n{"));
    add_times(run, out);
    status_write_whom(&r->subject, out);
    add_text(out, ", \"plan\": ", weir_str(r->plan.name));
    add_text(out, ", \"limit\": ", weir_str(r->limit));
    buf_printf(out, ", \"reason\": \"%s\", \"shadow\": %s", reasons[r->reason], r->shadow ? "true" : "false");
    if (r->status > 0)
        buf_printf(out, ", \"status\": %u", r->status);
    else
        buf_add(out, SV(", \"status\": null"));
    if (r->retry_after_ms >= 0)
        buf_printf(out, ", \"retry_after_ms\": %" PRId64, r->retry_after_ms);
    else
        buf_add(out, SV(", \"retry_after_ms\": null"));
    if (r->of_request)
        add_request(&r->request, &r->plan, out);
    else
        buf_add(out, SV(", \"request\": null, \"request_cut\": false"));
    buf_char(out, '}');
}

void admin_refusals(struct http_call *call, struct server *server)
{
    static const char *const names[] = { "most", "rule", "after", "group", NULL };
    CLEANUP(recent_list_done) struct recent_list list = { 0 };
    CLEANUP(buf_done) struct buf out;
    uint64_t most, after, group, newest = recent_newest(), left_out;
    buf_init(&out, STATUS_BYTES_MAX);
    if (!admin_check_parameters(call, names) || !admin_number(call, "most", 1, MOST_MAX, MOST_DEFAULT, &most) ||
        !admin_number(call, "after", 0, WEIR_AMOUNT_MAX, 0, &after) || !admin_number(call, "group", 0, 1, 0, &group))
        return;
    /* A run may be as long as everything that is kept. */
    unsigned fetched = group ? RECENT_SLOTS : (unsigned)most;
    sv rule = http_parameter(call, "rule", 0);
    if (refusals_collect(server->refusals, after, newest, rule, fetched, &list, &left_out) < 0) {
        http_error(call, 503, NULL, "out of memory for the answer");
        return;
    }
    buf_add(&out, SV("{\"refusals\": ["));
    for (size_t i = 0, listed = 0; i < list.count && listed < most; listed++) {
        struct run run = run_from(&list, i, group);
        add_run(&run, listed == 0, &out);
        i += run.count;
    }
    buf_printf(&out, "],\n\"newest\": %" PRIu64 ", \"left_out\": %" PRIu64 "}\n", newest, left_out);
    admin_answer(call, SV(""), &out);
}
