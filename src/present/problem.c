/* A refusal as application/problem+json (RFC 9457), with the problem types of draft-ietf-httpapi-ratelimit-headers-11. */
#include "engine/verdict.h"
#include "present/answer.h"
#include "present/present.h"

#define TYPES "https://iana.org/assignments/http-problem-types#"

struct problem_type {
    sv uri, title;
};

/* The one place that says which kind of problem a refusal is. */
static struct problem_type problem_type(const struct weir_verdict *v)
{
    if (verdict_is_repeated(v))
        return (struct problem_type){ SV("about:blank"), SV("Bad Request") };
    if (v->unavailable || !v->applied)
        return (struct problem_type){ SV(TYPES "temporary-reduced-capacity"),
                                      SV("Request cannot be satisfied due to temporary server capacity constraints") };
    if (v->penalty)
        return (struct problem_type){ SV(TYPES "abnormal-usage-detected"),
                                      SV("Request cannot be satisfied due to abnormal usage pattern") };
    return (struct problem_type){ SV(TYPES "quota-exceeded"),
                                  SV("Request cannot be satisfied as assigned quota has been exceeded") };
}

static void add_detail(const struct weir_verdict *v, struct buf *out)
{
    char wait[SPAN_TEXT_MAX];
    if (verdict_is_repeated(v)) {
        buf_printf(out, "The header %s is repeated with different values", v->limit);
        return;
    }
    if (v->unavailable || !v->applied)
        buf_add(out, SV("The request could not be judged"));
    else
        buf_add(out, SV("Too many requests"));
    if (v->retry_after_ms > 0) {
        wait_text(v->retry_after_ms * US_PER_MS, wait);
        buf_printf(out, "; retry in %s", wait);
    } else if (v->applied) {
        buf_add(out, SV("; no wait will help"));
    }
}

static void add_name(struct buf *out, size_t *count, sv rule, sv limit)
{
    char name[POLICY_NAME_MAX];
    buf_add(out, (*count)++ ? SV(",") : SV(""));
    buf_json(out, sv_of(name, (size_t)(policy_name_put(name, rule, limit) - name)));
}

/* Names as in RateLimit-Policy, in the same order. */
static void add_violated(const struct answer *a, struct buf *out)
{
    size_t count = 0;
    buf_add(out, SV(",\"violated-policies\":["));
    for (uint32_t i = 0; a->usage && i < a->usage->count; i++) {
        const struct weir_left *left = &a->usage->left[i];
        if (left->refuses)
            add_name(out, &count, a->bound->rules[left->rule].rule->id, limit_name(bound_limit_at(a->bound, left->limit)));
    }
    if (count == 0)
        add_name(out, &count, weir_str(a->verdict->rule), weir_str(a->verdict->limit));
    buf_char(out, ']');
}

void problem_write(const struct answer *a, struct buf *out)
{
    const struct weir_verdict *v = a->verdict;
    struct problem_type type = problem_type(v);
    char room[300];
    struct buf detail;
    buf_over(&detail, room, sizeof room);
    add_detail(v, &detail);
    buf_add(out, SV("{\"type\":"));
    buf_json(out, type.uri);
    buf_add(out, SV(",\"title\":"));
    buf_json(out, type.title);
    if (v->applied) /* another answer may get its status from the caller */
        buf_printf(out, ",\"status\":%u", v->status);
    buf_add(out, SV(",\"detail\":"));
    buf_json(out, buf_sv(&detail));
    if (v->applied)
        add_violated(a, out);
    buf_add(out, SV("}\n"));
}
