/* Tokens that come while a limit is being overdrawn: every order in which the steps of the lender and of the request that
 * overdraws can follow each other, with another request at any point after that. A step is one change or look of a cell, as
 * the table sees it: the linker leads these here (--wrap), and each lets the schedule choose who goes on.
 *
 *   overdrawn   once the request that overdraws is done, nobody spends a token while something is owed
 *   ledger      a token is spent, pays, is left or was returned; a debt is paid or owed */
#include <ucontext.h>

#include "slices/lender.h"
#include "slices/repay.h"
#include "support.h"

enum { MAX = 1000, SLICE = 50, TTL_MS = 2000, STACK = 256 * 1024, STEPS_MOST = 64 };
enum { CELL = 11, OWED = 99 };
#define END_US (T0_US + 60 * US_PER_S)

/* ---- actors that take turns ---- */

enum who { COMES, OWES, SPENDS, ACTORS };

struct actor {
    void (*act)(void);
    ucontext_t context;
    bool begun, done;
    _Alignas(16) char stack[STACK];
};

static struct actor actors[ACTORS];
static struct actor *current; /* NULL: nobody takes turns */
static ucontext_t scheduler;

static void begin_actor(void)
{
    current->act();
    current->done = true;
    swapcontext(&current->context, &scheduler);
}

static void pause_here(void)
{
    if (current)
        swapcontext(&current->context, &scheduler);
}

bool __real_cells_update(struct cells *cells, uint64_t key, int64_t now_us, cells_judge *judge, void *data);
bool __wrap_cells_update(struct cells *cells, uint64_t key, int64_t now_us, cells_judge *judge, void *data);
bool __wrap_cells_update(struct cells *cells, uint64_t key, int64_t now_us, cells_judge *judge, void *data)
{
    pause_here();
    return __real_cells_update(cells, key, now_us, judge, data);
}

void __real_cells_look(struct cells *cells, const struct cells_ask *ask, struct cells_look *ret);
void __wrap_cells_look(struct cells *cells, const struct cells_ask *ask, struct cells_look *ret);
void __wrap_cells_look(struct cells *cells, const struct cells_ask *ask, struct cells_look *ret)
{
    pause_here();
    __real_cells_look(cells, ask, ret);
}

struct limit_state __real_cells_charge(struct cells *cells, const struct cells_ask *ask, const struct limit *rank);
struct limit_state __wrap_cells_charge(struct cells *cells, const struct cells_ask *ask, const struct limit *rank);
struct limit_state __wrap_cells_charge(struct cells *cells, const struct cells_ask *ask, const struct limit *rank)
{
    pause_here();
    return __real_cells_charge(cells, ask, rank);
}

/* ---- what they do ---- */

static struct world {
    struct cells *cells;
    struct lender *lender;
    struct lend_call *call;
    struct limit limit;
    uint32_t left;   /* in the slice, before it all */
    uint32_t taken;  /* out of it, by a request that gives them back */
    uint32_t tokens; /* that the lender brings */
    uint32_t cost;   /* of the request that overdraws */
    bool standin;    /* it found too little, and passed in place of the store */
    uint64_t paid_before, spent, owes, passed, paid;
    bool wrong;
} w;

static uint64_t owed_at(int64_t now_us)
{
    struct limit_state seen;
    return debt_amount(w.cells, OWED, &w.limit, NULL, now_us, &seen);
}

static struct repay repay_at(int64_t now_us)
{
    return (struct repay){ w.cells, CELL, OWED, &w.limit, NULL, now_us };
}

static void bring(void)
{
    struct lent lent = { .tokens = w.tokens, .end_us = END_US, .server_us = T0_US, .room = 0 };
    lender_answer(w.lender, w.call, LEND_ANSWERED, &lent, T0_US);
}

static void give_back(void)
{
    struct repay repay = repay_at(T0_US);
    uint32_t lock;
    bool held;
    slice_unspend(w.cells, CELL, END_US, w.taken, &lock);
    w.paid += repay_with_new(&repay, lock, &held);
    w.wrong = w.wrong || held; /* nobody else is paying here */
}

/* As overdraw_slice() and counters_owe() do. */
static void overdraw(void)
{
    struct repay repay = repay_at(T0_US);
    if (!w.standin)
        w.spent += slice_spend_any(w.cells, CELL, SLICE, MAX, T0_US, w.cost, true).taken;
    if (w.spent == w.cost || (w.spent == 0 && !w.standin))
        return;
    uint64_t rest = w.cost - w.spent;
    struct limit_state owed = debt_add(w.cells, OWED, &w.limit, &w.limit, NULL, T0_US, rest);
    w.spent += repay_new(&repay, owed, rest).taken;
    w.owes = w.cost - w.spent;
}

/* At once, as far as the others can see. */
static void spend(void)
{
    struct actor *self = current;
    current = NULL;
    uint64_t owed = owed_at(T0_US);
    w.passed = slice_spend_any(w.cells, CELL, SLICE, MAX, T0_US, 1, true).taken;
    w.wrong = w.wrong || (w.passed > 0 && owed > 0);
    current = self;
}

/* ---- one schedule ---- */

static void begin_world(void)
{
    struct slice_ask ask = { .cell = CELL, .owed = OWED, .need = 1, .slice = SLICE, .ttl_ms = TTL_MS, .limit = w.limit };
    ask.key_len = (uint16_t)snprintf(ask.key, sizeof ask.key, "{a}:rule:key");
    ask.field_len = (uint16_t)snprintf(ask.field, sizeof ask.field, "minute.f");
    cells_forget(w.cells, CELL);
    cells_forget(w.cells, OWED);
    w.spent = w.owes = w.passed = w.paid = 0;
    w.wrong = false;
    w.paid_before = lender_counts(w.lender).paid;
    if (actors[COMES].act == bring) {
        assert_true(lender_ask(w.lender, &ask));
        assert_non_null(w.call = lender_next(w.lender, T0_US));
    }
    slice_put(w.cells, CELL, END_US, w.left + w.taken, T0_US, NULL);
    if (w.taken > 0)
        slice_spend(w.cells, CELL, SLICE, MAX, T0_US, w.taken, true);
    for (int i = 0; i < ACTORS; i++) {
        actors[i].done = actors[i].begun = false;
        getcontext(&actors[i].context);
        actors[i].context.uc_stack.ss_sp = actors[i].stack;
        actors[i].context.uc_stack.ss_size = STACK;
        makecontext(&actors[i].context, begin_actor, 0);
    }
}

static unsigned ready(struct actor *ret[ACTORS])
{
    unsigned count = 0;
    for (int i = 0; i < ACTORS; i++)
        if (!actors[i].done && (i != SPENDS || actors[OWES].done))
            ret[count++] = &actors[i];
    return count;
}

static void let_go_on(struct actor *actor)
{
    current = actor;
    swapcontext(&scheduler, &actor->context);
    current = NULL;
}

static void check_world(const char *what, unsigned long number)
{
    uint64_t left = slice_left(w.cells, CELL, END_US, T0_US), debt = owed_at(T0_US), all = w.left + w.taken + w.tokens;
    w.paid += lender_counts(w.lender).paid - w.paid_before;
    uint64_t due = w.cost > w.spent + w.paid && (w.spent > 0 || w.standin) ? w.cost - w.spent - w.paid : 0;
    if (w.wrong)
        fail_msg("%s, schedule %lu: a token was spent while something was owed", what, number);
    if (left + w.spent + w.paid + w.passed != all || debt != due)
        fail_msg("%s, schedule %lu: of %lu tokens %lu are left, %lu spent, %lu paid, %lu passed; %lu are owed, not %lu",
                 what, number, (unsigned long)all, (unsigned long)left, (unsigned long)w.spent, (unsigned long)w.paid,
                 (unsigned long)w.passed, (unsigned long)debt, (unsigned long)due);
    bool locked = left > 0 && slice_spend_any(w.cells, CELL, SLICE, MAX, T0_US, 1, false).outcome != SLICE_TAKEN;
    if (locked)
        fail_msg("%s, schedule %lu: %lu tokens stay locked", what, number, (unsigned long)left);
}

/* All orders, each once: `taken` is the choice at each step, of so many. The last one that has another is changed. */
static unsigned long run_all(const char *what)
{
    unsigned taken[STEPS_MOST] = { 0 }, of[STEPS_MOST];
    unsigned long number = 0;
    for (size_t steps;; number++) {
        struct actor *can[ACTORS];
        begin_world();
        for (steps = 0; (of[steps] = ready(can)) > 0; steps++) {
            assert_true(steps < STEPS_MOST - 1);
            let_go_on(can[taken[steps]]);
        }
        check_world(what, number);
        while (steps > 0 && taken[steps - 1] + 1 == of[steps - 1])
            taken[--steps] = 0;
        if (steps == 0)
            return number + 1;
        taken[steps - 1]++;
    }
}

static int set_up(void **state)
{
    (void)state;
    w = (struct world){ .cells = table_of_cells(64) };
    w.limit = limit_of(LIMIT_FIXED_WINDOW, MAX, 60 * US_PER_S);
    w.limit.overdraft = true;
    actors[COMES].act = bring;
    actors[OWES].act = overdraw;
    actors[SPENDS].act = spend;
    /* From now on the table knows that something may be owed: all schedules have the same steps. */
    debt_add(w.cells, OWED, &w.limit, &w.limit, NULL, T0_US, 1);
    return lender_new(&w.lender, w.cells);
}

static int tear_down(void **state)
{
    (void)state;
    lender_free(w.lender);
    cells_close(w.cells);
    return 0;
}

/* ---- tests ---- */

static void test_a_slice_comes(void **state)
{
    (void)state;
    w.left = 3;
    w.tokens = 40;
    w.cost = 60;
    unsigned long count = run_all("less than is owed");
    w.cost = 20;
    count += run_all("more than is owed");
    w.tokens = 0;
    count += run_all("nothing");
    print_message("# %lu schedules\n", count);
}

static void test_a_slice_comes_too_late(void **state)
{
    (void)state;
    w.standin = true;
    w.tokens = 40;
    w.cost = 60;
    run_all("less than is owed");
    w.cost = 20;
    run_all("more than is owed");
}

/* A request that another limit refuses gives its tokens back, while one overdraws what it had left. */
static void test_tokens_come_back(void **state)
{
    (void)state;
    actors[COMES].act = give_back;
    w.left = 3;
    w.taken = 5;
    w.cost = 60;
    run_all("less than is owed");
    w.cost = 6;
    run_all("more than is owed");
}

static void finish(struct actor *actor)
{
    while (!actor->done)
        let_go_on(actor);
}

/* Its memory is lost, and with it what it would have done. */
static void lender_dies(void)
{
    lender_free(w.lender);
    if (actors[COMES].act == bring && !actors[COMES].done)
        free(w.call);
    assert_int_equal(lender_new(&w.lender, w.cells), 0);
}

/* When the claim of the dead is over, the next slice takes the debt along, and what they had locked can be spent again. */
static void check_recovery(void)
{
    int64_t now_us = T0_US + DEBT_CLAIM_US;
    struct slice_ask ask = { .cell = CELL, .owed = OWED, .need = 1, .slice = SLICE, .ttl_ms = TTL_MS, .limit = w.limit };
    struct lent lent = { .tokens = 40, .end_us = END_US, .server_us = now_us, .room = 0 };
    uint64_t before = slice_left(w.cells, CELL, END_US, now_us), debt = owed_at(now_us);
    assert_true(before + w.spent + w.passed <= w.left + w.taken + w.tokens);
    assert_true(lender_ask(w.lender, &ask));
    struct lend_call *call = lender_next(w.lender, now_us);
    if (!call) /* there is enough, and nothing is owed */
        return;
    assert_int_equal(call->debt, debt);
    lender_answer(w.lender, call, LEND_ANSWERED, &lent, now_us);
    assert_int_equal(owed_at(now_us), 0);
    assert_int_equal(slice_spend(w.cells, CELL, SLICE, MAX, now_us, 0, false).left, before + 40);
}

/* Whoever brings tokens is killed after some of its steps, before or after another request overdraws. */
static void test_kill(void **state)
{
    (void)state;
    w.left = 3;
    w.cost = 60;
    for (int brings = 0; brings <= 1; brings++) {
        actors[COMES].act = brings ? bring : give_back;
        w.tokens = brings ? 40 : 0;
        w.taken = brings ? 0 : 5;
        for (unsigned n = 0; n < 2 * STEPS_MOST; n++) {
            begin_world();
            if (n % 2)
                finish(&actors[OWES]);
            for (unsigned steps = n / 2; steps > 0 && !actors[COMES].done; steps--)
                let_go_on(&actors[COMES]);
            finish(&actors[OWES]);
            finish(&actors[SPENDS]);
            assert_false(w.wrong);
            lender_dies();
            check_recovery();
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(test_a_slice_comes), TEST(test_a_slice_comes_too_late),
                                        TEST(test_tokens_come_back), TEST(test_kill) };
    return cmocka_run_group_tests_name("slices/repay", tests, NULL, NULL);
}
