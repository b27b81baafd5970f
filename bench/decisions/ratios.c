/* What weir wants to reach, as ratios between results of the same run. */
#include <stdio.h>

#include "decisions/bench.h"

enum size { ONE, SMALL, MEDIUM, LARGE };

struct side {
    enum bench_what what;
    unsigned threads;
};

/* `factor` makes decisions a second of nanoseconds a decision. Floors have no age. */
static const struct target {
    const char *text; /* behind the number of keys */
    enum size size;
    bool batch, aged;
    struct side above, below;
    double factor, bound;
    bool at_most;
} targets[] = {
    { "a decision / one compare-and-swap", SMALL, 0, 0, { BENCH_DECIDE, 1 }, { BENCH_CAS, 1 }, 1, 3, true },
    { "a decision / a dependent memory access", LARGE, 0, 0, { BENCH_DECIDE, 1 }, { BENCH_ACCESS, 1 }, 1, 1.3, true },
    { "the same, aged table", LARGE, 0, 1, { BENCH_DECIDE, 1 }, { BENCH_ACCESS, 1 }, 1, 1.5, true },
    { "batches / a prefetched compare-and-swap", LARGE, 1, 0, { BENCH_DECIDE, 1 }, { BENCH_PREFETCHED, 1 }, 1, 3, true },
    { "the same, aged table", LARGE, 1, 1, { BENCH_DECIDE, 1 }, { BENCH_PREFETCHED, 1 }, 1, 4, true },
    { "a refusal on two threads / on one", ONE, 0, 0, { BENCH_REFUSE, 2 }, { BENCH_REFUSE, 1 }, 1, 1.1, true },
    { "mutex map / weir, one thread", MEDIUM, 0, 0, { BENCH_MAP, 1 }, { BENCH_DECIDE, 1 }, 1, 2, false },
    { "mutex map / weir, two threads", MEDIUM, 0, 0, { BENCH_MAP, 2 }, { BENCH_DECIDE, 2 }, 1, 4, false },
    { "what two threads do / what one does", MEDIUM, 0, 0, { BENCH_DECIDE, 1 }, { BENCH_DECIDE, 2 }, 2, 1.8, false },
    { "what two threads do / what one does", LARGE, 0, 0, { BENCH_DECIDE, 1 }, { BENCH_DECIDE, 2 }, 2, 1.8, false },
    { "weir_check, many rules, 3 limits / one limit", SMALL, 0, 0, { BENCH_CHECK, 1 }, { BENCH_DECIDE, 1 }, 1, 8, true },
    { "weir_check, many rules, 3 limits / one limit", LARGE, 0, 0, { BENCH_CHECK, 1 }, { BENCH_DECIDE, 1 }, 1, 5, true },
};

static uint64_t keys_of(const struct bench *bench, enum size size)
{
    const uint64_t keys[] = { 1, bench->keys_small, bench->keys_medium, bench->keys_large };
    return keys[size];
}

/* The one limit's decision beside a whole call is the one that was measured in the same rounds. */
static const struct bench_result *find(const struct bench *bench, const struct target *t, const struct side *side)
{
    bool check = t->above.what == BENCH_CHECK;
    return bench_find(bench, (struct bench_kind){ .what = side->what,
                                                  .keys = keys_of(bench, t->size),
                                                  .threads = side->threads,
                                                  .limits = side->what == BENCH_CHECK ? BENCH_LIMITS : 1,
                                                  .rules = check ? bench->rules_many : 0,
                                                  .batch = t->batch,
                                                  .aged = t->aged && side->what == BENCH_DECIDE });
}

static void add(struct bench_ratio *ret, size_t *n, double value, double value_median, double bound, bool at_most)
{
    struct bench_ratio *r = &ret[(*n)++];
    r->value = value;
    r->value_median = value_median;
    r->target = bound;
    r->at_most = at_most;
    r->met = at_most ? value <= bound : value >= bound;
}

static void add_holds(const struct bench *bench, struct bench_ratio *ret, size_t *n)
{
    const enum size sizes[] = { SMALL, LARGE };
    for (size_t i = 0; i < 4; i++) {
        struct bench_kind kind = { .what = BENCH_RESERVE,
                                   .keys = keys_of(bench, sizes[i / 2]),
                                   .threads = 1,
                                   .limits = i % 2 ? BENCH_LIMITS : 1,
                                   .rules = bench->rules_many };
        const struct bench_result *held = bench_find(bench, kind);
        kind.what = BENCH_CHECK;
        const struct bench_result *check = bench_find(bench, kind);
        if (!held || !check)
            continue;
        char keys[BENCH_KEYS_TEXT_MAX];
        bench_keys_text(kind.keys, keys);
        snprintf(ret[*n].text, sizeof ret[*n].text, "%s keys: reserve and settle, %u limit%s / weir_check", keys,
                 kind.limits, kind.limits > 1 ? "s" : "");
        add(ret, n, held->best_ns / check->best_ns, held->ns / check->ns, 3, true);
    }
}

static void add_memory(const struct bench_memory *m, struct bench_ratio *ret, size_t *n)
{
    if (!m->keys)
        return;
    snprintf(ret[*n].text, sizeof ret[*n].text, "memory: bytes of table for a key");
    add(ret, n, m->bytes_per_key, m->bytes_per_key, 43, true);
    double growth = m->resident_per_key_used / m->resident_per_key;
    snprintf(ret[*n].text, sizeof ret[*n].text, "memory: resident size after ten requests for each key / before");
    add(ret, n, growth, growth, 1.01, true);
}

static void add_source(const struct bench_source *m, struct bench_ratio *ret, size_t *n)
{
    if (!m->rules)
        return;
    snprintf(ret[*n].text, sizeof ret[*n].text, "%u rules: decisions with a change every 100 ms / without", m->rules);
    add(ret, n, m->still_ns / m->changing_ns, m->still_ns / m->changing_ns, 0.95, false);
}

static void add_overrides(const struct bench *bench, struct bench_ratio *ret, size_t *n)
{
    static const struct {
        enum bench_what what;
        const char *text;
        double bound;
    } sides[] = { { BENCH_NO_OVERRIDE, "overrides of other subjects", 1.2 },
                  { BENCH_OVERRIDE, "an override of the subject", 2 },
                  { BENCH_PLAN, "plans", 1.3 } };
    struct bench_kind kind = { .what = BENCH_PLAIN, .keys = bench->overrides.count, .threads = 1, .limits = 1, .rules = 1 };
    const struct bench_result *plain = bench_find(bench, kind);
    for (size_t i = 0; plain && i < sizeof sides / sizeof sides[0]; i++) {
        kind.what = sides[i].what;
        const struct bench_result *r = bench_find(bench, kind);
        if (!r)
            continue;
        char keys[BENCH_KEYS_TEXT_MAX];
        bench_keys_text(bench->overrides.count, keys);
        snprintf(ret[*n].text, sizeof ret[*n].text, "%s keys: a rule with %s / without", keys, sides[i].text);
        add(ret, n, r->best_ns / plain->best_ns, r->ns / plain->ns, sides[i].bound, true);
    }
    if (!plain)
        return;
    snprintf(ret[*n].text, sizeof ret[*n].text, "%u overrides: seconds until they are in force", bench->overrides.count);
    add(ret, n, bench->overrides.read_ms / 1000, bench->overrides.read_ms / 1000, 1, true);
}

/* The best rounds count: whatever else the machine does only adds. */
size_t bench_ratios(const struct bench *bench, struct bench_ratio *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        const struct target *t = &targets[i];
        const struct bench_result *above = find(bench, t, &t->above), *below = find(bench, t, &t->below);
        if (!above || !below)
            continue;
        char keys[BENCH_KEYS_TEXT_MAX];
        bench_keys_text(keys_of(bench, t->size), keys);
        snprintf(ret[n].text, sizeof ret[n].text, "%s %s: %s", keys, t->size == ONE ? "key" : "keys", t->text);
        add(ret, &n, t->factor * above->best_ns / below->best_ns, t->factor * above->ns / below->ns, t->bound, t->at_most);
    }
    add_holds(bench, ret, &n);
    add_overrides(bench, ret, &n);
    add_memory(&bench->memory, ret, &n);
    add_source(&bench->source, ret, &n);
    return n;
}
