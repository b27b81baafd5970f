/* FIPS 180-4, and HMAC of RFC 2104. */
#include "base/sha256.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 64, LENGTH_SIZE = 8 };

/* The fractions of the square roots of the first 8 primes, and of the cube roots of the first 64, 32 bits of each. */
static const uint32_t start[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store(unsigned char *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(x >> (24 - 8 * i));
}

static void expand(const unsigned char block[BLOCK], uint32_t w[64])
{
    for (int i = 0; i < 16; i++)
        w[i] = load(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        uint32_t s0 = rotr(a, 7) ^ rotr(a, 18) ^ a >> 3;
        uint32_t s1 = rotr(b, 17) ^ rotr(b, 19) ^ b >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

static void absorb(uint32_t state[8], const unsigned char block[BLOCK])
{
    uint32_t w[64], s[8]; /* s: a to h of the standard */
    expand(block, w);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t choice = (e & s[5]) ^ (~e & s[6]);
        uint32_t majority = (a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]);
        uint32_t t1 = s[7] + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + choice + rounds[i] + w[i];
        uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

/* `block`: a first block before the data; NULL: none. */
static void digest(const unsigned char *block, const void *data, size_t len, unsigned char ret[SHA256_SIZE])
{
    const unsigned char *p = data;
    uint32_t state[8];
    memcpy(state, start, sizeof state);
    if (block)
        absorb(state, block);
    size_t left = len;
    for (; left >= BLOCK; p += BLOCK, left -= BLOCK)
        absorb(state, p);

    /* The remaining bytes, a 1 bit, zeros, and the length in bits: one block, or two. */
    unsigned char end[2 * BLOCK] = { 0 };
    size_t end_size = left + 1 + LENGTH_SIZE <= BLOCK ? BLOCK : 2 * BLOCK;
    if (left > 0)
        memcpy(end, p, left);
    end[left] = 0x80;
    uint64_t bits = ((uint64_t)len + (block ? BLOCK : 0)) * 8;
    store(end + end_size - 8, (uint32_t)(bits >> 32));
    store(end + end_size - 4, (uint32_t)bits);
    absorb(state, end);
    if (end_size > BLOCK)
        absorb(state, end + BLOCK);
    for (int i = 0; i < 8; i++)
        store(ret + 4 * i, state[i]);
}

void sha256(const void *data, size_t len, unsigned char ret[SHA256_SIZE])
{
    digest(NULL, data, len, ret);
}

void hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, unsigned char ret[SHA256_SIZE])
{
    unsigned char pad[BLOCK] = { 0 }, inner[SHA256_SIZE];
    if (key_len > BLOCK)
        sha256(key, key_len, pad);
    else if (key_len > 0)
        memcpy(pad, key, key_len);
    for (int i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36;
    digest(pad, data, len, inner);
    for (int i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    digest(pad, inner, sizeof inner, ret);
}
