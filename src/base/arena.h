/* Memory that is given back all at once: what a set of rules is made of. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/sv.h"

struct arena_block;

struct arena {
    struct arena_block *blocks;
};

void arena_done(struct arena *a);
/* Zeroed, aligned for anything; NULL when there is no memory. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_array(struct arena *a, size_t size, size_t count);
/* A copy with a NUL behind it. { NULL, 0 } when there is no memory. */
sv arena_copy(struct arena *a, sv s);

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_array((a), sizeof(type), (n)))

#endif
