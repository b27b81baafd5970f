/* weir top: asking the service. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "cli/admin_client.h"
#include "cli/top.h"

enum { PATH_BYTES_MAX = 4096 };

void top_view_done(struct top_view *view)
{
    json_decref(view->status);
    json_decref(view->top);
    json_decref(view->penalties);
}

static struct client_service service_of(const struct top_options *o)
{
    return (struct client_service){ .admin = o->admin, .data = o->data };
}

/* Read each time: the service may have been restarted, with a new folder. */
static int read_token(const struct top_options *o, struct buf *ret, struct weir_error *error)
{
    struct client_service service = service_of(o);
    return client_read_token(&service, ret, error);
}

int top_find_token(const struct top_options *options, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf token = { 0 };
    return read_token(options, &token, error);
}

static int bad_status(const struct top_options *o, int status, sv body, struct weir_error *error)
{
    struct client_service service = service_of(o);
    if (status == 404)
        return err_set(error, WEIR_E_INVALID, "%s: not an admin listener of weir (404)", o->admin);
    return client_bad_status(&service, status, body, error);
}

static int ask_json(const struct top_options *o, sv token, const char *path, json_t **ret, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf body = { 0 };
    struct weir_error why = { 0 };
    int status = client_get(o->admin, token, path, &body, &why);
    if (status < 0)
        return err_set(error, why.code, "%s: %s", o->admin, why.text);
    if (status != 200)
        return bad_status(o, status, buf_sv(&body), error);
    *ret = json_loadb(buf_sv(&body).ptr, body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!*ret)
        return err_set(error, WEIR_E_INVALID, "%s: the answer is not JSON; is this a weir service?", o->admin);
    return 0;
}

static int ask_list(const struct top_options *o, sv token, const char *list, unsigned most, json_t **ret,
                    struct weir_error *error)
{
    CLEANUP(buf_done) struct buf path;
    buf_init(&path, PATH_BYTES_MAX);
    buf_printf(&path, "/v1/%s?most=%u", list, most);
    if (o->rule) {
        buf_add(&path, SV("&rule="));
        client_encode(weir_str(o->rule), &path);
    }
    return ask_json(o, token, path.ptr, ret, error);
}

/* Names in parentheses do not belong to rules: refusals of CL.THROTTLE are listed under one. */
static bool is_no_rule(const struct top_options *o, sv token)
{
    CLEANUP(buf_done) struct buf path, body = { 0 };
    struct weir_error ignored;
    buf_init(&path, PATH_BYTES_MAX);
    if (!o->rule || o->rule[0] == '(')
        return false;
    buf_add(&path, SV("/v1/rules/"));
    client_encode(weir_str(o->rule), &path);
    return client_get(o->admin, token, path.ptr, &body, &ignored) == 404;
}

static int ask_all(const struct top_options *o, unsigned most, struct top_view *ret, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf token = { 0 };
    CLEANUP(top_view_done) struct top_view view = { 0 };
    int r = read_token(o, &token, error);
    if (r < 0)
        return r;
    sv secret = sv_trim(buf_sv(&token));
    r = ask_json(o, secret, "/v1/status", &view.status, error);
    if (r == 0)
        r = ask_list(o, secret, "top", most, &view.top, error);
    if (r == 0)
        r = ask_list(o, secret, "penalties", TOP_PENALTIES, &view.penalties, error);
    if (r < 0)
        return r;
    json_t *subjects = json_object_get(view.top, "subjects");
    if (!json_is_object(json_object_get(view.status, "decisions")) || !json_is_array(subjects))
        return err_set(error, WEIR_E_INVALID, "%s: the answer is not a status; is this a weir service?", o->admin);
    if (json_array_size(subjects) == 0)
        view.no_rule = is_no_rule(o, secret);
    *ret = view;
    view.status = view.top = view.penalties = NULL; /* they are the caller's now */
    return 0;
}

static double decisions(json_t *status, const char *outcome)
{
    return json_number_value(json_object_get(json_object_get(status, "decisions"), outcome));
}

static bool same_run(json_t *a, json_t *b)
{
    return json_equal(json_object_get(a, "started"), json_object_get(b, "started")) &&
           json_equal(json_object_get(a, "listeners"), json_object_get(b, "listeners"));
}

static double rate(json_t *from, json_t *to, const char *outcome, double seconds)
{
    double more = decisions(to, outcome) - decisions(from, outcome);
    return more > 0 ? more / seconds : 0;
}

bool top_ask(struct top_view *view, const struct top_options *options, unsigned most)
{
    struct top_view fresh;
    struct weir_error error = { 0 };
    if (ask_all(options, most, &fresh, &error) < 0) {
        view->away = error;
        return false;
    }
    fresh.steady_us = clock_steady_us();
    double seconds = (double)(fresh.steady_us - view->steady_us) / (double)US_PER_S;
    fresh.has_rates = view->status && seconds > 0 && same_run(view->status, fresh.status);
    if (fresh.has_rates) {
        fresh.allowed_per_s = rate(view->status, fresh.status, "allowed", seconds);
        fresh.refused_per_s = rate(view->status, fresh.status, "refused", seconds);
        fresh.shadow_per_s = rate(view->status, fresh.status, "shadow", seconds);
    }
    top_view_done(view);
    *view = fresh;
    return true;
}
