/* Fields of a rule that are set one by one. */
#include "base/err.h"
#include "sources.h"

static void plans_and_units_are_set(void **state)
{
    struct source *source = fresh_source(*state);
    put(source, "{ id: api, by: [user], plan: user, plans: { free: [ 1 per 1s ] } }");
    bad(set(source, "api", "max", "2"),
        "rule api has no `limits`, only plans; set all limits of a plan, as in plans.free=");
    bad(set(source, "api", "plans.free.day.max", "2"), "set all limits of a plan at once, as in plans.free=");
    good(set(source, "api", "plans.free", "[\"2 per 1s\"]"));
    good(set(source, "api", "plans.pro", "[\"3 per 1s\"]"));
    good(set(source, "api", "plan", "\"header:X-Plan\""));
    good(set(source, "api", "limits", "[\"4 per 1s\"]"));
    good(set(source, "api", "unit", "tokens"));
    good(set(source, "api", "limits.token_bucket.unit", "bytes"));
    bad(set(source, "api", "plan", ""), "plans: needs `plan`");
    struct source_reading reading = { 0 };
    good(source_read(source, NULL, &reading, &error));
    const struct rule *rule = reading.rules->rules[0];
    assert_int_equal(rule->kind->rest->plan_count, 2);
    assert_int_equal(rule->kind->rest->plans[0].limits[0].max, 2);
    assert_int_equal(rule->kind->rest->plans[1].limits[0].max, 3);
    assert_true(sv_eq(rule->kind->rest->plan.name, SV("x-plan")));
    assert_true(sv_eq(rule->kind->limits[0].cost_unit, SV("bytes")));
    source_reading_done(&reading);
    source_close(source);
}

static void slots_and_holds_are_set(void **state)
{
    struct source *source = fresh_source(*state);
    put(source, "{ id: run, by: key, limits: [ 3 concurrent, 10 per 1s ], hold_max: 50% }");
    expect_rules(source, NULL, "run 3 concurrent (ttl 1m) 10 per 1s");
    good(set(source, "run", "limits.concurrent.ttl", "5m")); /* of the short form */
    good(set(source, "run", "limits.concurrent.concurrent", "4"));
    expect_rules(source, NULL, "run 4 concurrent (ttl 5m) 10 per 1s");
    bad(set(source, "run", "limits.concurrent.max", "5"), "limits[0].max: cannot be combined with `concurrent`");
    bad(set(source, "run", "limits.token_bucket.ttl", "5s"), "limits[1].ttl: is allowed with `concurrent` only");
    bad(set(source, "run", "limits.concurrent.slots", "5"), "week_start, concurrent, ttl and name");
    bad(set(source, "run", "hold_max", "half"), "hold_max: must be a part of a limit's max in whole percent");
    good(set(source, "run", "hold_max", "25%"));
    good(set(source, "run", "limits", "7 concurrent"));
    good(set(source, "run", "concurrent", "8")); /* the only limit */
    good(set(source, "run", "ttl", "10s"));
    expect_rules(source, NULL, "run 8 concurrent (ttl 10s)");
    struct source_reading reading = { 0 };
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.rules->rules[0]->kind->rest->hold_max_percent, 25);
    source_reading_done(&reading);
    good(set(source, "run", "hold_max", ""));
    good(set(source, "run", "ttl", ""));
    expect_rules(source, NULL, "run 8 concurrent (ttl 1m)");
    source_close(source);
}

int main(void)
{
    static const struct place_case cases[] = {
        { "plans and units are set", plans_and_units_are_set },
        { "slots and holds are set", slots_and_holds_are_set },
    };
    return places_run(cases, sizeof cases / sizeof *cases);
}
