/* The table finds each text in its space, and no other; entries of the tree know the only rule that they lead to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "match/ruleset.h"
#include "read.h"

enum { TEXTS = 400, LONGEST = 40, SPACES = 3 };

struct known {
    char text[LONGEST];
    size_t len;
    uint32_t space;
};

/* Texts of all lengths that differ in few bytes, at their beginning, in the middle or at their end. */
static struct known random_known(struct random *r)
{
    struct known k = { .len = (size_t)random_in(r, 0, LONGEST), .space = (uint32_t)random_in(r, 0, SPACES - 1) };
    memset(k.text, 'a', sizeof k.text);
    for (int64_t i = random_in(r, 0, 2); k.len > 0 && i > 0; i--)
        k.text[random_in(r, 0, (int64_t)k.len - 1)] = (char)('a' + random_in(r, 0, 3));
    return k;
}

static uint32_t find_slowly(const struct known *known, uint32_t count, const struct known *wanted)
{
    for (uint32_t i = 0; i < count; i++)
        if (known[i].space == wanted->space && sv_eq(sv_of(known[i].text, known[i].len), sv_of(wanted->text, wanted->len)))
            return i;
    return TABLE_NONE;
}

static void check_round(struct random *r)
{
    static struct known known[TEXTS];
    struct table table = { 0 };
    uint32_t count = 0;
    for (int i = 0; i < TEXTS; i++) {
        known[count] = random_known(r);
        uint32_t before = find_slowly(known, count, &known[count]);
        uint32_t *value = table_put(&table, known[count].space, sv_of(known[count].text, known[count].len), count);
        assert_non_null(value);
        assert_int_equal(*value, before == TABLE_NONE ? count : before);
        count += before == TABLE_NONE;
    }
    for (int i = 0; i < 4 * TEXTS; i++) {
        struct known wanted = random_known(r);
        assert_int_equal(table_find(&table, wanted.space, sv_of(wanted.text, wanted.len)),
                         find_slowly(known, count, &wanted));
    }
    table_done(&table);
}

static void test_random(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    for (int i = 0; i < 50; i++)
        check_round(&r);
}

/* Returns what the entry of a segment below the first node of the tree says, which the text of the tree's entries tells. */
static uint32_t only_of(const struct ruleset *ruleset, const char *segment)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < ruleset->table.size; i++) {
        const struct table_entry *entry = &ruleset->table.entries[i];
        if (entry->value == TABLE_NONE || entry->space < TREE_SPACE || !sv_eq(table_text(entry), weir_str(segment)))
            continue;
        assert_int_equal(found, UINT32_MAX);
        found = entry->only;
    }
    assert_int_not_equal(found, UINT32_MAX);
    return found;
}

#define RULE(id, path) "  - { id: " id ", match: { path: " path " }, by: [user], limits: [{ max: 1, per: 1s }] }\n"

static void test_only(void **state)
{
    (void)state;
    struct ruleset *ruleset = read_ruleset(SV(
        "rules:\n" RULE("r0", "/first") RULE("r1", "/one/#/a") RULE("r2", "/two/#/a") RULE("r3", "/two/#/b")
            RULE("r4", "/rest/*") RULE("r5", "/twice/x") RULE("r6", "/twice/x") RULE("r7", "[/both/x, /both/y/z]")
                RULE("r8", "/within") RULE("r9", "/within/more") RULE("r10", "\"/deep/{name}/a-long-segment-of-a-path\"")));
    const struct {
        const char *segment;
        uint32_t only;
    } cases[] = {
        { "one", 1 + 1 },  { "two", 0 },    { "rest", 4 + 1 },  { "twice", 0 },
        { "both", 7 + 1 }, { "within", 0 }, { "deep", 10 + 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(only_of(ruleset, cases[i].segment), cases[i].only);
    ruleset_free(ruleset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_only),
    };
    return cmocka_run_group_tests_name("text_table", tests, NULL, NULL);
}
