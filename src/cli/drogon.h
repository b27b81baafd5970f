/* The part of a Drogon configuration that limits requests: the plugins Hodor and RealIpResolver.
 *
 * Drogon reads JSON (with comments and commas before a closing bracket, as jsoncpp does) and YAML. */
#ifndef CLI_DROGON_H
#define CLI_DROGON_H

#include "base/buf.h"
#include "limit/limit.h"
#include "rules/node.h"

enum { HODOR_SUBS_MAX = 10000, HODOR_PERIOD_MAX_S = 3650 * 86400 };

/* Paths that Hodor counts together, and their capacity in a time unit: in all, by address and by user. 0: no limit. */
struct hodor_group {
    const struct node *urls; /* a list of strings, or NULL: every path */
    uint32_t capacity, ip_capacity, user_capacity;
    int line;
    const char *skipped; /* why Hodor does not use it, or NULL */
};

struct hodor {
    enum limit_algorithm algorithm;
    uint32_t time_unit_s;
    struct hodor_group main;
    struct hodor_group *subs;
    size_t sub_count;
    bool use_real_ip_resolver;
    sv rejection_message;
    const struct node *trust_ips; /* a list, or NULL */
    const struct node *proxies;   /* RealIpResolver's trust_ips: a list, or NULL */
    bool has_resolver;
    sv from_header;             /* RealIpResolver's; empty: X-Forwarded-For */
    unsigned hodors, resolvers; /* how many of these plugins there are; the last one counts */
    struct arena arena;
    struct buf notes;  /* lines for the reader: what was left out, and why */
    struct buf errors; /* lines "LINE: what is wrong" */
    struct buf plain;  /* the text without comments, which the nodes point into */
};

/* False: ret->errors says why. Call hodor_done in any case. */
bool hodor_read(struct hodor *ret, sv text);
void hodor_done(struct hodor *hodor);

/* JSON without comments and without commas before a closing bracket; other text as it is. Lines stay where they are. */
void drogon_strip_comments(sv text, struct buf *out);

#endif
