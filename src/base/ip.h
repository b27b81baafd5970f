/* Addresses and networks. One form for both families: 16 bytes, an IPv4 address as ::ffff:a.b.c.d. */
#ifndef BASE_IP_H
#define BASE_IP_H

#include "base/sv.h"

struct ip {
    uint8_t bytes[16];
};

struct cidr {
    struct ip ip;        /* the bits behind `prefix` are zero */
    uint8_t prefix;      /* of 128: an IPv4 /8 is 104 */
};

bool ip_parse(sv text, struct ip *ret);                   /* "1.2.3.4", "::1", "::ffff:1.2.3.4"; no port, no brackets */
bool ip_parse_hop(sv text, struct ip *ret);               /* also "1.2.3.4:80", "[::1]", "[::1]:80", blanks around */
bool ip_is_v4(const struct ip *ip);
void ip_mask(struct ip *ip, unsigned prefix);             /* zero the bits behind the first `prefix` of 128 */
enum { IP_TEXT_MAX = 46 };
size_t ip_text(const struct ip *ip, char out[IP_TEXT_MAX]);   /* IPv4 dotted, IPv6 as RFC 5952; length without the NUL */

bool cidr_parse(sv text, struct cidr *ret);               /* "10.0.0.0/8", "fd00::/8", or one address; "0.0.0.0/0" is all of IPv4 */
bool cidr_has(const struct cidr *cidr, const struct ip *ip);

#endif
