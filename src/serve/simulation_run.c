/* Replays requests with two sets of rules, side by side: so both have seen the same requests wherever it stops. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/instant.h"
#include "replay/pseudonym.h"
#include "serve/simulation.h"

enum {
    LOOK_EVERY = 64,  /* requests or lines between looking at the clock */
    MISSING_MAX = 64, /* headers that are listed */
    SHOWN_MAX = 1000, /* bytes of an attribute of a request that is listed */
};

/* One side. */
struct side {
    struct replay replay;
    struct weir_verdict verdict; /* the last one */
};

struct run {
    struct simulation_task *task;
    struct simulation_asked asked;
    struct side now, then;
    struct sample_copy *sample;
    uint64_t replayed, input_count;
    uint64_t lines;      /* of the log */
    double part;         /* of the input that was replayed */
    const char *stopped; /* why it did not come to the end */
    uint64_t to_refused, to_passed;
    uint64_t was_passed, was_refused, cut; /* in the sample */
    size_t listed;
    struct buf changed;    /* JSON: the requests whose verdict changes */
    struct buf not_judged; /* JSON: rules */
    struct buf missing;    /* JSON: headers */
    struct buf bad;        /* JSON: the first bad lines */
    char first_bad[TRAFFIC_WHY_MAX + 40];
    struct sampled sampled;
};

static void run_free(struct run *run)
{
    if (!run)
        return;
    simulation_asked_done(&run->asked);
    replay_done(&run->now.replay);
    replay_done(&run->then.replay);
    sample_copy_free(run->sample);
    buf_done(&run->changed);
    buf_done(&run->not_judged);
    buf_done(&run->missing);
    buf_done(&run->bad);
    free(run);
}
CLEANUP_POINTER(struct run *, run_free);

static bool is_hashed(const struct run *run)
{
    return run->asked.input == INPUT_SAMPLE && run->task->hashed;
}

/* ---- bounds ---- */

static int64_t cpu_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* Whether to go on, after so many requests or lines. */
static bool has_time(struct run *run, uint64_t count)
{
    if (count % LOOK_EVERY)
        return true;
    if (run->task->cancelled(run->task->data))
        run->stopped = "cancelled";
    else if (cpu_ms() >= SIMULATION_CPU_MS)
        run->stopped = "it has used its 10 s of CPU time";
    else if (clock_steady_us() >= run->task->end_us)
        run->stopped = "the answer is due (the option request)";
    return !run->stopped;
}

/* ---- one request ---- */

static void add_text(struct buf *out, const char *name, sv text)
{
    buf_printf(out, ",\"%s\":", name);
    buf_json(out, text);
}

static void add_verdict(struct buf *out, const char *name, const struct weir_verdict *v)
{
    buf_printf(out, ",\"%s\":{\"allowed\":%s", name, v->allowed ? "true" : "false");
    if (v->applied) {
        add_text(out, "rule", weir_str(v->rule));
        add_text(out, "limit", weir_str(v->limit));
    }
    buf_char(out, '}');
}

static void list_changed(struct run *run, const struct weir_request *request, int64_t now_us)
{
    struct buf *out = &run->changed;
    char time[INSTANT_TEXT_MAX];
    instant_text(now_us, time);
    buf_printf(out, "%s{\"t\":\"%s\"", run->listed++ ? "," : "", time);
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv value = request_get(request, i);
        if (value.len == 0)
            continue;
        buf_printf(out, ",\"%s\":", attribute_table[i].name.ptr);
        buf_json_pseudonym(out, sv_of(value.ptr, value.len < SHOWN_MAX ? value.len : SHOWN_MAX),
                           i == ATTR_IP && is_hashed(run));
    }
    char room[DESCRIPTOR_TEXT_MAX];
    sv descriptor = descriptor_text(request, room);
    if (descriptor.len > 0)
        add_text(out, "descriptor", sv_of(descriptor.ptr, descriptor.len < SHOWN_MAX ? descriptor.len : SHOWN_MAX));
    buf_printf(out, ",\"cost\":%llu", (unsigned long long)request->cost);
    add_verdict(out, "now", &run->now.verdict);
    add_verdict(out, "then", &run->then.verdict);
    buf_char(out, '}');
}

/* 0, or why it cannot be judged. */
static int replay_side(struct side *side, struct weir_request *request, int64_t now_us)
{
    int r = replay_decide(&side->replay, request, now_us, &side->verdict);
    if (r == 0 && !replay_count(&side->replay, request, now_us, &side->verdict))
        r = WEIR_E_NO_MEMORY;
    return r;
}

static int replay_both(struct run *run, struct traffic *traffic)
{
    struct weir_request *request = &traffic->request;
    int r = replay_side(&run->now, request, traffic->now_us);
    if (r == 0)
        r = replay_side(&run->then, request, traffic->now_us);
    if (r < 0)
        return r;
    run->replayed++;
    bool now = run->now.verdict.allowed, then = run->then.verdict.allowed;
    run->to_refused += now && !then;
    run->to_passed += !now && then;
    if (now != then && run->listed < SIMULATION_CHANGED_MAX)
        list_changed(run, request, traffic->now_us);
    return 0;
}

/* ---- the sample ---- */

static int replay_sample(struct run *run)
{
    size_t count = sample_copy_count(run->sample), i = 0;
    for (; i < count && has_time(run, i); i++) {
        sample_copy_read(run->sample, i, &run->sampled);
        int r = replay_both(run, &run->sampled.traffic);
        if (r < 0)
            return simulation_refuse(run->task, 503, NULL, "a request cannot be judged: %s", err_text((enum weir_code)r));
        run->was_passed += run->sampled.allowed;
        run->was_refused += !run->sampled.allowed;
        run->cut += run->sampled.cut;
    }
    run->input_count = count;
    run->part = count ? (double)i / (double)count : 1;
    return 0;
}

static sv header_at(const struct ruleset *ruleset, size_t i)
{
    return i < ruleset_header_count(ruleset) ? ruleset_header(ruleset, i) : (sv){ 0 };
}

/* Headers that the rules of either side look at, and that the sample does not have from its beginning on. */
static void find_missing(struct run *run)
{
    const struct ruleset *sides[] = { run->now.replay.ruleset, run->then.replay.ruleset };
    size_t next[] = { 0, 0 };
    for (int listed = 0; listed < MISSING_MAX;) {
        sv a = header_at(sides[0], next[0]), b = header_at(sides[1], next[1]);
        int order = !a.ptr ? 1 : !b.ptr ? -1 : sv_compare(a, b);
        sv name = order <= 0 ? a : b;
        if (!name.ptr)
            return;
        next[0] += order <= 0;
        next[1] += order >= 0;
        size_t without = sample_copy_without(run->sample, name);
        if (without == 0)
            continue;
        buf_add(&run->missing, listed++ ? SV(",{\"header\":") : SV("{\"header\":"));
        buf_json(&run->missing, name);
        buf_printf(&run->missing, ",\"requests\":%zu}", without);
    }
}

/* ---- a log ---- */

static int bad_line(struct run *run, const char *why)
{
    return simulation_refuse(run->task, 400, NULL, "log: line %llu: %s", (unsigned long long)run->lines, why);
}

/* Clients write what is in an access log, and a log that is rotated or cut ends in half a line. */
static int skip_line(struct run *run, const char *why)
{
    uint64_t before = run->now.replay.totals.bad_lines++;
    run->then.replay.totals.bad_lines++;
    if (before == 0)
        snprintf(run->first_bad, sizeof run->first_bad, "line %llu: %s", (unsigned long long)run->lines, why);
    if (before >= TRAFFIC_BAD_SHOWN)
        return 0;
    buf_printf(&run->bad, "%s{\"line\":%llu", before ? "," : "", (unsigned long long)run->lines);
    add_text(&run->bad, "why", weir_str(why));
    buf_char(&run->bad, '}');
    return 0;
}

/* The line may be changed. */
static int replay_line(struct run *run, char *line, size_t len)
{
    char why[TRAFFIC_WHY_MAX];
    struct traffic *traffic = &run->sampled.traffic;
    bool json = run->asked.input == INPUT_JSON;
    if (!(json ? traffic_from_json : traffic_from_log)(line, len, traffic, why))
        return json || run->asked.strict ? bad_line(run, why) : skip_line(run, why);
    int r = traffic->set_rules ? 0 : replay_both(run, traffic);
    int failed = traffic->set_rules ? bad_line(run, "set_rules is not allowed here; send the rules in `rules`")
                 : r < 0            ? bad_line(run, err_text((enum weir_code)r))
                                    : 0;
    traffic_done(traffic);
    return failed;
}

static int replay_log(struct run *run)
{
    sv rest = run->asked.log;
    CLEANUP_FREE char *line = cleanup_calloc(1, rest.len + 1);
    if (!line)
        return simulation_refuse(run->task, 503, NULL, "out of memory");
    while (rest.len > 0 && has_time(run, run->lines)) {
        sv text = sv_cut(&rest, '\n');
        run->lines++;
        if (text.len > 0 && text.ptr[text.len - 1] == '\r')
            text.len--;
        if (sv_blank(text))
            continue;
        memcpy(line, text.ptr, text.len);
        if (replay_line(run, line, text.len) < 0)
            return -1;
    }
    if (run->now.replay.totals.bad_lines > 0 && run->replayed == 0)
        return simulation_refuse(run->task, 400, NULL, "log: %s; no line before or after it is one either", run->first_bad);
    run->input_count = run->replayed;
    run->part = run->asked.log.len ? 1 - (double)rest.len / (double)run->asked.log.len : 1;
    return 0;
}

/* ---- the answer ---- */

static void add_count(struct buf *out, const char *name, uint64_t n)
{
    buf_printf(out, ",\"%s\":%llu", name, (unsigned long long)n);
}

static void add_input(const struct run *run, struct buf *out)
{
    static const char *const kinds[] = { "sample", "json", "combined" };
    bool sample = run->asked.input == INPUT_SAMPLE;
    buf_printf(out, "{\"input\":{\"kind\":\"%s\"", kinds[run->asked.input]);
    add_count(out, "replayed", run->replayed);
    buf_printf(out, ",\"part\":%.4f,\"complete\":%s", run->part, run->stopped ? "false" : "true");
    if (run->stopped)
        add_text(out, "stopped", weir_str(run->stopped));
    if (sample) {
        struct sample_span span;
        sample_span(run->task->samples, run->task->sample_count, &span);
        add_count(out, "requests", run->input_count);
        add_count(out, "seen", span.seen);
        add_count(out, "passed", run->was_passed);
        add_count(out, "refused", run->was_refused);
        add_count(out, "cut", run->cut);
        buf_printf(out, ",\"values\":\"%s\"", run->task->hashed ? "hashed" : "plain");
        buf_add(out, SV(",\"missing_headers\":["));
        buf_add(out, buf_sv(&run->missing));
        buf_add(out, SV("],\"not_judged\":["));
        buf_add(out, buf_sv(&run->not_judged));
        buf_char(out, ']');
    } else {
        add_count(out, "lines", run->lines);
        add_count(out, "bad_lines", run->now.replay.totals.bad_lines);
        buf_add(out, SV(",\"bad\":["));
        buf_add(out, buf_sv(&run->bad));
        buf_char(out, ']');
    }
    buf_char(out, '}');
}

static void answer(const struct run *run)
{
    struct buf *out = &run->task->out;
    add_input(run, out);
    buf_add(out, SV(",\"now\":"));
    replay_json(&run->now.replay, run->asked.top, is_hashed(run), out);
    buf_add(out, SV(",\"then\":"));
    replay_json(&run->then.replay, run->asked.top, is_hashed(run), out);
    buf_printf(out, ",\"changed\":{\"to_refused\":%llu,\"to_passed\":%llu,\"requests\":[",
               (unsigned long long)run->to_refused, (unsigned long long)run->to_passed);
    buf_add(out, buf_sv(&run->changed));
    buf_add(out, SV("]}}\n"));
    out->failed = out->failed || run->changed.failed || run->missing.failed || run->not_judged.failed || run->bad.failed;
    run->task->status = 200;
}

/* ---- all of it ---- */

static void note_unjudged(sv rule, const char *why, void *data)
{
    struct run *run = data;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 4096);
    buf_add(&text, SV("{\"rule\":"));
    buf_json(&text, rule);
    add_text(&text, "why", weir_str(why));
    buf_char(&text, '}');
    /* Once, also if the rule is the same in both sets. */
    if (run->not_judged.len && memmem(run->not_judged.ptr, run->not_judged.len, text.ptr, text.len))
        return;
    buf_add(&run->not_judged, run->not_judged.len ? SV(",") : SV(""));
    buf_add(&run->not_judged, buf_sv(&text));
}

/* Takes over the rules. */
static int start_side(struct run *run, struct side *side, struct rules *rules)
{
    static const struct totals_bounds bounds = { SIMULATION_SUBJECTS, SIMULATION_NAMES };
    struct simulation_task *task = run->task;
    if (is_hashed(run) && !pseudonym_rules(&task->key, rules, note_unjudged, run)) {
        rules_free(rules);
        return simulation_refuse(task, 503, NULL, "out of memory");
    }
    if (replay_init(&side->replay, rules, (struct replay_size){ SIMULATION_KEYS, false }, &bounds, &task->error) < 0)
        return simulation_refuse(task, 503, NULL, "cannot simulate: %s", task->error.text);
    return 0;
}

static int start(struct run *run)
{
    struct rules *now = NULL, *then = NULL;
    int r = simulation_ask(run->task, &run->asked);
    if (r == 0)
        r = simulation_rules(run->task, &run->asked, &now, &then);
    if (r < 0)
        return r;
    r = start_side(run, &run->now, now);
    if (r < 0) {
        rules_free(then);
        return r;
    }
    return start_side(run, &run->then, then);
}

static int replay_input(struct run *run)
{
    if (run->asked.input != INPUT_SAMPLE)
        return replay_log(run);
    if (sample_copy_new(&run->sample, run->task->samples, run->task->sample_count) < 0)
        return simulation_refuse(run->task, 503, NULL, "out of memory for a copy of the sample");
    find_missing(run);
    return replay_sample(run);
}

void simulation_run(struct simulation_task *task)
{
    CLEANUP(run_freep) struct run *run = cleanup_calloc(1, sizeof *run);
    if (!run) {
        simulation_refuse(task, 503, NULL, "out of memory");
        return;
    }
    run->task = task;
    buf_init(&run->changed, 1 << 20);
    buf_init(&run->not_judged, 4 << 20);
    buf_init(&run->missing, 4 << 20);
    buf_init(&run->bad, 1 << 20);
    if (start(run) < 0 || replay_input(run) < 0)
        return;
    if (task->cancelled(task->data))
        return;
    answer(run);
}
