/* The seal of a receipt: a keyed hash, so that nobody can make one up.
 *
 * A universal hash of most words first (the sum of products that UMAC calls NH), then SipHash, a pseudo-random function, of
 * that sum: a reservation and its settlement make two seals, and SipHash of all words took a tenth of their time.
 *
 *   sum   (word 0 + key 0) x (word 1 + key 1) + (word 2 + key 2) x (word 3 + key 3) + ...
 *         each factor in 64 bits, the sum in 128
 *   seal  SipHash of: number of limits, length of names, number of the hold; time; names; sum
 *
 * Why this is enough. Without the key of the sum, any two different receipts with as many limits have the same sum with a
 * probability of at most 2^-64. Nobody sees a sum: under another key, the seal is a random function of it and of the words
 * before it. A forger has two ways. He changes a word before the sum: then SipHash has not been asked for this before, and
 * he has to guess the seal. Or he changes words of the sum only: then he has to guess words with the same sum. Nothing
 * helps him to guess: two receipts whose seals could be compared would need the same time and the same number of the hold,
 * which is random. (Charges that are not held have no such number; of these, only those of one microsecond can be
 * compared.) */
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
