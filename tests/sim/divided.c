/* Calls whose rules are in several places (src/redis/divided.c), on a virtual clock, against a model of a cluster: places
 * that each decide on one part at a time, by a clock of their own and with the real limits. Messages take their time;
 * answers are lost with and without the charge, come late, or are refused; slots are being moved; hosts die between any two
 * steps.
 *
 * What holds (a ledger knows what each request was charged at each limit):
 *   - a place never lets through more than its limits allow
 *   - a request that passed is charged once at each of its limits
 *   - one that did not pass is charged nowhere in the end. Exceptions: its host died, a part or a settlement of it was
 * lost. Then at most its own cost is left at a limit
 *   - until then it occupies at most its own cost, at places before the one that refuses
 *   - what insists is charged once if its rule was decided on, and never if it was not
 *   - a debt is charged once, or is owed still; if its part was lost, both may be true
 *   - nothing is charged once the caller was told that the answer is late
 *
 * TEST_SEED is the seed of the first schedule, TEST_ROUNDS how many there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "limit/take.h"
#include "redis/divided.h"
#include "redis/link.h"

#define T0_US (INT64_C(1700000000) * US_PER_S)

enum {
    SCHEDULES = 1000,
    REQUESTS = 120,
    KEYS = 8,
    FIELDS = 2,
    PLACES_MOST = 5,
    HOSTS = 3,
    RULES_MOST = 6,
    EVENTS_MOST = 8192,
    PASSES_MOST = REQUESTS * RULES_MOST,
};

/* ---- the world: one schedule at a time ---- */

/* One limit of one key. */
struct cell {
    struct limit limit;
    struct limit_state state;
    /* What has passed by each window, or (a bucket) one charge after another. */
    struct {
        int64_t at_us;
        uint64_t count;
    } passed[PASSES_MOST];
    size_t passed_count;
};

/* What a request was charged at a limit. */
struct entry {
    int64_t charged, own; /* in the store now; its cost */
    uint64_t debt;        /* that was charged there */
    int64_t at_us;        /* by the clock of its place … */
    uint64_t origin;      /* … and the window */
    bool lost;            /* a part that charges, or a settlement, was lost */
    bool sent;            /* in a part that charges */
    bool debt_lost;
};

struct request {
    struct store_call call; /* first */
    struct store_rule rules[RULES_MOST];
    struct store_cell cells[RULES_MOST * FIELDS];
    uint64_t debts[RULES_MOST * FIELDS];
    size_t key[RULES_MOST];
    struct entry entries[RULES_MOST][FIELDS];
    int host;
    bool late, done, passed;
    bool vanished; /* its host has died */
};

struct message {
    struct store_call *part; /* NULL: it is a settlement, which nobody waits for */
    struct store_call call;  /* a copy, with copies of the rules and cells */
    struct store_rule rules[RULES_MOST];
    struct store_cell cells[RULES_MOST * FIELDS];
    struct request *of;
    size_t number[RULES_MOST]; /* of each rule, in the request */
    enum store_result fate;
    bool arrives, over;
};

enum event_kind { ARRIVES, ANSWERED, LATE };

struct event {
    int64_t at_us;
    enum event_kind kind;
    struct message *message;
};

static struct world {
    struct random rnd;
    uint64_t seed;
    int64_t now_us;
    uint32_t places;
    int64_t ahead_us[PLACES_MOST];
    uint32_t slot[KEYS];
    bool moving[PLACES_MOST]; /* then each key is a place of its own */
    bool gives_back;          /* some requests give back what others were charged */
    struct cell cells[KEYS][FIELDS];
    size_t fields[KEYS];
    struct store_link links[HOSTS];
    bool dead[HOSTS];
    int64_t last_us[HOSTS][PLACES_MOST]; /* when the last message arrives */
    struct request *requests[REQUESTS];
    size_t request_count;
    struct event events[EVENTS_MOST];
    size_t event_count;
    struct message *messages[EVENTS_MOST];
    size_t message_count;
    size_t passes, refusals, failures, races, lates, leaks; /* to see that all of it happens */
} w;

static size_t sums[6];

#define EXPECT(condition, ...)                                               \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "TEST_SEED=%llu: ", (unsigned long long)w.seed); \
            fprintf(stderr, __VA_ARGS__);                                    \
            fail_msg("%s", #condition);                                      \
        }                                                                    \
    } while (0)

static int64_t pick(int64_t low, int64_t high)
{
    return random_in(&w.rnd, low, high);
}

static size_t key_number(sv key)
{
    return (size_t)(key.ptr[1] - '0');
}

static uint32_t slot_of(sv key)
{
    return w.slot[key_number(key)];
}

static int64_t clock_of(uint32_t slot)
{
    return w.now_us + w.ahead_us[slot];
}

static struct window window_at(int64_t us)
{
    int64_t length_us = 10 * US_PER_S;
    return (struct window){ us / length_us * length_us, us / length_us * length_us + length_us };
}

static void add_event(int64_t at_us, enum event_kind kind, struct message *m)
{
    EXPECT(w.event_count < EVENTS_MOST, "too many events\n");
    w.events[w.event_count++] = (struct event){ at_us, kind, m };
}

/* ---- a place decides ---- */

static bool insists(const struct store_cell *cell)
{
    return cell->charging != WEIR_CHARGE_IF_ROOM;
}

static const struct window *window_of(const struct store_cell *cell, int64_t now_us)
{
    return now_us < cell->window.end_us ? &cell->window : &cell->next;
}

static bool is_stale(const struct store_call *call, int64_t now_us)
{
    for (size_t i = 0; i < call->rule_count; i++)
        for (size_t j = 0; j < call->rules[i].cell_count; j++) {
            const struct store_cell *cell = &call->rules[i].cells[j];
            if (cell->limit->algorithm == LIMIT_CALENDAR && (now_us < cell->window.start_us || now_us >= cell->next.end_us))
                return true;
        }
    return false;
}

static struct cell *stored(const struct store_rule *rule, size_t field)
{
    return &w.cells[key_number(rule->key)][field];
}

static void look_at_cell(struct store_call *call, struct store_rule *rule, size_t j, int64_t now_us,
                         struct limit_state *ret_charged)
{
    struct store_cell *cell = &rule->cells[j];
    const struct window *window = window_of(cell, now_us);
    struct limit_state *state = &stored(rule, j)->state;
    if (cell->debt > 0)
        *state = limit_charge(cell->limit, window, *state, now_us, cell->debt);
    struct limit_take take = limit_take(cell->limit, window, *state, now_us, cell->cost);
    cell->fits = cell->charging == WEIR_GIVE_BACK || take.fits;
    if (call->charge && cell->charging == WEIR_CHARGE_ALWAYS)
        *state = limit_charge(cell->limit, window, *state, now_us, cell->cost);
    if (call->charge && cell->charging == WEIR_GIVE_BACK)
        *state = limit_give_back(cell->limit, window, *state, now_us, cell->cost);
    cell->state = *state;
    *ret_charged = take.next;
}

/* As lua/decide.lua: all cells are judged by what is stored, and what is written last stands. */
static void decide(struct store_call *call, int64_t now_us)
{
    struct limit_state charged[RULES_MOST][FIELDS];
    call->server_us = now_us;
    call->result = is_stale(call, now_us) ? STORE_STALE : STORE_DECIDED;
    if (call->result == STORE_STALE)
        return;
    call->allowed = true;
    for (size_t i = 0; i < call->rule_count; i++) {
        struct store_rule *rule = &call->rules[i];
        rule->fits = true;
        for (size_t j = 0; j < rule->cell_count; j++) {
            look_at_cell(call, rule, j, now_us, &charged[i][j]);
            rule->fits = rule->fits && rule->cells[j].fits;
        }
        call->allowed = call->allowed && (rule->fits || rule->shadow);
    }
    for (size_t i = 0; call->charge && call->allowed && i < call->rule_count; i++) {
        struct store_rule *rule = &call->rules[i];
        for (size_t j = 0; rule->fits && j < rule->cell_count; j++)
            if (!insists(&rule->cells[j]) && rule->cells[j].cost > 0)
                stored(rule, j)->state = rule->cells[j].state = charged[i][j];
    }
}

/* ---- the ledger ---- */

/* Rules of parts are copies of those of the request, and have the same cells. */
static size_t own_rule(const struct request *r, const struct store_rule *rule)
{
    for (size_t i = 0; i < r->call.rule_count; i++)
        if (r->rules[i].cells == rule->cells)
            return i;
    fail();
    return 0;
}

/* What is enforced is taken in the order of the places. */
static void check_order(const struct request *r, uint32_t slot)
{
    for (size_t i = 0; i < r->call.rule_count; i++)
        for (size_t j = 0; j < r->rules[i].cell_count; j++) {
            const struct store_rule *rule = &r->rules[i];
            if (!rule->shadow && !insists(rule->cells) && slot_of(rule->key) < slot)
                EXPECT(r->entries[i][j].charged == r->entries[i][j].own, "a place is charged before an earlier one\n");
        }
}

static void enter(struct message *m, size_t i, uint32_t slot)
{
    struct request *r = m->of;
    const struct store_rule *rule = &m->rules[i];
    bool charged = m->call.charge && (insists(rule->cells) || (m->call.allowed && rule->fits));
    for (size_t j = 0; j < rule->cell_count; j++) {
        struct entry *e = &r->entries[m->number[i]][j];
        const struct store_cell *cell = &rule->cells[j];
        e->debt += cell->debt;
        if (!charged)
            continue;
        EXPECT(e->charged == 0 || cell->own == 0, "charged twice: key %zu\n", key_number(rule->key));
        e->charged += (int64_t)cell->own;
        e->at_us = m->call.server_us;
        e->origin = limit_origin(cell->limit, cell->state, m->call.server_us);
    }
    if (charged && !rule->shadow && !insists(rule->cells))
        check_order(r, slot);
    if (charged && rule->shadow && !insists(rule->cells))
        check_order(r, UINT32_MAX);
}

static void carry_out(struct message *m)
{
    uint32_t slot = slot_of(m->rules[0].key);
    decide(&m->call, clock_of(slot));
    for (size_t i = 0; m->call.result == STORE_DECIDED && i < m->call.rule_count; i++)
        enter(m, i, slot);
    w.races += m->call.charge && !m->call.allowed && &m->of->call != m->part && !insists(m->cells);
}

static void settle_cell(struct message *m, size_t i, size_t j, int64_t now_us)
{
    const struct store_cell *cell = &m->rules[i].cells[j];
    struct entry *e = &m->of->entries[m->number[i]][j];
    uint64_t origin = limit_origin(cell->limit, cell->state, m->call.server_us);
    if (insists(cell) || cell->cost == cell->to)
        return;
    EXPECT(cell->to == 0 && e->charged == (int64_t)cell->cost && e->charged == e->own, "%lu are given back of %ld\n",
           cell->cost, e->charged);
    EXPECT(e->at_us == m->call.server_us && e->origin == origin, "another charge is given back\n");
    e->charged = 0;
    if (!limit_origin_over(cell->limit, origin, now_us))
        limit_refund(cell->limit, origin, cell->cost, now_us, &stored(&m->rules[i], j)->state);
}

/* As script_write_settle(): shadow rules that were not charged are left out. */
static void settle(struct message *m)
{
    for (size_t i = 0; i < m->call.rule_count; i++)
        for (size_t j = 0; j < m->rules[i].cell_count && (!m->rules[i].shadow || m->rules[i].fits); j++)
            settle_cell(m, i, j, clock_of(slot_of(m->rules[0].key)));
}

/* ---- messages ---- */

uint32_t store_place(struct store *store, sv key)
{
    (void)store;
    uint32_t slot = slot_of(key);
    return slot * 16 + (w.moving[slot] ? 1 + (uint32_t)key_number(key) : 0);
}

static struct message *copy_call(const struct store_call *call, struct request *of)
{
    struct message *m = calloc(1, sizeof *m);
    assert_non_null(m);
    EXPECT(w.message_count < EVENTS_MOST && call->rule_count <= RULES_MOST, "too many messages\n");
    w.messages[w.message_count++] = m;
    m->call = *call;
    m->call.rules = m->rules;
    m->of = of;
    size_t cells = 0;
    for (size_t i = 0; i < call->rule_count; i++) {
        m->rules[i] = call->rules[i];
        m->number[i] = own_rule(of, &call->rules[i]);
        m->rules[i].cells = m->cells + cells;
        for (size_t j = 0; j < call->rules[i].cell_count; j++)
            m->cells[cells++] = call->rules[i].cells[j];
    }
    return m;
}

static struct request *request_of(const struct store_call *call)
{
    return w.requests[call->hold_id - 1];
}

/* Messages of a host to a place arrive in the order in which they were sent. */
static int64_t arrival(int host, const struct message *m)
{
    int64_t *last_us = &w.last_us[host][slot_of(m->rules[0].key)];
    int64_t at_us = w.now_us + random_scaled(&w.rnd, 2 * US_PER_MS);
    *last_us = at_us > *last_us ? at_us : *last_us + 1;
    return *last_us;
}

void store_refuse(struct store *store, struct store_call *call)
{
    (void)store;
    call->result = STORE_UNSENT;
    store_call_answered(call);
    call->done(call);
}

static void note_lost(struct message *m)
{
    for (size_t i = 0; i < m->call.rule_count; i++) {
        struct entry *e = m->of->entries[m->number[i]];
        for (size_t j = 0; j < m->rules[i].cell_count; j++) {
            e[j].lost = e[j].lost || m->call.charge;
            e[j].debt_lost = e[j].debt_lost || m->rules[i].cells[j].debt > 0;
        }
    }
}

void store_send_one(struct store_link *link, struct store_call *call)
{
    static const enum store_result fates[] = { STORE_UNSENT, STORE_LOST, STORE_LOST, STORE_FAILED };
    struct request *r = request_of(call);
    int host = (int)(link - w.links);
    call->link = link;
    if (w.dead[host]) {
        store_refuse(NULL, call);
        return;
    }
    for (size_t i = 0; i < call->rule_count; i++) {
        EXPECT(store_place(NULL, call->rules[i].key) == store_place(NULL, call->rules[0].key), "a part has two places\n");
        EXPECT(!call->charge || insists(call->rules[i].cells) || !r->late, "a part is charged although it is late\n");
    }
    enum store_result fate = pick(0, 24) == 0 ? fates[pick(0, 3)] : STORE_DECIDED;
    if (fate == STORE_UNSENT) {
        store_refuse(NULL, call);
        return;
    }
    struct message *m = copy_call(call, r);
    for (size_t i = 0; call->charge && i < call->rule_count; i++) {
        EXPECT(!r->entries[m->number[i]][0].sent, "a rule is to be charged by two parts\n");
        r->entries[m->number[i]][0].sent = true;
    }
    m->part = call;
    m->fate = fate;
    m->arrives = fate == STORE_DECIDED || (fate == STORE_LOST && pick(0, 1));
    if (fate == STORE_LOST)
        note_lost(m);
    add_event(arrival(host, m), ARRIVES, m);
    add_event(call->deadline_us, LATE, m);
}

void store_settle_one(struct store_link *link, const struct store_call *call)
{
    int host = (int)(link - w.links);
    if (w.dead[host])
        return;
    struct message *m = copy_call(call, request_of(call));
    EXPECT(call->rule_count == 1 || store_place(NULL, call->rules[0].key) == store_place(NULL, call->rules[1].key),
           "several places are settled together\n");
    m->arrives = pick(0, 30) != 0;
    if (!m->arrives)
        note_lost(m);
    add_event(arrival(host, m), ARRIVES, m);
}

static void arrive(struct message *m)
{
    if (!m->part) {
        if (m->arrives)
            settle(m);
        m->over = true;
        return;
    }
    if (m->arrives)
        carry_out(m);
    /* Some answers come after the deadline. */
    int64_t takes_us = pick(0, 19) == 0 ? pick(1, 60) * US_PER_MS : random_scaled(&w.rnd, 2 * US_PER_MS);
    add_event(w.now_us + takes_us, ANSWERED, m);
}

/* What the store's link does with an answer. */
static void answer(struct message *m)
{
    struct store_call *part = m->part;
    m->over = true;
    part->result = m->fate == STORE_DECIDED ? m->call.result : m->fate;
    if (part->result == STORE_DECIDED || part->result == STORE_STALE)
        part->server_us = m->call.server_us;
    part->allowed = m->call.allowed;
    for (size_t i = 0; part->result == STORE_DECIDED && i < part->rule_count; i++) {
        part->rules[i].fits = m->rules[i].fits;
        for (size_t j = 0; j < part->rules[i].cell_count; j++) {
            part->rules[i].cells[j].state = m->rules[i].cells[j].state;
            part->rules[i].cells[j].fits = m->rules[i].cells[j].fits;
        }
    }
    store_call_answered(part);
    part->done(part);
}

static void tell_late(struct message *m)
{
    if (!m->over && !w.dead[m->of->host])
        m->part->late(m->part);
}

static bool run_next(void)
{
    size_t first = 0;
    if (w.event_count == 0)
        return false;
    for (size_t i = 1; i < w.event_count; i++)
        if (w.events[i].at_us < w.events[first].at_us)
            first = i;
    struct event e = w.events[first];
    w.events[first] = w.events[--w.event_count];
    w.now_us = e.at_us > w.now_us ? e.at_us : w.now_us;
    if (e.kind == ARRIVES)
        arrive(e.message);
    else if (e.kind == LATE)
        tell_late(e.message);
    else if (!w.dead[e.message->of->host])
        answer(e.message);
    return true;
}

/* ---- requests ---- */

static void note_passed(struct request *r)
{
    for (size_t i = 0; i < r->call.rule_count; i++)
        for (size_t j = 0; j < r->rules[i].cell_count && !r->rules[i].shadow && !insists(r->rules[i].cells); j++) {
            struct cell *cell = stored(&r->rules[i], j);
            const struct entry *e = &r->entries[i][j];
            if (e->own == 0)
                continue;
            bool bucket = cell->limit.algorithm == LIMIT_TOKEN_BUCKET;
            int64_t at_us = bucket ? e->at_us : limit_origin_end(e->origin);
            size_t k = 0;
            while (k < cell->passed_count && cell->passed[k].at_us != at_us)
                k++;
            EXPECT(k < PASSES_MOST, "too many windows\n");
            if (k == cell->passed_count)
                cell->passed[cell->passed_count++].at_us = at_us;
            cell->passed[k].count += (uint64_t)e->own;
        }
}

static void on_late(struct store_call *call)
{
    struct request *r = (struct request *)call;
    EXPECT(!r->late && !r->done, "late is told twice, or after the end\n");
    r->late = true;
    w.lates++;
}

/* What the engine does: an answer after the verdict is made up for. */
static void on_done(struct store_call *call)
{
    struct request *r = (struct request *)call;
    EXPECT(!r->done, "done is told twice\n");
    r->done = true;
    for (size_t i = 0; i < call->rule_count && !w.dead[r->host]; i++) {
        enum store_result result = r->rules[i].result;
        bool same = result == STORE_DECIDED || r->rules[i].shadow;
        EXPECT(call->result != STORE_DECIDED || same, "a rule has failed, and the call has not\n");
        EXPECT(call->result != STORE_STALE || same || result == STORE_STALE || result == STORE_UNTRIED,
               "a rule that has failed would be asked again\n");
    }
    if (w.dead[r->host])
        return;
    bool allowed = call->result == STORE_DECIDED && call->allowed;
    r->passed = allowed && call->charge && !(r->late && pick(0, 1));
    w.passes += r->passed;
    w.refusals += call->result == STORE_DECIDED && !call->allowed;
    w.failures += call->result != STORE_DECIDED;
    if (r->passed)
        note_passed(r);
    if (!allowed || !call->charge || r->passed)
        return;
    for (size_t i = 0; i < RULES_MOST * FIELDS; i++) {
        r->cells[i].cost = r->cells[i].own;
        r->cells[i].to = insists(&r->cells[i]) ? r->cells[i].cost : 0;
    }
    store_settle(call->link, call);
}

/* The same key may stand twice in a call: then the second one counts what the first one costs, too. */
static const struct store_cell *same_before(const struct request *r, size_t i, size_t j)
{
    for (size_t k = i; k-- > 0;)
        if (r->key[k] == r->key[i] && r->rules[k].shadow == r->rules[i].shadow &&
            r->rules[k].cells[0].charging == r->rules[i].cells[0].charging)
            return &r->rules[k].cells[j];
    return NULL;
}

/* A rule is either enforced or a shadow rule. */
static bool is_new_key(const struct request *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (r->key[k] == r->key[i])
            return false;
    return true;
}

static void init_rule(struct request *r, size_t i, enum weir_charging charging)
{
    static const char *const keys[KEYS] = { "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7" };
    static const char *const fields[FIELDS] = { "a", "b" };
    struct store_rule *rule = &r->rules[i];
    *rule = (struct store_rule){ .key = weir_str(keys[r->key[i]]), .cells = r->cells + i * FIELDS };
    rule->cell_count = w.fields[r->key[i]];
    rule->shadow =
        charging == WEIR_CHARGE_IF_ROOM && i > 0 && is_new_key(r, i) && (r->rules[i - 1].shadow || pick(0, 2) == 0);
    for (size_t j = 0; j < rule->cell_count; j++)
        rule->cells[j].charging = charging;
    for (size_t j = 0; j < rule->cell_count; j++) {
        struct store_cell *cell = &rule->cells[j];
        const struct store_cell *before = charging == WEIR_CHARGE_IF_ROOM ? same_before(r, i, j) : NULL;
        cell->limit = &stored(rule, j)->limit;
        cell->field = weir_str(fields[j]);
        cell->window = window_at(w.now_us);
        cell->next = window_at(cell->window.end_us);
        cell->own = pick(0, 6) == 0 ? 0 : (uint64_t)pick(1, 3);
        cell->cost = cell->own + (before ? before->cost : 0);
        cell->debt = r->debts[i * FIELDS + j] = !before && pick(0, 9) == 0 ? (uint64_t)pick(1, 3) : 0;
        r->entries[i][j].own = (int64_t)cell->own;
    }
}

static void ask(void)
{
    struct request *r = calloc(1, sizeof *r);
    assert_non_null(r);
    w.requests[w.request_count++] = r;
    r->host = (int)pick(0, HOSTS - 1);
    if (w.dead[r->host]) {
        r->done = true;
        return;
    }
    r->call = (struct store_call){ .rules = r->rules,
                                   .rule_count = (size_t)pick(1, RULES_MOST),
                                   .charge = pick(0, 9) > 0,
                                   .hold_id = (uint32_t)w.request_count,
                                   .deadline_us = w.now_us + 20 * US_PER_MS,
                                   .late = on_late,
                                   .done = on_done };
    size_t sure = pick(0, 3) == 0 ? (size_t)pick(1, 2) : 0;
    for (size_t i = 0; i < r->call.rule_count; i++) {
        do
            r->key[i] = (size_t)pick(0, KEYS - 1);
        while (i > 0 && r->rules[i - 1].shadow && !is_new_key(r, i)); /* shadow rules come last */
        enum weir_charging sure_way = w.gives_back && pick(0, 1) ? WEIR_GIVE_BACK : WEIR_CHARGE_ALWAYS;
        init_rule(r, i, i < sure ? sure_way : WEIR_CHARGE_IF_ROOM);
    }
    store_send(&w.links[r->host], &r->call);
}

/* ---- what has to hold in the end ---- */

static void check_cell(const struct request *r, size_t i, size_t j)
{
    const struct store_rule *rule = &r->rules[i];
    const struct entry *e = &r->entries[i][j];
    uint64_t debt = r->debts[i * FIELDS + j];
    bool sure = r->call.charge && insists(rule->cells), shadow = rule->shadow;
    bool is_due = sure ? rule->result == STORE_DECIDED : r->passed && (!shadow || rule->fits);
    int64_t due = is_due ? e->own : 0;
    EXPECT(e->charged >= 0 && e->charged <= e->own, "%ld are charged, and it costs %ld\n", e->charged, e->own);
    EXPECT(e->debt <= debt || e->debt_lost, "a debt of %lu is charged as %lu\n", debt, e->debt);
    if (r->vanished)
        return;
    w.leaks += e->charged > due;
    EXPECT(e->charged == due || (e->lost && e->charged > due),
           "request %u, rule %zu%s%s: %ld are charged, %ld are due (the call: result %d, %s)\n", r->call.hold_id, i,
           shadow ? ", shadow" : "", sure ? ", insists" : "", e->charged, due, r->call.result,
           r->late ? "late" : "in time");
    if (!e->debt_lost)
        EXPECT(e->debt == (rule->cells[j].debt == 0 ? debt : 0),
               "a debt of %lu is charged as %lu, and %lu are owed still\n", debt, e->debt, rule->cells[j].debt);
}

/* Insisting and debts may use more than there is. What is let through may not. */
static void check_bounds(const struct cell *cell)
{
    for (size_t k = 0; k < cell->passed_count; k++) {
        if (cell->limit.algorithm != LIMIT_TOKEN_BUCKET) {
            EXPECT(cell->passed[k].count <= cell->limit.max, "%lu pass a limit of %lu\n", cell->passed[k].count,
                   cell->limit.max);
            continue;
        }
        for (size_t from = 0; from < cell->passed_count; from++) {
            uint64_t sum = 0;
            int64_t since_us = cell->passed[from].at_us, to_us = cell->passed[k].at_us;
            for (size_t i = 0; i < cell->passed_count; i++)
                if (cell->passed[i].at_us >= since_us && cell->passed[i].at_us <= to_us)
                    sum += cell->passed[i].count;
            uint64_t back =
                to_us > since_us ? (uint64_t)(to_us - since_us) * cell->limit.max / (uint64_t)cell->limit.per_us : 0;
            EXPECT(sum <= cell->limit.capacity + back + 1, "%lu pass a bucket of %lu\n", sum, cell->limit.capacity);
        }
    }
}

static void check_all(void)
{
    for (size_t n = 0; n < w.request_count; n++) {
        const struct request *r = w.requests[n];
        EXPECT(r->done, "request %zu has no end\n", n + 1);
        for (size_t i = 0; i < r->call.rule_count; i++)
            for (size_t j = 0; j < r->rules[i].cell_count; j++)
                check_cell(r, i, j);
    }
    for (size_t k = 0; !w.gives_back && k < KEYS; k++)
        for (size_t j = 0; j < w.fields[k]; j++)
            check_bounds(&w.cells[k][j]);
}

/* ---- schedules ---- */

static void open_world(uint64_t seed)
{
    static const enum limit_algorithm algorithms[] = { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_CALENDAR };
    w = (struct world){ .rnd = { seed }, .seed = seed, .now_us = T0_US + pick(0, 9999) * US_PER_MS };
    w.places = (uint32_t)pick(2, PLACES_MOST);
    w.gives_back = pick(0, 2) == 0;
    for (uint32_t p = 0; p < w.places; p++)
        w.ahead_us[p] = pick(-3000, 3000) * US_PER_MS;
    for (size_t k = 0; k < KEYS; k++) {
        w.slot[k] = (uint32_t)pick(0, w.places - 1);
        w.fields[k] = (size_t)pick(1, FIELDS);
        for (size_t j = 0; j < w.fields[k]; j++)
            limit_init(&w.cells[k][j].limit, algorithms[pick(0, 2)], (uint64_t)pick(2, 60), 0, pick(1, 20) * US_PER_S);
    }
}

/* The store carries out the commands that the host has sent, but nobody reads the answers. */
static void die(int host)
{
    w.dead[host] = true;
    for (size_t i = 0; i < w.request_count; i++)
        if (w.requests[i]->host == host && !w.requests[i]->done)
            w.requests[i]->vanished = true;
}

/* Nothing of a dead host is sent any more: this only frees memory. */
static void bury(void)
{
    for (size_t i = 0; i < w.message_count; i++) {
        struct message *m = w.messages[i];
        if (m->part && !m->over && w.dead[m->of->host]) {
            m->over = true;
            m->part->result = STORE_LOST;
            m->part->done(m->part);
        }
    }
}

static void close_world(void)
{
    bury();
    check_all();
    for (size_t i = 0; i < w.message_count; i++)
        free(w.messages[i]);
    for (size_t i = 0; i < w.request_count; i++)
        free(w.requests[i]);
    const size_t counts[] = { w.passes, w.refusals, w.failures, w.races, w.lates, w.leaks };
    for (size_t i = 0; i < 6; i++)
        sums[i] += counts[i];
}

static void run(uint64_t seed)
{
    open_world(seed);
    while (w.request_count < REQUESTS || w.event_count > 0) {
        if (w.request_count < REQUESTS && (w.event_count == 0 || pick(0, 7) == 0)) {
            w.now_us += pick(0, 15) ? 0 : random_scaled(&w.rnd, US_PER_S);
            ask();
        } else {
            run_next();
        }
        if (pick(0, 60) == 0)
            w.moving[pick(0, w.places - 1)] ^= true;
        if (pick(0, 4000) == 0)
            die((int)pick(0, HOSTS - 1));
    }
    close_world();
}

static void a_divided_call_is_all_or_nothing(void **state)
{
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t first = random_seed(), count = rounds ? strtoull(rounds, NULL, 0) : SCHEDULES;
    (void)state;
    for (uint64_t i = 0; i < count; i++)
        run(first + i);
    if (getenv("TEST_VERBOSE"))
        fprintf(stderr, "%zu passes, %zu refusals, %zu failures, %zu races, %zu late, %zu leaks\n", sums[0], sums[1],
                sums[2], sums[3], sums[4], sums[5]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_divided_call_is_all_or_nothing) };
    return cmocka_run_group_tests_name("sim/divided", tests, NULL, NULL);
}
