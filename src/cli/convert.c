/* weir convert: which limiter, and what to do with its file. */
#include <stdio.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/convert.h"
#include "cli/options.h"
#include "cli/plain_text.h"

static const struct command command = {
    .name = "convert",
    .usage = "hodor FILE",
    .text = "Reads the configuration of another rate limiter (-: stdin) and prints equivalent rules, with comments on the "
            "differences.\n\n"
            "  hodor   the Hodor plugin of Drogon, with the proxies that RealIpResolver trusts; "
            "FILE is Drogon's configuration in JSON or YAML",
    .footer = "The exit status is 0, or 2 after an error.\n\nExample:\n  weir convert hodor config.json > rules.yaml",
};

/* Prints the lines of `errors`, each after the name of the file. */
static int print_errors(const char *name, sv errors)
{
    while (errors.len > 0) {
        sv line = sv_cut(&errors, '\n');
        plain_printf("%s:%.*s", name, SV_FMT(line));
    }
    return EXIT_BAD;
}

static int convert_hodor(const char *path)
{
    CLEANUP(buf_done) struct buf text = { 0 }, out;
    buf_init(&out, 64 << 20);
    if (!cli_read_named(path, &text))
        return EXIT_BAD;
    CLEANUP(hodor_done) struct hodor hodor;
    if (!hodor_read(&hodor, buf_sv(&text)))
        return print_errors(cli_file_name(path), buf_sv(&hodor.errors));
    hodor_write(&hodor, cli_file_name(path), &out);
    return cli_print(&out, 0);
}

int cli_convert(int argc, char **argv)
{
    size_t count;
    int status = options_read(&command, argc, argv, NULL, &count);
    if (status >= 0)
        return status;
    if (count == 0)
        return options_error(&command, "the format and a file are required: hodor FILE");
    if (strcmp(argv[0], "hodor") != 0)
        return options_error(&command, "unknown format '%s'; allowed: hodor", argv[0]);
    if (count != 2)
        return count < 2 ? options_error(&command, "FILE is required (-: stdin)")
                         : options_error(&command, "unexpected argument '%s'; only one FILE is allowed", argv[2]);
    return convert_hodor(argv[1]);
}
