/* Rows of rules that were seen are found in the order in which they came, in any other order, and not if they say something
 * else; other rows are found by what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "source/backend.h"

enum { RULES = 40 };

static const char text[] = "{ id: %c%c, limits: [1 per 1s] }\n";

static struct rules *make_rules(void)
{
    struct buf yaml;
    struct rules_report report;
    buf_init(&yaml, 1 << 16);
    buf_printf(&yaml, "rules:\n");
    for (int i = 0; i < RULES; i++) {
        buf_printf(&yaml, "- ");
        buf_printf(&yaml, text, 'a' + i / 10, '0' + i % 10);
    }
    struct rules *rules = rules_read(buf_sv(&yaml), &report);
    assert_non_null(rules);
    assert_int_equal(rules->rule_count, RULES);
    rules_report_done(&report);
    buf_done(&yaml);
    return rules;
}

static uint64_t version_of(size_t rule)
{
    return 1000 + 2 * rule;
}

/* The rules have come in this order, with places in between for rows that were bad. Two other rows follow. */
static struct seen make_seen(struct rules *rules, const size_t order[RULES])
{
    struct seen seen;
    assert_true(seen_begin(&seen, rules, 7, RULES + 2, 2));
    seen.came = malloc(2 * RULES * sizeof *seen.came);
    assert_non_null(seen.came);
    memset(seen.came, 0xff, 2 * RULES * sizeof *seen.came);
    for (size_t i = 0; i < RULES; i++)
        seen.came[2 * i + i % 2] = (uint32_t)order[i];
    for (size_t i = 0; i < RULES; i++)
        seen_add_rule(&seen, version_of(i), rules->rules[i]);
    seen_trim_came(&seen, 2 * RULES);
    seen_add_other(&seen, (struct seen_row){ 5, { .rule = rules->rules[0] } });
    seen_add_other(&seen, (struct seen_row){ version_of(3) + 1, { .rule = rules->rules[1] } });
    return seen;
}

static void check_seen(struct rules *rules, const size_t order[RULES], bool as_ids)
{
    struct seen seen = make_seen(rules, order);
    struct stored_row call = { .table = TABLE_CALLS };
    size_t next = 0;
    assert_int_equal(seen.came == NULL, as_ids);
    for (size_t i = 0; i < RULES; i++) {
        size_t rule = order[i];
        const struct seen_row *row = seen_next(&seen, rules->rules[rule]->id, version_of(rule), &next);
        assert_ptr_equal(row->rule, rules->rules[rule]);
        assert_int_equal(next, i + 1);
    }
    next = 0;
    for (size_t i = RULES; i-- > 0;) { /* in another order */
        const struct seen_row *row = seen_next(&seen, rules->rules[i]->id, version_of(i), &next);
        assert_ptr_equal(row->rule, rules->rules[i]);
        assert_null(seen_next(&seen, rules->rules[i]->id, version_of(i) + 1, &next));
        struct stored_row stored = { .table = TABLE_RULES, .key = rules->rules[i]->id, .rule = rules->rules[i]->id };
        assert_ptr_equal(seen_find(&seen, &stored, version_of(i)), row);
        assert_null(seen_find(&seen, &stored, version_of((i + 1) % RULES)));
        assert_null(seen_find(&seen, &call, version_of(i)));
    }
    assert_null(seen_next(&seen, SV("zz"), 1, &next));
    assert_ptr_equal(seen_find(&seen, &call, 5)->rule, rules->rules[0]);
    assert_ptr_equal(seen_find(&seen, &call, version_of(3) + 1)->rule, rules->rules[1]);
    assert_null(seen_find(&seen, &call, 9));
    seen_done(&seen);
    assert_null(seen_find(&seen, &call, 5));
}

static void test_orders(void **state)
{
    (void)state;
    struct rules *rules = make_rules();
    size_t order[RULES];
    for (size_t i = 0; i < RULES; i++)
        order[i] = i;
    check_seen(rules, order, true);
    for (size_t i = 0; i < RULES; i++)
        order[i] = i * 7 % RULES;
    check_seen(rules, order, false);
    rules_free(rules);
}

/* Rows that were removed do not cost the order of those after them. */
static void test_removed(void **state)
{
    (void)state;
    struct rules *rules = make_rules();
    size_t order[RULES], next = 0;
    for (size_t i = 0; i < RULES; i++)
        order[i] = RULES - 1 - i;
    struct seen seen = make_seen(rules, order);
    for (size_t i = 0; i < RULES; i++)
        if (i < 3 || i > 12) {
            const struct seen_row *row = seen_next(&seen, rules->rules[order[i]]->id, version_of(order[i]), &next);
            assert_ptr_equal(row->rule, rules->rules[order[i]]);
            assert_int_equal(next, i + 1);
        }
    seen_done(&seen);
    rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_removed),
    };
    return cmocka_run_group_tests_name("seen", tests, NULL, NULL);
}
