/* Saving a table: looking for lines that have changed, and writing them.
 *
 * Nobody who decides notices. The table is only read, a cell at a time, as a decision reads it. Which lines have changed is
 * seen by a hash of each that is kept here: asking the kernel would mean that it takes away the right to write to a page,
 * and that the next decision there waits for it.
 *
 * A pass goes through the whole table. It appends what has changed to the log; if the log has become too long, or there is
 * none yet, the same pass also writes a new file with everything, which replaces the old one when it is complete. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/new_file.h"
#include "cells/saved_layout.h"

enum {
    SLICE_LINES = 2048, /* some ten microseconds: who decides does not wait longer for a CPU */
    TRIES = 1000,       /* to read a cell that changes all the time */
    LOG_SPARE = 16 << 20,
};

/* A file that is written. */
struct out {
    int fd; /* -1: none */
    uint64_t at, number;
    struct hash_key sums;
    struct saved_record *record; /* SAVED_RECORD_MAX bytes; entries follow */
};

/* A cell with holds. */
struct held_copy {
    uint64_t cell, key;
    struct held held;
};

struct cells_saver {
    struct cells *cells;
    int fd;
    char *path, *path_new;
    struct out log, fresh;
    uint64_t log_max;     /* bytes, from which on the next pass writes a new file */
    uint64_t synced;      /* bytes of the log that are on the disk */
    bool ending;          /* no new file any more, if there is one */
    uint64_t *hashes;     /* of each line as it was saved last; 0: of zeros */
    uint64_t header_hash; /* the same for the table's header */
    uint64_t line, lines; /* the next line of the pass */
    int64_t pass_us;      /* when it began */
    uint64_t written;     /* bytes so far */
    uint64_t words[LINE_WORDS];
    struct held_copy held[LINE_CELLS];
    unsigned held_count;
};

/* ---- reading ---- */

/* Any change of one word changes it; 0 for zeros. */
static uint64_t hash_words(const uint64_t *word, unsigned count)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++) {
        sum = (sum ^ word[i]) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 32;
    }
    return sum;
}

/* Returns false if the cell has changed meanwhile. A block that does not fit a cell that is as it was is damaged: the cell
 * counts as empty, as it does for those who decide. */
static bool read_held(struct cells_saver *saver, struct cell *c, word16 *s, uint64_t head)
{
    struct held_copy *copy = &saver->held[saver->held_count];
    struct limit_state name = state_payload(*s);
    copy->cell = (uint64_t)(c - saver->cells->cell);
    copy->key = block_owner(saver->cells, name).low;
    if (head_is_of(head, copy->key) && block_read(saver->cells, copy->key, name, &copy->held)) {
        saver->held_count++;
        return true;
    }
    if (!same_16(load_16(&c->state), *s))
        return false;
    *s = as_empty(*s);
    return true;
}

/* State before book before head, as whoever judges a cell does: if their generations agree, they belong together. Only the
 * generation of a cell that is not in use is kept, which tells later charges from earlier ones. */
static bool try_cell(struct cells_saver *saver, struct cell *c, uint64_t *ret)
{
    word16 s = load_16(&c->state);
    uint64_t book = load_8(&c->book), head = load_8(&c->head);
    if (!cell_is_live(s))
        s = as_empty(s);
    else if (head_gen(head) != state_gen(s) || book_gen(book) != state_gen(s)) {
        if (!same_16(load_16(&c->state), s))
            return false;
        s = as_empty(s);
    } else if (state_tag(s) == CELL_HELD && !read_held(saver, c, &s, head))
        return false;
    if (!cell_is_live(s))
        head = book = 0;
    ret[0] = head;
    ret[1] = book;
    ret[2] = s.low;
    ret[3] = s.high;
    return true;
}

static void read_line(struct cells_saver *saver, uint64_t line)
{
    saver->held_count = 0;
    for (unsigned i = 0; i < LINE_CELLS; i++) {
        struct cell *c = saver->cells->cell + line * LINE_CELLS + i;
        uint64_t *words = saver->words + i * (CELL_BYTES / 8);
        unsigned held_count = saver->held_count, tries = TRIES;
        bool read;
        do
            saver->held_count = held_count, read = try_cell(saver, c, words);
        while (!read && --tries > 0);
        if (!read) {
            word16 empty = as_empty(load_16(&c->state));
            memset(words, 0, CELL_BYTES);
            words[2] = empty.low;
            words[3] = empty.high;
        }
    }
}

/* ---- writing ---- */

static int write_failed(const char *path, struct weir_error *error)
{
    return err_set(error, WEIR_E_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
}

static int write_all(struct cells_saver *saver, int fd, const void *bytes, size_t count, uint64_t at)
{
    const char *from = bytes;
    while (count > 0) {
        ssize_t n = pwrite(fd, from, count, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return -1;
        from += n, at += (size_t)n, count -= (size_t)n, saver->written += (size_t)n;
    }
    return 0;
}

/* Writes the entries that are gathered. */
static int flush(struct cells_saver *saver, struct out *out, struct weir_error *error)
{
    struct saved_record *r = out->record;
    if (out->fd < 0 || r->bytes == 0)
        return 0;
    uint64_t room = saved_record_room(r->bytes);
    memset((char *)(r + 1) + r->bytes, 0, room - sizeof *r - r->bytes);
    r->magic = RECORD_MAGIC;
    r->number = ++out->number;
    r->at_us = saver->pass_us;
    r->checksum = saved_record_sum(r, &out->sums);
    if (write_all(saver, out->fd, r, room, out->at) < 0)
        return write_failed(saver->path, error);
    out->at += room;
    r->bytes = 0;
    return 0;
}

static void add_words(struct out *out, const uint64_t *words, size_t count)
{
    memcpy((char *)(out->record + 1) + out->record->bytes, words, count * 8);
    out->record->bytes += count * 8;
}

static void add_word(struct out *out, uint64_t word)
{
    add_words(out, &word, 1);
}

static void add_held(struct out *out, const struct held_copy *copy)
{
    const struct held *h = &copy->held;
    const uint64_t words[HELD_WORDS] = {
        copy->cell << ENTRY_KIND_BITS | ENTRY_HELD,
        copy->key,
        h->state.time,
        h->state.data,
        h->tag,
        (uint64_t)h->ended_us,
        h->count,
    };
    add_words(out, words, HELD_WORDS);
    for (uint32_t i = 0; i < h->count; i++) {
        struct hold hold = hold_at(h, i);
        const uint64_t terms[HOLD_WORDS] = { (uint64_t)hold.until_us, hold.origin, hold.amount, hold.terms };
        add_words(out, terms, HOLD_WORDS);
    }
}

/* A record has room for this much more, or is written. */
static int make_room(struct cells_saver *saver, struct out *out, size_t words, struct weir_error *error)
{
    return sizeof *out->record + out->record->bytes + words * 8 > SAVED_RECORD_MAX ? flush(saver, out, error) : 0;
}

/* A line and its holds are in one record. */
static int add_line(struct cells_saver *saver, struct out *out, struct weir_error *error)
{
    int r = make_room(saver, out, 1 + LINE_WORDS + (size_t)LINE_CELLS * ENTRY_WORDS_MAX, error);
    if (r < 0)
        return r;
    add_word(out, saver->line << ENTRY_KIND_BITS | ENTRY_LINE);
    add_words(out, saver->words, LINE_WORDS);
    for (unsigned i = 0; i < saver->held_count; i++)
        add_held(out, &saver->held[i]);
    return 0;
}

static int add_header(struct cells_saver *saver, struct out *out, const uint64_t *words, struct weir_error *error)
{
    int r = make_room(saver, out, 1 + HEADER_ENTRY_WORDS, error);
    if (r < 0)
        return r;
    add_word(out, ENTRY_HEADER);
    add_words(out, words, HEADER_ENTRY_WORDS);
    return 0;
}

static int save_header(struct cells_saver *saver, struct weir_error *error)
{
    const uint64_t *from = (const uint64_t *)(const void *)saver->cells->header;
    uint64_t words[HEADER_ENTRY_WORDS] = { 0 };
    for (size_t i = 0; i < HEADER_ENTRY_WORDS; i++)
        if (header_word_is_saved(i))
            words[i] = load_plain(from + i);
    uint64_t hash = hash_words(words, HEADER_ENTRY_WORDS);
    int r = saver->fresh.fd >= 0 ? add_header(saver, &saver->fresh, words, error) : 0;
    if (r == 0 && saver->log.fd >= 0 && hash != saver->header_hash)
        r = add_header(saver, &saver->log, words, error);
    saver->header_hash = hash;
    return r;
}

/* ---- files ---- */

static void out_close(struct out *out)
{
    if (out->fd >= 0)
        close(out->fd);
    out->fd = -1;
    out->record->bytes = 0;
}

static void drop_fresh(struct cells_saver *saver)
{
    if (saver->fresh.fd >= 0)
        unlink(saver->path_new);
    out_close(&saver->fresh);
}

/* Whoever writes a file has its lock. There should be one who saves a table; but a table that was removed while it is in
 * use may go on beside the one that has replaced it. */
static bool is_locked(const struct cells_saver *saver, const char *path)
{
    struct stat file, own;
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &file) < 0)
        return false;
    if (saver->log.fd >= 0 && fstat(saver->log.fd, &own) == 0 && own.st_ino == file.st_ino && own.st_dev == file.st_dev)
        return false;
    return flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* Nobody else may read it before it has the mode and group of the table. */
static int begin_fresh(struct cells_saver *saver, struct weir_error *error)
{
    struct out *out = &saver->fresh;
    const struct cells *cells = saver->cells;
    struct stat like;
    _Alignas(struct saved_header) char page[SAVED_ALIGN] = { 0 };
    struct saved_header header = { .magic = SAVED_MAGIC,
                                   .version = SAVED_VERSION,
                                   .cells_version = CELLS_VERSION,
                                   .bucket_count = cells->bucket_count,
                                   .secret = cells->secret,
                                   .made_us = cells->header->made_us };
    drop_fresh(saver);
    if (is_locked(saver, saver->path) || is_locked(saver, saver->path_new))
        return err_set(error, WEIR_E_SYSTEM, "%s: another process saves its table there", saver->path);
    if (unlink(saver->path_new) < 0 && errno != ENOENT)
        return write_failed(saver->path_new, error);
    out->fd = open(saver->path_new, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (out->fd < 0 || flock(out->fd, LOCK_EX | LOCK_NB) < 0 || fstat(saver->fd, &like) < 0 ||
        getrandom(&header.sums, sizeof header.sums, 0) != sizeof header.sums ||
        !origin_of_saved(cells, out->fd, &header.origin))
        return write_failed(saver->path_new, error);
    if (fchown(out->fd, (uid_t)-1, like.st_gid) == 0 && fchmod(out->fd, like.st_mode & 0777) < 0)
        return write_failed(saver->path_new, error);
    header.checksum = saved_header_sum(&header);
    memcpy(page, &header, sizeof header);
    if (write_all(saver, out->fd, page, sizeof page, 0) < 0)
        return write_failed(saver->path_new, error);
    out->sums = header.sums;
    out->at = SAVED_ALIGN;
    out->number = 0;
    return 0;
}

/* The pages of what is written are of no use to anybody. */
static int sync_out(const struct cells_saver *saver, const struct out *out, struct weir_error *error)
{
    if (fdatasync(out->fd) < 0)
        return write_failed(saver->path, error);
    posix_fadvise(out->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

/* The new file has everything: it replaces the old one. */
static int replace_log(struct cells_saver *saver, struct weir_error *error)
{
    int r = sync_out(saver, &saver->fresh, error);
    if (r < 0)
        return r;
    if (rename(saver->path_new, saver->path) < 0)
        return write_failed(saver->path, error);
    new_file_sync_folder(saver->path);
    struct out old = saver->log;
    saver->log = saver->fresh;
    saver->fresh = old;
    out_close(&saver->fresh);
    saver->log_max = 2 * saver->log.at + LOG_SPARE;
    saver->synced = saver->log.at;
    return 0;
}

/* ---- passes ---- */

/* Somebody may remove, replace or truncate the file while it is in use. */
static bool log_is_whole(const struct cells_saver *saver)
{
    struct stat file, own;
    return stat(saver->path, &file) == 0 && fstat(saver->log.fd, &own) == 0 && file.st_ino == own.st_ino &&
           file.st_dev == own.st_dev && (uint64_t)own.st_size >= saver->log.at;
}

static int begin_pass(struct cells_saver *saver, int64_t now_us, struct weir_error *error)
{
    saver->line = 0;
    saver->pass_us = now_us;
    if (saver->log.fd >= 0 && !log_is_whole(saver))
        out_close(&saver->log);
    bool too_long = saver->log.at > saver->log_max && !saver->ending;
    return saver->log.fd < 0 || too_long ? begin_fresh(saver, error) : 0;
}

static int save_line(struct cells_saver *saver, struct weir_error *error)
{
    read_line(saver, saver->line);
    uint64_t hash = hash_words(saver->words, LINE_WORDS), *was = &saver->hashes[saver->line];
    int r = 0;
    if (saver->fresh.fd >= 0 && hash != 0)
        r = add_line(saver, &saver->fresh, error);
    if (r == 0 && saver->log.fd >= 0 && hash != *was)
        r = add_line(saver, &saver->log, error);
    /* A line that was never used stays where no memory is. */
    if (hash != *was)
        *was = hash;
    return r;
}

static int end_pass(struct cells_saver *saver, struct weir_error *error)
{
    int r = save_header(saver, error);
    if (r == 0)
        r = flush(saver, &saver->log, error);
    if (r == 0)
        r = flush(saver, &saver->fresh, error);
    if (r == 0 && saver->fresh.fd >= 0)
        return replace_log(saver, error);
    if (r == 0 && saver->synced < saver->log.at)
        r = sync_out(saver, &saver->log, error);
    saver->synced = saver->log.at;
    return r;
}

/* What was taken for saved may not be there: the next pass writes everything. */
static void give_up(struct cells_saver *saver)
{
    drop_fresh(saver);
    out_close(&saver->log);
    saver->line = 0;
}

int cells_save_some(struct cells_saver *saver, int64_t now_us, struct weir_error *error)
{
    int r = saver->line == 0 ? begin_pass(saver, now_us, error) : 0;
    uint64_t end = saver->lines - saver->line > SLICE_LINES ? saver->line + SLICE_LINES : saver->lines;
    for (; r == 0 && saver->line < end; saver->line++)
        r = save_line(saver, error);
    if (r == 0 && saver->line < saver->lines)
        return CELLS_SAVE_MORE;
    if (r == 0)
        r = end_pass(saver, error);
    if (r < 0)
        give_up(saver);
    saver->line = 0;
    return r < 0 ? r : CELLS_SAVED;
}

/* A new file would make the end wait: the log is enough, if there is one. */
int cells_save_all(struct cells_saver *saver, int64_t now_us, struct weir_error *error)
{
    int r;
    if (saver->line > 0)
        drop_fresh(saver);
    saver->line = 0;
    saver->ending = true;
    do
        r = cells_save_some(saver, now_us, error);
    while (r == CELLS_SAVE_MORE);
    saver->ending = false;
    return r;
}

void cells_saver_use(struct cells_saver *saver, struct cells *cells)
{
    CHECK(cells->bucket_count * BUCKET_LINES == saver->lines); /* the other one may be closed already */
    saver->cells = cells;
}

uint64_t cells_saver_bytes(const struct cells_saver *saver)
{
    return saver->written;
}

int cells_saver_new(struct cells_saver **ret, struct cells *cells, int fd, const char *path, struct weir_error *error)
{
    struct cells_saver *saver = calloc(1, sizeof *saver);
    if (!saver)
        return err_no_memory(error);
    saver->cells = cells;
    saver->fd = fd;
    saver->lines = cells->bucket_count * BUCKET_LINES;
    saver->log.fd = saver->fresh.fd = -1;
    saver->hashes = calloc(saver->lines, sizeof *saver->hashes);
    saver->log.record = calloc(1, SAVED_RECORD_MAX + SAVED_ALIGN);
    saver->fresh.record = calloc(1, SAVED_RECORD_MAX + SAVED_ALIGN);
    saver->path = strdup(path);
    if (!saver->hashes || !saver->log.record || !saver->fresh.record || !saver->path ||
        asprintf(&saver->path_new, "%s.new", path) < 0) {
        saver->path_new = NULL;
        cells_saver_free(saver);
        return err_no_memory(error);
    }
    *ret = saver;
    return 0;
}

void cells_saver_free(struct cells_saver *saver)
{
    if (!saver)
        return;
    if (saver->log.record && saver->fresh.record) {
        drop_fresh(saver);
        out_close(&saver->log);
    }
    free(saver->hashes);
    free(saver->log.record);
    free(saver->fresh.record);
    free(saver->path);
    free(saver->path_new);
    free(saver);
}
