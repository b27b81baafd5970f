/* Reading instants that a decision can be made at. */
#ifndef CLI_TIME_TEXT_H
#define CLI_TIME_TEXT_H

#include "base/instant.h"

/* Within [0, CLOCK_END_US). */
bool when_parse_rfc3339(sv text, int64_t *ret_us);
bool when_parse_clf(sv text, int64_t *ret_us);
/* RFC 3339, or decimal milliseconds since 1970. */
bool when_parse(sv text, int64_t *ret_us);

#endif
