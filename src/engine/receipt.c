#include "engine/receipt.h"

#include "engine/receipt_ring.h"
#include "engine/remote.h"
#include "limit/take.h"

/* No text is as long as these, and no limit's identity begins with them: see bound.c. */
#define RECEIPT_MARK (UINT64_MAX - 2)
#define SEAL_MARK (UINT64_MAX - 3)
/* Subjects are hashes: XOR with a constant gives another one. */
#define STORE_MARK UINT64_C(0x73746f72652d6d6b)

/* ---- making one ---- */

/* A receipt that is being made. */
struct making {
    struct weir_receipt *receipt;
    int64_t until_us; /* what was charged may have decayed, or its window be over, by then */
};

/* `at_us` by this host's clock, `store_us` by the store's. */
static struct making begin(struct weir_receipt *r, int64_t at_us, int64_t store_us)
{
    r->count = 0;
    r->at_us = at_us;
    r->store_us = store_us;
    return (struct making){ r, at_us };
}

/* Receipts of the same limits and subjects are numbered together. The head of a cell begins with its fingerprint; the
 * generation, which differs from time to time, is left out. */
uint64_t receipt_ring(const struct weir_receipt *r, const struct cells *cells)
{
    enum { GENERATION_BITS = 12 };
    struct hash h;
    hash_init(&h, cells_hash_key(cells));
    hash_word(&h, RECEIPT_MARK);
    for (uint32_t i = 0; i < r->count; i++)
        hash_word(&h, r->charged[i].limit >> GENERATION_BITS);
    return hash_final(&h);
}

static uint64_t seal_of(const struct weir_receipt *r, const struct cells *cells)
{
    struct hash h;
    hash_init(&h, cells_hash_key(cells));
    hash_word(&h, SEAL_MARK ^ cells_identity(cells));
    hash_word(&h, r->count);
    hash_word(&h, r->number);
    hash_word(&h, (uint64_t)r->at_us);
    hash_word(&h, (uint64_t)r->store_us);
    for (uint32_t i = 0; i < r->count; i++) {
        hash_word(&h, r->charged[i].limit);
        hash_word(&h, r->charged[i].time);
        hash_word(&h, r->charged[i].window);
        hash_word(&h, r->charged[i].cost);
        hash_word(&h, r->charged[i].cell);
    }
    return hash_final(&h);
}

/* Returns what a receipt says about a state: for a window everything except its counts, for a bucket, which has no window,
 * its rate. */
static struct limit_state rest_of(const struct limit *limit, struct limit_state taken)
{
    if (limit->algorithm == LIMIT_TOKEN_BUCKET)
        return (struct limit_state){ (uint64_t)limit->per_us, limit->max };
    if (limit->algorithm == LIMIT_SLIDING_WINDOW)
        return (struct limit_state){ taken.time, 0 };
    return (struct limit_state){ taken.time, taken.data - limit_state_count(taken) };
}

static void end(const struct making *m, struct cells *cells)
{
    struct weir_receipt *r = m->receipt;
    int64_t most_us = r->at_us + RECEIPT_LIFE_US + RECEIPT_AHEAD_US,
            until_us = m->until_us < most_us ? m->until_us : most_us;
    if (r->count > 0)
        r->number = ring_draw_number(cells, receipt_ring(r, cells), r->at_us,
                                     until_us < CLOCK_END_US ? until_us : CLOCK_END_US - 1);
    r->seal = seal_of(r, cells);
}

/* `limit`: the head of the cell that was charged, or what stands for it. */
static void add(struct making *m, uint64_t limit, struct limit_state rest, uint64_t cost, uint64_t cell, int64_t until_us)
{
    struct weir_receipt *r = m->receipt;
    if (r->count == WEIR_RECEIPT_LIMITS || cell > UINT32_MAX)
        return;
    if (until_us > m->until_us)
        m->until_us = until_us;
    r->charged[r->count].limit = limit;
    r->charged[r->count].time = rest.time;
    r->charged[r->count].window = rest.data;
    r->charged[r->count].cost = cost;
    r->charged[r->count++].cell = (uint32_t)cell;
}

static void add_cell(struct making *m, const struct counter *c, const struct cells *cells)
{
    int64_t until_us = limit_outlook(c->ask.limit, c->taken.state, c->taken.at_us).decays_us;
    add(m, c->taken.head, rest_of(c->ask.limit, c->taken.state), c->ask.cost, cells_index(cells, &c->taken), until_us);
}

uint64_t receipt_store_id(const struct counter *c)
{
    return cell_key(c->limit, c->subject ^ STORE_MARK);
}

static void add_counter(struct making *m, const struct decision *d, const struct counter *c)
{
    if (c->kind == COUNTER_CELL)
        add_cell(m, c, d->bound->cells);
    else if (c->kind == COUNTER_SLICE)
        add(m, receipt_store_id(c), (struct limit_state){ .time = (uint64_t)remote_of(d, c)->end_us }, c->ask.cost, 0,
            CLOCK_END_US);
    else if (c->kind == COUNTER_STORE)
        add(m, receipt_store_id(c), rest_of(&c->limit->limit, *c->state), c->ask.cost, 0, CLOCK_END_US);
}

void receipt_make(const struct decision *d, struct weir_receipt *ret)
{
    struct making m = begin(ret, d->now_us, d->remote ? d->remote->call.server_us : 0);
    for (size_t i = 0; i < d->count && ret->count < WEIR_RECEIPT_LIMITS; i++)
        if (d->counters[i].held)
            add_counter(&m, d, &d->counters[i]);
    end(&m, d->bound->cells);
}

bool receipt_is_sealed(const struct weir_receipt *r, const struct cells *cells)
{
    return r->seal == seal_of(r, cells);
}

/* ---- as text ---- */

/* A version, then all in turn, lowest byte first. */
enum { TEXT_VERSION = 2, HEAD_BYTES = 1 + 4 * 8, CHARGED_BYTES = 4 * 8 + 4 };
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
    to = put_hex(to, r->number, 8);
    to = put_hex(to, (uint64_t)r->at_us, 8);
    to = put_hex(to, (uint64_t)r->store_us, 8);
    to = put_hex(to, r->seal, 8);
    for (uint32_t i = 0; i < r->count && i < WEIR_RECEIPT_LIMITS; i++) {
        to = put_hex(to, r->charged[i].limit, 8);
        to = put_hex(to, r->charged[i].time, 8);
        to = put_hex(to, r->charged[i].window, 8);
        to = put_hex(to, r->charged[i].cost, 8);
        to = put_hex(to, r->charged[i].cell, 4);
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
    ret->number = get_hex(&at, 8);
    ret->at_us = (int64_t)get_hex(&at, 8);
    ret->store_us = (int64_t)get_hex(&at, 8);
    ret->seal = get_hex(&at, 8);
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->charged[i].limit = get_hex(&at, 8);
        ret->charged[i].time = get_hex(&at, 8);
        ret->charged[i].window = get_hex(&at, 8);
        ret->charged[i].cost = get_hex(&at, 8);
        ret->charged[i].cell = (uint32_t)get_hex(&at, 4);
    }
    return 0;
}
