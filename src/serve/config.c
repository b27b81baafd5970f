#include "serve/config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/format.h"
#include "redis/address.h"
#include "rules/node.h"
#include "rules/reader.h"
#include "rules/rules_file.h"

const struct config_option config_options[] = {
#define OPTION(name, field, kind, initial, min, max, argument, when, help, text) \
    { name,                                                                      \
      offsetof(struct config, field),                                            \
      sizeof(((struct config *)0)->field),                                       \
      CONFIG_##kind,                                                             \
      initial,                                                                   \
      min,                                                                       \
      max,                                                                       \
      argument,                                                                  \
      CONFIG_##when,                                                             \
      help,                                                                      \
      text },
#include "serve/options.def"
#undef OPTION
    { 0 },
};

enum { OPTION_COUNT = sizeof config_options / sizeof config_options[0] - 1, SHOWN_MAX = 60 };

/* How a sentence begins and ends: "weir.yaml:7: " and "", or "--" and "; see 'weir serve --help'". */
struct origin {
    const char *file; /* NULL: a flag */
    int line;
    bool given[OPTION_COUNT]; /* so far, here */
};

static bool is_text(const struct config_option *option)
{
    return option->kind == CONFIG_TEXT || option->kind == CONFIG_ADDRESS || option->kind == CONFIG_HEADER;
}

static void *field_of(struct config *config, const struct config_option *option)
{
    return (char *)config + option->offset;
}

/* ---- saying what is wrong ---- */

static __attribute__((format(printf, 3, 4))) int fail(const struct origin *origin, struct weir_error *error,
                                                      const char *format, ...)
{
    char text[WEIR_ERROR_MAX / 2];
    FORMAT_ARGUMENTS(text, format);
    if (!origin->file)
        return err_set(error, WEIR_E_INVALID, "%s; see 'weir serve --help'", text);
    return err_set(error, WEIR_E_INVALID, "%s:%d: %s", origin->file, origin->line, text);
}

static int fail_unknown(const struct origin *origin, sv name, struct weir_error *error)
{
    const char *names[OPTION_COUNT + 1] = { NULL };
    for (size_t i = 0; i < OPTION_COUNT; i++)
        names[i] = config_options[i].name;
    const char *dashes = origin->file ? "" : "--", *nearest = word_nearest(name, names);
    if (!nearest)
        return fail(origin, error, "unknown option %s%.*s", dashes, SV_SHOWN(name, SHOWN_MAX));
    return fail(origin, error, "unknown option %s%.*s (did you mean %s%s?)", dashes, SV_SHOWN(name, SHOWN_MAX), dashes,
                nearest);
}

/* ---- one value ---- */

static const struct config_option *find_option(sv name)
{
    for (const struct config_option *option = config_options; option->name; option++)
        if (sv_eq(weir_str(option->name), name))
            return option;
    return NULL;
}

static int set_option(struct config *config, struct origin *origin, const struct config_option *option, sv value,
                      struct weir_error *error)
{
    const char *dashes = origin->file ? "" : "--";
    char scratch[CONFIG_ALLOWED_MAX];
    bool *given = &origin->given[option - config_options];
    if (*given)
        return fail(origin, error, "%s%s is given twice; leave out one", dashes, option->name);
    *given = true;
    if (option->offset == offsetof(struct config, cells_keys))
        config->cells_keys_given = true;
    const char *allowed = config_store(option, value, config, scratch);
    if (!allowed)
        return 0;
    /* A text can only have the wrong length; it may hold a password, and is not shown. */
    if (option->kind == CONFIG_TEXT)
        return fail(origin, error, "%s%s: has %zu bytes; allowed: %s", dashes, option->name, value.len, allowed);
    /* So may an address of a store or a database that was given to the wrong option. */
    sv shown = memchr(value.ptr, '@', value.len) ? SV("***") : value;
    return fail(origin, error, "%s%s: '%.*s' is not allowed here; allowed: %s", dashes, option->name,
                SV_SHOWN(shown, SHOWN_MAX), allowed);
}

/* ---- flags ---- */

/* A word without dashes. It may be an address with a password, so that only its beginning is shown. */
static int fail_word(const struct origin *origin, const char *word, struct weir_error *error)
{
    sv head = sv_of(word, strcspn(word, ":"));
    return fail(origin, error, "unexpected argument '%.*s'; a value follows the name of its option",
                SV_SHOWN(head, SHOWN_MAX));
}

static int read_flag(struct config *config, struct origin *flags, int argc, char **argv, int *i, struct weir_error *error)
{
    if (strncmp(argv[*i], "--", 2) != 0 || !argv[*i][2])
        return argv[*i][0] == '-' ? fail(flags, error, "unknown option %.*s", SHOWN_MAX, argv[*i])
                                  : fail_word(flags, argv[*i], error);
    sv rest = weir_str(argv[*i] + 2);
    bool has_value = memchr(rest.ptr, '=', rest.len) != NULL;
    sv name = sv_cut(&rest, '=');
    const struct config_option *option = find_option(name);
    if (sv_eq(name, SV("help")))
        return fail(flags, error, "--help takes no value");
    if (!option)
        return fail_unknown(flags, name, error);
    if (!has_value && ++*i == argc)
        return fail(flags, error, "--%s needs a value (%s)", option->name, option->argument);
    return set_option(config, flags, option, has_value ? rest : weir_str(argv[*i]), error);
}

static int read_flags(struct config *config, struct origin *flags, int argc, char **argv, struct weir_error *error)
{
    int r = 0;
    for (int i = 1; i < argc && r == 0; i++)
        r = read_flag(config, flags, argc, argv, &i, error);
    return r;
}

/* ---- the file ---- */

static int read_item(struct config *config, struct origin *file, const struct origin *flags, const struct node_item *item,
                     struct weir_error *error)
{
    const struct node *key = item->key, *value = item->value;
    file->line = key->line;
    if (key->kind != NODE_SCALAR)
        return fail(file, error, "not the name of an option");
    const struct config_option *option = find_option(key->text);
    if (!option)
        return fail_unknown(file, key->text, error);
    if (option->offset == offsetof(struct config, config))
        return fail(file, error, "a configuration file cannot name another one; --config is for the command line");
    if (value->kind != NODE_SCALAR)
        return fail(file, error, "%s: must be one value, not a list or mapping", option->name);
    if (node_is_null(value))
        return fail(file, error, "%s: has no value; leave out the line for the default", option->name);
    if (!flags->given[option - config_options])
        return set_option(config, file, option, value->text, error);
    /* The flag overrides the file, but the value in the file must be valid, too. */
    CLEANUP(config_done) struct config unused = { 0 };
    return set_option(&unused, file, option, value->text, error);
}

static int read_nodes(struct config *config, struct origin *file, const struct origin *flags, sv text,
                      struct weir_error *error)
{
    CLEANUP(arena_done) struct arena arena = { 0 };
    struct node_error problem;
    const struct node *root = NULL;
    int r = 0;
    file->line = 1;
    if (node_read(text, &arena, &root, &problem) < 0) {
        file->line = problem.line;
        return problem.no_memory ? err_no_memory(error) : fail(file, error, "%s", problem.text);
    }
    if (!root || node_is_null(root))
        return 0;
    if (root->kind != NODE_MAP)
        return fail(file, error, "not a list of options; each line is NAME: VALUE");
    for (const struct node_item *item = root->first; item && r == 0; item = item->next)
        r = read_item(config, file, flags, item, error);
    return r;
}

static int read_file(struct config *config, const struct origin *flags, struct weir_error *error)
{
    struct origin file = { .file = config->config };
    struct file_version version;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    int r = rules_file_read(config->config, &text, &version, error);
    return r < 0 ? r : read_nodes(config, &file, flags, buf_sv(&text), error);
}

/* ---- all together ---- */

static int set_defaults(struct config *config, struct weir_error *error)
{
    char scratch[CONFIG_ALLOWED_MAX];
    for (const struct config_option *option = config_options; option->name; option++)
        if (option->initial && config_store(option, weir_str(option->initial), config, scratch))
            return err_no_memory(error);
    return 0;
}

static int check_listeners(const struct config *config, struct weir_error *error)
{
    if (strcmp(config->http, "off") != 0 || strcmp(config->resp, "off") != 0 || strcmp(config->grpc, "off") != 0 ||
        strcmp(config->admin, "off") != 0)
        return 0;
    return err_set(error, WEIR_E_INVALID,
                   "--http, --resp, --grpc and --admin are all off, so no client could connect; leave out one");
}

/* The store reads it again, after the data folder was made, and does not know the name of the option. */
static int check_counters(const struct config *config, struct weir_error *error)
{
    struct redis_address address;
    struct weir_error why;
    int r = config->counters ? redis_address_read(&address, config->counters, &why) : 0;
    explicit_bzero(&address, sizeof address);
    return r < 0 ? err_set(error, r, "--counters: %s", why.text) : 0;
}

int config_read(struct config *ret, int argc, char **argv, struct weir_error *error)
{
    CLEANUP(config_done) struct config config = { 0 };
    struct origin flags = { 0 };
    int r = set_defaults(&config, error);
    if (r == 0)
        r = read_flags(&config, &flags, argc, argv, error);
    if (r == 0 && config.config)
        r = read_file(&config, &flags, error);
    if (r == 0)
        r = check_listeners(&config, error);
    if (r == 0)
        r = check_counters(&config, error);
    if (r == 0) {
        *ret = config;
        config = (struct config){ 0 };
    }
    return r;
}

void config_done(struct config *config)
{
    if (!config)
        return;
    for (const struct config_option *option = config_options; option->name; option++)
        if (is_text(option))
            free(*(char **)field_of(config, option));
    *config = (struct config){ 0 };
}

/* ---- reloading ---- */

static bool same(const struct config_option *option, struct config *a, struct config *b)
{
    void *x = field_of(a, option), *y = field_of(b, option);
    if (!is_text(option))
        return memcmp(x, y, option->size) == 0;
    const char *s = *(char **)x, *t = *(char **)y;
    return s && t ? strcmp(s, t) == 0 : s == t;
}

static void swap(const struct config_option *option, struct config *a, struct config *b)
{
    char old[sizeof(uint64_t)];
    memcpy(old, field_of(a, option), option->size);
    memcpy(field_of(a, option), field_of(b, option), option->size);
    memcpy(field_of(b, option), old, option->size);
}

static void add_name(char names[CONFIG_NAMES_MAX], const char *name)
{
    size_t len = strlen(names);
    snprintf(names + len, CONFIG_NAMES_MAX - len, "%s%s", len ? ", " : "", name);
}

void config_exchange(struct config *config, struct config *fresh, struct config_changes *ret)
{
    *ret = (struct config_changes){ 0 };
    for (const struct config_option *option = config_options; option->name; option++) {
        if (same(option, config, fresh))
            continue;
        if (option->when == CONFIG_LIVE)
            swap(option, config, fresh);
        add_name(option->when == CONFIG_LIVE ? ret->live : ret->restart, option->name);
    }
}
