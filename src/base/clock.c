#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

int64_t clock_now_us(void)
{
    return read_clock(CLOCK_REALTIME);
}

int64_t clock_steady_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}
