/* String views: pointer and length, by value. */
#ifndef BASE_SV_H
#define BASE_SV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <weir/weir.h>

typedef struct weir_str sv;

#define SV(literal) ((sv){ (literal), sizeof(literal) - 1 })
/* For printf("%.*s", SV_FMT(s)). */
#define SV_FMT(s) (int)(s).len, (s).ptr
/* The same, but at most `most` bytes: for text of strangers. */
#define SV_SHOWN(s, most) (int)((s).len < (size_t)(most) ? (s).len : (size_t)(most)), (s).ptr ? (s).ptr : ""

static inline sv sv_of(const char *ptr, size_t len)
{
    return (sv){ ptr, len };
}

static inline uint64_t sv_word(const char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static inline uint32_t sv_half(const char *p)
{
    uint32_t half;
    memcpy(&half, p, sizeof half);
    return half;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte of a word is its lowest");

/* Up to eight bytes as a word, with zeros behind them. */
static inline uint64_t sv_short_word(sv s)
{
    const char *p = s.ptr;
    size_t n = s.len;
    if (n == 8)
        return sv_word(p);
    if (n >= 4)
        return sv_half(p) | (uint64_t)sv_half(p + n - 4) << 8 * (n - 4);
    if (n == 0)
        return 0;
    return (unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 * (n / 2) |
           (uint64_t)(unsigned char)p[n - 1] << 8 * (n - 1);
}

/* By hand, because a call of memcmp costs more than comparing most strings here. If the last word of a string is not
 * whole, it overlaps the one before. */
static inline bool sv_eq(sv a, sv b)
{
    size_t n = a.len;
    if (n != b.len)
        return false;
    if (n >= 8) {
        for (size_t i = 0; i + 8 < n; i += 8)
            if (sv_word(a.ptr + i) != sv_word(b.ptr + i))
                return false;
        return sv_word(a.ptr + n - 8) == sv_word(b.ptr + n - 8);
    }
    if (n >= 4)
        return sv_half(a.ptr) == sv_half(b.ptr) && sv_half(a.ptr + n - 4) == sv_half(b.ptr + n - 4);
    for (size_t i = 0; i < n; i++)
        if (a.ptr[i] != b.ptr[i])
            return false;
    return true;
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static inline bool ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool ascii_letter(char c)
{
    c = ascii_lower(c);
    return c >= 'a' && c <= 'z';
}

/* The value of a hexadecimal digit; -1: not a hexadecimal digit. */
static inline int ascii_hex(char c)
{
    c = ascii_lower(c);
    return ascii_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static inline bool sv_eq_nocase(sv a, sv b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (ascii_lower(a.ptr[i]) != ascii_lower(b.ptr[i]))
            return false;
    return true;
}

/* Eight characters at a time. A carry cannot leave its byte: the sums are of seven bits each. */
static inline uint64_t ascii_lower_8(uint64_t word)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t low = word & 0x7f * each;
    uint64_t from_a = low + (0x80 - 'A') * each, after_z = low + (0x7f - 'Z') * each;
    uint64_t upper = ~word & (from_a ^ after_z) & 0x80 * each;
    return word | upper >> 2;
}

static inline bool equal_lower_8(const char *s, const char *lower)
{
    uint64_t a, b;
    memcpy(&a, s, sizeof a);
    memcpy(&b, lower, sizeof b);
    return ascii_lower_8(a) == b;
}

/* `lower` has no upper-case letters. */
static inline bool sv_eq_lower(sv s, sv lower)
{
    if (s.len != lower.len)
        return false;
    size_t i = 0;
    for (; i + 8 <= s.len; i += 8)
        if (!equal_lower_8(s.ptr + i, lower.ptr + i))
            return false;
    if (i > 0 && i < s.len)
        return equal_lower_8(s.ptr + s.len - 8, lower.ptr + s.len - 8);
    for (; i < s.len; i++)
        if (ascii_lower(s.ptr[i]) != lower.ptr[i])
            return false;
    return true;
}

static inline bool sv_starts(sv s, sv prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

static inline sv sv_from(sv s, size_t offset)
{
    if (offset > s.len)
        offset = s.len;
    return offset > 0 ? sv_of(s.ptr + offset, s.len - offset) : s;
}

/* SP and HTAB, which HTTP does not count as part of a field's value. */
static inline bool ascii_ows(char c)
{
    return c == ' ' || c == '\t';
}

sv sv_trim_ows_slow(sv s);

/* SP and HTAB off both ends. Most values have none, and then one comparison at each end tells. */
static inline sv sv_trim_ows(sv s)
{
    if (__builtin_expect(s.len == 0 || ((unsigned char)s.ptr[0] > ' ' && (unsigned char)s.ptr[s.len - 1] > ' '), 1))
        return s;
    return sv_trim_ows_slow(s);
}

int sv_compare(sv a, sv b); /* by bytes; a text comes before those that it begins */
sv sv_trim(sv s);           /* ASCII blanks off both ends */
bool sv_blank(sv s);        /* nothing but blanks */
/* Cuts *rest at the first `c`: returns the part before it; *rest becomes the part after it (empty if there is no `c`). */
sv sv_cut(sv *rest, char c);
/* Decodes %41 to A and so on, and writes at most `cap` bytes. Returns the whole length; -1: a % without two hexadecimal
 * digits, or %00. */
ptrdiff_t sv_unescape(sv s, char *to, size_t cap);
/* Decimal digits only, the whole of s, at most `max`. */
bool sv_u64(sv s, uint64_t max, uint64_t *ret);

#endif
