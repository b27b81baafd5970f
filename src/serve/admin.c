/* The admin listener: its routes. */
#include "serve/admin.h"

#include "base/cleanup.h"
#include "base/utf8.h"
#include "serve/embedded.h"
#include "serve/live.h"
#include "serve/log.h"
#include "serve/simulation.h"
#include "serve/status.h"
#include "serve/top_watch.h"

/* ---- small answers ---- */

static void health(struct http_call *call, struct server *server)
{
    (void)server;
    http_answer(call, &(struct http_answer){ 200, .body = SV("{\"status\":\"ok\"}\n") });
}

static void ready(struct http_call *call, struct server *server)
{
    if (server_ready(server))
        http_answer(call, &(struct http_answer){ .status = 200, .body = SV("{\"status\":\"ready\"}\n") });
    else
        http_error(call, 503, NULL, "the service is starting or ending");
}

/* The entry of the document that says where the decision listener is. No URL names a unix socket or all addresses. */
static void add_decide_server(const char *where, struct buf *out)
{
    static const char *const every[] = { "0.0.0.0:", "[::]:" };
    for (size_t i = 0; i < sizeof every / sizeof *every; i++)
        if (strncmp(where, every[i], strlen(every[i])) == 0) {
            buf_printf(
                out,
                "{\"url\": \"http://{host}:%s\", \"description\": \"The decision listener.\", \"variables\": {\"host\": "
                "{\"default\": \"localhost\", \"description\": \"Any address of the service's host.\"}}}",
                where + strlen(every[i]));
            return;
        }
    bool unix_socket = strncmp(where, "unix:", 5) == 0, off = strcmp(where, "off") == 0;
    char text[LISTEN_WHERE_MAX + 100];
    snprintf(text, sizeof text, "http://%s", unix_socket || off ? "localhost" : where);
    buf_add(out, SV("{\"url\": "));
    buf_json(out, weir_str(text));
    snprintf(text, sizeof text, "The decision listener%s%s.",
             off           ? " is off"
             : unix_socket ? ", on "
                           : "",
             unix_socket ? where : "");
    buf_add(out, SV(", \"description\": "));
    buf_json(out, weir_str(text));
    buf_char(out, '}');
}

/* The document has the default address; this service may listen elsewhere. */
static void openapi(struct http_call *call, struct server *server)
{
    static const sv usual = SV(OPENAPI_DECIDE_SERVER);
    sv rest = sv_of(embedded_openapi, embedded_openapi_len);
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, 2 * embedded_openapi_len);
    for (const char *at; (at = memmem(rest.ptr, rest.len, usual.ptr, usual.len));) {
        size_t before = (size_t)(at - rest.ptr);
        buf_add(&out, sv_of(rest.ptr, before));
        add_decide_server(server->where[FRONT_HTTP], &out);
        rest = sv_from(rest, before + usual.len);
    }
    buf_add(&out, rest);
    admin_answer(call, SV(""), &out);
}

/* ---- reports ---- */

static void report(struct http_call *call, struct server *server, void (*write)(struct server *, struct buf *), sv type)
{
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, STATUS_BYTES_MAX);
    write(server, &out);
    admin_answer(call, type, &out);
}

static void status(struct http_call *call, struct server *server)
{
    static const char *const none[] = { NULL };
    if (admin_check_parameters(call, none))
        report(call, server, status_write, SV(""));
}

static void metrics(struct http_call *call, struct server *server)
{
    report(call, server, status_write_metrics, SV(STATUS_METRICS_TYPE));
}

static void top(struct http_call *call, struct server *server)
{
    static const char *const parameters[] = { "most", "rule", "last", NULL };
    CLEANUP(buf_done) struct buf out;
    uint64_t most;
    int64_t last_us = 0;
    buf_init(&out, STATUS_BYTES_MAX);
    if (!admin_check_parameters(call, parameters) ||
        !admin_number(call, "most", 1, STATUS_TOP_MAX, STATUS_TOP_DEFAULT, &most) ||
        !admin_length(call, "last", 60 * US_PER_S, 31 * 86400 * US_PER_S, &last_us))
        return;
    sv rule = http_parameter(call, "rule", 0);
    if (last_us > 0)
        top_watch_write(server->top_watch, last_us, (unsigned)most, rule, &out);
    else
        status_write_top(server, (unsigned)most, rule, &out);
    admin_answer(call, SV(""), &out);
}

static void penalties(struct http_call *call, struct server *server)
{
    static const char *const parameters[] = { "most", "rule", NULL };
    CLEANUP(buf_done) struct buf out;
    uint64_t most;
    buf_init(&out, STATUS_BYTES_MAX);
    if (!admin_check_parameters(call, parameters) || !admin_number(call, "most", 1, STATUS_TOP_MAX, STATUS_TOP_MAX, &most))
        return;
    status_write_penalties(server, (unsigned)most, http_parameter(call, "rule", 0), &out);
    admin_answer(call, SV(""), &out);
}

/* ---- the routes ---- */

const struct admin_route admin_routes[] = {
    { "GET", "/", .run = admin_page, .open = true },
    { "GET", "/ui/{id}", .run = admin_page, .open = true },
    { "GET", "/healthz", .run = health, .open = true },
    { "GET", "/readyz", .run = ready, .open = true },
    { "GET", "/metrics", ROLE_READ, .run = metrics },
    { "GET", "/v1/openapi.json", ROLE_READ, .run = openapi },
    { "GET", "/v1/session", ROLE_READ, .run = admin_show_session },
    { "POST", "/v1/session", .run = admin_sign_in, .open = true, .body_max = ADMIN_SIGN_IN_BODY_MAX },
    { "DELETE", "/v1/session", ROLE_READ, .run = admin_sign_out },
    { "GET", "/v1/status", ROLE_READ, .run = status },
    { "GET", "/v1/top", ROLE_READ, .run = top },
    { "GET", "/v1/refusals", ROLE_READ, .run = admin_refusals },
    { "GET", "/v1/counts", ROLE_READ, .run = admin_counts },
    { "GET", "/v1/live", ROLE_READ, .run = admin_live },
    { "GET", "/v1/rules", ROLE_READ, .work = &admin_list_rules },
    { "GET", "/v1/rules/{id}", ROLE_READ, .work = &admin_get_rule },
    { "PUT", "/v1/rules/{id}", ROLE_ADMIN, .work = &admin_put_rule },
    { "PATCH", "/v1/rules/{id}", ROLE_ADMIN, .work = &admin_patch_rule },
    { "DELETE", "/v1/rules/{id}", ROLE_ADMIN, .work = &admin_delete_rule },
    { "POST", "/v1/rules/{id}/enable", ROLE_ADMIN, .work = &admin_enable_rule },
    { "POST", "/v1/rules/{id}/disable", ROLE_ADMIN, .work = &admin_disable_rule },
    { "GET", "/v1/rules/{id}/overrides", ROLE_READ, .work = &admin_list_overrides },
    { "GET", "/v1/rules/{id}/overrides/{subject}", ROLE_READ, .work = &admin_get_override },
    { "PUT", "/v1/rules/{id}/overrides/{subject}", ROLE_OPERATE, .work = &admin_put_override },
    { "DELETE", "/v1/rules/{id}/overrides/{subject}", ROLE_OPERATE, .work = &admin_delete_override },
    { "GET", "/v1/overrides", ROLE_READ, .work = &admin_list_all_overrides },
    { "GET", "/v1/rules/{id}/history", ROLE_READ, .work = &admin_get_history },
    { "POST", "/v1/rules/{id}/undo", ROLE_OPERATE, .work = &admin_undo },
    { "GET", "/v1/settings", ROLE_READ, .work = &admin_get_settings },
    { "PUT", "/v1/settings", ROLE_ADMIN, .work = &admin_put_settings },
    { "GET", "/v1/settings/history", ROLE_READ, .work = &admin_get_history },
    { "POST", "/v1/settings/undo", ROLE_OPERATE, .work = &admin_undo },
    { "GET", "/v1/history", ROLE_READ, .work = &admin_get_all_history },
    { "POST", "/v1/undo", ROLE_OPERATE, .work = &admin_undo_any },
    { "POST", "/v1/lint", ROLE_READ, .run = admin_lint },
    { "GET", "/v1/sample", ROLE_READ, .run = admin_sample },
    { "POST", "/v1/simulate", ROLE_READ, .run = admin_simulate, .body_max = SIMULATION_BODY_MAX },
    { "GET", "/v1/explain", ROLE_READ, .run = admin_explain },
    { "GET", "/v1/subjects", ROLE_READ, .run = admin_get_subject },
    { "GET", "/v1/subjects/find", ROLE_READ, .run = admin_find_subjects },
    { "DELETE", "/v1/subjects", ROLE_OPERATE, .run = admin_reset },
    { "GET", "/v1/penalties", ROLE_READ, .run = penalties },
    { "PUT", "/v1/penalties", ROLE_OPERATE, .run = admin_penalise },
    { "DELETE", "/v1/penalties", ROLE_OPERATE, .run = admin_lift },
};
const size_t admin_route_count = sizeof admin_routes / sizeof *admin_routes;

/* The parts of a path in place of {id} and {subject}. */
enum { PATH_ID, PATH_SUBJECT, PATH_NAMES };

/* *ret: the segments for the names, as they were sent. */
static bool path_fits(const char *pattern, sv path, sv ret[PATH_NAMES])
{
    int name = PATH_ID;
    while (*pattern) {
        if (*pattern == '{' && name < PATH_NAMES) {
            sv rest = path, segment = sv_cut(&rest, '/');
            if (segment.len == 0)
                return false;
            ret[name++] = segment;
            path = sv_from(path, segment.len);
            pattern = strchr(pattern, '}') + 1;
        } else if (path.len == 0 || path.ptr[0] != *pattern++)
            return false;
        else
            path = sv_from(path, 1);
    }
    return path.len == 0;
}

/* A route for GET also answers HEAD: the library leaves the body out. */
static bool method_fits(const char *method, sv asked)
{
    return sv_eq(asked, weir_str(method)) || (sv_eq(asked, SV("HEAD")) && strcmp(method, "GET") == 0);
}

/* NULL: no route. ret_allow: the methods that this path allows; "": there is nothing at this path. */
static const struct admin_route *find_route(const struct http_call *call, sv ret_names[PATH_NAMES], char ret_allow[64])
{
    ret_allow[0] = '\0';
    for (size_t i = 0; i < admin_route_count; i++) {
        const struct admin_route *route = &admin_routes[i];
        if (!path_fits(route->path, call->path, ret_names))
            continue;
        if (method_fits(route->method, call->method))
            return route;
        size_t len = strlen(ret_allow);
        snprintf(ret_allow + len, 64 - len, "%s%s", len ? ", " : "",
                 strcmp(route->method, "GET") ? route->method : "GET, HEAD");
    }
    return NULL;
}

/* ---- handling ---- */

static void no_route(struct http_call *call, const char *allow)
{
    if (allow[0])
        http_bad_method(call, weir_str(allow));
    else
        http_error(call, 404, "GET /v1/openapi.json lists what there is", "there is nothing at %.*s",
                   SV_SHOWN(call->path, 200));
}

/* Browsers neither keep answers, nor guess their types, nor show them inside of other pages. */
const struct weir_header admin_headers[ADMIN_HEADERS] = {
    { WEIR_STR("Cache-Control"), WEIR_STR("no-store") },
    { WEIR_STR("X-Content-Type-Options"), WEIR_STR("nosniff") },
    { WEIR_STR("X-Frame-Options"), WEIR_STR("DENY") },
    { WEIR_STR("Referrer-Policy"), WEIR_STR("no-referrer") },
    { WEIR_STR("Cross-Origin-Resource-Policy"), WEIR_STR("same-origin") },
};

/* Signing in, which strangers may ask for, takes a small body, and a simulation a large one. */
size_t admin_body_max(const struct http_call *call, void *data)
{
    const struct server *server = data;
    sv names[PATH_NAMES];
    char allow[64];
    const struct admin_route *route = find_route(call, names, allow);
    size_t usual = server->config.request_bytes;
    if (!route || route->body_max == 0)
        return usual;
    return route->open || route->body_max > usual ? route->body_max : usual;
}

bool admin_screen(struct http_call *call, void *data)
{
    struct server *server = data;
    sv names[PATH_NAMES];
    char allow[64];
    const struct admin_route *route = find_route(call, names, allow);
    call->tokens = call->loop->tokens->generation;
    if (call->too_large)
        http_too_large(call);
    else if (!admin_check_host(call, server) || !admin_check_caller(call, server, route))
        ; /* which has answered */
    else if (!route)
        no_route(call, allow);
    else
        return true;
    return false;
}

static bool is_text(sv text)
{
    return text.ptr && !memchr(text.ptr, 0, text.len) && utf8_valid(text);
}

void admin_handle(struct http_call *call, void *data)
{
    sv names[PATH_NAMES] = { 0 };
    char allow[64];
    const struct admin_route *route = find_route(call, names, allow);
    sv id = http_decode(call, names[PATH_ID], false), subject = http_decode(call, names[PATH_SUBJECT], false);
    if (call->tokens != call->loop->tokens->generation && !admin_check_caller(call, data, route))
        ; /* its token was withdrawn since the headers came, and it has been answered */
    else if (!is_text(id))
        http_error(call, 400, NULL, "the id of a rule must be UTF-8, percent-encoded");
    else if (!is_text(subject))
        http_error(call, 400, NULL, "a subject must be UTF-8 without NUL characters, percent-encoded");
    else if (route->work)
        admin_job_start(call, data, id, subject, route->work);
    else
        route->run(call, data);
}
