/* The current windows of calendar limits, cached until they have passed: see "Cached windows" in the README. */
#include "engine/bound.h"

static bool cache_read(const struct window_cache *cache, struct window *ret)
{
    uint64_t version = __atomic_load_n(&cache->version, __ATOMIC_ACQUIRE);
    ret->start_us = __atomic_load_n(&cache->window.start_us, __ATOMIC_RELAXED);
    ret->end_us = __atomic_load_n(&cache->window.end_us, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return !(version & 1) && __atomic_load_n(&cache->version, __ATOMIC_RELAXED) == version;
}

/* Does nothing if another thread is writing. */
static void cache_write(struct window_cache *cache, struct window window)
{
    uint64_t version = __atomic_load_n(&cache->version, __ATOMIC_RELAXED);
    if (version & 1 ||
        !__atomic_compare_exchange_n(&cache->version, &version, version + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&cache->window.start_us, window.start_us, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->window.end_us, window.end_us, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->version, version + 2, __ATOMIC_RELEASE);
}

struct window limit_current_window(const struct bound_terms *terms, int64_t now_us)
{
    struct window window = { 0, 0 };
    if (terms->limit.algorithm != LIMIT_CALENDAR)
        return window;
    if (cache_read(&terms->cache, &window) && now_us >= window.start_us && now_us < window.end_us)
        return window;
    if (terms->spec->given)
        return (struct window){ 0, 0 }; /* counter_window() knows the request's */
    window = rule_limit_window(terms->spec, now_us);
    cache_write((struct window_cache *)&terms->cache, window);
    return window;
}
