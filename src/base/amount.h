/* Amounts with a unit after them (lengths of time, sizes, counts), and choices between words. Rules, options and
 * configuration files all read them here, so that one spelling means the same everywhere. */
#ifndef BASE_AMOUNT_H
#define BASE_AMOUNT_H

#include "base/sv.h"

enum amount_kind {
    AMOUNT_NUMBER, /* no unit */
    AMOUNT_COUNT,  /* k, m, g: in thousands */
    AMOUNT_SIZE,   /* k, m, g: bytes, in 1024 */
    AMOUNT_TIME,   /* ms, s, m, h, d; in milliseconds */
};

struct amount_range {
    enum amount_kind kind;
    uint64_t min, max;
    uint64_t bare; /* AMOUNT_TIME: milliseconds that a number without a unit counts in; 0: it must have one */
};

enum amount_found { AMOUNT_GOOD, AMOUNT_INVALID, AMOUNT_OUT_OF_RANGE };
/* The whole of `text`. *ret is written if AMOUNT_GOOD. */
enum amount_found amount_read(sv text, const struct amount_range *range, uint64_t *ret);

/* Which of the words ("a|b|c", counted from 0) the text is. False: none, and *ret is not written. */
bool choice_read(sv text, const char *words, int *ret);

enum { AMOUNT_ALLOWED_MAX = 120 };
/* "100ms to 1h" */
void amount_range_text(const struct amount_range *range, char out[AMOUNT_ALLOWED_MAX]);
/* "100ms to 1h, with ms, s, m, h or d after the number" */
void amount_allowed_text(const struct amount_range *range, char out[AMOUNT_ALLOWED_MAX]);

#endif
