/* Bytes of a connection that have to be kept: an incomplete command, replies that the client has not read yet, commands
 * between MULTI and EXEC. All queues of a loop share one budget, whatever the number of its connections. */
#ifndef SERVE_BYTE_QUEUE_H
#define SERVE_BYTE_QUEUE_H

#include "base/sv.h"

/* Enough for 32 clients that are sending a command of 1 MiB, or for 16,000 with an ordinary command and some replies;
 * little enough for a small host with several loops. If larger commands are allowed, there is room for a few of them. */
enum { BYTE_BUDGET_MAX = 64 << 20, BYTE_BUDGET_LARGEST = 4 };

/* The memory that may be allocated, and that is. */
struct byte_budget {
    size_t used, max;
};

static inline size_t byte_budget_max(size_t largest)
{
    return largest * BYTE_BUDGET_LARGEST > BYTE_BUDGET_MAX ? largest * BYTE_BUDGET_LARGEST : BYTE_BUDGET_MAX;
}

/* False: the budget does not allow it. */
static inline bool byte_budget_take(struct byte_budget *budget, size_t bytes)
{
    if (bytes > budget->max - budget->used)
        return false;
    budget->used += bytes;
    return true;
}

struct byte_queue {
    char *ptr;
    size_t start, len, cap; /* `len` bytes are queued, from ptr + start on */
    struct byte_budget *budget;
};

void byte_queue_clear(struct byte_queue *q);
/* Returns where to write `more` bytes after those that are queued; the caller then raises len. NULL: no memory, or the
 * budget does not allow it. */
char *byte_queue_reserve(struct byte_queue *q, size_t more);
bool byte_queue_append(struct byte_queue *q, sv bytes); /* false: as above */
void byte_queue_consume(struct byte_queue *q, size_t bytes);

#endif
