/* Receipts: what a request was charged, so that it can be given back. */
#ifndef ENGINE_REFUND_H
#define ENGINE_REFUND_H

#include "engine/engine.h"

/* `at_us` by this host's clock, `store_us` by the store's. */
void receipt_begin(struct weir_receipt *receipt, uint32_t cost, int64_t at_us, int64_t store_us);
/* `limit`: the key of the cell that was charged. `taken`: what the charge left, of which all but counts is kept. */
void receipt_add(struct weir_receipt *receipt, uint64_t limit, struct limit_state taken);
bool receipt_has(const struct weir_receipt *receipt, uint64_t limit, struct limit_state *ret_taken);

/* Gives back to the cell of a planned entry. False: it was not charged, or is in another window by now. */
bool refund_cell(struct cells *cells, const struct plan_entry *entry, const struct weir_receipt *receipt);

#endif
