/* Receipts: what a request was charged or holds, so that it can be settled (settle.c).
 *
 * A receipt is complete. A limit that counts in a cell is named by its identity, its cell and the window; a limit that
 * counts in the store by its name there and its numbers, so that every host can settle it. */
#ifndef ENGINE_RECEIPT_H
#define ENGINE_RECEIPT_H

#include "engine/decision.h"
#include "engine/store.h"

#define RECEIPT_LIFE_US (RECEIPT_LIFE_S * US_PER_S) /* after its hold or charge; then it cannot be used any more */
#define RECEIPT_AHEAD_US US_PER_S                   /* clocks of threads and processes differ by less */

/* The word `how` of a charge. */
enum receipt_kind { RECEIPT_CELL, RECEIPT_STORE };
struct receipt_how {
    enum receipt_kind kind;
    bool on_hold;
    enum limit_algorithm algorithm;
    uint32_t gen;    /* cell */
    uint32_t nth;    /* store: see struct store_hold */
    bool keep;       /* store: the same */
    uint32_t off_ms; /* store: the end of the window may be wrong by this much */
};
/* kind 1 · on hold 1 · algorithm 3 · generation 10, or keep 1 · nth 9 · off 17 */
enum { HOW_HOLD = 1, HOW_ALGORITHM = 2, HOW_GEN = 5, HOW_KEEP = 14, HOW_OFF = 15, HOW_GEN_BITS = 10, HOW_NTH_BITS = 9 };

static inline struct receipt_how receipt_how(const struct weir_charged *charged)
{
    uint32_t how = charged->how;
    bool store = how & 1;
    return (struct receipt_how){ .kind = store ? RECEIPT_STORE : RECEIPT_CELL,
                                 .on_hold = how >> HOW_HOLD & 1,
                                 .algorithm = (enum limit_algorithm)(how >> HOW_ALGORITHM & 7),
                                 .gen = store ? 0 : how >> HOW_GEN & ((1u << HOW_GEN_BITS) - 1),
                                 .nth = store ? how >> HOW_GEN & ((1u << HOW_NTH_BITS) - 1) : 0,
                                 .keep = store && (how >> HOW_KEEP & 1),
                                 .off_ms = how >> HOW_OFF };
}

/* The names of a charge in the store. */
struct receipt_name {
    sv key, field;
};
/* Returns false if it is not in the receipt: only of one that was made up. */
bool receipt_name(const struct weir_receipt *receipt, const struct weir_charged *charged, struct receipt_name *ret);

/* Makes the receipt of a decision that has passed and was charged. Stand-ins are not in it: the store charges their counts
 * later. */
void receipt_make(const struct decision *d, struct weir_receipt *ret);
/* Returns false if it was made up, or made by another table. */
bool receipt_is_sealed(const struct weir_receipt *receipt, const struct bound *bound);
/* Returns whether the store of the handle is the one in which it was charged: any of its hosts may have made it. */
bool receipt_is_of_store(const struct weir_receipt *receipt, const struct weir *weir);
/* Returns the ring that its number is of: see receipt_ring.h. */
uint64_t receipt_ring(const struct weir_receipt *receipt, const struct cells *cells);
/* Returns what a receipt has in place of a unit's name. */
uint32_t receipt_unit(sv unit);

#endif
