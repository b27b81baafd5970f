/* Headers as clients send them: blanks at the ends of a value, and headers that are there twice. Neither may make a new
 * subject. A user, key or event that a program names counts as it is given. */
#include "present/present.h"

#include "helpers.h"

static const char *const spellings[] = { "real",   " real",    "\treal",      "\t\treal",         "real ",
                                         "real\t", "real \t ", " \t real\t ", "\t\t\t\treal\t\t", "\t real" };
enum { SPELLINGS = sizeof spellings / sizeof *spellings };

static const char by_each[] = "rules:\n"
                              "- { id: key, match: { event: e }, by: [key], limits: [5 per 1h] }\n"
                              "- { id: user, by: [user], limits: [5 per 1h] }\n"
                              "- { id: header, by: ['header:X-Api-Key'], limits: [5 per 1h] }\n"
                              "- { id: plan, match: { header: { X-Plan: real } }, limits: [5 per 1h] }\n"
                              "- { id: event, match: { path: /events }, by: [event], limits: [5 per 1h] }\n"
                              "- { id: host, by: [host], limits: [5 per 1h] }\n"
                              "- { id: method, by: [method], limits: [5 per 1h] }\n";

/* A request that one of the rules counts for `value`. */
static struct weir_request request_of(const char *rule, const char *value, struct weir_header *header)
{
    struct weir_request request = { .cost = 1 };
    *header = (struct weir_header){ weir_str(strcmp(rule, "plan") == 0 ? "X-Plan" : "X-Api-Key"), weir_str(value) };
    if (strcmp(rule, "key") == 0) {
        request.event = WEIR_STR("e");
        request.key = weir_str(value);
    } else if (strcmp(rule, "user") == 0) {
        request.user = weir_str(value);
    } else if (strcmp(rule, "event") == 0) {
        request.path = WEIR_STR("/events");
        request.event = weir_str(value);
    } else if (strcmp(rule, "host") == 0) {
        request.host = weir_str(value);
    } else if (strcmp(rule, "method") == 0) {
        request.method = weir_str(value);
    } else {
        request.headers = header;
        request.header_count = 1;
    }
    return request;
}

static void blanks_make_no_new_subject(void **state)
{
    (void)state;
    static const char *const rules[] = { "header", "plan", "host", "method" };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct weir *weir = open_rules(by_each);
        struct weir_header header;
        unsigned passed = 0;
        for (int n = 0; n < 199; n++)
            passed += check_at(weir, request_of(rules[i], spellings[n % SPELLINGS], &header), NOW).allowed;
        assert_int_equal(passed, 5);
        /* A blank inside is a part of it; nothing but blanks is no value. */
        struct weir_verdict verdict = check_at(weir, request_of(rules[i], "real real", &header), NOW);
        assert_true(verdict.allowed);
        assert_int_equal(verdict.applied, strcmp(rules[i], "plan") != 0);
        assert_false(check_at(weir, request_of(rules[i], " \t", &header), NOW).applied);
        weir_close(weir);
    }
}

static void what_a_program_names_counts_as_given(void **state)
{
    (void)state;
    static const char *const rules[] = { "key", "user", "event" };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct weir *weir = open_rules(by_each);
        struct weir_header header;
        unsigned passed[SPELLINGS] = { 0 };
        for (int n = 0; n < 199; n++)
            passed[n % SPELLINGS] += check_at(weir, request_of(rules[i], spellings[n % SPELLINGS], &header), NOW).allowed;
        for (int n = 0; n < SPELLINGS; n++)
            assert_int_equal(passed[n], 5);
        assert_true(check_at(weir, request_of(rules[i], " \t", &header), NOW).applied);
        assert_false(check_at(weir, request_of(rules[i], "", &header), NOW).applied);
        weir_close(weir);
    }
    /* The event of a rule is compared as it is, too. */
    struct weir *weir = open_rules(by_each);
    struct weir_request request = { .event = WEIR_STR(" e"), .key = WEIR_STR("k"), .cost = 1 };
    assert_false(check_at(weir, request, NOW).applied);
    weir_close(weir);
}

static unsigned batch_passes(const char *rule)
{
    struct weir *weir = open_rules(by_each);
    struct weir_request requests[2 * SPELLINGS];
    struct weir_verdict verdicts[2 * SPELLINGS];
    struct weir_header headers[2 * SPELLINGS];
    unsigned passed = 0;
    for (int i = 0; i < 2 * SPELLINGS; i++)
        requests[i] = request_of(rule, spellings[i % SPELLINGS], &headers[i]);
    assert_int_equal(weir_check_batch(weir, requests, 2 * SPELLINGS, NOW, verdicts), 0);
    for (int i = 0; i < 2 * SPELLINGS; i++)
        passed += verdicts[i].allowed;
    weir_close(weir);
    return passed;
}

static void batches_do_the_same(void **state)
{
    (void)state;
    assert_int_equal(batch_passes("header"), 5);
    assert_int_equal(batch_passes("host"), 5);
    assert_int_equal(batch_passes("user"), 2 * SPELLINGS);
    assert_int_equal(batch_passes("key"), 2 * SPELLINGS);
}

static size_t say_user(const struct weir_request *request, char *buf, size_t cap, void *data)
{
    const char *const *user = data;
    (void)request, (void)cap;
    memcpy(buf, *user, strlen(*user));
    return strlen(*user);
}

static void what_the_getter_says_counts_as_given(void **state)
{
    (void)state;
    const char *user = "";
    struct weir *weir =
        open_with((struct weir_options){ .rules_text = by_each, .user_id = say_user, .user_id_data = &user });
    for (int i = 0; i < SPELLINGS; i++) {
        user = spellings[i];
        assert_int_equal(passes(weir, (struct weir_request){ .cost = 1 }, NOW, 9), 5);
    }
    /* The getter is called only if there is no user; blanks are a user. */
    assert_int_equal(passes(weir, (struct weir_request){ .user = WEIR_STR(" \t"), .cost = 1 }, NOW, 9), 5);
    weir_close(weir);
}

static void subjects_are_shown_and_reset_as_they_count(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [ { id: r, by: [user, key, 'header:X-A', host], limits: [1 per 1h] } ]");
    struct weir_header header = { WEIR_STR("x-a"), WEIR_STR("a\t") };
    struct weir_request request = { .user = WEIR_STR(" u"),
                                    .key = WEIR_STR("k "),
                                    .host = WEIR_STR("\tH.example"),
                                    .headers = &header,
                                    .header_count = 1,
                                    .cost = 1 };
    struct weir_error error;
    char text[200];
    assert_int_equal(passes(weir, request, NOW, 3), 1);
    struct weir_verdict verdict = check_at(weir, request, NOW);
    weir_subject_text(weir, &request, &verdict, text, sizeof text);
    assert_string_equal(text, "user=\" u\" key=\"k \" header:x-a=\"a\" host=\"h.example\"");
    const struct weir_str other[] = { WEIR_STR("u"), WEIR_STR("k "), WEIR_STR("a"), WEIR_STR("h.example") };
    assert_int_equal(weir_reset(weir, "r", other, 4, &error), 0);
    assert_int_equal(passes(weir, request, NOW, 3), 0);
    const struct weir_str by[] = { WEIR_STR(" u"), WEIR_STR("k "), WEIR_STR(" a "), WEIR_STR("h.example ") };
    assert_int_equal(weir_reset(weir, "r", by, 4, &error), 0);
    assert_int_equal(passes(weir, request, NOW, 3), 1);
    const struct weir_str blank[] = { WEIR_STR(" u"), WEIR_STR("k "), WEIR_STR(" "), WEIR_STR("h.example") };
    assert_int_equal(weir_reset(weir, "r", blank, 4, &error), WEIR_E_INVALID);
    weir_close(weir);
    weir = open_rules("rules: [ { id: ip, by: [ip, route], limits: [1 per 1h] } ]");
    request = (struct weir_request){ .ip = WEIR_STR(" 2001:db8::1"), .path = WEIR_STR("/a/1"), .cost = 1 };
    assert_int_equal(passes(weir, request, NOW, 3), 1);
    const struct weir_str network[] = { WEIR_STR(" 2001:db8::/64 "), WEIR_STR("/a/#") };
    assert_int_equal(weir_reset(weir, "ip", network, 2, &error), 0);
    assert_int_equal(passes(weir, request, NOW, 3), 1);
    weir_close(weir);
}

/* ---- headers that are there twice ---- */

static const char by_header[] = "- { id: api, match: { path: /api }, by: ['header:X-Api-Key'], limits: [5 per 1h] }\n"
                                "- { id: all, limits: [50 per 1h], reject: { status: 420, body: all } }\n"
                                "- { id: watch, mode: shadow, by: ['header:X-Watch'], limits: [5 per 1h] }\n";

static struct weir *open_repeated(const char *repeated)
{
    char rules[1000];
    snprintf(rules, sizeof rules, "settings: { repeated_headers: %s }\nrules:\n%s", repeated, by_header);
    return open_rules(rules);
}

static struct weir_request twice(const char *name, const char *first, const char *second, struct weir_header headers[2])
{
    headers[0] = (struct weir_header){ weir_str(name), weir_str(first) };
    headers[1] = (struct weir_header){ weir_str(name), weir_str(second) };
    return (struct weir_request){ .path = WEIR_STR("/api"), .headers = headers, .header_count = 2, .cost = 1 };
}

static void a_header_twice_is_refused(void **state)
{
    (void)state;
    struct weir *weir = open_repeated("refuse");
    struct weir_header headers[2];
    struct weir_request request = twice("X-API-Key", "junk", "real", headers);
    struct weir_verdict verdict = check_at(weir, request, NOW);
    struct weir_refusal refusal;
    char text[500];
    expect_verdict(&verdict, "refuse 400 no rule, retry -1", __FILE__, __LINE__);
    assert_string_equal(verdict.limit, "x-api-key");
    assert_string_equal(verdict.rule, "");
    weir_verdict_json(&request, &verdict, text, sizeof text);
    assert_string_equal(
        text,
        "{\"allowed\":false,\"status\":400,\"rule\":null,\"limit\":null,\"max\":null,\"remaining\":null,\"reset_ms\":null,"
        "\"retry_after_ms\":-1,\"repeated_header\":\"x-api-key\"}");
    assert_int_equal(weir_refuse(weir, &request, &verdict, &refusal), 0);
    assert_int_equal(refusal.status, 400);
    assert_int_equal(refusal.header_count, 0);
    snprintf(text, sizeof text, "%.*s", (int)refusal.body.len, refusal.body.ptr);
    assert_string_equal(text, "Bad request: the header x-api-key is repeated with different values\n");
    assert_int_equal(weir_subject_text(weir, &request, &verdict, text, sizeof text), 0);
    /* Whatever comes first, and empty ones too; not one of them is charged anywhere. */
    static const char *const pairs[][2] = { { "junk", "real" }, { "real", "junk" }, { "", "real" }, { "real", "\t" } };
    for (int i = 0; i < 200; i++)
        EXPECT(weir, twice("x-api-key", pairs[i % 4][0], pairs[i % 4][1], headers), NOW, "refuse 400 no rule, retry -1");
    EXPECT(weir, twice("x-api-key", "real", " real\t", headers), NOW, "pass api/token_bucket 4 of 5, reset 720000");
    /* No rule that applies here looks at it; or one that refuses nothing. */
    request = twice("X-Api-Key", "junk", "real", headers);
    request.path = WEIR_STR("/other");
    EXPECT(weir, request, NOW, "pass all/token_bucket 48 of 50, reset 144000");
    EXPECT(weir, twice("X-Watch", "junk", "real", headers), NOW, "pass all/token_bucket 47 of 50, reset 216000");
    EXPECT(weir, twice("Accept", "a", "b", headers), NOW, "pass all/token_bucket 46 of 50, reset 288000");
    weir_close(weir);
}

static void a_batch_refuses_only_those(void **state)
{
    (void)state;
    struct weir *weir = open_repeated("refuse");
    struct weir_header headers[3][2];
    struct weir_request requests[3] = { twice("X-Api-Key", "a", "a", headers[0]), twice("X-Api-Key", "a", "b", headers[1]),
                                        twice("X-Api-Key", "a", "a", headers[2]) };
    struct weir_verdict verdicts[3];
    struct weir_receipt receipt = { .count = 9 };
    requests[1].receipt = &receipt;
    assert_int_equal(weir_check_batch(weir, requests, 3, NOW, verdicts), 0);
    expect_verdict(&verdicts[0], "pass api/token_bucket 4 of 5, reset 720000", __FILE__, __LINE__);
    expect_verdict(&verdicts[1], "refuse 400 no rule, retry -1", __FILE__, __LINE__);
    expect_verdict(&verdicts[2], "pass api/token_bucket 3 of 5, reset 1440000", __FILE__, __LINE__);
    assert_int_equal(receipt.count, 0);
    assert_int_equal(weir_refund(weir, &receipt, NOW), 0);
    weir_close(weir);
}

static void a_setting_takes_the_first_or_the_last(void **state)
{
    (void)state;
    static const char *const settings[] = { "first", "last" };
    for (int i = 0; i < 2; i++) {
        struct weir *weir = open_repeated(settings[i]);
        struct weir_header headers[2];
        unsigned passed = 0;
        for (int n = 0; n < 40; n++) {
            char junk[20];
            snprintf(junk, sizeof junk, "junk%d", n);
            passed += check_at(weir, twice("X-Api-Key", i ? junk : "real", i ? "real" : junk, headers), NOW).allowed;
        }
        assert_int_equal(passed, 5);
        assert_false(check_at(weir, twice("X-Api-Key", i ? "real" : "", i ? " " : "real", headers), NOW).allowed);
        weir_close(weir);
    }
}

static void callers_ask_what_to_take(void **state)
{
    (void)state;
    struct weir *weir = open_repeated("refuse");
    struct weir_verdict verdict;
    memset(&verdict, 0xa5, sizeof verdict);
    assert_int_equal(weir_repeated(weir, "header:X-API-KEY", WEIR_STR("x-key"), NOW, &verdict), WEIR_TAKE_NONE);
    expect_verdict(&verdict, "refuse 400 no rule, retry -1", __FILE__, __LINE__);
    assert_string_equal(verdict.limit, "x-key");
    assert_int_equal(weir_repeated(weir, "path", WEIR_STR("x-path"), NOW, &verdict), WEIR_TAKE_NONE);
    assert_int_equal(weir_repeated(weir, "cost", WEIR_STR("x-cost"), NOW, &verdict), WEIR_TAKE_NONE);
    assert_int_equal(weir_repeated(weir, "user", WEIR_STR("x-user"), NOW, &verdict), WEIR_TAKE_FIRST);
    assert_int_equal(weir_repeated(weir, "header:X-Watch", WEIR_STR("x-watch"), NOW, &verdict), WEIR_TAKE_FIRST);
    weir_close(weir);
    weir = open_repeated("last");
    assert_int_equal(weir_repeated(weir, "header:X-Api-Key", WEIR_STR("x-key"), NOW, &verdict), WEIR_TAKE_LAST);
    weir_close(weir);
}

/* ---- explained ---- */

static void ignore_request(struct facts *facts, void *data)
{
    (void)facts, (void)data;
}

static void tell_reason(const struct explained_rule *rule, void *data)
{
    struct buf out;
    const struct weir_request request = { 0 };
    buf_init(&out, EXPLAIN_TEXT_MAX);
    explain_reason(rule, &request, &out);
    if (out.len > 0)
        snprintf((char *)data + strlen(data), 300, "%.*s: %.*s\n", SV_FMT(rule->rule->id), SV_FMT(buf_sv(&out)));
    buf_done(&out);
}

static void tell_verdict(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    char line[LINE_MAX_BYTES];
    verdict_line(verdict, request->shadows, line);
    strcat(data, line);
}

static void explained(void **state)
{
    (void)state;
    static const struct explain_sink sink = { ignore_request, tell_reason, tell_verdict };
    struct weir *weir = open_repeated("refuse");
    struct weir_header headers[4];
    char story[LINE_MAX_BYTES + 2000] = "";
    struct weir_request request = twice("X-Api-Key", "junk", "real", headers);
    twice("X-Watch", "a", "b", headers + 2);
    request.header_count = 4;
    assert_int_equal(weir_explain(weir, &request, NOW, &sink, story), 0);
    assert_string_equal(
        story, "api: the request repeats the header x-api-key with different values, and is refused for that\n"
               "watch: the request repeats the header x-watch with different values, and would be refused for that\n"
               "refuse 400 no rule, retry -1");
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blanks_make_no_new_subject),
        cmocka_unit_test(what_a_program_names_counts_as_given),
        cmocka_unit_test(batches_do_the_same),
        cmocka_unit_test(what_the_getter_says_counts_as_given),
        cmocka_unit_test(subjects_are_shown_and_reset_as_they_count),
        cmocka_unit_test(a_header_twice_is_refused),
        cmocka_unit_test(a_batch_refuses_only_those),
        cmocka_unit_test(a_setting_takes_the_first_or_the_last),
        cmocka_unit_test(callers_ask_what_to_take),
        cmocka_unit_test(explained),
    };
    return cmocka_run_group_tests_name("values", tests, NULL, NULL);
}
