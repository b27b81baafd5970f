/* The ring of the newest refusals: how many it takes, their order over rings, and what is kept of a request. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "refused/recent.h"

#define S US_PER_S
#define NOW (INT64_C(1763200000) * S)

static struct recent *new_recent(unsigned slots)
{
    struct recent *recent;
    assert_int_equal(recent_new(&recent, slots), 0);
    return recent;
}

static void add(struct recent *recent, const char *rule, unsigned value, int64_t now_us)
{
    struct recent_refusal *r = recent_add(recent, now_us);
    r->subject = (struct subject){ .rule_len = (uint8_t)strlen(rule) };
    memcpy(r->subject.text, rule, strlen(rule));
    r->request.cost = value;
}

static struct recent_list collect(struct recent **recents, size_t count, uint64_t after, sv rule, unsigned most)
{
    struct recent_list list = { 0 };
    uint64_t until = recent_newest();
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(recent_list_reserve(&list, most), 0);
        recent_collect(recents[i], after, until, rule, most, &list);
    }
    recent_list_sort(&list);
    for (size_t i = 1; i < list.count; i++)
        assert_true(list.entries[i - 1].number > list.entries[i].number);
    return list;
}

static void the_newest_of_two_rings(void **state)
{
    (void)state;
    struct recent *recents[] = { new_recent(5), new_recent(5) };
    for (unsigned i = 0; i < 20; i++)
        add(recents[i % 2], i % 4 < 2 ? "a" : "b", i, NOW + i);
    struct recent_list list = collect(recents, 2, 0, SV(""), 100);
    assert_int_equal(list.count, 10); /* the last five of each */
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(list.entries[i].request.cost, 19 - i);
    uint64_t after = list.entries[2].number;
    recent_list_done(&list);

    list = collect(recents, 2, after, SV(""), 100);
    assert_int_equal(list.count, 2);
    recent_list_done(&list);
    list = collect(recents, 2, 0, SV("b"), 100);
    for (size_t i = 0; i < list.count; i++)
        assert_true(list.entries[i].request.cost % 4 >= 2);
    assert_int_equal(list.count, 6);
    recent_list_done(&list);
    list = collect(recents, 2, 0, SV(""), 2); /* of each */
    assert_int_equal(list.count, 4);
    assert_int_equal(list.entries[0].request.cost, 19);
    recent_list_done(&list);
    list = collect(recents, 2, recent_newest(), SV(""), 100);
    assert_int_equal(list.count, 0);
    recent_list_done(&list);
    recent_free(recents[0]);
    recent_free(recents[1]);
}

/* Numbers rise although the clock does not. */
static void a_clock_that_steps_back(void **state)
{
    (void)state;
    struct recent *recent = new_recent(10);
    add(recent, "a", 1, NOW + 100 * S);
    add(recent, "a", 2, NOW);
    add(recent, "a", 3, NOW);
    struct recent_list list = collect(&recent, 1, 0, SV(""), 10);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.entries[0].request.cost, 3);
    assert_int_equal(list.entries[0].at_us, NOW);
    assert_int_equal(list.entries[0].number, (uint64_t)(NOW + 100 * S) + 2);
    recent_list_done(&list);
    recent_free(recent);
}

static void so_many_a_second(void **state)
{
    (void)state;
    struct recent *recent = new_recent(10);
    unsigned one = 0, others = 0;
    for (unsigned i = 0; i < 1000; i++)
        one += recent_wants(recent, 7, NOW + i);
    assert_int_equal(one, RECENT_OF_ONE);
    assert_int_equal(recent_left_out(recent), 1000 - RECENT_OF_ONE);
    for (unsigned i = 0; i < 1000; i++)
        others += recent_wants(recent, 100 + i, NOW + S - 1);
    assert_int_equal(others, RECENT_PER_SECOND - RECENT_OF_ONE);
    assert_false(recent_wants(recent, 0, NOW + S - 1));
    assert_true(recent_leaves_out(recent, 3, NOW + S - 1));
    assert_int_equal(recent_left_out(recent), 2000 - RECENT_PER_SECOND + 4);
    assert_true(recent_wants(recent, 7, NOW + S));
    assert_true(recent_wants(recent, 7, NOW)); /* the clock was set back */
    recent_free(recent);
}

static void looking_for_subjects_has_a_bound(void **state)
{
    (void)state;
    struct recent *recent = new_recent(10);
    unsigned looks = 0, taken = 0;
    for (unsigned i = 0; i < 1000; i++)
        if (recent_wants(recent, 0, NOW)) {
            looks++;
            taken += recent_wants(recent, 7, NOW);
        }
    assert_int_equal(looks, RECENT_LOOKS);
    assert_int_equal(taken, RECENT_OF_ONE);
    assert_true(recent_wants(recent, 8, NOW)); /* whose subject is known */
    assert_true(recent_leaves_out(recent, 1, NOW));
    assert_false(recent_leaves_out(recent, 1, NOW + S));
    recent_free(recent);
}

static void what_is_kept_of_a_request(void **state)
{
    (void)state;
    char longer[2000];
    memset(longer, 'x', sizeof longer);
    struct weir_cost costs[6];
    for (size_t i = 0; i < 6; i++)
        costs[i] = (struct weir_cost){ SV("tokens"), i };
    struct weir_header header = { SV("Authorization"), SV("secret") };
    struct weir_request request = { .method = SV("GET"),
                                    .path = SV("/a?token=secret"),
                                    .ip = SV("192.0.2.1"),
                                    .peer = SV("192.0.2.2"),
                                    .user = SV("ann"),
                                    .headers = &header,
                                    .header_count = 1,
                                    .cost = 3,
                                    .costs = costs,
                                    .cost_count = 2 };
    struct recent_request kept;
    recent_fill_request(&kept, &request, SV("198.51.100.7"));
    assert_false(kept.cut);
    assert_true(sv_eq(recent_value(&kept, ATTR_PATH), SV("/a")));
    assert_true(sv_eq(recent_value(&kept, ATTR_IP), SV("198.51.100.7")));
    assert_true(sv_eq(recent_value(&kept, ATTR_USER), SV("ann")));
    assert_int_equal(recent_value(&kept, ATTR_PEER).len, 0);
    assert_int_equal(recent_value(&kept, ATTR_KEY).len, 0);
    assert_int_equal(kept.cost, 3);
    assert_int_equal(kept.cost_count, 2);
    assert_string_equal(kept.costs[1].unit, "tokens");

    request.cost_count = 6;
    recent_fill_request(&kept, &request, SV(""));
    assert_true(kept.cut && kept.cost_count == RECENT_COSTS);
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++)
        request_set(&request, i, sv_of(longer, sizeof longer));
    request.cost_count = 0;
    recent_fill_request(&kept, &request, sv_of(longer, sizeof longer));
    assert_true(kept.cut);
    assert_int_equal(recent_value(&kept, ATTR_PATH).len, RECENT_PATH_MAX);
    assert_int_equal(recent_value(&kept, ATTR_KEY).len, RECENT_VALUE_MAX);
}

/* Readers that go on from `newest` see every entry once, whatever the writers do meanwhile. */

enum { WRITERS = 3, EACH = 20000 };

static struct shared_ring {
    pthread_mutex_t lock;
    struct recent *recent;
} rings[WRITERS];
static unsigned writers_left;

static void *write_some(void *data)
{
    struct shared_ring *ring = data;
    for (unsigned i = 0; i < EACH; i++) {
        pthread_mutex_lock(&ring->lock);
        add(ring->recent, "a", (unsigned)(ring - rings), NOW);
        pthread_mutex_unlock(&ring->lock);
    }
    __atomic_sub_fetch(&writers_left, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void nothing_is_missed(void **state)
{
    (void)state;
    pthread_t threads[WRITERS];
    uint64_t after = recent_newest();
    size_t seen = 0;
    writers_left = WRITERS;
    for (int i = 0; i < WRITERS; i++) {
        pthread_mutex_init(&rings[i].lock, NULL);
        rings[i].recent = new_recent(EACH);
        assert_int_equal(pthread_create(&threads[i], NULL, write_some, &rings[i]), 0);
    }
    for (bool last = false; !last;) {
        last = __atomic_load_n(&writers_left, __ATOMIC_SEQ_CST) == 0;
        struct recent_list list = { 0 };
        uint64_t until = recent_newest();
        for (int i = 0; i < WRITERS; i++) {
            assert_int_equal(recent_list_reserve(&list, EACH), 0);
            pthread_mutex_lock(&rings[i].lock);
            recent_collect(rings[i].recent, after, until, SV(""), EACH, &list);
            pthread_mutex_unlock(&rings[i].lock);
        }
        seen += list.count;
        after = until;
        recent_list_done(&list);
    }
    assert_int_equal(seen, WRITERS * EACH);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        recent_free(rings[i].recent);
        pthread_mutex_destroy(&rings[i].lock);
    }
}

/* Those of an earlier run whose clock was ahead: later numbers are above theirs, whatever the clock says. */
static void numbers_go_on_after_a_restart(void **state)
{
    (void)state;
    struct recent *recents[] = { new_recent(3), new_recent(5) };
    struct recent_refusal *r = calloc(1, sizeof *r);
    assert_non_null(r);
    uint64_t first = recent_newest() + 1000000;
    for (unsigned i = 0; i < 5; i++) {
        r->number = first + i;
        r->request.cost = i;
        recent_restore(recents[0], r);
    }
    assert_int_equal(recent_newest(), first + 4);
    add(recents[1], "a", 5, NOW - S);
    struct recent_list list = collect(recents, 2, 0, SV(""), 100);
    assert_int_equal(list.count, 4); /* the last three, and the new one */
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(list.entries[i].request.cost, 5 - i);
    recent_list_done(&list);
    list = collect(recents, 2, first + 4, SV(""), 100);
    assert_int_equal(list.count, 1);
    recent_list_done(&list);
    free(r);
    for (int i = 0; i < 2; i++)
        recent_free(recents[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_of_two_rings),
        cmocka_unit_test(a_clock_that_steps_back),
        cmocka_unit_test(so_many_a_second),
        cmocka_unit_test(looking_for_subjects_has_a_bound),
        cmocka_unit_test(what_is_kept_of_a_request),
        cmocka_unit_test(nothing_is_missed),
        cmocka_unit_test(numbers_go_on_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
