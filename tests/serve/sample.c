/* The sample of recent requests: what it keeps of each, in how many bytes, and what readers see while it is written. */
#include "serve/sample.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/sample_ring.h"

#define NOW INT64_C(1700000000000000)

static const struct hash_key key = { 1, 2 };

static struct weir *open_rules(const char *rules)
{
    struct weir *weir = NULL;
    struct weir_error error;
    struct weir_options options = { .size = sizeof options, .rules_text = rules, .cells_keys = 1000 };
    if (weir_open(&weir, &options, &error) < 0)
        fail_msg("%s", error.text);
    return weir;
}

#define RULES                                                         \
    "settings: { trusted_proxies: [10.0.0.0/8] }\n"                   \
    "rules:\n"                                                        \
    "- { id: a, match: { header: { X-A: a } }, limits: 1 per 1h }\n"  \
    "- { id: b, by: 'header:x-b', mode: shadow, limits: 1 per 1h }\n" \
    "- { id: c, by: 'header:x-c', mode: 'off', limits: 1 per 1h }\n"

static struct sample *new_sample(size_t requests, bool hashed)
{
    struct sample *sample;
    assert_int_equal(sample_new(&sample, requests, hashed, &key), 0);
    return sample;
}

static void add(struct sample *sample, struct weir *weir, const struct weir_request *request, bool allowed, int64_t now_us)
{
    struct weir_verdict verdict = { .allowed = allowed };
    sample_add(sample, weir, request, &verdict, 1, now_us);
}

static struct sample_copy *copy_of(struct sample *const *samples, size_t count)
{
    struct sample_copy *copy;
    assert_int_equal(sample_copy_new(&copy, samples, count), 0);
    return copy;
}

static void assert_sv(sv s, const char *expected)
{
    if (!sv_eq(s, weir_str(expected)))
        fail_msg("'%.*s' is not '%s'", SV_FMT(s), expected);
}

/* The only request of a sample. */
static void only(struct sample *sample, struct sample_copy **ret_copy, struct sampled *ret)
{
    *ret_copy = copy_of(&sample, 1);
    assert_int_equal(sample_copy_count(*ret_copy), 1);
    sample_copy_read(*ret_copy, 0, ret);
}

static const struct weir_header headers[] = {
    { WEIR_STR("x-A"), WEIR_STR(" one ") }, { WEIR_STR("Cookie"), WEIR_STR("secret-c") },
    { WEIR_STR("X-B"), WEIR_STR("") },      { WEIR_STR("X-A"), WEIR_STR("two") },
    { WEIR_STR("X-C"), WEIR_STR("off") },   { WEIR_STR("X-Forwarded-For"), WEIR_STR("192.0.2.7, 10.1.1.1") },
};
static const struct weir_cost costs[] = { { WEIR_STR("tokens"), 1200 }, { WEIR_STR("bytes"), 0 } };

static const struct weir_request full = {
    .method = WEIR_STR("POST"),
    .path = WEIR_STR("/p?secret-q"),
    .host = WEIR_STR("host.example"),
    .peer = WEIR_STR("10.0.0.1"),
    .user = WEIR_STR("secret-u"),
    .event = WEIR_STR("ev"),
    .key = WEIR_STR("secret-k"),
    .headers = headers,
    .header_count = sizeof headers / sizeof *headers,
    .cost = 3,
    .costs = costs,
    .cost_count = 2,
};

static void test_a_request_is_kept(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    struct sample *sample = new_sample(4, false);
    struct sample_copy *copy;
    struct sampled sampled;
    add(sample, weir, &full, true, NOW);
    only(sample, &copy, &sampled);
    const struct weir_request *r = &sampled.traffic.request;
    assert_true(sampled.allowed);
    assert_false(sampled.cut);
    assert_int_equal(sampled.traffic.now_us, NOW);
    assert_sv(r->method, "POST");
    assert_sv(r->path, "/p");
    assert_sv(r->host, "host.example");
    assert_sv(r->ip, "192.0.2.7");
    assert_int_equal(r->peer.len, 0);
    assert_sv(r->user, "secret-u");
    assert_sv(r->event, "ev");
    assert_sv(r->key, "secret-k");
    assert_int_equal(r->header_count, 3);
    assert_sv(r->headers[0].name, "x-A");
    assert_sv(r->headers[0].value, "one");
    assert_sv(r->headers[1].name, "X-B");
    assert_sv(r->headers[1].value, "");
    assert_sv(r->headers[2].value, "two");
    assert_int_equal(r->cost, 3);
    assert_int_equal(r->cost_count, 2);
    assert_sv(r->costs[0].unit, "tokens");
    assert_int_equal(r->costs[0].amount, 1200);
    assert_int_equal(r->costs[1].amount, 0);
    sample_copy_free(copy);
    sample_free(sample);
    weir_close(weir);
}

/* No byte of the memory has a value that was to be hashed. */
static void test_hashed_values_are_nowhere(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    struct sample *sample = new_sample(4, true);
    struct sample_copy *copy;
    struct sampled first, second;
    for (int i = 0; i < 5; i++)
        add(sample, weir, &full, false, NOW);
    static const char *const secrets[] = { "secret", "one", "two" };
    static const uint8_t address[] = { 192, 0, 2, 7 };
    size_t bytes = sample->capacity * sizeof *sample->slots;
    for (size_t i = 0; i < 3; i++)
        assert_null(memmem(sample->slots, bytes, secrets[i], strlen(secrets[i])));
    assert_null(memmem(sample->slots, bytes, address, sizeof address));
    assert_non_null(memmem(sample->slots, bytes, "host.example", 12));
    copy = copy_of(&sample, 1);
    sample_copy_read(copy, 0, &first);
    sample_copy_read(copy, 3, &second);
    assert_false(first.allowed);
    assert_false(first.cut);
    assert_int_equal(first.traffic.request.user.len, 21);
    assert_true(sv_eq(first.traffic.request.user, second.traffic.request.user));
    assert_true(sv_eq(first.traffic.request.ip, second.traffic.request.ip));
    assert_false(sv_eq(first.traffic.request.headers[0].value, first.traffic.request.headers[2].value));
    assert_int_equal(first.traffic.request.headers[1].value.len, 0);
    sample_copy_free(copy);
    sample_free(sample);
    weir_close(weir);
}

/* Each length, on both sides of each bound. Equal values stay equal also where only a hash has room. */
static void test_long_values_are_cut(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    char text[3000];
    memset(text, 'x', sizeof text);
    text[0] = '/';
    for (size_t len = 0; len < sizeof text; len += len < 600 ? 1 : 97) {
        struct sample *sample = new_sample(1, false);
        struct sample_copy *copy;
        struct sampled s;
        struct weir_header header = { WEIR_STR("x-a"), { text, len } };
        struct weir_request request = {
            .path = { text, len }, .user = { text, len }, .headers = &header, .header_count = 1
        };
        add(sample, weir, &request, true, NOW);
        only(sample, &copy, &s);
        const struct weir_request *r = &s.traffic.request;
        size_t path = len < SAMPLE_PATH_MAX ? len : SAMPLE_PATH_MAX, value = len <= SAMPLE_VALUE_MAX ? len : 21;
        assert_int_equal(r->path.len, path);
        assert_int_equal(r->user.len, value);
        assert_int_equal(r->header_count, 1);
        assert_int_equal(r->headers[0].value.len, value);
        assert_int_equal(s.cut, len > SAMPLE_VALUE_MAX);
        sample_copy_free(copy);
        sample_free(sample);
    }
    weir_close(weir);
}

/* What has no room is left out whole, and the request is marked. */
static void test_many_values(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    struct weir_header many[200];
    struct weir_cost units[WEIR_COSTS_MAX];
    char names[WEIR_COSTS_MAX][WEIR_UNIT_MAX + 1];
    for (int i = 0; i < WEIR_COSTS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "%050d", i);
        units[i] = (struct weir_cost){ weir_str(names[i]), WEIR_AMOUNT_MAX };
    }
    for (int hashed = 0; hashed < 2; hashed++)
        for (size_t count = 0; count <= 200; count++) {
            struct sample *sample = new_sample(1, hashed);
            struct sample_copy *copy;
            struct sampled s;
            for (size_t i = 0; i < count; i++)
                many[i] = (struct weir_header){ WEIR_STR("x-a"), WEIR_STR("0123456789") };
            struct weir_request request = { .ip = WEIR_STR("2001:db8::1"),
                                            .headers = many,
                                            .header_count = count,
                                            .costs = units,
                                            .cost_count = count % 17 };
            add(sample, weir, &request, true, NOW);
            only(sample, &copy, &s);
            assert_true(s.cut || s.traffic.request.header_count == count);
            assert_true(s.traffic.request.header_count <= count);
            for (size_t i = 0; i < s.traffic.request.header_count; i++)
                assert_int_equal(s.traffic.request.headers[i].value.len, hashed ? 21 : 10);
            sample_copy_free(copy);
            sample_free(sample);
        }
    weir_close(weir);
}

static void add_key(struct sample *sample, struct weir *weir, unsigned number, int64_t now_us)
{
    char text[20];
    snprintf(text, sizeof text, "%u", number);
    add(sample, weir, &(struct weir_request){ .key = weir_str(text), .event = weir_str(text), .cost = number }, true,
        now_us);
}

static void test_the_newest_win(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    struct sample *samples[] = { new_sample(10, false), new_sample(10, false) };
    struct sample_span span;
    struct sampled s;
    sample_span(samples, 2, &span);
    assert_int_equal(span.requests + span.seen, 0);
    /* One loop has the even ones, and of the odd ones a few at the end. */
    for (unsigned i = 0; i < 40; i++)
        if (i % 2 == 0 || i > 30)
            add_key(samples[i % 2], weir, i, NOW + i);
    add(samples[0], weir, &(struct weir_request){ .peek = true }, true, NOW + 99);
    sample_span(samples, 2, &span);
    assert_int_equal(span.seen, 25);
    assert_int_equal(span.requests, 15);
    assert_int_equal(span.from_us, NOW + 20);
    assert_int_equal(span.to_us, NOW + 39);
    struct sample_copy *copy = copy_of(samples, 2);
    assert_int_equal(sample_copy_count(copy), 15);
    int64_t before = 0;
    for (size_t i = 0; i < 15; i++) {
        sample_copy_read(copy, i, &s);
        assert_true(s.traffic.now_us > before);
        before = s.traffic.now_us;
        assert_int_equal(s.traffic.request.cost, before - NOW);
    }
    sample_copy_free(copy);
    /* The other loop wraps, too: now the sample begins with the later of the two. */
    for (unsigned i = 41; i < 61; i += 2)
        add_key(samples[1], weir, i, NOW + i);
    sample_span(samples, 2, &span);
    assert_int_equal(span.from_us, NOW + 41);
    assert_int_equal(span.requests, 10);
    copy = copy_of(samples, 2);
    assert_int_equal(sample_copy_count(copy), 10);
    sample_copy_free(copy);
    sample_free(samples[0]);
    sample_free(samples[1]);
    weir_close(weir);
}

static void test_new_headers_are_recorded_from_then_on(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    struct sample *sample = new_sample(10, false);
    struct weir_error error;
    static const char fresh[] = "[{\"id\":\"c\",\"by\":[\"header:x-c\",\"header:x-a\"],\"limits\":\"1 per 1h\"}]";
    add(sample, weir, &full, true, NOW);
    assert_int_equal(weir_set_rules(weir, fresh, strlen(fresh), &error), 0);
    add(sample, weir, &full, true, NOW + 1);
    add(sample, weir, &full, true, NOW + 2);
    struct sample_copy *copy = copy_of(&sample, 1);
    assert_int_equal(sample_copy_without(copy, SV("x-a")), 0);
    assert_int_equal(sample_copy_without(copy, SV("x-b")), 3);
    assert_int_equal(sample_copy_without(copy, SV("x-c")), 1);
    assert_int_equal(sample_copy_without(copy, SV("x-never")), 3);
    sample_copy_free(copy);
    sample_free(sample);
    weir_close(weir);
}

/* ---- threads ---- */

enum { WRITES = 200000, RING = 500 };

struct writer {
    struct sample *sample;
    struct weir *weir;
    bool done;
};

static void *write_all(void *data)
{
    struct writer *writer = data;
    for (unsigned i = 0; i < WRITES; i++)
        add_key(writer->sample, writer->weir, i, NOW + i);
    __atomic_store_n(&writer->done, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Every copy has whole requests only, each once, in order, and none is missing between its ends. */
static void look(struct sample *sample)
{
    struct sample_span span;
    struct sampled s;
    sample_span(&sample, 1, &span);
    struct sample_copy *copy = copy_of(&sample, 1);
    int64_t before = -1;
    for (size_t i = 0; i < sample_copy_count(copy); i++) {
        char text[20];
        sample_copy_read(copy, i, &s);
        uint64_t number = s.traffic.request.cost;
        snprintf(text, sizeof text, "%llu", (unsigned long long)number);
        assert_sv(s.traffic.request.key, text);
        assert_sv(s.traffic.request.event, text);
        assert_int_equal(s.traffic.now_us, NOW + (int64_t)number);
        assert_true(before < 0 || s.traffic.now_us == before + 1);
        before = s.traffic.now_us;
    }
    sample_copy_free(copy);
}

static void test_reading_while_it_is_written(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    struct writer writer = { new_sample(RING, false), weir, false };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_all, &writer), 0);
    while (!__atomic_load_n(&writer.done, __ATOMIC_ACQUIRE))
        look(writer.sample);
    pthread_join(thread, NULL);
    look(writer.sample);
    struct sample_copy *copy = copy_of(&writer.sample, 1);
    assert_int_equal(sample_copy_count(copy), RING);
    sample_copy_free(copy);
    sample_free(writer.sample);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_is_kept),
        cmocka_unit_test(test_hashed_values_are_nowhere),
        cmocka_unit_test(test_long_values_are_cut),
        cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_the_newest_win),
        cmocka_unit_test(test_new_headers_are_recorded_from_then_on),
        cmocka_unit_test(test_reading_while_it_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
