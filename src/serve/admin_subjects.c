/* Subjects: what one of them has used, resetting it, and its penalty. All of this asks only the engine. */
#include "base/amount.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "engine/handle.h"
#include "engine/penalty.h"
#include "present/present.h"
#include "serve/admin.h"
#include "serve/log.h"
#include "serve/refusals.h"
#include "serve/stats.h"
#include <jansson.h>
#include <stdio.h>

/* ---- which subject ---- */

struct asked_subject {
    char rule[WEIR_ID_MAX + 1];
    struct weir_str by[RULE_BY_MAX];
    struct subject_name name;
};

/* Logs and screens could not show it. Keys of RESP clients may be any other bytes. */
static bool has_nul(sv text)
{
    return text.len > 0 && memchr(text.ptr, 0, text.len);
}

/* From the parameters `rule` and `by`. False: the call has been answered. */
static bool read_subject(struct http_call *call, const char *const *names, const char *hint, struct asked_subject *ret)
{
    if (!admin_check_parameters(call, names))
        return false;
    sv rule = http_parameter(call, "rule", 0), value;
    size_t count = 0;
    bool bad = rule.len == 0 || rule.len > WEIR_ID_MAX || has_nul(rule);
    while ((value = http_parameter(call, "by", (unsigned)count)).ptr && count < RULE_BY_MAX) {
        bad = bad || has_nul(value);
        ret->by[count++] = value;
    }
    if (bad || value.ptr) {
        http_error(call, 400, hint,
                   "which rule and subject? `by` has each value that the rule counts by, in its order, without NUL");
        return false;
    }
    memcpy(ret->rule, rule.ptr, rule.len);
    ret->rule[rule.len] = '\0';
    ret->name = (struct subject_name){ ret->rule, ret->by, count };
    return true;
}

/* A negative code of the engine. */
static void fail(struct http_call *call, int r, const struct weir_error *error)
{
    http_error(call, r == WEIR_E_UNKNOWN_RULE ? 404 : r == WEIR_E_INVALID ? 400 : 503, NULL, "%s", error->text);
}

/* ---- looking ---- */

/* The plan with which the subject was last refused; an empty name: not known. Returns 0 or WEIR_E_NO_MEMORY. */
static int last_plan(const struct server *server, const struct subject_name *name, struct recent_plan *ret)
{
    CLEANUP(recent_list_done) struct recent_list list = { 0 };
    struct subject subject;
    struct weir_error error;
    uint64_t left_out;
    bool plans;
    ret->name[0] = '\0';
    if (weir_name_subject(server->weir, name, &subject, &plans, &error) <
        0) /* who looks at the subject reports what is wrong */
        return error.code == WEIR_E_NO_MEMORY ? WEIR_E_NO_MEMORY : 0;
    if (!plans)
        return 0;
    int r = refusals_collect(server->refusals, 0, recent_newest(), weir_str(name->rule), RECENT_SLOTS, &list, &left_out);
    for (size_t i = 0; r == 0 && i < list.count; i++)
        if (list.entries[i].subject.key == subject.key) {
            *ret = list.entries[i].plan;
            break;
        }
    return r;
}

void admin_get_subject(struct http_call *call, struct server *server)
{
    static const char *const names[] = { "rule", "by", "plan", NULL };
    struct asked_subject asked;
    struct weir_error error;
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, ADMIN_BODY_MAX);
    if (!read_subject(call, names, "GET /v1/subjects?rule=ID&by=VALUE&by=VALUE", &asked))
        return;
    struct recent_plan last;
    if (last_plan(server, &asked.name, &last) < 0) {
        http_error(call, 503, NULL, "out of memory");
        return;
    }
    sv plan = http_parameter(call, "plan", 0);
    struct subject_question question = { asked.name, plan, weir_str(last.name), .own = plan.ptr != NULL };
    int r = subject_json(server->weir, &question, loop_now_us(call->loop), &out, &error);
    if (r < 0)
        fail(call, r, &error);
    else
        admin_answer(call, SV(""), &out);
}

/* ---- finding ---- */

enum { FOUND_MAX = 1000, FOUND_DEFAULT = 100 };

struct found_list {
    struct buf *out;
    uint64_t count, most;
    bool more; /* there are others */
    char last[WEIR_ID_MAX + 1];
};

static bool add_found(const struct found_subject *found, void *data)
{
    struct found_list *list = data;
    struct buf *out = list->out;
    list->more = list->count == list->most;
    if (list->more)
        return false;
    snprintf(list->last, sizeof list->last, "%.*s", SV_FMT(found->rule->id));
    buf_add(out, list->count++ ? SV(",\n{\"rule\": ") : SV("\n{\"rule\": "));
    buf_json(out, found->rule->id);
    buf_add(out, SV(", \"by\": [{\"name\": \"")); /* an attribute and the name of a header need no escapes */
    rule_by_text(&found->rule->kind->by[0], out);
    buf_add(out, SV("\", \"value\": "));
    buf_json(out, found->value);
    buf_printf(out, "}], \"used\": %s, \"penalised\": %s, \"overridden\": %s}",
               !found->known ? "null"
               : found->used ? "true"
                             : "false",
               found->penalised ? "true" : "false", found->overridden ? "true" : "false");
    return true;
}

void admin_find_subjects(struct http_call *call, struct server *server)
{
    static const char *const names[] = { "value", "most", "after", NULL };
    CLEANUP(buf_done) struct buf out;
    struct weir_error error;
    struct found_list list = { .out = &out };
    struct subject_search search = { http_parameter(call, "value", 0), http_parameter(call, "after", 0) };
    buf_init(&out, ADMIN_BODY_MAX);
    if (!admin_check_parameters(call, names) || !admin_number(call, "most", 1, FOUND_MAX, FOUND_DEFAULT, &list.most))
        return;
    if (search.value.len == 0 || has_nul(search.value)) {
        http_error(call, 400, "GET /v1/subjects/find?value=TEXT", "the parameter `value` must have a text without NUL");
        return;
    }
    buf_add(&out, SV("{\"subjects\": ["));
    int r = weir_find_subjects(server->weir, &search, loop_now_us(call->loop), add_found, &list, &error);
    buf_add(&out, SV("],\n\"after\": "));
    if (list.more)
        buf_json(&out, weir_str(list.last));
    else
        buf_add(&out, SV("null"));
    buf_add(&out, SV("}\n"));
    if (r < 0)
        fail(call, r, &error);
    else
        admin_answer(call, SV(""), &out);
}

/* ---- changing ---- */

int subject_reset(struct server *server, const struct subject_reset *whom, int64_t now_us, struct subject *ret,
                  struct weir_error *error)
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
    subject_copy(ret, &forgotten.subject);
    return 0;
}

/* The same for its penalty. */
static int subject_lift(struct server *server, const struct subject_reset *whom, int64_t now_us, struct subject *ret,
                        struct weir_error *error)
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
    subject_copy(ret, &lifted.subject);
    return 0;
}

typedef int subject_change(struct server *server, const struct subject_reset *whom, int64_t now_us, struct subject *ret,
                           struct weir_error *error);

static void change_subject(struct http_call *call, struct server *server, subject_change *change, const char *what,
                           const char *hint)
{
    static const char *const names[] = { "rule", "by", NULL };
    struct asked_subject asked;
    struct weir_error error;
    struct source_author author;
    struct subject subject;
    if (!read_subject(call, names, hint, &asked) || !admin_read_author(call, &author))
        return;
    struct subject_reset whom = { asked.rule, asked.by, asked.name.by_count, author.who, conn_from(call->conn) };
    int r = change(server, &whom, loop_now_us(call->loop), &subject, &error);
    if (r == 0) {
        admin_record(server, what, &subject, 0, author);
        http_answer(call, &(struct http_answer){ .status = 204 });
    } else if (r == 1)
        http_error(call, 404, NULL, "%s", error.text);
    else
        fail(call, r, &error);
}

void admin_reset(struct http_call *call, struct server *server)
{
    change_subject(call, server, subject_reset, "reset", "DELETE /v1/subjects?rule=ID&by=VALUE&by=VALUE");
}

void admin_lift(struct http_call *call, struct server *server)
{
    change_subject(call, server, subject_lift, "lift", "DELETE /v1/penalties?rule=ID&by=VALUE&by=VALUE");
}

/* ---- penalising ---- */

/* {"for": "15m"}. False: the call has been answered. */
static bool read_length(struct http_call *call, int64_t *ret_us)
{
    static const struct amount_range range = { .kind = AMOUNT_TIME,
                                               .min = US_PER_S / US_PER_MS,
                                               .max = PENALTY_BY_HAND_MAX_US / US_PER_MS };
    uint64_t ms = 0;
    if (!http_is_json(call))
        return false;
    json_auto_t *body = json_loadb(call->body.ptr, call->body.len, JSON_REJECT_DUPLICATES, NULL);
    json_t *text = json_object_get(body, "for");
    bool good = json_object_size(body) == 1 && json_is_string(text) &&
                amount_read(sv_trim(weir_str(json_string_value(text))), &range, &ms) == AMOUNT_GOOD;
    *ret_us = (int64_t)ms * US_PER_MS;
    if (!good)
        http_error(call, 400, "such as {\"for\": \"15m\"}",
                   "the body must be an object with `for`, how long the penalty lasts: 1s to 31d");
    return good;
}

void admin_penalise(struct http_call *call, struct server *server)
{
    static const char *const names[] = { "rule", "by", NULL };
    static const char hint[] = "an override with `deny` and `expires` refuses a subject of any rule until then: PUT "
                               "/v1/rules/{id}/overrides/{subject}";
    struct asked_subject asked;
    struct penalised_entry entry;
    struct weir_error error;
    struct source_author author;
    int64_t length_us, now_us = loop_now_us(call->loop);
    if (!read_subject(call, names, "PUT /v1/penalties?rule=ID&by=VALUE&by=VALUE", &asked) ||
        !read_length(call, &length_us) || !admin_read_author(call, &author))
        return;
    int r = weir_penalise(server->weir, &asked.name, length_us, now_us, &entry, &error);
    if (r < 0) {
        fail(call, r, &error);
    } else if (r == WEIR_CANNOT_PENALISE) {
        http_error(call, 409, hint, "%s", error.text);
    } else {
        stats_add_penalised(call->loop->stats, &entry, now_us);
        log_penalised(&entry.subject, length_us, author.who, conn_from(call->conn));
        admin_record(server, "penalise", &entry.subject, length_us, author);
        http_answer(call, &(struct http_answer){ .status = 204 });
    }
}
