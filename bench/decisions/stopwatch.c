/* The stopwatch: cases in turns, threads on CPUs of their own.
 *
 * A run is cut into slices. The middle one stands for the run, so that one in which the scheduler gave the CPU to somebody
 * else does not count. Every case runs once in each round; rounds go through the cases forth and back in turns, so that
 * none always finds the caches as the same other one left them. */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "decisions/bench.h"

enum { WARM_KEYS_MIN = 16 * BENCH_SLICE, WARM_KEYS_MAX = 1 << 20 };

static int64_t stopwatch_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- threads ---- */

unsigned bench_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* Where it is not allowed, the scheduler places threads well enough. */
static void pin(unsigned index)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || index-- > 0)
            continue;
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

struct thread {
    unsigned index;
    void (*work)(unsigned index, void *data);
    void *data;
};

static void *thread_main(void *arg)
{
    const struct thread *t = arg;
    pin(t->index);
    t->work(t->index, t->data);
    return NULL;
}

void bench_threads(unsigned count, void (*work)(unsigned index, void *data), void *data)
{
    pthread_t ids[BENCH_THREADS_MAX];
    struct thread threads[BENCH_THREADS_MAX];
    for (unsigned i = 0; i < count; i++) {
        threads[i] = (struct thread){ i, work, data };
        if (pthread_create(&ids[i], NULL, thread_main, &threads[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(ids[i], NULL);
}

/* ---- one run ---- */

struct run {
    struct bench_case *c;
    unsigned slices, warm_slices;
    unsigned ready, done;
    double *slice_ns; /* threads × slices */
    int64_t start_us;
    struct bench_worker workers[BENCH_THREADS_MAX];
};

static void wait_for(unsigned *counter, unsigned wanted)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < wanted)
        sched_yield();
}

static void run_slice(struct bench_case *c, struct bench_worker *w, unsigned index)
{
    const struct bench_stream *s = c->stream;
    const uint64_t *keys = s ? s->keys[index] + c->at[index] * BENCH_SLICE * s->limits : NULL;
    c->run(w, keys);
    if (s && ++c->at[index] == s->slices)
        c->at[index] = 0;
}

static void run_thread(unsigned index, void *data)
{
    struct run *run = data;
    struct bench_case *c = run->c;
    struct bench_worker w = { .subject = c->subject, .now_us = run->start_us };
    double *slice_ns = run->slice_ns + (size_t)index * run->slices;
    wait_for(&run->ready, c->kind.threads);
    for (unsigned i = 0; i < run->warm_slices; i++)
        run_slice(c, &w, index);
    w.taken = 0;
    wait_for(&run->ready, 2 * c->kind.threads);
    for (unsigned i = 0; i < run->slices; i++) {
        int64_t start = stopwatch_ns();
        run_slice(c, &w, index);
        slice_ns[i] = (double)(stopwatch_ns() - start) / BENCH_SLICE;
    }
    run->workers[index] = w;
    /* Goes on until the others have finished: they are to be disturbed to the end. */
    __atomic_fetch_add(&run->done, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&run->done, __ATOMIC_ACQUIRE) < c->kind.threads)
        run_slice(c, &w, index);
    run->workers[index].now_us = w.now_us;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof values[0], compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void run_case(const struct bench *bench, struct bench_case *c, unsigned round)
{
    unsigned threads = c->kind.threads;
    uint64_t warm = c->kind.keys < WARM_KEYS_MIN   ? WARM_KEYS_MIN
                    : c->kind.keys < WARM_KEYS_MAX ? c->kind.keys
                                                   : WARM_KEYS_MAX;
    struct run run = { .c = c, .slices = bench->slices, .start_us = c->clock_us ? *c->clock_us : 0 };
    run.warm_slices = (unsigned)(warm / BENCH_SLICE / threads / (c->kind.limits ? c->kind.limits : 1)) + 1;
    run.slice_ns = calloc((size_t)threads * run.slices, sizeof run.slice_ns[0]);
    if (!run.slice_ns)
        abort();
    if (c->prepare)
        c->prepare(c);
    bench_threads(threads, run_thread, &run);
    c->round_ns[round] = median(run.slice_ns, (size_t)threads * run.slices);
    free(run.slice_ns);
    for (unsigned i = 0; i < threads; i++) {
        c->decided += (uint64_t)run.slices * BENCH_SLICE;
        c->taken += run.workers[i].taken;
        if (c->clock_us && *c->clock_us < run.workers[i].now_us)
            *c->clock_us = run.workers[i].now_us;
    }
}

/* ---- rounds ---- */

static void add_result(struct bench *bench, struct bench_case *c)
{
    if (bench->result_count == BENCH_RESULTS_MAX)
        abort();
    double middle = median(c->round_ns, bench->rounds);
    bench->results[bench->result_count++] = (struct bench_result){
        .kind = c->kind,
        .ns = middle,
        .best_ns = c->round_ns[0],
        .refused = 1 - (double)c->taken / (double)c->decided,
    };
}

void bench_run(struct bench *bench, struct bench_case *cases, size_t count, const char *title)
{
    for (unsigned round = 0; round < bench->rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            bench_say(bench, "%s: round %u of %u, %zu of %zu", title, round + 1, bench->rounds, i + 1, count);
            run_case(bench, &cases[round % 2 ? count - 1 - i : i], round);
        }
    }
    for (size_t i = 0; i < count; i++)
        add_result(bench, &cases[i]);
}

/* ---- the rest ---- */

void bench_say(const struct bench *bench, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (bench->progress) {
        fputs("\r\033[K", stderr);
        vfprintf(stderr, format, args);
        fflush(stderr);
    }
    va_end(args);
}

void bench_note(struct bench *bench, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (bench->note_count < BENCH_NOTES_MAX)
        vsnprintf(bench->notes[bench->note_count++], sizeof bench->notes[0], format, args);
    va_end(args);
}

static uint64_t available_bytes(void)
{
    unsigned long long kb = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f)
        return UINT64_MAX;
    while (fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu kB", &kb) != 1)
        ;
    fclose(f);
    return kb ? (uint64_t)kb * 1024 : UINT64_MAX;
}

void bench_machine(char *out, size_t cap)
{
    char line[256], *name;
    snprintf(out, cap, "an unnamed CPU");
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "model name", 10) != 0 || !(name = strchr(line, ':')))
            continue;
        sv text = sv_trim(sv_of(name + 1, strcspn(name + 1, "\n")));
        snprintf(out, cap, "%.*s", SV_FMT(text));
        break;
    }
    if (f)
        fclose(f);
}

bool bench_has_memory(struct bench *bench, uint64_t bytes, const char *part)
{
    uint64_t available = available_bytes();
    if (bytes < available / 10 * 9)
        return true;
    bench_note(bench, "%s left out: it needs %llu MB of memory, and %llu MB are available", part,
               (unsigned long long)(bytes >> 20), (unsigned long long)(available >> 20));
    return false;
}

static bool same_kind(const struct bench_kind *a, const struct bench_kind *b)
{
    return a->what == b->what && a->keys == b->keys && a->order == b->order && a->threads == b->threads &&
           a->limits == b->limits && a->rules == b->rules && a->batch == b->batch && a->aged == b->aged;
}

const struct bench_result *bench_find(const struct bench *bench, struct bench_kind kind)
{
    for (size_t i = 0; i < bench->result_count; i++)
        if (same_kind(&bench->results[i].kind, &kind))
            return &bench->results[i];
    return NULL;
}
