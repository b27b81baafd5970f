/* Giving back what a request was charged: to just what was charged, once, and never more than that. */
#include <pthread.h>

#include "../limit/random.h"
#include "engine/receipt_ring.h"
#include "helpers.h"

#define RULE(id, limits) "{ id: " id ", match: { event: e }, by: [key], limits: [" limits "] }"
#define FIXED(name, max) "{ name: " name ", algorithm: fixed_window, max: " max ", per: 60s }"
#define SLIDING(max) "{ name: s, algorithm: sliding_window, max: " max ", per: 60s }"
#define BUCKET(max) "{ name: b, max: " max ", per: 60s }"
#define DAY(max) "{ name: d, calendar: day, max: " max ", tz: Asia/Shanghai }"
#define HOUR (3600 * S)

/* ---- helpers ---- */

static struct weir_request refundable(const char *key, uint32_t cost, struct weir_receipt *receipt)
{
    struct weir_request request = cost_of("e", key, cost);
    request.receipt = receipt;
    return request;
}

static struct weir_receipt receipt_of(struct weir *weir, struct weir_request request, int64_t now_us)
{
    struct weir_receipt receipt;
    memset(&receipt, 0xa5, sizeof receipt);
    request.receipt = &receipt;
    check_at(weir, request, now_us);
    return receipt;
}

static struct weir_receipt charge(struct weir *weir, uint32_t cost, int64_t now_us)
{
    struct weir_receipt receipt;
    assert_true(check_at(weir, refundable("k", cost, &receipt), now_us).allowed);
    return receipt;
}

static int give_back(struct weir *weir, const struct weir_receipt *receipt, int64_t now_us)
{
    return weir_refund(weir, receipt, now_us);
}

static uint32_t left(struct weir *weir, int64_t now_us)
{
    return check_at(weir, peek_of("e", "k", 1), now_us).remaining;
}

/* ---- one of each kind ---- */

static void a_charge_is_given_back(void **state)
{
    (void)state;
    static const char *const limits[] = { FIXED("f", "5"), SLIDING("5"), BUCKET("5"), DAY("5") };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char rules[300];
        snprintf(rules, sizeof rules, "rules: [" RULE("r", "%s") "]", limits[i]);
        struct weir *weir = open_rules(rules);
        struct weir_receipt first = charge(weir, 1, NOW), second = charge(weir, 3, NOW);
        assert_int_equal(first.count, 1);
        assert_int_equal(left(weir, NOW), 1);
        assert_int_equal(give_back(weir, &second, NOW), 1);
        assert_int_equal(left(weir, NOW), 4);
        assert_int_equal(give_back(weir, &first, NOW), 1);
        assert_int_equal(left(weir, NOW), 5);
        weir_close(weir);
    }
}

static void to_every_limit_of_every_rule(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [" RULE("a", FIXED("f", "5") ", " SLIDING("5") ", " BUCKET("5")) ", " RULE("b", DAY("5")) "]");
    struct weir_receipt receipt = charge(weir, 2, NOW);
    assert_int_equal(receipt.count, 4);
    assert_int_equal(left(weir, NOW), 3);
    assert_int_equal(give_back(weir, &receipt, NOW), 4);
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 5);
    weir_close(weir);
}

/* Nothing is charged: there is nothing to give back. */
static void only_those_that_were_charged_have_a_receipt(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", FIXED("f", "1")) "]");
    struct weir_receipt refused = { .count = 9 };
    assert_int_equal(receipt_of(weir, peek_of("e", "k", 1), NOW).count, 0);
    assert_int_equal(receipt_of(weir, one("other", "k"), NOW).count, 0);
    assert_int_equal(receipt_of(weir, cost_of("e", "k", 0), NOW).count, 0);
    assert_int_equal(receipt_of(weir, one("e", "k"), NOW).count, 1);
    assert_false(check_at(weir, refundable("k", 1, &refused), NOW).allowed);
    assert_int_equal(refused.count, 0);
    assert_int_equal(give_back(weir, &refused, NOW), 0);
    struct weir_request request = refundable("k", 1, &refused);
    struct weir_verdict verdict;
    refused.count = 9;
    assert_int_equal(weir_check(weir, &request, -1, &verdict), WEIR_E_INVALID);
    assert_int_equal(refused.count, 0);
    refused.count = 9;
    assert_int_equal(weir_check_batch(weir, &request, 1, -1, &verdict), WEIR_E_INVALID);
    assert_int_equal(refused.count, 0);
    weir_close(weir);
}

static void batches_have_receipts_too(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", FIXED("f", "2")) "]");
    struct weir_receipt r[3] = { { .count = 9 }, { .count = 9 }, { .count = 9 } };
    struct weir_request requests[3] = { refundable("k", 1, &r[0]), refundable("k", 1, &r[1]), refundable("k", 1, &r[2]) };
    struct weir_verdict verdicts[3];
    assert_int_equal(weir_check_batch(weir, requests, 3, NOW, verdicts), 0);
    assert_int_equal(r[0].count + r[1].count, 2);
    assert_int_equal(r[2].count, 0);
    assert_int_equal(give_back(weir, &r[0], NOW), 1);
    assert_int_equal(give_back(weir, &r[1], NOW), 1);
    assert_int_equal(left(weir, NOW), 2);
    weir_close(weir);
}

/* ---- what is remembered ---- */

/* Charging and giving back in a loop takes a bounded number of cells, and pushes nobody out. */
static void a_loop_of_refunds_takes_few_cells(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", DAY("100")) "]");
    for (int i = 0; i < 20000; i++) {
        struct weir_receipt receipt = charge(weir, 1, NOW + i);
        assert_int_equal(give_back(weir, &receipt, NOW + i), 1);
    }
    assert_true(weir_cells_used(weir, NOW, UINT64_MAX) <= 2 + RING_BLOCKS);
    weir_close(weir);
}

static struct weir *open_small(uint64_t keys)
{
    struct weir_options options = { .size = sizeof options,
                                    .rules_text = "rules: [" RULE("r", DAY("100")) "]",
                                    .cells_keys = keys };
    struct weir *weir = NULL;
    struct weir_error error;
    assert_int_equal(weir_open(&weir, &options, &error), 0);
    return weir;
}

static void refunds_push_out_no_counts(void **state)
{
    (void)state;
    enum { SUBJECTS = 200 };
    struct weir *weir = open_small(SUBJECTS);
    char key[20];
    for (int i = 0; i < SUBJECTS; i++) {
        snprintf(key, sizeof key, "s%d", i);
        assert_true(check_at(weir, cost_of("e", key, 90), NOW).allowed);
    }
    /* Many keys with receipts, and one with very many of them. */
    for (int i = 0; i < 40000; i++) {
        snprintf(key, sizeof key, "k%d", i % 2 ? i % 64 : 0);
        struct weir_request request = one("e", key);
        struct weir_receipt receipt = receipt_of(weir, request, NOW + i);
        weir_refund(weir, &receipt, NOW + i);
    }
    for (int i = 0; i < SUBJECTS; i++) {
        snprintf(key, sizeof key, "s%d", i);
        assert_int_equal(check_at(weir, peek_of("e", key, 1), NOW + S).remaining, 10);
    }
    weir_close(weir);
}

/* A table that is full of counts: receipts find no place in it, and take none. */
static void a_full_table_has_no_room_for_receipts(void **state)
{
    (void)state;
    enum { SUBJECTS = 2000 };
    struct weir *weir = open_small(200);
    char key[20];
    for (int i = 0; i < SUBJECTS; i++) {
        snprintf(key, sizeof key, "s%d", i);
        check_at(weir, cost_of("e", key, 90), NOW);
    }
    struct weir_status before, after;
    weir_status(weir, &before);
    struct weir_receipt receipt;
    unsigned passed = passes(weir, refundable("k", 1, &receipt), NOW, 2000);
    weir_status(weir, &after);
    assert_int_equal(passed, 100);
    assert_in_range(after.drops - before.drops, 0, 1);
    weir_close(weir);
}

/* Receipts that are out at the same time: the last RING_WINDOW of them at least are good, each for once. */
static void many_receipts_are_out(void **state)
{
    (void)state;
    enum { COUNT = 3 * RING_WINDOW };
    struct weir *weir = open_rules("rules: [" RULE("r", DAY("1000000")) "]");
    struct weir_receipt *receipts = calloc(COUNT, sizeof *receipts);
    struct random random = { random_seed() };
    bool used[COUNT] = { false };
    for (int i = 0; i < COUNT; i++) {
        receipts[i] = charge(weir, 1, NOW + i);
        for (int k = 0; k < 2; k++) {
            int which = (int)random_in(&random, 0, i), given = give_back(weir, &receipts[which], NOW + i);
            assert_in_range(given, 0, !used[which]);
            assert_true(given == 1 || used[which] || which < i - RING_WINDOW);
            used[which] |= given == 1;
        }
    }
    free(receipts);
    weir_close(weir);
}

/* A table that is much too small forgets receipts: then they are not good at all, but never twice. */
static void what_is_forgotten_is_not_given_back(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    struct weir *weir = open_small(64);
    struct weir_receipt *receipts = calloc(COUNT, sizeof *receipts);
    struct random random = { random_seed() };
    bool used[COUNT] = { false };
    char key[20];
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "k%d", i % 10);
        receipts[i] = receipt_of(weir, one("e", key), NOW + i);
        snprintf(key, sizeof key, "flood%d", i);
        check_at(weir, one("e", key), NOW + i);
        int which = (int)random_in(&random, i > 50 ? i - 50 : 0, i);
        snprintf(key, sizeof key, "k%d", which % 10);
        int given = weir_refund(weir, &receipts[which], NOW + i);
        assert_in_range(given, 0, !used[which]);
        used[which] |= given == 1;
    }
    free(receipts);
    weir_close(weir);
}

/* ---- not more than was charged ---- */

static void a_receipt_is_good_for_once(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", FIXED("f", "5")) "]");
    struct weir_receipt receipt = charge(weir, 1, NOW);
    charge(weir, 3, NOW);
    assert_int_equal(give_back(weir, &receipt, NOW), 1);
    assert_int_equal(give_back(weir, &receipt, NOW), 0);
    assert_int_equal(give_back(weir, &receipt, NOW + 30 * S), 0);
    assert_int_equal(left(weir, NOW), 2);
    weir_close(weir);
}

static void nothing_goes_into_another_window(void **state)
{
    (void)state;
    static const char *const limits[] = { FIXED("f", "5"), DAY("5") };
    static const int64_t later_us[] = { 60 * S, 24 * HOUR };
    for (size_t i = 0; i < 2; i++) {
        char rules[300];
        snprintf(rules, sizeof rules, "rules: [" RULE("r", "%s") "]", limits[i]);
        struct weir *weir = open_rules(rules);
        /* Half an hour before midnight in Shanghai: the receipt is still good after it. */
        int64_t at_us = INT64_C(1700063100) * S;
        struct weir_receipt receipt = charge(weir, 3, at_us);
        int64_t then_us = i == 0 ? at_us + later_us[0] : at_us + HOUR / 2;
        charge(weir, 2, then_us);
        assert_int_equal(give_back(weir, &receipt, then_us), 0);
        assert_int_equal(left(weir, then_us), 3);
        weir_close(weir);
    }
}

static void a_sliding_window_follows_the_count(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", SLIDING("10")) "]");
    struct weir_receipt receipt = charge(weir, 8, NOW);
    charge(weir, 1, NOW + 60 * S);
    assert_int_equal(give_back(weir, &receipt, NOW + 60 * S), 1);
    assert_int_equal(left(weir, NOW + 60 * S), 9);
    weir_close(weir);
}

static void of_a_bucket_what_has_not_refilled(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", BUCKET("60")) "]");
    struct weir_receipt receipt = charge(weir, 10, NOW);
    charge(weir, 50, NOW);
    assert_int_equal(left(weir, NOW + 4 * S), 4);
    assert_int_equal(give_back(weir, &receipt, NOW + 4 * S), 1); /* of 10, 4 have come back by themselves */
    assert_int_equal(left(weir, NOW + 4 * S), 10);
    weir_close(weir);
}

static void not_after_a_day(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", "{ name: m, calendar: year, max: 5 }") "]");
    struct weir_receipt early = charge(weir, 1, NOW), late = charge(weir, 1, NOW);
    assert_int_equal(give_back(weir, &early, NOW + 24 * HOUR - 1), 1);
    assert_int_equal(give_back(weir, &late, NOW + 24 * HOUR), 0);
    assert_int_equal(left(weir, NOW + 24 * HOUR), 4);
    weir_close(weir);
}

/* Rules that came since were not charged; what is gone is not missed; new numbers do not matter. */
static void rules_that_changed_meanwhile(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("a", FIXED("f", "5")) ", " RULE("b", DAY("5")) "]");
    struct weir_receipt receipt = charge(weir, 2, NOW);
    set_rules(weir, "rules: [" RULE("a", FIXED("f", "20")) ", " RULE("c", DAY("20") ", " BUCKET("20")) "]");
    charge(weir, 3, NOW);
    assert_int_equal(give_back(weir, &receipt, NOW), 1);
    EXPECT(weir, peek_of("e", "k", 1), NOW, "pass a/f 17 of 20, reset 60000");
    set_rules(weir, "rules: [" RULE("c", DAY("20")) "]");
    EXPECT(weir, peek_of("e", "k", 1), NOW, "pass c/d 17 of 20, reset 64000000");
    weir_close(weir);
}

/* No cell is made by giving back. */
static void to_one_that_was_set_free_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", BUCKET("5") ", " DAY("5")) "]");
    struct weir_receipt receipt = charge(weir, 1, NOW);
    struct weir_str by = weir_str("k");
    struct weir_error error;
    assert_int_equal(weir_reset(weir, "r", &by, 1, &error), 0);
    assert_int_equal(give_back(weir, &receipt, NOW), 0);
    assert_int_equal(left(weir, NOW), 5);
    weir_close(weir);
}

/* The receipt says by itself whose it is. */
static void of_another_subject_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", FIXED("f", "5")) "]");
    struct weir_receipt receipt = charge(weir, 1, NOW);
    check_at(weir, one("e", "other"), NOW);
    assert_int_equal(weir_refund(weir, &receipt, NOW), 1);
    assert_int_equal(check_at(weir, peek_of("e", "other", 1), NOW).remaining, 4);
    assert_int_equal(left(weir, NOW), 5);
    weir_close(weir);
}

/* One that had no room was not charged. */
static void shadow_rules_as_they_were_charged(void **state)
{
    (void)state;
    const char *shadow = "rules: [{ id: s, match: { event: e }, by: [key], mode: shadow, limits: [" FIXED("f", "3") "] }]";
    struct weir *weir = open_rules(shadow);
    struct weir_receipt charged = charge(weir, 2, NOW);
    struct weir_receipt not_charged = receipt_of(weir, cost_of("e", "k", 2), NOW);
    assert_int_equal(not_charged.count, 0);
    assert_int_equal(give_back(weir, &charged, NOW), 1);
    set_rules(weir, "rules: [" RULE("s", FIXED("f", "3")) "]");
    assert_int_equal(left(weir, NOW), 3);
    weir_close(weir);
}

static void a_plan_of_many_limits(void **state)
{
    (void)state;
    char rules[8000] = "rules: [";
    for (int i = 0; i < 40; i++)
        snprintf(rules + strlen(rules), sizeof rules - strlen(rules), "%s" RULE("r%d", FIXED("f", "5")), i ? ", " : "", i);
    strcat(rules, "]");
    struct weir *weir = open_rules(rules);
    struct weir_receipt receipt = charge(weir, 1, NOW);
    assert_int_equal(receipt.count, WEIR_RECEIPT_LIMITS);
    assert_int_equal(give_back(weir, &receipt, NOW), WEIR_RECEIPT_LIMITS);
    weir_close(weir);
}

/* Charged again since: what was charged before is not what is there now. */
static void after_a_reset_nothing(void **state)
{
    (void)state;
    static const char *const limits[] = { FIXED("f", "5"), SLIDING("5"), BUCKET("5"), DAY("5") };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char rules[300];
        snprintf(rules, sizeof rules, "rules: [" RULE("r", "%s") "]", limits[i]);
        struct weir *weir = open_rules(rules);
        struct weir_receipt receipt = charge(weir, 3, NOW);
        struct weir_str by = weir_str("k");
        struct weir_error error;
        assert_int_equal(weir_reset(weir, "r", &by, 1, &error), 0);
        charge(weir, 5, NOW);
        assert_int_equal(give_back(weir, &receipt, NOW), 0);
        assert_int_equal(left(weir, NOW), 0);
        weir_close(weir);
    }
}

/* In a table that is full, a newcomer takes the place of one that has used little. */
static void after_its_cell_was_dropped_nothing(void **state)
{
    (void)state;
    struct weir *weir =
        open_with((struct weir_options){ .rules_text = "rules: [" RULE("r", DAY("1000")) "]", .cells_keys = 100 });
    struct weir_receipt receipt = charge(weir, 1, NOW);
    for (int i = 0; i < 3000; i++) {
        char key[20];
        snprintf(key, sizeof key, "other%d", i);
        check_at(weir, cost_of("e", key, 2), NOW);
    }
    assert_int_equal(left(weir, NOW), 1000); /* it was */
    charge(weir, 1000, NOW);
    assert_int_equal(give_back(weir, &receipt, NOW), 0);
    assert_int_equal(left(weir, NOW), 0);
    weir_close(weir);
}

/* At the old rate all had come back long ago. */
static void of_a_bucket_with_another_rate_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", "{ name: b, max: 10, per: 1s }") "]");
    struct weir_receipt receipt = charge(weir, 10, NOW);
    charge(weir, 10, NOW + 10 * S);
    set_rules(weir, "rules: [" RULE("r", "{ name: b, max: 10, per: 1h }") "]");
    assert_int_equal(give_back(weir, &receipt, NOW + 10 * S), 0);
    assert_int_equal(passes(weir, one("e", "k"), NOW + 10 * S, 9), 0);
    weir_close(weir);
}

static void clocks_that_were_ahead(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", DAY("10")) "]");
    struct weir_receipt ahead = charge(weir, 1, NOW + S / 2), far = charge(weir, 1, NOW + 60 * S);
    assert_int_equal(give_back(weir, &far, NOW), 0);
    assert_int_equal(give_back(weir, &ahead, NOW), 1);
    for (int64_t later_us = 0; later_us < 2 * HOUR; later_us += 600 * S)
        assert_int_equal(give_back(weir, &ahead, NOW + later_us), 0);
    weir_close(weir);
}

/* Not a bit of it can be changed. */
static void forged_receipts(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", DAY("10")) "]");
    struct weir_receipt receipt = charge(weir, 1, NOW), read;
    char text[WEIR_RECEIPT_TEXT_MAX];
    charge(weir, 9, NOW);
    size_t len = weir_receipt_text(&receipt, text, sizeof text);
    uint64_t cells = weir_cells_used(weir, NOW, 100000);
    for (size_t i = 2; i < len; i++) {
        char was = text[i];
        text[i] = was == '7' ? '8' : '7';
        if (i >= 8) /* the lengths come first */
            assert_int_equal(weir_receipt_read(weir_str(text), &read), 0);
        else
            assert_int_equal(weir_receipt_read(weir_str(text), &read), WEIR_E_INVALID);
        if (i >= 8)
            assert_int_equal(give_back(weir, &read, NOW), 0);
        text[i] = was;
    }
    assert_int_equal(left(weir, NOW), 0);
    assert_int_equal(weir_cells_used(weir, NOW, 100000), cells); /* and nothing is remembered of them */
    assert_int_equal(give_back(weir, &receipt, NOW), 1);
    weir_close(weir);
}

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    assert_true(in && out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* A copy of the table does not know which receipts were used since. */
static void not_to_a_copy_of_the_table(void **state)
{
    (void)state;
    char folder[] = "/tmp/refund-XXXXXX", first[40], second[40];
    assert_non_null(mkdtemp(folder));
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    struct weir_options options = { .rules_text = "rules: [" RULE("r", FIXED("f", "9")) "]", .cells_file = first };
    struct weir *weir = open_with(options);
    struct weir_receipt receipts[] = { charge(weir, 1, NOW), charge(weir, 1, NOW), charge(weir, 1, NOW) };
    copy_file(first, second);
    options.cells_file = second;
    struct weir *copy = open_with(options), *again = open_with(options);
    assert_false(weir_cells_copied(weir));
    assert_true(weir_cells_copied(copy));
    assert_false(weir_cells_copied(again));
    assert_int_equal(give_back(weir, &receipts[0], NOW), 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(give_back(i & 1 ? again : copy, &receipts[i], NOW), 0);
    assert_int_equal(left(copy, NOW), 6);
    struct weir_receipt own = charge(copy, 1, NOW);
    assert_int_equal(give_back(weir, &own, NOW), 0);
    assert_int_equal(give_back(again, &own, NOW), 1);
    assert_int_equal(give_back(copy, &own, NOW), 0);
    assert_int_equal(give_back(weir, &receipts[1], NOW), 1);
    assert_int_equal(left(weir, NOW), 8);
    weir_close(weir);
    weir_close(copy);
    weir_close(again);
    unlink(first);
    unlink(second);
    rmdir(folder);
}

/* ---- as text ---- */

static void a_receipt_travels_as_text(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("a", FIXED("f", "5") ", " SLIDING("5")) ", " RULE("b", DAY("5")) "]");
    struct weir_receipt receipt = charge(weir, 2, NOW), read;
    char text[WEIR_RECEIPT_TEXT_MAX], cut[10];
    size_t len = weir_receipt_text(&receipt, text, sizeof text);
    assert_int_equal(len, strlen(text));
    assert_int_equal(weir_receipt_text(&receipt, cut, sizeof cut), len);
    assert_memory_equal(text, cut, sizeof cut - 1);
    assert_int_equal(cut[sizeof cut - 1], '\0');
    assert_int_equal(weir_receipt_text(&receipt, NULL, 0), len);
    assert_int_equal(weir_receipt_read(weir_str(text), &read), 0);
    assert_int_equal(give_back(weir, &read, NOW), 3);
    assert_int_equal(give_back(weir, &receipt, NOW), 0);
    weir_close(weir);
}

static void what_is_no_receipt(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("a", FIXED("f", "5")) "]");
    struct weir_receipt receipt = charge(weir, 2, NOW), read;
    char text[WEIR_RECEIPT_TEXT_MAX];
    size_t len = weir_receipt_text(&receipt, text, sizeof text);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(weir_receipt_read((struct weir_str){ text, i }, &read), WEIR_E_INVALID);
    text[len] = '0';
    assert_int_equal(weir_receipt_read((struct weir_str){ text, len + 1 }, &read), WEIR_E_INVALID);
    text[5] = 'g';
    assert_int_equal(weir_receipt_read((struct weir_str){ text, len }, &read), WEIR_E_INVALID);
    text[5] = '0';
    text[1] = '4'; /* a version that is to come */
    assert_int_equal(weir_receipt_read((struct weir_str){ text, len }, &read), WEIR_E_INVALID);
    text[1] = '2'; /* an earlier one, which needs its request */
    assert_int_equal(weir_receipt_read((struct weir_str){ text, len }, &read), WEIR_E_INVALID);
    receipt.count = WEIR_RECEIPT_LIMITS + 1;
    assert_int_equal(give_back(weir, &receipt, NOW), WEIR_E_INVALID);
    weir_close(weir);
}

/* ---- random schedules, against a model that keeps every charge ---- */

enum { MOST = 20, STEPS = 3000, KEPT = 400 };

struct charged {
    struct weir_receipt receipt;
    uint32_t cost;
    int64_t window; /* which of the model's */
    bool given;
};

/* A fixed window opens with the first charge; what it holds is the sum of its charges that were not given back. */
struct model {
    int64_t end_us, window;
    uint32_t count;
    struct charged kept[KEPT];
    size_t kept_count;
};

static void try_charge(struct weir *weir, struct model *m, uint32_t cost, int64_t now_us)
{
    if (now_us >= m->end_us) {
        m->count = 0;
        m->end_us = 0;
    }
    bool fits = cost <= MOST - m->count;
    struct weir_receipt receipt;
    struct weir_verdict v = check_at(weir, refundable("k", cost, &receipt), now_us);
    assert_int_equal(v.allowed, fits);
    if (!fits)
        return;
    if (m->end_us == 0) {
        m->end_us = now_us + 60 * S;
        m->window++;
    }
    m->count += cost;
    assert_int_equal(v.remaining, MOST - m->count);
    if (m->kept_count == KEPT)
        m->kept_count = 0;
    m->kept[m->kept_count++] = (struct charged){ receipt, cost, m->window, false };
}

static void try_refund(struct weir *weir, struct model *m, struct charged *c, int64_t now_us)
{
    bool expected = !c->given && c->window == m->window && now_us < m->end_us;
    assert_int_equal(give_back(weir, &c->receipt, now_us), expected);
    if (expected)
        m->count -= c->cost;
    if (m->count == 0)
        m->end_us = 0; /* as if there had been none */
    c->given = true;
}

static void schedules(void **state)
{
    (void)state;
    static struct model m;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct weir *weir = open_rules("rules: [" RULE("r", FIXED("f", "20")) "]");
        struct random random = { random_seed() + seed };
        int64_t now_us = NOW;
        memset(&m, 0, sizeof m);
        for (int i = 0; i < STEPS; i++) {
            now_us += random_in(&random, 0, 3) * (random_one_in(&random, 2) ? 1 : 5 * S);
            if (m.kept_count == 0 || random_one_in(&random, 3))
                try_charge(weir, &m, (uint32_t)random_in(&random, 1, 7), now_us);
            else
                try_refund(weir, &m, &m.kept[random_in(&random, 0, (int64_t)m.kept_count - 1)], now_us);
        }
        weir_close(weir);
    }
}

/* ---- many at once ---- */

enum { THREADS = 4, ROUNDS = 3000 };

struct worker {
    pthread_t thread;
    struct weir *weir;
    int kept; /* charges that were not given back */
};

/* Three of four charges are given back, some of these twice and by two threads. */
static void *charge_and_refund(void *data)
{
    struct worker *w = data;
    struct weir_receipt receipt;
    struct weir_request request = refundable("k", 1, &receipt);
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_verdict v;
        if (weir_check(w->weir, &request, NOW, &v) < 0 || !v.allowed)
            continue;
        int given = 0;
        for (int k = 0; k < 2 && i % 4; k++)
            given += weir_refund(w->weir, &receipt, NOW);
        w->kept += given != 2; /* two limits */
        if (given > 2)
            w->kept = -1000000;
    }
    return NULL;
}

static void threads_give_back_what_they_took(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){
        .rules_text = "rules: [" RULE("r", FIXED("f", "100000") ", " DAY("100000")) "]", .cells_keys = 100000 });
    struct worker workers[THREADS] = { 0 };
    int kept = 0;
    for (int i = 0; i < THREADS; i++) {
        workers[i].weir = weir;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, charge_and_refund, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        kept += workers[i].kept;
    }
    assert_int_equal(kept, THREADS * ROUNDS / 4);
    assert_int_equal(left(weir, NOW), 100000 - kept);
    weir_close(weir);
}

struct same {
    pthread_t thread;
    struct weir *weir;
    const struct weir_receipt *receipts;
    pthread_barrier_t *start;
    int given;
};

static void *refund_the_same(void *data)
{
    struct same *s = data;
    pthread_barrier_wait(s->start);
    for (int i = 0; i < 100; i++)
        s->given += give_back(s->weir, &s->receipts[i], NOW);
    return NULL;
}

static void one_of_many_gives_back(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", FIXED("f", "1000")) "]");
    struct weir_receipt receipts[100];
    struct same same[THREADS];
    pthread_barrier_t start;
    int given = 0;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < 100; i++)
        receipts[i] = charge(weir, 2, NOW);
    for (int i = 0; i < THREADS; i++) {
        same[i] = (struct same){ .weir = weir, .receipts = receipts, .start = &start };
        assert_int_equal(pthread_create(&same[i].thread, NULL, refund_the_same, &same[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(same[i].thread, NULL);
        given += same[i].given;
    }
    assert_int_equal(given, 100);
    assert_int_equal(left(weir, NOW), 1000);
    pthread_barrier_destroy(&start);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_charge_is_given_back),
        cmocka_unit_test(to_every_limit_of_every_rule),
        cmocka_unit_test(only_those_that_were_charged_have_a_receipt),
        cmocka_unit_test(batches_have_receipts_too),
        cmocka_unit_test(a_loop_of_refunds_takes_few_cells),
        cmocka_unit_test(refunds_push_out_no_counts),
        cmocka_unit_test(a_full_table_has_no_room_for_receipts),
        cmocka_unit_test(many_receipts_are_out),
        cmocka_unit_test(what_is_forgotten_is_not_given_back),
        cmocka_unit_test(a_receipt_is_good_for_once),
        cmocka_unit_test(nothing_goes_into_another_window),
        cmocka_unit_test(a_sliding_window_follows_the_count),
        cmocka_unit_test(of_a_bucket_what_has_not_refilled),
        cmocka_unit_test(not_after_a_day),
        cmocka_unit_test(rules_that_changed_meanwhile),
        cmocka_unit_test(to_one_that_was_set_free_nothing),
        cmocka_unit_test(of_another_subject_nothing),
        cmocka_unit_test(after_a_reset_nothing),
        cmocka_unit_test(after_its_cell_was_dropped_nothing),
        cmocka_unit_test(of_a_bucket_with_another_rate_nothing),
        cmocka_unit_test(clocks_that_were_ahead),
        cmocka_unit_test(forged_receipts),
        cmocka_unit_test(not_to_a_copy_of_the_table),
        cmocka_unit_test(shadow_rules_as_they_were_charged),
        cmocka_unit_test(a_plan_of_many_limits),
        cmocka_unit_test(a_receipt_travels_as_text),
        cmocka_unit_test(what_is_no_receipt),
        cmocka_unit_test(schedules),
        cmocka_unit_test(threads_give_back_what_they_took),
        cmocka_unit_test(one_of_many_gives_back),
    };
    return cmocka_run_group_tests_name("engine/refund", tests, NULL, NULL);
}
