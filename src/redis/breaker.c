#include "redis/breaker.h"

#include "base/format.h"

#define ODD_EVERY_US (60 * US_PER_S)

enum { TEXT_MAX = 512 };

static void tell_nobody(enum weir_store_event event, const char *text, void *data)
{
    (void)event, (void)text, (void)data;
}

void breaker_init(struct breaker *b, const struct store_options *options, const char *address)
{
    atomic_init(&b->open, true);
    b->address = address;
    b->tell = options->on_event ? options->on_event : tell_nobody;
    b->tell_data = options->on_event_data;
    pthread_mutex_init(&b->lock, NULL);
}

void breaker_done(struct breaker *b)
{
    pthread_mutex_destroy(&b->lock);
}

void breaker_reset(struct breaker *b)
{
    HOLD_LOCK(&b->lock);
    b->told_down = false;
    b->why[0] = '\0';
    atomic_store(&b->failures, 0);
    atomic_store_explicit(&b->open, true, memory_order_release);
}

bool breaker_open(struct breaker *b, const char *why)
{
    char text[TEXT_MAX];
    HOLD_LOCK(&b->lock);
    bool first = !b->told_down;
    snprintf(b->why, sizeof b->why, "%s", why);
    atomic_store_explicit(&b->open, true, memory_order_release);
    if (first) {
        b->told_down = true;
        atomic_fetch_add(&b->opened, 1);
        snprintf(text, sizeof text, "the store %s does not answer: %s; rules follow their on_store_failure", b->address,
                 why);
        b->tell(WEIR_STORE_DOWN, text, b->tell_data);
    }
    return first;
}

bool breaker_failed(struct breaker *b, const char *why, unsigned times)
{
    if (atomic_fetch_add_explicit(&b->failures, times, memory_order_relaxed) + times < BREAKER_FAILURES)
        return false;
    return !breaker_is_open(b) && breaker_open(b, why);
}

bool breaker_close(struct breaker *b, const char *where)
{
    char text[TEXT_MAX];
    atomic_store_explicit(&b->failures, 0, memory_order_relaxed);
    if (!breaker_is_open(b))
        return false;
    HOLD_LOCK(&b->lock);
    if (!breaker_is_open(b))
        return false;
    b->told_down = false;
    b->why[0] = '\0';
    atomic_store_explicit(&b->open, false, memory_order_release);
    snprintf(text, sizeof text, where ? "the store %s answers (%s)" : "the store %s answers", b->address, where);
    b->tell(WEIR_STORE_UP, text, b->tell_data);
    return true;
}

void breaker_tell(struct breaker *b, enum weir_store_event event, const char *format, ...)
{
    char text[TEXT_MAX];
    FORMAT_ARGUMENTS(text, format);
    HOLD_LOCK(&b->lock);
    b->tell(event, text, b->tell_data);
}

void breaker_report_key(struct breaker *b, sv what)
{
    int64_t now_us = clock_steady_us(), last_us = atomic_load(&b->odd_us);
    if ((last_us == 0 || now_us - last_us >= ODD_EVERY_US) && atomic_compare_exchange_strong(&b->odd_us, &last_us, now_us))
        breaker_tell(b, WEIR_STORE_ODD, "the store rejected a call: %.*s", SV_FMT(what));
}
