/* The layout of a saved table: see saved.h. Nothing here may change without a new SAVED_VERSION. */
#ifndef CELLS_SAVED_LAYOUT_H
#define CELLS_SAVED_LAYOUT_H

#include "cells/blocks.h"
#include "cells/saved.h"

enum {
    SAVED_VERSION = 1,
    SAVED_ALIGN = 4096,           /* what is written later shares no page with what was written before */
    SAVED_RECORD_MAX = 128 << 10, /* bytes of a record */
    LINE_WORDS = LINE_CELLS * CELL_BYTES / 8,
    /* The first word of an entry: its kind, and above it a number: of the line, of the cell, or of the header's word. */
    ENTRY_KIND_BITS = 8,
    HELD_WORDS = 7, /* before its holds: kind and cell, key, state, tag, ended, number of holds */
    ENTRY_WORDS_MAX = HELD_WORDS + BLOCK_LARGE_HOLDS * HOLD_WORDS,
    HEADER_ENTRY_WORDS = CELLS_HEADER_BYTES / 8,
};

enum entry_kind { ENTRY_LINE = 1, ENTRY_HELD, ENTRY_HEADER };

#define SAVED_MAGIC "weirsave"
#define RECORD_MAGIC UINT64_C(0x64726f6365527765)

struct saved_header {
    char magic[8];
    uint32_t version, cells_version;
    uint64_t bucket_count;
    struct hash_key secret; /* of the table */
    uint64_t made_us;
    struct hash_key sums; /* of the checksums of this file: records of another file do not fit */
    word16 origin;        /* of this file, and the identity of the table: see identity.c */
    uint64_t checksum;
};

struct saved_record {
    uint64_t magic;
    uint64_t number; /* rises from record to record */
    int64_t at_us;   /* when its pass began */
    uint64_t bytes;  /* of its entries */
    uint64_t checksum;
};

static inline uint64_t saved_header_sum(const struct saved_header *h)
{
    struct hash hash;
    hash_init(&hash, &(struct hash_key){ 0, 0 });
    hash_bytes(&hash, h, offsetof(struct saved_header, checksum));
    return hash_final(&hash);
}

/* The entries come after the record in memory. */
static inline uint64_t saved_record_sum(const struct saved_record *r, const struct hash_key *sums)
{
    const uint64_t *word = (const uint64_t *)(const void *)(r + 1);
    struct hash hash;
    hash_init(&hash, sums);
    hash_word(&hash, r->number);
    hash_word(&hash, (uint64_t)r->at_us);
    hash_word(&hash, r->bytes);
    for (uint64_t i = 0; i < r->bytes / 8; i++)
        hash_word(&hash, word[i]);
    return hash_final(&hash);
}

static inline uint64_t saved_record_room(uint64_t bytes)
{
    return (sizeof(struct saved_record) + bytes + SAVED_ALIGN - 1) / SAVED_ALIGN * SAVED_ALIGN;
}

/* A cell that is not in use, with the generation of this state: charges of earlier generations stay known as such. */
static inline word16 as_empty(word16 s)
{
    return state_make((struct limit_state){ 0 }, state_gen(s), CELL_EMPTY);
}

/* Which words of the table's header are saved: its counters, and what is written after the header. */
static inline bool header_word_is_saved(size_t word)
{
    size_t at = word * 8;
    return at == offsetof(struct cells_header, drops) || at == offsetof(struct cells_header, drops_at_limit) ||
           at >= sizeof(struct cells_header);
}

#endif
