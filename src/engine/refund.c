/* Receipts: what a request was charged, and giving it back.
 *
 * A receipt names every limit that was charged by the key of its cell, and the window that was charged. To give it back the
 * request is planned again, which leads to the same cells. What the receipt does not name is left alone: a rule that is new
 * since, a shadow rule that had no room, what was counted in place of a store that was away (it may have been charged there
 * since). A window that is over is another window. So nothing is given back that was not charged.
 *
 * Nor twice: a cell in the table says that a receipt was used. It is the first to go when room is wanted. Keys are hashes
 * with the table's secret, so that a receipt is of no use with another table, which would not know whether it was used. */
#include "engine/refund.h"

#include <stdlib.h>
#include <sys/random.h>

#include "engine/hazard.h"
#include "engine/shared.h"
#include "engine/weir.h"
#include "limit/take.h"

/* No text is as long as this, and no limit's identity begins with it: see bound.c. */
#define RECEIPT_MARK (UINT64_MAX - 2)
/* Subjects are hashes: one bit pattern more or less keeps what they stand for apart. */
#define STORE_MARK UINT64_C(0x73746f72652d6d6b)
#define RECEIPT_LIFE_US (INT64_C(3600) * US_PER_S)

enum { ROOM = 8 /* entries of most plans */ };

/* ---- making one ---- */

/* No two are the same. Only after a fork both processes have some of the same before them, which matters for receipts of
 * the same microsecond alone: then one of the two gives nothing back. */
static uint64_t next_number(void)
{
    enum { AT_ONCE = 32 };
    static _Thread_local uint64_t numbers[AT_ONCE];
    static _Thread_local unsigned left;
    if (left == 0) {
        if (getrandom(numbers, sizeof numbers, GRND_NONBLOCK) != sizeof numbers)
            return 0;
        left = AT_ONCE;
    }
    return numbers[--left];
}

/* `at_us` by this host's clock, `store_us` by the store's. */
static void begin(struct weir_receipt *r, uint32_t cost, int64_t at_us, int64_t store_us)
{
    r->count = 0;
    r->cost = cost;
    r->number = next_number();
    r->at_us = at_us;
    r->store_us = store_us;
}

/* `limit`: the key of the cell that was charged. `taken`: what the charge left, of which all but counts is kept. */
static void add(struct weir_receipt *r, uint64_t limit, struct limit_state taken)
{
    if (r->count == WEIR_RECEIPT_LIMITS)
        return;
    r->charged[r->count].limit = limit;
    r->charged[r->count].time = taken.time;
    r->charged[r->count++].window = (uint32_t)(taken.data >> 32);
}

static bool has(const struct weir_receipt *r, uint64_t limit, struct limit_state *ret_taken)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->charged[i].limit == limit) {
            *ret_taken = (struct limit_state){ r->charged[i].time, (uint64_t)r->charged[i].window << 32 };
            return true;
        }
    return false;
}

void plan_receipt(const struct plan *plan, struct weir_receipt *ret)
{
    begin(ret, plan->request->cost, plan->now_us, 0);
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *e = &plan->entries[i];
        if (plan_rule_fits(plan, i))
            add(ret, e->ask.key, *e->state);
    }
}

/* A cell in the store has no key in the table: this is what a receipt has in its place. */
static uint64_t store_id(const struct plan_entry *e)
{
    return cell_key(e->limit, e->subject ^ STORE_MARK);
}

void shared_receipt(const struct shared *s, struct weir_receipt *ret)
{
    begin(ret, s->request.cost, s->plan.now_us, s->call.server_us);
    for (size_t i = 0; i < s->plan.count; i++) {
        const struct plan_entry *e = &s->plan.entries[i];
        const struct shared_entry *m = &s->more[i];
        if (m->way == WAY_CELLS && !m->instead && plan_rule_fits(&s->plan, i))
            add(ret, e->ask.key, *e->state);
        else if (m->way == WAY_SLICE && m->taken)
            add(ret, e->ask.key, (struct limit_state){ .time = (uint64_t)m->end_us });
        else if (m->way == WAY_STORE && m->cell && plan_rule_fits(&s->plan, i))
            add(ret, store_id(e), m->cell->state);
    }
}

/* ---- as text ---- */

/* A version, then all in turn, lowest byte first. */
enum { TEXT_VERSION = 1, HEAD_BYTES = 1 + 4 + 3 * 8, CHARGED_BYTES = 20 };
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
    if (r->count > WEIR_RECEIPT_LIMITS)
        return 0;
    to = put_hex(to, TEXT_VERSION, 1);
    to = put_hex(to, r->cost, 4);
    to = put_hex(to, r->number, 8);
    to = put_hex(to, (uint64_t)r->at_us, 8);
    to = put_hex(to, (uint64_t)r->store_us, 8);
    for (uint32_t i = 0; i < r->count; i++) {
        to = put_hex(to, r->charged[i].limit, 8);
        to = put_hex(to, r->charged[i].time, 8);
        to = put_hex(to, r->charged[i].window, 4);
    }
    size_t len = (size_t)(to - text), n = len < cap ? len : cap ? cap - 1 : 0;
    memcpy(buf, text, n);
    if (cap > 0)
        buf[n] = '\0';
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
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->charged[i].limit = get_hex(&at, 8);
        ret->charged[i].time = get_hex(&at, 8);
        ret->charged[i].window = (uint32_t)get_hex(&at, 4);
    }
    return 0;
}

/* ---- used once ---- */

struct use {
    int64_t now_us;
    bool first;
};

static struct cells_change judge_use(struct limit_state state, void *data)
{
    struct use *u = data;
    u->first = (int64_t)state.time <= u->now_us;
    int64_t until_us = u->now_us + RECEIPT_LIFE_US;
    if (until_us >= CLOCK_END_US)
        until_us = CLOCK_END_US - 1;
    return (struct cells_change){ .writes = u->first,
                                  .next = { .time = (uint64_t)until_us, .data = 1 },
                                  .outlook = { .decays_us = until_us } };
}

static bool use_receipt(struct cells *cells, const struct weir_receipt *r, int64_t now_us)
{
    struct use use = { .now_us = now_us };
    struct hash h;
    hash_init(&h, cells_hash_key(cells));
    hash_word(&h, RECEIPT_MARK);
    hash_word(&h, r->number);
    hash_word(&h, (uint64_t)r->at_us);
    cells_update(cells, hash_final(&h), now_us, judge_use, &use);
    return use.first;
}

/* ---- giving back ---- */

struct giving {
    const struct limit *limit;
    const struct weir_receipt *receipt;
    struct limit_state taken;
    int64_t now_us;
    bool given;
};

static struct cells_change judge_giving(struct limit_state state, void *data)
{
    struct giving *g = data;
    bool used = state.time != 0 || state.data != 0;
    g->given = used && limit_refund(g->limit, g->taken, g->receipt->at_us, g->receipt->cost, g->now_us, &state);
    if (!g->given)
        return (struct cells_change){ .writes = false };
    return (struct cells_change){ .writes = true, .next = state, .outlook = limit_outlook(g->limit, state, g->now_us) };
}

static bool refund_cell(struct cells *cells, const struct plan_entry *e, const struct weir_receipt *receipt)
{
    struct giving g = { .limit = &e->limit->limit, .receipt = receipt, .now_us = e->ask.now_us };
    if (!has(receipt, e->ask.key, &g.taken))
        return false;
    cells_update(cells, e->ask.key, g.now_us, judge_giving, &g);
    return g.given;
}

/* Adds the cell of entry i to s->call, for its rule. */
static void add_to_call(struct shared *s, size_t i, struct limit_state taken, size_t *cells)
{
    const struct plan_entry *e = &s->plan.entries[i];
    sv key = shared_key(s, i);
    struct store_rule *last = s->call.rule_count ? &s->rules[s->call.rule_count - 1] : NULL;
    if (!last || last->key.ptr != key.ptr) {
        last = &s->rules[s->call.rule_count++];
        *last = (struct store_rule){ .key = key, .cells = &s->cells[*cells] };
    }
    last->cell_count++;
    s->cells[(*cells)++] = (struct store_cell){ .limit = &e->limit->limit, .field = e->limit->field, .state = taken };
}

/* Gives back what is on this host, and makes s->call for what is in the store. */
static int refund_shared(struct shared *s, sv user, const struct weir_receipt *receipt)
{
    struct weir_request request = s->request;
    bool store = s->weir->store;
    size_t cells = 0;
    int given = 0;
    if (store)
        shared_make_keys(s, &request, user, WAY_STORE);
    for (size_t i = 0; i < s->plan.count; i++) {
        const struct plan_entry *e = &s->plan.entries[i];
        struct limit_state taken;
        if (s->more[i].way == WAY_CELLS) {
            given += refund_cell(s->bound->cells, e, receipt);
        } else if (s->more[i].way == WAY_SLICE && has(receipt, e->ask.key, &taken)) {
            given += lease_unspend(s->bound->cells, e->ask.key, (int64_t)taken.time, receipt->cost);
        } else if (store && has(receipt, store_id(e), &taken)) {
            add_to_call(s, i, taken, &cells);
            given++;
        }
    }
    s->call.rules = s->rules;
    s->call.cost = receipt->cost;
    s->call.refund = true;
    s->call.now_us = s->weir->store_by_now ? s->plan.now_us : 0;
    s->call.server_us = receipt->store_us;
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

static int give_back(struct weir *weir, struct shared *s, sv user, const struct weir_receipt *receipt)
{
    void *memory = s->plan.entries;
    int given = 0;
    if (s->plan.shared) {
        given = refund_shared(s, user, receipt);
    } else {
        for (size_t i = 0; i < s->plan.count; i++)
            given += refund_cell(s->bound->cells, &s->plan.entries[i], receipt);
    }
    if (s->call.rule_count == 0) {
        free(memory);
        return given;
    }
    s->call.deadline_us = clock_steady_us() + weir_deadline_ms(weir) * US_PER_MS;
    s->call.done = on_sent;
    shared_hold(s);
    store_post(weir->store, &s->call);
    return given;
}

static int refund_by(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                     const struct weir_receipt *receipt, int64_t now_us)
{
    struct shared *s = shared_new(weir, bound, request, user, now_us, ROOM);
    if (!s)
        return WEIR_E_NO_MEMORY;
    if (!use_receipt(bound->cells, receipt, now_us)) {
        free(s->plan.entries);
        return 0;
    }
    return give_back(weir, s, user, receipt);
}

int weir_refund(struct weir *weir, const struct weir_request *request, const struct weir_receipt *receipt, int64_t now_us)
{
    char user_buf[WEIR_USER_MAX];
    sv user;
    if (receipt->count == 0)
        return 0; /* of a request that was not charged; the rest of it was never written */
    if (!clock_valid(now_us) || !clock_valid(receipt->at_us) || receipt->count > WEIR_RECEIPT_LIMITS)
        return WEIR_E_INVALID;
    if (receipt->cost == 0 || now_us - receipt->at_us >= RECEIPT_LIFE_US)
        return 0;
    const struct bound *bound = weir_acquire(weir, request, user_buf, &user);
    if (!bound)
        return WEIR_E_NO_MEMORY;
    int r = refund_by(weir, bound, request, user, receipt, now_us);
    hazard_release();
    return r;
}
