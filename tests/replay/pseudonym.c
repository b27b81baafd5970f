/* Hashes in place of values: what is equal stays equal, what is in a network stays in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "replay/pseudonym.h"

static const struct hash_key key = { 17, 42 }, other = { 17, 43 };

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static struct ip random_ip(uint64_t *seed, bool v4)
{
    struct ip ip = { { [10] = 0xff, [11] = 0xff } };
    for (unsigned i = v4 ? 12 : 0; i < 16; i++)
        ip.bytes[i] = (uint8_t)next_random(seed);
    return ip;
}

static unsigned common_bits(const struct ip *a, const struct ip *b)
{
    unsigned bits = 0;
    while (bits < 128 && !((a->bytes[bits / 8] ^ b->bytes[bits / 8]) >> (7 - bits % 8) & 1))
        bits++;
    return bits;
}

/* Two addresses share exactly as many bits as before. */
static void test_prefixes_are_kept(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        bool v4 = i % 2;
        struct ip a = random_ip(&seed, v4), b = random_ip(&seed, v4);
        unsigned bits = (v4 ? 96 : 0) + (unsigned)next_random(&seed) % (v4 ? 33 : 129);
        for (unsigned k = 0; k < bits; k++) {
            uint8_t bit = (uint8_t)(1 << (7 - k % 8));
            b.bytes[k / 8] = (uint8_t)((b.bytes[k / 8] & ~bit) | (a.bytes[k / 8] & bit));
        }
        struct ip x = pseudonym_ip(&key, &a), y = pseudonym_ip(&key, &b);
        assert_int_equal(common_bits(&x, &y), common_bits(&a, &b));
        assert_int_equal(ip_is_v4(&x), v4);
    }
}

static void test_the_key_matters(void **state)
{
    (void)state;
    uint64_t seed = 2;
    unsigned same = 0;
    for (int i = 0; i < 1000; i++) {
        struct ip a = random_ip(&seed, true), x = pseudonym_ip(&key, &a), y = pseudonym_ip(&other, &a);
        same += memcmp(&x, &y, sizeof x) == 0 || memcmp(&x, &a, sizeof x) == 0;
    }
    assert_int_equal(same, 0);
    assert_true(pseudonym_hash(&key, ATTR_USER, SV("a")) != pseudonym_hash(&other, ATTR_USER, SV("a")));
    assert_true(pseudonym_hash(&key, ATTR_USER, SV("a")) != pseudonym_hash(&key, ATTR_KEY, SV("a")));
    assert_true(pseudonym_hash(&key, ATTR_USER, SV("a")) == pseudonym_hash(&key, ATTR_USER, SV("a")));
    char text[PSEUDONYM_TEXT_MAX];
    assert_int_equal(pseudonym_text(UINT64_C(0x0123456789abcdef), text), 21);
    assert_string_equal(text, "hash:0123456789abcdef");
}

static struct rules *read_rules(const char *text)
{
    struct rules_report report = { 0 };
    struct rules *rules = rules_read(weir_str(text), &report);
    assert_non_null(rules);
    if (report.error_count > 0)
        fail_msg("%.*s", SV_FMT(report.errors[0].text));
    rules_report_done(&report);
    return rules;
}

static char unjudged[1000];

static void note(sv rule, const char *why, void *data)
{
    (void)data;
    size_t len = strlen(unjudged);
    snprintf(unjudged + len, sizeof unjudged - len, "%.*s: %s\n", SV_FMT(rule), why);
}

/* No value of a person is left in the rules, and what else they say is. */
static void test_rules_are_rewritten(void **state)
{
    (void)state;
    static const char text[] =
        "settings: { except: { ip: [192.0.2.77], user: [secret1] } }\n"
        "rules:\n"
        "- { id: a, match: { path: /kept, host: kept.example, event: kept, user: [secret2], key: { not: secret3 },\n"
        "    ip: { is: 198.51.100.0/24 }, header: { X-A: secret4, X-B: { present: true } } },\n"
        "    by: [ip, user, 'header:x-a', path], plan: 'header:x-a', plans: { secret5: 1 per 1h },\n"
        "    limits: 2 per 1h, except: { ip: ['2001:db8:77::/48'], user: [secret6] } }\n"
        "- { id: o, by: ip, limits: 1 per 1h }\n"
        "overrides:\n"
        "- { rule: a, by: { ip: 203.0.113.77, user: secret7, 'header:x-a': secret8, path: /kept2 }, deny: true }\n"
        "- { rule: o, by: { ip: '2001:db8:78::1' }, deny: true }\n";
    struct rules *rules = read_rules(text);
    struct buf out;
    unjudged[0] = '\0';
    assert_true(pseudonym_rules(&key, rules, note, NULL));
    assert_string_equal(unjudged, "");
    buf_init(&out, 1 << 20);
    rules_write(rules, &out);
    assert_null(strstr(out.ptr, "secret"));
    static const char *const addresses[] = { "192.0.2.77", "198.51.100.", "2001:db8:77:", "203.0.113.77", "2001:db8:78:" };
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (strstr(out.ptr, addresses[i]))
            fail_msg("%s is in %s", addresses[i], out.ptr);
    static const char *const kept[] = { "/kept", "kept.example", "/kept2", "/24", "/48", "/64", "hash:" };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strstr(out.ptr, kept[i]))
            fail_msg("%s is not in %s", kept[i], out.ptr);
    rules_free(read_rules(out.ptr));
    buf_done(&out);
    rules_free(rules);
}

static void test_what_hashes_cannot_say(void **state)
{
    (void)state;
    static const char text[] =
        "rules:\n"
        "- { id: prefix, match: { user: { prefix: job- } }, limits: 1 per 1h }\n"
        "- { id: glob, match: { header: { X-A: { not: { glob: 'a*' } } } }, limits: 1 per 1h }\n"
        "- { id: case, match: { header: { X-A: a } }, ignore_case: true, limits: 1 per 1h }\n"
        "- { id: plan, plan: user, plans: { a: 1 per 1h }, ignore_case: true, by: user }\n"
        "- { id: off, mode: 'off', match: { user: { prefix: job- } }, limits: 1 per 1h }\n"
        "- { id: host, match: { host: { glob: '*.example' } }, ignore_case: true, limits: 1 per 1h }\n"
        "- { id: there, match: { header: { X-A: { present: true } } }, ignore_case: true, limits: 1 per 1h }\n";
    struct rules *rules = read_rules(text);
    unjudged[0] = '\0';
    assert_true(pseudonym_rules(&key, rules, note, NULL));
    assert_string_equal(unjudged, "prefix: it matches a prefix or a pattern of a value that is hashed\n"
                                  "glob: it matches a prefix or a pattern of a value that is hashed\n"
                                  "case: it ignores case in the value of a header, and these are hashed\n"
                                  "plan: it ignores case in the name of a plan, and these are hashed\n");
    assert_int_equal(rules_in_force(rules, 0), 2);
    rules_free(rules);
}

/* Rules that share a list of conditions: each value is hashed once. */
static void test_shared_conditions_are_hashed_once(void **state)
{
    (void)state;
    struct rules *rules = read_rules("rules:\n"
                                     "- { id: a, match: { path: /a, user: [ann, bob] }, limits: 1 per 1h }\n"
                                     "- { id: b, match: { path: /b, user: [ann, bob] }, limits: 1 per 1h }\n");
    assert_ptr_equal(rules->rules[0]->kind->conditions, rules->rules[1]->kind->conditions);
    assert_true(pseudonym_rules(&key, rules, note, NULL));
    for (size_t i = 0; i < 2; i++) {
        char text[PSEUDONYM_TEXT_MAX];
        const struct rule_values *is = &rules->rules[i]->kind->conditions[0].is;
        assert_int_equal(is->count, 2);
        pseudonym_text(pseudonym_hash(&key, ATTR_USER, SV("ann")), text);
        assert_true(sv_eq(is->list[0].text, weir_str(text)));
        pseudonym_text(pseudonym_hash(&key, ATTR_USER, SV("bob")), text);
        assert_true(sv_eq(is->list[1].text, weir_str(text)));
    }
    rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes_are_kept),
        cmocka_unit_test(test_the_key_matters),
        cmocka_unit_test(test_rules_are_rewritten),
        cmocka_unit_test(test_what_hashes_cannot_say),
        cmocka_unit_test(test_shared_conditions_are_hashed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
