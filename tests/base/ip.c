/* Addresses and networks, with the C library's own reading and writing beside ours. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "base/ip.h"

static const char *text_of(const struct ip *ip)
{
    static char out[IP_TEXT_MAX];
    size_t len = ip_text(ip, out);
    assert_int_equal(len, strlen(out));
    return out;
}

/* want NULL: cannot be read. */
static void check(bool (*parse)(sv, struct ip *), const char *text, const char *want)
{
    struct ip ip;
    memset(&ip, 0x55, sizeof ip);
    struct ip before = ip;
    bool ok = parse(weir_str(text), &ip);
    if (ok != (want != NULL))
        fail_msg("\"%s\" can%s be read", text, ok ? "" : "not");
    if (ok)
        assert_string_equal(text_of(&ip), want);
    else
        assert_memory_equal(&ip, &before, sizeof ip);
}

static void test_parse(void **state)
{
    (void)state;
    check(ip_parse, "1.2.3.4", "1.2.3.4");
    check(ip_parse, "255.255.255.255", "255.255.255.255");
    check(ip_parse, "0.0.0.0", "0.0.0.0");
    check(ip_parse, "::ffff:1.2.3.4", "1.2.3.4");
    check(ip_parse, "::FFFF:102:304", "1.2.3.4");
    check(ip_parse, "::", "::");
    check(ip_parse, "::1", "::1");
    check(ip_parse, "2001:DB8::0:1", "2001:db8::1");
    check(ip_parse, "2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1");
    check(ip_parse, "2001:0:0:1:0:0:0:1", "2001:0:0:1::1");
    check(ip_parse, "1:0:0:2:0:0:3:4", "1::2:0:0:3:4");
    check(ip_parse, "::1.2.3.4", "::102:304");
    check(ip_parse, "fe80::1%eth0", "fe80::1");
    const char *bad[] = { "",
                          "1.2.3",
                          "1.2.3.4.5",
                          "1.2.3.256",
                          "01.2.3.4",
                          "1.2.3.4 ",
                          "1..2.3",
                          "1.2.3.",
                          ".1.2.3",
                          "1.2.3.-4",
                          "a.b.c.d",
                          "1.2.3.0x4",
                          "12345",
                          "1.2.3.4:",
                          "1.2.3.4:80",
                          ":::",
                          "1:2:3:4:5",
                          "[::1]",
                          "g::1",
                          "::1%",
                          "1.2.3.4%e",
                          "unix:",
                          "::ffff:1.2.3",
                          "12345::1",
                          "1:2:3:4:5:6:7:8:9",
                          "::1:2:3:4:5:6:7:8:9:10:11:12:13:14:15:16:17:18:19:20" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check(ip_parse, bad[i], NULL);
    struct ip ip;
    assert_false(ip_parse((sv){ NULL, 0 }, &ip));
    assert_false(ip_parse(SV("::1\0"), &ip));
    assert_false(ip_parse(SV("1.2.3.4\0"), &ip));
}

static void test_parse_hop(void **state)
{
    (void)state;
    check(ip_parse_hop, "1.2.3.4", "1.2.3.4");
    check(ip_parse_hop, " 1.2.3.4\t", "1.2.3.4");
    check(ip_parse_hop, "1.2.3.4:80", "1.2.3.4");
    check(ip_parse_hop, "::1", "::1");
    check(ip_parse_hop, "[::1]", "::1");
    check(ip_parse_hop, "[2001:db8::1]:65535", "2001:db8::1");
    check(ip_parse_hop, "[::ffff:1.2.3.4]:1", "1.2.3.4");
    check(ip_parse_hop, "[fe80::1%2]:1", "fe80::1");
    const char *bad[] = { "",
                          " ",
                          "unknown",
                          "_hidden",
                          "1.2.3.4:",
                          "1.2.3.4:65536",
                          "1.2.3.4:8a",
                          "[1.2.3.4]:80",
                          "[::1]:",
                          "[::1]80",
                          "[::1",
                          "::1]",
                          "[]",
                          "[]:80",
                          ":80",
                          "1.2.3.4:80:90",
                          "[::1]:65536",
                          "\"[::1]\"",
                          "1.2.3.4, 5.6.7.8",
                          "unix:",
                          "/run/app.sock" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check(ip_parse_hop, bad[i], NULL);
}

/* inet_ntop writes ::102:304 as ::1.2.3.4, which RFC 5952 does not ask for, so texts are compared by reading them back. */
static void test_against_libc(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    for (int round = 0; round < 100000; round++) {
        struct ip ip, back;
        for (int i = 0; i < 16; i++)
            ip.bytes[i] = random_one_in(&r, 2) ? 0 : (uint8_t)random_u64(&r);
        if (random_one_in(&r, 3))
            memcpy(ip.bytes, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
        char theirs[INET6_ADDRSTRLEN], ours[IP_TEXT_MAX];
        inet_ntop(AF_INET6, ip.bytes, theirs, sizeof theirs);
        assert_true(ip_parse(weir_str(theirs), &back));
        assert_memory_equal(&ip, &back, sizeof ip);
        size_t len = ip_text(&ip, ours);
        assert_true(ip_parse(sv_of(ours, len), &back));
        assert_memory_equal(&ip, &back, sizeof ip);
        if (!strchr(theirs, '.'))
            assert_string_equal(ours, theirs);
        else if (ip_is_v4(&ip))
            assert_string_equal(ours, theirs + strlen("::ffff:"));
    }
}

static bool in(const char *network, const char *address)
{
    struct cidr cidr;
    struct ip ip;
    if (!cidr_parse(weir_str(network), &cidr))
        fail_msg("%s is no network", network);
    assert_true(ip_parse(weir_str(address), &ip));
    return cidr_has(&cidr, &ip);
}

static void test_networks(void **state)
{
    (void)state;
    assert_true(in("10.0.0.0/8", "10.255.0.1"));
    assert_false(in("10.0.0.0/8", "11.0.0.0"));
    assert_true(in("10.1.2.3/8", "10.9.9.9"));
    assert_true(in("10.0.0.0/12", "10.15.255.255"));
    assert_false(in("10.0.0.0/12", "10.16.0.0"));
    assert_true(in("1.2.3.4", "1.2.3.4"));
    assert_false(in("1.2.3.4", "1.2.3.5"));
    assert_true(in("1.2.3.4/31", "1.2.3.5"));
    assert_true(in("0.0.0.0/0", "255.1.2.3"));
    assert_false(in("0.0.0.0/0", "::1"));
    assert_true(in("::ffff:10.0.0.0/104", "10.1.1.1"));
    assert_true(in("10.0.0.0/8", "::ffff:10.1.1.1"));
    assert_true(in("fd00::/8", "fdff::1"));
    assert_false(in("fd00::/8", "fe00::1"));
    assert_true(in("2001:db8::/33", "2001:db8:7fff::"));
    assert_false(in("2001:db8::/33", "2001:db8:8000::"));
    assert_true(in("::/0", "2001::1"));
    assert_false(in("::/0", "1.2.3.4"));
    const char *bad[] = { "",     "1.2.3.4/33",   "1.2.3.4/", "1.2.3.4/-1", "1.2.3.4/8/8", "/8",          "::/129",
                          "::1/", "fe80::1%e/64", "1.2.3/8",  "[::1]/128",  "1.2.3.4/ 8",  "1.2.3.4/0008" };
    struct cidr cidr;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (cidr_parse(weir_str(bad[i]), &cidr))
            fail_msg("%s is a network", bad[i]);
}

static bool bit(const struct ip *ip, unsigned i)
{
    return ip->bytes[i / 8] >> (7 - i % 8) & 1;
}

static void test_mask(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    for (unsigned prefix = 0; prefix <= 128; prefix++) {
        struct ip ip, masked;
        for (int i = 0; i < 16; i++)
            ip.bytes[i] = (uint8_t)random_u64(&r);
        masked = ip;
        ip_mask(&masked, prefix);
        for (unsigned i = 0; i < 128; i++)
            if (bit(&masked, i) != (i < prefix && bit(&ip, i)))
                fail_msg("bit %u under a prefix of %u", i, prefix);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),    cmocka_unit_test(test_parse_hop), cmocka_unit_test(test_against_libc),
        cmocka_unit_test(test_networks), cmocka_unit_test(test_mask),
    };
    return cmocka_run_group_tests_name("ip", tests, NULL, NULL);
}
