/* The program that `script/bench` runs: which parts to measure, and how large. */
#include "decisions/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"

struct bench_options {
    bool json, quick;
    struct option_list only;
};

#define AT(field) offsetof(struct bench_options, field)

static const struct option options[] = {
    { "json", NULL, OPTION_FLAG, AT(json), "print one JSON document" },
    { "quick", NULL, OPTION_FLAG, AT(quick),
      "some seconds, with small tables: shows that it works, and says little about speed" },
    { "only", "PART", OPTION_LIST, AT(only), "run only this part; may be given more than once; see below" },
    { 0 },
};

static const struct command command = {
    .program = "script/bench",
    .name = "decisions",
    .usage = "[OPTION]...",
    .text =
        "Measures how long decisions take on this machine, beside a map with 64 mutexes that does the same and beside what "
        "the machine itself takes for a compare-and-swap and for a memory access, all in one run. It ends with the ratios "
        "between them, each beside the one that weir wants to reach. bench/README.md explains the rows and columns and the "
        "fields of the JSON document.\n\n"
        "It takes some minutes, two CPUs that nobody else uses, and 3 GB of memory; with less memory the larger parts "
        "are left out, with a note.",
    .footer = "Parts:\n"
              "  hot         one key, and the refusal of one subject\n"
              "  1k          a thousand keys, plan in hand\n"
              "  1m          a million keys, plan in hand\n"
              "  10m         ten million keys, plan in hand\n"
              "  check-1k    the whole weir_check, a thousand keys\n"
              "  check-10m   the whole weir_check, ten million keys\n"
              "  simple-1k   the simplest check, one rule by key, prepared and not: a thousand keys\n"
              "  simple-1m   the same, a million keys\n"
              "  simple-10m  the same, ten million keys\n"
              "  overrides   one rule with 100,000 overrides, and with plans, beside one that has neither\n"
              "  conditions  1,000 rules for values of a header, and with regexes, beside routes and one regex\n"
              "  limits      one rule with 3 and 8 limits beside one with one limit, a million and ten million keys\n"
              "  apply       16 and 64 rules that all apply beside one, 100,000 subjects\n"
              "  memory      bytes for a key\n"
              "  source      rules in an SQLite database: reading them, and deciding while a row changes every 100 ms\n"
              "  rules       one rule that changes among 100 and among 100,000\n\n"
              "The exit status is 0 however fast it was, 2 after an error.",
    .options = options,
};

enum { OUTPUT_MAX = 1 << 20 };

static bool part_hot(struct bench *b)
{
    return bench_keys(b, 1);
}

static bool part_1k(struct bench *b)
{
    return bench_keys(b, b->keys_small);
}

static bool part_1m(struct bench *b)
{
    return bench_keys(b, b->keys_medium);
}

static bool part_10m(struct bench *b)
{
    return bench_keys(b, b->keys_large);
}

static bool part_check_1k(struct bench *b)
{
    return bench_check(b, b->keys_small);
}

static bool part_check_10m(struct bench *b)
{
    return bench_check(b, b->keys_large);
}

static bool part_simple_1k(struct bench *b)
{
    return bench_simple(b, b->keys_small);
}

static bool part_simple_1m(struct bench *b)
{
    return bench_simple(b, b->keys_medium);
}

static bool part_simple_10m(struct bench *b)
{
    return bench_simple(b, b->keys_large);
}

static const struct {
    const char *name;
    bool (*run)(struct bench *bench);
} parts[] = {
    { "hot", part_hot },
    { "1k", part_1k },
    { "1m", part_1m },
    { "10m", part_10m },
    { "check-1k", part_check_1k },
    { "check-10m", part_check_10m },
    { "simple-1k", part_simple_1k },
    { "simple-1m", part_simple_1m },
    { "simple-10m", part_simple_10m },
    { "overrides", bench_part_overrides },
    { "conditions", bench_part_conditions },
    { "limits", bench_part_limits },
    { "apply", bench_part_apply },
    { "memory", bench_resident },
    { "source", bench_sources },
    { "rules", bench_part_rules },
};

enum { PARTS = sizeof parts / sizeof parts[0] };

static bool wanted(const struct bench_options *o, const char *name)
{
    for (size_t i = 0; i < o->only.count; i++)
        if (strcmp(o->only.items[i], name) == 0)
            return true;
    return o->only.count == 0;
}

static int check_parts(const struct bench_options *o)
{
    for (size_t i = 0; i < o->only.count; i++) {
        size_t k = 0;
        while (k < PARTS && strcmp(parts[k].name, o->only.items[i]) != 0)
            k++;
        if (k == PARTS)
            return options_error(&command, "unknown part '%s'", o->only.items[i]);
    }
    return -1;
}

static void bench_init(struct bench *b, const struct bench_options *o)
{
    unsigned cpus = bench_cpus();
    *b = (struct bench){
        .quick = o->quick,
        .progress = isatty(STDERR_FILENO) == 1,
        .rounds = o->quick ? 1 : 7,
        .slices = o->quick ? 4 : 64,
        .generations = o->quick ? 2 : 6,
        .threads = cpus < BENCH_THREADS_MAX ? cpus : BENCH_THREADS_MAX,
        .keys_small = 1000,
        .keys_medium = o->quick ? 20000 : 1000000,
        .keys_large = o->quick ? 100000 : 10000000,
        .rules_few = 10,
        .rules_many = o->quick ? 1000 : 10000,
    };
    if (b->quick)
        bench_note(b, "--quick: tables and rules are smaller than the targets are meant for");
    if (b->threads < BENCH_THREADS_MAX)
        bench_note(b, "two threads left out: this process may use one CPU only");
}

static int run(int argc, char **argv)
{
    struct bench_options o = { 0 };
    size_t words;
    int status = options_read(&command, argc, argv, &o, &words);
    if (status >= 0)
        return status;
    if (words > 0)
        return options_error(&command, "unexpected argument '%s'", argv[0]);
    status = check_parts(&o);
    if (status >= 0)
        return status;
    struct bench *bench = malloc(sizeof *bench);
    if (!bench)
        return cli_error("out of memory");
    bench_init(bench, &o);
    bool ok = true;
    for (size_t i = 0; i < PARTS && ok; i++)
        ok = !wanted(&o, parts[i].name) || parts[i].run(bench);
    bench_say(bench, "%s", "");
    struct bench_ratio ratios[BENCH_RATIOS_MAX];
    struct buf out;
    buf_init(&out, OUTPUT_MAX);
    if (ok)
        (o.json ? bench_json : bench_text)(bench, ratios, bench_ratios(bench, ratios), &out);
    ok = ok && !out.failed;
    fwrite(buf_sv(&out).ptr, 1, out.len, stdout);
    buf_done(&out);
    free(bench);
    return ok ? 0 : cli_error("out of memory");
}

int main(int argc, char **argv)
{
    return cli_finish(run(argc, argv));
}
