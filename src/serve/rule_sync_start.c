/* How a start gets its rules: with the rules of the source, with the example rules where there never were any, or with the
 * copy of the last good rules if the source is unreachable. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/program.h"
#include "engine/handle.h"
#include "serve/embedded.h"
#include "serve/log.h"
#include "serve/rule_sync_internal.h"
#include "serve/table_place.h"
#include "slices/asks.h"

static char *path_in(const char *folder, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* ---- the first start ---- */

static const struct source_author author_of_examples = { .who = SV("weir serve"), .note = SV("example rules") };
static const struct source_author author_of_copy = { .who = SV("weir serve"), .note = SV("from the copy") };

/* `copy` empty: the examples. Loopback is trusted there, so that a gateway on this host can be tried at once. */
static int fill_database(const char *address, sv copy, struct weir_error *error)
{
    CLEANUP(source_closep) struct source *source = NULL;
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, 4000);
    int r = source_open(&source, address, error);
    if (r == 0)
        r = source_init(source, &out, error);
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
    CLEANUP_FREE char *address = NULL;
    if (asprintf(&address, "sqlite:%s.new", path) < 0)
        return err_no_memory(error);
    const char *new_path = address + strlen("sqlite:");
    unlink(new_path);
    int r = fill_database(address, copy, error);
    if (r == 0 && rename(new_path, path) < 0)
        r = err_set(error, WEIR_E_SYSTEM, "cannot create %s: %s", path, strerror(errno));
    if (r < 0)
        unlink(new_path);
    return r;
}

/* A missing database must not replace the rules that users made with examples. */
static int restore_database(const struct rule_sync *sync, const char *path, sv copy, struct weir_error *error)
{
    struct weir_error why = { .code = WEIR_OK };
    int r = make_database(path, copy, &why);
    if (r < 0)
        return err_set(error, r,
                       "%s is missing, and weir cannot create it from %s, the copy of its last good rules: %.*s; restore "
                       "it, or remove the copy to start with example rules",
                       path, sync->copy, WEIR_ERROR_MAX / 2, why.text);
    log_say(LEVEL_WARNING, "rules",
            "%s was missing; weir has created it again from the last good rules in %s, without their history", path,
            sync->copy);
    return 0;
}

static int first_database(const struct rule_sync *sync, const char *path, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf copy;
    buf_init(&copy, RULES_BYTES_MAX);
    if (rule_sync_read_copy_text(sync, &copy) && rule_sync_is_copy_of_own(buf_sv(&copy)))
        return restore_database(sync, path, buf_sv(&copy), error);
    int r = make_database(path, SV(""), error);
    char source[PROGRAM_WORD_BYTES], room[PROGRAM_WORD_BYTES];
    snprintf(source, sizeof source, "sqlite:%s", path);
    if (r == 0)
        log_say(LEVEL_INFO, "rules",
                "%s is new and has example rules; list them with `%s rules list --from %s`, and change them in the "
                "page, over the admin listener or with other verbs of `weir rules`",
                path, program_command(), program_word(source, room));
    return r;
}

static int name_source(struct rule_sync *sync, const struct config *config, const struct source *source,
                       struct weir_error *error)
{
    sync->is_file = source_is_file(source);
    sync->name = strdup(source_name(source));
    sync->copy = path_in(config->data, "rules.last.yaml");
    return sync->name && sync->copy ? 0 : err_no_memory(error);
}

int rule_sync_open_source(struct rule_sync *sync, const struct config *config, struct source **ret,
                          struct weir_error *error)
{
    CLEANUP_FREE char *own = path_in(config->data, "rules.db");
    CLEANUP_FREE char *address = NULL;
    CLEANUP(source_closep) struct source *source = NULL;
    if (!own || asprintf(&address, "sqlite:%s", own) < 0)
        return err_no_memory(error);
    int r = source_open(&source, config->rules ? config->rules : address, error);
    if (r == 0)
        r = name_source(sync, config, source, error);
    if (r == 0 && !config->rules && access(own, F_OK) < 0 && errno == ENOENT)
        r = first_database(sync, own, error);
    if (r == 0)
        *ret = STEAL(source);
    return r;
}

/* ---- the first rules ---- */

/* With last good versions for bad rules. *ret_last: the copy of them, read only if it is needed. A file that is missing or
 * is not YAML is an error although there is a copy of it: the person who starts the service with it is there, and wants to
 * know. */
static int read_source(const struct rule_sync *sync, struct source *source, struct rules **ret_last,
                       struct source_reading *ret, struct weir_error *error)
{
    int r = source_read_rules(source, NULL, ret, error);
    if (r < 0 ? sync->is_file : ret->problem_count == 0)
        return r;
    *ret_last = rule_sync_read_copy(sync);
    /* A source that is unreachable is so also a moment later. */
    if (!*ret_last || (r < 0 && r != WEIR_E_RULES))
        return r;
    if (r == 0)
        source_reading_done(ret);
    return source_read_rules(source, *ret_last, ret, error);
}

static int read_rules(struct rule_sync *sync, struct source *source, struct rules **ret, struct weir_error *error)
{
    struct source_reading reading;
    struct weir_error why;
    CLEANUP(rules_freep) struct rules *last = NULL;
    if (read_source(sync, source, &last, &reading, &why) == 0) {
        rule_sync_note_problems(sync, reading.problems, reading.problem_count);
        *ret = STEAL(reading.rules);
        source_reading_done(&reading);
        return 0;
    }
    if (!last || sync->is_file)
        return err_set(error, why.code, "%.*s%s", WEIR_ERROR_MAX - 100, why.text,
                       sync->is_file ? "" : "; there are no rules of an earlier run in the data folder to start with");
    log_say(LEVEL_WARNING, "source", "%s; starting with the rules of an earlier run in %s", why.text, sync->copy);
    sync->from_copy = true;
    *ret = STEAL(last);
    return 0;
}

static void on_store(enum weir_store_event event, const char *text, void *data)
{
    (void)data;
    log_say(event == WEIR_STORE_UP ? LEVEL_INFO : LEVEL_WARNING, "store", "%s", text);
}

/* A table keeps its size, whatever --cells-keys says later. */
static void tell_size(const struct weir *weir, const struct config *config, const char *path)
{
    uint64_t keys;
    char room[PROGRAM_WORD_BYTES];
    if (!config->cells_keys_given || cells_has_size(weir->cells, (struct cells_size){ .keys = config->cells_keys }, &keys))
        return;
    log_say(
        LEVEL_WARNING, "cells",
        "%s has room for %llu keys, and keeps this size although --cells-keys is %llu; to change it, stop the service and "
        "run: %s cells resize %s --keys %llu",
        path, (unsigned long long)keys, (unsigned long long)config->cells_keys, program_command(), program_word(path, room),
        (unsigned long long)config->cells_keys);
}

static int open_engine(struct rule_sync *sync, const struct config *config, struct weir_error *error)
{
    CLEANUP_FREE char *own = config->cells ? NULL : path_in(config->data, "cells");
    struct weir_options options = { .size = sizeof options,
                                    .rules_text = "rules: []",
                                    .cells_file = config->cells ? config->cells : own,
                                    .cells_keys = config->cells_keys,
                                    .counters = config->counters,
                                    .store_deadline_ms = config->store_deadline_ms,
                                    .store_hosts = config->hosts,
                                    .on_store = on_store };
    sync->has_store = config->counters;
    int r = options.cells_file ? weir_open(&sync->weir, &options, error) : err_no_memory(error);
    if (r < 0)
        return r;
    if (weir_cells_copied(sync->weir))
        table_tell_copied(options.cells_file);
    tell_size(sync->weir, config, options.cells_file);
    cells_disown(sync->weir->cells); /* clients release their slots also after a restart of the service */
    /* An earlier start may have had a store: no decision is to wait for its slices any more. (Unless another service has a
     * store.) */
    if (!config->counters && !lender_status_read(sync->weir->cells, clock_steady_us()).up)
        lender_status_write(sync->weir->cells, &(struct lender_status){ .hosts = 1 }, clock_steady_us());
    return 0;
}

int rule_sync_first_rules(struct rule_sync *sync, struct source *source, const struct config *config, struct rules **ret,
                          struct weir_error *error)
{
    CLEANUP(rules_freep) struct rules *rules = NULL;
    int r = read_rules(sync, source, &rules, error);
    if (r < 0)
        return r;
    CLEANUP(rules_freep) struct rules *shared = rules_share(rules);
    r = open_engine(sync, config, error);
    if (r == 0)
        r = rule_sync_install(sync, STEAL(rules), error);
    if (r < 0)
        return r;
    if (!sync->from_copy)
        rule_sync_write_copy(sync);
    *ret = STEAL(shared);
    return 0;
}
