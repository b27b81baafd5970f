/* The sentences of an explanation, and lengths of time. */
#include "../engine/helpers.h"
#include "engine/handle.h"
#include "present/present.h"

static void assert_span(int64_t us, const char *expected)
{
    char text[SPAN_TEXT_MAX];
    span_text(us, text);
    assert_string_equal(text, expected);
}

static void spans(void **state)
{
    (void)state;
    assert_span(0, "0 us");
    assert_span(999, "999 us");
    assert_span(1500, "1 ms 500 us");
    assert_span(250 * US_PER_MS, "250 ms");
    assert_span(90 * US_PER_S, "1 min 30 s");
    assert_span(3600 * US_PER_S, "1 h");
    assert_span(INT64_C(26) * 3600 * US_PER_S, "1 d 2 h");
    assert_span(INT64_C(500) * 86400 * US_PER_S + US_PER_S, "500 d");
}

/* Whoever waits as long as it says does not come too early. */
static void waits_are_rounded_up(void **state)
{
    (void)state;
    static const struct {
        int64_t us;
        const char *text;
    } waits[] = {
        { 1, "1 ms" },
        { 415 * US_PER_MS, "415 ms" },
        { 52 * US_PER_S + 1, "53 s" },
        { 52 * US_PER_S, "52 s" },
        { 59 * US_PER_S + 1, "1 min" },
        { 61 * US_PER_S + 1, "1 min 2 s" },
        { 3600 * US_PER_S + 1, "1 h 1 min" },
        { INT64_C(24) * 3600 * US_PER_S + 1, "1 d 1 h" },
    };
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        char text[SPAN_TEXT_MAX];
        wait_text(waits[i].us, text);
        assert_string_equal(text, waits[i].text);
    }
}

/* ---- sentences ---- */

struct story {
    uint32_t cost;
    struct penalty_cause penalty;
    char text[1000];
};

static void ignore_request(struct facts *facts, void *data)
{
    (void)facts, (void)data;
}

static void end_line(struct story *s, struct buf *line)
{
    snprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), "%.*s\n", SV_FMT(buf_sv(line)));
    buf_clear(line);
}

static void tell_rule(const struct explained_rule *rule, void *data)
{
    struct story *s = data;
    struct buf line;
    buf_init(&line, EXPLAIN_TEXT_MAX);
    explain_note_penalty(rule, &s->penalty);
    explain_subject(rule, &line);
    end_line(s, &line);
    for (size_t i = 0; i < rule->rule->kind->limit_count; i++) {
        explain_usage(rule, &rule->limits[i], &line);
        end_line(s, &line);
    }
    if (explain_penalty(rule, NOW, &line))
        end_line(s, &line);
    buf_done(&line);
}

static void tell_verdict(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    struct story *s = data;
    struct buf line;
    (void)request;
    buf_init(&line, EXPLAIN_TEXT_MAX);
    explain_verdict(verdict, &s->penalty, NOW, &line);
    end_line(s, &line);
    buf_done(&line);
}

static void expect_story(struct weir *weir, struct weir_request request, const char *expected)
{
    static const struct explain_sink sink = { ignore_request, tell_rule, tell_verdict };
    struct story story = { .cost = request.cost };
    assert_int_equal(weir_explain(weir, &request, NOW, &sink, &story), 0);
    assert_string_equal(story.text, expected);
}

static void what_is_used(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: ocr, by: [key], limits: [{ name: minute, max: 20, per: 60s, algorithm: "
                                   "fixed_window }, { name: hour, max: 60, per: 1h }] }]");
    expect_story(
        weir, one("e", "k"),
        "counts for key k\n0 of 20 used\n0 of 60 used\nallowed: the least is left of ocr, limit minute: 20 of 20\n");
    assert_int_equal(passes(weir, one("e", "k"), NOW - 7585 * US_PER_MS, 21), 20);
    expect_story(weir, one("e", "k"),
                 "counts for key k\n20 of 20 used; resets in 53 s; retry in 53 s\n20 of 60 used; resets in 19 min 53 s\n"
                 "refused by ocr, limit minute: retry in 53 s\n");
    expect_story(weir, cost_of("e", "k", 99),
                 "counts for key k\n20 of 20 used; resets in 53 s; never has room for 99\n"
                 "20 of 60 used; resets in 19 min 53 s; never has room for 99\n"
                 "refused by ocr, limit minute: no wait will help\n");
    weir_close(weir);
}

static void other_verdicts(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: s, mode: shadow, limits: [{ max: 1, calendar: day, tz: UTC }] }]");
    expect_story(weir, one("e", "k"),
                 "counts for everybody together\n0 of 1 used; the day ends at 2023-11-15T00:00:00Z\n"
                 "allowed: no enforced rule limits this request\n");
    weir_close(weir);
}

/* The limits have room meanwhile: it is the penalty that refuses. */
static void the_cause_of_a_penalty(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: login, by: [key], limits: [{ max: 1, per: 1s, algorithm: fixed_window }], "
                   "penalty: { after: 2, within: 1m, for: 1h } }]");
    assert_int_equal(passes(weir, one("e", "k"), NOW - 20 * US_PER_S, 3), 1);
    expect_story(
        weir, one("e", "k"),
        "counts for key k\n0 of 1 used\n"
        "penalised for another 59 min 40 s, until 2023-11-14T23:13:00Z, after 2 refusals within 1 min; 1 penalty, the "
        "next one lasts 2 h\n"
        "refused by login: a penalty for too many refusals; retry in 59 min 40 s; it lasts until "
        "2023-11-14T23:13:00Z, after 2 refusals within 1 min\n");
    struct weir_str by = weir_str("other");
    struct subject_name name = { "login", &by, 1 };
    struct penalised_entry entry;
    struct weir_error error;
    assert_int_equal(weir_penalise(weir, &name, 60 * US_PER_S, NOW, &entry, &error), 0);
    expect_story(weir, one("e", "other"),
                 "counts for key other\n0 of 1 used\n"
                 "penalised for another 1 min, until 2023-11-14T22:14:20Z, set by hand; 1 penalty, the next one lasts 2 h\n"
                 "refused by login: a penalty; retry in 1 min; it lasts until 2023-11-14T22:14:20Z, set by hand\n");
    weir_close(weir);
}

static void the_whole_as_json(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: s, mode: shadow, by: [key], limits: [0 per 1h] }, { id: off, mode: off, "
                                   "limits: [1 per 1h] }]");
    struct weir_request request = one("e", "k");
    struct buf out;
    buf_init(&out, 100000);
    assert_int_equal(explain_json(weir, &request, EXPLAIN_ALL, NOW, &out), 0);
    static const char *const parts[] = {
        "{\"request\":{\"time\":\"2023-11-14T22:13:20Z\",\"method\":null,",
        "{\"id\":\"s\",\"mode\":\"shadow\",\"counters\":\"local\",\"applies\":true,\"reason\":\"applies\",",
        "\"by\":[{\"name\":\"key\",\"value\":\"k\"}]",
        "\"max\":0,\"used\":0,\"remaining\":0,\"fits\":false,",
        "\"reason\":\"off\",\"detail\":null,\"text\":\"it is off\"",
        "\"verdict\":{\"allowed\":true,\"status\":200,\"rule\":null,",
        ",\"shadow\":[\"s\"]},\"text\":\"allowed: no enforced rule limits this request\"}\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(out.ptr, parts[i]))
            fail_msg("%s\nis not in\n%s", parts[i], out.ptr);
    assert_null(strstr(out.ptr, "not_applied"));
    buf_clear(&out);
    assert_int_equal(explain_json(weir, &request, EXPLAIN_APPLYING, NOW, &out), 0);
    assert_non_null(strstr(out.ptr, "\"rules\":[\n{\"id\":\"s\","));
    assert_null(strstr(out.ptr, "{\"id\":\"off\""));
    assert_non_null(strstr(out.ptr, "}],\n\"not_applied\":1,\n\"verdict\":{"));
    assert_int_equal(explain_json(weir, &request, EXPLAIN_ALL, -1, &out), WEIR_E_INVALID);
    buf_done(&out);
    weir_close(weir);
}

/* Only the reading that has no room is shown, but the other one is charged, too. */
static void units_of_all_readings_are_counted(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [path], limits: 0 per 1h }]\n"
                                   "overrides: [{ rule: a, by: { path: /x/b }, limits: 9 bytes per 1h }]");
    struct weir_cost costs[] = { { weir_str("byte"), 1 }, { weir_str("bytes"), 1 } };
    struct weir_request request = { .path = weir_str("/x%2Fb"), .cost = 1, .costs = costs, .cost_count = 2 };
    struct buf out;
    buf_init(&out, 100000);
    assert_int_equal(explain_json(weir, &request, EXPLAIN_ALL, NOW, &out), 0);
    assert_non_null(strstr(out.ptr, "\"text\":\"0 per 1h\""));
    assert_null(strstr(out.ptr, "9 bytes per 1h"));
    assert_non_null(strstr(out.ptr, "],\n\"uncounted\":[\"byte\"],\n\"verdict\":{"));
    request.path = weir_str("/y");
    buf_clear(&out);
    assert_int_equal(explain_json(weir, &request, EXPLAIN_ALL, NOW, &out), 0);
    assert_non_null(strstr(out.ptr, "\"uncounted\":[\"byte\",\"bytes\"]"));
    buf_done(&out);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans),
        cmocka_unit_test(waits_are_rounded_up),
        cmocka_unit_test(what_is_used),
        cmocka_unit_test(other_verdicts),
        cmocka_unit_test(the_cause_of_a_penalty),
        cmocka_unit_test(the_whole_as_json),
        cmocka_unit_test(units_of_all_readings_are_counted),
    };
    return cmocka_run_group_tests_name("present/explain", tests, NULL, NULL);
}
