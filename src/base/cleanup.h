/* Variables that release what they own at the end of their scope, on every path out of it.
 *
 *     CLEANUP(buf_done) struct buf text;         any x_done(struct x *); initialise it before the first return
 *     CLEANUP_FREE struct row *rows = cleanup_calloc(count, sizeof *rows);
 *     CLEANUP_CLOSE int fd = open(…);
 *     CLEANUP(rules_freep) struct rules *rules = NULL;      after CLEANUP_POINTER(struct rules *, rules_free)
 *     return STEAL(rules);                                  the caller owns it now
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(release) __attribute__((cleanup(release)))

/* Defines RELEASEp, which CLEANUP takes for a variable of a pointer type. */
#define CLEANUP_POINTER(type, release)            \
    static inline void release##p(type *variable) \
    {                                             \
        if (*variable)                            \
            release(*variable);                   \
    }                                             \
    struct cleanup_needs_semicolon

/* calloc() for variables that are released so. clang's analyzer and cppcheck do not know that a scope releases them, and
 * report each as a leak; what they cannot see into they do not report. */
void *cleanup_calloc(size_t count, size_t size);

static inline void cleanup_free(void *variable)
{
    free(*(void **)variable);
}

/* errno stays as it is. */
static inline void cleanup_close(const int *fd)
{
    int saved = errno;
    if (*fd >= 0)
        close(*fd);
    errno = saved;
}

#define CLEANUP_FREE CLEANUP(cleanup_free)
#define CLEANUP_CLOSE CLEANUP(cleanup_close)

/* The value of a pointer variable, which is NULL afterwards. */
#define STEAL(variable)                   \
    __extension__({                       \
        __auto_type stolen_ = (variable); \
        (variable) = NULL;                \
        stolen_;                          \
    })

#endif
