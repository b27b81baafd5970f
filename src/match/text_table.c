#include "match/text_table.h"

#include <stdlib.h>

enum { FIRST_ENTRIES = 64, CACHE_LINE = 64 };
_Static_assert(CACHE_LINE % sizeof(struct table_entry) == 0, "no entry lies across two lines");

void table_done(struct table *table)
{
    if (!table)
        return;
    free(table->entries);
    *table = (struct table){ 0 };
}

static struct table_entry *free_entry(struct table_entry *entries, size_t mask, uint32_t slot)
{
    size_t i = slot & mask;
    while (entries[i].value != TABLE_NONE)
        i = (i + 1) & mask;
    return &entries[i];
}

static uint64_t entry_word(const struct table_entry *entry)
{
    return entry->text_len > TABLE_INLINE ? entry->far_hash : table_word(table_text(entry));
}

/* At most half full, so that a miss ends soon. */
static bool make_room(struct table *table)
{
    size_t size = table->entries ? table->mask + 1 : 0;
    if (table->count + 1 <= size / 2)
        return true;
    size_t bigger = size ? size * 2 : FIRST_ENTRIES;
    struct table_entry *entries = aligned_alloc(CACHE_LINE, bigger * sizeof *entries);
    if (!entries)
        return false;
    for (size_t i = 0; i < bigger; i++)
        entries[i] = (struct table_entry){ .value = TABLE_NONE };
    for (size_t i = 0; i < size; i++)
        if (table->entries[i].value != TABLE_NONE)
            *free_entry(entries, bigger - 1, table_slot(table->entries[i].space, entry_word(&table->entries[i]))) =
                table->entries[i];
    free(table->entries);
    table->entries = entries;
    table->mask = bigger - 1;
    return true;
}

uint32_t *table_put(struct table *table, uint32_t space, sv text, uint32_t value)
{
    uint64_t word = table_word(text);
    uint32_t slot = table_slot(space, word);
    if (table->count > 0)
        for (size_t i = slot & table->mask; table->entries[i].value != TABLE_NONE; i = (i + 1) & table->mask)
            if (table_entry_is(&table->entries[i], space, text, word))
                return &table->entries[i].value;
    if (!make_room(table))
        return NULL;
    struct table_entry *entry = free_entry(table->entries, table->mask, slot);
    *entry = (struct table_entry){ .space = space, .value = value, .text_len = (uint32_t)text.len };
    if (text.len > TABLE_INLINE) {
        entry->far_text = text.ptr;
        entry->far_hash = word;
    } else if (text.len > 0)
        memcpy(entry->text, text.ptr, text.len);
    table->count++;
    return &entry->value;
}
