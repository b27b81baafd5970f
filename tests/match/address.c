/* The address of the client, and the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "match/client_address.h"
#include "read.h"

static struct arena arena;

static struct networks networks_of(const char *list)
{
    struct cidr cidrs[20];
    size_t count = 0;
    for (sv rest = weir_str(list); rest.len > 0;)
        assert_true(cidr_parse(sv_cut(&rest, ' '), &cidrs[count++]));
    struct networks networks;
    assert_true(networks_init(&networks, &arena, cidrs, count));
    return networks;
}

static struct cidr random_cidr(struct random *r)
{
    struct cidr cidr = { .prefix = (uint8_t)random_in(r, 0, 128) };
    for (int i = 0; i < 16; i++)
        cidr.ip.bytes[i] = random_one_in(r, 2) ? 0 : (uint8_t)random_in(r, 0xfd, 0xff);
    if (random_one_in(r, 2)) {
        memcpy(cidr.ip.bytes, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
        cidr.prefix = (uint8_t)random_in(r, 96, 128);
    }
    ip_mask(&cidr.ip, cidr.prefix);
    return cidr;
}

static void test_networks(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    for (int round = 0; round < 3000; round++) {
        struct cidr cidrs[30];
        size_t count = (size_t)random_in(&r, 0, 30);
        for (size_t i = 0; i < count; i++)
            cidrs[i] = random_cidr(&r);
        struct networks networks;
        assert_true(networks_init(&networks, &arena, cidrs, count));
        for (int ask = 0; ask < 50; ask++) {
            struct ip ip = random_cidr(&r).ip;
            bool want = false;
            for (size_t i = 0; i < count; i++)
                want = want || cidr_has(&cidrs[i], &ip);
            if (networks_has(&networks, &ip) != want)
                fail_msg("seed %llu, round %d", (unsigned long long)random_seed(), round);
        }
        arena_done(&arena);
    }
}

/* forwarded: the values of X-Forwarded-For headers, one a line. want NULL: no address. */
static void check(const char *ip, const char *peer, const char *forwarded, const char *want)
{
    struct networks trusted = networks_of("10.0.0.0/8 fd00::/8 192.168.1.1");
    struct weir_header headers[10] = { { WEIR_STR("Accept"), WEIR_STR("9.9.9.9") } };
    size_t count = 1;
    for (sv rest = weir_str(forwarded); rest.len > 0; count++) {
        headers[count].name = count % 2 ? WEIR_STR("X-Forwarded-For") : WEIR_STR("x-forwarded-FOR");
        headers[count].value = sv_cut(&rest, '\n');
    }
    struct weir_request request = { .ip = weir_str(ip), .peer = weir_str(peer), .headers = headers, .header_count = count };
    struct ip got;
    sv given;
    bool ok = client_address(&request, &trusted, &got, &given);
    char text[IP_TEXT_MAX] = "nothing";
    if (ok)
        ip_text(&got, text);
    if (strcmp(text, want ? want : "nothing") != 0)
        fail_msg("ip %s, peer %s, forwarded %s: %s instead of %s", ip, peer, forwarded, text, want ? want : "nothing");
    arena_done(&arena);
}

static void test_given(void **state)
{
    (void)state;
    check("1.2.3.4", "", "", "1.2.3.4");
    check("1.2.3.4", "10.0.0.1", "5.6.7.8", "1.2.3.4");
    check("10.0.0.9", "10.0.0.1", "5.6.7.8", "10.0.0.9");
    check("::ffff:1.2.3.4", "", "", "1.2.3.4");
    check("1.2.3.4:5678", "", "", "1.2.3.4");
    check("garbage", "1.2.3.4", "", NULL);
    check("", "", "1.2.3.4", NULL);
}

static void test_peer(void **state)
{
    (void)state;
    check("", "1.2.3.4", "", "1.2.3.4");
    check("", "1.2.3.4:80", "", "1.2.3.4");
    check("", "[2001:db8::1]:80", "", "2001:db8::1");
    check("", "1.2.3.4", "5.6.7.8", "1.2.3.4");
    check("", "unix:", "5.6.7.8", NULL);
    check("", "10.0.0.1", "", "10.0.0.1");
}

static void test_forwarded(void **state)
{
    (void)state;
    check("", "10.0.0.1", "5.6.7.8", "5.6.7.8");
    check("", "::ffff:10.0.0.1", "5.6.7.8", "5.6.7.8");
    check("", "10.0.0.1", "6.6.6.6, 5.6.7.8", "5.6.7.8");
    check("", "10.0.0.1", "6.6.6.6, 5.6.7.8, 10.2.2.2", "5.6.7.8");
    check("", "10.0.0.1", "5.6.7.8:1234,10.2.2.2:80", "5.6.7.8");
    check("", "fd00::1", "[2001:db8::7]:1234 , [fd00::9]:80,192.168.1.1", "2001:db8::7");
    check("", "10.0.0.1", "2001:db8::7", "2001:db8::7");
    check("", "10.0.0.1", "::ffff:5.6.7.8", "5.6.7.8");
    /* Blanks are no address. */
    check(" \t", "10.0.0.1", "5.6.7.8", "5.6.7.8");
    check("\t7.7.7.7 ", "10.0.0.1", "5.6.7.8", "7.7.7.7");
    /* Several headers join in their order. */
    check("", "10.0.0.1", "6.6.6.6\n5.6.7.8", "5.6.7.8");
    check("", "10.0.0.1", "6.6.6.6, 5.6.7.8\n10.2.2.2", "5.6.7.8");
    check("", "10.0.0.1", "5.6.7.8\n\n10.2.2.2\n", "5.6.7.8");
    /* What cannot be read ends the walk at the last trusted hop. */
    check("", "10.0.0.1", "unknown", "10.0.0.1");
    check("", "10.0.0.1", "5.6.7.8, unknown, 10.2.2.2", "10.2.2.2");
    check("", "10.0.0.1", "5.6.7.8, unknown\n10.2.2.2", "10.2.2.2");
    check("", "10.0.0.1", "5.6.7.8, 10.2.2.2:99999", "10.0.0.1");
    /* Empty entries of a list say nothing. */
    check("", "10.0.0.1", "5.6.7.8, ,,10.2.2.2,", "5.6.7.8");
    /* All trusted: the leftmost. */
    check("", "10.0.0.1", "10.3.3.3, 10.2.2.2", "10.3.3.3");
    check("", "10.0.0.1", "10.4.4.4\n10.3.3.3, 10.2.2.2", "10.4.4.4");
}

static void test_hops_are_bounded(void **state)
{
    (void)state;
    char value[5000] = "5.6.7.8";
    for (int i = 0; i < 200; i++)
        strcat(value, ",10.0.0.1");
    check("", "10.0.0.1", value, "10.0.0.1");
}

/* ---- in binary ---- */

static struct ip random_address(struct random *r)
{
    struct ip ip = random_cidr(r).ip;
    for (int i = 12; i < 16; i++)
        ip.bytes[i] = (uint8_t)(random_one_in(r, 3) ? 0 : random_in(r, 0, 255));
    return ip;
}

/* The address as one of the texts that callers give. */
static void spell(struct random *r, const struct ip *ip, char out[100])
{
    char text[IP_TEXT_MAX];
    ip_text(ip, text);
    bool v4 = ip_is_v4(ip);
    const char *const forms[] = { "%s", v4 ? "::ffff:%s" : "%s", v4 ? "%s:80" : "[%s]:80", v4 ? "%s" : "[%s]" };
    snprintf(out, 100, forms[random_in(r, 0, 3)], text);
}

/* Returns the subject of `by: ip`. */
static const char *subject(const struct ruleset *ruleset, const struct weir_request *request)
{
    static struct facts facts;
    static char text[IP_TEXT_MAX + 4];
    memset(&facts, 0xa5, sizeof facts);
    facts_init(&facts, ruleset, request, (sv){ 0 });
    snprintf(text, sizeof text, "%.*s", SV_FMT(facts_ip_text(&facts)));
    return text;
}

static void test_binary_is_text(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    for (int round = 0; round < 300; round++) {
        char yaml[300], networks[2][CIDR_TEXT_MAX];
        for (int i = 0; i < 2; i++) {
            struct cidr cidr = random_cidr(&r);
            cidr_text(&cidr, networks[i]);
        }
        snprintf(yaml, sizeof yaml, "settings: { ipv6_prefix: %d, trusted_proxies: ['%s', '%s'] }\nrules: []",
                 (int)random_in(&r, 1, 128), networks[0], networks[1]);
        struct ruleset *ruleset = read_ruleset(weir_str(yaml));
        for (int n = 0; n < 100; n++) {
            struct ip peer = random_address(&r), hop = random_address(&r);
            char peer_text[100], hop_text[100], want[IP_TEXT_MAX + 4];
            spell(&r, &peer, peer_text);
            spell(&r, &hop, hop_text);
            struct weir_header header = { WEIR_STR("X-Forwarded-For"), weir_str(hop_text) };
            struct weir_request request = { .headers = &header, .header_count = (size_t)random_in(&r, 0, 1) };
            request.ip = random_one_in(&r, 10) ? WEIR_STR("2001:db8::7") : (sv){ 0 };
            request.peer = weir_str(peer_text);
            snprintf(want, sizeof want, "%s", subject(ruleset, &request));
            request.peer = random_one_in(&r, 2) ? WEIR_STR("192.0.2.99") : (sv){ 0 };
            bool v4 = ip_is_v4(&peer) && random_one_in(&r, 2);
            request.peer_bytes = sv_of((const char *)peer.bytes + (v4 ? 12 : 0), v4 ? 4 : 16);
            if (strcmp(subject(ruleset, &request), want) != 0)
                fail_msg("seed %llu: %s, hop %s: \"%s\" instead of \"%s\" with %s", (unsigned long long)random_seed(),
                         peer_text, hop_text, subject(ruleset, &request), want, yaml);
        }
        ruleset_free(ruleset);
    }
}

static void test_other_lengths(void **state)
{
    (void)state;
    struct networks trusted = networks_of("10.0.0.0/8");
    static const char bytes[32] = { 10, 0, 0, 1 };
    for (size_t len = 1; len <= sizeof bytes; len++) {
        struct weir_request request = { .peer = WEIR_STR("192.0.2.1"), .peer_bytes = sv_of(bytes, len) };
        struct ip ip;
        sv given;
        assert_int_equal(client_address(&request, &trusted, &ip, &given), len == 4 || len == 16);
        request.ip = WEIR_STR("192.0.2.7");
        assert_true(client_address(&request, &trusted, &ip, &given));
        assert_memory_equal(ip.bytes + 12, "\xc0\x00\x02\x07", 4);
    }
    arena_done(&arena);
}

static void check_host(const char *raw, const char *want)
{
    char out[20];
    sv got = host_normalise(weir_str(raw), out, sizeof out);
    if (!sv_eq(got, weir_str(want)))
        fail_msg("\"%s\": \"%.*s\" instead of \"%s\"", raw, SV_FMT(got), want);
}

static void test_host(void **state)
{
    (void)state;
    check_host("", "");
    check_host("example.com", "example.com");
    check_host("Example.COM:8080", "example.com");
    check_host("example.com.", "example.com");
    check_host("EXAMPLE.com.:80", "example.com");
    check_host("example.com:", "example.com");
    check_host("[2001:DB8::1]:80", "[2001:db8::1]");
    check_host("[::1]", "[::1]");
    check_host("::1", "::1");
    check_host(":80", "");
    check_host(".", "");
    check_host("[::1", "[::1");
    check_host("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrst");
    check_host("ABCDEFGHIJKLMNOPQRSTUVWXYZ:1", "abcdefghijklmnopqrst");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_peer),
        cmocka_unit_test(test_forwarded),
        cmocka_unit_test(test_hops_are_bounded),
        cmocka_unit_test(test_binary_is_text),
        cmocka_unit_test(test_other_lengths),
        cmocka_unit_test(test_host),
    };
    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
