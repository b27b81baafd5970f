/* How much memory a key takes: by the table's own account and by the system's, and whether requests make it more. */
#include <stdio.h>
#include <unistd.h>

#include "decisions/bench.h"

static uint64_t resident_bytes(void)
{
    unsigned long long size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void charge(struct cells *cells, const struct limit *limit, uint64_t keys, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        struct cells_ask ask = { bench_mix(i % keys + 1), limit, NULL, INT64_C(1800000000) * US_PER_S + (int64_t)i / 16,
                                 1 };
        struct cells_taken taken;
        cells_prefetch(cells, bench_mix((i + BENCH_TURN) % keys + 1));
        cells_take(cells, &ask, &taken);
    }
}

bool bench_resident(struct bench *bench)
{
    uint64_t keys = bench->keys_medium, requests = 10 * keys;
    struct limit limit = bench_limit(keys);
    struct cells *cells;
    struct weir_error error;
    bench_say(bench, "memory: filling a table");
    uint64_t before = resident_bytes();
    if (cells_open(&cells, NULL, (struct cells_size){ .keys = keys }, &error) < 0)
        return false;
    charge(cells, &limit, keys, 0, keys);
    uint64_t filled = resident_bytes();
    charge(cells, &limit, keys, keys, keys + requests);
    uint64_t used = resident_bytes();
    uint64_t bytes = cells_stats(cells).bytes;
    bench->memory = (struct bench_memory){
        .keys = keys,
        .table_bytes = bytes,
        .bytes_per_key = (double)bytes / (double)keys,
        .resident_per_key = ((double)filled - (double)before) / (double)keys,
        .resident_per_key_used = ((double)used - (double)before) / (double)keys,
        .requests = requests,
    };
    cells_close(cells);
    return true;
}
