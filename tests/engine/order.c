/* The order in which counters are taken: by key, and of equal keys the first one first. */
#include "helpers.h"

#include "../limit/random.h"
#include "engine/order.h"

enum { MOST = 1500 };

/* Keys are all different, or few, or begin with the same bits. */
static uint64_t random_key(struct random *r, unsigned kind)
{
    uint64_t key = random_u64(r);
    return kind == 0 ? key : kind == 1 ? key % 5 << 60 : key % 1000;
}

static void check_order(struct counter *counters, size_t count, struct counter **order)
{
    static bool seen[MOST];
    memset(seen, 0, sizeof seen);
    counters_order(counters, count, order);
    for (size_t i = 0; i < count; i++) {
        assert_in_range((uintptr_t)order[i], (uintptr_t)counters, (uintptr_t)(counters + count - 1));
        assert_false(seen[order[i] - counters]);
        seen[order[i] - counters] = true;
        if (i == 0 || order[i - 1]->ask.key < order[i]->ask.key)
            continue;
        assert_true(order[i - 1]->ask.key == order[i]->ask.key && order[i - 1] < order[i]);
    }
}

static void by_key_and_then_as_they_are(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    struct counter *counters = calloc(MOST, sizeof *counters), **order = calloc(MOST, sizeof *order);
    assert_true(counters && order);
    for (size_t round = 0; round < 400; round++) {
        size_t count = round < 40 ? round : (size_t)random_in(&r, 0, round % 10 ? 150 : MOST);
        for (size_t i = 0; i < count; i++)
            counters[i].ask.key = random_key(&r, round % 3);
        check_order(counters, count, order);
    }
    free(counters);
    free(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(by_key_and_then_as_they_are) };
    return cmocka_run_group_tests_name("engine/order", tests, NULL, NULL);
}
