/* The most refused of a longer time, against an exact model: of every window, every subject. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "refused/top_history.h"

#define S US_PER_S
#define HOUR (3600 * S)
#define DAY (24 * HOUR)
#define START (INT64_C(1763200000) * S / HOUR * HOUR)

enum { SUBJECTS = 400, PLACES = 150, THREADS = 2 };

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
    struct subject s = { .key = (i + 1) * UINT64_C(0x9e3779b97f4a7c15), .by_count = 1, .rule_len = 1 };
    s.by[0].name_len = 3;
    int len = snprintf(s.text, sizeof s.text, "rkey%u", i);
    s.by[0].value_len = (uint16_t)(len - 4);
    return s;
}

static unsigned index_of(const struct subject *s)
{
    char value[20];
    snprintf(value, sizeof value, "%.*s", SV_FMT(subject_value(s, 0)));
    return (unsigned)atoi(value);
}

/* ---- what a service does ---- */

struct world {
    struct top *tops[THREADS];
    struct top_history *history;
    uint32_t (*counts)[SUBJECTS]; /* of each window since START; NULL: nobody wants to know */
    size_t windows;
    struct top_list collected; /* used again by each look: to allocate it takes longer than to fill it */
};

static void world_new(struct world *w, size_t windows)
{
    *w = (struct world){ .windows = windows };
    if (windows > 0)
        assert_non_null(w->counts = calloc(windows, sizeof *w->counts));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(top_new(&w->tops[i], PLACES), 0);
    assert_int_equal(top_history_new(&w->history), 0);
}

static void world_done(struct world *w)
{
    for (int i = 0; i < THREADS; i++)
        top_free(w->tops[i]);
    top_history_free(w->history);
    top_list_done(&w->collected);
    free(w->counts);
}

static void refuse(struct world *w, unsigned who, int64_t now_us)
{
    struct subject subject = subject_of(who);
    top_add(w->tops[next_random() % THREADS], &subject, now_us);
    if (w->counts)
        w->counts[(now_us - START) / TOP_WINDOW_US][who]++;
}

static void look(struct world *w, int64_t now_us)
{
    int64_t number;
    struct top_list *list = &w->collected;
    if (!top_history_due(w->history, now_us, &number))
        return;
    list->count = 0;
    list->total = list->unlisted = 0;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(top_list_reserve(list, PLACES), 0);
        top_collect_window(w->tops[i], now_us, number, list);
    }
    top_list_sort(list);
    assert_int_equal(top_history_add(w->history, number, list), 0);
    assert_false(top_history_due(w->history, now_us, &number));
}

static struct top_list read_last(struct world *w, int64_t last_us, int64_t now_us)
{
    struct top_list list = { 0 };
    look(w, now_us);
    assert_int_equal(top_history_read(w->history, now_us - last_us, now_us, &list), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(top_list_reserve(&list, PLACES), 0);
        top_collect_window(w->tops[i], now_us, now_us / TOP_WINDOW_US, &list);
    }
    top_list_sort(&list);
    return list;
}

/* ---- what it says ---- */

static void check_entry(const struct top_entry *e, const uint64_t *exact, bool *listed)
{
    unsigned who = index_of(&e->subject);
    assert_false(listed[who]);
    listed[who] = true;
    if (e->count < exact[who] || e->error > e->count || e->count - e->error > exact[who])
        fail_msg("subject %u: %llu, error %llu, and it was %llu", who, (unsigned long long)e->count,
                 (unsigned long long)e->error, (unsigned long long)exact[who]);
}

static void compare(struct world *w, int64_t last_us, int64_t now_us)
{
    uint64_t exact[SUBJECTS] = { 0 }, total = 0;
    bool listed[SUBJECTS] = { false };
    int64_t start_us = top_history_start(now_us - last_us, now_us);
    assert_true(start_us <= now_us - last_us && start_us > now_us - last_us - (last_us > DAY ? HOUR : 300 * S));
    for (size_t i = 0; i < w->windows; i++)
        for (unsigned k = 0; START + (int64_t)i * TOP_WINDOW_US >= start_us && k < SUBJECTS; k++) {
            exact[k] += w->counts[i][k];
            total += w->counts[i][k];
        }
    struct top_list list = read_last(w, last_us, now_us);
    assert_int_equal(list.total, total);
    for (size_t i = 0; i < list.count; i++) {
        check_entry(&list.entries[i], exact, listed);
        if (i > 0)
            assert_true(list.entries[i - 1].count >= list.entries[i].count);
    }
    for (unsigned k = 0; k < SUBJECTS; k++)
        assert_true(listed[k] || exact[k] <= list.unlisted);
    top_list_done(&list);
}

static void the_bounds_hold(void **state)
{
    (void)state;
    enum { WINDOWS = 40 * 120 }; /* 40 hours */
    static const int64_t lasts[] = { 60 * S, 5 * 60 * S, HOUR, 3 * HOUR, DAY - 1, DAY, DAY + 1, 30 * HOUR, 31 * DAY };
    const char *given = getenv("TEST_SEED");
    random_state = given ? strtoull(given, NULL, 0) : 20240229;
    struct world w;
    world_new(&w, WINDOWS);
    for (size_t i = 0; i < WINDOWS; i++) {
        int64_t at_us = START + (int64_t)i * TOP_WINDOW_US;
        bool quiet = i % 700 > 400; /* for some hours */
        for (unsigned k = 0, n = quiet ? 0 : (unsigned)(next_random() % 150); k < n; k++) {
            unsigned most = next_random() % 3 ? 20 : SUBJECTS; /* some are refused much more often */
            refuse(&w, (unsigned)(next_random() % most), at_us + (int64_t)(next_random() % TOP_WINDOW_US));
        }
        look(&w, at_us + TOP_WINDOW_US - 1);
        if (i % 241 == 0 || i == WINDOWS - 1)
            for (size_t k = 0; k < sizeof lasts / sizeof *lasts; k++)
                compare(&w, lasts[k], at_us + TOP_WINDOW_US - 1);
    }
    world_done(&w);
}

/* With fewer subjects than places everything is exact. */
static void few_subjects_are_exact(void **state)
{
    (void)state;
    struct world w;
    random_state = 1;
    world_new(&w, 0);
    for (size_t i = 0; i < 10 * 120; i++) {
        for (unsigned k = 0; k < 50; k++)
            refuse(&w, k, START + (int64_t)i * TOP_WINDOW_US);
        look(&w, START + (int64_t)i * TOP_WINDOW_US);
    }
    struct top_list list = read_last(&w, HOUR, START + 10 * HOUR - 1);
    assert_int_equal(list.count, 50);
    assert_int_equal(list.unlisted, 0);
    for (size_t i = 0; i < 50; i++)
        assert_true(list.entries[i].error == 0 &&
                    list.entries[i].count == 130); /* an hour, and the 5 minutes it begins in */
    top_list_done(&list);
    world_done(&w);
}

/* What is too old is gone, and memory has its bound. */
static void lists_are_forgotten(void **state)
{
    (void)state;
    struct world w;
    random_state = 1;
    world_new(&w, 0);
    refuse(&w, 1, START);
    for (int64_t at_us = START; at_us < START + 32 * DAY + HOUR; at_us += 300 * S) {
        refuse(&w, 2, at_us);
        look(&w, at_us + TOP_WINDOW_US);
    }
    int64_t now_us = START + 32 * DAY + HOUR;
    struct top_list day = read_last(&w, DAY, now_us), month = read_last(&w, 31 * DAY, now_us);
    assert_int_equal(day.count, 1);
    assert_int_equal(day.total, 288);
    assert_int_equal(month.count, 1);
    assert_int_equal(index_of(&month.entries[0].subject), 2);
    assert_int_equal(month.total, 31 * 288);
    top_list_done(&day);
    top_list_done(&month);
    world_done(&w);
}

static void clocks_that_step(void **state)
{
    (void)state;
    struct world w;
    random_state = 1;
    world_new(&w, 0);
    int64_t now_us = START + 50 * DAY;
    for (int i = 0; i < 3000; i++) {
        refuse(&w, 7, now_us);
        look(&w, now_us);
        int64_t step = (int64_t)(next_random() % (2 * DAY)) - DAY;
        now_us += next_random() % 10 ? TOP_WINDOW_US / 2 : step;
        now_us = now_us < START + DAY ? START + DAY : now_us > START + 98 * DAY ? START + 98 * DAY : now_us;
        struct top_list list = read_last(&w, next_random() % 2 ? HOUR : 31 * DAY, now_us);
        assert_true(list.count <= 1 && list.total <= (uint64_t)i + 1);
        top_list_done(&list);
    }
    world_done(&w);
}

/* The lists of an earlier run, which come while this one already has some: all of them add up. */
static void earlier_lists_are_taken_over(void **state)
{
    (void)state;
    struct world w;
    struct top_history *earlier;
    struct subject subjects[] = { subject_of(1), subject_of(2) };
    struct top_count counts[] = { { 50, 0, &subjects[0] }, { 7, 0, &subjects[1] } };
    struct top_span span = { 0, 0, 57, 0, counts, 2 };
    struct top_list list = { 0 };
    random_state = 1;
    world_new(&w, 0);
    for (int64_t at_us = START; at_us < START + 2 * HOUR; at_us += TOP_WINDOW_US) {
        refuse(&w, 2, at_us);
        look(&w, at_us);
    }
    assert_int_equal(top_list_add_span(&list, &span), 0);
    top_list_sort(&list);
    assert_int_equal(top_history_new(&earlier), 0);
    for (int i = 1; i <= 48; i++) /* the last 10 hours of fine lists, and two days of coarse ones */
        assert_int_equal(top_history_put(earlier, TOP_COARSE, START - i * HOUR, &list), 0);
    for (int i = 1; i <= 120; i++)
        assert_int_equal(top_history_put(earlier, TOP_FINE, START - i * 300 * S, &list), 0);
    /* … and of a part of a step that this run goes on with */
    assert_int_equal(top_history_put(earlier, TOP_FINE, START, &list), 0);
    assert_int_equal(top_history_take_over(w.history, earlier), 0);
    int64_t now_us = START + 2 * HOUR - 1;
    struct top_list day = read_last(&w, 4 * HOUR, now_us), month = read_last(&w, 3 * DAY, now_us);
    assert_int_equal(day.total, 240 + 57 * (24 + 1 + 1)); /* it begins with a whole 5 minutes */
    assert_int_equal(index_of(&day.entries[0].subject), 1);
    assert_int_equal(day.entries[0].count, 50 * 26);
    assert_int_equal(day.entries[1].count, 7 * 26 + 240);
    assert_int_equal(month.total, 240 + 57 * 48);
    assert_int_equal(month.entries[1].count, 7 * 48 + 240);
    top_list_done(&day);
    top_list_done(&month);
    top_list_done(&list);
    world_done(&w);
}

static void a_list_is_cut(void **state)
{
    (void)state;
    struct subject subjects[5];
    struct top_count counts[5];
    struct top_list list = { 0 };
    for (unsigned i = 0; i < 5; i++) {
        subjects[i] = subject_of(i);
        counts[i] = (struct top_count){ 50 - i, 1, &subjects[i] };
    }
    struct top_span span = { 0, 1, 1000, 3, counts, 5 };
    assert_int_equal(top_list_add_span(&list, &span), 0);
    top_list_sort(&list);
    top_list_cut(&list, 5);
    assert_true(list.count == 5 && list.unlisted == 3);
    top_list_cut(&list, 2);
    assert_true(list.count == 2 && list.unlisted == 48 && list.total == 1000);
    assert_true(list.entries[0].count == 50 && list.entries[0].error == 1);
    top_list_done(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bounds_hold),     cmocka_unit_test(few_subjects_are_exact),
        cmocka_unit_test(lists_are_forgotten), cmocka_unit_test(clocks_that_step),
        cmocka_unit_test(a_list_is_cut),       cmocka_unit_test(earlier_lists_are_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
