/* Names and arguments of commands. */
#include <stdio.h>

#include "serve/commands.h"

bool arg_is(sv arg, const char *word)
{
    return sv_eq_nocase(arg, weir_str(word));
}

const struct command *command_find(const struct commands *c, sv name)
{
    for (size_t i = 0; i < c->table_count; i++)
        if (arg_is(name, c->table[i].name))
            return &c->table[i];
    return NULL;
}

static void unknown_subcommand(struct commands *c, const char *command, const struct subcommand *table, size_t table_count,
                               sv given)
{
    char names[200];
    size_t len = 0;
    for (size_t i = 0; i < table_count && len < sizeof names; i++)
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", table[i].name);
    resp_error(&c->out, "ERR unknown subcommand '%.*s' of '%s'; allowed: %s", SV_SHOWN(given, QUOTED_MAX), command, names);
}

void run_subcommand(struct commands *c, const char *command, const struct subcommand *table, size_t table_count,
                    const sv *args, size_t count)
{
    size_t i = 0;
    while (i < table_count && !arg_is(args[1], table[i].name))
        i++;
    if (i == table_count)
        unknown_subcommand(c, command, table, table_count, args[1]);
    else if (!arity_fits(table[i].arity, count))
        resp_error(&c->out, "ERR wrong number of arguments for '%s|%s' command", command, table[i].name);
    else
        table[i].run(c, args, count);
}
