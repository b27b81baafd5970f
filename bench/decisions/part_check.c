/* The whole of weir_check: attributes in, verdict out, with few rules and with many, of which one matches. */
#include <stdio.h>
#include <stdlib.h>

#include "decisions/bench.h"

enum {
    SPREAD = 100, /* resources of a service in the paths of the rules */
    LAST = 9999,  /* the rule that matches is the last one, and the same one among few and many */
    TEXT_MAX = 16 << 20,
    PATH_MAX_BYTES = 80,
    USER_DIGITS = 8,
    USER_LEN = 5 + USER_DIGITS,
};

#define START_US (INT64_C(1800000000) * US_PER_S)

/* A handle with its subjects in the table. */
struct subjects {
    struct weir *weir;
    uint64_t count;
    unsigned limits;
    bool all;       /* each subject asks for the path of another rule, else all for that of the last one */
    char *texts[2]; /* few rules, many rules */
    unsigned rules[2], in_force;
    struct bench_stream stream;
    int64_t now_us;
};

/* ---- rules ---- */

static void add_rule(struct buf *out, unsigned number, unsigned limits, uint32_t max)
{
    uint64_t hour = (uint64_t)max * 60 < UINT32_MAX ? (uint64_t)max * 60 : UINT32_MAX;
    uint64_t day = hour * 24 < UINT32_MAX ? hour * 24 : UINT32_MAX;
    buf_printf(out,
               "  - id: service-%u-resource-%u\n"
               "    match: { method: [GET, POST], path: \"/api/v1/service%u/resource%u/#/bundle\" }\n"
               "    by: [user]\n    limits:\n      - { name: minute, max: %u, per: 60s }\n",
               number / SPREAD, number % SPREAD, number / SPREAD, number % SPREAD, max);
    if (limits > 1)
        buf_printf(out,
                   "      - { name: hour, algorithm: sliding_window, max: %llu, per: 1h }\n"
                   "      - { name: day, calendar: day, max: %llu }\n",
                   (unsigned long long)hour, (unsigned long long)day);
}

static char *make_text(unsigned rules, unsigned limits, uint32_t max)
{
    struct buf out;
    buf_init(&out, TEXT_MAX);
    buf_add(&out, SV("rules:\n"));
    for (unsigned i = 0; i + 1 < rules; i++)
        add_rule(&out, i, limits, max);
    add_rule(&out, LAST, limits, max);
    if (!out.failed)
        return out.ptr;
    buf_done(&out);
    return NULL;
}

/* Returns the end. */
static inline char *put_sv(char *to, sv text)
{
    memcpy(to, text.ptr, text.len);
    return to + text.len;
}

/* Written anew for each request: a server has it in a buffer that is in the cache. */
static inline sv make_path(char out[PATH_MAX_BYTES], unsigned number)
{
    char *end = number_put(put_sv(out, SV("/api/v1/service")), number / SPREAD);
    end = number_put(put_sv(end, SV("/resource")), number % SPREAD);
    end = put_sv(end, SV("/20417731/bundle?lang=en"));
    return sv_of(out, (size_t)(end - out));
}

/* ---- requests ---- */

static const struct weir_header headers[] = {
    { WEIR_STR("User-Agent"), WEIR_STR("Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/128.0") },
    { WEIR_STR("Accept"), WEIR_STR("application/json") },
    { WEIR_STR("Accept-Encoding"), WEIR_STR("gzip, deflate, br") },
    { WEIR_STR("X-Request-Id"), WEIR_STR("5f0c2a6e8d1b4937") },
};

/* Requests as a server would have them at hand: they are in the cache, and only what tells them apart is written anew. */
struct turn {
    struct weir_request requests[BENCH_TURN];
    struct weir_verdict verdicts[BENCH_TURN];
    char users[BENCH_TURN][16];
    char paths[BENCH_TURN][PATH_MAX_BYTES];
};

static void turn_init(struct turn *turn)
{
    for (unsigned i = 0; i < BENCH_TURN; i++) {
        snprintf(turn->users[i], sizeof turn->users[i], "user-");
        turn->requests[i] = (struct weir_request){
            .method = WEIR_STR("GET"),
            .path = make_path(turn->paths[i], LAST),
            .host = WEIR_STR("api.example.com"),
            .ip = WEIR_STR("203.0.113.77"),
            .user = { turn->users[i], USER_LEN },
            .headers = headers,
            .header_count = sizeof headers / sizeof headers[0],
            .cost = 1,
        };
    }
}

/* The last of the rules has another number than its place. */
static inline unsigned path_of(const struct subjects *s, unsigned rule)
{
    return rule + 1 < s->rules[1] ? rule : LAST;
}

static inline void turn_set(struct turn *turn, unsigned i, const struct subjects *s, uint64_t subject)
{
    uint64_t x = bench_letters(subject);
    memcpy(turn->users[i] + 5, &x, USER_DIGITS);
    if (s->all)
        turn->requests[i].path = make_path(turn->paths[i], path_of(s, (unsigned)(subject % s->rules[1])));
}

static void run_single(struct bench_worker *w, const uint64_t *keys)
{
    const struct subjects *s = w->subject;
    struct turn turn;
    turn_init(&turn);
    for (const uint64_t *end = keys + BENCH_SLICE; keys < end; keys += BENCH_TURN, w->now_us++) {
        for (unsigned i = 0; i < BENCH_TURN; i++) {
            turn_set(&turn, i, s, keys[i]);
            weir_check(s->weir, &turn.requests[i], w->now_us, &turn.verdicts[0]);
            w->taken += turn.verdicts[0].allowed && turn.verdicts[0].applied;
        }
    }
}

/* As a gateway in front of a language model does it: twice as much as it costs in the end is held meanwhile. */
static void run_reserve(struct bench_worker *w, const uint64_t *keys)
{
    const struct subjects *s = w->subject;
    struct turn turn;
    struct weir_receipt receipt;
    turn_init(&turn);
    for (unsigned i = 0; i < BENCH_TURN; i++) {
        turn.requests[i].cost = 2;
        turn.requests[i].ttl_ms = 60000;
        turn.requests[i].receipt = &receipt;
    }
    for (const uint64_t *end = keys + BENCH_SLICE; keys < end; keys += BENCH_TURN, w->now_us++) {
        for (unsigned i = 0; i < BENCH_TURN; i++) {
            turn_set(&turn, i, s, keys[i]);
            weir_reserve(s->weir, &turn.requests[i], w->now_us, &turn.verdicts[0]);
            weir_settle(s->weir, &receipt, 1, NULL, 0, w->now_us);
            w->taken += turn.verdicts[0].allowed && turn.verdicts[0].applied;
        }
    }
}

static void run_batch(struct bench_worker *w, const uint64_t *keys)
{
    const struct subjects *s = w->subject;
    struct turn turn;
    turn_init(&turn);
    for (const uint64_t *end = keys + BENCH_SLICE; keys < end; keys += BENCH_TURN, w->now_us++) {
        for (unsigned i = 0; i < BENCH_TURN; i++)
            turn_set(&turn, i, s, keys[i]);
        weir_check_batch(s->weir, turn.requests, BENCH_TURN, w->now_us, turn.verdicts);
        for (unsigned i = 0; i < BENCH_TURN; i++)
            w->taken += turn.verdicts[i].allowed && turn.verdicts[i].applied;
    }
}

/* ---- the world ---- */

static void use_rules(struct subjects *s, unsigned rules)
{
    struct weir_error error;
    const char *text = s->texts[rules == s->rules[1]];
    if (s->in_force == rules)
        return;
    if (weir_set_rules(s->weir, text, strlen(text), &error) < 0)
        abort();
    s->in_force = rules;
}

static void prepare(const struct bench_case *c)
{
    use_rules(c->subject, c->kind.rules);
}

/* Every subject once. */
static void charge_all(struct subjects *s)
{
    struct turn turn;
    turn_init(&turn);
    for (uint64_t i = 0; i < s->count; i += BENCH_TURN, s->now_us++) {
        unsigned n = s->count - i < BENCH_TURN ? (unsigned)(s->count - i) : BENCH_TURN;
        for (unsigned k = 0; k < n; k++)
            turn_set(&turn, k, s, i + k);
        weir_check_batch(s->weir, turn.requests, n, s->now_us, turn.verdicts);
    }
}

static bool subjects_init(struct subjects *s, const struct bench *bench, uint64_t keys, unsigned limits, bool all)
{
    *s = (struct subjects){ .count = keys / limits,
                            .limits = limits,
                            .all = all,
                            .rules = { bench->rules_few, bench->rules_many },
                            .in_force = bench->rules_many,
                            .now_us = START_US };
    uint32_t max = bench_limit(s->count).max;
    for (unsigned i = 0; i < 2; i++)
        if (!(s->texts[i] = make_text(s->rules[i], limits, max)))
            return false;
    struct weir_options options = { .size = sizeof options, .rules_text = s->texts[1], .cells_keys = keys };
    struct weir_error error;
    if (weir_open(&s->weir, &options, &error) < 0 ||
        !bench_stream_init(&s->stream, NULL, s->count, 1, BENCH_UNIFORM, bench->threads))
        return false;
    charge_all(s);
    return true;
}

static void subjects_done(struct subjects *s)
{
    weir_close(s->weir);
    free(s->texts[0]);
    free(s->texts[1]);
    bench_stream_done(&s->stream);
}

struct world {
    struct bench_table table; /* for the decision of one limit, beside it */
    struct bench_stream stream;
    struct subjects one, three, all;
    struct bench_case cases[BENCH_CASES_MAX];
    size_t count;
};

static bool world_init(struct world *w, const struct bench *bench, uint64_t keys)
{
    *w = (struct world){ 0 };
    return bench_table_fresh(&w->table, keys) &&
           bench_stream_init(&w->stream, w->table.pool, keys, 1, BENCH_UNIFORM, bench->threads) &&
           subjects_init(&w->one, bench, keys, 1, false) && subjects_init(&w->three, bench, keys, BENCH_LIMITS, false) &&
           subjects_init(&w->all, bench, keys, BENCH_LIMITS, true);
}

static void world_free(struct world *w)
{
    bench_table_done(&w->table);
    bench_stream_done(&w->stream);
    subjects_done(&w->one);
    subjects_done(&w->three);
    subjects_done(&w->all);
    free(w);
}

static void add(struct world *w, struct subjects *s, struct bench_kind kind)
{
    kind.limits = s->limits;
    kind.what = s->all ? BENCH_CHECK_ALL : BENCH_CHECK;
    for (unsigned batch = 0; batch < 2; batch++) {
        kind.batch = batch;
        w->cases[w->count++] = (struct bench_case){ .kind = kind,
                                                    .run = batch ? run_batch : run_single,
                                                    .prepare = prepare,
                                                    .subject = s,
                                                    .stream = &s->stream,
                                                    .clock_us = &s->now_us };
    }
}

static void add_reserve(struct world *w, struct subjects *s, struct bench_kind kind)
{
    kind.limits = s->limits;
    kind.what = BENCH_RESERVE;
    w->cases[w->count++] = (struct bench_case){
        .kind = kind, .run = run_reserve, .prepare = prepare, .subject = s, .stream = &s->stream, .clock_us = &s->now_us
    };
}

static void add_cases(struct world *w, const struct bench *bench, uint64_t keys)
{
    struct bench_kind kind = { .keys = keys, .threads = 1, .rules = bench->rules_many };
    struct bench_kind decide = kind;
    decide.what = BENCH_DECIDE;
    decide.limits = 1;
    w->cases[w->count++] = (struct bench_case){
        .kind = decide, .run = bench_run_single, .subject = &w->table, .stream = &w->stream, .clock_us = &w->table.now_us
    };
    add(w, &w->three, kind);
    add(w, &w->one, kind);
    add(w, &w->all, kind);
    add_reserve(w, &w->three, kind);
    add_reserve(w, &w->one, kind);
    if (bench->threads > 1) {
        kind.threads = 2;
        add(w, &w->three, kind);
        add(w, &w->one, kind);
        add_reserve(w, &w->three, kind);
        add_reserve(w, &w->one, kind);
        kind.threads = 1;
    }
    kind.rules = bench->rules_few;
    add(w, &w->three, kind);
    add(w, &w->one, kind);
}

bool bench_check(struct bench *bench, uint64_t keys)
{
    char text[BENCH_KEYS_TEXT_MAX], title[BENCH_KEYS_TEXT_MAX + 32];
    bench_keys_text(keys, text);
    snprintf(title, sizeof title, "weir_check, %s keys", text);
    if (!bench_has_memory(bench, keys * (4 * 43 + 8) + (UINT64_C(200) << 20), title))
        return true;
    bench_say(bench, "%s: filling tables", title);
    struct world *w = malloc(sizeof *w);
    if (!w)
        return false;
    bool ok = world_init(w, bench, keys);
    if (ok) {
        add_cases(w, bench, keys);
        bench_run(bench, w->cases, w->count, title);
    }
    world_free(w);
    return ok;
}
