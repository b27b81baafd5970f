/* weir: finds the command and runs it. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "rules/reader.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    { "serve", cli_serve, "answer programs in any language, over HTTP and RESP" },
    { "check", cli_check, "decide one request; the exit status is the answer" },
    { "explain", cli_explain, "explain how each rule treats a request; charges nothing" },
    { "lint", cli_lint, "find every error in rules files" },
    { "simulate", cli_simulate, "replay a log against rules, to try them on yesterday's traffic" },
    { "convert", cli_convert, "turn another limiter's configuration into rules" },
    { "rules", cli_rules, "show and change the rules of a database or file" },
    { "sync", cli_sync, "keep a rules file equal to a database" },
    { "cells", cli_cells, "show, check, resize and copy a table of counts" },
    { "token", cli_token, "add and withdraw tokens of a service, which say who may do what" },
    { "top", cli_top, "watch who is throttled by which rule of a running service" },
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void help(FILE *out)
{
    fputs("Usage: weir COMMAND [OPTION]...\n\n"
          "weir answers one question for requests, calls and costly actions: may this go\nthrough?\n\nCommands:\n",
          out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\nOptions:\n"
          "  --help     print this help, and exit\n"
          "  --version  print the version, and exit\n\n"
          "For details see 'weir help COMMAND' and the manual page weir-COMMAND(1).\n",
          out);
}

static int unknown(const char *name)
{
    const char *names[COMMANDS + 3] = { [COMMANDS] = "--help", "--version" };
    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const char *nearest = word_nearest(weir_str(name), names);
    return cli_error("unknown %s '%s'%s%s%s; see 'weir --help'", name[0] == '-' ? "option" : "command", name,
                     nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

static int run(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return cli_finish(commands[i].run(argc, argv));
    return unknown(name);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return EXIT_BAD;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 && argc > 2) {
        char option[] = "--help", *words[] = { argv[2], option, NULL };
        return run(argv[2], 2, words);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return cli_finish(0);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("weir %s\n", weir_version());
        return cli_finish(0);
    }
    return run(name, argc - 1, argv + 1);
}
