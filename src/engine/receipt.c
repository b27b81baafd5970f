#include "engine/receipt.h"

#include "engine/handle.h"
#include "engine/hold.h"
#include "engine/receipt_ring.h"
#include "engine/remote.h"
#include "limit/take.h"

/* Each is another beginning, or another key: nothing else is hashed like that. */
#define RECEIPT_MARK (UINT64_MAX - 2)
#define SEAL_MARK (UINT64_MAX - 3)
#define STORE_SEAL_MARK (UINT64_MAX - 5)

/* The window of a slice seems to end earlier by as long as the ask for it was on its way, which decisions wait for up to
 * ten seconds. For short windows the store takes a part of their length instead. */
enum { SLICE_OFF_MS = 10000 };

/* ---- one charge ---- */

static inline uint32_t how_word(struct receipt_how how)
{
    uint32_t store = how.nth << HOW_GEN | (uint32_t)how.keep << HOW_KEEP;
    return (how.kind == RECEIPT_STORE ? store : how.gen << HOW_GEN) | how.kind | (uint32_t)how.on_hold << HOW_HOLD |
           (uint32_t)how.algorithm << HOW_ALGORITHM | how.off_ms << HOW_OFF;
}

uint32_t receipt_unit(sv unit)
{
    uint32_t hash = 2166136261u; /* FNV-1a: names of units come from rules, and few are in one receipt */
    for (size_t i = 0; i < unit.len; i++)
        hash = (hash ^ (unsigned char)unit.ptr[i]) * 16777619u;
    return unit.len ? hash : 0;
}

bool weir_receipt_counts(const struct weir_receipt *receipt, struct weir_str unit)
{
    bool counts = false;
    for (uint32_t i = 0; i < receipt->count && i < WEIR_RECEIPT_LIMITS; i++)
        counts = counts || receipt->charged[i].unit == receipt_unit(unit);
    return counts;
}

/* ---- making one ---- */

/* A receipt that is being made. */
struct making {
    struct weir_receipt *receipt;
    int64_t until_us; /* what was charged may have decayed, or its window be over, by then */
    bool in_store;    /* some of it counts there */
    bool numbered;    /* some of it does not tell by itself whether it was settled */
};

/* Receipts of the same limits and subjects are numbered together. The keys of cells are keyed hashes. */
uint64_t receipt_ring(const struct weir_receipt *r, const struct cells *cells)
{
    uint64_t ring = RECEIPT_MARK;
    for (uint32_t i = 0; i < r->count; i++)
        ring = key_mix(ring * 3, r->charged[i].key);
    if (r->keys_len > 0) {
        struct hash h;
        hash_init(&h, cells_hash_key(cells));
        hash_word(&h, ring);
        subject_add(&h, sv_of(r->keys, r->keys_len));
        ring = hash_final(&h);
    }
    return ring;
}

/* With the identity: a copy of the table has the same secret. */
static uint64_t own_seal(const struct weir_receipt *r, const struct bound *bound)
{
    return seal_of(r, &bound->seal_key, cells_hash_key(bound->cells), SEAL_MARK ^ cells_identity(bound->cells),
                   r->store_seal);
}

bool receipt_is_sealed(const struct weir_receipt *r, const struct bound *bound)
{
    return r->seal == own_seal(r, bound);
}

static bool store_secret(const struct weir *weir, struct hash_key *ret)
{
    return weir->store && weir->ops->secret && weir->ops->secret(weir->store, ret);
}

/* Returns 0 while the secret is not known. */
static uint64_t store_seal(const struct weir_receipt *r, const struct weir *weir)
{
    struct hash_key secret;
    struct seal_key key;
    if (!store_secret(weir, &secret))
        return 0;
    seal_key_init(&key, &secret, r->count);
    uint64_t seal = seal_of(r, &key, &secret, STORE_SEAL_MARK, 0);
    return seal ? seal : 1;
}

bool receipt_is_of_store(const struct weir_receipt *r, const struct weir *weir)
{
    return r->store_seal != 0 && r->store_seal == store_seal(r, weir);
}

static uint64_t draw_number(const struct making *m, struct cells *cells)
{
    const struct weir_receipt *r = m->receipt;
    int64_t last_us = r->until_us > r->at_us ? r->until_us : r->at_us;
    int64_t most_us = last_us + RECEIPT_LIFE_US + RECEIPT_AHEAD_US,
            until_us = m->until_us < most_us ? m->until_us : most_us;
    return ring_draw_number(cells, receipt_ring(r, cells), r->at_us, until_us < CLOCK_END_US ? until_us : CLOCK_END_US - 1);
}

static void end(const struct making *m, const struct bound *bound, const struct weir *weir)
{
    struct weir_receipt *r = m->receipt;
    r->number = m->numbered ? draw_number(m, bound->cells) : 0;
    r->store_seal = weir && m->in_store ? store_seal(r, weir) : 0;
    r->seal = own_seal(r, bound);
}

/* Returns false if there is no room. */
static bool add_name(struct weir_receipt *r, sv key, sv field, uint64_t *ret)
{
    size_t at = r->keys_len;
    if (key.len + field.len > sizeof r->keys - at)
        return false;
    memcpy(r->keys + at, key.ptr, key.len);
    memcpy(r->keys + at + key.len, field.ptr, field.len);
    r->keys_len += (uint32_t)(key.len + field.len);
    *ret = at | key.len << 16 | (uint64_t)field.len << 32;
    return true;
}

bool receipt_name(const struct weir_receipt *r, const struct weir_charged *charged, struct receipt_name *ret)
{
    size_t at = charged->key & 0xffff, key_len = charged->key >> 16 & 0xffff, field_len = charged->key >> 32 & 0xffff;
    if (at + key_len + field_len > r->keys_len)
        return false;
    *ret = (struct receipt_name){ sv_of(r->keys + at, key_len), sv_of(r->keys + at + key_len, field_len) };
    return true;
}

static inline struct weir_charged *add(struct making *m, const struct counter *c, uint64_t origin, uint32_t how)
{
    struct weir_receipt *r = m->receipt;
    struct weir_charged *charged = &r->charged[r->count++];
    *charged = (struct weir_charged){ .limit = c->limit->id,
                                      .key = c->ask.key,
                                      .origin = origin,
                                      .rate = limit_rate(counter_limit(c)),
                                      .cost = c->ask.cost,
                                      .unit = c->limit->terms->spec->cost_unit.len > 0
                                                  ? receipt_unit(c->limit->terms->spec->cost_unit)
                                                  : 0,
                                      .how = how };
    return charged;
}

/* Returns the end of the hold, by this host's clock. */
static int64_t add_hold(struct making *m, const struct decision *d, const struct counter *c, int64_t at_us)
{
    struct weir_receipt *r = m->receipt;
    int64_t until_us = at_us + hold_ttl_ms(d, c) * US_PER_MS;
    r->hold = d->hold_id;
    r->until_us = until_us > r->until_us ? until_us : r->until_us;
    return until_us;
}

/* A unit that a reservation does not name is not charged. It belongs to the current window, or to the one that would begin
 * now. */
static struct limit_state looked_state(const struct counter *c)
{
    return limit_take(c->ask.limit, &c->window, *c->state, c->ask.now_us, 0).next;
}

/* Its number lasts until all that it could be charged has come back: nothing is charged yet that would say when. */
static void add_looked(struct making *m, const struct counter *c)
{
    const struct limit *limit = c->ask.limit;
    struct receipt_how how = { .kind = RECEIPT_CELL, .algorithm = limit->algorithm };
    struct limit_state state = looked_state(c);
    int64_t until_us = limit_outlook(limit, state, c->ask.now_us).decays_us;
    int64_t back_us = m->receipt->until_us + limit_window_us(limit, &c->window);
    until_us = back_us > until_us ? back_us : until_us;
    m->until_us = until_us > m->until_us ? until_us : m->until_us;
    add(m, c, limit_origin(limit, state, c->ask.now_us), how_word(how));
}

static void add_cell(struct making *m, const struct decision *d, const struct counter *c)
{
    const struct limit *limit = c->ask.limit;
    struct receipt_how how = {
        .kind = RECEIPT_CELL, .on_hold = c->on_hold, .algorithm = limit->algorithm, .gen = cells_generation(&c->taken)
    };
    int64_t until_us = c->on_hold ? add_hold(m, d, c, c->taken.at_us) : 0;
    if (m->numbered) {
        int64_t decays_us = limit_outlook(limit, c->taken.state, c->taken.at_us).decays_us;
        until_us = decays_us > until_us ? decays_us : until_us;
        m->until_us = until_us > m->until_us ? until_us : m->until_us;
    }
    struct weir_charged *charged =
        add(m, c, c->on_hold ? c->origin : cells_origin(d->bound->cells, limit, &c->taken), how_word(how));
    if (__builtin_expect(limit->algorithm == LIMIT_CONCURRENT, 0))
        charged->rate = (uint64_t)hold_ttl_ms(d, c) * US_PER_MS; /* slots of one request may end at different times */
}

/* Its limit is known by its numbers, since another host has other identities. */
static void add_store(struct making *m, const struct decision *d, const struct counter *c)
{
    const struct limit *limit = counter_limit(c);
    const struct remote_counter *rc = remote_of(d, c);
    struct receipt_how how = { .kind = RECEIPT_STORE, .on_hold = c->on_hold, .algorithm = limit->algorithm };
    uint64_t name, origin;
    if (c->on_hold && c->kind == COUNTER_STORE) {
        how.keep = rc->cell->hold.keep;
        how.nth = rc->cell->hold.nth;
    }
    if (how.nth >> HOW_NTH_BITS || !add_name(m->receipt, remote_key(d, c), remote_field(d, c), &name))
        return;
    if (c->kind == COUNTER_SLICE) {
        how.off_ms = SLICE_OFF_MS;
        origin = (uint64_t)(rc->end_us + remote_offset_us(d));
    } else {
        origin = limit_origin(limit, c->held ? *c->state : looked_state(c), c->ask.now_us); /* its server's clock */
    }
    struct weir_charged *charged = add(m, c, origin, how_word(how));
    charged->key = name;
    charged->limit = limit->max;
    charged->rate = (uint64_t)limit->per_us;
    m->until_us = CLOCK_END_US;
    m->in_store = true;
    if (c->on_hold)
        add_hold(m, d, c, d->now_us);
}

/* The store's clock when it was charged. A call that is late belongs to the store still, which may be writing its answer.
 *
 * If several servers have charged it, this is the earliest of their clocks. A server compares it with the time at which it
 * forgot the subject, and gives back nothing that was charged before that: too early a time gives back too little, and a
 * later one would take from the counts of others. What has to be exact, the time of a bucket's charge, is its `origin`. */
static int64_t store_time(const struct decision *d)
{
    int64_t server_us = d->remote->late ? 0 : d->remote->call.server_us;
    return server_us > 0 ? server_us : d->now_us + remote_offset_us(d);
}

static void add_counter(struct making *m, const struct decision *d, const struct counter *c)
{
    bool slot = c->kind == COUNTER_STANDIN && c->on_hold; /* it would stay in use until its time to live */
    if (c->kind == COUNTER_CELL && !c->held)
        add_looked(m, c);
    else if (c->kind == COUNTER_CELL || slot)
        add_cell(m, d, c);
    else if (c->kind != COUNTER_STANDIN)
        add_store(m, d, c);
}

/* An entry that does not fit into the receipt cannot be given back, so slots come first. Limits of units that a reservation
 * does not name come last: nothing is charged there until it is settled. */
enum rank { RANK_SLOT, RANK_CHARGED, RANK_LOOKED, RANKS };

static enum rank rank_of(const struct decision *d, const struct counter *c)
{
    if (c->held)
        return c->limit->terms->limit.algorithm == LIMIT_CONCURRENT ? RANK_SLOT : RANK_CHARGED;
    bool looked = d->request->ttl_ms > 0 && c->ask.cost == 0 && c->outcome == COUNTER_FITS;
    return looked && (c->kind == COUNTER_CELL || c->kind == COUNTER_STORE) ? RANK_LOOKED : RANKS;
}

/* Holds in cells that are not joined with others tell by themselves whether they were settled. Of stand-ins only slots are
 * in a receipt. */
static bool needs_number(const struct counter *c)
{
    if (c->kind == COUNTER_STORE || c->kind == COUNTER_SLICE)
        return true;
    return c->on_hold ? c->joinable : c->kind == COUNTER_CELL;
}

void receipt_make(const struct decision *d, struct weir_receipt *ret)
{
    ret->count = ret->keys_len = ret->hold = 0;
    ret->at_us = d->now_us;
    ret->until_us = d->request->ttl_ms > 0 ? d->now_us + d->request->ttl_ms * US_PER_MS : 0;
    ret->store_us = d->remote ? store_time(d) : 0;
    struct making m = { ret, d->now_us, false, false };
    unsigned ranks = 0; /* a bit for each that there is */
    for (size_t i = 0; i < d->count; i++) {
        enum rank rank = rank_of(d, &d->counters[i]);
        ranks |= 1u << rank;
        m.numbered = m.numbered || (rank != RANKS && needs_number(&d->counters[i]));
    }
    for (enum rank rank = RANK_SLOT; rank < RANKS; rank++)
        for (size_t i = 0; ranks >> rank & 1 && i < d->count && ret->count < WEIR_RECEIPT_LIMITS; i++)
            if (rank_of(d, &d->counters[i]) == rank)
                add_counter(&m, d, &d->counters[i]);
    end(&m, d->bound, d->remote ? d->remote->weir : NULL);
}

/* ---- as text ---- */

/* A version, then all in turn, lowest byte first. Names are bytes, too: they may have any. */
enum {
    TEXT_VERSION = 3,
    HEAD_BYTES = 1 + 1 + 2 + 4 + 6 * 8,
    CHARGED_BYTES = 5 * 8 + 2 * 4,
};
_Static_assert(2 * (HEAD_BYTES + WEIR_RECEIPT_LIMITS * CHARGED_BYTES + WEIR_RECEIPT_KEYS_MAX) < WEIR_RECEIPT_TEXT_MAX,
               "the longest fits");

static char *put_hex(char *to, uint64_t number, unsigned bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < bytes; i++, number >>= 8) {
        *to++ = digits[number >> 4 & 15];
        *to++ = digits[number & 15];
    }
    return to;
}

static char *put_charged(char *to, const struct weir_charged *c)
{
    const uint64_t words[] = { c->limit, c->key, c->origin, c->rate, c->cost };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        to = put_hex(to, words[i], 8);
    to = put_hex(to, c->unit, 4);
    return put_hex(to, c->how, 4);
}

size_t weir_receipt_text(const struct weir_receipt *r, char *buf, size_t cap)
{
    char text[WEIR_RECEIPT_TEXT_MAX], *to = text;
    const uint64_t words[] = { r->number, (uint64_t)r->at_us, (uint64_t)r->until_us, (uint64_t)r->store_us,
                               r->seal,   r->store_seal };
    uint32_t count = r->count < WEIR_RECEIPT_LIMITS ? r->count : WEIR_RECEIPT_LIMITS;
    uint32_t keys_len = r->keys_len < sizeof r->keys ? r->keys_len : sizeof r->keys;
    to = put_hex(to, TEXT_VERSION, 1);
    to = put_hex(to, count, 1);
    to = put_hex(to, keys_len, 2);
    to = put_hex(to, r->hold, 4);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        to = put_hex(to, words[i], 8);
    for (uint32_t i = 0; i < count; i++)
        to = put_charged(to, &r->charged[i]);
    for (uint32_t i = 0; i < keys_len; i++)
        to = put_hex(to, (unsigned char)r->keys[i], 1);
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

/* Returns the number of limits that it has; 0 if it is not a receipt. */
static uint32_t read_count(sv text)
{
    if (text.len < 2 * HEAD_BYTES || text.len % 2 != 0 || text.len >= WEIR_RECEIPT_TEXT_MAX)
        return 0;
    for (size_t i = 0; i < text.len; i++)
        if (ascii_hex(text.ptr[i]) < 0)
            return 0;
    const char *at = text.ptr;
    uint64_t version = get_hex(&at, 1), count = get_hex(&at, 1), keys_len = get_hex(&at, 2);
    bool fits = count <= WEIR_RECEIPT_LIMITS && keys_len <= WEIR_RECEIPT_KEYS_MAX &&
                text.len / 2 == HEAD_BYTES + count * CHARGED_BYTES + keys_len;
    return version == TEXT_VERSION && fits ? (uint32_t)count : 0;
}

static void get_charged(const char **at, struct weir_charged *ret)
{
    uint64_t *words[] = { &ret->limit, &ret->key, &ret->origin, &ret->rate, &ret->cost };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        *words[i] = get_hex(at, 8);
    ret->unit = (uint32_t)get_hex(at, 4);
    ret->how = (uint32_t)get_hex(at, 4);
}

int weir_receipt_read(struct weir_str text, struct weir_receipt *ret)
{
    uint32_t count = read_count(text);
    if (count == 0)
        return WEIR_E_INVALID;
    const char *at = text.ptr + 8, *last = text.ptr + text.len;
    *ret = (struct weir_receipt){ .count = count, .hold = (uint32_t)get_hex(&at, 4) };
    ret->number = get_hex(&at, 8);
    ret->at_us = (int64_t)get_hex(&at, 8);
    ret->until_us = (int64_t)get_hex(&at, 8);
    ret->store_us = (int64_t)get_hex(&at, 8);
    ret->seal = get_hex(&at, 8);
    ret->store_seal = get_hex(&at, 8);
    for (uint32_t i = 0; i < count; i++)
        get_charged(&at, &ret->charged[i]);
    while (at < last)
        ret->keys[ret->keys_len++] = (char)get_hex(&at, 1);
    return 0;
}
