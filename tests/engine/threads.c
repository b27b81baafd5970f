/* Threads that decide, in one table, while rules are replaced; threads that come and go. */
#include <pthread.h>
#include <sched.h>

#include "crowd.h"
#include "engine/handle.h"

enum { THREADS = 4, KEYS = 20000 / CROWD_SLOWER, TRIES = 4 };

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    struct weir *weir;
    struct tally *tallies;
    uint64_t seed;
    bool *stop;
    uint64_t done;
};

static struct tally *new_tallies(unsigned keys)
{
    struct tally *tallies = calloc(keys, sizeof *tallies);
    assert_non_null(tallies);
    return tallies;
}

static void start_workers(struct worker *workers, unsigned count, void *(*work)(void *), struct worker like)
{
    for (unsigned i = 0; i < count; i++) {
        workers[i] = like;
        workers[i].seed = random_seed() + i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
}

static void join_workers(struct worker *workers, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
}

/* ---- several limits in a plan ---- */

static void *ask_all(void *ptr)
{
    struct worker *w = ptr;
    pthread_barrier_wait(w->start);
    crowd_ask(w->weir, w->tallies, KEYS, TRIES, w->seed);
    return NULL;
}

static void every_cell_holds_what_was_admitted(void **state)
{
    (void)state;
    struct worker workers[THREADS];
    pthread_barrier_t start;
    struct weir *weir = open_with((struct weir_options){ .rules_text = CROWD_RULES, .cells_keys = KEYS * 6 });
    struct tally *tallies = new_tallies(KEYS);
    pthread_barrier_init(&start, NULL, THREADS);
    start_workers(workers, THREADS, ask_all, (struct worker){ .start = &start, .weir = weir, .tallies = tallies });
    join_workers(workers, THREADS);
    crowd_check(weir, tallies, KEYS, 0);
    /* Nobody who still has room is kept out by what races left behind. */
    crowd_ask(weir, tallies, KEYS, TRIES, 1);
    crowd_ask(weir, tallies, KEYS, TRIES, 2);
    crowd_check(weir, tallies, KEYS, 0);
    pthread_barrier_destroy(&start);
    free(tallies);
    weir_close(weir);
}

/* ---- clocks that differ ---- */

/* 31 January and 1 February 2023, at midnight: the end of a long month and the beginning of a short one. */
static const int64_t instants[] = { INT64_C(1675123200) * S, INT64_C(1675209600) * S };
static const int64_t lengths_ms[] = { INT64_C(31) * 86400000, INT64_C(28) * 86400000 };
static const int64_t left_ms[] = { 86400000, INT64_C(28) * 86400000 };

static void *ask_at_both(void *ptr)
{
    struct worker *w = ptr;
    pthread_barrier_wait(w->start);
    for (unsigned i = 0; i < KEYS; i++) {
        char key[20];
        unsigned at = (i + (unsigned)w->seed) % 2;
        struct weir_request request = crowd_request(key, i, at);
        struct weir_verdict v;
        weir_check(w->weir, &request, instants[at], &v);
        w->done += v.window_ms == lengths_ms[at] && v.reset_ms == left_ms[at];
    }
    return NULL;
}

/* Each thread needs another window than the one that its neighbour has just kept. */
static void windows_are_kept_whole(void **state)
{
    (void)state;
    struct worker workers[THREADS];
    pthread_barrier_t start;
    struct weir *weir = open_with((struct weir_options){
        .rules_text = "rules: [{ id: m, by: [event, key], limits: [4000000000 per month] }]", .cells_keys = KEYS * 3 });
    pthread_barrier_init(&start, NULL, THREADS);
    start_workers(workers, THREADS, ask_at_both, (struct worker){ .start = &start, .weir = weir });
    join_workers(workers, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(workers[i].done, KEYS);
    pthread_barrier_destroy(&start);
    weir_close(weir);
}

/* ---- rules that change meanwhile ---- */

/* The same limits of `a`, `b` and `c` among ever other rules. */
static const char *const variants[] = {
    CROWD_RULES,
    "rules:\n" CROWD_RULES_BC CROWD_RULES_A,
    "rules:\n  - { id: other, by: [event], limits: [4000000000 per 1s], reject: { body: other } }\n" CROWD_RULES_A
        CROWD_RULES_BC,
    "settings: { ignore_case: true }\nrules:\n" CROWD_RULES_A CROWD_RULES_S CROWD_RULES_BC
    "  - { id: path, match: { path: { regex: '/(a|b)+' } }, by: [user], limits: [1 per year] }\n",
};

static void *ask_until_stopped(void *ptr)
{
    struct worker *w = ptr;
    while (!__atomic_load_n(w->stop, __ATOMIC_ACQUIRE)) {
        crowd_ask(w->weir, w->tallies, KEYS / 10, TRIES, w->seed++);
        char key[20];
        struct weir_request request = crowd_request(key, 0, false);
        struct weir_verdict verdict;
        struct weir_refusal refusal;
        struct weir_status status;
        struct weir_str by = WEIR_STR("nobody");
        weir_check(w->weir, &request, NOW, &verdict);
        crowd_count(&w->tallies[0], &request, &verdict);
        weir_refuse(w->weir, &request, &verdict, &refusal);
        weir_reset(w->weir, "a", &by, 1, NULL);
        weir_status(w->weir, &status);
        __atomic_add_fetch(&w->done, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static bool all_have_asked(struct worker *workers)
{
    for (int i = 0; i < THREADS; i++)
        if (__atomic_load_n(&workers[i].done, __ATOMIC_RELAXED) == 0)
            return false;
    return true;
}

static void rules_are_swapped_under_those_who_decide(void **state)
{
    (void)state;
    enum { SWAPS = 2000 / CROWD_SLOWER };
    struct worker workers[THREADS];
    bool stop = false;
    struct weir *weir = open_with((struct weir_options){ .rules_text = CROWD_RULES, .cells_keys = KEYS });
    struct tally *tallies = new_tallies(KEYS / 10);
    start_workers(workers, THREADS, ask_until_stopped, (struct worker){ .weir = weir, .tallies = tallies, .stop = &stop });
    struct timespec pause = { .tv_nsec = 100000 };
    for (int i = 0; i < SWAPS || !all_have_asked(workers); i++) {
        set_rules(weir, variants[(size_t)i % (sizeof variants / sizeof *variants)]);
        nanosleep(&pause, NULL);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    join_workers(workers, THREADS);
    set_rules(weir, "rules:\n" CROWD_RULES_A CROWD_RULES_BC);
    crowd_check(weir, tallies, KEYS / 10, 0);
    free(tallies);
    weir_close(weir);
}

/* A max that goes up and down while everybody asks: never more than the highest, and once it is low nothing passes. */
static void a_max_goes_up_and_down(void **state)
{
    (void)state;
    enum { SWAPS = 400 / CROWD_SLOWER + 10 };
    static const char *const rules[] = { "rules:\n  - { id: c, by: [key], limits: [{ name: w, max: 2, per: 1h }] }\n",
                                         "rules:\n  - { id: c, by: [key], limits: [{ name: w, max: 5, per: 1h }] }\n" };
    struct worker workers[THREADS];
    bool stop = false;
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules[0], .cells_keys = KEYS });
    struct tally *tallies = new_tallies(KEYS / 10);
    start_workers(workers, THREADS, ask_until_stopped, (struct worker){ .weir = weir, .tallies = tallies, .stop = &stop });
    for (int i = 0; i < SWAPS; i++) {
        set_rules(weir, rules[i % 2]);
        sched_yield();
    }
    set_rules(weir, rules[1]);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    join_workers(workers, THREADS);
    for (unsigned i = 0; i < KEYS / 10; i++) {
        assert_true(tallies[i].a + tallies[i].b <= W_MAX);
        assert_int_equal(crowd_counts(weir, i).w, tallies[i].a + tallies[i].b);
    }
    free(tallies);
    weir_close(weir);
}

/* ---- versions that share rules ---- */

static void *ask_for_headers(void *ptr)
{
    struct worker *w = ptr;
    while (!__atomic_load_n(w->stop, __ATOMIC_ACQUIRE)) {
        struct weir_usage usage;
        struct weir_receipt receipt = { .count = 0 };
        struct weir_verdict verdict;
        struct weir_headers headers;
        struct weir_request request = { .key = WEIR_STR("nobody else's"), .cost = 1, .keep = true };
        request.usage = &usage;
        request.receipt = &receipt;
        bool good = weir_check(w->weir, &request, NOW, &verdict) == 0;
        weir_headers(w->weir, &request, &verdict, WEIR_HEADERS_STANDARD, &headers);
        if (!good || headers.count == 0 || weir_refund(w->weir, &receipt, NOW) < 0)
            return w; /* only the first thread may fail */
        w->done++;
    }
    return NULL;
}

/* The same with rules of which one changes, and the others are shared by all versions. */
static void versions_share_rules(void **state)
{
    (void)state;
    enum { SWAPS = 400 / CROWD_SLOWER + 2 * RULES_BASES_MAX, ROWS = 6 };
    static const char *const texts[] = { "{ by: [key], limits: [{ name: w, max: 2, per: 1h }] }",
                                         "{ by: [key], limits: [{ name: w, max: 5, per: 1h }] }" };
    static const char *const ids[] = { "a", "b", "c", "d", "e", "f" };
    struct rule_row rows[ROWS] = { 0 };
    struct worker workers[THREADS], other[1];
    bool stop = false, shared = false;
    struct weir *weir = open_with(
        (struct weir_options){ .rules_text = "rules: [{ id: c, by: [key], limits: [2 per 1h] }]", .cells_keys = KEYS });
    struct rules *before = NULL;
    struct tally *tallies = new_tallies(KEYS / 10);
    for (int i = 0; i < ROWS; i++)
        rows[i] = (struct rule_row){ .id = weir_str(ids[i]),
                                     .text = SV("{ match: { event: never }, by: [key], limits: [1 per 1s] }") };
    for (int i = 0; i <= SWAPS; i++) {
        struct rules_report report;
        rows[2].rule = NULL;
        rows[2].text = weir_str(texts[(SWAPS - i) % 2 == 0]);
        struct rules *rules = rules_reread_rows(rows, ROWS, before, &report);
        assert_true(rules && report.error_count == 0 && rules->rule_count == ROWS);
        assert_int_equal(weir_take_rules(weir, rules_share(rules), NULL), 0);
        shared = shared || weir->current->block_count > 2;
        rules_free(before);
        before = rules;
        rules_report_done(&report);
        if (i == 0) {
            struct worker like = { .weir = weir, .tallies = tallies, .stop = &stop };
            start_workers(workers, THREADS, ask_until_stopped, like);
            start_workers(other, 1, ask_for_headers, like);
        }
        sched_yield();
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    join_workers(workers, THREADS);
    void *failed;
    assert_int_equal(pthread_join(other[0].thread, &failed), 0);
    assert_true(shared && !failed);
    for (unsigned i = 0; i < KEYS / 10; i++) {
        assert_true(tallies[i].a + tallies[i].b <= W_MAX);
        assert_int_equal(crowd_counts(weir, i).w, tallies[i].a + tallies[i].b);
    }
    rules_free(before);
    free(tallies);
    weir_close(weir);
}

/* ---- a file that is polled by all, and watched ---- */

static void *poll_until_stopped(void *ptr)
{
    struct worker *w = ptr;
    while (!__atomic_load_n(w->stop, __ATOMIC_ACQUIRE)) {
        weir_poll(w->weir, NULL);
        crowd_ask(w->weir, w->tallies, 10, TRIES, w->seed++);
        w->done++;
    }
    return NULL;
}

static void a_file_is_polled_by_all(void **state)
{
    (void)state;
    struct folder folder;
    folder_make(&folder);
    char rules[300], spare[300];
    snprintf(rules, sizeof rules, "%s", folder_file(&folder, "rules.yaml"));
    snprintf(spare, sizeof spare, "%s", folder_file(&folder, "spare.yaml"));
    write_file(rules, CROWD_RULES);
    struct worker workers[THREADS];
    bool stop = false;
    struct weir *weir = open_with((struct weir_options){ .rules_file = rules, .watch_ms = 1 });
    struct tally *tallies = new_tallies(10);
    start_workers(workers, THREADS, poll_until_stopped, (struct worker){ .weir = weir, .tallies = tallies, .stop = &stop });
    struct timespec pause = { .tv_nsec = 25000000 };
    for (int i = 0; i < 8; i++) {
        write_file(spare, variants[i % 4]);
        assert_int_equal(rename(spare, rules), 0);
        nanosleep(&pause, NULL);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    join_workers(workers, THREADS);
    set_rules(weir, "rules:\n" CROWD_RULES_A CROWD_RULES_BC);
    crowd_check(weir, tallies, 10, 0);
    free(tallies);
    weir_close(weir);
    folder_remove(&folder, (const char *const[]){ "rules.yaml", "spare.yaml", NULL });
}

/* ---- threads that come and go ---- */

static pthread_key_t late_key;

/* Runs when the thread's own destructors may have run already. */
static void decide_late(void *ptr)
{
    struct worker *w = ptr;
    char key[20];
    struct weir_request request = crowd_request(key, 0, false);
    struct weir_verdict verdict;
    struct weir_refusal refusal;
    weir_check(w->weir, &request, NOW, &verdict);
    crowd_count(&w->tallies[0], &request, &verdict);
    weir_refuse(w->weir, &request, &verdict, &refusal);
}

static void *ask_a_little(void *ptr)
{
    struct worker *w = ptr;
    pthread_setspecific(late_key, w);
    crowd_ask(w->weir, w->tallies, 10, 1, w->seed);
    return NULL;
}

static void threads_come_and_go(void **state)
{
    (void)state;
    enum { ROUNDS = 500 / CROWD_SLOWER + 5 };
    struct weir *weir = open_with((struct weir_options){ .rules_text = CROWD_RULES });
    struct tally *tallies = new_tallies(10);
    assert_int_equal(pthread_key_create(&late_key, decide_late), 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct worker workers[THREADS];
        start_workers(workers, THREADS, ask_a_little, (struct worker){ .weir = weir, .tallies = tallies });
        set_rules(weir, variants[(size_t)round % 4]);
        join_workers(workers, THREADS);
    }
    set_rules(weir, "rules:\n" CROWD_RULES_A CROWD_RULES_BC);
    crowd_check(weir, tallies, 10, 0);
    pthread_key_delete(late_key);
    free(tallies);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_holds_what_was_admitted),
        cmocka_unit_test(windows_are_kept_whole),
        cmocka_unit_test(rules_are_swapped_under_those_who_decide),
        cmocka_unit_test(a_max_goes_up_and_down),
        cmocka_unit_test(versions_share_rules),
        cmocka_unit_test(a_file_is_polled_by_all),
        cmocka_unit_test(threads_come_and_go),
    };
    return cmocka_run_group_tests_name("engine/threads", tests, NULL, NULL);
}
