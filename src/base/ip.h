/* Addresses and networks. One form for both families: 16 bytes, an IPv4 address as ::ffff:a.b.c.d. */
#ifndef BASE_IP_H
#define BASE_IP_H

#include "base/sv.h"

struct ip {
    uint8_t bytes[16];
};

struct cidr {
    struct ip ip;   /* the bits after `prefix` are zero */
    uint8_t prefix; /* of 128: an IPv4 /8 is 104 */
};

/* "1.2.3.4", "::1", "::ffff:1.2.3.4", "fe80::1%eth0" (the zone is left out); no port, no brackets. */
bool ip_parse(sv text, struct ip *ret);
/* Also "1.2.3.4:80", "[::1]", "[::1]:80", and blanks around. */
bool ip_parse_hop(sv text, struct ip *ret);
/* The beginning of an IPv4 address. */
static const uint8_t ip_mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
static inline bool ip_is_v4(const struct ip *ip)
{
    return memcmp(ip->bytes, ip_mapped, sizeof ip_mapped) == 0;
}
/* The 4 or 16 bytes of an address in network order. False: another number of bytes. */
static inline bool ip_from_bytes(sv bytes, struct ip *ret)
{
    if (bytes.len == sizeof ret->bytes) {
        memcpy(ret->bytes, bytes.ptr, sizeof ret->bytes);
        return true;
    }
    if (bytes.len != sizeof ret->bytes - sizeof ip_mapped)
        return false;
    memcpy(ret->bytes, ip_mapped, sizeof ip_mapped);
    memcpy(ret->bytes + sizeof ip_mapped, bytes.ptr, sizeof ret->bytes - sizeof ip_mapped);
    return true;
}
/* Zeroes the bits after the first `prefix` of 128. */
void ip_mask(struct ip *ip, unsigned prefix);

enum { IP_TEXT_MAX = 46 };
/* IPv4 dotted, IPv6 as RFC 5952, and a NUL. Returns the length without it. */
size_t ip_text(const struct ip *ip, char out[IP_TEXT_MAX]);

/* "10.0.0.0/8", "fd00::/8", or one address; "0.0.0.0/0" is all of IPv4. Bits after the prefix are dropped. */
bool cidr_parse(sv text, struct cidr *ret);
enum { CIDR_TEXT_MAX = IP_TEXT_MAX + 4 };
/* "10.0.0.0/8"; one address without its prefix; and a NUL. Returns the length without it. */
size_t cidr_text(const struct cidr *cidr, char out[CIDR_TEXT_MAX]);
/* An IPv4 address is in no IPv6 network, not even "::/0". */
bool cidr_has(const struct cidr *cidr, const struct ip *ip);

#endif
