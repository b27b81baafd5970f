/* Regexes and texts from anywhere: what matches has what the regex needs. The first byte holds switches and the length of
 * the regex, which follows; the rest is the text. */
#include <stdio.h>
#include <stdlib.h>

#include "base/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t length = data[0] / 2 < size - 1 ? data[0] / 2 : size - 1;
    /* Copies of the exact size, so that reading beyond them is seen. */
    char *pattern = malloc(length + 1), *text = malloc(size - length);
    struct regex *regex = NULL;
    char error[200];
    if (!pattern || !text)
        abort();
    memcpy(pattern, data + 1, length);
    memcpy(text, data + 1 + length, size - 1 - length);
    sv whole = sv_of(text, size - 1 - length);
    if (regex_new(&regex, sv_of(pattern, length), data[0] & 1, error, sizeof error) == 0) {
        if (regex_match(regex, whole) != REGEX_NO && !regex_needs_met(regex_needs(regex), whole)) {
            fprintf(stderr, "`%.*s` matches without what it needs\n", (int)length, pattern);
            abort();
        }
        regex_free(regex);
    }
    free(pattern);
    free(text);
    return 0;
}
