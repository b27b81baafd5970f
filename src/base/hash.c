#include "base/hash.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they lie");

static uint64_t partial_word(const unsigned char *p, size_t n)
{
    uint64_t word = 0;
    memcpy(&word, p, n);
    return word;
}

void hash_bytes(struct hash *h, const void *data, size_t len)
{
    const unsigned char *p = data;
    if (len == 0)
        return;
    size_t have = h->length & 7;
    h->length += len;
    if (have) {
        size_t take = len < 8 - have ? len : 8 - have;
        h->tail |= partial_word(p, take) << (8 * have);
        if (have + take < 8)
            return;
        hash_word(h, h->tail);
        h->tail = 0;
        p += take;
        len -= take;
    }
    for (; len >= 8; p += 8, len -= 8)
        hash_word(h, partial_word(p, 8));
    h->tail = partial_word(p, len);
}
