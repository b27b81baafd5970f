/* Zeros, for some hundred bytes. */
#ifndef BASE_ZERO_H
#define BASE_ZERO_H

#include <string.h>

/* memset of the C library. If gcc knows the length, it writes `rep stos` instead, which takes longer to begin than memset
 * takes for all of it. */
static inline void zero(void *to, size_t bytes)
{
    __asm__("" : "+r"(bytes));
    memset(to, 0, bytes);
}

#endif
