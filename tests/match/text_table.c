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
    for (int i = 0; i < 8 * TEXTS; i++) {
        struct known wanted = random_known(r);
        if (i == 4 * TEXTS)
            assert_true(table_trim(&table));
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

/* ---- full tables ---- */

enum { FULL = 1500, ALIKE = 60, ALIKE_LEN = 16 };

static sv number_text(char room[16], const char *form, uint32_t number)
{
    return sv_of(room, (size_t)snprintf(room, 16, form, number));
}

/* The entries of a table that is trimmed are where a search finds them, and nothing else is found. */
static void check_numbers(struct table *table, const char *form, uint32_t count)
{
    char room[16];
    size_t next = 0, entries = 0;
    for (struct table_entry entry; table_each(table, &next, &entry);)
        entries++;
    assert_int_equal(entries, count);
    for (uint32_t i = 0; i < 2 * count; i++)
        for (uint32_t space = 0; space < 4; space++)
            assert_int_equal(table_find(table, space, number_text(room, form, i)),
                             i < count && space == i % 3 ? i + 7 : TABLE_NONE);
}

static void test_full(void **state)
{
    (void)state;
    static const char *const forms[] = { "%u", "/%09u", "%014u" };
    char room[16];
    for (size_t form = 0; form < 3; form++)
        for (uint32_t count = 1; count < FULL; count += 1 + count / 3) {
            struct table table = { 0 };
            if (count % 2)
                assert_true(table_reserve(&table, count));
            static char texts[FULL][16]; /* which the table does not copy if they are long */
            for (uint32_t i = 0; i < count; i++)
                assert_non_null(table_put(&table, i % 3, number_text(texts[i], forms[form], i), i + 7));
            assert_true(table_trim(&table));
            assert_true(table.line_count * TABLE_SLOTS <= count * 8 / 7 + 2 * TABLE_SLOTS);
            check_numbers(&table, forms[form], count);
            /* Nothing is lost if more is added. */
            assert_non_null(table_put(&table, count % 3, number_text(room, "%u", count), count + 7));
            table_done(&table);
        }
}

/* Writes a text of ALIKE_LEN bytes whose table_hash is that of all others with the same `hash`. */
static sv text_alike(char room[ALIKE_LEN], uint64_t hash, uint64_t number)
{
    uint64_t first = number, last = hash ^ table_fold(ALIKE_LEN * TABLE_MIX ^ table_salt ^ first, TABLE_MIX);
    memcpy(room, &first, sizeof first);
    memcpy(room + sizeof first, &last, sizeof last);
    return sv_of(room, ALIKE_LEN);
}

/* Texts that all belong in the same two lines take the lines after them, also after the last one. */
static void test_alike(void **state)
{
    (void)state;
    static char texts[ALIKE][ALIKE_LEN];
    char room[ALIKE_LEN];
    bool wrapped = false;
    for (uint64_t hash = 0; hash < 40; hash++) {
        struct table table = { 0 };
        for (uint32_t i = 0; i < ALIKE; i++)
            assert_non_null(table_put(&table, 1, text_alike(texts[i], hash, i), i));
        assert_int_equal(table_hash(text_alike(room, hash, 0)), table_hash(text_alike(room, hash, 1)));
        assert_true(table_trim(&table));
        for (uint32_t i = 0; i < 2 * ALIKE; i++)
            assert_int_equal(table_find(&table, 1, text_alike(room, hash, i)), i < ALIKE ? i : TABLE_NONE);
        uint32_t second = table_second(&table, table_places(1, table_hash(text_alike(room, hash, 0))));
        wrapped = wrapped || (second > 0 && second + ALIKE / TABLE_SLOTS > table.line_count);
        for (uint64_t other = 0; other < 40; other++) /* in lines that are full */
            assert_int_equal(table_find(&table, 1, text_alike(room, hash + 1 + other, 0)), TABLE_NONE);
        table_done(&table);
    }
    assert_true(wrapped);
}

/* Texts that a customer may write as literals of paths, having read how the hash is made, do not crowd a few lines. */
static void test_crafted(void **state)
{
    (void)state;
    enum { CRAFTED = 1000, LEN = 24 };
    static char texts[CRAFTED][LEN];
    struct table table = { 0 };
    for (uint64_t i = 0; i < CRAFTED; i++) {
        uint64_t second = table_fold(LEN * TABLE_MIX ^ i, TABLE_MIX);
        memset(texts[i], 'x', LEN);
        memcpy(texts[i], &i, sizeof i);
        memcpy(texts[i] + sizeof i, &second, sizeof second);
        assert_non_null(table_put(&table, 1, sv_of(texts[i], LEN), (uint32_t)i));
    }
    assert_true(table_trim(&table));
    size_t next = 0, beyond = 0;
    for (struct table_entry entry; table_each(&table, &next, &entry);) {
        uint64_t places = table_places(*entry.space, table_word(entry.text));
        uint32_t line = (uint32_t)((next - 1) / TABLE_SLOTS);
        beyond += line != table_first(&table, places) && line != table_second(&table, places);
    }
    assert_in_range(beyond, 0, CRAFTED / 10);
    table_done(&table);
}

static void test_long_texts(void **state)
{
    (void)state;
    static char text[TABLE_TEXT_MAX + 20];
    struct table table = { 0 };
    memset(text, 'x', sizeof text);
    assert_null(table_put(&table, 0, sv_of(text, TABLE_TEXT_MAX + 1), 1));
    assert_non_null(table_put(&table, 0, sv_of(text, TABLE_TEXT_MAX), 2));
    assert_non_null(table_put(&table, 0, sv_of(text, 15), 3));
    for (size_t len = 13; len < 20; len++)
        assert_int_equal(table_find(&table, 0, sv_of(text, TABLE_TEXT_MAX + 1 + len)), TABLE_NONE);
    assert_int_equal(table_find(&table, 0, sv_of(text, TABLE_TEXT_MAX)), 2);
    assert_int_equal(table_find(&table, 0, sv_of(text, 15)), 3);
    table_done(&table);
}

/* ---- the only rule ---- */

/* Returns what the entry of a segment below the first node of the tree says, which the text of the tree's entries tells. */
static uint32_t value_of(const struct ruleset *ruleset, const char *segment)
{
    const uint32_t *found = NULL;
    struct table_entry entry;
    for (size_t next = 0; table_each(&ruleset->table, &next, &entry);) {
        if (*entry.space < TREE_SPACE || !sv_eq(entry.text, weir_str(segment)))
            continue;
        assert_null(found);
        found = entry.value;
    }
    assert_non_null(found);
    return *found;
}

/* Returns 1 + the only rule that the entry or its node leads to. */
static uint32_t only_of(const struct ruleset *ruleset, const char *segment)
{
    uint32_t value = value_of(ruleset, segment);
    return value & CHILD_ONE ? 1 + (value & (CHILD_RULES - 1)) : ruleset->tree.nodes[value].only;
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
        { "both", 7 + 1 }, { "within", 0 }, { "deep", 10 + 1 }, { "a-long-segment-of-a-path", 10 + 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(only_of(ruleset, cases[i].segment), cases[i].only);
    ruleset_free(ruleset);
}

/* More tails than an entry can name: those that most entries have are named, the others have nodes of their own. */
static void test_many_tails(void **state)
{
    (void)state;
    enum { MANY = 10000, OFTEN = 8 };
    struct buf text;
    buf_init(&text, 4 << 20);
    buf_add(&text, SV("rules:\n"));
    for (unsigned i = 0; i < MANY; i++)
        buf_printf(&text, RULE("r%u", "\"/segment-%05u/#/t%u\""), i, i, i % OFTEN == 0 ? 0 : i);
    struct ruleset *ruleset = read_ruleset(buf_sv(&text));
    size_t named = 0;
    for (unsigned i = 0; i < MANY; i++) {
        char path[64];
        static struct facts facts;
        uint32_t found[2] = { 0 };
        snprintf(path, sizeof path, "/segment-%05u/12/t%u", i, i % OFTEN == 0 ? 0 : i);
        struct weir_request request = { .path = weir_str(path), .user = SV("u"), .cost = 1 };
        facts_init(&facts, ruleset, &request, SV("u"));
        assert_int_equal(ruleset_match(ruleset, &facts, 0, found, 2), 1);
        assert_int_equal(found[0], i);
        path[strlen("/segment-00000")] = '\0';
        uint32_t value = table_find(&ruleset->table, TREE_SPACE, weir_str(path + 1));
        assert_int_not_equal(value, TABLE_NONE);
        named += (value & CHILD_ONE) != 0;
        assert_true(value & CHILD_ONE || i % OFTEN != 0);
    }
    assert_int_equal(named, CHILD_NODES - 2 + MANY / OFTEN);
    ruleset_free(ruleset);
    buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),     cmocka_unit_test(test_full),       cmocka_unit_test(test_alike),
        cmocka_unit_test(test_crafted),    cmocka_unit_test(test_long_texts), cmocka_unit_test(test_only),
        cmocka_unit_test(test_many_tails),
    };
    return cmocka_run_group_tests_name("text_table", tests, NULL, NULL);
}
