/* Where the handle's rules come from: text, a file, and the file again when it has changed. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "engine/handle.h"

/* ---- reading ---- */

/* As many whole lines as fit; if not even one does, a part of it. */
static int lines_of(sv all, size_t count, struct weir_error *error)
{
    size_t most = WEIR_ERROR_MAX - 40, room = most;
    all = sv_trim(all);
    if (all.len <= most)
        return err_set(error, WEIR_E_RULES, "%.*s", SV_FMT(all));
    while (room > 0 && all.ptr[room] != '\n')
        room--;
    return err_set(error, WEIR_E_RULES, "%.*s\n… %zu %s in all", SV_FMT(utf8_cut(all, room ? room : most)), count,
                   count == 1 ? "error" : "errors");
}

static int errors_of(const struct rules_report *report, sv name, struct weir_error *error)
{
    struct buf text;
    buf_init(&text, (size_t)RULES_ERRORS_MAX * 1024);
    rules_report_print(report, name, false, &text);
    int r = lines_of(buf_sv(&text), report->error_count, error);
    buf_done(&text);
    return r;
}

int weir_problems_of(const struct rules *rules, struct weir_error *error)
{
    struct buf text;
    buf_init(&text, (size_t)RULES_PROBLEMS_MAX * (RULES_PROBLEM_TEXT_MAX + 1));
    for (size_t i = 0; i < rules->problem_count; i++) {
        buf_add(&text, rules->problems[i]);
        buf_char(&text, '\n');
    }
    int r = rules->problem_count ? lines_of(buf_sv(&text), rules->problem_count, error) : 0;
    buf_done(&text);
    return r;
}

/* The first line that is more than a comment; empty if there is none. */
static sv first_line(sv text)
{
    while (text.len > 0) {
        sv line = sv_trim(sv_cut(&text, '\n'));
        if (sv_starts(line, SV("---")))
            line = sv_trim(sv_from(line, 3));
        if (line.len > 0 && line.ptr[0] != '#')
            return line;
    }
    return (sv){ 0 };
}

static bool is_list(sv line)
{
    return sv_starts(line, SV("[")) || sv_starts(line, SV("- ")) || sv_eq(line, SV("-"));
}

/* Takes over what was read. After errors: if `last` is NULL, *ret is not written; else the bad rules stay as they are in
 * `last`, and *ret is written, too. */
static int judge(struct rules *rules, const struct rules_report *report, sv name, const struct rules *last,
                 struct rules **ret, struct weir_error *error)
{
    int r = 0;
    if (!rules)
        r = err_set(error, WEIR_E_NO_MEMORY, "out of memory for the rules");
    else if (report->error_count)
        r = errors_of(report, name, error);
    bool rest_is_good = r == WEIR_E_RULES && last && !report->unreadable;
    if (rest_is_good && rules_keep_last_good(rules, report, last) < 0)
        r = err_set(error, WEIR_E_NO_MEMORY, "out of memory for the rules");
    *ret = r == 0 || (r == WEIR_E_RULES && rest_is_good) ? rules : NULL;
    if (!*ret)
        rules_free(rules);
    return r;
}

int weir_read_text(sv text, const struct rules *base, struct rules **ret, struct weir_error *error)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    bool list = base && is_list(first_line(text));
    struct rules *rules = list ? rules_read_list(text, base, &report) : rules_read(text, &report);
    int r = judge(rules, &report, SV("rules"), NULL, &rules, error);
    if (r == 0)
        *ret = rules;
    return r;
}

/* Remembers the version even if it is bad, so that it is reported once. */
static int load_file(struct weir *weir, const struct rules *last, struct rules **ret, struct weir_error *error)
{
    struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    *ret = NULL;
    int r = rules_file_read(weir->rules_file, &text, &weir->file, error);
    if (r == 0) {
        CLEANUP(rules_report_done) struct rules_report report = { 0 };
        included_done(&weir->included);
        struct rules *rules = rules_read_file(buf_sv(&text), weir->rules_file, &weir->included, &report);
        included_drop_texts(&weir->included);
        r = judge(rules, &report, weir_str(weir->rules_file), last, ret, error);
    }
    buf_done(&text);
    return r;
}

int weir_read_file(struct weir *weir, struct rules **ret, struct weir_error *error)
{
    struct rules *rules;
    int r = load_file(weir, NULL, &rules, error);
    if (r == 0)
        *ret = rules;
    return r;
}

/* ---- changing ---- */

/* With the problems that their source has reported. */
static int install(struct weir *weir, struct rules *rules, struct weir_error *error)
{
    struct weir_error problems = { .code = WEIR_OK };
    weir_problems_of(rules, &problems);
    int r = weir_install(weir, rules, error);
    if (r == 0)
        weir_set_rules_error(weir, &problems);
    return r;
}

int weir_set_rules(struct weir *weir, const char *text, size_t len, struct weir_error *error)
{
    struct rules *rules;
    pthread_mutex_lock(&weir->lock);
    int r = weir_read_text(sv_of(text, len), ruleset_rules(weir->current->ruleset), &rules, error);
    if (r == 0)
        r = install(weir, rules, error);
    pthread_mutex_unlock(&weir->lock);
    return r;
}

int weir_take_rules(struct weir *weir, struct rules *rules, struct weir_error *error)
{
    pthread_mutex_lock(&weir->lock);
    int r = install(weir, rules, error);
    pthread_mutex_unlock(&weir->lock);
    return r;
}

int weir_rules_error(struct weir *weir, struct weir_error *ret)
{
    pthread_mutex_lock(&weir->error_lock);
    int code = weir->rules_error.code;
    if (ret)
        *ret = weir->rules_error;
    pthread_mutex_unlock(&weir->error_lock);
    return code;
}

void weir_set_rules_error(struct weir *weir, const struct weir_error *error)
{
    pthread_mutex_lock(&weir->error_lock);
    weir->rules_error = *error;
    pthread_mutex_unlock(&weir->error_lock);
}

/* Tried again at each poll, reported once. */
static int cannot_read(struct weir *weir, struct weir_error *error)
{
    bool told = weir->unreadable;
    weir->unreadable = true;
    weir->file = (struct file_version){ 0 };
    if (error->code == WEIR_OK)
        err_set(error, WEIR_E_SYSTEM, "%s: cannot be read: %s; the last good rules stay in force", weir->rules_file,
                strerror(errno));
    weir_set_rules_error(weir, error);
    return told ? 0 : error->code;
}

static int poll_locked(struct weir *weir, struct weir_error *error)
{
    struct rules *rules;
    weir_free_retired(weir);
    enum files_state state = rules_files_look(weir->rules_file, &weir->file, &weir->included);
    if (state == FILES_GONE)
        return cannot_read(weir, error);
    if (state != FILES_CHANGED)
        return 0;
    int r = load_file(weir, ruleset_rules(weir->current->ruleset), &rules, error);
    if (r == WEIR_E_SYSTEM)
        return cannot_read(weir, error);
    weir->unreadable = false;
    if (rules) {
        if (r == 0)
            r = weir_problems_of(rules, error);
        struct weir_error *unsaid = r < 0 ? NULL : error;
        int installed = weir_install(weir, rules, unsaid);
        r = installed < 0 ? installed : r;
    }
    /* The file may be good: it is read again at the next poll. */
    if (r == WEIR_E_NO_MEMORY)
        weir->file = (struct file_version){ 0 };
    weir_set_rules_error(weir, error);
    return r < 0 ? r : 1;
}

int weir_poll(struct weir *weir, struct weir_error *error)
{
    if (!weir->rules_file)
        return 0;
    struct weir_error own = { .code = WEIR_OK };
    pthread_mutex_lock(&weir->lock);
    int r = poll_locked(weir, &own);
    pthread_mutex_unlock(&weir->lock);
    if (r != 0 && weir->options.on_rules)
        weir->options.on_rules(&own, weir->options.on_rules_data);
    if (error && r < 0)
        *error = own;
    return r;
}

/* ---- threads ---- */

/* One that reads the file once, and ends: as long as a process has a thread beside its first, the C library takes locks for
 * its memory and its system calls. */
static void *read_aside(void *ptr)
{
    struct weir *weir = ptr;
    weir_poll(weir, NULL);
    __atomic_store_n(&weir->has_read, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Returns whether weir_poll would do more than look. */
static bool has_changed(const struct weir *weir)
{
    enum files_state state = rules_files_look(weir->rules_file, &weir->file, &weir->included);
    if (state == FILES_GONE)
        return !weir->unreadable;
    /* No thread for each poll while it cannot be read. */
    if (weir->unreadable && access(weir->rules_file, R_OK) != 0)
        return false;
    return state == FILES_CHANGED;
}

/* A child of a fork has the handle, but not the threads. */
static void end_reader(struct weir *weir)
{
    if (weir->reading == getpid())
        pthread_join(weir->reader, NULL);
    weir->reading = 0;
}

int weir_poll_aside(struct weir *weir)
{
    if (!weir->rules_file)
        return 0;
    if (weir->reading == getpid() && !__atomic_load_n(&weir->has_read, __ATOMIC_ACQUIRE))
        return 1;
    end_reader(weir);
    /* Another thread changes the rules: that takes time, too. */
    if (pthread_mutex_trylock(&weir->lock) != 0)
        return 1;
    weir_free_retired(weir);
    bool changed = has_changed(weir);
    pthread_mutex_unlock(&weir->lock);
    if (!changed)
        return 0;
    weir->has_read = false;
    if (thread_start(&weir->reader, read_aside, weir) != 0)
        return weir_poll(weir, NULL); /* waiting is better than missing it */
    weir->reading = getpid();
    return 1;
}

static void *watch(void *ptr)
{
    struct weir *weir = ptr;
    pthread_mutex_lock(&weir->watch_lock);
    while (!weir->stopping) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t ns = (int64_t)until.tv_sec * 1000000000 + until.tv_nsec + (int64_t)weir->options.watch_ms * 1000000;
        until = (struct timespec){ ns / 1000000000, ns % 1000000000 };
        pthread_cond_timedwait(&weir->watch_stop, &weir->watch_lock, &until);
        if (weir->stopping)
            break;
        pthread_mutex_unlock(&weir->watch_lock);
        weir_poll(weir, NULL);
        pthread_mutex_lock(&weir->watch_lock);
    }
    pthread_mutex_unlock(&weir->watch_lock);
    return NULL;
}

int weir_watch_start(struct weir *weir, struct weir_error *error)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&weir->watch_stop, &attributes);
    pthread_condattr_destroy(&attributes);
    int no = thread_start(&weir->watcher, watch, weir);
    if (no != 0) {
        pthread_cond_destroy(&weir->watch_stop);
        return err_set(error, WEIR_E_SYSTEM, "cannot start a thread that watches the rules file: %s", strerror(no));
    }
    weir->watching = getpid();
    return 0;
}

static void end_watcher(struct weir *weir)
{
    if (weir->watching != getpid())
        return;
    pthread_mutex_lock(&weir->watch_lock);
    weir->stopping = true;
    pthread_cond_signal(&weir->watch_stop);
    pthread_mutex_unlock(&weir->watch_lock);
    pthread_join(weir->watcher, NULL);
    pthread_cond_destroy(&weir->watch_stop);
}

void weir_end_threads(struct weir *weir)
{
    end_watcher(weir);
    end_reader(weir);
}
