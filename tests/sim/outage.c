/* Outages that follow each other, on a virtual clock: the engine of several hosts, with real cells files, against a store
 * that this file plays. It answers, answers late, loses answers, refuses, goes and comes back; hosts are restarted; rules
 * change.
 *
 * What each host lets through in place of the store is compared with a plain limiter of max / hosts (tests/limit/model.c)
 * that sees the same requests and that nothing ever empties. What the store is charged is compared with what was let
 * through.
 *
 * TEST_SEED is the seed of the first schedule, TEST_ROUNDS how many there are for each kind of rule. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../limit/model.h"
#include "../limit/random.h"
#include "engine/handle.h"
#include "engine/store.h"
#include "slices/debt.h"
#include "slices/lender.h"
#include "slices/slice.h"

#define HOUR_US (3600 * US_PER_S)
#define DAY_US (24 * HOUR_US)
#define T0_US (INT64_C(1700000000) * US_PER_S)

enum {
    SCHEDULES = 30,
    STEPS = 60,
    HOSTS_MOST = 3,
    LATE_MOST = 8,
    PER_HOURS = 84 /* divides a week: then buckets are exact */
};

/* How the store treats the next questions. */
enum mood { ANSWERS, IS_AWAY, IS_LATE, LOSES_CHARGED, LOSES_UNCHARGED, FAILS, MOODS };

/* One host's view of the store: behind `struct store` of engine/store.h. */
struct store {
    struct cells *cells;
    struct lender *lender;
    struct late_call {
        struct store_call *call;
        struct model_receipt counted; /* by the stand-in in its place */
        bool passed;
    } late[LATE_MOST];
    size_t late_count;
};

struct host {
    struct weir *weir;
    struct store *store;
    char file[300];
    int64_t ahead_us;          /* its clock less the store's */
    uint64_t slice;            /* the cell, once it was asked for */
    struct model_cell standin; /* the plain limiter */
};

/* ---- the world: one schedule at a time ---- */

static struct world {
    struct random rnd;
    uint64_t seed;
    struct model_limit limit; /* of the rule */
    bool leased;
    bool steady; /* one window for all, and neither rules nor hosts change: then sums can be compared */
    bool calendar;
    enum mood mood;
    int64_t now_us; /* the store's clock */
    uint32_t hosts; /* as the store tells them */
    struct host host[HOSTS_MOST];
    size_t host_count;
    struct host *asking;

    struct model_cell cell; /* what the store has charged */
    struct model_receipt charged;
    uint64_t passed; /* tokens, by whomever */
    uint64_t lost;   /* charged in the store, and let nobody through */
} w;

static struct window window_at(int64_t us)
{
    int64_t length_us = w.steady ? 0 : DAY_US;
    if (!length_us) /* "year" of schedules that stay in one */
        return (struct window){ INT64_C(1672531200) * US_PER_S, INT64_C(1704067200) * US_PER_S };
    return (struct window){ us / length_us * length_us, us / length_us * length_us + length_us };
}

static struct model_limit unbounded(void)
{
    struct model_limit free = w.limit;
    free.burst = UINT32_MAX;
    if (free.algorithm != LIMIT_TOKEN_BUCKET)
        free.max = UINT32_MAX;
    return free;
}

static void charge_unbounded(uint32_t cost)
{
    struct model_limit free = unbounded();
    struct window window = window_at(w.now_us);
    if (cost > 0 && free.max > 0)
        assert_true(model_take(&free, &window, &w.cell, w.now_us, cost, NULL).fits);
}

/* ---- the store, as the engine asks for it ---- */

static int store_open(struct store **ret, const struct store_options *options, struct cells *cells,
                      struct weir_error *error)
{
    (void)options, (void)error;
    struct store *store = calloc(1, sizeof *store);
    assert_non_null(store);
    store->cells = cells;
    assert_int_equal(lender_new(&store->lender, cells), 0);
    w.asking->store = *ret = store;
    return 0;
}

static bool store_up(const struct store *store)
{
    (void)store;
    return w.mood != IS_AWAY;
}

static uint32_t store_hosts(const struct store *store)
{
    (void)store;
    return w.hosts;
}

static const struct host *host_of(const struct store *store)
{
    const struct host *host = w.host;
    while (host->store != store)
        host++;
    return host;
}

static int64_t store_offset_us(const struct store *store)
{
    return -host_of(store)->ahead_us;
}

static void end_call(struct store_call *call, enum store_result result)
{
    call->result = result;
    store_call_answered(call);
}

/* True: it was let through. */
static bool decide(struct store_call *call)
{
    struct store_cell *cell = &call->rules[0].cells[0];
    struct window window = window_at(w.now_us);
    call->server_us = w.now_us;
    assert_true(call->rule_count == 1 && call->rules[0].cell_count == 1);
    if (w.calendar && cell->window.end_us <= w.now_us) { /* one that is delivered a day later */
        end_call(call, STORE_STALE);
        return false;
    }
    if (w.calendar)
        assert_memory_equal(&cell->window, &window, sizeof window);
    charge_unbounded(cell->debt);
    struct model_answer answer = call->charge ? model_take(&w.limit, &window, &w.cell, w.now_us, cell->cost, &w.charged)
                                              : model_look(&w.limit, &window, &w.cell, w.now_us, cell->cost);
    cell->state = (struct limit_state){ 0 };
    call->allowed = cell->fits = call->rules[0].fits = answer.fits;
    end_call(call, STORE_DECIDED);
    return answer.fits;
}

static void store_post(struct store *store, struct store_call *call)
{
    uint64_t debt = call->rules[0].cells[0].debt;
    call->link = NULL;
    switch (w.mood) {
    case IS_LATE:
        assert_true(store->late_count < LATE_MOST);
        store->late[store->late_count++] = (struct late_call){ .call = call };
        return;
    case ANSWERS:
        decide(call);
        break;
    case LOSES_CHARGED:
        w.lost += debt;
        w.lost += decide(call) ? call->rules[0].cells[0].cost : 0;
        call->rules[0].cells[0].debt = debt;
        end_call(call, STORE_LOST);
        break;
    case LOSES_UNCHARGED:
        end_call(call, STORE_LOST);
        break;
    default:
        end_call(call, STORE_FAILED);
    }
    call->done(call);
}

/* Of a late call, whose answer has just come. */
static void store_refund(struct store_link *link, const struct store_call *call)
{
    (void)link, (void)call;
    model_refund(&w.limit, &w.charged, &w.cell, w.now_us);
}

/* ---- slices ---- */

static struct lent lend(const struct lend_call *call)
{
    const struct slice_ask *ask = &call->ask;
    struct window window = window_at(w.now_us);
    charge_unbounded(call->debt);
    uint32_t room = model_look(&w.limit, &window, &w.cell, w.now_us, 0).remaining, lent = 0;
    if (call->lacks <= room && room > 0) {
        uint32_t part = room / (2 * w.hosts), need = ask->need < room ? ask->need : room;
        lent = ask->slice < part ? ask->slice : part;
        lent = lent < need ? need : lent;
        assert_true(model_take(&w.limit, &window, &w.cell, w.now_us, lent, NULL).fits);
    }
    bool open = w.cell.count > 0 && w.cell.end_us > w.now_us;
    int64_t end_us = open ? w.cell.end_us : w.calendar ? window.end_us : w.now_us + w.limit.per_us;
    return (struct lent){ .tokens = lent, .end_us = end_us, .server_us = w.now_us, .room = room - lent };
}

static void give_back(const struct lend_call *call)
{
    if (w.cell.end_us == call->end_us)
        w.cell.count = w.cell.count > call->tokens ? w.cell.count - call->tokens : 0;
}

/* Everything that the lender has to say goes to the store now, and what was lost is lost. */
static void carry(struct store *store)
{
    int64_t here_us = w.now_us + host_of(store)->ahead_us;
    for (struct lend_call *call; (call = lender_next(store->lender, here_us));) {
        bool takes = call->kind == LEND_TAKE;
        if (w.mood == ANSWERS || w.mood == LOSES_CHARGED) {
            struct lent lent = { 0 };
            if (takes)
                lent = lend(call);
            else
                give_back(call);
            w.lost += w.mood == LOSES_CHARGED && takes ? call->debt + lent.tokens : 0;
            lender_answer(store->lender, call, w.mood == ANSWERS ? LEND_ANSWERED : LEND_LOST, &lent, here_us);
            continue;
        }
        w.lost += takes || w.mood == IS_AWAY ? 0 : call->tokens;
        lender_answer(store->lender, call,
                      w.mood == IS_AWAY ? LEND_UNSENT
                      : w.mood == FAILS ? LEND_FAILED
                                        : LEND_LOST,
                      NULL, here_us);
    }
}

static bool store_want(struct store *store, const struct slice_ask *ask)
{
    bool room = lender_ask(store->lender, ask);
    w.asking->slice = ask->cell;
    carry(store);
    return room;
}

static void store_recall(struct store *store)
{
    lender_recall(store->lender, w.now_us + host_of(store)->ahead_us);
    carry(store);
}

/* ---- late answers ---- */

static struct model_limit share_of(void)
{
    struct model_limit share = w.limit;
    share.max /= w.hosts;
    share.burst /= w.hosts;
    if (w.limit.algorithm == LIMIT_TOKEN_BUCKET && share.burst == 0)
        share.max = 0;
    return share;
}

/* What the host counted in the store's place is there now: it passed by the store. (A decision that waits reads the real
 * clock, for which no time has passed since.) */
static void deliver(struct host *host, bool charged)
{
    struct store *store = host->store;
    for (size_t i = 0; i < store->late_count; i++) {
        struct late_call late = store->late[i];
        struct model_limit share = share_of();
        end_call(late.call, STORE_LOST);
        bool allowed = charged && decide(late.call);
        if (late.passed && allowed)
            model_refund(&share, &late.counted, &host->standin, late.counted.taken_us);
        late.call->done(late.call);
    }
    store->late_count = 0;
}

static void store_close(struct store *store)
{
    deliver(w.asking, false);
    lender_recall(store->lender, w.now_us + w.asking->ahead_us);
    carry(store);
    w.lost += lender_counts(store->lender).held; /* could not be sent */
    lender_free(store->lender);
    free(store);
}

static void store_count_event(struct store *store, enum store_event event, uint64_t n)
{
    (void)store, (void)event, (void)n;
}

/* Nobody asks in an event loop here. */
static const struct store_ops played = {
    .open = store_open,
    .close = store_close,
    .up = store_up,
    .hosts = store_hosts,
    .offset_us = store_offset_us,
    .count = store_count_event,
    .post = store_post,
    .want = store_want,
    .recall = store_recall,
    .link_settle = store_refund,
};

/* ---- hosts ---- */

static const char *rules_text(void)
{
    static const char *const names[] = { "token_bucket", "fixed_window", "sliding_window" };
    static char text[400];
    char limit[200];
    if (w.calendar)
        snprintf(limit, sizeof limit, "calendar: %s, max: %" PRIu64, w.steady ? "year" : "day", w.limit.max);
    else
        snprintf(limit, sizeof limit, "algorithm: %s, max: %" PRIu64 ", per: %lldh", names[w.limit.algorithm], w.limit.max,
                 (long long)(w.limit.per_us / HOUR_US));
    if (w.limit.algorithm == LIMIT_TOKEN_BUCKET)
        snprintf(limit + strlen(limit), sizeof limit - strlen(limit), ", burst: %" PRIu64, w.limit.burst);
    snprintf(text, sizeof text, "rules:\n  - { id: r, match: { event: e }, by: [key]%s, limits: [ { name: n, %s } ] }\n",
             w.leased ? ", lease: { slice: 10%, ttl: 1h }" : "", limit);
    return text;
}

static void open_host(struct host *host)
{
    struct weir_error error = { 0 };
    struct weir_options options = { .size = sizeof options,
                                    .cells_file = host->file,
                                    .cells_keys = 1000,
                                    .rules_text = rules_text(),
                                    .counters = "redis://played",
                                    .store_deadline_ms = 1 };
    w.asking = host;
    if (weir_open_with(&host->weir, &options, &played, false, &error) < 0)
        fail_msg("%s", error.text);
}

static void close_host(struct host *host)
{
    w.asking = host;
    weir_close(host->weir);
}

/* ---- one request ---- */

static int64_t here_us(const struct host *host)
{
    return w.now_us + host->ahead_us;
}

/* The host asks neither the store nor the stand-in: its slice has enough, or the store has just said that it has no more.
 */
static bool by_slice(const struct host *host, uint32_t cost)
{
    return w.leased && host->slice &&
           slice_spend(host->store->cells, host->slice, 1, w.limit.max, here_us(host), cost, false).outcome != SLICE_SHORT;
}

static void expect_as_alone(struct host *host, uint32_t cost, bool passed)
{
    struct model_limit share = share_of();
    struct model_receipt receipt = { 0 };
    struct window window = window_at(w.now_us);
    window.start_us += host->ahead_us;
    window.end_us += host->ahead_us;
    bool alone = model_take(&share, &window, &host->standin, here_us(host), cost, &receipt).fits;
    if (passed != alone)
        fail_msg("seed %llu: a cost of %u %s in place of the store, of %llu for this host", (unsigned long long)w.seed,
                 cost, passed ? "passes" : "is refused", (unsigned long long)model_capacity(&share));
    if (w.mood == IS_LATE && !w.leased) {
        struct late_call *late = &host->store->late[host->store->late_count - 1];
        late->counted = receipt;
        late->passed = passed;
    }
}

static void ask(struct host *host, uint32_t cost)
{
    struct weir_verdict verdict;
    struct weir_request request = { .event = weir_str("e"), .key = weir_str("k"), .cost = cost };
    bool away = w.mood != ANSWERS && !by_slice(host, cost) && cost <= model_capacity(&w.limit);
    w.asking = host;
    assert_int_equal(weir_check(host->weir, &request, here_us(host), &verdict), 0);
    w.passed += verdict.allowed ? cost : 0;
    if (away)
        expect_as_alone(host, cost, verdict.allowed);
}

/* ---- schedules ---- */

static int64_t pick(int64_t low, int64_t high)
{
    return random_in(&w.rnd, low, high);
}

static void pass_time(void)
{
    if (w.steady)
        w.now_us += pick(1000, 5000) * US_PER_MS;
    else
        w.now_us += random_scaled(&w.rnd, 60 * HOUR_US / US_PER_MS) * US_PER_MS + US_PER_S;
}

/* All that is late arrives before the store is another or a host goes. */
static void deliver_all(void)
{
    for (size_t i = 0; i < w.host_count; i++) {
        w.asking = &w.host[i];
        deliver(&w.host[i], pick(0, 3) > 0);
    }
}

static void change_mood(void)
{
    deliver_all();
    w.mood = pick(0, 1) ? ANSWERS : (enum mood)pick(0, MOODS - 1);
    for (size_t i = 0; w.mood == ANSWERS && i < w.host_count; i++) {
        lender_sweep(w.host[i].store->lender, true, here_us(&w.host[i]));
        carry(w.host[i].store);
    }
}

static void change_rules(void)
{
    deliver_all();
    w.hosts = (uint32_t)pick(1, 4);
    w.limit.max = (uint32_t)pick(1, 30);
    for (size_t i = 0; i < w.host_count; i++) {
        struct weir_error error = { 0 };
        w.asking = &w.host[i];
        if (weir_set_rules(w.host[i].weir, rules_text(), strlen(rules_text()), &error) < 0)
            fail_msg("%s", error.text);
    }
}

static void restart(struct host *host)
{
    close_host(host);
    open_host(host);
}

static void step(void)
{
    struct host *host = &w.host[pick(0, (int64_t)w.host_count - 1)];
    pass_time();
    if (pick(0, 5) == 0)
        change_mood();
    else if (pick(0, 30) == 0)
        restart(host);
    else if (!w.steady && pick(0, 30) == 0)
        change_rules();
    else if (host->store->late_count == LATE_MOST)
        deliver(host, true);
    else
        ask(host, (uint32_t)pick(1, 2));
}

static void begin(uint64_t seed, enum limit_algorithm algorithm, bool leased, uint32_t hosts, bool steady)
{
    w = (struct world){ .rnd = { seed }, .seed = seed, .leased = leased, .steady = steady, .hosts = hosts };
    w.host_count = hosts;
    w.calendar = algorithm == LIMIT_CALENDAR;
    w.limit = (struct model_limit){ .algorithm = algorithm, .max = (uint32_t)pick(10, 40) };
    w.limit.per_us = w.calendar ? 0 : PER_HOURS * HOUR_US;
    if (algorithm == LIMIT_TOKEN_BUCKET)
        w.limit.burst = pick(0, 2) ? w.limit.max : (uint32_t)pick(1, 50);
    w.now_us = T0_US + pick(0, 1000) * US_PER_S;
    for (size_t i = 0; i < w.host_count; i++) {
        w.host[i].ahead_us = pick(-600, 600) * US_PER_S;
        const char *folder = getenv("TMPDIR");
        snprintf(w.host[i].file, sizeof w.host[i].file, "%s/sim_outage.%d.%zu.cells", folder ? folder : "/tmp",
                 (int)getpid(), i);
        unlink(w.host[i].file);
        open_host(&w.host[i]);
    }
}

/* The store is back for good, and everybody settles. */
static void compare_sums(void)
{
    uint64_t most = model_capacity(&w.limit);
    struct model_limit share = share_of();
    deliver_all();
    w.mood = ANSWERS;
    for (size_t i = 0; i < w.host_count; i++) {
        struct host *host = &w.host[i];
        w.asking = host;
        store_recall(host->store);
        lender_sweep(host->store->lender, true, here_us(host));
        carry(host->store);
        w.now_us += US_PER_S;
        ask(host, 1);
        store_recall(host->store);
        most += model_capacity(&share);
    }
    bool bucket = w.limit.algorithm == LIMIT_TOKEN_BUCKET;
    uint64_t count = bucket ? (uint64_t)((w.cell.used + w.limit.per_us - 1) / w.limit.per_us) : w.cell.count;
    if (w.passed > most)
        fail_msg("seed %llu: %llu have passed, with %u hosts and a limit of %llu", (unsigned long long)w.seed,
                 (unsigned long long)w.passed, w.hosts, (unsigned long long)model_capacity(&w.limit));
    if (count != w.passed + w.lost)
        fail_msg("seed %llu: %llu are charged, %llu have passed, %llu were lost", (unsigned long long)w.seed,
                 (unsigned long long)count, (unsigned long long)w.passed, (unsigned long long)w.lost);
}

static void run(uint64_t seed, enum limit_algorithm algorithm, bool leased, uint32_t hosts, bool steady)
{
    begin(seed, algorithm, leased, hosts, steady);
    for (int i = 0; i < STEPS; i++)
        step();
    if (steady)
        compare_sums();
    deliver_all();
    for (size_t i = 0; i < w.host_count; i++) {
        close_host(&w.host[i]);
        unlink(w.host[i].file);
    }
}

static void run_all(enum limit_algorithm algorithm, bool leased)
{
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t seed = random_seed(), count = rounds ? strtoull(rounds, NULL, 0) : SCHEDULES;
    for (uint64_t i = 0; i < count; i++)
        for (unsigned kind = 0; kind < 4; kind++)
            run(seed + i, algorithm, leased, kind & 1 ? 3 : 1, kind & 2);
}

static void test_bucket(void **state)
{
    (void)state;
    run_all(LIMIT_TOKEN_BUCKET, false);
}

static void test_fixed(void **state)
{
    (void)state;
    run_all(LIMIT_FIXED_WINDOW, false);
}

static void test_sliding(void **state)
{
    (void)state;
    run_all(LIMIT_SLIDING_WINDOW, false);
}

static void test_calendar(void **state)
{
    (void)state;
    run_all(LIMIT_CALENDAR, false);
}

static void test_leased_fixed(void **state)
{
    (void)state;
    run_all(LIMIT_FIXED_WINDOW, true);
}

static void test_leased_calendar(void **state)
{
    (void)state;
    run_all(LIMIT_CALENDAR, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bucket),   cmocka_unit_test(test_fixed),        cmocka_unit_test(test_sliding),
        cmocka_unit_test(test_calendar), cmocka_unit_test(test_leased_fixed), cmocka_unit_test(test_leased_calendar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
