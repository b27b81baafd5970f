/* A file of cells in any condition. The first byte says what the others are:
 *
 *   0  the file
 *   1  changes to a good file: offset (2 bytes), value (1); then it is as long as two more bytes say
 *   2  the cells of a file with a good header; and what is then asked of them
 *
 * A file is refused, with a reason and without a change to it, or it works: nothing that is asked of damaged cells may
 * crash, hang, or compute what C does not define. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <weir/weir.h>

#include "cells/layout.h"
#include "input.h"
#include "limit/take.h"

enum {
    BUCKETS = 2, /* every cell is a candidate of every key */
    CELLS = BUCKETS * BUCKET_CELLS,
    FILE_BYTES = CELLS_HEADER_BYTES + CELLS * CELL_BYTES,
    FILE_BYTES_MAX = 2 * FILE_BYTES,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- files ---- */

static void make_good(uint8_t *file)
{
    struct cells_header *h = (struct cells_header *)(void *)file;
    memset(file, 0, FILE_BYTES_MAX);
    memcpy(h->magic, "weircell", sizeof h->magic);
    h->version = CELLS_VERSION;
    h->header_bytes = CELLS_HEADER_BYTES;
    h->bucket_count = BUCKETS;
    h->secret = (struct hash_key){ 1, 2 };
    struct hash hash;
    hash_init(&hash, &(struct hash_key){ 0, 0 });
    hash_bytes(&hash, h, offsetof(struct cells_header, checksum));
    h->checksum = hash_final(&hash);
}

/* ---- questions ---- */

static const struct {
    enum limit_algorithm algorithm;
    uint32_t max, burst;
    int64_t per_us;
} limits[] = {
    { LIMIT_TOKEN_BUCKET, 5, 0, 60 * US_PER_S },
    { LIMIT_TOKEN_BUCKET, UINT32_MAX, 0, LIMIT_PER_MIN_US },
    { LIMIT_TOKEN_BUCKET, 1, UINT32_MAX, LIMIT_PER_MAX_US },
    { LIMIT_TOKEN_BUCKET, 7, 3, 86413 * US_PER_MS },
    { LIMIT_FIXED_WINDOW, 5, 0, 60 * US_PER_S },
    { LIMIT_FIXED_WINDOW, UINT32_MAX, 0, LIMIT_PER_MAX_US },
    { LIMIT_SLIDING_WINDOW, 5, 0, 60 * US_PER_S },
    { LIMIT_SLIDING_WINDOW, UINT32_MAX, 0, LIMIT_PER_MAX_US },
    { LIMIT_SLIDING_WINDOW, 1, 0, LIMIT_PER_MIN_US },
    { LIMIT_CALENDAR, 5, 0, 0 },
    { LIMIT_CALENDAR, 0, 0, 0 },
};

/* Mostly the key that a cell claims to be of. */
static uint64_t key_from(struct input *in, const struct cells *table)
{
    uint64_t choice = number(in, 1);
    if (choice >= CELLS)
        return number(in, 8);
    return (table->cell[choice].head >> MARK_BITS) | number(in, 1) << (64 - MARK_BITS);
}

static int64_t time_from(struct input *in, int64_t now_us)
{
    uint64_t choice = number(in, 1);
    if (choice < 128)
        return now_us;
    int64_t to = choice < 192 ? now_us + (int8_t)number(in, 1) * 7 * US_PER_MS : (int64_t)number(in, 7);
    return to & (CLOCK_END_US - 1);
}

/* A damaged table may have a key twice; which of the two is found is open then. */
static bool has_twin(const struct cells *table, const struct cells_taken *taken)
{
    size_t count = 0;
    for (size_t i = 0; i < CELLS; i++)
        count += table->cell[i].head == taken->head;
    return count > 1;
}

static void ask_one(struct input *in, struct cells *table, const struct cells_ask *ask)
{
    struct cells_look look;
    struct cells_taken taken;
    cells_look(table, ask, &look);
    limit_report(ask->limit, ask->window, look.state, ask->now_us, ask->cost);
    switch (number(in, 1) % 4) {
    case 0:
        cells_forget(table, ask->key);
        return;
    case 1:
        if (!cells_take_looked(table, ask, &look, &taken))
            return;
        break;
    default:
        if (!cells_take(table, ask, &taken))
            return;
    }
    limit_report(ask->limit, ask->window, taken.state, ask->now_us, ask->cost);
    cells_look(table, ask, &look);
    if (has_twin(table, &taken))
        return;
    assert(look.cell == taken.cell);
    assert(look.state.time == taken.state.time && look.state.data == taken.state.data && taken.state.data != 0);
    if (number(in, 1) % 4 == 0)
        cells_refund(table, ask->limit, &taken, time_from(in, ask->now_us));
}

static void ask_all(struct input *in, struct cells *table)
{
    int64_t now_us = INT64_C(1700000000000000);
    while (rest(in) > 0) {
        uint64_t choice = number(in, 1) % (sizeof limits / sizeof limits[0]);
        struct limit limit;
        limit_init(&limit, limits[choice].algorithm, limits[choice].max, limits[choice].burst, limits[choice].per_us);
        now_us = time_from(in, now_us);
        struct window day = { now_us - now_us % 86400000000, now_us - now_us % 86400000000 + 86400000000 };
        uint32_t cost = (uint32_t)number(in, number(in, 1) % 5);
        struct cells_ask ask = { key_from(in, table), &limit, &day, now_us, cost ? cost : 1 };
        ask_one(in, table, &ask);
    }
    cells_count_live(table, now_us);
    cells_stats(table);
}

/* ---- files ---- */

/* Opens what is in `file`; NULL if that was refused as it should be. */
static struct cells *open_bytes(const uint8_t *file, size_t size)
{
    static uint8_t after[FILE_BYTES_MAX];
    char path[40];
    int fd = memfd_create("cells", MFD_CLOEXEC);
    assert(fd >= 0 && pwrite(fd, file, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct cells *table = NULL;
    struct weir_error error = { 0 };
    int r = cells_open(&table, path, (struct cells_size){ .keys = 10 }, &error);
    assert((r == 0) == (table != NULL));
    assert(r == 0 || (r == WEIR_E_CELLS && strncmp(error.text, path, strlen(path)) == 0));
    assert(pread(fd, after, sizeof after, 0) == (ssize_t)size);
    /* In a file that can be used it is noted where it lies now; in what seems to be a copy also that there is one host
     * more. */
    size_t noted = table ? offsetof(struct cells_header, origin) : 0, end = table ? CELLS_HEADER_BYTES : 0;
    assert(memcmp(after, file, table ? noted : size) == 0 && (!table || memcmp(after + end, file + end, size - end) == 0));
    close(fd);
    return table;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _Alignas(128) static uint8_t file[FILE_BYTES_MAX];
    struct input in = { data, data + size };
    size_t length = FILE_BYTES;
    uint64_t mode = number(&in, 1) % 3;
    make_good(file);
    if (mode == 0) {
        length = rest(&in) < FILE_BYTES_MAX ? rest(&in) : FILE_BYTES_MAX;
        if (length)
            memcpy(file, in.at, length);
        in.at += length;
    } else if (mode == 1) {
        length = number(&in, 2) % 4 ? FILE_BYTES : number(&in, 2) % FILE_BYTES_MAX;
        for (uint64_t changes = number(&in, 1) % 8; changes > 0; changes--) {
            uint64_t at = number(&in, 2) % FILE_BYTES;
            file[at] = (uint8_t)number(&in, 1);
        }
    } else {
        size_t cells = rest(&in) < CELLS * CELL_BYTES ? rest(&in) : CELLS * CELL_BYTES;
        memcpy(file + CELLS_HEADER_BYTES, in.at, cells);
        in.at += cells;
    }
    struct cells *table = open_bytes(file, length);
    if (table)
        ask_all(&in, table);
    cells_close(table);
    return 0;
}
