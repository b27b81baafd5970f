/* Reading one rule in tests. */
#ifndef TESTS_RULES_ONE_RULE_H
#define TESTS_RULES_ONE_RULE_H

#include "helpers.h"

/* A rule with a limit and, in its mapping, `rest`; all on line 1. */
static inline void with_rule(struct buf *text, const char *rest)
{
    buf_init(text, 1 << 20);
    buf_printf(text, "rules: [ { id: a, limits: 1 per 1s, %s } ]", rest);
}

static inline struct reading rule_of(const char *rest)
{
    struct buf text;
    with_rule(&text, rest);
    struct reading r = good_reading(text.ptr);
    assert_int_equal(r.rules->rule_count, 1);
    buf_done(&text);
    return r;
}

static inline void expect_rule(const char *rest, const char *report)
{
    struct buf text;
    with_rule(&text, rest);
    expect_report(text.ptr, report);
    buf_done(&text);
}

static inline void expect_rules(const struct report_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_rule(cases[i].text, cases[i].report);
}
#define EXPECT_RULES(cases) expect_rules((cases), sizeof(cases) / sizeof *(cases))

/* The same where the report lists attributes: those with `use`, in place of its %s. */
static inline void expect_listed(const char *rest, unsigned use, const char *report)
{
    struct buf names, whole;
    const char *mark = strstr(report, "%s");
    buf_init(&names, 1000);
    buf_init(&whole, 1000);
    for (enum attribute i = 0; i < ATTRIBUTE_COUNT; i++)
        if (attribute_table[i].uses & use && !(use == IN_BY && i == ATTR_HEADER))
            buf_printf(&names, "%s%s", names.len ? ", " : "", attribute_table[i].name.ptr);
    buf_printf(&whole, "%.*s%s%s", (int)(mark - report), report, names.ptr, mark + 2);
    expect_rule(rest, whole.ptr);
    buf_done(&names);
    buf_done(&whole);
}

#endif
