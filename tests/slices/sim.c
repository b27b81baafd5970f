/* Leases over a network that delays, loses and reorders, with hosts and lenders that crash, tables that drop cells, and
 * clocks that differ and step: random schedules on a virtual clock. The lender and the cells are the real ones; the store
 * is a few lines here. After each step:
 *
 *   sum      of one window no more was spent than the largest max that was in force in it, but for what was given back
 *   ledger   what the store has counted = spent + held in cells + waiting to be given back + on its way + lost
 *   dry      a refusal without asking: max - spent ≤ held + waiting + on its way + lost + what was given back since the
 * store said so + what it had then, which is less than the cost (by up to an eighth more, from a cost of 17 on) window
 * nothing is spent from a slice after the end of its window, unless the host's clock was set back share    a host that has
 * one lender holds, with what is on its way to it, no more than a full slice or twice a cost
 *
 * And where nothing is lost, all of max is found in the end.
 *
 * TEST_SEED is the seed of the first schedule, TEST_ROUNDS how many there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "slices/debt.h"
#include "world.h"

#define CHECK(w, what)                                                                              \
    do {                                                                                            \
        if (!(what))                                                                                \
            fail_msg("seed %llu, line %d: not %s", (unsigned long long)(w)->seed, __LINE__, #what); \
    } while (0)

static int64_t pick(struct world *w, int64_t low, int64_t high)
{
    return random_in(&w->rnd, low, high);
}

static bool one_in(struct world *w, int n)
{
    return random_one_in(&w->rnd, n);
}

static int64_t host_now(const struct world *w, unsigned h)
{
    return w->now_us + w->host[h].offset_us;
}

static uint64_t cell_key(unsigned subject)
{
    return (subject + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static struct slice_spent look(struct world *w, unsigned h, unsigned i)
{
    const struct subject *s = &w->subjects[i];
    return slice_spend(w->host[h].cells, cell_key(i), s->slice, s->max, host_now(w, h), 0, false);
}

/* ---- the store ---- */

static struct window natural_window(int64_t per_us, int64_t now_us)
{
    return (struct window){ now_us - now_us % per_us, now_us - now_us % per_us + per_us };
}

static struct win *current_win(struct subject *s)
{
    return s->win_count ? &s->wins[s->win_count - 1] : NULL;
}

static struct win *win_that_ends(struct subject *s, int64_t end_us)
{
    for (unsigned i = s->win_count; i-- > 0;)
        if (s->wins[i].end_us == end_us)
            return &s->wins[i];
    return NULL;
}

static struct win *store_window(struct world *w, struct subject *s, const struct slice_ask *ask)
{
    struct win *win = current_win(s);
    if (win && win->end_us > w->now_us)
        return win;
    int64_t end = w->now_us + ask->limit.per_us;
    if (ask->limit.algorithm == LIMIT_CALENDAR) {
        const struct window *in = w->now_us < ask->window.end_us ? &ask->window : &ask->next;
        if (w->now_us < in->start_us || w->now_us >= in->end_us)
            return NULL;
        end = in->end_us;
    }
    CHECK(w, s->win_count < WINDOWS);
    s->wins[s->win_count++] = (struct win){ .end_us = end };
    s->count = 0;
    return current_win(s);
}

/* It is settled with less, or given back: once, whether or not the store has learnt of it. */
static void end_hold(struct world *w, struct hold *h, uint32_t to)
{
    uint32_t back = h->cost - to;
    h->win->spent -= back;
    h->win->returned += back;
    if (h->win == current_win(h->subject))
        h->subject->count -= back;
    *h = w->holds[--w->hold_count];
}

/* Whoever finds too little gives back what is over. */
static void fold(struct world *w, const struct subject *s)
{
    for (unsigned n = w->hold_count; n-- > 0;) {
        struct hold *h = &w->holds[n];
        if (h->subject == s && h->entered_us && h->entered_us <= w->now_us && h->ends_us <= w->now_us) {
            w->ended++;
            end_hold(w, h, 0);
        }
    }
}

static struct lent store_lend(struct world *w, struct subject *s, const struct lend_call *call)
{
    const struct slice_ask *ask = &call->ask;
    struct win *win = store_window(w, s, ask);
    if (!win)
        return (struct lent){ .stale = true, .server_us = w->now_us };
    if (call->lacks > (int64_t)ask->limit.max - s->count || s->count >= (int64_t)ask->limit.max)
        fold(w, s);
    int64_t room = ask->limit.max - s->count, part = room > 0 ? room / (2 * w->hosts) : 0;
    struct lent lent = { .end_us = win->end_us, .server_us = w->now_us };
    int64_t need = ask->need < room ? ask->need : room;
    if (call->lacks <= room && room > 0)
        lent.tokens = part < ask->slice ? (uint32_t)part : ask->slice;
    if (call->lacks <= room && lent.tokens < need)
        lent.tokens = (uint32_t)need;
    lent.room = room > lent.tokens ? (uint32_t)(room - lent.tokens) : 0;
    s->count += lent.tokens;
    win->max = ask->limit.max > win->max ? ask->limit.max : win->max;
    win->on_its_way += lent.tokens;
    return lent;
}

static void store_return(struct subject *s, const struct lend_call *call)
{
    struct win *win = win_that_ends(s, call->end_us);
    win->on_its_way -= call->tokens;
    win->returned += call->tokens;
    if (win == current_win(s))
        s->count -= call->tokens;
}

/* ---- what the cells hold ---- */

enum gone { DIED, COLLECTED };

/* Notes what has gone from a host's cells. Nothing comes into them by itself. */
static void settle(struct world *w, unsigned h, enum gone gone)
{
    for (unsigned i = 0; i < SUBJECTS; i++) {
        struct shadow *o = &w->host[h].of[i];
        uint32_t left = look(w, h, i).left;
        if (w->steps && o->tokens == 0 && left <= o->asleep) {
            o->tokens = left;
            o->asleep -= left;
        }
        CHECK(w, left <= o->tokens);
        if (left == o->tokens)
            continue;
        if (gone == COLLECTED) {
            o->win->waiting[h] += o->tokens - left;
        } else {
            CHECK(w, left == 0);
            o->asleep += o->tokens;
        }
        o->tokens = left;
    }
}

static void lose_held(struct shadow *o)
{
    if (o->win)
        o->win->lost += (int64_t)o->tokens + o->asleep;
    o->tokens = o->asleep = 0;
}

static void tokens_come(struct world *w, unsigned h, unsigned i, struct win *win, uint32_t tokens)
{
    struct shadow *o = &w->host[h].of[i];
    struct slice_spent seen = look(w, h, i);
    uint32_t left = seen.left;
    win->on_its_way -= tokens;
    if (left == o->tokens && (left == 0 || o->win == win || seen.end_us == o->end_us)) { /* came too late */
        win->lost += tokens;
        return;
    }
    if (o->win != win || o->tokens == 0 || left == tokens) /* or its end seemed to be another */
        lose_held(o);
    CHECK(w, left == o->tokens + tokens); /* and so nothing of another window */
    o->win = win;
    o->tokens = left;
    o->end_us = seen.end_us;
}

/* ---- the network ---- */

static int64_t pick_delay(struct world *w)
{
    return one_in(w, 10) ? pick(w, 0, 3 * US_PER_S) : pick(w, 50, 20 * US_PER_MS);
}

static unsigned subject_of(struct world *w, uint64_t cell)
{
    for (unsigned i = 0; i < SUBJECTS; i++)
        if (cell_key(i) == cell)
            return i;
    CHECK(w, !"a message about a cell that there is");
    return 0;
}

static void send_call(struct world *w, unsigned h, struct lend_call *call)
{
    struct flight *f = w->flights;
    while (f->on)
        f++;
    CHECK(w, f < w->flights + FLIGHT - 1);
    w->flights_end = f < w->flights_end ? w->flights_end : f + 1;
    *f = (struct flight){ .call = call, .copy = *call, .host = h, .subject = subject_of(w, call->ask.cell), .on = true };
    f->arrives_us = w->now_us + pick_delay(w);
    f->told_us = f->arrives_us + pick_delay(w);
    f->result = LEND_ANSWERED;
    bool cut = w->host[h].cut_us > w->now_us;
    if (cut || (w->losses && one_in(w, 6))) {
        f->result = (enum lend_result)pick(w, LEND_UNSENT, cut ? LEND_LOST : LEND_FAILED);
        f->told_us = w->now_us + pick_delay(w); /* perhaps before it arrives */
        if (cut || f->result != LEND_LOST || one_in(w, 2))
            f->arrives_us = 0;
    }
    if (call->kind == LEND_RETURN) {
        struct win *win = win_that_ends(&w->subjects[f->subject], call->end_us);
        CHECK(w, win);
        win->waiting[h] -= call->tokens;
        win->on_its_way += call->tokens;
        CHECK(w, win->waiting[h] >= 0);
    }
}

static void arrive(struct world *w, struct flight *f)
{
    struct subject *s = &w->subjects[f->subject];
    f->arrived = true;
    if (f->copy.kind == LEND_TAKE) {
        f->lent = store_lend(w, s, &f->copy);
        f->returned = f->lent.stale ? 0 : current_win(s)->returned;
    } else {
        store_return(s, &f->copy);
        f->heard = true;
    }
}

static void note_dry(struct world *w, const struct flight *f)
{
    struct shadow *o = &w->host[f->host].of[f->subject];
    if (o->win && o->tokens > look(w, f->host, f->subject).left)
        lose_held(o);
    o->dry_win = win_that_ends(&w->subjects[f->subject], f->lent.end_us);
    o->dry_max = f->copy.ask.limit.max;
    o->dry_room = f->lent.room;
    o->dry_returned = f->returned;
}

static void tell(struct world *w, struct flight *f)
{
    struct host *host = &w->host[f->host];
    struct subject *s = &w->subjects[f->subject];
    struct lend_call *call = f->call;
    bool took = f->copy.kind == LEND_TAKE && f->result == LEND_ANSWERED;
    f->told = true;
    f->call = NULL;
    if (!call)
        return;
    settle(w, f->host, DIED);
    if (f->result == LEND_UNSENT && f->copy.kind == LEND_RETURN) {
        struct win *win = win_that_ends(s, f->copy.end_us);
        win->on_its_way -= f->copy.tokens;
        win->waiting[f->host] += f->copy.tokens;
        f->heard = true;
    }
    lender_answer(host->lender, call, f->result, took ? &f->lent : NULL, host_now(w, f->host));
    if (!took)
        return;
    f->heard = true;
    if (f->lent.stale)
        host->guess_us = w->now_us - host_now(w, f->host);
    else if (f->lent.tokens > 0)
        tokens_come(w, f->host, f->subject, win_that_ends(s, f->lent.end_us), f->lent.tokens);
    else
        note_dry(w, f);
}

/* Nobody will hear of it. */
static void lose_flight(struct world *w, const struct flight *f)
{
    bool took = f->copy.kind == LEND_TAKE;
    uint32_t tokens = took ? f->lent.tokens : f->copy.tokens;
    if (f->heard || tokens == 0)
        return;
    struct win *win = win_that_ends(&w->subjects[f->subject], took ? f->lent.end_us : f->copy.end_us);
    win->on_its_way -= tokens;
    win->lost += tokens;
}

static void run_network(struct world *w)
{
    while (w->flights_end > w->flights && !w->flights_end[-1].on)
        w->flights_end--;
    for (struct flight *f = w->flights; f < w->flights_end; f++) {
        if (f->on && !f->arrived && f->arrives_us && f->arrives_us <= w->now_us)
            arrive(w, f);
        if (f->on && !f->told && f->told_us <= w->now_us)
            tell(w, f);
        if (f->on && f->told && (f->arrived || !f->arrives_us)) {
            lose_flight(w, f);
            f->on = false;
        }
    }
}

/* ---- spending ---- */

static void ask_lender(struct world *w, unsigned h, unsigned i, uint32_t need)
{
    const struct subject *s = &w->subjects[i];
    struct host *host = &w->host[h];
    struct shadow *o = &host->of[i];
    struct slice_ask ask = { .cell = cell_key(i), .need = need, .slice = s->slice, .ttl_ms = TTL_MS };
    limit_init(&ask.limit, s->algorithm, s->max, 0, s->per_us);
    int64_t store_us = host_now(w, h) + host->guess_us;
    ask.window = natural_window(s->per_us, store_us);
    ask.next = natural_window(s->per_us, ask.window.end_us);
    ask.key_len = (uint16_t)snprintf(ask.key, sizeof ask.key, "{s%u}:r:key", i);
    ask.field_len = (uint16_t)snprintf(ask.field, sizeof ask.field, "l.%c", s->algorithm == LIMIT_CALENDAR ? 'c' : 'f');
    o->slice_max = ask.slice > o->slice_max ? ask.slice : o->slice_max;
    o->need_max = need > o->need_max ? need : o->need_max;
    CHECK(w, lender_ask(host->lender, &ask));
}

static void check_dry(struct world *w, unsigned h, unsigned i, uint32_t cost)
{
    const struct subject *s = &w->subjects[i];
    const struct shadow *o = &w->host[h].of[i];
    w->dry++;
    if (w->steps)
        return;
    CHECK(w, o->dry_win && o->dry_max == s->max);
    uint32_t lacks = cost - o->tokens;
    CHECK(w, o->dry_room <= (lacks - 1) + (lacks - 1) / 8);
    CHECK(w, o->dry_win->end_us > w->now_us && o->dry_win == current_win(&w->subjects[i]));
    CHECK(w, o->dry_max - s->count <= o->dry_room + o->dry_win->returned - o->dry_returned);
}

/* What was just spent is a hold. The message that says so may be lost, or come when it is over or settled. */
static void reserve(struct world *w, struct subject *s, struct win *win, uint32_t cost)
{
    if (w->hold_count == HOLDS)
        return;
    struct hold h = { s, win, cost, w->now_us + pick_delay(w), w->now_us + pick(w, 0, 2 * US_PER_S) };
    if (w->losses && one_in(w, 6))
        h.entered_us = 0;
    w->holds[w->hold_count++] = h;
}

static bool spend(struct world *w, unsigned h, unsigned i, uint32_t cost)
{
    struct subject *s = &w->subjects[i];
    struct shadow *o = &w->host[h].of[i];
    settle(w, h, DIED);
    struct slice_spent spent = slice_spend(w->host[h].cells, cell_key(i), s->slice, s->max, host_now(w, h), cost, true);
    if (spent.outcome == SLICE_TAKEN) {
        CHECK(w, o->tokens >= cost && spent.left == o->tokens - cost);
        CHECK(w, w->steps || o->win->end_us > w->now_us);
        o->tokens -= cost;
        o->win->spent += cost;
        w->taken++;
        if (w->unspends && w->unspent_count < UNSPENT && one_in(w, 8))
            w->unspent[w->unspent_count++] = (struct unspent){ h, i, spent.end_us, cost, o->win };
        else if (w->reserves && one_in(w, 2))
            reserve(w, s, o->win, cost);
    }
    if (spent.outcome == SLICE_DRY)
        check_dry(w, h, i, cost);
    if (spent.outcome == SLICE_SHORT || spent.renew)
        ask_lender(w, h, i, cost);
    return spent.outcome == SLICE_TAKEN;
}

static void unspend(struct world *w)
{
    if (w->unspent_count == 0)
        return;
    unsigned n = (unsigned)pick(w, 0, w->unspent_count - 1);
    struct unspent u = w->unspent[n];
    struct shadow *o = &w->host[u.host].of[u.subject];
    w->unspent[n] = w->unspent[--w->unspent_count];
    settle(w, u.host, DIED);
    slice_unspend(w->host[u.host].cells, cell_key(u.subject), u.end_us, u.cost, NULL);
    u.win->spent -= u.cost;
    uint32_t left = look(w, u.host, u.subject).left;
    if (left > o->tokens) {
        CHECK(w, left == o->tokens + u.cost);
        CHECK(w, o->win == u.win);
        o->tokens = left;
    } else if (o->tokens == 0 && o->win == u.win) {
        o->asleep += u.cost;
    } else {
        u.win->lost += u.cost;
    }
}

/* ---- what else happens ---- */

static void pump(struct world *w, unsigned h)
{
    settle(w, h, DIED);
    for (struct lend_call *call; (call = lender_next(w->host[h].lender, host_now(w, h)));) {
        settle(w, h, COLLECTED);
        send_call(w, h, call);
    }
}

static void sweep_host(struct world *w, unsigned h, bool recall)
{
    settle(w, h, DIED);
    if (recall)
        lender_recall(w->host[h].lender, host_now(w, h));
    lender_sweep(w->host[h].lender, true, host_now(w, h));
    settle(w, h, COLLECTED);
}

static void lender_begins(struct world *w, unsigned h)
{
    CHECK(w, lender_new(&w->host[h].lender, w->host[h].cells) == 0);
}

/* Its memory is lost, and what it would have been told. */
static void lender_dies(struct world *w, unsigned h)
{
    settle(w, h, DIED);
    for (struct flight *f = w->flights; f < w->flights_end; f++)
        if (f->on && f->call && f->host == h) {
            lender_answer(w->host[h].lender, f->call, LEND_LOST, NULL, host_now(w, h));
            f->call = NULL;
        }
    lender_free(w->host[h].lender);
    for (unsigned i = 0; i < SUBJECTS; i++)
        for (unsigned n = 0; n < w->subjects[i].win_count; n++) {
            struct win *win = &w->subjects[i].wins[n];
            win->lost += win->waiting[h];
            win->waiting[h] = 0;
        }
}

static void host_begins(struct world *w, unsigned h)
{
    struct weir_error error;
    struct cells_size size = { .bytes = 32 * CELL_BYTES };
    if (cells_open(&w->host[h].cells, NULL, size, &error) < 0)
        fail_msg("%s", error.text);
    lender_begins(w, h);
}

static void host_dies(struct world *w, unsigned h)
{
    lender_dies(w, h);
    for (unsigned i = 0; i < SUBJECTS; i++)
        lose_held(&w->host[h].of[i]);
    cells_close(w->host[h].cells);
}

static void drop_cell(struct world *w, unsigned h, unsigned i)
{
    settle(w, h, DIED);
    cells_forget(w->host[h].cells, cell_key(i));
    lose_held(&w->host[h].of[i]);
}

static void pick_max(struct world *w, struct subject *s)
{
    static const uint32_t maxima[] = { 1, 7, 40, 100, 250, 1000 };
    s->max = maxima[pick(w, 0, sizeof maxima / sizeof *maxima - 1)];
    s->slice = (uint32_t)pick(w, 1, s->max / 4 + 1);
}

/* Clocks of a host stay within 2 s of each other: if one went back by the length of a window while a lender starts anew,
 * nothing would tell the window before from this one. */
static void step_clock(struct world *w, unsigned h)
{
    w->host[h].offset_us = h * US_PER_S + pick(w, 0, 2 * US_PER_S);
    settle(w, h, DIED);
    if (one_in(w, 2)) {
        lender_dies(w, h);
        lender_begins(w, h);
    }
}

static void go_wrong(struct world *w, unsigned h, unsigned i)
{
    switch (pick(w, 0, 4)) {
    case 0:
        lender_dies(w, h);
        lender_begins(w, h);
        break;
    case 1:
        host_dies(w, h);
        host_begins(w, h);
        break;
    case 2:
        drop_cell(w, h, i);
        break;
    case 3:
        w->host[h].cut_us = w->now_us + pick(w, 0, 3 * US_PER_S);
        break;
    default:
        w->host[h].guess_us += pick(w, -5 * US_PER_S, 5 * US_PER_S);
    }
}

static void check(struct world *w)
{
    for (unsigned i = 0; i < SUBJECTS; i++) {
        struct subject *s = &w->subjects[i];
        for (unsigned n = s->win_count > 3 ? s->win_count - 3 : 0; n < s->win_count; n++)
            CHECK(w, s->wins[n].spent >= 0 && s->wins[n].spent <= s->wins[n].max);
        const struct win *win = current_win(s);
        if (!win)
            continue;
        int64_t sum = win->spent + win->lost + win->on_its_way;
        for (unsigned h = 0; h < w->hosts; h++) {
            const struct shadow *o = &w->host[h].of[i];
            sum += win->waiting[h] + (o->win == win ? (int64_t)o->tokens + o->asleep : 0);
        }
        CHECK(w, s->count == sum);
        CHECK(w, s->count <= win->max);
    }
}

static void check_share(struct world *w)
{
    int64_t has[HOSTS][SUBJECTS] = { 0 };
    for (const struct flight *f = w->flights; f < w->flights_end; f++)
        if (f->on && f->call && f->copy.kind == LEND_TAKE)
            has[f->host][f->subject] += f->lent.tokens;
    for (unsigned h = 0; h < w->hosts && !w->unspends && !w->steps; h++)
        for (unsigned i = 0; i < SUBJECTS; i++) {
            const struct shadow *o = &w->host[h].of[i];
            int64_t most = o->slice_max > 2 * o->need_max ? o->slice_max : 2 * o->need_max;
            CHECK(w, has[h][i] + o->tokens <= most);
        }
}

/* ---- a schedule ---- */

static void begin(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->seed = seed;
    w->rnd.state = seed;
    w->flights_end = w->flights;
    w->now_us = START_US + pick(w, 0, 3600 * US_PER_S);
    w->losses = !one_in(w, 4);
    w->steps = one_in(w, 3);
    w->unspends = one_in(w, 2);
    w->reserves = one_in(w, 2);
    w->hosts = (unsigned)pick(w, 1, HOSTS);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        struct subject *s = &w->subjects[i];
        s->algorithm = one_in(w, 2) ? LIMIT_CALENDAR : LIMIT_FIXED_WINDOW;
        s->per_us = w->steps ? pick(w, 5, 10) * US_PER_S : random_scaled(&w->rnd, 60000) * US_PER_MS + 200 * US_PER_MS;
        pick_max(w, s);
    }
    for (unsigned h = 0; h < w->hosts; h++) {
        w->host[h].offset_us = w->steps ? h * US_PER_S : pick(w, -3600 * US_PER_S, 3600 * US_PER_S);
        w->host[h].guess_us = -w->host[h].offset_us;
        host_begins(w, h);
    }
}

static void end(struct world *w)
{
    for (unsigned h = 0; h < w->hosts; h++)
        host_dies(w, h);
}

static void step(struct world *w)
{
    unsigned h = (unsigned)pick(w, 0, w->hosts - 1), i = (unsigned)pick(w, 0, SUBJECTS - 1);
    struct subject *s = &w->subjects[i];
    if (!one_in(w, 3))
        w->now_us += one_in(w, 20) ? pick(w, 0, 2 * US_PER_S) : random_scaled(&w->rnd, 100 * US_PER_MS);
    run_network(w);
    for (int64_t n = pick(w, 1, 10); n > 0; n--)
        spend(w, h, i, one_in(w, 10) ? (uint32_t)random_scaled(&w->rnd, s->max) : 1);
    if (one_in(w, 2))
        unspend(w);
    if (w->hold_count > 0 && one_in(w, 3)) {
        struct hold *hold = &w->holds[pick(w, 0, w->hold_count - 1)];
        end_hold(w, hold, (uint32_t)pick(w, 0, hold->cost));
    }
    if (one_in(w, 3))
        sweep_host(w, h, one_in(w, 20));
    if (w->losses && one_in(w, 15))
        go_wrong(w, h, i);
    if (w->steps && one_in(w, 15))
        step_clock(w, h);
    if (one_in(w, 60)) {
        pick_max(w, s);
        if (one_in(w, 2))
            sweep_host(w, h, true);
    }
    pump(w, h);
    check(w);
    check_share(w);
}

static void test_schedules(void **unused)
{
    (void)unused;
    static struct world w;
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t first = random_seed(), count = rounds ? strtoull(rounds, NULL, 0) : SCHEDULES;
    unsigned long taken = 0, dry = 0, ended = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        begin(&w, seed);
        for (int n = 0; n < STEPS; n++)
            step(&w);
        taken += w.taken;
        dry += w.dry;
        ended += w.ended;
        end(&w);
    }
    print_message("# %lu spent, %lu refused without asking, %lu holds ended by themselves\n", taken, dry, ended);
    assert_true(taken > count && dry > count && ended > count);
}

/* ---- the last tokens ---- */

/* Nothing is lost, and the window is long: hosts that go on asking find all of it, since those that have stopped give back.
 * Where all want several tokens at once, fewer than that are left in the end, wherever they had been lying. */
static void find_all(struct world *w)
{
    struct subject *s = &w->subjects[0];
    s->algorithm = LIMIT_FIXED_WINDOW;
    s->per_us = 3600 * US_PER_S;
    unsigned busy = (unsigned)pick(w, 1, w->hosts); /* the others stop soon */
    uint32_t cost = one_in(w, 2) ? 1 : (uint32_t)pick(w, 1, s->max / 4 + 1);
    for (unsigned turn = 0; turn < 50000; turn++) {
        if (s->win_count && current_win(s)->spent + cost > s->max)
            return;
        w->now_us += 20 * US_PER_MS;
        run_network(w);
        for (unsigned h = 0; h < (turn < 20 ? w->hosts : busy); h++)
            for (int64_t n = pick(w, 0, s->max / 100 + 1); n > 0; n--)
                spend(w, h, 0, cost);
        for (unsigned h = 0; h < w->hosts; h++) {
            sweep_host(w, h, false);
            pump(w, h);
        }
        check(w);
    }
    fail_msg("seed %llu: %lld of %u found, by %u", (unsigned long long)w->seed, (long long)current_win(s)->spent, s->max,
             cost);
}

static void test_last_tokens(void **unused)
{
    (void)unused;
    static struct world w;
    for (uint64_t seed = random_seed(); seed < random_seed() + 100; seed++) {
        begin(&w, seed);
        w.losses = w.unspends = w.steps = w.reserves = false;
        find_all(&w);
        end(&w);
    }
}

/* ---- large ones beside small ones ---- */

/* Costs more than a slice, while others go on spending what is there: two answers are enough, one to an ask of another
 * caller and one to its own. A caller that waits has a deadline. */
static void pass_beside_others(struct world *w)
{
    struct subject *s = &w->subjects[0];
    s->algorithm = LIMIT_FIXED_WINDOW;
    s->per_us = 3600 * US_PER_S;
    s->max = 1000000;
    s->slice = (uint32_t)pick(w, 10, 100);
    for (unsigned n = 0; n < 50; n++) {
        uint32_t cost = s->slice + (uint32_t)pick(w, 1, 100);
        uint64_t before = lender_counts(w->host[0].lender).slices;
        while (!spend(w, 0, 0, cost)) {
            CHECK(w, lender_counts(w->host[0].lender).slices - before < 2);
            pump(w, 0);
            for (int64_t others = pick(w, 1, 3); others > 0; others--)
                spend(w, 0, 0, 1);
            w->now_us += pick(w, 1, 3) * US_PER_MS;
            run_network(w);
        }
        for (int64_t others = pick(w, 0, 2 * s->slice); others > 0; others--)
            spend(w, 0, 0, 1);
        pump(w, 0);
        check(w);
    }
}

static void test_large_beside_small(void **unused)
{
    (void)unused;
    static struct world w;
    for (uint64_t seed = random_seed(); seed < random_seed() + 100; seed++) {
        begin(&w, seed);
        w.losses = w.unspends = w.steps = w.reserves = false;
        pass_beside_others(&w);
        end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_schedules), cmocka_unit_test(test_last_tokens),
                                        cmocka_unit_test(test_large_beside_small) };
    return cmocka_run_group_tests_name("slices/sim", tests, NULL, NULL);
}
