#include "cli/time_text.h"

#include <stdio.h>

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

void span_text(int64_t us, char out[SPAN_TEXT_MAX])
{
    static const struct {
        const char *name;
        int64_t us;
    } units[] = {
        { "d", 86400 * US_PER_S }, { "h", 3600 * US_PER_S }, { "min", 60 * US_PER_S },
        { "s", US_PER_S },         { "ms", US_PER_MS },      { "us", 1 },
    };
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof units[0] && us < units[i].us)
        i++;
    int64_t first = us / units[i].us, rest = us % units[i].us;
    int64_t second = i + 1 < sizeof units / sizeof units[0] ? rest / units[i + 1].us : 0;
    if (second && us < 100 * units[i].us)
        snprintf(out, SPAN_TEXT_MAX, "%lld %s %lld %s", (long long)first, units[i].name, (long long)second,
                 units[i + 1].name);
    else
        snprintf(out, SPAN_TEXT_MAX, "%lld %s", (long long)first, units[i].name);
}
