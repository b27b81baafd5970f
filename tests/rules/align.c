/* Aligning two sets that share most rules: each rule finds itself, however many came and went around it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "rules/rules.h"

enum { ROWS = 60 };

struct table {
    struct rule_row rows[ROWS];
    char ids[ROWS][16], texts[ROWS][100];
    size_t count;
};

/* Adds a rule with this number in its path and its limit. */
static void add(struct table *t, int id, int path, int max)
{
    size_t i = t->count++;
    snprintf(t->ids[i], sizeof t->ids[i], "r%d", id);
    snprintf(t->texts[i], sizeof t->texts[i], "{match: {path: /p%d}, limits: [%d per 1s]}", path, max);
    t->rows[i] = (struct rule_row){ .kind = ROW_RULE };
}

/* `before` and `old`: the set and the rows that these rows come from; rules whose text is the same are shared. */
static struct rules *read_table(struct table *t, struct rules *before, const struct table *old)
{
    struct rules_report report = { 0 };
    for (size_t i = 0; i < t->count; i++) {
        t->rows[i].id = weir_str(t->ids[i]);
        t->rows[i].text = weir_str(t->texts[i]);
        for (size_t k = 0; old && k < old->count; k++)
            if (strcmp(old->ids[k], t->ids[i]) == 0 && strcmp(old->texts[k], t->texts[i]) == 0)
                t->rows[i].rule = old->rows[k].rule;
    }
    struct rules *rules = rules_reread_rows(t->rows, t->count, before, &report);
    assert_non_null(rules);
    assert_int_equal(report.error_count, 0);
    rules_report_done(&report);
    return rules;
}

static void fill(struct table *t, int count)
{
    t->count = 0;
    for (int i = 0; i < count; i++)
        add(t, i, i, 1);
}

static void test_one_row(void **state)
{
    (void)state;
    enum { N = 20 };
    struct table a, b;
    uint32_t was[ROWS];
    for (int at = 0; at <= N; at++) {
        fill(&a, N);
        struct rules *before = read_table(&a, NULL, NULL);
        b.count = 0;
        for (int i = 0; i < N + 1; i++)
            add(&b, i == at ? 100 : i - (i > at), i == at ? 100 : i - (i > at), 1);
        struct rules *after = read_table(&b, before, &a);
        assert_false(rules_align(before, after, 0, was));
        assert_true(rules_align(before, after, 1, was));
        for (int i = 0; i < N + 1; i++)
            assert_int_equal(was[i], i == at ? UINT32_MAX : (uint32_t)(i - (i > at)));
        /* And back: it goes. */
        assert_false(rules_align(after, before, 0, was));
        assert_true(rules_align(after, before, 1, was));
        for (int i = 0; i < N; i++)
            assert_int_equal(was[i], i + (i >= at));
        rules_free(before);
        rules_free(after);
    }
}

/* A limit may change, and the rule is still found as it was; another path, or another id, is another rule. */
static void test_changed(void **state)
{
    (void)state;
    struct table a, b;
    uint32_t was[ROWS];
    fill(&a, 9);
    struct rules *before = read_table(&a, NULL, NULL);
    b.count = 0;
    for (int i = 0; i < 9; i++)
        add(&b, i == 6 ? 100 : i, i == 4 ? 100 : i, i == 2 ? 100 : 1);
    struct rules *after = read_table(&b, before, &a);
    assert_false(rules_align(before, after, 3, was));
    assert_true(rules_align(before, after, 4, was));
    for (uint32_t i = 0; i < 9; i++)
        assert_int_equal(was[i], i == 4 || i == 6 ? UINT32_MAX : i);
    assert_false(rule_is_shared(before->rules[2], after->rules[2]));
    rules_free(before);
    rules_free(after);
}

static void test_ends(void **state)
{
    (void)state;
    struct table a, none = { .count = 0 };
    uint32_t was[ROWS];
    fill(&a, 5);
    struct rules *some = read_table(&a, NULL, NULL), *empty = read_table(&none, NULL, NULL);
    assert_true(rules_align(empty, empty, 0, was));
    assert_false(rules_align(empty, some, 4, was));
    assert_true(rules_align(empty, some, 5, was));
    for (int i = 0; i < 5; i++)
        assert_int_equal(was[i], UINT32_MAX);
    assert_false(rules_align(some, empty, 4, was));
    assert_true(rules_align(some, empty, 5, was));
    rules_free(some);
    rules_free(empty);
}

/* Whatever changes: numbers rise, and who is there once in both is the same rule. */
static void test_random(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    for (int round = 0; round < 2000; round++) {
        struct table a = { .count = 0 }, b = { .count = 0 };
        uint32_t was[ROWS], last = 0;
        for (int i = 0; i < ROWS; i++) {
            bool in_a = !random_one_in(&r, 6), in_b = !random_one_in(&r, 6);
            if (in_a)
                add(&a, i, i, 1);
            if (in_b)
                add(&b, i, random_one_in(&r, 10) ? 100 : i, random_one_in(&r, 10) ? 2 : 1);
        }
        struct rules *before = read_table(&a, NULL, NULL), *after = read_table(&b, before, &a);
        assert_true(rules_align(before, after, 2 * ROWS, was));
        for (size_t i = 0; i < after->rule_count; i++) {
            if (was[i] == UINT32_MAX)
                continue;
            assert_true(was[i] >= last && was[i] < before->rule_count);
            last = was[i] + 1;
            assert_true(sv_eq(before->rules[was[i]]->id, after->rules[i]->id));
            assert_true(rule_matches_same(before->rules[was[i]], after->rules[i]));
        }
        for (size_t i = 0; i < after->rule_count; i++)
            for (size_t k = 0; k < before->rule_count; k++)
                if (rule_is_shared(before->rules[k], after->rules[i]))
                    assert_int_equal(was[i], k);
        rules_free(before);
        rules_free(after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
