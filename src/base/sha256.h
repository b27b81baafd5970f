/* SHA-256: names what must be told apart and not forged. Unkeyed; for hash tables there is hash.h. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>

enum { SHA256_SIZE = 32 };

void sha256(const void *data, size_t len, unsigned char ret[SHA256_SIZE]);
/* With a key: nobody without the key can make it. */
void hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, unsigned char ret[SHA256_SIZE]);

#endif
