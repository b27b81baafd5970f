/* The program that `script/bench tail` runs: decisions at a steady pace in one process, and how long the slowest of them
 * take, with a table in memory that is never saved, with one that is saved to a disk in the background, and with one in a
 * file on that disk. Each decision counts from the moment at which it was due: what waits behind a slow one is late, too.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "engine/handle.h"
#include "serve/saving.h"

struct tail_options {
    uint64_t seconds, rounds, rate, keys;
    const char *disk, *memory;
    bool json;
};

#define AT(field) offsetof(struct tail_options, field)

static const struct option options[] = {
    { "seconds", "N", OPTION_NUMBER, AT(seconds), "how long each kind is measured (default: 90)", .min = 1, .max = 86400 },
    { "rounds", "N", OPTION_NUMBER, AT(rounds), "divide that among so many rounds, in turns (default: 3)", .min = 1,
      .max = 100 },
    { "rate", "N", OPTION_COUNT, AT(rate), "decisions per second (default: 100000)", .min = 1, .max = 10000000 },
    { "keys", "N", OPTION_COUNT, AT(keys), "subjects, chosen at random (default: 5m)", .min = 1, .max = 1000000000 },
    { "disk", "DIR", OPTION_TEXT, AT(disk), "folder on a disk (default: .)" },
    { "memory", "DIR", OPTION_TEXT, AT(memory), "folder in memory (default: /dev/shm)" },
    { "json", NULL, OPTION_FLAG, AT(json), "print one JSON document" },
    { 0 },
};

static const struct command command = {
    .program = "script/bench",
    .name = "tail",
    .usage = "[OPTION]...",
    .text = "Makes decisions at a steady pace in one process, and prints how long the slowest of them take: with a table "
            "in memory that "
            "is never saved, with one that is saved to a disk every second as `weir serve` does it, and with one in a file "
            "on that "
            "disk. It ends with the ratios to the first. It wants two CPUs that nobody else uses.",
    .footer = "The exit status is 0 however slow it was, 2 after an error.",
    .options = options,
};

/* ---- how long they take ---- */

enum { SUB_BITS = 6, SUBS = 1 << SUB_BITS, SLOTS = 40 * SUBS }; /* to a sixty-fourth */

struct times {
    uint64_t slots[SLOTS], count;
    int64_t max_ns;
    uint64_t faults, late; /* late: more than a millisecond */
};

static unsigned slot_of(uint64_t ns)
{
    if (ns < SUBS)
        return (unsigned)ns;
    unsigned top = 63 - (unsigned)__builtin_clzll(ns);
    unsigned slot = (top - SUB_BITS + 1) * SUBS + (unsigned)(ns >> (top - SUB_BITS) & (SUBS - 1));
    return slot < SLOTS ? slot : SLOTS - 1;
}

static uint64_t slot_ns(unsigned slot)
{
    unsigned top = slot / SUBS;
    return top == 0 ? slot : (uint64_t)(SUBS + slot % SUBS) << (top - 1);
}

static void note(struct times *t, int64_t ns)
{
    t->slots[slot_of((uint64_t)ns)]++;
    t->count++;
    t->late += ns > 1000000;
    t->max_ns = ns > t->max_ns ? ns : t->max_ns;
}

static double at_us(const struct times *t, double part)
{
    uint64_t rank = (uint64_t)((double)t->count * part), seen = 0;
    unsigned slot = 0;
    while (slot < SLOTS - 1 && (seen += t->slots[slot]) <= rank)
        slot++;
    return (double)slot_ns(slot) / 1000;
}

/* ---- making them ---- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static bool decide(struct weir *weir, uint64_t key, int64_t now_us)
{
    char text[24];
    int len = snprintf(text, sizeof text, "u%llu", (unsigned long long)key);
    struct weir_request request = { .event = WEIR_STR("e"), .key = { text, (size_t)len }, .cost = 1 };
    struct weir_verdict verdict;
    return weir_check(weir, &request, now_us, &verdict) == 0 && verdict.allowed;
}

static uint64_t faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

static bool run_paced(struct weir *weir, const struct tail_options *o, uint64_t *random, struct times *t)
{
    uint64_t count = o->rate * o->seconds / o->rounds, before = faults();
    int64_t begin_ns = now_ns(), now_us = weir_now_us();
    for (uint64_t i = 0; i < count; i++) {
        int64_t due_ns = begin_ns + (int64_t)(i * INT64_C(1000000000) / o->rate);
        uint64_t key = next_random(random) % o->keys;
        while (now_ns() < due_ns)
            ;
        if (i % 64 == 0)
            now_us = weir_now_us();
        if (!decide(weir, key, now_us))
            return false;
        note(t, now_ns() - due_ns);
    }
    t->faults += faults() - before;
    return true;
}

/* ---- the three kinds ---- */

enum { NEVER, SAVED, PLAIN, KINDS };

static const struct {
    const char *name, *text;
} kinds[KINDS] = {
    { "never_saved", "in memory, never saved" },
    { "saved", "in memory, saved every second" },
    { "file", "in a file on the disk" },
};

struct kind {
    char path[4200], copy[4210];
    struct weir *weir;
    struct times times;
    uint64_t written;
    double age_s; /* the oldest that a save was */
};

static const char RULES[] =
    "rules: [ { id: e, match: { event: e }, by: [key], limits: [ { name: n, max: 4000000000, per: 365d } ] } ]";

static bool open_kind(struct kind *kind, int which, const struct tail_options *o)
{
    struct weir_error error;
    snprintf(kind->path, sizeof kind->path, "%s/weir-tail-%d-%d", which == PLAIN ? o->disk : o->memory, (int)getpid(),
             which);
    snprintf(kind->copy, sizeof kind->copy, "%s/weir-tail-%d.saved", o->disk, (int)getpid());
    struct weir_options opened = {
        .size = sizeof opened, .rules_text = RULES, .cells_file = kind->path, .cells_keys = o->keys + o->keys / 10
    };
    if (weir_open(&kind->weir, &opened, &error) < 0) {
        cli_error("%s", error.text);
        return false;
    }
    for (uint64_t key = 0; key < o->keys; key++)
        if (!decide(kind->weir, key, weir_now_us()))
            return false;
    return true;
}

static void close_kind(struct kind *kind)
{
    weir_close(kind->weir);
    kind->weir = NULL;
    unlink(kind->path);
    unlink(kind->copy);
}

static bool run_open(struct kind *kind, int which, const struct tail_options *o, uint64_t *random)
{
    struct saving *saving = NULL;
    struct weir_error error;
    if (which == SAVED && saving_start(&saving, kind->weir->cells, kind->path, kind->copy, 1000, &error) < 0) {
        cli_error("%s", error.text);
        return false;
    }
    bool ok = run_paced(kind->weir, o, random, &kind->times);
    if (saving) {
        struct saving_status status;
        saving_status(saving, &status);
        kind->written += status.bytes;
        kind->age_s = status.age_s > kind->age_s ? status.age_s : kind->age_s;
        ok = ok && status.failures == 0;
        saving_end(saving);
        saving_free(saving);
    }
    return ok;
}

/* Each table is there only while it is measured, and what the others wrote is on the disk before: the kernel writes a file
 * back for half a minute after it was changed, and takes the CPU for that. */
static bool run_kind(struct kind *kind, int which, const struct tail_options *o, uint64_t *random)
{
    bool ok = open_kind(kind, which, o);
    if (which != PLAIN)
        sync();
    ok = ok && run_open(kind, which, o, random);
    close_kind(kind);
    return ok;
}

/* ---- what is printed ---- */

static const double PARTS[] = { 0.5, 0.99, 0.999, 0.9999 };
enum { PART_COUNT = sizeof PARTS / sizeof PARTS[0] };
static const char *const PART_NAMES[PART_COUNT] = { "p50", "p99", "p99.9", "p99.99" };

static void print_text(const struct kind *all, const struct tail_options *o)
{
    printf("%llu decisions/s on %llu keys, %llu s each; microseconds from the moment that a decision was due\n\n%-32s",
           (unsigned long long)o->rate, (unsigned long long)o->keys, (unsigned long long)o->seconds, "");
    for (int i = 0; i < PART_COUNT; i++)
        printf("%10s", PART_NAMES[i]);
    printf("%10s%12s\n", "max", "faults");
    for (int k = 0; k < KINDS; k++) {
        printf("%-32s", kinds[k].text);
        for (int i = 0; i < PART_COUNT; i++)
            printf("%10.2f", at_us(&all[k].times, PARTS[i]));
        printf("%10.0f%12llu\n", (double)all[k].times.max_ns / 1000, (unsigned long long)all[k].times.faults);
    }
    printf("\nwritten by saves: %.1f MB/s; the last one began %.1f s before the end\n\n",
           (double)all[SAVED].written / 1e6 / (double)o->seconds, all[SAVED].age_s);
    for (int k = SAVED; k < KINDS; k++)
        for (int i = 1; i < PART_COUNT; i++)
            printf("%s: %s / never saved %*.2f%s\n", kinds[k].text, PART_NAMES[i],
                   40 - (int)strlen(kinds[k].text) - (int)strlen(PART_NAMES[i]),
                   at_us(&all[k].times, PARTS[i]) / at_us(&all[NEVER].times, PARTS[i]), k == SAVED ? "  (≤ 1.2)" : "");
}

static void print_json(const struct kind *all, const struct tail_options *o)
{
    printf("{\"rate\": %llu, \"keys\": %llu, \"seconds\": %llu, \"rounds\": %llu", (unsigned long long)o->rate,
           (unsigned long long)o->keys, (unsigned long long)o->seconds, (unsigned long long)o->rounds);
    for (int k = 0; k < KINDS; k++) {
        const struct times *t = &all[k].times;
        printf(",\n \"%s\": {\"p50_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, \"p9999_us\": %.3f, \"max_us\": %.3f, "
               "\"late\": "
               "%llu, \"faults\": %llu, \"written\": %llu}",
               kinds[k].name, at_us(t, PARTS[0]), at_us(t, PARTS[1]), at_us(t, PARTS[2]), at_us(t, PARTS[3]),
               (double)t->max_ns / 1000, (unsigned long long)t->late, (unsigned long long)t->faults,
               (unsigned long long)all[k].written);
    }
    puts("}");
}

static int run(int argc, char **argv)
{
    struct tail_options o = {
        .seconds = 90, .rounds = 3, .rate = 100000, .keys = 5000000, .disk = ".", .memory = "/dev/shm"
    };
    size_t words;
    int status = options_read(&command, argc, argv, &o, &words);
    if (status >= 0)
        return status;
    if (words > 0)
        return options_error(&command, "unexpected argument '%s'", argv[0]);
    struct kind *all = calloc(KINDS, sizeof *all);
    if (!all)
        return cli_error("out of memory");
    uint64_t random = 1;
    bool ok = true;
    for (uint64_t round = 0; round < o.rounds; round++)
        for (int k = 0; k < KINDS && ok; k++)
            ok = run_kind(&all[k], k, &o, &random);
    if (ok)
        (o.json ? print_json : print_text)(all, &o);
    free(all);
    return ok ? 0 : cli_error("a decision or a save has failed");
}

int main(int argc, char **argv)
{
    return cli_finish(run(argc, argv));
}
