/* GET /v1/counts: counts over time. The question waits for a thread that reads the file, and is answered in the loop's. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/instant.h"
#include "serve/admin.h"
#include "serve/counts.h"

enum {
    LAST_DEFAULT_S = 3600,
    LAST_MAX_S = COUNTS_COARSE_MAX * COUNTS_COARSE_S,
    DAY_S = COUNTS_STEPS_MAX * COUNTS_STEP_S,
    POINTS_DEFAULT = 400, /* at most, unless the call names a step */
    LATE_MS_MAX = 20000,
};

/* One call. A call that took too long is answered before its question. */
struct asked {
    struct counts_question question; /* first */
    uv_timer_t late;
    struct http_call *call; /* NULL: answered */
    struct arena arena;
};

/* ---- which points ---- */

struct span {
    int64_t from_s, to_s; /* the last second is part of it */
    uint64_t step_s;
};

static bool read_instant(struct http_call *call, const char *name, int64_t otherwise_s, int64_t *ret_s)
{
    int64_t us;
    sv text = http_parameter(call, name, 0);
    *ret_s = otherwise_s;
    if (!text.ptr)
        return true;
    if (!instant_parse_rfc3339(text, &us) || !clock_valid(us)) {
        http_error(call, 400, "in a URL the + of an offset is written %2B",
                   "the parameter `%s` must be an instant such as 2027-01-31T12:00:00Z", name);
        return false;
    }
    *ret_s = us / US_PER_S;
    return true;
}

static bool read_times(struct http_call *call, int64_t now_s, struct span *ret)
{
    int64_t last_us = LAST_DEFAULT_S * US_PER_S;
    bool has_last = http_parameter(call, "last", 0).ptr, has_from = http_parameter(call, "from", 0).ptr;
    if (!admin_length(call, "last", COUNTS_STEP_S * US_PER_S, LAST_MAX_S * US_PER_S, &last_us) ||
        !read_instant(call, "to", now_s, &ret->to_s) ||
        !read_instant(call, "from", now_s - last_us / US_PER_S, &ret->from_s))
        return false;
    if (has_last && (has_from || http_parameter(call, "to", 0).ptr))
        http_error(call, 400, NULL, "the parameter `last` cannot be combined with `from` and `to`");
    else if (!has_from && http_parameter(call, "to", 0).ptr)
        http_error(call, 400, NULL, "the parameter `to` needs `from`");
    else if (ret->from_s > ret->to_s)
        http_error(call, 400, NULL, "the parameter `from` is later than `to`, or than the present");
    else
        return true;
    return false;
}

static uint64_t points_of(const struct span *span, uint64_t step_s)
{
    return (uint64_t)(counts_step_of(span->to_s, (int64_t)step_s) - counts_step_of(span->from_s, (int64_t)step_s)) /
               step_s +
           1;
}

/* The finest of these that makes few points, and that is kept for so long. */
static uint64_t default_step(const struct span *span, int64_t now_s)
{
    static const unsigned steps_s[] = { 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400 };
    size_t i = 0;
    while (i + 1 < sizeof steps_s / sizeof *steps_s &&
           (points_of(span, steps_s[i]) > POINTS_DEFAULT ||
            (steps_s[i] % COUNTS_COARSE_S != 0 && span->from_s < now_s - DAY_S)))
        i++;
    return steps_s[i];
}

static bool read_span(struct http_call *call, size_t rules, struct span *ret)
{
    int64_t now_s = clock_within(clock_now_us()) / US_PER_S;
    if (!read_times(call, now_s, ret))
        return false;
    int64_t step_us = (int64_t)default_step(ret, now_s) * US_PER_S;
    if (!admin_length(call, "step", COUNTS_STEP_S * US_PER_S, LAST_MAX_S * US_PER_S, &step_us))
        return false;
    if (step_us % (COUNTS_STEP_S * US_PER_S) != 0) {
        http_error(call, 400, NULL, "the parameter `step` must be a multiple of %ds", COUNTS_STEP_S);
        return false;
    }
    ret->step_s = (uint64_t)(step_us / US_PER_S);
    uint64_t most = COUNTS_ASKED_MAX / (rules ? rules : 1), points = points_of(ret, ret->step_s);
    if (most > COUNTS_ASKED_POINTS)
        most = COUNTS_ASKED_POINTS;
    if (points > most)
        http_error(call, 400, "ask for a shorter time, a larger step, or fewer rules",
                   "these are %llu points for each rule; at most %llu are allowed for so many rules",
                   (unsigned long long)points, (unsigned long long)most);
    return points <= most;
}

/* ---- the answer ---- */

static void asked_free(struct asked *asked)
{
    arena_done(&asked->arena);
    buf_done(&asked->question.out);
    free(asked);
}

static void closed(uv_handle_t *late)
{
    asked_free(late->data);
}

static void unavailable(struct http_call *call, const char *why)
{
    call->extra = (struct weir_header){ WEIR_STR("Retry-After"), WEIR_STR("5") };
    http_error(call, 503, NULL, "%s", why);
}

static void done(struct counts_question *question)
{
    struct asked *asked = (struct asked *)question;
    buf_add(&question->out, SV("}\n"));
    if (asked->call && question->result < 0)
        unavailable(asked->call, question->error.text);
    else if (asked->call)
        admin_answer(asked->call, SV(""), &question->out);
    uv_close((uv_handle_t *)&asked->late, closed);
}

static void on_late(uv_timer_t *late)
{
    struct asked *asked = late->data;
    struct http_call *call = asked->call;
    asked->call = NULL;
    http_error(call, 504, NULL, "the file with the counts has not been read in time");
}

/* ---- the question ---- */

/* The names that were asked for; they are valid as long as the call. False: it has been answered. */
static bool read_rules(struct http_call *call, sv ret[COUNTS_ASKED_RULES], size_t *ret_count)
{
    size_t count = 0;
    for (sv id; (id = http_parameter(call, "rule", (unsigned)count)).ptr;) {
        if (count == COUNTS_ASKED_RULES) {
            http_error(call, 400, NULL, "there are more than %d parameters `rule`", COUNTS_ASKED_RULES);
            return false;
        }
        if (id.len == 0 || id.len > WEIR_ID_MAX || memchr(id.ptr, '\0', id.len)) {
            http_error(call, 400, NULL, "the parameter `rule` must be the id of a rule, 1 to %d bytes", WEIR_ID_MAX);
            return false;
        }
        ret[count++] = id;
    }
    *ret_count = count;
    return true;
}

/* NULL: no memory. */
static struct asked *asked_new(struct http_call *call, const struct span *span, const sv *rules, size_t count)
{
    struct asked *asked = calloc(1, sizeof *asked);
    sv *copies = asked ? ARENA_ARRAY(&asked->arena, sv, count + 1) : NULL;
    bool copied = copies;
    for (size_t i = 0; copied && i < count; i++) {
        copies[i] = arena_copy(&asked->arena, rules[i]);
        copied = copies[i].ptr;
    }
    if (!copied) {
        if (asked)
            asked_free(asked);
        return NULL;
    }
    asked->call = call;
    asked->question.done = done;
    asked->question.query = (struct counts_query){
        .start_s = counts_step_of(span->from_s, (int64_t)span->step_s),
        .step_s = (unsigned)span->step_s,
        .points = points_of(span, span->step_s),
        .rule_count = count,
        .rules = copies,
    };
    buf_init(&asked->question.out, COUNTS_ASKED_BYTES);
    return asked;
}

static void write_head(const struct counts_query *query, struct buf *out)
{
    char now[INSTANT_TEXT_MAX], start[INSTANT_TEXT_MAX];
    int64_t now_us = clock_within(clock_now_us());
    instant_text(now_us - now_us % US_PER_MS, now);
    instant_text(query->start_s * US_PER_S, start);
    buf_printf(out, "{\"start\": \"%s\", \"step_s\": %u, \"points\": %zu, \"now\": \"%s\", ", start, query->step_s,
               query->points, now);
}

void admin_counts(struct http_call *call, struct server *server)
{
    static const char *const parameters[] = { "last", "from", "to", "step", "rule", NULL };
    sv rules[COUNTS_ASKED_RULES];
    size_t count;
    struct span span;
    struct loop *loop = call->loop;
    if (!admin_check_parameters(call, parameters) || !read_rules(call, rules, &count) || !read_span(call, count, &span))
        return;
    struct asked *asked = asked_new(call, &span, rules, count);
    if (!asked) {
        unavailable(call, "out of memory");
        return;
    }
    write_head(&asked->question.query, &asked->question.out);
    if (!counts_ask(server->counts, &asked->question)) {
        asked_free(asked);
        unavailable(call, "too many other requests are already waiting for the counts");
        return;
    }
    unsigned late_ms = loop->conns.limits.request_ms / 5 * 4;
    http_suspend(call);
    uv_timer_init(&loop->uv, &asked->late);
    asked->late.data = asked;
    uv_timer_start(&asked->late, on_late, late_ms < LATE_MS_MAX ? late_ms : LATE_MS_MAX, 0);
}
