/* Which requests the admin listener accepts: for which host, of whom, and from which page. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "serve/admin.h"
#include "serve/log.h"
#include "serve/tls_relay.h"

enum {
    WAITS_MAX = 32, /* answers to wrong tokens that wait at the same time: most connections stay free */
};

int admin_state_new(struct admin_state **ret, const struct server *server, struct weir_error *error)
{
    struct admin_state *state = calloc(1, sizeof *state);
    if (!state)
        return err_no_memory(error);
    cookie_name(server->where[FRONT_ADMIN], state->cookie_name);
    int r = ended_init(&state->ended, server->config.data, clock_now_us() / US_PER_S, error);
    if (r == 0)
        *ret = state;
    else
        admin_state_free(state);
    return r;
}

void admin_state_free(struct admin_state *state)
{
    if (!state)
        return;
    ended_done(&state->ended);
    free(state);
}

/* ---- hosts and origins ---- */

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

/* The host and port of an origin or of a header Host, for comparing. False: it is not one. */
struct authority {
    sv host; /* without the brackets of IPv6 */
    uint64_t port;
};

static bool split(sv text, uint64_t default_port, struct authority *ret)
{
    sv host = without_port(text);
    size_t brackets = sv_starts(text, SV("[")) ? 2 : 0;
    sv port = sv_from(text, host.len + brackets + 1);
    *ret = (struct authority){ host, default_port };
    return host.len > 0 && (port.len == 0 || sv_u64(port, UINT16_MAX, &ret->port));
}

static bool is_same(const struct authority *page, sv text, uint64_t default_port)
{
    struct authority other;
    return split(text, default_port, &other) && sv_eq_nocase(page->host, other.host) && page->port == other.port;
}

bool admin_origin_is_same(sv origin, sv host, const char *names)
{
    bool https = sv_starts(origin, SV("https://"));
    uint64_t default_port = https ? 443 : 80;
    struct authority page;
    if (!https && !sv_starts(origin, SV("http://")))
        return false;
    if (!split(sv_from(origin, https ? 8 : 7), default_port, &page))
        return false;
    bool same = is_same(&page, host, default_port);
    for (sv rest = weir_str(names); !same && rest.len > 0;)
        same = is_same(&page, sv_trim(sv_cut(&rest, ',')), default_port);
    return same;
}

/* The address of this host that the client connected to. */
static sv own_address(const struct http_call *call, char text[IP_TEXT_MAX])
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    struct ip ip;
    bool known = getsockname(tls_relay_socket(call->loop, call->conn->fd), (struct sockaddr *)&address, &len) == 0 &&
                 conn_address_of(&address, &ip);
    return known ? sv_of(text, ip_text(&ip, text)) : SV("");
}

static const char *names_of(const struct server *server)
{
    return server->config.admin_hosts ? server->config.admin_hosts : "";
}

/* Protects against DNS rebinding: pages of another site whose own host name points to this host. */
bool admin_check_host(struct http_call *call, const struct server *server)
{
    static const char hint[] = "use an address of this host, or name it in the option admin-hosts";
    char text[IP_TEXT_MAX];
    const char *names = names_of(server);
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

/* ---- pages ---- */

static bool reads(const struct http_call *call)
{
    return sv_eq(call->method, SV("GET")) || sv_eq(call->method, SV("HEAD"));
}

/* A browser sends the cookie with the requests of other pages, too: SameSite separates neither ports nor sub-domains. */
bool admin_check_page(struct http_call *call, const struct server *server, const struct cookie *session)
{
    sv origin = http_header(call, "origin"), site = http_header(call, "sec-fetch-site");
    bool known = origin.len > 0 || site.len > 0, must = session && !reads(call);
    bool same_scheme = !session || session->https == sv_starts(origin, SV("https://"));
    bool ours = origin.len > 0 ? same_scheme && admin_origin_is_same(origin, http_header(call, "host"), names_of(server))
                               : sv_eq(site, SV("same-origin")) || (!must && sv_eq(site, SV("none")));
    if (known ? ours : !must)
        return true;
    if (origin.len > 0)
        http_error(call, 403, "behind a proxy, name its host (and port) in the option admin-hosts",
                   "pages of `%.*s` (the header Origin) may not use the session of a page at `%.*s` (the header Host)",
                   SV_SHOWN(origin, 200), SV_SHOWN(http_header(call, "host"), 200));
    else if (known)
        http_error(call, 403, NULL, "pages of another origin may not use the session (Sec-Fetch-Site: %.*s)",
                   SV_SHOWN(site, 50));
    else
        http_error(call, 403, "send the header Origin as browsers do, or use a token instead of the cookie",
                   "a change by a session must say which page it comes from, and this request has neither Origin nor "
                   "Sec-Fetch-Site");
    return false;
}

/* ---- tokens and sessions ---- */

bool admin_session(const struct http_call *call, unsigned i, struct cookie *ret)
{
    const struct admin_state *state = call->loop->server->admin;
    int64_t now_s = loop_now_us(call->loop) / US_PER_S;
    for (size_t header = 0; header < call->header_count; header++) {
        sv rest = call->headers[header].value, value;
        if (!sv_eq_nocase(call->headers[header].name, SV("cookie")))
            continue;
        while ((value = cookie_next(&rest, state->cookie_name)).ptr)
            if (cookie_read(ret, value, state->cookie_name, call->loop->tokens, now_s) && !ended_has(&state->ended, ret) &&
                i-- == 0)
                return true;
    }
    return false;
}

const struct token *admin_token(const struct http_call *call, sv given)
{
    const struct token *token = token_find(call->loop->tokens, given);
    return token && token->role >= ROLE_READ ? token : NULL;
}

struct admin_caller admin_caller(const struct http_call *call)
{
    struct admin_caller caller = { .role = ROLE_NONE };
    sv given = token_of_bearer(http_header(call, "authorization"));
    if (given.ptr)
        caller.token = admin_token(call, given);
    else if (admin_session(call, 0, &caller.session)) {
        caller.has_session = true;
        caller.token = token_named(call->loop->tokens, weir_str(caller.session.token));
    }
    if (caller.token)
        caller.role = caller.token->role;
    return caller;
}

/* What stands in the last parentheses comes from the service, and every change with a named token has them: nobody can sign
 * with the name of another. */
sv admin_author(struct http_call *call)
{
    struct admin_caller caller = admin_caller(call);
    sv author = sv_trim(http_header(call, "x-weir-author"));
    const char *name = caller.token ? caller.token->name : "unknown";
    /* Anywhere, since a space of Unicode after them cannot be seen. */
    bool has_parentheses = author.len > 0 && (memchr(author.ptr, '(', author.len) || memchr(author.ptr, ')', author.len));
    bool is_plain = caller.token && !caller.token->is_named && !has_parentheses;
    if (is_plain && author.len > 0)
        return author;
    if (is_plain && !caller.has_session)
        return SV("admin api");
    if (author.len == 0)
        author = caller.has_session ? SV("page") : SV("admin api");
    size_t size = author.len + TOKEN_NAME_MAX + 4;
    char *text = http_alloc(call, size);
    return text ? sv_of(text, (size_t)snprintf(text, size, "%.*s (%s)", SV_FMT(author), name)) : weir_str(name);
}

static void refuse(struct http_call *call)
{
    call->extra = (struct weir_header){ WEIR_STR("WWW-Authenticate"), WEIR_STR("Bearer") };
    log_limited(SELDOM_ADMIN_TOKEN, "the admin listener, request from %s: the token is missing or wrong",
                conn_from(call->conn));
    http_error(call, 401,
               "send the header Authorization: Bearer TOKEN; the token is in the file admin-token of the "
               "data folder",
               "the token is missing or wrong");
}

void admin_refuse_token(struct http_call *call, struct server *server)
{
    struct ip ip = { { 0 } };
    char seconds[16];
    if (!call->conn->local)
        ip_parse(weir_str(call->conn->address), &ip);
    unsigned wait_ms = guesses_add(&server->admin->guesses, ip, loop_now_ms(call->loop));
    unsigned most_ms = call->loop->conns.limits.request_ms / 2;
    if (wait_ms > 0 && http_waiting(call) >= WAITS_MAX) {
        snprintf(seconds, sizeof seconds, "%u", (wait_ms + 999) / 1000);
        call->extra = (struct weir_header){ WEIR_STR("Retry-After"), weir_str(seconds) };
        log_limited(SELDOM_ADMIN_TOKEN, "the admin listener, request from %s: many wrong tokens", conn_from(call->conn));
        http_error(call, 429, "use the token in the file admin-token of the data folder: a right token is never refused",
                   "the token is wrong, and too many other requests with wrong tokens are waiting for their answers");
        return;
    }
    call->wait_ms = wait_ms < most_ms ? wait_ms : most_ms;
    refuse(call);
}

static enum role role_for(struct http_call *call, const struct admin_route *route)
{
    bool dry_run = route->work && route->work->takes_dry_run && admin_is_dry_run(call);
    if (dry_run)
        return ROLE_READ;
    return route->role == ROLE_NONE ? ROLE_ADMIN : route->role;
}

static bool check_role(struct http_call *call, const struct admin_caller *caller, enum role needed)
{
    if (caller->role >= needed)
        return true;
    char hint[100];
    snprintf(hint, sizeof hint, "%s the token in the file %s-token of the data folder",
             caller->has_session ? "sign in with" : "use", role_names[needed]);
    http_error(call, 403, hint, "this needs the role %s, and the %s has the role %s", role_names[needed],
               caller->has_session ? "session" : "token", role_names[caller->role]);
    return false;
}

bool admin_check_caller(struct http_call *call, struct server *server, const struct admin_route *route)
{
    if (route && route->open)
        return true;
    struct admin_caller caller = admin_caller(call);
    if (caller.role == ROLE_NONE) {
        /* A request without a token is not a guess. */
        if (token_of_bearer(http_header(call, "authorization")).ptr)
            admin_refuse_token(call, server);
        else
            refuse(call);
        return false;
    }
    if (caller.has_session && !admin_check_page(call, server, &caller.session))
        return false;
    return !route || check_role(call, &caller, role_for(call, route));
}
