/* Assertions that stay on in every build, NDEBUG or not: a broken invariant stops the process before it can damage a table
 * that other processes share. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

/* The function of libc behind assert(). <assert.h> declares it only without NDEBUG. */
_Noreturn void __assert_fail(const char *condition, const char *file, unsigned line, const char *function);

/* Prints file, line, function and condition to standard error and aborts if the condition is false. */
#define CHECK(condition) \
    (__builtin_expect(!!(condition), 1) ? (void)0 : __assert_fail(#condition, __FILE__, __LINE__, __func__))

#endif
