#include "slices/lender.h"

#include <stdlib.h>

#include "base/check.h"
#include "slices/debt.h"
#include "slices/repay.h"
#include "slices/slice.h"

enum {
    SLICE_CHAINS = 16384,
    ASK_CHAINS = 1024,
    SWEEP_MOST = 4096, /* slices that one sweep looks at; if there are more, the next one goes on */
};
#define DRY_MAX_US (250 * US_PER_MS)

/* A message that waits, or is on its way. */
struct message {
    struct lend_call call; /* first: a pointer to one is a pointer to the other */
    struct message *peer;  /* LEND_TAKE: others of its chain */
    bool flying;
    bool again;             /* LEND_TAKE: somebody asked while it was flying, and may owe what it did not take along */
    int64_t dies_us;        /* LEND_RETURN: by this host's clock, not to be sent any more */
    struct payment payment; /* LEND_TAKE: of what is owed */
};

/* A slice that is looked after. */
struct held {
    struct held *next; /* of its chain */
    size_t index;      /* in lender.all */
    uint64_t cell;
    int64_t store_end_us; /* of its window, by the store's clock: it identifies the window there */
    int64_t end_us;       /* by this host's, never later */
    int64_t active_us;    /* when it was last seen to be spent from. Asking is not enough: a caller that wants more
                             than there is anywhere must not keep it from others */
    int64_t per_us;
    enum limit_algorithm algorithm;
    uint64_t max;
    uint32_t ttl_ms;
    uint32_t last; /* lent the last time */
    uint32_t seen; /* what was left when it was last looked at */
    bool recalled;
    uint16_t key_len, field_len;
    char text[]; /* key, field */
};

struct messages {
    struct lend_call *first, **last;
    size_t count;
};

struct lender {
    struct cells *cells;
    struct messages queue;
    struct messages unsent; /* the next sweep tries again */
    size_t flying;
    struct message *asks[ASK_CHAINS];
    struct held *slices[SLICE_CHAINS]; /* by cell */
    struct held **all;                 /* the same, for the sweep */
    size_t slice_count, slice_room, cursor;
    bool store_down; /* slices are kept then, since nobody else can have them */
    bool recalling;  /* there may be more to give back than the queue had room for */
    bool dropped;    /* see lender_dropped */
    struct lender_counts counts;
};

/* ---- messages ---- */

static void messages_add(struct messages *m, struct lend_call *call)
{
    call->next = NULL;
    *m->last = call;
    m->last = &call->next;
    m->count++;
}

static struct lend_call *messages_pop(struct messages *m)
{
    struct lend_call *call = m->first;
    if (!call)
        return NULL;
    m->first = call->next;
    if (!m->first)
        m->last = &m->first;
    m->count--;
    return call;
}

static struct message *message_of(struct lend_call *call)
{
    return (struct message *)call;
}

static struct message *find_ask(const struct lender *l, uint64_t cell, bool flying)
{
    struct message *m = l->asks[cell % ASK_CHAINS];
    while (m && (m->call.ask.cell != cell || m->flying != flying))
        m = m->peer;
    return m;
}

/* Frees the message, too. */
static void message_done(struct lender *l, struct message *m)
{
    if (m->call.kind == LEND_RETURN) {
        l->counts.held -= m->call.tokens;
    } else {
        struct message **at = &l->asks[m->call.ask.cell % ASK_CHAINS];
        while (*at != m)
            at = &(*at)->peer;
        *at = m->peer;
    }
    free(m);
}

/* ---- slices that are looked after ---- */

static struct held **held_at(struct lender *l, uint64_t cell)
{
    struct held **at = &l->slices[cell % SLICE_CHAINS];
    while (*at && (*at)->cell != cell)
        at = &(*at)->next;
    return at;
}

static void held_see(struct lender *l, struct held *h, uint32_t left)
{
    l->counts.held += left;
    l->counts.held -= h->seen;
    h->seen = left;
}

static void held_forget(struct lender *l, struct held *h)
{
    held_see(l, h, 0);
    *held_at(l, h->cell) = h->next;
    l->all[h->index] = l->all[--l->slice_count];
    l->all[h->index]->index = h->index;
    free(h);
}

static bool make_room(struct lender *l)
{
    if (l->slice_count < l->slice_room)
        return true;
    size_t room = l->slice_room ? 2 * l->slice_room : 64;
    struct held **all = room <= LENDER_SLICES_MAX ? realloc(l->all, room * sizeof(struct held *)) : NULL;
    if (!all)
        return false;
    l->all = all;
    l->slice_room = room;
    return true;
}

/* Returns NULL if there are too many already: then its tokens can be spent, but are not returned. */
static struct held *held_new(struct lender *l, const struct slice_ask *ask)
{
    struct held *h = make_room(l) ? calloc(1, sizeof *h + ask->key_len + ask->field_len) : NULL;
    if (!h)
        return NULL;
    h->cell = ask->cell;
    h->key_len = ask->key_len;
    h->field_len = ask->field_len;
    memcpy(h->text, ask->key, ask->key_len);
    memcpy(h->text + ask->key_len, ask->field, ask->field_len);
    *held_at(l, ask->cell) = h;
    h->index = l->slice_count++;
    l->all[h->index] = h;
    return h;
}

/* ---- asking ---- */

int lender_new(struct lender **ret, struct cells *cells)
{
    struct lender *l = calloc(1, sizeof *l);
    if (!l)
        return WEIR_E_NO_MEMORY;
    l->cells = cells;
    l->queue.last = &l->queue.first;
    l->unsent.last = &l->unsent.first;
    *ret = l;
    return 0;
}

void lender_free(struct lender *lender)
{
    if (!lender)
        return;
    for (struct lend_call *call; (call = messages_pop(&lender->queue));)
        free(message_of(call));
    for (struct lend_call *call; (call = messages_pop(&lender->unsent));)
        free(message_of(call));
    while (lender->slice_count > 0)
        held_forget(lender, lender->all[0]);
    free(lender->all);
    free(lender);
}

/* Two asks for the same cell are one. */
static void merge(struct slice_ask *into, const struct slice_ask *ask)
{
    uint32_t need = into->need > ask->need ? into->need : ask->need;
    *into = *ask;
    into->need = need;
}

bool lender_ask(struct lender *lender, const struct slice_ask *ask)
{
    struct message *m = find_ask(lender, ask->cell, false);
    if (m) {
        merge(&m->call.ask, ask);
        return true;
    }
    if ((m = find_ask(lender, ask->cell, true))) {
        m->again = true;
        return true;
    }
    if (lender->queue.count + lender->unsent.count >= LENDER_QUEUE_MAX || !(m = calloc(1, sizeof *m)))
        return false;
    m->call.kind = LEND_TAKE;
    m->call.ask = *ask;
    m->peer = lender->asks[ask->cell % ASK_CHAINS];
    lender->asks[ask->cell % ASK_CHAINS] = m;
    messages_add(&lender->queue, &m->call);
    return true;
}

/* ---- sending ---- */

/* There is enough by now, or the store has said that there is no more. Near the end of a budget slices are small: then half
 * of the last one is enough, or a host would gather what others need. (The cell stays marked as asked for. A caller that
 * finds too little asks in any case.) */
static bool is_needless(const struct slice_ask *ask, const struct slice_spent *look, const struct held *h)
{
    if (look->outcome == SLICE_SHORT)
        return false;
    uint32_t full = h && h->end_us >= look->end_us && h->last < ask->slice ? h->last : ask->slice;
    return look->outcome == SLICE_DRY || look->left >= full / 2 + (full & 1);
}

/* The tokens of this host and those that it is lent are together at most a full slice, or twice the need of a request. It
 * asks for the whole need of the request if the store has it, since others may spend the tokens that are here before the
 * answer arrives; otherwise it asks for the missing part. */
static bool prepare_take(struct lender *l, struct message *m, int64_t now_us)
{
    struct slice_ask *ask = &m->call.ask;
    struct held *h = *held_at(l, ask->cell);
    struct slice_spent look = slice_spend(l->cells, ask->cell, ask->slice, ask->limit.max, now_us, ask->need, false);
    payment_begin(&m->payment, l->cells, ask->owed, &ask->limit, &ask->window, now_us);
    m->call.debt = m->payment.amount;
    if (m->call.debt == 0 && is_needless(ask, &look, h))
        return false;
    ask->slice = look.left >= ask->slice ? 1 : ask->slice - look.left;
    m->call.lacks = look.left < ask->need ? ask->need - look.left : ask->need;
    return true;
}

static bool is_worth_sending(struct lender *l, struct message *m, int64_t now_us)
{
    return m->call.kind == LEND_TAKE ? prepare_take(l, m, now_us) : m->dies_us > now_us;
}

static bool sweep(struct lender *l, int64_t now_us, size_t most);

struct lend_call *lender_next(struct lender *lender, int64_t now_us)
{
    if (lender->flying >= LENDER_FLIGHT_MAX)
        return NULL;
    if (!lender->queue.first && lender->recalling)
        lender->recalling = !sweep(lender, now_us, SIZE_MAX);
    for (struct lend_call *call; (call = messages_pop(&lender->queue));) {
        struct message *m = message_of(call);
        if (!is_worth_sending(lender, m, now_us)) {
            lender->dropped = true;
            message_done(lender, m);
            continue;
        }
        m->flying = true;
        lender->flying++;
        call->sent_us = now_us;
        return call;
    }
    return NULL;
}

bool lender_dropped(struct lender *lender)
{
    bool dropped = lender->dropped;
    lender->dropped = false;
    return dropped;
}

/* ---- answers ---- */

/* By this host's clock. The store read its clock after the message was handed out, so this is never too late. */
static int64_t end_here_us(const struct lend_call *call, const struct lent *lent)
{
    return lent->end_us - (lent->server_us - call->sent_us);
}

static bool is_sane(const struct lent *lent)
{
    return clock_valid(lent->server_us) && lent->end_us > lent->server_us && lent->end_us < 2 * CLOCK_END_US;
}

/* The slice that is looked after in this cell, if it is of this window; what is left of another is over, whatever this
 * host's clock says. */
static struct held *held_in(struct lender *l, uint64_t cell, int64_t store_end_us, int64_t now_us)
{
    struct held *h = *held_at(l, cell);
    if (!h || h->store_end_us == store_end_us)
        return h;
    slice_collect(l->cells, cell, h->end_us, now_us);
    held_forget(l, h);
    return NULL;
}

/* Returns the lock of the slice, or 0. */
static uint32_t put(struct lender *l, const struct lend_call *call, const struct lent *lent, int64_t now_us)
{
    uint32_t lock;
    const struct slice_ask *ask = &call->ask;
    int64_t end_us = end_here_us(call, lent);
    struct held *h = held_in(l, ask->cell, lent->end_us, now_us);
    if (h && h->end_us < end_us)
        end_us = h->end_us;
    l->counts.slices++;
    l->counts.lent += lent->tokens;
    slice_put(l->cells, ask->cell, end_us, lent->tokens, now_us, &lock);
    if (end_us <= now_us || (!h && !(h = held_new(l, ask))))
        return lock;
    h->store_end_us = lent->end_us;
    h->end_us = end_us;
    h->active_us = now_us;
    h->per_us = ask->limit.per_us;
    h->algorithm = ask->limit.algorithm;
    h->max = ask->limit.max;
    h->ttl_ms = ask->ttl_ms;
    h->last = lent->tokens;
    return lock;
}

/* Not for long: somebody may return tokens soon. Returns the lock of the slice, or 0. */
static uint32_t set_dry(struct lender *l, const struct lend_call *call, const struct lent *lent, int64_t now_us)
{
    uint32_t lock;
    const struct slice_ask *ask = &call->ask;
    int64_t dry_us = ask->ttl_ms * US_PER_MS / 4, end_us = end_here_us(call, lent);
    int64_t until_us = now_us + (dry_us < DRY_MAX_US ? dry_us : DRY_MAX_US);
    const struct held *h = held_in(l, ask->cell, lent->end_us, now_us);
    if (h && h->end_us < end_us)
        end_us = h->end_us;
    slice_set_dry(l->cells, ask->cell, end_us, ask->limit.max, lent->room, until_us, now_us, &lock);
    return lock;
}

/* A message that returns tokens. Returns NULL if there is no room for it. */
static struct message *return_new(const struct lender *l, int64_t store_end_us, int64_t end_us)
{
    struct message *m = l->queue.count + l->unsent.count < LENDER_QUEUE_MAX ? calloc(1, sizeof *m) : NULL;
    if (!m)
        return NULL;
    m->call.kind = LEND_RETURN;
    m->call.end_us = store_end_us;
    m->dies_us = end_us;
    return m;
}

static void return_add(struct lender *l, struct message *m, uint32_t tokens)
{
    if (tokens == 0) {
        free(m);
        return;
    }
    m->call.tokens = tokens;
    l->counts.held += tokens; /* until it is given back */
    messages_add(&l->queue, &m->call);
}

/* The limit is overdrawn, and somebody else is telling the store of it. The tokens cannot pay, or it would be paid twice,
 * and nobody may spend them: they go back, and requests are refused for a moment. If there is no room for the message they
 * are lost. */
static void put_off(struct lender *l, const struct lend_call *call, const struct lent *lent, int64_t now_us)
{
    struct lent none = *lent;
    struct message *m = return_new(l, lent->end_us, end_here_us(call, lent));
    uint32_t tokens = slice_pay(l->cells, call->ask.cell, now_us, UINT64_MAX).taken;
    if (m) {
        m->call.ask = call->ask;
        return_add(l, m, tokens);
    }
    none.room = 0;
    set_dry(l, call, &none, now_us);
}

/* Tokens pay what is owed before anybody spends them: they were asked for before there was a debt. Stale windows leave no
 * mark: callers that wait look again, and ask with what is known about the store's clock now. */
static void take_in(struct lender *l, const struct lend_call *call, const struct lent *lent, int64_t now_us)
{
    const struct slice_ask *ask = &call->ask;
    bool held;
    if (lent->stale || !is_sane(lent))
        return;
    uint32_t lock = lent->tokens > 0 ? put(l, call, lent, now_us) : set_dry(l, call, lent, now_us);
    struct repay repay = { l->cells, ask->cell, ask->owed, &ask->limit, &ask->window, now_us };
    l->counts.paid += repay_with_new(&repay, lock, &held);
    if (held)
        put_off(l, call, lent, now_us);
    struct held *h = *held_at(l, ask->cell);
    if (h)
        held_see(l, h, slice_left(l->cells, h->cell, h->end_us, now_us));
}

/* Returned tokens that never reached the store may be sent again. */
static bool is_sent_again(const struct lender *l, const struct message *m, int64_t now_us)
{
    return m->call.kind == LEND_RETURN && m->dies_us > now_us && l->queue.count + l->unsent.count < LENDER_QUEUE_MAX;
}

/* A debt that was made while the ask was flying. Nobody else may come and ask, so that it would never be paid. */
static bool owes_more(struct lender *l, const struct message *m, int64_t now_us)
{
    const struct slice_ask *ask = &m->call.ask;
    struct limit_state seen;
    return m->again && debt_amount(l->cells, ask->owed, &ask->limit, &ask->window, now_us, &seen) > 0;
}

bool lender_answer(struct lender *lender, struct lend_call *call, enum lend_result result, const struct lent *lent,
                   int64_t now_us)
{
    struct message *m = message_of(call);
    bool answered = result == LEND_ANSWERED, took = call->kind == LEND_TAKE;
    CHECK(m->flying && lender->flying > 0);
    lender->flying--;
    m->flying = false;
    if (result == LEND_UNSENT && is_sent_again(lender, m, now_us)) {
        messages_add(&lender->unsent, call);
        return false;
    }
    if (took)
        lender->counts.paid +=
            payment_end(&m->payment, lender->cells, call->ask.owed, &call->ask.limit, answered && !lent->stale, now_us);
    if (answered && took)
        take_in(lender, call, lent, now_us);
    if (answered && !took)
        lender->counts.returned += call->tokens;
    struct slice_ask ask = call->ask;
    bool asks = answered && took && !lent->stale && owes_more(lender, m, now_us);
    message_done(lender, m);
    if (asks)
        lender_ask(lender, &ask);
    return answered && took;
}

/* ---- giving back ---- */

static void read_held(struct slice_ask *ret, const struct held *h)
{
    *ret = (struct slice_ask){ .cell = h->cell, .ttl_ms = h->ttl_ms, .key_len = h->key_len, .field_len = h->field_len };
    limit_init(&ret->limit, h->algorithm, h->max, 0, h->per_us);
    memcpy(ret->key, h->text, h->key_len);
    memcpy(ret->field, h->text + h->key_len, h->field_len);
}

/* Returns false if there is no room for the message: then nothing was done. */
static bool give_back(struct lender *l, struct held *h, int64_t now_us)
{
    struct message *m = return_new(l, h->store_end_us, h->end_us);
    if (!m)
        return false;
    uint32_t tokens = slice_collect(l->cells, h->cell, h->end_us, now_us);
    read_held(&m->call.ask, h);
    held_forget(l, h);
    return_add(l, m, tokens);
    return true;
}

enum looked { STAYS, GONE, NO_ROOM /* to return it now */ };

static enum looked look_after(struct lender *l, struct held *h, int64_t now_us)
{
    if (h->end_us <= now_us) {
        held_forget(l, h);
        return GONE;
    }
    uint32_t left = slice_left(l->cells, h->cell, h->end_us, now_us);
    if (left != h->seen || h->active_us > now_us)
        h->active_us = now_us;
    held_see(l, h, left);
    if (!h->recalled && (l->store_down || now_us - h->active_us < h->ttl_ms * US_PER_MS))
        return STAYS;
    return give_back(l, h, now_us) ? GONE : NO_ROOM;
}

/* Returns true if everything that can be returned has been. The last slice takes the index of one that is gone. */
static bool sweep(struct lender *l, int64_t now_us, size_t most)
{
    for (size_t n = l->slice_count < most ? l->slice_count : most; n > 0; n--) {
        l->cursor = l->cursor < l->slice_count ? l->cursor : 0;
        enum looked looked = look_after(l, l->all[l->cursor], now_us);
        if (looked == NO_ROOM)
            return false;
        l->cursor += looked == STAYS;
    }
    return true;
}

void lender_sweep(struct lender *lender, bool up, int64_t now_us)
{
    lender->store_down = !up;
    for (struct lend_call *call; (call = messages_pop(&lender->unsent));)
        messages_add(&lender->queue, call);
    sweep(lender, now_us, SWEEP_MOST);
}

void lender_recall(struct lender *lender, int64_t now_us)
{
    for (size_t i = 0; i < lender->slice_count; i++)
        lender->all[i]->recalled = true;
    lender->recalling = !sweep(lender, now_us, SIZE_MAX);
}

struct lender_counts lender_counts(const struct lender *lender)
{
    return lender->counts;
}
