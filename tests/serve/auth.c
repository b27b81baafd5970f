/* Forward auth: which headers make the request that a gateway asks about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "serve/auth.h"

enum { PAIRS_MAX = 20 };

/* Names and values in turn, up to NULL. */
static size_t make_headers(const char *const *words, struct weir_header *ret)
{
    size_t n = 0;
    for (; words[2 * n]; n++) {
        assert_true(n < PAIRS_MAX);
        ret[n] = (struct weir_header){ weir_str(words[2 * n]), weir_str(words[2 * n + 1]) };
    }
    return n;
}

#define GATEWAY ((struct auth_gateway){ .peer = SV("10.0.0.1"), .user_header = SV("X-User") })
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void read_good(struct auth *auth, struct auth_gateway gateway, const char *const *words)
{
    struct weir_header headers[PAIRS_MAX];
    char why[AUTH_WHY_MAX] = "";
    size_t count = make_headers(words, headers);
    if (!auth_read(auth, &gateway, headers, count, why))
        fail_msg("%s", why);
}

static void check_bad(struct auth_gateway gateway, const char *const *words, const char *want)
{
    struct weir_header headers[PAIRS_MAX];
    struct auth auth;
    char why[AUTH_WHY_MAX] = "";
    size_t count = make_headers(words, headers);
    assert_false(auth_read(&auth, &gateway, headers, count, why));
    assert_string_equal(why, want);
}

static void check_text(sv found, const char *want)
{
    assert_int_equal(found.len, strlen(want));
    assert_memory_equal(found.ptr, want, found.len);
}

static void check_headers(const struct auth *auth, const char *const *want)
{
    size_t n = 0;
    for (; want[n]; n++) {
        assert_true(n < auth->request.header_count);
        check_text(auth->request.headers[n].name, want[n]);
    }
    assert_int_equal(auth->request.header_count, n);
}

static void test_traefik(void **state)
{
    (void)state;
    struct auth auth;
    read_good(&auth, GATEWAY,
              WORDS("Host", "weir:8080", "User-Agent", "curl", "X-Forwarded-For", "192.0.2.7", "X-Forwarded-Host",
                    "shop.example", "X-Forwarded-Method", "POST", "X-Forwarded-Proto", "https", "X-Forwarded-Uri", "/a?b=c",
                    "X-User", "u1"));
    check_text(auth.request.method, "POST");
    check_text(auth.request.path, "/a?b=c");
    check_text(auth.request.host, "shop.example");
    check_text(auth.request.user, "u1");
    check_text(auth.request.peer, "10.0.0.1");
    check_text(auth.request.ip, "");
    assert_int_equal(auth.request.cost, 1);
    check_headers(&auth, WORDS("User-Agent", "X-Forwarded-For", "X-Forwarded-Proto", "X-User"));
}

static void test_nginx(void **state)
{
    (void)state;
    struct auth auth;
    read_good(&auth, GATEWAY,
              WORDS("host", "shop.example", "x-original-uri", "/a", "x-original-method", "PUT", "connection", "close",
                    "x-forwarded-uri", "", "cookie", "c"));
    check_text(auth.request.method, "PUT");
    check_text(auth.request.path, "/a");
    check_text(auth.request.host, "shop.example");
    check_text(auth.request.user, "");
    check_headers(&auth, WORDS("cookie"));
}

static void test_missing(void **state)
{
    (void)state;
    check_bad(
        GATEWAY, WORDS("X-Forwarded-Method", "GET", "X-Forwarded-Uri", ""),
        "the gateway does not say which URI its client asked for: there is neither X-Forwarded-Uri nor X-Original-URI");
    check_bad(GATEWAY, WORDS("X-Original-URI", "/"),
              "the gateway does not say which method its client asked for: there is neither X-Forwarded-Method nor "
              "X-Original-Method");
}

static void test_contradictions(void **state)
{
    (void)state;
    struct auth auth;
    read_good(
        &auth, GATEWAY,
        WORDS("X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/a", "X-Original-URI", "/a", "X-Original-Method", "GET"));
    check_text(auth.request.path, "/a");
    check_bad(GATEWAY, WORDS("X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/a", "X-Original-URI", "/b"),
              "X-Forwarded-Uri and X-Original-URI contradict each other; the gateway must set one of them, and remove both "
              "from the requests of its clients");
    const char *names[] = { "X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-User" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct weir_header headers[] = {
            { SV("X-Original-Method"), SV("GET") },
            { SV("X-Original-URI"), SV("/") },
            { weir_str(names[i]), SV("GET") },
            { weir_str(names[i]), SV("/") },
        };
        char why[AUTH_WHY_MAX];
        assert_false(auth_read(&auth, &GATEWAY, headers, 4, why));
    }
}

static void test_token(void **state)
{
    (void)state;
    struct auth auth;
    struct auth_gateway gateway = GATEWAY;
    const char *const *words = WORDS("X-Original-Method", "GET", "X-Original-URI", "/", "Authorization", "Bearer secret");
    read_good(&auth, gateway, words);
    check_headers(&auth, WORDS("Authorization"));
    gateway.has_token = true;
    gateway.user_header = SV("authorization");
    read_good(&auth, gateway, words);
    assert_int_equal(auth.request.header_count, 0);
    check_text(auth.request.user, "");
}

/* Through a unix socket the last hop is the peer. */
static void test_local(void **state)
{
    (void)state;
    static const char nobody[] = "the gateway does not say who its client is: through a unix socket it has to send "
                                 "X-Forwarded-For, with the client's address at its end";
    struct auth_gateway gateway = { .peer = SV("") };
    struct auth auth;
    read_good(&auth, gateway,
              WORDS("X-Original-Method", "GET", "X-Original-URI", "/", "X-Forwarded-For", "1.1.1.1", "x-forwarded-for",
                    "2.2.2.2, [2001:db8::1]:80 , ,", "X-Forwarded-For", " , "));
    check_text(auth.request.peer, "[2001:db8::1]:80");
    assert_int_equal(auth.request.header_count, 3);
    check_bad(gateway, WORDS("X-Original-Method", "GET", "X-Original-URI", "/"), nobody);
    check_bad(gateway, WORDS("X-Original-Method", "GET", "X-Original-URI", "/", "X-Forwarded-For", "1.1.1.1, unix:"),
              nobody);
}

static void test_bound(void **state)
{
    (void)state;
    struct weir_header headers[AUTH_HEADERS_MAX + 1];
    struct auth auth;
    char why[AUTH_WHY_MAX];
    for (size_t i = 0; i <= AUTH_HEADERS_MAX; i++)
        headers[i] = (struct weir_header){ SV("A"), SV("b") };
    headers[0] = (struct weir_header){ SV("X-Original-URI"), SV("/") };
    headers[1] = (struct weir_header){ SV("X-Original-Method"), SV("GET") };
    assert_true(auth_read(&auth, &GATEWAY, headers, AUTH_HEADERS_MAX, why));
    assert_int_equal(auth.request.header_count, AUTH_HEADERS_MAX - 2);
    assert_false(auth_read(&auth, &GATEWAY, headers, AUTH_HEADERS_MAX + 1, why));
    assert_string_equal(why, "there are more than 100 headers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traefik),        cmocka_unit_test(test_nginx), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_contradictions), cmocka_unit_test(test_token), cmocka_unit_test(test_local),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests_name("auth", tests, NULL, NULL);
}
