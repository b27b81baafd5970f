/* How a start gets its rules: with the rules of the source, with the example rules where there never were any, or with the
 * copy of the last good rules where the source is away. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "cells/lease.h"
#include "engine/weir.h"
#include "rules/file.h"
#include "serve/embedded.h"
#include "serve/log.h"
#include "serve/rule_sync_internal.h"

static char *path_in(const char *folder, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static int no_memory(struct weir_error *error)
{
    return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
}

/* ---- the copy ---- */

#define MARK "# The last good rules of "

/* Its first line. Rules of another source are nothing to go on with. */
static void add_mark(const struct rule_sync *sync, struct buf *out)
{
    buf_add(out, SV(MARK));
    for (const char *c = sync->name; *c; c++)
        buf_char(out, (unsigned char)*c < ' ' ? '?' : *c);
    buf_add(out, SV("\n"));
}

void rule_sync_write_copy(struct rule_sync *sync)
{
    struct weir_error error = { .code = WEIR_OK };
    struct buf out;
    buf_init(&out, (size_t)RULES_BYTES_MAX + 4096);
    add_mark(sync, &out);
    buf_add(&out,
            SV("# Kept by weir serve, for a start while they are out of reach or bad. What is changed here is lost.\n"));
    buf_add(&out, buf_sv(&sync->text));
    int r = out.failed ? no_memory(&error) : source_write_file(sync->copy, buf_sv(&out), &error);
    buf_done(&out);
    if (r < 0 && !sync->copy_failed)
        log_say(LEVEL_WARNING, "rules", "%s; after a restart while the source is away there would be older rules",
                error.text);
    sync->copy_failed = r < 0;
}

static bool is_copy_of(const struct rule_sync *sync, sv text)
{
    struct buf mark;
    buf_init(&mark, RULES_BYTES_MAX);
    add_mark(sync, &mark);
    bool ours = !mark.failed && sv_starts(text, buf_sv(&mark));
    buf_done(&mark);
    return ours;
}

/* Of the database in the data folder, whatever that was called then. */
static bool is_copy_of_own(sv text)
{
    sv line = sv_cut(&text, '\n'), end = SV("/rules.db");
    return sv_starts(line, SV(MARK "sqlite:")) && line.len > end.len && sv_eq(sv_from(line, line.len - end.len), end);
}

static bool read_copy_text(const struct rule_sync *sync, struct buf *text)
{
    struct file_version version;
    return rules_file_read(sync->copy, text, &version, NULL) == 0;
}

/* NULL: there is none that can be used. */
static struct rules *read_copy(const struct rule_sync *sync)
{
    struct rules_report report = { 0 };
    struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    struct rules *rules =
        read_copy_text(sync, &text) && is_copy_of(sync, buf_sv(&text)) ? rules_read(buf_sv(&text), &report) : NULL;
    if (rules && report.unreadable) {
        rules_free(rules);
        rules = NULL;
    }
    rules_report_done(&report);
    buf_done(&text);
    return rules;
}

/* ---- the first start ---- */

static const struct source_author author_of_examples = { .who = { "weir serve", 10 }, .note = { "example rules", 13 } };
static const struct source_author author_of_copy = { .who = { "weir serve", 10 }, .note = { "from the copy", 13 } };

/* `copy` empty: the examples. Loopback is trusted there, so that a gateway on this host can be tried at once. */
static int fill_database(struct source *source, sv copy, struct weir_error *error)
{
    struct buf out;
    buf_init(&out, 4000);
    int r = source_init(source, &out, error);
    buf_done(&out);
    if (r < 0)
        return r;
    if (copy.len > 0)
        return source_import(source, copy, false, author_of_copy, NULL, error);
    r = source_import(source, sv_of(embedded_rules, embedded_rules_len), false, author_of_examples, NULL, error);
    return r < 0 ? r
                 : source_put_settings(source, SV("{\"trusted_proxies\": [\"127.0.0.0/8\", \"::1\"]}"), author_of_examples,
                                       error);
}

/* Under another name until it is whole. */
static int make_database(const char *path, sv copy, struct weir_error *error)
{
    struct source *source = NULL;
    char *address = NULL;
    if (asprintf(&address, "sqlite:%s.new", path) < 0)
        return no_memory(error);
    const char *new_path = address + strlen("sqlite:");
    unlink(new_path);
    int r = source_open(&source, address, error);
    if (r == 0)
        r = fill_database(source, copy, error);
    source_close(source);
    if (r == 0 && rename(new_path, path) < 0)
        r = err_set(error, WEIR_E_SYSTEM, "%s: cannot be made: %s", path, strerror(errno));
    if (r < 0)
        unlink(new_path);
    free(address);
    return r;
}

/* Rules that somebody made are not to be replaced by examples because their database is gone. */
static int restore_database(const struct rule_sync *sync, const char *path, sv copy, struct weir_error *error)
{
    struct weir_error why = { .code = WEIR_OK };
    int r = make_database(path, copy, &why);
    if (r < 0)
        return err_set(error, r,
                       "%s is missing, and cannot be made from %s, the copy of its last good rules: %.*s; put it back, or "
                       "remove the copy to begin with example rules",
                       path, sync->copy, WEIR_ERROR_MAX / 2, why.text);
    log_say(LEVEL_WARNING, "rules",
            "%s was missing and is made anew from the last good rules in %s; the history is not in it", path, sync->copy);
    return 0;
}

static int first_database(const struct rule_sync *sync, const char *path, struct weir_error *error)
{
    struct buf copy;
    buf_init(&copy, RULES_BYTES_MAX);
    bool known = read_copy_text(sync, &copy) && is_copy_of_own(buf_sv(&copy));
    int r = known ? restore_database(sync, path, buf_sv(&copy), error) : make_database(path, SV(""), error);
    if (r == 0 && !known)
        log_say(LEVEL_INFO, "rules",
                "%s is new and has example rules; change them over the admin listener or with "
                "`weir rules --from sqlite:%s`",
                path, path);
    buf_done(&copy);
    return r;
}

static int name_source(struct rule_sync *sync, const struct config *config, const struct source *source,
                       struct weir_error *error)
{
    sync->is_file = source_is_file(source);
    sync->name = strdup(source_name(source));
    sync->copy = path_in(config->data, "rules.last.yaml");
    return sync->name && sync->copy ? 0 : no_memory(error);
}

int rule_sync_open_source(struct rule_sync *sync, const struct config *config, struct source **ret,
                          struct weir_error *error)
{
    char *own = path_in(config->data, "rules.db"), *address = NULL;
    struct source *source = NULL;
    int r = own && asprintf(&address, "sqlite:%s", own) > 0 ? 0 : no_memory(error);
    if (r == 0)
        r = source_open(&source, config->rules ? config->rules : address, error);
    if (r == 0)
        r = name_source(sync, config, source, error);
    if (r == 0 && !config->rules && access(own, F_OK) < 0 && errno == ENOENT)
        r = first_database(sync, own, error);
    free(own);
    free(address);
    if (r < 0)
        source_close(source);
    else
        *ret = source;
    return r;
}

/* ---- the first rules ---- */

/* With last good versions for bad rules. A file that is missing or no YAML is an error although there is a copy of it:
 * whoever starts the service with it is there, and wants to know. */
static int read_source(const struct rule_sync *sync, struct source *source, const struct rules *last,
                       struct source_reading *ret, struct weir_error *error)
{
    if (!sync->is_file)
        return source_read(source, last, ret, error);
    int r = source_read(source, NULL, ret, error);
    if (r < 0 || !last || ret->problem_count == 0)
        return r;
    source_reading_done(ret);
    return source_read(source, last, ret, error);
}

static int read_rules(struct rule_sync *sync, struct source *source, struct rules **ret, struct weir_error *error)
{
    struct source_reading reading;
    struct weir_error why;
    struct rules *last = read_copy(sync);
    int r = read_source(sync, source, last, &reading, &why);
    if (r == 0) {
        rule_sync_note_problems(sync, reading.problems, reading.problem_count);
        *ret = reading.rules;
        reading.rules = NULL;
        source_reading_done(&reading);
        rules_free(last);
        return 0;
    }
    if (last && !sync->is_file) {
        log_say(LEVEL_WARNING, "source", "%s; starting with the rules of an earlier run in %s", why.text, sync->copy);
        sync->from_copy = true;
        *ret = last;
        return 0;
    }
    rules_free(last);
    const char *more = sync->is_file ? "" : "; there are no rules of an earlier run in the data folder to start with";
    return err_set(error, why.code, "%.*s%s", WEIR_ERROR_MAX - 100, why.text, more);
}

static void on_store(enum weir_store_event event, const char *text, void *data)
{
    (void)data;
    log_say(event == WEIR_STORE_UP ? LEVEL_INFO : LEVEL_WARNING, "store", "%s", text);
}

static void tell_copied(const struct rule_sync *sync, const char *path)
{
    if (weir_cells_copied(sync->weir))
        log_say(LEVEL_WARNING, "cells",
                "%s is a copy of another cells file, or comes from another machine: this is a host of its own from now on; "
                "the counts stay, receipts and slices of the original are void here",
                path);
}

static int open_engine(struct rule_sync *sync, const struct config *config, struct weir_error *error)
{
    char *own = config->cells ? NULL : path_in(config->data, "cells");
    struct weir_options options = { .size = sizeof options,
                                    .rules_text = "rules: []",
                                    .cells_file = config->cells ? config->cells : own,
                                    .cells_keys = config->cells_keys,
                                    .counters = config->counters,
                                    .store_deadline_ms = config->store_deadline_ms,
                                    .store_hosts = config->hosts,
                                    .on_store = on_store };
    sync->has_store = config->counters;
    int r = options.cells_file ? weir_open(&sync->weir, &options, error) : no_memory(error);
    if (r == 0)
        tell_copied(sync, options.cells_file);
    /* An earlier start may have had a store: nobody is to wait for its slices any more. (Unless another service has one.)
     */
    if (r == 0 && !config->counters && !lease_read_news(sync->weir->cells, clock_steady_us()).up)
        lease_tell_news(sync->weir->cells, &(struct lease_news){ .hosts = 1 }, clock_steady_us());
    free(own);
    return r;
}

int rule_sync_first_rules(struct rule_sync *sync, struct source *source, const struct config *config, struct rules **ret,
                          struct weir_error *error)
{
    struct rules *rules;
    int r = read_rules(sync, source, &rules, error);
    if (r < 0)
        return r;
    struct rules *copy = rules_copy(rules);
    r = copy ? open_engine(sync, config, error) : no_memory(error);
    if (r < 0)
        rules_free(rules);
    else
        r = rule_sync_install(sync, rules, error);
    if (r < 0) {
        rules_free(copy);
        return r;
    }
    if (!sync->from_copy)
        rule_sync_write_copy(sync);
    *ret = copy;
    return 0;
}
