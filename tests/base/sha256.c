/* SHA-256: the vectors of FIPS 180-4 and NIST, and what Python's hashlib says about the bytes 0, 1, 2 and so on for lengths
 * around those at which the padding needs a further block. HMAC: some vectors of RFC 4231, and what Python's hmac says
 * about keys around the size of a block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

static void compare(const unsigned char got[SHA256_SIZE], size_t len, const char *hex)
{
    char text[2 * SHA256_SIZE + 1];
    for (size_t i = 0; i < SHA256_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", got[i]);
    if (strcmp(text, hex) != 0)
        fail_msg("%zu bytes: %s, not %s", len, text, hex);
}

static void check(const void *data, size_t len, const char *hex)
{
    unsigned char got[SHA256_SIZE];
    sha256(data, len, got);
    compare(got, len, hex);
}

static void test_standard(void **state)
{
    (void)state;
    static const char *const vectors[][2] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrst"
          "u",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        check(vectors[i][0], strlen(vectors[i][0]), vectors[i][1]);
    check(NULL, 0, vectors[0][1]);
}

static void test_million(void **state)
{
    (void)state;
    size_t len = 1000000;
    char *text = malloc(len);
    assert_non_null(text);
    memset(text, 'a', len);
    check(text, len, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(text);
}

/* Each in a block of its own size, so that reading past its end is noticed. */
static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        const char *hex;
    } vectors[] = {
        { 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { 1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d" },
        { 3, "ae4b3280e56e2faf83f414a6e3dabe9d5fbe18976544c05fed121accb85b53fc" },
        { 54, "675f28acc0b90a72d1c3a570fe83ac565555db358cf01826dc8eefb2bf7ca0f3" },
        { 55, "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59" },
        { 56, "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562" },
        { 57, "2fe741af801cc238602ac0ec6a7b0c3a8a87c7fc7d7f02a3fe03d1c12eac4d8f" },
        { 58, "e03b18640c635b338a92b82cce4ff072f9f1aba9ac5261ee1340f592f35c0499" },
        { 59, "bd2de8f5dd15c73f68dfd26a614080c2e323b2b51b1b5ed9d7933e535d223bda" },
        { 60, "0ddde28e40838ef6f9853e887f597d6adb5f40eb35d5763c52e1e64d8ba3bfff" },
        { 61, "4b5c2783c91ceccb7c839213bcbb6a902d7fe8c2ec866877a51f433ea17f3e85" },
        { 62, "c89da82cbcd76ddf220e4e9091019b9866ffda72bee30de1effe6c99701a2221" },
        { 63, "29af2686fd53374a36b0846694cc342177e428d1647515f078784d69cdb9e488" },
        { 64, "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108" },
        { 65, "4bfd2c8b6f1eec7a2afeb48b934ee4b2694182027e6d0fc075074f2fabb31781" },
        { 119, "da18797ed7c3a777f0847f429724a2d8cd5138e6ed2895c3fa1a6d39d18f7ec6" },
        { 120, "f52b23db1fbb6ded89ef42a23ce0c8922c45f25c50b568a93bf1c075420bbb7c" },
        { 127, "92ca0fa6651ee2f97b884b7246a562fa71250fedefe5ebf270d31c546bfea976" },
        { 128, "471fb943aa23c511f6f72f8d1652d9c880cfa392ad80503120547703e56a2be5" },
        { 129, "5099c6a56203f9687f7d33f4bfdf576d31dc91f6b695ecea38b2770c87631135" },
        { 1000, "a8af099bf2e878609558dbf69d8f88f4a31040a8cf84b549a0cfa912f12ffc3f" },
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        unsigned char *bytes = malloc(vectors[i].len + (vectors[i].len == 0));
        assert_non_null(bytes);
        for (size_t j = 0; j < vectors[i].len; j++)
            bytes[j] = (unsigned char)j;
        check(bytes, vectors[i].len, vectors[i].hex);
        free(bytes);
    }
}

static void check_hmac(const void *key, size_t key_len, const void *data, size_t len, const char *hex)
{
    unsigned char got[SHA256_SIZE];
    hmac_sha256(key, key_len, data, len, got);
    compare(got, len, hex);
}

static void test_hmac_standard(void **state)
{
    (void)state;
    char key[131];
    memset(key, 0x0b, sizeof key);
    check_hmac(key, 20, "Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    check_hmac("Jefe", 4, "what do ya want for nothing?", 28,
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    static const char larger[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    check_hmac(key, sizeof key, larger, sizeof larger - 1,
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void test_hmac_lengths(void **state)
{
    (void)state;
    static const struct {
        size_t key_len, len;
        const char *hex;
    } vectors[] = {
        { 0, 0, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad" },
        { 1, 55, "98e0c82c4231c46f5e274a851b6d4eb753ddc8a325506388c04db8db467bd477" },
        { 48, 56, "552daf90f5a6d6d62c795e9ba59fa56292edb94b38a7e6895b80c53014871087" },
        { 63, 64, "8fa73fd964fa5fa135afa8a270e5a228291ccd1db00ef04c78ee29fa192d68b5" },
        { 64, 63, "7d8078ed09214e97a8f65dd65e40e7568c2f5e54be2f12ce1b911ebcc95dc64e" },
        { 65, 100, "5bb548366eee480dfe2263e2d31bb51e29f4fc7f430aa0f024b4e5a72436e9f3" },
        { 131, 1, "73e943ad681207914886053eddd6d3c4190476b20942828593e512a7de76d0f8" },
        { 255, 128, "0f2d9185ad2193bb0d155c3b323e73753284c2a9273ad903d060b007c73deeae" },
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        unsigned char key[256], data[128];
        for (size_t j = 0; j < vectors[i].key_len; j++)
            key[j] = (unsigned char)(7 * j + 3);
        for (size_t j = 0; j < vectors[i].len; j++)
            data[j] = (unsigned char)j;
        check_hmac(key, vectors[i].key_len, data, vectors[i].len, vectors[i].hex);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standard),      cmocka_unit_test(test_million),      cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_hmac_standard), cmocka_unit_test(test_hmac_lengths),
    };
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
