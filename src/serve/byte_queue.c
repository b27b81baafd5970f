#include "serve/byte_queue.h"

#include <stdlib.h>

enum { FIRST_BYTES = 1024 };

void byte_queue_clear(struct byte_queue *q)
{
    if (q->ptr)
        q->budget->used -= q->cap;
    free(q->ptr);
    *q = (struct byte_queue){ .budget = q->budget };
}

static bool grow(struct byte_queue *q, size_t more)
{
    size_t cap = q->cap ? q->cap : FIRST_BYTES;
    while (cap - q->len < more)
        cap *= 2;
    if (!byte_budget_take(q->budget, cap - q->cap))
        return false;
    char *ptr = realloc(q->ptr, cap);
    if (!ptr) {
        q->budget->used -= cap - q->cap;
        return false;
    }
    q->ptr = ptr;
    q->cap = cap;
    return true;
}

char *byte_queue_reserve(struct byte_queue *q, size_t more)
{
    if (q->start > 0) {
        memmove(q->ptr, q->ptr + q->start, q->len);
        q->start = 0;
    }
    return q->cap - q->len >= more || grow(q, more) ? q->ptr + q->len : NULL;
}

bool byte_queue_append(struct byte_queue *q, sv bytes)
{
    char *to = bytes.len ? byte_queue_reserve(q, bytes.len) : NULL;
    if (!to)
        return bytes.len == 0;
    memcpy(to, bytes.ptr, bytes.len);
    q->len += bytes.len;
    return true;
}

void byte_queue_consume(struct byte_queue *q, size_t bytes)
{
    q->start += bytes;
    q->len -= bytes;
    if (q->len == 0)
        byte_queue_clear(q);
}
