/* Asks from processes that have no connection to the store, and what the lender tells them: see board.h.
 *
 * A slot goes from FREE by WRITING, ASKED and TAKEN to FREE, each step by compare-and-swap, so that a step that comes too
 * late fails. If a process dies in between, or there is no lender, the slot is old after a second, and is free again. A
 * process that was stopped for a second may still write into a slot that belongs to another by then. So an ask counts only
 * if its checksum matches, which is keyed with the table's secret, and only if weir could have asked it. */
#include "slices/asks.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "limit/take.h"
#include "slices/board.h"

#define BOARD_OLD_US US_PER_S
enum { HOSTS_MAX = 1000000 };

/* ---- the state of a slot ---- */

enum slot_tag { SLOT_FREE, SLOT_WRITING, SLOT_ASKED, SLOT_TAKEN };

static uint64_t slot_state(uint64_t before, enum slot_tag tag, int64_t steady_us)
{
    uint64_t changes = ((before >> TAG_BITS) + 1) & GEN_MASK;
    return (uint64_t)steady_us << MARK_BITS | changes << TAG_BITS | tag;
}

static enum slot_tag slot_tag(uint64_t state)
{
    return (enum slot_tag)(state & 3);
}

/* The steady clock restarts with the machine. */
static bool is_fresh(int64_t then_us, int64_t steady_us)
{
    return then_us <= steady_us && steady_us - then_us < BOARD_OLD_US;
}

static bool slot_is_fresh(uint64_t state, int64_t steady_us)
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

/* The next window is empty unless it begins soon. */
static bool is_window(const struct window *w)
{
    return w->start_us >= 0 && w->start_us <= w->end_us && w->end_us < 2 * CLOCK_END_US;
}

/* "{values}:rule:by" */
static bool is_key(const char *key, size_t len)
{
    if (len < 4 || len > STORE_KEY_MAX || key[0] != '{')
        return false;
    const char *end = memmem(key, len, "}:", 2);
    return end && end + 2 < key + len;
}

/* "day.c": the field of a fixed or calendar window. */
static bool is_field(const char *field, size_t len, uint32_t algorithm)
{
    return len >= 3 && len <= STORE_FIELD_MAX && field[len - 2] == '.' &&
           field[len - 1] == (algorithm == LIMIT_CALENDAR ? 'c' : 'f');
}

static uint32_t algorithm_of(const struct written_ask *a)
{
    return a->algorithm & ~(uint32_t)ASK_OVERDRAFT;
}

static bool is_ask(const struct written_ask *a)
{
    uint32_t algorithm = algorithm_of(a);
    if (!is_key(a->key, a->key_len) || !is_field(a->field, a->field_len, algorithm) || a->need == 0 || a->slice == 0 ||
        a->ttl_ms == 0)
        return false;
    if (algorithm == LIMIT_CALENDAR)
        return is_window(&a->window) && is_window(&a->next) && a->window.start_us < a->window.end_us &&
               a->next.start_us >= a->window.end_us;
    return algorithm == LIMIT_FIXED_WINDOW && a->per_us >= LIMIT_PER_MIN_US && a->per_us <= LIMIT_PER_MAX_US;
}

static void write_ask(struct written_ask *to, const struct slice_ask *ask)
{
    *to = (struct written_ask){ .cell = ask->cell,
                                .owed = ask->owed,
                                .per_us = ask->limit.per_us,
                                .window = ask->window,
                                .next = ask->next,
                                .algorithm = ask->limit.algorithm | (ask->limit.overdraft ? ASK_OVERDRAFT : 0),
                                .max = ask->limit.max,
                                .need = ask->need,
                                .slice = ask->slice,
                                .ttl_ms = ask->ttl_ms,
                                .key_len = ask->key_len,
                                .field_len = ask->field_len };
    memcpy(to->key, ask->key, ask->key_len <= STORE_KEY_MAX ? ask->key_len : 0);
    memcpy(to->field, ask->field, ask->field_len <= STORE_FIELD_MAX ? ask->field_len : 0);
}

/* `from` has been checked. */
static void read_ask(struct slice_ask *ret, const struct written_ask *from)
{
    *ret = (struct slice_ask){ .cell = from->cell,
                               .owed = from->owed,
                               .window = from->window,
                               .next = from->next,
                               .need = from->need,
                               .slice = from->slice,
                               .ttl_ms = from->ttl_ms,
                               .key_len = from->key_len,
                               .field_len = from->field_len };
    limit_init(&ret->limit, (enum limit_algorithm)algorithm_of(from), from->max, 0, from->per_us);
    ret->limit.overdraft = from->algorithm & ASK_OVERDRAFT;
    memcpy(ret->key, from->key, from->key_len);
    memcpy(ret->field, from->field, from->field_len);
}

/* Word by word: a process that was stopped for a second may write at the same time. */
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

/* Returns whether an ask for the same cell is on the board already. */
static bool is_posted(const struct board *board, const struct slice_ask *ask, int64_t steady_us)
{
    for (unsigned i = 0; i < BOARD_SLOTS; i++) {
        const struct ask_slot *p = &board->slot[i];
        uint64_t state = load_8(&p->state);
        if (slot_tag(state) == SLOT_ASKED && slot_is_fresh(state, steady_us) && load_8(&p->words[0]) == ask->cell &&
            load_8(&p->state) == state)
            return true;
    }
    return false;
}

static bool post_at(struct cells *cells, struct ask_slot *p, const union ask_bytes *bytes, int64_t steady_us)
{
    uint64_t was = load_8(&p->state), writing = slot_state(was, SLOT_WRITING, steady_us);
    if (slot_tag(was) != SLOT_FREE && slot_is_fresh(was, steady_us))
        return false;
    if (!cas_8(&p->state, was, writing))
        return false;
    words_put(p->words, bytes->words);
    __atomic_store_n(&p->checksum, ask_checksum(cells, bytes->words), __ATOMIC_RELAXED);
    return cas_8(&p->state, writing, slot_state(writing, SLOT_ASKED, steady_us));
}

/* The table may be shared with other processes, so these futexes are, too. */
static void futex_wake(uint32_t *word)
{
    __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Returns the word, at once if it is not `seen` any more. */
static uint32_t futex_wait(uint32_t *word, uint32_t seen, int64_t most_us)
{
    uint32_t now = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (now != seen || most_us <= 0)
        return now;
    struct timespec most = { most_us / US_PER_S, most_us % US_PER_S * 1000 };
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

bool ask_post(struct cells *cells, const struct slice_ask *ask, int64_t steady_us)
{
    struct board *board = board_of(cells);
    union ask_bytes bytes;
    write_ask(&bytes.ask, ask);
    if (!is_ask(&bytes.ask))
        return false;
    if (is_posted(board, ask, steady_us))
        return true;
    for (unsigned i = 0; i < BOARD_SLOTS; i++)
        if (post_at(cells, &board->slot[i], &bytes, steady_us)) {
            futex_wake(&board->posted);
            return true;
        }
    return false;
}

/* ---- the lender's side ---- */

static bool take_from(struct cells *cells, struct ask_slot *p, struct slice_ask *ret, int64_t steady_us)
{
    uint64_t was = load_8(&p->state), taken = slot_state(was, SLOT_TAKEN, steady_us);
    if (slot_tag(was) != SLOT_ASKED || !slot_is_fresh(was, steady_us) || !cas_8(&p->state, was, taken))
        return false;
    union ask_bytes bytes;
    words_get(p->words, bytes.words);
    uint64_t checksum = __atomic_load_n(&p->checksum, __ATOMIC_RELAXED);
    if (!cas_8(&p->state, taken, slot_state(taken, SLOT_FREE, steady_us)))
        return false;
    if (checksum != ask_checksum(cells, bytes.words) || !is_ask(&bytes.ask))
        return false;
    read_ask(ret, &bytes.ask);
    return true;
}

bool ask_next(struct cells *cells, struct slice_ask *ret, int64_t steady_us)
{
    struct board *board = board_of(cells);
    for (unsigned i = 0; i < BOARD_SLOTS; i++)
        if (take_from(cells, &board->slot[i], ret, steady_us))
            return true;
    return false;
}

uint32_t ask_wait(struct cells *cells, uint32_t seen, int64_t most_us)
{
    return futex_wait(&board_of(cells)->posted, seen, most_us);
}

void answers_came(struct cells *cells)
{
    futex_wake(&board_of(cells)->brought);
}

uint32_t answers_seen(const struct cells *cells)
{
    return __atomic_load_n(&board_of(cells)->brought, __ATOMIC_SEQ_CST);
}

void answers_wait(struct cells *cells, uint32_t seen, int64_t most_us)
{
    futex_wait(&board_of(cells)->brought, seen, most_us);
}

/* ---- the status ---- */

/* Each word has its own meaning, so a reader may see some old and some new ones. */
void lender_status_write(struct cells *cells, const struct lender_status *status, int64_t steady_us)
{
    struct board *board = board_of(cells);
    uint64_t flags = (status->counters ? STATUS_COUNTERS : 0) | (status->up ? STATUS_UP : 0);
    __atomic_store_n(&board->offset_us, status->offset_us, __ATOMIC_SEQ_CST);
    __atomic_store_n(&board->flags, (uint64_t)status->hosts << 32 | flags, __ATOMIC_SEQ_CST);
    __atomic_store_n(&board->beat_us, (uint64_t)steady_us, __ATOMIC_SEQ_CST);
}

struct lender_status lender_status_read(const struct cells *cells, int64_t steady_us)
{
    const struct board *board = board_of(cells);
    uint64_t flags = __atomic_load_n(&board->flags, __ATOMIC_SEQ_CST);
    int64_t offset_us = __atomic_load_n(&board->offset_us, __ATOMIC_SEQ_CST);
    int64_t beat_us = (int64_t)__atomic_load_n(&board->beat_us, __ATOMIC_SEQ_CST);
    uint32_t hosts = (uint32_t)(flags >> 32);
    return (struct lender_status){ .counters = flags & STATUS_COUNTERS,
                                   .up = (flags & STATUS_UP) && is_fresh(beat_us, steady_us),
                                   .hosts = hosts < 1           ? 1
                                            : hosts > HOSTS_MAX ? HOSTS_MAX
                                                                : hosts,
                                   .offset_us = offset_us > -CLOCK_END_US && offset_us < CLOCK_END_US ? offset_us : 0 };
}

void lender_status_note_copy(struct cells *cells)
{
    struct board *board = board_of(cells);
    __atomic_store_n(&board->beat_us, 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&board->flags, UINT64_C(1) << 32, __ATOMIC_SEQ_CST);
}
