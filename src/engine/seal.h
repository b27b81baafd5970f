/* The seal of a receipt: a keyed hash, so that nobody can make one up.
 *
 * A keyed sum of products of the words first (NH of UMAC), then SipHash of the sum: two seals are on the way of every
 * reservation, and SipHash of all words took longer than the rest of the receipt.
 *
 *   sum   Σ (word₂ᵢ + key₂ᵢ) × (word₂ᵢ₊₁ + key₂ᵢ₊₁), each factor in 64 bits, the sum in 128
 *   seal  SipHash of: number of limits, length of names, hold · when · names · sum
 *
 * Why this is enough. Whoever does not know the key of the sum finds two receipts of one length with the same sum with a
 * probability of 2^-64, whatever he chooses. He sees no sums: the seal is a random function of them, under another key.
 * What precedes the sum (the random number of the hold and the microsecond) is as good as unique to a receipt, so two seals
 * that he has got tell nothing about the key either; and a receipt that he changes there has a seal that he can only guess.
 */
#ifndef ENGINE_SEAL_H
#define ENGINE_SEAL_H

#include <weir/weir.h>

#include "base/hash.h"

enum {
    SEAL_HEAD_WORDS = 4,
    SEAL_CHARGED_WORDS = 6,
    SEAL_KEY_WORDS = SEAL_HEAD_WORDS + WEIR_RECEIPT_LIMITS * SEAL_CHARGED_WORDS,
};

/* The key of a sum. */
struct seal_key {
    uint64_t words[SEAL_KEY_WORDS];
};

/* Makes the key from a secret: what a receipt of so many limits needs. */
void seal_key_init(struct seal_key *key, const struct hash_key *secret, uint32_t limits);

/* Returns the seal. `secret` is of the table or the store, and `mark` makes a key of it of which nothing else is made.
 * store_seal: what the receipt has there, or 0 if this becomes it. */
uint64_t seal_of(const struct weir_receipt *receipt, const struct seal_key *key, const struct hash_key *secret,
                 uint64_t mark, uint64_t store_seal);

#endif
