/* GET /v1/refusals: the newest refused requests. */
#include "base/cleanup.h"
#include "base/instant.h"
#include "refused/recent.h"
#include "serve/admin.h"
#include "serve/stats.h"
#include "serve/status.h"
#include <inttypes.h>

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

/* The parameters of GET /v1/explain for the same request. */
static void add_request(const struct recent_request *request, struct buf *out)
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
    buf_printf(out, "]}, \"request_cut\": %s", request->cut ? "true" : "false");
}

static void add_refusal(const struct recent_refusal *r, bool first, struct buf *out)
{
    static const char *const reasons[RECENT_REASONS] = {
        [RECENT_LIMIT] = "limit",
        [RECENT_PENALTY] = "penalty",
        [RECENT_UNAVAILABLE] = "unavailable",
        [RECENT_REPEATED] = "repeated_header",
        [RECENT_UNJUDGED] = "unjudged",
    };
    char at[INSTANT_TEXT_MAX];
    instant_text(r->at_us / US_PER_MS * US_PER_MS, at);
    buf_printf(out, "%s\n{\"number\": %" PRIu64 ", \"time\": \"%s\", ", first ? "" : ",", r->number, at);
    status_write_whom(&r->subject, out);
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
        add_request(&r->request, out);
    else
        buf_add(out, SV(", \"request\": null, \"request_cut\": false"));
    buf_char(out, '}');
}

/* Of all loops, the newest first. Returns false if out of memory. */
static bool collect(const struct server *server, uint64_t after, uint64_t until, sv rule, unsigned most,
                    struct recent_list *list, uint64_t *ret_left_out)
{
    *ret_left_out = 0;
    for (unsigned i = 0; i <= server->loop_count; i++) {
        struct stats *stats = server->loops[i].stats;
        if (stats && stats_collect_recent(stats, after, until, rule, most, list, ret_left_out) < 0)
            return false;
    }
    recent_list_sort(list);
    return true;
}

void admin_refusals(struct http_call *call, struct server *server)
{
    static const char *const names[] = { "most", "rule", "after", NULL };
    CLEANUP(recent_list_done) struct recent_list list = { 0 };
    CLEANUP(buf_done) struct buf out;
    uint64_t most, after, newest = recent_newest(), left_out;
    buf_init(&out, STATUS_BYTES_MAX);
    if (!admin_check_parameters(call, names) || !admin_number(call, "most", 1, MOST_MAX, MOST_DEFAULT, &most) ||
        !admin_number(call, "after", 0, WEIR_AMOUNT_MAX, 0, &after))
        return;
    if (!collect(server, after, newest, http_parameter(call, "rule", 0), (unsigned)most, &list, &left_out)) {
        http_error(call, 503, NULL, "out of memory for the answer");
        return;
    }
    buf_add(&out, SV("{\"refusals\": ["));
    for (size_t i = 0; i < list.count && i < most; i++)
        add_refusal(&list.entries[i], i == 0, &out);
    buf_printf(&out, "],\n\"newest\": %" PRIu64 ", \"left_out\": %" PRIu64 "}\n", newest, left_out);
    admin_answer(call, SV(""), &out);
}
