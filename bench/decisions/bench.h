/* script/bench: what a decision costs on this machine, beside what the machine itself costs. bench/README.md says how it is
 * measured and how to read it. */
#ifndef DECISIONS_BENCH_H
#define DECISIONS_BENCH_H

#include "base/buf.h"
#include "cells/cells.h"

enum {
    BENCH_THREADS_MAX = 2,
    BENCH_TURN = 16,                /* decisions of a batch; also those that share one reading of the clock */
    BENCH_SLICE = 256 * BENCH_TURN, /* decisions between two looks at the stopwatch */
    BENCH_ROUNDS_MAX = 15,
    BENCH_CASES_MAX = 64,    /* of one group */
    BENCH_CONDITIONS = 1000, /* rules that have a kind of condition */
    BENCH_RESULTS_MAX = 256,
    BENCH_NOTES_MAX = 16,
    BENCH_LIMITS = 3,  /* where there is more than one */
    BENCH_SEVERAL = 3, /* numbers of limits, and of rules that apply, that are compared */
};

/* ---- what is measured ---- */

enum bench_what {
    BENCH_CAS,            /* floor: one 16-byte load and compare-and-swap on one hot cell */
    BENCH_ACCESS,         /* floor: one memory access that depends on the one before */
    BENCH_PREFETCHED,     /* floor: compare-and-swap of prefetched cells, 16 at a time */
    BENCH_DECIDE,         /* a decision, plan in hand */
    BENCH_REFUSE,         /* a refusal of one hot subject, plan in hand */
    BENCH_MAP,            /* the same decision in a map with 64 mutexes, its entries in chains … */
    BENCH_MAP_OPEN,       /* … or in open addressing */
    BENCH_CHECK,          /* a whole weir_check */
    BENCH_CHECK_ALL,      /* the same, where each subject has another rule */
    BENCH_PREPARED,       /* a prepared check of the simplest rule … */
    BENCH_BRIEF,          /* … and a brief one */
    BENCH_RESERVE,        /* a whole weir_reserve of twice the true cost, and its weir_settle */
    BENCH_PLAIN,          /* a whole weir_check with one rule that has neither plans nor overrides … */
    BENCH_NO_OVERRIDE,    /* … that has many overrides, and none for the subject … */
    BENCH_OVERRIDE,       /* … and one for the subject … */
    BENCH_PLAN,           /* … that has plans */
    BENCH_ROUTES,         /* a whole weir_check with rules for routes, of which one matches … */
    BENCH_HEADERS,        /* … for values of a header, of which one matches … */
    BENCH_REGEXES,        /* … with regexes, of which none matches */
    BENCH_SEVERAL_LIMITS, /* a whole weir_check with one rule that has so many limits … */
    BENCH_NEW_LIMITS,     /* … for subjects that are new … */
    BENCH_SEVERAL_RULES,  /* … with so many rules that all apply … */
    BENCH_NEW_RULES,      /* … for subjects that are new */
};

enum bench_order { BENCH_UNIFORM, BENCH_ZIPF };

struct bench_kind {
    enum bench_what what;
    uint64_t keys; /* cells in the table */
    enum bench_order order;
    unsigned threads;
    unsigned limits;
    unsigned rules;
    bool batch, aged;
};

struct bench_result {
    struct bench_kind kind;
    double ns, best_ns; /* for one decision of one thread: median and best round */
    double refused;     /* which part of the decisions */
};

/* One thread of one run. */
struct bench_worker {
    void *subject;
    int64_t now_us;
    uint64_t taken; /* decisions that passed; also keeps the compiler from leaving work out */
};

/* Keys in the order in which they are asked for, for each thread its own. */
struct bench_stream {
    uint64_t *keys[BENCH_THREADS_MAX];
    size_t slices;   /* of BENCH_SLICE decisions */
    unsigned limits; /* keys of one decision */
};

struct bench_case {
    struct bench_kind kind;
    /* BENCH_SLICE decisions on these keys. */
    void (*run)(struct bench_worker *worker, const uint64_t *keys);
    void (*prepare)(const struct bench_case *c); /* before each round, if there is something to do */
    void *subject;
    const struct bench_stream *stream;
    int64_t *clock_us;            /* of the table: it never steps back */
    size_t at[BENCH_THREADS_MAX]; /* slice of the stream that comes next */
    double round_ns[BENCH_ROUNDS_MAX];
    uint64_t decided, taken;
};

/* ---- a whole run ---- */

struct bench_memory {
    uint64_t keys, table_bytes;
    double bytes_per_key;
    double resident_per_key;      /* that the process grew by, filling the table */
    double resident_per_key_used; /* … and after `requests` more */
    uint64_t requests;
};

struct bench_source {
    unsigned rules;               /* 0: not measured */
    double read_ms, file_ms;      /* all of them from SQLite; from a text as it is in a file */
    double still_ns, changing_ns; /* a decision, while nothing changes and while a row changes all the time */
    unsigned changes;
};

struct bench_rules {
    unsigned few, many;     /* rules; 0: not measured */
    double few_ms, many_ms; /* of the CPU, until a row that changed among so many is in force */
    double add_ms;          /* the same of a row that was added to many */
    double start_ms, bytes; /* of many: until they are in force at first; for each of them, beyond its text */
};

struct bench_overrides {
    unsigned count; /* 0: not measured */
    double read_ms; /* to read them and put them in force, by the process's clock */
};

struct bench {
    bool quick, progress;
    unsigned rounds, slices, generations;
    unsigned threads; /* that may run at once, at most BENCH_THREADS_MAX */
    uint64_t keys_small, keys_medium, keys_large;
    unsigned rules_few, rules_many;
    uint64_t apply_keys; /* subjects to which several rules apply; 0: not measured */
    struct bench_result results[BENCH_RESULTS_MAX];
    size_t result_count;
    struct bench_memory memory;
    struct bench_source source;
    struct bench_rules rules;
    struct bench_overrides overrides;
    char notes[BENCH_NOTES_MAX][160];
    size_t note_count;
};

void bench_note(struct bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));
const struct bench_result *bench_find(const struct bench *bench, struct bench_kind kind);

/* Measures cases in turns and adds their results. */
void bench_run(struct bench *bench, struct bench_case *cases, size_t count, const char *title);
/* Threads on CPUs of their own, each calling `work` with its number. */
void bench_threads(unsigned count, void (*work)(unsigned index, void *data), void *data);
unsigned bench_cpus(void);
void bench_machine(char *out, size_t cap); /* the name of its CPU */
/* Is there room for so many bytes? If not, a note says what is left out. */
bool bench_has_memory(struct bench *bench, uint64_t bytes, const char *part);
void bench_say(const struct bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The parts. False: out of memory, or the like; a note says why. */
bool bench_keys(struct bench *bench, uint64_t keys);
bool bench_check(struct bench *bench, uint64_t keys);
bool bench_simple(struct bench *bench, uint64_t keys);
bool bench_resident(struct bench *bench);
bool bench_sources(struct bench *bench);
bool bench_part_rules(struct bench *bench);
bool bench_part_overrides(struct bench *bench);
bool bench_part_conditions(struct bench *bench);
/* The first of these numbers is 1. */
extern const unsigned bench_several_limits[BENCH_SEVERAL], bench_several_rules[BENCH_SEVERAL];
bool bench_part_limits(struct bench *bench);
bool bench_part_apply(struct bench *bench);

/* ---- keys ---- */

uint64_t bench_mix(uint64_t x); /* any number to a well spread one, each to another */

/* A number of 32 bits in eight letters, without a loop: this is measured along. */
static inline uint64_t bench_letters(uint64_t x)
{
    x = (x << 16 | x) & UINT64_C(0x0000ffff0000ffff);
    x = (x << 8 | x) & UINT64_C(0x00ff00ff00ff00ff);
    return ((x << 4 | x) & UINT64_C(0x0f0f0f0f0f0f0f0f)) + UINT64_C(0x6161616161616161);
}

struct bench_random {
    uint64_t state;
};
uint64_t bench_random(struct bench_random *r);
uint64_t bench_below(struct bench_random *r, uint64_t n);

/* pool[0 … count), or the numbers 0 … count if it is NULL; a decision's `limits` keys stand together in the pool. */
bool bench_stream_init(struct bench_stream *s, const uint64_t *pool, uint64_t count, unsigned limits,
                       enum bench_order order, unsigned threads);
void bench_stream_done(struct bench_stream *s);

/* ---- tables ---- */

/* A table at its default fill, and the keys that are in it. */
struct bench_table {
    struct cells *cells;
    uint64_t *pool;
    uint64_t count;
    struct limit limit;
    int64_t now_us;
};

/* Every key is asked for at about a tenth of the rate that this lets through, on the clock of the runs; one that comes up
 * more often than others may be refused. */
struct limit bench_limit(uint64_t keys);
bool bench_table_fresh(struct bench_table *t, uint64_t keys);
/* The same after so many generations of keys that came and went. */
bool bench_table_aged(struct bench_table *t, uint64_t keys, unsigned generations, unsigned threads);
void bench_table_done(struct bench_table *t);
void bench_run_single(struct bench_worker *w, const uint64_t *keys);
void bench_run_batch(struct bench_worker *w, const uint64_t *keys);

/* ---- floors ---- */

struct bench_floor;
struct bench_floor *bench_floor_new(uint64_t bytes);
void bench_floor_free(struct bench_floor *floor);
/* Adds the cases that can be measured on it. */
size_t bench_floor_cases(struct bench_floor *floor, struct bench_kind kind, const struct bench_stream *stream,
                         struct bench_case *ret);

/* ---- the map beside it ---- */

struct bench_map;
struct bench_map *bench_map_new(const uint64_t *pool, uint64_t count, bool open, const struct limit *limit, int64_t now_us);
void bench_map_free(struct bench_map *map);
void bench_map_run(struct bench_worker *w, const uint64_t *keys);
void bench_map_open_run(struct bench_worker *w, const uint64_t *keys);

/* ---- answers ---- */

struct bench_ratio {
    char text[80]; /* "1k keys: a decision / one compare-and-swap" */
    double value, value_median, target;
    bool at_most; /* else at least */
    bool met;
};

enum { BENCH_RATIOS_MAX = 48, BENCH_KEYS_TEXT_MAX = 24, BENCH_MACHINE_MAX = 80 };
size_t bench_ratios(const struct bench *bench, struct bench_ratio *ret);
void bench_keys_text(uint64_t keys, char out[BENCH_KEYS_TEXT_MAX]); /* "10M" */
void bench_text(const struct bench *bench, const struct bench_ratio *ratios, size_t ratio_count, struct buf *out);
void bench_json(const struct bench *bench, const struct bench_ratio *ratios, size_t ratio_count, struct buf *out);

#endif
