/* COMMAND, INFO, CONFIG: for tools that ask a server about itself. */
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/commands.h"
#include "serve/server.h"

/* ---- COMMAND ---- */

static void describe(struct resp_out *out, const struct command *command)
{
    bool keys = command->flags & COMMAND_KEYS, key = keys || command->flags & COMMAND_KEY;
    resp_array(out, 10);
    resp_text(out, command->name);
    resp_integer(out, command->arity);
    resp_array(out, 1);
    resp_status(out, command->flags & COMMAND_OPEN ? "no_auth" : "fast");
    resp_integer(out, key); /* first and last key, and the step between them */
    resp_integer(out, keys ? -1 : key);
    resp_integer(out, key);
    for (int i = 0; i < 4; i++)
        resp_array(out, 0); /* categories, tips, key specifications, subcommands */
}

static void document(struct resp_out *out, const struct command *command)
{
    resp_text(out, command->name);
    resp_map(out, 3);
    resp_pair(out, "summary", command->summary);
    resp_pair(out, "since", "0.1.0");
    resp_pair(out, "group", command->group);
}

static void command_info(struct commands *c, const sv *args, size_t count)
{
    size_t named = count > 2 ? count - 2 : 0;
    resp_array(&c->out, named ? named : c->table_count);
    for (size_t i = 0; i < (named ? named : c->table_count); i++) {
        const struct command *command = named ? command_find(c, args[2 + i]) : &c->table[i];
        if (command)
            describe(&c->out, command);
        else
            resp_raw(&c->out, c->out.protocol == 3 ? SV("_\r\n") : SV("*-1\r\n"));
    }
}

static void command_docs(struct commands *c, const sv *args, size_t count)
{
    size_t named = count - 2, known = named ? 0 : c->table_count;
    for (size_t i = 0; i < named; i++)
        known += command_find(c, args[2 + i]) != NULL;
    resp_map(&c->out, known);
    for (size_t i = 0; i < (named ? named : c->table_count); i++) {
        const struct command *command = named ? command_find(c, args[2 + i]) : &c->table[i];
        if (command)
            document(&c->out, command);
    }
}

static void command_number(struct commands *c, const sv *args, size_t count)
{
    (void)args, (void)count;
    resp_integer(&c->out, (int64_t)c->table_count);
}

static void command_list(struct commands *c, const sv *args, size_t count)
{
    (void)args, (void)count;
    resp_array(&c->out, c->table_count);
    for (size_t i = 0; i < c->table_count; i++)
        resp_text(&c->out, c->table[i].name);
}

void command_command(struct commands *c, const sv *args, size_t count)
{
    static const struct subcommand table[] = {
        { "count", 2, command_number },
        { "docs", -2, command_docs },
        { "info", -2, command_info },
        { "list", 2, command_list },
    };
    if (count == 1)
        command_info(c, args, count);
    else
        run_subcommand(c, "command", table, sizeof table / sizeof *table, args, count);
}

/* ---- INFO ---- */

static bool is_wanted(const char *section, const sv *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (arg_is(names[i], section) || arg_is(names[i], "all") || arg_is(names[i], "default") ||
            arg_is(names[i], "everything"))
            return true;
    return count == 0;
}

void info_command(struct commands *c, const sv *args, size_t count)
{
    const struct server *server = c->loop->server;
    int64_t up_s = (loop_now_us(c->loop) - server->started_us) / US_PER_S;
    char about[500 + LISTEN_WHERE_MAX], clients[100];
    snprintf(about, sizeof about,
             "# Server\r\nredis_version:" REDIS_VERSION "\r\nweir_version:%s\r\nredis_mode:standalone\r\nprocess_id:%d\r\n"
             "listen:%s\r\nuptime_in_seconds:%lld\r\n",
             weir_version(), (int)getpid(), server->where[FRONT_RESP], (long long)(up_s > 0 ? up_s : 0));
    /* The clients of this loop only: the metrics have those of all loops. */
    snprintf(clients, sizeof clients, "# Clients\r\nconnected_clients:%u\r\n", c->loop->conns.open[FRONT_RESP]);
    const struct {
        const char *name, *text;
    } sections[] = {
        { "server", about },
        { "clients", clients },
        { "persistence", "# Persistence\r\nloading:0\r\n" },
        { "replication", "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n" },
    };
    CLEANUP(buf_done) struct buf b;
    buf_init(&b, sizeof about + 1000);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (is_wanted(sections[i].name, args + 1, count - 1))
            buf_printf(&b, "%s%s", b.len ? "\r\n" : "", sections[i].text);
    resp_bulk(&c->out, buf_sv(&b));
}

/* ---- CONFIG GET ---- */

/* The settings that redis-benchmark and some clients ask for first; those of weir are not here. */
static const struct {
    const char *name, *value;
} settings[] = { { "save", "" }, { "appendonly", "no" }, { "databases", "16" } };
enum { SETTINGS = sizeof settings / sizeof *settings };

static void config_get(struct commands *c, const sv *args, size_t count)
{
    bool wanted[SETTINGS] = { 0 };
    size_t found = 0;
    for (size_t i = 0; i < SETTINGS; i++) {
        for (size_t k = 2; k < count; k++)
            wanted[i] = wanted[i] || arg_is(args[k], settings[i].name) || arg_is(args[k], "*");
        found += wanted[i];
    }
    resp_map(&c->out, found);
    for (size_t i = 0; i < SETTINGS; i++)
        if (wanted[i])
            resp_pair(&c->out, settings[i].name, settings[i].value);
}

void config_command(struct commands *c, const sv *args, size_t count)
{
    static const struct subcommand table[] = { { "get", -3, config_get } };
    run_subcommand(c, "config", table, sizeof table / sizeof *table, args, count);
}
