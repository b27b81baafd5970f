/* Bytes that wait: of a command of which the rest has to come, of replies that are not taken yet. What a loop keeps for all
 * of its connections has one bound, whatever each of them may have. */
#ifndef SERVE_KEPT_H
#define SERVE_KEPT_H

#include "base/sv.h"

/* Enough for 32 clients that are in the midst of a command of 1 MiB, or for 16,000 in that of an ordinary one with some
 * replies that wait; little enough for a small host with some loops. Where larger commands are allowed there is room for
 * some of these. */
enum { KEPT_MAX = 64 << 20, KEPT_LARGEST = 4 };

/* Of all that a loop keeps: the memory that it takes. */
struct kept_total {
    size_t bytes, most;
};

static inline size_t kept_most(size_t largest)
{
    return largest * KEPT_LARGEST > KEPT_MAX ? largest * KEPT_LARGEST : KEPT_MAX;
}

struct kept {
    char *ptr;
    size_t start, len, cap; /* from `start` on, `len` of them */
    struct kept_total *total;
};

void kept_clear(struct kept *k);
/* Room for more, behind those that are there. NULL: out of memory, or all together would have more than they may. */
char *kept_room(struct kept *k, size_t more);
bool kept_add(struct kept *k, sv bytes);
void kept_drop(struct kept *k, size_t bytes);

#endif
