#include "throttle/gcra.h"

#include "base/check.h"
#include "limit/take.h"

/* A difference of two times. Any two that there are fit. */
typedef __int128 span_ns;

#define NS_PER_US 1000
#define NS_PER_MS 1000000
#define NS_PER_S 1000000000

/* Towards zero, and to the nearest number that there is. */
static int64_t to_int64(double x)
{
    if (x >= 0x1p63)
        return INT64_MAX;
    if (x <= -0x1p63)
        return INT64_MIN;
    return x == x ? (int64_t)x : 0; /* not so: 0 / 0 */
}

/* Most fit 64 bits, and dividing more takes ten times as long. */
static span_ns divide(span_ns span, int64_t by)
{
    return span == (int64_t)span ? (int64_t)span / by : span / by;
}

enum gcra_code gcra_init(struct gcra *ret, int64_t max_burst, int64_t count, int64_t period_s, int64_t quantity)
{
    struct gcra g = { 0 };
    if (count != 0)
        g.emission_ns = to_int64((double)((span_ns)period_s * NS_PER_S) / (double)count);
    if (g.emission_ns == 0)
        return GCRA_ZERO_RATE;
    if (__builtin_add_overflow(max_burst, 1, &g.limit) || __builtin_mul_overflow(g.emission_ns, g.limit, &g.tolerance_ns) ||
        __builtin_mul_overflow(g.emission_ns, quantity, &g.increment_ns))
        return GCRA_TOO_LARGE;
    *ret = g;
    return GCRA_OK;
}

static bool is_there(struct limit_state s, int64_t now_us)
{
    return s.time == GCRA_KEPT || (s.time > 0 && (uint64_t)(now_us / US_PER_MS) <= s.time);
}

/* Whole seconds, and one more if there is a millisecond above them. By way of a double, as redis-cell: beyond centuries it
 * rounds. */
static int64_t seconds_of(span_ns span)
{
    int64_t whole = (int64_t)divide(span, NS_PER_S), rest = (int64_t)(span - (span_ns)whole * NS_PER_S);
    return to_int64((double)whole + (double)rest / 1e9) + (rest >= NS_PER_MS);
}

static int64_t remaining_of(const struct gcra *g, span_ns ttl)
{
    span_ns next = g->tolerance_ns - ttl;
    if (next <= -(span_ns)g->emission_ns)
        return 0;
    int64_t emission_us = g->emission_ns / NS_PER_US; /* may be 0: infinitely many remain then */
    return to_int64((double)divide(next, NS_PER_US) / (double)emission_us);
}

static struct limit_outlook outlook_of(const struct gcra *g, struct limit_state next, span_ns ttl, int64_t now_us)
{
    struct limit_outlook outlook = { .decays_us = now_us, .share = LIMIT_SHARE_FULL };
    if (next.time != GCRA_KEPT) {
        span_ns end_us = (span_ns)(next.time + 1) * US_PER_MS;
        outlook.decays_us = end_us < CLOCK_END_US ? (int64_t)end_us : CLOCK_END_US;
    }
    if (g->tolerance_ns > 0 && ttl + g->emission_ns <= g->tolerance_ns) {
        span_ns parts = ttl > 0 ? ttl * LIMIT_SHARES / g->tolerance_ns : 0;
        outlook.share = (uint8_t)limit_share_of((uint64_t)parts);
    }
    return outlook;
}

/* Returns the state that the charge leaves, and until when it is kept. */
static void store(struct gcra_take *take, const struct gcra *g, span_ns tat, span_ns ttl, int64_t now_us)
{
    int64_t ttl_ms = (int64_t)divide(ttl, NS_PER_MS);
    take->writes = true;
    take->next.data = (uint64_t)tat;
    take->next.time = ttl_ms < 0 ? GCRA_KEPT : (uint64_t)(now_us / US_PER_MS + ttl_ms);
    take->outlook = outlook_of(g, take->next, ttl, now_us);
    if (ttl_ms < -1) /* -1 is Redis' word for: do not expire */
        take->code = GCRA_EXPIRED;
}

struct gcra_take gcra_take(const struct gcra *gcra, struct limit_state state, int64_t now_us)
{
    CHECK(clock_valid(now_us) && state.time < CLOCK_END_US);
    span_ns now = (span_ns)now_us * NS_PER_US;
    span_ns tat = is_there(state, now_us) ? (span_ns)state.data : now;
    span_ns next = (now > tat ? now : tat) + gcra->increment_ns;
    span_ns early = next - gcra->tolerance_ns - now;
    struct gcra_take take = { .answer = { .limit = gcra->limit, .retry_after_s = -1 } };
    span_ns ttl = next - now;
    if (early > 0) {
        take.answer.limited = true;
        if (gcra->increment_ns <= gcra->tolerance_ns)
            take.answer.retry_after_s = seconds_of(early);
        ttl = tat - now;
    } else if (next < 0 || next > UINT64_MAX) {
        take.code = GCRA_TOO_LARGE;
    } else {
        store(&take, gcra, next, ttl, now_us);
    }
    take.answer.remaining = remaining_of(gcra, ttl);
    take.answer.reset_after_s = seconds_of(ttl);
    return take;
}
