/* Penalties of rules that count in a real redis-server. */
#include "hosts.h"

static const char PENALTIES[] =
    "- { id: x, match: { event: x }, by: [key], limits: [{ max: 2, per: 1s, algorithm: fixed_window }],\n"
    "    penalty: { after: 3, within: 1h, for: 1h } }\n"
    "- { id: s, match: { event: s }, by: [key], lease: { slice: 50%, ttl: 1s },\n"
    "    limits: [{ max: 2, per: 1s, algorithm: fixed_window }], penalty: { after: 3, within: 1h, for: 1h } }\n"
    "- { id: other, match: { event: [x, s] }, limits: [{ max: 1000000, per: 24h, algorithm: fixed_window }] }\n";

static struct weir_verdict penalise(struct weir *weir, struct weir_request request)
{
    struct weir_verdict verdict = { 0 };
    for (int i = 0; i < 1000 && !verdict.penalty; i++)
        verdict = check_now(weir, request);
    assert_true(verdict.penalty);
    assert_false(verdict.allowed);
    return verdict;
}

/* Each host penalises by itself. The store is not asked about who is penalised, and nothing is charged there. */
static void test_penalties(void **state)
{
    (void)state;
    static const char *const events[] = { "x", "s" };
    struct weir *a = open_host("penalties:", PENALTIES, (struct weir_options){ 0 });
    struct weir *b = open_host("penalties:", PENALTIES, (struct weir_options){ 0 });
    for (int i = 0; i < 2; i++) {
        struct weir_verdict verdict = penalise(a, one(events[i], "u"));
        assert_string_equal(verdict.rule, events[i]);
        assert_in_range(verdict.retry_after_ms, 3590000, 3600000);
        struct weir_store_status before, after;
        weir_store_status(a, &before);
        for (int k = 0; k < 10; k++)
            assert_true(check_now(a, one(events[i], "u")).penalty);
        weir_store_status(a, &after);
        if (i == 0)
            assert_int_equal(after.calls, before.calls);
        assert_false(check_now(b, one(events[i], "u")).penalty);
        assert_false(check_now(a, one(events[i], "somebody else")).penalty);
    }
    weir_close(a);
    weir_close(b);
}

/* Nobody is penalised because the store is away, and who was penalised before still is. */
static void test_penalties_without_the_store(void **state)
{
    (void)state;
    static const char rules[] =
        "- { id: l, match: { event: l }, by: [key], limits: [{ max: 3, per: 1h, algorithm: fixed_window }],\n"
        "    penalty: { after: 1, within: 1h, for: 1h } }\n"
        "- { id: d, match: { event: d }, by: [key], on_store_failure: deny, limits: [{ max: 3, per: 1h, algorithm: "
        "fixed_window }],\n"
        "    penalty: { after: 1, within: 1h, for: 1h } }\n"
        "- { id: own, counters: local, match: { event: own }, by: [key], limits: [{ max: 1, per: 1s, algorithm: "
        "fixed_window }],\n"
        "    penalty: { after: 1, within: 1h, for: 1h } }\n";
    struct weir *weir = open_with(
        (struct weir_options){ .rules_text = file_of(rules), .counters = "redis://127.0.0.1:1/0", .store_hosts = 3 });
    assert_int_equal(passes_now(weir, one("l", "u"), 9), 1);
    for (int i = 0; i < 5; i++) {
        assert_false(check_now(weir, one("l", "u")).penalty);
        struct weir_verdict verdict = check_now(weir, one("d", "u"));
        assert_true(verdict.unavailable);
        assert_false(verdict.penalty);
    }
    penalise(weir, one("own", "u"));
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_penalties_without_the_store),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
