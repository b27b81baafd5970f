/* Making a table of what was saved.
 *
 * Records are taken in their order, those that are damaged are left out. What a record says is not trusted for being
 * checksummed: numbers are compared with what the table has, as any byte of the cells may be anything (README.md). The
 * table has no name before it is complete. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "cells/owner.h"
#include "cells/saved_layout.h"

struct restore {
    const char *path;
    int fd;
    uint64_t file_bytes;
    int64_t now_us;
    struct saved_header header;
    struct saved_record *record; /* SAVED_RECORD_MAX bytes */
    struct held held;
    struct cells_restored *ret;
};

/* ---- entries ---- */

static void give_up_block(struct cells *cells, const struct cell *c)
{
    struct limit_state name = state_payload(c->state);
    if (state_tag(c->state) == CELL_HELD)
        block_free(cells, name, block_owner(cells, name));
}

/* A cell with holds is empty until they come. */
static void restore_cell(struct cells *cells, struct cell *c, const uint64_t *words)
{
    word16 s = { words[2], words[3] };
    give_up_block(cells, c);
    if (state_tag(s) != CELL_LIVE)
        s = as_empty(s);
    *c = (struct cell){ words[0], words[1], s };
}

static bool read_holds(struct restore *restore, const uint64_t *words, size_t left)
{
    struct held *h = &restore->held;
    h->state = (struct limit_state){ words[2] & (CLOCK_END_US - 1), words[3] };
    h->tag = words[4];
    h->ended_us = clock_within((int64_t)words[5]);
    h->windows = true;
    if (words[6] == 0 || words[6] > BLOCK_LARGE_HOLDS || left < HELD_WORDS + words[6] * HOLD_WORDS)
        return false;
    h->count = (uint32_t)words[6];
    for (uint32_t i = 0; i < h->count; i++) {
        const uint64_t *hold = words + HELD_WORDS + (size_t)i * HOLD_WORDS;
        h->holds[i] = (struct hold){ clock_within((int64_t)hold[0]), hold[1], hold[2], hold[3] };
    }
    return true;
}

static bool has_slots(const struct held *h)
{
    for (uint32_t i = 0; i < h->count; i++)
        if (h->holds[i].origin == 0 || is_owner(h->holds[i].origin))
            return true;
    return false;
}

/* If no block is free, holds become charges that stay. A slot would stay for ever: its cell is dropped. */
static void restore_holds(struct restore *restore, struct cells *cells, struct cell *c, uint64_t key)
{
    struct limit_state name;
    uint64_t claimed, gen = state_gen(c->state);
    struct limit_state state = restore->held.state;
    if (block_write(cells, key, restore->now_us, &restore->held, &name, &claimed))
        c->state = state_make(name, gen, CELL_HELD);
    else if (!has_slots(&restore->held))
        c->state = state_make(state, gen, CELL_LIVE);
    else
        restore->ret->dropped++;
}

/* Returns the words of the entry; 0 if it cannot be one. */
static size_t apply_held(struct restore *restore, struct cells *cells, const uint64_t *words, size_t left)
{
    uint64_t number = words[0] >> ENTRY_KIND_BITS;
    if (left < HELD_WORDS || number >= cells->bucket_count * BUCKET_CELLS || !read_holds(restore, words, left))
        return 0;
    size_t used = HELD_WORDS + (size_t)restore->held.count * HOLD_WORDS;
    struct cell *c = cells->cell + number;
    if (state_tag(c->state) != CELL_EMPTY || c->head != head_of(words[1], state_gen(c->state)))
        return 0;
    restore_holds(restore, cells, c, words[1]);
    return used;
}

static size_t apply_line(struct cells *cells, const uint64_t *words, size_t left)
{
    uint64_t line = words[0] >> ENTRY_KIND_BITS;
    if (left < 1 + LINE_WORDS || line >= cells->bucket_count * BUCKET_LINES)
        return 0;
    for (unsigned i = 0; i < LINE_CELLS; i++)
        restore_cell(cells, cells->cell + line * LINE_CELLS + i, words + 1 + (size_t)i * (CELL_BYTES / 8));
    return 1 + LINE_WORDS;
}

static size_t apply_header(struct cells *cells, const uint64_t *words, size_t left)
{
    uint64_t *to = (uint64_t *)(void *)cells->header;
    if (left < 1 + HEADER_ENTRY_WORDS)
        return 0;
    for (size_t i = 0; i < HEADER_ENTRY_WORDS; i++)
        if (header_word_is_saved(i))
            store_plain(to + i, words[1 + i]);
    return 1 + HEADER_ENTRY_WORDS;
}

/* Returns false if it has an entry that weir has not written. */
static bool apply_record(struct restore *restore, struct cells *cells)
{
    const uint64_t *words = (const uint64_t *)(const void *)(restore->record + 1);
    size_t left = restore->record->bytes / 8, used = 0;
    for (; left > 0; words += used, left -= used) {
        switch (words[0] & ((1u << ENTRY_KIND_BITS) - 1)) {
        case ENTRY_LINE:
            used = apply_line(cells, words, left);
            break;
        case ENTRY_HELD:
            used = apply_held(restore, cells, words, left);
            break;
        case ENTRY_HEADER:
            used = apply_header(cells, words, left);
            break;
        default:
            used = 0;
        }
        if (used == 0)
            return false;
    }
    return true;
}

/* ---- records ---- */

static int read_failed(const struct restore *restore, struct weir_error *error)
{
    return err_set(error, WEIR_E_SYSTEM, "%s: cannot be read: %s", restore->path, strerror(errno));
}

/* Returns how many bytes were read; fewer at the end of the file. */
static ssize_t read_at(int fd, void *to, size_t count, uint64_t at)
{
    size_t done = 0;
    while (done < count) {
        ssize_t n = pread(fd, (char *)to + done, count - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Returns whether there is a good record at this place, which restore->record is then. A place that the disk cannot read is
 * a damaged one. */
static bool read_record(struct restore *restore, uint64_t at, uint64_t number)
{
    struct saved_record *r = restore->record;
    if (read_at(restore->fd, r, sizeof *r, at) != sizeof *r || r->magic != RECORD_MAGIC || r->number <= number)
        return false;
    uint64_t bytes = r->bytes, most = SAVED_RECORD_MAX - sizeof *r;
    if (bytes == 0 || bytes > most || bytes % 8 || at + saved_record_room(bytes) > restore->file_bytes ||
        read_at(restore->fd, r + 1, bytes, at + sizeof *r) != (ssize_t)bytes)
        return false;
    return r->checksum == saved_record_sum(r, &restore->header.sums);
}

static void apply_records(struct restore *restore, struct cells *cells)
{
    struct cells_restored *ret = restore->ret;
    uint64_t at = SAVED_ALIGN, number = 0;
    while (at < restore->file_bytes) {
        if (!read_record(restore, at, number)) {
            uint64_t left = restore->file_bytes - at;
            ret->unended += left < SAVED_ALIGN ? left : SAVED_ALIGN;
            at += SAVED_ALIGN;
            continue;
        }
        uint64_t room = saved_record_room(restore->record->bytes);
        ret->damaged += ret->unended;
        ret->unended = 0;
        if (!apply_record(restore, cells))
            ret->damaged += room;
        ret->saved_us = restore->record->at_us;
        number = restore->record->number;
        at += room;
    }
}

static int fill(struct cells *cells, int fd, void *data, struct weir_error *error)
{
    struct restore *restore = data;
    word16 origin;
    if (!origin_of_restored(&restore->header.secret, restore->header.origin, restore->fd, fd, &origin))
        return read_failed(restore, error);
    apply_records(restore, cells);
    cells->header->origin = origin;
    return 0;
}

/* ---- the file ---- */

static int check_saved(const struct restore *restore, struct weir_error *error)
{
    const struct saved_header *h = &restore->header;
    if (memcmp(h->magic, SAVED_MAGIC, sizeof h->magic) != 0)
        return err_set(error, WEIR_E_CELLS,
                       "%s: not a saved table; restore the file, or remove it (the counts start from zero then)",
                       restore->path);
    if (h->version != SAVED_VERSION || h->cells_version != CELLS_VERSION)
        return err_set(
            error, WEIR_E_CELLS,
            "%s: a saved table of layout %u.%u, but this weir supports layout %d.%d; remove the file (the counts "
            "start from zero then)",
            restore->path, h->version, h->cells_version, SAVED_VERSION, CELLS_VERSION);
    if (h->checksum != saved_header_sum(h) || !cells_valid_size(h->bucket_count))
        return err_set(error, WEIR_E_CELLS,
                       "%s: its header is damaged; restore the file, or remove it (the counts start from zero then)",
                       restore->path);
    return 0;
}

static int open_saved(struct restore *restore, struct stat *ret, struct weir_error *error)
{
    restore->fd = open(restore->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (restore->fd < 0 || fstat(restore->fd, ret) < 0)
        return read_failed(restore, error);
    if (!S_ISREG(ret->st_mode))
        return err_set(error, WEIR_E_CELLS, "%s: not a regular file", restore->path);
    restore->file_bytes = (uint64_t)ret->st_size;
    ssize_t n = read_at(restore->fd, &restore->header, sizeof restore->header, 0);
    if (n < 0)
        return read_failed(restore, error);
    if (restore->file_bytes < SAVED_ALIGN || (size_t)n < sizeof restore->header)
        return err_set(
            error, WEIR_E_CELLS,
            "%s: too short for a saved table (%llu bytes); restore the file, or remove it (the counts start from "
            "zero then)",
            restore->path, (unsigned long long)restore->file_bytes);
    return check_saved(restore, error);
}

static int restore_file(struct restore *restore, const char *path, struct weir_error *error)
{
    struct cells_header header;
    struct stat like;
    int r = open_saved(restore, &like, error);
    if (r < 0)
        return r;
    cells_init_header(&header, restore->header.bucket_count, &restore->header.secret, restore->header.made_us);
    r = cells_make_file(path, &(struct cells_file){ &header, &like, fill, restore }, error);
    return r == 1 ? err_set(error, WEIR_E_SYSTEM, "%s: cannot be created: %s", path, strerror(EEXIST)) : r;
}

int cells_restore(const char *saved, const char *path, int64_t now_us, struct cells_restored *ret, struct weir_error *error)
{
    struct restore *restore = calloc(1, sizeof *restore);
    if (!restore)
        return err_no_memory(error);
    *ret = (struct cells_restored){ 0 };
    restore->path = saved;
    restore->fd = -1;
    restore->now_us = now_us;
    restore->ret = ret;
    restore->record = malloc(SAVED_RECORD_MAX);
    int r = restore->record ? restore_file(restore, path, error) : err_no_memory(error);
    if (restore->fd >= 0)
        close(restore->fd);
    free(restore->record);
    free(restore);
    return r;
}
