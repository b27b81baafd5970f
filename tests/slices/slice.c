/* Slices in cells, asks through the first page, and debts. */
#include "slices/slice.h"
#include "slices/asks.h"
#include "slices/debt.h"

#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

enum { CELLS = 64, SLICE = 10, MAX = 100 };
#define END_US (T0_US + 60 * US_PER_S)
#define KEY UINT64_C(0x123456789abcdef1)

static int open_table(void **state)
{
    *state = table_of_cells(CELLS);
    return 0;
}

static int close_table(void **state)
{
    cells_close(*state);
    return 0;
}

static struct slice_spent spend_at(struct cells *t, int64_t now_us, uint32_t cost)
{
    return slice_spend(t, KEY, SLICE, MAX, now_us, cost, true);
}

static void assert_spent(struct slice_spent spent, enum slice_outcome outcome, uint32_t left, bool renew)
{
    assert_int_equal(spent.outcome, outcome);
    assert_int_equal(spent.left, left);
    assert_int_equal(spent.renew, renew);
}

/* ---- spending ---- */

static void test_absent_is_short(void **state)
{
    struct slice_spent spent = spend_at(*state, T0_US, 1);
    assert_spent(spent, SLICE_SHORT, 0, false);
    assert_int_equal(spent.end_us, 0);
    assert_int_equal(cells_count_live(*state, T0_US), 0);
    assert_spent(spend_at(*state, T0_US, 0), SLICE_TAKEN, 0, false);
}

static void test_spend_all(void **state)
{
    slice_put(*state, KEY, END_US, SLICE, T0_US, NULL);
    for (uint32_t left = SLICE; left-- > 0;) {
        struct slice_spent spent = spend_at(*state, T0_US, 1);
        /* Below half it is asked for, once. */
        assert_spent(spent, SLICE_TAKEN, left, left == SLICE / 2 - 1);
        assert_int_equal(spent.end_us, END_US);
    }
    assert_spent(spend_at(*state, T0_US, 1), SLICE_SHORT, 0, false);
    slice_put(*state, KEY, END_US, 3, T0_US, NULL);
    assert_spent(spend_at(*state, T0_US, 4), SLICE_SHORT, 3, false);
    assert_spent(spend_at(*state, T0_US, 3), SLICE_TAKEN, 0, true);
}

static void test_looking_changes_nothing(void **state)
{
    slice_put(*state, KEY, END_US, 2, T0_US, NULL);
    for (int i = 0; i < 3; i++)
        assert_spent(slice_spend(*state, KEY, SLICE, MAX, T0_US, 2, false), SLICE_TAKEN, 2, false);
    assert_spent(slice_spend(*state, KEY, SLICE, MAX, T0_US, 3, false), SLICE_SHORT, 2, false);
    assert_spent(spend_at(*state, T0_US, 0), SLICE_TAKEN, 2, false);
    assert_int_equal(slice_left(*state, KEY, END_US, T0_US), 2);
}

/* ---- windows ---- */

static void test_dies_with_its_window(void **state)
{
    slice_put(*state, KEY, END_US, SLICE, T0_US, NULL);
    assert_spent(spend_at(*state, END_US - 1, 1), SLICE_TAKEN, SLICE - 1, false);
    assert_spent(spend_at(*state, END_US, 1), SLICE_SHORT, 0, false);
    assert_int_equal(slice_left(*state, KEY, END_US, END_US), 0);
    assert_int_equal(slice_collect(*state, KEY, END_US, END_US), 0);
    slice_put(*state, KEY, END_US, SLICE, END_US, NULL); /* comes too late */
    assert_int_equal(spend_at(*state, END_US, 1).outcome, SLICE_SHORT);
    slice_put(*state, KEY, END_US + 100, 1, END_US, NULL); /* nothing of the one before */
    assert_int_equal(slice_left(*state, KEY, END_US + 100, END_US), 1);
}

static void test_ends_far_ahead(void **state)
{
    int64_t end = CLOCK_END_US + 3650 * 86400 * US_PER_S; /* does not fit 52 bits */
    slice_put(*state, KEY, end, 7, CLOCK_END_US - 1, NULL);
    struct slice_spent spent = spend_at(*state, CLOCK_END_US - 1, 1);
    assert_spent(spent, SLICE_TAKEN, 6, false);
    assert_int_equal(spent.end_us, end);
}

/* Two answers about one window: the earlier end counts. */
static void test_same_window(void **state)
{
    slice_put(*state, KEY, END_US, 5, T0_US, NULL);
    slice_put(*state, KEY, END_US - SLICE_SAME_US, 5, T0_US, NULL);
    assert_int_equal(spend_at(*state, T0_US, 1).end_us, END_US - SLICE_SAME_US);
    assert_int_equal(slice_left(*state, KEY, END_US, T0_US), 9);
    slice_put(*state, KEY, END_US, 1, T0_US, NULL);
    assert_int_equal(spend_at(*state, T0_US, 0).end_us, END_US - SLICE_SAME_US);
    assert_int_equal(slice_left(*state, KEY, END_US - SLICE_SAME_US, T0_US), 10);
    slice_put(*state, KEY, END_US + 1, 3, T0_US, NULL); /* another one: what was left dies */
    assert_int_equal(spend_at(*state, T0_US, 0).left, 3);
}

static void test_unspend(void **state)
{
    slice_unspend(*state, KEY, END_US, 3, NULL); /* makes no cell */
    assert_int_equal(cells_count_live(*state, T0_US), 0);
    slice_put(*state, KEY, END_US, 5, T0_US, NULL);
    struct slice_spent spent = spend_at(*state, T0_US, 5);
    slice_unspend(*state, KEY, spent.end_us, 5, NULL);
    assert_int_equal(slice_left(*state, KEY, END_US, T0_US), 5);
    /* The window after it is not the same, however short they are. */
    slice_put(*state, KEY, END_US + 1000, 1, END_US, NULL);
    slice_unspend(*state, KEY, spent.end_us, 5, NULL);
    assert_int_equal(slice_left(*state, KEY, END_US + 1000, END_US), 1);
}

static void test_collect(void **state)
{
    slice_put(*state, KEY, END_US, 5, T0_US, NULL);
    assert_int_equal(slice_collect(*state, KEY, END_US - 2 * SLICE_SAME_US, T0_US), 0);
    assert_int_equal(slice_collect(*state, KEY, END_US, T0_US), 5);
    assert_int_equal(slice_collect(*state, KEY, END_US, T0_US), 0);
    assert_spent(spend_at(*state, T0_US, 1), SLICE_SHORT, 0, false);
    assert_int_equal(cells_count_live(*state, T0_US), 0);
}

static void test_too_many_tokens(void **state)
{
    slice_put(*state, KEY, END_US, UINT32_MAX - 1, T0_US, NULL);
    slice_put(*state, KEY, END_US, 5, T0_US, NULL);
    assert_int_equal(slice_left(*state, KEY, END_US, T0_US), UINT32_MAX);
}

/* ---- dry ---- */

static void test_dry(void **state)
{
    int64_t until = T0_US + 250 * US_PER_MS;
    slice_set_dry(*state, KEY, END_US, MAX, 0, until, T0_US, NULL);
    assert_spent(spend_at(*state, T0_US, 1), SLICE_DRY, 0, false);
    assert_spent(spend_at(*state, until - US_PER_MS, 1), SLICE_DRY, 0, false);
    assert_spent(spend_at(*state, until, 1), SLICE_SHORT, 0, false);
    assert_spent(spend_at(*state, T0_US - 700 * US_PER_MS, 1), SLICE_DRY, 0, false); /* by a clock that lags behind */
    assert_spent(spend_at(*state, T0_US - 2 * US_PER_S, 1), SLICE_SHORT, 0, false);  /* the clock went back */
    /* What was said of another max does not count. */
    assert_int_equal(slice_spend(*state, KEY, SLICE, MAX + 1, T0_US, 1, true).outcome, SLICE_SHORT);
    slice_put(*state, KEY, END_US, 1, T0_US, NULL);
    assert_spent(spend_at(*state, T0_US, 2), SLICE_SHORT, 1, false);
}

/* Tokens stay, and are spent; while it is known that there are no more, nobody asks. */
static void test_dry_with_tokens(void **state)
{
    slice_put(*state, KEY, END_US, 3, T0_US, NULL);
    assert_spent(spend_at(*state, T0_US, 1), SLICE_TAKEN, 2, true);
    slice_set_dry(*state, KEY, END_US, MAX, 0, T0_US + 250 * US_PER_MS, T0_US, NULL);
    assert_spent(spend_at(*state, T0_US, 1), SLICE_TAKEN, 1, false);
    assert_spent(spend_at(*state, T0_US, 2), SLICE_DRY, 1, false);
    assert_spent(spend_at(*state, T0_US + US_PER_S, 1), SLICE_TAKEN, 0, true);
}

/* A caller that wanted more than there is was refused; a caller that wants less asks. */
static void test_dry_room(void **state)
{
    for (uint64_t room = 1; room < UINT32_MAX; room = room * 3 / 2 + 1) {
        slice_set_dry(*state, KEY, END_US, MAX, (uint32_t)room, T0_US + 250 * US_PER_MS, T0_US, NULL);
        assert_int_equal(spend_at(*state, T0_US, (uint32_t)room + 1).outcome, SLICE_DRY);
        assert_int_equal(spend_at(*state, T0_US, (uint32_t)(room - room / 8)).outcome, SLICE_SHORT);
        if (room < 16)
            assert_int_equal(spend_at(*state, T0_US, (uint32_t)room).outcome, SLICE_SHORT);
    }
}

/* A flood of newcomers does not push out tokens; those push out nobody who has used much of a limit. */
static void test_kept_before_newcomers(void **state)
{
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 100, 3600 * US_PER_S);
    slice_put(*state, KEY, END_US, SLICE, T0_US, NULL);
    for (uint64_t n = 0; n < 20 * CELLS; n++)
        take(*state, key_of(n), &limit, T0_US, 1);
    assert_int_equal(slice_left(*state, KEY, END_US, T0_US), SLICE);
    for (uint64_t n = 0; n < 20 * CELLS; n++)
        take(*state, key_of(n), &limit, T0_US, 50);
    assert_int_equal(slice_left(*state, KEY, END_US, T0_US), 0);
}

/* ---- asks ---- */

#define STEADY_US (1000 * US_PER_S)

static struct slice_ask ask_of(unsigned number)
{
    struct slice_ask ask = { .cell = number + 1, .need = 1, .slice = 5, .ttl_ms = 2000 };
    limit_init(&ask.limit, LIMIT_FIXED_WINDOW, MAX, 0, 60 * US_PER_S);
    ask.key_len = (uint16_t)snprintf(ask.key, sizeof ask.key, "{u%u}:rule:key", number);
    ask.field_len = (uint16_t)snprintf(ask.field, sizeof ask.field, "minute.f");
    return ask;
}

static void assert_same_ask(const struct slice_ask *a, const struct slice_ask *b)
{
    assert_int_equal(a->cell, b->cell);
    assert_int_equal(a->limit.algorithm, b->limit.algorithm);
    assert_int_equal(a->limit.max, b->limit.max);
    assert_int_equal(a->limit.per_us, b->limit.per_us);
    assert_int_equal(a->limit.length, b->limit.length);
    assert_memory_equal(&a->window, &b->window, sizeof a->window);
    assert_memory_equal(&a->next, &b->next, sizeof a->next);
    assert_true(a->need == b->need && a->slice == b->slice && a->ttl_ms == b->ttl_ms && a->owed == b->owed);
    assert_int_equal(a->key_len, b->key_len);
    assert_memory_equal(a->key, b->key, a->key_len);
    assert_int_equal(a->field_len, b->field_len);
    assert_memory_equal(a->field, b->field, a->field_len);
}

static void test_ask(void **state)
{
    struct slice_ask ask = ask_of(7), got;
    ask.owed = 3;
    assert_false(ask_next(*state, &got, STEADY_US));
    assert_true(ask_post(*state, &ask, STEADY_US));
    assert_true(ask_next(*state, &got, STEADY_US));
    assert_same_ask(&got, &ask);
    assert_false(ask_next(*state, &got, STEADY_US));
    ask.limit = limit_of(LIMIT_CALENDAR, MAX, 0);
    ask.window = (struct window){ T0_US, END_US };
    ask.next = (struct window){ END_US, END_US + 60 * US_PER_S };
    strcpy(ask.field, "minute.c");
    assert_true(ask_post(*state, &ask, STEADY_US));
    assert_true(ask_next(*state, &got, STEADY_US));
    assert_same_ask(&got, &ask);
    assert_false(got.limit.overdraft);
    ask.limit.overdraft = true;
    assert_true(ask_post(*state, &ask, STEADY_US));
    assert_true(ask_next(*state, &got, STEADY_US));
    assert_same_ask(&got, &ask);
    assert_true(got.limit.overdraft);
}

static void test_places(void **state)
{
    struct slice_ask ask = ask_of(0), got;
    unsigned places = 0;
    while (ask = ask_of(places), ask_post(*state, &ask, STEADY_US))
        places++;
    assert_in_range(places, 4, 16);
    ask = ask_of(0); /* waits already */
    assert_true(ask_post(*state, &ask, STEADY_US));
    for (unsigned i = 0; i < places; i++)
        assert_true(ask_next(*state, &got, STEADY_US));
    assert_false(ask_next(*state, &got, STEADY_US));
}

/* Nobody came for them: they make room, and are not sent any more. */
static void test_old_asks(void **state)
{
    struct slice_ask ask = ask_of(0), got;
    for (unsigned i = 0; ask = ask_of(i), ask_post(*state, &ask, STEADY_US); i++)
        ;
    assert_false(ask_next(*state, &got, STEADY_US + US_PER_S));
    assert_false(ask_next(*state, &got, STEADY_US - 1)); /* the machine was started anew */
    assert_true(ask_post(*state, &ask, STEADY_US + US_PER_S));
    assert_true(ask_next(*state, &got, STEADY_US + US_PER_S));
    assert_int_equal(got.cell, ask.cell);
}

static void test_bad_asks(void **state)
{
    struct slice_ask ask, got;
#define REFUSED(change)                                  \
    do {                                                 \
        ask = ask_of(1);                                 \
        change;                                          \
        assert_false(ask_post(*state, &ask, STEADY_US)); \
        assert_false(ask_next(*state, &got, STEADY_US)); \
    } while (0)
    REFUSED(ask.key[0] = '(');
    REFUSED(ask.key_len = 3);
    REFUSED(ask.key_len = STORE_KEY_MAX + 1);
    REFUSED(memset(ask.key + 1, 'x', STORE_KEY_MAX - 1));
    REFUSED(ask.field_len = STORE_FIELD_MAX + 1);
    REFUSED(ask.field_len = 2);
    REFUSED(ask.field[ask.field_len - 1] = 'c');
    REFUSED(ask.field[ask.field_len - 2] = ':');
    REFUSED(ask.need = 0);
    REFUSED(ask.slice = 0);
    REFUSED(ask.ttl_ms = 0);
    REFUSED(ask.limit.algorithm = LIMIT_TOKEN_BUCKET);
    REFUSED(ask.limit.per_us = 0);
    REFUSED(ask.limit.per_us = LIMIT_PER_MAX_US + 1);
    REFUSED((ask.limit.algorithm = LIMIT_CALENDAR, strcpy(ask.field, "minute.c"))); /* without windows */
#undef REFUSED
}

/* Any bytes may be there. */
static void test_damaged_page(void **state)
{
    struct random random = { random_seed() };
    struct cells *t = *state;
    unsigned char *page = (unsigned char *)t->header;
    unsigned found = 0;
    for (unsigned n = 0; n < 20000 / SLOWER; n++) {
        struct slice_ask ask = ask_of(n), got;
        bool posted = ask_post(t, &ask, STEADY_US);
        unsigned damage = (unsigned)random_in(&random, 0, 3) * (unsigned)random_in(&random, 1, 400);
        for (unsigned i = 0; i < damage; i++)
            page[random_in(&random, 512, CELLS_HEADER_BYTES - 1)] = (unsigned char)random_u64(&random);
        while (ask_next(t, &got, STEADY_US)) {
            found++;
            assert_int_equal(got.need, 1); /* whole, or not at all */
            assert_int_equal(got.key[0], '{');
            assert_int_equal(got.limit.max, MAX);
        }
        struct lender_status news = lender_status_read(t, STEADY_US);
        assert_true(news.hosts >= 1);
        assert_true(posted || damage || n > 0);
        memset(page + 512, 0, CELLS_HEADER_BYTES - 512);
    }
    assert_true(found > 0);
}

static void test_waiting(void **state)
{
    struct slice_ask ask = ask_of(0);
    uint32_t seen = ask_wait(*state, 0, 1000); /* nobody asks */
    assert_int_equal(seen, 0);
    assert_true(ask_post(*state, &ask, STEADY_US));
    seen = ask_wait(*state, seen, 3600 * US_PER_S); /* does not wait: somebody has asked since */
    assert_int_equal(seen, 1);
}

/* Wakes another process, and misses nobody who has not begun to wait yet. */
static void test_answers(void **state)
{
    struct cells *t = *state;
    int status = -1;
    uint32_t seen = answers_seen(t);
    answers_wait(t, seen, 1000); /* nobody answers */
    assert_int_equal(answers_seen(t), seen);
    pid_t child = fork();
    if (child == 0) {
        answers_wait(t, seen, 3600 * US_PER_S);
        _exit(answers_seen(t) == seen + 1 ? 0 : 1);
    }
    answers_came(t);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_status(void **state)
{
    struct lender_status news = lender_status_read(*state, STEADY_US);
    assert_false(news.counters || news.up);
    assert_int_equal(news.hosts, 1);
    lender_status_write(*state, &(struct lender_status){ true, true, 3, -5 }, STEADY_US);
    news = lender_status_read(*state, STEADY_US + US_PER_S - 1);
    assert_true(news.counters && news.up && news.hosts == 3 && news.offset_us == -5);
    news = lender_status_read(*state, STEADY_US + US_PER_S);
    assert_true(news.counters && !news.up);
    news = lender_status_read(*state, STEADY_US - 1); /* the machine was started anew */
    assert_true(news.counters && !news.up);
}

/* The page was zero until now, in files and in nginx's zones. */
static void test_blank_page(void **state)
{
    struct cells *t = *state;
    const char *page = (const char *)t->header;
    for (unsigned i = 512; i < CELLS_HEADER_BYTES; i++)
        assert_int_equal(page[i], 0);
}

/* ---- what is owed ---- */

static const struct window DAY = { T0_US - 3600 * US_PER_S, T0_US + 82800 * US_PER_S };

static uint32_t owe(struct cells *t, const struct limit *limit, int64_t now_us, uint32_t cost)
{
    struct limit_state seen;
    debt_add(t, KEY, limit, limit, &DAY, now_us, cost);
    return debt_amount(t, KEY, limit, &DAY, now_us, &seen);
}

static void pay(struct cells *t, const struct limit *limit, int64_t now_us)
{
    struct limit_state seen;
    uint32_t owed = debt_amount(t, KEY, limit, &DAY, now_us, &seen);
    debt_pay(t, KEY, limit, seen, now_us, owed, now_us);
}

/* As much as was let through, whatever the limit; paid once; then there is no cell. */
static void test_owed(void **state)
{
    struct cells *t = *state;
    static const enum limit_algorithm all[] = { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_SLIDING_WINDOW,
                                                LIMIT_CALENDAR };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct limit limit = limit_of(all[i], MAX, all[i] == LIMIT_CALENDAR ? 0 : 86400 * US_PER_S);
        struct limit_state seen, last;
        assert_int_equal(debt_amount(t, KEY, &limit, &DAY, T0_US, &seen), 0);
        assert_int_equal(owe(t, &limit, T0_US, 7), 7);
        assert_int_equal(owe(t, &limit, T0_US, 3 * MAX), 3 * MAX + 7);
        debt_amount(t, KEY, &limit, &DAY, T0_US, &seen);
        last = debt_add(t, KEY, &limit, &limit, &DAY, T0_US, 5); /* while it is paid */
        debt_pay(t, KEY, &limit, seen, T0_US, 3 * MAX + 7, T0_US);
        assert_int_equal(debt_amount(t, KEY, &limit, &DAY, T0_US, &seen), 5);
        debt_undo(t, KEY, &limit, last, T0_US, 3, T0_US);
        assert_int_equal(debt_amount(t, KEY, &limit, &DAY, T0_US, &seen), 2);
        pay(t, &limit, T0_US);
        assert_int_equal(cells_count_live(t, T0_US), 0);
    }
}

/* What is owed under a large max is added to, and paid, under a small one. */
static void test_owed_of_another_max(void **state)
{
    struct cells *t = *state;
    static const enum limit_algorithm all[] = { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_CALENDAR };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct limit large, small;
        struct limit_state seen;
        uint64_t paid = 0;
        limit_init(&large, all[i], 10000000000, 0, 86400 * US_PER_S);
        limit_init(&small, all[i], MAX, 0, 86400 * US_PER_S);
        debt_add(t, KEY, &large, &large, &DAY, T0_US, 5000000000);
        debt_add(t, KEY, &small, &small, &DAY, T0_US, 7);
        assert_int_equal(debt_amount(t, KEY, &large, &DAY, T0_US, &seen), 5000000007);
        for (int calls = 0; calls < 2; calls++) { /* a small bucket pays 2^32 - 1 at once */
            uint64_t owed = debt_amount(t, KEY, &small, &DAY, T0_US, &seen);
            debt_pay(t, KEY, &small, seen, T0_US, owed, T0_US);
            paid += owed;
        }
        assert_int_equal(paid, 5000000007);
        assert_int_equal(cells_count_live(t, T0_US), 0);
    }
}

/* The part of the previous window that is in view is paid once, too. */
static void test_owed_of_two_windows(void **state)
{
    struct cells *t = *state;
    struct limit limit = limit_of(LIMIT_SLIDING_WINDOW, MAX, 60 * US_PER_S);
    struct limit_state seen;
    int64_t now_us = T0_US + 90 * US_PER_S;
    assert_int_equal(owe(t, &limit, T0_US, 40), 40);
    assert_int_equal(owe(t, &limit, now_us, 3), 20 + 3);
    debt_amount(t, KEY, &limit, &DAY, now_us, &seen);
    pay(t, &limit, now_us);
    assert_int_equal(debt_amount(t, KEY, &limit, &DAY, now_us, &seen), 0);
    assert_int_equal(cells_count_live(t, now_us), 0);
    /* Paid when the window has gone on. */
    owe(t, &limit, now_us, 10);
    debt_amount(t, KEY, &limit, &DAY, now_us, &seen);
    assert_int_equal(owe(t, &limit, now_us + 61 * US_PER_S, 4), 10 + 4); /* 59/60 of 10, rounded up */
    debt_pay(t, KEY, &limit, seen, now_us, 10, now_us + 61 * US_PER_S);
    assert_int_equal(debt_amount(t, KEY, &limit, &DAY, now_us + 61 * US_PER_S, &seen), 4);
}

/* A debt is kept as the count that it stands for: a flood of newcomers does not make it disappear. */
static void test_owed_is_kept(void **state)
{
    struct cells *t = *state;
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, MAX, 60 * US_PER_S),
                 share = limit_of(LIMIT_FIXED_WINDOW, 10, 60 * US_PER_S);
    struct limit_state seen;
    struct cells_taken taken;
    debt_add(t, KEY, &limit, &share, &DAY, T0_US, 5);
    for (uint64_t i = 0; i < 100 * CELLS; i++) {
        struct cells_ask ask = { key_of(i), &limit, &DAY, T0_US, 10 };
        cells_take(t, &ask, &taken);
    }
    assert_int_equal(debt_amount(t, KEY, &limit, &DAY, T0_US, &seen), 5);
}

static void test_claim(void **state)
{
    struct cells *t = *state;
    assert_true(debt_claim(t, KEY, 1, T0_US));
    assert_false(debt_claim(t, KEY, 2, T0_US + DEBT_CLAIM_US - 1));
    debt_release(t, KEY, 2, T0_US); /* not its own */
    assert_false(debt_claim(t, KEY, 1, T0_US));
    debt_release(t, KEY, 1, T0_US);
    assert_int_equal(cells_count_live(t, T0_US), 0);
    assert_true(debt_claim(t, KEY, 2, T0_US));
    assert_true(debt_claim(t, KEY, 3, T0_US + DEBT_CLAIM_US));      /* 2 has died */
    assert_false(debt_claim(t, KEY, 4, T0_US + DEBT_CLAIM_US / 2)); /* whose clock lags behind */
    assert_true(debt_claim(t, KEY, 4, T0_US - 1));                  /* the clock was wrong */
    debt_release(t, KEY, 3, T0_US);
    assert_false(debt_claim(t, KEY, 5, T0_US));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_table, close_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_absent_is_short),
        TEST(test_spend_all),
        TEST(test_looking_changes_nothing),
        TEST(test_dies_with_its_window),
        TEST(test_ends_far_ahead),
        TEST(test_same_window),
        TEST(test_unspend),
        TEST(test_collect),
        TEST(test_too_many_tokens),
        TEST(test_dry),
        TEST(test_dry_with_tokens),
        TEST(test_dry_room),
        TEST(test_kept_before_newcomers),
        TEST(test_ask),
        TEST(test_places),
        TEST(test_old_asks),
        TEST(test_bad_asks),
        TEST(test_damaged_page),
        TEST(test_waiting),
        TEST(test_answers),
        TEST(test_status),
        TEST(test_blank_page),
        TEST(test_owed),
        TEST(test_owed_of_another_max),
        TEST(test_owed_of_two_windows),
        TEST(test_owed_is_kept),
        TEST(test_claim),
    };
    return cmocka_run_group_tests_name("slices/slice", tests, NULL, NULL);
}
