#include "serve/stats.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/lock.h"
#include "engine/handle.h"
#include "refused/most_refused.h"
#include "refused/penalised.h"
#include "serve/refusal_note.h"

enum {
    NO_RULE,
    OTHER,
    THROTTLE,
    COUNTERS_MAX = STATS_RULES_MAX + 3,
    OTHER_LIMIT = 0, /* the end of each list of limits, too */
    LIMITS_MAX = STATS_LIMITS_MAX + 1,
    WOULD_MAX = 64,
    NO_KEY = 1,      /* of a subject that is not known */
    SLOTS = 1 << 16, /* of the index by id; at most a third are taken */
};

/* Where the rule of this place in these rules is counted. Places of other rules are told by their version, so that nothing
 * has to be cleared when the rules change. */
struct rule_counter {
    uint32_t version;
    uint32_t counter;
};

struct stats {
    struct stats_rule *counters; /* ids do not change once `count` says that they are there */
    uint32_t count;
    uint16_t *slots; /* counters by hash of their id; NO_RULE: free */
    struct rule_counter *rule_counters;
    struct stats_latency latency;
    uint64_t refunds, without_rule;
    struct stats_limit
        *limits; /* lists by rule; neither rule nor name change once `limit_count` says that they are there */
    uint32_t limit_count;
    /* Limits of shadow rules that would have refused in decisions that are not noted yet, in their order. */
    struct {
        uint32_t rule, limit;
    } would[WOULD_MAX];
    unsigned would_count;
    pthread_mutex_t lock; /* of what follows */
    struct top *top;
    struct penalised *penalised;
    struct recent *recent;
};

_Static_assert((int)COUNTERS_MAX <= UINT16_MAX && (int)SLOTS >= 2 * (int)COUNTERS_MAX, "counters fit into slots");

#define US UINT64_C(1000)
#define MS (1000 * US)
const uint64_t stats_bounds_ns[STATS_BUCKETS] = {
    US,      2500,   5 * US,  10 * US, 25 * US, 50 * US,  100 * US, 250 * US, 500 * US,  MS,
    2500000, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, 1000 * MS,
};

/* One thread writes; others may read at any time. */
static inline void count_up(uint64_t *counter, uint64_t by)
{
    __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
}

static inline uint64_t read_counter(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

void stats_free(struct stats *stats)
{
    if (!stats)
        return;
    pthread_mutex_destroy(&stats->lock);
    top_free(stats->top);
    penalised_free(stats->penalised);
    recent_free(stats->recent);
    free(stats->counters);
    free(stats->slots);
    free(stats->rule_counters);
    free(stats->limits);
    free(stats);
}

static uint32_t new_counter(struct stats *stats, const char *id)
{
    uint32_t counter = stats->count;
    snprintf(stats->counters[counter].id, sizeof stats->counters[counter].id, "%s", id);
    __atomic_store_n(&stats->count, counter + 1, __ATOMIC_RELEASE);
    return counter;
}

static uint32_t new_limit(struct stats *stats, uint32_t rule, sv name)
{
    uint32_t limit = stats->limit_count;
    struct stats_limit *l = &stats->limits[limit];
    l->rule = rule;
    snprintf(l->name, sizeof l->name, "%.*s", SV_FMT(name));
    l->next = stats->counters[rule].first_limit;
    stats->counters[rule].first_limit = limit;
    __atomic_store_n(&stats->limit_count, limit + 1, __ATOMIC_RELEASE);
    return limit;
}

CLEANUP_POINTER(struct stats *, stats_free);

int stats_new(struct stats **ret)
{
    CLEANUP(stats_freep) struct stats *stats = cleanup_calloc(1, sizeof *stats);
    if (!stats)
        return WEIR_E_NO_MEMORY;
    pthread_mutex_init(&stats->lock, NULL);
    stats->counters = calloc(COUNTERS_MAX, sizeof *stats->counters);
    stats->slots = calloc(SLOTS, sizeof *stats->slots);
    stats->rule_counters = calloc(RULES_MAX, sizeof *stats->rule_counters);
    stats->limits = calloc(LIMITS_MAX, sizeof *stats->limits);
    if (!stats->counters || !stats->slots || !stats->rule_counters || !stats->limits ||
        top_new(&stats->top, TOP_SLOTS) < 0 || penalised_new(&stats->penalised, PENALISED_SLOTS) < 0 ||
        recent_new(&stats->recent, RECENT_SLOTS) < 0)
        return WEIR_E_NO_MEMORY;
    new_counter(stats, "");
    new_counter(stats, STATS_OTHER);
    new_counter(stats, STATS_THROTTLE);
    new_limit(stats, OTHER, SV(STATS_OTHER));
    *ret = STEAL(stats);
    return 0;
}

/* ---- which counter ---- */

static uint32_t hash_id(sv id)
{
    /* Administrators choose the ids: no attacker aims at a slot. */
    static const struct hash_key key = { 0, 0 };
    struct hash hash;
    hash_init(&hash, &key);
    hash_text(&hash, id.ptr, id.len);
    return (uint32_t)hash_final(&hash);
}

/* Those that every stats has are not in the index. */
static bool is_of_no_rule(sv id, uint32_t *ret)
{
    if (id.len == 0)
        *ret = NO_RULE;
    else if (sv_eq(id, SV(STATS_OTHER)))
        *ret = OTHER;
    else if (sv_eq(id, SV(STATS_THROTTLE)))
        *ret = THROTTLE;
    else
        return false;
    return true;
}

/* The slot of this id, or the free one that it would get. */
static uint32_t slot_of(const struct stats *stats, sv id)
{
    uint32_t slot = hash_id(id) % SLOTS;
    while (stats->slots[slot] && !sv_eq(weir_str(stats->counters[stats->slots[slot]].id), id))
        slot = (slot + 1) % SLOTS;
    return slot;
}

static uint32_t counter_of_id(struct stats *stats, const char *id)
{
    uint32_t counter;
    if (is_of_no_rule(weir_str(id), &counter))
        return counter;
    uint32_t slot = slot_of(stats, weir_str(id));
    if (stats->slots[slot])
        return stats->slots[slot];
    if (stats->count == COUNTERS_MAX)
        return OTHER;
    stats->slots[slot] = (uint16_t)new_counter(stats, id);
    return stats->slots[slot];
}

static __attribute__((noinline)) uint32_t counter_of_new(struct stats *stats, sv id)
{
    char text[WEIR_ID_MAX + 1];
    snprintf(text, sizeof text, "%.*s", SV_FMT(id));
    return counter_of_id(stats, text);
}

/* `rule` and `rules` are private_rule and private_rules of a verdict, or of what a rule says. */
static __attribute__((noinline)) uint32_t learn_counter(struct stats *stats, uint32_t rule, uint64_t rules, sv id)
{
    uint32_t counter = counter_of_new(stats, id);
    if (rule < RULES_MAX)
        stats->rule_counters[rule] = (struct rule_counter){ (uint32_t)rules, counter };
    return counter;
}

/* Versions of rules begin at 1. */
static inline bool knows_counter(const struct stats *stats, uint32_t rule, uint64_t rules)
{
    return rule < RULES_MAX && stats->rule_counters[rule].version == (uint32_t)rules;
}

static inline uint32_t counter_of(struct stats *stats, const struct weir_verdict *v)
{
    if (!v->applied)
        return NO_RULE;
    return knows_counter(stats, v->private_rule, v->private_rules)
               ? stats->rule_counters[v->private_rule].counter
               : learn_counter(stats, v->private_rule, v->private_rules, weir_str(v->rule));
}

/* A rule has few limits. */
static uint32_t limit_of(struct stats *stats, uint32_t rule, sv name)
{
    if (rule == OTHER)
        return OTHER_LIMIT;
    uint32_t limit = stats->counters[rule].first_limit;
    while (limit != OTHER_LIMIT && !sv_eq(weir_str(stats->limits[limit].name), name))
        limit = stats->limits[limit].next;
    return limit == OTHER_LIMIT && stats->limit_count < LIMITS_MAX ? new_limit(stats, rule, name) : limit;
}

/* ---- counting ---- */

static void count_shadow(struct stats *stats, const struct weir_shadows *shadows, uint32_t count)
{
    uint32_t listed = shadows ? shadows->count : 0;
    for (uint32_t i = 0; i < listed; i++)
        count_up(&stats->counters[counter_of_id(stats, shadows->names[i])].counts[OUTCOME_SHADOW], 1);
    if (count > listed)
        count_up(&stats->counters[OTHER].counts[OUTCOME_SHADOW], count - listed);
}

static void count_rule(const struct weir_rule_said *said, void *data)
{
    struct stats *stats = data;
    uint32_t rule = knows_counter(stats, said->private_rule, said->private_rules)
                        ? stats->rule_counters[said->private_rule].counter
                        : learn_counter(stats, said->private_rule, said->private_rules, said->rule);
    if (said->said == WEIR_SAYS_PASS) {
        count_up(&stats->counters[rule].passed, 1);
        if (__builtin_expect(said->overdrawn > 0, 0))
            count_up(&stats->counters[rule].overdrawn, said->overdrawn);
        return;
    }
    if (__builtin_expect(said->penalty != WEIR_PENALTY_NONE, 0)) {
        bool runs = said->penalty == WEIR_PENALTY_RUNS;
        count_up(runs ? &stats->counters[rule].penalised : &stats->counters[rule].penalties, 1);
        if (runs)
            return;
    }
    uint32_t number = limit_of(stats, rule, said->limit);
    struct stats_limit *limit = &stats->limits[number];
    count_up(said->said == WEIR_SAYS_REFUSE ? &limit->refused : &limit->would_refuse, 1);
    if (said->said == WEIR_SAYS_WOULD_REFUSE) {
        stats->would_count %= WOULD_MAX;
        stats->would[stats->would_count].rule = rule;
        stats->would[stats->would_count++].limit = number;
    }
}

void stats_count_rules_of(struct stats *stats, struct weir_request *request)
{
    request->each_rule = request->peek ? NULL : count_rule;
    request->context = stats;
}

static void count_latency(struct stats_latency *latency, size_t count, uint64_t elapsed_ns)
{
    unsigned bucket = 0;
    while (bucket < STATS_BUCKETS && elapsed_ns > stats_bounds_ns[bucket])
        bucket++;
    count_up(&latency->buckets[bucket], count);
    count_up(&latency->sum_ns, count * elapsed_ns);
}

static void note_refused(struct stats *stats, struct weir *weir, const struct weir_request *requests,
                         const struct weir_verdict *verdicts, size_t count, int64_t now_us)
{
    HOLD_LOCK(&stats->lock);
    for (size_t i = 0; i < count; i++) {
        struct penalised_entry entry;
        const struct weir_verdict *v = &verdicts[i];
        if (v->allowed || requests[i].peek)
            continue;
        bool known = v->penalty ? weir_penalised(weir, &requests[i], v, now_us, &entry)
                                : weir_subject(weir, &requests[i], v, &entry.subject);
        if (known && v->penalty)
            penalised_add(stats->penalised, &entry, now_us);
        if (known)
            top_add(stats->top, &entry.subject, now_us);
        if (!recent_wants(stats->recent, known ? entry.subject.key : NO_KEY, now_us))
            continue;
        refusal_note(recent_add(stats->recent, now_us), weir, &requests[i], v, known ? &entry.subject : NULL);
    }
}

/* Returns the limit of a shadow rule that would have refused, and forgets it; empty: not known. Decisions that are noted
 * together were made in the same order. */
static sv take_would(struct stats *stats, unsigned *next, const char *rule)
{
    for (unsigned i = *next; i < stats->would_count; i++)
        if (strcmp(stats->counters[stats->would[i].rule].id, rule) == 0) {
            *next = i + 1;
            return weir_str(stats->limits[stats->would[i].limit].name);
        }
    return (sv){ 0 };
}

static void note_shadow(struct stats *stats, struct weir *weir, const struct weir_request *request, const char *rule,
                        sv limit, int64_t now_us)
{
    struct subject subject;
    if (!recent_wants(stats->recent, 0, now_us) || !weir_subject_of(weir, request, rule, &subject) ||
        !recent_wants(stats->recent, subject.key, now_us))
        return;
    HOLD_LOCK(&stats->lock);
    refusal_note_shadow(recent_add(stats->recent, now_us), weir, request, limit, &subject);
}

static void note_shadows(struct stats *stats, struct weir *weir, const struct weir_request *requests,
                         const struct weir_verdict *verdicts, size_t count, size_t shadowed, int64_t now_us)
{
    unsigned next = 0;
    bool unnamed = false;
    if (recent_leaves_out(stats->recent, shadowed, now_us)) {
        stats->would_count = 0;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const struct weir_shadows *shadows = verdicts[i].shadow_count && !requests[i].peek ? requests[i].shadows : NULL;
        for (uint32_t k = 0; shadows && k < shadows->count; k++)
            note_shadow(stats, weir, &requests[i], shadows->names[k], take_would(stats, &next, shadows->names[k]), now_us);
        unnamed = unnamed || (shadows && verdicts[i].shadow_count > shadows->count);
    }
    /* Those that follow belong to decisions that are noted next, unless some rules were not named. */
    unsigned left = unnamed ? 0 : stats->would_count - next;
    memmove(stats->would, stats->would + next, left * sizeof *stats->would);
    stats->would_count = left;
}

void stats_shadowed(struct stats *stats, struct weir *weir, const struct weir_request *request,
                    const struct weir_verdict *verdict, int64_t now_us)
{
    if (verdict->shadow_count == 0 || request->peek)
        return;
    count_shadow(stats, request->shadows, verdict->shadow_count);
    note_shadows(stats, weir, request, verdict, 1, verdict->shadow_count, now_us);
}

void stats_decided(struct stats *stats, struct weir *weir, const struct weir_request *requests,
                   const struct weir_verdict *verdicts, size_t count, int64_t now_us, uint64_t elapsed_ns)
{
    size_t refused = 0, peeked = 0, shadowed = 0;
    for (size_t i = 0; i < count; i++) {
        const struct weir_verdict *v = &verdicts[i];
        bool peek = requests[i].peek;
        enum outcome outcome = peek ? OUTCOME_PEEKED : v->allowed ? OUTCOME_ALLOWED : OUTCOME_REFUSED;
        count_up(&stats->counters[counter_of(stats, v)].counts[outcome], 1);
        if (!v->matched && outcome == OUTCOME_ALLOWED)
            count_up(&stats->without_rule, 1);
        peeked += peek;
        refused += outcome == OUTCOME_REFUSED;
        if (v->shadow_count && !peek) {
            count_shadow(stats, requests[i].shadows, v->shadow_count);
            shadowed += v->shadow_count;
        }
    }
    if (count > peeked)
        count_latency(&stats->latency, count - peeked, elapsed_ns);
    if (refused)
        note_refused(stats, weir, requests, verdicts, count, now_us);
    if (shadowed)
        note_shadows(stats, weir, requests, verdicts, count, shadowed, now_us);
}

void stats_throttled(struct stats *stats, struct weir *weir, enum outcome outcome, unsigned space, sv key, int64_t now_us)
{
    struct subject subject;
    count_up(&stats->counters[THROTTLE].counts[outcome], 1);
    if (outcome != OUTCOME_REFUSED)
        return;
    subject_fill_throttle(&subject, SV(STATS_THROTTLE), space, key, cells_hash_key(weir->cells));
    HOLD_LOCK(&stats->lock);
    top_add(stats->top, &subject, now_us);
    if (recent_wants(stats->recent, subject.key, now_us))
        refusal_note_throttle(recent_add(stats->recent, now_us), &subject);
}

bool stats_find_rule(const struct stats *stats, sv id, size_t *ret)
{
    uint32_t counter;
    if (!is_of_no_rule(id, &counter))
        counter = stats->slots[slot_of(stats, id)];
    *ret = counter;
    return counter != NO_RULE;
}

size_t stats_add_rule(struct stats *stats, sv id)
{
    return counter_of_new(stats, id);
}

void stats_add_limit(struct stats *stats, sv id, sv limit)
{
    limit_of(stats, counter_of_new(stats, id), limit);
}

void stats_add_penalty(struct stats *stats, sv id)
{
    stats->counters[counter_of_new(stats, id)].penalises = true;
}

/* ---- reading ---- */

size_t stats_rule_count(const struct stats *stats)
{
    return __atomic_load_n(&stats->count, __ATOMIC_ACQUIRE);
}

void stats_rule(const struct stats *stats, size_t i, struct stats_rule *ret)
{
    const struct stats_rule *counter = &stats->counters[i];
    memcpy(ret->id, counter->id, sizeof ret->id);
    for (int k = 0; k < OUTCOMES; k++)
        ret->counts[k] = read_counter(&counter->counts[k]);
    ret->passed = read_counter(&counter->passed);
    ret->overdrawn = read_counter(&counter->overdrawn);
    ret->penalties = read_counter(&counter->penalties);
    ret->penalised = read_counter(&counter->penalised);
    ret->penalises = counter->penalises || ret->penalties + ret->penalised > 0;
}

size_t stats_limit_count(const struct stats *stats)
{
    return __atomic_load_n(&stats->limit_count, __ATOMIC_ACQUIRE);
}

void stats_limit(const struct stats *stats, size_t i, struct stats_limit *ret)
{
    const struct stats_limit *limit = &stats->limits[i];
    ret->rule = limit->rule;
    memcpy(ret->name, limit->name, sizeof ret->name);
    ret->refused = read_counter(&limit->refused);
    ret->would_refuse = read_counter(&limit->would_refuse);
}

const char *stats_rule_id(const struct stats *stats, size_t i)
{
    return stats->counters[i].id;
}

/* Limits of rules that came after the first `count` are left for the next call. */
void stats_add_said(const struct stats *stats, const uint32_t *places, size_t count, struct stats_said *sums,
                    uint64_t totals[OUTCOMES])
{
    for (size_t i = 0; i < count; i++) {
        const struct stats_rule *rule = &stats->counters[i];
        for (int k = 0; k < OUTCOMES; k++)
            totals[k] += read_counter(&rule->counts[k]);
        sums[places[i]].passed += read_counter(i == THROTTLE ? &rule->counts[OUTCOME_ALLOWED] : &rule->passed);
        sums[places[i]].refused += read_counter(i == THROTTLE ? &rule->counts[OUTCOME_REFUSED] : &rule->penalised);
    }
    size_t limits = stats_limit_count(stats);
    for (size_t i = 0; i < limits; i++) {
        const struct stats_limit *limit = &stats->limits[i];
        if (limit->rule >= count)
            continue;
        sums[places[limit->rule]].refused += read_counter(&limit->refused);
        sums[places[limit->rule]].would_refuse += read_counter(&limit->would_refuse);
    }
}

uint64_t stats_without_rule(const struct stats *stats)
{
    return read_counter(&stats->without_rule);
}

void stats_latency(const struct stats *stats, struct stats_latency *ret)
{
    for (int i = 0; i <= STATS_BUCKETS; i++)
        ret->buckets[i] = read_counter(&stats->latency.buckets[i]);
    ret->sum_ns = read_counter(&stats->latency.sum_ns);
}

void stats_refunded(struct stats *stats)
{
    count_up(&stats->refunds, 1);
}

uint64_t stats_refunds(const struct stats *stats)
{
    return read_counter(&stats->refunds);
}

void stats_add(struct stats *sum, const struct stats *stats)
{
    size_t count = stats_rule_count(stats);
    for (size_t i = 0; i < count; i++) {
        struct stats_rule rule;
        stats_rule(stats, i, &rule);
        struct stats_rule *to = &sum->counters[counter_of_id(sum, rule.id)];
        for (int k = 0; k < OUTCOMES; k++)
            to->counts[k] += rule.counts[k];
        to->passed += rule.passed;
        to->overdrawn += rule.overdrawn;
        to->penalties += rule.penalties;
        to->penalised += rule.penalised;
    }
    count = stats_limit_count(stats);
    for (size_t i = 0; i < count; i++) {
        struct stats_limit limit;
        stats_limit(stats, i, &limit);
        uint32_t rule = counter_of_id(sum, stats->counters[limit.rule].id);
        struct stats_limit *to = &sum->limits[limit_of(sum, rule, weir_str(limit.name))];
        to->refused += limit.refused;
        to->would_refuse += limit.would_refuse;
    }
    sum->without_rule += stats_without_rule(stats);
    struct stats_latency latency;
    stats_latency(stats, &latency);
    for (int i = 0; i <= STATS_BUCKETS; i++)
        sum->latency.buckets[i] += latency.buckets[i];
    sum->latency.sum_ns += latency.sum_ns;
    sum->refunds += stats_refunds(stats);
}

int stats_collect_top(struct stats *stats, int64_t now_us, struct top_list *list)
{
    int r = top_list_reserve(list, TOP_SLOTS);
    if (r < 0)
        return r;
    HOLD_LOCK(&stats->lock);
    top_collect(stats->top, now_us, list);
    return 0;
}

int stats_collect_top_window(struct stats *stats, int64_t now_us, int64_t number, struct top_list *list)
{
    int r = top_list_reserve(list, TOP_SLOTS);
    if (r < 0)
        return r;
    HOLD_LOCK(&stats->lock);
    top_collect_window(stats->top, now_us, number, list);
    return 0;
}

int stats_collect_recent(struct stats *stats, uint64_t after, uint64_t until, sv rule, unsigned most,
                         struct recent_list *list, uint64_t *left_out)
{
    int r = recent_list_reserve(list, most < RECENT_SLOTS ? most : RECENT_SLOTS);
    if (r < 0)
        return r;
    *left_out += recent_left_out(stats->recent);
    HOLD_LOCK(&stats->lock);
    recent_collect(stats->recent, after, until, rule, most, list);
    return 0;
}

void stats_add_penalised(struct stats *stats, const struct penalised_entry *entry, int64_t now_us)
{
    HOLD_LOCK(&stats->lock);
    penalised_add(stats->penalised, entry, now_us);
}

int stats_collect_penalised(struct stats *stats, struct penalised_list *list)
{
    int r = penalised_list_reserve(list, PENALISED_SLOTS);
    if (r < 0)
        return r;
    HOLD_LOCK(&stats->lock);
    penalised_collect(stats->penalised, list);
    return 0;
}
