#include "serve/log.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/utf8.h"
#include "engine/handle.h"
#include "engine/verdict.h"
#include "present/present.h"
#include "serve/config.h"

enum {
    MESSAGE_MAX = 4000,
    LINE_MAX_BYTES = 64 << 10, /* any message, each byte of it escaped */
    /* Bytes of what clients sent. A line must fit into a pipe at once (PIPE_BUF), so the path of a refusal gets the room
     * that the others leave, even if each of its bytes has to be escaped. */
    METHOD_MAX = 24,
    EVENT_MAX = 60,
    VALUE_MAX = 100,
    PATH_MAX_BYTES = 400,
    ESCAPED_MAX = 6,
    NUMBERS_MAX = 120,
    QUIET_S = 60, /* between two lines of log_limited of one kind */
};

static int log_format;
static unsigned refusals_max;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of stderr, and of what follows */
static int64_t refusal_second;
static unsigned refusal_lines;    /* in that second */
static uint64_t refusals_skipped; /* and not told of yet; any thread adds to it */
static uint64_t lines_dropped;    /* others, and not told of yet */

void log_setup(int format, unsigned refusals_per_second)
{
    __atomic_store_n(&log_format, format, __ATOMIC_RELAXED);
    __atomic_store_n(&refusals_max, refusals_per_second, __ATOMIC_RELAXED);
}

static bool is_json(void)
{
    return __atomic_load_n(&log_format, __ATOMIC_RELAXED) == CONFIG_LOG_JSON;
}

/* ---- text ---- */

/* Bytes that are not to be shown become \xHH. */
static void add_plain(struct buf *out, sv text)
{
    while (text.len > 0) {
        size_t n = utf8_length(text), taken = n ? n : 1;
        if (text.ptr[0] == '\n')
            buf_add(out, SV("\\n"));
        else if (text.ptr[0] == '\t')
            buf_add(out, SV("\\t"));
        else if (utf8_shown(text, n))
            buf_add(out, sv_of(text.ptr, n));
        else
            for (size_t i = 0; i < taken; i++)
                buf_printf(out, "\\x%02x", (unsigned char)text.ptr[i]);
        text = sv_from(text, taken);
    }
}

static bool is_word(sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] <= 0x20 || text.ptr[i] == '"' || text.ptr[i] == '=' || text.ptr[i] == '\\')
            return false;
    return text.len > 0;
}

/* name=value, or name="any value"; as JSON the same as a member. */
static void add_field(struct buf *out, bool json, sv name, sv value)
{
    if (json) {
        buf_char(out, ',');
        buf_json(out, name);
        buf_char(out, ':');
        buf_json(out, value);
        return;
    }
    buf_char(out, ' ');
    add_plain(out, name);
    buf_char(out, '=');
    if (is_word(value))
        add_plain(out, value);
    else
        buf_json(out, value);
}

static void add_number(struct buf *out, bool json, const char *name, long long value)
{
    buf_printf(out, json ? ",\"%s\":%lld" : " %s=%lld", name, value);
}

static void begin_line(struct buf *out, bool json, enum log_level level, const char *event, int64_t now_us)
{
    static const char *const levels[] = { "error", "warning", "info" };
    char time[INSTANT_TEXT_MAX];
    instant_text(now_us - now_us % (json ? US_PER_MS : US_PER_S), time);
    buf_init(out, LINE_MAX_BYTES);
    if (json)
        buf_printf(out, "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\"", time, levels[level], event);
    else
        buf_printf(out, "%s %s %s:", time, levels[level], event);
}

static void end_line(struct buf *out, bool json)
{
    buf_add(out, json ? SV("}\n") : SV("\n"));
}

/* The reader of the log may be stuck, and no thread is to wait for it. A descriptor that is ready takes PIPE_BUF bytes at
 * once. */
static bool is_ready(void)
{
    struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };
    return poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT;
}

/* In one piece. */
static bool write_line(const struct buf *line)
{
    return !line->failed && write(STDERR_FILENO, line->ptr, line->len) == (ssize_t)line->len;
}

static void message_line(struct buf *line, enum log_level level, const char *event, sv message, int64_t now_us)
{
    bool json = is_json();
    begin_line(line, json, level, event, now_us);
    if (json) {
        add_field(line, true, SV("message"), message);
    } else {
        buf_char(line, ' ');
        add_plain(line, message);
    }
    if (lines_dropped)
        add_number(line, json, "not_logged", (long long)lines_dropped);
    end_line(line, json);
}

/* The same, of at most PIPE_BUF bytes. */
static void short_line(struct buf *line, enum log_level level, const char *event, sv message, int64_t now_us)
{
    message_line(line, level, event, message, now_us);
    while (line->len > PIPE_BUF && message.len > 0) {
        size_t over = line->len - PIPE_BUF, less = over / ESCAPED_MAX + 1;
        message = utf8_cut(message, message.len > less ? message.len - less : 0);
        buf_done(line);
        message_line(line, level, event, message, now_us);
    }
}

void log_say(enum log_level level, const char *event, const char *format, ...)
{
    char message[MESSAGE_MAX];
    FORMAT_ARGUMENTS(message, format);
    int64_t now_us = clock_now_us();
    bool said = false;
    pthread_mutex_lock(&lock);
    if (is_ready()) {
        CLEANUP(buf_done) struct buf line;
        short_line(&line, level, event, weir_str(message), now_us);
        said = write_line(&line);
    }
    lines_dropped = said ? 0 : lines_dropped + 1;
    pthread_mutex_unlock(&lock);
}

static void say_changed(const struct subject *subject, const char *what, const char *done, struct weir_str author,
                        const char *from)
{
    char whom[SUBJECT_SHOWN_MAX] = "";
    struct buf text;
    buf_over(&text, whom, sizeof whom);
    subject_text(subject, &text);
    log_say(LEVEL_INFO, "change", "rule %.*s: %s of %s %s by %.*s from %s", SV_FMT(subject_rule(subject)), what,
            subject->by_count ? whom : "everybody", done, SV_FMT(author), from);
}

void log_freed(const struct subject *subject, struct weir_str author, const char *from)
{
    say_changed(subject, "counts", "reset", author, from);
}

void log_lifted(const struct subject *subject, struct weir_str author, const char *from)
{
    say_changed(subject, "penalty", "lifted", author, from);
}

void log_penalised(const struct subject *subject, int64_t length_us, struct weir_str author, const char *from)
{
    char span[SPAN_TEXT_MAX], done[SPAN_TEXT_MAX + 20];
    span_text(length_us, span);
    snprintf(done, sizeof done, "begun for %s", span);
    say_changed(subject, "penalty", done, author, from);
}

/* ---- what clients can repeat ---- */

void log_limited(enum seldom kind, const char *format, ...)
{
    static int64_t quiet_until_s[SELDOMS];
    int64_t now_s = clock_steady_us() / US_PER_S, until_s = __atomic_load_n(&quiet_until_s[kind], __ATOMIC_RELAXED);
    if (now_s < until_s || !__atomic_compare_exchange_n(&quiet_until_s[kind], &until_s, now_s + QUIET_S, false,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    char text[MESSAGE_MAX];
    FORMAT_ARGUMENTS(text, format);
    log_say(LEVEL_WARNING, kind == SELDOM_ACCEPT ? "accept" : "mistake", "%s (others like this are not logged for %d s)",
            text, QUIET_S);
}

/* ---- refusals ---- */

static void add_subject(struct buf *out, bool json, const struct subject *subject)
{
    CLEANUP(buf_done) struct buf members;
    buf_init(&members, LINE_MAX_BYTES);
    for (size_t i = 0; i < subject->by_count; i++)
        add_field(&members, json, subject_name(subject, i), utf8_cut(subject_value(subject, i), VALUE_MAX));
    if (json)
        buf_printf(out, ",\"by\":{%s}", members.len ? members.ptr + 1 : "");
    else
        buf_add(out, buf_sv(&members));
}

/* The names are those that OpenTelemetry recommends for logs. */
static void add_trace(struct buf *out, bool json, sv trace)
{
    if (!trace.len)
        return;
    add_field(out, json, SV("trace_id"), sv_of(trace.ptr + TRACE_ID_AT, TRACE_ID_LEN));
    add_field(out, json, SV("span_id"), sv_of(trace.ptr + TRACE_SPAN_AT, TRACE_SPAN_LEN));
    add_field(out, json, SV("trace_flags"), sv_from(trace, TRACE_FLAGS_AT));
}

static void refusal_line(struct buf *line, struct weir *weir, const struct weir_request *request,
                         const struct weir_verdict *verdict, int64_t now_us, sv trace, uint64_t skipped)
{
    bool json = is_json();
    struct subject subject;
    begin_line(line, json, LEVEL_INFO, "refused", now_us);
    if (verdict->applied) {
        add_field(line, json, SV("rule"), weir_str(verdict->rule));
        add_field(line, json, SV("limit"), weir_str(verdict->limit));
    }
    if (verdict->penalty)
        add_field(line, json, SV("reason"), SV("penalty"));
    if (verdict_is_repeated(verdict))
        add_field(line, json, SV("repeated_header"), weir_str(verdict->limit));
    if (weir_subject(weir, request, verdict, &subject))
        add_subject(line, json, &subject);
    sv query = request->path, path = sv_cut(&query, '?'); /* a query may contain secrets */
    if (request->event.len)
        add_field(line, json, SV("of_event"), utf8_cut(request->event, EVENT_MAX));
    if (request->method.len)
        add_field(line, json, SV("method"), utf8_cut(request->method, METHOD_MAX));
    add_trace(line, json, trace);
    size_t room = line->len + NUMBERS_MAX < PIPE_BUF ? (PIPE_BUF - NUMBERS_MAX - line->len) / ESCAPED_MAX : 0;
    if (path.len)
        add_field(line, json, SV("path"), utf8_cut(path, room < PATH_MAX_BYTES ? room : PATH_MAX_BYTES));
    add_number(line, json, "status", verdict->status);
    add_number(line, json, "retry_after_ms", (long long)verdict->retry_after_ms);
    if (skipped)
        add_number(line, json, "not_logged", (long long)skipped);
    end_line(line, json);
}

/* Takes the lock if a line is left in this second and stderr is ready. */
static bool take_turn(int64_t second)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return false;
    /* Threads read their clocks at different moments. */
    if (second > refusal_second || second < refusal_second - 1) {
        refusal_second = second;
        refusal_lines = 0;
    }
    if (refusal_lines < __atomic_load_n(&refusals_max, __ATOMIC_RELAXED) && is_ready()) {
        refusal_lines++;
        return true;
    }
    pthread_mutex_unlock(&lock);
    return false;
}

/* Each thread counts its own: one counter for all threads would slow them down. */
static _Thread_local struct {
    int64_t second;
    bool full;
    uint64_t skipped;
} own;

void log_refusal(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict, int64_t now_us,
                 trace_find *trace, const void *of)
{
    int64_t second = now_us / US_PER_S;
    if (__atomic_load_n(&refusals_max, __ATOMIC_RELAXED) == 0)
        return;
    if (own.second != second) {
        __atomic_fetch_add(&refusals_skipped, own.skipped, __ATOMIC_RELAXED);
        own.second = second;
        own.full = false;
        own.skipped = 0;
    }
    if (own.full || !take_turn(second)) {
        own.full = true;
        own.skipped++;
        return;
    }
    CLEANUP(buf_done) struct buf line;
    uint64_t skipped = __atomic_exchange_n(&refusals_skipped, 0, __ATOMIC_RELAXED);
    sv traceparent = trace_of_headers(request->headers, request->header_count);
    if (!traceparent.len && trace)
        traceparent = trace(of, request);
    refusal_line(&line, weir, request, verdict, now_us, traceparent, skipped);
    if (!write_line(&line))
        own.skipped += skipped + 1;
    pthread_mutex_unlock(&lock);
}
