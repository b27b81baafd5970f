/* Which rules of a ruleset apply to a request, for tests. */
#ifndef TESTS_MATCH_APPLY_H
#define TESTS_MATCH_APPLY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "read.h"

static const int64_t now_us = INT64_C(1700000000) * US_PER_S;

static struct ruleset *ruleset;
static struct weir_request request;

static void use(const char *yaml)
{
    ruleset_free(ruleset);
    ruleset = read_ruleset(weir_str(yaml));
    request = (struct weir_request){ .cost = 1 };
}

/* want: the ids of the rules that apply, with a blank before each. Rules by user get `user`. */
static void check_user(const char *user, const char *want)
{
    static struct facts facts;
    memset(&facts, 0xa5, sizeof facts);
    facts_init(&facts, ruleset, &request, weir_str(user));
    uint32_t found[100];
    size_t count = ruleset_match(ruleset, &facts, now_us, found, 100);
    char got[4000] = "";
    for (size_t i = 0; i < count; i++) {
        sv id = ruleset_rules(ruleset)->rules[found[i]]->id;
        snprintf(got + strlen(got), sizeof got - strlen(got), " %.*s", SV_FMT(id));
    }
    assert_string_equal(got, want);
    size_t explained = 0;
    for (size_t i = 0; i < ruleset_rules(ruleset)->rule_count; i++) {
        sv detail;
        explained += ruleset_explain(ruleset, i, &facts, now_us, &detail) == MATCH_YES;
    }
    assert_int_equal(explained, count);
}

static void check(const char *want)
{
    check_user("", want);
}

#endif
