/* Many at once: batches, plans of many limits, requests that many rules match. */
#include "helpers.h"

#include "../limit/random.h"

/* ---- batches ---- */

static const char mixed[] =
    "rules:\n"
    "  - { id: a, match: { event: a }, by: [key], limits: [5 per 1h, 9 per day] }\n"
    "  - { id: b, match: { event: b }, by: [key], limits: [{ algorithm: sliding_window, max: 7, per: "
    "1m }, { algorithm: fixed_window, max: 20, per: 1m }] }\n"
    "  - { id: all, by: [key], limits: [40 per 1h] }\n"
    "  - { id: event, by: [event], mode: shadow, limits: [30 per 1h] }\n"
    "  - { id: user, by: [user], limits: [11 per 1h] }\n";

static struct weir_request random_request(struct random *r)
{
    static const char *const events[] = { "a", "b", "c" }, *const keys[] = { "k", "l", "m", "" },
                             *const users[] = { "u", "v", "" };
    struct weir_request request = { .event = weir_str(events[random_in(r, 0, 2)]),
                                    .key = weir_str(keys[random_in(r, 0, 3)]),
                                    .user = weir_str(users[random_in(r, 0, 2)]),
                                    .cost = (uint32_t)random_in(r, 0, 3),
                                    .peek = random_one_in(r, 5) };
    return request;
}

static void a_batch_equals_one_by_one(void **state)
{
    (void)state;
    enum { ROUNDS = 300, MOST = 50 };
    struct random r = { random_seed() };
    struct weir *batch = open_rules(mixed), *each = open_rules(mixed);
    int64_t now = NOW;
    for (int round = 0; round < ROUNDS; round++) {
        struct weir_request requests[MOST];
        struct weir_verdict verdicts[MOST];
        struct weir_shadows shadows[MOST];
        size_t count = (size_t)random_in(&r, 0, MOST);
        now += random_scaled(&r, 600 * S);
        for (size_t i = 0; i < count; i++) {
            requests[i] = random_request(&r);
            requests[i].shadows = &shadows[i];
        }
        memset(verdicts, 0x5a, sizeof verdicts);
        assert_int_equal(weir_check_batch(batch, requests, count, now, verdicts), 0);
        for (size_t i = 0; i < count; i++) {
            char one_line[LINE_MAX_BYTES], batch_line[LINE_MAX_BYTES];
            struct weir_verdict v = check_at(each, requests[i], now);
            verdict_line(&v, &last_shadows, one_line);
            verdict_line(&verdicts[i], &shadows[i], batch_line);
            assert_string_equal(batch_line, one_line);
        }
    }
    weir_close(batch);
    weir_close(each);
}

/* ---- plans that do not fit where plans are usually made ---- */

enum { RULES = 100, LIMITS = 10 };

/* Rule i has ten limits of which number i % 10 is the tightest: 5 + i. Every third is a shadow. */
static char *many_rules(unsigned rules)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    fprintf(to, "rules:\n");
    for (unsigned i = 0; i < rules; i++) {
        fprintf(to, "  - id: r%u\n    by: [%s]\n    mode: %s\n    limits:\n", i, i % 2 ? "key" : "event",
                i % 3 == 2 ? "shadow" : "enforce");
        for (unsigned k = 0; k < LIMITS; k++)
            fprintf(to, "      - { name: l%u, algorithm: fixed_window, max: %u, per: 1h }\n", k,
                    i % LIMITS == k ? 5 + i : 1000);
    }
    assert_int_equal(fclose(to), 0);
    return text;
}

static void a_plan_of_a_thousand_limits(void **state)
{
    (void)state;
    char *rules = many_rules(RULES);
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules, .cells_keys = 10000 });
    free(rules);
    EXPECT(weir, one("e", "k"), NOW, "pass r0/l0 4 of 5, reset 3600000");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 3), 3);
    EXPECT(weir, one("e", "k"), NOW, "pass r0/l0 0 of 5, reset 3600000");
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 r0/l0 0 of 5, reset 3600000, retry 3600000");
    EXPECT(weir, peek_of("e", "k", 8), NOW, "refuse 429 r0/l0 0 of 5, reset 3600000, retry -1, shadow r2 r5");
    /* Whoever counts by key alone has 995 left everywhere, and the tightest of them 1 + 5 - 5. */
    EXPECT(weir, one("other", "k"), NOW, "pass r1/l1 0 of 6, reset 3600000");
    EXPECT(weir, one("other", "k"), NOW, "refuse 429 r1/l1 0 of 6, reset 3600000, retry 3600000");
    weir_close(weir);
}

static void large_and_small_plans_in_one_batch(void **state)
{
    (void)state;
    char *rules = many_rules(RULES);
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules, .cells_keys = 10000 });
    free(rules);
    struct weir_request requests[40];
    struct weir_verdict verdicts[40];
    for (int i = 0; i < 40; i++)
        requests[i] = one("", i % 4 ? "" : "k");
    assert_int_equal(weir_check_batch(weir, requests, 40, NOW, verdicts), 0);
    for (int i = 0; i < 40; i++) {
        /* With a key: rules 1, 3, 5 …, of which rule 1 lets six pass. Without: no rule. */
        const char *expected = i % 4 ? "pass no rule" : i == 0 ? "pass r1/l1 5 of 6, reset 3600000" : NULL;
        if (expected)
            expect_verdict(&verdicts[i], expected, __FILE__, __LINE__);
        assert_int_equal(verdicts[i].allowed, i % 4 != 0 || i < 24);
    }
    weir_close(weir);
}

/* Two requests that are decided together, each with more limits than there is room for. */
static void large_plans_together(void **state)
{
    (void)state;
    char *rules = many_rules(RULES);
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules, .cells_keys = 10000 });
    free(rules);
    struct weir_request second = one("f", "k"), first = one("e", "k");
    first.with = &second;
    for (int left = 4; left >= 2; left -= 2)
        EXPECT(weir, first, NOW, left == 4 ? "pass r0/l0 4 of 5, reset 3600000" : "pass r1/l1 2 of 6, reset 3600000");
    EXPECT(weir, first, NOW, "pass r1/l1 0 of 6, reset 3600000");
    EXPECT(weir, first, NOW, "refuse 429 r1/l1 0 of 6, reset 3600000, retry 3600000");
    EXPECT(weir, cost_of("e", "", 0), NOW, "pass r0/l0 2 of 5, reset 3600000");
    weir_close(weir);
}

/* More matching rules than fit, and all of them with one limit. */
static void hundreds_of_rules_match(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    char *rules = NULL;
    size_t size;
    FILE *to = open_memstream(&rules, &size);
    assert_non_null(to);
    fprintf(to, "rules:\n");
    for (unsigned i = 0; i < COUNT; i++)
        fprintf(to, "  - { id: r%u, by: [key], limits: [%u per 1h] }\n", i, i == 321 ? 2 : 1000 - i);
    assert_int_equal(fclose(to), 0);
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules, .cells_keys = 10000 });
    free(rules);
    EXPECT(weir, one("e", "k"), NOW, "pass r321/token_bucket 1 of 2, reset 1800000");
    EXPECT(weir, one("e", "k"), NOW, "pass r321/token_bucket 0 of 2, reset 3600000");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 50), 0);
    /* None of the others was charged by those. */
    set_rules(weir, "rules: [{ id: r499, by: [key], limits: [501 per 1h] }]");
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass r499/token_bucket 499 of 501, reset 14372");
    set_rules(weir, "rules: [{ id: r0, by: [key], limits: [1000 per 1h] }]");
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass r0/token_bucket 998 of 1000, reset 7200");
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_equals_one_by_one),
        cmocka_unit_test(a_plan_of_a_thousand_limits),
        cmocka_unit_test(large_and_small_plans_in_one_batch),
        cmocka_unit_test(large_plans_together),
        cmocka_unit_test(hundreds_of_rules_match),
    };
    return cmocka_run_group_tests_name("engine/many", tests, NULL, NULL);
}
