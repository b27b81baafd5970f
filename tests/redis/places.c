/* Where a store may be: behind a password, on a socket, in another database, behind sentinels. */
#include "asker.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct daemon server;
static char folder[] = "/tmp/weir-redis-XXXXXX", socket_path[64];

static int start(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/s", folder);
    const char *more[] = { "--unixsocket", socket_path, NULL };
    daemon_start(&server, more);
    return 0;
}

static int stop(void **state)
{
    char path[100];
    (void)state;
    daemon_end(&server);
    unlink(socket_path);
    snprintf(path, sizeof path, "%s/sentinel.conf", folder);
    unlink(path);
    return rmdir(folder);
}

static void decides_at(const char *address)
{
    struct asker a;
    asker_open(&a, address, 5000);
    run_until_decided(&a);
    run_for(&a, 50); /* for the first beat */
    assert_int_equal(a.events[WEIR_STORE_DOWN] + a.events[WEIR_STORE_ODD], 0);
    asker_close(&a);
}

static void is_down(const char *address, const char *why)
{
    struct asker a;
    asker_open(&a, address, 5000);
    run_until_event(&a, WEIR_STORE_DOWN, 1);
    if (!strstr(a.texts[WEIR_STORE_DOWN], why))
        fail_msg("%s", a.texts[WEIR_STORE_DOWN]);
    assert_null(strstr(a.texts[WEIR_STORE_DOWN], "hunter2"));
    asker_close(&a);
}

static const char *format_address(const char *format, ...)
{
    static char address[256];
    va_list args;
    va_start(args, format);
    vsnprintf(address, sizeof address, format, args);
    va_end(args);
    return address;
}

static void databases_and_prefixes(void **state)
{
    (void)state;
    decides_at(format_address("redis://localhost:%u/3?prefix=shop", server.server.port));
    assert_string_equal(daemon_ask(&server, "EXISTS", "shop:1:{ready}:rule:key", NULL), ":0");
    assert_string_equal(daemon_ask(&server, "DBSIZE", NULL), ":0");
    assert_string_equal(daemon_ask(&server, "SWAPDB", "0", "3", NULL), "OK");
    assert_string_equal(daemon_ask(&server, "EXISTS", "shop:1:{ready}:rule:key", NULL), ":1");
    assert_string_equal(daemon_ask(&server, "EXISTS", "shop:1:born", NULL), ":1");
    is_down(format_address("redis://127.0.0.1:%u/16", server.server.port), "database");
}

static void a_socket(void **state)
{
    (void)state;
    decides_at(format_address("unix:%s?db=1", socket_path));
    is_down(format_address("unix:%s/none", folder), "No such file");
}

/* The commands that docs and README name are enough. */
static void users_and_passwords(void **state)
{
    (void)state;
    struct talk talk;
    struct reply reply;
    assert_true(talk_open(&talk, &server.server));
    talk_write(&talk, "ACL", "SETUSER", "weir", "on", ">s:e/c@ret", "~weir:*", "-@all", "+select", "+client|setname",
               "+time", "+script|load", "+evalsha", "+hmget", "+hget", "+hset", "+pexpire", "+pttl", "+get", "+set", "+del",
               "+exists", "+zadd", "+zrem", "+zscore", "+zrangebyscore", "+zremrangebyscore", "+zcard", NULL);
    assert_true(talk_read(&talk, &reply));
    assert_int_equal(reply.kind, REPLY_STATUS);
    talk_close(&talk);
    decides_at(format_address("redis://weir:s%%3Ae%%2Fc%%40ret@127.0.0.1:%u", server.server.port));
    is_down(format_address("redis://weir:hunter2@127.0.0.1:%u", server.server.port), "WRONGPASS");
    assert_string_equal(daemon_ask(&server, "ACL", "SETUSER", "weir", "resetpass", "nopass", NULL), "OK");
    assert_string_equal(daemon_ask(&server, "ACL", "SETUSER", "default", "-evalsha", NULL), "OK");
    decides_at(format_address("redis://weir@127.0.0.1:%u", server.server.port));
    assert_string_equal(daemon_ask(&server, "ACL", "SETUSER", "default", "+evalsha", NULL), "OK");
    assert_string_equal(daemon_ask(&server, "ACL", "DELUSER", "weir", NULL), ":1");
    assert_string_equal(daemon_ask(&server, "CONFIG", "SET", "requirepass", "pass word", NULL), "OK");
    is_down(format_address("redis://127.0.0.1:%u", server.server.port), "NOAUTH");
    setenv("WEIR_REDIS_PASSWORD", "pass word", 1);
    decides_at(format_address("redis://127.0.0.1:%u", server.server.port));
    unsetenv("WEIR_REDIS_PASSWORD");
    assert_true(talk_open(&talk, &server.server));
    talk_write(&talk, "AUTH", "pass word", NULL);
    talk_write(&talk, "CONFIG", "SET", "requirepass", "", NULL);
    assert_true(talk_read(&talk, &reply) && talk_read(&talk, &reply));
    assert_int_equal(reply.kind, REPLY_STATUS);
    talk_close(&talk);
}

static void no_redis_at_all(void **state)
{
    (void)state;
    struct daemon sentinel, cluster;
    is_down("redis://127.0.0.1:1", "Connection refused");
    daemon_start_sentinel(&sentinel, folder, server.server.port);
    is_down(format_address("redis://127.0.0.1:%u", sentinel.server.port), "it is a sentinel");
    is_down(format_address("redis+sentinel://127.0.0.1:1,127.0.0.1:%u/other", sentinel.server.port),
            "does not know a master named other");
    daemon_end(&sentinel);
    const char *more[] = { "--cluster-enabled", "yes", NULL };
    daemon_start(&cluster, more);
    is_down(address_of(&cluster), "a node of a Redis Cluster");
    daemon_end(&cluster);
}

/* Says this to everybody, and hangs up. */
struct talker {
    int fd;
    const char *text;
};

static void *talk_to_all(void *data)
{
    const struct talker *talker = data;
    char bytes[4096];
    for (int client; (client = accept(talker->fd, NULL, NULL)) >= 0; close(client))
        if (recv(client, bytes, sizeof bytes, 0) > 0)
            send(client, talker->text, strlen(talker->text), MSG_NOSIGNAL);
    return NULL;
}

static void is_down_at_a_server_that_says(const char *text, const char *scheme, const char *why)
{
    struct sockaddr_in place = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof place;
    struct talker talker = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .text = text };
    pthread_t thread;
    assert_int_equal(bind(talker.fd, (struct sockaddr *)&place, sizeof place), 0);
    assert_int_equal(listen(talker.fd, 8), 0);
    assert_int_equal(getsockname(talker.fd, (struct sockaddr *)&place, &len), 0);
    assert_int_equal(pthread_create(&thread, NULL, talk_to_all, &talker), 0);
    is_down(format_address("%s://127.0.0.1:%u", scheme, ntohs(place.sin_port)), why);
    shutdown(talker.fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(talker.fd);
}

/* Valkey 8 and later have another name for the line of INFO. */
static void modes_of_valkey(void **state)
{
    (void)state;
    is_down_at_a_server_that_says("$22\r\nserver_mode:sentinel\r\n\r\n", "redis", "it is a sentinel");
    is_down_at_a_server_that_says("$21\r\nserver_mode:cluster\r\n\r\n", "redis", "it is a node of a Redis Cluster");
    is_down_at_a_server_that_says("$24\r\nserver_mode:standalone\r\n\r\n", "redis+cluster",
                                  "it is not a node of a Redis Cluster");
}

static void wait_for_replica(const struct daemon *replica)
{
    for (int i = 0; i < LONG_MS && !strstr(daemon_ask(replica, "INFO", "replication", NULL), "master_link_status:up"); i++)
        usleep(1000);
    assert_non_null(strstr(daemon_ask(replica, "INFO", "replication", NULL), "master_link_status:up"));
}

static void wait_for_answer(const struct daemon *d, const char *wanted, const char *one, const char *two, const char *three)
{
    for (int i = 0; i < LONG_MS; i++) {
        if (strcmp(daemon_ask(d, one, two, three, NULL), wanted) == 0)
            return;
        usleep(1000);
    }
    fail_msg("%s %s %s: not %s", one, two, three, wanted);
}

static void wait_for_sentinel(const struct daemon *sentinel)
{
    for (int i = 0; i < LONG_MS && !strstr(daemon_ask(sentinel, "INFO", "sentinel", NULL), "slaves=1"); i++)
        usleep(1000);
    assert_non_null(strstr(daemon_ask(sentinel, "INFO", "sentinel", NULL), "slaves=1"));
}

/* On demand: the old master goes on answering for a while, and its connections stand. Its replica takes over, and has its
 * data. (tests/serve/test_fleet_sentinel.py has masters that are killed and stopped.) */
static void sentinels_fail_over(void **state)
{
    (void)state;
    struct daemon replica, sentinel;
    struct asker a;
    struct asked q;
    const char *more[] = { "--replicaof", "127.0.0.1", server.port, "--repl-diskless-sync-delay", "0", NULL };
    assert_string_equal(daemon_ask(&server, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL), "OK");
    daemon_start(&replica, more);
    wait_for_replica(&replica);
    is_down(format_address("redis://127.0.0.1:%u", replica.server.port), "not a master but a slave");
    daemon_start_sentinel(&sentinel, folder, server.server.port);
    wait_for_sentinel(&sentinel);
    asker_open(&a, format_address("redis+sentinel://127.0.0.1:1,127.0.0.1:%u/main", sentinel.server.port), 100);
    run_until_decided(&a);
    unsigned done = a.done;
    asked_init(&q, &a, "kept", 1);
    asked_send(&q, 5000);
    store_link_flush(a.link);
    run_until(&a, &a.done, done + 1);
    assert_true(q.call.allowed);
    wait_for_answer(&replica, ":2", "EXISTS", "weir:1:{kept}:rule:key", "weir:1:born");
    wait_for_answer(&sentinel, "OK", "SENTINEL", "FAILOVER", "main"); /* once it knows enough of the replica */
    run_until_event(&a, WEIR_STORE_REPLACED, 1);
    run_until_decided(&a);
    asked_send(&q, 5000);
    store_link_flush(a.link);
    done = a.done;
    run_until(&a, &a.done, done + 1);
    assert_int_equal(q.call.result, STORE_DECIDED);
    assert_false(q.call.allowed);
    assert_int_equal(a.events[WEIR_STORE_EMPTIED], 0);
    asker_close(&a);
    daemon_end(&sentinel);
    daemon_end(&replica);
}

int main(void)
{
    unsetenv("WEIR_REDIS_PASSWORD");
    unsetenv("WEIR_SENTINEL_PASSWORD");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(databases_and_prefixes), cmocka_unit_test(a_socket),        cmocka_unit_test(users_and_passwords),
        cmocka_unit_test(no_redis_at_all),        cmocka_unit_test(modes_of_valkey), cmocka_unit_test(sentinels_fail_over),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
