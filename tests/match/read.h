/* Rulesets from YAML, for tests. */
#ifndef TESTS_MATCH_READ_H
#define TESTS_MATCH_READ_H

#include <stdio.h>
#include <stdlib.h>

#include "match/match.h"

static inline struct ruleset *read_ruleset(sv yaml)
{
    struct rules_report report = { 0 };
    struct rules *rules = rules_read(yaml, &report);
    if (!rules || report.error_count > 0) {
        struct buf text;
        buf_init(&text, 1 << 20);
        rules_report_print(&report, SV("test"), false, &text);
        fprintf(stderr, "%.*s%.*s\n", SV_FMT(buf_sv(&text)), SV_FMT(yaml));
        abort();
    }
    rules_report_done(&report);
    struct ruleset *ruleset = NULL;
    struct weir_error error;
    if (ruleset_new(&ruleset, rules, &error) < 0) {
        fprintf(stderr, "%s\n", error.text);
        abort();
    }
    return ruleset;
}

#endif
