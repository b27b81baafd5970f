/* Instants that a decision can be made at, and lengths of time. */
#ifndef CLI_TIME_TEXT_H
#define CLI_TIME_TEXT_H

#include "base/instant.h"

/* Within [0, CLOCK_END_US). */
bool when_parse_rfc3339(sv text, int64_t *ret_us);
bool when_parse_clf(sv text, int64_t *ret_us);
/* RFC 3339, or decimal milliseconds since 1970. */
bool when_parse(sv text, int64_t *ret_us);

enum { SPAN_TEXT_MAX = 40 };
/* A length of time in its two largest units: "3 h 20 min", "250 ms". */
void span_text(int64_t us, char out[SPAN_TEXT_MAX]);

#endif
