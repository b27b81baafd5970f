/* Verdicts as others want to see them: JSON, HTTP headers, a whole refusal. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/hazard.h"
#include "engine/verdict.h"
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

static void json_limit(struct buf *b, const struct weir_verdict *v)
{
    buf_json(b, weir_str(v->rule));
    buf_add(b, SV(",\"limit\":"));
    buf_json(b, weir_str(v->limit));
    buf_add(b, SV(",\"max\":"));
    buf_number(b, v->max);
    buf_add(b, SV(",\"remaining\":"));
    buf_number(b, v->remaining);
    buf_add(b, SV(",\"reset_ms\":"));
    buf_number(b, v->reset_ms);
}

static void json_receipt(struct buf *b, const struct weir_verdict *v)
{
    char text[WEIR_RECEIPT_TEXT_MAX];
    if (v->receipt.count == 0)
        return;
    buf_add(b, SV(",\"receipt\":"));
    buf_json(b, sv_of(text, weir_receipt_text(&v->receipt, text, sizeof text)));
}

size_t weir_verdict_json(const struct weir_verdict *v, char *buf, size_t cap)
{
    char room[VERDICT_JSON_MAX];
    struct buf b;
    buf_over(&b, room, sizeof room);
    buf_add(&b, v->allowed ? SV("{\"allowed\":true,\"rule\":") : SV("{\"allowed\":false,\"rule\":"));
    if (v->applied)
        json_limit(&b, v);
    else
        buf_add(&b, SV("null,\"limit\":null,\"max\":null,\"remaining\":null,\"reset_ms\":null"));
    buf_add(&b, SV(",\"retry_after_ms\":"));
    buf_number(&b, v->retry_after_ms);
    if (v->unavailable)
        buf_add(&b, SV(",\"unavailable\":true"));
    if (verdict_is_repeated(v)) {
        buf_add(&b, SV(",\"repeated_header\":"));
        buf_json(&b, weir_str(v->limit));
    }
    json_receipt(&b, v);
    json_ids(&b, v);
    if (cap > 0) {
        size_t n = b.len < cap ? b.len : cap - 1;
        memcpy(buf, room, n);
        buf[n] = '\0';
    }
    return b.len;
}

/* ---- headers ---- */

/* Values are written without asking for room at each step: a name and two numbers are the longest. */
enum { PARAMETER_MAX = 3 + NUMBER_MAX };
_Static_assert(WEIR_NAME_MAX + 2 + 2 * PARAMETER_MAX < WEIR_HEADER_VALUE_MAX, "the longest value fits");

static void end_header(struct weir_headers *h, sv name, char *end)
{
    char *value = h->value[h->count];
    *end = '\0';
    h->header[h->count++] = (struct weir_header){ name, sv_of(value, (size_t)(end - value)) };
}

static void add_number(struct weir_headers *h, sv name, int64_t number)
{
    end_header(h, name, number_put(h->value[h->count], number));
}

static char *put_parameter(char *to, char name, int64_t number)
{
    *to++ = ';';
    *to++ = name;
    *to++ = '=';
    return number_put(to, number);
}

struct parameter {
    char name;
    int64_t number;
};

/* "day";q=100;w=86400 */
static void add_item(struct weir_headers *h, sv name, const char *limit, struct parameter first, struct parameter second)
{
    char *to = h->value[h->count];
    *to++ = '"';
    for (size_t i = 0; i < WEIR_NAME_MAX && limit[i]; i++)
        *to++ = limit[i];
    *to++ = '"';
    to = put_parameter(to, first.name, first.number);
    end_header(h, name, put_parameter(to, second.name, second.number));
}

static int64_t seconds_up(int64_t ms)
{
    return ms <= 0 ? 0 : (ms + 999) / 1000;
}

void weir_headers(const struct weir_verdict *v, unsigned style, struct weir_headers *ret)
{
    ret->count = 0;
    if (!v->applied || style == 0)
        return;
    int64_t window_s = seconds_up(v->window_ms), reset_s = seconds_up(v->reset_ms);
    if (style & WEIR_HEADERS_STANDARD) {
        add_item(ret, SV("RateLimit-Policy"), v->limit, (struct parameter){ 'q', v->max },
                 (struct parameter){ 'w', window_s });
        add_item(ret, SV("RateLimit"), v->limit, (struct parameter){ 'r', v->remaining },
                 (struct parameter){ 't', reset_s });
    }
    if (style & WEIR_HEADERS_LEGACY) {
        add_number(ret, SV("X-RateLimit-Limit"), v->max);
        add_number(ret, SV("X-RateLimit-Remaining"), v->remaining);
        add_number(ret, SV("X-RateLimit-Reset"), reset_s);
    }
    if (!v->allowed && v->retry_after_ms > 0)
        add_number(ret, SV("Retry-After"), seconds_up(v->retry_after_ms));
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
static bool room_key_made;
static pthread_once_t room_once = PTHREAD_ONCE_INIT;

static void free_room(void *ptr)
{
    struct refusal_room *room = ptr;
    own_room = NULL;
    buf_done(&room->text);
    free(room->headers);
    free(room);
}

static void make_room_key(void)
{
    room_key_made = pthread_key_create(&room_key, free_room) == 0;
}

static struct refusal_room *get_room(void)
{
    if (own_room)
        return own_room;
    pthread_once(&room_once, make_room_key);
    struct refusal_room *room = room_key_made ? calloc(1, sizeof *room) : NULL;
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

/* Of each field the rule's own words, else the settings', else these. */
static struct rule_reject merged(const struct rule_reject *rule, const struct rule_reject *settings)
{
    static const struct rule_reject standard = {
        .status = 429,
        .body = { "Too many requests\n", 18 },
        .content_type = { "text/plain; charset=utf-8", 25 },
    };
    const struct rule_reject *status = rule->status ? rule : settings->status ? settings : &standard;
    const struct rule_reject *body = rule->has_body ? rule : settings->has_body ? settings : &standard;
    /* A body brings its own type along: the settings' is for theirs. */
    const struct rule_reject *type = rule->content_type.len                       ? rule
                                     : settings->content_type.len && body != rule ? settings
                                                                                  : &standard;
    const struct rule_reject *headers = rule->header_count ? rule : settings;
    return (struct rule_reject){
        .status = status->status,
        .body = body->body,
        .content_type = type->content_type,
        .headers = headers->headers,
        .header_count = headers->header_count,
    };
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

/* The standard headers, but for those that the rule has in its own words. */
static size_t add_standard(struct refusal_room *room, size_t count)
{
    size_t own = count;
    for (size_t i = 0; i < room->standard.count; i++) {
        bool there = false;
        for (size_t k = 0; k < own; k++)
            there = there || sv_eq_nocase(room->headers[k].name, room->standard.header[i].name);
        if (!there)
            room->headers[count++] = room->standard.header[i];
    }
    return count;
}

/* The text is written whole before anything points into it: it moves while it grows. */
static bool copy_refusal(struct refusal_room *room, const struct rule_reject *reject, struct weir_refusal *ret)
{
    struct buf *text = &room->text;
    buf_clear(text);
    buf_add(text, reject->body);
    buf_add(text, reject->content_type);
    for (size_t i = 0; i < reject->header_count; i++) {
        buf_add(text, reject->headers[i].name);
        buf_add(text, reject->headers[i].value);
    }
    if (text->failed || !reserve_headers(room, reject->header_count + room->standard.count))
        return false;
    sv rest = buf_sv(text);
    *ret = (struct weir_refusal){ .status = reject->status, .headers = room->headers };
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
    ret->header_count = add_standard(room, reject->header_count);
    return true;
}

enum { UNJUDGED_MAX = 150 };

/* Of a refusal by no rule. */
static sv unjudged_body(const struct weir_verdict *v, char room[UNJUDGED_MAX])
{
    if (!verdict_is_repeated(v))
        return SV("Could not be judged; try again later\n");
    int len = snprintf(room, UNJUDGED_MAX, "Bad request: the header %s is repeated with different values\n", v->limit);
    return sv_of(room, (size_t)len);
}

int weir_refuse(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                struct weir_refusal *ret)
{
    return weir_refuse_as(weir, request, verdict, WEIR_HEADERS_STANDARD, ret);
}

int weir_refuse_as(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                   unsigned style, struct weir_refusal *ret)
{
    static const struct rule_reject nothing;
    char body[UNJUDGED_MAX];
    struct refusal_room *room = get_room();
    const struct bound *bound = room ? hazard_acquire((void *const *)&weir->current) : NULL;
    if (!bound)
        return WEIR_E_NO_MEMORY;
    weir_headers(verdict, style, &room->standard);
    /* Refused by no rule: its words would be wrong. */
    bool judged = verdict->allowed || verdict->applied;
    const struct rule *rule = verdict->applied ? verdict_rule(bound, verdict) : NULL;
    struct rule_reject unjudged = { .has_body = true, .body = unjudged_body(verdict, body) };
    struct rule_reject reject = merged(rule     ? &rule->reject
                                       : judged ? &nothing
                                                : &unjudged,
                                       &ruleset_rules(bound->ruleset)->settings.reject);
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
