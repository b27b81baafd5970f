/* Numbers strings: each distinct one gets the next index, from 0. */
#ifndef REPLAY_INTERN_H
#define REPLAY_INTERN_H

#include "base/arena.h"

#define INTERN_NONE UINT32_MAX

struct intern_entry {
    uint64_t hash;
    sv text;
};

struct intern {
    struct arena arena;
    struct intern_entry *entries;
    uint32_t *slots; /* index + 1; 0: free */
    size_t count, entry_cap, slot_count;
    size_t bytes; /* of all strings */
    size_t max;   /* distinct strings, at most */
    size_t bytes_max;
};

void intern_init(struct intern *intern, size_t max, size_t bytes_max);
void intern_done(struct intern *intern);

/* The index of text, which is added if it is new; INTERN_NONE if there is no room. */
uint32_t intern_add(struct intern *intern, sv text);
uint32_t intern_find(const struct intern *intern, sv text);

static inline sv intern_text(const struct intern *intern, uint32_t index)
{
    return intern->entries[index].text;
}

#endif
