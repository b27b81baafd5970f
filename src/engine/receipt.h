/* Receipts: what a request was charged, so that it can be given back (refund.c).
 *
 * A receipt names every limit that was charged by the cell that it was charged in, its generation, and the window. */
#ifndef ENGINE_RECEIPT_H
#define ENGINE_RECEIPT_H

#include "engine/decision.h"
#include "engine/store.h"

#define RECEIPT_LIFE_US (RECEIPT_LIFE_S * US_PER_S) /* then it cannot be used any more */
#define RECEIPT_AHEAD_US US_PER_S                   /* clocks of threads and processes differ by less */

/* Makes the receipt of a decision that has passed and was charged. Stand-ins are not in it: the store charges their counts
 * later. */
void receipt_make(const struct decision *d, struct weir_receipt *ret);
/* Returns false if it was made up, or made by another table. */
bool receipt_is_sealed(const struct weir_receipt *receipt, const struct cells *cells);
/* Returns the ring that its number is of: see receipt_ring.h. */
uint64_t receipt_ring(const struct weir_receipt *receipt, const struct cells *cells);
/* A counter in the store, and a slice that is spent, have no cell in the table: a receipt has this in its place. */
uint64_t receipt_store_id(const struct counter *c);

#endif
