/* weir sync: keeps a rules file equal to a source, for enforcers that only read files.
 *
 * A turn asks the source whether anything has changed, reads it if so, and replaces the file if its text changes. If
 * anything fails, the file stays as it is, and its readers continue with the last good rules. The file is also the memory
 * of this command: after a restart, the last good version of a row that is bad now comes from there. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/format.h"
#include "base/instant.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/plain_text.h"
#include "source/source.h"

enum {
    POLL_DEFAULT_MS = 1000,
    BACKOFF_MAX_MS = 10000, /* between attempts to reach a source, unless the poll interval is longer */
    PROBLEMS_SHOWN_MAX = 50,
    PROBLEM_BYTES_MAX = 900,
    SAY_AGAIN_MIN_S = 5, /* while a source is unreachable: at each doubling of the age, within these */
    SAY_AGAIN_MAX_S = 3600,
};

/* The file that --start-without-rules writes. A later run sees by its first line that it does not contain the last good
 * rules; OPEN_MARK_OLD is the one that earlier versions wrote. */
#define OPEN_MARK "# Written by weir sync: the source was unreachable, so no limits apply.\n"
#define OPEN_MARK_OLD "# Written by weir sync: the source was out of reach, and nobody is limited.\n"
#define OPEN_TEXT OPEN_MARK "rules: []\n"

_Static_assert((int)PROBLEMS_SHOWN_MAX < (int)RULES_PROBLEMS_MAX, "all that are shown fit into the file");
_Static_assert((int)PROBLEM_BYTES_MAX < (int)RULES_PROBLEM_TEXT_MAX, "each of them fits, too");

struct sync_options {
    const char *from, *to;
    uint64_t poll_ms;
    bool once, start_without_rules;
};

struct sync {
    const struct sync_options *options;
    struct source *source;
    int signal_fd;
    struct rules *last; /* what is in force, as far as it is known */
    struct buf text;    /* what the file has to contain */
    struct stat file;   /* as it was written or read last */
    bool there;         /* `text` is in `file` */
    bool current;       /* the source was read, and had no change since that is not in `text` */
    int64_t good_us;    /* steady clock: when `last` was last known to be what the source has; before that, the start */
    bool reached;       /* the source was read in this run */
    char written[INSTANT_TEXT_MAX]; /* when the file of the last run was */
    int64_t say_at_us;              /* when to say again that the source is unreachable */
    struct buf problems;            /* as they were reported last */
    size_t problem_count;
    bool unreachable; /* and was said to be */
    bool unwritable;
};

#define AT(field) offsetof(struct sync_options, field)

static const struct option options[] = {
    { "from", "SOURCE", OPTION_TEXT, AT(from),
      "where the rules are (default: $WEIR_FROM): sqlite:PATH, mysql://USER@HOST:PORT/DB, postgres://USER@HOST/DB or "
      "file:PATH. Put passwords into $WEIR_DB_PASSWORD, ~/.my.cnf or ~/.pgpass" },
    { "to", "FILE", OPTION_TEXT, AT(to),
      "the rules file (required); an existing file keeps its mode and owner, a new one has mode 0644" },
    { "poll", "TIME", OPTION_LENGTH, AT(poll_ms),
      "how often to check for changes, 100ms to 1h (default 1s); a number without a unit is in milliseconds", .min = 100,
      .max = 3600000, .bare = 1 },
    { "once", NULL, OPTION_FLAG, AT(once), "write the file once, and exit" },
    { "start-without-rules", NULL, OPTION_FLAG, AT(start_without_rules),
      "if the source is unreachable at the start and there is no file of an earlier run: write a file without rules, which "
      "limits nobody, instead of failing" },
    { 0 },
};

static const struct command command = {
    .name = "sync",
    .usage = "--from SOURCE --to FILE [OPTION]...",
    .text =
        "Keeps a rules file equal to the rules of a database, until it is stopped (SIGTERM, SIGINT). The file is replaced "
        "atomically, so nobody ever reads an incomplete one; processes that use the file notice the change themselves.\n\n"
        "An invalid row is reported, here and at the top of the file, and its last valid version stays in force; all other "
        "rows are used. While the database is unreachable the file does not change.",
    .footer =
        "The exit status is 0 if it was stopped, or with --once if the file was written; 1 with --once if the source has "
        "invalid rows; 2 after an error.\n\n"
        "Example:\n  weir sync --from sqlite:rules.db --to /etc/weir/rules.yaml",
    .options = options,
};

static __attribute__((format(printf, 1, 2))) void say(const char *format, ...)
{
    char text[4096];
    FORMAT_ARGUMENTS(text, format);
    plain_say(weir_str(text));
}

static int64_t age_s(const struct sync *s)
{
    return (clock_steady_us() - s->good_us) / US_PER_S;
}

/* ---- the text ---- */

/* Cut to the bytes that a rules file allows for a problem. */
static void add_problem(const struct source_problem *problem, struct buf *line)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    source_problem_print(problem, &text);
    sv shown = sv_trim(buf_sv(&text));
    if (shown.len > PROBLEM_BYTES_MAX)
        shown.len = PROBLEM_BYTES_MAX;
    plain_add(line, shown, PROBLEM_BYTES_MAX);
    buf_char(line, '\n');
}

/* One line for each problem, so that the list can be compared with the previous one. */
static void list_problems(const struct source_reading *reading, struct buf *out)
{
    for (size_t i = 0; i < reading->problem_count && i < PROBLEMS_SHOWN_MAX; i++)
        add_problem(&reading->problems[i], out);
    size_t all = reading->problem_count + reading->unlisted;
    if (all > PROBLEMS_SHOWN_MAX)
        buf_printf(out, "and %zu more; 'weir rules list' has them\n", all - PROBLEMS_SHOWN_MAX);
}

/* Adds the problems to the rules, and so to the file, where enforcers find them. */
static bool keep_problems(struct rules *rules, sv problems)
{
    rules->problems = ARENA_ARRAY(&rules->arena, sv, RULES_PROBLEMS_MAX);
    rules->problem_count = 0;
    while (rules->problems && problems.len > 0 && rules->problem_count < RULES_PROBLEMS_MAX) {
        sv line = sv_cut(&problems, '\n'), copy = arena_copy(&rules->arena, line);
        if (!copy.ptr)
            return false;
        rules->problems[rules->problem_count++] = copy;
    }
    return rules->problems != NULL;
}

static void write_text(const struct sync *s, const struct rules *rules, struct buf *out)
{
    buf_add(out, SV("# Written by weir sync from "));
    plain_add(out, weir_str(source_name(s->source)), PROBLEM_BYTES_MAX);
    buf_add(out, SV(".\n# Change the rules there (weir rules): changes made here are lost.\n"));
    if (rules->problem_count > 0)
        buf_add(out, SV("#\n# Bad rows. A rule that was good before is in force as it was then.\n"));
    rules_write(rules, out);
}

/* ---- the file ---- */

/* Remembers the version of the file. If its text is not what was written, somebody else has changed it meanwhile; then a
 * version is remembered that cannot exist, so that the next turn writes the file again. */
static void remember_file(struct sync *s)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    const char *why;
    if (stat(s->options->to, &s->file) < 0 || !cli_read_file(s->options->to, &text, &why) ||
        !sv_eq(buf_sv(&text), buf_sv(&s->text)))
        s->file = (struct stat){ 0 };
}

static int write_file(struct sync *s, struct weir_error *error)
{
    int code = source_write_file(s->options->to, SV(""), buf_sv(&s->text), error);
    s->there = code == 0;
    if (code < 0)
        return code;
    remember_file(s);
    size_t count = s->last ? rules_in_force(s->last, clock_now_us()) : 0;
    printf("%s: %zu %s\n", s->options->to, count, count == 1 ? "rule" : "rules");
    fflush(stdout);
    return 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Somebody else may have changed or removed the file. */
static void look_at_file(struct sync *s)
{
    struct stat now;
    if (!s->there || (stat(s->options->to, &now) == 0 && same_file(&now, &s->file)))
        return;
    say("%s was changed by somebody else; writing it again", s->options->to);
    s->there = false;
}

/* Reads the file that an earlier run wrote. Returns -1 to go on, or the exit status. */
static int read_file(struct sync *s)
{
    const char *path = s->options->to, *why;
    if (stat(path, &s->file) < 0)
        return errno == ENOENT ? -1 : cli_error("%s: %s", path, strerror(errno));
    if (!S_ISREG(s->file.st_mode))
        return cli_error("%s: not a regular file; it cannot be replaced", path);
    CLEANUP(buf_done) struct buf text = { 0 };
    if (!cli_read_file(path, &text, &why))
        return cli_error("%s: %s", path, why);
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    CLEANUP(rules_freep) struct rules *rules = rules_read(buf_sv(&text), &report);
    bool good = rules && !report.unreadable;
    bool open = good && rules->rule_count == 0 &&
                (sv_starts(buf_sv(&text), SV(OPEN_MARK)) || sv_starts(buf_sv(&text), SV(OPEN_MARK_OLD)));
    if (good && !open) {
        s->last = STEAL(rules);
        s->there = true;
        instant_text(s->file.st_mtim.tv_sec > 0 ? s->file.st_mtim.tv_sec * US_PER_S : 0, s->written);
        buf_add(&s->text, buf_sv(&text));
    }
    if (good || sv_blank(buf_sv(&text)))
        return -1;
    return cli_error("%s exists and is not a rules file; weir sync would overwrite it: remove it, or write to another file",
                     path);
}

/* ---- one turn ---- */

static void say_problems(struct sync *s, const struct buf *problems, size_t count)
{
    if (sv_eq(buf_sv(&s->problems), buf_sv(problems)))
        return;
    sv rest = buf_sv(problems);
    while (rest.len > 0)
        plain_say(sv_cut(&rest, '\n'));
    if (count == 0)
        say("%s: all rows are good again", source_name(s->source));
    buf_clear(&s->problems);
    buf_add(&s->problems, buf_sv(problems));
}

/* Disabled rules stay in the source only: readers of the file do not need them. */
static bool is_disabled(const struct rule *rule)
{
    return rule->kind->disabled;
}

/* Takes over a reading: rules, text and problems. */
static int take_reading(struct sync *s, struct source_reading *reading, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf text, problems;
    buf_init(&text, RULES_BYTES_MAX);
    buf_init(&problems, RULES_BYTES_MAX);
    if (!rules_leave_out(reading->rules, is_disabled))
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    list_problems(reading, &problems);
    if (!keep_problems(reading->rules, buf_sv(&problems)))
        return err_no_memory(error);
    write_text(s, reading->rules, &text);
    if (text.failed || problems.failed)
        return err_set(error, WEIR_E_INVALID, "%s: the rules do not fit into a file of 64 MiB", source_name(s->source));
    say_problems(s, &problems, reading->problem_count);
    s->problem_count = reading->problem_count;
    s->there = s->there && sv_eq(buf_sv(&s->text), buf_sv(&text));
    buf_clear(&s->text);
    buf_add(&s->text, buf_sv(&text));
    rules_free(s->last);
    s->last = STEAL(reading->rules);
    return s->text.failed ? err_no_memory(error) : 0;
}

/* Asks the source, and reads it if it has changed. */
static int follow(struct sync *s, struct weir_error *error)
{
    bool changed = true;
    int code = s->current ? source_changed(s->source, &changed, error) : 0;
    if (code < 0)
        return code;
    if (changed) {
        CLEANUP(source_reading_done) struct source_reading reading = { 0 };
        s->current = false;
        code = source_read_rules(s->source, s->last, &reading, error);
        if (code == 0)
            code = take_reading(s, &reading, error);
        if (code < 0)
            return code;
        s->current = true;
    }
    s->good_us = clock_steady_us();
    s->reached = true;
    return 0;
}

/* The age of rules of an earlier run is not known: the file says when they changed, not when they were last confirmed. */
static void say_age(const struct sync *s, const char *why)
{
    long long age = (long long)age_s(s);
    if (s->reached)
        say("rules are %lld s old: %s; %s does not change", age, why, s->options->to);
    else if (s->last)
        say("rules of the last run (file written %s): %s; unreachable for %lld s, %s does not change", s->written, why, age,
            s->options->to);
    else
        say("no rules yet, and nobody is limited: %s; unreachable for %lld s", why, age);
}

static void plan_saying(struct sync *s)
{
    int64_t wait_s = age_s(s);
    wait_s = wait_s < SAY_AGAIN_MIN_S ? SAY_AGAIN_MIN_S : wait_s > SAY_AGAIN_MAX_S ? SAY_AGAIN_MAX_S : wait_s;
    s->say_at_us = clock_steady_us() + wait_s * US_PER_S;
}

/* Says that the source is unreachable, repeats it from time to time, and says when it is reachable again. */
static void note_source(struct sync *s, int code, const struct weir_error *error)
{
    if (code < 0 && (!s->unreachable || clock_steady_us() >= s->say_at_us)) {
        say_age(s, error->text);
        plan_saying(s);
    } else if (code == 0 && s->unreachable) {
        say("%s is reachable again", source_name(s->source));
    }
    s->unreachable = code < 0;
}

static void note_file(struct sync *s, int code, const struct weir_error *error)
{
    if (code < 0 && !s->unwritable)
        say("%s; retrying", error->text);
    s->unwritable = code < 0;
}

static void turn(struct sync *s)
{
    struct weir_error error = { 0 };
    int code = follow(s, &error);
    note_source(s, code, &error);
    look_at_file(s);
    if (!s->there)
        note_file(s, write_file(s, &error), &error);
}

/* ---- from start to end ---- */

/* The first turn. Without it there may be no rules to continue with. Returns -1 to go on, or the exit status. */
static int start(struct sync *s)
{
    struct weir_error error = { 0 };
    const char *to = s->options->to;
    s->good_us = clock_steady_us();
    int code = follow(s, &error);
    if (code < 0 && s->options->once)
        return cli_fail(&error);
    if (code < 0 && s->there) {
        say("%s; continuing with the rules of the last run (file written %s) in %s", error.text, s->written, to);
    } else if (code < 0 && s->options->start_without_rules) {
        say("%s; there are no rules of an earlier run in %s: nobody is limited until the source is reachable", error.text,
            to);
        buf_add(&s->text, SV(OPEN_TEXT));
    } else if (code < 0) {
        say("%s; there are no rules of an earlier run in %s to continue with; --start-without-rules starts with nobody "
            "limited",
            error.text, to);
        return EXIT_BAD;
    }
    plan_saying(s);
    s->unreachable = code < 0;
    return s->there || write_file(s, &error) == 0 ? -1 : cli_fail(&error);
}

static bool ended(const struct sync *s, int timeout_ms)
{
    struct pollfd fd = { .fd = s->signal_fd, .events = POLLIN };
    return poll(&fd, 1, timeout_ms) > 0;
}

/* Until a signal ends it. */
static void run(struct sync *s)
{
    int poll_ms = (int)s->options->poll_ms, wait_ms = poll_ms;
    for (;;) {
        struct weir_error error = { 0 };
        if (s->unreachable) {
            if (ended(s, wait_ms))
                return;
        } else {
            int code = source_wait(s->source, poll_ms, s->signal_fd, &error);
            if (code < 0)
                note_source(s, code, &error);
        }
        if (ended(s, 0))
            return;
        turn(s);
        int longest_ms = poll_ms > BACKOFF_MAX_MS ? poll_ms : BACKOFF_MAX_MS;
        wait_ms = !s->unreachable ? poll_ms : wait_ms * 2 < longest_ms ? wait_ms * 2 : longest_ms;
    }
}

/* The file must not be the source: it would only lose its comments. */
static int check_other(const struct sync *s, const char *from)
{
    struct stat a, b;
    const char *path = strncmp(from, "file:", 5) == 0 ? from + 5 : from;
    if (stat(path, &a) < 0 || stat(s->options->to, &b) < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
        return -1;
    return cli_error("%s: this is the source itself; write to another file", s->options->to);
}

static void sync_done(struct sync *s)
{
    source_close(s->source);
    buf_done(&s->text);
    buf_done(&s->problems);
    rules_free(s->last);
}

static int sync_all(struct sync *s, const char *from)
{
    struct weir_error error = { 0 };
    int status = check_other(s, from);
    if (status < 0)
        status = read_file(s);
    if (status >= 0)
        return status;
    if (source_open(&s->source, from, &error) < 0)
        return cli_fail(&error);
    status = start(s);
    if (status >= 0)
        return status;
    if (s->options->once)
        return s->problem_count ? 1 : 0;
    run(s);
    return 0;
}

/* Signals are read from a descriptor, so that none is missed and none interrupts a turn. SIGPIPE is ignored: the command
 * continues to follow the source when the reader of its output exits. */
static int open_signals(void)
{
    sigset_t set;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? -1 : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int check_options(const struct sync_options *o, char **words, size_t word_count, const char *from)
{
    if (word_count > 0) {
        plain_hide_password(words[0]);
        return options_error(&command, "unexpected argument '%s'", words[0]);
    }
    if (!from[0])
        return options_error(&command, "--from SOURCE (or $WEIR_FROM) is required, such as sqlite:rules.db");
    if (!o->to || !o->to[0])
        return options_error(&command, "--to FILE is required");
    return -1;
}

int cli_sync(int argc, char **argv)
{
    struct sync_options o = { .poll_ms = POLL_DEFAULT_MS };
    size_t count;
    int status = options_read(&command, argc, argv, &o, &count);
    if (status >= 0)
        return status;
    CLEANUP_FREE char *from = plain_address(o.from);
    if (!from)
        return cli_error("out of memory");
    status = check_options(&o, argv, count, from);
    if (status >= 0)
        return status;
    CLEANUP_CLOSE int signal_fd = open_signals();
    if (signal_fd < 0)
        return cli_error("cannot listen for signals: %s", strerror(errno));
    CLEANUP(sync_done) struct sync s = { .options = &o, .signal_fd = signal_fd };
    buf_init(&s.text, RULES_BYTES_MAX);
    buf_init(&s.problems, RULES_BYTES_MAX);
    return sync_all(&s, from);
}
