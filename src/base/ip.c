#include "base/ip.h"

#include <arpa/inet.h>

/* By hand: inet_pton wants a NUL, and this runs for every decision. No leading zeros: some read "010" as eight. */
static bool parse_v4(sv text, uint8_t out[4])
{
    unsigned value = 0, digits = 0, part = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (ascii_digit(text.ptr[i])) {
            bool leading_zero = digits++ > 0 && value == 0;
            value = value * 10 + (unsigned)(text.ptr[i] - '0');
            if (leading_zero || value > 255)
                return false;
        } else if (text.ptr[i] == '.' && digits > 0 && part < 3) {
            out[part++] = (uint8_t)value;
            value = digits = 0;
        } else {
            return false;
        }
    }
    if (part < 3 || digits == 0)
        return false;
    out[3] = (uint8_t)value;
    return true;
}

static bool parse_v6(sv text, uint8_t out[16])
{
    char copy[INET6_ADDRSTRLEN];
    if (text.len >= sizeof copy || memchr(text.ptr, '\0', text.len))
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    return inet_pton(AF_INET6, copy, out) == 1;
}

static bool parse_mapped(sv text, struct ip *ret)
{
    struct ip ip;
    memcpy(ip.bytes, ip_mapped, sizeof ip_mapped);
    if (!parse_v4(text, ip.bytes + 12))
        return false;
    *ret = ip;
    return true;
}

/* An address without a zone. */
static bool parse_plain(sv text, struct ip *ret)
{
    struct ip ip;
    if (parse_mapped(text, ret))
        return true;
    if (text.len == 0 || !parse_v6(text, ip.bytes))
        return false;
    *ret = ip;
    return true;
}

bool ip_parse(sv text, struct ip *ret)
{
    if (parse_mapped(text, ret))
        return true;
    sv zone = text;
    sv address = sv_cut(&zone, '%');
    if (address.len < text.len && (zone.len == 0 || !memchr(address.ptr, ':', address.len)))
        return false;
    return parse_plain(address, ret);
}

static bool port_valid(sv text)
{
    uint64_t port;
    return text.len <= 5 && sv_u64(text, UINT16_MAX, &port);
}

bool ip_parse_hop(sv text, struct ip *ret)
{
    if (parse_mapped(text, ret))
        return true;
    text = sv_trim(text);
    if (text.len == 0)
        return false;
    if (text.ptr[0] == '[') {
        sv rest = sv_from(text, 1);
        sv address = sv_cut(&rest, ']');
        if (address.len + 1 == text.len || !memchr(address.ptr, ':', address.len))
            return false;
        if (rest.len > 0 && (rest.ptr[0] != ':' || !port_valid(sv_from(rest, 1))))
            return false;
        return ip_parse(address, ret);
    }
    sv port = text;
    sv address = sv_cut(&port, ':');
    if (address.len < text.len && !memchr(port.ptr, ':', port.len))
        return port_valid(port) && parse_plain(address, ret);
    return ip_parse(text, ret);
}

void ip_mask(struct ip *ip, unsigned prefix)
{
    for (unsigned i = 0; i<16; i++, prefix -= prefix> 8 ? 8 : prefix)
        if (prefix < 8)
            ip->bytes[i] &= (uint8_t)(0xff00 >> prefix);
}

/* The digits of each byte, and how many there are: a decision by address writes four. */
#define DIGITS_1(n) { '0' + (n), 0, 0, 1 },
#define DIGITS_2(n) { '0' + (n) / 10, '0' + (n) % 10, 0, 2 },
#define DIGITS_3(n) { '0' + (n) / 100, '0' + (n) / 10 % 10, '0' + (n) % 10, 3 },
#define TEN(X, n) X(n) X((n) + 1) X((n) + 2) X((n) + 3) X((n) + 4) X((n) + 5) X((n) + 6) X((n) + 7) X((n) + 8) X((n) + 9)
#define FIFTY(n) \
    TEN(DIGITS_3, n) TEN(DIGITS_3, (n) + 10) TEN(DIGITS_3, (n) + 20) TEN(DIGITS_3, (n) + 30) TEN(DIGITS_3, (n) + 40)
static const char digits_of[256][4] = { TEN(DIGITS_1, 0) TEN(DIGITS_2, 10) TEN(DIGITS_2, 20) TEN(DIGITS_2, 30)
                                            TEN(DIGITS_2, 40) TEN(DIGITS_2, 50) TEN(DIGITS_2, 60) TEN(DIGITS_2, 70)
                                                TEN(DIGITS_2, 80) TEN(DIGITS_2, 90) FIFTY(100) FIFTY(150) FIFTY(200)
                                                    DIGITS_3(250) DIGITS_3(251) DIGITS_3(252) DIGITS_3(253) DIGITS_3(254)
                                                        DIGITS_3(255) };

/* Writes four bytes. Returns the end of the digits. */
static inline char *put_byte(char *p, uint8_t value)
{
    memcpy(p, digits_of[value], 4);
    return p + digits_of[value][3];
}

static size_t text_v4(const uint8_t bytes[4], char *out)
{
    char *p = put_byte(out, bytes[0]);
    for (int i = 1; i < 4; i++) {
        *p++ = '.';
        p = put_byte(p, bytes[i]);
    }
    *p = '\0';
    return (size_t)(p - out);
}

static unsigned group(const struct ip *ip, int i)
{
    return (unsigned)ip->bytes[2 * i] << 8 | ip->bytes[2 * i + 1];
}

/* The first of the longest runs of two or more zero groups; its length is 0 if there is none. */
static int longest_zeros(const struct ip *ip, int *ret_length)
{
    int best = 0, best_length = 1;
    for (int i = 0; i < 8;) {
        int end = i;
        while (end < 8 && group(ip, end) == 0)
            end++;
        if (end - i > best_length) {
            best = i;
            best_length = end - i;
        }
        i = end + 1;
    }
    *ret_length = best_length > 1 ? best_length : 0;
    return best;
}

size_t ip_text(const struct ip *ip, char out[IP_TEXT_MAX])
{
    if (ip_is_v4(ip))
        return text_v4(ip->bytes + 12, out);
    char *p = out;
    int zeros_length, zeros = longest_zeros(ip, &zeros_length);
    for (int i = 0; i < 8;) {
        if (zeros_length > 0 && i == zeros) {
            *p++ = ':';
            *p++ = ':';
            i += zeros_length;
            continue;
        }
        if (p > out && p[-1] != ':')
            *p++ = ':';
        unsigned value = group(ip, i++);
        for (int shift = 12; shift >= 0; shift -= 4)
            if (shift == 0 || value >> shift)
                *p++ = "0123456789abcdef"[value >> shift & 15];
    }
    *p = '\0';
    return (size_t)(p - out);
}

bool cidr_parse(sv text, struct cidr *ret)
{
    struct cidr cidr;
    sv bits = text;
    sv address = sv_cut(&bits, '/');
    if (!parse_plain(address, &cidr.ip))
        return false;
    /* "::ffff:10.0.0.0/104" and "10.0.0.0/8" are the same network. */
    unsigned skip = memchr(address.ptr, ':', address.len) ? 0 : 96;
    uint64_t prefix = 128 - skip;
    if (address.len < text.len && (bits.len > 3 || !sv_u64(bits, 128 - skip, &prefix)))
        return false;
    cidr.prefix = (uint8_t)(skip + prefix);
    ip_mask(&cidr.ip, cidr.prefix);
    *ret = cidr;
    return true;
}

size_t cidr_text(const struct cidr *cidr, char out[CIDR_TEXT_MAX])
{
    size_t len = ip_text(&cidr->ip, out);
    unsigned skip = ip_is_v4(&cidr->ip) ? 96 : 0;
    if (cidr->prefix == 128)
        return len;
    out[len++] = '/';
    char *end = put_byte(out + len, (uint8_t)(cidr->prefix - skip));
    *end = '\0';
    return (size_t)(end - out);
}

/* IPv4 is inside ::/0 only because of our notation; a rule that excepts ::/0 does not mean IPv4. */
bool cidr_has(const struct cidr *cidr, const struct ip *ip)
{
    if (ip_is_v4(&cidr->ip) != ip_is_v4(ip))
        return false;
    unsigned whole = cidr->prefix / 8, rest = cidr->prefix % 8;
    if (memcmp(cidr->ip.bytes, ip->bytes, whole) != 0)
        return false;
    return rest == 0 || ((cidr->ip.bytes[whole] ^ ip->bytes[whole]) & (uint8_t)(0xff00 >> rest)) == 0;
}
