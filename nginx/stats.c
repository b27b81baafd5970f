#include "stats.h"

const char *const outcome_names[OUTCOMES] = { "allowed", "refused", "would_refuse", "shadow" };

static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    hash ^= hash >> 32;
    return hash ? hash : 1;
}

static void add(uint64_t *count)
{
    __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
}

/* The hash is the identity. A worker that claims a slot may die before it writes the name; the next worker writes it then,
 * and all write the same. */
static struct stats_rule *name_slot(struct stats_rule *slot, const char *id)
{
    if (!__atomic_load_n(&slot->named, __ATOMIC_ACQUIRE)) {
        strncpy(slot->id, id, sizeof slot->id - 1);
        __atomic_store_n(&slot->named, 1, __ATOMIC_RELEASE);
    }
    return slot;
}

static struct stats_rule *find(struct stats *stats, const char *id)
{
    uint64_t hash = hash_of(id);
    for (size_t i = 0; i < STATS_PROBES; i++) {
        struct stats_rule *slot = &stats->rules[(hash + i) % STATS_RULES];
        uint64_t there = __atomic_load_n(&slot->hash, __ATOMIC_RELAXED);
        if (there == 0 && __atomic_compare_exchange_n(&slot->hash, &there, hash, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            there = hash;
        if (there == hash)
            return name_slot(slot, id);
    }
    return name_slot(&stats->other, STATS_OTHER);
}

void stats_count(struct stats *stats, const struct weir_verdict *verdict, const struct weir_shadows *shadows,
                 enum outcome outcome)
{
    if (verdict->applied)
        add(&find(stats, verdict->rule)->counts[outcome]);
    else if (verdict->allowed)
        add(&stats->no_rule);
    else
        add(&name_slot(&stats->other, STATS_OTHER)->counts[outcome]);
    for (uint32_t i = 0; i < shadows->count; i++)
        add(&find(stats, shadows->names[i])->counts[OUTCOME_SHADOW]);
}

void stats_count_wait(struct stats *stats)
{
    add(&stats->waited);
}

bool stats_claim_report(struct stats *stats, uint64_t version_ns, const char *text)
{
    /* Workers look within a short time of each other. A version that is older than that is new: the clock was set back. */
    const uint64_t apart_ns = UINT64_C(5000000000);
    uint64_t hash = hash_of(text), logged_ns = stats->logged_version_ns;
    bool stale = version_ns < logged_ns && logged_ns - version_ns < apart_ns;
    if (stale || (version_ns == logged_ns && hash == stats->logged_hash))
        return false;
    stats->logged_version_ns = version_ns;
    stats->logged_hash = hash;
    return true;
}
