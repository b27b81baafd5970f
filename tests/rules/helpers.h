/* Reading rules in tests: what was read, and the errors as lint prints them. */
#ifndef TESTS_RULES_HELPERS_H
#define TESTS_RULES_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rules/rules.h"

struct reading {
    struct rules *rules;
    struct rules_report report;
    struct buf text; /* errors and advice; the file is called `f` */
};

static inline struct reading reading_of(sv text)
{
    struct reading r;
    r.rules = rules_read(text, &r.report);
    assert_non_null(r.rules);
    buf_init(&r.text, 16 << 20);
    buf_add(&r.text, SV(""));
    rules_report_print(&r.report, SV("f"), true, &r.text);
    assert_false(r.text.failed);
    return r;
}

static inline void reading_done(struct reading *r)
{
    rules_free(r->rules);
    rules_report_done(&r->report);
    buf_done(&r->text);
}

/* Reads what must have no errors. */
static inline struct reading good_reading(const char *text)
{
    struct reading r = reading_of(weir_str(text));
    if (r.report.error_count > 0)
        print_error("%s\n%s", text, r.text.ptr);
    assert_int_equal(r.report.error_count, 0);
    return r;
}

static inline void expect_report(const char *text, const char *expected)
{
    struct reading r = reading_of(weir_str(text));
    if (strcmp(r.text.ptr, expected) != 0)
        print_error("text:\n%s\nreport:\n%s\nexpected:\n%s\n", text, r.text.ptr, expected);
    assert_string_equal(r.text.ptr, expected);
    reading_done(&r);
}

struct report_case {
    const char *text, *report;
};

static inline void expect_reports(const struct report_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_report(cases[i].text, cases[i].report);
}
#define EXPECT_REPORTS(cases) expect_reports((cases), sizeof(cases) / sizeof *(cases))

static inline void assert_text(sv actual, const char *expected)
{
    if (!sv_eq(actual, weir_str(expected)))
        print_error("text: \"%.*s\", expected: \"%s\"\n", SV_FMT(actual), expected ? expected : "");
    assert_true(sv_eq(actual, weir_str(expected)));
}

#endif
