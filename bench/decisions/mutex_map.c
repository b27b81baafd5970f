/* What weir is compared with: a hash map in 64 parts, each with a mutex, doing the same arithmetic. Made as one would make
 * it who wants it fast: parts and mutexes on cache lines of their own, all memory taken beforehand, 32 bytes an entry.
 *
 * Two kinds: with entries in chains (as the maps of most standard libraries, and as anything that must give entries back),
 * and with open addressing, which cannot easily give back, but finds an entry with one cache miss less. */
#include <pthread.h>
#include <stdlib.h>

#include "decisions/bench.h"
#include "limit/take.h"

enum { PARTS = 64 };

struct entry {
    uint64_t key; /* 0: free, in open addressing */
    struct limit_state state;
    uint32_t next; /* of the chain, counted from 1; 0: none */
};

struct part {
    _Alignas(64) pthread_mutex_t lock;
    uint32_t *heads; /* of chains */
    struct entry *entries;
    uint64_t mask;
    uint32_t used;
};

struct bench_map {
    struct part parts[PARTS];
    const struct limit *limit;
    bool open;
};

/* Keys are hashes already: its lowest bits choose the part, its highest the place in it. */
static struct part *part_of(struct bench_map *map, uint64_t key)
{
    return &map->parts[key % PARTS];
}

static uint64_t place_of(const struct part *p, uint64_t key)
{
    return key >> 8 & p->mask;
}

static inline struct entry *find_chained(const struct part *p, uint64_t key)
{
    for (uint32_t i = p->heads[place_of(p, key)]; i; i = p->entries[i - 1].next)
        if (p->entries[i - 1].key == key)
            return &p->entries[i - 1];
    return NULL;
}

static inline struct entry *find_open(const struct part *p, uint64_t key)
{
    for (uint64_t i = place_of(p, key);; i = (i + 1) & p->mask)
        if (p->entries[i].key == key || p->entries[i].key == 0)
            return &p->entries[i];
}

static struct entry *add(const struct bench_map *map, struct part *p, uint64_t key)
{
    if (map->open) {
        struct entry *e = find_open(p, key);
        e->key = key;
        return e;
    }
    uint32_t *head = &p->heads[place_of(p, key)];
    struct entry *e = &p->entries[p->used++];
    *e = (struct entry){ .key = key, .next = *head };
    *head = p->used;
    return e;
}

/* As many places as entries or more: chains have 1 to 1.5 entries on the way to one; open addressing gets at most 3/4 full.
 */
static bool part_init(struct part *p, uint64_t entries, bool open)
{
    uint64_t places = 16;
    while (places * 3 < entries * (open ? 4 : 3))
        places *= 2;
    pthread_mutex_init(&p->lock, NULL);
    p->mask = places - 1;
    p->heads = open ? NULL : calloc(places, sizeof p->heads[0]);
    p->entries = aligned_alloc(64, (open ? places : (entries + 1) / 2 * 2) * sizeof p->entries[0]);
    if (open && p->entries)
        memset(p->entries, 0, places * sizeof p->entries[0]);
    return p->entries && (open || p->heads);
}

struct bench_map *bench_map_new(const uint64_t *pool, uint64_t count, bool open, const struct limit *limit, int64_t now_us)
{
    struct bench_map *map = aligned_alloc(64, sizeof *map);
    if (!map)
        return NULL;
    memset(map, 0, sizeof *map);
    map->limit = limit;
    map->open = open;
    uint64_t sizes[PARTS] = { 0 };
    for (uint64_t i = 0; i < count; i++)
        sizes[pool[i] % PARTS]++;
    bool ok = true;
    for (unsigned i = 0; i < PARTS; i++)
        ok = part_init(&map->parts[i], sizes[i] + 1, open) && ok;
    if (!ok) {
        bench_map_free(map);
        return NULL;
    }
    struct limit_state unused = { 0 };
    for (uint64_t i = 0; i < count; i++)
        add(map, part_of(map, pool[i]), pool[i])->state = limit_take(limit, NULL, unused, now_us, 1).next;
    return map;
}

void bench_map_free(struct bench_map *map)
{
    if (!map)
        return;
    for (unsigned i = 0; i < PARTS; i++) {
        free(map->parts[i].heads);
        free(map->parts[i].entries);
    }
    free(map);
}

static inline bool take(struct bench_map *map, uint64_t key, int64_t now_us, bool open)
{
    struct part *p = part_of(map, key);
    pthread_mutex_lock(&p->lock);
    struct entry *e = open ? find_open(p, key) : find_chained(p, key);
    struct limit_take take = limit_take(map->limit, NULL, e->state, now_us, 1);
    if (take.fits || take.rebased)
        e->state = take.next;
    pthread_mutex_unlock(&p->lock);
    return take.fits;
}

static inline void run(struct bench_worker *w, const uint64_t *keys, bool open)
{
    struct bench_map *map = w->subject;
    for (const uint64_t *end = keys + BENCH_SLICE; keys < end; keys += BENCH_TURN, w->now_us++)
        for (unsigned i = 0; i < BENCH_TURN; i++)
            w->taken += take(map, keys[i], w->now_us, open);
}

void bench_map_run(struct bench_worker *w, const uint64_t *keys)
{
    run(w, keys, false);
}

void bench_map_open_run(struct bench_worker *w, const uint64_t *keys)
{
    run(w, keys, true);
}
