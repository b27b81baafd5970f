/* Measures what a decision costs that counts in many cells: one rule with several limits beside one with one limit, and
 * several rules that all apply beside one, for subjects that are in the table and for new ones. */
#include <stdio.h>
#include <stdlib.h>

#include "decisions/bench.h"

enum { TEXT_MAX = 1 << 20, USER_DIGITS = 8, USER_LEN = 5 + USER_DIGITS, APPLY_SUBJECTS = 100000 };

#define NEW_EVERY_US (10 * US_PER_MS) /* between two new subjects: the longest limit is a minute */
#define START_US (INT64_C(1800000000) * US_PER_S)

/* A handle with its subjects in the table. */
struct side {
    struct weir *weir;
    uint64_t subjects;
    struct bench_stream stream;
    int64_t now_us;
};

struct world {
    struct side sides[2 * BENCH_SEVERAL];
    struct bench_case cases[2 * BENCH_SEVERAL];
    size_t case_count;
};

/* ---- rules ---- */

/* The limits are wide enough for everything to pass and to be charged. */
static void add_rule(struct buf *out, unsigned number, unsigned limits)
{
    static const char *const kinds[] = { "per: 60s", "algorithm: sliding_window, per: 1s", "calendar: minute",
                                         "algorithm: fixed_window, per: 1s" };
    buf_printf(out, "  - id: rule-%u\n    by: [user]\n    limits:\n", number);
    for (unsigned i = 0; i < limits; i++)
        buf_printf(out, "      - { name: limit-%u, max: %u, %s }\n", i, 100000000 + i, kinds[i % 4]);
}

static char *make_text(unsigned rules, unsigned limits)
{
    struct buf out;
    buf_init(&out, TEXT_MAX);
    buf_add(&out, SV("rules:\n"));
    for (unsigned i = 0; i < rules; i++)
        add_rule(&out, i, limits);
    if (!out.failed)
        return out.ptr;
    buf_done(&out);
    return NULL;
}

/* ---- requests ---- */

struct turn {
    struct weir_request request;
    struct weir_verdict verdict;
    char user[16];
};

static void turn_init(struct turn *turn)
{
    snprintf(turn->user, sizeof turn->user, "user-");
    turn->request = (struct weir_request){
        .method = WEIR_STR("GET"), .path = WEIR_STR("/v1/things"), .user = { turn->user, USER_LEN }, .cost = 1
    };
}

static inline void turn_set(struct turn *turn, uint64_t subject)
{
    uint64_t letters = bench_letters(subject);
    memcpy(turn->user + 5, &letters, USER_DIGITS);
}

static void run_known(struct bench_worker *w, const uint64_t *keys)
{
    const struct side *s = w->subject;
    struct turn turn;
    turn_init(&turn);
    for (unsigned i = 0; i < BENCH_SLICE; i++) {
        turn_set(&turn, keys[i]);
        weir_check(s->weir, &turn.request, w->now_us, &turn.verdict);
        w->taken += turn.verdict.allowed && turn.verdict.applied;
        w->now_us += i % BENCH_TURN == 0;
    }
}

/* Subjects that nobody has asked for before. Time goes on so fast that the cells of earlier ones have decayed. */
static void run_new(struct bench_worker *w, const uint64_t *keys)
{
    struct side *s = w->subject;
    struct turn turn;
    (void)keys;
    turn_init(&turn);
    for (unsigned i = 0; i < BENCH_SLICE; i++, w->now_us += NEW_EVERY_US) {
        turn_set(&turn, s->subjects++);
        weir_check(s->weir, &turn.request, w->now_us, &turn.verdict);
        w->taken += turn.verdict.allowed && turn.verdict.applied;
    }
}

/* ---- the world ---- */

static bool side_init(struct side *s, uint64_t subjects, unsigned rules, unsigned limits)
{
    *s = (struct side){ .subjects = subjects, .now_us = START_US };
    char *text = make_text(rules, limits);
    struct weir_options options = { .size = sizeof options, .rules_text = text, .cells_keys = subjects * rules * limits };
    struct weir_error error;
    bool good = text && weir_open(&s->weir, &options, &error) == 0 &&
                bench_stream_init(&s->stream, NULL, subjects, 1, BENCH_UNIFORM, 1);
    free(text);
    struct turn turn;
    turn_init(&turn);
    for (uint64_t i = 0; good && i < subjects; i++, s->now_us += i % BENCH_TURN == 0) {
        turn_set(&turn, i);
        good = weir_check(s->weir, &turn.request, s->now_us, &turn.verdict) == 0;
    }
    return good;
}

static bool add_side(struct world *w, enum bench_what what, uint64_t keys, uint64_t subjects, unsigned rules,
                     unsigned limits)
{
    bool new = what == BENCH_NEW_LIMITS || what == BENCH_NEW_RULES;
    struct side *s = &w->sides[w->case_count];
    struct bench_kind kind = { .what = what, .keys = keys, .threads = 1, .limits = limits, .rules = rules };
    w->cases[w->case_count++] = (struct bench_case){
        .kind = kind, .run = new ? run_new : run_known, .subject = s, .stream = &s->stream, .clock_us = &s->now_us
    };
    return side_init(s, subjects, rules, limits);
}

static bool add_sides(struct world *w, enum bench_what what, uint64_t keys)
{
    bool ok = true;
    for (unsigned i = 0; ok && i < BENCH_SEVERAL; i++)
        ok = what == BENCH_SEVERAL_LIMITS || what == BENCH_NEW_LIMITS
                 ? add_side(w, what, keys, keys / bench_several_limits[i], 1, bench_several_limits[i])
                 : add_side(w, what, keys, keys, bench_several_rules[i], 1);
    return ok;
}

/* `new` is `what` for subjects that are new. */
static bool measure(struct bench *bench, enum bench_what what, enum bench_what new, uint64_t keys, const char *title)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return false;
    bench_say(bench, "%s: filling tables", title);
    bool ok = add_sides(w, what, keys) && add_sides(w, new, keys);
    if (ok)
        bench_run(bench, w->cases, w->case_count, title);
    for (unsigned i = 0; i < 2 * BENCH_SEVERAL; i++) {
        weir_close(w->sides[i].weir);
        bench_stream_done(&w->sides[i].stream);
    }
    free(w);
    return ok;
}

bool bench_part_limits(struct bench *bench)
{
    const uint64_t sizes[] = { bench->keys_medium, bench->keys_large };
    for (unsigned i = 0; i < 2; i++) {
        char text[BENCH_KEYS_TEXT_MAX], title[BENCH_KEYS_TEXT_MAX + 32];
        bench_keys_text(sizes[i], text);
        snprintf(title, sizeof title, "limits, %s keys", text);
        if (bench_has_memory(bench, sizes[i] * 2 * BENCH_SEVERAL * (48 + 8), title) &&
            !measure(bench, BENCH_SEVERAL_LIMITS, BENCH_NEW_LIMITS, sizes[i], title))
            return false;
    }
    return true;
}

bool bench_part_apply(struct bench *bench)
{
    uint64_t subjects = bench->quick ? APPLY_SUBJECTS / 100 : APPLY_SUBJECTS;
    bench->apply_keys = subjects;
    if (!bench_has_memory(bench, subjects * (1 + 16 + 64) * 2 * 48, "rules that apply"))
        return true;
    return measure(bench, BENCH_SEVERAL_RULES, BENCH_NEW_RULES, subjects, "rules that apply");
}
