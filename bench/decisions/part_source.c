/* Rules in a database: how long it takes to read many, and whether decisions notice that they change all the time.
 *
 * One thread decides. Rows are changed by hand, as SQL; the thread that follows the database reads all rules again each
 * time and puts them in force. Decisions with and without that take turns. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "decisions/bench.h"
#include "decisions/database.h"
#include "engine/handle.h"
#include "source/sql.h"
#include "source/watch.h"

enum {
    ROUNDS = 5,
    CHANGE_MS = 100,
    RUN_MS = 2000,
    RUN_QUICK_MS = 300,
    SLICE = 256, /* decisions between two looks at the clock */
    TEXT_MAX = 16 << 20,
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void sleep_ms(int ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

/* ---- the database ---- */

static int fill(struct source *source, unsigned rules, struct buf *text, struct weir_error *error)
{
    struct buf said;
    buf_init(&said, 1 << 20);
    buf_add(text, SV("{\"rules\": [\n"));
    for (unsigned i = 0; i < rules; i++) {
        buf_add(text, i ? SV(",\n") : SV(""));
        bench_add_rule(text, i, 1000000);
    }
    buf_add(text, SV("\n]}\n"));
    struct source_author author = { SV("bench"), SV("") };
    int r = source_init(source, &said, error);
    if (r == 0)
        r = source_import(source, buf_sv(text), false, author, &said, error);
    buf_done(&said);
    return r;
}

/* ---- reading ---- */

static int measure_read(struct bench_source *m, struct source *source, sv text, struct weir_error *error)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct source_reading reading;
        struct rules_report report;
        double start = now_ms();
        int r = source_read(source, NULL, &reading, error);
        if (r < 0)
            return r;
        double read_ms = now_ms() - start;
        source_reading_done(&reading);
        start = now_ms();
        struct rules *rules = rules_read(text, &report);
        double file_ms = now_ms() - start;
        rules_free(rules);
        rules_report_done(&report);
        m->read_ms = i == 0 || read_ms < m->read_ms ? read_ms : m->read_ms;
        m->file_ms = i == 0 || file_ms < m->file_ms ? file_ms : m->file_ms;
    }
    return 0;
}

/* ---- deciding while rules change ---- */

struct decider {
    struct weir *weir;
    unsigned rules;
    int run_ms;
    double ns; /* for one decision, over the whole run */
};

static void decide(unsigned index, void *data)
{
    (void)index;
    struct decider *d = data;
    struct weir_verdict *verdict = malloc(sizeof *verdict);
    struct bench_random random = { 7 };
    char path[80], user[16] = "user-a";
    uint64_t decided = 0;
    double start = now_ms(), end = start;
    while (verdict && end - start < d->run_ms) {
        for (unsigned i = 0; i < SLICE; i++, decided++) {
            uint64_t n = bench_below(&random, d->rules);
            snprintf(path, sizeof path, "/service%llu/resource%llu/77", (unsigned long long)(n / 100),
                     (unsigned long long)(n % 100));
            user[5] = (char)('a' + bench_below(&random, 26));
            struct weir_request request = { .path = weir_str(path), .user = weir_str(user), .cost = 1 };
            weir_check(d->weir, &request, weir_now_us(), verdict);
        }
        end = now_ms();
    }
    free(verdict);
    d->ns = decided ? (end - start) * 1e6 / (double)decided : 0;
}

static void *decide_thread(void *data)
{
    bench_threads(1, decide, data);
    return NULL;
}

static int install(struct rules *rules, const struct source_problem *problems, size_t count, void *data,
                   struct weir_error *error)
{
    (void)problems, (void)count;
    return weir_take_rules(data, rules, error);
}

/* One row after another, as an administrator would change it. */
static int change_row(struct sql *sql, unsigned number, unsigned rules, struct weir_error *error)
{
    struct buf rule;
    char id[16];
    buf_init(&rule, 1000);
    bench_add_rule(&rule, number % rules, 1000000 + number);
    snprintf(id, sizeof id, "r%u", number % rules);
    struct sql_value values[] = { { .text = buf_sv(&rule) }, { .text = weir_str(id) } };
    int r = sql_run(sql, "UPDATE WEIR_RULES SET RULE = ? WHERE ID = ?", values, 2, NULL, NULL, NULL, error);
    buf_done(&rule);
    return r;
}

static int run(struct decider *d, struct sql *sql, unsigned *changes, struct weir_error *error)
{
    pthread_t thread;
    int r = 0;
    if (pthread_create(&thread, NULL, decide_thread, d) != 0)
        abort();
    for (int ms = 0; sql && ms < d->run_ms && r == 0; ms += CHANGE_MS) {
        r = change_row(sql, (*changes)++, d->rules, error);
        sleep_ms(CHANGE_MS);
    }
    pthread_join(thread, NULL);
    return r;
}

static int measure_changes(struct bench *bench, struct bench_source *m, struct weir *weir, struct sql *sql,
                           struct weir_error *error)
{
    struct decider d = { weir, m->rules, bench->quick ? RUN_QUICK_MS : RUN_MS, 0 };
    int r = 0;
    for (unsigned i = 0; i < (bench->quick ? 1 : ROUNDS) && r == 0; i++) {
        bench_say(bench, "rules in a database: round %u", i + 1);
        r = run(&d, NULL, NULL, error);
        m->still_ns = i == 0 || d.ns < m->still_ns ? d.ns : m->still_ns;
        if (r == 0)
            r = run(&d, sql, &m->changes, error);
        m->changing_ns = i == 0 || d.ns < m->changing_ns ? d.ns : m->changing_ns;
    }
    return r;
}

static int measure(struct bench *bench, struct bench_source *m, const struct bench_database *database, struct buf *text,
                   struct weir_error *error)
{
    struct source *source = NULL;
    struct source_watch *watch = NULL;
    struct source_address address = { 0 };
    struct sql *sql = NULL;
    struct weir *weir = NULL;
    int r = source_open(&source, database->address, error);
    if (r == 0)
        r = fill(source, m->rules, text, error);
    if (r == 0)
        r = measure_read(m, source, buf_sv(text), error);
    struct weir_options options = { .size = sizeof options, .rules_text = text->ptr, .rules_text_len = text->len };
    if (r == 0)
        r = weir_open(&weir, &options, error);
    if (r == 0)
        r = address_read(database->address, &address, error);
    if (r == 0)
        r = sql_open(&sql, &address, error);
    struct source_watch_options watching = { .poll_ms = CHANGE_MS, .on_rules = install, .data = weir };
    if (r == 0) {
        r = source_watch_start(&watch, source, NULL, &watching, error);
        source = NULL;
    }
    if (r == 0)
        r = measure_changes(bench, m, weir, sql, error);
    source_watch_stop(watch);
    source_close(source);
    sql_close(sql);
    address_done(&address);
    weir_close(weir);
    return r;
}

bool bench_sources(struct bench *bench)
{
    struct bench_source m = { .rules = bench->rules_many };
    struct bench_database database;
    struct buf text;
    struct weir_error error = { .code = WEIR_OK };
    if (bench->threads < 2)
        return true;
    if (!bench_database_make(&database)) {
        bench_note(bench, "rules in a database left out: no folder for one");
        return true;
    }
    bench_say(bench, "rules in a database: filling it");
    buf_init(&text, TEXT_MAX);
    int r = measure(bench, &m, &database, &text, &error);
    buf_done(&text);
    bench_database_remove(&database);
    if (r < 0)
        bench_note(bench, "rules in a database left out: %.100s", error.text);
    else
        bench->source = m;
    return true;
}
