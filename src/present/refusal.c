/* A refusal as HTTP, as set by the rule, the settings and the program's own function. */
#include <stdio.h>

#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/verdict.h"
#include "present/answer.h"

/* Each field is the rule's, else that of the settings, else the standard one. has_body: the body or its type is not the
 * standard one. */
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
        .has_body = body != &standard || type != &standard,
        .body = body->body,
        .content_type = type->content_type,
        .headers = headers->headers,
        .header_count = headers->header_count,
    };
}

/* Adds the standard headers whose names the rule does not use. Returns the number of all headers. */
static size_t add_standard(const struct weir_headers *standard, struct weir_header *headers, size_t own)
{
    size_t count = own;
    for (size_t i = 0; i < standard->count; i++) {
        bool there = false;
        for (size_t k = 0; k < own; k++)
            there = there || sv_eq_nocase(headers[k].name, standard->header[i].name);
        if (!there)
            headers[count++] = standard->header[i];
    }
    return count;
}

static sv keep(char **to, sv text)
{
    sv copy = sv_of(*to, text.len);
    if (text.len > 0)
        memcpy(*to, text.ptr, text.len);
    *to += text.len;
    return copy;
}

/* Its memory belongs to the thread: the standard headers, all headers, the bytes of all strings. */
static bool copy_refusal(const struct rule_reject *reject, const struct answer *answer, unsigned style,
                         struct weir_refusal *ret)
{
    const struct weir_verdict *verdict = answer->verdict;
    struct weir_headers *standard;
    struct weir_header *headers;
    size_t most = reject->header_count + WEIR_HEADERS_MAX;
    size_t bytes = sizeof *standard + most * sizeof *headers + reject->body.len + reject->content_type.len;
    for (size_t i = 0; i < reject->header_count; i++)
        bytes += reject->headers[i].name.len + reject->headers[i].value.len;
    standard = hazard_memory(bytes);
    if (!standard)
        return false;
    answer_headers(answer, style, standard);
    headers = (struct weir_header *)(standard + 1);
    char *to = (char *)(headers + most);
    *ret = (struct weir_refusal){ .status = verdict->status ? verdict->status : reject->status, .headers = headers };
    ret->body = keep(&to, reject->body);
    ret->content_type = keep(&to, reject->content_type);
    for (size_t i = 0; i < reject->header_count; i++) {
        headers[i].name = keep(&to, reject->headers[i].name);
        headers[i].value = keep(&to, reject->headers[i].value);
    }
    ret->header_count = add_standard(standard, headers, reject->header_count);
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
    return weir_refuse_as(weir, request, verdict, WEIR_HEADERS_SETTING, ret);
}

/* The refusal of a request that no rule refused must not have the words for one that a rule refused. */
static bool write_refusal(const struct answer *a, unsigned style, struct weir_refusal *ret)
{
    static const struct rule_reject nothing;
    const struct weir_verdict *v = a->verdict;
    char body[UNJUDGED_MAX], room[PROBLEM_MAX];
    struct buf problem;
    struct rule_reject unjudged = { .has_body = true, .body = unjudged_body(v, body) };
    bool judged = v->allowed || v->applied;
    const struct bound_rule *bound = v->applied ? verdict_rule(a->bound, v) : NULL;
    const struct rule *rule = bound ? bound->rule : NULL;
    struct rule_reject reject = merged(rule     ? &rule->kind->rest->reject
                                       : judged ? &nothing
                                                : &unjudged,
                                       &ruleset_rules(a->bound->ruleset)->settings.reject);
    buf_over(&problem, room, sizeof room);
    if (!v->allowed && (!judged || !reject.has_body) && problem_accepted(a->request)) {
        problem_write(a, &problem);
        reject.body = buf_sv(&problem);
        reject.content_type = PROBLEM_CONTENT_TYPE;
    }
    return copy_refusal(&reject, a, style, ret);
}

int weir_refuse_as(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                   unsigned style, struct weir_refusal *ret)
{
    struct answer a;
    struct weir_refusal refusal;
    if (!answer_begin(&a, weir, request, verdict))
        return WEIR_E_NO_MEMORY;
    bool copied = write_refusal(&a, style, &refusal);
    hazard_release();
    if (!copied)
        return WEIR_E_NO_MEMORY;
    if (weir->options.refuse)
        weir->options.refuse(request, verdict, &refusal, weir->options.refuse_data);
    *ret = refusal;
    return 0;
}
