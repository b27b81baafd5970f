/* Amounts with a unit: what is read, and what is said to be allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/amount.h"

#define DAY UINT64_C(86400000)

static const struct amount_range ranges[] = {
    [AMOUNT_NUMBER] = { AMOUNT_NUMBER, 0, UINT32_MAX, 0 },
    [AMOUNT_COUNT] = { AMOUNT_COUNT, 1, UINT64_MAX, 0 },
    [AMOUNT_SIZE] = { AMOUNT_SIZE, 1024, UINT64_C(1) << 41, 0 },
    [AMOUNT_TIME] = { AMOUNT_TIME, 1, 3650 * DAY, 0 },
};

static void test_good(void **state)
{
    (void)state;
    static const struct {
        enum amount_kind kind;
        const char *text;
        uint64_t amount;
    } cases[] = {
        { AMOUNT_NUMBER, "0", 0 },
        { AMOUNT_NUMBER, "007", 7 },
        { AMOUNT_NUMBER, "4294967295", UINT32_MAX },
        { AMOUNT_COUNT, "18446744073709551615", UINT64_MAX },
        { AMOUNT_COUNT, "3k", 3000 },
        { AMOUNT_COUNT, "3G", UINT64_C(3000000000) },
        { AMOUNT_SIZE, "1k", 1024 },
        { AMOUNT_SIZE, "2048g", UINT64_C(1) << 41 },
        { AMOUNT_TIME, "1ms", 1 },
        { AMOUNT_TIME, "60s", 60000 },
        { AMOUNT_TIME, "60 s", 60000 },
        { AMOUNT_TIME, "1m", 60000 },
        { AMOUNT_TIME, "24h", DAY },
        { AMOUNT_TIME, "3650d", 3650 * DAY },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t amount = 99;
        if (amount_read(weir_str(cases[i].text), &ranges[cases[i].kind], &amount) != AMOUNT_GOOD)
            fail_msg("%s", cases[i].text);
        assert_int_equal(amount, cases[i].amount);
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        enum amount_kind kind;
        const char *text;
        enum amount_found found;
    } cases[] = {
        { AMOUNT_NUMBER, "", AMOUNT_INVALID },
        { AMOUNT_NUMBER, "-1", AMOUNT_INVALID },
        { AMOUNT_NUMBER, "1k", AMOUNT_INVALID },
        { AMOUNT_NUMBER, "1 ", AMOUNT_INVALID },
        { AMOUNT_NUMBER, "4294967296", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_COUNT, "0", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_COUNT, "18446744073709551616", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_COUNT, "18446744073709551615k", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_COUNT, "k", AMOUNT_INVALID },
        { AMOUNT_COUNT, "1kk", AMOUNT_INVALID },
        { AMOUNT_SIZE, "1023", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_SIZE, "2049g", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_TIME, "60", AMOUNT_INVALID },
        { AMOUNT_TIME, "0", AMOUNT_INVALID },
        { AMOUNT_TIME, "0s", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_TIME, "060s", AMOUNT_INVALID },
        { AMOUNT_TIME, "60S", AMOUNT_INVALID },
        { AMOUNT_TIME, "1M", AMOUNT_INVALID },
        { AMOUNT_TIME, "1.5s", AMOUNT_INVALID },
        { AMOUNT_TIME, "1h30m", AMOUNT_INVALID },
        { AMOUNT_TIME, " 1s", AMOUNT_INVALID },
        { AMOUNT_TIME, "s", AMOUNT_INVALID },
        { AMOUNT_TIME, "3651d", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_TIME, "18446744073709551615d", AMOUNT_OUT_OF_RANGE },
        { AMOUNT_TIME, "99999999999999999999ms", AMOUNT_OUT_OF_RANGE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t amount = 99;
        if (amount_read(weir_str(cases[i].text), &ranges[cases[i].kind], &amount) != cases[i].found)
            fail_msg("%s", cases[i].text);
        assert_int_equal(amount, 99);
    }
}

static void test_bare(void **state)
{
    (void)state;
    struct amount_range seconds = { AMOUNT_TIME, 1000, 3600000, 1000 };
    uint64_t amount = 0;
    assert_int_equal(amount_read(SV("2"), &seconds, &amount), AMOUNT_GOOD);
    assert_int_equal(amount, 2000);
    assert_int_equal(amount_read(SV("2m"), &seconds, &amount), AMOUNT_GOOD);
    assert_int_equal(amount, 120000);
    assert_int_equal(amount_read(SV("3601"), &seconds, &amount), AMOUNT_OUT_OF_RANGE);
    assert_int_equal(amount_read(SV("18446744073709551615"), &seconds, &amount), AMOUNT_OUT_OF_RANGE);
}

static void test_texts(void **state)
{
    (void)state;
    char text[AMOUNT_ALLOWED_MAX];
    amount_range_text(&(struct amount_range){ AMOUNT_TIME, 0, 3600000, 0 }, text);
    assert_string_equal(text, "0ms to 1h");
    amount_allowed_text(&(struct amount_range){ AMOUNT_TIME, 100, DAY, 0 }, text);
    assert_string_equal(text, "100ms to 1d, with ms, s, m, h or d after the number");
    amount_allowed_text(&ranges[AMOUNT_SIZE], text);
    assert_string_equal(text, "1k to 2048g; k, m or g may follow the number");
    amount_allowed_text(&ranges[AMOUNT_COUNT], text);
    assert_string_equal(text, "1 to 18446744073709551615; k, m or g may follow the number");
    amount_allowed_text(&ranges[AMOUNT_NUMBER], text);
    assert_string_equal(text, "0 to 4294967295");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_bare),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
