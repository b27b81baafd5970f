/* Plans in which one key stands several times, as those of requests that are decided together: random costs that are
 * charged if there is room, charged always or given back, debts, slots, and holds that are over, which the script gives
 * back only when it has to. The model gives them back at once. Whether each cell had room has to be the same, and so have
 * the counts, when everything that is over was given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

#include "../limit/random.h"
#include "question.h"

enum { RUNS = 150, STEPS = 40, KEYS = 3, SHADOW = 2, FIELDS = 3, SLOTS = 2, PLAN = 8, HELD = 400 };

struct m_hold {
    int key, field;
    uint64_t amount;
    int64_t until_us;
    bool keep;
};

/* A rule of the plan: one key, some fields of it. */
struct m_rule {
    int key, fields[FIELDS], count;
    uint64_t own[FIELDS]; /* the cost, without those of cells before it */
    bool fits, room[FIELDS];
};

struct run {
    uint64_t seed;
    struct random rnd;
    int64_t now_us;
    uint64_t counts[KEYS][FIELDS];
    struct m_hold holds[HELD];
    int hold_count, step;
    uint32_t ids;
    /* the plan */
    struct m_rule rules[PLAN];
    struct limit limits[PLAN][FIELDS];
    struct store_cell cells[PLAN][FIELDS];
    struct store_rule plan[PLAN];
    struct store_call call;
    uint64_t free[KEYS][FIELDS]; /* what can be given back and is not of a hold */
};

/* Longer than the test lasts, since keys expire by the server's own clock. */
#define MINUTE_US (60 * S)

static const char *const KEY_NAMES[KEYS] = { "{u1}:first:key", "{u1}:second:key", "{u1}:shadow:key" };
static const char *const FIELD_NAMES[FIELDS] = { "one", "two", "slots" };

static int64_t pick(struct run *r, int64_t low, int64_t high)
{
    return random_in(&r->rnd, low, high);
}

static bool one_in(struct run *r, int n)
{
    return random_one_in(&r->rnd, n);
}

/* ---- what is over ---- */

/* A day is longer than any window and any hold. All steps between two such days are shorter together. */
static void skip_a_day(struct run *r)
{
    r->now_us += DAY_US;
    r->hold_count = 0;
    memset(r->counts, 0, sizeof r->counts);
}

static void end_holds(struct run *r)
{
    int left = 0;
    for (int i = 0; i < r->hold_count; i++) {
        const struct m_hold *hold = &r->holds[i];
        if (hold->until_us > r->now_us)
            r->holds[left++] = *hold;
        else if (!hold->keep)
            r->counts[hold->key][hold->field] -= hold->amount;
    }
    r->hold_count = left;
}

/* What is left of an amount that is given back would be taken from holds, and they give it back once more. */
static void find_free(struct run *r)
{
    for (int key = 0; key < KEYS; key++)
        for (int field = 0; field < FIELDS; field++) {
            uint64_t held = 0;
            for (int i = 0; i < r->hold_count; i++)
                if (r->holds[i].key == key && r->holds[i].field == field)
                    held += r->holds[i].amount;
            r->free[key][field] = r->counts[key][field] - held;
        }
}

/* ---- a random plan ---- */

static void add_cell(struct run *r, int rule, int field, enum weir_charging charging, bool holds)
{
    struct m_rule *m = &r->rules[rule];
    int i = m->count++;
    struct store_cell *cell = &r->cells[rule][i];
    struct limit *limit = &r->limits[rule][i];
    bool slot = field == SLOTS;
    limit_init(limit, slot ? LIMIT_CONCURRENT : LIMIT_FIXED_WINDOW, one_in(r, 12) ? 0 : (uint64_t)pick(r, 1, 12), 0,
               DAY_US);
    m->fields[i] = field;
    *cell = (struct store_cell){ .limit = limit, .charging = charging };
    cell->field = weir_str(FIELD_NAMES[field]);
    cell->cost = slot ? 1 : one_in(r, 6) ? 0 : (uint64_t)pick(r, 1, 4);
    if (charging == WEIR_GIVE_BACK) {
        cell->cost = cell->cost < r->free[m->key][field] ? cell->cost : r->free[m->key][field];
        r->free[m->key][field] -= cell->cost;
    } else if (charging == WEIR_CHARGE_ALWAYS && cell->cost == 0) {
        cell->cost = 1;
    }
    m->own[i] = cell->cost;
    if (cell->cost > 0 && (holds || slot))
        cell->hold = (struct store_hold){ pick(r, 1, 60) * MINUTE_US, cell->cost, !slot && one_in(r, 4),
                                          (uint16_t)(rule * FIELDS + i) };
    r->plan[rule] = (struct store_rule){ .key = weir_str(KEY_NAMES[m->key]),
                                         .cells = r->cells[rule],
                                         .cell_count = (size_t)m->count,
                                         .shadow = m->key == SHADOW };
}

/* The host pays what it owes once. */
static void add_debts(struct run *r)
{
    bool paid[KEYS][FIELDS] = { { false } };
    for (size_t i = 0; i < r->call.rule_count; i++)
        for (int k = 0; k < r->rules[i].count; k++) {
            bool *its = &paid[r->rules[i].key][r->rules[i].fields[k]];
            if (!*its && r->rules[i].fields[k] != SLOTS && one_in(r, 8))
                r->cells[i][k].debt = (uint64_t)pick(r, 1, 3);
            *its = true;
        }
}

/* The engine's part of it: a cell that charges if there is room counts what others of its field do before it. */
static void add_planned_before(struct run *r, size_t rule, int nth)
{
    struct store_cell *cell = &r->cells[rule][nth];
    for (size_t i = rule; i-- > 0;)
        for (int k = 0; k < r->rules[i].count; k++) {
            const struct store_cell *before = &r->cells[i][k];
            if (r->rules[i].key != r->rules[rule].key || r->rules[i].fields[k] != r->rules[rule].fields[nth] ||
                before->charging != WEIR_CHARGE_IF_ROOM)
                continue;
            cell->cost += before->cost;
            cell->debt = before->debt > cell->debt ? before->debt : cell->debt;
            return;
        }
}

static void add_all_planned_before(struct run *r)
{
    for (size_t i = 0; i < r->call.rule_count; i++)
        for (int k = 0; k < r->rules[i].count; k++)
            if (r->cells[i][k].charging == WEIR_CHARGE_IF_ROOM)
                add_planned_before(r, i, k);
}

/* Those that are charged or given back in any case come first, and hold nothing but slots; shadows are last of both. */
static void make_plan(struct run *r)
{
    bool holds = one_in(r, 3);
    int insist = holds ? 0 : (int)pick(r, 0, 3), rest = (int)pick(r, insist ? 0 : 1, 3), n = 0;
    r->call = (struct store_call){ .rules = r->plan, .charge = !one_in(r, 8), .now_us = r->now_us };
    for (int i = 0; i < insist + rest; i++) {
        bool insists = i < insist, last = i == insist - 1 || i == insist + rest - 1;
        enum weir_charging charging = !insists ? WEIR_CHARGE_IF_ROOM : one_in(r, 2) ? WEIR_CHARGE_ALWAYS : WEIR_GIVE_BACK;
        r->rules[n] = (struct m_rule){ .key = last && one_in(r, 3) ? SHADOW : (int)pick(r, 0, 1) };
        for (int field = 0; field < (insists ? SLOTS : FIELDS); field++)
            if (one_in(r, field == SLOTS ? 4 : 2))
                add_cell(r, n, field, charging, holds);
        n += r->rules[n].count > 0;
    }
    if (n == 0) {
        r->rules[n] = (struct m_rule){ .key = 0 };
        add_cell(r, n++, 0, WEIR_CHARGE_IF_ROOM, holds);
    }
    r->call.rule_count = (size_t)n;
    add_debts(r);
    add_all_planned_before(r);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < r->rules[i].count; k++)
            if (r->cells[i][k].hold.ttl_us > 0 && r->call.charge && r->call.hold_id == 0)
                r->call.hold_id = ++r->ids;
}

/* ---- the model ---- */

/* Debts count whatever comes of the plan. Of one that stands in several cells it is the same. */
static void pay(struct run *r)
{
    bool paid[KEYS][FIELDS] = { { false } };
    for (size_t i = 0; i < r->call.rule_count; i++)
        for (int k = 0; k < r->rules[i].count; k++) {
            int key = r->rules[i].key, field = r->rules[i].fields[k];
            if (!paid[key][field])
                r->counts[key][field] += r->cells[i][k].debt;
            paid[key][field] = paid[key][field] || r->cells[i][k].debt > 0;
        }
}

/* Looks at one cell; what insists is done at once. */
static bool judge(struct run *r, size_t rule, int nth)
{
    const struct store_cell *cell = &r->cells[rule][nth];
    uint64_t *count = &r->counts[r->rules[rule].key][r->rules[rule].fields[nth]];
    if (cell->charging == WEIR_GIVE_BACK) {
        if (r->call.charge)
            *count -= cell->cost;
        return true;
    }
    bool room = cell->limit->max > 0 && *count + cell->cost <= cell->limit->max;
    if (cell->charging == WEIR_CHARGE_ALWAYS && r->call.charge)
        *count += cell->cost;
    return room;
}

static void hold(struct run *r, size_t rule, int nth)
{
    const struct store_cell *cell = &r->cells[rule][nth];
    int key = r->rules[rule].key, field = r->rules[rule].fields[nth];
    if (cell->hold.ttl_us == 0)
        return;
    assert_true(r->hold_count < HELD);
    r->holds[r->hold_count++] =
        (struct m_hold){ key, field, cell->hold.amount, r->now_us + cell->hold.ttl_us, cell->hold.keep };
}

/* Returns whether the plan passes. */
static bool decide(struct run *r)
{
    bool passes = true;
    pay(r);
    for (size_t i = 0; i < r->call.rule_count; i++) {
        struct m_rule *m = &r->rules[i];
        m->fits = true;
        for (int k = 0; k < m->count; k++) {
            m->room[k] = judge(r, i, k);
            m->fits = m->fits && m->room[k];
        }
        passes = passes && (m->fits || m->key == SHADOW);
    }
    for (size_t i = 0; passes && r->call.charge && i < r->call.rule_count; i++)
        for (int k = 0; r->rules[i].fits && k < r->rules[i].count; k++)
            if (r->cells[i][k].charging == WEIR_CHARGE_IF_ROOM) {
                r->counts[r->rules[i].key][r->rules[i].fields[k]] += r->rules[i].own[k];
                hold(r, i, k);
            }
    return passes;
}

/* ---- comparing ---- */

static void describe(const struct run *r)
{
    print_error("seed %llu, step %d: %s, hold %u\n", (unsigned long long)r->seed, r->step,
                r->call.charge ? "charges" : "looks", r->call.hold_id);
    for (size_t i = 0; i < r->call.rule_count; i++)
        for (int k = 0; k < r->rules[i].count; k++) {
            const struct store_cell *cell = &r->cells[i][k];
            print_error("  key %d, %s: charging %d, cost %llu, debt %llu, max %llu; room %d, and should be %d\n",
                        r->rules[i].key, FIELD_NAMES[r->rules[i].fields[k]], (int)cell->charging,
                        (unsigned long long)cell->cost, (unsigned long long)cell->debt,
                        (unsigned long long)cell->limit->max, cell->fits, r->rules[i].room[k]);
        }
}

static void send_call(const struct run *r, struct store_call *call)
{
    struct reply reply;
    script_write_decide(&talk.out, SV("weir"), call);
    assert_true(talk_read(&talk, &reply));
    if (reply.kind != REPLY_BULK || !script_read_decide(call, reply.text) || call->result != STORE_DECIDED) {
        describe(r);
        fail_msg("%.*s %s", SV_FMT(reply.text), call->why);
    }
}

/* A look for too much gives back what is over, and changes nothing else. */
static uint64_t count_in_store(const struct run *r, int key, int field)
{
    struct limit limit;
    limit_init(&limit, field == SLOTS ? LIMIT_CONCURRENT : LIMIT_FIXED_WINDOW, 1, 0, DAY_US);
    struct store_cell cell = { .limit = &limit, .field = weir_str(FIELD_NAMES[field]), .cost = 2 };
    struct store_rule rule = { .key = weir_str(KEY_NAMES[key]), .cells = &cell, .cell_count = 1 };
    struct store_call call = { .rules = &rule, .rule_count = 1, .now_us = r->now_us };
    send_call(r, &call);
    if (field == SLOTS)
        return cell.state.data;
    return limit_state_end(cell.state) > r->now_us ? limit_state_count(cell.state) : 0;
}

static void compare_counts(const struct run *r)
{
    for (int key = 0; key < KEYS; key++)
        for (int field = 0; field < FIELDS; field++) {
            uint64_t is = count_in_store(r, key, field), should = r->counts[key][field];
            if (is == should)
                continue;
            describe(r);
            fail_msg("%s of key %d is %llu, and should be %llu", FIELD_NAMES[field], key, (unsigned long long)is,
                     (unsigned long long)should);
        }
}

static void compare_answer(const struct run *r, bool passes)
{
    bool same = r->call.allowed == passes;
    for (size_t i = 0; i < r->call.rule_count; i++) {
        same = same && r->plan[i].fits == r->rules[i].fits;
        for (int k = 0; k < r->rules[i].count; k++)
            same = same && r->cells[i][k].fits == r->rules[i].room[k];
    }
    if (same)
        return;
    describe(r);
    fail_msg("it %s, and should %s", r->call.allowed ? "passes" : "is refused", passes ? "pass" : "be refused");
}

/* ---- runs ---- */

static void run(struct run *r, uint64_t seed)
{
    *r = (struct run){ .seed = seed, .rnd = { seed }, .now_us = NOON_US };
    for (r->step = 0; r->step < STEPS; r->step++) {
        if (one_in(r, 40))
            skip_a_day(r);
        else if (one_in(r, 2))
            r->now_us += pick(r, 0, 30) * MINUTE_US;
        end_holds(r);
        find_free(r);
        make_plan(r);
        send_call(r, &r->call);
        compare_answer(r, decide(r));
        if (one_in(r, 8) || r->step == STEPS - 1)
            compare_counts(r);
    }
}

static void plans_that_name_a_key_several_times(void **state)
{
    static struct run r;
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t first = random_seed(), count = rounds ? strtoull(rounds, NULL, 0) : RUNS;
    for (uint64_t seed = first; seed < first + count; seed++) {
        assert_int_equal(question_empty(state), 0);
        run(&r, seed);
    }
}

/* ---- cases that have a name ---- */

/* The same window of FIRST twice: what `charging` does with one cost, and another cost that needs room. */
static void ask_twice(struct question *q, enum weir_charging charging, uint64_t cost, uint64_t debt, uint64_t then)
{
    question_init(q, NOON_US + 61 * S);
    q->rules[1].key = q->rules[0].key;
    struct store_cell *first = add(q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    first->charging = charging;
    first->cost = cost;
    first->debt = debt;
    add(q, 1, LIMIT_FIXED_WINDOW, 10, HOUR_US)->cost = then;
    assert_true(allowed(q));
}

/* The second cell finds no room, and gives back what is over. */
static void what_is_over_does_not_undo_what_insists(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    struct store_cell *cell = add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    cell->cost = 5;
    cell->hold = (struct store_hold){ 60 * S, 5, false, 0 };
    q.call.hold_id = 1;
    assert_true(allowed(&q));
    ask_twice(&q, WEIR_CHARGE_ALWAYS, 4, 0, 3);
    assert_true(stored_count(FIRST, "one") == 7);
}

static void a_debt_is_paid_by_who_gives_back_nothing(void **state)
{
    struct question q;
    (void)state;
    ask_twice(&q, WEIR_GIVE_BACK, 0, 4, 3);
    assert_true(stored_count(FIRST, "one") == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_that_name_a_key_several_times),
        cmocka_unit_test_setup(what_is_over_does_not_undo_what_insists, question_empty),
        cmocka_unit_test_setup(a_debt_is_paid_by_who_gives_back_nothing, question_empty),
    };
    return cmocka_run_group_tests_name("redis/script_together", tests, question_set_up, question_tear_down);
}
