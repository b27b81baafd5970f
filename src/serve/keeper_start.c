/* How the keeper starts: with the rules of the source, with the example rules where there never were any, or with the copy
 * of the last good rules where the source is away. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "engine/weir.h"
#include "rules/file.h"
#include "serve/embedded.h"
#include "serve/keeper_parts.h"
#include "serve/log.h"

static char *path_in(const char *folder, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static int no_memory(struct weir_error *error)
{
    return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
}

/* ---- the first start ---- */

/* Loopback is trusted, so that a gateway on this host can be tried at once. */
static int fill_database(struct source *source, struct weir_error *error)
{
    static const struct source_author author = { .who = { "weir serve", 10 }, .note = { "example rules", 13 } };
    struct buf out;
    buf_init(&out, 4000);
    int r = source_init(source, &out, error);
    if (r == 0)
        r = source_import(source, sv_of(embedded_rules, embedded_rules_len), false, author, NULL, error);
    if (r == 0)
        r = source_put_settings(source, SV("{\"trusted_proxies\": [\"127.0.0.0/8\", \"::1\"]}"), author, error);
    buf_done(&out);
    return r;
}

/* Under another name until it is whole. */
static int make_database(const char *path, struct weir_error *error)
{
    struct source *source = NULL;
    char *address = NULL;
    if (asprintf(&address, "sqlite:%s.new", path) < 0)
        return no_memory(error);
    const char *new_path = address + strlen("sqlite:");
    unlink(new_path);
    int r = source_open(&source, address, error);
    if (r == 0)
        r = fill_database(source, error);
    source_close(source);
    if (r == 0 && rename(new_path, path) < 0)
        r = err_set(error, WEIR_E_SYSTEM, "%s: cannot be made: %s", path, strerror(errno));
    if (r < 0)
        unlink(new_path);
    else
        log_say(LEVEL_INFO, "rules",
                "%s is new and has example rules; change them over the admin listener or with "
                "`weir rules --from sqlite:%s`",
                path, path);
    free(address);
    return r;
}

/* "sqlite:DATA/rules.db", which is there from now on. */
static int own_database(const struct config *config, char **ret, struct weir_error *error)
{
    char *path = path_in(config->data, "rules.db"), *address = NULL;
    int r = path && asprintf(&address, "sqlite:%s", path) > 0 ? 0 : no_memory(error);
    if (r == 0 && access(path, F_OK) < 0 && errno == ENOENT)
        r = make_database(path, error);
    free(path);
    if (r == 0)
        *ret = address;
    else
        free(address);
    return r;
}

int keeper_open_source(struct keeper *keeper, const struct config *config, struct source **ret, struct weir_error *error)
{
    char *own = NULL;
    int r = config->rules ? 0 : own_database(config, &own, error);
    if (r == 0)
        r = source_open(ret, own ? own : config->rules, error);
    free(own);
    if (r < 0)
        return r;
    keeper->is_file = source_is_file(*ret);
    keeper->name = strdup(source_name(*ret));
    if (!keeper->is_file)
        keeper->copy = path_in(config->data, "rules.last.yaml");
    return keeper->name && (keeper->is_file || keeper->copy) ? 0 : no_memory(error);
}

/* ---- the copy ---- */

/* Its first line. Rules of another source are nothing to go on with. */
static void add_mark(const struct keeper *keeper, struct buf *out)
{
    buf_add(out, SV("# The last good rules of "));
    for (const char *c = keeper->name; *c; c++)
        buf_char(out, (unsigned char)*c < ' ' ? '?' : *c);
    buf_add(out, SV("\n"));
}

void keeper_write_copy(struct keeper *keeper)
{
    struct weir_error error = { .code = WEIR_OK };
    struct buf out;
    if (!keeper->copy)
        return;
    buf_init(&out, (size_t)RULES_BYTES_MAX + 4096);
    add_mark(keeper, &out);
    buf_add(&out, SV("# Kept by weir serve, for a start while they are out of reach. What is changed here is lost.\n"));
    buf_add(&out, buf_sv(&keeper->text));
    int r = out.failed ? no_memory(&error) : source_write_file(keeper->copy, buf_sv(&out), &error);
    buf_done(&out);
    if (r < 0 && !keeper->copy_failed)
        log_say(LEVEL_WARNING, "rules", "%s; after a restart while the source is away there would be older rules",
                error.text);
    keeper->copy_failed = r < 0;
}

static struct rules *parse_copy(const struct keeper *keeper, sv text)
{
    struct rules_report report = { 0 };
    struct buf mark;
    buf_init(&mark, RULES_BYTES_MAX);
    add_mark(keeper, &mark);
    bool ours = sv_starts(text, buf_sv(&mark));
    buf_done(&mark);
    struct rules *rules = ours ? rules_read(text, &report) : NULL;
    if (rules && report.unreadable) {
        rules_free(rules);
        rules = NULL;
    }
    rules_report_done(&report);
    return rules;
}

/* NULL: there is none that can be used. */
static struct rules *read_copy(const struct keeper *keeper)
{
    struct file_version version;
    struct buf text;
    if (!keeper->copy)
        return NULL;
    buf_init(&text, RULES_BYTES_MAX);
    bool read = rules_file_read(keeper->copy, &text, &version, NULL) == 0;
    struct rules *rules = read ? parse_copy(keeper, buf_sv(&text)) : NULL;
    buf_done(&text);
    return rules;
}

/* ---- the first rules ---- */

static int read_rules(struct keeper *keeper, struct source *source, struct rules **ret, struct weir_error *error)
{
    struct source_reading reading;
    struct weir_error why;
    struct rules *last = read_copy(keeper);
    int r = source_read(source, last, &reading, &why);
    if (r == 0) {
        keeper_note_problems(keeper, reading.problems, reading.problem_count);
        *ret = reading.rules;
        reading.rules = NULL;
        source_reading_done(&reading);
        rules_free(last);
    } else if (last) {
        log_say(LEVEL_WARNING, "source", "%s; starting with the rules of an earlier run in %s", why.text, keeper->copy);
        keeper->from_copy = true;
        *ret = last;
    } else {
        const char *more = keeper->copy ? "; there are no rules of an earlier run in the data folder to start with" : "";
        return err_set(error, why.code, "%.*s%s", WEIR_ERROR_MAX - 100, why.text, more);
    }
    return 0;
}

static int open_engine(struct keeper *keeper, const struct config *config, struct weir_error *error)
{
    char *own = config->cells ? NULL : path_in(config->data, "cells");
    struct weir_options options = { .size = sizeof options,
                                    .rules_text = "rules: []",
                                    .cells_file = config->cells ? config->cells : own,
                                    .cells_keys = config->cells_keys };
    int r = options.cells_file ? weir_open(&keeper->weir, &options, error) : no_memory(error);
    free(own);
    return r;
}

int keeper_first_rules(struct keeper *keeper, struct source *source, const struct config *config, struct rules **ret,
                       struct weir_error *error)
{
    struct rules *rules;
    int r = read_rules(keeper, source, &rules, error);
    if (r < 0)
        return r;
    struct rules *copy = rules_copy(rules);
    r = copy ? open_engine(keeper, config, error) : no_memory(error);
    if (r < 0)
        rules_free(rules);
    else
        r = keeper_install(keeper, rules, error);
    if (r < 0) {
        rules_free(copy);
        return r;
    }
    if (!keeper->from_copy)
        keeper_write_copy(keeper);
    *ret = copy;
    return 0;
}
