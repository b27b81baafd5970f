/* Asks through the table's first page, from processes that have no connection to the store; and what the lender tells them.
 *
 *   page    header · news · LEASE_PLACES places, up to the page's end
 *   place   state: time 52 · count of changes 10 · tag 2, checksum of the ask, the ask
 *
 * A place goes from FREE by WRITING, ASKED and TAKEN to FREE, each step by compare-and-swap, so that a step that comes too
 * late fails. Whoever dies in between, or finds no lender, leaves something that is old after a second: that is free, too.
 * So one who was stopped for a second may still write into a place that is another's by then: what the lender reads counts
 * only if its checksum fits, which is keyed with the table's secret, and only if it is something that weir would ask. */
#include "cells/lease.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cells/layout.h"
#include "limit/take.h"

enum { ASKS_OFFSET = 512, LEASE_PLACES = 7, LEASE_HOSTS_MAX = 1000000 };
#define LEASE_OLD_US US_PER_S
#define LEASE_OWED_STEP_US (100 * US_PER_MS) /* so that not everybody writes to one word */

/* What of an ask is in a place. */
struct written_ask {
    uint64_t cell, owed;
    int64_t per_us;
    struct window window, next;
    uint32_t algorithm, max;
    uint32_t need, slice, ttl_ms;
    uint16_t key_len, field_len;
    char key[LEASE_KEY_MAX];
    char field[LEASE_FIELD_MAX];
};

enum { ASK_WORDS = sizeof(struct written_ask) / 8 };
_Static_assert(sizeof(struct written_ask) % 8 == 0, "an ask is copied in words");

struct ask_place {
    uint64_t state;
    uint64_t checksum;
    uint64_t words[ASK_WORDS];
};

enum { NEWS_COUNTERS = 1, NEWS_UP = 2 };

struct asks_page {
    uint64_t beat_us; /* when the lender last spoke, by the clock that all processes of a host share */
    uint64_t flags;   /* hosts 32 · NEWS_… 32 */
    int64_t offset_us;
    int64_t owed_us; /* when something was last owed to the store */
    uint32_t posted; /* asks so far; a futex */
    struct ask_place place[LEASE_PLACES];
};

_Static_assert(sizeof(struct cells_header) <= ASKS_OFFSET, "asks lie behind the header …");
_Static_assert(ASKS_OFFSET + sizeof(struct asks_page) <= CELLS_HEADER_BYTES, "… and in its page");

static struct asks_page *page_of(const struct cells *cells)
{
    return (struct asks_page *)((char *)cells->header + ASKS_OFFSET);
}

/* ---- the state of a place ---- */

enum place_tag { PLACE_FREE, PLACE_WRITING, PLACE_ASKED, PLACE_TAKEN };

static uint64_t place_state(uint64_t before, enum place_tag tag, int64_t steady_us)
{
    uint64_t changes = ((before >> TAG_BITS) + 1) & GEN_MASK;
    return (uint64_t)steady_us << MARK_BITS | changes << TAG_BITS | tag;
}

static enum place_tag place_tag(uint64_t state)
{
    return (enum place_tag)(state & 3);
}

/* The machine may have been started anew since, and its steady clock with it. */
static bool is_fresh(int64_t then_us, int64_t steady_us)
{
    return then_us <= steady_us && steady_us - then_us < LEASE_OLD_US;
}

static bool place_is_fresh(uint64_t state, int64_t steady_us)
{
    return is_fresh((int64_t)(state >> MARK_BITS), steady_us);
}

/* ---- what is in it ---- */

static uint64_t ask_checksum(const struct cells *cells, const uint64_t words[ASK_WORDS])
{
    struct hash h;
    hash_init(&h, &cells->secret);
    for (unsigned i = 0; i < ASK_WORDS; i++)
        hash_word(&h, words[i]);
    h.length = sizeof(struct written_ask);
    return hash_final(&h);
}

/* The one after the current is empty where its time is far off. */
static bool is_window(const struct window *w)
{
    return w->start_us >= 0 && w->start_us <= w->end_us && w->end_us < 2 * CLOCK_END_US;
}

/* "{values}:rule:by" */
static bool is_key(const char *key, size_t len)
{
    if (len < 4 || len > LEASE_KEY_MAX || key[0] != '{')
        return false;
    const char *end = memmem(key, len, "}:", 2);
    return end && end + 2 < key + len;
}

/* "day.c": the field of a fixed or calendar window. */
static bool is_field(const char *field, size_t len, uint32_t algorithm)
{
    return len >= 3 && len <= LEASE_FIELD_MAX && field[len - 2] == '.' &&
           field[len - 1] == (algorithm == LIMIT_CALENDAR ? 'c' : 'f');
}

static bool is_ask(const struct written_ask *a)
{
    if (!is_key(a->key, a->key_len) || !is_field(a->field, a->field_len, a->algorithm) || a->need == 0 || a->slice == 0 ||
        a->ttl_ms == 0)
        return false;
    if (a->algorithm == LIMIT_CALENDAR)
        return is_window(&a->window) && is_window(&a->next) && a->window.start_us < a->window.end_us &&
               a->next.start_us >= a->window.end_us;
    return a->algorithm == LIMIT_FIXED_WINDOW && a->per_us >= LIMIT_PER_MIN_US && a->per_us <= LIMIT_PER_MAX_US;
}

static void write_ask(struct written_ask *to, const struct lease_ask *ask)
{
    *to = (struct written_ask){ .cell = ask->cell,
                                .owed = ask->owed,
                                .per_us = ask->limit.per_us,
                                .window = ask->window,
                                .next = ask->next,
                                .algorithm = ask->limit.algorithm,
                                .max = ask->limit.max,
                                .need = ask->need,
                                .slice = ask->slice,
                                .ttl_ms = ask->ttl_ms,
                                .key_len = ask->key_len,
                                .field_len = ask->field_len };
    memcpy(to->key, ask->key, ask->key_len <= LEASE_KEY_MAX ? ask->key_len : 0);
    memcpy(to->field, ask->field, ask->field_len <= LEASE_FIELD_MAX ? ask->field_len : 0);
}

/* Of a written one that was checked. */
static void read_ask(struct lease_ask *ret, const struct written_ask *from)
{
    *ret = (struct lease_ask){ .cell = from->cell,
                               .owed = from->owed,
                               .window = from->window,
                               .next = from->next,
                               .need = from->need,
                               .slice = from->slice,
                               .ttl_ms = from->ttl_ms,
                               .key_len = from->key_len,
                               .field_len = from->field_len };
    limit_init(&ret->limit, (enum limit_algorithm)from->algorithm, from->max, 0, from->per_us);
    memcpy(ret->key, from->key, from->key_len);
    memcpy(ret->field, from->field, from->field_len);
}

/* Word by word: who comes a second too late may be writing at the same time. */
static void words_put(uint64_t *to, const uint64_t words[ASK_WORDS])
{
    for (unsigned i = 0; i < ASK_WORDS; i++)
        __atomic_store_n(&to[i], words[i], __ATOMIC_RELAXED);
}

static void words_get(const uint64_t *from, uint64_t words[ASK_WORDS])
{
    for (unsigned i = 0; i < ASK_WORDS; i++)
        words[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

/* ---- asking ---- */

union ask_bytes {
    struct written_ask ask;
    uint64_t words[ASK_WORDS];
};

/* An ask for the same cell waits already. */
static bool is_posted(const struct asks_page *page, const struct lease_ask *ask, int64_t steady_us)
{
    for (unsigned i = 0; i < LEASE_PLACES; i++) {
        const struct ask_place *p = &page->place[i];
        uint64_t state = load_8(&p->state);
        if (place_tag(state) == PLACE_ASKED && place_is_fresh(state, steady_us) && load_8(&p->words[0]) == ask->cell &&
            load_8(&p->state) == state)
            return true;
    }
    return false;
}

static bool post_at(struct cells *cells, struct ask_place *p, const union ask_bytes *bytes, int64_t steady_us)
{
    uint64_t was = load_8(&p->state), writing = place_state(was, PLACE_WRITING, steady_us);
    if (place_tag(was) != PLACE_FREE && place_is_fresh(was, steady_us))
        return false;
    if (!cas_8(&p->state, was, writing))
        return false;
    words_put(p->words, bytes->words);
    __atomic_store_n(&p->checksum, ask_checksum(cells, bytes->words), __ATOMIC_RELAXED);
    return cas_8(&p->state, writing, place_state(writing, PLACE_ASKED, steady_us));
}

static void wake_lender(struct asks_page *page)
{
    __atomic_fetch_add(&page->posted, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &page->posted, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool lease_post(struct cells *cells, const struct lease_ask *ask, int64_t steady_us)
{
    struct asks_page *page = page_of(cells);
    union ask_bytes bytes;
    write_ask(&bytes.ask, ask);
    if (!is_ask(&bytes.ask))
        return false;
    if (is_posted(page, ask, steady_us))
        return true;
    for (unsigned i = 0; i < LEASE_PLACES; i++)
        if (post_at(cells, &page->place[i], &bytes, steady_us)) {
            wake_lender(page);
            return true;
        }
    return false;
}

/* ---- the lender's side ---- */

static bool take_from(struct cells *cells, struct ask_place *p, struct lease_ask *ret, int64_t steady_us)
{
    uint64_t was = load_8(&p->state), taken = place_state(was, PLACE_TAKEN, steady_us);
    if (place_tag(was) != PLACE_ASKED || !place_is_fresh(was, steady_us) || !cas_8(&p->state, was, taken))
        return false;
    union ask_bytes bytes;
    words_get(p->words, bytes.words);
    uint64_t checksum = __atomic_load_n(&p->checksum, __ATOMIC_RELAXED);
    if (!cas_8(&p->state, taken, place_state(taken, PLACE_FREE, steady_us)))
        return false;
    if (checksum != ask_checksum(cells, bytes.words) || !is_ask(&bytes.ask))
        return false;
    read_ask(ret, &bytes.ask);
    return true;
}

bool lease_next_ask(struct cells *cells, struct lease_ask *ret, int64_t steady_us)
{
    struct asks_page *page = page_of(cells);
    for (unsigned i = 0; i < LEASE_PLACES; i++)
        if (take_from(cells, &page->place[i], ret, steady_us))
            return true;
    return false;
}

uint32_t lease_wait_for_asks(struct cells *cells, uint32_t seen, int64_t most_us)
{
    struct asks_page *page = page_of(cells);
    uint32_t posted = __atomic_load_n(&page->posted, __ATOMIC_SEQ_CST);
    if (posted != seen || most_us <= 0)
        return posted;
    struct timespec most = { most_us / US_PER_S, most_us % US_PER_S * 1000 };
    syscall(SYS_futex, &page->posted, FUTEX_WAIT, seen, &most, NULL, 0);
    return __atomic_load_n(&page->posted, __ATOMIC_SEQ_CST);
}

/* ---- news ---- */

/* Each word stands for itself, so a reader may have some of them from before. */
void lease_tell_news(struct cells *cells, const struct lease_news *news, int64_t steady_us)
{
    struct asks_page *page = page_of(cells);
    uint64_t flags = (news->counters ? NEWS_COUNTERS : 0) | (news->up ? NEWS_UP : 0);
    __atomic_store_n(&page->offset_us, news->offset_us, __ATOMIC_SEQ_CST);
    __atomic_store_n(&page->flags, (uint64_t)news->hosts << 32 | flags, __ATOMIC_SEQ_CST);
    __atomic_store_n(&page->beat_us, (uint64_t)steady_us, __ATOMIC_SEQ_CST);
}

struct lease_news lease_read_news(const struct cells *cells, int64_t steady_us)
{
    const struct asks_page *page = page_of(cells);
    uint64_t flags = __atomic_load_n(&page->flags, __ATOMIC_SEQ_CST);
    int64_t offset_us = __atomic_load_n(&page->offset_us, __ATOMIC_SEQ_CST);
    int64_t beat_us = (int64_t)__atomic_load_n(&page->beat_us, __ATOMIC_SEQ_CST);
    uint32_t hosts = (uint32_t)(flags >> 32);
    return (struct lease_news){ .counters = flags & NEWS_COUNTERS,
                                .up = (flags & NEWS_UP) && is_fresh(beat_us, steady_us),
                                .hosts = hosts < 1                 ? 1
                                         : hosts > LEASE_HOSTS_MAX ? LEASE_HOSTS_MAX
                                                                   : hosts,
                                .offset_us = offset_us > -CLOCK_END_US && offset_us < CLOCK_END_US ? offset_us : 0 };
}

void lease_note_copy(struct cells *cells)
{
    struct asks_page *page = page_of(cells);
    __atomic_store_n(&page->beat_us, 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&page->flags, UINT64_C(1) << 32, __ATOMIC_SEQ_CST);
}

/* ---- what is owed ---- */

static void note_owed(struct cells *cells, int64_t now_us)
{
    int64_t *owed_us = &page_of(cells)->owed_us;
    int64_t before_us = __atomic_load_n(owed_us, __ATOMIC_RELAXED);
    if (before_us > now_us || now_us - before_us > LEASE_OWED_STEP_US)
        __atomic_store_n(owed_us, now_us, __ATOMIC_RELAXED);
}

/* A limit that counts and decays as this one, and refuses nothing. */
static struct limit without_bound(const struct limit *limit)
{
    struct limit free;
    bool bucket = limit->algorithm == LIMIT_TOKEN_BUCKET;
    limit_init(&free, limit->algorithm, bucket ? limit->max : LIMIT_MAX_MAX, LIMIT_MAX_MAX, limit->per_us);
    return free;
}

struct owing {
    const struct limit *limit, *rank;
    const struct window *window;
    int64_t now_us;
    uint32_t cost;
    struct limit_state state; /* ret */
};

static struct cells_change judge_owe(struct limit_state state, void *data)
{
    struct owing *o = data;
    struct limit_take take = limit_take(o->limit, o->window, state, o->now_us, o->cost);
    o->state = take.next;
    return (struct cells_change){ .writes = take.fits,
                                  .next = take.next,
                                  .outlook = limit_outlook(o->rank, take.next, o->now_us) };
}

struct limit_state lease_owe(struct cells *cells, uint64_t key, const struct limit *limit, const struct limit *rank,
                             const struct window *window, int64_t now_us, uint32_t cost)
{
    struct limit free = without_bound(limit);
    struct owing owing = { &free, rank, window, now_us, cost, { 0 } };
    note_owed(cells, now_us);
    cells_update(cells, key, now_us, judge_owe, &owing);
    return owing.state;
}

uint32_t lease_owed(struct cells *cells, uint64_t key, const struct limit *limit, const struct window *window,
                    int64_t now_us, struct limit_state *ret_seen)
{
    int64_t owed_us = __atomic_load_n(&page_of(cells)->owed_us, __ATOMIC_RELAXED);
    if (owed_us == 0 || now_us - owed_us > 2 * limit_window_us(limit, window))
        return 0;
    struct cells_ask ask = { key, limit, window, now_us, 0 };
    struct cells_look look;
    cells_look(cells, &ask, &look);
    *ret_seen = look.state;
    if (!look.cell)
        return 0;
    struct limit free = without_bound(limit);
    return free.capacity - limit_remaining(&free, window, look.state, now_us);
}

/* Keys are hashes: one bit pattern more or less keeps the cells apart. */
#define CLAIM_MARK UINT64_C(0x636c61696d2d6d6b)

struct claim {
    uint64_t who;
    int64_t now_us;
    bool release;
    bool held; /* ret: by this one */
};

static struct cells_change judge_claim(struct limit_state state, void *data)
{
    struct claim *c = data;
    int64_t left_us = (int64_t)state.time - c->now_us, until_us = c->now_us + LEASE_CLAIM_US;
    /* This one's clock may lag behind the holder's. One that lies much further ahead was made by a clock that was wrong. */
    bool taken = state.data != 0 && left_us > 0 && left_us <= 2 * LEASE_CLAIM_US;
    c->held = c->release ? state.data == c->who : !taken;
    /* A mark that is lost costs a payment made twice: counts are worth more. */
    return (struct cells_change){ .writes = c->held,
                                  .forgets = c->release,
                                  .next = { .time = (uint64_t)until_us, .data = c->who },
                                  .outlook = { .decays_us = until_us, .share = LIMIT_SHARE_NONE } };
}

bool lease_claim(struct cells *cells, uint64_t key, uint64_t who, int64_t now_us)
{
    struct claim claim = { .who = who, .now_us = now_us };
    if (now_us < CLOCK_END_US - LEASE_CLAIM_US)
        cells_update(cells, key ^ CLAIM_MARK, now_us, judge_claim, &claim);
    return claim.held;
}

void lease_release(struct cells *cells, uint64_t key, uint64_t who, int64_t now_us)
{
    struct claim claim = { .who = who, .now_us = now_us, .release = true };
    cells_update(cells, key ^ CLAIM_MARK, now_us, judge_claim, &claim);
}

struct payment {
    const struct limit *limit;
    struct limit_state seen;
    int64_t seen_us, now_us;
    uint32_t paid;
    bool all; /* that was seen, not only the last charge */
};

static uint32_t less(uint32_t count, uint32_t by)
{
    return count > by ? count - by : 0;
}

/* What was in view of the previous window was paid as well, as the part that it was then. limit_refund gives a cost back to
 * one window only. */
static bool pay_slide(const struct limit *limit, struct limit_state seen, struct limit_state *state)
{
    uint32_t previous = (uint32_t)(state->data >> 32), count = (uint32_t)state->data;
    if (state->time == seen.time) {
        previous = less(previous, (uint32_t)(seen.data >> 32));
        count = less(count, (uint32_t)seen.data);
    } else if (state->time == seen.time + (uint64_t)limit->per_us) {
        previous = less(previous, (uint32_t)seen.data);
    } else {
        return false;
    }
    state->data = (uint64_t)previous << 32 | count;
    return true;
}

static bool is_nothing(const struct limit *limit, struct limit_state state)
{
    bool window = limit->algorithm == LIMIT_FIXED_WINDOW || limit->algorithm == LIMIT_CALENDAR;
    return window ? (uint32_t)state.data == 0 : state.data == 0;
}

static struct cells_change judge_pay(struct limit_state state, void *data)
{
    const struct payment *p = data;
    bool slide = p->all && p->limit->algorithm == LIMIT_SLIDING_WINDOW;
    bool paid = slide ? pay_slide(p->limit, p->seen, &state)
                      : limit_refund(p->limit, p->seen, p->seen_us, p->paid, p->now_us, &state);
    return (struct cells_change){ .writes = paid,
                                  .forgets = is_nothing(p->limit, state),
                                  .next = state,
                                  .outlook = limit_outlook(p->limit, state, p->now_us) };
}

void lease_unowe(struct cells *cells, uint64_t key, const struct limit *limit, struct limit_state owed, int64_t owed_us,
                 uint32_t cost, int64_t now_us)
{
    struct payment payment = { limit, owed, owed_us, now_us, cost, false };
    cells_update(cells, key, now_us, judge_pay, &payment);
}

void lease_pay(struct cells *cells, uint64_t key, const struct limit *limit, struct limit_state seen, int64_t seen_us,
               uint32_t paid, int64_t now_us)
{
    struct payment payment = { limit, seen, seen_us, now_us, paid, true };
    cells_update(cells, key, now_us, judge_pay, &payment);
}
