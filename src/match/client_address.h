/* The client's address and the host of a request; sets of networks. */
#ifndef MATCH_CLIENT_ADDRESS_H
#define MATCH_CLIENT_ADDRESS_H

#include "base/arena.h"
#include "base/ip.h"

/* Networks that do not overlap, sorted, each family apart: a search in thousands is a dozen comparisons. */
struct networks {
    const struct cidr *v4, *v6;
    size_t v4_count, v6_count;
};

/* Lives in `arena`. False: no memory. */
bool networks_init(struct networks *networks, struct arena *arena, const struct cidr *cidrs, size_t count);
bool networks_has(const struct networks *networks, const struct ip *ip);

/* The client's address: `ip` if the caller gave one; else `peer_bytes` or `peer`, or, where that is trusted, the rightmost
 * address of X-Forwarded-For that is not. *ret_given is the text that the caller gave for it, empty if it was found in a
 * header or given in binary. False: there is none. */
bool client_address(const struct weir_request *request, const struct networks *trusted, struct ip *ret, sv *ret_given);

/* The part of `raw` without port and final dot; an IPv6 address keeps its brackets. */
sv host_part(sv raw);
/* The same in lower case. Returns a part of `raw` if that is as it should be, else what it wrote to `out`; more than `cap`
 * bytes are cut. */
sv host_normalise(sv raw, char *out, size_t cap);

#endif
