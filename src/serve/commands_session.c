/* HELLO, AUTH, CLIENT, SELECT, RESET: the state of a connection. */
#include <stdio.h>

#include "engine/handle.h"
#include "serve/commands.h"
#include "serve/log.h"
#include "serve/server.h"

/* token: NULL if the client has sent none. */
static enum access access_of(const struct tokens *tokens, const struct token *token)
{
    if (token && token->role == ROLE_ADMIN)
        return ACCESS_ADMIN;
    return !tokens->required || (token && token->role == ROLE_ASK) ? ACCESS_DECIDE : ACCESS_NONE;
}

static void set_access(struct session *session, const struct tokens *tokens, const struct token *token)
{
    session->access = access_of(tokens, token);
    session->generation = tokens->generation;
    session->has_token = token;
    if (token)
        memcpy(session->token, token->hash, sizeof session->token);
}

void session_init(struct session *session, struct commands *commands, const struct conn *conn)
{
    static uint64_t last_id;
    *session = (struct session){
        .id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED),
        .conn = conn,
        .queue.commands.budget = &commands->budget,
        .protocol = 2,
    };
    set_access(session, commands->loop->tokens, NULL);
}

void session_done(struct session *session)
{
    wait_leave(session);
    queue_clear(session);
}

void session_check_tokens(struct session *session, const struct loop *loop)
{
    enum access before = session->access;
    const struct token *token = session->has_token ? token_with_hash(loop->tokens, session->token) : NULL;
    set_access(session, loop->tokens, token);
    if (session->access < before)
        queue_break(session);
}

/* Only printable characters, so that a list of names cannot mislead; empty: no name. */
static bool is_name(sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < '!' || s.ptr[i] > '~')
            return false;
    return s.len <= SESSION_TEXT_MAX;
}

static bool set_name(struct commands *c, char to[SESSION_TEXT_MAX + 1], sv name, const char *what)
{
    if (!is_name(name)) {
        resp_error(&c->out, "ERR %s cannot contain spaces, newlines or special characters, nor more than %d of any.", what,
                   SESSION_TEXT_MAX);
        return false;
    }
    memcpy(to, name.ptr, name.len);
    to[name.len] = '\0';
    return true;
}

/* ---- tokens ---- */

void session_refuse(struct commands *c, const char *why)
{
    log_limited(SELDOM_RESP_TOKEN, "RESP, connection from %s: the token is missing or wrong", conn_from(c->session->conn));
    resp_error(&c->out, "%s", why);
}

/* The user is "default", or the name of the token. Without a token for decisions, any password will do for these. */
static bool authenticate(struct commands *c, sv user, sv password)
{
    const struct tokens *tokens = c->loop->tokens;
    const struct token *token = token_find(tokens, password);
    bool is_default = sv_eq(user, SV("default"));
    if (token && !is_default && !sv_eq(user, weir_str(token->name)))
        token = NULL;
    if ((is_default || token) && access_of(tokens, token) != ACCESS_NONE) {
        set_access(c->session, tokens, token);
        return true;
    }
    session_refuse(c, "WRONGPASS invalid username-password pair or user is disabled.");
    return false;
}

void auth_command(struct commands *c, const sv *args, size_t count)
{
    if (count > 3)
        resp_error(&c->out, "ERR syntax error");
    else if (count == 2 && !c->loop->tokens->required && !token_find(c->loop->tokens, args[1]))
        session_refuse(c, "WRONGPASS this is not the admin token, and decisions require no token");
    else if (authenticate(c, count == 3 ? args[1] : SV("default"), args[count - 1]))
        resp_status(&c->out, "OK");
}

/* ---- HELLO [protocol [AUTH user password] [SETNAME name]] ---- */

static bool hello_options(struct commands *c, const sv *args, size_t count)
{
    for (size_t i = 2; i < count;) {
        if (arg_is(args[i], "auth") && count - i > 2) {
            if (!authenticate(c, args[i + 1], args[i + 2]))
                return false;
            i += 3;
        } else if (arg_is(args[i], "setname") && count - i > 1) {
            if (!set_name(c, c->session->name, args[i + 1], "Client names"))
                return false;
            i += 2;
        } else {
            resp_error(&c->out, "ERR Syntax error in HELLO option '%.*s'", SV_SHOWN(args[i], 100));
            return false;
        }
    }
    return true;
}

static void hello_answer(struct commands *c)
{
    struct resp_out *out = &c->out;
    resp_map(out, 7);
    resp_pair(out, "server", "weir");
    resp_pair(out, "version", REDIS_VERSION);
    resp_text(out, "proto");
    resp_integer(out, c->session->protocol);
    resp_text(out, "id");
    resp_integer(out, (int64_t)c->session->id);
    resp_pair(out, "mode", "standalone");
    resp_pair(out, "role", "master");
    resp_text(out, "modules");
    resp_array(out, 0);
}

void hello_command(struct commands *c, const sv *args, size_t count)
{
    uint64_t protocol = c->session->protocol;
    if (count > 1 && !sv_u64(args[1], UINT32_MAX, &protocol)) {
        resp_error(&c->out, "ERR Protocol version is not an integer or out of range");
        return;
    }
    if (protocol != 2 && protocol != 3) {
        resp_error(&c->out, "NOPROTO unsupported protocol version");
        return;
    }
    if (!hello_options(c, args, count))
        return;
    if (c->session->access == ACCESS_NONE) {
        resp_error(&c->out,
                   "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
                   "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
                   "the same time");
        return;
    }
    c->session->protocol = c->out.protocol = (unsigned)protocol;
    hello_answer(c);
}

/* ---- CLIENT ---- */

static void client_id(struct commands *c, const sv *args, size_t count)
{
    (void)args, (void)count;
    resp_integer(&c->out, (int64_t)c->session->id);
}

static void client_info(struct commands *c, const sv *args, size_t count)
{
    const struct session *s = c->session;
    char line[4 * SESSION_TEXT_MAX + 200];
    (void)args, (void)count;
    snprintf(line, sizeof line, "id=%llu addr=%s fd=%d name=%s db=%u resp=%u lib-name=%s lib-ver=%s\n",
             (unsigned long long)s->id, s->conn->local ? "unix" : s->conn->address, s->conn->fd, s->name, s->database,
             s->protocol, s->library, s->library_version);
    resp_text(&c->out, line);
}

static void client_getname(struct commands *c, const sv *args, size_t count)
{
    (void)args, (void)count;
    if (c->session->name[0])
        resp_text(&c->out, c->session->name);
    else
        resp_null(&c->out);
}

static void client_setname(struct commands *c, const sv *args, size_t count)
{
    (void)count;
    if (set_name(c, c->session->name, args[2], "Client names"))
        resp_status(&c->out, "OK");
}

static void client_setinfo(struct commands *c, const sv *args, size_t count)
{
    bool name = arg_is(args[2], "lib-name");
    (void)count;
    if (!name && !arg_is(args[2], "lib-ver"))
        resp_error(&c->out, "ERR Unrecognized option '%.*s'", SV_SHOWN(args[2], 100));
    else if (set_name(c, name ? c->session->library : c->session->library_version, args[3], name ? "lib-name" : "lib-ver"))
        resp_status(&c->out, "OK");
}

/* Nothing is evicted or touched here. */
static void client_on_or_off(struct commands *c, const sv *args, size_t count)
{
    (void)count;
    if (arg_is(args[2], "on") || arg_is(args[2], "off"))
        resp_status(&c->out, "OK");
    else
        resp_error(&c->out, "ERR syntax error");
}

void client_command(struct commands *c, const sv *args, size_t count)
{
    static const struct subcommand table[] = {
        { "id", 2, client_id },
        { "info", 2, client_info },
        { "getname", 2, client_getname },
        { "setname", 3, client_setname },
        { "setinfo", 4, client_setinfo },
        { "no-evict", 3, client_on_or_off },
        { "no-touch", 3, client_on_or_off },
    };
    run_subcommand(c, "client", table, sizeof table / sizeof *table, args, count);
}

/* ---- SELECT, RESET ---- */

void select_command(struct commands *c, const sv *args, size_t count)
{
    uint64_t database;
    sv digits = sv_starts(args[1], SV("-")) ? sv_from(args[1], 1) : args[1];
    (void)count;
    if (!sv_u64(digits, INT32_MAX, &database))
        resp_error(&c->out, "ERR value is not an integer or out of range");
    else if (database >= DATABASES || digits.len != args[1].len)
        resp_error(&c->out, "ERR DB index is out of range");
    else {
        c->session->database = (unsigned)database;
        resp_status(&c->out, "OK");
    }
}

void reset_command(struct commands *c, const sv *args, size_t count)
{
    struct session *s = c->session;
    (void)args, (void)count;
    set_access(s, c->loop->tokens, NULL);
    s->protocol = c->out.protocol = 2;
    s->database = 0;
    s->name[0] = '\0';
    queue_clear(s);
    resp_status(&c->out, "RESET");
}
