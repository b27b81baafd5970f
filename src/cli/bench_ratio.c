/* What weir wants to reach, as ratios between results of the same run. */
#include "cli/bench.h"

/* The middle and the best round of a ratio. The best is what counts: whatever else the machine does only adds. */
static void add(struct bench_ratio *ret, size_t *n, const char *text, const struct bench_result *a,
                const struct bench_result *b, double factor, double target, bool at_most)
{
    if (!a || !b)
        return;
    double value = factor * a->best_ns / b->best_ns;
    ret[(*n)++] = (struct bench_ratio){ text,   value,   factor * a->ns / b->ns,
                                        target, at_most, at_most ? value <= target : value >= target };
}

static const struct bench_result *find(const struct bench *bench, enum bench_what what, uint64_t keys, unsigned threads,
                                       bool batch, bool aged)
{
    return bench_find(
        bench,
        (struct bench_kind){ .what = what, .keys = keys, .threads = threads, .limits = 1, .batch = batch, .aged = aged });
}

static const struct bench_result *check(const struct bench *bench, uint64_t keys)
{
    return bench_find(
        bench, (struct bench_kind){
                   .what = BENCH_CHECK, .keys = keys, .threads = 1, .limits = BENCH_LIMITS, .rules = bench->rules_many });
}

/* The one limit's decision that was measured in the same rounds as the whole call. */
static const struct bench_result *beside_check(const struct bench *bench, uint64_t keys)
{
    return bench_find(
        bench,
        (struct bench_kind){ .what = BENCH_DECIDE, .keys = keys, .threads = 1, .limits = 1, .rules = bench->rules_many });
}

size_t bench_ratios(const struct bench *bench, struct bench_ratio *ret)
{
    uint64_t small = bench->keys_small, medium = bench->keys_medium, large = bench->keys_large;
    size_t n = 0;
#define FIND(what, ...) find(bench, BENCH_##what, __VA_ARGS__)
    add(ret, &n, "1k keys / one compare-and-swap", FIND(DECIDE, small, 1, false, false), FIND(CAS, small, 1, false, false),
        1, 3, true);
    add(ret, &n, "10M keys / a dependent memory access", FIND(DECIDE, large, 1, false, false),
        FIND(ACCESS, large, 1, false, false), 1, 1.3, true);
    add(ret, &n, "10M keys, aged / a dependent memory access", FIND(DECIDE, large, 1, false, true),
        FIND(ACCESS, large, 1, false, false), 1, 1.5, true);
    add(ret, &n, "10M keys, batches / a prefetched compare-and-swap", FIND(DECIDE, large, 1, true, false),
        FIND(PREFETCHED, large, 1, true, false), 1, 3, true);
    add(ret, &n, "10M keys, batches, aged / a prefetched compare-and-swap", FIND(DECIDE, large, 1, true, true),
        FIND(PREFETCHED, large, 1, true, false), 1, 4, true);
    add(ret, &n, "refusing one subject: two threads / one", FIND(REFUSE, 1, 2, false, false),
        FIND(REFUSE, 1, 1, false, false), 1, 1.1, true);
    add(ret, &n, "mutex map / weir, 1M keys, one thread", FIND(MAP, medium, 1, false, false),
        FIND(DECIDE, medium, 1, false, false), 1, 2, false);
    add(ret, &n, "mutex map / weir, 1M keys, two threads", FIND(MAP, medium, 2, false, false),
        FIND(DECIDE, medium, 2, false, false), 1, 4, false);
    add(ret, &n, "decisions of two threads / one, 1M keys", FIND(DECIDE, medium, 1, false, false),
        FIND(DECIDE, medium, 2, false, false), 2, 1.8, false);
    add(ret, &n, "decisions of two threads / one, 10M keys", FIND(DECIDE, large, 1, false, false),
        FIND(DECIDE, large, 2, false, false), 2, 1.8, false);
    add(ret, &n, "weir_check, 10,000 rules, 3 limits / one limit, 1k keys", check(bench, small), beside_check(bench, small),
        1, 8, true);
    add(ret, &n, "weir_check, 10,000 rules, 3 limits / one limit, 10M keys", check(bench, large),
        beside_check(bench, large), 1, 5, true);
#undef FIND
    return n;
}
