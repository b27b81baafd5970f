#include "match/text_table.h"

#include <stdlib.h>

enum { FIRST_ENTRIES = 64, CACHE_LINE = 64 };
_Static_assert(CACHE_LINE == TABLE_LINE * sizeof(struct table_entry), "no entry lies across two lines");

void table_done(struct table *table)
{
    if (!table)
        return;
    free(table->entries);
    *table = (struct table){ 0 };
}

static struct table_entry *free_entry(const struct table *table, uint32_t space, uint64_t word)
{
    uint32_t i = table_first(table, space, word);
    while (table->entries[i].value != TABLE_NONE)
        i = table_next(table, i);
    return &table->entries[i];
}

static uint64_t entry_word(const struct table_entry *entry)
{
    return entry->text_len > TABLE_INLINE ? entry->far_hash : table_word(table_text(entry));
}

static bool resize(struct table *table, uint32_t size)
{
    struct table resized = { .size = size, .count = table->count };
    resized.entries = aligned_alloc(CACHE_LINE, size * sizeof *resized.entries);
    if (!resized.entries)
        return false;
    for (uint32_t i = 0; i < size; i++)
        resized.entries[i] = (struct table_entry){ .value = TABLE_NONE };
    for (uint32_t i = 0; i < table->size; i++)
        if (table->entries[i].value != TABLE_NONE)
            *free_entry(&resized, table->entries[i].space, entry_word(&table->entries[i])) = table->entries[i];
    free(table->entries);
    *table = resized;
    return true;
}

/* At most half full, so that a miss ends soon. */
static bool make_room(struct table *table)
{
    if (table->count < table->size / 2)
        return true;
    return table->size <= UINT32_MAX / 2 && resize(table, table->size ? table->size * 2 : FIRST_ENTRIES);
}

/* Two thirds full: with lines of two, most texts are in the line in which the search begins. */
bool table_trim(struct table *table)
{
    return table->count == 0 || resize(table, (table->count / TABLE_LINE * 3 / 2 + TABLE_LINE) * TABLE_LINE);
}

uint32_t *table_put(struct table *table, uint32_t space, sv text, uint32_t value)
{
    uint64_t word = table_word(text);
    if (table->count > 0) {
        struct table_entry *entry = (struct table_entry *)table_find_word(table, space, text, word);
        if (entry->value != TABLE_NONE)
            return &entry->value;
    }
    if (!make_room(table))
        return NULL;
    struct table_entry *entry = free_entry(table, space, word);
    *entry = (struct table_entry){ .space = space, .value = value, .text_len = (uint32_t)text.len };
    if (text.len > TABLE_INLINE) {
        entry->far_text = text.ptr;
        entry->far_hash = word;
    } else if (text.len > 0)
        memcpy(entry->text, text.ptr, text.len);
    table->count++;
    return &entry->value;
}
