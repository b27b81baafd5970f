/* weir serve: its --help, from the table of the service's options, and passwords hidden from the process list. src/serve
 * does the rest. */
#include "base/arena.h"
#include "base/check.h"
#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/plain_text.h"
#include "serve/server.h"

enum { HELP_MAX = 200, HELP_OPTIONS_MAX = 64 };

static struct command command = {
    .name = "serve",
    .usage = "[OPTION]...",
    .text =
        "Runs a service that decides for programs in any language whether something may go through: over HTTP (POST "
        "/v1/check, and /v1/auth for gateways) and for every Redis client (WEIR.CHECK, CL.THROTTLE). It follows changes "
        "of the rules, and is administered and monitored over HTTP with a token. Without options it listens on this "
        "host only, and stores its data in ./weir-data.\n\n"
        "Each option may also be set in the file that --config names, as NAME: VALUE. SIGHUP reads that file again. "
        "After SIGTERM or SIGINT the service answers the requests that it has accepted, and exits.",
    .footer = "The exit status is 0 after SIGTERM or SIGINT, and 2 if the service could not start.\n\n"
              "Example:\n  weir serve --data /var/lib/weir --http unix:/run/weir.sock --resp off",
};

static int help(void)
{
    char texts[HELP_OPTIONS_MAX][HELP_MAX];
    struct option options[HELP_OPTIONS_MAX + 1] = { 0 };
    for (size_t i = 0; config_options[i].name; i++) {
        CHECK(i < HELP_OPTIONS_MAX);
        const struct config_option *o = &config_options[i];
        snprintf(texts[i], HELP_MAX, o->initial ? "%s (default %s)" : "%s", o->help, o->initial);
        options[i] = (struct option){ .name = o->name, .argument = o->argument, .kind = OPTION_TEXT, .help = texts[i] };
    }
    command.options = options;
    options_help(&command, stdout);
    command.options = NULL;
    return 0;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

int cli_serve(int argc, char **argv)
{
    if (wants_help(argc, argv))
        return help();
    /* The service gets copies, because it reads its arguments again when it reloads, and those of the process list lose
     * their passwords. */
    CLEANUP(arena_done) struct arena arena = { 0 };
    char **words = ARENA_ARRAY(&arena, char *, (size_t)argc + 1);
    for (int i = 0; words && i < argc; i++) {
        words[i] = (char *)arena_copy(&arena, weir_str(argv[i])).ptr;
        if (!words[i])
            return cli_error("out of memory");
        plain_hide_password(argv[i]);
    }
    return words ? server_run(argc, words) : cli_error("out of memory");
}
