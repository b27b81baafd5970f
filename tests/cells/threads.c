/* Threads on the same cells: what was admitted is never more than the limit, and is what the cells say.
 *
 * Built twice, as it is and with pauses at every step of the table (jitter.h). */
#include <pthread.h>
#include <sched.h>

#ifdef JITTER
#include "jitter.h"
enum { BUILD_SLOWER = 2 };
#else
enum { BUILD_SLOWER = 1 };
#endif

#include "support.h"

enum { THREADS = 4, PACE = SLOWER * BUILD_SLOWER };

/* Runs one function in all threads, each with its number. */
struct crew {
    void (*work)(unsigned thread, void *context);
    void *context;
};

struct member {
    const struct crew *crew;
    unsigned number;
};

static void *start_member(void *argument)
{
    struct member *m = argument;
    m->crew->work(m->number, m->crew->context);
    return NULL;
}

static void run_crew(void (*work)(unsigned, void *), void *context)
{
    struct crew crew = { work, context };
    struct member members[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        members[i] = (struct member){ &crew, i };
        assert_int_equal(pthread_create(&threads[i], NULL, start_member, &members[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- a clock that all share ---- */

/* It goes on only while nobody is further behind than this: what lies beyond CLOCK_SKEW_US is not promised. */
enum { LAG_MAX_MS = 90 };

struct shared_clock {
    int64_t now_us;
    struct {
        _Alignas(128) int64_t now_us; /* what a thread works with; INT64_MAX: nothing */
    } of[THREADS];
};

static void clock_start(struct shared_clock *clock)
{
    clock->now_us = T0_US;
    for (unsigned i = 0; i < THREADS; i++)
        clock->of[i].now_us = T0_US;
}

static int64_t clock_read(struct shared_clock *clock, unsigned thread)
{
    int64_t now = __atomic_load_n(&clock->now_us, __ATOMIC_SEQ_CST);
    __atomic_store_n(&clock->of[thread].now_us, now, __ATOMIC_SEQ_CST);
    return now;
}

static void clock_leave(struct shared_clock *clock, unsigned thread)
{
    __atomic_store_n(&clock->of[thread].now_us, INT64_MAX, __ATOMIC_SEQ_CST);
}

static void clock_advance(struct shared_clock *clock, int64_t step_us)
{
    int64_t now = __atomic_load_n(&clock->now_us, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < THREADS; i++) {
        if (__atomic_load_n(&clock->of[i].now_us, __ATOMIC_SEQ_CST) < now + step_us - LAG_MAX_MS * US_PER_MS) {
            sched_yield();
            return;
        }
    }
    __atomic_compare_exchange_n(&clock->now_us, &now, now + step_us, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* ---- few keys, hammered ---- */

enum { HOT_KEYS = 3 };

struct hammer {
    struct cells *table;
    struct limit limit;
    struct window window;
    struct shared_clock clock;
    int64_t step_us; /* 0: the clock stands still */
    unsigned long asks;
    bool refunds;
    unsigned long admitted[THREADS][HOT_KEYS];
};

static void hammer_work(unsigned thread, void *context)
{
    struct hammer *h = context;
    struct random random = { thread };
    for (unsigned long i = 0; i < h->asks; i++) {
        unsigned k = (unsigned)random_in(&random, 0, HOT_KEYS - 1);
        /* A lag of its own, as with a `now` that was read once for a batch. */
        int64_t lag = h->step_us ? random_in(&random, 0, 9) * US_PER_MS : 0;
        struct cells_ask ask = { key_of(k), &h->limit, &h->window, clock_read(&h->clock, thread) - lag, 1 };
        struct cells_taken taken;
        struct cells_look look;
        bool fits;
        if (random_one_in(&random, 2)) {
            cells_look(h->table, &ask, &look);
            fits = cells_take_looked(h->table, &ask, &look, &taken);
        } else {
            fits = cells_take(h->table, &ask, &taken);
        }
        if (fits && h->refunds && random_one_in(&random, 3))
            cells_refund(h->table, &h->limit, &taken, ask.now_us);
        else
            h->admitted[thread][k] += fits;
        if (h->step_us && random_one_in(&random, 16))
            clock_advance(&h->clock, h->step_us);
    }
    clock_leave(&h->clock, thread);
}

static unsigned long hammer_admitted(const struct hammer *h, unsigned key)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < THREADS; i++)
        sum += h->admitted[i][key];
    return sum;
}

static struct hammer *hammer_new(enum limit_algorithm algorithm, uint32_t max, int64_t per_us, int64_t step_us)
{
    struct hammer *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->table = table_of_cells(1024);
    h->limit = limit_of(algorithm, max, per_us);
    h->window = (struct window){ T0_US - US_PER_S, T0_US + 1000 * US_PER_S };
    h->step_us = step_us;
    h->asks = 300000 / PACE;
    clock_start(&h->clock);
    return h;
}

static void hammer_free(struct hammer *h)
{
    cells_close(h->table);
    free(h);
}

static uint64_t used(const struct hammer *h, unsigned key, int64_t now_us)
{
    struct limit_state state = state_in(h->table, key_of(key), &h->limit, now_us);
    return h->limit.algorithm == LIMIT_TOKEN_BUCKET ? limit_level(&h->limit, state, now_us).used : count_of(state);
}

static void test_hammer_standing_clock(void **unused)
{
    (void)unused;
    static const uint32_t maxima[] = { 1, 5, 1000, 4000000 };
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm <= LIMIT_CALENDAR; algorithm++) {
        uint64_t unit = algorithm == LIMIT_TOKEN_BUCKET ? LIMIT_TOKEN : 1;
        for (unsigned m = 0; m < sizeof maxima / sizeof maxima[0]; m++) {
            struct hammer *h = hammer_new(algorithm, maxima[m], 3600 * US_PER_S, 0);
            h->asks /= 4;
            run_crew(hammer_work, h);
            for (unsigned k = 0; k < HOT_KEYS; k++) {
                unsigned long admitted = hammer_admitted(h, k);
                assert_true(admitted <= maxima[m]);
                assert_int_equal(used(h, k, T0_US), admitted * unit);
                if (maxima[m] > 1000)
                    continue;
                assert_int_equal(admitted, maxima[m]);
                /* Nobody who came late may have left the share of an earlier state in the book. */
                assert_int_equal(book_share(cell_of(h->table, key_of(k))->book), 255);
            }
            hammer_free(h);
        }
    }
}

static void test_hammer_refunds(void **unused)
{
    (void)unused;
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm <= LIMIT_CALENDAR; algorithm++) {
        uint64_t unit = algorithm == LIMIT_TOKEN_BUCKET ? LIMIT_TOKEN : 1;
        struct hammer *h = hammer_new(algorithm, 1000, 3600 * US_PER_S, 0);
        h->refunds = true;
        run_crew(hammer_work, h);
        for (unsigned k = 0; k < HOT_KEYS; k++) {
            assert_true(hammer_admitted(h, k) <= 1000);
            assert_int_equal(used(h, k, T0_US), hammer_admitted(h, k) * unit);
        }
        hammer_free(h);
    }
}

/* A bucket that is never empty gives back at its rate from its first charge on: what was admitted less that is in use. */
static void test_hammer_bucket_moving_clock(void **unused)
{
    (void)unused;
    struct hammer *h = hammer_new(LIMIT_TOKEN_BUCKET, 1000, 10 * US_PER_S, 2 * US_PER_MS);
    for (unsigned k = 0; k < HOT_KEYS; k++)
        h->admitted[0][k] = take(h->table, key_of(k), &h->limit, T0_US, 1000) ? 1000 : 0;
    run_crew(hammer_work, h);
    for (unsigned k = 0; k < HOT_KEYS; k++) {
        int64_t end = h->clock.now_us + US_PER_S;
        uint64_t back = (uint64_t)(end - T0_US) * LIMIT_TOKEN / 10000;
        uint64_t charged = hammer_admitted(h, k) * LIMIT_TOKEN;
        uint64_t left = charged > back ? charged - back : 0;
        assert_true(charged <= 1000 * LIMIT_TOKEN + (uint64_t)(h->clock.now_us - T0_US) * LIMIT_TOKEN / 10000);
        assert_int_equal(used(h, k, end), left);
    }
    hammer_free(h);
}

/* ---- cells that change hands all the time ---- */

/* Few cells, more keys than fit at once, each window short and then decayed: so a cell is taken from one key and given to
 * another again and again, while the first one may just be coming back. The keys in use at a time move on with the clock,
 * so that no live cell is ever dropped; then each window of each key has to be exact. */
enum {
    HANDS_KEYS = 64, /* come back after 32 groups */
    HANDS_AT_ONCE = 4,
    HANDS_GROUP_MS = 40,
    HANDS_PER_MS = 100, /* a lag must be shorter than the period, or the window looks like one of a clock that was wrong */
    HANDS_MAX = 3,
    HANDS_CELLS = 32,
};

struct admission {
    uint32_t key, count;
    int64_t end_us;
    struct cell *cell;
    uint64_t head;
};

struct hands {
    struct cells *table;
    struct limit limit;
    struct shared_clock clock;
    unsigned long asks;
    struct admission *all;
    struct {
        _Alignas(128) struct admission *log;
        size_t logged;
    } of[THREADS];
};

static struct hands *hands_new(uint32_t max, int64_t per_us, unsigned long asks)
{
    struct hands *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->table = table_of_cells(HANDS_CELLS);
    h->limit = limit_of(LIMIT_FIXED_WINDOW, max, per_us);
    h->asks = asks;
    h->all = calloc(THREADS * asks, sizeof *h->all);
    assert_non_null(h->all);
    for (unsigned i = 0; i < THREADS; i++)
        h->of[i].log = h->all + i * asks;
    clock_start(&h->clock);
    return h;
}

static void hands_free(struct hands *h)
{
    cells_close(h->table);
    free(h->all);
    free(h);
}

static void hands_ask(struct hands *h, unsigned thread, uint32_t key, int64_t now_us)
{
    struct cells_ask ask = { key_of(key), &h->limit, NULL, now_us, 1 };
    struct cells_taken taken;
    if (cells_take(h->table, &ask, &taken))
        h->of[thread].log[h->of[thread].logged++] =
            (struct admission){ key, count_of(taken.state), limit_state_end(taken.state), taken.cell, taken.head };
}

/* Puts the logs behind each other; how many admissions there are. */
static size_t hands_gather(struct hands *h)
{
    size_t n = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        memmove(h->all + n, h->of[i].log, h->of[i].logged * sizeof *h->all);
        n += h->of[i].logged;
    }
    return n;
}

static void hands_work(unsigned thread, void *context)
{
    struct hands *h = context;
    struct random random = { 100 + thread };
    for (unsigned long i = 0; i < h->asks; i++) {
        int64_t now = clock_read(&h->clock, thread);
        uint32_t group = (uint32_t)((now - T0_US) / (HANDS_GROUP_MS * US_PER_MS));
        uint32_t key = (group * HANDS_AT_ONCE / 2 + (uint32_t)random_in(&random, 0, HANDS_AT_ONCE - 1)) % HANDS_KEYS;
        hands_ask(h, thread, key, now);
        if (random_one_in(&random, 8))
            clock_advance(&h->clock, random_in(&random, 1, 10) * US_PER_MS);
    }
    clock_leave(&h->clock, thread);
}

static int compare_admissions(const void *a, const void *b)
{
    const struct admission *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->end_us != y->end_us)
        return x->end_us < y->end_us ? -1 : 1;
    return x->count < y->count ? -1 : x->count > y->count;
}

/* A key's windows do not overlap, and within each the charges count 1, 2, 3: one more or less says that somebody was
 * charged for somebody else, or twice, or not at all. */
static void check_admissions(struct admission *all, size_t n, uint32_t max, int64_t per_us)
{
    qsort(all, n, sizeof *all, compare_admissions);
    for (size_t i = 0; i < n; i++) {
        const struct admission *a = &all[i], *before = a - 1;
        bool same_key = i > 0 && before->key == a->key, same = same_key && before->end_us == a->end_us;
        if (a->count > max || a->count != (same ? before->count + 1 : 1))
            fail_msg("key %u was charged a %u where the one before was %u", a->key, a->count, same ? before->count : 0);
        if (same_key && !same && a->end_us - per_us < before->end_us)
            fail_msg("windows of key %u overlap by %d us", a->key, (int)(before->end_us - (a->end_us - per_us)));
    }
}

static void test_cells_change_hands(void **unused)
{
    (void)unused;
    struct hands *h = hands_new(HANDS_MAX, HANDS_PER_MS * US_PER_MS, 500000 / PACE);
    run_crew(hands_work, h);
    size_t n = hands_gather(h);
    assert_int_equal(cells_stats(h->table).drops, 0);
    check_admissions(h->all, n, HANDS_MAX, h->limit.per_us);
    print_message("# %zu charges in the time of %d windows\n", n, (int)((h->clock.now_us - T0_US) / h->limit.per_us));
    hands_free(h);
}

/* Far too few cells: almost every charge takes its cell from a living one, and the clock runs so fast that whoever is
 * interrupted finds its reservation old and gone. A key may then have many cells one after another, but whatever is charged
 * to one of them must be there: from the cell's first charge on they count 1, 2, 3. */
static void scramble_work(unsigned thread, void *context)
{
    struct hands *h = context;
    struct random random = { 300 + thread };
    for (unsigned long i = 0; i < h->asks; i++) {
        int64_t step = random_one_in(&random, 4) ? 1200 * US_PER_MS : 1;
        int64_t now = __atomic_add_fetch(&h->clock.now_us, step, __ATOMIC_SEQ_CST);
        hands_ask(h, thread, (uint32_t)random_in(&random, 0, HANDS_KEYS - 1), now);
    }
}

static int compare_lives(const void *a, const void *b)
{
    const struct admission *x = a, *y = b;
    if (x->cell != y->cell)
        return x->cell < y->cell ? -1 : 1;
    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    return compare_admissions(a, b);
}

static void check_lives(struct admission *all, size_t n)
{
    qsort(all, n, sizeof *all, compare_lives);
    for (size_t i = 0; i < n; i++) {
        const struct admission *x = &all[i], *before = x - 1;
        bool same = i > 0 && before->cell == x->cell && before->head == x->head && before->end_us == x->end_us;
        if (x->count > HANDS_MAX || x->count != (same ? before->count + 1 : 1))
            fail_msg("key %u was charged a %u where the one before was %u", x->key, x->count, same ? before->count : 0);
    }
}

/* Whoever came too late must not have written over a head or a book, and no key has two cells. */
static void check_table(const struct cells *table)
{
    const struct cell *c, *d, *end = table->cell + table->bucket_count * BUCKET_CELLS;
    for (c = table->cell; c < end; c++) {
        if (state_tag(c->state) != CELL_LIVE)
            continue;
        assert_int_equal(head_gen(c->head), state_gen(c->state));
        assert_int_equal(book_gen(c->book), state_gen(c->state));
        for (d = table->cell; d < c; d++)
            assert_false(state_tag(d->state) == CELL_LIVE && d->head >> MARK_BITS == c->head >> MARK_BITS);
    }
}

static void test_cells_taken_from_the_living(void **unused)
{
    (void)unused;
    enum { ROUNDS = 50 };
    unsigned long long charges = 0, drops = 0;
    for (int round_number = 0; round_number < ROUNDS; round_number++) {
        struct hands *h = hands_new(HANDS_MAX, 1000000 * US_PER_S, 500000 / ROUNDS / PACE);
        run_crew(scramble_work, h);
        size_t n = hands_gather(h);
        check_lives(h->all, n);
        check_table(h->table);
        charges += n;
        drops += cells_stats(h->table).drops;
        hands_free(h);
    }
    print_message("# %llu charges, %llu drops\n", charges, drops);
}

/* ---- one key, made by all at the same time ---- */

/* All walk along the same keys, close together (who is behind finds cells made and is faster), each asking for each. Old
 * keys decay, and their cells are used again. */
enum { WALK_MAX = 3, WALK_ASKS = 2, WALK_APART = 64 };

struct walk {
    struct cells *table;
    struct limit limit;
    uint32_t keys;
    struct {
        _Alignas(128) uint32_t at;
        uint8_t *admitted;
    } of[THREADS];
};

static void walk_wait(struct walk *w, uint32_t at)
{
    for (unsigned i = 0; i < THREADS;) {
        if (__atomic_load_n(&w->of[i].at, __ATOMIC_ACQUIRE) + WALK_APART > at)
            i++;
        else
            sched_yield();
    }
}

static void walk_work(unsigned thread, void *context)
{
    struct walk *w = context;
    for (uint32_t at = 0; at < w->keys; at++) {
        __atomic_store_n(&w->of[thread].at, at, __ATOMIC_RELEASE);
        walk_wait(w, at);
        for (int i = 0; i < WALK_ASKS; i++)
            w->of[thread].admitted[at] += take(w->table, key_of(at), &w->limit, T0_US + at * US_PER_MS, 1);
    }
    __atomic_store_n(&w->of[thread].at, UINT32_MAX - WALK_APART, __ATOMIC_RELEASE);
}

static void walk(uint32_t max, uint32_t keys)
{
    struct walk w = { .keys = keys };
    w.table = table_of_cells(512);
    w.limit = limit_of(LIMIT_FIXED_WINDOW, max, 70 * US_PER_MS);
    for (unsigned i = 0; i < THREADS; i++)
        assert_non_null(w.of[i].admitted = calloc(1, keys));
    run_crew(walk_work, &w);
    for (uint32_t k = 0; k < keys; k++) {
        unsigned sum = 0;
        for (unsigned i = 0; i < THREADS; i++)
            sum += w.of[i].admitted[k];
        if (sum != max)
            fail_msg("key %u: %u admitted of %u", k, sum, max);
    }
    assert_int_equal(cells_stats(w.table).drops, 0);
    for (unsigned i = 0; i < THREADS; i++)
        free(w.of[i].admitted);
    cells_close(w.table);
}

static void test_one_key_made_by_all(void **unused)
{
    (void)unused;
    walk(1, 500000 / PACE);
    walk(WALK_MAX, 500000 / PACE);
}

/* ---- everything at once, with drops ---- */

struct mix {
    struct cells *table;
    struct limit limits[4];
    struct window window;
    unsigned long asks;
};

static void mix_work(unsigned thread, void *context)
{
    struct mix *m = context;
    struct random random = { 200 + thread };
    struct cells_taken taken = { 0 };
    const struct limit *of_taken = NULL;
    for (unsigned long i = 0; i < m->asks; i++) {
        const struct limit *limit = &m->limits[random_in(&random, 0, 3)];
        /* A limit is a part of a key. */
        uint64_t key = key_of((uint64_t)random_in(&random, 0, 99) * 4 + (uint64_t)(limit - m->limits));
        int64_t now = T0_US + (int64_t)i * 50 - random_in(&random, 0, 50000);
        struct cells_ask ask = { key, limit, &m->window, now, (uint32_t)random_in(&random, 1, 3) };
        struct cells_look look;
        switch (random_in(&random, 0, 9)) {
        case 0:
            cells_forget(m->table, key);
            break;
        case 1:
            if (of_taken)
                cells_refund(m->table, of_taken, &taken, now);
            break;
        case 2:
            cells_look(m->table, &ask, &look);
            break;
        default:
            if (cells_take(m->table, &ask, &taken))
                of_taken = limit;
        }
    }
}

static void test_everything_at_once(void **unused)
{
    (void)unused;
    struct mix m = { .asks = 400000 / PACE, .window = { T0_US - US_PER_S, T0_US + 1000 * US_PER_S } };
    m.table = table_of_cells(64);
    for (int i = 0; i < 4; i++)
        m.limits[i] = limit_of(i, 5, 50 * US_PER_MS);
    run_crew(mix_work, &m);
    check_table(m.table);
    assert_true(cells_stats(m.table).drops > 0);
    cells_close(m.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hammer_standing_clock),       cmocka_unit_test(test_hammer_refunds),
        cmocka_unit_test(test_hammer_bucket_moving_clock),  cmocka_unit_test(test_cells_change_hands),
        cmocka_unit_test(test_cells_taken_from_the_living), cmocka_unit_test(test_one_key_made_by_all),
        cmocka_unit_test(test_everything_at_once),
    };
    return cmocka_run_group_tests_name("cells/threads", tests, NULL, NULL);
}
