/* SipHash-1-3: a keyed hash, so that nobody can choose a key that collides with another. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hash_key {
    uint64_t k0, k1;
};

/* State of a hash under way; words first, then whatever is left. */
struct hash {
    uint64_t v0, v1, v2, v3;
    uint64_t tail;   /* bytes not yet absorbed, in the low end */
    uint64_t length; /* bytes seen */
};

static inline uint64_t hash_rotl(uint64_t x, int n)
{
    return (x << n) | (x >> (64 - n));
}

static inline void hash_round(struct hash *h)
{
    h->v0 += h->v1;
    h->v1 = hash_rotl(h->v1, 13) ^ h->v0;
    h->v0 = hash_rotl(h->v0, 32);
    h->v2 += h->v3;
    h->v3 = hash_rotl(h->v3, 16) ^ h->v2;
    h->v0 += h->v3;
    h->v3 = hash_rotl(h->v3, 21) ^ h->v0;
    h->v2 += h->v1;
    h->v1 = hash_rotl(h->v1, 17) ^ h->v2;
    h->v2 = hash_rotl(h->v2, 32);
}

static inline void hash_word(struct hash *h, uint64_t word)
{
    h->v3 ^= word;
    hash_round(h);
    h->v0 ^= word;
}

static inline void hash_init(struct hash *h, const struct hash_key *key)
{
    h->v0 = key->k0 ^ 0x736f6d6570736575ULL;
    h->v1 = key->k1 ^ 0x646f72616e646f6dULL;
    h->v2 = key->k0 ^ 0x6c7967656e657261ULL;
    h->v3 = key->k1 ^ 0x7465646279746573ULL;
    h->tail = 0;
    h->length = 0;
}

static inline uint64_t hash_final(struct hash *h)
{
    hash_word(h, h->tail | (h->length & 0xff) << 56);
    h->v2 ^= 0xff;
    hash_round(h);
    hash_round(h);
    hash_round(h);
    return h->v0 ^ h->v1 ^ h->v2 ^ h->v3;
}

void hash_bytes(struct hash *h, const void *data, size_t len);

/* The 1 to 8 bytes at p as a word, by loads that overlap: a loop or a call would cost more than the hash. */
static inline uint64_t hash_load(const char *p, size_t n)
{
    if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        return low | (uint64_t)high << 8 * (n - 4);
    }
    return (uint64_t)(unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 * (n / 2) |
           (uint64_t)(unsigned char)p[n - 1] << 8 * (n - 1);
}

/* A text within others: its length first, so that texts cannot run together, then its bytes in whole words. Not to be mixed
 * with hash_bytes. */
static inline void hash_text(struct hash *h, const char *p, size_t len)
{
    hash_word(h, len);
    for (; len > 8; p += 8, len -= 8)
        hash_word(h, hash_load(p, 8));
    if (len > 0)
        hash_word(h, hash_load(p, len));
}

/* Joins two keyed hashes, or one and any number: mixing them is enough. */
static inline uint64_t key_mix(uint64_t a, uint64_t b)
{
    uint64_t x = b ^ a;
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

#endif
