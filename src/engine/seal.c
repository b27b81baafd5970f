#include "engine/seal.h"

#define SEAL_KEY_MARK (UINT64_MAX - 6) /* nothing else is hashed with such a key */

void seal_key_init(struct seal_key *key, const struct hash_key *secret, uint32_t limits)
{
    const struct hash_key own = { secret->k0 ^ SEAL_KEY_MARK, secret->k1 };
    for (uint32_t i = 0; i < SEAL_HEAD_WORDS + limits * SEAL_CHARGED_WORDS; i++) {
        struct hash h;
        hash_init(&h, &own);
        hash_word(&h, i);
        key->words[i] = hash_final(&h);
    }
}

static inline unsigned __int128 product(const uint64_t key[2], uint64_t a, uint64_t b)
{
    return (unsigned __int128)(a + key[0]) * (b + key[1]);
}

static unsigned __int128 sum_of(const struct weir_receipt *r, const struct seal_key *key, uint64_t store_seal)
{
    const uint64_t *k = key->words;
    unsigned __int128 sum = product(k, (uint64_t)r->until_us, r->number);
    sum += product(k + 2, (uint64_t)r->store_us, store_seal);
    k += SEAL_HEAD_WORDS;
    for (uint32_t i = 0; i < r->count; i++, k += SEAL_CHARGED_WORDS) {
        const struct weir_charged *c = &r->charged[i];
        sum += product(k, c->limit, c->key);
        sum += product(k + 2, c->origin, c->rate);
        sum += product(k + 4, c->cost, c->unit | (uint64_t)c->how << 32);
    }
    return sum;
}

uint64_t seal_of(const struct weir_receipt *r, const struct seal_key *key, const struct hash_key *secret, uint64_t mark,
                 uint64_t store_seal)
{
    struct hash h;
    const struct hash_key own = { secret->k0 ^ mark, secret->k1 };
    unsigned __int128 sum = sum_of(r, key, store_seal);
    hash_init(&h, &own);
    hash_word(&h, r->count | (uint64_t)r->keys_len << 16 | (uint64_t)r->hold << 32);
    hash_word(&h, (uint64_t)r->at_us);
    if (r->keys_len > 0)
        hash_text(&h, r->keys, r->keys_len);
    hash_word(&h, (uint64_t)sum);
    hash_word(&h, (uint64_t)(sum >> 64));
    return hash_final(&h);
}
