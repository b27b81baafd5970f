/* What the engine's tests share: a handle over rules in a string, requests in one word, verdicts in one line. */
#ifndef TESTS_ENGINE_HELPERS_H
#define TESTS_ENGINE_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/weir.h>

#define MS INT64_C(1000)
#define S INT64_C(1000000)
#define NOW (INT64_C(1700000000) * S) /* 2023-11-14T22:13:20Z */

/* ---- handles ---- */

static inline struct weir *open_with(struct weir_options options)
{
    struct weir *weir = NULL;
    struct weir_error error = { .code = WEIR_OK };
    options.size = sizeof options;
    if (!options.cells_keys && !options.cells_bytes && !options.cells_memory)
        options.cells_keys = 1000;
    if (weir_open(&weir, &options, &error) < 0)
        fail_msg("%s", error.text);
    return weir;
}

static inline struct weir *open_rules(const char *rules)
{
    return open_with((struct weir_options){ .rules_text = rules });
}

static inline void set_rules(struct weir *weir, const char *rules)
{
    struct weir_error error = { .code = WEIR_OK };
    if (weir_set_rules(weir, rules, strlen(rules), &error) < 0)
        fail_msg("%s", error.text);
}

/* ---- requests ---- */

static inline struct weir_request cost_of(const char *event, const char *key, uint64_t cost)
{
    return (struct weir_request){ .event = weir_str(event), .key = weir_str(key), .cost = cost };
}

static inline struct weir_request one(const char *event, const char *key)
{
    return cost_of(event, key, 1);
}

static inline struct weir_request peek_of(const char *event, const char *key, uint64_t cost)
{
    struct weir_request request = cost_of(event, key, cost);
    request.peek = true;
    return request;
}

/* The result of the thread's last check_at. */
static _Thread_local struct weir_shadows last_shadows;

static inline struct weir_verdict check_at(struct weir *weir, struct weir_request request, int64_t now_us)
{
    struct weir_verdict verdict;
    memset(&verdict, 0xa5, sizeof verdict);
    memset(&last_shadows, 0xa5, sizeof last_shadows);
    request.shadows = &last_shadows;
    assert_int_equal(weir_check(weir, &request, now_us, &verdict), 0);
    return verdict;
}

/* How many of `count` such requests pass. */
static inline unsigned passes(struct weir *weir, struct weir_request request, int64_t now_us, unsigned count)
{
    unsigned passed = 0;
    while (count-- > 0)
        passed += check_at(weir, request, now_us).allowed;
    return passed;
}

/* ---- verdicts ---- */

enum { LINE_MAX_BYTES = 4000 };

/* "pass ocr/day 99 of 100, reset 5000", "refuse 429 ocr/day 0 of 100, reset 5000, retry 5000", "pass no rule"; and, if
 * there are any, ", shadow a b". */
static inline void verdict_line(const struct weir_verdict *v, const struct weir_shadows *shadows, char line[LINE_MAX_BYTES])
{
    char *to = line, *end = line + LINE_MAX_BYTES;
    to += snprintf(to, (size_t)(end - to), v->allowed ? "pass" : "refuse %u", v->status);
    if (v->applied)
        to += snprintf(to, (size_t)(end - to), " %s/%s %llu of %llu, reset %lld", v->rule, v->limit,
                       (unsigned long long)v->remaining, (unsigned long long)v->max, (long long)v->reset_ms);
    else
        to += snprintf(to, (size_t)(end - to), " no rule");
    if (!v->allowed || v->retry_after_ms)
        to += snprintf(to, (size_t)(end - to), ", retry %lld", (long long)v->retry_after_ms);
    for (uint32_t i = 0; i < v->shadow_count && i < shadows->count; i++)
        to += snprintf(to, (size_t)(end - to), "%s %s", i ? "" : ", shadow", shadows->names[i]);
}

/* Its shadow rules are those of the last check_at. */
static inline void expect_verdict(const struct weir_verdict *verdict, const char *expected, const char *file, int line)
{
    char text[LINE_MAX_BYTES];
    verdict_line(verdict, &last_shadows, text);
    if (strcmp(text, expected) == 0)
        return;
    print_error("%s:%d: the verdict is\n    %s\nand should be\n    %s\n", file, line, text, expected);
    _fail(file, line);
}

#define EXPECT(weir, request, now_us, expected)                         \
    do {                                                                \
        struct weir_verdict verdict_ = check_at(weir, request, now_us); \
        expect_verdict(&verdict_, expected, __FILE__, __LINE__);        \
    } while (0)

/* ---- files ---- */

/* A folder of its own for a test, and names in it. */
struct folder {
    char path[200];
    char name[300];
};

static inline void folder_make(struct folder *f)
{
    const char *base = getenv("TMPDIR");
    snprintf(f->path, sizeof f->path, "%s/weir-engine-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(f->path));
}

static inline const char *folder_file(struct folder *f, const char *name)
{
    snprintf(f->name, sizeof f->name, "%s/%s", f->path, name);
    return f->name;
}

static inline void folder_remove(struct folder *f, const char *const *names)
{
    for (; *names; names++)
        unlink(folder_file(f, *names));
    assert_int_equal(rmdir(f->path), 0);
}

static inline void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#endif
