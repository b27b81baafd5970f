/* Explaining a request, and resetting a subject: both ask only the engine. */
#include "base/cleanup.h"
#include "base/err.h"
#include "engine/handle.h"
#include "present/present.h"
#include "serve/admin.h"
#include "serve/log.h"

enum { HEADERS_MAX = 64 };

/* ---- the request ---- */

struct asked {
    struct weir_request request;
    struct weir_header headers[HEADERS_MAX];
    struct weir_cost costs[WEIR_COSTS_MAX];
};

static bool read_headers(struct http_call *call, struct asked *asked)
{
    sv text;
    for (unsigned i = 0; (text = http_parameter(call, "header", i)).ptr; i++) {
        bool colon = memchr(text.ptr, ':', text.len);
        sv name = sv_cut(&text, ':');
        if (i == HEADERS_MAX || !colon || sv_trim(name).len == 0) {
            http_error(call, 400, "such as header=X-Plan:free", "the parameter `header` is Name:value, at most %d times",
                       HEADERS_MAX);
            return false;
        }
        asked->headers[i] = (struct weir_header){ sv_trim(name), text };
        asked->request.header_count = i + 1;
    }
    asked->request.headers = asked->headers;
    return true;
}

/* cost=N or cost=UNIT:N */
static bool read_costs(struct http_call *call, struct asked *asked)
{
    struct cost_list list = { .room = asked->costs };
    sv text;
    asked->request.cost = 1;
    for (unsigned i = 0; (text = http_parameter(call, "cost", i)).ptr; i++) {
        sv amount = text, unit = memchr(text.ptr, ':', text.len) ? sv_cut(&amount, ':') : SV(UNIT_REQUESTS);
        uint64_t cost;
        bool number = sv_u64(amount, WEIR_AMOUNT_MAX, &cost);
        const char *wrong = number ? request_add_cost(&asked->request, &list, unit, cost) : NULL;
        if (number && !wrong)
            continue;
        http_error(call, 400, "such as cost=2 or cost=tokens:1200",
                   "the parameter `cost` is a whole number from 0 to 9007199254740991, or UNIT:N; '%.*s'%s",
                   SV_SHOWN(number ? unit : text, 100), number ? wrong : " is neither");
        return false;
    }
    return true;
}

#define NAME(NAME, field, ...) #field,

static bool read_request(struct http_call *call, struct asked *asked)
{
    static const char *const names[] = { REQUEST_ATTRIBUTES(NAME) "cost", "header", NULL };
    if (!admin_check_parameters(call, names) || !read_costs(call, asked))
        return false;
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv text = http_parameter(call, names[i], 0);
        if (!attribute_accepts(i, text)) {
            http_error(call, 400,
                       "put a whole X-Forwarded-For into `header` (header=X-Forwarded-For:…), and the address that sent it "
                       "into `peer`",
                       "the parameter `%s` must be one IPv4 or IPv6 address, not `%.*s`", names[i],
                       text.len < 200 ? (int)text.len : 200, text.ptr);
            return false;
        }
        request_set(&asked->request, i, text);
    }
    return read_headers(call, asked);
}

void admin_explain(struct http_call *call, struct server *server)
{
    struct asked asked = { 0 };
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, ADMIN_BODY_MAX);
    if (!read_request(call, &asked))
        return;
    int r = explain_json(server->weir, &asked.request, loop_now_us(call->loop), &out);
    if (r < 0)
        http_error(call, 503, NULL, "the request cannot be judged: %s", err_text((enum weir_code)r));
    else
        admin_answer(call, SV(""), &out);
}

/* ---- subjects ---- */

int subject_reset(struct server *server, const struct subject_reset *whom, int64_t now_us, struct weir_error *error)
{
    struct weir_forgotten forgotten;
    int r = weir_forget(server->weir, whom->rule, whom->values, whom->count, now_us, &forgotten, error);
    if (r < 0)
        return r;
    if (!forgotten.counted) {
        err_set(error, WEIR_E_INVALID, "rule %s has no count for this subject", whom->rule);
        return 1;
    }
    log_freed(&forgotten.subject, whom->author, whom->from);
    return 0;
}

/* The same for its penalty. */
static int subject_lift(struct server *server, const struct subject_reset *whom, int64_t now_us, struct weir_error *error)
{
    struct weir_forgotten lifted;
    int r = weir_lift(server->weir, whom->rule, whom->values, whom->count, now_us, &lifted, error);
    if (r < 0)
        return r;
    if (!lifted.counted) {
        err_set(error, WEIR_E_INVALID, "rule %s does not penalise this subject", whom->rule);
        return 1;
    }
    log_lifted(&lifted.subject, whom->author, whom->from);
    return 0;
}

typedef int subject_change(struct server *server, const struct subject_reset *whom, int64_t now_us,
                           struct weir_error *error);

static void change_subject(struct http_call *call, struct server *server, subject_change *change, const char *hint)
{
    static const char *const names[] = { "rule", "by", NULL };
    struct weir_str by[RULE_BY_MAX];
    struct weir_error error;
    size_t count = 0;
    if (!admin_check_parameters(call, names))
        return;
    sv rule = http_parameter(call, "rule", 0), value;
    while ((value = http_parameter(call, "by", (unsigned)count)).ptr && count < RULE_BY_MAX)
        by[count++] = value;
    if (rule.len == 0 || rule.len > WEIR_ID_MAX || memchr(rule.ptr, 0, rule.len) || value.ptr) {
        http_error(call, 400, hint, "which rule and subject? `by` has each value that the rule counts by, in its order");
        return;
    }
    char rule_id[WEIR_ID_MAX + 1] = "";
    memcpy(rule_id, rule.ptr, rule.len);
    struct subject_reset whom = { rule_id, by, count, admin_author(call), conn_from(call->conn) };
    int r = change(server, &whom, loop_now_us(call->loop), &error);
    if (r == 0)
        http_answer(call, &(struct http_answer){ .status = 204 });
    else
        http_error(call,
                   r == 1 || r == WEIR_E_UNKNOWN_RULE ? 404
                   : r == WEIR_E_INVALID              ? 400
                                                      : 503,
                   NULL, "%s", error.text);
}

void admin_reset(struct http_call *call, struct server *server)
{
    change_subject(call, server, subject_reset, "DELETE /v1/subjects?rule=ID&by=VALUE&by=VALUE");
}

void admin_lift(struct http_call *call, struct server *server)
{
    change_subject(call, server, subject_lift, "DELETE /v1/penalties?rule=ID&by=VALUE&by=VALUE");
}
