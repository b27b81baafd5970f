/* The admin listener's parts: whose Host and Origin are ours, tags, and that the document has every route. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "serve/admin.h"
#include "serve/embedded.h"

static void hosts(void **state)
{
    static const char names[] = "weir.example, Other.example:8443,10.1.2.3";
    static const struct {
        const char *host;
        bool ours;
    } cases[] = {
        { "localhost", true },
        { "LOCALHOST:8081", true },
        { "127.0.0.1", true },
        { "127.8.9.10:8081", true },
        { "[::1]:8081", true },
        { "[::1]", true },
        { "192.0.2.7:8081", true }, /* where the connection came in */
        { "[::ffff:192.0.2.7]", true },
        { "weir.example", true },
        { "WEIR.example:9", true },
        { "other.example:8443", true },
        { "10.1.2.3:80", true },
        { "", false },
        { ":8081", false },
        { "192.0.2.8", false },
        { "localhost.evil.example", false },
        { "evil.example", false },
        { "evil.example:8081", false },
        { "127.0.0.1.evil.example", false },
        { "xweir.example", false },
        { "weir.example.", false },
        { "weir.example,evil", false },
        { "[::2]", false },
        { "0.0.0.0", false },
        { "127.0.0.1:8081@evil.example", false },
        { "localhost:8081x", false },
        { "[::1]evil.example", false },
        { "[::1]:8081.evil.example", false },
        { "[::1", false },
        { "localhost:", true },
        { "user@localhost", false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (admin_host_is_ours(weir_str(cases[i].host), SV("192.0.2.7"), names) != cases[i].ours)
            fail_msg("`%s` is %sours", cases[i].host, cases[i].ours ? "" : "not ");
    assert_false(admin_host_is_ours(SV("weir.example"), SV(""), ""));
}

static void origins(void **state)
{
    (void)state;
    assert_true(admin_origin_is_ours(SV("http://localhost:8081"), SV("192.0.2.7"), ""));
    assert_true(admin_origin_is_ours(SV("https://192.0.2.7"), SV("192.0.2.7"), ""));
    assert_true(admin_origin_is_ours(SV("https://weir.example"), SV("192.0.2.7"), "weir.example"));
    assert_false(admin_origin_is_ours(SV("https://evil.example"), SV("192.0.2.7"), "weir.example"));
    assert_false(admin_origin_is_ours(SV("null"), SV("192.0.2.7"), ""));
    assert_false(admin_origin_is_ours(SV("file://localhost"), SV("192.0.2.7"), ""));
    assert_false(admin_origin_is_ours(SV("localhost"), SV("192.0.2.7"), ""));
}

/* The host and port of the page must be those of the request, or exactly a name of the option. */
static void same_origins(void **state)
{
    static const char names[] = "weir.example, other.example:8443,[2001:db8::1]:9";
    static const struct {
        const char *origin, *host;
        bool same;
    } cases[] = {
        { "http://localhost:8081", "localhost:8081", true },
        { "http://LOCALHOST:8081", "localhost:8081", true },
        { "http://localhost:8081", "LocalHost:8081", true },
        { "http://127.0.0.1", "127.0.0.1", true },
        { "http://127.0.0.1:80", "127.0.0.1", true },
        { "http://127.0.0.1", "127.0.0.1:80", true },
        { "https://127.0.0.1", "127.0.0.1:443", true },
        { "https://127.0.0.1", "127.0.0.1", true },
        { "http://[::1]:8081", "[::1]:8081", true },
        { "http://[::1]", "[::1]:80", true },
        { "https://weir.example", "127.0.0.1:8081", true },
        { "https://weir.example:443", "127.0.0.1:8081", true },
        { "http://weir.example", "127.0.0.1:8081", true },
        { "https://OTHER.example:8443", "127.0.0.1:8081", true },
        { "http://[2001:db8::1]:9", "x", true },
        { "http://localhost:3000", "localhost:8081", false },
        { "http://localhost", "localhost:8081", false },
        { "http://localhost:8081", "localhost", false },
        { "http://127.0.0.1:8081", "localhost:8081", false },
        { "https://127.0.0.1", "127.0.0.1:80", false },
        { "http://127.0.0.1", "127.0.0.1:443", false },
        { "http://localhost.:8081", "localhost:8081", false },
        { "http://localhost:08081x", "localhost:8081", false },
        { "http://localhost:80810", "localhost:8081", false },
        { "http://localhost:8081/", "localhost:8081", false },
        { "http://localhost:8081@evil.example", "localhost:8081", false },
        { "http://user@localhost:8081", "localhost:8081", false },
        { "http://[::1]:8081", "[::2]:8081", false },
        { "http://[::1]:3000", "[::1]:8081", false },
        { "http://::1:8081", "[::1]:8081", false },
        { "http://[::1:8081", "[::1]:8081", false },
        { "https://weir.example:3000", "127.0.0.1:8081", false },
        { "http://other.example:8443.evil.example", "x", false },
        { "https://other.example", "127.0.0.1:8081", false },
        { "https://sub.weir.example", "127.0.0.1:8081", false },
        { "https://weir.example.", "127.0.0.1:8081", false },
        { "null", "localhost:8081", false },
        { "", "localhost:8081", false },
        { "", "", false },
        { "http://", "", false },
        { "http://:80", "", false },
        { "http://:8081", ":8081", false },
        { "file://localhost:8081", "localhost:8081", false },
        { "HTTP://localhost:8081", "localhost:8081", false }, /* browsers write it in lower case */
        { "localhost:8081", "localhost:8081", false },
        { "http://localhost:8081 http://evil.example", "localhost:8081", false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (admin_origin_is_same(weir_str(cases[i].origin), weir_str(cases[i].host), names) != cases[i].same)
            fail_msg("`%s` is %sthe page of `%s`", cases[i].origin, cases[i].same ? "" : "not ", cases[i].host);
    assert_false(admin_origin_is_same(SV("http://evil.example"), (sv){ 0 }, ""));
}

static void tags(void **state)
{
    (void)state;
    assert_true(admin_tag_in(SV("\"000000000000002a\""), 42));
    assert_true(admin_tag_in(SV("\"x\", \"000000000000002a\" ,\"y\""), 42));
    assert_true(admin_tag_in(SV("*"), 42));
    assert_false(admin_tag_in(SV("*"), 0));
    assert_false(admin_tag_in(SV("\"0000000000000000\""), 0));
    assert_false(admin_tag_in(SV("W/\"000000000000002a\""), 42));
    assert_false(admin_tag_in(SV("000000000000002a"), 42));
    assert_false(admin_tag_in(SV(""), 42));
    assert_true(admin_tags_are_good(SV("*")));
    assert_true(admin_tags_are_good(SV("\"000000000000002a\"")));
    assert_true(admin_tags_are_good(SV("\"x\" , W/\"y\"")));
    assert_false(admin_tags_are_good(SV("000000000000002a")));
    assert_false(admin_tags_are_good(SV("\"x\", y")));
    assert_false(admin_tags_are_good(SV("\"")));
    assert_false(admin_tags_are_good(SV("")));
}

/* ---- the document ---- */

static json_t *document(void)
{
    json_error_t why;
    json_t *doc = json_loadb(embedded_openapi, embedded_openapi_len, JSON_REJECT_DUPLICATES, &why);
    if (!doc)
        fail_msg("openapi.json:%d: %s", why.line, why.text);
    return doc;
}

static void lower(const char *text, char out[16])
{
    size_t i = 0;
    for (; text[i] && i < 15; i++)
        out[i] = ascii_lower(text[i]);
    out[i] = '\0';
}

static const char *const posted[] = { "/v1/check", "/v1/reserve", "/v1/settle", "/v1/renew", "/v1/refund", "/json" };

static bool is_route(const char *path, const char *method)
{
    char name[16];
    for (size_t i = 0; i < admin_route_count; i++) {
        lower(admin_routes[i].method, name);
        if (strcmp(admin_routes[i].path, path) == 0 && strcmp(name, method) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof posted / sizeof *posted; i++)
        if (strcmp(path, posted[i]) == 0 && strcmp(method, "post") == 0)
            return true;
    return strcmp(path, "/v1/auth") == 0 || (strcmp(path, "/healthcheck") == 0 && strcmp(method, "get") == 0);
}

static void every_route_is_documented(void **state)
{
    json_t *doc = document(), *paths = json_object_get(doc, "paths");
    (void)state;
    for (size_t i = 0; i < admin_route_count; i++) {
        char method[16];
        lower(admin_routes[i].method, method);
        json_t *operation = json_object_get(json_object_get(paths, admin_routes[i].path), method);
        if (!operation)
            fail_msg("%s %s is not in openapi.json", admin_routes[i].method, admin_routes[i].path);
        /* An empty list of ways to be let in: none is needed. */
        assert_int_equal(json_object_get(operation, "security") != NULL, admin_routes[i].open);
        /* Each route says its role, and the document says the same. */
        const char *role = json_string_value(json_object_get(operation, "x-weir-role"));
        if (strcmp(role ? role : "none", role_names[admin_routes[i].role]) != 0)
            fail_msg("%s %s: x-weir-role in openapi.json is %s, and the role of the route %s", admin_routes[i].method,
                     admin_routes[i].path, role, role_names[admin_routes[i].role]);
        assert_int_equal(admin_routes[i].role == ROLE_NONE, admin_routes[i].open);
    }
    for (size_t i = 0; i < sizeof posted / sizeof *posted; i++)
        assert_non_null(json_object_get(json_object_get(paths, posted[i]), "post"));
    assert_non_null(json_object_get(json_object_get(paths, "/v1/auth"), "get"));
    json_decref(doc);
}

static void whatever_is_documented_is_a_route(void **state)
{
    json_t *doc = document(), *item, *operation;
    const char *path, *method;
    (void)state;
    json_object_foreach(json_object_get(doc, "paths"), path, item)
    {
        json_object_foreach(item, method, operation)
        {
            if (json_object_get(operation, "operationId") && !is_route(path, method))
                fail_msg("openapi.json has %s %s, and the service has not", method, path);
        }
    }
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts),
        cmocka_unit_test(origins),
        cmocka_unit_test(same_origins),
        cmocka_unit_test(tags),
        cmocka_unit_test(every_route_is_documented),
        cmocka_unit_test(whatever_is_documented_is_a_route),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
