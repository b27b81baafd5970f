/* Requests that are decided together, for tests, and what each of them says. */
#ifndef TESTS_ENGINE_TOGETHER_H
#define TESTS_ENGINE_TOGETHER_H

#include "helpers.h"

enum { PARTS = WEIR_TOGETHER_MAX + 1 };

/* Requests that are decided together, and what each of them says. */
struct call {
    struct weir_request requests[PARTS];
    struct weir_verdict own[PARTS], verdict;
    struct weir_shadows shadows[PARTS];
    struct weir_usage usage[PARTS];
    size_t count;
};

static inline struct weir_request *add(struct call *c, struct weir_request request)
{
    struct weir_request *r = &c->requests[c->count];
    *r = request;
    r->own = &c->own[c->count];
    r->shadows = &c->shadows[c->count];
    r->usage = &c->usage[c->count];
    memset(r->own, 0xa5, sizeof *r->own);
    memset(r->shadows, 0xa5, sizeof *r->shadows);
    if (c->count > 0)
        c->requests[c->count - 1].with = r;
    c->count++;
    return r;
}

static inline void call_of(struct call *c, size_t count, const struct weir_request *requests)
{
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < count; i++)
        add(c, requests[i]);
}

static inline void expect_verdicts(const char *found, const char *expected, const char *file, int line)
{
    if (strcmp(found, expected) == 0)
        return;
    print_error("%s:%d: the verdicts are\n%s\nand should be\n%s\n", file, line, found, expected);
    _fail(file, line);
}

/* Lines of all, then of each. */
static inline void expect_call(struct weir *weir, struct call *c, int64_t now_us, const char *expected, const char *file,
                               int line)
{
    char text[3 * LINE_MAX_BYTES] = "", one_line[LINE_MAX_BYTES];
    struct weir_shadows none = { 0 };
    memset(&c->verdict, 0xa5, sizeof c->verdict);
    assert_int_equal(weir_check(weir, c->requests, now_us, &c->verdict), 0);
    verdict_line(&c->verdict, &none, text);
    for (size_t i = 0; i < c->count; i++) {
        verdict_line(&c->own[i], &c->shadows[i], one_line);
        strcat(strcat(text, "\n"), one_line);
    }
    expect_verdicts(text, expected, file, line);
}

/* expect: a function such as expect_call. */
#define CALL_AND(expect, weir, now_us, expected, ...)                     \
    do {                                                                  \
        static struct call call_;                                         \
        const struct weir_request requests_[] = { __VA_ARGS__ };          \
        call_of(&call_, sizeof requests_ / sizeof *requests_, requests_); \
        expect(weir, &call_, now_us, expected, __FILE__, __LINE__);       \
    } while (0)

#define CALL(weir, now_us, expected, ...) CALL_AND(expect_call, weir, now_us, expected, __VA_ARGS__)

static inline struct weir_request always(struct weir_request request)
{
    request.charging = WEIR_CHARGE_ALWAYS;
    return request;
}

static inline struct weir_request back(struct weir_request request)
{
    request.charging = WEIR_GIVE_BACK;
    return request;
}

static inline struct weir_request given(struct weir_request request, uint64_t max, uint64_t window_ms)
{
    request.given_max = max;
    request.given_window_ms = window_ms;
    return request;
}

#endif
