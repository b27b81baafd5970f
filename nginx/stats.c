#include "stats.h"

const char *const outcome_names[OUTCOMES] = { "allowed", "refused", "would_refuse", "shadow" };

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* In words of eight bytes, the last of which overlaps the one before. */
static uint64_t hash_add(uint64_t hash, struct weir_str text)
{
    uint64_t word = 0;
    hash = hash_word(hash, text.len);
    if (text.len < 8) {
        for (size_t i = 0; i < text.len; i++)
            word = word << 8 | (unsigned char)text.ptr[i];
        return hash_word(hash, word);
    }
    for (size_t i = 0; i + 8 < text.len; i += 8) {
        memcpy(&word, text.ptr + i, 8);
        hash = hash_word(hash, word);
    }
    memcpy(&word, text.ptr + text.len - 8, 8);
    return hash_word(hash, word);
}

/* The last bits choose the slot. After this they depend on all bytes: ids may differ in one or two of them. */
static uint64_t hash_end(uint64_t hash)
{
    hash = hash_word(hash_word(hash, hash >> 29), 0);
    return hash ? hash : 1;
}

static uint64_t hash_of(struct weir_str text)
{
    return hash_end(hash_add(HASH_BEGIN, text));
}

static void add_many(uint64_t *count, uint64_t by)
{
    __atomic_fetch_add(count, by, __ATOMIC_RELAXED);
}

static void add(uint64_t *count)
{
    add_many(count, 1);
}

/* Returns whether the slot has this hash, which is the identity, or was free and has it now. */
static bool claim(uint64_t *slot, uint64_t hash)
{
    uint64_t there = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (there == 0 && __atomic_compare_exchange_n(slot, &there, hash, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return true;
    return there == hash;
}

/* `to` is all zeros, and has room for a NUL after the longest name. */
static void write_name(char *to, size_t cap, struct weir_str name)
{
    memcpy(to, name.ptr, name.len < cap - 1 ? name.len : cap - 1);
}

/* A worker that claims a slot may die before it writes the name; the next worker writes it then, and all write the same. */
static struct stats_rule *name_slot(struct stats_rule *slot, struct weir_str id)
{
    if (!__atomic_load_n(&slot->named, __ATOMIC_ACQUIRE)) {
        write_name(slot->id, sizeof slot->id, id);
        __atomic_store_n(&slot->named, 1, __ATOMIC_RELEASE);
    }
    return slot;
}

static struct stats_rule *find(struct stats *stats, struct weir_str id)
{
    uint64_t hash = hash_of(id);
    for (size_t i = 0; i < STATS_PROBES; i++) {
        struct stats_rule *slot = &stats->rules[(hash + i) % STATS_RULES];
        if (claim(&slot->hash, hash))
            return name_slot(slot, id);
    }
    return name_slot(&stats->other, weir_str(STATS_OTHER));
}

static struct stats_limit *name_limit(struct stats_limit *slot, struct weir_str rule, struct weir_str name)
{
    if (!__atomic_load_n(&slot->named, __ATOMIC_ACQUIRE)) {
        write_name(slot->rule, sizeof slot->rule, rule);
        write_name(slot->name, sizeof slot->name, name);
        __atomic_store_n(&slot->named, 1, __ATOMIC_RELEASE);
    }
    return slot;
}

static struct stats_limit *find_limit(struct stats *stats, struct weir_str rule, struct weir_str name)
{
    uint64_t hash = hash_end(hash_add(hash_add(HASH_BEGIN, rule), name));
    for (size_t i = 0; i < STATS_PROBES; i++) {
        struct stats_limit *slot = &stats->limits[(hash + i) % STATS_LIMITS];
        if (claim(&slot->hash, hash))
            return name_limit(slot, rule, name);
    }
    return name_limit(&stats->other_limit, weir_str(STATS_OTHER), weir_str(STATS_OTHER));
}

static __attribute__((noinline)) struct stats_rule *find_at(struct stats *stats, struct stats_known *known, size_t at,
                                                            struct weir_str id)
{
    known->slots[at].rule = find(stats, id);
    known->slots[at].id = id.ptr;
    return known->slots[at].rule;
}

static __attribute__((noinline)) void forget(struct stats_known *known, uint64_t rules)
{
    memset(known->slots, 0, sizeof known->slots);
    known->rules = rules;
}

static inline struct stats_rule *find_known(struct stats *stats, struct stats_known *known, uint64_t rules,
                                            struct weir_str id)
{
    if (__builtin_expect(rules == 0, 0))
        return find(stats, id);
    if (__builtin_expect(rules != known->rules, 0))
        forget(known, rules);
    size_t at = (size_t)((uintptr_t)id.ptr * UINT64_C(0x9e3779b97f4a7c15) >> (64 - STATS_KNOWN_BITS));
    return __builtin_expect(known->slots[at].id == id.ptr, 1) ? known->slots[at].rule : find_at(stats, known, at, id);
}

/* The rule of the verdict is the only one that applies, or mostly the one that was counted last. */
static inline struct stats_rule *find_again(struct stats *stats, const struct stats_counted *counted, const char *id)
{
    if (counted->passed && (counted->rules == 1 || strcmp(counted->passed->id, id) == 0))
        return counted->passed;
    return find(stats, weir_str(id));
}

void stats_count(struct stats *stats, const struct weir_verdict *verdict, const struct weir_shadows *shadows,
                 enum outcome outcome, const struct stats_counted *counted)
{
    if (verdict->applied)
        add(&find_again(stats, counted, verdict->rule)->counts[outcome]);
    else if (verdict->allowed)
        add(&stats->no_rule);
    else
        add(&name_slot(&stats->other, weir_str(STATS_OTHER))->counts[outcome]);
    if (verdict->allowed && !verdict->matched)
        add(&stats->without_rule);
    for (uint32_t i = 0; i < shadows->count; i++)
        add(&find(stats, weir_str(shadows->names[i]))->counts[OUTCOME_SHADOW]);
}

static void count_refusal(struct stats *stats, const struct weir_rule_said *said, bool dry_run)
{
    if (said->penalty == WEIR_PENALTY_RUNS) {
        add(&find(stats, said->rule)->penalised);
        return;
    }
    if (said->penalty == WEIR_PENALTY_BEGINS)
        add(&find(stats, said->rule)->penalties);
    struct stats_limit *limit = find_limit(stats, said->rule, said->limit);
    add(said->said == WEIR_SAYS_REFUSE && !dry_run ? &limit->refused : &limit->would_refuse);
}

void stats_count_rule(struct stats *stats, struct stats_known *known, uint64_t rules, const struct weir_rule_said *said,
                      bool dry_run, struct stats_counted *counted)
{
    counted->rules++;
    if (said->said != WEIR_SAYS_PASS) {
        count_refusal(stats, said, dry_run);
        return;
    }
    counted->passed = find_known(stats, known, rules, said->rule);
    add(&counted->passed->passed);
    if (said->overdrawn > 0)
        add_many(&counted->passed->overdrawn, said->overdrawn);
}

void stats_count_wait(struct stats *stats)
{
    add(&stats->waited);
}

bool stats_claim_report(struct stats *stats, uint64_t version_ns, const char *text)
{
    /* Workers look within a short time of each other. A version that is older than that is new: the clock was set back. */
    const uint64_t apart_ns = UINT64_C(5000000000);
    uint64_t hash = hash_of(weir_str(text)), logged_ns = stats->logged_version_ns;
    bool stale = version_ns < logged_ns && logged_ns - version_ns < apart_ns;
    if (stale || (version_ns == logged_ns && hash == stats->logged_hash))
        return false;
    stats->logged_version_ns = version_ns;
    stats->logged_hash = hash;
    return true;
}
