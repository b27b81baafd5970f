/* The same counts in a table of another size.
 *
 * A cell has 52 of the 64 bits of its key; the others choose its two buckets. So the place of a cell says something about
 * them, but not all: in a table of 65,536 buckets there is one more key in sixteen that could be meant, in a small one
 * there are dozens. (A cell with holds names a block, which has the whole key.) All keys that could be meant are found by
 * trying the 4096 values of the missing bits.
 *
 * The count has to be found by the true key, whichever it is, and in one of its two buckets only: a key with two cells
 * would be admitted twice. So the buckets of the new table get copies such that each of the keys sees exactly one. With
 * buckets as points and keys as lines between them, this asks for two colours such that the ends of each line differ.
 * Copies that no key looks for are never charged, and decay. Where there is no such colouring, or no room, the count is
 * lost, and the table is not made unless the caller agrees. */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "cells/find.h"
#include "cells/owner.h"
#include "cells/resize.h"
#include "cells/saved_layout.h"

enum { KEYS_MAX = 1 << MARK_BITS, ROUNDS = 2, COLOUR_NONE = 0, COLOUR_WITH = 1, COLOUR_WITHOUT = -1 };

/* A key that a cell could belong to, and where it is looked for in the new table. */
struct line {
    uint64_t bucket[2];
};

/* One cell as it was read. */
struct old_cell {
    uint64_t head, book, bucket, slot;
    word16 state;
    bool has_key; /* `key` is all of it, else only its lower bits */
    uint64_t key;
};

struct remake {
    struct cells *from, *to;
    const struct cells_remake *how;
    int64_t now_us;
    struct cells_resized *ret;
    struct held held; /* of the cell that is being moved */
    uint64_t *moved;  /* a bit for each cell of `from` that was */
    signed char *colour;
    struct line lines[KEYS_MAX];
    size_t count;
    uint64_t points[2 * KEYS_MAX]; /* buckets that have a colour */
    size_t point_count;
};

/* ---- reading ---- */

enum reading { READ_LIVE, READ_FREE, READ_TORN, READ_LOST };

/* State before book before head, as in save.c. */
static enum reading read_cell(struct cells *t, uint64_t number, int64_t now_us, struct old_cell *ret, struct held *held)
{
    struct cell *c = t->cell + number;
    word16 s = load_16(&c->state);
    uint64_t book = load_8(&c->book), head = load_8(&c->head);
    *ret = (struct old_cell){ .head = head,
                              .book = book,
                              .bucket = number / BUCKET_CELLS,
                              .slot = number % BUCKET_CELLS,
                              .state = s,
                              .key = head >> MARK_BITS };
    if (!cell_is_live(s))
        return READ_FREE;
    if (head_gen(head) != state_gen(s) || book_gen(book) != state_gen(s) || (head & 3) != CELL_LIVE)
        return READ_TORN;
    if (book_decays_us(book) <= now_us)
        return READ_FREE;
    if (state_tag(s) != CELL_HELD)
        return READ_LIVE;
    struct limit_state name = state_payload(s);
    ret->key = block_owner(t, name).low;
    ret->has_key = true;
    return head_is_of(head, ret->key) && block_read(t, ret->key, name, held) ? READ_LIVE : READ_LOST;
}

/* The same, while others may be changing the cell: until it was read whole, or is damaged, which no change mends. */
static enum reading read_changing(struct cells *t, uint64_t number, int64_t now_us, struct old_cell *ret, struct held *held)
{
    enum { TRIES = 1000 };
    enum reading reading = read_cell(t, number, now_us, ret, held);
    for (unsigned i = 0; i < TRIES && reading > READ_FREE; i++) {
        word16 was = ret->state;
        reading = read_cell(t, number, now_us, ret, held);
        if (same_16(was, ret->state))
            break;
    }
    return reading;
}

/* The buckets where a key is looked for, as candidates_of() has them. */
static struct line line_of(uint64_t key, uint64_t count)
{
    uint64_t first = scale(key, count), second = scale(second_hash(key), count);
    if (second == first)
        second = first + 1 < count ? first + 1 : 0;
    return (struct line){ { first, second } };
}

/* Whether a key with these lower bits is looked for in this bucket; the next from *bits on, which become its upper ones. */
static bool next_key(const struct old_cell *c, uint64_t count, uint64_t *bits, uint64_t *ret)
{
    const uint64_t low = c->head >> MARK_BITS;
    for (; *bits < KEYS_MAX; ++*bits) {
        uint64_t key = *bits << (64 - MARK_BITS) | low;
        struct line line = line_of(key, count);
        if (line.bucket[0] != c->bucket && line.bucket[1] != c->bucket)
            continue;
        ++*bits;
        *ret = key;
        return true;
    }
    return false;
}

static bool is_placed(const struct old_cell *c, uint64_t count)
{
    uint64_t bits = 0, key;
    struct line line = line_of(c->key, count);
    return c->has_key ? line.bucket[0] == c->bucket || line.bucket[1] == c->bucket : next_key(c, count, &bits, &key);
}

void cells_survey(struct cells *cells, int64_t now_us, bool places, struct cells_facts *ret)
{
    static _Thread_local struct held held;
    struct old_cell c;
    *ret = (struct cells_facts){ .layout = cells->header->version,
                                 .buckets = cells->bucket_count,
                                 .keys = cells->bucket_count * BUCKET_FILL,
                                 .bytes = cells->mapped_bytes,
                                 .made_us = (int64_t)cells->header->made_us };
    for (uint64_t i = 0; i < cells->bucket_count * BUCKET_CELLS; i++) {
        enum reading reading = read_changing(cells, i, now_us, &c, &held);
        ret->torn += reading == READ_TORN;
        ret->lost += reading == READ_LOST;
        if (reading != READ_LIVE)
            continue;
        bool misplaced = places && !is_placed(&c, cells->bucket_count);
        ret->misplaced += misplaced;
        ret->live += !misplaced;
        ret->full += !misplaced && book_share(c.book) == LIMIT_SHARE_FULL;
        ret->held += !misplaced && state_tag(c.state) == CELL_HELD;
    }
}

/* ---- colours ---- */

static void set_colour(struct remake *r, uint64_t bucket, signed char colour)
{
    r->colour[bucket] = colour;
    r->points[r->point_count++] = bucket;
}

static void find_lines(struct remake *r, const struct old_cell *c)
{
    uint64_t bits = 0, key;
    r->count = 0;
    if (c->has_key)
        r->lines[r->count++] = line_of(c->key, r->to->bucket_count);
    else
        while (next_key(c, r->from->bucket_count, &bits, &key))
            r->lines[r->count++] = line_of(key, r->to->bucket_count);
}

/* Gives a colour to all points that are joined with one that has one. False: the ends of a line have the same. */
static bool spread(struct remake *r)
{
    bool again = true;
    while (again) {
        again = false;
        for (size_t i = 0; i < r->count; i++) {
            const uint64_t *b = r->lines[i].bucket;
            signed char x = r->colour[b[0]], y = r->colour[b[1]];
            if (x != COLOUR_NONE && x == y)
                return false;
            if ((x == COLOUR_NONE) == (y == COLOUR_NONE))
                continue;
            set_colour(r, x == COLOUR_NONE ? b[0] : b[1], (signed char)-(x == COLOUR_NONE ? y : x));
            again = true;
        }
    }
    return true;
}

/* ---- writing ---- */

static struct cell *free_slot(struct cells *t, uint64_t bucket, uint64_t key)
{
    for (unsigned i = 0; i < BUCKET_CELLS; i++) {
        struct cell *c = t->cell + bucket * BUCKET_CELLS + (((key & 7) * LINE_CELLS) ^ i);
        if (state_tag(c->state) == CELL_EMPTY && c->head == 0)
            return c;
    }
    return NULL;
}

static unsigned used_slots(const struct cells *t, uint64_t bucket)
{
    unsigned used = 0;
    for (unsigned i = 0; i < BUCKET_CELLS; i++)
        used += t->cell[bucket * BUCKET_CELLS + i].head != 0;
    return used;
}

/* Returns the cost of putting copies into the points of this colour; UINT64_MAX: there is no room. */
static uint64_t cost_of(const struct remake *r, size_t from, signed char colour)
{
    uint64_t cost = 0;
    for (size_t i = from; i < r->point_count; i++) {
        if (r->colour[r->points[i]] != colour)
            continue;
        unsigned used = used_slots(r->to, r->points[i]);
        if (used == BUCKET_CELLS)
            return UINT64_MAX;
        cost += BUCKET_CELLS + used;
    }
    return cost;
}

/* Colours all points. False: it cannot be done, or there is no room for the copies. */
static bool colour_points(struct remake *r)
{
    for (size_t i = 0; i < r->count; i++) {
        size_t from = r->point_count;
        if (r->colour[r->lines[i].bucket[0]] != COLOUR_NONE)
            continue;
        set_colour(r, r->lines[i].bucket[0], COLOUR_WITH);
        if (!spread(r)) {
            r->ret->lost_keys++;
            return false;
        }
        uint64_t with = cost_of(r, from, COLOUR_WITH), without = cost_of(r, from, COLOUR_WITHOUT);
        if (with == UINT64_MAX && without == UINT64_MAX)
            return false;
        for (size_t p = from; p < r->point_count && without < with; p++)
            r->colour[r->points[p]] = (signed char)-r->colour[r->points[p]];
    }
    return r->count > 0;
}

static bool has_slots(const struct held *h)
{
    for (uint32_t i = 0; i < h->count; i++)
        if (h->holds[i].origin == 0 || is_owner(h->holds[i].origin))
            return true;
    return false;
}

/* The state of the cell in the new table: a cell with holds gets a block there. If none is free, its holds become charges,
 * as in restore.c; a slot would stay for ever. */
static bool new_state(struct remake *r, const struct old_cell *c, word16 *ret)
{
    struct limit_state name;
    uint64_t claimed;
    *ret = c->state;
    if (state_tag(c->state) != CELL_HELD)
        return true;
    if (block_write(r->to, c->key, r->now_us, &r->held, &name, &claimed))
        *ret = state_make(name, state_gen(c->state), CELL_HELD);
    else if (!has_slots(&r->held))
        *ret = state_make(r->held.state, state_gen(c->state), CELL_LIVE);
    else
        return false;
    return true;
}

static bool put_cell(struct remake *r, const struct old_cell *c)
{
    word16 state;
    if (r->to->bucket_count == r->from->bucket_count) {
        if (!new_state(r, c, &state))
            return false;
        r->to->cell[c->bucket * BUCKET_CELLS + c->slot] = (struct cell){ c->head, c->book, state };
        return true;
    }
    find_lines(r, c);
    bool put = colour_points(r) && new_state(r, c, &state);
    for (size_t i = 0; i < r->point_count; i++) {
        uint64_t bucket = r->points[i];
        if (put && r->colour[bucket] == COLOUR_WITH)
            *free_slot(r->to, bucket, c->key) = (struct cell){ c->head, c->book, state };
        r->colour[bucket] = COLOUR_NONE;
    }
    r->point_count = 0;
    return put;
}

/* Counts at their limit first, so that they get a place before others. One may come to its limit, or get away from it,
 * between the rounds. */
static void move_cells(struct remake *r)
{
    struct old_cell c;
    for (unsigned round = 0; round < ROUNDS; round++)
        for (uint64_t i = 0; i < r->from->bucket_count * BUCKET_CELLS; i++) {
            uint64_t *moved = &r->moved[i / 64], bit = UINT64_C(1) << i % 64;
            if (*moved & bit || read_changing(r->from, i, r->now_us, &c, &r->held) != READ_LIVE)
                continue;
            bool full = book_share(c.book) == LIMIT_SHARE_FULL;
            if (round == 0 && !full)
                continue;
            *moved |= bit;
            bool put = put_cell(r, &c);
            r->ret->kept += put;
            r->ret->lost += !put;
            r->ret->lost_full += !put && full;
        }
}

static int fill(struct cells *cells, int fd, void *data, struct weir_error *error)
{
    struct remake *r = data;
    const uint64_t *from = (const uint64_t *)(const void *)r->from->header;
    uint64_t *to = (uint64_t *)(void *)cells->header;
    word16 origin;
    if (!(r->how->copy ? origin_of_copy(r->from, fd, &origin) : origin_of_saved(r->from, fd, &origin)))
        return err_set(error, WEIR_E_SYSTEM, "cannot create an identity for the new table");
    r->to = cells;
    move_cells(r);
    if (r->ret->lost > 0 && !r->how->drop)
        return err_set(error, WEIR_E_CELLS,
                       "%llu counts have no place in a table of this size, %llu of them at their limit",
                       (unsigned long long)r->ret->lost, (unsigned long long)r->ret->lost_full);
    for (size_t i = 0; i < HEADER_ENTRY_WORDS; i++)
        if (header_word_is_saved(i))
            store_plain(to + i, load_plain(from + i));
    if (cells->bucket_count != r->from->bucket_count)
        cells->header->drops = cells->header->drops_at_limit = 0; /* they said whether the old size was enough */
    cells->header->origin = origin;
    if (r->how->note)
        r->how->note(cells);
    return 0;
}

static int remake_table(struct remake *r, int from_fd, const char *path, struct weir_error *error)
{
    struct cells_header header;
    struct stat like;
    uint64_t buckets = r->from->bucket_count;
    int code = r->how->size.keys || r->how->size.bytes ? cells_buckets(r->how->size, &buckets, error) : 0;
    if (code < 0)
        return code;
    r->colour = calloc(buckets, sizeof *r->colour);
    r->moved = calloc(r->from->bucket_count * BUCKET_CELLS / 64 + 1, sizeof *r->moved);
    if (!r->colour || !r->moved)
        return err_no_memory(error);
    if (fstat(from_fd, &like) < 0)
        return err_set(error, WEIR_E_SYSTEM, "the old table cannot be read");
    cells_init_header(&header, buckets, &r->from->secret, r->from->header->made_us);
    code = cells_make_file(path, &(struct cells_file){ &header, &like, fill, r }, error);
    return code == 1 ? err_set(error, WEIR_E_SYSTEM, "%s: already exists", path) : code;
}

int cells_remake(struct cells *from, int from_fd, const char *to, const struct cells_remake *how, int64_t now_us,
                 struct cells_resized *ret, struct weir_error *error)
{
    struct remake *r = calloc(1, sizeof *r);
    if (!r)
        return err_no_memory(error);
    *ret = (struct cells_resized){ 0 };
    r->from = from;
    r->how = how;
    r->now_us = now_us;
    r->ret = ret;
    int code = remake_table(r, from_fd, to, error);
    free(r->colour);
    free(r->moved);
    free(r);
    return code;
}
