/* Decisions with the plan in hand, at one number of keys: weir, the map beside it, and the floors. */
#include <stdio.h>
#include <stdlib.h>

#include "decisions/bench.h"
#include "engine/decision.h"

/* ---- several limits ---- */

/* Rules of one subject with three limits, bound to a table, and plans whose keys are filled in as they come. */
struct several {
    struct bench_table *table;
    struct bound *bound;
    struct weir_request request;
    struct decision decision;
    struct counter counters[BENCH_LIMITS], *order[BENCH_LIMITS];
};

static uint32_t minutes(const struct limit *minute, uint64_t n)
{
    return minute->max * n < UINT32_MAX ? (uint32_t)(minute->max * n) : UINT32_MAX;
}

static bool several_init(struct several *s, struct bench_table *t)
{
    char text[256];
    struct rules_report report = { 0 };
    struct ruleset *ruleset;
    struct weir_error error;
    size_t needed;
    *s = (struct several){ .table = t, .request = { .user = WEIR_STR("u"), .cost = 1 } };
    snprintf(text, sizeof text, "rules: [{id: bench, by: [user], limits: [%u per 60s, %u per 60m, %u per 24h]}]",
             minutes(&t->limit, 1), minutes(&t->limit, 60), minutes(&t->limit, 1440));
    struct rules *rules = rules_read(weir_str(text), &report);
    rules_report_done(&report);
    if (!rules || ruleset_new(&ruleset, rules, &error) < 0 ||
        bound_new(&s->bound, ruleset, t->cells, (struct bound_sharing){ 0 }, (struct bound_before){ 0 }, &error) < 0)
        return false;
    s->decision = (struct decision){ .counters = s->counters, .order = s->order, .cap = BENCH_LIMITS };
    return decision_plan(&s->decision, s->bound, &s->request, &s->request.user, t->now_us, &needed) &&
           s->decision.count == BENCH_LIMITS;
}

struct turn {
    struct decision decisions[BENCH_TURN];
    struct counter counters[BENCH_TURN][BENCH_LIMITS], *order[BENCH_LIMITS];
    struct weir_verdict verdict;
};

static void turn_init(struct turn *turn, const struct several *s)
{
    for (unsigned i = 0; i < BENCH_TURN; i++) {
        for (unsigned k = 0; k < BENCH_LIMITS; k++)
            turn->counters[i][k] = s->counters[k];
        turn->decisions[i] = s->decision;
        turn->decisions[i].counters = turn->counters[i];
        turn->decisions[i].order = turn->order;
        turn->decisions[i].verdict = &turn->verdict;
    }
}

static inline void fill_plan(struct decision *d, const uint64_t *keys, int64_t now_us)
{
    d->state = DECISION_TAKE;
    d->now_us = now_us;
    for (unsigned k = 0; k < BENCH_LIMITS; k++) {
        d->counters[k].ask.key = keys[k];
        d->counters[k].ask.now_us = now_us;
    }
}

static inline bool decide(struct turn *turn, unsigned i)
{
    decision_run(&turn->decisions[i]);
    return turn->verdict.allowed;
}

static void run_several_single(struct bench_worker *w, const uint64_t *keys)
{
    struct several *s = w->subject;
    struct turn turn;
    turn_init(&turn, s);
    for (const uint64_t *end = keys + BENCH_SLICE * BENCH_LIMITS; keys < end; w->now_us++) {
        for (unsigned i = 0; i < BENCH_TURN; i++, keys += BENCH_LIMITS) {
            fill_plan(&turn.decisions[i], keys, w->now_us);
            for (unsigned k = 0; k < BENCH_LIMITS; k++)
                cells_prefetch(s->table->cells, keys[k]);
            w->taken += decide(&turn, i);
        }
    }
}

static void run_several_batch(struct bench_worker *w, const uint64_t *keys)
{
    struct several *s = w->subject;
    struct turn turn;
    turn_init(&turn, s);
    for (const uint64_t *end = keys + BENCH_SLICE * BENCH_LIMITS; keys < end; w->now_us++) {
        for (unsigned i = 0; i < BENCH_TURN; i++, keys += BENCH_LIMITS) {
            fill_plan(&turn.decisions[i], keys, w->now_us);
            for (unsigned k = 0; k < BENCH_LIMITS; k++)
                cells_prefetch(s->table->cells, keys[k]);
        }
        for (unsigned i = 0; i < BENCH_TURN; i++)
            w->taken += decide(&turn, i);
    }
}

/* ---- the world of one number of keys ---- */

enum { FRESH_UNIFORM, FRESH_ZIPF, AGED_UNIFORM, ORDERS };

struct world {
    uint64_t keys;
    struct bench_table fresh, aged, refusing;
    struct several fresh_several, aged_several;
    struct bench_map *map, *map_open;
    struct bench_floor *floor;
    struct bench_stream one[ORDERS], three[ORDERS];
    struct bench_case cases[BENCH_CASES_MAX];
    size_t count;
};

static bool streams_init(struct world *w, unsigned i, const struct bench_table *t, enum bench_order order, unsigned threads)
{
    /* One key has no three limits of its own: its table is a little larger then. */
    uint64_t one = w->keys == 1 ? 1 : t->count;
    return bench_stream_init(&w->one[i], t->pool, one, 1, order, threads) &&
           bench_stream_init(&w->three[i], t->pool, t->count, BENCH_LIMITS, order, threads);
}

/* One subject that has used up its limit. */
static bool refusing_init(struct world *w)
{
    if (!bench_table_fresh(&w->refusing, 1))
        return false;
    limit_init(&w->refusing.limit, LIMIT_TOKEN_BUCKET, 1, 0, 3600 * US_PER_S);
    return true;
}

static bool world_init(struct world *w, const struct bench *bench, uint64_t keys)
{
    *w = (struct world){ .keys = keys };
    if (!bench_table_fresh(&w->fresh, keys == 1 ? BENCH_LIMITS : keys))
        return false;
    w->fresh.limit = bench_limit(keys);
    if (!several_init(&w->fresh_several, &w->fresh) ||
        !streams_init(w, FRESH_UNIFORM, &w->fresh, BENCH_UNIFORM, bench->threads))
        return false;
    w->map = bench_map_new(w->fresh.pool, w->fresh.count, false, &w->fresh.limit, w->fresh.now_us);
    w->map_open = bench_map_new(w->fresh.pool, w->fresh.count, true, &w->fresh.limit, w->fresh.now_us);
    w->floor = bench_floor_new(cells_stats(w->fresh.cells).bytes);
    if (!w->map || !w->map_open || !w->floor)
        return false;
    if (keys == 1)
        return refusing_init(w);
    return streams_init(w, FRESH_ZIPF, &w->fresh, BENCH_ZIPF, bench->threads) &&
           bench_table_aged(&w->aged, keys, bench->generations, bench->threads) &&
           several_init(&w->aged_several, &w->aged) &&
           streams_init(w, AGED_UNIFORM, &w->aged, BENCH_UNIFORM, bench->threads);
}

static void world_free(struct world *w)
{
    bound_free(w->fresh_several.bound);
    bound_free(w->aged_several.bound);
    bench_table_done(&w->fresh);
    bench_table_done(&w->aged);
    bench_table_done(&w->refusing);
    bench_map_free(w->map);
    bench_map_free(w->map_open);
    bench_floor_free(w->floor);
    for (unsigned i = 0; i < ORDERS; i++) {
        bench_stream_done(&w->one[i]);
        bench_stream_done(&w->three[i]);
    }
    free(w);
}

static void add(struct world *w, struct bench_case c)
{
    w->cases[w->count++] = c;
}

static void add_decisions(struct world *w, struct bench_kind kind, unsigned order)
{
    bool aged = order == AGED_UNIFORM;
    struct bench_table *t = aged ? &w->aged : &w->fresh;
    struct bench_case c = { .kind = kind, .clock_us = &t->now_us };
    c.kind.what = BENCH_DECIDE;
    c.kind.aged = aged;
    for (unsigned batch = 0; batch < 2; batch++) {
        c.kind.batch = batch;
        c.kind.limits = 1;
        c.run = batch ? bench_run_batch : bench_run_single;
        c.subject = t;
        c.stream = &w->one[order];
        add(w, c);
        c.kind.limits = BENCH_LIMITS;
        c.run = batch ? run_several_batch : run_several_single;
        c.subject = aged ? &w->aged_several : &w->fresh_several;
        c.stream = &w->three[order];
        add(w, c);
    }
}

static void add_maps(struct world *w, struct bench_kind kind, unsigned order)
{
    struct bench_case c = { .kind = kind, .stream = &w->one[order], .clock_us = &w->fresh.now_us };
    c.kind.limits = 1;
    c.kind.what = BENCH_MAP;
    c.run = bench_map_run;
    c.subject = w->map;
    add(w, c);
    c.kind.what = BENCH_MAP_OPEN;
    c.run = bench_map_open_run;
    c.subject = w->map_open;
    add(w, c);
}

static void add_cases(struct world *w, unsigned threads)
{
    struct bench_kind kind = { .keys = w->keys, .threads = threads };
    add_decisions(w, kind, FRESH_UNIFORM);
    add_maps(w, kind, FRESH_UNIFORM);
    w->count +=
        bench_floor_cases(w->floor, kind, w->keys > 1 && threads == 1 ? &w->one[FRESH_UNIFORM] : NULL, w->cases + w->count);
    if (w->keys == 1) {
        kind.limits = 1;
        kind.what = BENCH_REFUSE;
        add(w, (struct bench_case){ .kind = kind,
                                    .run = bench_run_single,
                                    .subject = &w->refusing,
                                    .stream = &w->one[FRESH_UNIFORM],
                                    .clock_us = &w->refusing.now_us });
        return;
    }
    add_decisions(w, kind, AGED_UNIFORM);
    kind.order = BENCH_ZIPF;
    add_decisions(w, kind, FRESH_ZIPF);
    add_maps(w, kind, FRESH_ZIPF);
}

/* Tables, floor and maps, the keys and the order in which they come. */
static uint64_t bytes_needed(uint64_t keys)
{
    return keys * (3 * 43 + 40 + 54 + 2 * 8) + (UINT64_C(200) << 20);
}

bool bench_keys(struct bench *bench, uint64_t keys)
{
    char text[BENCH_KEYS_TEXT_MAX], title[BENCH_KEYS_TEXT_MAX + 16];
    bench_keys_text(keys, text);
    snprintf(title, sizeof title, "%s %s", text, keys == 1 ? "key" : "keys");
    if (!bench_has_memory(bench, bytes_needed(keys), title))
        return true;
    bench_say(bench, "%s: filling tables", title);
    struct world *w = malloc(sizeof *w);
    if (!w)
        return false;
    bool ok = world_init(w, bench, keys);
    if (ok) {
        for (unsigned threads = 1; threads <= bench->threads; threads++)
            add_cases(w, threads);
        bench_run(bench, w->cases, w->count, title);
    }
    world_free(w);
    return ok;
}
