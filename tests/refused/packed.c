/* Lists and refusals as bytes: they come back as they were, under another secret too, and no bytes break the reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "refused/packed.h"
#include "refused/top_history.h"

static const struct hash_key secret = { 1, 2 }, another = { 3, 4 };

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static struct subject subject_of(const char *header, const char *value, const struct hash_key *key)
{
    struct subject subject;
    struct rule_by by = { .attribute = header ? ATTR_HEADER : ATTR_KEY, .name = header ? weir_str(header) : (sv){ 0 } };
    struct rule_kind kind = { .by = &by, .by_count = 1 };
    struct rule rule = { .id = SV("ocr"), .kind = &kind };
    subject_fill(&subject, &rule, &(struct weir_str){ value, strlen(value) }, key);
    return subject;
}

static struct top_list list_of(const struct subject *subjects, size_t count, uint64_t most, uint64_t unlisted)
{
    struct top_list list = { .total = 10000, .unlisted = unlisted };
    assert_int_equal(top_list_reserve(&list, (unsigned)count), 0);
    for (; list.count < count; list.count++)
        list.entries[list.count] = (struct top_entry){ most - list.count, unlisted, subjects[list.count] };
    return list;
}

static struct buf pack(const struct top_list *list)
{
    struct buf bytes;
    buf_init(&bytes, 1 << 20);
    packed_write_list(list, &bytes);
    assert_false(bytes.failed);
    return bytes;
}

static struct top_list unpack(const struct buf *bytes, const struct hash_key *key)
{
    struct top_list list = { 0 };
    assert_int_equal(packed_add_list(buf_sv(bytes), key, &list), 0);
    top_list_sort(&list);
    return list;
}

static void assert_same(const struct subject *a, const struct subject *b)
{
    assert_int_equal(subject_bytes(a), subject_bytes(b));
    assert_true(a->cut == b->cut && a->rule_len == b->rule_len && a->by_count == b->by_count);
    assert_memory_equal(a->text, b->text, subject_bytes(a) - offsetof(struct subject, text));
}

/* ---- lists ---- */

static void a_list_comes_back(void **state)
{
    char long_value[1000] = "";
    (void)state;
    memset(long_value, 'x', sizeof long_value - 1);
    struct subject subjects[5] = { subject_of(NULL, "a", &secret), subject_of(NULL, "\xff\xfe\x01", &secret),
                                   subject_of(NULL, long_value, &secret), subject_of("x-key", "short", &secret),
                                   subject_of("x-key", "swordfish and more", &secret) };
    subject_fill_throttle(&subjects[1], SV("(cl.throttle)"), 7, SV("k"), &secret);
    struct top_list list = list_of(subjects, 5, 100, 3);
    struct buf bytes = pack(&list);
    struct top_list back = unpack(&bytes, &secret);
    assert_true(back.count == 5 && back.total == 10000 && back.unlisted == 3);
    for (size_t i = 0; i < 5; i++) {
        assert_true(back.entries[i].count == 100 - i && back.entries[i].error == 3);
        assert_same(&back.entries[i].subject, &subjects[i]);
        assert_true(back.entries[i].subject.key == subjects[i].key);
    }
    top_list_done(&back);
    top_list_done(&list);
    buf_done(&bytes);
}

/* Whole subjects are the same ones under another secret. Those that were cut are not: nobody can tell. */
static void another_secret_finds_the_same_subjects(void **state)
{
    (void)state;
    struct subject before[] = { subject_of(NULL, "a", &secret), subject_of("x-key", "short", &secret),
                                subject_of("x-key", "swordfish", &secret) };
    struct subject after[] = { subject_of(NULL, "a", &another), subject_of("x-key", "short", &another),
                               subject_of("x-key", "swordfish", &another) };
    struct top_list old = list_of(before, 3, 100, 0), new = list_of(after, 3, 10, 0), sum = { 0 };
    struct buf old_bytes = pack(&old), new_bytes = pack(&new);
    assert_int_equal(packed_add_list(buf_sv(&old_bytes), &another, &sum), 0);
    assert_int_equal(packed_add_list(buf_sv(&new_bytes), &another, &sum), 0);
    top_list_sort(&sum);
    assert_int_equal(sum.count, 4);
    assert_int_equal(sum.entries[0].count, 110);
    assert_int_equal(sum.entries[1].count, 108);
    assert_int_equal(sum.entries[2].count, 98);
    assert_int_equal(sum.entries[3].count, 8);
    top_list_done(&old);
    top_list_done(&new);
    top_list_done(&sum);
    buf_done(&old_bytes);
    buf_done(&new_bytes);
}

/* Two headers that begin alike have the same text, and stay two subjects. */
static void cut_subjects_stay_apart(void **state)
{
    (void)state;
    struct subject two[] = { subject_of("x-key", "swordfish-1", &secret), subject_of("x-key", "swordfish-2", &secret) };
    assert_same(&two[0], &two[1]);
    struct top_list list = list_of(two, 2, 10, 0);
    struct buf bytes = pack(&list);
    struct top_list back = unpack(&bytes, &secret);
    assert_int_equal(back.count, 2);
    top_list_done(&back);
    top_list_done(&list);
    buf_done(&bytes);
}

/* ---- refusals ---- */

static struct recent_refusal refusal_of(void)
{
    struct recent_refusal r = { .at_us = INT64_C(1800014400123456), .retry_after_ms = WEIR_NEVER, .status = 429 };
    struct weir_request request = { .cost = 1 };
    struct weir_cost costs[] = { { WEIR_STR("pages"), 7 } };
    request.path = SV("/a/b?secret");
    request.event = SV("ocr");
    request.user = SV("<img>\"\\");
    request.costs = costs;
    request.cost_count = 1;
    r.reason = RECENT_PENALTY;
    r.of_request = true;
    snprintf(r.limit, sizeof r.limit, "day");
    r.subject = subject_of(NULL, "k", &secret);
    recent_fill_request(&r.request, &request, SV("192.0.2.1"));
    return r;
}

static void a_refusal_comes_back(void **state)
{
    (void)state;
    struct recent_refusal refusal = refusal_of(), back;
    for (int i = 0; i < 3; i++) {
        struct buf bytes;
        buf_init(&bytes, 1 << 16);
        packed_write_refusal(&refusal, &bytes);
        memset(&back, 0xff, sizeof back);
        assert_true(packed_read_refusal(buf_sv(&bytes), &secret, &back));
        assert_true(back.at_us == refusal.at_us && back.retry_after_ms == refusal.retry_after_ms);
        assert_true(back.status == refusal.status && back.reason == refusal.reason && back.shadow == refusal.shadow);
        assert_string_equal(back.limit, refusal.limit);
        assert_same(&back.subject, &refusal.subject);
        assert_true(back.of_request == refusal.of_request);
        if (back.of_request) {
            for (enum attribute k = 0; k < REQUEST_ATTRIBUTE_COUNT; k++)
                assert_true(sv_eq(recent_value(&back.request, k), recent_value(&refusal.request, k)));
            assert_true(back.request.cost == 1 && back.request.cost_count == 1 && back.request.costs[0].amount == 7);
            assert_string_equal(back.request.costs[0].unit, "pages");
        }
        buf_done(&bytes);
        if (i == 0)
            refusal.retry_after_ms = 5, refusal.shadow = true, refusal.subject = (struct subject){ 0 };
        else
            refusal.of_request = false;
    }
}

/* ---- bytes of others ---- */

static void no_bytes_break_the_reader(void **state)
{
    const char *given = getenv("TEST_SEED");
    unsigned lists = 0, refusals = 0;
    (void)state;
    random_state = given ? strtoull(given, NULL, 0) : 20240229;
    struct subject subjects[20];
    for (unsigned i = 0; i < 20; i++)
        subjects[i] = subject_of(i % 3 ? "x-key" : NULL, "a value of some length", &secret);
    struct top_list list = list_of(subjects, 20, 1000, 3);
    struct buf whole[2] = { pack(&list) };
    struct recent_refusal refusal = refusal_of(), *back = malloc(sizeof *back);
    buf_init(&whole[1], 1 << 16);
    packed_write_refusal(&refusal, &whole[1]);
    for (int i = 0; i < 40000; i++) {
        const struct buf *from = &whole[i % 2];
        size_t len = next_random() % 4 ? from->len : next_random() % (from->len + 1);
        char *bytes = malloc(len + 1); /* of this size, so that reading beyond it is noticed */
        struct top_list sum = { 0 };
        memcpy(bytes, from->ptr, len);
        for (unsigned k = 0, n = (unsigned)(next_random() % 4); len > 0 && k < n; k++)
            bytes[next_random() % len] = (char)next_random();
        lists += packed_add_list(sv_of(bytes, len), &secret, &sum) == 0;
        for (size_t k = 0; k < sum.count; k++)
            assert_true(subject_bytes(&sum.entries[k].subject) <= sizeof(struct subject));
        if (packed_read_refusal(sv_of(bytes, len), &secret, back)) {
            refusals++;
            assert_true(back->reason < RECENT_REASONS && subject_bytes(&back->subject) <= sizeof(struct subject));
        }
        top_list_done(&sum);
        free(bytes);
    }
    assert_true(lists > 1000 && refusals > 1000);
    assert_int_equal(packed_add_list((sv){ 0 }, &secret, &(struct top_list){ 0 }), WEIR_E_INVALID);
    free(back);
    buf_done(&whole[0]);
    buf_done(&whole[1]);
    top_list_done(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_comes_back),         cmocka_unit_test(another_secret_finds_the_same_subjects),
        cmocka_unit_test(cut_subjects_stay_apart),   cmocka_unit_test(a_refusal_comes_back),
        cmocka_unit_test(no_bytes_break_the_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
