#include "serve/h2_memory.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define SEES_ADDRESSES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SEES_ADDRESSES 1
#endif
#endif
#ifndef SEES_ADDRESSES
#define SEES_ADDRESSES 0
#endif

/* What is before the bytes of a piece. They are aligned as those of malloc. */
struct h2_piece {
    _Alignas(max_align_t) union {
        size_t bytes; /* with this, while it is in use */
        struct h2_piece *next;
    };
};

static size_t size_of(size_t bytes)
{
    return bytes / H2_MEMORY_STEP;
}

static void *take(size_t bytes, void *data)
{
    struct h2_memory *memory = data;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + sizeof(struct h2_piece) + H2_MEMORY_STEP - 1) & ~(size_t)(H2_MEMORY_STEP - 1);
    struct h2_piece *piece = size_of(bytes) < H2_MEMORY_SIZES ? memory->kept[size_of(bytes)] : NULL;
    if (piece) {
        memory->kept[size_of(bytes)] = piece->next;
        memory->kept_bytes -= bytes;
    } else if (!(piece = malloc(bytes)))
        return NULL;
    piece->bytes = bytes;
    return piece + 1;
}

static void give_back(void *ptr, void *data)
{
    struct h2_memory *memory = data;
    if (!ptr)
        return;
    struct h2_piece *piece = (struct h2_piece *)ptr - 1;
    size_t bytes = piece->bytes;
    if (size_of(bytes) >= H2_MEMORY_SIZES || memory->kept_bytes + bytes > H2_MEMORY_KEPT) {
        free(piece);
        return;
    }
    piece->next = memory->kept[size_of(bytes)];
    memory->kept[size_of(bytes)] = piece;
    memory->kept_bytes += bytes;
}

static void *take_zeros(size_t count, size_t each, void *data)
{
    size_t bytes;
    void *ptr = __builtin_mul_overflow(count, each, &bytes) ? NULL : take(bytes, data);
    return ptr ? memset(ptr, 0, bytes) : NULL;
}

static void *resize(void *ptr, size_t bytes, void *data)
{
    size_t room = ptr ? ((struct h2_piece *)ptr - 1)->bytes - sizeof(struct h2_piece) : 0;
    if (ptr && bytes <= room)
        return ptr;
    void *fresh = take(bytes, data);
    if (ptr && fresh) {
        memcpy(fresh, ptr, room);
        give_back(ptr, data);
    }
    return fresh;
}

void h2_memory_init(struct h2_memory *memory)
{
    *memory = (struct h2_memory){ .calls = { memory, take, give_back, take_zeros, resize } };
}

void h2_memory_done(struct h2_memory *memory)
{
    for (size_t i = 0; i < H2_MEMORY_SIZES; i++)
        while (memory->kept[i]) {
            struct h2_piece *piece = memory->kept[i];
            memory->kept[i] = piece->next;
            free(piece);
        }
    memory->kept_bytes = 0;
}

nghttp2_mem *h2_memory_calls(struct h2_memory *memory)
{
    return SEES_ADDRESSES ? NULL : &memory->calls;
}
