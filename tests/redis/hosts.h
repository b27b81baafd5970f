/* Hosts that count in one real redis-server, for tests of the C library. */
#ifndef TESTS_REDIS_HOSTS_H
#define TESTS_REDIS_HOSTS_H

#include "../engine/helpers.h"
#include "servers.h"

static struct redis_server server;

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

/* ---- handles ---- */

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
    char address[100];
    struct weir_store_status status = { 0 };
    snprintf(address, sizeof address, "redis://127.0.0.1:%u/0?prefix=%s", server.port, prefix);
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

#endif
