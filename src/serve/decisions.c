#include "serve/decisions.h"

#include <string.h>

#include "serve/log.h"
#include "serve/sample.h"
#include "serve/server.h"
#include "serve/stats.h"

/* The request of a chain whose limit the verdict names. */
static const struct weir_request *named_part(const struct weir_request *first, const struct weir_verdict *verdict)
{
    for (const struct weir_request *part = first; part; part = part->with)
        if (part->own && part->own->applied && part->own->allowed == verdict->allowed &&
            strcmp(part->own->rule, verdict->rule) == 0 && strcmp(part->own->limit, verdict->limit) == 0)
            return part;
    return first;
}

/* Requests that were decided together are one decision. Shadow rules, and the sample, see each of them. */
static __attribute__((noinline)) void note_chain(const struct decisions *all, const struct weir_request *first,
                                                 const struct weir_verdict *verdict, int64_t now_us)
{
    struct loop *loop = all->loop;
    struct weir *weir = loop->server->weir;
    const struct weir_request *part = named_part(first, verdict);
    struct weir_verdict without_shadows = *verdict;
    without_shadows.shadow_count = 0;
    stats_decided(loop->stats, weir, part, &without_shadows, 1, now_us, uv_hrtime() - all->read_ns);
    if (!verdict->allowed && !first->peek)
        log_refusal(weir, part, verdict, now_us, all->trace, all);
    for (part = first; part; part = part->with) {
        const struct weir_verdict *own = part->own ? part->own : verdict;
        stats_shadowed(loop->stats, weir, part, own, now_us);
        if (loop->sample)
            sample_add(loop->sample, weir, part, own, 1, now_us);
    }
}

static inline __attribute__((always_inline)) void note(const struct decisions *all, const struct weir_request *requests,
                                                       const struct weir_verdict *verdicts, size_t count, int64_t now_us)
{
    struct weir *weir = all->loop->server->weir;
    if (__builtin_expect(count == 1 && requests->with, 0)) {
        note_chain(all, requests, verdicts, now_us);
        return;
    }
    stats_decided(all->loop->stats, weir, requests, verdicts, count, now_us, uv_hrtime() - all->read_ns);
    if (__builtin_expect(all->loop->sample != NULL, 0))
        sample_add(all->loop->sample, weir, requests, verdicts, count, now_us);
    for (size_t i = 0; i < count; i++)
        if (!verdicts[i].allowed && !requests[i].peek)
            log_refusal(weir, &requests[i], &verdicts[i], now_us, all->trace, all);
}

static void on_decided(const struct weir_verdict *verdict, void *data)
{
    struct decision_wait *wait = data;
    struct decisions *all = wait->all;
    note(all, wait->request, verdict, 1, loop_now_us(all->loop));
    all->decided(wait, verdict);
    if (--all->waiting == 0 && all->finished)
        all->finished(all);
}

static struct decision_wait *wait_at(struct decision_wait *first, size_t stride, size_t i)
{
    return (struct decision_wait *)(void *)((char *)first + i * stride);
}

/* All that is asked in one turn of the loop is sent in one write: see flush_store in event_loop.c. */
static __attribute__((noinline)) int ask_store(struct decisions *all, struct decision_wait *first, size_t stride,
                                               const struct weir_request *requests, struct weir_verdict *verdicts,
                                               size_t count)
{
    struct loop *loop = all->loop;
    int64_t now_us = loop_now_us(loop);
    int result = 0;
    for (size_t i = 0; i < count; i++) {
        struct decision_wait *wait = wait_at(first, stride, i);
        int r = weir_loop_check(loop->store, &requests[i], loop_now_us(loop), &verdicts[i], on_decided, wait);
        *wait = (struct decision_wait){ all, &requests[i], r == 0 };
        all->waiting += wait->waits;
        result = r < 0 ? r : result;
    }
    if (all->waiting == 0) {
        note(all, requests, verdicts, count, now_us);
        return result;
    }
    loop->store_asked = true;
    for (size_t i = 0; i < count; i++) {
        struct decision_wait *wait = wait_at(first, stride, i);
        if (wait->waits)
            continue;
        note(all, &requests[i], &verdicts[i], 1, now_us);
        all->decided(wait, &verdicts[i]);
    }
    return DECISIONS_WAIT;
}

int decisions_make(struct decisions *all, struct decision_wait *first, size_t stride, struct weir_request *requests,
                   struct weir_verdict *verdicts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        stats_count_rules_of(all->loop->stats, &requests[i]);
    if (all->loop->store)
        return ask_store(all, first, stride, requests, verdicts, count);
    int64_t now_us = loop_now_us(all->loop);
    int r = weir_check_batch(all->loop->server->weir, requests, count, now_us, verdicts);
    note(all, requests, verdicts, count, now_us);
    return r;
}
