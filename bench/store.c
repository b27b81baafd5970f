/* Decisions of one process whose rules count in a store: in the store itself, 50 at a time, and in slices of hot keys.
 *
 *     bench/store redis://127.0.0.1:6379/0 SECONDS
 *
 * Prints {"exact": decisions a second, "leased": the same, "calls": scripts that were called for a leased decision}. */
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weir/weir.h>

static const char RULES[] = "rules:\n"
                            "- { id: exact, match: { event: exact }, by: [key], limits: [\n"
                            "    { name: day, calendar: day, max: 1000 }, { name: hour, calendar: hour, max: 200 } ] }\n"
                            "- { id: leased, match: { event: leased }, by: [key], lease: true, limits: [\n"
                            "    { name: day, calendar: day, max: 4000000000 },\n"
                            "    { name: hour, calendar: hour, max: 1000000000 } ] }\n";

enum { FLIGHT = 50, EXACT_KEYS = 1000000, HOT_KEYS = 16, TURN = 1000 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned long decided, waiting;

static void on_decided(const struct weir_verdict *verdict, void *data)
{
    (void)verdict, (void)data;
    decided++;
    waiting--;
}

static void ask(struct weir_loop *loop, int64_t now_us)
{
    char key[32];
    struct weir_verdict verdict;
    int len = snprintf(key, sizeof key, "u%lu", (decided + waiting) * 7919 % EXACT_KEYS);
    struct weir_request request = { .event = WEIR_STR("exact"), .key = { key, (size_t)len }, .cost = 1 };
    if (weir_loop_check(loop, &request, now_us, &verdict, on_decided, NULL) == 0)
        waiting++;
    else
        decided++;
}

static double run_exact(struct weir *weir, double seconds)
{
    struct weir_loop *loop;
    struct weir_error error;
    if (weir_loop_open(&loop, weir, &error) < 0)
        errx(1, "%s", error.text);
    double start = now_s();
    while (now_s() - start < seconds) {
        int64_t now_us = weir_now_us();
        while (waiting < FLIGHT)
            ask(loop, now_us);
        weir_loop_flush(loop);
        poll(&(struct pollfd){ weir_loop_fd(loop), POLLIN, 0 }, 1, 1000);
        weir_loop_run(loop);
    }
    double rate = (double)decided / (now_s() - start);
    while (waiting > 0) {
        poll(&(struct pollfd){ weir_loop_fd(loop), POLLIN, 0 }, 1, 1000);
        weir_loop_run(loop);
    }
    weir_loop_close(loop);
    return rate;
}

static double run_leased(struct weir *weir, double seconds, unsigned long *ret_count)
{
    struct weir_verdict verdict;
    double start = now_s(), end = start;
    unsigned long count = 0;
    while (end - start < seconds) {
        int64_t now_us = weir_now_us();
        for (int i = 0; i < TURN; i++, count++) {
            char key[] = { 'h', (char)('a' + count % HOT_KEYS) };
            struct weir_request request = { .event = WEIR_STR("leased"), .key = { key, sizeof key }, .cost = 1 };
            weir_check(weir, &request, now_us, &verdict);
            if (!verdict.allowed)
                errx(1, "refused by %s", verdict.limit);
        }
        end = now_s();
    }
    *ret_count = count;
    return (double)count / (end - start);
}

/* Until the store answers: what does not get an answer is decided here. */
static void wait_for_store(struct weir *weir)
{
    struct weir_store_status status = { 0 };
    for (int i = 0; i < 500 && !status.up; i++) {
        nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
        weir_store_status(weir, &status);
    }
    if (!status.up)
        errx(1, "the store does not answer");
}

int main(int argc, char **argv)
{
    if (argc != 3)
        errx(2, "usage: shared redis://HOST:PORT/DB SECONDS");
    struct weir_options options = {
        .size = sizeof options, .rules_text = RULES, .counters = argv[1], .store_deadline_ms = 1000
    };
    struct weir_store_status before, after;
    struct weir_error error;
    struct weir *weir;
    unsigned long count;
    if (weir_open(&weir, &options, &error) < 0)
        errx(1, "%s", error.text);
    wait_for_store(weir);
    double exact = run_exact(weir, atof(argv[2])), leased;
    weir_store_status(weir, &before);
    leased = run_leased(weir, atof(argv[2]), &count);
    weir_store_status(weir, &after);
    if (before.late + before.unsent + after.late + after.unsent > 0)
        errx(1, "the store did not keep up: %lu answers were late", (unsigned long)(after.late + after.unsent));
    printf("{\"exact\": %.0f, \"leased\": %.0f, \"calls\": %.9f}\n", exact, leased,
           (double)(after.calls - before.calls) / (double)count);
    weir_close(weir);
    return 0;
}
