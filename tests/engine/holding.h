/* What the tests of holds share. */
#ifndef TESTS_ENGINE_HOLDING_H
#define TESTS_ENGINE_HOLDING_H

#include "helpers.h"

#define RULE(id, limits) "{ id: " id ", match: { event: e }, by: [key], limits: [" limits "] }"
#define FIXED(name, max) "{ name: " name ", algorithm: fixed_window, max: " max ", per: 60s }"
#define SLIDING(max) "{ name: s, algorithm: sliding_window, max: " max ", per: 60s }"
#define BUCKET(max) "{ name: b, max: " max ", per: 60s }"
#define DAY(max) "{ name: d, calendar: day, max: " max ", tz: Asia/Shanghai }"

static inline struct weir_request reservation(uint64_t cost, uint32_t ttl_ms, struct weir_receipt *receipt)
{
    struct weir_request request = cost_of("e", "k", cost);
    request.ttl_ms = ttl_ms;
    request.receipt = receipt;
    return request;
}

static inline bool reserve(struct weir *weir, uint64_t cost, uint32_t ttl_ms, int64_t now_us, struct weir_receipt *ret)
{
    struct weir_request request = reservation(cost, ttl_ms, ret);
    struct weir_verdict verdict;
    memset(ret, 0xa5, sizeof *ret);
    assert_int_equal(weir_reserve(weir, &request, now_us, &verdict), 0);
    assert_int_equal(ret->count > 0, verdict.allowed);
    return verdict.allowed;
}

static inline struct weir_receipt held(struct weir *weir, uint64_t cost, uint32_t ttl_ms, int64_t now_us)
{
    struct weir_receipt receipt;
    assert_true(reserve(weir, cost, ttl_ms, now_us, &receipt));
    return receipt;
}

static inline int settle(struct weir *weir, const struct weir_receipt *receipt, uint64_t cost, int64_t now_us)
{
    return weir_settle(weir, receipt, cost, NULL, 0, now_us);
}

static inline uint64_t left(struct weir *weir, int64_t now_us)
{
    return check_at(weir, peek_of("e", "k", 1), now_us).remaining;
}

static const char *const kinds[] = { FIXED("f", "100"), SLIDING("100"), BUCKET("100"), DAY("100") };
enum { KINDS = sizeof kinds / sizeof *kinds };

static inline struct weir *open_kind(size_t i)
{
    char rules[300];
    snprintf(rules, sizeof rules, "rules: [" RULE("r", "%s") "]", kinds[i]);
    return open_rules(rules);
}

#endif
