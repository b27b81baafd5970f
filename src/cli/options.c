#include "cli/options.h"

#include <stdlib.h>

#include "base/format.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "replay/time_text.h"
#include "rules/reader.h"

enum { HELP_COLUMNS = 80, HELP_INDENT = 24, OPTIONS_MAX = 64, ERROR_BYTES_MAX = 8 << 10 };

static const char *program_of(const struct command *command)
{
    return command->program ? command->program : "weir";
}

int options_error(const struct command *command, const char *format, ...)
{
    char what[ERROR_BYTES_MAX];
    FORMAT_ARGUMENTS(what, format);
    const char *program = program_of(command), *name = command->name;
    plain_printf("%s %s: %s; see '%s %s --help'", program, name, what, program, name);
    return EXIT_BAD;
}

/* Blanks at the start of a line of `text` indent that line and its continuation. Text after two or more blanks within a
 * line is a column: its continuation is indented to where it begins. */
void options_wrap(const char *text, size_t indent, FILE *out)
{
    size_t column = indent, margin = indent;
    bool fresh = true;
    while (*text) {
        if (*text == '\n') {
            fputc('\n', out);
            text++;
            margin = indent + strspn(text, " ");
            text += margin - indent;
            column = margin;
            fprintf(out, "%*s", *text && *text != '\n' ? (int)margin : 0, "");
            fresh = true;
        }
        size_t word = strcspn(text, " \n");
        if (!fresh && column + 1 + word > HELP_COLUMNS) {
            fprintf(out, "\n%*s", (int)margin, "");
            column = margin;
        } else if (!fresh) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, word, out);
        column += word;
        text += word;
        size_t blanks = strspn(text, " ");
        text += blanks;
        fresh = blanks > 1;
        if (fresh) {
            fprintf(out, "%*s", (int)blanks, "");
            column += blanks;
            margin = column;
        }
    }
    fputc('\n', out);
}

static void help_option(const struct option *option, FILE *out)
{
    char head[HELP_COLUMNS];
    int len = snprintf(head, sizeof head, "  --%s%s%s", option->name, option->argument ? " " : "",
                       option->argument ? option->argument : "");
    if (len + 2 > HELP_INDENT)
        fprintf(out, "%s\n%*s", head, HELP_INDENT, "");
    else
        fprintf(out, "%-*s", HELP_INDENT, head);
    options_wrap(option->help, HELP_INDENT, out);
}

void options_help(const struct command *command, FILE *out)
{
    static const struct option help = { .name = "help", .help = "print this help, and exit" };
    fprintf(out, "Usage: %s %s %s\n\n", program_of(command), command->name, command->usage);
    options_wrap(command->text, 0, out);
    fputs("\nOptions:\n", out);
    for (const struct option *option = command->options; option && option->name; option++)
        if (option->help)
            help_option(option, out);
    help_option(&help, out);
    if (command->footer) {
        fputc('\n', out);
        options_wrap(command->footer, 0, out);
    }
}

static const struct option *find_option(const struct command *command, sv name)
{
    for (const struct option *option = command->options; option && option->name; option++)
        if (sv_eq(weir_str(option->name), name))
            return option;
    return NULL;
}

static const char *store_amount(const struct option *option, sv text, void *target, char scratch[AMOUNT_ALLOWED_MAX])
{
    struct amount_range range = {
        .kind = (enum amount_kind)option->kind,
        .min = option->min,
        .max = option->max                     ? option->max
               : option->kind == OPTION_NUMBER ? UINT32_MAX
                                               : UINT64_MAX,
        .bare = option->bare,
    };
    uint64_t n;
    if (amount_read(text, &range, &n) != AMOUNT_GOOD) {
        amount_allowed_text(&range, scratch);
        return scratch;
    }
    *(uint64_t *)target = n;
    return NULL;
}

/* Stores the value of one option. NULL, or what is allowed, in `scratch` or elsewhere. */
static const char *store(const struct option *option, const char *value, void *values, char scratch[AMOUNT_ALLOWED_MAX])
{
    void *target = (char *)values + option->offset;
    sv text = weir_str(value);
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)target = true;
        return NULL;
    case OPTION_TEXT:
        *(const char **)target = value;
        return NULL;
    case OPTION_CHOICE:
        return choice_read(text, option->argument, target) ? NULL : option->argument;
    case OPTION_NUMBER:
    case OPTION_SIZE:
    case OPTION_COUNT:
    case OPTION_LENGTH:
        return store_amount(option, text, target, scratch);
    case OPTION_TIME:
        return when_parse(text, target) ? NULL : "RFC 3339 (2026-03-01T12:00:00Z) or milliseconds since 1970, up to 2112";
    case OPTION_LIST: {
        struct option_list *list = target;
        if (list->count == OPTION_LIST_MAX)
            return "at most 64 of them";
        list->items[list->count++] = value;
        return NULL;
    }
    }
    return NULL;
}

/* Whether the option is given twice, and may not be. */
static bool is_repeated(const struct option *option, bool *given)
{
    bool again = *given && option->kind != OPTION_FLAG && option->kind != OPTION_LIST;
    *given = true;
    return again;
}

int options_unknown(const struct command *command, const char *what, const char *word, const char *const *names)
{
    const char *nearest = word_nearest(weir_str(word), names);
    CLEANUP(buf_done) struct buf allowed;
    buf_init(&allowed, 1000);
    for (size_t i = 0; names[i]; i++)
        buf_printf(&allowed, "%s%s", i ? ", " : "", names[i]);
    return options_error(command, "unknown %s '%s'%s%s%s; allowed: %.*s", what, word, nearest ? " (did you mean " : "",
                         nearest ? nearest : "", nearest ? "?)" : "", SV_FMT(buf_sv(&allowed)));
}

static int unknown_option(const struct command *command, sv name)
{
    const char *names[OPTIONS_MAX + 1] = { NULL };
    for (size_t i = 0; i < OPTIONS_MAX && command->options && command->options[i].name; i++)
        names[i] = command->options[i].name;
    const char *nearest = word_nearest(name, names);
    if (!nearest)
        return options_error(command, "unknown option --%.*s", SV_FMT(name));
    return options_error(command, "unknown option --%.*s (did you mean --%s?)", SV_FMT(name), nearest);
}

/* Reads the option at argv[*i], which begins with two dashes, and moves *i to its last word. */
static int read_one(const struct command *command, int argc, char **argv, int *i, bool given[OPTIONS_MAX], void *values)
{
    sv rest = weir_str(argv[*i] + 2);
    bool has_value = memchr(rest.ptr, '=', rest.len) != NULL;
    sv name = sv_cut(&rest, '=');
    const struct option *option = find_option(command, name);
    if (sv_eq(name, SV("help")) || (option && option->kind == OPTION_FLAG && has_value))
        return options_error(command, "--%.*s takes no value", SV_FMT(name));
    if (!option)
        return unknown_option(command, name);
    const char *value = has_value ? rest.ptr : NULL;
    if (option->kind != OPTION_FLAG && !has_value) {
        if (*i + 1 == argc)
            return options_error(command, "--%s needs a value (%s)", option->name, option->argument);
        value = argv[++*i];
    }
    if (is_repeated(option, &given[option - command->options]))
        return options_error(command, "--%s is given twice; leave out one", option->name);
    char scratch[AMOUNT_ALLOWED_MAX];
    const char *allowed = store(option, value, values, scratch);
    if (allowed)
        return options_error(command, "--%s: '%s' is not allowed here; allowed: %s", option->name, value, allowed);
    return -1;
}

int options_read(const struct command *command, int argc, char **argv, void *values, size_t *ret_count)
{
    size_t count = 0;
    bool options = true, given[OPTIONS_MAX] = { false };
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!options || word[0] != '-' || !word[1]) {
            argv[count++] = argv[i];
        } else if (strcmp(word, "--") == 0) {
            options = false;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            options_help(command, stdout);
            return 0;
        } else if (word[1] != '-') {
            return options_error(command, "unknown option %s", word);
        } else {
            int status = read_one(command, argc, argv, &i, given, values);
            if (status >= 0)
                return status;
        }
    }
    *ret_count = count;
    return -1;
}
