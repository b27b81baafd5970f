/* Servers that say what no node of a cluster should: maps that are empty, huge, or garbage, slots that each node says are
 * at the other, nodes that do not exist. No decision hangs, none is made twice, and nothing is busy because of it. */
#include "asker.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "redis/slot_map.h"

enum { LIARS = 2, DEADLINE_MS = 50, MAX = 1000000, MAP_MAX = 5 << 20, IN_MAX = 1 << 20 };

/* ---- servers ---- */

struct liar {
    int listener;
    unsigned port;
    atomic_uint decisions, maps; /* number of questions */
    atomic_llong answered_us;    /* when the last decision was answered, or a connection turned out to be broken */
};

static struct liar liars[LIARS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what they say: */
static char *map;                                        /* to CLUSTER SLOTS */
static size_t map_len;
static char said[LIARS][200]; /* to EVALSHA */
static unsigned epoch;

static void add(struct buf *out, const char *text)
{
    buf_add(out, weir_str(text));
}

static void load(struct buf *out, sv text)
{
    for (size_t i = 0; i < SCRIPTS; i++)
        if (sv_eq(text, scripts[i].text))
            buf_printf(out, "$40\r\n%s\r\n", scripts[i].sha);
}

static void tell_cluster(struct buf *out, struct liar *liar, sv what)
{
    char info[64];
    HOLD_LOCK(&lock);
    if (sv_eq(what, SV("INFO"))) {
        int len = snprintf(info, sizeof info, "cluster_current_epoch:%u\r\n", epoch);
        buf_printf(out, "$%d\r\n%s\r\n", len, info);
        return;
    }
    atomic_fetch_add(&liar->maps, 1);
    buf_add(out, sv_of(map, map_len));
}

static void tell_decision(struct buf *out, struct liar *liar)
{
    HOLD_LOCK(&lock);
    atomic_fetch_add(&liar->decisions, 1);
    add(out, said[liar - liars]);
}

static void answer(struct buf *out, struct liar *liar, struct reply command)
{
    struct reply word, what = { 0 }, third = { 0 };
    assert_true(reply_next(&command, &word));
    reply_next(&command, &what);
    reply_next(&command, &third);
    if (sv_eq(word.text, SV("INFO")))
        add(out, "$20\r\nredis_mode:cluster\r\n\r\n");
    else if (sv_eq(word.text, SV("SCRIPT")))
        load(out, third.text);
    else if (sv_eq(word.text, SV("TIME")))
        buf_printf(out, "*2\r\n$10\r\n%ld\r\n$1\r\n0\r\n", (long)time(NULL));
    else if (sv_eq(word.text, SV("CLUSTER")))
        tell_cluster(out, liar, what.text);
    else if (sv_eq(word.text, SV("EVALSHA")) && command.count > 1)
        tell_decision(out, liar);
    else if (sv_eq(word.text, SV("EVALSHA")))
        add(out, "$0\r\n\r\n");
    else
        add(out, "+OK\r\n");
}

struct client {
    int fd;
    struct liar *liar;
};

static void *serve(void *data)
{
    struct client client = *(struct client *)data;
    char *in = malloc(IN_MAX);
    size_t len = 0;
    free(data);
    ssize_t n;
    while ((n = recv(client.fd, in + len, IN_MAX - len, 0)) > 0) {
        unsigned before = atomic_load(&client.liar->decisions);
        struct buf out;
        struct reply command;
        size_t taken = 0;
        len += (size_t)n;
        buf_init(&out, 2 * MAP_MAX);
        while (taken < len && (n = reply_parse(sv_of(in + taken, len - taken), &command)) > 0) {
            answer(&out, client.liar, command);
            taken += (size_t)n;
        }
        memmove(in, in + taken, len - taken);
        len -= taken;
        for (size_t sent = 0; sent < out.len && n >= 0; sent += (size_t)n)
            n = send(client.fd, out.ptr + sent, out.len - sent, MSG_NOSIGNAL);
        if (atomic_load(&client.liar->decisions) != before)
            atomic_store(&client.liar->answered_us, clock_steady_us());
        buf_done(&out);
    }
    if (n < 0)
        atomic_store(&client.liar->answered_us, clock_steady_us());
    close(client.fd);
    free(in);
    return NULL;
}

static void *serve_all(void *data)
{
    struct liar *liar = data;
    int one = 1;
    for (int fd; (fd = accept(liar->listener, NULL, NULL)) >= 0;) {
        pthread_t thread;
        struct client *client = malloc(sizeof *client);
        *client = (struct client){ fd, liar };
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, serve, client) != 0)
            abort();
        pthread_detach(thread);
    }
    return NULL;
}

static int start(void **state)
{
    (void)state;
    map = malloc(MAP_MAX);
    for (struct liar *liar = liars; liar < liars + LIARS; liar++) {
        struct sockaddr_in place = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof place;
        pthread_t thread;
        liar->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(liar->listener, (struct sockaddr *)&place, sizeof place), 0);
        assert_int_equal(listen(liar->listener, 64), 0);
        assert_int_equal(getsockname(liar->listener, (struct sockaddr *)&place, &len), 0);
        liar->port = ntohs(place.sin_port);
        assert_int_equal(pthread_create(&thread, NULL, serve_all, liar), 0);
        pthread_detach(thread);
    }
    return 0;
}

/* ---- what they say ---- */

static void say_map(const char *text)
{
    HOLD_LOCK(&lock);
    epoch++;
    map_len = strlen(text);
    memcpy(map, text, map_len);
}

/* A map of so many masters at ports from `port` on, the first of them the two liars. */
static void say_masters(unsigned count, unsigned port)
{
    HOLD_LOCK(&lock);
    struct buf out;
    epoch++;
    buf_init(&out, MAP_MAX);
    buf_printf(&out, "*%u\r\n", count);
    for (unsigned i = 0; i < count; i++)
        buf_printf(&out, "*3\r\n:%u\r\n:%u\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", HASH_SLOTS * i / count,
                   HASH_SLOTS * (i + 1) / count - 1, i < LIARS ? liars[i].port : port + i);
    assert_false(out.failed);
    map_len = out.len;
    memcpy(map, out.ptr, map_len);
    buf_done(&out);
}

/* Decisions of slot 0 to 8191 go to the first, if both are masters. */
static void say_decision(unsigned liar, const char *format, unsigned port)
{
    HOLD_LOCK(&lock);
    snprintf(said[liar], sizeof said[liar], format, port);
    atomic_store(&liars[liar].decisions, 0);
}

static const char *key_of_first(void)
{
    static char word[8];
    hash_slot_word(100, word);
    return word;
}

static void open_liars(struct asker *a)
{
    char address[100];
    snprintf(address, sizeof address, "redis+cluster://127.0.0.1:%u,127.0.0.1:%u", liars[0].port, liars[1].port);
    asker_open(a, address, DEADLINE_MS);
}

static void run_until_known(struct asker *a)
{
    char key[16];
    int64_t until_us = clock_steady_us() + LONG_MS * US_PER_MS;
    snprintf(key, sizeof key, "{%s}", key_of_first());
    while (!store_up_for(a->store, weir_str(key)) && clock_steady_us() < until_us)
        run_for(a, 5);
    assert_true(store_up_for(a->store, weir_str(key)));
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- tests ---- */

/* Whether a liar got no CPU for so long that it answered after the deadline: then nobody knows whether it was charged. */
static bool was_starved(struct asker *a, int64_t asked_us)
{
    int64_t until_us = clock_steady_us() + LONG_MS * US_PER_MS;
    bool starved = false;
    while (!starved && clock_steady_us() < until_us) {
        for (unsigned i = 0; i < LIARS; i++)
            starved = starved || atomic_load(&liars[i].answered_us) >= asked_us + DEADLINE_MS * US_PER_MS;
        run_for(a, 5);
    }
    return starved;
}

/* However they send it round: it ends at its deadline as one that was not charged, and few messages are sent for it. */
static void ask_liars(const char *first, unsigned first_port, const char *second, unsigned second_port)
{
    static struct asker a;
    static struct asked q;
    say_masters(LIARS, 0);
    say_decision(0, first, first_port);
    say_decision(1, second, second_port);
    open_liars(&a);
    run_until_known(&a);
    run_for(&a, 50); /* the link has yet to be connected to both */
    for (int i = 0; i < 5; i++) {
        asked_init(&q, &a, key_of_first(), MAX);
        atomic_store(&liars[0].decisions, 0);
        atomic_store(&liars[1].decisions, 0);
        unsigned done = a.done;
        int64_t asked_us = clock_steady_us();
        asked_send(&q, DEADLINE_MS);
        store_link_flush(a.link);
        run_until(&a, &a.done, done + 1);
        if (q.call.result == STORE_LOST)
            assert_true(was_starved(&a, asked_us));
        else
            assert_true(q.call.result == STORE_UNSENT || q.call.result == STORE_FAILED);
        assert_true(atomic_load(&liars[0].decisions) + atomic_load(&liars[1].decisions) < 60);
    }
    asker_close(&a);
}

static void test_two_nodes_say_that_the_other_has_it(void **state)
{
    (void)state;
    ask_liars("-MOVED 100 127.0.0.1:%u\r\n", liars[1].port, "-MOVED 100 127.0.0.1:%u\r\n", liars[0].port);
    ask_liars("-ASK 100 127.0.0.1:%u\r\n", liars[1].port, "-ASK 100 127.0.0.1:%u\r\n", liars[0].port);
    ask_liars("-ASK 100 127.0.0.1:%u\r\n", liars[1].port, "-MOVED 100 127.0.0.1:%u\r\n", liars[0].port);
}

static void test_a_node_says_that_nobody_has_it(void **state)
{
    (void)state;
    ask_liars("-ASK 100 127.0.0.1:%u\r\n", liars[0].port, "+OK\r\n", 0);
    ask_liars("-MOVED 100 127.0.0.1:%u\r\n", liars[0].port, "+OK\r\n", 0);
    ask_liars("-MOVED 100 127.0.0.1:%u\r\n", 1, "+OK\r\n", 0);
    ask_liars("-MOVED 100 :%u\r\n", liars[0].port, "+OK\r\n", 0);
    ask_liars("-MOVED 99999 nonsense %u\r\n", 1, "+OK\r\n", 0);
    ask_liars("-MOVED\r\n", 1, "+OK\r\n", 0);
    ask_liars("-TRYAGAIN\r\n", 0, "+OK\r\n", 0);
    ask_liars("-CLUSTERDOWN %u\r\n", 0, "+OK\r\n", 0);
}

/* Until a map that is said now is in force: the next one is asked for only then. */
static void run_until_read(struct asker *a)
{
    unsigned asked = atomic_load(&liars[0].maps) + atomic_load(&liars[1].maps);
    map_outdated(a->store);
    while (atomic_load(&liars[0].maps) + atomic_load(&liars[1].maps) < asked + 2)
        run_for(a, 5);
}

/* A map that is not one is not used, and the one before stays. */
static void test_maps_that_are_none(void **state)
{
    static const char *const maps[] = {
        "*0\r\n",
        "+OK\r\n",
        "-ERR This instance has cluster support disabled\r\n",
        "*1\r\n*0\r\n",
        "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        "*1\r\n*3\r\n:9\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:5\r\n:1\r\n",
    };
    static struct asker a;
    char key[16];
    (void)state;
    snprintf(key, sizeof key, "{%s}", key_of_first());
    say_masters(LIARS, 0);
    open_liars(&a);
    run_until_known(&a);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        say_map(maps[i]);
        run_until_read(&a);
        assert_true(store_up_for(a.store, weir_str(key)));
    }
    assert_int_equal(atomic_load(&a.events[WEIR_STORE_DOWN]), 0);
    asker_close(&a);
}

/* More masters than there are entries, and others each time: those that fit are used, and the entries are used again. */
static void test_many_masters(void **state)
{
    static struct asker a;
    static struct asked q;
    (void)state;
    say_masters(LIARS, 0);
    say_decision(0, "-ERR %u\r\n", 0);
    open_liars(&a);
    run_until_known(&a);
    for (unsigned i = 0; i < 6; i++) {
        unsigned asked = atomic_load(&liars[0].maps) + atomic_load(&liars[1].maps), done = a.done;
        say_masters(600, 1000 * i + 1);
        map_outdated(a.store);
        while (atomic_load(&liars[0].maps) + atomic_load(&liars[1].maps) < asked + 2)
            run_for(&a, 5);
        asked_init(&q, &a, "x", MAX);
        asked_send(&q, DEADLINE_MS);
        store_link_flush(a.link);
        run_until(&a, &a.done, done + 1);
    }
    double before = cpu_s();
    run_for(&a, 3000);
    assert_true(cpu_s() - before < 1.5);
    struct weir_store_status status;
    store_status(a.store, &status);
    assert_true(status.nodes <= NODES_MAX);
    say_masters(LIARS, 0);
    map_outdated(a.store);
    run_until_known(&a);
    asker_close(&a);
}

/* An answer has at most 4 MB. */
static void test_a_huge_map(void **state)
{
    static struct asker a;
    (void)state;
    say_masters(LIARS, 0);
    open_liars(&a);
    run_until_known(&a);
    {
        HOLD_LOCK(&lock);
        memset(map, '9', MAP_MAX);
        memcpy(map, "$5000000\r\n", 10);
        map_len = MAP_MAX;
    }
    run_for(&a, 3000);
    say_masters(LIARS, 0);
    run_until_known(&a);
    asker_close(&a);
}

/* The lower half of the slots is at `port`; 0: at none. The upper half is at the second liar. */
static void say_halves(unsigned port)
{
    char text[200], lower[100] = "";
    if (port)
        snprintf(lower, sizeof lower, "*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", port);
    snprintf(text, sizeof text, "*%d\r\n%s*3\r\n:8192\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", port ? 2 : 1, lower,
             liars[1].port);
    say_map(text);
}

/* Some nodes give a map without the slots of a dead master before another has them. */
static void test_a_master_is_missing_for_a_while(void **state)
{
    static struct asker a;
    (void)state;
    say_halves(1);
    open_liars(&a);
    run_until_event(&a, WEIR_STORE_DOWN, 1);
    assert_int_equal(atomic_load(&a.events[WEIR_STORE_REPLACED]), 0);
    say_halves(0);
    run_until_read(&a);
    run_until_read(&a);
    assert_int_equal(atomic_load(&a.events[WEIR_STORE_REPLACED]), 0);
    say_halves(liars[0].port);
    run_until_event(&a, WEIR_STORE_REPLACED, 1);
    run_until_read(&a);
    assert_int_equal(atomic_load(&a.events[WEIR_STORE_REPLACED]), 1);
    asker_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_nodes_say_that_the_other_has_it),
        cmocka_unit_test(test_a_node_says_that_nobody_has_it),
        cmocka_unit_test(test_maps_that_are_none),
        cmocka_unit_test(test_many_masters),
        cmocka_unit_test(test_a_huge_map),
        cmocka_unit_test(test_a_master_is_missing_for_a_while),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
