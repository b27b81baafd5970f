/* Text from strangers: in one line, and without a password. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/plain_text.h"
#include "rules/rules.h"

static void plain_is(sv text, size_t most, const char *expected)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    plain_add(&out, text, most);
    assert_string_equal(buf_sv(&out).ptr, expected);
    buf_done(&out);
}

static void text_in_one_line(void **state)
{
    (void)state;
    plain_is(SV(""), 10, "");
    plain_is(SV("plain \"text\""), 100, "plain \"text\"");
    plain_is(SV("a\nb\rc\td\033e\177f\0g"), 100, "a?b?c?d?e?f?g");
    plain_is(SV("\u00fc\u6f22\U0001f600"), 100, "\u00fc\u6f22\U0001f600");
    plain_is(SV("\xc2\x85 \xe2\x80\xa8 \xe2\x80\xa9 \xef\xbb\xbf \xef\xbf\xbe \xef\xbf\xbf"), 100, "? ? ? ? ? ?");
    plain_is(SV("\xff\xc3"), 100, "??");
    plain_is(SV("a\u202eb\u200bc\u00add\u2066e\U000e0041f"), 100, "a?b?c?d?e?f");
    plain_is(SV("abcdef"), 3, "abc...");
    plain_is(SV("abc"), 3, "abc");
}

/* Whatever comes in, a comment stays a comment. */
static void comments_of_anything(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        char noise[40];
        for (size_t i = 0; i < sizeof noise; i++) {
            seed = seed * 1664525 + 1013904223;
            static const unsigned char odd[] = "\n\r\0#:\xc2\x85\xe2\x80\xa8\xa9\xef\xbb\xbf\xbe rules";
            noise[i] = (char)(seed >> 31 ? odd[(seed >> 8) % (sizeof odd - 1)] : seed >> 16);
        }
        struct buf text;
        struct rules_report report = { 0 };
        buf_init(&text, 1 << 20);
        buf_add(&text, SV("# "));
        plain_add(&text, sv_of(noise, sizeof noise), 1000);
        buf_add(&text, SV("\nrules:\n  - id: a\n    limits: [1 per 1s]\n"));
        struct rules *rules = rules_read(buf_sv(&text), &report);
        assert_int_equal(report.error_count, 0);
        assert_int_equal(rules->rule_count, 1);
        rules_report_done(&report);
        rules_free(rules);
        buf_done(&text);
    }
}

static void hides(const char *address, const char *expected)
{
    char text[200];
    snprintf(text, sizeof text, "%s", address);
    plain_hide_password(text);
    assert_string_equal(text, expected);
}

static void passwords(void **state)
{
    (void)state;
    hides("", "");
    hides("sqlite:a:b@c", "sqlite:a:b@c");
    hides("mysql://ann@host:3306/db", "mysql://ann@host:3306/db");
    hides("mysql://ann:secret@host:3306/db", "mysql://ann:******@host:3306/db");
    hides("mysql://ann:s@c/r:t@host/db", "mysql://ann:*******@host/db");
    hides("mysql://:secret@host/db", "mysql://:******@host/db");
    hides("postgres://host/db?password=secret&sslmode=require", "postgres://host/db?password=******&sslmode=require");
    hides("postgres://host/db?sslmode=require&PASSWORD=secret", "postgres://host/db?sslmode=require&PASSWORD=******");
    hides("postgres://host/db?sslpassword=key&sslmode=require", "postgres://host/db?sslpassword=***&sslmode=require");
    hides("postgres://a:b@host/db?x=1&SslPassword=key", "postgres://a:*@host/db?x=1&SslPassword=***");
    hides("postgres://host/db?password&sslpassword=&word=a", "postgres://host/db?password&sslpassword=&word=a");
    hides("postgres://host/db?x=1&password=a&password=b", "postgres://host/db?x=1&password=*&password=*");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_in_one_line),
        cmocka_unit_test(comments_of_anything),
        cmocka_unit_test(passwords),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
