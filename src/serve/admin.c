/* The admin listener: its routes, and which requests it accepts. */
#include "serve/admin.h"

#include "base/cleanup.h"
#include "base/utf8.h"
#include "serve/embedded.h"
#include "serve/log.h"
#include "serve/simulation.h"
#include "serve/status.h"

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
    static const char *const parameters[] = { "most", "rule", NULL };
    CLEANUP(buf_done) struct buf out;
    uint64_t most;
    buf_init(&out, STATUS_BYTES_MAX);
    if (!admin_check_parameters(call, parameters) ||
        !admin_number(call, "most", 1, STATUS_TOP_MAX, STATUS_TOP_DEFAULT, &most))
        return;
    status_write_top(server, (unsigned)most, http_parameter(call, "rule", 0), &out);
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
    { "GET", "/healthz", health, .open = true },
    { "GET", "/readyz", ready, .open = true },
    { "GET", "/metrics", metrics },
    { "GET", "/v1/openapi.json", openapi },
    { "GET", "/v1/status", status },
    { "GET", "/v1/top", top },
    { "GET", "/v1/rules", .work = &admin_list_rules },
    { "GET", "/v1/rules/{id}", .work = &admin_get_rule },
    { "PUT", "/v1/rules/{id}", .work = &admin_put_rule },
    { "PATCH", "/v1/rules/{id}", .work = &admin_patch_rule },
    { "DELETE", "/v1/rules/{id}", .work = &admin_delete_rule },
    { "POST", "/v1/rules/{id}/enable", .work = &admin_enable_rule },
    { "POST", "/v1/rules/{id}/disable", .work = &admin_disable_rule },
    { "GET", "/v1/rules/{id}/overrides", .work = &admin_list_overrides },
    { "GET", "/v1/rules/{id}/overrides/{subject}", .work = &admin_get_override },
    { "PUT", "/v1/rules/{id}/overrides/{subject}", .work = &admin_put_override },
    { "DELETE", "/v1/rules/{id}/overrides/{subject}", .work = &admin_delete_override },
    { "GET", "/v1/rules/{id}/history", .work = &admin_get_history },
    { "POST", "/v1/rules/{id}/undo", .work = &admin_undo },
    { "GET", "/v1/settings", .work = &admin_get_settings },
    { "PUT", "/v1/settings", .work = &admin_put_settings },
    { "GET", "/v1/settings/history", .work = &admin_get_history },
    { "POST", "/v1/settings/undo", .work = &admin_undo },
    { "GET", "/v1/history", .work = &admin_get_all_history },
    { "POST", "/v1/undo", .work = &admin_undo_any },
    { "GET", "/v1/explain", admin_explain },
    { "DELETE", "/v1/subjects", admin_reset },
    { "GET", "/v1/penalties", penalties },
    { "DELETE", "/v1/penalties", admin_lift },
    { "GET", "/v1/sample", admin_sample },
    { "POST", "/v1/simulate", admin_simulate },
};
const size_t admin_route_count = sizeof admin_routes / sizeof *admin_routes;

/* What a path has for {id} and {subject}. */
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

/* ---- which requests are accepted ---- */

/* "" or ":80". */
static bool is_port(sv text)
{
    if (text.len > 0 && text.ptr[0] != ':')
        return false;
    for (size_t i = 1; i < text.len; i++)
        if (!ascii_digit(text.ptr[i]))
            return false;
    return true;
}

/* "name:80", "[::1]:80", "::1": the host without port and brackets. Empty if something else follows it. */
static sv without_port(sv host)
{
    sv name = host;
    if (sv_starts(host, SV("["))) {
        sv rest = sv_from(host, 1);
        name = sv_cut(&rest, ']');
        bool closed = name.len + 2 <= host.len;
        return closed && is_port(sv_from(host, name.len + 2)) ? name : SV("");
    }
    const char *colon = host.ptr ? memrchr(host.ptr, ':', host.len) : NULL;
    if (!colon || memchr(host.ptr, ':', host.len) != colon)
        return name;
    name.len = (size_t)(colon - host.ptr);
    return is_port(sv_from(host, name.len)) ? name : SV("");
}

static bool is_named(sv host, const char *names)
{
    for (sv rest = weir_str(names); rest.len > 0;) {
        sv name = sv_trim(sv_cut(&rest, ','));
        if (name.len > 0 && (sv_eq_nocase(name, host) || sv_eq_nocase(without_port(name), without_port(host))))
            return true;
    }
    return false;
}

bool admin_host_is_ours(sv host, sv address, const char *names)
{
    static const struct cidr loopback[] = { { { { [10] = 0xff, 0xff, 127 } }, 104 }, { { { [15] = 1 } }, 128 } };
    struct ip ip, own;
    sv name = without_port(host);
    if (name.len == 0)
        return false;
    if (is_named(host, names) || sv_eq_nocase(name, SV("localhost")))
        return true;
    if (!ip_parse(name, &ip))
        return false;
    if (ip_parse(address, &own) && memcmp(&ip, &own, sizeof ip) == 0)
        return true;
    return cidr_has(&loopback[0], &ip) || cidr_has(&loopback[1], &ip);
}

bool admin_origin_is_ours(sv origin, sv address, const char *names)
{
    static const sv schemes[] = { SV("http://"), SV("https://") };
    for (size_t i = 0; i < 2; i++)
        if (sv_starts(origin, schemes[i]))
            return admin_host_is_ours(sv_from(origin, schemes[i].len), address, names);
    return false;
}

/* The address of this host that the client connected to. */
static sv own_address(const struct http_call *call, char text[IP_TEXT_MAX])
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    struct ip ip;
    bool known = getsockname(call->conn->fd, (struct sockaddr *)&address, &len) == 0 && conn_address_of(&address, &ip);
    return known ? sv_of(text, ip_text(&ip, text)) : SV("");
}

/* Protects against DNS rebinding: pages of another site whose own host name points to this host. */
static bool check_host_and_origin(struct http_call *call, const struct server *server)
{
    static const char hint[] = "use an address of this host, or name it in the option admin-hosts";
    char text[IP_TEXT_MAX];
    const char *names = server->config.admin_hosts ? server->config.admin_hosts : "";
    sv host = http_header(call, "host"), origin = http_header(call, "origin"), address = own_address(call, text);
    if (!call->conn->local && !admin_host_is_ours(host, address, names)) {
        http_error(call, 403, hint, "the header Host must name this service, and `%.*s` does not", SV_SHOWN(host, 200));
        return false;
    }
    if (origin.len > 0 && !admin_origin_is_ours(origin, address, names)) {
        http_error(call, 403, hint, "pages of `%.*s` (the header Origin) may not use this service", SV_SHOWN(origin, 200));
        return false;
    }
    return true;
}

static void no_route(struct http_call *call, const char *allow)
{
    if (allow[0])
        http_bad_method(call, weir_str(allow));
    else
        http_error(call, 404, "GET /v1/openapi.json lists what there is", "there is nothing at %.*s",
                   SV_SHOWN(call->path, 200));
}

/* A log is longer than other requests. */
size_t admin_body_max(const struct http_call *call, void *data)
{
    const struct server *server = data;
    bool log = sv_eq(call->path, SV("/v1/simulate")) && sv_eq(call->method, SV("POST"));
    return log && server->config.request_bytes < SIMULATION_BODY_MAX ? SIMULATION_BODY_MAX : 0;
}

bool admin_screen(struct http_call *call, void *data)
{
    struct server *server = data;
    sv names[PATH_NAMES];
    char allow[64];
    const struct admin_route *route = find_route(call, names, allow);
    if (call->too_large)
        http_too_large(call);
    else if (!check_host_and_origin(call, server))
        ; /* which has answered */
    else if (!(route && route->open) && !token_is_bearer(call->loop->tokens.admin, http_header(call, "authorization"))) {
        call->extra = (struct weir_header){ WEIR_STR("WWW-Authenticate"), WEIR_STR("Bearer") };
        log_limited(SELDOM_ADMIN_TOKEN, "the admin listener, request from %s: the token is missing or wrong",
                    conn_from(call->conn));
        http_error(call, 401,
                   "send the header Authorization: Bearer TOKEN; the token is in the file admin-token of the "
                   "data folder",
                   "the token is missing or wrong");
    } else if (!route)
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
    if (!is_text(id))
        http_error(call, 400, NULL, "the id of a rule must be UTF-8, percent-encoded");
    else if (!is_text(subject))
        http_error(call, 400, NULL, "a subject must be UTF-8 without NUL characters, percent-encoded");
    else if (route->work)
        admin_job_start(call, data, id, subject, route->work);
    else
        route->run(call, data);
}
