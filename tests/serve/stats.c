/* What a loop counts: by rule and outcome whatever becomes of the rules, in bounded memory, readable at any time. */
#include "serve/stats.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "refused/most_refused.h"

#define S INT64_C(1000000)
#define NOW (INT64_C(1700000000) * S)

#define RULE(id, event, max) "  - { id: " id ", match: { event: " event " }, by: [key], limits: [ \"" max " per 1h\" ] }\n"
#define SHADOW(id, event) \
    "  - { id: " id ", match: { event: " event " }, by: [key], mode: shadow, limits: [ \"0 per 1h\" ] }\n"

static struct weir *open_rules(const char *rules)
{
    struct weir *weir = NULL;
    struct weir_error error;
    struct weir_options options = { .size = sizeof options, .rules_text = rules, .cells_keys = 1000 };
    if (weir_open(&weir, &options, &error) < 0)
        fail_msg("%s", error.text);
    return weir;
}

static void set_rules(struct weir *weir, const char *rules)
{
    struct weir_error error;
    if (weir_set_rules(weir, rules, strlen(rules), &error) < 0)
        fail_msg("%s", error.text);
}

static struct stats *new_stats(void)
{
    struct stats *stats;
    assert_int_equal(stats_new(&stats), 0);
    return stats;
}

enum { BATCH = 8 };

static void decide(struct stats *stats, struct weir *weir, const char *event, const char *key, unsigned count)
{
    struct weir_request requests[BATCH];
    static _Thread_local struct weir_verdict verdicts[BATCH];
    static _Thread_local struct weir_shadows shadows[BATCH];
    while (count > 0) {
        unsigned n = count < BATCH ? count : BATCH;
        for (unsigned i = 0; i < n; i++)
            requests[i] =
                (struct weir_request){ .event = weir_str(event), .key = weir_str(key), .cost = 1, .shadows = &shadows[i] };
        for (unsigned i = 0; i < n; i++)
            stats_count_rules_of(stats, &requests[i]);
        assert_int_equal(weir_check_batch(weir, requests, n, NOW, verdicts), 0);
        stats_decided(stats, weir, requests, verdicts, n, NOW, 3000);
        count -= n;
    }
}

/* "id passed" of each rule that let something pass, "id.limit refused/would refuse" of each limit that did not, and how
 * many requests had no rule. */
static const char *applied_of(const struct stats *stats)
{
    static char text[2000];
    struct stats_rule rule;
    int n = 0;
    for (size_t i = 0; i < stats_rule_count(stats); i++) {
        stats_rule(stats, i, &rule);
        if (rule.passed > 0)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s %d, ", rule.id, (int)rule.passed);
    }
    for (size_t i = 0; i < stats_limit_count(stats); i++) {
        struct stats_limit limit;
        stats_limit(stats, i, &limit);
        stats_rule(stats, limit.rule, &rule);
        if (limit.refused + limit.would_refuse > 0)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s.%s %d/%d, ", rule.id, limit.name, (int)limit.refused,
                          (int)limit.would_refuse);
    }
    snprintf(text + n, sizeof text - (size_t)n, "none %d", (int)stats_without_rule(stats));
    return text;
}

/* "id allowed/refused/shadow" of each that is not all zero, in the order of their first decision. */
static const char *counts_of(const struct stats *stats)
{
    static char text[2000];
    int n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < stats_rule_count(stats); i++) {
        struct stats_rule rule;
        stats_rule(stats, i, &rule);
        if (rule.counts[0] + rule.counts[1] + rule.counts[2] > 0)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%s %d/%d/%d", n ? ", " : "", rule.id, (int)rule.counts[0],
                          (int)rule.counts[1], (int)rule.counts[2]);
    }
    return text;
}

static void decisions_are_counted_by_rule_and_outcome(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "e", "10") RULE("b", "f", "3") SHADOW("s", "f"));
    struct stats *stats = new_stats();
    decide(stats, weir, "e", "k", 12);
    decide(stats, weir, "f", "k", 5);
    decide(stats, weir, "none", "k", 4);
    assert_string_equal(counts_of(stats), " 4/0/0, a 10/2/0, b 3/2/0, s 0/0/5");
    stats_free(stats);
    stats_free(NULL);
    weir_close(weir);
}

static void rules_keep_their_counters_when_they_move(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "e", "100") RULE("b", "f", "100"));
    struct stats *stats = new_stats();
    decide(stats, weir, "e", "k", 1);
    decide(stats, weir, "f", "k", 2);
    set_rules(weir, "rules:\n" RULE("b", "f", "100") RULE("c", "g", "100") RULE("a", "e", "100"));
    decide(stats, weir, "e", "k", 10);
    decide(stats, weir, "f", "k", 20);
    decide(stats, weir, "g", "k", 30);
    assert_string_equal(counts_of(stats), "a 11/0/0, b 22/0/0, c 30/0/0");
    stats_free(stats);
    weir_close(weir);
}

#define TWO(id, event, mode)                                                     \
    "  - { id: " id ", match: { event: " event " }, by: [key], mode: " mode ", " \
    "limits: [ { name: day, max: 8, per: 24h }, { name: hour, max: 4, per: 1h } ] }\n"

/* Each rule that applies is counted, not only the one that the verdict names. */
static void rules_are_counted_that_the_verdict_does_not_name(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" TWO("two", "e", "enforce") RULE("few", "e", "2") RULE("many", "e", "100")
                                       TWO("trial", "f", "shadow") SHADOW("s", "f"));
    struct stats *stats = new_stats(), *sum = new_stats();
    decide(stats, weir, "e", "k", 3);
    assert_string_equal(applied_of(stats), "two 3, few 2, many 3, few.token_bucket 1/0, none 0");
    decide(stats, weir, "f", "k", 5);
    decide(stats, weir, "none", "k", 4);
    decide(stats, weir, "e", "", 2);
    const char *all = "two 3, few 2, many 3, trial 4, few.token_bucket 1/0, s.token_bucket 0/5, trial.hour 0/1, none 6";
    assert_string_equal(applied_of(stats), all);
    assert_string_equal(counts_of(stats), " 11/0/0, few 2/1/0, trial 0/0/1, s 0/0/5");
    stats_add(sum, stats);
    stats_add_limit(sum, SV("two"), SV("day"));
    assert_string_equal(applied_of(sum), all);
    stats_add(sum, stats);
    assert_string_equal(
        applied_of(sum),
        "two 6, few 4, many 6, trial 8, few.token_bucket 2/0, s.token_bucket 0/10, trial.hour 0/2, none 12");
    stats_free(stats);
    stats_free(sum);
    weir_close(weir);
}

/* If several limits have no room, the one with the longest wait is counted; a rule has its counts under its id. */
static void a_refusal_is_counted_under_one_limit(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" TWO("two", "e", "enforce"));
    struct stats *stats = new_stats();
    struct weir_request request = { .event = WEIR_STR("e"), .key = WEIR_STR("k"), .cost = 9 };
    struct weir_verdict verdict;
    decide(stats, weir, "e", "k", 6);
    assert_string_equal(applied_of(stats), "two 4, two.hour 2/0, none 0");
    stats_count_rules_of(stats, &request);
    assert_int_equal(weir_check(weir, &request, NOW, &verdict), 0);
    assert_string_equal(verdict.limit, "day");
    assert_string_equal(applied_of(stats), "two 4, two.hour 2/0, two.day 1/0, none 0");
    set_rules(weir, "rules:\n" RULE("new", "x", "1") TWO("two", "e", "shadow"));
    decide(stats, weir, "e", "k", 1);
    decide(stats, weir, "x", "k", 2);
    assert_string_equal(applied_of(stats), "two 4, new 1, two.hour 2/1, two.day 1/0, new.token_bucket 1/0, none 0");
    stats_free(stats);
    weir_close(weir);
}

static void limits_beyond_the_bound_are_counted_together(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "e", "1"));
    struct stats *stats = new_stats(), *sum = new_stats();
    /* A rule has few limits at a time, but they may be renamed. */
    for (unsigned i = 0; i < STATS_LIMITS_MAX + 5; i++) {
        char rule[20], limit[20];
        snprintf(rule, sizeof rule, "r%u", i / 10);
        snprintf(limit, sizeof limit, "l%u", i);
        stats_add_limit(stats, weir_str(rule), weir_str(limit));
    }
    assert_int_equal(stats_limit_count(stats), STATS_LIMITS_MAX + 1);
    decide(stats, weir, "e", "k", 3);
    assert_string_equal(applied_of(stats), "a 1, " STATS_OTHER "." STATS_OTHER " 2/0, none 0");
    stats_add(sum, stats);
    assert_string_equal(applied_of(sum), "a 1, " STATS_OTHER "." STATS_OTHER " 2/0, none 0");
    stats_free(stats);
    stats_free(sum);
    weir_close(weir);
}

static void a_throttle_has_no_rule(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: []\n");
    struct stats *stats = new_stats(), *sum = new_stats();
    struct top_list list = { 0 };
    stats_throttled(stats, weir, OUTCOME_ALLOWED, 0, SV("k"), NOW);
    stats_throttled(stats, weir, OUTCOME_PEEKED, 0, SV("k"), NOW);
    stats_throttled(stats, weir, OUTCOME_REFUSED, 0, SV("k"), NOW);
    stats_throttled(stats, weir, OUTCOME_REFUSED, 3, SV("k"), NOW);
    stats_throttled(stats, weir, OUTCOME_REFUSED, 3, SV("k"), NOW);
    stats_add(sum, stats);
    assert_string_equal(counts_of(sum), STATS_THROTTLE " 1/3/0");
    assert_int_equal(stats_collect_top(stats, NOW, &list), 0);
    top_list_sort(&list);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.entries[0].count, 2);
    assert_true(sv_eq(subject_rule(&list.entries[0].subject), SV(STATS_THROTTLE)));
    assert_true(sv_eq(subject_value(&list.entries[0].subject, 0), SV("k")));
    assert_true(sv_eq(subject_value(&list.entries[0].subject, 1), SV("3")));
    assert_int_equal(list.entries[1].subject.by_count, 1);
    top_list_done(&list);
    stats_free(stats);
    stats_free(sum);
    weir_close(weir);
}

/* It is counted by itself: nobody was let through or held back. */
static void a_peek_is_no_decision(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "e", "0"));
    struct stats *stats = new_stats();
    struct weir_request request = { .event = WEIR_STR("e"), .key = WEIR_STR("k"), .cost = 1, .peek = true };
    struct weir_verdict verdict;
    struct top_list list = { 0 };
    struct stats_rule rule;
    struct stats_latency latency;
    stats_count_rules_of(stats, &request);
    assert_int_equal(weir_check(weir, &request, NOW, &verdict), 0);
    stats_decided(stats, weir, &request, &verdict, 1, NOW, 0);
    assert_string_equal(counts_of(stats), "");
    assert_string_equal(applied_of(stats), "none 0");
    stats_rule(stats, stats_rule_count(stats) - 1, &rule);
    assert_string_equal(rule.id, "a");
    assert_int_equal(rule.counts[OUTCOME_PEEKED], 1);
    stats_latency(stats, &latency);
    assert_int_equal(latency.buckets[0], 0);
    assert_int_equal(stats_collect_top(stats, NOW, &list), 0);
    assert_int_equal(list.total, 0);
    top_list_done(&list);
    stats_free(stats);
    weir_close(weir);
}

static void what_could_not_be_judged_is_of_no_rule(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "e", "100"));
    struct stats *stats = new_stats();
    struct weir_request request = { .event = WEIR_STR("e"), .key = WEIR_STR("k"), .cost = 1 };
    struct weir_verdict verdict;
    stats_count_rules_of(stats, &request);
    assert_true(weir_check(weir, &request, -1, &verdict) < 0);
    stats_decided(stats, weir, &request, &verdict, 1, NOW, 0);
    stats_decided(stats, weir, NULL, NULL, 0, NOW, 0);
    assert_string_equal(counts_of(stats), " 0/1/0");
    assert_string_equal(applied_of(stats), "none 0");
    stats_free(stats);
    weir_close(weir);
}

/* Verdicts by hand: more rules than there are counters, each decided about twice, and one that is called like the rest. */
static void rules_beyond_the_bound_are_counted_together(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: []");
    struct stats *stats = new_stats();
    struct weir_request request = { .cost = 1 };
    struct weir_verdict verdict = { .allowed = true, .applied = true, .private_rules = 1 };
    for (uint32_t i = 0; i < 2 * (STATS_RULES_MAX + 7); i++) {
        verdict.private_rule = i % (STATS_RULES_MAX + 7);
        snprintf(verdict.rule, sizeof verdict.rule, "rule-%u", verdict.private_rule);
        stats_decided(stats, weir, &request, &verdict, 1, NOW, 0);
    }
    snprintf(verdict.rule, sizeof verdict.rule, "%s", STATS_OTHER);
    verdict.private_rule = UINT32_MAX;
    struct weir_shadows shadows = { .count = WEIR_SHADOW_MAX };
    verdict.shadow_count = WEIR_SHADOW_MAX + 3;
    request.shadows = &shadows;
    stats_decided(stats, weir, &request, &verdict, 1, NOW, 0);
    stats_throttled(stats, weir, OUTCOME_ALLOWED, 0, SV("k"), NOW);
    assert_int_equal(stats_rule_count(stats), STATS_RULES_MAX + 3);
    struct stats_rule rule;
    stats_rule(stats, 1, &rule);
    assert_string_equal(rule.id, STATS_OTHER);
    assert_int_equal(rule.counts[OUTCOME_ALLOWED], 2 * 7 + 1);
    assert_int_equal(rule.counts[OUTCOME_SHADOW], 3);
    stats_rule(stats, STATS_RULES_MAX + 2, &rule);
    assert_int_equal(rule.counts[OUTCOME_ALLOWED], 2);
    stats_free(stats);
    weir_close(weir);
}

static void latencies_fall_into_their_buckets(void **state)
{
    (void)state;
    static const uint64_t elapsed_ns[] = { 0, 1000, 1001, 2500, 999999999, 1000000000, 1000000001 };
    static const unsigned buckets[] = { 0, 0, 1, 1, 18, 18, 19 };
    struct weir *weir = open_rules("rules: []");
    struct weir_request request = { .cost = 1 };
    struct weir_verdict verdict;
    assert_int_equal(weir_check(weir, &request, NOW, &verdict), 0);
    for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++) {
        struct stats *stats = new_stats();
        struct stats_latency latency;
        stats_decided(stats, weir, &request, &verdict, 1, NOW, elapsed_ns[i]);
        stats_latency(stats, &latency);
        assert_int_equal(latency.buckets[buckets[i]], 1);
        assert_int_equal(latency.sum_ns, elapsed_ns[i]);
        stats_free(stats);
    }
    for (int i = 1; i < STATS_BUCKETS; i++)
        assert_true(stats_bounds_ns[i] > stats_bounds_ns[i - 1]);
    weir_close(weir);
}

static void several_add_up(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "e", "3") RULE("b", "f", "3"));
    struct stats *one = new_stats(), *two = new_stats(), *sum = new_stats();
    decide(one, weir, "e", "x", 5);
    decide(two, weir, "f", "y", 10);
    decide(two, weir, "e", "x", 10);
    stats_add(sum, one);
    stats_add(sum, two);
    assert_string_equal(counts_of(sum), "a 3/12/0, b 3/7/0");
    struct stats_latency latency;
    stats_latency(sum, &latency);
    assert_int_equal(latency.sum_ns, 25 * 3000);
    struct top_list list = { 0 };
    assert_int_equal(stats_collect_top(one, NOW, &list), 0);
    assert_int_equal(stats_collect_top(two, NOW, &list), 0);
    top_list_sort(&list);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.total, 19);
    assert_int_equal(list.unlisted, 0);
    assert_int_equal(list.entries[0].count, 12);
    assert_int_equal(list.entries[0].error, 0);
    assert_true(sv_eq(subject_rule(&list.entries[0].subject), SV("a")));
    assert_true(sv_eq(subject_value(&list.entries[0].subject, 0), SV("x")));
    assert_int_equal(list.entries[1].count, 7);
    top_list_done(&list);
    stats_free(one);
    stats_free(two);
    stats_free(sum);
    weir_close(weir);
}

/* ---- at the same time ---- */

enum { ROUNDS = 3000 };

struct crowd {
    struct stats *stats;
    struct weir *weir;
    bool done;
};

static void *decide_much(void *data)
{
    struct crowd *crowd = data;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char key[20];
        snprintf(key, sizeof key, "%u", i % 100);
        decide(crowd->stats, crowd->weir, i % 2 ? "e" : "f", key, 4);
        if (i % 100 == 0)
            set_rules(crowd->weir, i % 200 ? "rules:\n" RULE("a", "e", "3") RULE("b", "f", "3")
                                           : "rules:\n" RULE("b", "f", "3") RULE("new", "x", "1") RULE("a", "e", "3"));
    }
    __atomic_store_n(&crowd->done, true, __ATOMIC_RELEASE);
    return NULL;
}

static uint64_t read_all(struct stats *stats)
{
    struct stats *sum = new_stats();
    struct top_list list = { 0 };
    uint64_t total = 0;
    stats_add(sum, stats);
    for (size_t i = 0; i < stats_rule_count(sum); i++) {
        struct stats_rule rule;
        stats_rule(sum, i, &rule);
        total += rule.counts[OUTCOME_ALLOWED] + rule.counts[OUTCOME_REFUSED] + rule.passed;
    }
    for (size_t i = 0; i < stats_limit_count(sum); i++) {
        struct stats_limit limit;
        stats_limit(sum, i, &limit);
        total += limit.refused;
    }
    total += stats_without_rule(sum);
    assert_int_equal(stats_collect_top(stats, NOW, &list), 0);
    top_list_sort(&list);
    top_list_done(&list);
    stats_free(sum);
    return total;
}

static void others_read_while_one_counts(void **state)
{
    (void)state;
    struct crowd crowd = { .stats = new_stats(), .weir = open_rules("rules: []") };
    pthread_t thread;
    uint64_t last = 0;
    assert_int_equal(pthread_create(&thread, NULL, decide_much, &crowd), 0);
    while (!__atomic_load_n(&crowd.done, __ATOMIC_ACQUIRE)) {
        uint64_t total = read_all(crowd.stats);
        assert_true(total >= last);
        last = total;
    }
    pthread_join(thread, NULL);
    /* Each is counted twice: by its verdict, and by its one rule, or as one without. */
    assert_int_equal(read_all(crowd.stats), 2 * ROUNDS * 4);
    stats_free(crowd.stats);
    weir_close(crowd.weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_counted_by_rule_and_outcome),
        cmocka_unit_test(rules_keep_their_counters_when_they_move),
        cmocka_unit_test(rules_are_counted_that_the_verdict_does_not_name),
        cmocka_unit_test(a_refusal_is_counted_under_one_limit),
        cmocka_unit_test(limits_beyond_the_bound_are_counted_together),
        cmocka_unit_test(a_throttle_has_no_rule),
        cmocka_unit_test(a_peek_is_no_decision),
        cmocka_unit_test(what_could_not_be_judged_is_of_no_rule),
        cmocka_unit_test(rules_beyond_the_bound_are_counted_together),
        cmocka_unit_test(latencies_fall_into_their_buckets),
        cmocka_unit_test(several_add_up),
        cmocka_unit_test(others_read_while_one_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
