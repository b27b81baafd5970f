#include "base/arena.h"

#include <stdlib.h>

/* Blocks grow with the arena: few of them hold much, and malloc() gives large ones back to the system when they are freed.
 * What is not used of them is not touched, and so takes no memory. */
enum { BLOCK_MIN = 16 * 1024, BLOCK_MAX = 1024 * 1024, ALIGN = 8 };

/* Structures are taken from the beginning, texts from the end: neither needs room to align the other. */
struct arena_block {
    struct arena_block *next;
    size_t used, texts; /* bytes from `used` to `texts` are free */
    size_t size;
    _Alignas(max_align_t) char bytes[];
};

static void drop_block(struct arena *a)
{
    struct arena_block *block = a->blocks;
    a->blocks = block->next;
    free(block);
}

void arena_done(struct arena *a)
{
    while (a && a->blocks)
        drop_block(a);
}

/* The newest block, or a new one if that has less room. NULL: no memory. */
static struct arena_block *block_with(struct arena *a, size_t size)
{
    struct arena_block *block = a->blocks;
    if (block && block->texts - block->used >= size)
        return block;
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t room = !block ? BLOCK_MIN : block->size < BLOCK_MAX / 2 ? 2 * block->size : BLOCK_MAX;
    room = size > room ? size : room;
    block = malloc(sizeof *block + room);
    if (!block)
        return NULL;
    *block = (struct arena_block){ .next = a->blocks, .texts = room, .size = room };
    a->blocks = block;
    return block;
}

void *arena_room(struct arena *a, size_t size)
{
    /* Then the next one is aligned, too. */
    size_t whole = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct arena_block *block = whole >= size ? block_with(a, whole) : NULL;
    if (!block)
        return NULL;
    block->used += whole;
    return block->bytes + block->used - whole;
}

char *arena_text(struct arena *a, size_t size)
{
    struct arena_block *block = block_with(a, size);
    if (!block)
        return NULL;
    block->texts -= size;
    return block->bytes + block->texts;
}

struct arena_mark arena_mark(const struct arena *a)
{
    const struct arena_block *block = a->blocks;
    return block ? (struct arena_mark){ block, block->used, block->texts } : (struct arena_mark){ 0 };
}

void arena_back(struct arena *a, const struct arena_mark *mark)
{
    while (a->blocks != mark->block)
        drop_block(a);
    if (a->blocks) {
        a->blocks->used = mark->used;
        a->blocks->texts = mark->texts;
    }
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
