#include "redis/script.h"

#include <stdio.h>

#include "limit/take.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers for the store are written as they lie in memory"
#endif

/* The algorithms as the scripts number them. */
_Static_assert(LIMIT_TOKEN_BUCKET == 0 && LIMIT_FIXED_WINDOW == 1 && LIMIT_SLIDING_WINDOW == 2 && LIMIT_CALENDAR == 3 &&
                   LIMIT_CONCURRENT == 4,
               "the scripts in lua/ have the same numbers");

/* Added to the algorithm of a limit with overdraft, and of a cell that is charged or given back whatever the others say. */
enum { OVERDRAFT = 8, ALWAYS = 16, GIVE_BACK = 32 };

enum { ANSWER_STALE, ANSWER_REFUSED, ANSWER_ALLOWED, ANSWER_ALL_FIT, ANSWER_WRONG };

/* A token has 2^20 parts in the store. */
enum { STORE_TOKEN_BITS = 20 };
#define STORE_TOKEN (UINT64_C(1) << STORE_TOKEN_BITS)

/* Amounts are exact in a double, and so are times. */
#define EXACT_MAX WEIR_AMOUNT_MAX

/* ---- writing ---- */

/* A command is written for each decision: its many small parts are put together here first. Longer ones go the long way. */
enum { SHORT_MAX = 256, HEAD_MAX = 1 + NUMBER_MAX + 2 };

static char *copy(char *to, sv bytes)
{
    if (bytes.len > 0)
        memcpy(to, bytes.ptr, bytes.len);
    return to + bytes.len;
}

/* "$12\r\n" */
static char *copy_head(char *to, char kind, size_t count)
{
    *to = kind;
    return copy(number_put(to + 1, (int64_t)count), SV("\r\n"));
}

static void put_head(struct buf *out, char kind, size_t count)
{
    char text[HEAD_MAX];
    buf_add(out, sv_of(text, (size_t)(copy_head(text, kind, count) - text)));
}

static void put_end(struct buf *out)
{
    buf_add(out, SV("\r\n"));
}

/* One string of two parts. */
static void put_string(struct buf *out, sv first, sv second)
{
    char text[HEAD_MAX + SHORT_MAX + 2];
    size_t len = first.len + second.len;
    if (len <= SHORT_MAX) {
        char *end = copy(copy(copy(copy_head(text, '$', len), first), second), SV("\r\n"));
        buf_add(out, sv_of(text, (size_t)(end - text)));
        return;
    }
    put_head(out, '$', len);
    buf_add(out, first);
    buf_add(out, second);
    put_end(out);
}

static void put_doubles(struct buf *out, const double *numbers, size_t count)
{
    buf_add(out, sv_of((const char *)numbers, count * sizeof *numbers));
}

#define PUT_DOUBLES(out, ...)                                             \
    do {                                                                  \
        const double numbers_[] = { __VA_ARGS__ };                        \
        put_doubles(out, numbers_, sizeof numbers_ / sizeof numbers_[0]); \
    } while (0)

static void put_command(struct buf *out, enum script_name name, size_t keys, size_t values)
{
    char text[4 * HEAD_MAX + sizeof scripts[name].sha + 32], number[NUMBER_MAX];
    sv count = { number, (size_t)(number_put(number, (int64_t)keys) - number) };
    char *end = copy(copy_head(text, '*', 3 + keys + values), SV("$7\r\nEVALSHA\r\n$40\r\n"));
    end = copy(end, sv_of(scripts[name].sha, sizeof scripts[name].sha - 1));
    end = copy(copy_head(copy(end, SV("\r\n")), '$', count.len), count);
    buf_add(out, sv_of(text, (size_t)(copy(end, SV("\r\n")) - text)));
}

/* The prefix of each key: "weir:1:". */
struct start {
    char text[SCRIPT_PREFIX_MAX + NUMBER_MAX + 2];
    size_t len;
};

static struct start key_start(sv prefix)
{
    struct start start;
    if (prefix.len > SCRIPT_PREFIX_MAX)
        prefix.len = SCRIPT_PREFIX_MAX;
    char *end = number_put(copy(copy(start.text, prefix), SV(":")), SCRIPT_LAYOUT);
    start.len = (size_t)(copy(end, SV(":")) - start.text);
    return start;
}

static void put_key(struct buf *out, const struct start *start, sv key)
{
    put_string(out, sv_of(start->text, start->len), key);
}

/* The three numbers of a limit that its algorithm needs beside its max. */
struct measures {
    double a, b, c;
};

static struct measures measures(const struct limit *l, const struct window *window, const struct window *next,
                                int64_t hold_us)
{
    switch (l->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return (struct measures){ (double)l->per_us, (double)l->capacity, 0 };
    case LIMIT_CALENDAR:
        return (struct measures){ (double)window->start_us, (double)window->end_us, (double)next->end_us };
    case LIMIT_CONCURRENT:
        return (struct measures){ (double)(hold_us > 0 ? hold_us : l->per_us), 0, 0 };
    default:
        return (struct measures){ (double)l->per_us, 0, 0 };
    }
}

static void put_cell(struct buf *out, const struct store_cell *cell)
{
    struct measures m = measures(cell->limit, &cell->window, &cell->next, cell->hold.ttl_us);
    static const int ways[] = { [WEIR_CHARGE_IF_ROOM] = 0, [WEIR_CHARGE_ALWAYS] = ALWAYS, [WEIR_GIVE_BACK] = GIVE_BACK };
    int way = ways[cell->charging] + (cell->limit->overdraft ? OVERDRAFT : 0);
    PUT_DOUBLES(out, cell->limit->algorithm + way, (double)cell->limit->max, (double)cell->debt, (double)cell->cost, m.a,
                m.b, m.c);
}

static size_t count_cells(const struct store_call *call)
{
    size_t cells = 0;
    for (size_t i = 0; i < call->rule_count; i++)
        cells += call->rules[i].cell_count;
    return cells;
}

static void put_fields(struct buf *out, const struct store_rule *rule)
{
    for (size_t i = 0; i < rule->cell_count; i++)
        put_string(out, rule->cells[i].field, SV(""));
}

/* As the scripts number them. */
enum { HOLD_NONE, HOLD_RELEASED, HOLD_KEPT };

static int hold_kind(const struct store_hold *hold)
{
    if (hold->ttl_us == 0)
        return HOLD_NONE;
    return hold->keep ? HOLD_KEPT : HOLD_RELEASED;
}

static bool has_holds(const struct store_call *call)
{
    return call->charge && call->hold_id != 0;
}

/* The number of doubles of put_holds. */
static size_t hold_numbers(const struct store_call *call)
{
    return has_holds(call) ? 1 + 4 * count_cells(call) : 0;
}

static void put_holds(struct buf *out, const struct store_call *call)
{
    PUT_DOUBLES(out, call->hold_id);
    for (size_t i = 0; i < call->rule_count; i++)
        for (size_t j = 0; j < call->rules[i].cell_count; j++) {
            const struct store_hold *hold = &call->rules[i].cells[j].hold;
            PUT_DOUBLES(out, (double)hold->ttl_us, (double)hold->amount, hold_kind(hold), hold->nth);
        }
}

/* As the script numbers them. */
enum { PLAN_MENDS = -1, PLAN_LOOKS, PLAN_CHARGES, PLAN_HOLDS };

static int plan_kind(const struct store_call *call)
{
    if (!call->charge)
        return call->mends ? PLAN_MENDS : PLAN_LOOKS;
    return has_holds(call) ? PLAN_HOLDS : PLAN_CHARGES;
}

/* A plan, in numbers. */
static void put_plan(struct buf *out, const struct store_call *call)
{
    PUT_DOUBLES(out, plan_kind(call), (double)call->rule_count, (double)count_cells(call));
    for (size_t i = 0; i < call->rule_count; i++) {
        const struct store_rule *rule = &call->rules[i];
        PUT_DOUBLES(out, (double)rule->cell_count, rule->shadow);
        for (size_t j = 0; j < rule->cell_count; j++)
            put_cell(out, &rule->cells[j]);
    }
    if (has_holds(call))
        put_holds(out, call);
}

/* The numbers of some plans in all. */
struct batch {
    size_t plans, rules, cells, holds;
};

static struct batch count_plans(const struct store_call *first)
{
    struct batch batch = { 0 };
    for (const struct store_call *call = first; call; call = call->next) {
        batch.plans++;
        batch.holds += hold_numbers(call);
        batch.rules += call->rule_count;
        batch.cells += count_cells(call);
    }
    return batch;
}

static void put_plans(struct buf *out, const struct store_call *first, const struct batch *batch)
{
    put_head(out, '$', (1 + 3 * batch->plans + 2 * batch->rules + 7 * batch->cells + batch->holds) * sizeof(double));
    PUT_DOUBLES(out, (double)first->now_us);
    for (const struct store_call *call = first; call; call = call->next)
        put_plan(out, call);
    put_end(out);
}

static void put_plan_keys(struct buf *out, const struct start *start, const struct store_call *call)
{
    for (size_t i = 0; i < call->rule_count; i++)
        put_key(out, start, call->rules[i].key);
}

static void put_plan_fields(struct buf *out, const struct store_call *call)
{
    for (size_t i = 0; i < call->rule_count; i++)
        put_fields(out, &call->rules[i]);
}

void script_write_decide(struct buf *out, sv prefix, const struct store_call *first)
{
    const struct start start = key_start(prefix);
    const struct batch batch = count_plans(first);
    put_command(out, SCRIPT_DECIDE, batch.rules, 1 + batch.cells);
    for (const struct store_call *call = first; call; call = call->next)
        put_plan_keys(out, &start, call);
    put_plans(out, first, &batch);
    for (const struct store_call *call = first; call; call = call->next)
        put_plan_fields(out, call);
}

void script_write_decide_many(struct buf *out, sv prefix, const struct store_call *first)
{
    const struct start start = key_start(prefix);
    const struct batch batch = count_plans(first);
    put_command(out, SCRIPT_DECIDE, 0, 1 + batch.rules + batch.cells);
    put_plans(out, first, &batch);
    for (const struct store_call *call = first; call; call = call->next) {
        put_plan_keys(out, &start, call);
        put_plan_fields(out, call);
    }
}

/* Was it charged by a call that was allowed? */
static bool was_charged(const struct store_rule *rule)
{
    return !rule->shadow || rule->fits;
}

static void put_taken(struct buf *out, const struct store_cell *cell, int64_t taken_us)
{
    const struct limit *l = cell->limit;
    double origin = (double)cell->state.time, per = (double)l->per_us;
    if (l->algorithm == LIMIT_TOKEN_BUCKET)
        origin = (double)taken_us;
    if (l->algorithm == LIMIT_FIXED_WINDOW || l->algorithm == LIMIT_CALENDAR)
        origin = (double)limit_state_end(cell->state);
    if (l->algorithm == LIMIT_CALENDAR)
        per = (double)limit_length_unpack(limit_count_read(l, NULL, cell->state).length);
    PUT_DOUBLES(out, l->algorithm, hold_kind(&cell->hold), cell->hold.nth, (double)cell->cost, (double)cell->to, origin,
                (double)l->max, per, (double)cell->off_us, (double)cell->hold.ttl_us);
}

/* The script's numbers for what it may do instead of settling. */
enum { SETTLE_RENEWS = 1, SETTLE_ENTERS };

static void put_mark(struct buf *out, uint64_t mark)
{
    put_string(out, sv_of((const char *)&mark, mark ? sizeof mark : 0), SV(""));
}

void script_write_settle(struct buf *out, sv prefix, const struct store_call *call)
{
    const struct start start = key_start(prefix);
    size_t rules = 0, cells = 0;
    for (size_t i = 0; i < call->rule_count; i++)
        if (was_charged(&call->rules[i])) {
            rules++;
            cells += call->rules[i].cell_count;
        }
    put_command(out, SCRIPT_SETTLE, rules, 2 + cells);
    for (size_t i = 0; i < call->rule_count; i++)
        if (was_charged(&call->rules[i]))
            put_key(out, &start, call->rules[i].key);
    put_head(out, '$', (5 + rules + 10 * cells) * sizeof(double));
    PUT_DOUBLES(out, (double)call->now_us, (double)call->server_us, (double)call->ends_us, call->hold_id,
                call->enter ? SETTLE_ENTERS : (call->renew ? SETTLE_RENEWS : 0));
    for (size_t i = 0; i < call->rule_count; i++) {
        const struct store_rule *rule = &call->rules[i];
        if (!was_charged(rule))
            continue;
        PUT_DOUBLES(out, (double)rule->cell_count);
        for (size_t j = 0; j < rule->cell_count; j++)
            put_taken(out, &rule->cells[j], call->server_us);
    }
    put_end(out);
    put_mark(out, call->mark);
    for (size_t i = 0; i < call->rule_count; i++)
        if (was_charged(&call->rules[i]))
            put_fields(out, &call->rules[i]);
}

void script_write_forget(struct buf *out, sv prefix, const struct weir_str *keys, size_t count)
{
    const struct start start = key_start(prefix);
    put_command(out, SCRIPT_FORGET, count, 1);
    for (size_t i = 0; i < count; i++)
        put_key(out, &start, keys[i]);
    char seconds[NUMBER_MAX];
    put_string(out, sv_of(seconds, (size_t)(number_put(seconds, RECEIPT_LIFE_S) - seconds)), SV(""));
}

void script_write_lend(struct buf *out, sv prefix, const struct slice_ask *ask, uint32_t lacks, uint64_t debt,
                       uint32_t hosts, int64_t now_us)
{
    const struct start start = key_start(prefix);
    struct measures m = measures(&ask->limit, &ask->window, &ask->next, 0);
    put_command(out, SCRIPT_LEND, 1, 2);
    put_key(out, &start, sv_of(ask->key, ask->key_len));
    put_head(out, '$', 11 * sizeof(double));
    PUT_DOUBLES(out, (double)now_us, ask->limit.algorithm, (double)ask->limit.max, (double)debt, m.a, m.b, m.c, ask->need,
                lacks, ask->slice, hosts > 0 ? hosts : 1);
    put_end(out);
    put_string(out, sv_of(ask->field, ask->field_len), SV(""));
}

void script_write_return(struct buf *out, sv prefix, const struct slice_ask *ask, int64_t end_us, uint32_t tokens)
{
    const struct start start = key_start(prefix);
    put_command(out, SCRIPT_RETURN, 1, 2);
    put_key(out, &start, sv_of(ask->key, ask->key_len));
    put_head(out, '$', 2 * sizeof(double));
    PUT_DOUBLES(out, (double)end_us, tokens);
    put_end(out);
    put_string(out, sv_of(ask->field, ask->field_len), SV(""));
}

/* ---- reading ---- */

/* The next number. False: there is none. */
static bool take_double(sv *rest, double *ret)
{
    if (rest->len < sizeof *ret)
        return false;
    memcpy(ret, rest->ptr, sizeof *ret);
    *rest = sv_from(*rest, sizeof *ret);
    return true;
}

/* False: it is negative, or more than `most`. */
static bool to_number(double number, uint64_t most, uint64_t *ret)
{
    if (!(number >= 0 && number <= (double)most))
        return false;
    *ret = (uint64_t)number;
    return true;
}

static bool take_number(sv *rest, uint64_t most, uint64_t *ret)
{
    double number;
    return take_double(rest, &number) && to_number(number, most, ret);
}

/* A short state is a time and the parts of tokens. A long one is a negative time, tokens and parts. */
static bool read_bucket(struct store_cell *cell, sv *rest)
{
    double time;
    uint64_t when, tokens = 0, parts;
    if (!take_double(rest, &time))
        return false;
    bool is_long = time < 0;
    if (is_long && !take_number(rest, EXACT_MAX, &tokens))
        return false;
    if (!to_number(is_long ? -time : time, CLOCK_END_US - 1, &when) ||
        !take_number(rest, is_long ? STORE_TOKEN - 1 : UINT32_MAX * STORE_TOKEN, &parts))
        return false;
    cell->state = limit_bucket_state((int64_t)when, tokens * (limit_wide)STORE_TOKEN + parts, STORE_TOKEN_BITS);
    return true;
}

static bool read_slide(struct store_cell *cell, sv *rest)
{
    uint64_t start, previous, count;
    if (!take_number(rest, CLOCK_END_US - 1, &start) || !take_number(rest, UINT32_MAX, &previous) ||
        !take_number(rest, UINT32_MAX, &count))
        return false;
    cell->state = (struct limit_state){ start, previous << 32 | count };
    return true;
}

static bool read_window(struct store_cell *cell, sv *rest)
{
    uint64_t end, length, count;
    if (!take_number(rest, EXACT_MAX, &end) || !take_number(rest, EXACT_MAX, &length) ||
        !take_number(rest, EXACT_MAX, &count))
        return false;
    /* No window is longer, and a state has no room for it. */
    int64_t length_us = length < LIMIT_PER_MAX_US ? (int64_t)length : LIMIT_PER_MAX_US;
    struct limit_count window = { (int64_t)end, limit_length_pack(length_us), count, false };
    cell->state = limit_count_state(&window);
    return true;
}

static bool read_slots(struct store_cell *cell, sv *rest)
{
    cell->state.time = 0;
    return take_number(rest, EXACT_MAX, &cell->state.data);
}

static bool read_state(struct store_cell *cell, sv *rest)
{
    switch (cell->limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return read_bucket(cell, rest);
    case LIMIT_SLIDING_WINDOW:
        return read_slide(cell, rest);
    case LIMIT_CONCURRENT:
        return read_slots(cell, rest);
    default:
        return read_window(cell, rest);
    }
}

static bool read_states(struct store_call *call, sv *rest)
{
    for (size_t i = 0; i < call->rule_count; i++)
        for (size_t j = 0; j < call->rules[i].cell_count; j++)
            if (!read_state(&call->rules[i].cells[j], rest))
                return false;
    return true;
}

static void read_flags(struct store_call *call, const char *flag)
{
    for (size_t i = 0; i < call->rule_count; i++) {
        struct store_rule *rule = &call->rules[i];
        rule->fits = !flag || *flag++ == '1';
        for (size_t j = 0; j < rule->cell_count; j++)
            rule->cells[j].fits = !flag || *flag++ == '1';
    }
}

static bool read_why(struct store_call *call, sv *rest)
{
    uint64_t len;
    call->result = STORE_FAILED;
    if (!take_number(rest, rest->len, &len) || rest->len < len)
        return false;
    snprintf(call->why, sizeof call->why, "%.*s", (int)len, rest->ptr);
    *rest = sv_from(*rest, len);
    return true;
}

static bool read_plan(struct store_call *call, sv *rest)
{
    uint64_t status, now;
    if (!take_number(rest, ANSWER_WRONG, &status) || !take_number(rest, CLOCK_END_US - 1, &now))
        return false;
    call->server_us = (int64_t)now;
    call->result = status == ANSWER_STALE ? STORE_STALE : STORE_DECIDED;
    call->allowed = status == ANSWER_ALLOWED || status == ANSWER_ALL_FIT;
    call->why[0] = '\0';
    if (status == ANSWER_WRONG)
        return read_why(call, rest);
    if (status == ANSWER_STALE)
        return true;
    if (!read_states(call, rest))
        return false;
    size_t flags = status == ANSWER_ALL_FIT ? 0 : call->rule_count + count_cells(call);
    if (rest->len < flags)
        return false;
    read_flags(call, flags ? rest->ptr : NULL);
    *rest = sv_from(*rest, flags);
    return true;
}

bool script_read_decide(struct store_call *first, sv answer)
{
    for (struct store_call *call = first; call; call = call->next)
        if (!read_plan(call, &answer))
            return false;
    return answer.len == 0;
}

bool script_read_lend(sv answer, struct lent *ret)
{
    uint64_t status, now, tokens, end, room;
    if (!take_number(&answer, 1, &status) || !take_number(&answer, CLOCK_END_US - 1, &now))
        return false;
    *ret = (struct lent){ .stale = status == ANSWER_STALE, .server_us = (int64_t)now };
    if (ret->stale)
        return answer.len == 0;
    if (!take_number(&answer, UINT32_MAX, &tokens) || !take_number(&answer, EXACT_MAX, &end) ||
        !take_number(&answer, EXACT_MAX, &room) || answer.len > 0)
        return false;
    ret->tokens = (uint32_t)tokens;
    ret->end_us = (int64_t)end;
    ret->room = room;
    return true;
}
