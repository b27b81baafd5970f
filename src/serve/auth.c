#include "serve/auth.h"

#include <stdio.h>

#include "base/ip.h"

/* The meaning of a header. */
enum part {
    PART_METHOD,
    PART_URI,
    PART_HOST,
    PART_USER,
    PARTS,
    PART_OWN_HOST, /* Host: of the client's request, if the gateway sends no other */
    PART_CLIENTS,  /* a header of the client: an attribute */
    PART_HOP,      /* for the connection between the gateway and weir */
};

static const struct {
    sv name; /* in lower case */
    enum part part;
} known[] = {
    { SV("x-forwarded-method"), PART_METHOD },
    { SV("x-original-method"), PART_METHOD },
    { SV("x-forwarded-uri"), PART_URI },
    { SV("x-original-uri"), PART_URI },
    { SV("x-forwarded-host"), PART_HOST },
    { SV("host"), PART_OWN_HOST },
    { SV("connection"), PART_HOP },
    { SV("content-length"), PART_HOP },
    { SV("keep-alive"), PART_HOP },
    { SV("proxy-authorization"), PART_HOP },
    { SV("proxy-connection"), PART_HOP },
    { SV("te"), PART_HOP },
    { SV("trailer"), PART_HOP },
    { SV("transfer-encoding"), PART_HOP },
    { SV("upgrade"), PART_HOP },
};

static enum part part_of(sv name, const struct auth_gateway *gateway)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sv_eq_nocase(name, known[i].name))
            return known[i].part;
    if (gateway->has_token && sv_eq_nocase(name, SV("authorization")))
        return PART_HOP;
    return gateway->user_header.len > 0 && sv_eq_nocase(name, gateway->user_header) ? PART_USER : PART_CLIENTS;
}

/* The first header that says something about each part. */
struct claims {
    const struct weir_header *by[PARTS];
    const struct weir_header *own_host;
};

static bool claim(const struct weir_header **by, const struct weir_header *header, char *why)
{
    const struct weir_header *before = *by;
    if (!before) {
        *by = header;
        return true;
    }
    if (sv_eq(sv_trim_ows(before->value), sv_trim_ows(header->value)))
        return true;
    snprintf(why, AUTH_WHY_MAX,
             "%.*s and %.*s contradict each other; the gateway must set one of them, and remove both "
             "from the requests of its clients",
             SV_FMT(before->name), SV_FMT(header->name));
    return false;
}

/* Sorts the headers: what they say about the request, those of the client, and those of the hop. An empty one says nothing;
 * but beside another one it may be the user of the gateway, who is nobody, or the one that a backend reads. */
static bool sort_headers(struct auth *ret, struct claims *claims, const struct auth_gateway *gateway,
                         const struct weir_header *headers, size_t count, char *why)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        enum part part = part_of(headers[i].name, gateway);
        bool empty = sv_trim_ows(headers[i].value).len == 0;
        if (part == PART_HOP || (empty && part != PART_USER && part != PART_CLIENTS))
            continue;
        if (part == PART_OWN_HOST && !claim(&claims->own_host, &headers[i], why))
            return false;
        if (part < PARTS && !claim(&claims->by[part], &headers[i], why))
            return false;
        if (part == PART_CLIENTS || part == PART_USER)
            ret->headers[kept++] = headers[i];
    }
    ret->request.headers = ret->headers;
    ret->request.header_count = kept;
    return true;
}

static sv value_of(const struct weir_header *header)
{
    return header ? sv_trim_ows(header->value) : sv_of("", 0);
}

static bool missing(char *why, const char *what, const char *names)
{
    snprintf(why, AUTH_WHY_MAX, "the gateway does not say which %s its client asked for: there is neither %s", what, names);
    return false;
}

/* The last address of X-Forwarded-For. A unix socket has no peer address, but every process that may open it is trusted, so
 * this address is true, and the walk over trusted proxies can begin with it. */
static sv last_hop(const struct weir_header *headers, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        sv rest = headers[i].value, last = sv_of("", 0);
        if (!sv_eq_nocase(headers[i].name, SV("x-forwarded-for")))
            continue;
        while (rest.len > 0) {
            sv entry = sv_trim(sv_cut(&rest, ','));
            last = entry.len > 0 ? entry : last;
        }
        if (last.len > 0)
            return last;
    }
    return sv_of("", 0);
}

bool auth_read(struct auth *ret, const struct auth_gateway *gateway, const struct weir_header *headers, size_t count,
               char why[AUTH_WHY_MAX])
{
    struct claims claims = { 0 };
    ret->request = (struct weir_request){ .cost = 1 };
    if (count > AUTH_HEADERS_MAX) {
        snprintf(why, AUTH_WHY_MAX, "there are more than %d headers", AUTH_HEADERS_MAX);
        return false;
    }
    if (!sort_headers(ret, &claims, gateway, headers, count, why))
        return false;
    if (!claims.by[PART_URI])
        return missing(why, "URI", "X-Forwarded-Uri nor X-Original-URI");
    if (!claims.by[PART_METHOD])
        return missing(why, "method", "X-Forwarded-Method nor X-Original-Method");
    ret->request.method = value_of(claims.by[PART_METHOD]);
    ret->request.path = value_of(claims.by[PART_URI]);
    ret->request.host = value_of(claims.by[PART_HOST] ? claims.by[PART_HOST] : claims.own_host);
    ret->request.user = value_of(claims.by[PART_USER]);
    ret->request.peer = gateway->peer.len > 0 ? gateway->peer : last_hop(headers, count);
    if (ip_parse_hop(ret->request.peer, &(struct ip){ 0 }))
        return true;
    snprintf(why, AUTH_WHY_MAX,
             "the gateway does not say who its client is: through a unix socket it has to send X-Forwarded-For, with the "
             "client's address at its end");
    return false;
}
