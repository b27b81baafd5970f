/* Any headers from a gateway. The first byte holds switches, each further line is "Name: value". What is read is compared
 * with what a slow reading of each part by itself says. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ip.h"
#include "serve/auth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LOCAL = 1, HAS_TOKEN = 2, USER_HEADER = 4, LINES_MAX = AUTH_HEADERS_MAX + 2 };

static void require(bool holds, const char *what, sv text)
{
    if (holds)
        return;
    fprintf(stderr, "%s:\n%.*s\n", what, SV_FMT(text));
    abort();
}

struct lines {
    struct weir_header headers[LINES_MAX];
    size_t count;
};

static void split(sv text, struct lines *ret)
{
    ret->count = 0;
    while (text.len > 0 && ret->count < LINES_MAX) {
        sv value = sv_cut(&text, '\n'), name = sv_cut(&value, ':');
        ret->headers[ret->count++] = (struct weir_header){ name, sv_trim(value) };
    }
}

/* How many different values headers of these names have; *ret is one of them. An empty one counts only if `empty` does. */
static unsigned values(const struct lines *lines, sv a, sv b, bool empty, sv *ret)
{
    unsigned n = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const struct weir_header *h = &lines->headers[i];
        if ((h->value.len == 0 && !empty) || (!sv_eq_nocase(h->name, a) && !sv_eq_nocase(h->name, b)))
            continue;
        if (n == 0 || !sv_eq(*ret, h->value))
            n++;
        *ret = h->value;
    }
    return n;
}

/* The last entry of the last X-Forwarded-For that has one. */
static bool has_last_hop(const struct lines *lines, sv *ret)
{
    bool has = false;
    for (size_t i = 0; i < lines->count; i++) {
        sv rest = lines->headers[i].value;
        while (sv_eq_nocase(lines->headers[i].name, SV("x-forwarded-for")) && rest.len > 0) {
            sv entry = sv_trim(sv_cut(&rest, ','));
            if (entry.len > 0) {
                *ret = entry;
                has = true;
            }
        }
    }
    return has && ip_parse_hop(*ret, &(struct ip){ 0 });
}

static bool kept(const struct weir_request *r, const struct weir_header *header)
{
    for (size_t i = 0; i < r->header_count; i++)
        if (sv_eq(r->headers[i].name, header->name) && sv_eq(r->headers[i].value, header->value))
            return true;
    return false;
}

/* No secret of the gateway and nothing of this hop becomes an attribute; what is the client's does. */
static void check_kept(const struct lines *lines, const struct weir_request *r, bool has_token, sv text)
{
    for (size_t i = 0; i < lines->count; i++) {
        const struct weir_header *h = &lines->headers[i];
        if (sv_eq_nocase(h->name, SV("authorization")))
            require(kept(r, h) == !has_token, "Authorization", text);
        if (sv_eq_nocase(h->name, SV("connection")) || sv_eq_nocase(h->name, SV("host")))
            require(!kept(r, h), "a header of the hop", text);
        if (sv_eq_nocase(h->name, SV("x-forwarded-for")) || sv_eq_nocase(h->name, SV("cookie")))
            require(kept(r, h), "a header of the client", text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    sv text = sv_of((const char *)data + 1, size - 1);
    bool local = data[0] & LOCAL, has_token = data[0] & HAS_TOKEN;
    sv user_header = data[0] & USER_HEADER ? SV("X-User") : SV("");
    struct auth_gateway gateway = { local ? SV("") : SV("10.0.0.1"), user_header, has_token };
    struct lines lines;
    struct auth auth;
    char why[AUTH_WHY_MAX] = "";
    split(text, &lines);
    bool read = auth_read(&auth, &gateway, lines.headers, lines.count, why);
    sv uri = SV(""), method = SV(""), host = SV(""), own_host = SV(""), user = SV(""), peer = SV("10.0.0.1");
    bool good = lines.count <= AUTH_HEADERS_MAX;
    good = good && values(&lines, SV("x-forwarded-uri"), SV("x-original-uri"), false, &uri) == 1;
    good = good && values(&lines, SV("x-forwarded-method"), SV("x-original-method"), false, &method) == 1;
    good = good && values(&lines, SV("x-forwarded-host"), SV("x-forwarded-host"), false, &host) <= 1;
    good = good && values(&lines, SV("host"), SV("host"), false, &own_host) <= 1;
    good = good && (user_header.len == 0 || values(&lines, user_header, user_header, true, &user) <= 1);
    good = good && (!local || has_last_hop(&lines, &peer));
    require(read == good, read ? "taken" : why, text);
    if (!read)
        return 0;
    require(sv_eq(auth.request.path, uri) && sv_eq(auth.request.method, method), "another URI or method", text);
    require(sv_eq(auth.request.user, user) && sv_eq(auth.request.peer, peer), "another user or peer", text);
    require(host.len == 0 || sv_eq(auth.request.host, host), "another host", text);
    check_kept(&lines, &auth.request, has_token, text);
    return 0;
}
