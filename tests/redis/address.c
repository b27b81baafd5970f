/* Addresses of a store, and what is said of wrong ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "redis/address.h"

static struct redis_address a;

static void read_good(const char *text)
{
    struct weir_error error = { 0 };
    if (redis_address_read(&a, text, &error) < 0)
        fail_msg("%s: %s", text, error.text);
}

static void plain(void **state)
{
    (void)state;
    read_good("redis://10.1.2.3");
    assert_int_equal(a.kind, REDIS_TCP);
    assert_string_equal(a.endpoints[0].host, "10.1.2.3");
    assert_int_equal(a.endpoints[0].port, 6379);
    assert_int_equal(a.db, 0);
    assert_string_equal(a.prefix, "weir");
    assert_string_equal(a.user, "");
    assert_string_equal(a.shown, "redis://10.1.2.3:6379");
    read_good("redis://u%40x:p%3Aw%2F%25@redis.example:7000/15?prefix=shop:eu");
    assert_string_equal(a.user, "u@x");
    assert_string_equal(a.password, "p:w/%");
    assert_string_equal(a.endpoints[0].host, "redis.example");
    assert_int_equal(a.endpoints[0].port, 7000);
    assert_int_equal(a.db, 15);
    assert_string_equal(a.prefix, "shop:eu");
    assert_string_equal(a.shown, "redis://u@x@redis.example:7000/15?prefix=shop:eu");
    read_good("redis://:secret@[::1]:6380/");
    assert_string_equal(a.user, "");
    assert_string_equal(a.password, "secret");
    assert_string_equal(a.endpoints[0].host, "::1");
    assert_string_equal(a.shown, "redis://[::1]:6380");
    read_good("valkey://[fe80::1]");
    assert_string_equal(a.endpoints[0].host, "fe80::1");
    assert_int_equal(a.endpoints[0].port, 6379);
}

static void clusters(void **state)
{
    (void)state;
    read_good("redis+cluster://u:p@n1,n2:7001,[::1]:7002?prefix=x");
    assert_int_equal(a.kind, REDIS_CLUSTER);
    assert_int_equal(a.endpoint_count, 3);
    assert_string_equal(a.endpoints[0].host, "n1");
    assert_int_equal(a.endpoints[0].port, 6379);
    assert_int_equal(a.endpoints[1].port, 7001);
    assert_string_equal(a.endpoints[2].host, "::1");
    assert_string_equal(a.shown, "redis+cluster://u@n1:6379,n2:7001,[::1]:7002?prefix=x");
    read_good("rediss+cluster://n1?ca=/ca.pem");
    assert_true(a.tls);
    assert_string_equal(a.shown, "rediss+cluster://n1:6379");
    read_good("valkeys+cluster://n1");
    assert_int_equal(a.kind, REDIS_CLUSTER);
}

static void sentinels(void **state)
{
    (void)state;
    read_good("redis+sentinel://u:p@s1,s2:26380,[::1]:26381/main/3?prefix=x");
    assert_int_equal(a.kind, REDIS_SENTINEL);
    assert_int_equal(a.endpoint_count, 3);
    assert_string_equal(a.endpoints[0].host, "s1");
    assert_int_equal(a.endpoints[0].port, 26379);
    assert_int_equal(a.endpoints[1].port, 26380);
    assert_string_equal(a.endpoints[2].host, "::1");
    assert_int_equal(a.endpoints[2].port, 26381);
    assert_string_equal(a.master, "main");
    assert_int_equal(a.db, 3);
    assert_string_equal(a.password, "p");
    assert_string_equal(a.shown, "redis+sentinel://u@s1:26379,s2:26380,[::1]:26381/main/3?prefix=x");
}

static void encrypted(void **state)
{
    (void)state;
    read_good("rediss://u:p@h");
    assert_int_equal(a.kind, REDIS_TCP);
    assert_true(a.tls);
    assert_int_equal(a.endpoints[0].port, 6379);
    assert_string_equal(a.ca, "");
    assert_string_equal(a.shown, "rediss://u@h:6379");
    read_good("valkeys://h:1?ca=/etc/c%26a.pem&cert=/c.pem&key=/k.pem&name=redis.example&password_file=/p&prefix=x");
    assert_true(a.tls);
    assert_string_equal(a.ca, "/etc/c&a.pem");
    assert_string_equal(a.cert, "/c.pem");
    assert_string_equal(a.key, "/k.pem");
    assert_string_equal(a.name, "redis.example");
    assert_string_equal(a.password_file, "/p");
    assert_string_equal(a.shown, "rediss://h:1?prefix=x");
    read_good("rediss+sentinel://h/main?ca=/ca&sentinel_password_file=/s");
    assert_int_equal(a.kind, REDIS_SENTINEL);
    assert_true(a.tls);
    assert_string_equal(a.sentinel_password_file, "/s");
    assert_string_equal(a.shown, "rediss+sentinel://h:26379/main");
    read_good("redis://h");
    assert_false(a.tls);
}

static void sockets(void **state)
{
    (void)state;
    read_good("unix:/run/redis/redis.sock");
    assert_int_equal(a.kind, REDIS_UNIX);
    assert_string_equal(a.path, "/run/redis/redis.sock");
    assert_string_equal(a.shown, "unix:/run/redis/redis.sock");
    read_good("redis+unix:///run/r.sock?db=4&user=weir&prefix=y");
    assert_string_equal(a.path, "/run/r.sock");
    assert_int_equal(a.db, 4);
    assert_string_equal(a.user, "weir");
    assert_string_equal(a.prefix, "y");
    assert_string_equal(a.shown, "unix:/run/r.sock?db=4&prefix=y");
}

static void secrets_come_from_the_environment(void **state)
{
    (void)state;
    setenv("WEIR_REDIS_PASSWORD", "from env", 1);
    setenv("WEIR_SENTINEL_PASSWORD", "sentinels'", 1);
    read_good("redis://weir@h");
    assert_string_equal(a.password, "from env");
    assert_string_equal(a.sentinel_password, "");
    read_good("redis://weir:own@h");
    assert_string_equal(a.password, "own");
    read_good("redis://weir@h?password_file=/p");
    assert_string_equal(a.password, "");
    read_good("redis+sentinel://h/main");
    assert_string_equal(a.password, "from env");
    assert_string_equal(a.sentinel_password, "sentinels'");
    unsetenv("WEIR_REDIS_PASSWORD");
    unsetenv("WEIR_SENTINEL_PASSWORD");
}

static void wrong_ones_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } wrong[] = {
        { "", "not a valid address of a store" },
        { "localhost:6379", "not a valid address of a store" },
        { "redis:localhost", "not a valid address of a store" },
        { "rediss:h", "not a valid address of a store" },
        { "rediss://h?db=1", "allowed: ca, cert, key, name, password_file and prefix" },
        { "rediss+sentinel://h/m?x=1", "allowed: ca, cert, key, name, sentinel_password_file, password_file and prefix" },
        { "rediss://h?key=/k", "no cert" },
        { "rediss://h?ca=", "is empty" },
        { "redis://h?ca=/ca.pem", "needs TLS" },
        { "unix:/r?name=h", "needs TLS" },
        { "redis://h?sentinel_password_file=/p", "allowed: password_file and prefix" },
        { "redis://u:hunter2@h?password_file=/p", "leave out one" },
        { "redis://", "does not name a host" },
        { "redis://u:hunter2@", "does not name a host" },
        { "redis://u:hunter2@h:port", "the port" },
        { "redis://h:0", "the port" },
        { "redis://h:65536", "the port" },
        { "redis://h:", "the port" },
        { "redis://[::1", "without a ]" },
        { "redis://[::1]6379", "followed by :PORT" },
        { "redis://u:hunter2%4@h", "hexadecimal" },
        { "redis://u:hunter2%00@h", "hexadecimal" },
        { "redis://h/hunter2", "the database" },
        { "redis://h/0/1", "the database" },
        { "redis://h?db=1", "allowed: password_file and prefix" },
        { "redis://h?prefix=", "the prefix" },
        { "redis://h?prefix=a{b}", "the prefix" },
        { "redis+sentinel://u:hunter2@h", "the master" },
        { "redis+sentinel://h//0", "the master" },
        { "redis+cluster://h/0", "a cluster has one database" },
        { "redis+cluster://", "does not name a host" },
        { "redis+cluster://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 16 nodes" },
        { "redis+sentinel://h,,i/main", "does not name a host" },
        { "redis+sentinel://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17/main", "more than 16" },
        { "unix:", "path of a socket" },
        { "unix://run/r.sock", "path of a socket" },
        { "unix:/r?db=x", "the database" },
        { "unix:/r?password=hunter2", "db, user, password_file and prefix" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct weir_error error = { 0 };
        assert_int_equal(redis_address_read(&a, wrong[i].text, &error), WEIR_E_INVALID);
        if (!strstr(error.text, wrong[i].said) || strstr(error.text, "hunter2"))
            fail_msg("%s: %s", wrong[i].text, error.text);
    }
}

static void long_ones_are_refused(void **state)
{
    (void)state;
    static const char *const starts[] = { "redis://", "redis://u:", "redis+sentinel://h/", "unix:/", "rediss://h?ca=/" };
    char text[2000];
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        struct weir_error error = { 0 };
        memset(text, 'x', sizeof text);
        memcpy(text, starts[i], strlen(starts[i]));
        strcpy(text + 1500, i == 1 ? "@h" : "");
        assert_int_equal(redis_address_read(&a, text, &error), WEIR_E_INVALID);
        assert_non_null(strstr(error.text, "longer than"));
    }
}

int main(void)
{
    unsetenv("WEIR_REDIS_PASSWORD");
    unsetenv("WEIR_SENTINEL_PASSWORD");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(sentinels),
        cmocka_unit_test(clusters),
        cmocka_unit_test(encrypted),
        cmocka_unit_test(sockets),
        cmocka_unit_test(secrets_come_from_the_environment),
        cmocka_unit_test(wrong_ones_are_explained),
        cmocka_unit_test(long_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
