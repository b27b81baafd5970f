/* The bounds of connections: who gives way to whom, and until when each has to get on. */
#include "serve/conns.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { CONNS = 64 };

struct tester {
    struct conn conn;
    bool shut;
};

static struct tester testers[CONNS];

static void note_shut(struct conn *conn)
{
    ((struct tester *)conn)->shut = true;
}

static struct sockaddr_storage from(const char *text)
{
    struct sockaddr_storage address = { .ss_family = AF_UNIX };
    if (strchr(text, ':')) {
        address.ss_family = AF_INET6;
        inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&address)->sin6_addr);
    } else if (text[0]) {
        address.ss_family = AF_INET;
        inet_pton(AF_INET, text, &((struct sockaddr_in *)&address)->sin_addr);
    }
    return address;
}

static bool enter(struct conns *conns, int i, const char *address, int64_t now_ms)
{
    struct sockaddr_storage peer = from(address);
    testers[i] = (struct tester){ .conn.shut = note_shut };
    return conns_enter(conns, &testers[i].conn, FRONT_RESP, 100 + i, &peer, now_ms);
}

static void begin(struct conns *conns, unsigned most, unsigned most_per_address)
{
    struct conns_limits limits = { most, most_per_address, 1000, 100 };
    assert_int_equal(conns_init(conns, &limits), 0);
}

static void end(struct conns *conns)
{
    conns_shut_all(conns);
    assert_int_equal(conns->count, 0);
    assert_int_equal(conns->peer_count, 0);
    conns_done(conns);
}

static void longest_idle_gives_way(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 3, 3);
    assert_true(enter(&conns, 0, "192.0.2.1", 0));
    assert_true(enter(&conns, 1, "192.0.2.2", 1));
    assert_true(enter(&conns, 2, "192.0.2.3", 2));
    conn_busy(&testers[0].conn, 3);
    conn_complete(&testers[0].conn);
    assert_true(enter(&conns, 3, "192.0.2.4", 4));
    assert_false(testers[0].shut);
    assert_true(testers[1].shut);
    conn_idle(&testers[0].conn, 5);
    assert_true(enter(&conns, 4, "192.0.2.5", 6));
    assert_true(testers[2].shut);
    assert_false(testers[0].shut);
    assert_int_equal(conns.count, 3);
    assert_int_equal(conns.open[FRONT_RESP], 3);
    assert_int_equal(conns.gave_way, 2);
    end(&conns);
}

static void busy_ones_do_not(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 2, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(enter(&conns, i, "192.0.2.1", 0));
        conn_busy(&testers[i].conn, 1);
        conn_complete(&testers[i].conn);
    }
    assert_false(enter(&conns, 2, "192.0.2.9", 2));
    assert_int_equal(conns.turned_away, 1);
    assert_int_equal(conns.peer_count, 1);
    conn_leave(&testers[0].conn);
    conn_leave(&testers[0].conn);
    assert_true(enter(&conns, 3, "192.0.2.9", 3));
    end(&conns);
}

static void slow_senders_give_way(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 3, 3);
    assert_true(enter(&conns, 0, "192.0.2.1", 0)); /* idle for long */
    assert_true(enter(&conns, 1, "192.0.2.2", 1000));
    assert_true(enter(&conns, 2, "192.0.2.3", 1000));
    conn_busy(&testers[1].conn, 1000);
    conn_complete(&testers[1].conn);
    conn_busy(&testers[2].conn, 1010);
    /* It may just be about to be whole. */
    assert_true(enter(&conns, 3, "192.0.2.4", 2009));
    assert_true(testers[0].shut);
    /* It is not, and goes before those that are idle. */
    assert_true(enter(&conns, 4, "192.0.2.5", 2010));
    assert_true(testers[2].shut);
    assert_false(testers[3].shut);
    /* Newcomers do not drive each other out. */
    conn_busy(&testers[3].conn, 2011);
    assert_true(enter(&conns, 5, "192.0.2.6", 2012));
    assert_true(testers[4].shut);
    assert_true(enter(&conns, 6, "192.0.2.7", 2012));
    assert_true(testers[3].shut);
    assert_false(testers[1].shut);
    assert_false(testers[5].shut);
    end(&conns);
}

/* One address cannot take the places of others, and loses its own longest idle one. */
static void one_address_is_bounded(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 10, 2);
    assert_true(enter(&conns, 0, "198.51.100.7", 0));
    for (int i = 1; i < 6; i++)
        assert_true(enter(&conns, i, "192.0.2.1", i));
    assert_false(testers[0].shut);
    for (int i = 1; i < 6; i++)
        assert_int_equal(testers[i].shut, i < 4);
    assert_int_equal(conns.count, 3);
    end(&conns);
}

static void ipv6_is_counted_by_its_network(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 10, 2);
    assert_true(enter(&conns, 0, "2001:db8:1:2::1", 0));
    assert_true(enter(&conns, 1, "2001:db8:1:2::2", 0));
    assert_true(enter(&conns, 2, "2001:db8:1:3::1", 0));
    assert_true(enter(&conns, 3, "2001:db8:1:2:ffff::3", 0));
    assert_true(testers[0].shut);
    assert_false(testers[2].shut);
    assert_string_equal(testers[3].conn.address, "2001:db8:1:2:ffff::3");
    end(&conns);
}

/* Local ones have no address, and count only with all others. */
static void local_ones(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 4, 1);
    for (int i = 0; i < 4; i++)
        assert_true(enter(&conns, i, "", i));
    assert_true(testers[0].conn.local);
    assert_int_equal(conns.count, 4);
    assert_true(enter(&conns, 4, "", 5));
    assert_true(testers[0].shut);
    end(&conns);
}

/* What comes after the first byte does not lengthen the time for a request. */
static void deadlines(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 10, 10);
    assert_true(enter(&conns, 0, "192.0.2.1", 0));
    assert_true(enter(&conns, 1, "192.0.2.1", 0));
    conn_busy(&testers[1].conn, 50);
    conn_busy(&testers[1].conn, 120);
    conns_sweep(&conns, 149, false);
    assert_false(testers[1].shut);
    conns_sweep(&conns, 150, false);
    assert_true(testers[1].shut);
    conns_sweep(&conns, 999, false);
    assert_false(testers[0].shut);
    conns_sweep(&conns, 1000, false);
    assert_true(testers[0].shut);
    assert_int_equal(conns.overdue, 2);
    /* Its owner may not have noticed yet. */
    conn_idle(&testers[0].conn, 1001);
    conn_leave(&testers[0].conn);
    end(&conns);
}

/* Each connection gets one turn, however often the loop is late, and another one for what it does next. */
/* The time of a stream begins anew with each call, and is 5 s at least; it gives way to nobody. */
static void streams(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 2, 2);
    assert_true(enter(&conns, 0, "192.0.2.1", 0));
    assert_true(enter(&conns, 1, "192.0.2.2", 0));
    for (int i = 0; i < 2; i++) {
        conn_busy(&testers[i].conn, 0);
        conn_complete(&testers[i].conn);
        conn_stream(&testers[i].conn, 50);
    }
    assert_false(enter(&conns, 2, "192.0.2.3", 60));
    conn_stream(&testers[0].conn, 120);
    conns_sweep(&conns, 5049, false);
    assert_false(testers[1].shut);
    conns_sweep(&conns, 5050, false);
    assert_true(testers[1].shut);
    assert_false(testers[0].shut);
    assert_true(enter(&conns, 2, "192.0.2.3", 5060));
    conn_idle(&testers[0].conn, 5070); /* it is over */
    conns_shut_streams(&conns);
    assert_false(testers[0].shut);
    conn_stream(&testers[0].conn, 5080);
    conns_shut_streams(&conns);
    assert_true(testers[0].shut);
    assert_false(testers[2].shut);
    end(&conns);
}

static void late_sweeps(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 10, 10);
    assert_true(enter(&conns, 0, "192.0.2.1", 0));
    assert_true(enter(&conns, 1, "192.0.2.1", 0));
    conns_sweep(&conns, 2000, true);
    assert_true(enter(&conns, 2, "192.0.2.1", 2000));
    conn_idle(&testers[1].conn, 2100);
    conns_sweep(&conns, 4000, true);
    assert_true(testers[0].shut);
    assert_false(testers[1].shut || testers[2].shut);
    conns_sweep(&conns, 4001, false);
    assert_true(testers[1].shut && testers[2].shut);
    assert_int_equal(conns.overdue, 3);
    end(&conns);
}

/* A connection that is used often stays where it is in the lists for a while. Its timeout counts from its last use all the
 * same, and so does who gives way, to within a quarter of a second. */
static void used_often(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 3, 3);
    for (int i = 0; i < 3; i++)
        assert_true(enter(&conns, i, "192.0.2.1", i));
    const struct conn *first = conns.lists[CONN_IDLE].first;
    conn_idle(&testers[0].conn, 100);
    conn_idle(&testers[0].conn, 249);
    assert_ptr_equal(conns.lists[CONN_IDLE].first, first);
    conns_sweep(&conns, 1001, false);
    assert_false(testers[0].shut);
    assert_true(testers[1].shut);
    assert_false(testers[2].shut);
    conns_sweep(&conns, 1248, false);
    assert_false(testers[0].shut);
    assert_true(testers[2].shut);
    conns_sweep(&conns, 1249, false);
    assert_true(testers[0].shut);
    /* After that while it moves. */
    for (int i = 3; i < 6; i++)
        assert_true(enter(&conns, i, "192.0.2.1", 2000));
    for (int64_t ms = 2000; ms <= 2900; ms += 50)
        conn_idle(&testers[3].conn, ms);
    assert_true(enter(&conns, 6, "192.0.2.1", 2900));
    assert_true(testers[4].shut);
    assert_true(enter(&conns, 7, "192.0.2.2", 2901));
    assert_true(testers[5].shut);
    assert_false(testers[3].shut);
    /* A change of state moves it at once. */
    conn_busy(&testers[3].conn, 2902);
    conn_complete(&testers[3].conn);
    conn_idle(&testers[3].conn, 2903);
    assert_ptr_equal(conns.lists[CONN_IDLE].last, &testers[3].conn);
    end(&conns);
}

/* A changed limit counts for those that are there, too. */
static void shorter_limits(void **state)
{
    (void)state;
    struct conns conns;
    begin(&conns, 10, 10);
    assert_true(enter(&conns, 0, "192.0.2.1", 0));
    conns.limits.idle_ms = 50;
    assert_true(enter(&conns, 1, "192.0.2.1", 30));
    conns_sweep(&conns, 60, false);
    assert_true(testers[0].shut);
    assert_false(testers[1].shut);
    conns_sweep(&conns, 80, false);
    assert_true(testers[1].shut);
    end(&conns);
}

/* Random steps beside a plain model of the same: an array in the order of idleness. */
static void against_a_model(void **state)
{
    (void)state;
    enum { STEPS = 20000, MOST = 20, MOST_PER_ADDRESS = 6, ADDRESSES = 200 };
    struct conns conns;
    unsigned seed = 7, per_address[ADDRESSES] = { 0 }, address_of[CONNS] = { 0 }, total = 0;
    begin(&conns, MOST, MOST_PER_ADDRESS);
    memset(testers, 0, sizeof testers);
    for (int step = 0; step < STEPS; step++) {
        int i = rand_r(&seed) % CONNS;
        struct conn *conn = &testers[i].conn;
        if (conn->conns) {
            int what = rand_r(&seed) % 8;
            if (what == 0)
                conn_leave(conn);
            else
                (what < 7 ? conn_busy : conn_idle)(conn, step);
            if (what > 1)
                conn_complete(conn);
        } else {
            char text[32];
            address_of[i] = (unsigned)rand_r(&seed) % (step % 1000 < 500 ? 4 : ADDRESSES);
            snprintf(text, sizeof text, "10.0.%u.1", address_of[i]);
            bool entered = enter(&conns, i, text, step);
            assert_true(entered || conns.lists[CONN_IDLE].first == NULL || per_address[address_of[i]] >= MOST_PER_ADDRESS);
        }
        conns_sweep(&conns, step, false);
        memset(per_address, 0, sizeof per_address);
        total = 0;
        for (int k = 0; k < CONNS; k++)
            if (testers[k].conn.conns) {
                total++;
                assert_true(++per_address[address_of[k]] <= MOST_PER_ADDRESS);
                assert_false(testers[k].shut);
                assert_true(step - testers[k].conn.since_ms < (testers[k].conn.state == CONN_IDLE ? 1000 : 100));
            }
        assert_int_equal(total, conns.count);
        assert_true(total <= MOST);
        for (int list = 0; list < CONN_STATES; list++)
            for (const struct conn *c = conns.lists[list].first; c; c = c->next) {
                assert_true(!c->next || c->listed_ms <= c->next->listed_ms);
                assert_true(c->listed_ms <= c->since_ms && c->since_ms - c->listed_ms < 250);
            }
    }
    assert_true(conns.overdue > 0 && conns.gave_way > 0 && conns.turned_away > 0);
    end(&conns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longest_idle_gives_way),
        cmocka_unit_test(busy_ones_do_not),
        cmocka_unit_test(slow_senders_give_way),
        cmocka_unit_test(one_address_is_bounded),
        cmocka_unit_test(ipv6_is_counted_by_its_network),
        cmocka_unit_test(local_ones),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(streams),
        cmocka_unit_test(late_sweeps),
        cmocka_unit_test(used_often),
        cmocka_unit_test(shorter_limits),
        cmocka_unit_test(against_a_model),
    };
    return cmocka_run_group_tests_name("serve/conns", tests, NULL, NULL);
}
