/* Regular expressions (PCRE2, JIT where the machine has it) that match a whole string and are bounded in time and memory.
 */
#ifndef BASE_REGEX_H
#define BASE_REGEX_H

#include "base/regex_needs.h"

struct regex;

/* REGEX_BOUND: it exceeded its bound, and the text has all that it needs: count it as a match. */
enum regex_result { REGEX_NO, REGEX_YES, REGEX_BOUND };

/* 0 or a negative enum weir_code. error: what is wrong and at which offset, for a person; at least 160 bytes. Byte-wise
 * unless the pattern begins with (*UTF); `.` matches line ends too. */
int regex_new(struct regex **ret, sv pattern, bool ignore_case, char *error, size_t error_cap);
void regex_free(struct regex *regex);
/* A text that does not meet them is REGEX_NO. They live as long as the regex. */
const struct regex_needs *regex_needs(const struct regex *regex);
/* Any number of threads at once; allocates nothing after the first call of a thread. */
enum regex_result regex_match(const struct regex *regex, sv text);
/* The same within a part of the bound, for one of `parts` texts that share it. */
enum regex_result regex_match_part(const struct regex *regex, sv text, size_t parts);

#endif
