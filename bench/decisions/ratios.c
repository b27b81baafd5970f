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

/* All rules in use, beside one of them. */
static void add_all(const struct bench *bench, struct bench_ratio *ret, size_t *n)
{
    struct bench_kind kind = { .what = BENCH_CHECK_ALL,
                               .keys = keys_of(bench, LARGE),
                               .threads = 1,
                               .limits = BENCH_LIMITS,
                               .rules = bench->rules_many };
    const struct bench_result *all = bench_find(bench, kind);
    kind.what = BENCH_CHECK;
    const struct bench_result *one = bench_find(bench, kind);
    if (!all || !one)
        return;
    char keys[BENCH_KEYS_TEXT_MAX];
    bench_keys_text(kind.keys, keys);
    snprintf(ret[*n].text, sizeof ret[*n].text, "%s keys: weir_check, all of %u rules in use / one", keys, kind.rules);
    add(ret, n, all->best_ns / one->best_ns, all->ns / one->ns, 1.4, true);
}

static void add_simple(const struct bench *bench, struct bench_ratio *ret, size_t *n)
{
    static const double in_hand[] = { 2.5, 1.5, 1.4 };
    for (size_t i = 0; i < 3; i++) {
        struct bench_kind kind = {
            .what = BENCH_BRIEF, .keys = keys_of(bench, SMALL + (enum size)i), .threads = 1, .limits = 1, .rules = 1
        };
        const struct bench_result *prepared = bench_find(bench, kind);
        kind.what = BENCH_CHECK;
        const struct bench_result *check = bench_find(bench, kind);
        kind.what = BENCH_DECIDE;
        const struct bench_result *floor = bench_find(bench, kind);
        if (!prepared || !check || !floor)
            continue;
        char keys[BENCH_KEYS_TEXT_MAX];
        bench_keys_text(kind.keys, keys);
        snprintf(ret[*n].text, sizeof ret[*n].text, "%s keys: a prepared check, brief / weir_check", keys);
        add(ret, n, prepared->best_ns / check->best_ns, prepared->ns / check->ns, 1, true);
        snprintf(ret[*n].text, sizeof ret[*n].text, "%s keys: a prepared check, brief / plan in hand", keys);
        add(ret, n, prepared->best_ns / floor->best_ns, prepared->ns / floor->ns, in_hand[i], true);
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

static void add_rules(const struct bench_rules *m, struct bench_ratio *ret, size_t *n)
{
    if (!m->many)
        return;
    snprintf(ret[*n].text, sizeof ret[*n].text, "one of %u rules changes / one of %u", m->many, m->few);
    add(ret, n, m->many_ms / m->few_ms, m->many_ms / m->few_ms, 50, true);
    snprintf(ret[*n].text, sizeof ret[*n].text, "%u rules: ms of the CPU until one that changes is in force", m->many);
    add(ret, n, m->many_ms, m->many_ms, 50, true);
    snprintf(ret[*n].text, sizeof ret[*n].text, "%u rules: ms of the CPU until one that is added is in force", m->many);
    add(ret, n, m->add_ms, m->add_ms, 50, true);
    snprintf(ret[*n].text, sizeof ret[*n].text, "%u rules: seconds of the CPU until they are in force", m->many);
    add(ret, n, m->start_ms / 1000, m->start_ms / 1000, 1, true);
    snprintf(ret[*n].text, sizeof ret[*n].text, "%u rules: bytes for each beyond its text", m->many);
    add(ret, n, m->bytes, m->bytes, 150, true);
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

static void add_condition(const struct bench *bench, struct bench_ratio *ret, size_t *n, struct bench_kind above,
                          struct bench_kind below, const char *text, double bound)
{
    above.keys = below.keys = bench->keys_small;
    above.threads = above.limits = below.threads = below.limits = 1;
    const struct bench_result *a = bench_find(bench, above), *b = bench_find(bench, below);
    if (!a || !b)
        return;
    snprintf(ret[*n].text, sizeof ret[*n].text, "%s", text);
    add(ret, n, a->best_ns / b->best_ns, a->ns / b->ns, bound, true);
}

static void add_conditions(const struct bench *bench, struct bench_ratio *ret, size_t *n)
{
    struct bench_kind headers = { .what = BENCH_HEADERS, .rules = BENCH_CONDITIONS };
    struct bench_kind routes = { .what = BENCH_ROUTES, .rules = BENCH_CONDITIONS };
    struct bench_kind regexes = { .what = BENCH_REGEXES, .rules = BENCH_CONDITIONS };
    struct bench_kind one = { .what = BENCH_REGEXES, .rules = 1 };
    add_condition(bench, ret, n, headers, routes, "1,000 rules for values of a header / 1,000 routes", 1.5);
    add_condition(bench, ret, n, regexes, one, "1,000 regexes that do not match / one", 5);
}

/* Several limits, or several rules that apply, beside one. */
static void add_several(const struct bench *bench, struct bench_ratio *ret, size_t *n, enum bench_what what, uint64_t keys,
                        unsigned count, double bound)
{
    bool limits = what == BENCH_SEVERAL_LIMITS || what == BENCH_NEW_LIMITS;
    bool new = what == BENCH_NEW_LIMITS || what == BENCH_NEW_RULES;
    struct bench_kind kind = { .what = what, .keys = keys, .threads = 1, .limits = 1, .rules = 1 };
    const struct bench_result *one = bench_find(bench, kind);
    *(limits ? &kind.limits : &kind.rules) = count;
    const struct bench_result *many = bench_find(bench, kind);
    if (!one || !many)
        return;
    char text[BENCH_KEYS_TEXT_MAX];
    bench_keys_text(keys, text);
    snprintf(ret[*n].text, sizeof ret[*n].text, "%s %s: %u %s / one%s", text, limits ? "keys" : "subjects", count,
             limits ? "limits" : "rules that apply", new ? ", new subjects" : "");
    add(ret, n, many->best_ns / one->best_ns, many->ns / one->ns, bound, true);
}

static void add_many(const struct bench *bench, struct bench_ratio *ret, size_t *n)
{
    const uint64_t sizes[] = { bench->keys_medium, bench->keys_large };
    for (size_t i = 0; i < 2; i++) {
        add_several(bench, ret, n, BENCH_SEVERAL_LIMITS, sizes[i], 3, 1.6);
        add_several(bench, ret, n, BENCH_SEVERAL_LIMITS, sizes[i], 8, 3);
        add_several(bench, ret, n, BENCH_NEW_LIMITS, sizes[i], 3, 1.6);
        add_several(bench, ret, n, BENCH_NEW_LIMITS, sizes[i], 8, 3);
    }
    add_several(bench, ret, n, BENCH_SEVERAL_RULES, bench->apply_keys, 16, 4);
    add_several(bench, ret, n, BENCH_SEVERAL_RULES, bench->apply_keys, 64, 16);
    add_several(bench, ret, n, BENCH_NEW_RULES, bench->apply_keys, 16, 4);
    add_several(bench, ret, n, BENCH_NEW_RULES, bench->apply_keys, 64, 16);
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
    add_all(bench, ret, &n);
    add_simple(bench, ret, &n);
    add_overrides(bench, ret, &n);
    add_conditions(bench, ret, &n);
    add_many(bench, ret, &n);
    add_memory(&bench->memory, ret, &n);
    add_source(&bench->source, ret, &n);
    add_rules(&bench->rules, ret, &n);
    return n;
}
