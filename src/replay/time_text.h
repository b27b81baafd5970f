/* Reading instants that a decision can be made at: within [0, CLOCK_END_US). */
#ifndef REPLAY_TIME_TEXT_H
#define REPLAY_TIME_TEXT_H

#include "base/instant.h"

static inline bool when_parse_rfc3339(sv text, int64_t *ret_us)
{
    return instant_parse_rfc3339(text, ret_us) && clock_valid(*ret_us);
}

static inline bool when_parse_clf(sv text, int64_t *ret_us)
{
    return instant_parse_clf(text, ret_us) && clock_valid(*ret_us);
}

/* RFC 3339, or decimal milliseconds since 1970. */
static inline bool when_parse(sv text, int64_t *ret_us)
{
    return (instant_parse_rfc3339(text, ret_us) || instant_parse_number(text, US_PER_MS, ret_us)) && clock_valid(*ret_us);
}

#endif
