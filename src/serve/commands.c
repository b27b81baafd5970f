#include "serve/commands.h"

#include <stdio.h>

#include "serve/server.h"

/* ---- the small ones ---- */

static void ping(struct commands *c, const sv *args, size_t count)
{
    if (count == 2)
        resp_bulk(&c->out, args[1]);
    else if (count == 1)
        resp_status(&c->out, "PONG");
    else
        resp_error(&c->out, "ERR wrong number of arguments for 'ping' command");
}

static void echo(struct commands *c, const sv *args, size_t count)
{
    (void)count;
    resp_bulk(&c->out, args[1]);
}

static void quit(struct commands *c, const sv *args, size_t count)
{
    (void)args, (void)count;
    c->session->quit = true;
    resp_status(&c->out, "OK");
}

/* ---- the table ---- */

static const struct command command_table[] = {
    { "weir.check", -2, COMMAND_GATHER | COMMAND_QUEUE, weir_check_command, "weir",
      "Decides about a request, and charges it if it passes" },
    { "weir.peek", -2, COMMAND_GATHER | COMMAND_QUEUE, weir_peek_command, "weir",
      "Returns what WEIR.CHECK would, and charges nothing" },
    { "weir.reserve", -5, COMMAND_GATHER | COMMAND_QUEUE, weir_reserve_command, "weir",
      "Decides on a request and holds its costs until WEIR.SETTLE" },
    { "weir.settle", -2, COMMAND_QUEUE, weir_settle_command, "weir", "Ends a hold with the true costs" },
    { "weir.renew", 4, COMMAND_QUEUE, weir_renew_command, "weir", "Lets a hold last longer" },
    { "weir.refund", -2, COMMAND_QUEUE, weir_refund_command, "weir", "Refunds a charge of WEIR.CHECK" },
    { "weir.reset", -2, COMMAND_ADMIN | COMMAND_QUEUE, weir_reset_command, "weir",
      "Resets the counts of one subject under a rule" },
    { "cl.throttle", -1, COMMAND_KEY | COMMAND_QUEUE, throttle_command, "weir",
      "Limits a key by the numbers of the command" },
    { "del", -2, COMMAND_KEYS | COMMAND_QUEUE, del_command, "generic", "Forgets keys of CL.THROTTLE" },
    { "unlink", -2, COMMAND_KEYS | COMMAND_QUEUE, del_command, "generic", "Forgets keys of CL.THROTTLE" },
    { "multi", 1, COMMAND_NOW, multi_command, "transactions", "Begins a queue of commands that EXEC runs" },
    { "exec", 1, COMMAND_OPEN | COMMAND_NOW, exec_command, "transactions", "Runs the commands queued since MULTI" },
    { "discard", 1, COMMAND_OPEN | COMMAND_NOW, discard_command, "transactions", "Drops the commands queued since MULTI" },
    { "ping", -1, COMMAND_QUEUE, ping, "connection", "Returns PONG, or its argument" },
    { "echo", 2, COMMAND_QUEUE, echo, "connection", "Returns its argument" },
    { "hello", -1, COMMAND_OPEN, hello_command, "connection", "Selects the protocol, and describes the server" },
    { "auth", -2, COMMAND_OPEN, auth_command, "connection", "Sends the token" },
    { "client", -2, 0, client_command, "connection", "Names and describes the connection" },
    { "select", 2, 0, select_command, "connection", "Selects a database for the keys of CL.THROTTLE" },
    { "reset", 1, COMMAND_OPEN | COMMAND_NOW, reset_command, "connection", "Resets the connection to its initial state" },
    { "quit", -1, COMMAND_OPEN | COMMAND_NOW, quit, "connection", "Closes the connection" },
    { "command", -1, 0, command_command, "server", "Lists the commands" },
    { "info", -1, 0, info_command, "server", "Describes the server" },
    { "config", -2, 0, config_command, "server", "Returns the settings that tools ask Redis for" },
};

static void unknown_command(struct commands *c, const sv *args, size_t count)
{
    char quoted[QUOTED_MAX + 4];
    size_t len = 0;
    for (size_t i = 1; i < count && len < QUOTED_MAX; i++) {
        int room = (int)(QUOTED_MAX - len), n = args[i].len < (size_t)room ? (int)args[i].len : room;
        len += (size_t)snprintf(quoted + len, sizeof quoted - len, "'%.*s' ", n, args[i].ptr);
        len = len < sizeof quoted ? len : sizeof quoted - 1;
    }
    resp_error(&c->out,
               "ERR unknown command '%.*s', with args beginning with: %.*s; weir answers WEIR.CHECK, WEIR.PEEK, "
               "WEIR.RESERVE, WEIR.SETTLE, WEIR.RENEW, WEIR.REFUND, CL.THROTTLE",
               SV_SHOWN(args[0], QUOTED_MAX), (int)len, quoted);
}

/* ---- one command ---- */

/* Tries the most frequent one first, in the spelling that clients use. */
static const struct command *find_quickly(const struct commands *c, sv name)
{
    return __builtin_expect(sv_eq(name, SV("WEIR.CHECK")), 1) ? &command_table[0] : command_find(c, name);
}

/* True: the command is not allowed, and its reply says why. */
static bool is_refused(struct commands *c, const struct command *found, const sv *args, size_t count)
{
    enum access access = c->session->access;
    if (!found)
        unknown_command(c, args, count);
    else if (!arity_fits(found->arity, count))
        resp_error(&c->out, "ERR wrong number of arguments for '%s' command", found->name);
    else if (access == ACCESS_NONE && !(found->flags & COMMAND_OPEN))
        session_refuse(c, "NOAUTH Authentication required.");
    else if (found->flags & COMMAND_ADMIN && access != ACCESS_ADMIN)
        resp_error(&c->out, "NOPERM '%s' requires the admin token: send AUTH with it first", found->name);
    else if (c->session->queue.state != QUEUE_CLOSED && !(found->flags & (COMMAND_QUEUE | COMMAND_NOW)))
        resp_error(&c->out, "ERR '%s' is not allowed between MULTI and EXEC", found->name);
    else
        return false;
    queue_break(c->session);
    return true;
}

static bool is_plain(const struct commands *c, const struct command *found, size_t count)
{
    return found && found->flags & COMMAND_GATHER && arity_fits(found->arity, count) && c->session->access != ACCESS_NONE &&
           c->session->queue.state == QUEUE_CLOSED;
}

/* False: the command has to be run again, after the decisions before it. EXEC waits in the middle of its commands. */
static bool is_carried_out(const struct session *session)
{
    return !session->wait || session->queue.running || wait_is_for_command(session);
}

bool commands_run(struct commands *c, const struct resp_command *command)
{
    const sv *args = command->args;
    size_t count = command->count;
    const struct command *found = find_quickly(c, args[0]);
    if (__builtin_expect(is_plain(c, found, count), 1)) {
        found->run(c, args, count);
        return is_carried_out(c->session);
    }
    if (!commands_flush(c))
        return false;
    if (is_refused(c, found, args, count))
        return true;
    if (c->session->queue.state != QUEUE_CLOSED && !(found->flags & COMMAND_NOW))
        queue_add(c, args, count);
    else
        found->run(c, args, count);
    return is_carried_out(c->session);
}

/* EXEC ends with the access that it began with. */
static void judge(struct commands *c)
{
    if (c->session->generation != c->loop->tokens->generation && !c->session->queue.running)
        session_check_tokens(c->session, c->loop);
}

void commands_begin(struct commands *c, struct session *session)
{
    c->session = session;
    c->out.protocol = session->protocol;
    c->read_ns = uv_hrtime();
    loop_time_passed(c->loop);
    judge(c);
}

bool commands_continue(struct commands *c)
{
    if (c->session->queue.running) {
        queue_run(c);
        judge(c);
    }
    return !c->session->wait;
}

void commands_init(struct commands *c, struct loop *loop, void (*decided)(struct session *session))
{
    const struct config *config = &loop->server->config;
    c->loop = loop;
    c->table = command_table;
    c->table_count = sizeof command_table / sizeof *command_table;
    c->decided = decided;
    c->budget.max =
        byte_budget_max(config->request_bytes > config->pipeline_bytes ? config->request_bytes : config->pipeline_bytes);
}

void commands_done(struct commands *c)
{
    wait_free(c->spare);
    resp_out_done(&c->out);
}
