/* Decisions whose exact and leased rules are in several places of the store, of which some are down, late or lose answers:
 * the engine with src/redis/divided.c, driven by hand against places that this file plays. Many decisions wait at once; the
 * parts of their calls are carried out and answered in any order.
 *
 * What holds, whatever happens: a request that passes is charged once by each rule, wherever that counts just then, and one
 * that is refused is charged nowhere, unless it is charged always (a ledger of each rule and subject); a rule whose place
 * answers is not replaced because another place does not; debts are paid once.
 *
 * TEST_SEED is the seed of the first schedule, TEST_ROUNDS how many there are. */
#include "redis/divided.h"
#include "redis/link.h"

#include "played.h"

enum {
    SCHEDULES = 1000,
    STEPS = 300,
    PARTS = 2,
    PLACES_MOST = 4,
    ASKED_MOST = 12,
    SENT_MOST = ASKED_MOST * RULES * PARTS,
};

static const struct played_rule rules[RULES] = {
    { "l0", "counters: local", "A, B, C" },
    { "s0", "lease: true", "A, E" },
    { "s1", "lease: true, on_store_failure: allow", "B, E" },
    { "e0", "", "A, B, C, D, E" },
    { "e1", "on_store_failure: deny", "A, C" },
    { "e2", "on_store_failure: allow", "A, B, C, D" },
    { "e3", "", "B, C, D, E" },
    { "xe", "mode: shadow", "A, C, D, E" },
    { "xf", "mode: shadow", "A, B, C" },
};

/* IS_DOWN is known to be down; IS_UNSENT is found to be. */
enum mood { ANSWERS, IS_DOWN, IS_UNSENT, LOSES_CHARGED, LOSES_UNCHARGED, FAILS, MOODS };

/* A decision that waits for the store. */
struct asked {
    struct decision *d;
    struct weir_verdict verdict, own[PARTS];
    struct weir_request requests[PARTS];
    sv names[PARTS];
    int count;
    bool told, peek;
    unsigned failed; /* a bit for each place that did not answer since it was asked */
    unsigned stale;
};

/* A part of a call, on its way. */
struct sent {
    struct store_call *call;
    struct asked *of;
    bool late;
};

static struct world {
    uint32_t places;
    enum mood moods[PLACES_MOST];
    struct store_link link;
    struct asked *asked[ASKED_MOST];
    size_t asked_count;
    struct sent sent[SENT_MOST];
    size_t sent_count;
    struct asked *sending; /* whose call is just being sent */
    size_t divided, replaced;
} w;

static uint32_t place_of(struct weir_str key)
{
    uint32_t max;
    return (uint32_t)(ledger_of(key, &max) - &p.ledger[0][0]) * 7 % w.places;
}

static int64_t clock_of(uint32_t place)
{
    return T0_US + (int64_t)place * US_PER_S;
}

/* ---- the store ---- */

void store_settle_one(struct store_link *link, const struct store_call *call)
{
    (void)link;
    for (size_t i = 0; i < call->rule_count; i++)
        if (!call->rules[i].shadow || call->rules[i].fits)
            settle_rule(&call->rules[i]);
}

static void carry(void)
{
    for (struct lend_call *call; (call = lender_next(p.store->lender, T0_US));) {
        enum mood mood = w.moods[place_of((struct weir_str){ call->ask.key, call->ask.key_len })];
        carry_one(call, mood == ANSWERS || mood == LOSES_CHARGED, mood == ANSWERS);
    }
}

static bool played_up(const struct store *store)
{
    (void)store;
    for (uint32_t i = 0; i < w.places; i++)
        if (w.moods[i] != IS_DOWN)
            return true;
    return false;
}

static bool is_cluster(const struct store *store)
{
    (void)store;
    return true;
}

static bool place_up(const struct store *store, struct weir_str key)
{
    (void)store;
    return w.moods[place_of(key)] != IS_DOWN;
}

static const struct store_ops played = {
    .open = played_open,
    .close = played_close,
    .up = played_up,
    .several = is_cluster,
    .answers = place_up,
    .hosts = played_hosts,
    .offset_us = played_offset_us,
    .count = played_count,
    .want = played_want,
    .link_settle = store_settle,
};

/* ---- parts on their way ---- */

uint32_t store_place(struct store *store, sv key)
{
    (void)store;
    return place_of(key);
}

void store_refuse(struct store *store, struct store_call *call)
{
    (void)store;
    end_call(call, STORE_UNSENT);
    call->done(call);
}

void store_send_one(struct store_link *link, struct store_call *call)
{
    enum mood mood = w.moods[place_of(call->rules[0].key)];
    call->link = link;
    if (mood == IS_DOWN || mood == IS_UNSENT || w.sent_count == SENT_MOST) {
        w.sending->failed |= 1u << place_of(call->rules[0].key);
        store_refuse(NULL, call);
        return;
    }
    w.sent[w.sent_count++] = (struct sent){ .call = call, .of = w.sending };
}

/* One of them is carried out, and answered. Callbacks may send others. */
static void deliver(size_t i)
{
    struct sent sent = w.sent[i];
    struct store_call *call = sent.call;
    uint32_t place = place_of(call->rules[0].key);
    enum mood mood = w.moods[place];
    w.sent[i] = w.sent[--w.sent_count];
    w.sending = sent.of;
    if (mood != ANSWERS)
        sent.of->failed |= 1u << place;
    call->server_us = clock_of(place);
    if (mood == ANSWERS && random_one_in(&p.rnd, 12)) {
        sent.of->stale++;
        end_call(call, STORE_STALE);
    } else if (mood == ANSWERS) {
        decide(call, clock_of(place));
    } else if (mood == LOSES_CHARGED) {
        lose(call, clock_of(place));
    } else {
        end_call(call, mood == FAILS ? STORE_FAILED : mood == IS_UNSENT ? STORE_UNSENT : STORE_LOST);
    }
    call->done(call);
}

/* ---- the driver ---- */

/* A rule in the store is replaced only if its place did not answer. */
static void check_standins(const struct asked *a)
{
    const struct decision *d = a->d;
    for (size_t i = 0; i < d->enforced && !d->remote->late; i++) {
        const struct counter *c = &d->counters[i];
        if (c->kind != COUNTER_STANDIN || c->rule->counter != COUNTER_STORE || remote_key(d, c).len == 0)
            continue; /* keys are not made if all places are down */
        w.replaced++;
        uint32_t place = place_of(remote_key(d, c));
        if (!(a->failed >> place & 1) && a->stale < 3)
            fail_msg("seed %lu: %.*s is replaced, and its place answers", p.seed, SV_FMT(c->rule->rule->id));
    }
}

static void tell(struct asked *a)
{
    assert_int_equal(a->d->state, DECISION_DONE);
    a->told = true;
    if (a->d->remote)
        check_standins(a);
    for (size_t i = 0; i < a->d->enforced; i++)
        if (a->verdict.allowed && a->d->counters[i].outcome == COUNTER_REFUSES)
            fail_msg("seed %lu: %.*s refuses, and the request passes", p.seed, SV_FMT(a->d->counters[i].rule->rule->id));
    for (int i = 0; i < a->count && !a->peek; i++)
        enter(&a->requests[i], a->verdict.allowed);
}

static void asked_free(struct asked *a)
{
    size_t i = 0;
    while (w.asked[i] != a)
        i++;
    w.asked[i] = w.asked[--w.asked_count];
    decision_free(a->d);
    free(a);
}

static struct asked *asked_of(struct store_call *call)
{
    return decision_of(call)->remote->driver;
}

static void on_late(struct store_call *call)
{
    struct asked *a = asked_of(call);
    assert_false(a->told);
    decision_late(a->d);
    tell(a);
}

static void send_call(struct asked *a);

static void on_done(struct store_call *call)
{
    struct asked *a = asked_of(call);
    if (a->told) {
        decision_aftermath(a->d);
        asked_free(a);
        return;
    }
    decision_answered(a->d);
    assert_int_not_equal(a->d->state, DECISION_SLICES); /* drivers wait for slices before the call only */
    if (a->d->state == DECISION_CALL) {
        send_call(a);
        return;
    }
    tell(a);
    asked_free(a);
}

static void send_call(struct asked *a)
{
    struct store_call *call = &a->d->remote->call;
    call->late = on_late;
    call->done = on_done;
    w.sending = a;
    assert_true(call->rule_count > 0);
    for (size_t i = 1; i < call->rule_count; i++)
        w.divided += place_of(call->rules[i].key) != place_of(call->rules[0].key);
    store_send(&w.link, call);
}

static void drive(struct asked *a)
{
    int waits = (int)random_in(&p.rnd, 0, 2);
    struct decision *d = a->d;
    if (d->remote)
        d->remote->may_wait = waits > 0;
    decision_run(d);
    while (d->state == DECISION_SLICES) {
        if (random_one_in(&p.rnd, 2))
            carry();
        d->remote->may_wait = --waits > 0;
        decision_resume(d, T0_US);
    }
    if (d->state == DECISION_CALL) {
        send_call(a);
        return;
    }
    tell(a);
    asked_free(a);
}

static void ask(void)
{
    struct asked *a = calloc(1, sizeof *a);
    assert_non_null(a);
    w.asked[w.asked_count++] = a;
    a->count = random_one_in(&p.rnd, 2) ? 1 : (int)random_in(&p.rnd, 2, PARTS);
    a->peek = random_one_in(&p.rnd, 10);
    for (uint32_t i = 0; i < w.places; i++)
        a->failed |= (unsigned)(w.moods[i] == IS_DOWN) << i;
    for (int i = 0; i < a->count; i++) {
        struct weir_request *r = &a->requests[i];
        *r = random_request();
        a->names[i] = r->user;
        r->peek = a->peek;
        r->own = &a->own[i];
        r->with = i + 1 < a->count ? &a->requests[i + 1] : NULL;
    }
    a->d = decision_new(p.weir, p.weir->current, a->requests, a->names, T0_US, (size_t)a->count * RULES);
    assert_non_null(a->d);
    a->d->verdict = &a->verdict;
    if (a->d->remote)
        a->d->remote->driver = a;
    drive(a);
}

/* The deadline of a decision has passed: all of its parts are told. */
static void be_late(const struct asked *a)
{
    for (size_t i = 0; i < w.sent_count; i++)
        if (w.sent[i].of == a && !w.sent[i].late) {
            w.sent[i].late = true;
            w.sent[i].call->late(w.sent[i].call);
        }
}

static void change_mood(void)
{
    uint32_t place = (uint32_t)random_in(&p.rnd, 0, w.places - 1);
    w.moods[place] = random_one_in(&p.rnd, 2) ? ANSWERS : (enum mood)random_in(&p.rnd, 0, MOODS - 1);
    for (size_t i = 0; i < w.asked_count && w.moods[place] == IS_DOWN; i++)
        w.asked[i]->failed |= 1u << place;
}

static void deliver_all(void)
{
    while (w.sent_count > 0)
        deliver((size_t)random_in(&p.rnd, 0, (int64_t)w.sent_count - 1));
    assert_int_equal(w.asked_count, 0);
}

/* ---- schedules ---- */

static void step(void)
{
    int64_t what = random_in(&p.rnd, 0, 19);
    if (what < 6 && w.asked_count < ASKED_MOST)
        ask();
    else if (what < 16 && w.sent_count > 0)
        deliver((size_t)random_in(&p.rnd, 0, (int64_t)w.sent_count - 1));
    else if (what == 16 && w.asked_count > 0)
        be_late(w.asked[random_in(&p.rnd, 0, (int64_t)w.asked_count - 1)]);
    else if (what == 17)
        change_mood();
    else if (what == 18)
        carry();
    else if (what == 19 && random_one_in(&p.rnd, 5))
        deliver_all();
    if (w.asked_count == 0)
        check_ledger();
}

static void only_what_is_down_is_replaced(void **state)
{
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t first = random_seed(), count = rounds ? strtoull(rounds, NULL, 10) : SCHEDULES;
    size_t divided = 0, replaced = 0;
    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        w = (struct world){ 0 };
        p = (struct played){ .rnd = { seed }, .seed = seed };
        w.places = (uint32_t)random_in(&p.rnd, 1, PLACES_MOST);
        open_played(rules, &played);
        for (int i = 0; i < STEPS; i++)
            step();
        deliver_all();
        check_ledger();
        weir_close(p.weir);
        divided += w.divided;
        replaced += w.replaced;
    }
    assert_true(count < SCHEDULES || (divided > 0 && replaced > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(only_what_is_down_is_replaced) };
    return cmocka_run_group_tests_name("sim/cluster", tests, NULL, NULL);
}
