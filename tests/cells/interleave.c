/* The protocol under a scheduler of our own. Its threads are coroutines, and each load and compare-and-swap is a point at
 * which another one may go on, or this one may die; which, is drawn from a seed. So the rarest orders of events come up
 * thousands of times a second, and a failure can be repeated: TEST_SEED=… of the round that is printed.
 *
 * What the memory of a real machine may do beyond that, tests/cells/threads.c looks at. */
#include "stepped.h"

enum {
    WORKERS_MAX = STEPPED_MAX,
    TABLE_CELLS = 2 * BUCKET_CELLS,
    OPERATIONS_MAX = 16,
    KEYS_MAX = 6,
    CLOCK_STEP_MS = 30,
    LAG_MAX_MS = 100 - CLOCK_STEP_MS,
};

/* What a round is about. */
struct scene {
    const char *name;
    unsigned workers, keys, operations;
    uint32_t max;
    unsigned usable;  /* cells that are not taken by others for the whole round */
    bool clock_moves; /* … and windows end */
    bool lags;        /* nobody is further behind than 100 ms: then windows are exact */
    bool deaths, refunds, forgets;
    bool stalls; /* for longer than a reservation lasts */
};

/* One life of a cell: from the generation that a key got it with. */
struct life {
    uint64_t head;
    unsigned charged, refunded;
};

/* One charge in a window. */
struct charge {
    unsigned key;
    int64_t end_us;
    uint32_t count;
};

struct worker {
    bool done;
    unsigned operation;
    int64_t now_us;
};

static struct {
    const struct scene *scene;
    struct random random;
    struct cells *table;
    struct limit limit, filler;
    int64_t clock_us;
    struct worker workers[WORKERS_MAX];
    unsigned dead;
    unsigned admitted[KEYS_MAX];
    struct life lives[TABLE_CELLS][WORKERS_MAX * OPERATIONS_MAX];
    unsigned life_count[TABLE_CELLS];
    struct charge charges[WORKERS_MAX * OPERATIONS_MAX];
    unsigned charge_count;
    uint64_t keys[KEYS_MAX], seed;
} play;

#define EXPECT(condition, ...)                                                                    \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            print_error("%s, TEST_SEED=%llu: ", play.scene->name, (unsigned long long)play.seed); \
            print_error(__VA_ARGS__);                                                             \
            print_error("\n");                                                                    \
            abort();                                                                              \
        }                                                                                         \
    } while (0)

static void endless(void)
{
    EXPECT(false, "no end of steps");
}

/* ---- what workers do ---- */

static struct life *life_of(const struct cells_taken *taken)
{
    unsigned index = (unsigned)(taken->cell - play.table->cell);
    EXPECT(index < TABLE_CELLS, "a cell outside of the table");
    unsigned *count = &play.life_count[index];
    for (unsigned i = 0; i < *count; i++) {
        struct life *life = &play.lives[index][i];
        if (head_gen(life->head) == head_gen(taken->head)) {
            EXPECT(life->head == taken->head, "one life of a cell was charged for two keys");
            return life;
        }
    }
    EXPECT(*count < WORKERS_MAX * OPERATIONS_MAX, "too many lives");
    play.lives[index][*count] = (struct life){ .head = taken->head };
    return &play.lives[index][(*count)++];
}

static void operate(struct worker *w)
{
    const struct scene *scene = play.scene;
    unsigned k = (unsigned)random_in(&play.random, 0, scene->keys - 1);
    struct cells_ask ask = { play.keys[k], &play.limit, NULL, play.clock_us, 1 };
    struct cells_taken taken = { 0 };
    struct cells_look look;
    bool look_first = random_one_in(&play.random, 3);
    w->now_us = ask.now_us;
    if (scene->forgets && random_one_in(&play.random, 6)) {
        cells_forget(play.table, ask.key);
        return;
    }
    if (look_first)
        cells_look(play.table, &ask, &look);
    if (!(look_first ? cells_take_looked(play.table, &ask, &look, &taken) : cells_take(play.table, &ask, &taken)))
        return;
    struct life *life = life_of(&taken);
    life->charged++;
    play.admitted[k]++;
    play.charges[play.charge_count++] = (struct charge){ k, limit_state_end(taken.state), count_of(taken.state) };
    if (scene->refunds && random_one_in(&play.random, 4)) {
        life->refunded++;
        cells_refund(play.table, &play.limit, &taken, play.clock_us);
    }
}

static void work(void)
{
    struct worker *w = &play.workers[stepped.current];
    for (w->operation = 0; w->operation < play.scene->operations; w->operation++)
        operate(w);
    w->done = true;
}

/* ---- what holds at every instant ---- */

static bool is_live(const struct cell *c)
{
    return state_tag(c->state) == CELL_LIVE && head_gen(c->head) == state_gen(c->state);
}

static void check_instant(void)
{
    for (unsigned i = 0; i < TABLE_CELLS; i++) {
        const struct cell *c = &play.table->cell[i];
        if (state_tag(c->state) != CELL_LIVE)
            continue;
        EXPECT(head_gen(c->head) == state_gen(c->state), "cell %u is live with a head of another generation", i);
        EXPECT(book_gen(c->book) == state_gen(c->state), "cell %u is live with a book of another generation", i);
        for (unsigned j = 0; j < i; j++) {
            EXPECT(!is_live(&play.table->cell[j]) || play.table->cell[j].head >> MARK_BITS != c->head >> MARK_BITS,
                   "cells %u and %u are live for one key", j, i);
        }
    }
}

static void check_life(unsigned i)
{
    const struct cell *c = &play.table->cell[i];
    struct limit_state payload = state_payload(c->state);
    for (unsigned k = 0; k < play.life_count[i]; k++) {
        const struct life *life = &play.lives[i][k];
        /* A life has more than one window where the clock moves; then the last one's count is a part. */
        if (life->head != c->head || play.scene->clock_moves)
            continue;
        unsigned count = count_of(payload);
        EXPECT(count <= play.limit.max, "cell %u counts %u", i, count);
        EXPECT(count <= life->charged + play.dead, "cell %u counts %u, charged %u", i, count, life->charged);
        EXPECT(count + life->refunded >= life->charged, "cell %u counts %u, charged %u", i, count, life->charged);
    }
}

static int compare_charges(const void *a, const void *b)
{
    const struct charge *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->end_us != y->end_us)
        return x->end_us < y->end_us ? -1 : 1;
    return x->count < y->count ? -1 : x->count > y->count;
}

/* A key's windows do not overlap, and within each the charges count 1, 2, 3. */
static void check_windows(void)
{
    qsort(play.charges, play.charge_count, sizeof play.charges[0], compare_charges);
    for (unsigned i = 0; i < play.charge_count; i++) {
        const struct charge *c = &play.charges[i], *before = c - 1;
        bool first = i == 0 || before->key != c->key || before->end_us != c->end_us;
        EXPECT(c->count == (first ? 1 : before->count + 1), "key %u was charged a %u where the one before was %u", c->key,
               c->count, first ? 0 : before->count);
        EXPECT(c->count <= play.limit.max, "key %u was charged a %u", c->key, c->count);
        EXPECT(!first || i == 0 || before->key != c->key || c->end_us - play.limit.per_us >= before->end_us,
               "windows of key %u overlap by %d us", c->key, (int)(before->end_us - (c->end_us - play.limit.per_us)));
    }
}

static void check_end(void)
{
    const struct scene *scene = play.scene;
    bool whole = !scene->deaths && !scene->refunds && !scene->forgets && !scene->clock_moves;
    for (unsigned i = 0; i < TABLE_CELLS; i++) {
        const struct cell *c = &play.table->cell[i];
        if (!is_live(c))
            continue;
        check_life(i);
        struct limit_outlook outlook = limit_outlook(&play.limit, state_payload(c->state), T0_US);
        EXPECT(!whole || !play.life_count[i] || book_share(c->book) == outlook.share,
               "cell %u: the book has share %u, the state %u", i, book_share(c->book), outlook.share);
    }
    bool dropped = cells_stats(play.table).drops > 0;
    EXPECT(!scene->lags || !dropped, "a live cell was dropped");
    if (scene->lags)
        check_windows();
    if (dropped || scene->clock_moves || scene->refunds || scene->forgets)
        return;
    for (unsigned k = 0; k < scene->keys; k++)
        EXPECT(play.admitted[k] <= scene->max, "key %u: %u admitted", k, play.admitted[k]);
    EXPECT(scene->keys > 1 || scene->deaths || play.admitted[0] == scene->max, "%u admitted", play.admitted[0]);
}

/* ---- rounds ---- */

/* Cells have a past: some are empty, some decayed, some were reserved by the dead, all are of some generation. */
static void furnish(void)
{
    unsigned usable = play.scene->usable;
    for (unsigned i = 0; i < TABLE_CELLS; i++) {
        struct cell *c = &play.table->cell[i];
        uint64_t gen = random_u64(&play.random) & GEN_MASK;
        uint64_t past = random_one_in(&play.random, 2) ? play.keys[0] : key_of(1000 + i);
        struct limit_state none = { 0 };
        c->head = head_of(past, (gen - 1) & GEN_MASK);
        c->book = book_make(0, (gen - 1) & GEN_MASK, 0);
        c->state = state_make(none, gen, CELL_EMPTY);
        if (random_in(&play.random, 1, TABLE_CELLS - i) > usable) {
            struct limit_count full = { T0_US + 1000 * US_PER_S, 1, UINT32_MAX, false };
            c->head = head_of(key_of(2000 + i), gen);
            c->state = state_make(limit_count_state(&full), gen, CELL_LIVE);
            c->book = book_make(INT64_MAX >> 10, gen, 255);
            continue;
        }
        usable--;
        if (random_one_in(&play.random, 3)) {
            struct limit_count old = { T0_US - US_PER_S, 1, 1, false };
            c->head = head_of(key_of(1000 + i), gen);
            c->state = state_make(limit_count_state(&old), gen, CELL_LIVE);
            c->book = book_make(T0_US - US_PER_S + CLOCK_SKEW_US, gen, 9);
        } else if (random_one_in(&play.random, 3)) {
            c->state = state_make((struct limit_state){ T0_US - 2 * RESERVED_OLD_US, 7 }, gen, CELL_RESERVED);
        }
    }
}

static void move_clock(void)
{
    const struct scene *scene = play.scene;
    for (unsigned i = 0; scene->lags && i < scene->workers; i++) {
        const struct worker *w = &play.workers[i];
        if (!w->done && w->now_us && play.clock_us - w->now_us > LAG_MAX_MS * US_PER_MS)
            return;
    }
    if (scene->stalls && random_one_in(&play.random, 8))
        play.clock_us += 2 * RESERVED_OLD_US;
    if (scene->clock_moves)
        play.clock_us += random_in(&play.random, 0, CLOCK_STEP_MS) * US_PER_MS;
}

static void run_round(const struct scene *scene, uint64_t seed)
{
    struct cells *table = play.table;
    memset(&play, 0, offsetof(typeof(play), lives));
    memset(play.life_count, 0, sizeof play.life_count);
    play.charge_count = 0;
    play.scene = scene;
    play.seed = seed;
    play.random.state = seed;
    play.table = table;
    play.clock_us = T0_US;
    stepped.only_writes = random_one_in(&play.random, 2);
    play.limit = limit_of(LIMIT_FIXED_WINDOW, scene->max, scene->clock_moves ? 100 * US_PER_MS : 600 * US_PER_S);
    table->header->drops = 0;
    for (unsigned i = 0; i < scene->keys; i++)
        play.keys[i] = key_of(random_u64(&play.random));
    furnish();
    stepped_start(scene->workers, work, endless);
    memset(play.workers, 0, sizeof play.workers);
    for (unsigned left = scene->workers; left > 0;) {
        unsigned i = (unsigned)random_in(&play.random, 0, scene->workers - 1);
        if (play.workers[i].done)
            continue;
        if (scene->deaths && random_one_in(&play.random, 50)) {
            play.workers[i].done = true;
            play.dead++;
            left--;
            continue;
        }
        move_clock();
        stepped_run(i, (unsigned)random_in(&play.random, 0, 1 << random_in(&play.random, 0, stepped.only_writes ? 3 : 7)));
        check_instant();
        left -= play.workers[i].done;
    }
    check_end();
}

static const struct scene scenes[] = {
    { "one key, one place", .workers = 4, .keys = 1, .operations = 3, .max = 1, .usable = 8 },
    { "one key, three places", .workers = 4, .keys = 1, .operations = 3, .max = 3, .usable = 8 },
    { "one key, hardly a cell", .workers = 3, .keys = 1, .operations = 3, .max = 3, .usable = 4 },
    { "one key, workers die", .workers = 5, .keys = 1, .operations = 4, .max = 4, .usable = 8, .deaths = true },
    { "one key, refunds", .workers = 4, .keys = 1, .operations = 5, .max = 3, .usable = 8, .refunds = true },
    { "few keys, no room: drops", .workers = 4, .keys = 6, .operations = 6, .max = 3, .usable = 3 },
    { "few keys, drops, forgets and refunds", .workers = 4, .keys = 5, .operations = 6, .max = 3, .usable = 4,
      .refunds = true, .forgets = true },
    { "windows end, workers lag", .workers = 4, .keys = 5, .operations = 16, .max = 3, .usable = 10, .clock_moves = true,
      .lags = true },
    { "windows end", .workers = 4, .keys = 5, .operations = 8, .max = 3, .usable = 9, .clock_moves = true },
    { "seizers stall", .workers = 4, .keys = 4, .operations = 6, .max = 3, .usable = 3, .stalls = true },
    { "seizers stall and die", .workers = 5, .keys = 3, .operations = 8, .max = 5, .usable = 4, .deaths = true,
      .stalls = true },
    { "seizers stall, windows end", .workers = 5, .keys = 4, .operations = 8, .max = 3, .usable = 5, .clock_moves = true,
      .stalls = true },
};

static void test_scene(void **state)
{
    play.table = table_of_cells(TABLE_CELLS);
    stepped_rounds(*state, 5000, run_round);
    cells_close(play.table);
}

int main(void)
{
    return stepped_main("cells/interleave", scenes, sizeof scenes / sizeof *scenes, sizeof *scenes, test_scene);
}
