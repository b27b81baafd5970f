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

#include "base/buf.h"
#include "engine/hazard.h"
#include "engine/shared.h"
#include "engine/weir.h"
#include "limit/take.h"

/* No text is as long as this, and no limit's identity begins with it: see bound.c. */
#define RECEIPT_MARK (UINT64_MAX - 2)
#define RECEIPT_LIFE_US (INT64_C(3600) * US_PER_S)

enum { ROOM = 8 /* entries of most plans */ };

/* ---- making one ---- */

void receipt_begin(struct weir_receipt *r, uint32_t cost, int64_t at_us, int64_t store_us)
{
    r->count = 0;
    r->cost = cost;
    r->at_us = at_us;
    r->store_us = store_us;
    /* Where there is no chance to be had, receipts of one microsecond are one: all but one of them give nothing back. */
    if (getrandom(&r->number, sizeof r->number, GRND_NONBLOCK) != sizeof r->number)
        r->number = 0;
}

void receipt_add(struct weir_receipt *r, uint64_t limit, struct limit_state taken)
{
    if (r->count == WEIR_RECEIPT_LIMITS)
        return;
    r->charged[r->count].limit = limit;
    r->charged[r->count].time = taken.time;
    r->charged[r->count++].window = (uint32_t)(taken.data >> 32);
}

bool receipt_has(const struct weir_receipt *r, uint64_t limit, struct limit_state *ret_taken)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->charged[i].limit == limit) {
            *ret_taken = (struct limit_state){ r->charged[i].time, (uint64_t)r->charged[i].window << 32 };
            return true;
        }
    return false;
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

bool refund_cell(struct cells *cells, const struct plan_entry *e, const struct weir_receipt *receipt)
{
    struct giving g = { .limit = &e->limit->limit, .receipt = receipt, .now_us = e->ask.now_us };
    if (!receipt_has(receipt, e->ask.key, &g.taken))
        return false;
    cells_update(cells, e->ask.key, g.now_us, judge_giving, &g);
    return g.given;
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
        given = shared_refund(s, user, receipt);
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
