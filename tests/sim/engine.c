/* The engine against the slow model of it, on random schedules of a virtual clock: requests, batches, peeks, costs of all
 * kinds, clocks that step, rules that change, resets. After each step the whole verdict has to be the model's.
 *
 * TEST_SEED is the seed of the first schedule, TEST_ROUNDS how many there are; TEST_LOUD=1 prints each step.
 *
 * With SIM_STORE all rules count in a real redis-server, whose clock is the virtual one. There are no buckets then: those
 * the store rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "cells/layout.h"
#include "engine/handle.h"
#include "model.h"
#ifdef SIM_STORE
#include "servers.h"
#endif

#define MS INT64_C(1000)
#define S INT64_C(1000000)
#define WEEK (7 * 86400 * S)
#define EARLIEST (INT64_C(946684800) * S) /* 2000 */
#define LATEST (INT64_C(3786912000) * S)  /* 2090 */

enum { STEPS = 60, BATCH_MAX = 5 };
#ifdef SIM_STORE
enum { SCHEDULES = 150 };
#else
enum { SCHEDULES = 6000 };
#endif

/* A bucket is exact at every whole millisecond if its period divides a week, whatever the clock and the administrator do;
 * and at every microsecond if neither of them goes back. */
enum style {
    MILLISECONDS, /* everything, at whole milliseconds, with periods that divide a week */
    FORWARD,      /* a clock that only goes forward, by microseconds, and buckets that do not change */
    WINDOWS,      /* everything, at any microsecond, without buckets */
    STYLES
};

struct schedule {
    uint64_t seed;
    struct random rnd;
    enum style style;
    bool loud;
    struct weir *weir;
    struct sim sim;
    int64_t now_us, quantum_us;
    uint32_t most;      /* no max or burst is larger */
    int64_t longest_us; /* no period is */
    int64_t last_retry_ms, last_reset_ms;
    int step;
};

static int64_t pick(struct schedule *s, int64_t low, int64_t high)
{
    return random_in(&s->rnd, low, high);
}

static bool one_in(struct schedule *s, int n)
{
    return random_one_in(&s->rnd, n);
}

/* ---- rules ---- */

static int64_t pick_period(struct schedule *s)
{
    static const int64_t parts_ms[] = { 1,    2,     5,     10,     16,      100,     125,      500,      640,
                                        1000, 60000, 90000, 420000, 3600000, 7200000, 21600000, 86400000, 604800000 };
    if (s->style != MILLISECONDS)
        return random_scaled(&s->rnd, s->longest_us / MS) * MS;
    int64_t per = parts_ms[pick(s, 0, sizeof parts_ms / sizeof *parts_ms - 1)] * MS;
    return per > s->longest_us ? MS : per;
}

static uint32_t pick_number(struct schedule *s)
{
    return one_in(s, 8) ? s->most : (uint32_t)random_scaled(&s->rnd, one_in(s, 2) && s->most > 9 ? 9 : s->most);
}

/* With more than 32 bits. */
static uint64_t pick_wide(struct schedule *s)
{
    return one_in(s, 3) ? UINT32_MAX - 1 + (uint64_t)pick(s, 0, 3)
                        : (uint64_t)random_scaled(&s->rnd, (int64_t)WEIR_AMOUNT_MAX);
}

/* Buckets beyond 32 bits round: tests/limit compares these. */
static void pick_numbers(struct schedule *s, struct sim_limit *l)
{
    bool counts = l->algorithm == SIM_FIXED || l->algorithm == SIM_CALENDAR;
    l->counts = one_in(s, 3) ? (int)pick(s, 1, SIM_UNITS - 1) : 0;
    l->max = one_in(s, 25) ? 0 : counts && one_in(s, 4) ? pick_wide(s) : pick_number(s);
    l->burst = l->algorithm == SIM_BUCKET && one_in(s, 3) ? pick_number(s) : 0;
    l->overdraft =
        l->algorithm != SIM_BUCKET && one_in(s, 4) && l->max <= (l->algorithm == SIM_SLIDING ? INT32_MAX : 1LL << 51);
    l->per_us = pick_period(s);
    l->scale = s->style == MILLISECONDS ? WEEK : l->per_us;
    l->unit = (enum sim_unit)pick(s, SIM_MINUTE, SIM_LENGTH);
    if (l->algorithm == SIM_CALENDAR && l->per_us < S)
        l->per_us = S;
    l->utc_offset_us = l->unit != SIM_LENGTH && one_in(s, 2) ? 8 * 3600 * S : 0;
}

/* At least a second; and often as long as a limit's period. */
static int64_t pick_time(struct schedule *s)
{
    int64_t us = one_in(s, 2) ? pick_period(s) : random_scaled(&s->rnd, 30 * 86400) * S;
    return us < S ? S : us;
}

static void pick_penalty(struct schedule *s, struct sim_penalty *p)
{
    *p = (struct sim_penalty){ .after = one_in(s, 2) ? 0 : (unsigned)random_scaled(&s->rnd, 4),
                               .grow = (unsigned)pick(s, 1, 4) };
    p->within_us = pick_time(s);
    p->for_us = pick_time(s);
    p->most_us = p->for_us * pick(s, 1, 20);
    if (p->most_us > 3650 * 86400 * S)
        p->most_us = p->for_us;
}

static void pick_rule(struct schedule *s, struct sim_rule *rule, size_t number)
{
    *rule = (struct sim_rule){ .mode = one_in(s, 3) ? SIM_SHADOW : SIM_ENFORCE, .by = (unsigned)pick(s, 0, SIM_BY_MOST) };
    /* Of this schedule alone: all share one table. */
    snprintf(rule->id, sizeof rule->id, "r%zu-%llu", number, (unsigned long long)s->seed);
    if (one_in(s, 2))
        snprintf(rule->event, sizeof rule->event, "e%d", (int)pick(s, 0, 1));
    rule->limit_count = (size_t)pick(s, 1, SIM_LIMITS);
    for (size_t i = 0; i < rule->limit_count; i++) {
        struct sim_limit *l = &rule->limits[i];
        l->algorithm = (enum sim_algorithm)pick(s, s->style == WINDOWS ? SIM_FIXED : SIM_BUCKET, SIM_CALENDAR);
        snprintf(l->name, sizeof l->name, "l%zu", i);
        pick_numbers(s, l);
    }
    pick_penalty(s, &rule->penalty);
}

static void write_limit(FILE *to, const struct sim_limit *l)
{
    static const char *const algorithms[] = { "token_bucket", "fixed_window", "sliding_window" };
    static const char *const counts[SIM_UNITS] = { "", ",\"unit\":\"u1\"", ",\"unit\":\"u2\"" };
    static const char *const units[] = { "minute", "hour", "day", "week", "month", "year" };
    const char *overdraft = l->overdraft ? ",\"overdraft\":true" : "";
    if (l->algorithm == SIM_CALENDAR) {
        char length[40];
        snprintf(length, sizeof length, "%lldms", (long long)(l->per_us / MS));
        fprintf(to, "{\"name\":\"%s\",\"calendar\":\"%s\",\"max\":%llu%s%s%s}", l->name,
                l->unit == SIM_LENGTH ? length : units[l->unit], (unsigned long long)l->max,
                l->utc_offset_us ? ",\"tz\":\"Asia/Shanghai\"" : "", counts[l->counts], overdraft);
        return;
    }
    fprintf(to, "{\"name\":\"%s\",\"algorithm\":\"%s\",\"max\":%llu,\"per\":\"%lldms\"", l->name, algorithms[l->algorithm],
            (unsigned long long)l->max, (long long)(l->per_us / MS));
    if (l->burst)
        fprintf(to, ",\"burst\":%llu", (unsigned long long)l->burst);
    fprintf(to, "%s%s}", counts[l->counts], overdraft);
}

static void write_rule(FILE *to, const struct sim_rule *rule)
{
    static const char *const modes[] = { "enforce", "shadow", "off" };
    fprintf(to, "{\"id\":\"%s\",\"mode\":\"%s\"", rule->id, modes[rule->mode]);
    if (rule->event[0])
        fprintf(to, ",\"match\":{\"event\":\"%s\"}", rule->event);
    static const char *const names[] = { "event", "key", "user", "descriptor:k#2" };
    const char *between = ",\"by\":[";
    for (int i = 0; i < 4; i++)
        if (rule->by >> i & 1) {
            fprintf(to, "%s\"%s\"", between, names[i]);
            between = ",";
        }
    fputs(rule->by ? "]" : "", to);
    for (size_t i = 0; i < rule->limit_count; i++) {
        fputs(i ? "," : ",\"limits\":[", to);
        write_limit(to, &rule->limits[i]);
    }
    fputs("]", to);
    const struct sim_penalty *p = &rule->penalty;
    if (p->after > 0)
        fprintf(to, ",\"penalty\":{\"after\":%u,\"within\":\"%lldms\",\"for\":\"%lldms\",\"grow\":%u,\"most\":\"%lldms\"}",
                p->after, (long long)(p->within_us / MS), (long long)(p->for_us / MS), p->grow,
                (long long)(p->most_us / MS));
    fputs("}", to);
}

static void put_in_force(struct schedule *s)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    for (size_t i = 0; i < s->sim.rule_count; i++) {
        fputs(i ? ",\n" : "[", to);
        write_rule(to, &s->sim.rules[i]);
    }
    fputs("]", to);
    assert_int_equal(fclose(to), 0);
    struct weir_error error = { .code = WEIR_OK };
    if (s->loud)
        print_message("rules %s\n", text);
    if (weir_set_rules(s->weir, text, size, &error) < 0)
        fail_msg("seed %llu: %s\n%s", (unsigned long long)s->seed, error.text, text);
    free(text);
}

/* An administrator changes numbers, and sometimes more than that. */
static void change_rules(struct schedule *s)
{
    struct sim_rule *rule = &s->sim.rules[pick(s, 0, (int64_t)s->sim.rule_count - 1)];
    struct sim_limit *l = &rule->limits[pick(s, 0, (int64_t)rule->limit_count - 1)];
    switch (pick(s, 0, 10)) {
    case 10:
        pick_penalty(s, &rule->penalty);
        break;
    case 0:
        rule->mode = (enum sim_mode)pick(s, SIM_ENFORCE, SIM_OFF);
        break;
    case 1:
        rule->by = (unsigned)pick(s, 0, SIM_BY_MOST);
        break;
    case 2:
        if (s->style == FORWARD)
            break;
        l->algorithm = (enum sim_algorithm)pick(s, s->style == WINDOWS ? SIM_FIXED : SIM_BUCKET, SIM_CALENDAR);
        pick_numbers(s, l);
        break;
    default:
        if (l->algorithm == SIM_BUCKET && s->style == FORWARD)
            break;
        pick_numbers(s, l);
        l->max = one_in(s, 5) ? 0 : l->max;
    }
    put_in_force(s);
}

/* ---- requests ---- */

struct words {
    char event[SIM_TEXT], key[SIM_TEXT], user[SIM_TEXT];
};

static struct sim_request pick_request(struct schedule *s, struct words *w)
{
    snprintf(w->event, SIM_TEXT, "e%d", (int)pick(s, 0, 2));
    w->key[0] = w->user[0] = '\0';
    if (!one_in(s, 6))
        snprintf(w->key, SIM_TEXT, "k%d", (int)pick(s, 0, 1));
    if (!one_in(s, 6))
        snprintf(w->user, SIM_TEXT, "u%d", (int)pick(s, 0, 1));
    static const char *const entries[] = { NULL, "", "x", " x" };
    struct sim_request q = { w->event, w->key, w->user, entries[pick(s, 0, 3)], 1, one_in(s, 8), { 0 } };
    for (int i = 1; i < SIM_UNITS; i++)
        q.others[i] = one_in(s, 2) ? (uint64_t)random_scaled(&s->rnd, one_in(s, 3) ? (int64_t)s->most : 9) : 0;
    switch (pick(s, 0, 9)) {
    case 0:
        q.cost = 0;
        break;
    case 1:
        q.cost = pick_number(s);
        break;
    case 2:
        q.cost = one_in(s, 2) ? pick_wide(s) : (uint64_t)random_scaled(&s->rnd, UINT32_MAX);
        break;
    case 3:
    case 4:
        q.cost = (uint32_t)random_scaled(&s->rnd, (int64_t)s->most / 3 + 1);
        break;
    default:
        break;
    }
    return q;
}

/* What costs nothing is named or not. */
static struct weir_request as_weir(const struct sim_request *q, struct weir_cost costs[SIM_UNITS],
                                   struct weir_header entries[3])
{
    static const char *const names[SIM_UNITS] = { "", "u1", "u2" };
    struct weir_request r = {
        .event = weir_str(q->event), .key = weir_str(q->key), .user = weir_str(q->user), .cost = q->cost, .peek = q->peek
    };
    /* The entry that counts is the second of its key, and not the one whose key looks like that. */
    if (q->entry) {
        entries[0] = (struct weir_header){ WEIR_STR("k"), WEIR_STR("y") };
        entries[1] = (struct weir_header){ WEIR_STR("k#2"), WEIR_STR("z") };
        entries[2] = (struct weir_header){ WEIR_STR("k"), weir_str(q->entry) };
        r.descriptor = entries;
        r.descriptor_count = 3;
    }
    for (int i = 1; i < SIM_UNITS; i++)
        if (q->others[i] > 0 || q->peek)
            costs[r.cost_count++] = (struct weir_cost){ weir_str(names[i]), q->others[i] };
    r.costs = costs;
    return r;
}

enum { LINE_BYTES = 1000 };

static void line_of_weir(const struct weir_verdict *v, const struct weir_shadows *shadows, char line[LINE_BYTES])
{
    int n = snprintf(line, LINE_BYTES, "%s %s/%s max %llu remaining %llu debt %llu reset %lld retry %lld window %lld",
                     v->allowed ? "pass" : "refuse", v->rule, v->limit, (unsigned long long)v->max,
                     (unsigned long long)v->remaining, (unsigned long long)v->debt, (long long)v->reset_ms,
                     (long long)v->retry_after_ms, (long long)v->window_ms);
    if (v->unit[0])
        n += snprintf(line + n, LINE_BYTES - (size_t)n, " unit %s", v->unit);
    for (uint32_t i = 0; i < shadows->count; i++)
        n += snprintf(line + n, LINE_BYTES - (size_t)n, " shadow %s", shadows->names[i]);
}

static void line_of_model(const struct sim_verdict *v, char line[LINE_BYTES])
{
    int n = snprintf(line, LINE_BYTES, "%s %s/%s max %llu remaining %llu debt %llu reset %lld retry %lld window %lld",
                     v->allowed ? "pass" : "refuse", v->rule, v->limit, (unsigned long long)v->max,
                     (unsigned long long)v->remaining, (unsigned long long)v->debt, (long long)v->reset_ms,
                     (long long)v->retry_after_ms, (long long)v->window_ms);
    if (v->unit)
        n += snprintf(line + n, LINE_BYTES - (size_t)n, " unit u%d", v->unit);
    for (size_t i = 0; i < v->shadow_count; i++)
        n += snprintf(line + n, LINE_BYTES - (size_t)n, " shadow %s", v->shadow[i]);
}

static void compare(struct schedule *s, const struct sim_request *q, const struct weir_verdict *v,
                    const struct weir_shadows *shadows, const struct sim_verdict *m)
{
    char is[LINE_BYTES], should[LINE_BYTES];
    line_of_weir(v, shadows, is);
    line_of_model(m, should);
    if (s->loud)
        print_message("%d at %lld: %s %s %s cost %llu+%llu+%llu%s: %s\n", s->step, (long long)s->now_us, q->event, q->key,
                      q->user, (unsigned long long)q->cost, (unsigned long long)q->others[1],
                      (unsigned long long)q->others[2], q->peek ? " peek" : "", is);
    bool same = strcmp(is, should) == 0 && v->applied == m->applied && v->penalty == m->penalty &&
                v->status == (v->allowed ? 0 : 429);
    if (!same)
        fail_msg("seed %llu, step %d at %lld: %s %s %s cost %llu%s\n  engine: %s\n  model:  %s",
                 (unsigned long long)s->seed, s->step, (long long)s->now_us, q->event, q->key, q->user,
                 (unsigned long long)q->cost, q->peek ? " peek" : "", is, should);
    s->last_retry_ms = v->retry_after_ms;
    s->last_reset_ms = v->reset_ms;
}

static void ask(struct schedule *s)
{
    size_t count = one_in(s, 4) ? (size_t)pick(s, 1, BATCH_MAX) : 1;
    struct words words[BATCH_MAX];
    struct sim_request q[BATCH_MAX];
    struct weir_request requests[BATCH_MAX];
    struct weir_cost costs[BATCH_MAX][SIM_UNITS];
    struct weir_header entries[BATCH_MAX][3];
    struct weir_verdict verdicts[BATCH_MAX];
    struct weir_shadows shadows[BATCH_MAX];
    for (size_t i = 0; i < count; i++) {
        q[i] = pick_request(s, &words[i]);
        requests[i] = as_weir(&q[i], costs[i], entries[i]);
        requests[i].shadows = &shadows[i];
    }
    memset(verdicts, 0x77, sizeof verdicts);
    memset(shadows, 0x77, sizeof shadows);
    int r = count == 1 ? weir_check(s->weir, requests, s->now_us, verdicts)
                       : weir_check_batch(s->weir, requests, count, s->now_us, verdicts);
    assert_int_equal(r, 0);
    for (size_t i = 0; i < count; i++) {
        struct sim_verdict m;
        sim_decide(&s->sim, &q[i], s->now_us, &m);
        compare(s, &q[i], &verdicts[i], &shadows[i], &m);
    }
}

static void reset(struct schedule *s, const struct sim_rule *rule, const struct sim_request *q)
{
    struct weir_str by[4];
    size_t count = 0;
    if (rule->by & SIM_BY_EVENT)
        by[count++] = weir_str(q->event);
    if (rule->by & SIM_BY_KEY)
        by[count++] = weir_str(q->key);
    if (rule->by & SIM_BY_USER)
        by[count++] = weir_str(q->user);
    for (size_t i = 0; i < count; i++)
        if (by[i].len == 0)
            return;
    if (rule->by & SIM_BY_ENTRY && !q->entry)
        return;
    if (rule->by & SIM_BY_ENTRY)
        by[count++] = weir_str(q->entry);
    struct weir_error error = { .code = WEIR_OK };
    if (weir_reset(s->weir, rule->id, by, count, &error) < 0)
        fail_msg("seed %llu, step %d: %s", (unsigned long long)s->seed, s->step, error.text);
    sim_reset(&s->sim, rule, q);
}

static void reset_some(struct schedule *s)
{
    struct words words;
    struct sim_request q = pick_request(s, &words);
    reset(s, &s->sim.rules[pick(s, 0, (int64_t)s->sim.rule_count - 1)], &q);
}

/* ---- the clock ---- */

static int64_t pick_now(struct schedule *s)
{
    int64_t now = s->now_us, q = s->quantum_us, per = s->sim.rules[0].limits[0].per_us;
    int64_t retry = s->last_retry_ms > 0 ? s->last_retry_ms * MS : 0,
            due = s->last_reset_ms > 0 ? s->last_reset_ms * MS : 0;
    switch (pick(s, 0, s->style == FORWARD ? 8 : 11)) {
    case 0:
    case 1:
    case 2:
        return now;
    case 3:
        return now + q;
    case 4:
        return now + random_scaled(&s->rnd, per / 8 + 1);
    case 5:
        return now + random_scaled(&s->rnd, one_in(s, 4) ? 400 * 86400 * S : 3 * per);
    case 6:
        return now + retry;
    case 7:
        return now + retry - (retry > q ? q : 0);
    case 8:
        return now + due - (due > q && one_in(s, 2) ? q : 0);
    case 9:
        return now - random_scaled(&s->rnd, per);
    case 10:
        return now - random_scaled(&s->rnd, 3 * per);
    default:
        return now - random_scaled(&s->rnd, 400 * 86400 * S);
    }
}

static bool reset_cell(struct schedule *s, const struct sim_cell *c)
{
    const struct sim_rule *rule;
    const struct sim_limit *limit;
    if (!sim_owner(&s->sim, c, &rule, &limit))
        return false;
    reset(s, rule, &(struct sim_request){ .event = c->event, .key = c->key, .user = c->user, .entry = c->entry });
    return true;
}

/* Where the promises leave open what is right, neither shall have the cell. */
static void reset_doubtful(struct schedule *s, int64_t now_us)
{
    const struct sim_rule *rule;
    const struct sim_limit *limit;
    for (size_t i = 0; i < s->sim.cell_count; i++)
        if (sim_owner(&s->sim, &s->sim.cells[i], &rule, &limit) && sim_doubtful_at(&s->sim.cells[i], limit, now_us))
            reset_cell(s, &s->sim.cells[i]);
}

/* The same for penalties; the numbers of the rule may have changed since. */
static bool reset_forgotten(struct schedule *s, int64_t next)
{
    for (size_t i = 0; i < s->sim.punished_count; i++) {
        const struct sim_punished *x = &s->sim.punished[i];
        const struct sim_rule *rule = sim_punisher(&s->sim, x);
        if (x->latest_us < x->forgotten_us || (x->level == 0 && x->count == 0))
            continue;
        if (!rule)
            return false;
        if (rule->penalty.after == 0 || !sim_forgiven_at(x, &rule->penalty, next))
            reset(s, rule, &(struct sim_request){ .event = x->event, .key = x->key, .user = x->user, .entry = x->entry });
    }
    return true;
}

/* A cell that has decayed may be gone when the clock goes back to before that: the table had every right to give it away.
 * It is reset in both, so that neither has it. False: it cannot be, since no rule has it now. */
static bool reset_decayed(struct schedule *s, int64_t next)
{
    for (size_t i = 0; i < s->sim.cell_count; i++) {
        struct sim_cell *c = &s->sim.cells[i];
        if (sim_unused_at(c, c->latest_us) && !sim_unused_at(c, next) && !reset_cell(s, c))
            return false;
    }
    return reset_forgotten(s, next);
}

static void move_clock(struct schedule *s)
{
    int64_t next = pick_now(s) / s->quantum_us * s->quantum_us;
    if (next < EARLIEST || next > LATEST || !reset_decayed(s, next))
        return;
    s->now_us = next;
    reset_doubtful(s, next);
    for (size_t i = 0; i < s->sim.cell_count; i++)
        if (s->sim.cells[i].latest_us < next)
            s->sim.cells[i].latest_us = next;
    for (size_t i = 0; i < s->sim.punished_count; i++)
        if (s->sim.punished[i].latest_us < next)
            s->sim.punished[i].latest_us = next;
}

/* ---- schedules ---- */

static void begin(struct schedule *s, struct weir *weir, uint64_t seed, bool loud)
{
    *s = (struct schedule){ .seed = seed, .rnd = { seed * UINT64_C(0x9e3779b97f4a7c15) }, .weir = weir, .loud = loud };
#ifdef SIM_STORE
    s->style = WINDOWS;
    s->sim.one_clock = true;
#else
    s->style = (enum style)(seed % STYLES);
#endif
    s->quantum_us = s->style == MILLISECONDS ? MS : 1;
    /* No wait gets longer than 2^50 µs, of which the engine would only say "long". */
    s->longest_us = s->style == MILLISECONDS ? WEEK : random_scaled(&s->rnd, 3650 * 86400 * S / MS) * MS;
    int64_t most = (INT64_C(1) << 50) / s->longest_us;
    s->most = (uint32_t)random_scaled(&s->rnd, most < 2 ? 2 : most < UINT32_MAX ? most : UINT32_MAX);
    s->now_us = pick(s, EARLIEST / MS, LATEST / MS) * MS;
    s->sim.rule_count = (size_t)pick(s, 1, SIM_RULES);
    for (size_t i = 0; i < s->sim.rule_count; i++)
        pick_rule(s, &s->sim.rules[i], i);
    put_in_force(s);
}

static void run(struct schedule *s)
{
    for (s->step = 0; s->step < STEPS; s->step++) {
        if (one_in(s, 15)) {
            change_rules(s);
            reset_doubtful(s, s->now_us);
            reset_forgotten(s, s->now_us);
        } else if (one_in(s, 25)) {
            reset_some(s);
        } else {
            ask(s);
        }
        move_clock(s);
    }
}

#ifdef SIM_STORE
static struct redis_server server;

static void use_store(struct weir_options *options)
{
    static char address[60];
    assert_true(redis_server_start(&server));
    snprintf(address, sizeof address, "redis://127.0.0.1:%u", server.port);
    options->counters = address;
    options->store_deadline_ms = 60000;
    options->store_hosts = 1;
}

static void begin_store(struct weir *weir)
{
    struct weir_store_status status = { 0 };
    weir->store_by_now = true;
    while (!status.up)
        weir_store_status(weir, &status);
}

static void end_store(void)
{
    redis_server_stop(&server);
}
#else
static void use_store(struct weir_options *options)
{
    (void)options;
}

static void begin_store(struct weir *weir)
{
    (void)weir;
}

static void end_store(void)
{
}
#endif

/* A table of its own kind: large, so that its few cells do not meet, and with a secret that is none, so that a schedule
 * does the same in every run. */
static struct weir *open_table(void)
{
    struct weir_options options = { .size = sizeof options, .rules_text = "rules: []", .cells_bytes = INT64_C(1) << 29 };
    struct weir_error error = { .code = WEIR_OK };
    struct weir *weir;
    use_store(&options);
    if (weir_open(&weir, &options, &error) < 0)
        fail_msg("%s", error.text);
    weir->cells->secret = (struct hash_key){ 1, 2 };
    begin_store(weir);
    return weir;
}

static void every_verdict_is_the_models(void **state)
{
    (void)state;
    static struct schedule s;
    struct weir *weir = open_table();
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t first = random_seed(), count = rounds ? strtoull(rounds, NULL, 0) : SCHEDULES;
    for (uint64_t seed = first; seed < first + count; seed++) {
        begin(&s, weir, seed, getenv("TEST_LOUD") != NULL);
        run(&s);
    }
    weir_close(weir);
    end_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_verdict_is_the_models) };
    return cmocka_run_group_tests_name("sim/engine", tests, NULL, NULL);
}
