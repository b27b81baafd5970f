/* Plans and overrides: what they may say, and what is said about them if they are wrong. */
#include <time.h>

#include "equal.h"
#include "helpers.h"

#define RULE_API "{ id: api, by: [user], limits: [100 per minute] }"
#define RULE_TWO "{ id: two, by: [ip, 'header:X-Tenant'], limits: [1 per 1s] }"
#define RULES "rules: [" RULE_API ", " RULE_TWO "]\n"

/* ---- plans ---- */

static void plans_are_read(void **state)
{
    (void)state;
    struct reading r = good_reading("rules:\n"
                                    "- id: api\n"
                                    "  by: [user]\n"
                                    "  ignore_case: true\n"
                                    "  plan: 'header:X-Plan'\n"
                                    "  plans:\n"
                                    "    free: [100 per minute, { calendar: month, max: 10000, tz: Europe/Berlin }]\n"
                                    "    pro: 10000 per minute\n"
                                    "  limits: [50 per minute]\n");
    const struct rule *rule = r.rules->rules[0];
    assert_true(rule->kind->ignore_case);
    assert_int_equal(rule->kind->rest->plan.attribute, ATTR_HEADER);
    assert_text(rule->kind->rest->plan.name, "x-plan");
    assert_int_equal(rule->kind->rest->plan_count, 2);
    assert_text(rule->kind->rest->plans[0].name, "free");
    assert_int_equal(rule->kind->rest->plans[0].limit_count, 2);
    assert_text(rule->kind->rest->plans[0].limits[0].name, "minute");
    assert_text(rule->kind->rest->plans[0].limits[1].name, "month");
    assert_int_equal(rule->kind->rest->plans[1].limits[0].max, 10000);
    assert_int_equal(rule->kind->limits[0].max, 50);
    assert_string_equal(r.text.ptr, "f:5: rule api: advice: plan: whoever can send the header x-plan can choose the plan; "
                                    "have your gateway set it, and drop what clients send\n");
    reading_done(&r);
}

static void bad_plans(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "rules:\n- { id: a }\n", "f:2: rule a: needs `limits`, at least one, such as \"10 per 60s\"\n" },
        { "rules:\n- { id: a, plan: user }\n",
          "f:2: rule a: plan: needs `plans`, such as { free: [ \"100 per minute\" ] }\n" },
        { "rules:\n- { id: a, plans: { x: 1 per 1s } }\n",
          "f:2: rule a: plans: needs `plan`, the attribute that names the plan, such as \"header:X-Plan\"\n" },
        { "rules:\n- { id: a, plan: users, plans: { x: 1 per 1s } }\n",
          "f:2: rule a: plan: must be method, path, host, ip, user, event, key, domain, route, descriptor_keys, "
          "descriptor, descriptor:KEY or header:NAME, not \"users\"; did "
          "you "
          "mean `user`?\n" },
        { "rules:\n- { id: a, plan: user, plans: [x] }\n",
          "f:2: rule a: plans: must be a mapping of plans to their limits, such as { free: [ \"100 per minute\" ] }\n" },
        { "rules:\n- { id: a, plan: user, plans: {} }\n",
          "f:2: rule a: plans: must be a mapping of plans to their limits, such as { free: [ \"100 per minute\" ] }\n" },
        { "rules:\n- { id: a, plan: user, plans: { x: [], y: z } }\n",
          "f:2: rule a: plans.x: the list is empty; a rule needs at least one limit, such as \"10 per 60s\"\n"
          "f:2: rule a: plans.y: must look like \"10 per 60s\", \"5 per 1m burst 20\", \"100 per day\", \"1000 tokens "
          "per 1m\" or \"10 concurrent\", not \"z\" "
          "(lengths: "
          "ms, s, m, h, d; calendar: minute, hour, day, week, month, year)\n" },
        { "rules:\n- { id: a, plan: user, plans: { x: 1 per 1s, x: 1 per 1s } }\n",
          "f:2: rule a: plans: the plan \"x\" is given twice\n" },
        { "rules:\n- { id: a, plan: user, ignore_case: true, plans: { x: 1 per 1s, X: 1 per 1s } }\n",
          "f:2: rule a: plans: the plan \"X\" is given twice\n" },
        { "rules:\n- { id: a, plan: host, plans: { 'a b': 1 per 1s } }\n",
          "f:2: rule a: plans: must be a value of `plan`, a host name such as api.example.com, an IPv4 address, or an IPv6 "
          "address in brackets, not \"a b\"\n" },
        { "rules:\n- { id: a, plan: user, plans: { x: 1 per 1s }, limits: 1 per day, lease: true }\n",
          "f:2: rule a: lease: is allowed with fixed and calendar windows only; limit `token_bucket` is a token_bucket: "
          "give "
          "it `algorithm: fixed_window`, or leave `lease` out\n" },
    };
    EXPECT_REPORTS(cases);
}

static void advice_on_plans(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "rules:\n- { id: a, plan: user, plans: { x: 1 per day } }\n",
          "f:2: rule a: advice: plans: this rule does not limit requests that have none of these plans; add `limits` for "
          "them\n" },
        { "rules:\n- { id: a, plan: key, plans: { x: 1 per day }, limits: 1 per day }\n",
          "f:2: rule a: advice: plan: whoever can choose the key of a request can choose the plan; do not let clients set "
          "it\n" },
        { "rules:\n- id: a\n  plan: user\n  limits: { name: n, max: 1, per: 1s }\n  plans:\n    x: { name: n, max: 1, "
          "calendar: "
          "day }\n    y: { name: n, max: 1, per: 1s }\n",
          "f:6: rule a: advice: plans.x: limit `n` is a calendar here and a token_bucket in another plan, so its count "
          "begins at 0 when the plan of a subject changes; use one algorithm, or give them different names\n"
          "f:7: rule a: advice: plans.y: limit `n` is a token_bucket here and a calendar in another plan, so its count "
          "begins at 0 when the plan of a subject changes; use one algorithm, or give them different names\n" },
        { "rules:\n- id: a\n  plan: user\n  limits: 1 per day\n  plans:\n    x: 1 tokens per day\n",
          "f:6: rule a: advice: plans.x: limit `day` has another unit in another plan, but limits with the same name "
          "share one count; give them different names\n" },
        { "rules:\n- id: a\n  plan: user\n  limits: { name: n, max: 9, algorithm: fixed_window, per: 1d }\n  plans:\n"
          "    x: { name: n, max: 1, algorithm: fixed_window, per: 1m }\n",
          "f:6: rule a: advice: plans.x: limit `n` has other windows in another plan, but limits with the same name share "
          "one "
          "count, so a subject that changes its plan may use the `max` of one in the window of the other; give them "
          "different names\n" },
        { "rules:\n- id: a\n  plan: user\n  limits: 9 per month\n  plans:\n    x: { calendar: month, max: 9, tz: "
          "Asia/Tokyo }\n",
          "f:6: rule a: advice: plans.x: limit `month` has other windows in another plan, but limits with the same name "
          "share "
          "one count, so a subject that changes its plan may use the `max` of one in the window of the other; give them "
          "different "
          "names\n" },
        { "rules:\n- id: a\n  plan: user\n  limits: 9 per 1d\n  plans:\n    x: 1 per 1m burst 5\n", "" },
    };
    EXPECT_REPORTS(cases);
}

static void plans_are_bounded(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add(&text, SV("rules:\n- id: a\n  plan: user\n  limits: 1 per 1s\n  plans:\n"));
    for (int i = 0; i < RULE_PLANS_MAX; i++)
        buf_printf(&text, "    p%d: 1 per 1s\n", i);
    struct reading r = good_reading(text.ptr);
    assert_int_equal(r.rules->rules[0]->kind->rest->plan_count, RULE_PLANS_MAX);
    reading_done(&r);
    buf_printf(&text, "    more: 1 per 1s\n");
    expect_report(text.ptr, "f:6: rule a: plans: 65 plans are too many; at most 64\n");
    buf_done(&text);
}

/* ---- overrides ---- */

static void overrides_are_read(void **state)
{
    (void)state;
    struct reading r = good_reading(
        RULES
        "overrides:\n"
        "- { rule: api, by: { user: '4711' }, limits: [50000 per minute], expires: 2027-01-01T00:00:00Z, why: move }\n"
        "- { rule: api, by: { user: banned }, deny: true }\n"
        "- { rule: api, by: { user: partner }, unlimited: true }\n"
        "- { rule: two, by: { 'header:x-tenant': ' a,b ', ip: '2001:db8::1' }, deny: true }\n"
        "- { rule: two, by: { 'header:X-TENANT': a, ip: '::ffff:1.2.3.4' }, deny: true }\n");
    const struct rule_override *o = r.rules->overrides;
    assert_int_equal(r.rules->override_count, 5);
    assert_text(o[0].rule, "api");
    assert_text(o[0].values[0], "4711");
    assert_int_equal(o[0].line, 3);
    assert_int_equal(o[0].kind, OVERRIDE_LIMITS);
    assert_int_equal(o[0].limits[0].max, 50000);
    assert_text(o[0].limits[0].name, "minute");
    assert_true(o[0].expires_us == INT64_C(1798761600) * US_PER_S);
    assert_text(o[0].why, "move");
    assert_int_equal(o[1].kind, OVERRIDE_DENY);
    assert_int_equal(o[1].limit_count, 0);
    assert_true(o[1].expires_us == RULE_NEVER_EXPIRES);
    assert_int_equal(o[2].kind, OVERRIDE_UNLIMITED);
    assert_text(o[3].values[0], "2001:db8::/64");
    assert_text(o[3].values[1], "a,b");
    assert_text(o[4].values[0], "1.2.3.4");
    assert_ptr_equal(override_find(r.rules, SV("api"), (sv[]){ SV("banned") }, 1), &o[1]);
    assert_null(override_find(r.rules, SV("two"), (sv[]){ SV("banned") }, 1));
    reading_done(&r);
}

#define BAD(OVERRIDE, REPORT)                                              \
    {                                                                      \
        RULES "overrides:\n- " OVERRIDE "\n", "f:3: override " REPORT "\n" \
    }

static void bad_overrides(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        BAD("{}", "#1: needs `rule`, the id of the rule that it is for"),
        BAD("5", "#1: must be a mapping (field: value), not 5"),
        BAD("{ rule: apo, by: { user: a }, deny: true }", "#1: there is no rule \"apo\""),
        BAD("{ rule: api, deny: true }", "of rule api: needs `by`, a mapping with a value for each of user"),
        BAD("{ rule: api, by: a, deny: true }",
            "of rule api: by: must be a mapping with a value for each of user, not \"a\""),
        BAD("{ rule: api, by: { ip: a }, deny: true }", "of rule api: by: the rule counts by user, not by \"ip\""),
        BAD("{ rule: two, by: { ip: 1.2.3.4 }, deny: true }",
            "of rule two: by: needs a value for each of ip, header:x-tenant"),
        BAD("{ rule: two, by: { ip: 1.2.3, 'header:x-tenant': a }, deny: true }",
            "of rule two: by.ip: must be an IPv4 address, or an IPv6 address or a network of as many bits as `ipv6_prefix` "
            "says, not \"1.2.3\""),
        BAD("{ rule: two, by: { ip: '2001:db8::/48', 'header:x-tenant': a }, deny: true }",
            "of rule two: by.ip: must be an IPv4 address, or an IPv6 address or a network of as many bits as `ipv6_prefix` "
            "says, not \"2001:db8::/48\""),
        BAD("{ rule: api, by: { user: a, user: a }, deny: true }", "of rule api: by.user: is given twice"),
        BAD("{ rule: api, by: { user: '' }, deny: true }", "of rule api: by.user: must have 1 to 1000 bytes, not 0"),
        BAD("{ rule: api, by: { user: a } }",
            "of rule api for a: needs exactly one of `limits`, `deny: true` and `unlimited: true`, not none of them"),
        BAD("{ rule: api, by: { user: a }, deny: true, unlimited: true }",
            "of rule api for a: needs exactly one of `limits`, `deny: true` and `unlimited: true`, not several of them"),
        BAD("{ rule: api, by: { user: a }, deny: false }",
            "of rule api for a: deny: must be true, not false; leave it out if you do not mean it"),
        BAD("{ rule: api, by: { user: a }, limits: [] }",
            "of rule api for a: limits: the list is empty; a rule needs at least one limit, such as \"10 per 60s\""),
        BAD("{ rule: api, by: { user: a }, deny: true, expires: soon }",
            "of rule api for a: expires: must be a valid date and time such as 2027-01-01T00:00:00Z or "
            "2027-01-01T08:00:00+08:00, or seconds since 1970, not \"soon\""),
        BAD("{ rule: api, by: { user: a }, deny: true, why: \"a\\nb\" }",
            "of rule api for a: why: must be one line without control characters, not \"a\\nb\""),
        BAD("{ rule: api, by: { user: a }, deny: true, max: 1 }",
            "#1: unknown field \"max\"; allowed: rule, by, limits, deny, unlimited, expires, why"),
    };
    EXPECT_REPORTS(cases);
    expect_report("rules: [{ id: all, limits: 1 per 1s }]\noverrides:\n- { rule: all, by: { user: a }, deny: true }\n",
                  "f:3: override of rule all: the rule has no `by`: it counts for all together, so it cannot have "
                  "overrides\n");
    expect_report("rules: [{ id: a, by: user, limits: 1 per day, lease: true }]\noverrides:\n- { rule: a, by: { user: b }, "
                  "limits: 5 per 1s }\n",
                  "f:3: override of rule a for b: limits: the rule is leased, which is allowed with fixed and calendar "
                  "windows only; limit `token_bucket` is a token_bucket: give it `algorithm: fixed_window`\n");
    expect_report(
        "rules: [{ id: a, by: user, limits: x }]\noverrides:\n- { rule: a, by: { user: b }, limits: 5 per 1s }\n"
        "- { rule: a, by: { user: c }, expires: soon, deny: true }\n- { rule: a, by: { user: d } }\n",
        "f:1: rule a: limits: must look like \"10 per 60s\", \"5 per 1m burst 20\", \"100 per day\", \"1000 tokens "
        "per 1m\" or \"10 concurrent\", not \"x\" (lengths: ms, s, m, h, d; calendar: minute, hour, day, week, month, "
        "year)\n"
        "f:4: override of rule a: expires: must be a valid date and time such as 2027-01-01T00:00:00Z or "
        "2027-01-01T08:00:00+08:00, or seconds since 1970, not \"soon\"\n"
        "f:5: override of rule a: needs exactly one of `limits`, `deny: true` and `unlimited: true`, not none of "
        "them\n");
    expect_report(RULES "overrides:\n",
                  "f:2: overrides: must be a list of overrides (- rule: …), not nothing; to have none, leave it out\n");
}

static void one_override_for_a_subject(void **state)
{
    (void)state;
    const char *text = RULES "overrides:\n"
                             "- { rule: two, by: { ip: '2001:db8::1', 'header:x-tenant': a }, deny: true }\n"
                             "- { rule: api, by: { user: a }, deny: true }\n"
                             "- { rule: two, by: { ip: '2001:db8::2', 'header:x-tenant': a }, unlimited: true }\n";
    expect_report(text,
                  "f:5: override of rule two for 2001:db8::/64,a: the override in line 3 is for the same subject; keep "
                  "one of them\n");
    struct reading r = reading_of(weir_str(text));
    assert_int_equal(r.rules->override_count, 2);
    assert_int_equal(r.rules->overrides[0].kind, OVERRIDE_DENY);
    assert_text(r.rules->overrides[1].rule, "api");
    reading_done(&r);
}

/* ---- subjects as texts ---- */

static void expect_subject(const struct rules *rules, const char *id, const char *text, const char *expected)
{
    struct arena arena = { 0 };
    sv values[RULE_BY_MAX];
    struct weir_error error;
    struct buf shown;
    const struct rule *rule = rules->rules[0];
    buf_init(&shown, 10000);
    buf_add(&shown, SV(""));
    while (!sv_eq(rule->id, weir_str(id)))
        rule++;
    if (override_subject_split(&rules->settings, rule, weir_str(text), &arena, values, &error) == 0)
        override_subject_text(values, rule->kind->by_count, &shown);
    else
        buf_add(&shown, weir_str(error.text));
    assert_string_equal(shown.ptr, expected);
    buf_done(&shown);
    arena_done(&arena);
}

static void subjects_are_one_text(void **state)
{
    (void)state;
    struct reading r =
        good_reading("rules: [" RULE_API ", " RULE_TWO ", { id: all, limits: 1 per 1s }, { id: h, by: [host], "
                     "limits: 1 per 1s }, { id: p, by: [path], limits: 1 per 1s }]\n");
    expect_subject(r.rules, "api", "4711", "4711");
    expect_subject(r.rules, "api", "a,b%2C%", "a,b%2C%");
    expect_subject(r.rules, "api", "", "user: must be a text that is not blank");
    expect_subject(r.rules, "two", "2001:db8::9,x", "2001:db8::/64,x");
    expect_subject(r.rules, "two", "1.2.3.4,a%2Cb%25%2c", "1.2.3.4,a%2Cb%25%2C");
    static const char wrong[] =
        "rule two counts by ip, header:x-tenant: the subject must have 2 values, joined by commas in "
        "this order, with %2C for a comma and %25 for % inside a value";
    expect_subject(r.rules, "two", "1.2.3.4", wrong);
    expect_subject(r.rules, "two", "1.2.3.4,a,b", wrong);
    expect_subject(r.rules, "two", "1.2.3.4,a%b", wrong);
    expect_subject(r.rules, "all", "a", "rule all counts for all together, so it has no subjects");
    expect_subject(r.rules, "h", "API.Example.com.:80", "api.example.com");
    expect_subject(r.rules, "p", "x", "path: must be a path that begins with /");
    reading_done(&r);
}

/* ---- rows ---- */

#define OVERRIDE(RULE, SUBJECT, TEXT)                                                  \
    {                                                                                  \
        .kind = ROW_OVERRIDE, .id = SV(RULE), .subject = SV(SUBJECT), .text = SV(TEXT) \
    }

static struct reading rows_of(struct rule_row *rows, size_t count)
{
    struct reading r;
    r.rules = rules_read_rows(rows, count, &r.report);
    assert_non_null(r.rules);
    buf_init(&r.text, 1 << 20);
    buf_add(&r.text, SV(""));
    rules_report_print(&r.report, SV("t"), false, &r.text);
    return r;
}

static void rows_of_overrides(void **state)
{
    (void)state;
    struct rule_row rows[] = {
        OVERRIDE("api", "4711", "{\"limits\": [\"50 per minute\"], \"why\": \"x\"}"),
        { .id = SV("api"), .text = SV("{\"by\": [\"user\"], \"limits\": [\"1 per day\"]}") },
        { .id = SV("two"), .text = SV("{\"by\": [\"user\", \"ip\"], \"limits\": [\"1 per day\"]}") },
        { .id = SV("broken"), .text = SV("{\"by\": [\"user\"], \"limits\": 5}") },
        OVERRIDE("two", "a%2Cb,1.2.3.4",
                 "{\"rule\": \"two\", \"by\": {\"ip\": \"1.2.3.4\", \"user\": \"a,b\"}, \"deny\": true}"),
        OVERRIDE("api", "bad", "{\"limits\": ["),
        OVERRIDE("broken", "x", "{\"deny\": true}"),
        OVERRIDE("api", "4711", "{\"deny\": true}"),
        OVERRIDE("api", "a", "{\"deny\": true, \"by\": {\"user\": \"b\"}}"),
        OVERRIDE("api", "b", "{\"deny\": true, \"rule\": \"two\"}"),
        OVERRIDE("nope", "b", "{\"deny\": true}"),
        OVERRIDE("api", "a\xff", "{\"deny\": true}"),
        OVERRIDE("two", "a", "{\"deny\": true}"),
        OVERRIDE("api", "e", ""),
        { .kind = ROW_OVERRIDE,
          .id = SV("api"),
          .subject = SV("f"),
          .text = SV("{}"),
          .fault = SV("expires is not a date") },
    };
    struct reading r = rows_of(rows, sizeof rows / sizeof *rows);
    assert_int_equal(r.rules->override_count, 2);
    assert_text(r.rules->overrides[0].values[0], "4711");
    assert_int_equal(r.rules->overrides[0].line, 1);
    assert_text(r.rules->overrides[1].values[0], "a,b");
    assert_text(r.rules->overrides[1].values[1], "1.2.3.4");
    assert_string_equal(
        r.text.ptr,
        "t:4: rule broken: limits: must look like \"10 per 60s\", \"5 per 1m burst 20\", \"100 per day\", \"1000 tokens "
        "per 1m\" or \"10 concurrent\", not 5 (lengths: "
        "ms, s, "
        "m, h, d; calendar: minute, hour, day, week, month, year)\n"
        "t:6: override of rule api for bad: not YAML or JSON: did not find expected node content while parsing a flow node "
        "that begins in line 2\n"
        "t:8: override of rule api for 4711: row 1 is for the same subject; keep one of them\n"
        "t:9: override of rule api for a: by: must be the subject of the row or be left out\n"
        "t:10: override of rule api for b: rule: must be the rule of the row or be left out, not \"two\"\n"
        "t:11: override of rule nope for b: there is no rule \"nope\"\n"
        "t:12: override #9: the rule or the subject is not UTF-8, or has a NUL character\n"
        "t:13: override of rule two for a: rule two counts by user, ip: the subject must have 2 values, joined by commas "
        "in "
        "this order, with %2C for a comma and %25 for % inside a value\n"
        "t:14: override of rule api for e: is empty; it must be an override as JSON\n"
        "t:15: override of rule api for f: expires is not a date\n");
    assert_int_equal(r.report.bad_override_count, 5);
    reading_done(&r);
}

static void texts_are_taken_apart_into_rows(void **state)
{
    (void)state;
    struct arena arena = { 0 };
    struct rule_row *rows = NULL;
    size_t count = 0;
    struct weir_error error;
    assert_int_equal(
        rules_split(SV("overrides: [ { rule: two, by: { ip: 1.2.3.4, user: 'a,b' }, deny: true }, { rule: x, by: { "
                       "user: 5 }, unlimited: true } ]\nrules: [ { id: two, by: [user, ip], limits: 1 per day } "
                       "]"),
                    &arena, &rows, &count, &error),
        0);
    assert_int_equal(count, 3);
    assert_int_equal(rows[0].kind, ROW_OVERRIDE);
    assert_text(rows[0].id, "two");
    assert_text(rows[0].subject, "a%2Cb,1.2.3.4");
    assert_text(rows[0].text, "{\"rule\":\"two\",\"by\":{\"ip\":\"1.2.3.4\",\"user\":\"a,b\"},\"deny\":true}");
    assert_text(rows[1].subject, "5");
    assert_int_equal(rows[2].kind, ROW_RULE);
    assert_true(rules_split(SV("overrides: [ { rule: two } ]"), &arena, &rows, &count, &error) < 0);
    assert_true(rules_split(SV("overrides: 5"), &arena, &rows, &count, &error) < 0);
    arena_done(&arena);
}

/* ---- the last good ones ---- */

/* "api:a=deny two:1.2.3.4,x=1" */
static void expect_overrides(const struct rules *rules, const char *expected)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add(&text, SV(""));
    for (size_t i = 0; i < rules->override_count; i++) {
        const struct rule_override *o = &rules->overrides[i];
        buf_printf(&text, "%s%.*s:", i ? " " : "", SV_FMT(o->rule));
        override_subject_text(o->values, o->value_count, &text);
        buf_printf(&text, "=%s", o->kind == OVERRIDE_DENY ? "deny" : o->kind == OVERRIDE_UNLIMITED ? "free" : "");
        if (o->kind == OVERRIDE_LIMITS)
            buf_printf(&text, "%u", (unsigned)o->limits[0].max);
    }
    assert_string_equal(text.ptr, expected);
    buf_done(&text);
}

static void expect_kept(const char *last_text, const char *fresh_text, const char *expected)
{
    struct reading last = good_reading(last_text), fresh = reading_of(weir_str(fresh_text));
    assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, last.rules), 0);
    reading_done(&last);
    expect_overrides(fresh.rules, expected);
    struct rules *copy = rules_copy(fresh.rules);
    assert_true(rules_equal(copy, fresh.rules));
    rules_free(copy);
    reading_done(&fresh);
}

static void bad_overrides_come_back(void **state)
{
    (void)state;
#define O(USER, WHAT) "- { rule: api, by: { user: " USER " }, " WHAT " }\n"
    const char *last = RULES "overrides:\n" O("a", "deny: true") O("b", "limits: 7 per day") O("c", "unlimited: true");
    expect_kept(last, RULES "overrides:\n" O("a", "deny: 5") O("b", "limits: 8 per day"), "api:b=8 api:a=deny");
    expect_kept(last, RULES "overrides:\n" O("a", "limits: x") O("c", "limits: y") O("d", "limits: z"),
                "api:a=deny api:c=free");
    /* The first of two stands. */
    expect_kept(last, RULES "overrides:\n" O("a", "limits: 1 per day") O("a", "limits: 2 per day"), "api:a=1");
    expect_kept(last, RULES "overrides:\n" O("a", "limits: x") O("a", "limits: 2 per day"), "api:a=2");
    /* Gone is gone; a list that cannot be read keeps all. */
    expect_kept(last, RULES, "");
    expect_kept(last, RULES "overrides: []\n", "");
    expect_kept(last, RULES "overrides:\n", "api:a=deny api:b=7 api:c=free");
    expect_kept(last, RULES "overrides: 5\n", "api:a=deny api:b=7 api:c=free");
    expect_kept(last, "rules: [\n", "api:a=deny api:b=7 api:c=free");
    /* A bad rule comes back with its overrides, and nothing is said about the new ones. */
    expect_kept(last, "rules: [{ id: api, by: [user], limits: x }]\noverrides:\n" O("d", "deny: true"),
                "api:a=deny api:b=7 api:c=free");
    expect_report("rules: [{ id: api, by: [user], limits: 5 per 1 }]\noverrides:\n" O("d", "deny: true"),
                  "f:1: rule api: limits: must look like \"10 per 60s\", \"5 per 1m burst 20\", \"100 per day\", \"1000 "
                  "tokens per 1m\" or \"10 concurrent\", not \"5 per "
                  "1\" (lengths: ms, s, m, h, d; calendar: minute, hour, day, week, month, year)\n");
    /* A rule that counts by something else has other subjects. */
    expect_kept(last, "rules: [{ id: api, by: [key], limits: 1 per day }]\noverrides:\n", "");
    expect_kept(last, "rules: [{ id: other, by: [user], limits: 1 per day }]\noverrides:\n", "");
#undef O
}

/* In ticks of the processor's clock: how long a text of many rules takes whose overrides are all for this one. */
static clock_t time_to_split(int rule)
{
    enum { RULES_COUNT = 10000, OVERRIDES_COUNT = 20000 };
    struct arena arena = { 0 };
    struct weir_error error;
    struct rule_row *rows;
    struct buf text;
    size_t count;
    buf_init(&text, 16 << 20);
    buf_add(&text, SV("rules:\n"));
    for (int i = 0; i < RULES_COUNT; i++)
        buf_printf(&text, "- { id: r%d, by: [user, ip], limits: 1 per 1s }\n", i);
    buf_add(&text, SV("overrides:\n"));
    for (int i = 0; i < OVERRIDES_COUNT; i++)
        buf_printf(&text, "- { rule: r%d, by: { ip: 10.0.0.1, user: u%d }, deny: true }\n", rule % RULES_COUNT, i);
    clock_t begun = clock();
    assert_int_equal(rules_split(buf_sv(&text), &arena, &rows, &count, &error), 0);
    clock_t took = clock() - begun;
    assert_int_equal(count, RULES_COUNT + OVERRIDES_COUNT);
    assert_text(rows[0].subject, "u0,10.0.0.1");
    buf_done(&text);
    arena_done(&arena);
    return took;
}

static void many_rules_with_overrides_are_taken_apart(void **state)
{
    (void)state;
    enum { TIMES = 5 };
    assert_true(time_to_split(9999) < TIMES * time_to_split(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_read),
        cmocka_unit_test(bad_plans),
        cmocka_unit_test(advice_on_plans),
        cmocka_unit_test(plans_are_bounded),
        cmocka_unit_test(overrides_are_read),
        cmocka_unit_test(bad_overrides),
        cmocka_unit_test(one_override_for_a_subject),
        cmocka_unit_test(subjects_are_one_text),
        cmocka_unit_test(rows_of_overrides),
        cmocka_unit_test(texts_are_taken_apart_into_rows),
        cmocka_unit_test(bad_overrides_come_back),
        cmocka_unit_test(many_rules_with_overrides_are_taken_apart),
    };
    return cmocka_run_group_tests_name("rules/overrides", tests, NULL, NULL);
}
