#include "replay/intern.h"

#include <stdlib.h>

#include "base/hash.h"

void intern_init(struct intern *intern, size_t max, size_t bytes_max)
{
    *intern = (struct intern){ .max = max, .bytes_max = bytes_max };
}

void intern_done(struct intern *intern)
{
    if (!intern)
        return;
    arena_done(&intern->arena);
    free(intern->entries);
    free(intern->slots);
    *intern = (struct intern){ 0 };
}

static uint64_t hash_of(sv text)
{
    static const struct hash_key key = { 0x77656972, 0x696e7465726e };
    struct hash h;
    hash_init(&h, &key);
    hash_bytes(&h, text.ptr, text.len);
    return hash_final(&h);
}

/* Returns the slot of the text, or the free slot for it. */
static uint32_t *slot_of(const struct intern *intern, uint64_t hash, sv text)
{
    size_t mask = intern->slot_count - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        uint32_t index = intern->slots[i];
        if (index == 0 || (intern->entries[index - 1].hash == hash && sv_eq(intern->entries[index - 1].text, text)))
            return &intern->slots[i];
    }
}

/* Doubles the slots, which are never more than half full. */
static bool grow(struct intern *intern)
{
    size_t count = intern->slot_count ? intern->slot_count * 2 : 64;
    uint32_t *slots = calloc(count, sizeof slots[0]);
    struct intern_entry *entries = realloc(intern->entries, count / 2 * sizeof entries[0]);
    if (entries)
        intern->entries = entries;
    if (!slots || !entries) {
        free(slots);
        return false;
    }
    free(intern->slots);
    intern->slots = slots;
    intern->slot_count = count;
    intern->entry_cap = count / 2;
    for (size_t i = 0; i < intern->count; i++)
        *slot_of(intern, entries[i].hash, entries[i].text) = (uint32_t)i + 1;
    return true;
}

uint32_t intern_find(const struct intern *intern, sv text)
{
    if (intern->count == 0)
        return INTERN_NONE;
    uint32_t index = *slot_of(intern, hash_of(text), text);
    return index ? index - 1 : INTERN_NONE;
}

uint32_t intern_add(struct intern *intern, sv text)
{
    uint32_t found = intern_find(intern, text);
    if (found != INTERN_NONE)
        return found;
    if (intern->count >= intern->max || text.len > intern->bytes_max - intern->bytes ||
        (intern->count == intern->entry_cap && !grow(intern)))
        return INTERN_NONE;
    sv copy = arena_copy(&intern->arena, text);
    if (!copy.ptr)
        return INTERN_NONE;
    intern->bytes += text.len;
    uint64_t hash = hash_of(text);
    uint32_t *slot = slot_of(intern, hash, text);
    intern->entries[intern->count] = (struct intern_entry){ hash, copy };
    *slot = (uint32_t)++intern->count;
    return *slot - 1;
}
