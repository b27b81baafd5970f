/* The results of a bench, for people. */
#include <stdio.h>
#include <unistd.h>

#include "cli/term.h"
#include "decisions/bench.h"

enum { LABEL = 27, COLUMN = 11 };

struct printer {
    const struct bench *bench;
    struct buf *out;
    struct term term;
};

const unsigned bench_several_limits[BENCH_SEVERAL] = { 1, 3, 8 }, bench_several_rules[BENCH_SEVERAL] = { 1, 16, 64 };

void bench_keys_text(uint64_t keys, char out[BENCH_KEYS_TEXT_MAX])
{
    const char *unit = "";
    if (keys >= 1000000 && keys % 1000000 == 0) {
        keys /= 1000000;
        unit = "M";
    } else if (keys >= 1000 && keys % 1000 == 0) {
        keys /= 1000;
        unit = "k";
    }
    snprintf(out, BENCH_KEYS_TEXT_MAX, "%llu%s", (unsigned long long)keys, unit);
}

static void title(const struct printer *p, const char *text)
{
    buf_printf(p->out, "\n%s%s%s\n", term_bold(&p->term), text, term_plain(&p->term));
}

/* Names of columns; for two threads the same once more. */
static void heads(const struct printer *p, const char *const *names, bool twice)
{
    size_t n = 0;
    while (names[n])
        n++;
    buf_printf(p->out, "%s", term_dim(&p->term));
    if (twice)
        buf_printf(p->out, "%-*s%*s%*s\n", LABEL, "", (int)n * COLUMN, "one thread", (int)n * COLUMN, "two threads");
    buf_printf(p->out, "%-*s", LABEL, "");
    for (size_t i = 0; i < (twice ? 2 * n : n); i++)
        buf_printf(p->out, "%*s", COLUMN, names[i % n]);
    buf_printf(p->out, "%s\n", term_plain(&p->term));
}

static void number(const struct printer *p, const struct bench_result *r)
{
    if (r)
        buf_printf(p->out, "%*.1f", COLUMN, r->ns);
    else
        buf_printf(p->out, "%*s", COLUMN, "-");
}

/* One number of keys in one order. */
struct row {
    uint64_t keys;
    enum bench_order order;
    bool aged;
};

enum { ROWS = 10 };

static size_t make_rows(const struct bench *b, struct row *rows)
{
    uint64_t keys[] = { b->keys_small, b->keys_medium, b->keys_large };
    size_t n = 0;
    rows[n++] = (struct row){ 1, BENCH_UNIFORM, false };
    for (size_t i = 0; i < 3; i++) {
        rows[n++] = (struct row){ keys[i], BENCH_UNIFORM, false };
        rows[n++] = (struct row){ keys[i], BENCH_UNIFORM, true };
        rows[n++] = (struct row){ keys[i], BENCH_ZIPF, false };
    }
    return n;
}

static void label(const struct printer *p, const struct row *row)
{
    char keys[BENCH_KEYS_TEXT_MAX], text[64];
    bench_keys_text(row->keys, keys);
    const char *how = row->keys == 1 ? "" : row->order == BENCH_ZIPF ? " zipf" : row->aged ? " uniform, aged" : " uniform";
    snprintf(text, sizeof text, "%s%s", keys, how);
    buf_printf(p->out, "%-*s", LABEL, text);
}

static struct bench_kind kind_of(const struct row *row, enum bench_what what, unsigned threads, unsigned limits, bool batch)
{
    return (struct bench_kind){ .what = what,
                                .keys = row->keys,
                                .order = row->order,
                                .aged = row->aged,
                                .threads = threads,
                                .limits = limits,
                                .batch = batch };
}

static bool any_of(const struct bench *b, const struct row *row)
{
    return bench_find(b, kind_of(row, BENCH_DECIDE, 1, 1, false)) != NULL;
}

static void decisions(const struct printer *p, unsigned limits)
{
    static const char *const one[] = { "single", "batch", "map", "open map", NULL };
    static const char *const three[] = { "single", "batch", NULL };
    struct row rows[ROWS];
    size_t n = make_rows(p->bench, rows);
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        if (!any_of(p->bench, &rows[i]))
            continue;
        if (first) {
            title(p, limits == 1 ? "A decision on one limit, plan in hand" : "A decision on three limits, plan in hand");
            heads(p, limits == 1 ? one : three, true);
        }
        first = false;
        label(p, &rows[i]);
        for (unsigned threads = 1; threads <= 2; threads++) {
            number(p, bench_find(p->bench, kind_of(&rows[i], BENCH_DECIDE, threads, limits, false)));
            number(p, bench_find(p->bench, kind_of(&rows[i], BENCH_DECIDE, threads, limits, true)));
            if (limits > 1)
                continue;
            number(p, bench_find(p->bench, kind_of(&rows[i], BENCH_MAP, threads, 1, false)));
            number(p, bench_find(p->bench, kind_of(&rows[i], BENCH_MAP_OPEN, threads, 1, false)));
        }
        buf_char(p->out, '\n');
    }
}

static void floors(const struct printer *p)
{
    static const char *const names[] = { "CAS", "access", "prefetched", NULL };
    const struct bench *b = p->bench;
    uint64_t keys[] = { 1, b->keys_small, b->keys_medium, b->keys_large };
    bool first = true;
    for (size_t i = 0; i < 4; i++) {
        struct row row = { keys[i], BENCH_UNIFORM, false };
        const struct bench_result *cas = bench_find(b, kind_of(&row, BENCH_CAS, 1, 1, false));
        if (!cas)
            continue;
        if (first) {
            title(p, "The machine itself: a compare-and-swap on one cell, a dependent memory access, a prefetched "
                     "compare-and-swap");
            heads(p, names, false);
        }
        first = false;
        label(p, &row);
        number(p, cas);
        number(p, bench_find(b, kind_of(&row, BENCH_ACCESS, 1, 1, false)));
        number(p, bench_find(b, kind_of(&row, BENCH_PREFETCHED, 1, 1, true)));
        buf_char(p->out, '\n');
    }
}

static void contention(const struct printer *p)
{
    static const char *const names[] = { "refusing", "CAS", NULL };
    struct row row = { 1, BENCH_UNIFORM, false };
    if (!bench_find(p->bench, kind_of(&row, BENCH_REFUSE, 1, 1, false)))
        return;
    title(p, "Refusing one subject; and a compare-and-swap on one cell, which only one thread at a time can do");
    heads(p, names, true);
    label(p, &row);
    for (unsigned threads = 1; threads <= 2; threads++) {
        number(p, bench_find(p->bench, kind_of(&row, BENCH_REFUSE, threads, 1, false)));
        number(p, bench_find(p->bench, kind_of(&row, BENCH_CAS, threads, 1, false)));
    }
    buf_char(p->out, '\n');
}

/* ---- whole calls ---- */

static void check_row(const struct printer *p, enum bench_what what, unsigned rules, unsigned limits)
{
    const struct bench *b = p->bench;
    uint64_t keys[] = { b->keys_small, b->keys_large };
    char text[64];
    const char *how = what == BENCH_CHECK_ALL ? ", all" : what == BENCH_RESERVE ? ", held" : "";
    snprintf(text, sizeof text, "%u rules%s, %u limit%s", rules, how, limits, limits > 1 ? "s" : "");
    buf_printf(p->out, "%-*s", LABEL, text);
    for (unsigned i = 0; i < 4; i++) {
        struct bench_kind kind = {
            .what = what, .keys = keys[i % 2], .threads = 1 + i / 2, .limits = limits, .rules = rules
        };
        number(p, bench_find(b, kind));
        kind.batch = true;
        number(p, bench_find(b, kind));
    }
    buf_char(p->out, '\n');
}

static void checks(const struct printer *p)
{
    const struct bench *b = p->bench;
    bool any = false;
    for (size_t i = 0; i < b->result_count; i++)
        any = any || (b->results[i].kind.what == BENCH_CHECK && b->results[i].kind.rules > 1);
    if (!any)
        return;
    char small[BENCH_KEYS_TEXT_MAX], large[BENCH_KEYS_TEXT_MAX];
    bench_keys_text(b->keys_small, small);
    bench_keys_text(b->keys_large, large);
    const char *const columns[] = { small, "batch", large, "batch", NULL };
    title(p, "A whole weir_check, by keys");
    heads(p, columns, true);
    check_row(p, BENCH_CHECK, b->rules_few, 1);
    check_row(p, BENCH_CHECK, b->rules_few, BENCH_LIMITS);
    check_row(p, BENCH_CHECK, b->rules_many, 1);
    check_row(p, BENCH_CHECK, b->rules_many, BENCH_LIMITS);
    check_row(p, BENCH_CHECK_ALL, b->rules_many, BENCH_LIMITS);
    check_row(p, BENCH_RESERVE, b->rules_many, 1);
    check_row(p, BENCH_RESERVE, b->rules_many, BENCH_LIMITS);
}

static void simple(const struct printer *p)
{
    static const char *const names[] = { "weir_check", "prepared", "brief", "in hand", NULL };
    static const enum bench_what whats[] = { BENCH_CHECK, BENCH_PREPARED, BENCH_BRIEF, BENCH_DECIDE };
    const struct bench *b = p->bench;
    uint64_t keys[] = { b->keys_small, b->keys_medium, b->keys_large };
    bool first = true;
    for (size_t i = 0; i < 3; i++) {
        struct bench_kind kind = { .what = BENCH_PREPARED, .keys = keys[i], .threads = 1, .limits = 1, .rules = 1 };
        if (!bench_find(b, kind))
            continue;
        if (first) {
            title(p, "The simplest check: one rule by key, one limit; in hand: the key of the cell is known");
            heads(p, names, true);
        }
        first = false;
        label(p, &(struct row){ keys[i], BENCH_UNIFORM, false });
        for (kind.threads = 1; kind.threads <= 2; kind.threads++)
            for (size_t k = 0; k < sizeof whats / sizeof whats[0]; k++) {
                kind.what = whats[k];
                number(p, bench_find(b, kind));
            }
        buf_char(p->out, '\n');
    }
}

static void overrides(const struct printer *p)
{
    static const struct {
        enum bench_what what;
        const char *text;
    } rows[] = { { BENCH_PLAIN, "neither" },
                 { BENCH_NO_OVERRIDE, "overrides of others" },
                 { BENCH_OVERRIDE, "an override" },
                 { BENCH_PLAN, "plans" } };
    const struct bench_overrides *o = &p->bench->overrides;
    if (!o->count)
        return;
    title(p, "Plans and overrides: a whole weir_check, one rule with one limit");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        buf_printf(p->out, "%-*s", LABEL, rows[i].text);
        number(p,
               bench_find(p->bench, (struct bench_kind){
                                        .what = rows[i].what, .keys = o->count, .threads = 1, .limits = 1, .rules = 1 }));
        buf_char(p->out, '\n');
    }
    buf_printf(p->out, "%u overrides are read and put in force in %.0f ms\n", o->count, o->read_ms);
}

static void conditions(const struct printer *p)
{
    static const struct {
        enum bench_what what;
        unsigned rules;
        const char *text;
    } rows[] = { { BENCH_ROUTES, BENCH_CONDITIONS, "1,000 routes" },
                 { BENCH_HEADERS, BENCH_CONDITIONS, "1,000 values of a header" },
                 { BENCH_REGEXES, 1, "1 regex" },
                 { BENCH_REGEXES, BENCH_CONDITIONS, "1,000 regexes" } };
    struct bench_kind kind = {
        .what = BENCH_ROUTES, .keys = p->bench->keys_small, .threads = 1, .limits = 1, .rules = BENCH_CONDITIONS
    };
    if (!bench_find(p->bench, kind))
        return;
    title(p, "Conditions: a whole weir_check, one limit a rule");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kind.what = rows[i].what;
        kind.rules = rows[i].rules;
        buf_printf(p->out, "%-*s", LABEL, rows[i].text);
        number(p, bench_find(p->bench, kind));
        buf_char(p->out, '\n');
    }
}

/* A row for each number of limits, or of rules that apply; columns for each number of keys. */
static void several(const struct printer *p, enum bench_what what, enum bench_what new, const uint64_t *keys,
                    size_t key_count)
{
    const struct bench *b = p->bench;
    char texts[2][BENCH_KEYS_TEXT_MAX];
    const char *columns[2 * 2 + 1] = { NULL };
    struct bench_kind kind = { .what = what, .threads = 1, .limits = 1, .rules = 1 };
    bool limits = what == BENCH_SEVERAL_LIMITS, any = false;
    for (size_t i = 0; i < key_count; i++) {
        kind.keys = keys[i];
        any = any || bench_find(b, kind);
        bench_keys_text(keys[i], texts[i]);
        columns[2 * i] = texts[i];
        columns[2 * i + 1] = "new";
    }
    if (!any)
        return;
    title(p, limits ? "Several limits: a whole weir_check, one rule, by keys"
                    : "Several rules that apply: a whole weir_check, one limit a rule, by subjects");
    heads(p, columns, false);
    for (size_t row = 0; row < BENCH_SEVERAL; row++) {
        unsigned n = *(limits ? &kind.limits : &kind.rules) = (limits ? bench_several_limits : bench_several_rules)[row];
        char text[64];
        snprintf(text, sizeof text, "%u %s%s", n, limits ? "limit" : "rule", n > 1 ? "s" : "");
        buf_printf(p->out, "%-*s", LABEL, text);
        for (size_t i = 0; i < 2 * key_count; i++) {
            kind.keys = keys[i / 2];
            kind.what = i % 2 ? new : what;
            number(p, bench_find(b, kind));
        }
        buf_char(p->out, '\n');
    }
}

static void memory(const struct printer *p)
{
    const struct bench_memory *m = &p->bench->memory;
    if (!m->keys)
        return;
    char keys[BENCH_KEYS_TEXT_MAX], requests[BENCH_KEYS_TEXT_MAX];
    bench_keys_text(m->keys, keys);
    bench_keys_text(m->requests, requests);
    title(p, "Memory");
    buf_printf(p->out,
               "%s keys: %.1f bytes of table a key, 32 bytes a cell; the process grew by %.1f bytes a key when they came, "
               "and %s requests later it is %.1f\n",
               keys, m->bytes_per_key, m->resident_per_key, requests, m->resident_per_key_used);
}

static void source(const struct printer *p)
{
    const struct bench_source *m = &p->bench->source;
    if (!m->rules)
        return;
    title(p, "Rules in a database");
    buf_printf(
        p->out,
        "%u rules: read from SQLite in %.0f ms (%.1f times what the same text in a file takes); a decision takes %.0f "
        "ns, and %.0f ns while a row changes every 100 ms (%u changes)\n",
        m->rules, m->read_ms, m->read_ms / m->file_ms, m->still_ns, m->changing_ns, m->changes);
}

static void changes(const struct printer *p)
{
    const struct bench_rules *m = &p->bench->rules;
    if (!m->many)
        return;
    title(p, "One rule that changes among many");
    buf_printf(
        p->out,
        "%u rules are in force after %.0f ms of the CPU, and take %.0f bytes each beyond their text; one of them that "
        "changes is so after %.1f ms, one that is added after %.1f ms, and one of %u after %.2f ms\n",
        m->many, m->start_ms, m->bytes, m->many_ms, m->add_ms, m->few, m->few_ms);
}

/* Small tables say nothing about whether it is reached. */
static void ratios(const struct printer *p, const struct bench_ratio *r, size_t count)
{
    if (count == 0)
        return;
    const char *at_most = p->term.unicode ? "≤" : "<=", *at_least = p->term.unicode ? "≥" : ">=";
    bool judge = !p->bench->quick;
    title(p, "What it is to reach (best rounds)");
    for (size_t i = 0; i < count; i++)
        buf_printf(p->out, "%-62s %s%6.2f%s  (%s %g)%s\n", r[i].text,
                   !judge     ? ""
                   : r[i].met ? term_green(&p->term)
                              : term_red(&p->term),
                   r[i].value, term_plain(&p->term), r[i].at_most ? at_most : at_least, r[i].target,
                   judge && !r[i].met ? "  missed" : "");
}

void bench_text(const struct bench *bench, const struct bench_ratio *r, size_t ratio_count, struct buf *out)
{
    struct printer p = { bench, out, term_of(STDOUT_FILENO) };
    char machine[BENCH_MACHINE_MAX];
    bench_machine(machine, sizeof machine);
    buf_printf(out, "weir %s on %s, %u CPUs: nanoseconds of one thread for each, median of %u rounds.\n", weir_version(),
               machine, bench_cpus(), bench->rounds);
    for (size_t i = 0; i < bench->note_count; i++)
        buf_printf(out, "%sNote: %s.%s\n", term_yellow(&p.term), bench->notes[i], term_plain(&p.term));
    floors(&p);
    decisions(&p, 1);
    decisions(&p, BENCH_LIMITS);
    contention(&p);
    checks(&p);
    simple(&p);
    overrides(&p);
    conditions(&p);
    several(&p, BENCH_SEVERAL_LIMITS, BENCH_NEW_LIMITS, (const uint64_t[]){ bench->keys_medium, bench->keys_large }, 2);
    several(&p, BENCH_SEVERAL_RULES, BENCH_NEW_RULES, &bench->apply_keys, 1);
    memory(&p);
    source(&p);
    changes(&p);
    ratios(&p, r, ratio_count);
}
