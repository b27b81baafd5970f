/* Checks by a text, in one process: what a program that embeds a rate limiter pays for "may this user go on?".
 *
 *   by_key KEYS THREADS SECONDS [reported | whole]
 *
 * Prints the nanoseconds that one thread takes for a check: of a prepared one that is brief, which says whether the key may
 * go on, and if not, for how long; with `reported`, of one that also says what is left; with `whole`, of a weir_check,
 * which looks for the rules that apply and says what is left. `script/bench peers` runs it beside programs of the same form
 * that use other libraries; docs/benchmarks.md shows them. So all do the same: the keys are texts that are made beforehand
 * and read in the order of memory, which is a random one for the limiter. Each key is checked once before time is taken,
 * and each check reads the clock. With SECONDS 0 only the keys are made: what the process has in memory then is not the
 * limiter's. */
#include <err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weir/weir.h>

#include "bench/client.h"

enum { KEY_BYTES = 16, TURN = 1024, THREADS_MAX = 64 };

static const char RULES[] = "rules: [ { id: api, by: [key], limits: [ 60000000 per 1m ] } ]\n";

static char (*keys)[KEY_BYTES];
static size_t key_count;
static struct weir *weir;
static struct weir_prepared *prepared; /* or NULL: the whole weir_check */
static atomic_bool stopping;

struct worker {
    pthread_t thread;
    size_t next;
    unsigned long checks;
};

static __attribute__((noinline)) bool check_whole(struct weir_str key)
{
    struct weir_verdict verdict;
    struct weir_request request = { .key = key, .cost = 1 };
    return weir_check(weir, &request, weir_now_us(), &verdict) == 0 && verdict.allowed;
}

/* Returns whether the key may go on. */
static bool check(const char *key)
{
    struct weir_verdict verdict;
    struct weir_str text = { key, KEY_BYTES - 1 };
    if (!prepared)
        return check_whole(text);
    return weir_prepared_check(prepared, text, 1, weir_now_us(), &verdict) == 0 && verdict.allowed;
}

static void make_keys(void)
{
    uint64_t state = 88172645463325252u;
    keys = calloc(key_count, sizeof *keys);
    if (!keys)
        errx(1, "out of memory");
    for (size_t i = 0; i < key_count; i++) {
        size_t other = next_random(&state) % (i + 1);
        memmove(keys[i], keys[other], KEY_BYTES);
        snprintf(keys[other], KEY_BYTES, "user:%010u", (unsigned)i);
    }
}

static void *work(void *data)
{
    struct worker *worker = data;
    size_t next = worker->next; /* in no cache line of other workers */
    unsigned long checks = 0;
    while (!atomic_load(&stopping)) {
        for (int i = 0; i < TURN; i++) {
            if (!check(keys[next]))
                errx(1, "a check did not pass");
            next = next + 1 < key_count ? next + 1 : 0;
        }
        checks += TURN;
    }
    worker->checks = checks;
    return NULL;
}

/* Returns the nanoseconds that a thread takes for a check. */
static double measure(size_t threads, time_t seconds)
{
    struct worker workers[THREADS_MAX] = { 0 };
    unsigned long checks = 0;
    int64_t begin = now_ns();
    for (size_t i = 0; i < threads; i++) {
        workers[i].next = key_count / threads * i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            errx(1, "cannot start a thread");
    }
    nanosleep(&(struct timespec){ .tv_sec = seconds }, NULL);
    atomic_store(&stopping, true);
    for (size_t i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        checks += workers[i].checks;
    }
    return (double)(now_ns() - begin) * (double)threads / (double)checks;
}

static void open_weir(bool whole, bool reported)
{
    struct weir_options options = { .size = sizeof options, .rules_text = RULES, .cells_keys = key_count };
    struct weir_request request = { .brief = !reported };
    struct weir_error error;
    if (weir_open(&weir, &options, &error) < 0 || (!whole && weir_prepare(&prepared, weir, &request, "key", &error) < 0))
        errx(1, "%s", error.text);
}

int main(int argc, char **argv)
{
    bool whole = argc == 5 && strcmp(argv[4], "whole") == 0, reported = argc == 5 && strcmp(argv[4], "reported") == 0;
    bool good = argc == 4 || whole || reported;
    key_count = good ? strtoul(argv[1], NULL, 10) : 0;
    size_t threads = good ? strtoul(argv[2], NULL, 10) : 0;
    long seconds = good ? strtol(argv[3], NULL, 10) : 0;
    if (key_count == 0 || threads == 0 || threads > THREADS_MAX || seconds < 0)
        errx(2, "usage: by_key KEYS THREADS SECONDS [reported | whole]");
    make_keys();
    if (seconds == 0) {
        puts("0");
        return 0;
    }
    open_weir(whole, reported);
    for (size_t i = 0; i < key_count; i++)
        if (!check(keys[i]))
            errx(1, "a first check did not pass");
    printf("%.2f\n", measure(threads, seconds));
    weir_prepared_free(prepared);
    weir_close(weir);
    free(keys);
    return 0;
}
