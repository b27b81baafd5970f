/* Sessions over HTTP: signing in and out. */
#include <jansson.h>

#include "base/cleanup.h"
#include "base/instant.h"
#include "serve/admin.h"
#include "serve/log.h"

enum { SET_COOKIE_MAX = COOKIE_NAME_MAX + COOKIE_VALUE_MAX + 80, ANSWER_MAX = 300, TITLE_MAX = TOKEN_NAME_MAX + 2 };

static const struct weir_header not_stored = { WEIR_STR("Cache-Control"), WEIR_STR("no-store") };

/* {"role": "operate", "token": "ann", "expires": "2026-03-01T12:00:00Z"}; a token does not expire. */
static void answer(struct http_call *call, const struct token *token, const struct cookie *session,
                   const struct weir_header *cookie)
{
    struct weir_header headers[] = { not_stored, cookie ? *cookie : not_stored };
    char body[ANSWER_MAX], expires[INSTANT_TEXT_MAX];
    if (session)
        instant_text(session->ends_s * US_PER_S, expires);
    int len =
        snprintf(body, sizeof body, "{\"role\": \"%s\", \"token\": \"%s\", \"expires\": %s%s%s}\n", role_names[token->role],
                 token->name, session ? "\"" : "", session ? expires : "null", session ? "\"" : "");
    http_answer(call, &(struct http_answer){ 200, SV(""), sv_of(body, (size_t)len), headers, cookie ? 2 : 1 });
}

void admin_show_session(struct http_call *call, struct server *server)
{
    static const char *const none[] = { NULL };
    struct admin_caller caller = admin_caller(call);
    (void)server;
    if (!caller.token) /* it has ended since the request was accepted */
        http_error(call, 401, "sign in again", "the session has ended");
    else if (admin_check_parameters(call, none))
        answer(call, caller.token, caller.has_session ? &caller.session : NULL, NULL);
}

/* ---- signing in ---- */

/* NULL: it is not {"token": "…"}, and the call has been answered. */
static json_t *read_body(struct http_call *call)
{
    json_error_t why;
    json_auto_t *body = json_loadb(call->body.ptr ? call->body.ptr : "", call->body.len, JSON_REJECT_DUPLICATES, &why);
    if (!body)
        http_error(call, 400, NULL, "the body is not JSON: line %d: %s", why.line, why.text);
    else if (!json_is_string(json_object_get(body, "token")) || json_object_size(body) != 1 ||
             json_string_length(json_object_get(body, "token")) == 0)
        http_error(call, 400, NULL, "the body must be {\"token\": \"…\"}, and nothing else");
    else
        return STEAL(body);
    return NULL;
}

/* The browser itself says in Origin that its page came over https: behind a proxy with TLS the service cannot see it. */
static bool is_https(const struct http_call *call)
{
    const struct server *server = call->loop->server;
    return sv_starts(http_header(call, "origin"), SV("https://")) ||
           tls_setup_has(&server->config, FRONT_ADMIN, server->where[FRONT_ADMIN]);
}

/* " ann"; "" for a token of the host, whose name is its role. */
static const char *token_title(const char *name, char ret[TITLE_MAX])
{
    snprintf(ret, TITLE_MAX, "%s%s", role_named(weir_str(name)) ? "" : " ", role_named(weir_str(name)) ? "" : name);
    return ret;
}

static void begin(struct http_call *call, struct server *server, const struct token *token)
{
    struct cookie session;
    char value[COOKIE_VALUE_MAX], text[SET_COOKIE_MAX], title[TITLE_MAX];
    const char *name = server->admin->cookie_name;
    if (!cookie_begin(&session, token, is_https(call), loop_now_us(call->loop) / US_PER_S)) {
        http_error(call, 503, NULL, "the system has no random numbers");
        return;
    }
    cookie_write(&session, name, call->loop->tokens, value);
    /* Without Max-Age a browser forgets it when it ends. */
    snprintf(text, sizeof text, "%s=%s; Path=/; HttpOnly; SameSite=Strict%s", name, value, session.https ? "; Secure" : "");
    sv author = sv_trim(http_header(call, "x-weir-author"));
    log_say(LEVEL_INFO, "session", "signed in with the %s token%s%s%.*s from %s", role_names[token->role],
            token_title(session.token, title), author.len ? " by " : "", SV_SHOWN(author, 200), conn_from(call->conn));
    answer(call, token, &session, &(struct weir_header){ WEIR_STR("Set-Cookie"), weir_str(text) });
}

void admin_sign_in(struct http_call *call, struct server *server)
{
    static const char *const none[] = { NULL };
    if (!admin_check_page(call, server, NULL) || !http_is_json(call) || !admin_check_parameters(call, none))
        return;
    json_auto_t *body = read_body(call);
    if (!body)
        return;
    json_t *given = json_object_get(body, "token");
    sv text = sv_trim(sv_of(json_string_value(given), json_string_length(given)));
    const struct token *token = admin_token(call, text);
    if (!token)
        admin_refuse_token(call, server);
    else
        begin(call, server, token);
}

/* ---- signing out ---- */

void admin_sign_out(struct http_call *call, struct server *server)
{
    static const char *const none[] = { NULL };
    struct weir_error error;
    struct cookie session;
    char text[SET_COOKIE_MAX], title[TITLE_MAX];
    int r = 0;
    if (!admin_check_parameters(call, none))
        return;
    int64_t now_s = loop_now_us(call->loop) / US_PER_S;
    while (r == 0 && admin_session(call, 0, &session)) {
        r = ended_add(&server->admin->ended, &session, now_s, &error);
        log_say(LEVEL_INFO, "session", "signed out of a session of the %s token%s from %s", role_names[session.role],
                token_title(session.token, title), conn_from(call->conn));
    }
    snprintf(text, sizeof text, "%s=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict%s", server->admin->cookie_name,
             is_https(call) ? "; Secure" : "");
    call->extra = (struct weir_header){ WEIR_STR("Set-Cookie"), weir_str(text) };
    if (r < 0)
        http_error(call, 503, "make room or correct the permissions of the data folder, and rotate the token",
                   "the session has ended, but would be valid again after a restart: %s", error.text);
    else
        http_answer(call, &(struct http_answer){ .status = 204, .headers = &not_stored, .header_count = 1 });
}
