/* Many who ask at once about the same subjects, by rules whose limits overlap; and the reckoning afterwards.
 *
 * Everybody goes through the keys in the same order, so that they meet at the moment when a key's last units go. The clock
 * stands still, so that at the end each cell must hold exactly what was admitted. */
#ifndef TESTS_ENGINE_CROWD_H
#define TESTS_ENGINE_CROWD_H

#include "engine/explain.h"
#include "helpers.h"

#include "../limit/random.h"

#if defined(__SANITIZE_THREAD__)
#define CROWD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CROWD_TSAN 1
#endif
#endif

#ifdef CROWD_TSAN
enum { CROWD_SLOWER = 8 };
#else
enum { CROWD_SLOWER = 1 };
#endif

/* Event a touches x, y and w; event b touches z and w; both touch the shadow's s and t. */
enum { X_MAX = 3, Y_MAX = 4, Z_MAX = 3, W_MAX = 5, S_MAX = 2 };

#define CROWD_RULES_A                                                                                               \
    "  - { id: a, match: { event: a }, by: [key], limits: [{ name: x, algorithm: fixed_window, max: 3, per: 1h }, " \
    "{ name: y, calendar: day, max: 4 }] }\n"
#define CROWD_RULES_BC                                                                                                   \
    "  - { id: b, match: { event: b }, by: [key], limits: [{ name: z, algorithm: sliding_window, max: 3, per: 1h }] }\n" \
    "  - { id: c, by: [key], limits: [{ name: w, max: 5, per: 1h }] }\n"
#define CROWD_RULES_S                                                                                                   \
    "  - { id: s, by: [key], mode: shadow, limits: [{ name: s, algorithm: fixed_window, max: 2, per: 1h }, { name: t, " \
    "calendar: day, max: 100 }] }\n"
#define CROWD_RULES "rules:\n" CROWD_RULES_A CROWD_RULES_BC CROWD_RULES_S

/* What was admitted for one key; counted by all. */
struct tally {
    uint32_t a, b;
};

static inline struct weir_request crowd_request(char key[20], unsigned number, bool b)
{
    int n = snprintf(key, 20, "key-%u", number);
    struct weir_request request = { .key = { key, (size_t)n }, .cost = 1 };
    request.event = b ? weir_str("b") : weir_str("a");
    return request;
}

static inline void crowd_count(struct tally *tally, const struct weir_request *request, const struct weir_verdict *verdict)
{
    if (verdict->allowed)
        __atomic_add_fetch(request->event.ptr[0] == 'b' ? &tally->b : &tally->a, 1, __ATOMIC_SEQ_CST);
}

/* Asks `tries` times about each key, one by one or in batches. */
static inline void crowd_ask(struct weir *weir, struct tally *tallies, unsigned keys, unsigned tries, uint64_t seed)
{
    enum { MOST = 8 };
    struct random r = { seed };
    for (unsigned i = 0; i < keys; i++) {
        char key[MOST][20];
        struct weir_request requests[MOST];
        struct weir_verdict verdicts[MOST];
        for (unsigned k = 0; k < tries && k < MOST; k++)
            requests[k] = crowd_request(key[k], i, random_one_in(&r, 2));
        if (random_one_in(&r, 4))
            weir_check_batch(weir, requests, tries, NOW, verdicts);
        else
            for (unsigned k = 0; k < tries && k < MOST; k++)
                weir_check(weir, &requests[k], NOW, &verdicts[k]);
        for (unsigned k = 0; k < tries && k < MOST; k++)
            crowd_count(&tallies[i], &requests[k], &verdicts[k]);
    }
}

/* ---- the reckoning ---- */

struct counts {
    uint32_t x, y, z, w, s, t;
};

static inline void count_nothing(struct facts *facts, void *data)
{
    (void)facts;
    (void)data;
}

static inline void count_rule(const struct explained_rule *rule, void *data)
{
    struct counts *counts = data;
    if (rule->reason != MATCH_YES)
        return;
    for (size_t i = 0; i < rule->rule->kind->limit_count; i++) {
        uint32_t used = rule->limits[i].limit.capacity - rule->limits[i].report.remaining;
        switch (rule->limits[i].spec->name.ptr[0]) {
        case 'x':
            counts->x = used;
            break;
        case 'y':
            counts->y = used;
            break;
        case 'z':
            counts->z = used;
            break;
        case 'w':
            counts->w = used;
            break;
        case 's':
            counts->s = used;
            break;
        case 't':
            counts->t = used;
            break;
        }
    }
}

static inline void count_no_verdict(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    (void)request;
    (void)verdict;
    (void)data;
}

static inline struct counts crowd_counts(struct weir *weir, unsigned number)
{
    static const struct explain_sink sink = { count_nothing, count_rule, count_no_verdict };
    struct counts counts = { 0 };
    for (int b = 0; b < 2; b++) {
        char key[20];
        struct weir_request request = crowd_request(key, number, b);
        assert_int_equal(weir_explain(weir, &request, NOW, &sink, &counts), 0);
    }
    return counts;
}

/* Every cell holds what was admitted, and at most `excess` more: one for each process that was killed. */
static inline void crowd_check(struct weir *weir, const struct tally *tallies, unsigned keys, uint32_t excess)
{
    uint64_t more[4] = { 0 };
    for (unsigned i = 0; i < keys; i++) {
        struct counts c = crowd_counts(weir, i);
        uint32_t a = tallies[i].a, b = tallies[i].b;
        bool good = c.x >= a && c.y >= a && c.z >= b && c.w >= a + b && c.x <= X_MAX && c.y <= Y_MAX && c.z <= Z_MAX &&
                    c.w <= W_MAX && c.s <= S_MAX && (c.s == c.t || excess > 0);
        if (!good)
            fail_msg("key %u: admitted %u and %u; x %u y %u z %u w %u s %u t %u", i, a, b, c.x, c.y, c.z, c.w, c.s, c.t);
        more[0] += c.x - a;
        more[1] += c.y - a;
        more[2] += c.z - b;
        more[3] += c.w - a - b;
    }
    for (int i = 0; i < 4; i++)
        if (more[i] > excess)
            fail_msg("limit %c: %llu more were charged than admitted", "xyzw"[i], (unsigned long long)more[i]);
}

#endif
