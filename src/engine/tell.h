/* Telling the store what becomes of the charges of a receipt that count there. Nobody waits for the answer. */
#ifndef ENGINE_TELL_H
#define ENGINE_TELL_H

#include <weir/weir.h>

/* The true amounts of what was charged. */
struct amounts {
    uint64_t cost; /* WEIR_AS_HELD: what it was */
    const struct weir_cost *costs;
    size_t cost_count;
};
/* The same where there are amounts by unit. */
uint64_t amount_by_unit(const struct amounts *amounts, const struct weir_charged *charged);
/* Returns what a charge becomes. */
static inline uint64_t amount_of(const struct amounts *a, const struct weir_charged *charged)
{
    if (a->cost_count > 0)
        return amount_by_unit(a, charged);
    bool applies = charged->unit == 0 || a->cost == 0;
    return applies && a->cost != WEIR_AS_HELD ? a->cost : charged->cost;
}

enum tell_what {
    TELL_SETTLED,
    TELL_RENEWED,
    TELL_ENTERED, /* holds that slices have paid for: the store ends them from now on */
};

struct telling {
    enum tell_what what;
    struct amounts amounts; /* settled */
    uint32_t ttl_ms;        /* renewed: from now on; 0: slots, for as long as their limits say */
    int64_t now_us;
};

/* Returns the number of limits that the store was told of; 0 while it is unavailable. */
int tell_store(struct weir *weir, const struct weir_receipt *receipt, const struct telling *telling);

#endif
