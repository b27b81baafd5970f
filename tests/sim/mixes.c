/* Local, leased and exact rules in one request, in every mix, and requests that are decided together: the steps of a
 * decision, driven by hand against a store that this file plays. It answers, answers late, loses answers, fails, finds
 * stale windows, goes and comes back; slices come at once, after a while, or never.
 *
 * What holds, whatever happens: a request that passes is charged once by each rule, wherever that counts just then, and one
 * that is refused is charged nowhere, unless it is charged always (a ledger of each rule and subject); counters are taken
 * in the order of their keys.
 *
 * TEST_SEED is the seed of the first schedule, TEST_ROUNDS how many there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "engine/counter.h"
#include "engine/handle.h"
#include "engine/remote.h"
#include "slices/lender.h"
#include "slices/slice.h"

#define T0_US (INT64_C(1700000000) * US_PER_S)
#define WINDOW_END_US (T0_US + INT64_C(84) * 3600 * US_PER_S)

enum { SCHEDULES = 400, STEPS = 80, RULES = 9, USERS = 2, PARTS = 3, LATE_MOST = 64 };

static const struct {
    const char *id, *more, *methods, *limit;
} rules[RULES] = {
    { "l0", "counters: local", "A, B, C" },
    { "l1", "counters: local", "A, B, D" },
    { "s0", "lease: true", "A, B, E" },
    { "s1", "lease: true, on_store_failure: allow", "A, E" },
    { "so", "lease: true", "A, B, D", ", overdraft: true" },
    { "e0", "", "A, C, D, E" },
    { "e1", "on_store_failure: deny", "A, C" },
    { "xs", "lease: true, mode: shadow", "A, B" },
    { "xe", "mode: shadow", "A, C, E" },
};

enum mood { ANSWERS, IS_AWAY, IS_LATE, LOSES_CHARGED, LOSES_UNCHARGED, FAILS, MOODS };

/* One rule and one user. */
struct ledger {
    uint32_t store;          /* charged or lent there */
    uint64_t passed, always; /* let through; charged whatever the others said */
    uint64_t extra;          /* charged in the store for nobody: the answer was lost */
};

struct store {
    struct cells *cells;
    struct lender *lender;
};

static struct world {
    struct random rnd;
    enum mood mood;
    uint32_t hosts, max[RULES];
    struct weir *weir;
    struct store *store;
    struct ledger ledger[RULES][USERS];
    struct decision *late[LATE_MOST];
    size_t late_count;
} w;

static struct ledger *ledger_of(struct weir_str key, uint32_t *ret_max)
{
    char id[3];
    int user;
    assert_int_equal(sscanf(key.ptr, "{u%d}:%2[^:]", &user, id), 2);
    for (size_t i = 0; i < RULES; i++)
        if (strcmp(rules[i].id, id) == 0) {
            *ret_max = w.max[i];
            return &w.ledger[i][user];
        }
    fail();
    return NULL;
}

/* ---- the store ---- */

static bool insists(const struct store_rule *rule)
{
    return rule->cells[0].charging == WEIR_CHARGE_ALWAYS;
}

/* Such rules come first. */
static void look_at_rule(struct store_rule *rule, bool charge)
{
    uint32_t max;
    struct ledger *l = ledger_of(rule->key, &max);
    struct store_cell *cell = &rule->cells[0];
    assert_int_equal(rule->cell_count, 1);
    l->store += cell->debt;
    cell->fits = rule->fits = l->store + cell->cost <= max;
    l->store += charge && insists(rule) ? cell->cost : 0;
    cell->state = limit_count_state(&(struct limit_count){ .end_us = WINDOW_END_US, .count = l->store });
}

static void charge_rule(struct store_rule *rule)
{
    uint32_t max;
    struct ledger *l = ledger_of(rule->key, &max);
    if (insists(rule) || !rule->fits)
        return;
    l->store += rule->cells[0].cost;
    rule->cells[0].state = limit_count_state(&(struct limit_count){ .end_us = WINDOW_END_US, .count = l->store });
}

static void decide(struct store_call *call)
{
    call->result = STORE_DECIDED;
    call->server_us = T0_US;
    call->allowed = true;
    for (size_t i = 0; i < call->rule_count; i++) {
        assert_true(i == 0 || !insists(&call->rules[i]) || insists(&call->rules[i - 1]));
        look_at_rule(&call->rules[i], call->charge);
        call->allowed = call->allowed && (call->rules[i].fits || call->rules[i].shadow);
    }
    for (size_t i = 0; call->allowed && call->charge && i < call->rule_count; i++)
        charge_rule(&call->rules[i]);
}

/* Charged there, and nobody knows it. */
static void lose(struct store_call *call)
{
    uint32_t max;
    decide(call);
    for (size_t i = 0; i < call->rule_count; i++) {
        struct store_rule *rule = &call->rules[i];
        bool charged = call->charge && (insists(rule) || (call->allowed && rule->fits));
        ledger_of(rule->key, &max)->extra += rule->cells[0].debt + (charged ? rule->cells[0].cost : 0);
    }
    call->result = STORE_LOST;
}

static void take_back(struct store_link *link, const struct store_call *call)
{
    uint32_t max;
    (void)link;
    for (size_t i = 0; i < call->rule_count; i++)
        if (call->rules[i].fits)
            ledger_of(call->rules[i].key, &max)->store -= call->rules[i].cells[0].cost - call->rules[i].cells[0].to;
}

/* The lender's messages. */
static void carry(void)
{
    for (struct lend_call *call; (call = lender_next(w.store->lender, T0_US));) {
        uint32_t max;
        struct ledger *l = ledger_of((struct weir_str){ call->ask.key, call->ask.key_len }, &max);
        struct lent lent = { .end_us = WINDOW_END_US, .server_us = T0_US };
        bool arrives = w.mood == ANSWERS || w.mood == LOSES_CHARGED, answers = w.mood == ANSWERS;
        if (arrives && call->kind == LEND_TAKE) {
            l->store += call->debt;
            lent.room = l->store < max ? max - l->store : 0;
            lent.tokens = call->lacks <= lent.room ? (call->ask.need < lent.room ? call->ask.need : lent.room) : 0;
            lent.room -= lent.tokens;
            l->store += lent.tokens;
            l->extra += answers ? 0 : call->debt + lent.tokens;
        } else if (arrives) {
            l->store -= call->tokens;
        } else if (call->kind == LEND_RETURN) {
            l->extra += call->tokens;
        }
        lender_answer(w.store->lender, call, answers ? LEND_ANSWERED : LEND_LOST, &lent, T0_US);
    }
}

static int store_open(struct store **ret, const struct store_options *options, struct cells *cells,
                      struct weir_error *error)
{
    (void)options, (void)error;
    *ret = w.store = calloc(1, sizeof *w.store);
    assert_non_null(w.store);
    w.store->cells = cells;
    return lender_new(&w.store->lender, cells);
}

static void store_close(struct store *store)
{
    if (!store)
        return;
    lender_free(store->lender);
    free(store);
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

static int64_t store_offset_us(const struct store *store)
{
    (void)store;
    return 0;
}

static void store_count(struct store *store, enum store_event event, uint64_t n)
{
    (void)store, (void)event, (void)n;
}

static bool store_want(struct store *store, const struct slice_ask *ask)
{
    return lender_ask(store->lender, ask);
}

static const struct store_ops played = {
    .open = store_open,
    .close = store_close,
    .up = store_up,
    .hosts = store_hosts,
    .offset_us = store_offset_us,
    .count = store_count,
    .want = store_want,
    .link_settle = take_back,
};

/* ---- the driver ---- */

/* A shadow rule that was looked at has its own order there, after the others. */
static bool is_ordered(const struct decision *d)
{
    return d->allowed && d->enforced > 1 && d->charges && d->order[0] < d->counters + d->enforced;
}

static void check_order(const struct decision *d)
{
    for (size_t i = 1; is_ordered(d) && i < d->enforced; i++)
        assert_true(d->order[i - 1]->ask.key < d->order[i]->ask.key ||
                    (d->parts > 1 && d->order[i - 1]->ask.key == d->order[i]->ask.key));
}

/* Returns false if the answer comes when the decision has been made. */
static bool answer(struct decision *d)
{
    struct store_call *call = &d->remote->call;
    enum mood mood = w.mood == IS_LATE && w.late_count == LATE_MOST ? LOSES_UNCHARGED : w.mood;
    call->server_us = T0_US;
    if (mood == IS_LATE) {
        decision_late(d);
        w.late[w.late_count++] = d;
        return false;
    }
    if (mood == ANSWERS && random_one_in(&w.rnd, 5))
        call->result = STORE_STALE;
    else if (mood == ANSWERS)
        decide(call);
    else if (mood == LOSES_CHARGED)
        lose(call);
    else
        call->result = mood == LOSES_UNCHARGED ? STORE_LOST : STORE_FAILED;
    decision_answered(d);
    return true;
}

static void drive(struct decision *d)
{
    int waits = (int)random_in(&w.rnd, 0, 2);
    bool over = true;
    if (d->remote)
        d->remote->may_wait = waits > 0;
    decision_run(d);
    while (over && d->state != DECISION_DONE) {
        if (d->state == DECISION_CALL) {
            over = answer(d);
            assert_int_not_equal(d->state, DECISION_SLICES); /* drivers wait for slices before the call only */
            continue;
        }
        if (random_one_in(&w.rnd, 2))
            carry();
        d->remote->may_wait = --waits > 0;
        decision_resume(d, T0_US);
    }
    check_order(d);
    if (over)
        decision_free(d);
}

static void enter(const struct weir_request *request, bool passed)
{
    bool always = request->charging == WEIR_CHARGE_ALWAYS;
    int user = request->user.ptr[1] - '0';
    for (size_t i = 0; i < RULES; i++)
        if (!strstr(rules[i].more, "shadow") &&
            memchr(rules[i].methods, request->method.ptr[0], strlen(rules[i].methods))) {
            w.ledger[i][user].passed += passed && !always ? request->cost : 0;
            w.ledger[i][user].always += always ? request->cost : 0;
        }
}

static void ask(void)
{
    static const char *const users[USERS] = { "u0", "u1" }, *const methods[] = { "A", "B", "C", "D", "E" };
    struct weir_request requests[PARTS] = { 0 };
    struct weir_verdict v, own[PARTS];
    sv names[PARTS];
    int count = random_one_in(&w.rnd, 2) ? 1 : (int)random_in(&w.rnd, 2, PARTS);
    bool peek = random_one_in(&w.rnd, 10);
    for (int i = 0; i < count; i++) {
        struct weir_request *r = &requests[i];
        names[i] = r->user = weir_str(users[random_in(&w.rnd, 0, USERS - 1)]);
        r->method = weir_str(methods[random_in(&w.rnd, 0, 4)]);
        r->cost = random_one_in(&w.rnd, 8) ? 0 : (uint64_t)random_scaled(&w.rnd, 4);
        r->charging = random_one_in(&w.rnd, 5) ? WEIR_CHARGE_ALWAYS : WEIR_CHARGE_IF_ROOM;
        r->peek = peek;
        r->own = &own[i];
        r->with = i + 1 < count ? &requests[i + 1] : NULL;
    }
    struct decision *d = decision_new(w.weir, w.weir->current, requests, names, T0_US, (size_t)count * RULES);
    assert_non_null(d);
    d->verdict = &v;
    drive(d);
    for (int i = 0; i < count; i++) {
        assert_true(own[i].allowed || !v.allowed);
        if (!peek)
            enter(&requests[i], v.allowed);
    }
}

static void deliver_late(bool charged)
{
    for (size_t i = 0; i < w.late_count; i++) {
        struct store_call *call = &w.late[i]->remote->call;
        call->result = STORE_LOST;
        if (charged)
            decide(call);
        decision_aftermath(w.late[i]);
        decision_free(w.late[i]);
    }
    w.late_count = 0;
}

/* ---- the ledger ---- */

/* What this host counts for a rule and a user, beyond what the store counts. */
static int64_t counted_here(size_t rule, int user)
{
    const struct bound *bound = w.weir->current;
    const struct bound_limit *limit = bound->rules[rule].own.limits;
    struct hash h;
    char text[8];
    struct limit_state seen;
    hash_init(&h, cells_hash_key(bound->cells));
    subject_add(&h, sv_of(text, (size_t)snprintf(text, sizeof text, "u%d", user)));
    uint64_t subject = hash_final(&h);
    struct cells_ask ask = { cell_key(limit, subject), &limit->limit, &(struct window){ 0 }, T0_US, 0 };
    struct cells_look look;
    cells_look(bound->cells, &ask, &look);
    if (bound->rules[rule].counter == COUNTER_CELL)
        return (int64_t)limit_state_count(look.state); /* also beyond max */
    int64_t owed = debt_amount(bound->cells, debt_cell_of(limit, subject), &limit->limit, ask.window, T0_US, &seen);
    uint64_t slice = slice_cell_of(bound->cells, limit, subject);
    return owed - slice_spend(bound->cells, slice, 1, limit->limit.max, T0_US, 0, false).left;
}

static void check_ledger(uint64_t seed)
{
    for (size_t i = 0; i < RULES; i++)
        for (int u = 0; u < USERS && !strstr(rules[i].more, "shadow"); u++) {
            const struct ledger *l = &w.ledger[i][u];
            int64_t charged = l->store + counted_here(i, u), due = (int64_t)(l->passed + l->always + l->extra);
            if (charged != due)
                fail_msg("seed %lu: %s of u%d: %ld charged, %ld due", seed, rules[i].id, u, charged, due);
            uint64_t most = w.max[i] + (!strncmp(rules[i].id, "l", 1) ? 0 : w.max[i] / w.hosts);
            if (!strstr(rules[i].more, "allow") && !rules[i].limit && l->passed > most)
                fail_msg("seed %lu: %s of u%d: %lu passed, at most %lu may", seed, rules[i].id, u, l->passed, most);
        }
}

static void open_world(uint64_t seed)
{
    static char text[2000];
    int n = snprintf(text, sizeof text, "rules:\n");
    w = (struct world){ .rnd = { seed } };
    w.hosts = (uint32_t)random_in(&w.rnd, 1, 3);
    for (size_t i = 0; i < RULES; i++) {
        w.max[i] = (uint32_t)random_in(&w.rnd, 1, 40);
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "  - {id: %s, match: {method: [%s]}, by: [user], %s%slimits: [{algorithm: fixed_window, max: %u, "
                      "per: 84h%s}]}\n",
                      rules[i].id, rules[i].methods, rules[i].more, *rules[i].more ? ", " : "", w.max[i],
                      rules[i].limit ? rules[i].limit : "");
    }
    struct weir_options options = {
        .size = sizeof options, .rules_text = text, .cells_keys = 1000, .counters = "redis://played"
    };
    struct weir_error error;
    if (weir_open_with(&w.weir, &options, &played, false, &error) < 0)
        fail_msg("%s\n%s", error.text, text);
}

static void every_mix_is_charged_once_or_not_at_all(void **state)
{
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t first = random_seed(), count = rounds ? strtoull(rounds, NULL, 10) : SCHEDULES;
    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        open_world(seed);
        for (int step = 0; step < STEPS; step++) {
            if (random_one_in(&w.rnd, 5))
                w.mood = random_one_in(&w.rnd, 2) ? ANSWERS : (enum mood)random_in(&w.rnd, 0, MOODS - 1);
            if (w.mood == ANSWERS && random_one_in(&w.rnd, 6))
                carry();
            ask();
            if (random_one_in(&w.rnd, 10))
                deliver_late(random_one_in(&w.rnd, 2));
            if (w.late_count == 0)
                check_ledger(seed);
        }
        deliver_late(true);
        check_ledger(seed);
        weir_close(w.weir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_mix_is_charged_once_or_not_at_all) };
    return cmocka_run_group_tests_name("sim/mixes", tests, NULL, NULL);
}
