#include "match/client_address.h"

#include <stdlib.h>

enum { HOPS_MAX = 100 };

/* IPv4 first, then by address, wide networks before what they cover. */
static int compare_cidrs(const void *a, const void *b)
{
    const struct cidr *x = a, *y = b;
    int family = (int)ip_is_v4(&y->ip) - (int)ip_is_v4(&x->ip);
    if (family)
        return family;
    int address = memcmp(x->ip.bytes, y->ip.bytes, sizeof x->ip.bytes);
    return address ? address : (int)x->prefix - (int)y->prefix;
}

bool networks_init(struct networks *networks, struct arena *arena, const struct cidr *cidrs, size_t count)
{
    *networks = (struct networks){ 0 };
    if (count == 0)
        return true;
    struct cidr *sorted = ARENA_ARRAY(arena, struct cidr, count);
    if (!sorted)
        return false;
    memcpy(sorted, cidrs, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_cidrs);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && cidr_has(&sorted[kept - 1], &sorted[i].ip))
            continue;
        networks->v4_count += ip_is_v4(&sorted[i].ip);
        sorted[kept++] = sorted[i];
    }
    networks->v4 = sorted;
    networks->v6 = sorted + networks->v4_count;
    networks->v6_count = kept - networks->v4_count;
    return true;
}

bool networks_has(const struct networks *networks, const struct ip *ip)
{
    bool v4 = ip_is_v4(ip);
    const struct cidr *list = v4 ? networks->v4 : networks->v6;
    size_t low = 0, high = v4 ? networks->v4_count : networks->v6_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(list[middle].ip.bytes, ip->bytes, sizeof ip->bytes) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && cidr_has(&list[low - 1], ip);
}

/* Walks the entries of one X-Forwarded-For from its right end for as long as they are trusted. False: the walk is over,
 * and *hop is the client. */
static bool walk_hops(sv value, const struct networks *trusted, int *left, struct ip *hop)
{
    while (value.len > 0) {
        size_t start = value.len;
        while (start > 0 && value.ptr[start - 1] != ',')
            start--;
        sv entry = sv_from(value, start);
        value.len = start > 0 ? start - 1 : 0;
        if (sv_blank(entry))
            continue;
        if ((*left)-- == 0 || !ip_parse_hop(entry, hop) || !networks_has(trusted, hop))
            return false;
    }
    return true;
}

/* The address that the caller gave; its text is *ret_given, if it gave one. False: there is none. */
static inline bool given_address(const struct weir_request *request, sv known, struct ip *ret, sv *ret_given)
{
    if (known.len == 0 && request->peer_bytes.len > 0) {
        *ret_given = sv_of("", 0);
        return ip_from_bytes(request->peer_bytes, ret);
    }
    *ret_given = known.len > 0 ? known : request->peer;
    return ip_parse_hop(*ret_given, ret);
}

bool client_address(const struct weir_request *request, const struct networks *trusted, struct ip *ret, sv *ret_given)
{
    sv known = sv_trim_ows(request->ip);
    if (!given_address(request, known, ret, ret_given))
        return false;
    if (known.len > 0 || trusted->v4_count + trusted->v6_count == 0 || !networks_has(trusted, ret))
        return true;
    int left = HOPS_MAX;
    *ret_given = sv_of("", 0);
    for (size_t i = request->header_count; i-- > 0;) {
        const struct weir_header *header = &request->headers[i];
        if (sv_eq_nocase(header->name, SV("x-forwarded-for")) && !walk_hops(header->value, trusted, &left, ret))
            break;
    }
    return true;
}

sv host_part(sv raw)
{
    size_t end = raw.len;
    const char *bracket = raw.len > 0 && raw.ptr[0] == '[' ? memchr(raw.ptr, ']', raw.len) : NULL;
    const char *colon = raw.len > 0 ? memchr(raw.ptr, ':', raw.len) : NULL;
    if (bracket)
        end = (size_t)(bracket - raw.ptr) + 1;
    else if (colon && !memchr(colon + 1, ':', (size_t)(raw.ptr + raw.len - colon - 1)))
        end = (size_t)(colon - raw.ptr);
    if (end > 0 && raw.ptr[end - 1] == '.')
        end--;
    return sv_of(raw.ptr, end);
}

sv host_normalise(sv raw, char *out, size_t cap)
{
    sv part = host_part(raw);
    size_t end = part.len < cap ? part.len : cap, i = 0;
    while (i < end && ascii_lower(raw.ptr[i]) == raw.ptr[i])
        i++;
    if (i == end)
        return sv_of(raw.ptr, end);
    for (i = 0; i < end; i++)
        out[i] = ascii_lower(raw.ptr[i]);
    return sv_of(out, end);
}
