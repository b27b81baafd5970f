/* The list of penalised subjects: bounded, each once, those that end first make room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "refused/penalised.h"

static struct penalised_entry entry(const char *rule, const char *user, int64_t ends_us)
{
    static const struct hash_key key = { 1, 2 };
    struct rule_by by = { .attribute = ATTR_USER };
    struct rule_kind kind = { .by = &by, .by_count = 1 };
    struct rule r = { .id = weir_str(rule), .kind = &kind };
    struct weir_str value = weir_str(user);
    struct penalised_entry e = { .hash = (uint64_t)ends_us, .ends_us = ends_us };
    subject_fill(&e.subject, &r, &value, &key);
    return e;
}

static void add(struct penalised *p, const char *rule, const char *user, int64_t ends_us)
{
    struct penalised_entry e = entry(rule, user, ends_us);
    penalised_add(p, &e, 0);
}

static void expect(const struct penalised_list *list, size_t i, const char *rule, const char *user, int64_t ends_us)
{
    assert_true(sv_eq(subject_rule(&list->entries[i].subject), weir_str(rule)));
    assert_true(sv_eq(subject_value(&list->entries[i].subject, 0), weir_str(user)));
    assert_int_equal(list->entries[i].ends_us, ends_us);
    assert_int_equal(list->entries[i].hash, ends_us);
}

static void each_is_listed_once(void **state)
{
    (void)state;
    struct penalised *a, *b;
    struct penalised_list list = { 0 };
    assert_int_equal(penalised_new(&a, 4), 0);
    assert_int_equal(penalised_new(&b, 4), 0);
    add(a, "r", "ann", 10);
    add(a, "r", "ann", 20);
    add(a, "q", "ann", 5);
    add(b, "r", "ann", 15);
    add(b, "r", "bob", 30);
    assert_int_equal(penalised_list_reserve(&list, 4), 0);
    penalised_collect(a, &list);
    assert_int_equal(penalised_list_reserve(&list, 4), 0);
    penalised_collect(b, &list);
    penalised_list_sort(&list);
    assert_int_equal(list.count, 3);
    expect(&list, 0, "q", "ann", 5);
    expect(&list, 1, "r", "bob", 30);
    expect(&list, 2, "r", "ann", 20);
    assert_int_equal(list.left_out, 0);
    penalised_list_done(&list);
    penalised_free(a);
    penalised_free(b);
}

static void the_first_to_end_makes_room(void **state)
{
    (void)state;
    struct penalised *p;
    struct penalised_list list = { 0 };
    assert_int_equal(penalised_new(&p, 2), 0);
    add(p, "r", "ann", -10); /* it is over */
    add(p, "r", "bob", 20);
    add(p, "r", "cat", 30);
    add(p, "r", "dan", 40);
    assert_int_equal(penalised_list_reserve(&list, 2), 0);
    penalised_collect(p, &list);
    penalised_list_sort(&list);
    assert_int_equal(list.count, 2);
    expect(&list, 0, "r", "dan", 40);
    expect(&list, 1, "r", "cat", 30);
    assert_int_equal(list.left_out, 1);
    penalised_list_done(&list);
    penalised_free(p);
}

static void nobody(void **state)
{
    (void)state;
    struct penalised_list list = { 0 };
    penalised_list_sort(&list);
    assert_int_equal(list.count, 0);
    penalised_list_done(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_listed_once),
        cmocka_unit_test(the_first_to_end_makes_room),
        cmocka_unit_test(nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
