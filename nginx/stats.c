#include "stats.h"

const char *const outcome_names[OUTCOMES] = { "allowed", "refused", "would_refuse", "shadow" };

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static uint64_t hash_add(uint64_t hash, struct weir_str text)
{
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.ptr[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_end(uint64_t hash)
{
    hash ^= hash >> 32;
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
    /* A NUL, which is in no id, keeps the two apart. */
    uint64_t hash = hash_end(hash_add(hash_add(hash_add(HASH_BEGIN, rule), (struct weir_str){ "", 1 }), name));
    for (size_t i = 0; i < STATS_PROBES; i++) {
        struct stats_limit *slot = &stats->limits[(hash + i) % STATS_LIMITS];
        if (claim(&slot->hash, hash))
            return name_limit(slot, rule, name);
    }
    return name_limit(&stats->other_limit, weir_str(STATS_OTHER), weir_str(STATS_OTHER));
}

void stats_count(struct stats *stats, const struct weir_verdict *verdict, const struct weir_shadows *shadows,
                 enum outcome outcome)
{
    if (verdict->applied)
        add(&find(stats, weir_str(verdict->rule))->counts[outcome]);
    else if (verdict->allowed)
        add(&stats->no_rule);
    else
        add(&name_slot(&stats->other, weir_str(STATS_OTHER))->counts[outcome]);
    if (verdict->allowed && !verdict->matched)
        add(&stats->without_rule);
    for (uint32_t i = 0; i < shadows->count; i++)
        add(&find(stats, weir_str(shadows->names[i]))->counts[OUTCOME_SHADOW]);
}

void stats_count_rule(struct stats *stats, const struct weir_rule_said *said, bool dry_run)
{
    if (said->said == WEIR_SAYS_PASS) {
        struct stats_rule *rule = find(stats, said->rule);
        add(&rule->passed);
        if (said->overdrawn > 0)
            add_many(&rule->overdrawn, said->overdrawn);
        return;
    }
    if (said->penalty == WEIR_PENALTY_RUNS) {
        add(&find(stats, said->rule)->penalised);
        return;
    }
    if (said->penalty == WEIR_PENALTY_BEGINS)
        add(&find(stats, said->rule)->penalties);
    struct stats_limit *limit = find_limit(stats, said->rule, said->limit);
    add(said->said == WEIR_SAYS_REFUSE && !dry_run ? &limit->refused : &limit->would_refuse);
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
