/* A refusal as HTTP: what the rule, the settings and the program's own function say of it. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/hazard.h"
#include "engine/weir.h"

/* The memory of a refusal: one for each thread, until its next refusal. */
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

/* Each field is the rule's, else that of the settings, else the standard one. */
static struct rule_reject merged(const struct rule_reject *rule, const struct rule_reject *settings)
{
    static const struct rule_reject standard = {
        .status = 429,
        .body = { "Too many requests\n", 18 },
        .content_type = { "text/plain; charset=utf-8", 25 },
    };
    const struct rule_reject *status = rule->status ? rule : settings->status ? settings : &standard;
    const struct rule_reject *body = rule->has_body ? rule : settings->has_body ? settings : &standard;
    /* The content type of the settings belongs to the body of the settings. */
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

/* Adds the standard headers whose names the rule does not use. */
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

/* The body of a refusal that no rule made. */
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
    /* A request that no rule refused must not get the words for one that a rule refused. */
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
