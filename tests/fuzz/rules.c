/* Any bytes as rules: reading never crashes, and what is good reads back the same after it was written. */
#include <stdio.h>
#include <stdlib.h>

#include "../rules/equal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what, sv text)
{
    fprintf(stderr, "%s:\n%.*s\n", what, SV_FMT(text));
    abort();
}

static void check_written(const struct rules *rules)
{
    struct buf text, again, report_text;
    buf_init(&text, 256 << 20);
    buf_init(&again, 256 << 20);
    buf_init(&report_text, 1 << 20);
    rules_write(rules, &text);
    struct rules_report report;
    struct rules *back = rules_read(buf_sv(&text), &report);
    if (back && !text.failed && text.len <= RULES_BYTES_MAX) {
        rules_report_print(&report, SV("written"), false, &report_text);
        if (report.error_count > 0)
            fail(report_text.ptr, buf_sv(&text));
        if (!rules_equal(rules, back))
            fail("does not read back the same", buf_sv(&text));
        rules_write(back, &again);
        if (!sv_eq(buf_sv(&text), buf_sv(&again)))
            fail("is written differently the second time", buf_sv(&again));
    }
    rules_report_done(&report);
    rules_free(back);
    buf_done(&text);
    buf_done(&again);
    buf_done(&report_text);
}

/* Every error has a text, and no control character gets through to a terminal. */
static void check_report(const struct rules_report *report)
{
    struct buf text;
    buf_init(&text, 4 << 20);
    rules_report_print(report, SV("f"), true, &text);
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < 0x20 && text.ptr[i] != '\n')
            fail("a control character in a report", buf_sv(&text));
    buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sv text = sv_of((const char *)data, size);
    struct rules_report report, list_report;
    struct rules *rules = rules_read(text, &report);
    if (!rules)
        return 0;
    check_report(&report);
    check_written(rules);
    struct rules *list = rules_read_list(text, rules, &list_report);
    if (list) {
        check_written(list);
        rules_keep_last_good(list, &report, rules);
        check_written(list);
    }
    rules_free(list);
    rules_report_done(&list_report);
    rules_report_done(&report);
    rules_free(rules);
    return 0;
}
