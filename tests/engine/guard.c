/* The guard for business code, resetting a subject, and the numbers to watch. */
#include <pthread.h>

#include "helpers.h"

#define RULES "rules: [{ id: ocr, match: { event: ocr }, by: [key], limits: [2 per 365d] }]"

/* ---- the guard ---- */

/* As people write it: with and without braces, as the branch of an `if`, within a loop. */
static unsigned guarded(struct weir *weir, const char *event, const char *key, unsigned times)
{
    unsigned done = 0;
    for (unsigned i = 0; i < times; i++) {
        WEIR_DETECT(weir, event, key) {
            done++;
            continue;
        } else {
            break;
        }
        fail();
    }
    return done;
}

static void the_guard_as_a_statement(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    int detected = 99;
    assert_int_equal(guarded(weir, "ocr", "u1", 9), 2);
    assert_false(weir_last(&detected)->allowed);
    assert_int_equal(detected, WEIR_REFUSED);
    assert_string_equal(weir_last(NULL)->rule, "ocr");
    assert_true(weir_last(NULL)->retry_after_ms > 0);

    bool refused = false;
    WEIR_DETECT(weir, "ocr", "u1")
        fail();
    else
        refused = true;
    assert_true(refused);
    WEIR_DETECT(weir, "ocr", "u2")
        refused = false;
    assert_false(refused);
    weir_last(&detected);
    assert_int_equal(detected, WEIR_ALLOWED);
    assert_int_equal(weir_last(NULL)->remaining, 1);
    weir_close(weir);
}

static void no_rule_can_be_told_from_allowed(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    struct weir_verdict v;
    assert_int_equal(weir_detect(weir, "ocr", "u1", &v), WEIR_ALLOWED);
    assert_true(v.applied);
    struct weir_receipt held = { .count = 1 };
    assert_int_equal(weir_detect_held(weir, "speech", "u1", &held, &v), WEIR_NO_RULE);
    assert_int_equal(held.count, 0);
    held.count = 1;
    assert_int_equal(weir_detect_held(weir, "ocr", " ", &held, NULL), WEIR_E_BLANK);
    assert_int_equal(held.count, 0);
    held.count = 1;
    assert_int_equal(weir_detect_held(weir, "ocr", "u2", &held, NULL), WEIR_ALLOWED);
    assert_int_equal(held.count, 0); /* nothing that ends with the call */
    assert_int_equal(weir_detect(weir, "speech", "u1", &v), WEIR_NO_RULE);
    assert_true(v.allowed);
    assert_false(v.applied);
    assert_int_equal(guarded(weir, "speech", "u1", 5), 5);
    assert_int_equal(weir_detect(weir, "ocr", "u1", NULL), WEIR_ALLOWED);
    assert_int_equal(weir_detect(weir, "ocr", "u1", &v), WEIR_REFUSED);
    assert_int_equal(v.status, 429);
    /* Behind a shadow rule it is still no rule. */
    set_rules(weir, "rules: [{ id: s, limits: [0 per 1s], mode: shadow }]");
    assert_int_equal(weir_detect(weir, "ocr", "u1", &v), WEIR_NO_RULE);
    assert_int_equal(v.shadow_count, 1);
    weir_close(weir);
}

static void blank_is_an_error(void **state)
{
    (void)state;
    static const char *const blank[] = { NULL, "", " ", " \t\r\n" };
    struct weir *weir = open_rules(RULES);
    for (size_t i = 0; i < 4; i++) {
        struct weir_verdict v = { .allowed = true };
        int detected;
        assert_int_equal(weir_detect(weir, blank[i], "u1", &v), WEIR_E_BLANK);
        assert_false(v.allowed);
        assert_int_equal(weir_detect(weir, "ocr", blank[i], &v), WEIR_E_BLANK);
        assert_int_equal(guarded(weir, "ocr", blank[i], 1), 0);
        assert_false(weir_last(&detected)->allowed);
        assert_int_equal(detected, WEIR_E_BLANK);
    }
    weir_close(weir);
}

static void *detect_elsewhere(void *weir)
{
    int detected = 99;
    assert_int_equal(weir_last(&detected)->status, 0);
    assert_int_equal(detected, 0);
    weir_detect(weir, "ocr", "other", NULL);
    return NULL;
}

static void each_thread_has_a_last_verdict_of_its_own(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    pthread_t thread;
    int detected;
    assert_int_equal(guarded(weir, "ocr", "u1", 3), 2);
    assert_int_equal(pthread_create(&thread, NULL, detect_elsewhere, weir), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(weir_last(&detected)->status, 429);
    assert_int_equal(detected, WEIR_REFUSED);
    weir_close(weir);
}

/* ---- reset ---- */

static void reset_frees_one_subject(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n  - id: a\n    by: [event, key]\n    limits: [2 per 1h, 3 per day, { algorithm: "
                   "sliding_window, max: 4, per: 1h }]\n");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 2);
    assert_int_equal(passes(weir, one("e", "l"), NOW, 9), 2);
    struct weir_str by[] = { WEIR_STR("e"), WEIR_STR("k") };
    assert_int_equal(weir_reset(weir, "a", by, 2, NULL), 0);
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 1 of 2, reset 1800000");
    EXPECT(weir, one("e", "l"), NOW, "refuse 429 a/token_bucket 0 of 2, reset 3600000, retry 1800000");
    assert_int_equal(weir_reset(weir, "a", by, 2, NULL), 0);
    assert_int_equal(weir_reset(weir, "a", by, 2, NULL), 0); /* and once more: nothing to forget */
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 2);
    weir_close(weir);
}

static void reset_of_wrong_things(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [event, ip], limits: [1 per 1h] }, { id: b, limits: [1 per 1h] }]");
    struct weir_error error;
    struct weir_str by[] = { WEIR_STR("e"), WEIR_STR("banana"), WEIR_STR("x") };
    assert_int_equal(weir_reset(weir, "nobody", by, 2, &error), WEIR_E_UNKNOWN_RULE);
    assert_string_equal(error.text, "there is no rule `nobody`");
    assert_int_equal(weir_reset(weir, "a", by, 1, &error), WEIR_E_INVALID);
    assert_string_equal(error.text, "rule a counts by event, ip: give 2 values in this order, not 1");
    assert_int_equal(weir_reset(weir, "a", by, 3, &error), WEIR_E_INVALID);
    assert_int_equal(weir_reset(weir, "a", by, 2, &error), WEIR_E_INVALID);
    assert_string_equal(error.text, "rule a counts by ip, and `banana` is not a valid value");
    by[0] = weir_str(NULL);
    assert_int_equal(weir_reset(weir, "a", by, 2, &error), WEIR_E_INVALID);
    assert_string_equal(error.text, "rule a counts by event, and `` is not a valid value");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 1);
    assert_int_equal(weir_reset(weir, "b", NULL, 0, &error), 0);
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 1);
    weir_close(weir);
}

/* Values may be spelled as in requests, or as they are counted. */
static void reset_of_every_attribute(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("settings: { strip_prefixes: [/api] }\n"
                   "rules: [{ id: a, by: [method, path, host, ip, user, route, 'header:X-Team'], limits: [1 per 1h] }]");
    struct weir_header header = { WEIR_STR("x-team"), WEIR_STR("blue") };
    struct weir_request request = { .method = WEIR_STR("GET"),
                                    .path = WEIR_STR("/api//a/./17/b?x=1"),
                                    .host = WEIR_STR("Example.COM:8080"),
                                    .ip = WEIR_STR("2001:db8::1"),
                                    .user = WEIR_STR("u"),
                                    .headers = &header,
                                    .header_count = 1,
                                    .cost = 1 };
    struct weir_str raw[] = { request.method, request.path, request.host, request.ip,
                              request.user,   request.path, header.value };
    struct weir_str counted[] = {
        request.method,     WEIR_STR("/a/17/b"), WEIR_STR("example.com"), WEIR_STR("2001:db8::/64"), request.user,
        WEIR_STR("/a/#/b"), header.value
    };
    assert_int_equal(passes(weir, request, NOW, 9), 1);
    assert_int_equal(weir_reset(weir, "a", raw, 7, NULL), 0);
    assert_int_equal(passes(weir, request, NOW, 9), 1);
    assert_int_equal(weir_reset(weir, "a", counted, 7, NULL), 0);
    assert_int_equal(passes(weir, request, NOW, 9), 1);
    /* Another network than the one that is counted by is no subject. */
    counted[3] = WEIR_STR("2001:db8::/48");
    assert_int_equal(weir_reset(weir, "a", counted, 7, NULL), WEIR_E_INVALID);
    weir_close(weir);
}

/* ---- status ---- */

static void drops_are_counted(void **state)
{
    (void)state;
    struct weir_status status;
    struct weir *weir = open_with(
        (struct weir_options){ .rules_text = "rules: [{ id: a, by: [key], limits: [1 per 1h] }]", .cells_bytes = 1024 });
    weir_status(weir, &status);
    assert_int_equal(status.cells, 32);
    for (int i = 0; i < 100; i++) {
        char key[20];
        snprintf(key, sizeof key, "k%d", i);
        assert_true(check_at(weir, one("e", key), NOW).allowed);
    }
    weir_status(weir, &status);
    assert_int_equal(status.drops, 100 - 32);
    assert_int_equal(status.drops_at_limit, 100 - 32);
    weir_close(weir);
}

static void versions(void **state)
{
    (void)state;
    assert_int_equal(weir_abi_version(), WEIR_ABI_VERSION);
    assert_non_null(strchr(weir_version(), '.'));
    int64_t now = weir_now_us();
    assert_true(now > NOW && now < INT64_C(1) << 52);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_guard_as_a_statement),
        cmocka_unit_test(no_rule_can_be_told_from_allowed),
        cmocka_unit_test(blank_is_an_error),
        cmocka_unit_test(each_thread_has_a_last_verdict_of_its_own),
        cmocka_unit_test(reset_frees_one_subject),
        cmocka_unit_test(reset_of_wrong_things),
        cmocka_unit_test(reset_of_every_attribute),
        cmocka_unit_test(drops_are_counted),
        cmocka_unit_test(versions),
    };
    return cmocka_run_group_tests_name("engine/guard", tests, NULL, NULL);
}
