/* weir lint: every error of every file. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/plain_text.h"
#include "rules/rules.h"

static const struct command command = {
    .name = "lint",
    .usage = "FILE...",
    .text = "Reads rules files (-: stdin) and prints every error in them, each with its line and what is allowed there. "
            "Advice is printed too, and is not an error.",
    .footer = "The exit status is 0 if all files are valid, 1 if one has an error or cannot be read, 2 for wrong usage.",
};

static bool lint_text(const char *name, sv text)
{
    CLEANUP(buf_done) struct buf out;
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    CLEANUP(rules_freep) struct rules *rules = rules_read(text, &report);
    buf_init(&out, 16 << 20);
    rules_report_print(&report, weir_str(name), true, &out);
    if (out.len > 0)
        plain_print(buf_sv(&out));
    bool good = rules && report.error_count == 0;
    char overrides[40] = "";
    if (good && rules->override_count > 0)
        snprintf(overrides, sizeof overrides, ", %zu %s", rules->override_count,
                 rules->override_count == 1 ? "override" : "overrides");
    if (!rules)
        cli_error("%s: out of memory", name);
    else if (good)
        printf("%s: %zu %s%s, ok\n", name, rules->rule_count, rules->rule_count == 1 ? "rule" : "rules", overrides);
    return good;
}

static bool lint_file(const char *path)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    const char *why;
    if (!cli_read_file(path, &text, &why)) {
        plain_printf("%s: %s", path, why);
        return false;
    }
    return lint_text(cli_file_name(path), buf_sv(&text));
}

int cli_lint(int argc, char **argv)
{
    size_t count;
    bool good = true;
    int status = options_read(&command, argc, argv, NULL, &count);
    if (status >= 0)
        return status;
    if (count == 0)
        return options_error(&command, "FILE is required");
    for (size_t i = 0; i < count; i++)
        good = lint_file(argv[i]) && good;
    return good ? 0 : 1;
}
