/* The list of the most refused subjects: the bounds of its counts against an exact model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "refused/most_refused.h"

#define S US_PER_S
#define MS US_PER_MS
#define NOW (INT64_C(1763200000) * S)

/* ---- against a model ---- */

enum { SUBJECTS = 300, PLACES = 20, LISTS = 3, STEPS = 4000 };

struct model {
    uint64_t counts[2][SUBJECTS]; /* by the last bit of the window's number */
    int64_t number;
};

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static struct subject subject_of(unsigned i)
{
    struct subject s = { .key = (i + 1) * UINT64_C(0x9e3779b97f4a7c15), .by_count = 1 };
    s.rule_len = 1;
    s.by[0].name_len = 3;
    int len = snprintf(s.text, sizeof s.text, "rkey%u", i);
    s.by[0].value_len = (uint16_t)(len - 4);
    return s;
}

static void model_go_on(struct model *m, int64_t now_us)
{
    int64_t number = now_us / TOP_WINDOW_US;
    for (; m->number < number; m->number++)
        memset(m->counts[(m->number + 1) & 1], 0, sizeof m->counts[0]);
}

static uint64_t model_count(const struct model *m, unsigned i)
{
    return m->counts[0][i] + m->counts[1][i];
}

static unsigned index_of(const struct subject *s)
{
    char value[20];
    snprintf(value, sizeof value, "%.*s", SV_FMT(subject_value(s, 0)));
    return (unsigned)atoi(value);
}

static void compare(struct top **tops, const struct model *m, int64_t now_us, uint64_t seed)
{
    struct top_list list = { 0 };
    for (int i = 0; i < LISTS; i++) {
        assert_int_equal(top_list_reserve(&list, PLACES), 0);
        top_collect(tops[i], now_us, &list);
    }
    top_list_sort(&list);
    bool listed[SUBJECTS] = { false };
    for (size_t i = 0; i < list.count; i++) {
        const struct top_entry *e = &list.entries[i];
        unsigned who = index_of(&e->subject);
        uint64_t exact = model_count(m, who);
        if (listed[who] || e->count < exact || e->count - e->error > exact || e->error > e->count)
            fail_msg("seed %llu: subject %u: %llu, error %llu, but it was %llu", (unsigned long long)seed, who,
                     (unsigned long long)e->count, (unsigned long long)e->error, (unsigned long long)exact);
        if (i > 0)
            assert_true(list.entries[i - 1].count >= e->count);
        listed[who] = true;
    }
    uint64_t total = 0;
    for (unsigned i = 0; i < SUBJECTS; i++)
        total += model_count(m, i);
    assert_int_equal(list.total, total);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        if (!listed[i])
            assert_true(model_count(m, i) <= list.unlisted);
        if (model_count(m, i) > total / PLACES && !listed[i])
            fail_msg("seed %llu: subject %u is missing", (unsigned long long)seed, i);
    }
    top_list_done(&list);
}

static void one_run(uint64_t seed)
{
    struct top *tops[LISTS];
    struct model m = { .number = NOW / TOP_WINDOW_US };
    int64_t now_us = NOW;
    random_state = seed * 2 + 1;
    for (int i = 0; i < LISTS; i++)
        assert_int_equal(top_new(&tops[i], PLACES), 0);
    unsigned spread = 1 + (unsigned)(next_random() % SUBJECTS);
    for (unsigned step = 0; step < STEPS; step++) {
        /* The smaller the number, the more often. */
        unsigned who = (unsigned)(next_random() % (1 + next_random() % spread));
        struct subject s = subject_of(who);
        now_us += (int64_t)(next_random() % (next_random() % 1000 == 0 ? 50 * S : 10 * MS));
        model_go_on(&m, now_us);
        top_add(tops[next_random() % LISTS], &s, now_us);
        m.counts[m.number & 1][who]++;
        if (step % 100 == 0)
            compare(tops, &m, now_us, seed);
    }
    now_us += (int64_t)(next_random() % (70 * S));
    model_go_on(&m, now_us);
    compare(tops, &m, now_us, seed);
    for (int i = 0; i < LISTS; i++)
        top_free(tops[i]);
}

static void counts_are_within_their_bounds(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++)
        one_run(seed);
}

/* ---- time ---- */

static uint64_t total_at(struct top *top, int64_t now_us)
{
    struct top_list list = { 0 };
    assert_int_equal(top_list_reserve(&list, PLACES), 0);
    top_collect(top, now_us, &list);
    top_list_sort(&list);
    uint64_t total = list.total;
    top_list_done(&list);
    return total;
}

static void what_is_old_goes_away(void **state)
{
    (void)state;
    struct top *top;
    struct subject s = subject_of(1);
    int64_t start_us = NOW / TOP_WINDOW_US * TOP_WINDOW_US;
    assert_int_equal(top_new(&top, PLACES), 0);
    assert_int_equal(total_at(top, start_us), 0);
    top_add(top, &s, start_us);
    assert_int_equal(total_at(top, start_us + 2 * TOP_WINDOW_US - 1), 1);
    assert_int_equal(total_at(top, start_us + 2 * TOP_WINDOW_US), 0);
    top_free(top);
    top_free(NULL);
}

static void a_clock_that_lags_loses_nothing(void **state)
{
    (void)state;
    struct top *top;
    struct subject s = subject_of(1);
    int64_t start_us = NOW / TOP_WINDOW_US * TOP_WINDOW_US;
    assert_int_equal(top_new(&top, PLACES), 0);
    top_add(top, &s, start_us);
    top_add(top, &s, start_us - 1);
    assert_int_equal(total_at(top, start_us), 2);
    top_add(top, &s, start_us - 10 * TOP_WINDOW_US);
    assert_int_equal(total_at(top, start_us - 10 * TOP_WINDOW_US), 1);
    top_free(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_within_their_bounds),
        cmocka_unit_test(what_is_old_goes_away),
        cmocka_unit_test(a_clock_that_lags_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
