/* Verdicts as others want to see them: JSON, HTTP headers, a whole refusal. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/hazard.h"
#include "engine/weir.h"

/* ---- JSON ---- */

static void json_ids(struct buf *b, const struct weir_verdict *v)
{
    buf_add(b, SV(",\"shadow\":["));
    for (uint32_t i = 0; i < v->shadow_count && i < WEIR_SHADOW_MAX; i++) {
        if (i)
            buf_char(b, ',');
        buf_json(b, weir_str(v->shadow[i]));
    }
    buf_add(b, SV("]}"));
}

size_t weir_verdict_json(const struct weir_verdict *v, char *buf, size_t cap)
{
    struct buf b;
    buf_init(&b, 64 * 1024);
    buf_printf(&b, "{\"allowed\":%s,\"rule\":", v->allowed ? "true" : "false");
    if (v->applied) {
        buf_json(&b, weir_str(v->rule));
        buf_add(&b, SV(",\"limit\":"));
        buf_json(&b, weir_str(v->limit));
        buf_printf(&b, ",\"max\":%u,\"remaining\":%u,\"reset_ms\":%lld,\"retry_after_ms\":%lld", v->max, v->remaining,
                   (long long)v->reset_ms, (long long)v->retry_after_ms);
    } else {
        buf_printf(&b, "null,\"limit\":null,\"max\":null,\"remaining\":null,\"reset_ms\":null,\"retry_after_ms\":%lld",
                   (long long)v->retry_after_ms);
    }
    json_ids(&b, v);
    size_t len = b.len;
    if (cap > 0)
        snprintf(buf, cap, "%s", b.ptr ? b.ptr : "");
    buf_done(&b);
    return len;
}

/* ---- headers ---- */

static void add_header(struct weir_headers *h, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void add_header(struct weir_headers *h, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(h->value[h->count], WEIR_HEADER_VALUE_MAX, format, args);
    va_end(args);
    h->header[h->count] = (struct weir_header){ weir_str(name), { h->value[h->count], (size_t)len } };
    h->count++;
}

static long long seconds_up(int64_t ms)
{
    return ms <= 0 ? 0 : (ms + 999) / 1000;
}

void weir_headers(const struct weir_verdict *v, unsigned style, struct weir_headers *ret)
{
    ret->count = 0;
    if (!v->applied)
        return;
    long long window_s = seconds_up(v->window_ms), reset_s = seconds_up(v->reset_ms);
    if (style & WEIR_HEADERS_STANDARD) {
        add_header(ret, "RateLimit-Policy", "\"%s\";q=%u;w=%lld", v->limit, v->max, window_s);
        add_header(ret, "RateLimit", "\"%s\";r=%u;t=%lld", v->limit, v->remaining, reset_s);
    }
    if (style & WEIR_HEADERS_LEGACY) {
        add_header(ret, "X-RateLimit-Limit", "%u", v->max);
        add_header(ret, "X-RateLimit-Remaining", "%u", v->remaining);
        add_header(ret, "X-RateLimit-Reset", "%lld", reset_s);
    }
    if (!v->allowed && v->retry_after_ms > 0)
        add_header(ret, "Retry-After", "%lld", seconds_up(v->retry_after_ms));
}

/* ---- refusals ---- */

/* What a refusal's strings live in: one for each thread, until its next refusal. */
struct refusal_room {
    struct buf text;
    struct weir_headers standard;
    struct weir_header *headers;
    size_t header_cap;
};

enum { REFUSAL_BYTES_MAX = 4 << 20 };

static _Thread_local struct refusal_room *own_room;
static pthread_key_t room_key;
static pthread_once_t room_once = PTHREAD_ONCE_INIT;

static void free_room(void *ptr)
{
    struct refusal_room *room = ptr;
    buf_done(&room->text);
    free(room->headers);
    free(room);
}

static void make_room_key(void)
{
    if (pthread_key_create(&room_key, free_room) != 0)
        abort();
}

static struct refusal_room *get_room(void)
{
    if (own_room)
        return own_room;
    pthread_once(&room_once, make_room_key);
    struct refusal_room *room = calloc(1, sizeof *room);
    if (!room)
        return NULL;
    buf_init(&room->text, REFUSAL_BYTES_MAX);
    if (pthread_setspecific(room_key, room) != 0) {
        free(room);
        return NULL;
    }
    own_room = room;
    return room;
}

static const struct rule *refusing_rule(const struct bound *bound, const struct weir_verdict *v)
{
    if (v->private_rules == bound->version)
        return bound->rules[v->private_rule].rule;
    const struct bound_rule *rule = bound_find(bound, weir_str(v->rule));
    return rule ? rule->rule : NULL;
}

/* The rule's own words, else the settings', else these. A body brings its own type along. */
static struct rule_reject merged(const struct rule_reject *rule, const struct rule_reject *settings)
{
    static const struct rule_reject standard = {
        .status = 429,
        .body = { "Too many requests\n", 18 },
        .content_type = { "text/plain; charset=utf-8", 25 },
    };
    const struct rule_reject *body = rule->has_body ? rule : settings->has_body ? settings : &standard;
    struct rule_reject reject = {
        .status = rule->status ? rule->status : settings->status ? settings->status : standard.status,
        .body = body->body,
        .content_type = body->content_type.len ? body->content_type
                        : rule->content_type.len && !rule->has_body ? rule->content_type
                                                                    : standard.content_type,
        .headers = rule->header_count ? rule->headers : settings->headers,
        .header_count = rule->header_count ? rule->header_count : settings->header_count,
    };
    return reject;
}

static bool reserve_headers(struct refusal_room *room, size_t count)
{
    if (count <= room->header_cap)
        return true;
    struct weir_header *headers = realloc(room->headers, count * sizeof *headers);
    if (!headers)
        return false;
    room->headers = headers;
    room->header_cap = count;
    return true;
}

/* The text is written whole before anything points into it: it moves while it grows. */
static bool copy_refusal(struct refusal_room *room, const struct rule_reject *reject, struct weir_refusal *ret)
{
    struct buf *text = &room->text;
    size_t count = reject->header_count + room->standard.count;
    buf_clear(text);
    buf_add(text, reject->body);
    buf_add(text, reject->content_type);
    for (size_t i = 0; i < reject->header_count; i++) {
        buf_add(text, reject->headers[i].name);
        buf_add(text, reject->headers[i].value);
    }
    if (text->failed || !reserve_headers(room, count))
        return false;
    sv rest = buf_sv(text);
    *ret = (struct weir_refusal){ .status = reject->status, .headers = room->headers, .header_count = count };
    ret->body = sv_of(rest.ptr, reject->body.len);
    rest = sv_from(rest, reject->body.len);
    ret->content_type = sv_of(rest.ptr, reject->content_type.len);
    rest = sv_from(rest, reject->content_type.len);
    for (size_t i = 0; i < reject->header_count; i++) {
        sv name = sv_of(rest.ptr, reject->headers[i].name.len);
        rest = sv_from(rest, name.len);
        room->headers[i] = (struct weir_header){ name, sv_of(rest.ptr, reject->headers[i].value.len) };
        rest = sv_from(rest, reject->headers[i].value.len);
    }
    memcpy(room->headers + reject->header_count, room->standard.header, room->standard.count * sizeof *room->headers);
    return true;
}

int weir_refuse(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                struct weir_refusal *ret)
{
    static const struct rule_reject nothing;
    struct refusal_room *room = get_room();
    const struct bound *bound = room ? hazard_acquire((void *const *)&weir->current) : NULL;
    if (!bound)
        return WEIR_E_NO_MEMORY;
    weir_headers(verdict, WEIR_HEADERS_STANDARD, &room->standard);
    const struct rule *rule = verdict->applied ? refusing_rule(bound, verdict) : NULL;
    struct rule_reject reject = merged(rule ? &rule->reject : &nothing, &ruleset_rules(bound->ruleset)->settings.reject);
    struct weir_refusal refusal;
    bool copied = copy_refusal(room, &reject, &refusal);
    hazard_release();
    if (!copied)
        return WEIR_E_NO_MEMORY;
    if (verdict->status)
        refusal.status = verdict->status;
    if (weir->options.refuse)
        weir->options.refuse(request, verdict, &refusal, weir->options.refuse_data);
    *ret = refusal;
    return 0;
}
