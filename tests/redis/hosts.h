/* Handles whose rules count in a real redis-server, for tests. Every test has keys of its own by its prefix. */
#ifndef TESTS_REDIS_HOSTS_H
#define TESTS_REDIS_HOSTS_H

#include "../engine/helpers.h"

#include <signal.h>

#include "servers.h"

static struct redis_server server;

enum { PATIENT_MS = 5000 }; /* no test fails because the machine is slow */

/* A list of rules as the text of a rules file. */
static inline const char *file_of(const char *rules)
{
    static char text[4000];
    snprintf(text, sizeof text, "rules:\n%s", rules);
    return text;
}

static inline struct weir *open_host(const char *prefix, const char *rules, struct weir_options options)
{
    char place[100], address[SERVER_ADDRESS_MAX];
    struct weir_store_status status = { 0 };
    snprintf(place, sizeof place, "/0?prefix=%s", prefix);
    redis_server_address(&server, address, place);
    options.rules_text = file_of(rules);
    options.counters = address;
    if (!options.store_deadline_ms)
        options.store_deadline_ms = PATIENT_MS;
    struct weir *weir = open_with(options);
    for (int i = 0; i < 1000 && !status.up; i++) {
        usleep(5000);
        weir_store_status(weir, &status);
    }
    assert_true(status.up);
    return weir;
}

static inline struct weir_verdict check_now(struct weir *weir, struct weir_request request)
{
    return check_at(weir, request, weir_now_us());
}

static inline unsigned passes_now(struct weir *weir, struct weir_request request, unsigned count)
{
    unsigned passed = 0;
    while (count-- > 0)
        passed += check_now(weir, request).allowed;
    return passed;
}

/* What one command answers, as text. */
static inline void ask_server(char *ret, size_t cap, const char *a, const char *b, const char *c)
{
    struct talk talk;
    struct reply reply;
    assert_true(talk_open(&talk, &server));
    talk_write(&talk, a, b, c, NULL);
    assert_true(talk_read(&talk, &reply));
    snprintf(ret, cap, "%.*s", SV_FMT(reply.text));
    talk_close(&talk);
}

static const char AWAY[] =
    "- { id: l, match: { event: l }, by: [key], limits: [{ max: 10, per: 1h, algorithm: fixed_window }] }\n"
    "- { id: a, match: { event: a }, by: [key], on_store_failure: allow,\n"
    "    limits: [{ max: 10, per: 1h, algorithm: fixed_window }] }\n"
    "- { id: d, match: { event: d }, by: [key], on_store_failure: deny,\n"
    "    limits: [{ max: 10, per: 1h, algorithm: fixed_window }] }\n"
    "- { id: s, match: { event: s }, by: [key], lease: true,\n"
    "    limits: [{ max: 10, per: 1h, algorithm: fixed_window }] }\n";

/* Stops the server, or lets it go on. It has to be asked for its process before. */
static inline pid_t server_process(void)
{
    char text[4000];
    ask_server(text, sizeof text, "INFO", "server", NULL);
    const char *at = strstr(text, "process_id:");
    assert_non_null(at);
    return (pid_t)strtol(at + strlen("process_id:"), NULL, 10);
}

static inline void wait_until_up(struct weir *weir, uint64_t refunded)
{
    struct weir_store_status status = { 0 };
    for (int i = 0; i < 2000 && !(status.up && status.refunded >= refunded); i++) {
        usleep(5000);
        weir_store_status(weir, &status);
    }
    assert_true(status.up);
    assert_true(status.refunded >= refunded);
}

/* What the store says, as soon as it is not too late. */
static inline uint32_t left_in_store(struct weir *weir, const char *event)
{
    struct weir_verdict verdict;
    do
        verdict = check_now(weir, peek_of(event, "u", 0));
    while (!verdict.allowed || verdict.max != 10);
    return verdict.remaining;
}

/* A debt is not paid while a late answer may undo it. Returns what is left when it is paid. */
static inline uint32_t left_when_paid(struct weir *weir, const char *event, uint64_t debt)
{
    struct weir_store_status status = { 0 };
    for (int i = 0; i < 2000 && status.reconciled < debt; i++) {
        left_in_store(weir, event);
        weir_store_status(weir, &status);
        usleep(1000);
    }
    assert_int_equal(status.reconciled, debt);
    return left_in_store(weir, event);
}

/* Calls that are sent are charged there when it goes on; once the breaker is open none is sent. Each is about a subject of
 * its own: one that a busy machine did not send is a debt, and the next about that subject would pay it. */
static inline void open_breaker(struct weir *weir)
{
    char subject[20];
    struct weir_store_status status;
    weir_store_status(weir, &status);
    for (int i = 0; i < 100 && status.up; i++) {
        snprintf(subject, sizeof subject, "other%d", i);
        check_now(weir, one("a", subject));
        weir_store_status(weir, &status);
    }
    assert_false(status.up);
}

static inline int start(void **state)
{
    (void)state;
    return redis_server_start(&server) ? 0 : -1;
}

static inline int stop(void **state)
{
    (void)state;
    redis_server_stop(&server);
    return 0;
}

#endif
