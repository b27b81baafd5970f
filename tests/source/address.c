/* Addresses: what they mean, what they show, and what is said of a wrong one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "source/address.h"

static struct source_address good(const char *text)
{
    struct source_address a;
    struct weir_error error;
    if (address_read(text, &a, &error) < 0)
        fail_msg("%s: %s", text, error.text);
    return a;
}

static void is_bad(const char *text, const char *why)
{
    struct source_address a = { 0 };
    struct weir_error error = { 0 };
    if (address_read(text, &a, &error) == 0)
        fail_msg("%s is taken", text);
    assert_int_equal(error.code, WEIR_E_INVALID);
    if (!strstr(error.text, why))
        fail_msg("%s: no \"%s\" in: %s", text, why, error.text);
    assert_null(strstr(error.text, "secret"));
    assert_null(a.shown);
}

static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *text, *path;
        enum source_kind kind;
    } cases[] = {
        { "rules.yaml", "rules.yaml", SOURCE_FILE },
        { "/etc/weir/rules.yaml", "/etc/weir/rules.yaml", SOURCE_FILE },
        { "./a:b.yaml", "./a:b.yaml", SOURCE_FILE },
        { "file:rules.yaml", "rules.yaml", SOURCE_FILE },
        { "file:/etc/r%20.yaml", "/etc/r%20.yaml", SOURCE_FILE },
        { "sqlite:/var/lib/weir.db", "/var/lib/weir.db", SOURCE_SQLITE },
        { "SQLite:rules.db", "rules.db", SOURCE_SQLITE },
        { "sqlite:///var/lib/weir.db", "///var/lib/weir.db", SOURCE_SQLITE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct source_address a = good(cases[i].text);
        assert_int_equal(a.kind, cases[i].kind);
        assert_string_equal(a.path, cases[i].path);
        assert_string_equal(a.shown, cases[i].text);
        assert_string_equal(a.password, "");
        address_done(&a);
    }
}

static void test_servers(void **state)
{
    (void)state;
    static const struct {
        const char *text, *user, *password, *host, *database, *query, *shown;
        unsigned port;
        enum source_kind kind;
    } cases[] = {
        { "mysql://user:secret@host:3307/db", "user", "secret", "host", "db", "", "mysql://user@host:3307/db", 3307,
          SOURCE_MYSQL },
        { "mariadb://host/db", "", "", "host", "db", "", "mariadb://host/db", 0, SOURCE_MYSQL },
        { "postgres://u@host/db?sslmode=require&connect_timeout=3", "u", "", "host", "db",
          "sslmode=require&connect_timeout=3", "postgres://u@host/db?sslmode=require&connect_timeout=3", 0,
          SOURCE_POSTGRES },
        { "postgresql://u:a:secret@p@[::1]:5433/db", "u", "a:secret@p", "::1", "db", "", "postgresql://u@[::1]:5433/db",
          5433, SOURCE_POSTGRES },
        { "postgres://u:se%3Acret%2F@%2Frun%2Fpg/d%20b", "u", "se:cret/", "/run/pg", "d b", "",
          "postgres://u@%2Frun%2Fpg/d%20b", 0, SOURCE_POSTGRES },
        { "mysql://u@localhost/db?socket=/run/m.sock", "u", "", "/run/m.sock", "db", "",
          "mysql://u@localhost/db?socket=/run/m.sock", 0, SOURCE_MYSQL },
        { "postgres://h/db?password=secret&sslpassword=secret2&a=b", "", "secret", "h", "db", "sslpassword=secret2&a=b",
          "postgres://h/db?a=b", 0, SOURCE_POSTGRES },
        { "mysql://u@h/db?password_file=/p%26w&ssl-mode=verify", "u", "", "h", "db", "ssl-mode=verify",
          "mysql://u@h/db?password_file=/p%26w&ssl-mode=verify", 0, SOURCE_MYSQL },
        { "postgres://", "", "", "", "", "", "postgres://", 0, SOURCE_POSTGRES },
        { "mysql://:secret@host", "", "secret", "host", "", "", "mysql://host", 0, SOURCE_MYSQL },
    };
    unsetenv("WEIR_DB_PASSWORD");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct source_address a = good(cases[i].text);
        assert_int_equal(a.kind, cases[i].kind);
        assert_string_equal(a.user, cases[i].user);
        assert_string_equal(a.password, cases[i].password);
        assert_string_equal(a.host, cases[i].host);
        assert_string_equal(a.database, cases[i].database);
        assert_string_equal(a.query, cases[i].query);
        assert_string_equal(a.shown, cases[i].shown);
        assert_int_equal(a.port, cases[i].port);
        address_done(&a);
        address_done(&a);
    }
    address_done(NULL);
}

static void test_environment(void **state)
{
    (void)state;
    setenv("WEIR_DB_PASSWORD", "from%41env", 1);
    struct source_address a = good("mysql://user@host/db"), b = good("mysql://user:own@host/db"), c = good("sqlite:x");
    struct source_address d = good("postgres://user@host/db?password_file=/run/p%26w");
    assert_string_equal(a.password, "from%41env");
    assert_string_equal(a.shown, "mysql://user@host/db");
    assert_string_equal(b.password, "own");
    assert_string_equal(c.password, "");
    assert_string_equal(d.password, "");
    assert_string_equal(d.password_file, "/run/p&w");
    address_done(&d);
    address_done(&a);
    address_done(&b);
    address_done(&c);
    unsetenv("WEIR_DB_PASSWORD");
}

static void test_wrong(void **state)
{
    (void)state;
    char *text = calloc(1, 5001);
    is_bad("", "does not name a file");
    is_bad("sqlite:", "does not name a file");
    is_bad("file:", "does not name a file");
    is_bad("redis://user:secret@host", "unknown kind of source \"redis\"");
    is_bad("sqlit:rules.db", "unknown kind of source \"sqlit\"");
    is_bad("mysql:user:secret@host/db", "followed by //");
    is_bad("mysql//user:secret@host/db", "does not begin with its kind");
    is_bad("sqlite://rules.db", "sqlite:rules.db");
    is_bad("mysql://user:secret/1@host/db", "port");
    is_bad("mysql://user:sec%ret@host/db", "password");
    is_bad("mysql://user:secret%00@host/db", "two hexadecimal digits");
    is_bad("mysql://user%4:secret@host/db", "user");
    is_bad("mysql://user:secret@host:0/db", "1 to 65535");
    is_bad("mysql://user:secret@host:70000/db", "1 to 65535");
    is_bad("postgres://host/db?password=secret%", "part after ?");
    is_bad("postgres://u:secret@host/db?password_file=/p", "leave out one");
    memset(text, 'a', 5000);
    is_bad(text, "longer than 4096");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_servers),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
