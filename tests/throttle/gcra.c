/* CL.THROTTLE beside a slow model of redis-cell, and beside answers that redis-cell 0.5.0 itself gave under a clock that
 * stood where the cases say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "random.h"
#include "throttle/gcra.h"

#define T0 (INT64_C(1763200000) * US_PER_S)

/* ---- the model: a Redis key with an expiry, and redis-cell's steps one by one ---- */

struct key {
    bool there, expires;
    uint64_t tat_ns;
    int64_t expire_ms;
};

typedef __int128 wide;

/* Numbers are exact here, and doubles only where redis-cell has them. */
static double to_double(wide x)
{
    return (double)x;
}

static int64_t saturated(double x)
{
    if (x != x)
        return 0;
    return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

static int64_t seconds(wide ns)
{
    wide whole = ns / 1000000000, rest = ns % 1000000000;
    int64_t s = saturated(to_double(whole) + to_double(rest) / 1e9);
    return rest / 1000000 > 0 ? s + 1 : s;
}

static bool fits(wide x)
{
    return x >= INT64_MIN && x <= INT64_MAX;
}

static enum gcra_code model(struct key *key, const int64_t n[4], int64_t now_us, struct gcra_answer *ret)
{
    if (n[1] == 0 || n[2] == 0)
        return GCRA_ZERO_RATE;
    wide emission = saturated(to_double((wide)n[2] * 1000000000) / to_double(n[1]));
    wide limit = (wide)n[0] + 1, tolerance = emission * limit, increment = emission * n[3];
    if (emission == 0)
        return GCRA_ZERO_RATE;
    if (!fits(limit) || !fits(tolerance) || !fits(increment))
        return GCRA_TOO_LARGE;
    if (key->there && key->expires && now_us / 1000 > key->expire_ms)
        key->there = false;
    wide now = (wide)now_us * 1000, tat = key->there ? (wide)key->tat_ns : now;
    wide new_tat = now > tat ? now + increment : tat + increment;
    wide allow_at = new_tat - tolerance, diff = now - allow_at, ttl;
    enum gcra_code code = GCRA_OK;
    *ret = (struct gcra_answer){ diff < 0, (int64_t)limit, 0, -1, 0 };
    if (ret->limited) {
        if (increment <= tolerance)
            ret->retry_after_s = seconds(-diff);
        ttl = tat - now;
    } else {
        if (new_tat < 0 || new_tat > UINT64_MAX)
            return GCRA_TOO_LARGE;
        ttl = new_tat - now;
        int64_t ttl_ms = (int64_t)(ttl / 1000000);
        *key = (struct key){ true, ttl_ms >= 0, (uint64_t)new_tat, now_us / 1000 + ttl_ms };
        code = ttl_ms < -1 ? GCRA_EXPIRED : GCRA_OK;
    }
    wide next = tolerance - ttl;
    if (next > -emission)
        ret->remaining = saturated(to_double(next / 1000) / to_double(emission / 1000));
    ret->reset_after_s = seconds(ttl);
    return code;
}

/* ---- random calls ---- */

static int64_t number(struct random *r, int64_t low, int64_t high)
{
    static const int64_t odd[] = { 0,
                                   1,
                                   -1,
                                   -2,
                                   1000000,
                                   2000000000,
                                   INT64_MAX,
                                   INT64_MIN,
                                   INT64_MAX - 1,
                                   INT64_C(1) << 62,
                                   (INT64_C(1) << 53) + 1,
                                   3037000500 };
    if (random_one_in(r, 40))
        return odd[random_in(r, 0, sizeof odd / sizeof *odd - 1)];
    return random_one_in(r, 20) ? -random_scaled(r, INT64_MAX) : random_in(r, low, high);
}

static int64_t later(struct random *r)
{
    static const int64_t most[] = { 0, 1000, 3000, 300000, 2000000, 90000000 };
    return random_in(r, 0, most[random_in(r, 0, 5)]);
}

static void compare_step(struct key *key, struct limit_state *state, const int64_t n[4], int64_t now_us)
{
    struct gcra gcra;
    struct gcra_answer wanted = { 0 };
    struct gcra_take take = { 0 };
    enum gcra_code code = model(key, n, now_us, &wanted);
    take.code = gcra_init(&gcra, n[0], n[1], n[2], n[3]);
    if (take.code == GCRA_OK)
        take = gcra_take(&gcra, *state, now_us);
    if (take.writes) {
        *state = take.next;
        assert_true(take.next.time < UINT64_C(1) << CLOCK_BITS);
        assert_true(take.outlook.decays_us >= now_us && take.outlook.decays_us <= CLOCK_END_US);
    }
    bool same = take.code == code;
    if (same && code == GCRA_OK)
        same = take.answer.limited == wanted.limited && take.answer.limit == wanted.limit &&
               take.answer.remaining == wanted.remaining && take.answer.retry_after_s == wanted.retry_after_s &&
               take.answer.reset_after_s == wanted.reset_after_s;
    if (!same)
        fail_msg("%lld %lld %lld %lld at %lld: %d [%d, %lld, %lld, %lld, %lld]", (long long)n[0], (long long)n[1],
                 (long long)n[2], (long long)n[3], (long long)now_us, take.code, take.answer.limited,
                 (long long)take.answer.limit, (long long)take.answer.remaining, (long long)take.answer.retry_after_s,
                 (long long)take.answer.reset_after_s);
}

static void schedules(void **unused)
{
    (void)unused;
    struct random r = { random_seed() };
    for (int round = 0; round < 20000; round++) {
        struct key key = { 0 };
        struct limit_state state = { 0 };
        int64_t n[4] = { number(&r, 0, 20), number(&r, 1, 30), number(&r, 1, 60), 1 };
        int64_t now_us = random_one_in(&r, 20) ? random_in(&r, 0, CLOCK_END_US / 2) : T0;
        for (int i = 0; i < 50; i++) {
            if (random_one_in(&r, 15))
                n[random_in(&r, 0, 2)] = number(&r, 1, 20);
            n[3] = random_one_in(&r, 3) ? number(&r, -2, 8) : 1;
            compare_step(&key, &state, n, now_us);
            now_us += later(&r);
        }
    }
}

/* ---- answers of the real one ---- */

struct call {
    int64_t after_ms;
    int64_t numbers[4];
    struct gcra_answer answer;
};

static void replay(const struct call *calls, size_t count)
{
    struct limit_state state = { 0 };
    int64_t now_us = T0;
    for (size_t i = 0; i < count; i++) {
        const struct call *c = &calls[i];
        struct gcra gcra;
        now_us += c->after_ms * US_PER_MS;
        assert_int_equal(gcra_init(&gcra, c->numbers[0], c->numbers[1], c->numbers[2], c->numbers[3]), GCRA_OK);
        struct gcra_take take = gcra_take(&gcra, state, now_us);
        if (take.writes)
            state = take.next;
        assert_int_equal(take.code, GCRA_OK);
        assert_int_equal(take.answer.limited, c->answer.limited);
        assert_int_equal(take.answer.limit, c->answer.limit);
        assert_int_equal(take.answer.remaining, c->answer.remaining);
        assert_int_equal(take.answer.retry_after_s, c->answer.retry_after_s);
        assert_int_equal(take.answer.reset_after_s, c->answer.reset_after_s);
    }
}

static void recorded(void **unused)
{
    (void)unused;
    static const struct call calls[] = {
        { 0, { 15, 30, 60, 1 }, { false, 16, 15, -1, 2 } },       { 0, { 15, 30, 60, 1 }, { false, 16, 14, -1, 4 } },
        { 500, { 15, 30, 60, 1 }, { false, 16, 13, -1, 6 } },     { 1, { 15, 30, 60, 10 }, { false, 16, 3, -1, 26 } },
        { 0, { 15, 30, 60, 5 }, { true, 16, 3, 4, 26 } },         { 250, { 15, 30, 60, 0 }, { false, 16, 3, -1, 26 } },
        { 1500, { 15, 30, 60, 1 }, { false, 16, 3, -1, 26 } },    { 0, { 15, 30, 60, 20 }, { true, 16, 3, -1, 26 } },
        { 0, { 3, 30, 60, 1 }, { true, 4, 0, 20, 26 } },          { 0, { 3, 30, 60, 0 }, { true, 4, 0, 18, 26 } },
        { 2000, { 15, 7, 60, 1 }, { false, 16, 12, -1, 33 } },    { 0, { 15, 7, 60, -2 }, { false, 16, 14, -1, 16 } },
        { 10, { 0, 7, 60, 1 }, { true, 1, 0, 16, 16 } },          { 60000, { 15, 30, 60, 1 }, { false, 16, 15, -1, 2 } },
        { 1, { 15, 3, 1, 1 }, { false, 16, 9, -1, 3 } },          { 330, { 15, 3, 1, 1 }, { false, 16, 8, -1, 3 } },
        { 5000, { 2, 1000000, 1, 1 }, { false, 3, 2, -1, 0 } },   { 0, { 2, 1000000, 1, 3 }, { true, 3, 2, 0, 0 } },
        { 1, { 2, 1000000, 1, 1 }, { false, 3, 2, -1, 0 } },      { 1000, { 4, -5, 10, 1 }, { true, 5, 0, -1, 0 } },
        { 0, { 4, 5, -10, 3 }, { true, 5, 0, -1, 0 } },           { 0, { -3, 5, 10, 1 }, { true, -2, 0, -1, 0 } },
        { 1000, { 0, 3, 86400, 1 }, { false, 1, 0, -1, 28800 } }, { 1, { 0, 3, 86400, 1 }, { true, 1, 0, 28800, 28800 } },
    };
    replay(calls, sizeof calls / sizeof *calls);
}

/* ---- what is wrong ---- */

static void wrong_numbers(void **unused)
{
    (void)unused;
    struct gcra gcra;
    assert_int_equal(gcra_init(&gcra, 1, 0, 1, 1), GCRA_ZERO_RATE);
    assert_int_equal(gcra_init(&gcra, 1, 1, 0, 1), GCRA_ZERO_RATE);
    assert_int_equal(gcra_init(&gcra, 1, 2000000000, 1, 1), GCRA_ZERO_RATE);
    assert_int_equal(gcra_init(&gcra, INT64_MAX, 0, 1, 1), GCRA_ZERO_RATE);
    assert_int_equal(gcra_init(&gcra, INT64_MAX, 1, 1, 1), GCRA_TOO_LARGE);
    assert_int_equal(gcra_init(&gcra, 1, 1, 1, INT64_MAX), GCRA_TOO_LARGE);
    assert_int_equal(gcra_init(&gcra, 10, 1, INT64_MAX, 1), GCRA_TOO_LARGE);
    assert_int_equal(gcra_init(&gcra, 0, 1, INT64_MAX, 1), GCRA_OK);
}

/* The state that redis-cell stores before it fails makes no difference to those who charge. */
static void given_back_too_much(void **unused)
{
    (void)unused;
    struct gcra back, one;
    struct limit_state state = { 0 };
    assert_int_equal(gcra_init(&back, 3, 1, 1, -1), GCRA_OK);
    assert_int_equal(gcra_init(&one, 3, 1, 1, 1), GCRA_OK);
    struct gcra_take take = gcra_take(&back, state, T0);
    assert_int_equal(take.code, GCRA_EXPIRED);
    assert_true(take.writes);
    assert_int_equal(take.outlook.decays_us, T0);
    take = gcra_take(&one, take.next, T0);
    assert_int_equal(take.code, GCRA_OK);
    assert_int_equal(take.answer.remaining, 3);
}

/* Nobody may find a cell free that still counts, and one without room says so. */
static void outlook(void **unused)
{
    (void)unused;
    struct gcra gcra;
    struct limit_state state = { 0 };
    assert_int_equal(gcra_init(&gcra, 1, 1, 60, 1), GCRA_OK);
    struct gcra_take take = gcra_take(&gcra, state, T0);
    assert_int_equal(take.outlook.share, LIMIT_SHARES / 2 + 1);
    assert_true(take.outlook.decays_us > T0 + 60 * US_PER_S);
    take = gcra_take(&gcra, take.next, T0);
    assert_false(take.answer.limited);
    assert_int_equal(take.outlook.share, 255);
    assert_true(take.outlook.decays_us > T0 + 120 * US_PER_S);
    take = gcra_take(&gcra, take.next, T0);
    assert_true(take.answer.limited);
    assert_false(take.writes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules),           cmocka_unit_test(recorded), cmocka_unit_test(wrong_numbers),
        cmocka_unit_test(given_back_too_much), cmocka_unit_test(outlook),
    };
    return cmocka_run_group_tests_name("gcra", tests, NULL, NULL);
}
