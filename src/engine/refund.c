/* Receipts: what a request was charged, and giving it back.
 *
 * A receipt names every limit that was charged by the cell that it was charged in, its generation, and the window. To give
 * it back the request is planned again, which leads to the same limits. What the receipt does not name is left alone: a
 * rule that is new since, a shadow rule that had no room, what was counted in place of a store that was away (it may have
 * been charged there since). So are a cell that was given to somebody else or set free meanwhile, a window that came later,
 * and a bucket that fills at another rate by now. So nothing is given back that was not charged.
 *
 * Nor twice: receipts are numbered, and the table knows which numbers can still be used (receipt_ring.c). Nor can
 * one be made up: it is sealed with the table's secret and identity. With another table it is of no use, nor with a copy of
 * the table, neither of which would know whether it was used. */
#include "engine/refund.h"

#include <stdlib.h>

#include "engine/hazard.h"
#include "engine/receipt_ring.h"
#include "engine/shared.h"
#include "engine/weir.h"
#include "limit/take.h"

/* No text is as long as these, and no limit's identity begins with them: see bound.c. */
#define RECEIPT_MARK (UINT64_MAX - 2)
#define SEAL_MARK (UINT64_MAX - 3)
/* Subjects are hashes: one bit pattern more or less keeps what they stand for apart. */
#define STORE_MARK UINT64_C(0x73746f72652d6d6b)
#define RECEIPT_LIFE_US (RECEIPT_LIFE_S * US_PER_S)
#define AHEAD_US US_PER_S /* clocks of threads and processes differ by less */
/* The window of a slice seems to end earlier by as long as the ask for it was on its way, which decisions wait for up to
 * ten seconds. Of windows that are short the store takes a part of their length instead. */
#define OFF_US (10 * US_PER_S)

enum { ROOM = 8 }; /* entries of most plans */

/* ---- making one ---- */

/* A receipt that is being made. */
struct making {
    struct weir_receipt *receipt;
    int64_t until_us; /* what was charged may have decayed, or its window be over, by then */
};

/* `at_us` by this host's clock, `store_us` by the store's. */
static struct making begin(struct weir_receipt *r, uint32_t cost, int64_t at_us, int64_t store_us)
{
    r->count = 0;
    r->cost = cost;
    r->at_us = at_us;
    r->store_us = store_us;
    return (struct making){ r, at_us };
}

/* Receipts of the same limits and subjects are numbered together. The head of a cell begins with its fingerprint; the
 * generation, which differs from time to time, is left out. */
static uint64_t ring_of(const struct weir_receipt *r, const struct cells *cells)
{
    enum { GENERATION_BITS = 12 };
    struct hash h;
    hash_init(&h, cells_hash_key(cells));
    hash_word(&h, RECEIPT_MARK);
    for (uint32_t i = 0; i < r->count; i++)
        hash_word(&h, r->charged[i].limit >> GENERATION_BITS);
    return hash_final(&h);
}

static void seal(struct weir_receipt *r, const struct cells *cells)
{
    struct hash h;
    hash_init(&h, cells_hash_key(cells));
    hash_word(&h, SEAL_MARK ^ cells_identity(cells));
    hash_word(&h, (uint64_t)r->count << 32 | r->cost);
    hash_word(&h, r->number);
    hash_word(&h, (uint64_t)r->at_us);
    hash_word(&h, (uint64_t)r->store_us);
    for (uint32_t i = 0; i < r->count; i++) {
        hash_word(&h, r->charged[i].limit);
        hash_word(&h, r->charged[i].time);
        hash_word(&h, (uint64_t)r->charged[i].window << 32 | r->charged[i].place);
    }
    r->seal = hash_final(&h);
}

/* What is kept of a window is all but its counts; of a bucket, which has none, the rate. */
static struct limit_state kept_of(const struct limit *limit, struct limit_state taken)
{
    if (limit->algorithm == LIMIT_TOKEN_BUCKET)
        return (struct limit_state){ (uint64_t)limit->per_us, (uint64_t)limit->max << 32 };
    return (struct limit_state){ taken.time, taken.data >> 32 << 32 };
}

static void end(const struct making *m, struct cells *cells)
{
    struct weir_receipt *r = m->receipt;
    int64_t most_us = r->at_us + RECEIPT_LIFE_US + AHEAD_US, until_us = m->until_us < most_us ? m->until_us : most_us;
    if (r->count > 0)
        r->number = ring_draw(cells, ring_of(r, cells), r->at_us, until_us < CLOCK_END_US ? until_us : CLOCK_END_US - 1);
    seal(r, cells);
}

/* `limit`: the head of the cell that was charged, or what stands for it. */
static void add(struct making *m, uint64_t limit, struct limit_state kept, uint64_t place, int64_t until_us)
{
    struct weir_receipt *r = m->receipt;
    if (r->count == WEIR_RECEIPT_LIMITS || place > UINT32_MAX)
        return;
    if (until_us > m->until_us)
        m->until_us = until_us;
    r->charged[r->count].limit = limit;
    r->charged[r->count].time = kept.time;
    r->charged[r->count].window = (uint32_t)(kept.data >> 32);
    r->charged[r->count++].place = (uint32_t)place;
}

static void add_cell(struct making *m, const struct plan_entry *e, const struct cells *cells)
{
    int64_t until_us = limit_outlook(e->ask.limit, e->taken.state, e->taken.at_us).decays_us;
    add(m, e->taken.head, kept_of(e->ask.limit, e->taken.state), cells_place(cells, &e->taken), until_us);
}

void plan_receipt(const struct plan *plan, struct cells *cells, struct weir_receipt *ret)
{
    struct making m = begin(ret, plan->request->cost, plan->now_us, 0);
    for (size_t i = 0; i < plan->count && ret->count < WEIR_RECEIPT_LIMITS; i++)
        if (plan_rule_fits(plan, i))
            add_cell(&m, &plan->entries[i], cells);
    end(&m, cells);
}

/* A cell in the store, and a slice that is spent, have no cell in the table: this is what a receipt has in its place. */
static uint64_t store_id(const struct plan_entry *e)
{
    return cell_key(e->limit, e->subject ^ STORE_MARK);
}

void shared_receipt(const struct shared *s, struct weir_receipt *ret)
{
    struct making m = begin(ret, s->request.cost, s->plan.now_us, s->call.server_us);
    for (size_t i = 0; i < s->plan.count && ret->count < WEIR_RECEIPT_LIMITS; i++) {
        const struct plan_entry *e = &s->plan.entries[i];
        const struct shared_entry *more = &s->more[i];
        if (more->way == WAY_CELLS && !more->instead && plan_rule_fits(&s->plan, i))
            add_cell(&m, e, s->bound->cells);
        else if (more->way == WAY_SLICE && more->taken)
            add(&m, store_id(e), (struct limit_state){ .time = (uint64_t)more->end_us }, 0, CLOCK_END_US);
        else if (more->way == WAY_STORE && more->cell && plan_rule_fits(&s->plan, i))
            add(&m, store_id(e), kept_of(more->cell->limit, more->cell->state), 0, CLOCK_END_US);
    }
    end(&m, s->bound->cells);
}

/* ---- as text ---- */

/* A version, then all in turn, lowest byte first. */
enum { TEXT_VERSION = 1, HEAD_BYTES = 1 + 4 + 4 * 8, CHARGED_BYTES = 24 };
_Static_assert(2 * (HEAD_BYTES + WEIR_RECEIPT_LIMITS * CHARGED_BYTES) < WEIR_RECEIPT_TEXT_MAX, "the longest fits");

static char *put_hex(char *to, uint64_t number, unsigned bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < bytes; i++, number >>= 8) {
        *to++ = digits[number >> 4 & 15];
        *to++ = digits[number & 15];
    }
    return to;
}

size_t weir_receipt_text(const struct weir_receipt *r, char *buf, size_t cap)
{
    char text[WEIR_RECEIPT_TEXT_MAX], *to = text;
    to = put_hex(to, TEXT_VERSION, 1);
    to = put_hex(to, r->cost, 4);
    to = put_hex(to, r->number, 8);
    to = put_hex(to, (uint64_t)r->at_us, 8);
    to = put_hex(to, (uint64_t)r->store_us, 8);
    to = put_hex(to, r->seal, 8);
    for (uint32_t i = 0; i < r->count && i < WEIR_RECEIPT_LIMITS; i++) {
        to = put_hex(to, r->charged[i].limit, 8);
        to = put_hex(to, r->charged[i].time, 8);
        to = put_hex(to, r->charged[i].window, 4);
        to = put_hex(to, r->charged[i].place, 4);
    }
    size_t len = (size_t)(to - text);
    if (cap > 0) {
        size_t n = len < cap ? len : cap - 1;
        memcpy(buf, text, n);
        buf[n] = '\0';
    }
    return len;
}

static uint64_t get_hex(const char **from, unsigned bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < bytes; i++, *from += 2)
        number |= (uint64_t)(ascii_hex((*from)[0]) << 4 | ascii_hex((*from)[1])) << 8 * i;
    return number;
}

static bool is_receipt(sv text)
{
    enum { HEAD = 2 * HEAD_BYTES, EACH = 2 * CHARGED_BYTES };
    if (text.len < HEAD + EACH || text.len > HEAD + WEIR_RECEIPT_LIMITS * EACH || (text.len - HEAD) % EACH != 0)
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (ascii_hex(text.ptr[i]) < 0)
            return false;
    const char *at = text.ptr;
    return get_hex(&at, 1) == TEXT_VERSION;
}

int weir_receipt_read(struct weir_str text, struct weir_receipt *ret)
{
    if (!is_receipt(text))
        return WEIR_E_INVALID;
    const char *at = text.ptr + 2;
    *ret = (struct weir_receipt){ .count = (uint32_t)((text.len / 2 - HEAD_BYTES) / CHARGED_BYTES) };
    ret->cost = (uint32_t)get_hex(&at, 4);
    ret->number = get_hex(&at, 8);
    ret->at_us = (int64_t)get_hex(&at, 8);
    ret->store_us = (int64_t)get_hex(&at, 8);
    ret->seal = get_hex(&at, 8);
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->charged[i].limit = get_hex(&at, 8);
        ret->charged[i].time = get_hex(&at, 8);
        ret->charged[i].window = (uint32_t)get_hex(&at, 4);
        ret->charged[i].place = (uint32_t)get_hex(&at, 4);
    }
    return 0;
}

/* ---- giving back ---- */

struct refund {
    struct shared *s;
    const struct weir_receipt *receipt;
    bool store;   /* it is there, and answers */
    size_t cells; /* of s->call */
};

static enum way way_of(const struct shared *s, size_t i)
{
    return s->plan.shared ? s->more[i].way : WAY_CELLS;
}

/* What the receipt has of an entry; NULL: nothing. */
static const struct weir_charged *charged_of(const struct refund *f, size_t i, struct cells_taken *ret)
{
    const struct weir_receipt *r = f->receipt;
    const struct plan_entry *e = &f->s->plan.entries[i];
    bool here = way_of(f->s, i) == WAY_CELLS;
    for (uint32_t k = 0; k < r->count; k++) {
        const struct weir_charged *c = &r->charged[k];
        if (here ? !cells_find_taken(f->s->bound->cells, e->ask.key, c->limit, c->place, ret) : c->limit != store_id(e))
            continue;
        ret->state = (struct limit_state){ c->time, (uint64_t)c->window << 32 };
        ret->at_us = r->at_us;
        ret->cost = r->cost;
        return c;
    }
    return NULL;
}

/* A bucket that fills at another rate now: nobody knows what of the cost has come back already. */
static bool is_changed(const struct plan_entry *e, const struct weir_charged *c)
{
    const struct limit *l = &e->limit->limit;
    return l->algorithm == LIMIT_TOKEN_BUCKET && (c->time != (uint64_t)l->per_us || c->window != l->max);
}

/* When there is nothing left of it to give back: where that is simple to say, else never. */
static int64_t over_us(const struct refund *f, size_t i, const struct cells_taken *taken)
{
    enum limit_algorithm algorithm = f->s->plan.entries[i].limit->limit.algorithm;
    bool window = algorithm == LIMIT_FIXED_WINDOW || algorithm == LIMIT_CALENDAR;
    return window && way_of(f->s, i) == WAY_CELLS ? limit_state_end(taken->state) : CLOCK_END_US;
}

static bool can_be_given(const struct refund *f, size_t i, struct cells_taken *ret)
{
    const struct weir_charged *c = charged_of(f, i, ret);
    if (!c || is_changed(&f->s->plan.entries[i], c) || over_us(f, i, ret) <= f->s->plan.now_us)
        return false;
    return f->store || way_of(f->s, i) == WAY_CELLS;
}

/* Adds the cell of entry i to s->call, for its rule. */
static void add_to_call(struct refund *f, size_t i, struct limit_state taken)
{
    struct shared *s = f->s;
    const struct bound_limit *limit = s->plan.entries[i].limit;
    struct store_cell *cell = &s->cells[f->cells++];
    sv key = shared_key(s, i);
    size_t rules = s->call.rule_count;
    if (rules == 0 || s->rules[rules - 1].key.ptr != key.ptr)
        s->rules[rules++] = (struct store_rule){ .key = key, .cells = cell };
    s->rules[rules - 1].cell_count++;
    s->call.rule_count = rules;
    *cell = (struct store_cell){ .limit = &limit->limit, .field = limit->field, .state = taken };
    if (s->more[i].way != WAY_SLICE)
        return;
    /* The slice's end is by this host's clock. */
    struct limit_count window = { .end_us = (int64_t)taken.time + s->weir->ops->offset_us(s->weir->store) };
    cell->state = limit_count_state(&window);
    cell->off_us = OFF_US;
}

/* A receipt of which nothing can be given back now is not used up. */
static bool is_named(struct refund *f)
{
    struct cells_taken taken;
    for (size_t i = 0; i < f->s->plan.count; i++)
        if (can_be_given(f, i, &taken))
            return true;
    return false;
}

static int refund_all(struct refund *f)
{
    struct shared *s = f->s;
    int given = 0;
    for (size_t i = 0; i < s->plan.count; i++) {
        const struct plan_entry *e = &s->plan.entries[i];
        struct cells_taken taken;
        if (!can_be_given(f, i, &taken))
            continue;
        if (way_of(s, i) != WAY_CELLS)
            add_to_call(f, i, taken.state);
        given += way_of(s, i) != WAY_CELLS || cells_refund(&e->limit->limit, &taken, s->plan.now_us);
    }
    return given;
}

/* It was sent, or could not be. */
static void on_sent(struct store_call *call)
{
    struct shared *s = (struct shared *)((char *)call - offsetof(struct shared, call));
    void *memory = s->plan.entries;
    shared_release(s);
    free(memory);
}

static void post(struct refund *f)
{
    struct shared *s = f->s;
    s->call.rules = s->rules;
    s->call.cost = f->receipt->cost;
    s->call.refund = true;
    s->call.now_us = s->weir->store_by_now ? s->plan.now_us : 0;
    s->call.server_us = f->receipt->store_us;
    s->call.deadline_us = clock_steady_us() + weir_deadline_ms(s->weir) * US_PER_MS;
    s->call.done = on_sent;
    shared_hold(s);
    s->weir->ops->post(s->weir->store, &s->call);
}

static int refund_by(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                     const struct weir_receipt *receipt, int64_t now_us)
{
    struct refund f = { .receipt = receipt, .s = shared_new(weir, bound, request, user, now_us, ROOM) };
    int given = 0;
    if (!f.s)
        return WEIR_E_NO_MEMORY;
    void *memory = f.s->plan.entries;
    f.store = f.s->plan.shared && weir_store_up(weir);
    if (f.store) {
        shared_make_keys(f.s, request, user, WAY_STORE);
        shared_make_keys(f.s, request, user, WAY_SLICE);
    }
    if (is_named(&f) && ring_use(bound->cells, ring_of(receipt, bound->cells), receipt->number, now_us))
        given = refund_all(&f);
    if (f.s->call.rule_count > 0)
        post(&f);
    else
        free(memory);
    return given;
}

static bool is_sealed(const struct weir_receipt *r, const struct cells *cells)
{
    struct weir_receipt copy = *r;
    seal(&copy, cells);
    return copy.seal == r->seal;
}

int weir_refund(struct weir *weir, const struct weir_request *request, const struct weir_receipt *receipt, int64_t now_us)
{
    char user_buf[WEIR_USER_MAX];
    sv user;
    if (receipt->count == 0)
        return 0; /* of a request that was not charged; the rest of it was never written */
    if (!clock_valid(now_us) || receipt->count > WEIR_RECEIPT_LIMITS)
        return WEIR_E_INVALID;
    if (!is_sealed(receipt, weir->cells) || now_us - receipt->at_us >= RECEIPT_LIFE_US ||
        receipt->at_us - now_us > AHEAD_US)
        return 0;
    const struct bound *bound = weir_acquire(weir, request, user_buf, &user);
    if (!bound)
        return WEIR_E_NO_MEMORY;
    int r = refund_by(weir, bound, request, user, receipt, now_us);
    hazard_release();
    return r;
}
