/* Calls whose rules are in several places: all or nothing without a transaction. The phases of a call:
 *
 *   INSIST   what is charged or given back whatever the others say: once, and first, since later cells of the same field
 *            have to find what it left. All places at once
 *   LOOK     everything else; nothing is charged, but for debts. All places at once. A refusal ends here, and so does a
 *            call that only looks
 *   TAKE     enforced rules, one place after another, in the order of the places. Of requests that want the same places,
 *            the one that gets the first of them is not refused by the others. If a place refuses after all, or fails,
 *            those before it are given back
 *   SHADOWS  shadow rules, all places at once. The verdict stands already
 *
 * A phase begins when every part of the one before it is done. So nothing of the call is in flight while this file decides
 * how to go on, and it knows what was charged, but for parts that were lost.
 *
 * When the caller has been told that the answer is late, nothing more is charged. If all enforced rules are charged by then
 * the call ends as one that was allowed, and the caller makes up for it as for any late answer. Else what was charged is
 * given back. */
#include "redis/divided.h"

#include <stdlib.h>

#include "redis/link.h"

enum phase { PHASE_INSIST, PHASE_LOOK, PHASE_TAKE, PHASE_SHADOWS };

struct divided;

struct part {
    struct store_call call; /* first */
    struct divided *of;
};

/* Notes about each rule of the whole. */
struct noted {
    uint32_t place;
    bool due;      /* it is to be part of this phase */
    bool taken;    /* PHASE_TAKE has charged it */
    size_t number; /* not of this rule, but of the one that is copied to the same index of divided.rules */
};

struct divided {
    struct store_call *whole;
    struct store_link *link;
    enum phase phase;
    bool late;      /* the caller was told */
    size_t waiting; /* parts of this phase without an answer, and one more while they are sent */
    size_t part_count;
    size_t ruled;             /* rules that are in parts of this phase */
    struct noted *noted;      /* these three have room for each rule of the whole */
    struct store_rule *rules; /* of the parts, one part after another; their cells are those of the whole */
    struct part *parts;
};

/* ---- rules ---- */

/* All cells of a rule are charged in the same way. */
static bool insists(const struct store_rule *rule)
{
    return rule->cell_count > 0 && rule->cells[0].charging != WEIR_CHARGE_IF_ROOM;
}

static bool costs(const struct store_rule *rule)
{
    for (size_t i = 0; i < rule->cell_count; i++)
        if (rule->cells[i].cost > 0)
            return true;
    return false;
}

/* Whether a rule is due in this phase. Where everything costs 0, looking was enough, unless it has to be known of a
 * refusal: see store_call.mends. */
static bool is_due(const struct divided *d, size_t i)
{
    const struct store_rule *rule = &d->whole->rules[i];
    bool sure = d->whole->charge && insists(rule);
    switch (d->phase) {
    case PHASE_INSIST:
        return sure;
    case PHASE_LOOK:
        return !sure;
    case PHASE_TAKE:
        return !sure && !rule->shadow && costs(rule) && !d->noted[i].taken;
    default:
        return !sure && rule->shadow && rule->result == STORE_DECIDED && (costs(rule) || !rule->fits);
    }
}

/* ---- parts ---- */

static void dispatch(struct store_link *link, struct store_call *call);
static void part_late(struct store_call *call);
static void part_done(struct store_call *call);

/* Makes a part of all that is due in this place, in the order of the whole: cells of one field follow each other there. */
static void add_part(struct divided *d, uint32_t place)
{
    const struct store_call *whole = d->whole;
    struct part *part = &d->parts[d->part_count++];
    part->of = d;
    part->call = (struct store_call){ .rules = d->rules + d->ruled,
                                      .charge = d->phase != PHASE_LOOK,
                                      .mends = whole->charge || whole->mends,
                                      .hold_id = whole->hold_id,
                                      .now_us = whole->now_us,
                                      .deadline_us = whole->deadline_us,
                                      .again = dispatch,
                                      .late = part_late,
                                      .done = part_done };
    for (size_t i = 0; i < whole->rule_count; i++) {
        if (!d->noted[i].due || d->noted[i].place != place)
            continue;
        d->noted[i].due = false;
        d->noted[d->ruled].number = i;
        d->rules[d->ruled++] = whole->rules[i];
        part->call.rule_count++;
    }
}

/* Returns false if no rule is due any more. */
static bool first_place(const struct divided *d, uint32_t *ret)
{
    bool any = false;
    for (size_t i = 0; i < d->whole->rule_count; i++)
        if (d->noted[i].due && (!any || d->noted[i].place < *ret)) {
            *ret = d->noted[i].place;
            any = true;
        }
    return any;
}

/* Places may have changed since the last phase: a slot may be moved now. */
static void make_parts(struct divided *d)
{
    uint32_t place = 0;
    d->part_count = d->ruled = 0;
    for (size_t i = 0; i < d->whole->rule_count; i++) {
        d->noted[i].due = is_due(d, i);
        d->noted[i].place = store_place(d->link->store, d->whole->rules[i].key);
    }
    while (first_place(d, &place)) {
        add_part(d, place);
        if (d->phase == PHASE_TAKE)
            return;
    }
}

static void go_on(struct divided *d);

static void one_less(struct divided *d)
{
    if (--d->waiting == 0)
        go_on(d);
}

/* Parts may be done before store_send_one returns. */
static void begin(struct divided *d, enum phase phase)
{
    d->phase = phase;
    make_parts(d);
    d->waiting = d->part_count + 1;
    for (size_t i = 0; i < d->part_count; i++)
        store_send_one(d->link, &d->parts[i].call);
    one_less(d);
}

static void part_late(struct store_call *call)
{
    struct divided *d = ((struct part *)call)->of;
    if (d->late)
        return;
    d->late = true;
    d->whole->late(d->whole);
}

static void part_done(struct store_call *call)
{
    struct divided *d = ((struct part *)call)->of;
    bool passed = call->result == STORE_DECIDED && call->allowed;
    for (size_t k = 0; k < call->rule_count; k++) {
        const struct store_rule *rule = &call->rules[k];
        size_t number = d->noted[(size_t)(rule - d->rules)].number;
        struct store_rule *own = &d->whole->rules[number];
        own->result = rule->result;
        own->server_us = rule->server_us;
        own->fits = rule->fits && rule->result == STORE_DECIDED;
        d->noted[number].taken = d->phase == PHASE_TAKE && passed;
    }
    one_less(d);
}

/* ---- the end ---- */

static void finish(struct divided *d, enum store_result result, bool allowed)
{
    struct store_call *whole = d->whole;
    whole->result = result;
    whole->allowed = allowed;
    whole->server_us = 0;
    for (size_t i = 0; i < whole->rule_count; i++) {
        int64_t server_us = whole->rules[i].server_us;
        if (server_us > 0 && (whole->server_us == 0 || server_us < whole->server_us))
            whole->server_us = server_us;
    }
    free(d);
    whole->done(whole);
}

/* The caller may ask again with the same cells: their costs have to stay. */
static void swap_costs(struct store_cell *cell)
{
    uint64_t cost = cell->cost;
    cell->cost = cell->own;
    cell->own = cost;
    cell->to = 0;
}

/* The states that are reported are those without the charge. */
static void give_back_rule(const struct divided *d, struct store_rule *rule)
{
    struct store_call back = *d->whole;
    back.rules = rule;
    back.rule_count = 1;
    back.server_us = rule->server_us;
    for (size_t i = 0; i < rule->cell_count; i++)
        swap_costs(&rule->cells[i]);
    store_settle_one(d->link, &back);
    for (size_t i = 0; i < rule->cell_count; i++) {
        struct store_cell *cell = &rule->cells[i];
        swap_costs(cell);
        uint64_t origin = limit_origin(cell->limit, cell->state, rule->server_us);
        limit_refund(cell->limit, origin, cell->cost, rule->server_us, &cell->state);
    }
}

/* Rule by rule: each knows the clock that it was charged by. */
static void give_back_all(struct divided *d)
{
    for (size_t i = 0; i < d->whole->rule_count; i++)
        if (d->noted[i].taken)
            give_back_rule(d, &d->whole->rules[i]);
}

/* ---- from phase to phase ---- */

static bool is_enforced(const struct store_call *part)
{
    for (size_t i = 0; i < part->rule_count; i++)
        if (!part->rules[i].shadow)
            return true;
    return false;
}

/* The result of a phase. A place of shadow rules only that does not answer is not missed: these say nothing. But if only
 * its windows are wrong, it may say something when it is asked again. A part that failed counts more than one whose
 * windows are wrong, since it must not be asked again. */
static enum store_result phase_result(struct divided *d)
{
    enum store_result result = STORE_DECIDED;
    for (size_t i = 0; i < d->part_count; i++) {
        const struct store_call *part = &d->parts[i].call;
        bool stale = part->result == STORE_STALE;
        if (part->result == STORE_DECIDED || (!stale && !is_enforced(part)) || (stale && result != STORE_DECIDED))
            continue;
        result = part->result;
        memcpy(d->whole->why, part->why, sizeof part->why);
    }
    return result;
}

static bool all_fit(const struct store_call *whole)
{
    for (size_t i = 0; i < whole->rule_count; i++)
        if (!whole->rules[i].shadow && !whole->rules[i].fits)
            return false;
    return true;
}

/* Everything that is enforced is charged. Shadow rules that are not say so. */
static void pass(struct divided *d)
{
    for (size_t i = 0; i < d->whole->rule_count; i++) {
        struct store_rule *rule = &d->whole->rules[i];
        if (rule->shadow && !(d->whole->charge && insists(rule)) && costs(rule))
            rule->fits = false;
    }
    finish(d, STORE_DECIDED, true);
}

static void after_look(struct divided *d)
{
    bool fits = all_fit(d->whole);
    if (!fits || !d->whole->charge)
        finish(d, STORE_DECIDED, fits);
    else if (d->late)
        finish(d, STORE_UNSENT, false);
    else
        begin(d, PHASE_TAKE);
}

static bool is_any_due(struct divided *d, enum phase phase)
{
    d->phase = phase;
    for (size_t i = 0; i < d->whole->rule_count; i++)
        if (is_due(d, i))
            return true;
    return false;
}

static void after_take(struct divided *d)
{
    if (d->part_count > 0 && !d->parts[0].call.allowed) {
        give_back_all(d);
        finish(d, STORE_DECIDED, false);
    } else if (!is_any_due(d, PHASE_TAKE)) {
        if (d->late)
            pass(d);
        else
            begin(d, PHASE_SHADOWS);
    } else if (d->late) {
        give_back_all(d);
        finish(d, STORE_UNSENT, false);
    } else {
        begin(d, PHASE_TAKE);
    }
}

/* All parts of the phase are done. */
static void go_on(struct divided *d)
{
    if (d->phase == PHASE_SHADOWS) {
        finish(d, STORE_DECIDED, true);
        return;
    }
    enum store_result result = phase_result(d);
    if (result != STORE_DECIDED) {
        give_back_all(d);
        finish(d, result, false);
    } else if (d->phase == PHASE_TAKE) {
        after_take(d);
    } else if (d->phase == PHASE_LOOK || !is_any_due(d, PHASE_LOOK)) {
        after_look(d);
    } else if (d->late) {
        finish(d, STORE_UNSENT, false);
    } else {
        begin(d, PHASE_LOOK);
    }
}

/* Returns NULL if there is no memory. */
static struct divided *divided_new(struct store_link *link, struct store_call *whole)
{
    size_t count = whole->rule_count;
    struct divided *d =
        malloc(sizeof *d + count * (sizeof(struct part) + sizeof(struct store_rule) + sizeof(struct noted)));
    if (!d)
        return NULL;
    *d = (struct divided){ .whole = whole, .link = link };
    d->parts = (struct part *)(d + 1);
    d->rules = (struct store_rule *)(d->parts + count);
    d->noted = (struct noted *)(d->rules + count);
    for (size_t i = 0; i < count; i++) {
        d->noted[i] = (struct noted){ 0 };
        whole->rules[i].result = STORE_UNTRIED;
        whole->rules[i].server_us = 0;
        whole->rules[i].fits = false;
    }
    return d;
}

/* ---- sending ---- */

static bool is_divided(struct store *store, const struct store_call *call)
{
    if (__builtin_expect(call->rule_count < 2, 1))
        return false;
    uint32_t place = store_place(store, call->rules[0].key);
    for (size_t i = 1; i < call->rule_count; i++)
        if (store_place(store, call->rules[i].key) != place)
            return true;
    return false;
}

/* Also for a part whose slot has begun to move: it is divided then as if it were a whole. */
static void dispatch(struct store_link *link, struct store_call *call)
{
    if (!is_divided(link->store, call)) {
        store_send_one(link, call);
        return;
    }
    struct divided *d = divided_new(link, call);
    if (d)
        begin(d, PHASE_INSIST);
    else
        store_refuse(link->store, call);
}

void store_send(struct store_link *link, struct store_call *call)
{
    call->link = link;
    call->again = dispatch;
    call->tries = 0;
    call->alone = call->told_late = false;
    if (!call->settle) {
        dispatch(link, call);
        return;
    }
    store_settle(link, call);
    call->done(call);
}

static bool is_charged_at_once(const struct store_call *call)
{
    for (size_t i = 0; i < call->rule_count; i++)
        if (call->rules[i].server_us != 0 && call->rules[i].server_us != call->server_us)
            return false;
    return true;
}

/* Rule by rule, unless one place has charged all of it at one time: nothing here is all or nothing. */
void store_settle(struct store_link *link, const struct store_call *call)
{
    if (is_charged_at_once(call) && !is_divided(link->store, call)) {
        store_settle_one(link, call);
        return;
    }
    for (size_t i = 0; i < call->rule_count; i++) {
        struct store_call one = *call;
        one.rules = &call->rules[i];
        one.rule_count = 1;
        one.server_us = one.rules->server_us != 0 ? one.rules->server_us : call->server_us;
        if (!one.rules->shadow || one.rules->fits)
            store_settle_one(link, &one);
    }
}
