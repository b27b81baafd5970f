/* A proxy between the link and the server passes bytes on in odd pieces, holds them back, and drops answers: what the link
 * calls sent has left as a whole, and what it calls unsent was not carried out. With TLS, too: see test_over_tls.py. */
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
#include <unistd.h>

#include <cmocka.h>

#include "cells/cells.h"

enum {
    PIECE_MAX = 61,
    IDLE_MS = 300,
    PASS_BYTES = 64 << 10,
    WINDOW_BYTES = 4096,
    KEY_BYTES = 700,
    MANY = 9000,
    MAX = 1000000000,
    DEADLINE_MS = 60000, /* nothing is late, however slow the machine is */
};

static struct daemon server;
static int listener;
static unsigned proxy_port;
static atomic_bool pieces;  /* forward a few bytes at a time */
static atomic_bool hold;    /* read nothing from clients */
static atomic_bool mute;    /* drop what the server says */
static atomic_bool cut;     /* leave clients when nothing more comes from them; the server is not told */
static atomic_uint proxied; /* connections of clients */

/* ---- the proxy ---- */

static bool pass(int to, const char *bytes, size_t len, unsigned *seed)
{
    for (size_t sent = 0; sent < len;) {
        size_t most = atomic_load(&pieces) ? 1 + (size_t)rand_r(seed) % PIECE_MAX : len - sent;
        ssize_t n = send(to, bytes + sent, most < len - sent ? most : len - sent, MSG_NOSIGNAL);
        if (n < 0)
            return false;
        sent += (size_t)n;
    }
    return true;
}

static void *carry(void *data)
{
    int client = (int)(intptr_t)data, one = 1;
    struct redis_server to = { .port = server.server.tls_port ? server.server.tls_port : server.server.port };
    int upstream = redis_server_connect(&to);
    unsigned seed = (unsigned)client;
    static _Thread_local char bytes[PASS_BYTES];
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(upstream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (bool open = upstream >= 0; open;) {
        bool held = atomic_load(&hold);
        struct pollfd fds[] = { { .fd = held ? -1 : client, .events = POLLIN }, { .fd = upstream, .events = POLLIN } };
        if (poll(fds, 2, IDLE_MS) == 0 && client >= 0 && !held && atomic_load(&cut)) {
            close(client);
            client = -1;
            atomic_fetch_sub(&proxied, 1);
        }
        for (int i = 0; i < 2 && open; i++) {
            if (!fds[i].revents)
                continue;
            ssize_t n = recv(fds[i].fd, bytes, sizeof bytes, 0);
            bool drop = i == 1 && (client < 0 || atomic_load(&mute));
            open = n > 0 && (drop || pass(i == 0 ? upstream : client, bytes, (size_t)n, &seed));
        }
    }
    close(upstream);
    if (client >= 0) {
        close(client);
        atomic_fetch_sub(&proxied, 1);
    }
    return NULL;
}

static void *proxy(void *unused)
{
    (void)unused;
    for (int client; (client = accept(listener, NULL, NULL)) >= 0;) {
        pthread_t thread;
        atomic_fetch_add(&proxied, 1);
        if (pthread_create(&thread, NULL, carry, (void *)(intptr_t)client) != 0)
            abort();
        pthread_detach(thread);
    }
    return NULL;
}

/* Its window is small, so that a link is soon blocked by it. */
static void start_proxy(void)
{
    struct sockaddr_in place = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof place;
    int window = WINDOW_BYTES;
    pthread_t thread;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &window, sizeof window);
    assert_int_equal(bind(listener, (struct sockaddr *)&place, sizeof place), 0);
    assert_int_equal(listen(listener, 64), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&place, &len), 0);
    proxy_port = ntohs(place.sin_port);
    assert_int_equal(pthread_create(&thread, NULL, proxy, NULL), 0);
    pthread_detach(thread);
}

static void open_through_proxy(struct asker *a)
{
    char address[SERVER_ADDRESS_MAX];
    struct redis_server through = { .port = proxy_port, .tls_port = server.server.tls_port ? proxy_port : 0 };
    asker_open(a, redis_server_address(&through, address, ""), DEADLINE_MS);
    run_until_decided(a);
}

/* ---- calls ---- */

static char key[KEY_BYTES + 1];
static struct asked *calls;

static void make_key(size_t len)
{
    memset(key, 'x', len);
    memcpy(key, "{x}:", 4);
    key[len] = '\0';
}

static void send_many(struct asker *a, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        asked_init(&calls[i], a, "x", MAX);
        calls[i].rule.key = weir_str(key);
        asked_send(&calls[i], DEADLINE_MS);
    }
    store_link_flush(a->link);
}

static unsigned charged(void)
{
    struct talk talk;
    struct reply reply;
    double count = 0;
    char name[KEY_BYTES + 10];
    snprintf(name, sizeof name, "weir:1:%s", key);
    assert_true(talk_open(&talk, &server.server));
    talk_write(&talk, "HGET", name, "hour.f", NULL);
    assert_true(talk_read(&talk, &reply));
    if (reply.text.len == 3 * sizeof count)
        memcpy(&count, reply.text.ptr + 2 * sizeof count, sizeof count);
    talk_close(&talk);
    return (unsigned)count;
}

/* ---- tests ---- */

static void odd_pieces(void **state)
{
    (void)state;
    struct asker a;
    atomic_store(&pieces, true);
    open_through_proxy(&a);
    make_key(KEY_BYTES - 1);
    unsigned decided = a.results[STORE_DECIDED], done = a.done;
    for (unsigned round = 1; round <= 10; round++) {
        unsigned before = a.done;
        send_many(&a, round * 40);
        run_until(&a, &a.done, before + round * 40);
        assert_int_equal(charged(), 20 * round * (round + 1));
    }
    assert_int_equal(a.results[STORE_DECIDED] - decided, a.done - done);
    atomic_store(&pieces, false);
    asker_close(&a);
}

/* The link is blocked in the middle of something. All that left arrives, and is carried out; no answer comes back. */
static void block_and_cut(size_t key_len)
{
    struct asker a;
    open_through_proxy(&a);
    make_key(key_len);
    unsigned before = a.done, unsent = a.results[STORE_UNSENT], decided = a.results[STORE_DECIDED];
    atomic_store(&hold, true);
    atomic_store(&mute, true);
    send_many(&a, MANY);
    /* The link sends until the system takes no more. */
    for (int i = 0; i < 20; i++) {
        struct pollfd fd = { .fd = store_link_fd(a.link), .events = POLLIN };
        if (poll(&fd, 1, 50) > 0)
            store_link_run(a.link);
    }
    atomic_store(&hold, false);
    atomic_store(&cut, true);
    for (int i = 0; i < 4000 && atomic_load(&proxied) > 0; i++)
        usleep(5000);
    assert_int_equal(atomic_load(&proxied), 0);
    atomic_store(&cut, false);
    atomic_store(&mute, false);
    run_until(&a, &a.done, before + MANY);
    for (int i = 0; i < 400 && charged() < a.results[STORE_LOST]; i++)
        usleep(50000);
    run_for(&a, 500); /* more than was lost must not come */
    unsigned count = charged();
    unsent = a.results[STORE_UNSENT] - unsent;
    decided = a.results[STORE_DECIDED] - decided; /* the last ones may have waited for the next connection */
    print_message("# of %d: charged %u, lost %u, unsent %u, decided %u\n", MANY, count, a.results[STORE_LOST], unsent,
                  decided);
    assert_true(unsent > 0 && a.results[STORE_LOST] > 0);
    assert_int_equal(a.results[STORE_LOST] + unsent + decided, MANY);
    assert_int_equal(a.results[STORE_LOST] + decided, count);
    asker_close(&a);
}

/* With another length of calls it is blocked in another place of one. */
static void what_left_was_sent(void **state)
{
    (void)state;
    static const size_t lens[] = { KEY_BYTES - 61, KEY_BYTES - 130 };
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
        block_and_cut(lens[i]);
}

int main(void)
{
    daemon_start(&server, NULL);
    start_proxy();
    calls = calloc(MANY, sizeof *calls);
    const struct CMUnitTest tests[] = { cmocka_unit_test(odd_pieces), cmocka_unit_test(what_left_was_sent) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(calls);
    daemon_end(&server);
    return failed;
}
