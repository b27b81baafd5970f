/* The messages of Envoy's rate limit service: what is read, what is written, and the units of limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "envoy/envoy.h"

static struct envoy_request request;

static enum envoy_error read_bytes(sv bytes, char why[ENVOY_WHY_MAX])
{
    char *copy = malloc(bytes.len ? bytes.len : 1); /* without anything behind it */
    assert_non_null(copy);
    memcpy(copy, bytes.ptr, bytes.len);
    enum envoy_error error = envoy_read_request(&request, sv_of(copy, bytes.len), why);
    free(copy);
    return error;
}

static void check_text(sv found, const char *want)
{
    assert_int_equal(found.len, strlen(want));
    assert_memory_equal(found.ptr, want, found.len);
}

static void test_reads_all_fields(void **state)
{
    static const char bytes[] = "\x0a\x01"
                                "d"        /* domain */
                                "\x12\x1b" /* a descriptor */
                                "\x0a\x06\x0a\x01"
                                "k\x12\x01"
                                "v" /* an entry */
                                "\x0a\x03\x0a\x01"
                                "e"                                        /* an entry with an empty value */
                                "\x12\x08\x08\x05\x10\x02\x1a\x02\x08\x03" /* 5 for 3 minutes */
                                "\x1a\x00"                                 /* hits_addend 0 */
                                "\x20\x01"                                 /* is_negative_hits */
                                "\x18\x07"                                 /* hits_addend 7 */
                                "\xfa\x01\x03"
                                "abc"; /* unknown */
    const sv all = sv_of(bytes, sizeof bytes - 1);
    char why[ENVOY_WHY_MAX];
    (void)state;
    assert_int_equal(envoy_read_request(&request, all, why), ENVOY_OK);
    check_text(request.domain, "d");
    assert_int_equal(request.hits, 7);
    assert_int_equal(request.descriptor_count, 1);
    const struct envoy_descriptor *d = request.descriptors;
    assert_int_equal(d->entry_count, 2);
    check_text(request.entries[0].name, "k");
    check_text(request.entries[0].value, "v");
    check_text(request.entries[1].name, "e");
    check_text(request.entries[1].value, "");
    assert_true(d->limit.given && d->limit.has_multiplier && d->negative && d->has_hits);
    assert_int_equal(d->limit.requests_per_unit, 5);
    assert_int_equal(d->limit.unit, ENVOY_MINUTE);
    assert_int_equal(d->limit.multiplier, 3);
    assert_int_equal(envoy_hits(&request, d), 0);
    for (size_t len = 0; len < all.len; len++) /* cut off anywhere: never more than the bytes */
        read_bytes(sv_of(bytes, len), why);
}

static void test_hits(void **state)
{
    struct envoy_descriptor d = { .entry_count = 0 };
    (void)state;
    request.hits = 0;
    assert_int_equal(envoy_hits(&request, &d), 1);
    request.hits = 5;
    assert_int_equal(envoy_hits(&request, &d), 5);
    d.has_hits = true;
    assert_int_equal(envoy_hits(&request, &d), 0);
    d.hits = UINT64_MAX;
    assert_true(envoy_hits(&request, &d) == WEIR_AMOUNT_MAX);
}

static void check_bad(sv bytes, enum envoy_error want)
{
    char why[ENVOY_WHY_MAX] = "";
    enum envoy_error error = read_bytes(bytes, why);
    if (error != want || why[0] == '\0')
        fail_msg("%zu bytes: found %d (%s), wanted %d", bytes.len, error, why, want);
}

static void test_rejects(void **state)
{
    (void)state;
    check_bad(SV("\x0a"), ENVOY_MALFORMED);                                             /* no length */
    check_bad(SV("\x0a\x02x"), ENVOY_MALFORMED);                                        /* too short */
    check_bad(SV("\x0a\x01\xff"), ENVOY_MALFORMED);                                     /* a domain that is not UTF-8 */
    check_bad(SV("\x12\x05\x0a\x03\x0a\x01\xff"), ENVOY_MALFORMED);                     /* a key that is not */
    check_bad(SV("\x00\x01"), ENVOY_MALFORMED);                                         /* field 0 */
    check_bad(SV("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), ENVOY_MALFORMED);     /* more than 64 bits */
    check_bad(SV("\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"), ENVOY_MALFORMED); /* 11 bytes */
    check_bad(SV("\x88\x80\x80\x80\x80\x00\x00"), ENVOY_MALFORMED);                     /* a tag of 6 bytes */
    check_bad(SV("\x0e"), ENVOY_MALFORMED);                                             /* wire type 6 */
    check_bad(SV("\x24"), ENVOY_MALFORMED);                                             /* the end of no group */
    check_bad(SV("\x23\x24"), ENVOY_REJECTED);                                          /* a group */
    check_bad(SV("\x08\x01"), ENVOY_REJECTED);                                          /* domain: 1 */
    check_bad(SV("\x1a\x00"), ENVOY_REJECTED);                                          /* hits_addend: "" */
    check_bad(SV("\x12\x02\x20"), ENVOY_MALFORMED);
    check_bad(SV("\x12\x02\x22\x00"), ENVOY_REJECTED); /* is_negative_hits: "" */
}

/* Any byte may be in a value: clients choose it. */
static void test_values_are_bytes(void **state)
{
    char why[ENVOY_WHY_MAX] = "";
    (void)state;
    sv bytes = SV("\x0a\x01x\x12\x08\x0a\x06\x0a\x01k\x12\x01\xff");
    assert_int_equal(envoy_read_request(&request, bytes, why), ENVOY_OK);
    check_text(request.entries[0].value, "\xff");
}

static void test_bounds(void **state)
{
    char bytes[2 * (ENVOY_DESCRIPTORS_MAX + 1)], why[ENVOY_WHY_MAX];
    char entries[3 + 2 * (ENVOY_ENTRIES_MAX + 1)];
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i += 2)
        memcpy(bytes + i, "\x12\x00", 2);
    assert_int_equal(read_bytes(sv_of(bytes, sizeof bytes - 2), why), ENVOY_OK);
    assert_int_equal(request.descriptor_count, ENVOY_DESCRIPTORS_MAX);
    check_bad(sv_of(bytes, sizeof bytes), ENVOY_TOO_MANY);
    for (size_t i = 2; i < sizeof entries - 1; i += 2)
        memcpy(entries + i, "\x0a\x00", 2);
    entries[0] = 0x12;
    entries[1] = 2 * ENVOY_ENTRIES_MAX;
    assert_int_equal(read_bytes(sv_of(entries, 2 + 2 * ENVOY_ENTRIES_MAX), why), ENVOY_OK);
    assert_int_equal(request.descriptors[0].entry_count, ENVOY_ENTRIES_MAX);
    entries[1] += 2;
    check_bad(sv_of(entries, 2 + 2 * (ENVOY_ENTRIES_MAX + 1)), ENVOY_TOO_MANY);
}

static void check_unit(int64_t window_ms, enum envoy_unit want, uint32_t want_multiplier)
{
    enum envoy_unit unit;
    uint32_t multiplier;
    envoy_unit_of(window_ms, &unit, &multiplier);
    if (unit != want || multiplier != want_multiplier)
        fail_msg("%lld ms: %u × %d", (long long)window_ms, multiplier, unit);
}

static void test_units(void **state)
{
    const int64_t s = 1000, h = 3600 * s, d = 24 * h;
    (void)state;
    check_unit(s, ENVOY_SECOND, 1);
    check_unit(60 * s, ENVOY_MINUTE, 1);
    check_unit(90 * s, ENVOY_SECOND, 90);
    check_unit(h, ENVOY_HOUR, 1);
    check_unit(25 * h, ENVOY_HOUR, 25);
    check_unit(d, ENVOY_DAY, 1);
    check_unit(2 * d, ENVOY_DAY, 2);
    check_unit(7 * d, ENVOY_WEEK, 1);
    check_unit(14 * d, ENVOY_WEEK, 2);
    check_unit(30 * d, ENVOY_MONTH, 1);
    check_unit(60 * d, ENVOY_MONTH, 2);
    check_unit(28 * d, ENVOY_MONTH, 1);
    check_unit(31 * d - h, ENVOY_MONTH, 1);
    check_unit(365 * d, ENVOY_YEAR, 1);
    check_unit(366 * d, ENVOY_YEAR, 1);
    check_unit(730 * d, ENVOY_YEAR, 2);
    check_unit(1500, ENVOY_UNKNOWN_UNIT, 1);
    check_unit(0, ENVOY_UNKNOWN_UNIT, 1);
    check_unit(-1, ENVOY_UNKNOWN_UNIT, 1);
}

static void test_windows(void **state)
{
    struct envoy_limit limit = { .given = true, .unit = ENVOY_WEEK };
    uint64_t ms;
    (void)state;
    assert_true(envoy_limit_window(&limit, &ms) && ms == 7 * 24 * UINT64_C(3600000));
    limit.has_multiplier = true;
    assert_false(envoy_limit_window(&limit, &ms));
    limit.multiplier = UINT32_MAX;
    assert_false(envoy_limit_window(&limit, &ms));
    limit = (struct envoy_limit){ .given = true, .unit = ENVOY_SECOND, .has_multiplier = true, .multiplier = 30 };
    assert_true(envoy_limit_window(&limit, &ms) && ms == 30000);
    limit.unit = ENVOY_UNITS;
    assert_false(envoy_limit_window(&limit, &ms));
    limit.unit = -1;
    assert_false(envoy_limit_window(&limit, &ms));
}

/* Each field of an answer at its longest. */
static void test_writes_the_longest(void **state)
{
    char name[WEIR_NAME_MAX], id[WEIR_ID_MAX];
    struct envoy_status statuses[ENVOY_DESCRIPTORS_MAX];
    struct envoy_refusal refusal = { { id, sizeof id }, { name, sizeof name }, 63, INT64_MAX };
    struct envoy_answer answer = { .code = ENVOY_CODE_OVER_LIMIT,
                                   .statuses = statuses,
                                   .status_count = ENVOY_DESCRIPTORS_MAX,
                                   .headers = { { SV("RateLimit-Limit"), SV("18446744073709551615") } },
                                   .header_count = 1,
                                   .refusal = &refusal };
    static char room[32 << 10], json[64 << 10];
    struct buf out;
    (void)state;
    memset(name, 'n', sizeof name);
    memset(id, 1, sizeof id); /* escaped in JSON */
    for (size_t i = 0; i < ENVOY_DESCRIPTORS_MAX; i++)
        statuses[i] = (struct envoy_status){ .code = ENVOY_CODE_OVER_LIMIT,
                                             .has_limit = true,
                                             .name = { name, sizeof name },
                                             .requests_per_unit = UINT32_MAX,
                                             .unit = ENVOY_WEEK,
                                             .multiplier = UINT32_MAX,
                                             .remaining = UINT32_MAX,
                                             .reset_ms = INT64_MAX };
    buf_over(&out, room, sizeof room);
    envoy_write_answer(&out, &answer);
    assert_false(out.failed);
    buf_over(&out, json, sizeof json);
    envoy_write_answer_json(&out, &answer);
    assert_false(out.failed);
}

static void test_writes_json(void **state)
{
    struct envoy_status status = { .code = ENVOY_CODE_OK,
                                   .has_limit = true,
                                   .name = SV("m"),
                                   .requests_per_unit = 3,
                                   .unit = ENVOY_MINUTE,
                                   .multiplier = 2,
                                   .remaining = 1,
                                   .reset_ms = 61001 };
    struct envoy_answer answer = { .code = ENVOY_CODE_OK, .statuses = &status, .status_count = 1 };
    char room[500];
    struct buf out;
    (void)state;
    buf_over(&out, room, sizeof room);
    envoy_write_answer_json(&out, &answer);
    assert_string_equal(room,
                        "{\"overallCode\": \"OK\", \"statuses\": [{\"code\": \"OK\", \"currentLimit\": {\"name\": \"m\", "
                        "\"requestsPerUnit\": 3, \"unit\": \"MINUTE\", \"unitMultiplier\": 2}, \"limitRemaining\": 1, "
                        "\"durationUntilReset\": \"61.001s\"}]}");
}

static void test_health(void **state)
{
    char why[ENVOY_WHY_MAX];
    sv service;
    (void)state;
    assert_int_equal(envoy_read_health(&service, SV(""), why), ENVOY_OK);
    assert_int_equal(service.len, 0);
    assert_int_equal(envoy_read_health(&service, SV("\x0a\x01x\x0a\x02yz"), why), ENVOY_OK);
    check_text(service, "yz");
    assert_int_equal(envoy_read_health(&service, SV("\x0a\x05x"), why), ENVOY_MALFORMED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_all_fields), cmocka_unit_test(test_hits),
        cmocka_unit_test(test_rejects),          cmocka_unit_test(test_values_are_bytes),
        cmocka_unit_test(test_bounds),           cmocka_unit_test(test_units),
        cmocka_unit_test(test_windows),          cmocka_unit_test(test_writes_the_longest),
        cmocka_unit_test(test_writes_json),      cmocka_unit_test(test_health),
    };
    return cmocka_run_group_tests_name("envoy/codec", tests, NULL, NULL);
}
