/* Subjects with more holds than a block of the table has room for: some are joined, and have lost their numbers. Each of
 * them is settled, renewed and released as if it were alone, and lets no more through than that. */
#include "../limit/random.h"
#include "holding.h"

/* ---- at random, beside a table where each hold is alone ---- */

/* In the small table a block has room for six holds. */
enum { SMALL, LARGE, TABLES };
enum { HOLDS = 40, STEPS = 300, ROUNDS = 40 };

struct promise {
    struct weir_receipt receipts[TABLES];
    uint64_t amount;
    int64_t until_us;
    bool open;
};

struct pair {
    struct weir *tables[TABLES];
    struct promise promises[HOLDS];
    struct random random;
    int64_t now_us;
    bool one_window;
};

static void open_pair(struct pair *p, const char *limit)
{
    static const uint64_t keys[] = { 1000, 100000 };
    char rules[300];
    snprintf(rules, sizeof rules, "rules: [" RULE("r", "%s") "]", limit);
    for (int i = 0; i < TABLES; i++)
        p->tables[i] = open_with((struct weir_options){ .rules_text = rules, .cells_keys = keys[i] });
    memset(p->promises, 0, sizeof p->promises);
    p->now_us = NOW;
    p->one_window = strstr(limit, "year") != NULL;
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < TABLES; i++)
        weir_close(p->tables[i]);
}

static void reserve_in_both(struct pair *p, struct promise *promise)
{
    uint64_t cost = (uint64_t)random_in(&p->random, 1, 20);
    uint32_t ttl_ms = (uint32_t)random_in(&p->random, 1, 60000);
    for (int i = 0; i < TABLES; i++)
        promise->receipts[i] = held(p->tables[i], cost, ttl_ms, p->now_us);
    promise->amount = cost;
    promise->until_us = p->now_us + ttl_ms * MS;
    promise->open = true;
}

static void settle_in_both(struct pair *p, struct promise *promise, uint64_t to)
{
    int settled[TABLES];
    for (int i = 0; i < TABLES; i++)
        settled[i] = settle(p->tables[i], &promise->receipts[i], to, p->now_us);
    if (promise->until_us > p->now_us || to > 0)
        assert_int_equal(settled[SMALL], settled[LARGE]);
    promise->open = false;
}

/* Where holds of several windows were joined, one that lives may not be found. Its caller is told so. */
static void renew_in_both(struct pair *p, struct promise *promise)
{
    int renewed[TABLES];
    for (int i = 0; i < TABLES; i++)
        renewed[i] = weir_renew(p->tables[i], &promise->receipts[i], 30000, p->now_us);
    assert_true(renewed[SMALL] <= renewed[LARGE]);
    assert_true(renewed[SMALL] == renewed[LARGE] || !p->one_window);
    if (renewed[LARGE])
        promise->until_us = p->now_us + 30 * S;
    if (renewed[SMALL] < renewed[LARGE])
        settle_in_both(p, promise, promise->amount);
}

static void step(struct pair *p)
{
    struct promise *promise = &p->promises[random_in(&p->random, 0, HOLDS - 1)];
    p->now_us += random_in(&p->random, 0, 1000) * MS;
    for (int i = 0; i < TABLES; i++) /* no window is empty: so they begin at the same time in both */
        assert_true(check_at(p->tables[i], one("e", "k"), p->now_us).allowed);
    if (!promise->open)
        reserve_in_both(p, promise);
    else if (random_one_in(&p->random, 3))
        renew_in_both(p, promise);
    else
        settle_in_both(p, promise, (uint64_t)random_in(&p->random, 0, 3 * (int64_t)promise->amount));
    assert_true(left(p->tables[SMALL], p->now_us) <= left(p->tables[LARGE], p->now_us));
}

static void they_let_no_more_through(void **state)
{
    static const char *const limits[] = { FIXED("f", "100000"), SLIDING("100000"),
                                          "{ name: m, calendar: minute, max: 100000 }",
                                          "{ name: y, calendar: year, max: 100000 }" };
    static struct pair p;
    (void)state;
    p.random = (struct random){ random_seed() };
    for (int round = 0; round < ROUNDS; round++) {
        open_pair(&p, limits[round % 4]);
        for (int i = 0; i < STEPS; i++)
            step(&p);
        close_pair(&p);
    }
}

/* ---- cases ---- */

/* The true amount belongs to the window in which it was held, whatever it was joined with. */
static void more_is_charged_to_its_own_window(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", "{ name: m, calendar: minute, max: 1000 }") "]");
    struct weir_receipt now[10];
    for (int i = 0; i < 10; i++)
        held(weir, 1, 600000, NOW);
    int64_t at = NOW + 60 * S;
    for (int i = 0; i < 10; i++)
        now[i] = held(weir, 1, 540000, at);
    for (int i = 0; i < 10; i++)
        assert_int_equal(settle(weir, &now[i], 50, at), 1);
    assert_int_equal(left(weir, at), 500);
    weir_close(weir);
}

/* A short renewal brings the end of a hold nearer. After that end the hold is not found among those that it was joined
 * with, although its receipt says a later one, and other subjects have taken what is free in the table. */
static void a_hold_ends_when_its_renewal_says(void **state)
{
    (void)state;
    struct weir *weir = open_with(
        (struct weir_options){ .rules_text = "rules: [" RULE("r", FIXED("f", "100000")) "]", .cells_keys = 1000 });
    struct weir_receipt brief[20];
    for (int i = 0; i < 20; i++) {
        held(weir, 5, 600000, NOW);
        brief[i] = held(weir, 5, 60000, NOW);
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(weir_renew(weir, &brief[i], 1000, NOW), 1);
    for (int i = 0; i < 500; i++) {
        char key[16];
        snprintf(key, sizeof key, "other%d", i);
        assert_true(check_at(weir, one("e", key), NOW + 2 * S).allowed);
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(weir_renew(weir, &brief[i], 1000, NOW + 2 * S), 0);
    assert_true(left(weir, NOW + 2 * S) <= 100000 - 100);
    weir_close(weir);
}

#define SLOTS "{ id: s, match: { event: e }, by: [key], limits: [%s] }"

enum { MANY = 300 };
static struct weir_receipt slots[MANY];

static struct weir *take_slots(const char *limits)
{
    char rules[300];
    snprintf(rules, sizeof rules, "rules: [" SLOTS "]", limits);
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules, .cells_keys = 100000 });
    for (int i = 0; i < MANY; i++) {
        struct weir_request request = one("e", "k");
        request.receipt = &slots[i];
        assert_true(check_at(weir, request, NOW + i * 100 * MS).allowed);
    }
    return weir;
}

/* Work that takes long renews its slots at half of their time, and keeps them beyond the end that its receipts say. */
static void slots_that_are_renewed_stay(void **state)
{
    (void)state;
    struct weir *weir = take_slots("{ name: c, concurrent: 1000, ttl: 60s }");
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < MANY; i++)
            assert_int_equal(weir_renew(weir, &slots[i], 0, NOW + k * 30 * S + i * 100 * MS), 1);
    int64_t at = NOW + 241 * S;
    assert_int_equal(left(weir, at), 700);
    for (int i = 0; i < MANY; i += 2)
        assert_int_equal(weir_release(weir, &slots[i], at), 1);
    for (int i = 0; i < MANY; i += 2)
        assert_int_equal(weir_release(weir, &slots[i], at) + weir_renew(weir, &slots[i], 0, at), 0);
    assert_int_equal(left(weir, at), 850);
    assert_int_equal(left(weir, at + 60 * S), 1000);
    /* After its end none is renewed, nor is that of another. */
    for (int i = 1; i < MANY; i += 2)
        assert_int_equal(weir_renew(weir, &slots[i], 0, at + 60 * S), 0);
    weir_close(weir);
}

/* Each slot of a request has the time to live of its own limit. */
static void slots_of_two_limits_are_released(void **state)
{
    (void)state;
    struct weir *weir =
        take_slots("{ name: short, concurrent: 1000, ttl: 60s }, { name: long, concurrent: 1000, ttl: 1h }");
    for (int i = 0; i < MANY; i++)
        assert_int_equal(weir_release(weir, &slots[i], NOW + 40 * S), 2);
    assert_int_equal(left(weir, NOW + 40 * S), 1000);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_let_no_more_through),          cmocka_unit_test(more_is_charged_to_its_own_window),
        cmocka_unit_test(a_hold_ends_when_its_renewal_says), cmocka_unit_test(slots_that_are_renewed_stay),
        cmocka_unit_test(slots_of_two_limits_are_released),
    };
    return cmocka_run_group_tests_name("engine/joined", tests, NULL, NULL);
}
