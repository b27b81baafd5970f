/* The layout of the mapping. Nothing here may change without a new CELLS_VERSION. */
#ifndef CELLS_LAYOUT_H
#define CELLS_LAYOUT_H

#include "cells/atomic.h"
#include "cells/cells.h"

enum {
    /* A single flipped bit cannot turn one version into another. */
    CELLS_VERSION = 9,
    CELLS_VERSION_SUMMED = 2, /* what all checksums are made with: a version may rise */
    /* Without blocks; with counts above 2^32 - 1, or without. Such a file is brought to CELLS_VERSION when it is opened. */
    CELLS_VERSION_NARROW = 2,
    CELLS_VERSION_WIDE = 5,
    CELLS_HEADER_BYTES = 4096,
    BUCKET_CELLS = 16, /* 8 cache lines of 2 */
    LINE_CELLS = 2,
    BUCKET_LINES = BUCKET_CELLS / LINE_CELLS,
    BUCKET_FILL = 12, /* keys of a bucket at the default fill, 3/4: what a size in keys is reckoned with */
    GEN_BITS = 10,
    TAG_BITS = 2,
    MARK_BITS = GEN_BITS + TAG_BITS,
    BOOK_LOW_BITS = GEN_BITS + 8,
    BLOCK_PART_WORDS = 12,
    SMALL_BUCKETS = 1024, /* a table of up to half a megabyte is in the cache anyway */
};

#define GEN_MASK ((UINT64_C(1) << GEN_BITS) - 1)
#define MARK_MASK ((UINT64_C(1) << MARK_BITS) - 1)
#define BOOK_LOW_MASK ((UINT64_C(1) << BOOK_LOW_BITS) - 1)

/* head:  fingerprint 52 · generation 10 · CELL_LIVE: it ends in what the live state ends in that it belongs to
 * book:  when the cell has decayed, in units of 1024 microseconds 46 · generation 10 · share used 8
 * state: data 64, and above it time 52 · generation 10 · tag 2 */
struct cell {
    uint64_t head;
    uint64_t book;
    word16 state;
};

_Static_assert(sizeof(struct cell) == CELL_BYTES, "a cell is 32 bytes");

enum { RESERVED_OLD_US = 1000000 }; /* a reservation older than this was left by a process that died */

/* CELL_HELD: live, and the state names a block that has the state and the holds: see blocks.h. */
enum cell_tag { CELL_EMPTY, CELL_RESERVED, CELL_LIVE, CELL_HELD };

struct cells_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t bucket_count;
    struct hash_key secret;
    uint64_t made_us;
    uint64_t checksum; /* of all fields before it, with CELLS_VERSION_SUMMED */
    /* Counters are in another cache line, so that counting a drop does not slow down readers of the fields above. */
    _Alignas(128) uint64_t drops;
    uint64_t drops_at_limit;
    /* Hardly ever changes, and is read with each slice; 0 in a file of a version without it. */
    _Alignas(128) word16 origin;
    /* A bit for each part of the small blocks, and of the large ones: some block of it may be in use. See blocks.c. */
    _Alignas(64) uint64_t small_parts[BLOCK_PART_WORDS];
    uint64_t large_parts[BLOCK_PART_WORDS];
};

_Static_assert(sizeof(struct cells_header) <= CELLS_HEADER_BYTES, "the header fits its page");

/* Where the blocks of one size are. */
struct block_room {
    char *base;
    uint64_t count;
    uint64_t *parts;     /* in the header */
    unsigned part_shift; /* a part is so many blocks: see blocks.c */
};

struct stat;

struct cells {
    struct cell *cell;
    uint64_t bucket_count;
    struct block_room small, large; /* without blocks in a table that an older weir has made in memory of the caller */
    struct hash_key secret;
    struct cells_header *header;
    size_t mapped_bytes; /* 0: the memory is the caller's */
    bool copied;         /* see cells_copied */
    bool disowned;       /* see cells_disown */
};

/* The file has been mapped: is it the one that it was? Else it gets a new identity. */
int cells_check_identity(struct cells *cells, int fd, const char *path, struct weir_error *error);
/* The origin that a copy of the table in this file has to note. */
bool origin_of_saved(const struct cells *cells, int fd, word16 *ret);
/* The same with an identity of its own: what the table in `fd` is another host for. */
bool origin_of_copy(const struct cells *cells, int fd, word16 *ret);
/* The origin of a table in `fd` that was made from what was saved to `saved_fd`, with this origin then: the identity stays,
 * unless what was saved has been copied, or comes from another machine. Then opening the table finds a copy. */
bool origin_of_restored(const struct hash_key *secret, word16 saved, int saved_fd, int fd, word16 *ret);

/* A new file for a table, with a name only when `fill` has filled it. Mode 0660 unless `like` says otherwise. */
struct cells_file {
    const struct cells_header *header;
    const struct stat *like; /* whose mode and group it gets; NULL: none */
    int (*fill)(struct cells *cells, int fd, void *data, struct weir_error *error); /* NULL: nothing */
    void *data;
};
/* Returns 1 if there is a file of this name already, which stays as it is. */
int cells_make_file(const char *path, const struct cells_file *file, struct weir_error *error);
/* A header for a table of its own, or like another with this secret. */
void cells_init_header(struct cells_header *h, uint64_t bucket_count, const struct hash_key *secret, uint64_t made_us);
/* How many buckets a table of this size has. */
int cells_buckets(struct cells_size size, uint64_t *ret, struct weir_error *error);
/* Whether a table can have so many buckets. */
bool cells_valid_size(uint64_t bucket_count);

/* Adds the boot of the kernel. False: it cannot be known. */
bool hash_boot(struct hash *hash);

/* ---- the origin: identity.c says what it is for ---- */

/* identity 36 · boot 28, and above it machine 28 · inode 18 · birth 18 */
enum { ID_BITS = 36, BOOT_BITS = 28, MACHINE_BITS = 28, INODE_BITS = 18, BIRTH_BITS = 18 };
#define ORIGIN_IDS (UINT64_C(1) << ID_BITS)

struct origin {
    uint64_t id;
    uint32_t boot, machine, inode, birth; /* 0: not known */
};

static inline struct origin origin_of(word16 w)
{
    return (struct origin){ .id = w.low % ORIGIN_IDS,
                            .boot = (uint32_t)(w.low >> ID_BITS),
                            .machine = (uint32_t)(w.high & ((1u << MACHINE_BITS) - 1)),
                            .inode = (uint32_t)(w.high >> MACHINE_BITS & ((1u << INODE_BITS) - 1)),
                            .birth = (uint32_t)(w.high >> (MACHINE_BITS + INODE_BITS)) };
}

static inline word16 origin_word(const struct origin *o)
{
    return (word16){ o->id | (uint64_t)o->boot << ID_BITS,
                     o->machine | (uint64_t)o->inode << MACHINE_BITS | (uint64_t)o->birth << (MACHINE_BITS + INODE_BITS) };
}

/* ---- words of a cell ---- */

static inline uint64_t head_of(uint64_t key, uint64_t gen)
{
    return key << MARK_BITS | gen << TAG_BITS | CELL_LIVE;
}

/* The head of a key's cell with this live state. */
static inline uint64_t head_with(uint64_t key, uint64_t state_high)
{
    return key << MARK_BITS | (state_high & MARK_MASK);
}

static inline uint64_t head_gen(uint64_t head)
{
    return head >> TAG_BITS & GEN_MASK;
}

static inline bool head_is_of(uint64_t head, uint64_t key)
{
    return (head ^ key << MARK_BITS) <= MARK_MASK;
}

static inline enum cell_tag state_tag(word16 s)
{
    return (enum cell_tag)(s.high & 3);
}

static inline uint64_t state_gen(word16 s)
{
    return s.high >> TAG_BITS & GEN_MASK;
}

static inline bool cell_is_live(word16 s)
{
    return state_tag(s) >= CELL_LIVE;
}

static inline struct limit_state state_payload(word16 s)
{
    return (struct limit_state){ s.high >> MARK_BITS, s.low };
}

static inline word16 state_make(struct limit_state payload, uint64_t gen, enum cell_tag tag)
{
    return (word16){ payload.data, payload.time << MARK_BITS | gen << TAG_BITS | tag };
}

/* The time is rounded up. */
static inline uint64_t book_make(int64_t decays_us, uint64_t gen, uint8_t share)
{
    return ((uint64_t)decays_us << 8 | BOOK_LOW_MASK) + 1 + (gen << 8 | share);
}

static inline int64_t book_decays_us(uint64_t book)
{
    return (int64_t)(book >> BOOK_LOW_BITS << GEN_BITS);
}

static inline uint64_t book_gen(uint64_t book)
{
    return book >> 8 & GEN_MASK;
}

static inline uint8_t book_share(uint64_t book)
{
    return (uint8_t)book;
}

/* Whether nothing is lost if the cell with this state is taken. The book was read after the state: one of another
 * generation means that the cell was given to another key since, or that it is damaged. */
static inline bool cell_is_free(word16 s, uint64_t book, int64_t now_us)
{
    int64_t age = now_us - (int64_t)state_payload(s).time;
    switch (state_tag(s)) {
    case CELL_LIVE:
    case CELL_HELD:
        return book_gen(book) != state_gen(s) || book_decays_us(book) <= now_us;
    case CELL_RESERVED:
        return age > RESERVED_OLD_US || age < -RESERVED_OLD_US;
    default:
        return true;
    }
}

#endif
