/* SipHash-1-3. CPython 3.11 hashes bytes with it, under a key of zeros for PYTHONHASHSEED=0 and one made by its generator
 * for PYTHONHASHSEED=1: the values below are what it says about bytes(range(n)). The one for no bytes is the first of the
 * vectors of Rust's standard library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "base/hash.h"

static uint64_t hash_once(struct hash_key key, const void *data, size_t len)
{
    struct hash h;
    hash_init(&h, &key);
    hash_bytes(&h, data, len);
    return hash_final(&h);
}

static void test_vectors(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        uint64_t zero, one;
    } vectors[] = {
        { 1, 0x68a914128e01e473, 0xecd3e5afcecda4b9 },  { 7, 0x2f098ab0c751325a, 0xfd15e78052a69ddf },
        { 8, 0xead411e67ebe2eea, 0xc0b5739e7e28dd01 },  { 9, 0x75927f9d95124362, 0x208a1a5a0cbbf778 },
        { 15, 0xf30eb725bb91c9ea, 0xfa87985f39e97a53 }, { 16, 0x8972188433a5c5b7, 0x12e9d283f9f37002 },
        { 17, 0x4883c49a2c009c1d, 0x9f5bb4237f61907f }, { 24, 0x31185a47af932f3a, 0x19b4e5f288f874ce },
        { 63, 0x385d3e39e5f37359, 0x542052345bc68274 },
    };
    struct hash_key zero = { 0, 0 }, one = { 0xaed66ce184be2329, 0xebe9bbf1f1499052 };
    struct hash_key rising = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };
    unsigned char bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        assert_true(hash_once(zero, bytes, vectors[i].len) == vectors[i].zero);
        assert_true(hash_once(one, bytes, vectors[i].len) == vectors[i].one);
    }
    assert_true(hash_once(rising, NULL, 0) == 0xabac0158050fc4dc);
}

static void test_pieces(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    unsigned char bytes[200];
    for (int round = 0; round < 20000; round++) {
        struct hash_key key = { random_u64(&r), random_u64(&r) };
        size_t len = (size_t)random_in(&r, 0, sizeof bytes);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (unsigned char)random_u64(&r);
        struct hash h;
        hash_init(&h, &key);
        for (size_t at = 0; at < len;) {
            size_t n = (size_t)random_in(&r, 0, (int64_t)(len - at > 20 ? 20 : len - at));
            hash_bytes(&h, bytes + at, n);
            at += n;
        }
        if (hash_final(&h) != hash_once(key, bytes, len))
            fail_msg("seed %llu, round %d: %zu bytes in pieces", (unsigned long long)random_seed(), round, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
