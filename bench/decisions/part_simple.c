/* Measures the simplest check there is: one rule by key with one limit, by weir_check and by a prepared check, beside the
 * decision with the plan in hand. */
#include <stdio.h>
#include <stdlib.h>

#include "decisions/bench.h"

enum { KEY_DIGITS = 8, KEY_LEN = 5 + KEY_DIGITS, TEXT_MAX = 200 };

#define START_US (INT64_C(1800000000) * US_PER_S)

struct world {
    struct weir *weir;
    struct weir_prepared *prepared, *brief;
    int64_t now_us;
    struct bench_stream numbers; /* of keys */
    struct bench_table table;    /* for the plan in hand */
    struct bench_stream keys;
    struct bench_case cases[BENCH_CASES_MAX];
    size_t case_count;
};

/* ---- requests ---- */

/* Its number in eight letters, without a loop: this is measured along. */
static inline void set_key(char key[KEY_LEN], uint64_t number)
{
    uint64_t x = number;
    x = (x << 16 | x) & UINT64_C(0x0000ffff0000ffff);
    x = (x << 8 | x) & UINT64_C(0x00ff00ff00ff00ff);
    x = ((x << 4 | x) & UINT64_C(0x0f0f0f0f0f0f0f0f)) + UINT64_C(0x6161616161616161);
    memcpy(key + 5, &x, KEY_DIGITS);
}

static void run_check(struct bench_worker *w, const uint64_t *numbers)
{
    const struct world *world = w->subject;
    char key[KEY_LEN] = { 'u', 's', 'e', 'r', '-' };
    struct weir_request request = { .event = WEIR_STR("ocr"), .key = { key, KEY_LEN }, .cost = 1 };
    struct weir_verdict verdict;
    for (unsigned i = 0; i < BENCH_SLICE; i++) {
        set_key(key, numbers[i]);
        weir_check(world->weir, &request, w->now_us, &verdict);
        w->taken += verdict.allowed && verdict.applied;
        w->now_us += i % BENCH_TURN == 0;
    }
}

static inline void run_with(struct bench_worker *w, const uint64_t *numbers, struct weir_prepared *prepared)
{
    char key[KEY_LEN] = { 'u', 's', 'e', 'r', '-' };
    struct weir_verdict verdict;
    for (unsigned i = 0; i < BENCH_SLICE; i++) {
        set_key(key, numbers[i]);
        weir_prepared_check(prepared, (struct weir_str){ key, KEY_LEN }, 1, w->now_us, &verdict);
        w->taken += verdict.allowed && verdict.applied;
        w->now_us += i % BENCH_TURN == 0;
    }
}

static void run_prepared(struct bench_worker *w, const uint64_t *numbers)
{
    run_with(w, numbers, ((const struct world *)w->subject)->prepared);
}

static void run_brief(struct bench_worker *w, const uint64_t *numbers)
{
    run_with(w, numbers, ((const struct world *)w->subject)->brief);
}

/* ---- the world ---- */

static bool world_init(struct world *w, const struct bench *bench, uint64_t keys)
{
    char text[TEXT_MAX];
    snprintf(text, sizeof text, "rules: [{ id: ocr, by: [key], limits: [{ name: minute, max: %llu, per: 60s }] }]",
             (unsigned long long)bench_limit(keys).max);
    struct weir_options options = { .size = sizeof options, .rules_text = text, .cells_keys = keys };
    struct weir_request like = { .event = WEIR_STR("ocr") }, brief = { .event = WEIR_STR("ocr"), .brief = true };
    struct weir_error error;
    w->now_us = START_US;
    if (weir_open(&w->weir, &options, &error) < 0 || weir_prepare(&w->prepared, w->weir, &like, "key", &error) < 0 ||
        weir_prepare(&w->brief, w->weir, &brief, "key", &error) < 0 ||
        !bench_stream_init(&w->numbers, NULL, keys, 1, BENCH_UNIFORM, bench->threads) ||
        !bench_table_fresh(&w->table, keys) ||
        !bench_stream_init(&w->keys, w->table.pool, keys, 1, BENCH_UNIFORM, bench->threads))
        return false;
    char key[KEY_LEN] = { 'u', 's', 'e', 'r', '-' };
    struct weir_verdict verdict;
    for (uint64_t i = 0; i < keys; i++) {
        set_key(key, i);
        weir_prepared_check(w->prepared, (struct weir_str){ key, KEY_LEN }, 1, w->now_us, &verdict);
        w->now_us += i % BENCH_TURN == 0;
    }
    return true;
}

static void world_free(struct world *w)
{
    weir_prepared_free(w->prepared);
    weir_prepared_free(w->brief);
    weir_close(w->weir);
    bench_stream_done(&w->numbers);
    bench_stream_done(&w->keys);
    bench_table_done(&w->table);
    free(w);
}

static void add_cases(struct world *w, uint64_t keys, unsigned threads)
{
    struct bench_kind kind = { .keys = keys, .threads = threads, .limits = 1, .rules = 1 };
    struct bench_case c = { .kind = kind, .subject = w, .stream = &w->numbers, .clock_us = &w->now_us };
    c.kind.what = BENCH_CHECK;
    c.run = run_check;
    w->cases[w->case_count++] = c;
    c.kind.what = BENCH_PREPARED;
    c.run = run_prepared;
    w->cases[w->case_count++] = c;
    c.kind.what = BENCH_BRIEF;
    c.run = run_brief;
    w->cases[w->case_count++] = c;
    kind.what = BENCH_DECIDE;
    w->cases[w->case_count++] = (struct bench_case){
        .kind = kind, .run = bench_run_single, .subject = &w->table, .stream = &w->keys, .clock_us = &w->table.now_us
    };
}

bool bench_simple(struct bench *bench, uint64_t keys)
{
    char text[BENCH_KEYS_TEXT_MAX], title[BENCH_KEYS_TEXT_MAX + 32];
    bench_keys_text(keys, text);
    snprintf(title, sizeof title, "the simplest check, %s keys", text);
    if (!bench_has_memory(bench, keys * (2 * 43 + 24) + (UINT64_C(200) << 20), title))
        return true;
    bench_say(bench, "%s: filling tables", title);
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return false;
    bool ok = world_init(w, bench, keys);
    if (ok) {
        for (unsigned threads = 1; threads <= bench->threads; threads++)
            add_cases(w, keys, threads);
        bench_run(bench, w->cases, w->case_count, title);
    }
    world_free(w);
    return ok;
}
