/* Measures what plans and overrides cost a decision: with one rule that has neither, with one that has many overrides (one
 * or none of them for the subject), and with one that has plans. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "decisions/bench.h"

enum { TEXT_MAX = 64 << 20, USER_LEN = 13, SIDES = 4 };

#define START_US (INT64_C(1800000000) * US_PER_S)
#define LIMITS "[{ name: minute, max: 1000000, per: 60s }]"

/* A handle with its subjects in the table. */
struct side {
    enum bench_what what;
    struct weir *weir;
    int64_t now_us;
    const struct world *world;
};

struct world {
    unsigned count;          /* of subjects, and of overrides */
    char (*users)[USER_LEN]; /* not ended by NUL */
    struct bench_stream stream;
    struct side sides[SIDES];
    struct bench_case cases[BENCH_CASES_MAX];
    size_t case_count;
};

/* ---- rules ---- */

static char *make_text(enum bench_what what, unsigned count)
{
    struct buf out;
    buf_init(&out, TEXT_MAX);
    buf_printf(&out, "rules:\n  - { id: api, by: [user], limits: " LIMITS "%s }\n",
               what == BENCH_PLAN ? ", plan: 'header:X-Plan', plans: { free: " LIMITS ", pro: " LIMITS " }" : "");
    if (what == BENCH_OVERRIDE || what == BENCH_NO_OVERRIDE)
        buf_add(&out, SV("overrides:\n"));
    for (unsigned i = 0; (what == BENCH_OVERRIDE || what == BENCH_NO_OVERRIDE) && i < count; i++)
        buf_printf(&out, "  - { rule: api, by: { user: %s-%08u }, limits: " LIMITS ", why: a bench }\n",
                   what == BENCH_OVERRIDE ? "user" : "none", i);
    if (!out.failed)
        return out.ptr;
    buf_done(&out);
    return NULL;
}

/* ---- requests ---- */

static void run_single(struct bench_worker *w, const uint64_t *keys)
{
    static const struct weir_header header = { WEIR_STR("X-Plan"), WEIR_STR("pro") };
    const struct side *s = w->subject;
    struct weir_request request = { .headers = &header, .header_count = 1, .cost = 1 };
    struct weir_verdict verdict;
    for (unsigned i = 0; i < BENCH_SLICE; i++) {
        request.user = (struct weir_str){ s->world->users[keys[i]], USER_LEN };
        weir_check(s->weir, &request, w->now_us, &verdict);
        w->taken += verdict.allowed && verdict.applied;
        w->now_us += i % BENCH_TURN == 0;
    }
}

/* ---- the world ---- */

static bool side_init(struct side *s, enum bench_what what, struct world *w, struct bench *bench)
{
    *s = (struct side){ .what = what, .now_us = START_US, .world = w };
    char *text = make_text(what, w->count);
    struct weir_options options = { .size = sizeof options, .rules_text = text, .cells_keys = w->count };
    struct weir_error error;
    clock_t start = clock();
    bool good = text && weir_open(&s->weir, &options, &error) == 0;
    if (good && what == BENCH_OVERRIDE)
        bench->overrides = (struct bench_overrides){ w->count, 1000.0 * (double)(clock() - start) / CLOCKS_PER_SEC };
    free(text);
    for (unsigned i = 0; good && i < w->count; i++) {
        struct weir_request request = { .user = { w->users[i], USER_LEN }, .cost = 1 };
        struct weir_verdict verdict;
        good = weir_check(s->weir, &request, s->now_us, &verdict) == 0;
    }
    return good;
}

static bool world_init(struct world *w, struct bench *bench, unsigned count)
{
    static const enum bench_what whats[SIDES] = { BENCH_PLAIN, BENCH_NO_OVERRIDE, BENCH_OVERRIDE, BENCH_PLAN };
    w->count = count;
    w->users = calloc(count, sizeof w->users[0]);
    bool good = w->users && bench_stream_init(&w->stream, NULL, count, 1, BENCH_UNIFORM, 1);
    for (unsigned i = 0; good && i < count; i++) {
        char user[USER_LEN + 1];
        snprintf(user, sizeof user, "user-%08u", i);
        memcpy(w->users[i], user, USER_LEN);
    }
    for (unsigned i = 0; good && i < SIDES; i++) {
        good = side_init(&w->sides[i], whats[i], w, bench);
        struct bench_kind kind = { .what = whats[i], .keys = count, .threads = 1, .limits = 1, .rules = 1 };
        w->cases[w->case_count++] = (struct bench_case){
            .kind = kind, .run = run_single, .subject = &w->sides[i], .stream = &w->stream, .clock_us = &w->sides[i].now_us
        };
    }
    return good;
}

static void world_free(struct world *w)
{
    for (unsigned i = 0; i < SIDES; i++)
        weir_close(w->sides[i].weir);
    bench_stream_done(&w->stream);
    free(w->users);
    free(w);
}

bool bench_part_overrides(struct bench *bench)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return false;
    bench_say(bench, "overrides: reading them");
    bool ok = world_init(w, bench, bench->quick ? 10000 : 100000);
    if (ok)
        bench_run(bench, w->cases, w->case_count, "overrides");
    world_free(w);
    return ok;
}
