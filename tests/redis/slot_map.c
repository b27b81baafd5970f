/* The map of a cluster: hash slots, and what nodes say of where they are. Nothing is connected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "redis/slot_map.h"

static struct store *store;

static struct node *seed(void)
{
    return store->nodes[0];
}

/* A store without threads. */
static int start(void **state)
{
    (void)state;
    struct weir_error error;
    struct redis_address address;
    store = calloc(1, sizeof *store);
    assert_non_null(store);
    assert_int_equal(redis_address_read(&address, "redis+cluster://seed:7000", &error), 0);
    store->address = address;
    store->wake_fd = -1;
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->connect, NULL);
    assert_int_equal(cells_open(&store->cells, NULL, (struct cells_size){ .keys = 1000 }, &error), 0);
    assert_int_equal(map_new(&store->map), 0);
    assert_non_null(node_add(store, &store->address.endpoints[0]));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    nodes_free(store);
    cells_close(store->cells);
    free(store->map);
    pthread_cond_destroy(&store->connect);
    pthread_mutex_destroy(&store->lock);
    free(store);
    return 0;
}

static bool read_map(const char *text, uint64_t epoch)
{
    struct reply reply;
    assert_int_equal(reply_parse(weir_str(text), &reply), strlen(text));
    return map_read(seed(), epoch, reply);
}

static void is_at(uint16_t slot, const char *shown)
{
    const struct node *node = map_node(store, slot);
    assert_non_null(node);
    assert_string_equal(node->shown, shown);
    assert_true(atomic_load(&node->used));
}

#define A "*3\r\n$2\r\nh1\r\n:7001\r\n$2\r\nid\r\n"
#define B "*4\r\n$9\r\n127.0.0.2\r\n:7002\r\n$2\r\nid\r\n*2\r\n$8\r\nhostname\r\n$1\r\nx\r\n"
#define REPLICA "*3\r\n$2\r\nh9\r\n:7009\r\n$2\r\nid\r\n"

static void slots(void **state)
{
    (void)state;
    /* From the specification of Redis Cluster. */
    assert_int_equal(hash_slot(SV("123456789")), 0x31c3);
    assert_int_equal(hash_slot(SV("{user1000}.following")), hash_slot(SV("user1000")));
    assert_int_equal(hash_slot(SV("foo{}{bar}")), 8363);
    assert_int_equal(hash_slot(SV("foo{{bar}}zap")), hash_slot(SV("{bar")));
    assert_int_equal(hash_slot(SV("foo{bar}{zap}")), hash_slot(SV("bar")));
    assert_int_equal(hash_slot(SV("")), 0);
    assert_int_equal(hash_slot(SV("weir:1:{u1}:ocr:key")), hash_slot(SV("{u1}:ocr:key")));
}

static void a_word_for_each_slot(void **state)
{
    (void)state;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot += 97) {
        char word[8];
        hash_slot_word((uint16_t)slot, word);
        assert_int_equal(hash_slot(weir_str(word)), slot);
    }
}

static void maps(void **state)
{
    (void)state;
    assert_null(map_node(store, 5));
    assert_true(read_map("*2\r\n*4\r\n:0\r\n:99\r\n" A REPLICA "*3\r\n:100\r\n:16383\r\n" B, 5));
    is_at(0, "h1:7001");
    is_at(99, "h1:7001");
    is_at(100, "127.0.0.2:7002");
    uint16_t slots[NODES_MAX];
    map_first_slots(store, slots);
    assert_int_equal(slots[map_node(store, 99)->number], 0);
    assert_int_equal(slots[map_node(store, 200)->number], 100);
    assert_int_equal(slots[seed()->number], HASH_SLOTS);
    assert_false(atomic_load(&seed()->used)); /* it has no slot */
    assert_int_equal(atomic_load(&store->node_count), 3);

    /* One master has all slots but one. */
    assert_true(read_map("*1\r\n*3\r\n:1\r\n:16383\r\n" A, 6));
    assert_null(map_node(store, 0));
    is_at(100, "h1:7001");
    assert_false(atomic_load(&store->nodes[2]->used));
    assert_int_equal(atomic_load(&store->node_count), 3);
}

/* A node that was cut off knows an old map only. */
static void an_older_map_does_not_count(void **state)
{
    (void)state;
    assert_true(read_map("*1\r\n*3\r\n:0\r\n:16383\r\n" A, 9));
    assert_false(read_map("*1\r\n*3\r\n:0\r\n:16383\r\n" B, 8));
    is_at(7, "h1:7001");
    store->map->read_us -= 11 * US_PER_S; /* but if nobody knows a newer one for long, the cluster was made anew */
    assert_true(read_map("*1\r\n*3\r\n:0\r\n:16383\r\n" B, 1));
    is_at(7, "127.0.0.2:7002");
}

/* The one that was asked is meant where a node does not say its address. */
static void addresses_that_are_not_said(void **state)
{
    (void)state;
    assert_true(
        read_map("*2\r\n*3\r\n:0\r\n:9\r\n*2\r\n$-1\r\n:7001\r\n*3\r\n:10\r\n:16383\r\n*2\r\n$0\r\n\r\n:7002\r\n", 1));
    is_at(0, "seed:7001");
    is_at(10, "seed:7002");
    assert_true(read_map("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\n?\r\n:7003\r\n", 1));
    is_at(0, "seed:7003");
}

static void maps_that_are_not_valid(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "*0\r\n",
        "+OK\r\n",
        ":1\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n" A,
        "*1\r\n*3\r\n:5\r\n:4\r\n" A,
        "*1\r\n*3\r\n:-1\r\n:4\r\n" A,
        "*1\r\n*2\r\n:0\r\n:4\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*0\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$2\r\nh1\r\n:65536\r\n",
        "*2\r\n*3\r\n:0\r\n:4\r\n" A "*1\r\n:9\r\n",
    };
    assert_true(read_map("*1\r\n*3\r\n:0\r\n:16383\r\n" A, 1));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(read_map(wrong[i], 2));
        is_at(3, "h1:7001");
    }
}

static void targets(void **state)
{
    (void)state;
    assert_true(read_map("*2\r\n*3\r\n:0\r\n:99\r\n" A "*3\r\n:100\r\n:16383\r\n*2\r\n$3\r\n::1\r\n:7002\r\n", 5));
    const struct node *first = map_node(store, 0), *second = map_node(store, 100);
    assert_ptr_equal(map_read_target(seed(), SV("3999 h1:7001"), false), first);
    assert_ptr_equal(map_read_target(seed(), SV("3999 ::1:7002"), false), second);
    assert_ptr_equal(map_read_target((struct node *)first, SV("3999 :7001"), false), first);
    assert_null(map_read_target(seed(), SV("3999 h2:7001"), false));
    assert_null(map_read_target(seed(), SV("3999 h1:7001x"), false));
    assert_null(map_read_target(seed(), SV("16384 h1:7001"), false));
    assert_null(map_read_target(seed(), SV("3999"), false));
    assert_null(map_read_target(seed(), SV(""), false));
    assert_null(map_read_target(seed(), SV("1 seed:7000"), false)); /* it is not used any more */
    map_set(store, 5, second);
    assert_ptr_equal(map_node(store, 5), second);
    assert_int_equal(map_epoch(SV("a:1\r\ncluster_current_epoch:17\r\nb:2\r\n")), 17);
    assert_int_equal(map_epoch(SV("cluster_current_epoch:x\r\n")), 0);
    assert_int_equal(map_epoch(SV("")), 0);
}

/* The map does not mention a node that is about to get its first slot: ASK does. */
static void newcomers(void **state)
{
    (void)state;
    const char *map = "*1\r\n*3\r\n:0\r\n:16383\r\n" A;
    int64_t now_us = clock_steady_us();
    assert_true(read_map(map, 5));
    assert_null(map_read_target(seed(), SV("3999 h9:7009"), false));
    assert_null(map_add_newcomer(store, now_us));
    assert_null(map_read_target(seed(), SV("3999 h9:7009"), true));
    struct node *node = map_add_newcomer(store, now_us);
    assert_non_null(node);
    assert_null(map_add_newcomer(store, now_us));
    assert_ptr_equal(map_read_target(seed(), SV("3999 h9:7009"), true), node);
    assert_true(read_map(map, 5));
    assert_true(atomic_load(&node->used));
    /* Calls for its first slot wait until it is connected to, or cannot be. */
    map_set(store, 5, node);
    assert_true(node_takes_calls(node) && !node_up(node));
    node_failed(node, "a test", 1);
    assert_false(node_takes_calls(node));
    /* Nothing was sent there for long: the slot was not moved after all. */
    atomic_store(&node->asked_us, now_us - 6 * US_PER_S);
    assert_true(read_map(map, 5));
    assert_false(atomic_load(&node->used));
}

static void moving(void **state)
{
    (void)state;
    map_set_moving(store, 77);
    assert_true(map_is_moving(store, 77));
    assert_false(map_is_moving(store, 78));
    map_sweep(store, clock_steady_us());
    assert_true(map_is_moving(store, 77));
    map_sweep(store, clock_steady_us() + 6 * US_PER_S);
    assert_false(map_is_moving(store, 77));
}

/* The places of masters that have left are used again. */
/* Entries of nodes that have left are used again: one for the master, one for its successor, and the seed's. */
static void masters_with_new_addresses_for_ever(void **state)
{
    (void)state;
    char text[128];
    for (int i = 1; i < 3 * NODES_MAX; i++) {
        snprintf(text, sizeof text, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$5\r\n%05d\r\n:7001\r\n", i);
        assert_true(read_map(text, 1));
        snprintf(text, sizeof text, "%05d:7001", i);
        is_at(9, text);
    }
    assert_int_equal(atomic_load(&store->node_count), 3);
    assert_string_equal(seed()->shown, "seed:7000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slots, start, stop),
        cmocka_unit_test_setup_teardown(a_word_for_each_slot, start, stop),
        cmocka_unit_test_setup_teardown(maps, start, stop),
        cmocka_unit_test_setup_teardown(an_older_map_does_not_count, start, stop),
        cmocka_unit_test_setup_teardown(addresses_that_are_not_said, start, stop),
        cmocka_unit_test_setup_teardown(maps_that_are_not_valid, start, stop),
        cmocka_unit_test_setup_teardown(targets, start, stop),
        cmocka_unit_test_setup_teardown(newcomers, start, stop),
        cmocka_unit_test_setup_teardown(moving, start, stop),
        cmocka_unit_test_setup_teardown(masters_with_new_addresses_for_ever, start, stop),
    };
    return cmocka_run_group_tests_name("redis/slot_map", tests, NULL, NULL);
}
