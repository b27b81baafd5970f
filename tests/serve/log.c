/* The log: lines that stay lines whatever strangers send, and refusals that are sampled. */
#include "serve/log.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/handle.h"
#include "serve/config.h"

#define S INT64_C(1000000)
#define NOW (INT64_C(1700000000) * S + 250000) /* 2023-11-14T22:13:20.25Z */

#define RULES                                                                                                \
    "rules:\n"                                                                                               \
    "  - { id: login, match: { path: /login }, by: [ip, user], limits: [ { name: m, max: 0, per: 1h } ] }\n" \
    "  - { id: all, match: { event: e }, limits: [ { name: m, max: 0, per: 1h } ] }\n"                       \
    "  - { id: by_header, match: { event: h }, by: [\"header:X-Api-Key\"], limits: [ 0 per 1h ] }\n"

/* ---- what is said ---- */

/* stderr goes into a pipe meanwhile. */
struct capture {
    int was, from;
    char text[128 << 10];
};

static struct capture captured;

static void begin(void)
{
    int ends[2];
    fflush(stderr);
    assert_int_equal(pipe(ends), 0);
    captured.was = dup(STDERR_FILENO);
    captured.from = ends[0];
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
}

static const char *end(void)
{
    size_t len = 0;
    ssize_t n;
    dup2(captured.was, STDERR_FILENO);
    close(captured.was);
    while ((n = read(captured.from, captured.text + len, sizeof captured.text - 1 - len)) > 0)
        len += (size_t)n;
    close(captured.from);
    captured.text[len] = '\0';
    return captured.text;
}

static unsigned lines_of(const char *text)
{
    unsigned lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static json_t *read_json(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        fail_msg("%s: %s", error.text, text);
    return json;
}

static const char *text_of(json_t *json, const char *name)
{
    const char *text = json_string_value(json_object_get(json, name));
    return text ? text : "none";
}

/* ---- messages ---- */

#define HOSTILE "a\nb\t\x1b[31m\"\\ \xc2\x9b \xff \xe2\x82\xac"
#define FORMAT "c\u202ed\u2028\u2029\u200b\ufeff\U000e0041"

static void plain_lines_hold_nothing_that_is_obeyed(void **state)
{
    (void)state;
    log_setup(CONFIG_LOG_PLAIN, 0);
    begin();
    log_say(LEVEL_WARNING, "rules", "%s", HOSTILE);
    const char *line = end();
    assert_string_equal(strchr(line, 'Z'), "Z warning rules: a\\nb\\t\\x1b[31m\"\\ \\xc2\\x9b \\xff \xe2\x82\xac\n");
    assert_int_equal(strchr(line, 'Z') - line, strlen("2023-11-14T22:13:20"));
}

static void json_lines_are_json(void **state)
{
    (void)state;
    log_setup(CONFIG_LOG_JSON, 0);
    begin();
    log_say(LEVEL_ERROR, "listen", "%s", HOSTILE);
    const char *line = end();
    assert_int_equal(lines_of(line), 1);
    json_t *json = read_json(line);
    assert_string_equal(text_of(json, "level"), "error");
    assert_string_equal(text_of(json, "event"), "listen");
    assert_string_equal(text_of(json, "message"), "a\nb\t\x1b[31m\"\\ \xc2\x9b \xef\xbf\xbd \xe2\x82\xac");
    json_decref(json);
}

/* Text that runs the other way, ends of lines that only some know, what nobody sees. */
static void format_characters_are_escaped(void **state)
{
    (void)state;
    log_setup(CONFIG_LOG_PLAIN, 0);
    begin();
    log_say(LEVEL_INFO, "x", "%s", FORMAT);
    assert_string_equal(strchr(end(), 'Z'), "Z info x: c\\xe2\\x80\\xaed\\xe2\\x80\\xa8\\xe2\\x80\\xa9\\xe2\\x80\\x8b"
                                            "\\xef\\xbb\\xbf\\xf3\\xa0\\x81\\x81\n");
    log_setup(CONFIG_LOG_JSON, 0);
    begin();
    log_say(LEVEL_INFO, "x", "%s", FORMAT);
    const char *line = end();
    assert_non_null(strstr(line, "\"c\\u202ed\\u2028\\u2029\\u200b\\ufeff\\udb40\\udc41\""));
    json_t *json = read_json(line);
    assert_string_equal(text_of(json, "message"), FORMAT);
    json_decref(json);
}

/* Whatever clients do, and however many threads notice. */
static void what_clients_repeat_is_said_once(void **state)
{
    (void)state;
    log_setup(CONFIG_LOG_PLAIN, 0);
    begin();
    for (int i = 0; i < 100; i++) {
        log_limited(SELDOM_ACCEPT, "try %d", i);
        log_limited(SELDOM_CHECK, "try %d", i);
    }
    const char *text = end();
    assert_int_equal(lines_of(text), 2);
    assert_non_null(strstr(text, "Z warning accept: try 0 (others like this are not logged for 60 s)\n"));
    assert_non_null(strstr(text, "Z warning mistake: try 0 (others like this are not logged for 60 s)\n"));
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    static char message[100000];
    memset(message, '\x01', sizeof message - 1);
    for (int format = CONFIG_LOG_PLAIN; format <= CONFIG_LOG_JSON; format++) {
        log_setup(format, 0);
        begin();
        log_say(LEVEL_INFO, "x", "%s", message);
        const char *text = end();
        assert_int_equal(lines_of(text), 1);
        assert_in_range(strlen(text), PIPE_BUF - 20, PIPE_BUF);
        if (format == CONFIG_LOG_JSON)
            json_decref(read_json(text));
    }
}

/* ---- refusals ---- */

static struct weir *open_rules(void)
{
    struct weir *weir = NULL;
    struct weir_error error;
    struct weir_options options = { .size = sizeof options, .rules_text = RULES, .cells_keys = 1000 };
    if (weir_open(&weir, &options, &error) < 0)
        fail_msg("%s", error.text);
    return weir;
}

static void refuse(struct weir *weir, const struct weir_request *request, int64_t now_us)
{
    struct weir_verdict verdict;
    assert_int_equal(weir_check(weir, request, now_us, &verdict), 0);
    assert_false(verdict.allowed);
    log_refusal(weir, request, &verdict, now_us, NULL, NULL);
}

static const struct weir_request login = { .method = { "POST", 4 },
                                           .path = { "/login?password=secret", 22 },
                                           .ip = { "203.0.113.9", 11 },
                                           .user = { "an na", 5 },
                                           .cost = 1 };

static void a_refusal_in_plain_words(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    log_setup(CONFIG_LOG_PLAIN, 10);
    begin();
    refuse(weir, &login, NOW);
    assert_string_equal(end(), "2023-11-14T22:13:20Z info refused: rule=login limit=m ip=203.0.113.9 user=\"an na\" "
                               "method=POST path=/login status=429 retry_after_ms=-1\n");
    weir_close(weir);
}

static void a_refusal_as_json(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    log_setup(CONFIG_LOG_JSON, 10);
    begin();
    refuse(weir, &login, NOW + 10 * S);
    struct weir_request event = { .event = WEIR_STR("e"), .cost = 1 };
    refuse(weir, &event, NOW + 10 * S);
    assert_string_equal(
        end(), "{\"time\":\"2023-11-14T22:13:30.250Z\",\"level\":\"info\",\"event\":\"refused\",\"rule\":\"login\","
               "\"limit\":\"m\",\"by\":{\"ip\":\"203.0.113.9\",\"user\":\"an na\"},\"method\":\"POST\","
               "\"path\":\"/login\",\"status\":429,\"retry_after_ms\":-1}\n"
               "{\"time\":\"2023-11-14T22:13:30.250Z\",\"level\":\"info\",\"event\":\"refused\",\"rule\":\"all\","
               "\"limit\":\"m\",\"by\":{},\"of_event\":\"e\",\"status\":429,\"retry_after_ms\":-1}\n");
    weir_close(weir);
}

#define TRACE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static sv find_trace(const void *of, const struct weir_request *request)
{
    assert_true(request->event.len > 0);
    return weir_str(of);
}

/* The request's own trace, else the one that is found for its call. */
static void a_refusal_with_a_trace(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    struct weir_header own = { WEIR_STR("traceparent"), WEIR_STR(TRACE) };
    struct weir_request request = { .event = WEIR_STR("e"), .headers = &own, .header_count = 1, .cost = 1 };
    struct weir_verdict verdict;
    weir_check(weir, &request, NOW, &verdict);
    log_setup(CONFIG_LOG_PLAIN, 10);
    begin();
    refuse(weir, &request, NOW + 80 * S);
    own.value = WEIR_STR("1");
    log_refusal(weir, &request, &verdict, NOW + 80 * S, find_trace,
                "00-"
                "00000000000000000000000000000001-0000000000000002-00");
    refuse(weir, &request, NOW + 80 * S);
    assert_string_equal(end(),
                        "2023-11-14T22:14:40Z info refused: rule=all limit=m of_event=e "
                        "trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7 trace_flags=01 "
                        "status=429 retry_after_ms=-1\n"
                        "2023-11-14T22:14:40Z info refused: rule=all limit=m of_event=e "
                        "trace_id=00000000000000000000000000000001 span_id=0000000000000002 trace_flags=00 "
                        "status=429 retry_after_ms=-1\n"
                        "2023-11-14T22:14:40Z info refused: rule=all limit=m of_event=e status=429 retry_after_ms=-1\n");
    weir_close(weir);
}

static const struct weir_header secret = { WEIR_STR("X-Api-Key"), WEIR_STR("swordfish-\u202e") };

/* Neither a refusal nor its end tells a password. */
static void headers_are_not_logged_whole(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    struct weir_request request = { .event = WEIR_STR("h"), .headers = &secret, .header_count = 1, .cost = 1 };
    for (int format = CONFIG_LOG_PLAIN; format <= CONFIG_LOG_JSON; format++) {
        log_setup(format, 10);
        begin();
        refuse(weir, &request, NOW + (4 + format) * S);
        const char *text = end();
        assert_non_null(strstr(text, format == CONFIG_LOG_JSON ? "\"by\":{\"header:x-api-key\":\"swor\u2026\"}"
                                                               : " header:x-api-key=swor\u2026 "));
        assert_null(strstr(text, "fish"));
    }
    struct weir_forgotten forgotten;
    assert_int_equal(weir_forget(weir, "by_header", &secret.value, 1, NOW, &forgotten, NULL), 0);
    assert_false(forgotten.counted); /* a refusal charges nothing */
    begin();
    log_setup(CONFIG_LOG_PLAIN, 0);
    log_freed(&forgotten.subject, weir_str("ann"), "127.0.0.1");
    assert_non_null(
        strstr(end(), "rule by_header: counts of header:x-api-key=\"swor\u2026\" reset by ann from 127.0.0.1\n"));
    struct weir_str values[] = { WEIR_STR("203.0.113.9"), { "a\0b\u202e", 6 } };
    assert_int_equal(weir_forget(weir, "login", values, 2, NOW, &forgotten, NULL), 0);
    begin();
    log_freed(&forgotten.subject, weir_str("redis client (ann)"), "127.0.0.1");
    assert_non_null(strstr(
        end(), "rule login: counts of ip=\"203.0.113.9\" user=\"a\\u0000b\\u202e\" reset by redis client (ann) from"));
    weir_close(weir);
}

static void what_is_left_out_is_counted(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    log_setup(CONFIG_LOG_JSON, 3);
    begin();
    for (int i = 0; i < 100; i++)
        refuse(weir, &login, NOW + 20 * S);
    for (int i = 0; i < 5; i++)
        refuse(weir, &login, NOW + 21 * S);
    const char *text = end();
    assert_int_equal(lines_of(text), 6);
    for (int i = 0; i < 6; i++, text = strchr(text, '\n') + 1) {
        char line[1000];
        snprintf(line, sizeof line, "%.*s", (int)(strchr(text, '\n') - text), text);
        json_t *json = read_json(line);
        assert_int_equal(json_integer_value(json_object_get(json, "not_logged")), i == 3 ? 97 : 0);
        json_decref(json);
    }
    weir_close(weir);
}

static void none_are_logged_if_none_are_wanted(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    log_setup(CONFIG_LOG_PLAIN, 0);
    begin();
    refuse(weir, &login, NOW + 30 * S);
    assert_string_equal(end(), "");
    weir_close(weir);
}

static void a_refusal_fits_into_a_pipe(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    static char long_text[5000];
    memset(long_text, '\x01', sizeof long_text);
    memcpy(long_text, "/login?", 6);
    struct weir_request request = login;
    request.user = weir_str("u");
    request.user = (struct weir_str){ long_text, sizeof long_text };
    request.event = (struct weir_str){ long_text, sizeof long_text };
    request.method = request.event;
    struct weir_verdict verdict;
    assert_int_equal(weir_check(weir, &request, NOW, &verdict), 0);
    assert_false(verdict.allowed);
    request.path = request.event;
    for (int format = CONFIG_LOG_PLAIN; format <= CONFIG_LOG_JSON; format++) {
        log_setup(format, 10);
        begin();
        log_refusal(weir, &request, &verdict, NOW + (40 + format) * S, NULL, NULL);
        const char *text = end();
        assert_int_equal(lines_of(text), 1);
        assert_true(strlen(text) > 1000 && strlen(text) <= PIPE_BUF);
    }
    weir_close(weir);
}

static void begin_full(void)
{
    static char fill[PIPE_BUF];
    begin();
    int flags = fcntl(STDERR_FILENO, F_GETFL);
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK), 0);
    memset(fill, 'x', sizeof fill);
    while (write(STDERR_FILENO, fill, sizeof fill) > 0)
        ;
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, flags), 0);
}

static void a_full_pipe_drops_lines_and_they_are_counted(void **state)
{
    (void)state;
    for (int format = CONFIG_LOG_PLAIN; format <= CONFIG_LOG_JSON; format++) {
        log_setup(format, 0);
        begin_full();
        for (int i = 0; i < 3; i++)
            log_say(LEVEL_INFO, "x", "lost");
        assert_null(strstr(end(), "lost"));
        begin();
        log_say(LEVEL_INFO, "x", "found");
        log_say(LEVEL_INFO, "x", "again");
        const char *text = end();
        assert_non_null(strstr(text, format == CONFIG_LOG_JSON ? "\"found\",\"not_logged\":3}" : "found not_logged=3\n"));
        assert_null(strstr(strchr(text, '\n'), "not_logged"));
    }
}

/* Whoever reads the log may be stuck: decisions go on. */
static void a_full_pipe_holds_nobody_up(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    log_setup(CONFIG_LOG_PLAIN, 1000);
    begin_full();
    refuse(weir, &login, NOW + 50 * S);
    assert_null(strstr(end(), "refused"));
    begin();
    refuse(weir, &login, NOW + 51 * S);
    assert_non_null(strstr(end(), "not_logged=1"));
    weir_close(weir);
}

enum { THREADS = 4, EACH = 2000, PER_SECOND = 5, SECONDS = 3 };

static void *refuse_much(void *weir)
{
    struct weir_verdict verdict;
    weir_check(weir, &login, NOW, &verdict);
    for (int i = 0; i < EACH; i++)
        log_refusal(weir, &login, &verdict, NOW + (60 + i * SECONDS / EACH) * S, NULL, NULL);
    return NULL;
}

/* Seconds that are over come again for threads that lag, hence up to THREADS times as many lines; none is torn. */
static void many_threads_share_the_lines(void **state)
{
    (void)state;
    struct weir *weir = open_rules();
    pthread_t threads[THREADS];
    log_setup(CONFIG_LOG_JSON, PER_SECOND);
    begin();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, refuse_much, weir), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    const char *text = end();
    unsigned lines = lines_of(text);
    json_int_t counted = lines;
    assert_in_range(lines, PER_SECOND, PER_SECOND * SECONDS * THREADS);
    for (unsigned i = 0; i < lines; i++, text = strchr(text, '\n') + 1) {
        char line[1000];
        snprintf(line, sizeof line, "%.*s", (int)(strchr(text, '\n') - text), text);
        json_t *json = read_json(line);
        counted += json_integer_value(json_object_get(json, "not_logged"));
        json_decref(json);
    }
    assert_true(counted <= THREADS * EACH);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_lines_hold_nothing_that_is_obeyed),
        cmocka_unit_test(json_lines_are_json),
        cmocka_unit_test(format_characters_are_escaped),
        cmocka_unit_test(what_clients_repeat_is_said_once),
        cmocka_unit_test(headers_are_not_logged_whole),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(a_refusal_in_plain_words),
        cmocka_unit_test(a_refusal_as_json),
        cmocka_unit_test(a_refusal_with_a_trace),
        cmocka_unit_test(what_is_left_out_is_counted),
        cmocka_unit_test(none_are_logged_if_none_are_wanted),
        cmocka_unit_test(a_refusal_fits_into_a_pipe),
        cmocka_unit_test(a_full_pipe_drops_lines_and_they_are_counted),
        cmocka_unit_test(a_full_pipe_holds_nobody_up),
        cmocka_unit_test(many_threads_share_the_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
