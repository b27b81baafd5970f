/* Threads that decide on chains of requests over the same few counters: all or nothing, in any order of the parts, with no
 * deadlock, and nothing is left behind. */
#include "helpers.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 20000, KEYS = 4, PARTS = 5 };

static const char rules[] =
    "rules:\n"
    "  - {id: w, match: {event: w}, by: key, limits: [{algorithm: fixed_window, max: 9000, per: 1h}]}\n"
    "  - {id: t, match: {event: t}, by: key, limits: 9000 per 3650d}\n"
    "  - {id: n, match: {event: n}, by: key, limits: 3 concurrent}\n"
    "  - {id: a, match: {event: a}, by: key, limits: [{algorithm: fixed_window, max: 50, per: 1h}]}\n";

static const char *const events[] = { "w", "t", "n", "a" };
static const char *const keys[KEYS] = { "k0", "k1", "k2", "k3" };

struct worker {
    struct weir *weir;
    unsigned seed;
    uint64_t charged[4][KEYS];
    const char *why;
};

static struct weir_request pick(struct worker *w, int *event, int *key)
{
    *event = rand_r(&w->seed) % 4;
    *key = rand_r(&w->seed) % KEYS;
    struct weir_request request = cost_of(events[*event], keys[*key], *event == 2 ? 1 : 1 + rand_r(&w->seed) % 3);
    if (*event == 3)
        request.charging = WEIR_CHARGE_ALWAYS;
    return request;
}

static void *work(void *data)
{
    struct worker *w = data;
    for (int i = 0; i < ROUNDS && !w->why; i++) {
        struct weir_request requests[PARTS];
        struct weir_verdict own[PARTS], verdict;
        struct weir_receipt receipt;
        int event[PARTS], key[PARTS], count = 1 + rand_r(&w->seed) % PARTS;
        for (int k = 0; k < count; k++) {
            requests[k] = pick(w, &event[k], &key[k]);
            requests[k].own = &own[k];
            requests[k].with = k + 1 < count ? &requests[k + 1] : NULL;
        }
        requests[0].receipt = &receipt;
        requests[0].if_held = true;
        if (weir_check(w->weir, requests, NOW, &verdict) < 0)
            w->why = "not judged";
        for (int k = 0; k < count; k++) {
            if (verdict.allowed && !own[k].allowed)
                w->why = "a part refuses what passed";
            if (verdict.allowed || event[k] == 3)
                w->charged[event[k]][key[k]] += requests[k].cost;
        }
        /* Slots are given back, and with them, now and then, the charges. */
        if (verdict.allowed && receipt.count > 0) {
            bool all = rand_r(&w->seed) % 2;
            int settled = all ? weir_refund(w->weir, &receipt, NOW) : weir_release(w->weir, &receipt, NOW);
            if (settled < 1)
                w->why = "nothing to give back";
            /* If others made too many receipts while this thread stood still, only what is held is given back. */
            all = all && settled == (int)receipt.count;
            for (int k = 0; k < count; k++)
                if (event[k] == 2 || (all && event[k] != 3))
                    w->charged[event[k]][key[k]] -= requests[k].cost;
        }
    }
    return NULL;
}

static void chains_are_all_or_nothing(void **state)
{
    (void)state;
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct weir *weir = open_rules(rules);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .weir = weir, .seed = i + 1 };
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].why)
            fail_msg("%s", workers[i].why);
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < KEYS; k++) {
            uint64_t charged = 0;
            for (int i = 0; i < THREADS; i++)
                charged += workers[i].charged[e][k];
            struct weir_verdict v = check_at(weir, peek_of(events[e], keys[k], 0), NOW);
            if (e == 3) {
                /* Charged without end: as much is given back. */
                struct weir_request back = cost_of("a", keys[k], charged - 1);
                back.charging = WEIR_GIVE_BACK;
                v = check_at(weir, back, NOW);
                assert_int_equal(v.remaining, 49);
            } else {
                assert_int_equal(v.remaining, v.max - charged);
            }
        }
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(chains_are_all_or_nothing) };
    return cmocka_run_group_tests_name("engine/together_threads", tests, NULL, NULL);
}
