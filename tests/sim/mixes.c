/* Local, leased and exact rules in one request, in every mix, and requests that are decided together: the steps of a
 * decision, driven by hand against a store that this file plays. It answers, answers late, loses answers, fails, finds
 * stale windows, goes and comes back; slices come at once, after a while, or never.
 *
 * What holds, whatever happens: a request that passes is charged once by each rule, wherever that counts just then, and one
 * that is refused is charged nowhere, unless it is charged always (a ledger of each rule and subject); counters are taken
 * in the order of their keys.
 *
 * TEST_SEED is the seed of the first schedule, TEST_ROUNDS how many there are. */
#include "slices/lender.h"

struct store {
    struct cells *cells;
    struct lender *lender;
};

#include "played.h"

enum { SCHEDULES = 400, STEPS = 80, PARTS = 3, LATE_MOST = 64, FLYING_MOST = 16 };

static const struct played_rule rules[RULES] = {
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

static struct world {
    enum mood mood;
    struct decision *late[LATE_MOST];
    size_t late_count;
    struct flying {
        struct lend_call *call;
        struct lent lent;
    } flying[FLYING_MOST]; /* answers of the store that have yet to come */
    size_t flying_count;
} w;

/* ---- the store ---- */

static void take_back(struct store_link *link, const struct store_call *call)
{
    (void)link;
    for (size_t i = 0; i < call->rule_count; i++)
        if (call->rules[i].fits)
            settle_rule(&call->rules[i]);
}

/* Some answers come later: slices are on their way while requests pass without them, or overdraw others. */
static void carry(void)
{
    for (struct lend_call *call; (call = lender_next(p.store->lender, T0_US));)
        if (w.mood == ANSWERS && w.flying_count < FLYING_MOST && random_one_in(&p.rnd, 3))
            w.flying[w.flying_count++] = (struct flying){ call, carry_there(call, true, true) };
        else
            carry_one(call, w.mood == ANSWERS || w.mood == LOSES_CHARGED, w.mood == ANSWERS);
}

static void land(void)
{
    for (size_t i = 0; i < w.flying_count; i++)
        lender_answer(p.store->lender, w.flying[i].call, LEND_ANSWERED, &w.flying[i].lent, T0_US);
    w.flying_count = 0;
}

/* Until nothing is on its way, in either direction. */
static void land_all(void)
{
    do {
        land();
        for (struct lend_call *call; (call = lender_next(p.store->lender, T0_US));)
            carry_one(call, true, true);
    } while (w.flying_count > 0);
}

static bool played_up(const struct store *store)
{
    (void)store;
    return w.mood != IS_AWAY;
}

static const struct store_ops played = {
    .open = played_open,
    .close = played_close,
    .up = played_up,
    .hosts = played_hosts,
    .offset_us = played_offset_us,
    .count = played_count,
    .want = played_want,
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
    if (mood == ANSWERS && random_one_in(&p.rnd, 5))
        end_call(call, STORE_STALE);
    else if (mood == ANSWERS)
        decide(call, T0_US);
    else if (mood == LOSES_CHARGED)
        lose(call, T0_US);
    else
        end_call(call, mood == LOSES_UNCHARGED ? STORE_LOST : STORE_FAILED);
    decision_answered(d);
    return true;
}

static void drive(struct decision *d)
{
    int waits = (int)random_in(&p.rnd, 0, 2);
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
        if (random_one_in(&p.rnd, 2))
            carry();
        d->remote->may_wait = --waits > 0;
        decision_resume(d, T0_US);
    }
    check_order(d);
    if (over)
        decision_free(d);
}

static void ask(void)
{
    struct weir_request requests[PARTS] = { 0 };
    struct weir_verdict v, own[PARTS];
    sv names[PARTS];
    int count = random_one_in(&p.rnd, 2) ? 1 : (int)random_in(&p.rnd, 2, PARTS);
    bool peek = random_one_in(&p.rnd, 10);
    for (int i = 0; i < count; i++) {
        struct weir_request *r = &requests[i];
        *r = random_request();
        names[i] = r->user;
        r->peek = peek;
        r->own = &own[i];
        r->with = i + 1 < count ? &requests[i + 1] : NULL;
    }
    struct decision *d = decision_new(p.weir, p.weir->current, requests, names, T0_US, (size_t)count * RULES);
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
        if (charged)
            decide(call, T0_US);
        else
            end_call(call, STORE_LOST);
        decision_aftermath(w.late[i]);
        decision_free(w.late[i]);
    }
    w.late_count = 0;
}

/* ---- schedules ---- */

static void every_mix_is_charged_once_or_not_at_all(void **state)
{
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t first = random_seed(), count = rounds ? strtoull(rounds, NULL, 10) : SCHEDULES;
    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        w = (struct world){ 0 };
        p = (struct played){ .rnd = { seed }, .seed = seed };
        open_played(rules, &played);
        for (int step = 0; step < STEPS; step++) {
            if (random_one_in(&p.rnd, 5))
                w.mood = random_one_in(&p.rnd, 2) ? ANSWERS : (enum mood)random_in(&p.rnd, 0, MOODS - 1);
            if (w.mood == ANSWERS && random_one_in(&p.rnd, 6))
                carry();
            ask();
            if (random_one_in(&p.rnd, 10))
                deliver_late(random_one_in(&p.rnd, 2));
            if (random_one_in(&p.rnd, 4))
                land();
            if (w.late_count == 0 && random_one_in(&p.rnd, 2)) {
                land_all();
                check_ledger();
            }
        }
        deliver_late(true);
        land_all();
        check_ledger();
        weir_close(p.weir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_mix_is_charged_once_or_not_at_all) };
    return cmocka_run_group_tests_name("sim/mixes", tests, NULL, NULL);
}
