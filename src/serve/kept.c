#include "serve/kept.h"

#include <stdlib.h>

enum { FIRST_BYTES = 1024 };

void kept_clear(struct kept *k)
{
    if (k->ptr)
        k->total->bytes -= k->cap;
    free(k->ptr);
    *k = (struct kept){ .total = k->total };
}

static bool grow(struct kept *k, size_t more)
{
    size_t cap = k->cap ? k->cap : FIRST_BYTES;
    while (cap - k->len < more)
        cap *= 2;
    if (cap - k->cap > k->total->most - k->total->bytes)
        return false;
    char *ptr = realloc(k->ptr, cap);
    if (!ptr)
        return false;
    k->total->bytes += cap - k->cap;
    k->ptr = ptr;
    k->cap = cap;
    return true;
}

char *kept_room(struct kept *k, size_t more)
{
    if (k->start > 0) {
        memmove(k->ptr, k->ptr + k->start, k->len);
        k->start = 0;
    }
    return k->cap - k->len >= more || grow(k, more) ? k->ptr + k->len : NULL;
}

bool kept_add(struct kept *k, sv bytes)
{
    char *to = bytes.len ? kept_room(k, bytes.len) : NULL;
    if (!to)
        return bytes.len == 0;
    memcpy(to, bytes.ptr, bytes.len);
    k->len += bytes.len;
    return true;
}

void kept_drop(struct kept *k, size_t bytes)
{
    k->start += bytes;
    k->len -= bytes;
    if (k->len == 0)
        kept_clear(k);
}
