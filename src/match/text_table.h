/* A hash table from (space, text) to a number. One table holds all that a ruleset looks up: events, hosts and the literal
 * children of every node of the tree, each node a space of its own. A hit touches one cache line.
 *
 * Requests only look things up, and every hit is compared in full, so nobody gains from texts that collide: the hash needs
 * no key. */
#ifndef MATCH_TEXT_TABLE_H
#define MATCH_TEXT_TABLE_H

#include "match/path.h"

#define TABLE_NONE UINT32_MAX

enum {
    TABLE_INLINE = 16,
    TABLE_WORD = 8, /* a text up to this is compared as one word */
};

struct table_entry {
    uint32_t space;
    uint32_t value; /* TABLE_NONE: the entry is free */
    uint32_t text_len;
    uint32_t only; /* of a node of the tree: 1 + the only rule that can be found by way of it; 0: there are several */
    union {
        char text[TABLE_INLINE]; /* padded with zeros */
        struct {
            const char *far_text; /* of a longer one, not copied */
            uint64_t far_hash;    /* its table_hash */
        };
    };
};

enum { TABLE_LINE = 2 }; /* entries of a cache line, in which a search begins */

struct table {
    struct table_entry *entries;
    uint32_t size; /* of entries: whole lines */
    uint32_t count;
};

void table_done(struct table *table);
/* The value of (space, text), which is set to `value` if there was none; NULL: no memory. Lives until the next call. */
uint32_t *table_put(struct table *table, uint32_t space, sv text, uint32_t value);
/* Puts each entry in its place once more, in no more memory than all need. False: no memory. */
bool table_trim(struct table *table);

#define TABLE_MIX UINT64_C(0x9e3779b97f4a7c15)

/* Folds the product, so that high bits reach the low ones. */
static inline uint64_t table_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Returns the hash of a text longer than TABLE_WORD. */
static inline uint64_t table_hash(sv text)
{
    uint64_t hash = text.len * TABLE_MIX;
    for (size_t i = 0; i + 8 < text.len; i += 8)
        hash = table_fold(hash ^ sv_word(text.ptr + i), TABLE_MIX);
    return table_fold(hash ^ sv_word(text.ptr + text.len - 8), TABLE_MIX);
}

/* Returns the word that represents a text: the text itself, padded with zeros, if it is short, else its hash. */
static inline uint64_t table_word(sv text)
{
    return text.len <= TABLE_WORD ? sv_short_word(text) : table_hash(text);
}

/* Returns the entry at which the search for a text in `space` begins. */
static inline uint32_t table_first(const struct table *table, uint32_t space, uint64_t word)
{
    uint64_t hash = (uint32_t)(table_fold(word ^ TABLE_MIX, (space + UINT64_C(1)) * TABLE_MIX) >> 16);
    return (uint32_t)(hash * (table->size / TABLE_LINE) >> 32) * TABLE_LINE;
}

static inline uint32_t table_next(const struct table *table, uint32_t entry)
{
    return entry + 1 < table->size ? entry + 1 : 0;
}

static inline sv table_text(const struct table_entry *entry)
{
    return sv_of(entry->text_len <= TABLE_INLINE ? entry->text : entry->far_text, entry->text_len);
}

/* Whether an entry that is not free is that of (space, text), whose table_word is given. A far text is read only if its
 * hash is the same. */
static inline bool table_entry_is(const struct table_entry *entry, uint32_t space, sv text, uint64_t word)
{
    if (entry->space != space || entry->text_len != text.len)
        return false;
    if (text.len <= TABLE_WORD)
        return sv_word(entry->text) == word;
    if (text.len > TABLE_INLINE)
        return entry->far_hash == word && sv_eq(table_text(entry), text);
    return sv_word(entry->text) == sv_word(text.ptr) &&
           sv_word(entry->text + text.len - TABLE_WORD) == sv_word(text.ptr + text.len - TABLE_WORD);
}

/* Returns the entry of (space, text), or a free one if it is not there. word: table_word(text). The table is not empty. */
static inline const struct table_entry *table_find_word(const struct table *table, uint32_t space, sv text, uint64_t word)
{
    for (uint32_t i = table_first(table, space, word);; i = table_next(table, i)) {
        const struct table_entry *entry = &table->entries[i];
        if (entry->value == TABLE_NONE || table_entry_is(entry, space, text, word))
            return entry;
    }
}

/* TABLE_NONE: not there. */
static inline uint32_t table_find(const struct table *table, uint32_t space, sv text)
{
    return table->count > 0 ? table_find_word(table, space, text, table_word(text))->value : TABLE_NONE;
}

#endif
