/* A store that a test plays, and the ledger of what it and this host count: for sim/mixes and sim/cluster. Whoever includes
 * this defines `struct store` before, with `cells` and `lender`. */
#ifndef TESTS_SIM_PLAYED_H
#define TESTS_SIM_PLAYED_H

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

enum { RULES = 9, USERS = 2, CALL_RULES_MOST = 3 * RULES };

struct played_rule {
    const char *id, *more, *methods, *limit;
};

/* One rule and one user. */
struct ledger {
    uint32_t store;          /* charged or lent there */
    uint64_t passed, always; /* let through; charged whatever the others said */
    uint64_t extra;          /* charged in the store for nobody: the answer was lost */
};

static struct played {
    const struct played_rule *rules; /* RULES of them */
    struct random rnd;
    uint64_t seed;
    uint32_t hosts, max[RULES];
    struct weir *weir;
    struct store *store;
    struct ledger ledger[RULES][USERS];
} p;

static struct ledger *ledger_of(struct weir_str key, uint32_t *ret_max)
{
    char id[3];
    int user;
    assert_int_equal(sscanf(key.ptr, "{u%d}:%2[^:]", &user, id), 2);
    for (size_t i = 0; i < RULES; i++)
        if (strcmp(p.rules[i].id, id) == 0) {
            *ret_max = p.max[i];
            return &p.ledger[i][user];
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

static void end_call(struct store_call *call, enum store_result result)
{
    call->result = result;
    store_call_answered(call);
}

static void decide(struct store_call *call, int64_t server_us)
{
    call->server_us = server_us;
    call->allowed = true;
    for (size_t i = 0; i < call->rule_count; i++) {
        assert_true(i == 0 || !insists(&call->rules[i]) || insists(&call->rules[i - 1]));
        look_at_rule(&call->rules[i], call->charge);
        call->allowed = call->allowed && (call->rules[i].fits || call->rules[i].shadow);
    }
    for (size_t i = 0; call->allowed && call->charge && i < call->rule_count; i++)
        charge_rule(&call->rules[i]);
    end_call(call, STORE_DECIDED);
}

/* Charged there, and nobody knows it. */
static inline void lose(struct store_call *call, int64_t server_us)
{
    uint32_t max;
    uint64_t debts[CALL_RULES_MOST] = { 0 };
    assert_true(call->rule_count <= CALL_RULES_MOST);
    for (size_t i = 0; i < call->rule_count; i++) {
        debts[i] = call->rules[i].cells[0].debt;
        ledger_of(call->rules[i].key, &max)->extra += debts[i];
    }
    decide(call, server_us);
    for (size_t i = 0; i < call->rule_count; i++) {
        struct store_rule *rule = &call->rules[i];
        bool charged = call->charge && (insists(rule) || (call->allowed && rule->fits));
        ledger_of(rule->key, &max)->extra += charged ? rule->cells[0].cost : 0;
        rule->cells[0].debt = debts[i];
    }
    end_call(call, STORE_LOST);
}

static void settle_rule(const struct store_rule *rule)
{
    uint32_t max;
    ledger_of(rule->key, &max)->store -= rule->cells[0].cost - rule->cells[0].to;
}

/* A message of the lender, which the store may get, and may answer. Returns the answer. */
static inline struct lent carry_there(const struct lend_call *call, bool arrives, bool answers)
{
    uint32_t max;
    struct ledger *l = ledger_of((struct weir_str){ call->ask.key, call->ask.key_len }, &max);
    struct lent lent = { .end_us = WINDOW_END_US, .server_us = T0_US };
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
    return lent;
}

static inline void carry_one(struct lend_call *call, bool arrives, bool answers)
{
    struct lent lent = carry_there(call, arrives, answers);
    lender_answer(p.store->lender, call, answers ? LEND_ANSWERED : LEND_LOST, &lent, T0_US);
}

static int played_open(struct store **ret, const struct store_options *options, struct cells *cells,
                       struct weir_error *error)
{
    (void)options, (void)error;
    *ret = p.store = calloc(1, sizeof *p.store);
    assert_non_null(p.store);
    p.store->cells = cells;
    return lender_new(&p.store->lender, cells);
}

static void played_close(struct store *store)
{
    if (!store)
        return;
    lender_free(store->lender);
    free(store);
}

static uint32_t played_hosts(const struct store *store)
{
    (void)store;
    return p.hosts;
}

static int64_t played_offset_us(const struct store *store)
{
    (void)store;
    return 0;
}

static inline void played_count(struct store *store, enum store_event event, uint64_t n)
{
    (void)store, (void)event, (void)n;
}

static bool played_want(struct store *store, const struct slice_ask *ask)
{
    return lender_ask(store->lender, ask);
}

/* ---- requests and the ledger ---- */

static void enter(const struct weir_request *request, bool passed)
{
    bool always = request->charging == WEIR_CHARGE_ALWAYS;
    int user = request->user.ptr[1] - '0';
    for (size_t i = 0; i < RULES; i++)
        if (!strstr(p.rules[i].more, "shadow") &&
            memchr(p.rules[i].methods, request->method.ptr[0], strlen(p.rules[i].methods))) {
            p.ledger[i][user].passed += passed && !always ? request->cost : 0;
            p.ledger[i][user].always += always ? request->cost : 0;
        }
}

/* A request of a random user, method, cost and way of charging. */
static inline struct weir_request random_request(void)
{
    static const char *const users[USERS] = { "u0", "u1" }, *const methods[] = { "A", "B", "C", "D", "E" };
    struct weir_request r = { 0 };
    r.user = weir_str(users[random_in(&p.rnd, 0, USERS - 1)]);
    r.method = weir_str(methods[random_in(&p.rnd, 0, 4)]);
    r.cost = random_one_in(&p.rnd, 8) ? 0 : (uint64_t)random_scaled(&p.rnd, 4);
    r.charging = random_one_in(&p.rnd, 5) ? WEIR_CHARGE_ALWAYS : WEIR_CHARGE_IF_ROOM;
    return r;
}

/* Returns what this host counts for a rule and a user beyond what the store counts. */
static int64_t counted_here(size_t rule, int user)
{
    const struct bound *bound = p.weir->current;
    const struct bound_limit *limit = bound->rules[rule].own.limits;
    struct hash h;
    char text[8];
    struct limit_state seen;
    hash_init(&h, cells_hash_key(bound->cells));
    subject_add(&h, sv_of(text, (size_t)snprintf(text, sizeof text, "u%d", user)));
    uint64_t subject = hash_final(&h);
    struct cells_ask ask = { cell_key(limit, subject), &limit->terms->limit, &(struct window){ 0 }, T0_US, 0 };
    struct cells_look look;
    cells_look(bound->cells, &ask, &look);
    if (bound->rules[rule].counter == COUNTER_CELL)
        return (int64_t)limit_state_count(look.state); /* also beyond max */
    int64_t owed = debt_amount(bound->cells, debt_cell_of(limit, subject), &limit->terms->limit, ask.window, T0_US, &seen);
    uint64_t slice = slice_cell_of(bound->cells, &bound->rules[rule], limit, subject);
    return owed - slice_spend(bound->cells, slice, 1, limit->terms->limit.max, T0_US, 0, false).left;
}

static void check_ledger(void)
{
    for (size_t i = 0; i < RULES; i++)
        for (int u = 0; u < USERS && !strstr(p.rules[i].more, "shadow"); u++) {
            const struct ledger *l = &p.ledger[i][u];
            int64_t charged = l->store + counted_here(i, u), due = (int64_t)(l->passed + l->always + l->extra);
            if (charged != due)
                fail_msg("seed %lu: %s of u%d: %ld charged, %ld due", p.seed, p.rules[i].id, u, charged, due);
            uint64_t most = p.max[i] + (!strncmp(p.rules[i].id, "l", 1) ? 0 : p.max[i] / p.hosts);
            if (!strstr(p.rules[i].more, "allow") && !p.rules[i].limit && l->passed > most)
                fail_msg("seed %lu: %s of u%d: %lu passed, at most %lu may", p.seed, p.rules[i].id, u, l->passed, most);
        }
}

/* Afterwards the test closes p.weir. */
static void open_played(const struct played_rule *rules, const struct store_ops *ops)
{
    static char text[2000];
    int n = snprintf(text, sizeof text, "rules:\n");
    p.rules = rules;
    p.hosts = (uint32_t)random_in(&p.rnd, 1, 3);
    for (size_t i = 0; i < RULES; i++) {
        p.max[i] = (uint32_t)random_in(&p.rnd, 1, 40);
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "  - {id: %s, match: {method: [%s]}, by: [user], %s%slimits: [{algorithm: fixed_window, max: %u, "
                      "per: 84h%s}]}\n",
                      rules[i].id, rules[i].methods, rules[i].more, *rules[i].more ? ", " : "", p.max[i],
                      rules[i].limit ? rules[i].limit : "");
    }
    struct weir_options options = {
        .size = sizeof options, .rules_text = text, .cells_keys = 1000, .counters = "redis://played"
    };
    struct weir_error error;
    if (weir_open_with(&p.weir, &options, ops, false, &error) < 0)
        fail_msg("%s\n%s", error.text, text);
}

#endif
