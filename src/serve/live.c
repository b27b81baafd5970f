#include "serve/live.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/instant.h"
#include "serve/admin.h"
#include "serve/status_facts.h"
#include "serve/tally.h"

enum {
    STREAMS_MAX = 32,
    STREAM_MS_MAX = 10 * 60 * 1000, /* then the client connects again, and shows its token again */
    EVERY_MS = 1000,
    BUSIEST = 10,
    EVENT_BYTES_MAX = 32 << 10,
};

struct live_stream {
    struct live *live;
    struct http_call *call;     /* whose answer it is */
    struct http_stream *stream; /* NULL: free */
    bool over;                  /* it was ended */
    int64_t since_ms;
};

struct live {
    struct server *server;
    struct loop *loop;
    uv_timer_t timer; /* runs while there are streams */
    struct live_stream streams[STREAMS_MAX];
    unsigned count;
    struct buf event;       /* the newest one */
    struct tally_mark mark; /* the counters at that event */
    int64_t marked_us;      /* by the clock that does not step; 0: there was no event yet */
};

/* ---- an event ---- */

static void add_busiest(const struct live *live, struct buf *out)
{
    struct tally_rule rules[BUSIEST];
    struct stats_said rest;
    size_t count = tally_busiest(live->server->tally, &live->mark, rules, BUSIEST, &rest);
    buf_add(out, SV(",\"busiest\":["));
    for (size_t i = 0; i < count; i++) {
        buf_add(out, i ? SV(",{\"rule\":") : SV("{\"rule\":"));
        buf_json(out, weir_str(tally_rule_id(live->server->tally, rules[i].rule)));
        buf_printf(out, ",\"passed\":%llu,\"refused\":%llu,\"would_refuse\":%llu}",
                   (unsigned long long)rules[i].said.passed, (unsigned long long)rules[i].said.refused,
                   (unsigned long long)rules[i].said.would_refuse);
    }
    buf_char(out, ']');
}

/* An empty text: there is none. */
static void add_problem(const char *name, const char *text, struct buf *out)
{
    buf_printf(out, ",\"%s\":", name);
    if (text[0])
        buf_json(out, weir_str(text));
    else
        buf_add(out, SV("null"));
}

static void add_store(const struct weir_store_status *store, struct buf *out)
{
    if (!store->configured) {
        buf_add(out, SV(",\"store\":null"));
        return;
    }
    buf_printf(out, ",\"store\":{\"up\":%s", store->up ? "true" : "false");
    add_problem("problem", store->problem, out);
    buf_printf(out, ",\"lease_tokens_held\":%llu}", (unsigned long long)store->held);
}

static void add_state(const struct live *live, const struct status_facts *facts, struct buf *out)
{
    const struct weir_status *engine = &facts->engine;
    buf_printf(out, ",\"rules\":{\"count\":%llu,\"version\":%llu,\"problem_count\":%zu,\"source_reachable\":%s",
               (unsigned long long)engine->rules, (unsigned long long)facts->rules_version, facts->source.problem_count,
               facts->source.reachable ? "true" : "false");
    add_problem("source_problem", facts->source.reachable ? "" : facts->source.problem, out);
    buf_char(out, '}');
    buf_printf(out, ",\"table\":{\"cells\":%llu,\"fill\":%.6f,\"drops\":%llu,\"drops_at_limit\":%llu}",
               (unsigned long long)engine->cells, engine->cells ? (double)facts->used_cells / (double)engine->cells : 0,
               (unsigned long long)engine->drops, (unsigned long long)engine->drops_at_limit);
    add_store(&facts->store, out);
    buf_printf(out, ",\"holds\":%llu", (unsigned long long)status_holds(live->server, clock_within(facts->now_us)));
    buf_add(out, SV(",\"connections\":{"));
    for (int front = 0; front < FRONTS; front++)
        buf_printf(out, "%s\"%s\":%llu", front ? "," : "", front_names[front], (unsigned long long)facts->open[front]);
    buf_printf(out, "},\"streams\":%u", live->count);
}

/* Since the mark, which it moves. Returns false, and there is no event, if there is no memory. */
static bool write_event(struct live *live)
{
    struct buf *out = &live->event;
    struct status_facts facts;
    char time[INSTANT_TEXT_MAX];
    int64_t steady_us = clock_steady_us();
    buf_clear(out);
    if (tally_read(live->server->tally) < 0)
        return false;
    struct tally_all all = tally_since(live->server->tally, &live->mark);
    status_look(live->server, &facts);
    instant_text(facts.now_us - facts.now_us % US_PER_MS, time);
    buf_printf(out, "data: {\"time\":\"%s\",\"interval_s\":%.3f", time,
               live->marked_us ? (double)(steady_us - live->marked_us) / (double)US_PER_S : 0.0);
    buf_printf(out,
               ",\"decisions\":{\"allowed\":%llu,\"refused\":%llu,\"shadow\":%llu,\"without_rule\":%llu},\"errors\":%llu",
               (unsigned long long)all.allowed, (unsigned long long)all.refused, (unsigned long long)all.shadow,
               (unsigned long long)all.without_rule, (unsigned long long)all.errors);
    add_busiest(live, out);
    add_state(live, &facts, out);
    buf_add(out, SV("}\n\n"));
    if (out->failed || tally_set_mark(live->server->tally, &live->mark) < 0) {
        buf_clear(out);
        return false;
    }
    live->marked_us = steady_us;
    return true;
}

/* ---- streams ---- */

static void end_stream(struct live_stream *stream)
{
    stream->over = true;
    http_stream_end(stream->stream);
}

static void on_time(uv_timer_t *timer)
{
    struct live *live = timer->data;
    int64_t now_ms = loop_now_ms(live->loop);
    bool written = write_event(live);
    for (int i = 0; i < STREAMS_MAX; i++) {
        struct live_stream *stream = &live->streams[i];
        if (!stream->stream || stream->over)
            continue;
        if (written && !http_stream_send(stream->stream, buf_sv(&live->event)))
            stream->over = true;
        else if (now_ms - stream->since_ms >= STREAM_MS_MAX || admin_caller(stream->call).role < ROLE_READ)
            end_stream(stream);
    }
}

static void gone(void *data)
{
    struct live_stream *stream = data;
    struct live *live = stream->live;
    stream->stream = NULL;
    if (--live->count == 0)
        uv_timer_stop(&live->timer);
}

static struct live_stream *find_free(struct live *live)
{
    for (int i = 0; i < STREAMS_MAX; i++)
        if (!live->streams[i].stream)
            return &live->streams[i];
    return NULL;
}

/* The first client begins the counting: its first event has counted for no time, and has the state of everything else. */
static void start(struct live *live)
{
    if (tally_read(live->server->tally) == 0)
        tally_set_mark(live->server->tally, &live->mark);
    live->marked_us = 0;
    write_event(live);
    uv_timer_start(&live->timer, on_time, EVERY_MS, EVERY_MS);
}

static void turn_away(struct http_call *call, const char *why)
{
    call->extra = (struct weir_header){ WEIR_STR("Retry-After"), WEIR_STR("5") };
    http_error(call, 503, NULL, "%s", why);
}

void admin_live(struct http_call *call, struct server *server)
{
    static const char *const none[] = { NULL };
    static const struct weir_header head[] = { { WEIR_STR("Content-Type"), WEIR_STR("text/event-stream") } };
    struct live *live = server->live;
    struct live_stream *stream = find_free(live);
    if (!admin_check_parameters(call, none))
        return;
    if (server_ending(server)) {
        turn_away(call, "the service is ending");
        return;
    }
    if (!stream) {
        turn_away(call, "too many clients are watching");
        return;
    }
    if (sv_eq(call->method, SV("HEAD"))) {
        http_answer(call, &(struct http_answer){ 200, .headers = head, .header_count = sizeof head / sizeof *head });
        return;
    }
    struct http_stream *opened = http_stream_begin(call, SV("text/event-stream"), gone, stream);
    if (!opened)
        return;
    *stream = (struct live_stream){ .live = live, .call = call, .stream = opened, .since_ms = loop_now_ms(live->loop) };
    if (live->count++ == 0)
        start(live);
    http_stream_send(opened, SV("retry: 2000\n\n"));
    /* Nobody waits for the first one. What it counts was before the next event. */
    if (live->event.len > 0)
        http_stream_send(opened, buf_sv(&live->event));
}

/* ---- life ---- */

int live_new(struct live **ret, struct server *server)
{
    struct live *live = calloc(1, sizeof *live);
    if (!live)
        return WEIR_E_NO_MEMORY;
    live->server = server;
    live->loop = &server->loops[server->loop_count];
    uv_timer_init(&live->loop->uv, &live->timer);
    live->timer.data = live;
    buf_init(&live->event, EVENT_BYTES_MAX);
    *ret = live;
    return 0;
}

void live_free(struct live *live)
{
    if (!live)
        return;
    tally_mark_done(&live->mark);
    buf_done(&live->event);
    free(live);
}
