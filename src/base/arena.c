#include "base/arena.h"

#include <stdlib.h>

enum { ARENA_BLOCK = 16 * 1024, ALIGN = 8 };

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(max_align_t) char bytes[];
};

void arena_done(struct arena *a)
{
    if (!a)
        return;
    while (a->blocks) {
        struct arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
}

/* `align` is a power of two. */
static void *take(struct arena *a, size_t size, size_t align)
{
    struct arena_block *block = a->blocks;
    size_t start = block ? (block->used + align - 1) & ~(align - 1) : 0;
    if (size > SIZE_MAX / 2)
        return NULL;
    if (!block || block->size < start || block->size - start < size) {
        size_t room = size > ARENA_BLOCK ? size : ARENA_BLOCK;
        block = malloc(sizeof *block + room);
        if (!block)
            return NULL;
        *block = (struct arena_block){ .next = a->blocks, .size = room };
        a->blocks = block;
        start = 0;
    }
    block->used = start + size;
    return block->bytes + start;
}

void *arena_room(struct arena *a, size_t size)
{
    return take(a, size, ALIGN);
}

char *arena_text(struct arena *a, size_t size)
{
    return take(a, size, 1);
}

void arena_back(struct arena *a, const void *piece)
{
    struct arena_block *block = a->blocks;
    uintptr_t at = (uintptr_t)piece, first = block ? (uintptr_t)block->bytes : 0;
    if (block && at >= first && at - first < block->used)
        block->used = at - first;
}

void *arena_alloc(struct arena *a, size_t size)
{
    void *ptr = arena_room(a, size);
    return ptr ? memset(ptr, 0, size) : NULL;
}

void *arena_array(struct arena *a, size_t size, size_t count)
{
    size_t bytes;
    return __builtin_mul_overflow(size, count, &bytes) ? NULL : arena_alloc(a, bytes);
}

sv arena_copy(struct arena *a, sv s)
{
    char *ptr = arena_text(a, s.len + 1);
    if (!ptr)
        return (sv){ 0 };
    if (s.len)
        memcpy(ptr, s.ptr, s.len);
    ptr[s.len] = '\0';
    return sv_of(ptr, s.len);
}
