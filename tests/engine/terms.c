/* Limits that say the same share their terms, and nothing else: they count apart, and change apart. */
#include "helpers.h"

#include "engine/handle.h"
#include "rules/rules.h"

static const struct bound_limit *limit_of(const struct weir *weir, const char *rule, size_t limit)
{
    const struct bound_rule *found = bound_find(weir->current, weir_str(rule));
    assert_true(found && limit < found->own.limit_count);
    return &found->own.limits[limit];
}

/* Whether the first limits of the rules a and b share their terms. */
static bool a_and_b_share(const struct weir *weir)
{
    assert_ptr_not_equal(limit_of(weir, "a", 0), limit_of(weir, "b", 0));
    return limit_of(weir, "a", 0)->terms == limit_of(weir, "b", 0)->terms;
}

/* Returns a handle whose rules a, for the event a, and b, for the event b, have these limits. */
static struct weir *open_two(const char *a, const char *b)
{
    char text[600];
    snprintf(text, sizeof text,
             "rules: [{ id: a, match: { event: a }, by: [key], limits: [%s] }, "
             "{ id: b, match: { event: b }, by: [key], limits: [%s] }]",
             a, b);
    return open_rules(text);
}

static void limits_that_say_the_same_count_apart(void **state)
{
    (void)state;
    static const char *const limits[] = { "2 per 1h", "{ name: x, algorithm: fixed_window, max: 2, per: 1h, unit: pages }",
                                          "{ algorithm: sliding_window, max: 2, per: 1h, overdraft: true }",
                                          "{ max: 2, calendar: week, tz: Asia/Shanghai, week_start: sunday }",
                                          "{ concurrent: 2, ttl: 1m }" };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct weir *weir = open_two(limits[i], limits[i]);
        struct weir_cost pages = { WEIR_STR("pages"), 1 };
        struct weir_request a = one("a", "k"), b = one("b", "k");
        a.costs = b.costs = &pages;
        a.cost_count = b.cost_count = 1;
        struct weir_receipt receipt;
        a.receipt = b.receipt = &receipt;
        assert_true(a_and_b_share(weir));
        assert_int_equal(passes(weir, a, NOW, 5), 2);
        assert_int_equal(passes(weir, b, NOW, 5), 2);
        weir_close(weir);
    }
}

static void limits_that_differ_are_not_shared(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "2 per 1h", "3 per 1h" },
        { "2 per 1h", "2 per 2h" },
        { "2 per 1h", "2 per 1h burst 4" },
        { "2 per 1h", "{ algorithm: fixed_window, max: 2, per: 1h }" },
        { "{ algorithm: sliding_window, max: 2, per: 1h }", "{ algorithm: fixed_window, max: 2, per: 1h }" },
        { "{ name: x, max: 2, per: 1h }", "{ name: y, max: 2, per: 1h }" },
        { "2 per 1h", "{ name: token_bucket, max: 2, per: 1h }" },
        { "{ name: x, max: 2, per: 1h }", "{ name: x, max: 2, per: 1h, unit: pages }" },
        { "{ name: x, max: 2, per: 1h, unit: tokens }", "{ name: x, max: 2, per: 1h, unit: pages }" },
        { "2 per 1h", "{ max: 2, per: 1h, overdraft: true }" },
        { "2 per day", "2 per week" },
        { "{ name: x, max: 2, calendar: day }", "{ name: x, max: 2, calendar: hour }" },
        { "{ max: 2, calendar: day }", "{ max: 2, calendar: day, tz: Asia/Shanghai }" },
        { "{ max: 2, calendar: day, tz: Europe/Berlin }", "{ max: 2, calendar: day, tz: Asia/Shanghai }" },
        { "{ max: 2, calendar: week }", "{ max: 2, calendar: week, week_start: sunday }" },
        { "{ name: x, max: 2, calendar: 2d }", "{ name: x, max: 2, calendar: 3d }" },
        { "{ concurrent: 2, ttl: 1m }", "{ concurrent: 2, ttl: 2m }" },
        { "{ concurrent: 2, ttl: 1m }", "{ concurrent: 3, ttl: 1m }" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct weir *weir = open_two(pairs[i][0], pairs[i][1]);
        if (a_and_b_share(weir))
            fail_msg("%s and %s are shared", pairs[i][0], pairs[i][1]);
        weir_close(weir);
    }
}

/* Windows are cached with the terms. */
static void each_zone_has_its_windows(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n"
                   "- { id: a, match: { event: a }, by: [key], limits: [{ max: 9, calendar: day, tz: Asia/Shanghai }] }\n"
                   "- { id: b, match: { event: b }, by: [key], limits: [{ max: 9, calendar: day }] }\n"
                   "- { id: c, match: { event: c }, by: [key], limits: [{ max: 9, calendar: day, tz: Asia/Shanghai }] }\n"
                   "- { id: d, match: { event: d }, by: [key], limits: [{ max: 9, calendar: day }] }\n");
    assert_ptr_equal(limit_of(weir, "a", 0)->terms, limit_of(weir, "c", 0)->terms);
    assert_ptr_equal(limit_of(weir, "b", 0)->terms, limit_of(weir, "d", 0)->terms);
    for (int day = 0; day < 2; day++) {
        int64_t now = NOW + day * 86400 * S; /* 22:13:20 in UTC, 06:13:20 in Shanghai */
        EXPECT(weir, one("a", "k"), now, "pass a/day 8 of 9, reset 64000000");
        EXPECT(weir, one("b", "k"), now, "pass b/day 8 of 9, reset 6400000");
        EXPECT(weir, one("c", "k"), now, "pass c/day 8 of 9, reset 64000000");
        EXPECT(weir, one("d", "k"), now, "pass d/day 8 of 9, reset 6400000");
    }
    weir_close(weir);
}

/* ---- changes ---- */

enum { ROWS = 6 };

/* Reads the rows and puts them in force. Only those whose `rule` is NULL are read. */
static void install(struct weir *weir, struct rule_row *rows, struct rules **before)
{
    struct rules_report report;
    struct rules *rules = rules_reread_rows(rows, ROWS, *before, &report);
    assert_true(rules && report.error_count == 0);
    assert_int_equal(weir_take_rules(weir, rules_share(rules), NULL), 0);
    rules_report_done(&report);
    rules_free(*before);
    *before = rules;
}

static void one_changes_and_the_others_do_not(void **state)
{
    (void)state;
    static const char *const ids[] = { "a", "b", "c", "d", "e", "f" };
    struct rule_row rows[ROWS] = { 0 };
    struct rules *before = NULL;
    struct weir *weir = open_rules("rules: []");
    for (int i = 0; i < ROWS; i++)
        rows[i] = (struct rule_row){ .id = weir_str(ids[i]), .text = SV("{ by: [key], limits: [4 per 1h, 9 per day] }") };
    install(weir, rows, &before);
    assert_true(a_and_b_share(weir));
    assert_int_equal(passes(weir, one("e", "k"), NOW, 2), 2);
    const struct bound_limit *kept = limit_of(weir, "b", 0);

    /* The first one, whose texts the terms have. */
    rows[0].text = SV("{ by: [key], limits: [8 per 1h, 9 per day] }");
    rows[0].rule = NULL;
    install(weir, rows, &before);
    assert_true(weir->current->block_count > 2);
    assert_ptr_equal(limit_of(weir, "b", 0), kept);
    assert_false(a_and_b_share(weir));
    assert_int_equal(limit_of(weir, "a", 0)->terms->limit.max, 8);
    assert_int_equal(kept->terms->limit.max, 4);
    EXPECT(weir, one("e", "k"), NOW, "pass b/token_bucket 1 of 4, reset 2700000");

    struct weir_usage usage;
    struct weir_headers headers;
    struct weir_request request = one("e", "k");
    request.usage = &usage;
    struct weir_verdict verdict = check_at(weir, request, NOW);
    weir_headers(weir, &request, &verdict, WEIR_HEADERS_STANDARD, &headers);
    assert_non_null(strstr(headers.header[0].value.ptr, "\"a/token_bucket\";q=8;w=3600, \"a/day\";q=9;w=86400, "
                                                        "\"b/token_bucket\";q=4;w=3600, \"b/day\";q=9;w=86400"));

    /* And back: what it has used stays used. */
    rows[0].text = SV("{ by: [key], limits: [4 per 1h, 9 per day] }");
    rows[0].rule = NULL;
    install(weir, rows, &before);
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/token_bucket 0 of 4, reset 3600000, retry 900000");
    rules_free(before);
    weir_close(weir);
}

/* ---- many ---- */

static int compare_pointers(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const struct bound_terms *const *)a,
              y = (uintptr_t) * (const struct bound_terms *const *)b;
    return (x > y) - (x < y);
}

/* Returns how many different terms the limits of a block have. */
static size_t count_terms(const struct bound_block *block)
{
    const struct bound_terms **all = calloc(block->limit_count + 1, sizeof *all);
    size_t count = 0;
    assert_non_null(all);
    for (size_t i = 0; i < block->limit_count; i++)
        all[i] = block->limits[i].terms;
    qsort(all, block->limit_count, sizeof *all, compare_pointers);
    for (size_t i = 0; i < block->limit_count; i++) {
        assert_non_null(all[i]);
        count += i == 0 || all[i] != all[i - 1];
    }
    free(all);
    return count;
}

static void many_rules_have_few_terms(void **state)
{
    (void)state;
    enum { RULES = 3000, KINDS = 7 };
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    fprintf(to, "rules:\n");
    for (unsigned i = 0; i < RULES; i++)
        fprintf(to, "  - { id: r%u, match: { event: e%u }, by: [key], limits: [%u per 1h, 100 per day] }\n", i, i,
                2 + i % KINDS);
    assert_int_equal(fclose(to), 0);
    struct weir *weir = open_rules(text);
    free(text);
    assert_int_equal(weir->current->blocks[1]->limit_count, 2 * RULES);
    assert_int_equal(count_terms(weir->current->blocks[1]), KINDS + 1);
    for (unsigned i = 0; i < RULES; i += 97) {
        char event[10], expected[60];
        snprintf(event, sizeof event, "e%u", i);
        snprintf(expected, sizeof expected, "r%u", i);
        struct weir_verdict verdict = check_at(weir, one(event, "k"), NOW);
        assert_string_equal(verdict.rule, expected);
        assert_int_equal(verdict.max, 2 + i % KINDS);
        assert_int_equal(verdict.remaining, 1 + i % KINDS);
    }
    weir_close(weir);
}

/* Each override counts for its subject, in a cell of its own. */
static void many_overrides_have_few_terms(void **state)
{
    (void)state;
    enum { OVERRIDES = 3000, KINDS = 5 };
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    fprintf(to, "rules: [{ id: a, match: { event: a }, by: [key], limits: [2 per 1h] }, "
                "{ id: b, match: { event: b }, by: [key], limits: [2 per 1h] }]\noverrides:\n");
    for (unsigned i = 0; i < OVERRIDES; i++)
        fprintf(to, "  - { rule: %s, by: { key: k%u }, limits: %u per 1h, expires: %d }\n", i % 2 ? "a" : "b", i,
                10 + i % KINDS, 1800000000 + (i % 3 ? 0 : (int)i));
    assert_int_equal(fclose(to), 0);
    struct weir *weir = open_rules(text);
    free(text);
    const struct bound_block *block = weir->current->blocks[0];
    assert_int_equal(count_terms(block), KINDS);
    /* Those of one rule that say the same, and end at the same time, share even their limits. */
    assert_true(block->limit_count > OVERRIDES / 3 && block->limit_count <= OVERRIDES / 3 + 2 * KINDS);
    for (unsigned i = 0; i < OVERRIDES; i += 101) {
        char key[10];
        snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(passes(weir, one(i % 2 ? "a" : "b", key), NOW, 20), 10 + i % KINDS);
        assert_int_equal(passes(weir, one(i % 2 ? "b" : "a", key), NOW, 20), 2);
    }
    weir_close(weir);
}

/* A subject that is denied is not penalised, whatever others say that have limits like the one that denies. */
static void a_limit_like_that_of_a_denial_denies_nothing(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [key], limits: [9 per 1h], penalty: { after: 2, within: 1m, for: 5m } }]\n"
                   "overrides:\n"
                   "- { rule: a, by: { key: low }, limits: { name: deny, algorithm: fixed_window, max: 0, per: 1s } }\n"
                   "- { rule: a, by: { key: bad }, deny: true }\n"
                   "- { rule: a, by: { key: worse }, limits: { name: deny, algorithm: fixed_window, max: 0, per: 1s } }\n");
    const char *const keys[] = { "bad", "low", "worse" };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(passes(weir, one("e", keys[i]), NOW, 5), 0);
        assert_int_equal(check_at(weir, one("e", keys[i]), NOW).penalty, i > 0);
    }
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_that_say_the_same_count_apart),
        cmocka_unit_test(limits_that_differ_are_not_shared),
        cmocka_unit_test(each_zone_has_its_windows),
        cmocka_unit_test(one_changes_and_the_others_do_not),
        cmocka_unit_test(many_rules_have_few_terms),
        cmocka_unit_test(many_overrides_have_few_terms),
        cmocka_unit_test(a_limit_like_that_of_a_denial_denies_nothing),
    };
    return cmocka_run_group_tests_name("engine/terms", tests, NULL, NULL);
}
