/* A saved table in any condition. The first byte says what the others are:
 *
 *   0  the file
 *   1  changes to a good file, one byte each: offset (2 bytes), value (1)
 *   2  the entries of records with good checksums: as many bytes as two bytes say, for each
 *
 * A file is refused, with a reason and without a table, or there is a table that can be opened and asked: nothing in the
 * file may crash, hang, write outside of the table, or compute what C does not define. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <weir/weir.h>

#include "cells/saved_layout.h"
#include "input.h"
#include "limit/take.h"

enum { BUCKETS = 2, LINES = BUCKETS * BUCKET_LINES, FILE_BYTES_MAX = 64 << 10 };
#define NOW_US INT64_C(1700000000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- files ---- */

struct file {
    _Alignas(16) uint8_t bytes[FILE_BYTES_MAX];
    size_t size;
    uint64_t records;
};

static const struct hash_key sums = { 3, 4 };

static void begin(struct file *f)
{
    struct saved_header h = { .magic = SAVED_MAGIC,
                              .version = SAVED_VERSION,
                              .cells_version = CELLS_VERSION,
                              .bucket_count = BUCKETS,
                              .secret = { 1, 2 },
                              .made_us = 1,
                              .sums = sums };
    h.checksum = saved_header_sum(&h);
    memset(f, 0, sizeof *f);
    memcpy(f->bytes, &h, sizeof h);
    f->size = SAVED_ALIGN;
}

static void add_record(struct file *f, const void *entries, size_t bytes)
{
    size_t room = saved_record_room(bytes);
    if (bytes == 0 || f->size + room > sizeof f->bytes)
        return;
    struct saved_record *r = (struct saved_record *)(void *)(f->bytes + f->size);
    *r = (struct saved_record){ .magic = RECORD_MAGIC, .number = ++f->records, .at_us = NOW_US, .bytes = bytes };
    memcpy(r + 1, entries, bytes);
    r->checksum = saved_record_sum(r, &sums);
    f->size += room;
}

/* Two lines with counts, one of them with a hold, and then the first again. */
static void make_good(struct file *f)
{
    uint64_t key = 7, gen = 3, head = head_of(key, gen), book = book_make(NOW_US + US_PER_S, gen, 9);
    word16 s = state_make((struct limit_state){ 1, 5 }, gen, CELL_HELD);
    const uint64_t entries[] = {
        UINT64_C(1) << ENTRY_KIND_BITS | ENTRY_LINE,
        head,
        book,
        s.low,
        s.high,
        0,
        0,
        0,
        0,
        /* the hold */
        UINT64_C(2) << ENTRY_KIND_BITS | ENTRY_HELD,
        key,
        NOW_US,
        5,
        1,
        0,
        1,
        NOW_US + US_PER_S,
        NOW_US,
        5,
        hold_terms(1, 1000),
    };
    add_record(f, entries, sizeof entries);
    add_record(f, entries, sizeof entries);
}

static void make(struct input *in, struct file *f)
{
    uint64_t mode = number(in, 1) % 3;
    begin(f);
    if (mode == 0) {
        f->size = rest(in) < sizeof f->bytes ? rest(in) : sizeof f->bytes;
        memcpy(f->bytes, in->at, f->size);
    } else if (mode == 1) {
        make_good(f);
        while (rest(in) > 0) {
            size_t at = number(in, 2);
            uint8_t value = (uint8_t)number(in, 1);
            if (at < f->size)
                f->bytes[at] = value;
        }
    } else
        while (rest(in) > 2) {
            size_t wanted = number(in, 2), bytes = (wanted < rest(in) ? wanted : rest(in)) & ~(size_t)7;
            add_record(f, in->at, bytes);
            in->at += bytes;
            number(in, 1);
        }
}

/* ---- questions ---- */

static void ask_all(struct cells *table)
{
    struct limit limit;
    limit_init(&limit, LIMIT_FIXED_WINDOW, 5, 0, 60 * US_PER_S);
    for (size_t i = 0; i < BUCKETS * BUCKET_CELLS; i++) {
        struct cells_ask ask = { table->cell[i].head >> MARK_BITS, &limit, NULL, NOW_US, 1 };
        struct cells_taken taken;
        struct cells_terms terms = { .id = 9, .ttl_ms = 1000 };
        cells_holds(table, ask.key, &limit, NOW_US);
        cells_take(table, &ask, &taken);
        cells_hold(table, &ask, NULL, &terms, &taken);
    }
    cells_count_live(table, NOW_US);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct file file;
    struct input in = { data, data + size };
    char saved[40], path[300];
    const char *tmp = getenv("TMPDIR");
    struct cells_restored restored;
    struct weir_error error = { 0 };
    make(&in, &file);
    int fd = memfd_create("saved", MFD_CLOEXEC);
    assert(fd >= 0 && pwrite(fd, file.bytes, file.size, 0) == (ssize_t)file.size);
    snprintf(saved, sizeof saved, "/proc/self/fd/%d", fd);
    snprintf(path, sizeof path, "%s/weir-fuzz-saved-%d",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm"
             : tmp                         ? tmp
                                           : "/tmp",
             (int)getpid());
    int r = cells_restore(saved, path, NOW_US, &restored, &error);
    if (r < 0) {
        assert((r == WEIR_E_CELLS || r == WEIR_E_SYSTEM) && error.text[0] && access(path, F_OK) < 0);
    } else {
        struct cells *table = NULL;
        assert(cells_open(&table, path, (struct cells_size){ 0 }, &error) == 0);
        assert(table->bucket_count == BUCKETS || file.bytes[0] == 'w');
        if (table->bucket_count == BUCKETS)
            ask_all(table);
        cells_close(table);
        unlink(path);
    }
    close(fd);
    return 0;
}
