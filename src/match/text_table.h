/* A hash table from (space, text) to a number. One table holds all that a ruleset looks up: events, hosts and the literal
 * children of every node of the tree, each node a space of its own.
 *
 * With many rules the table is not in the cache, so that the lines of memory that a search reads are its cost, and each
 * rule has an entry, so that entries are the cost of a rule. A line holds three entries, and a text has two lines in which
 * it may be. It is in the first one if there is room; a line says whether some text that belongs there is elsewhere. The
 * finished table is 7/8 full: most texts are in their first line, and a text that is not there is mostly missed in one or
 * two lines. Filling such a table moves entries to their other line until all have room. If that does not help, as with
 * many texts of one hash, an entry goes to the next line after the second one that has room.
 *
 * Every hit is compared in full. Requests only look things up, but rules may come from many customers: one of them could
 * write texts that all collide, which would slow down compiling and matching for all others. So the hash has a salt. */
#ifndef MATCH_TEXT_TABLE_H
#define MATCH_TEXT_TABLE_H

#include "match/path.h"

#define TABLE_NONE UINT32_MAX

enum {
    TABLE_WORD = 8, /* a text up to this is compared as one word */
    TABLE_INLINE = 12,
    TABLE_TEXT_MAX = UINT16_MAX, /* bytes; a longer text is never there */
    TABLE_SLOTS = 3,             /* of a line */
    TABLE_FAR = TABLE_INLINE + 1,
    TABLE_FREE,
};

/* A text that is not copied, since it is longer than TABLE_INLINE. */
struct table_far {
    const char *text;
    uint16_t len, hash; /* hash: the high bits of its table_word */
} __attribute__((packed));
_Static_assert(sizeof(struct table_far) <= TABLE_INLINE, "it stands in place of a text");

union table_text {
    char text[TABLE_INLINE]; /* padded with zeros */
    struct table_far far;
};

struct table_line {
    uint32_t space[TABLE_SLOTS];
    uint32_t value[TABLE_SLOTS];
    union table_text of[TABLE_SLOTS];
    uint8_t len[TABLE_SLOTS]; /* of the text, or TABLE_FAR, or TABLE_FREE */
    bool more;                /* some text that is searched for here is in a later line of its own */
};
_Static_assert(sizeof(struct table_line) == 64, "a cache line");

struct table {
    struct table_line *lines;
    uint32_t line_count;
    uint32_t count; /* of entries */
};

/* An entry, which may be changed; after a change of its space nothing is found until table_trim(). */
struct table_entry {
    uint32_t *space, *value;
    sv text;
};

void table_done(struct table *table);
/* Makes room for so many entries, before there are any. False: no memory. */
bool table_reserve(struct table *table, size_t count);
/* The value of (space, text), which is set to `value` if there was none; NULL: no memory. Lives until the next call. */
uint32_t *table_put(struct table *table, uint32_t space, sv text, uint32_t value);
/* Puts each entry in its place once more, in no more memory than all need. False: no memory. */
bool table_trim(struct table *table);
/* Visits all entries, in no order. *next is 0 at first. False: there are no more. */
bool table_each(const struct table *table, size_t *next, struct table_entry *ret);
/* The entry that table_each() gave when it left *next at slot + 1. */
struct table_entry table_at(const struct table *table, size_t slot);

#define TABLE_MIX UINT64_C(0x9e3779b97f4a7c15)

extern uint64_t table_salt; /* random, chosen when the process starts */

/* Folds the product, so that high bits reach the low ones. */
static inline uint64_t table_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Returns the hash of a text longer than TABLE_WORD. */
static inline uint64_t table_hash(sv text)
{
    uint64_t hash = text.len * TABLE_MIX ^ table_salt;
    for (size_t i = 0; i + 8 < text.len; i += 8)
        hash = table_fold(hash ^ sv_word(text.ptr + i), TABLE_MIX);
    return table_fold(hash ^ sv_word(text.ptr + text.len - 8), TABLE_MIX);
}

/* Returns the word that represents a text: the text itself, padded with zeros, if it is short, else its hash. */
static inline uint64_t table_word(sv text)
{
    return text.len <= TABLE_WORD ? sv_short_word(text) : table_hash(text);
}

/* Returns a number whose halves choose the two lines of a text in `space`. */
static inline uint64_t table_places(uint32_t space, uint64_t word)
{
    return table_fold(word ^ TABLE_MIX ^ table_salt, (2 * (uint64_t)space + 1) * TABLE_MIX);
}

static inline uint32_t table_first(const struct table *table, uint64_t places)
{
    return (uint32_t)((places & UINT32_MAX) * table->line_count >> 32);
}

static inline uint32_t table_second(const struct table *table, uint64_t places)
{
    return (uint32_t)((places >> 32) * table->line_count >> 32);
}

static inline uint32_t table_next(const struct table *table, uint32_t line)
{
    return line + 1 < table->line_count ? line + 1 : 0;
}

static inline struct table_far table_far(sv text, uint64_t word)
{
    return (struct table_far){ text.ptr, (uint16_t)text.len, (uint16_t)(word >> 48) };
}

/* Whether a slot is that of (space, text), whose table_word is given. A far text is read only if its length and its hash
 * are the same. */
static inline bool table_slot_is(const struct table_line *line, unsigned slot, uint32_t space, sv text, uint64_t word)
{
    const char *its = line->of[slot].text;
    if (line->space[slot] != space)
        return false;
    if (text.len <= TABLE_WORD)
        return sv_word(its) == word && line->len[slot] == text.len;
    if (text.len <= TABLE_INLINE)
        return line->len[slot] == text.len && sv_word(its) == sv_word(text.ptr) &&
               sv_word(its + text.len - TABLE_WORD) == sv_word(text.ptr + text.len - TABLE_WORD);
    const struct table_far *far = &line->of[slot].far, wanted = table_far(text, word);
    return line->len[slot] == TABLE_FAR && far->len == wanted.len && far->hash == wanted.hash &&
           sv_eq(sv_of(far->text, far->len), text);
}

/* Returns the value of (space, text); NULL: it is not there. word: table_word(text). The table is not empty. */
static inline const uint32_t *table_find_word(const struct table *table, uint32_t space, sv text, uint64_t word)
{
    uint64_t places = table_places(space, word);
    const struct table_line *line = &table->lines[table_first(table, places)];
    uint32_t at = table_second(table, places);
    for (uint32_t searched = 0;; searched++) {
        /* A branch for each slot: the processor predicts it, and goes on with the value before it has compared. */
        if (table_slot_is(line, 0, space, text, word))
            return &line->value[0];
        if (table_slot_is(line, 1, space, text, word))
            return &line->value[1];
        if (table_slot_is(line, 2, space, text, word))
            return &line->value[2];
        if (!line->more || searched == table->line_count)
            return NULL;
        line = &table->lines[at];
        at = table_next(table, at);
    }
}

/* TABLE_NONE: not there. */
static inline uint32_t table_find(const struct table *table, uint32_t space, sv text)
{
    const uint32_t *value = table->count > 0 ? table_find_word(table, space, text, table_word(text)) : NULL;
    return value ? *value : TABLE_NONE;
}

#endif
