/* weir convert: which limiter, and what to do with its file. */
#include <stdio.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/convert.h"
#include "cli/options.h"
#include "cli/plain_text.h"
#include "source/envoy.h"

struct values {
    bool merge;
    int windows;
    const char *tz;
};

static const struct option options[] = {
    { "merge", NULL, OPTION_FLAG, offsetof(struct values, merge), "envoy: several files may name the same domain" },
    { "windows", "epoch|natural", OPTION_CHOICE, offsetof(struct values, windows),
      "envoy: windows are counted from 1970 (epoch), as envoyproxy/ratelimit does, or are those of the calendar" },
    { "tz", "ZONE", OPTION_TEXT, offsetof(struct values, tz),
      "envoy: the time zone of natural windows, such as Asia/Shanghai; UTC" },
    { NULL },
};

static const struct command command = {
    .name = "convert",
    .usage = "hodor FILE | envoy [OPTION]... PATH...",
    .text = "Reads the configuration of another rate limiter and prints equivalent rules, with comments on the "
            "differences.\n\n"
            "  hodor   the Hodor plugin of Drogon, with the proxies that RealIpResolver trusts; "
            "FILE is Drogon's configuration in JSON or YAML (-: stdin)\n"
            "  envoy   envoyproxy/ratelimit; PATH is a file of its configuration, or a folder of such files",
    .footer = "The exit status is 0, or 2 after an error.\n\nExamples:\n  weir convert hodor config.json > rules.yaml\n"
              "  weir convert envoy /etc/ratelimit/config > rules.yaml",
    .options = options,
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

static int convert_envoy(const struct values *values, char **paths, size_t count)
{
    const struct envoy_options how = { values->merge, values->windows == 1, weir_str(values->tz) };
    CLEANUP(buf_done) struct buf out;
    struct weir_error error;
    buf_init(&out, 64 << 20);
    buf_add(&out, SV("# Written by 'weir convert envoy' from"));
    for (size_t i = 0; i < count; i++) {
        buf_char(&out, ' ');
        plain_add(&out, weir_str(paths[i]), SIZE_MAX);
    }
    buf_add(&out, SV(".\n"));
    if (envoy_read((const char *const *)paths, count, &how, &out, &(struct file_version){ 0 }, &error) == 0)
        return cli_print(&out, 0);
    plain_print(weir_str(error.text));
    return EXIT_BAD;
}

int cli_convert(int argc, char **argv)
{
    static const char *const formats[] = { "hodor", "envoy", NULL };
    size_t count;
    struct values values = { 0 };
    int status = options_read(&command, argc, argv, &values, &count);
    if (status >= 0)
        return status;
    if (count == 0)
        return options_error(&command, "the format and a file are required: hodor FILE, envoy PATH...");
    if (values.tz && values.windows != 1)
        return options_error(&command, "--tz needs --windows natural");
    if (strcmp(argv[0], "envoy") == 0)
        return count > 1 ? convert_envoy(&values, argv + 1, count - 1) : options_error(&command, "PATH is required");
    if (strcmp(argv[0], "hodor") != 0)
        return options_unknown(&command, "format", argv[0], formats);
    if (values.merge || values.windows || values.tz)
        return options_error(&command, "--merge, --windows and --tz are options of envoy");
    if (count != 2)
        return count < 2 ? options_error(&command, "FILE is required (-: stdin)")
                         : options_error(&command, "unexpected argument '%s'; only one FILE is allowed", argv[2]);
    return convert_hodor(argv[1]);
}
