#include "cli/time_text.h"

static bool in_bounds(bool parsed, int64_t us, int64_t *ret_us)
{
    if (!parsed || !clock_valid(us))
        return false;
    *ret_us = us;
    return true;
}

bool when_parse_rfc3339(sv text, int64_t *ret_us)
{
    int64_t us = 0;
    bool parsed = instant_parse_rfc3339(text, &us);
    return in_bounds(parsed, us, ret_us);
}

bool when_parse_clf(sv text, int64_t *ret_us)
{
    int64_t us = 0;
    bool parsed = instant_parse_clf(text, &us);
    return in_bounds(parsed, us, ret_us);
}

bool when_parse(sv text, int64_t *ret_us)
{
    int64_t us = 0;
    bool parsed = instant_parse_rfc3339(text, &us) || instant_parse_number(text, US_PER_MS, &us);
    return in_bounds(parsed, us, ret_us);
}
