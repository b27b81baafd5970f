/* Texts that a regex needs: a text in which they do not occur cannot match. See regex_needs.c. */
#ifndef BASE_REGEX_NEEDS_H
#define BASE_REGEX_NEEDS_H

#include "base/sv.h"

enum {
    NEED_TEXTS_MAX = 32, /* of a regex */
    NEED_BYTES_MAX = 32, /* of a text */
};

struct need_text {
    sv text;
    uint16_t need;
};

/* Each need is a list of texts, of which one occurs in whatever the regex matches. Texts are in lower case (A to Z), and
 * occur in either case. Those of one need stand together, and have its number. */
struct regex_needs {
    size_t count; /* 0: nothing is known */
    struct need_text texts[];
};

/* The needs of a pattern that PCRE2 compiles without PCRE2_UTF and PCRE2_EXTENDED; to be freed. NULL: no memory. */
struct regex_needs *regex_needs_new(sv pattern);
/* False: some need is not met, so the regex cannot match the text. */
bool regex_needs_met(const struct regex_needs *needs, sv text);

#endif
