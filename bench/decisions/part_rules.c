/* One rule that changes among few and among many, in SQLite, and one that is added: the time of the CPU until it is in
 * force, as in the service. Then the time until many rules are in force at first, and the memory that they take. */
#include <malloc.h>
#include <stdio.h>
#include <time.h>

#include "decisions/bench.h"
#include "decisions/database.h"
#include "engine/handle.h"
#include "source/address.h"
#include "source/kept_text.h"
#include "source/source.h"
#include "source/sql.h"

enum { CHANGES = 15, FEW = 100, MANY = 100000, MANY_QUICK = 2000 };

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double bytes_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

struct side {
    unsigned rules;
    struct bench_database database;
    struct source *source;
    struct sql *sql;
    struct weir *weir;
    struct rules *last;
    struct kept_text kept;
    double start_ms, change_ms, add_ms; /* of the CPU */
    double bytes;                       /* for a rule, beyond its text */
};

static void side_done(struct side *s)
{
    weir_close(s->weir);
    sql_close(s->sql);
    source_close(s->source);
    rules_free(s->last);
    kept_text_done(&s->kept);
    bench_database_remove(&s->database);
}

static int put_row(struct side *s, const char *statement, unsigned i, unsigned max, double *bytes, struct weir_error *error)
{
    struct buf rule;
    char id[16];
    buf_init(&rule, 1000);
    bench_add_rule(&rule, i, max);
    snprintf(id, sizeof id, "r%u", i);
    struct sql_value values[] = { { .text = buf_sv(&rule) }, { .text = weir_str(id) } };
    int r = sql_run(s->sql, statement, values, 2, NULL, NULL, NULL, error);
    *bytes += (double)rule.len;
    buf_done(&rule);
    return r;
}

static int fill(struct side *s, double *ret_bytes, struct weir_error *error)
{
    struct source_address address = { 0 };
    struct buf said;
    buf_init(&said, 1 << 20);
    int r = source_open(&s->source, s->database.address, error);
    if (r == 0)
        r = source_init(s->source, &said, error);
    if (r == 0)
        r = address_read(s->database.address, &address, error);
    if (r == 0)
        r = sql_open(&s->sql, &address, error);
    if (r == 0)
        r = sql_begin(s->sql, SQL_CHANGE, error);
    for (unsigned i = 0; r == 0 && i < s->rules; i++)
        r = put_row(s, "INSERT INTO WEIR_RULES (RULE, ID) VALUES (?, ?)", i, 1000000, ret_bytes, error);
    if (r == 0)
        r = sql_commit(s->sql, error);
    address_done(&address);
    buf_done(&said);
    return r;
}

/* Reads the tables, puts the rules in force and writes the copy of them, as the service does. */
static int follow(struct side *s, struct weir_error *error)
{
    struct source_reading reading;
    struct kept_text kept = { 0 };
    int r = source_read_rules(s->source, s->last, &reading, error);
    if (r < 0)
        return r;
    kept_text_load(&s->kept, s->database.copy);
    if (rules_text_write(&kept.text, reading.rules, &s->kept.text))
        kept_text_take(&s->kept, &kept);
    rules_free(s->last);
    s->last = rules_share(reading.rules);
    r = weir_take_rules(s->weir, rules_share(reading.rules), error);
    source_reading_done(&reading);
    return r < 0 ? r : kept_text_write(&s->kept, s->database.copy, SV("# The rules in force.\n"), error);
}

/* *best: the least time of the CPU so far; 0: none. */
static int change(struct side *s, const char *statement, unsigned rule, unsigned max, double *best,
                  struct weir_error *error)
{
    double ignored = 0;
    int r = put_row(s, statement, rule, max, &ignored, error);
    double start = cpu_ms();
    if (r == 0)
        r = follow(s, error);
    double ms = cpu_ms() - start;
    *best = *best == 0 || ms < *best ? ms : *best;
    return r;
}

static int measure(struct bench *bench, struct side *s, struct weir_error *error)
{
    struct weir_options options = { .size = sizeof options, .rules_text = "rules: []", .rules_text_len = 9 };
    double text = 0;
    int r = fill(s, &text, error);
    if (r == 0)
        r = weir_open(&s->weir, &options, error);
    double before = bytes_in_use(), start = cpu_ms();
    if (r == 0)
        r = follow(s, error);
    s->start_ms = cpu_ms() - start;
    unsigned changes = bench->quick ? 3 : CHANGES;
    for (unsigned i = 0; r == 0 && i < changes; i++)
        r = change(s, "UPDATE WEIR_RULES SET RULE = ? WHERE ID = ?", (i * 7919 + 13) % s->rules, 1000 + i, &s->change_ms,
                   error);
    s->bytes = (bytes_in_use() - before - text) / s->rules;
    for (unsigned i = 0; r == 0 && i < changes; i++)
        r = change(s, "INSERT INTO WEIR_RULES (RULE, ID) VALUES (?, ?)", s->rules + i, 1000 + i, &s->add_ms, error);
    return r;
}

bool bench_part_rules(struct bench *bench)
{
    struct side sides[] = { { .rules = FEW }, { .rules = bench->quick ? MANY_QUICK : MANY } };
    struct weir_error error = { .code = WEIR_OK };
    int r = 0;
    for (int i = 0; i < 2 && r == 0; i++) {
        if (!bench_database_make(&sides[i].database)) {
            bench_note(bench, "changes of one rule left out: no folder for a database");
            return true;
        }
        bench_say(bench, "one of %u rules changes", sides[i].rules);
        r = measure(bench, &sides[i], &error);
        side_done(&sides[i]);
    }
    if (r < 0)
        bench_note(bench, "changes of one rule left out: %.100s", error.text);
    else
        bench->rules = (struct bench_rules){ .few = sides[0].rules,
                                             .many = sides[1].rules,
                                             .few_ms = sides[0].change_ms,
                                             .many_ms = sides[1].change_ms,
                                             .add_ms = sides[1].add_ms,
                                             .start_ms = sides[1].start_ms,
                                             .bytes = sides[1].bytes };
    return true;
}
