/* What all loops have counted together: the sums by rule, their differences, and the busiest of them. */
#include "serve/tally.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/server.h"

#define NOW (INT64_C(1700000000) * 1000000)
enum { LOOPS = 3, RULES = 600 };

struct fixture {
    struct server server;
    struct loop loops[LOOPS];
    struct weir *weir;
    struct tally *tally;
};

/* Rules r0, r1, … let three of each key pass; those with an odd number are in shadow mode. */
static struct fixture *fixture_new(void)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct weir_error error;
    struct buf rules;
    assert_non_null(f);
    buf_init(&rules, 1 << 20);
    buf_add(&rules, SV("rules:\n"));
    for (int i = 0; i < RULES; i++)
        buf_printf(
            &rules,
            "  - { id: r%d, match: { event: e%d }, by: [key], mode: %s, limits: [ { name: l, algorithm: fixed_window, "
            "max: 3, per: 24h } ] }\n",
            i, i, i % 2 ? "shadow" : "enforce");
    struct weir_options options = { .size = sizeof options, .rules_text = rules.ptr, .cells_keys = 10000 };
    if (weir_open(&f->weir, &options, &error) < 0)
        fail_msg("%s", error.text);
    buf_done(&rules);
    f->server = (struct server){ .loops = f->loops, .loop_count = LOOPS - 1, .weir = f->weir };
    for (int i = 0; i < LOOPS; i++)
        assert_int_equal(stats_new(&f->loops[i].stats), 0);
    assert_int_equal(tally_new(&f->tally, &f->server), 0);
    return f;
}

static void fixture_free(struct fixture *f)
{
    tally_free(f->tally);
    for (int i = 0; i < LOOPS; i++)
        stats_free(f->loops[i].stats);
    weir_close(f->weir);
    free(f);
}

static void decide(struct fixture *f, int loop, int rule, int times)
{
    static struct weir_shadows shadows;
    static struct weir_verdict verdict;
    char event[20];
    snprintf(event, sizeof event, "e%d", rule);
    for (int i = 0; i < times; i++) {
        struct weir_request request = { .event = weir_str(event), .key = SV("k"), .cost = 1, .shadows = &shadows };
        stats_count_rules_of(f->loops[loop].stats, &request);
        assert_int_equal(weir_check_batch(f->weir, &request, 1, NOW, &verdict), 0);
        stats_decided(f->loops[loop].stats, f->weir, &request, &verdict, 1, NOW, 1000);
    }
}

/* "passed/refused/would refuse" since the mark. */
static const char *said(struct fixture *f, const struct tally_mark *mark, const char *id)
{
    static char text[100];
    size_t rule;
    if (!tally_find(f->tally, weir_str(id), &rule))
        return "unknown";
    assert_string_equal(tally_rule_id(f->tally, rule), id);
    struct stats_said s = tally_rule_since(f->tally, mark, rule);
    snprintf(text, sizeof text, "%d/%d/%d", (int)s.passed, (int)s.refused, (int)s.would_refuse);
    return text;
}

static const char *all(struct fixture *f, const struct tally_mark *mark)
{
    static char text[100];
    struct tally_all a = tally_since(f->tally, mark);
    snprintf(text, sizeof text, "%d/%d/%d, %d without, %d errors", (int)a.allowed, (int)a.refused, (int)a.shadow,
             (int)a.without_rule, (int)a.errors);
    return text;
}

static void loops_add_up(void **state)
{
    struct fixture *f = fixture_new();
    struct tally_mark mark = { .count = 0 };
    (void)state;
    assert_int_equal(tally_read(f->tally), 0);
    assert_string_equal(all(f, &mark), "0/0/0, 0 without, 0 errors");
    assert_string_equal(said(f, &mark, "r0"), "unknown");
    decide(f, 0, 0, 2);
    decide(f, 2, 1, 4); /* loops meet the rules in different orders */
    decide(f, 2, 0, 3);
    decide(f, 1, RULES, 1);
    assert_int_equal(tally_read(f->tally), 0);
    assert_string_equal(said(f, &mark, "r0"), "3/2/0");
    assert_string_equal(said(f, &mark, "r1"), "3/0/1");
    assert_string_equal(all(f, &mark), "8/2/1, 1 without, 0 errors");
    assert_int_equal(tally_set_mark(f->tally, &mark), 0);
    decide(f, 1, 0, 1);
    decide(f, 1, 2, 5);
    assert_string_equal(all(f, &mark), "0/0/0, 0 without, 0 errors"); /* not read yet */
    assert_int_equal(tally_read(f->tally), 0);
    assert_string_equal(said(f, &mark, "r0"), "0/1/0");
    assert_string_equal(said(f, &mark, "r1"), "0/0/0");
    assert_string_equal(said(f, &mark, "r2"), "3/2/0");
    assert_string_equal(all(f, &mark), "3/3/0, 0 without, 0 errors");
    tally_mark_done(&mark);
    fixture_free(f);
}

static void a_throttle_is_one_too(void **state)
{
    struct fixture *f = fixture_new();
    struct tally_mark mark = { .count = 0 };
    (void)state;
    for (int i = 0; i < 3; i++)
        stats_throttled(f->loops[i].stats, f->weir, i ? OUTCOME_REFUSED : OUTCOME_ALLOWED, 0, SV("k"), NOW);
    assert_int_equal(tally_read(f->tally), 0);
    assert_string_equal(said(f, &mark, STATS_THROTTLE), "1/2/0");
    assert_string_equal(all(f, &mark), "1/2/0, 0 without, 0 errors");
    fixture_free(f);
}

/* Whatever the order in which rules have their counts, and whatever the bound. */
static void the_busiest_come_first(void **state)
{
    static const size_t bounds[] = { 1, 2, 3, 10, RULES - 1, RULES, RULES + 1 };
    struct fixture *f = fixture_new();
    struct tally_mark mark = { .count = 0 };
    struct tally_rule busiest[RULES + 1];
    struct stats_said rest;
    uint64_t sum = 0;
    (void)state;
    srand(1);
    for (int i = 0; i < RULES; i++) {
        int times = 1 + rand() % 50;
        decide(f, rand() % LOOPS, i, times);
        sum += (uint64_t)times;
    }
    assert_int_equal(tally_read(f->tally), 0);
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        size_t count = tally_busiest(f->tally, &mark, busiest, bounds[b], &rest);
        assert_int_equal(count, bounds[b] < RULES ? bounds[b] : RULES);
        uint64_t listed = 0, least = tally_busy(busiest[count - 1].said);
        for (size_t i = 0; i < count; i++) {
            listed += tally_busy(busiest[i].said);
            assert_true(i == 0 || tally_busy(busiest[i].said) <= tally_busy(busiest[i - 1].said));
        }
        assert_int_equal(listed + tally_busy(rest), sum);
        size_t busier = 0;
        for (size_t i = 0; i < tally_rule_count(f->tally); i++)
            busier += tally_busy(tally_rule_since(f->tally, &mark, i)) > least;
        assert_true(busier < count || least == 0);
    }
    assert_int_equal(tally_set_mark(f->tally, &mark), 0);
    assert_int_equal(tally_busiest(f->tally, &mark, busiest, 10, &rest), 0);
    assert_int_equal(tally_busy(rest), 0);
    tally_mark_done(&mark);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_add_up),
        cmocka_unit_test(a_throttle_is_one_too),
        cmocka_unit_test(the_busiest_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
