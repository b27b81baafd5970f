/* Memory that is freed all at once. A set of rules lives in an arena. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/sv.h"

struct arena_block;

struct arena {
    struct arena_block *blocks;
};

void arena_done(struct arena *a);
/* Zeroed, aligned for pointers and numbers of 64 bits; NULL if there is no memory. */
void *arena_alloc(struct arena *a, size_t size);
/* The same without zeroes: for what is written at once. */
void *arena_room(struct arena *a, size_t size);
void *arena_array(struct arena *a, size_t size, size_t count);
/* The same for bytes, which are not aligned: texts are many and short. */
char *arena_text(struct arena *a, size_t size);

struct arena_mark {
    const struct arena_block *block;
    size_t used, texts;
};
struct arena_mark arena_mark(const struct arena *a);
/* Gives back all that came after the mark. */
void arena_back(struct arena *a, const struct arena_mark *mark);
/* A copy that ends in NUL. { NULL, 0 } if there is no memory. */
sv arena_copy(struct arena *a, sv s);

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_array((a), sizeof(type), (n)))

#endif
