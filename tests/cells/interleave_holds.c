/* Reserve, settle, renew and expiry racing with each other and with plain charges, under a scheduler that may stop or kill
 * a worker at each load, store and compare-and-swap; a failure can be repeated: TEST_SEED=… of the round that is printed.
 *
 * Every worker keeps a ledger. What it was told that it holds counts from then on, until it begins to settle it or until
 * its time is over. At every instant all ledgers together are at most `max`. At the end, when all holds are over, exactly
 * what was settled and charged is used: nothing that a dead worker held is left.
 *
 * Each worker is the owner of its slots. Those of a dead one count no more, at once, and no slot of a living one is ended.
 */
#include "stepped.h"

enum {
    WORKERS_MAX = STEPPED_MAX,
    OPERATIONS_MAX = 12,
    TABLE_CELLS = 2 * BUCKET_CELLS,
    BLOCKS_MAX = 16,
    BLOCK_BYTES = 256,
    TTL_MS = 100,
};

struct scene {
    const char *name;
    unsigned workers, operations;
    uint32_t max;
    enum limit_algorithm algorithm;
    unsigned blocks; /* few: holds may become charges that stay */
    bool deaths, clock_moves, plain, renews, more;
    /* Workers are stopped for minutes, wherever they are. What they do then is done by a clock that was right long ago,
     * which ends holds of others: so only the blocks are looked at. */
    bool stops;
};

/* What a worker knows of one charge. */
struct entry {
    uint64_t amount;  /* that it counts for */
    int64_t until_us; /* 0: for good */
    bool owed;        /* it may be beyond max */
};

struct worker {
    bool done, dead;
    struct entry entries[OPERATIONS_MAX];
    unsigned count;
    uint64_t unsure; /* it may be charged for good, if the worker dies now */
};

static struct {
    const struct scene *scene;
    struct random random;
    struct cells *table;
    struct limit limit;
    int64_t clock_us;
    struct worker workers[WORKERS_MAX];
    uint64_t key, seed;
    uint32_t next_id;
} play;

static _Alignas(64) char blocks[BLOCKS_MAX * BLOCK_BYTES];

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

/* ---- owners: these take the place of owner.c ---- */

uint64_t owner_self(void)
{
    return stepped.in_worker ? OWNER_MARK | (stepped.current + 1) : 0;
}

bool owner_is_dead(uint64_t origin)
{
    return is_owner(origin) && play.workers[origin - OWNER_MARK - 1].dead;
}

/* A worker's memory of others may be wrong either way. */
bool owner_seems_dead(uint64_t origin, int64_t now_us)
{
    (void)now_us;
    bool wrong = stepped.in_worker && random_one_in(&play.random, 4);
    return is_owner(origin) && owner_is_dead(origin) != wrong;
}

/* ---- what workers do ---- */

static struct cells_ask ask_for(uint64_t cost)
{
    return (struct cells_ask){ play.key, &play.limit, NULL, play.clock_us, cost };
}

static void charge_for_good(struct worker *w, uint64_t cost)
{
    struct cells_ask ask = ask_for(cost);
    struct cells_taken taken;
    w->unsure = cost;
    bool took = cells_take(play.table, &ask, &taken);
    w->unsure = 0;
    if (took)
        w->entries[w->count++] = (struct entry){ cost, 0, false };
}

/* While it is settled it counts for nothing: it is held, or charged, or released. A hold that is over by then may be
 * charged beyond max, and is owed. If it is known by its id alone, it can be settled once, whoever
 * tries; where there was no block for it, it is a charge that stays. */
static void settle(struct worker *w, struct entry *entry, const struct cells_charged *charged, uint64_t to)
{
    int64_t until_us = entry->until_us;
    entry->amount = 0;
    w->unsure = to;
    bool settled = cells_settle(play.table, &play.limit, NULL, charged, to, play.clock_us);
    w->unsure = 0;
    bool late = play.clock_us >= until_us;
    EXPECT(settled || !charged->alone || (late && to == 0) || play.scene->blocks < BLOCKS_MAX || play.scene->stops,
           "a hold was not there");
    *entry = (struct entry){ settled || !charged->alone ? to : 0, 0, to > charged->amount || late };
    if (charged->alone && random_one_in(&play.random, 4))
        EXPECT(!cells_settle(play.table, &play.limit, NULL, charged, to, play.clock_us), "a hold was settled twice");
}

static void hold(struct worker *w)
{
    bool slot = play.limit.algorithm == LIMIT_CONCURRENT;
    uint64_t cost = slot ? 1 : (uint64_t)random_in(&play.random, 1, 3);
    struct cells_ask ask = ask_for(cost);
    struct cells_terms terms = { .id = ++play.next_id, .ttl_ms = TTL_MS };
    struct cells_taken taken;
    struct cells_look look;
    bool looks = random_one_in(&play.random, 2);
    if (looks)
        cells_look(play.table, &ask, &look);
    bool took = cells_hold(play.table, &ask, looks ? &look : NULL, &terms, &taken);
    if (!took)
        return;
    struct entry *entry = &w->entries[w->count++];
    *entry = (struct entry){ cost, ask.now_us + TTL_MS * US_PER_MS, false };
    struct cells_charged charged = { .key = ask.key,
                                     .origin = cells_origin(play.table, &play.limit, &taken),
                                     .amount = cost,
                                     .until_us = entry->until_us,
                                     .id = terms.kept ? 0 : terms.id,
                                     .alone = !terms.kept && !terms.joinable,
                                     .gen = cells_generation(&taken) };
    if (play.scene->renews && random_one_in(&play.random, 2)) {
        int64_t now_us = play.clock_us;
        if (cells_renew(play.table, &play.limit, &charged, TTL_MS, now_us))
            entry->until_us = now_us + TTL_MS * US_PER_MS;
        else
            entry->amount = 0;
    }
    if (random_one_in(&play.random, 4))
        return; /* forgotten: its time to live ends it */
    uint64_t most = play.scene->more ? cost + 2 : cost;
    settle(w, entry, &charged, slot ? 0 : (uint64_t)random_in(&play.random, 0, (int64_t)most));
}

static void work(void)
{
    struct worker *w = &play.workers[stepped.current];
    for (unsigned i = 0; i < play.scene->operations; i++)
        if (play.scene->plain && random_one_in(&play.random, 3))
            charge_for_good(w, 1);
        else
            hold(w);
    w->done = true;
}

/* ---- what holds ---- */

static uint64_t known(bool for_good)
{
    uint64_t sum = 0;
    bool slots = play.limit.algorithm == LIMIT_CONCURRENT;
    for (unsigned i = 0; i < play.scene->workers; i++)
        for (unsigned k = 0; k < play.workers[i].count && !(slots && play.workers[i].dead); k++) {
            const struct entry *e = &play.workers[i].entries[k];
            bool counts = for_good ? e->until_us == 0 : (e->until_us == 0 && !e->owed) || e->until_us > play.clock_us;
            sum += counts ? e->amount : 0;
        }
    return sum;
}

static uint64_t used_at(int64_t now_us)
{
    struct cells_ask ask = ask_for(0);
    struct cells_look look;
    ask.now_us = now_us;
    cells_look(play.table, &ask, &look);
    return play.limit.algorithm == LIMIT_CONCURRENT ? look.state.data : limit_state_count(look.state);
}

static void check_instant(void)
{
    unsigned owned = 0;
    EXPECT(play.scene->stops || known(false) <= play.limit.max, "%llu of %llu are held and used",
           (unsigned long long)known(false), (unsigned long long)play.limit.max);
    for (unsigned i = 0; i < TABLE_CELLS; i++) {
        struct held h;
        word16 s = play.table->cell[i].state;
        if (state_tag(s) == CELL_HELD)
            EXPECT(block_read(play.table, play.key, state_payload(s), &h), "cell %u names a block with another content", i);
    }
    for (unsigned i = 0; i < play.scene->blocks; i++)
        owned += ((const word16 *)(const void *)(blocks + i * BLOCK_BYTES))->high & 1;
    EXPECT(owned <= 1 + play.scene->workers, "%u blocks are claimed", owned);
}

/* Those of the living are there, and, where none had to be joined, no others. */
static void check_slots(void)
{
    uint64_t used = used_at(play.clock_us), wanted = known(false);
    EXPECT(used >= wanted, "%llu slots are used, but %llu are held", (unsigned long long)used, (unsigned long long)wanted);
    if (play.limit.max <= BLOCK_SMALL_HOLDS)
        EXPECT(used == wanted, "%llu slots are used, but only %llu are held", (unsigned long long)used,
               (unsigned long long)wanted);
}

static void check_end(void)
{
    if (play.limit.algorithm == LIMIT_CONCURRENT)
        check_slots();
    int64_t later_us = play.clock_us + 3 * TTL_MS * US_PER_MS;
    uint64_t used = used_at(later_us), least = known(true), unsure = 0;
    for (unsigned i = 0; i < play.scene->workers; i++)
        unsure += play.workers[i].unsure;
    EXPECT(used >= least, "%llu are used, but %llu were charged", (unsigned long long)used, (unsigned long long)least);
    if (play.scene->blocks == BLOCKS_MAX) /* else holds may have become charges */
        EXPECT(used <= least + unsure, "%llu are used, but only %llu were charged", (unsigned long long)used,
               (unsigned long long)(least + unsure));
}

/* ---- rounds ---- */

static void run_round(const struct scene *scene, uint64_t seed)
{
    struct cells *table = play.table;
    memset(&play, 0, sizeof play);
    memset(blocks, 0, sizeof blocks);
    play.scene = scene;
    play.seed = play.random.state = seed;
    play.table = table;
    play.clock_us = T0_US;
    play.limit = limit_of(scene->algorithm, scene->max, 600 * US_PER_S);
    play.key = key_of(random_u64(&play.random));
    stepped.only_writes = random_one_in(&play.random, 2);
    memset(table->cell, 0, TABLE_CELLS * sizeof *table->cell);
    table->small.base = blocks;
    table->small.count = scene->blocks;
    stepped_start(scene->workers, work, endless);
    for (unsigned left = scene->workers; left > 0;) {
        unsigned i = (unsigned)random_in(&play.random, 0, scene->workers - 1);
        if (play.workers[i].done)
            continue;
        if (scene->deaths && random_one_in(&play.random, 60)) {
            play.workers[i].done = play.workers[i].dead = true;
            left--;
            continue;
        }
        if (scene->clock_moves)
            play.clock_us += random_in(&play.random, 0, 20) * US_PER_MS;
        if (scene->stops && random_one_in(&play.random, 20))
            play.clock_us += random_in(&play.random, 1, 5) * 60 * US_PER_S;
        stepped_run(i, (unsigned)random_in(&play.random, 0, 1 << random_in(&play.random, 0, stepped.only_writes ? 4 : 8)));
        check_instant();
        left -= play.workers[i].done;
    }
    if (!scene->stops)
        check_end();
}

static const struct scene scenes[] = {
    { "holds", 4, 5, 5, LIMIT_FIXED_WINDOW, BLOCKS_MAX, .renews = true },
    { "holds and charges", 4, 6, 6, LIMIT_FIXED_WINDOW, BLOCKS_MAX, .plain = true },
    { "holds end", 4, 6, 5, LIMIT_FIXED_WINDOW, BLOCKS_MAX, .clock_moves = true, .renews = true, .plain = true },
    { "holders die", 5, 6, 5, LIMIT_FIXED_WINDOW, BLOCKS_MAX, .deaths = true, .clock_moves = true, .renews = true },
    { "holders and chargers die", 5, 8, 8, LIMIT_FIXED_WINDOW, BLOCKS_MAX, .deaths = true, .plain = true },
    { "more than was held", 4, 6, 9, LIMIT_FIXED_WINDOW, BLOCKS_MAX, .more = true, .clock_moves = true, .plain = true },
    { "few blocks", 4, 6, 6, LIMIT_FIXED_WINDOW, 3, .plain = true, .clock_moves = true },
    { "few blocks, holders die", 5, 6, 6, LIMIT_FIXED_WINDOW, 3, .deaths = true, .clock_moves = true },
    { "few blocks, holders stand still", 5, 12, 6, LIMIT_FIXED_WINDOW, 3, .stops = true, .plain = true },
    { "few blocks, holders stand still and die", 5, 12, 6, LIMIT_FIXED_WINDOW, 3, .stops = true, .deaths = true },
    { "slots", 5, 8, 3, LIMIT_CONCURRENT, BLOCKS_MAX, .renews = true },
    { "slots, holders die", 5, 8, 3, LIMIT_CONCURRENT, BLOCKS_MAX, .deaths = true, .clock_moves = true, .renews = true },
    { "slots of the dead", 5, 8, 3, LIMIT_CONCURRENT, BLOCKS_MAX, .deaths = true, .renews = true },
    { "joined slots of the dead", 5, 12, 12, LIMIT_CONCURRENT, BLOCKS_MAX, .deaths = true, .renews = true },
};

static void test_scene(void **state)
{
    play.table = table_of_cells(TABLE_CELLS);
    stepped_rounds(*state, 3000, run_round);
    cells_close(play.table);
}

int main(void)
{
    return stepped_main("cells/interleave_holds", scenes, sizeof scenes / sizeof *scenes, sizeof *scenes, test_scene);
}
