/* Measures conditions that many rules have: a whole weir_check with many rules for values of a header beside as many
 * routes, and with many regexes that do not match beside one. One rule more, by user, always applies, so that each decision
 * is charged. */
#include <stdio.h>
#include <stdlib.h>

#include "decisions/bench.h"

enum { TEXT_MAX = 16 << 20, USER_LEN = 13, SUBJECTS = 1000, SIDES = 4 };

#define START_US (INT64_C(1800000000) * US_PER_S)
#define LIMITS "[{ name: minute, max: 1000000, per: 60s }]"

struct side {
    struct weir *weir;
    int64_t now_us;
    const struct world *world;
};

struct world {
    char users[SUBJECTS][USER_LEN + 1];
    struct bench_stream stream;
    struct side sides[SIDES];
    struct bench_case cases[SIDES];
    size_t case_count;
};

/* ---- rules ---- */

static void add_rule(struct buf *out, enum bench_what what, unsigned i)
{
    buf_printf(out, "  - { id: rule-%u, by: [user], limits: " LIMITS ", match: ", i);
    if (what == BENCH_ROUTES)
        buf_printf(out, "{ path: '/api/v1/service%u/#/bundle' } }\n", i);
    else if (what == BENCH_HEADERS)
        buf_printf(out, "{ header: { X-Tenant: tenant-%u } } }\n", i);
    else
        buf_printf(out, "{ path: { regex: '/api/v[0-9]+/service%u/[0-9]+/(bundle|access).*' } } }\n", 100000 + i);
}

static char *make_text(enum bench_what what, unsigned count)
{
    struct buf out;
    buf_init(&out, TEXT_MAX);
    buf_add(&out, SV("rules:\n  - { id: all, by: [user], limits: " LIMITS " }\n"));
    for (unsigned i = 0; i < count; i++)
        add_rule(&out, what, i);
    if (!out.failed)
        return out.ptr;
    buf_done(&out);
    return NULL;
}

/* ---- requests ---- */

static void run_single(struct bench_worker *w, const uint64_t *keys)
{
    static const struct weir_header headers[] = {
        { WEIR_STR("User-Agent"), WEIR_STR("Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/128.0") },
        { WEIR_STR("Accept"), WEIR_STR("application/json") },
        { WEIR_STR("Accept-Encoding"), WEIR_STR("gzip, deflate, br") },
        { WEIR_STR("X-Tenant"), WEIR_STR("tenant-77") },
    };
    const struct side *s = w->subject;
    struct weir_request request = { .method = WEIR_STR("GET"),
                                    .path = WEIR_STR("/api/v1/service77/20417731/bundle?lang=en"),
                                    .host = WEIR_STR("api.example.com"),
                                    .headers = headers,
                                    .header_count = sizeof headers / sizeof headers[0],
                                    .cost = 1 };
    struct weir_verdict verdict;
    for (unsigned i = 0; i < BENCH_SLICE; i++) {
        request.user = (struct weir_str){ s->world->users[keys[i]], USER_LEN };
        weir_check(s->weir, &request, w->now_us, &verdict);
        w->taken += verdict.allowed && verdict.applied;
        w->now_us += i % BENCH_TURN == 0;
    }
}

/* ---- the world ---- */

static bool side_init(struct side *s, enum bench_what what, unsigned rules, const struct world *w)
{
    *s = (struct side){ .now_us = START_US, .world = w };
    char *text = make_text(what, rules);
    struct weir_options options = { .size = sizeof options, .rules_text = text, .cells_keys = 2 * SUBJECTS };
    struct weir_error error;
    bool good = text && weir_open(&s->weir, &options, &error) == 0;
    free(text);
    return good;
}

static bool world_init(struct world *w, unsigned many)
{
    const struct {
        enum bench_what what;
        unsigned rules;
    } sides[SIDES] = { { BENCH_ROUTES, many }, { BENCH_HEADERS, many }, { BENCH_REGEXES, 1 }, { BENCH_REGEXES, many } };
    bool good = bench_stream_init(&w->stream, NULL, SUBJECTS, 1, BENCH_UNIFORM, 1);
    for (unsigned i = 0; i < SUBJECTS; i++)
        snprintf(w->users[i], sizeof w->users[i], "user-%08u", i);
    for (unsigned i = 0; good && i < SIDES; i++) {
        good = side_init(&w->sides[i], sides[i].what, sides[i].rules, w);
        struct bench_kind kind = {
            .what = sides[i].what, .keys = SUBJECTS, .threads = 1, .limits = 1, .rules = sides[i].rules
        };
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
    free(w);
}

bool bench_part_conditions(struct bench *bench)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return false;
    bool ok = world_init(w, BENCH_CONDITIONS);
    if (ok)
        bench_run(bench, w->cases, w->case_count, "conditions");
    world_free(w);
    return ok;
}
