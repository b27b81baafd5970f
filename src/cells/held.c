/* Charges that are held: each has a time to live, and whoever comes after that gives it back. README.md, "Holds". */
#include "cells/held.h"

#include "cells/find.h"
#include "cells/holding.h"
#include "cells/owner.h"
#include "cells/rebase.h"

/* A hold that seems to last for so much longer than it may was made by a clock that was wrong, and has been set back. A
 * caller that stood still after it read its clock sees the same: it must not end what others hold, so this is long. */
#define AHEAD_US (60 * US_PER_S)

/* ---- holds ---- */

/* Returns the place of a hold that ends then. It is the caller's to write: a hold that is written in parts, and copied as a
 * whole, would make the CPU wait. */
static struct hold *insert_hold(struct held *h, int64_t until_us)
{
    uint32_t i = h->count++;
    for (; i > 0 && h->holds[i - 1].until_us > until_us; i--)
        h->holds[i] = h->holds[i - 1];
    return &h->holds[i];
}

static void sort_holds(struct held *h)
{
    uint32_t count = h->count;
    h->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct hold hold = h->holds[i];
        *insert_hold(h, hold.until_us) = hold;
    }
}

/* Gives back what is over. Returns whether the hold has to stay, to be settled late: its identity tells that it was not
 * settled yet. What is joined has lost its own. */
static bool end_hold(struct held *h, struct hold *hold, const struct limit *limit, int64_t now_us)
{
    if (!hold_is_over(hold)) {
        limit_refund(limit, hold->origin, hold->amount, now_us, &h->state);
        hold->amount = limit_repaid(limit, hold->origin, hold->amount, now_us);
    }
    hold->terms |= HOLD_OVER;
    return !hold_is_joinable(hold) && limit->algorithm != LIMIT_CONCURRENT && now_us - hold->until_us < CELLS_LATE_US &&
           !limit_origin_over(limit, hold->origin, now_us);
}

/* A clock that was wrong made the hold too long. */
static bool is_ahead(const struct hold *hold, int64_t now_us)
{
    return hold->until_us - now_us > hold_ttl_us(hold) + AHEAD_US;
}

static __attribute__((noinline)) bool end_some(struct held *h, const struct limit *limit, int64_t now_us)
{
    bool shortened = false;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        struct hold *hold = &h->holds[i];
        if (hold->until_us <= now_us && !end_hold(h, hold, limit, now_us))
            continue;
        if (is_ahead(hold, now_us)) {
            hold->until_us = now_us + hold_ttl_us(hold);
            shortened = true;
        }
        if (kept < i)
            h->holds[kept] = *hold;
        kept++;
    }
    h->count = kept;
    if (shortened)
        sort_holds(h);
    return shortened;
}

/* Ends those that are over. Returns whether a clock that was wrong made holds too long, which are shortened. */
static inline bool end_holds(struct held *h, const struct limit *limit, int64_t now_us)
{
    bool some = false;
    for (uint32_t i = 0; i < h->count; i++)
        some |= h->holds[i].until_us <= now_us || is_ahead(&h->holds[i], now_us);
    h->ended_us = now_us > h->ended_us ? now_us : h->ended_us;
    h->windows = limit->algorithm != LIMIT_TOKEN_BUCKET;
    return __builtin_expect(some, 0) && end_some(h, limit, now_us);
}

/* Gives back the slots of processes that are dead. Returns whether there were any. `certain`: this is to be written. */
static bool end_dead(struct held *h, const struct limit *limit, int64_t now_us, bool certain)
{
    uint64_t dead = 0; /* an owner often has several */
    uint32_t kept = 0, count = limit->algorithm == LIMIT_CONCURRENT ? h->count : 0;
    for (uint32_t i = 0; i < count; i++) {
        struct hold hold = h->holds[i];
        bool seems = hold.origin != dead && owner_seems_dead(hold.origin, now_us);
        if (seems && (!certain || owner_is_dead(hold.origin)))
            dead = hold.origin;
        if (dead != 0 && hold.origin == dead)
            limit_refund(limit, 0, hold.amount, now_us, &h->state);
        else
            h->holds[kept++] = hold;
    }
    if (kept < count)
        h->count = kept;
    return kept < count;
}

/* A clock that was wrong has moved the state. Its holds move along: they belong to the same window still. */
static void move_holds(struct held *h, const struct limit *limit, struct limit_state to, int64_t now_us)
{
    uint64_t from_origin = limit_origin(limit, h->state, now_us), to_origin = limit_origin(limit, to, now_us);
    for (uint32_t i = 0; i < h->count; i++) {
        uint64_t *origin = &h->holds[i].origin;
        if (limit->algorithm == LIMIT_TOKEN_BUCKET)
            *origin = *origin < (uint64_t)now_us ? *origin : (uint64_t)now_us;
        else if (limit->algorithm == LIMIT_SLIDING_WINDOW && *origin != 0) /* 0: of several windows */
            *origin += to_origin - from_origin;
        else if (*origin == from_origin)
            *origin = to_origin;
    }
    h->state = to;
}

/* ---- owners ---- */

void cells_disown(struct cells *cells)
{
    cells->disowned = true;
}

static uint64_t own_origin(const struct cells *cells, const struct limit *limit, struct limit_state state, int64_t now_us)
{
    if (limit->algorithm == LIMIT_CONCURRENT)
        return cells->disowned ? 0 : owner_self();
    return limit_origin(limit, state, now_us);
}

uint64_t cells_origin(const struct cells *cells, const struct limit *limit, const struct cells_taken *taken)
{
    return own_origin(cells, limit, taken->state, taken->at_us);
}

/* ---- charging ---- */

static void add_hold(const struct cells *cells, struct held *h, const struct cells_ask *a, int64_t now_us,
                     struct cells_terms *terms)
{
    uint64_t origin = own_origin(cells, a->limit, state_of(h), now_us);
    int64_t until_us = now_us + terms->ttl_ms * US_PER_MS;
    terms->joinable = h->count >= BLOCK_FEW_HOLDS;
    terms->origin = origin;
    *insert_hold(h, until_us) =
        (struct hold){ .until_us = until_us,
                       .origin = origin,
                       .amount = a->cost,
                       .terms = hold_terms(terms->id, terms->ttl_ms) | (terms->joinable ? HOLD_JOINABLE : 0) };
    h->tag = terms->tag;
}

/* `ended`: holds were ended or shortened that others would look at again. */
static void refuse(struct cells *cells, struct cell *c, const struct cells_ask *a, int64_t now_us, word16 s, struct held *h,
                   bool ended)
{
    struct limit_outlook outlook = limit_outlook(a->limit, h->state, now_us);
    if (ended)
        put_held(cells, c, a->key, s, h, &outlook, now_us);
    else if (!book_tells_refusal(c, now_us) && limit_needs(a->limit, a->cost) <= a->limit->capacity)
        raise_book(c, s, last_as_long(&outlook, h));
}

/* A charge under way. */
struct charging {
    int64_t now_us; /* the caller's, or the cell's own time */
    bool rebases;   /* see rebase_take */
    bool ended;     /* holds were ended or shortened that others would look at again */
    bool writes;    /* the state was charged, or a clock that was wrong was put right */
    struct limit_outlook outlook;
};

/* Handles the cases that limit_quick_by does not. */
static __attribute__((noinline)) bool charge_slowly(struct cells *cells, const struct cells_ask *ask, struct held *h,
                                                    struct charging *ch)
{
    struct cells_ask a = *ask;
    struct limit_take take = take_of(&a, h->state);
    if (!take.fits && end_dead(h, a.limit, a.now_us, true)) {
        ch->ended = true;
        take = take_of(&a, h->state);
    }
    if (take.rebased)
        take = rebase_take(cells, &a, h->state, true, &ch->rebases);
    if (take.rebased)
        move_holds(h, a.limit, take.next, a.now_us);
    ch->writes = take.fits || take.rebased;
    if (ch->writes)
        h->state = take.next;
    ch->now_us = a.now_us;
    ch->outlook = limit_outlook(a.limit, h->state, a.now_us);
    return take.fits;
}

/* Charges the state, if it fits or if a clock that was wrong has to be put right. */
static inline bool charge_state(struct cells *cells, const struct cells_ask *a, struct held *h, struct charging *ch)
{
    struct limit_quick quick;
    ch->now_us = a->now_us;
    ch->writes = limit_quick_by(a->limit->algorithm, a->limit, h->state, a->now_us, a->cost, &quick);
    if (__builtin_expect(!ch->writes, 0))
        return charge_slowly(cells, a, h, ch);
    h->state.time = quick.next.time;
    h->state.data = quick.next.data;
    ch->outlook.decays_us = quick.decays_us;
    ch->outlook.spare_us = a->limit->spare_us;
    ch->outlook.share = (uint8_t)quick.share;
    return true;
}

/* One try, from a state that was read. LOST: another one was quicker, or the cell is not the key's any more. */
static enum outcome try_charge(struct cells *cells, struct cell *c, const struct cells_ask *a, struct cells_terms *terms,
                               word16 s, struct charging *ch, struct cells_taken *ret)
{
    struct held h;
    if (!read_held(cells, c, a->key, s, &h))
        return LOST;
    ch->ended = end_holds(&h, a->limit, a->now_us);
    bool fits = charge_state(cells, a, &h, ch);
    if (!ch->writes) {
        refuse(cells, c, a, ch->now_us, s, &h, ch->ended);
        ret->state = h.state;
        return REFUSED;
    }
    if (fits && terms)
        add_hold(cells, &h, a, ch->now_us, terms);
    enum put put = put_held(cells, c, a->key, s, &h, &ch->outlook, ch->now_us);
    if (terms)
        terms->kept = put == PUT_NO_ROOM;
    if (put == PUT_NO_ROOM && terms && a->limit->algorithm == LIMIT_CONCURRENT) {
        ret->state = h.state;
        return REFUSED;
    }
    if (put == PUT_NO_ROOM)
        put = put_without(cells, c, a->key, s, &h, &ch->outlook, ch->now_us);
    if (put == PUT_LOST)
        return LOST;
    ret->state = state_of(&h);
    ret->cell = c;
    ret->head = head_of(a->key, state_gen(s));
    ret->at_us = ch->now_us;
    ret->cost = a->cost;
    ret->key = a->key;
    return fits ? TAKEN : REFUSED;
}

enum outcome held_charge(struct cells *cells, struct cell *c, const struct cells_ask *ask, struct cells_taken *ret)
{
    struct charging charging;
    charging.rebases = false;
    enum outcome outcome = LOST;
    word16 s;
    while (outcome == LOST && read_any(c, ask->key, &s))
        outcome = try_charge(cells, c, ask, NULL, s, &charging, ret);
    return outcome;
}

static struct cells_change judge_make(struct limit_state state, void *data)
{
    const struct cells_ask *a = data;
    bool made = state.time != 0 || state.data != 0; /* by another caller, just now */
    return (struct cells_change){ .writes = !made,
                                  .next = { .time = (uint64_t)a->now_us },
                                  .outlook = { .decays_us = a->now_us + US_PER_S, .share = 1 } };
}

/* One try at the first hold of a cell that was looked at and has room to spare. (Cells of slots never have: see
 * limit_quick_by.) If this fails, for whatever reason, try_charge does it from the start. */
LIMIT_HOT bool hold_quick(struct cells *cells, const struct cells_ask *a, const struct cells_look *look,
                          struct cells_terms *terms, struct cells_taken *ret)
{
    const struct limit_quick *q = &look->charge;
    word16 s = { look->seen.low, look->seen.high };
    struct limit_state state = { q->next.time, q->next.data }, name;
    uint64_t claimed;
    struct hold hold;
    hold.until_us = a->now_us + terms->ttl_ms * US_PER_MS;
    hold.origin = limit_origin(a->limit, state, a->now_us);
    hold.amount = a->cost;
    hold.terms = hold_terms(terms->id, terms->ttl_ms);
    if (!block_write_one(cells, a->key, a->now_us, state, terms->tag, &hold, &name, &claimed))
        return false;
    struct limit_outlook outlook = { q->decays_us, a->limit->spare_us, (uint8_t)q->share };
    if (!replace_as(CELL_HELD, look->cell, s, name, last_until(&outlook, hold.until_us))) {
        block_free(cells, name, (word16){ a->key, claimed });
        return false;
    }
    terms->origin = hold.origin;
    ret->state.time = state.time;
    ret->state.data = state.data;
    ret->cell = look->cell;
    ret->head = head_with(a->key, s.high);
    ret->at_us = a->now_us;
    ret->cost = a->cost;
    ret->key = a->key;
    return true;
}

bool cells_hold(struct cells *cells, const struct cells_ask *ask, const struct cells_look *look, struct cells_terms *terms,
                struct cells_taken *ret)
{
    CHECK(ask->cost > 0 && clock_valid(ask->now_us) && terms->id != 0 && terms->ttl_ms > 0);
    struct charging charging;
    charging.rebases = false;
    struct limit_state unused = { 0 };
    enum outcome outcome = LOST;
    terms->kept = terms->joinable = false;
    terms->origin = 0;
    if (look && look->cell && look->quick && hold_quick(cells, ask, look, terms, ret))
        return true;
    if (look && look->cell)
        outcome = try_charge(cells, look->cell, ask, terms, look->seen, &charging, ret);
    while (outcome == LOST) {
        word16 s;
        struct cell *c = cell_find(cells, ask->key, &s);
        if (c) {
            outcome = try_charge(cells, c, ask, terms, s, &charging, ret);
        } else if (!take_of(ask, unused).fits) {
            ret->state = unused;
            return false;
        } else {
            cells_update(cells, ask->key, ask->now_us, judge_make, (void *)ask);
        }
    }
    return outcome == TAKEN;
}

/* ---- looking ---- */

struct limit_state held_state(struct cells *cells, struct cell *c, uint64_t key, const struct limit *limit, word16 s,
                              int64_t now_us)
{
    struct held h;
    while (!read_held(cells, c, key, s, &h))
        if (!read_any(c, key, &s)) {
            c = cell_find(cells, key, &s);
            if (!c)
                return (struct limit_state){ 0 };
        }
    end_holds(&h, limit, now_us);
    end_dead(&h, limit, now_us, false);
    return h.state;
}

struct cells_held cells_holds(struct cells *cells, uint64_t key, const struct limit *limit, int64_t now_us)
{
    struct cells_held ret = { 0 };
    struct held h;
    word16 s;
    struct cell *c;
    do {
        c = cell_find(cells, key, &s);
        if (!c)
            return ret;
    } while (!read_held(cells, c, key, s, &h));
    end_holds(&h, limit, now_us);
    end_dead(&h, limit, now_us, false);
    ret.tag = h.tag;
    for (uint32_t i = 0; i < h.count; i++) {
        const struct hold *hold = &h.holds[i];
        if (hold_is_over(hold) || (limit->algorithm != LIMIT_CONCURRENT && limit_origin_over(limit, hold->origin, now_us)))
            continue;
        ret.holds++;
        ret.amount += hold->amount;
    }
    return ret;
}

bool held_refund(struct cells *cells, word16 s, const struct limit *limit, const struct cells_taken *taken, int64_t now_us,
                 bool *ret_done)
{
    struct held h;
    struct cell *c = taken->cell;
    uint64_t key = taken->key;
    if (!read_held(cells, c, key, s, &h))
        return false;
    *ret_done = limit_refund(limit, limit_origin(limit, taken->state, taken->at_us), taken->cost, now_us, &h.state);
    struct limit_outlook outlook = limit_outlook(limit, h.state, now_us);
    return !*ret_done || put_anyhow(cells, c, key, s, &h, limit, &outlook, now_us) != PUT_LOST;
}

/* ---- the end of a hold ---- */

/* A receipt says when its hold was to end. If the hold was renewed, and then joined with others, nothing else would tell
 * that it has not ended. So renewing leaves a note, a cell that is not a count: it takes the place of none. Without it the
 * hold is not found among the others. */
#define RENEWED_MARK UINT64_C(0x72656e657765642d)

static uint64_t note_key(const struct cells_charged *charged)
{
    return key_mix(charged->key ^ RENEWED_MARK, charged->id);
}

struct note {
    int64_t until_us, decays_us;
};

static struct cells_change judge_note(struct limit_state state, void *data)
{
    (void)state;
    const struct note *note = data;
    return (struct cells_change){ .writes = true,
                                  .next = { .time = (uint64_t)note->until_us },
                                  .outlook = { .decays_us = note->decays_us, .share = LIMIT_SHARE_NONE } };
}

/* A renewal may also bring the end nearer. The note stays until the end that the receipt says, or the receipt of a hold
 * that is over would be taken for one that lasts. */
static void note_renewal(struct cells *cells, const struct cells_charged *charged, int64_t until_us, int64_t now_us)
{
    struct note note = { .until_us = until_us < CLOCK_END_US ? until_us : CLOCK_END_US - 1 };
    int64_t said_us = charged->until_us < CLOCK_END_US ? charged->until_us : CLOCK_END_US - 1;
    note.decays_us = note.until_us > said_us ? note.until_us : said_us;
    cells_update(cells, note_key(charged), now_us, judge_note, &note);
}

/* Returns the end of a renewed hold; 0: nothing is noted. */
static int64_t noted_until(const struct cells *cells, const struct cells_charged *charged)
{
    word16 s;
    return cell_find(cells, note_key(charged), &s) ? (int64_t)state_payload(s).time : 0;
}

/* Where a part of joined holds is looked for, in this order. What is joined ends with the last of its parts. */
enum likeness {
    LIKE_OWN,     /* of the window or owner of the charge */
    LIKE_MIXED,   /* of several windows or owners; of a bucket, from before the charge */
    LIKE_NEITHER, /* does not have the charge. But others may have taken out of it what they had where the charge was */
    LIKE_NONE,
};

static enum likeness likeness_of(const struct hold *hold, const struct cells_charged *charged)
{
    bool lasts = hold->until_us >= charged->until_us;
    if (hold_id(hold) != 0)
        return LIKE_NONE;
    if (lasts && hold->origin == charged->origin)
        return LIKE_OWN;
    /* Only its owner looks for a slot there: that of a dead one may have been ended, and all that is there is of others. */
    if (is_owner(charged->origin))
        return lasts && hold->origin == 0 && charged->origin == owner_self() ? LIKE_MIXED : LIKE_NONE;
    if (is_owner(hold->origin) || charged->origin == 0)
        return LIKE_NONE;
    return lasts && hold->origin < charged->origin ? LIKE_MIXED : LIKE_NEITHER;
}

/* Takes up to `amount` out of those that are so alike, those that end first before the others: so what is left of those
 * that end later is no less than what else ends later, whichever of them had it. Returns the rest. */
static uint64_t take_from_joined(struct held *h, const struct cells_charged *charged, enum likeness like, uint64_t amount)
{
    for (uint32_t i = 0; i < h->count && amount > 0;) {
        struct hold *hold = &h->holds[i];
        uint64_t part = likeness_of(hold, charged) != like ? 0 : hold->amount < amount ? hold->amount : amount;
        amount -= part;
        hold->amount -= part;
        if (part > 0 && hold->amount == 0)
            remove_hold(h, i);
        else
            i++;
    }
    return amount;
}

/* Takes a part out of some that were joined. One that was over when the holds were last looked at is in none of these,
 * whatever the caller's clock says. Those of its own window come first: mixed ones give nothing back, so what is taken out
 * of them would be given back by those that had it. */
static __attribute__((noinline)) bool take_part(const struct cells *cells, struct held *h,
                                                const struct cells_charged *charged, struct hold *ret)
{
    struct cells_charged part = *charged;
    uint64_t there = 0, rest = part.amount;
    if (part.id == 0 || part.alone)
        return false;
    int64_t renewed_us = noted_until(cells, charged);
    part.until_us = renewed_us > 0 ? renewed_us : part.until_us;
    for (uint32_t i = 0; i < h->count; i++)
        there += likeness_of(&h->holds[i], &part) < LIKE_NONE ? h->holds[i].amount : 0;
    if (part.until_us <= h->ended_us || there < rest)
        return false;
    for (enum likeness like = LIKE_OWN; like < LIKE_NONE; like++)
        rest = take_from_joined(h, &part, like, rest);
    *ret = (struct hold){ part.until_us, part.origin, part.amount, HOLD_JOINABLE };
    return true;
}

/* Takes a hold out, or its part of some that were joined. Returns whether it was there; *ret is the hold then. */
static inline bool take_out(const struct cells *cells, struct held *h, const struct cells_charged *charged,
                            struct hold *ret)
{
    for (uint32_t i = 0; charged->id != 0 && i < h->count; i++)
        if (hold_id(&h->holds[i]) == charged->id) {
            *ret = hold_at(h, i);
            remove_hold(h, i);
            return true;
        }
    return take_part(cells, h, charged, ret);
}

/* The cell that a charge is in. NULL: it was dropped or reset since. */
static struct cell *find_charged(struct cells *cells, const struct cells_charged *charged, word16 *ret)
{
    struct cell *c = cell_find(cells, charged->key, ret);
    return c && state_gen(*ret) == charged->gen ? c : NULL;
}

struct amending {
    const struct limit *limit;
    const struct window *window;
    uint64_t origin, to;
    int64_t now_us;
    bool done;
};

static struct cells_change judge_amend(struct limit_state state, void *data)
{
    struct amending *a = data;
    a->done = limit_amend(a->limit, a->window, a->origin, 0, a->to, a->now_us, &state);
    return (struct cells_change){ .writes = a->done, .next = state, .outlook = limit_outlook(a->limit, state, a->now_us) };
}

/* One that is in no cell any more: the true amount is charged, and nothing is given back. */
static bool settle_lost(struct cells *cells, const struct limit *limit, const struct window *window,
                        const struct cells_charged *charged, uint64_t to, int64_t now_us)
{
    struct amending a = { limit, window, charged->origin, to, now_us, false };
    if (to == 0 || limit->algorithm == LIMIT_CONCURRENT)
        return false;
    cells_update(cells, charged->key, now_us, judge_amend, &a);
    return a.done;
}

/* One try at a hold that has not ended and is the only one of its cell. If this fails, for whatever reason, cells_settle
 * goes the long way from the start. */
LIMIT_HOT bool settle_quick(struct cells *cells, const struct limit *limit, const struct window *window,
                            const struct cells_charged *charged, uint64_t to, int64_t now_us)
{
    struct held_one h;
    word16 s;
    struct cell *c = charged->id != 0 && !charged->stays ? find_charged(cells, charged, &s) : NULL;
    if (!c || state_tag(s) != CELL_HELD || !block_read_one(cells, charged->key, state_payload(s), &h))
        return false;
    bool lasts = h.hold.until_us > now_us && !is_ahead(&h.hold, now_us) && !hold_is_over(&h.hold);
    if (hold_id(&h.hold) != charged->id || !lasts)
        return false;
    if (charged->amount != to)
        limit_amend(limit, window, h.hold.origin, charged->amount, to, now_us, &h.state);
    struct limit_state state = { load_plain(&h.state.time), load_plain(&h.state.data) }; /* as state_of does */
    if (!replace(c, s, state, limit_outlook(limit, state, now_us)))
        return false;
    block_free(cells, state_payload(s), (word16){ charged->key, h.claimed });
    return true;
}

bool cells_settle(struct cells *cells, const struct limit *limit, const struct window *window,
                  const struct cells_charged *charged, uint64_t to, int64_t now_us)
{
    CHECK(clock_valid(now_us) && to <= LIMIT_MAX_MAX);
    if (settle_quick(cells, limit, window, charged, to, now_us))
        return true;
    for (;;) {
        struct held h;
        word16 s;
        struct cell *c = find_charged(cells, charged, &s);
        if (!c)
            return !charged->alone && settle_lost(cells, limit, window, charged, to, now_us);
        if (!read_held(cells, c, charged->key, s, &h))
            continue;
        end_holds(&h, limit, now_us);
        struct hold hold = { .origin = charged->origin };
        bool found = take_out(cells, &h, charged, &hold);
        if (!found && charged->alone)
            return false;
        uint64_t from = (found && !hold_is_over(&hold)) || charged->id == 0 ? charged->amount : hold.amount;
        uint64_t amount = charged->stays && to < from ? from : to;
        bool amended = from != amount && limit_amend(limit, window, hold.origin, from, amount, now_us, &h.state);
        if (!found && !amended)
            return false;
        struct limit_outlook outlook = limit_outlook(limit, state_of(&h), now_us);
        enum put put = put_anyhow(cells, c, charged->key, s, &h, limit, &outlook, now_us);
        if (put != PUT_LOST)
            return put == PUT && (amended || !hold_is_over(&hold));
    }
}

bool cells_renew(struct cells *cells, const struct limit *limit, const struct cells_charged *charged, uint32_t ttl_ms,
                 int64_t now_us)
{
    CHECK(clock_valid(now_us) && ttl_ms > 0 && charged->id != 0);
    for (;;) {
        struct held h;
        word16 s;
        struct cell *c = find_charged(cells, charged, &s);
        if (!c)
            return false;
        if (!read_held(cells, c, charged->key, s, &h))
            continue;
        end_holds(&h, limit, now_us);
        struct hold hold;
        if (!take_out(cells, &h, charged, &hold) || hold_is_over(&hold))
            return false;
        hold.until_us = now_us + ttl_ms * US_PER_MS;
        hold.amount = charged->amount;
        hold.terms = hold_terms(charged->id, ttl_ms) | (hold.terms & HOLD_JOINABLE);
        if (limit->algorithm == LIMIT_CONCURRENT)
            hold.origin = charged->origin == own_origin(cells, limit, h.state, now_us) ? charged->origin : 0;
        *insert_hold(&h, hold.until_us) = hold;
        struct limit_outlook outlook = limit_outlook(limit, h.state, now_us);
        enum put put = put_held(cells, c, charged->key, s, &h, &outlook, now_us);
        if (put == PUT && hold_is_joinable(&hold))
            note_renewal(cells, charged, hold.until_us, now_us);
        if (put != PUT_LOST)
            return put == PUT;
    }
}
