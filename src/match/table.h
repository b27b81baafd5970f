/* A hash table from (space, text) to a number. One table holds all that a ruleset looks up: events, hosts and the literal
 * children of every node of the tree, each node a space of its own. A hit touches one cache line.
 *
 * Requests only look things up, and every hit is compared in full, so nobody gains from texts that collide: the hash needs
 * no key. */
#ifndef MATCH_TABLE_H
#define MATCH_TABLE_H

#include "base/sv.h"

#define TABLE_NONE UINT32_MAX

enum { TABLE_INLINE = 16 };

struct table_entry {
    uint32_t hash;
    uint32_t space;
    uint32_t value; /* TABLE_NONE: the entry is free */
    uint32_t text_len;
    union {
        char text[TABLE_INLINE];
        const char *far_text; /* of a longer one, not copied */
    };
};

struct table {
    struct table_entry *entries;
    size_t mask; /* entries - 1 */
    size_t count;
};

void table_done(struct table *table);
/* The value of (space, text), which is set to `value` if there was none; NULL: no memory. Lives until the next call. */
uint32_t *table_put(struct table *table, uint32_t space, sv text, uint32_t value);

#define TABLE_MIX UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t table_load(const char *p, size_t n)
{
    if (n >= 4)
        return (uint64_t)sv_half(p) << 32 | sv_half(p + n - 4);
    return (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n / 2] << 8 | (unsigned char)p[n - 1];
}

/* Folds the product, so that high bits reach the low ones. */
static inline uint64_t table_step(uint64_t hash, uint64_t word)
{
    unsigned __int128 product = (unsigned __int128)(hash ^ word) * TABLE_MIX;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t table_hash(sv text)
{
    uint64_t hash = text.len * TABLE_MIX;
    const char *p = text.ptr;
    size_t n = text.len;
    for (; n > 8; p += 8, n -= 8)
        hash = table_step(hash, sv_word(p));
    return n > 0 ? table_step(hash, table_load(p, n)) : hash;
}

/* Where `hash` stands in `space`. */
static inline uint32_t table_place(uint32_t space, uint64_t hash)
{
    return (uint32_t)(table_step(hash, (uint64_t)space << 32 | space) >> 16);
}

static inline sv table_text(const struct table_entry *entry)
{
    return sv_of(entry->text_len <= TABLE_INLINE ? entry->text : entry->far_text, entry->text_len);
}

/* TABLE_NONE: not there. hash: table_hash(text). */
static inline uint32_t table_find_hashed(const struct table *table, uint32_t space, sv text, uint64_t hash)
{
    if (table->count == 0)
        return TABLE_NONE;
    uint32_t place = table_place(space, hash);
    for (size_t i = place & table->mask;; i = (i + 1) & table->mask) {
        const struct table_entry *entry = &table->entries[i];
        if (entry->value == TABLE_NONE)
            return TABLE_NONE;
        if (entry->hash == place && entry->space == space && sv_eq(table_text(entry), text))
            return entry->value;
    }
}

static inline uint32_t table_find(const struct table *table, uint32_t space, sv text)
{
    return table_find_hashed(table, space, text, table_hash(text));
}

#endif
