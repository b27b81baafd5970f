/* From rules to a ruleset, and from a request to the rules that apply to it.
 *
 * A ruleset is immutable and owns its rules. Matching allocates nothing. */
#ifndef MATCH_MATCH_H
#define MATCH_MATCH_H

#include "base/regex.h"
#include "rules/rules.h"

/* A longer path is cut here, counts as a match for every regex, and its rest is not looked at. */
enum { FACTS_PATH_MAX = 8192, FACTS_HOST_MAX = 255 };

/* What a request says, worked out once: the normalised path, the client's address, the host without its port. */
struct facts {
    const struct weir_request *request;
    sv user;                         /* the request's, or what the getter gave; set by the caller of facts_init */
    sv path;                         /* normalised; empty if the request has none */
    bool path_cut;
    sv host;                         /* in lower case, without a port */
    sv method;                       /* as sent: methods are case-sensitive */
    bool has_ip;
    struct ip ip;                    /* the client's address, whole: for CIDRs */
    sv ip_text;                      /* the subject of `by: ip`: IPv6 masked to settings.ipv6_prefix ("2001:db8:1:2::/64") */
    sv route;                        /* made on first use by facts_attribute */
    bool route_made;
    char path_buf[FACTS_PATH_MAX];
    char route_buf[FACTS_PATH_MAX];
    char host_buf[FACTS_HOST_MAX];
    char ip_buf[IP_TEXT_MAX + 4];
};

struct ruleset;

/* Takes over `rules` (freed with the ruleset, also on failure). */
int ruleset_new(struct ruleset **ret, struct rules *rules, struct weir_error *error);
void ruleset_free(struct ruleset *ruleset);
const struct rules *ruleset_rules(const struct ruleset *ruleset);
bool ruleset_wants_user(const struct ruleset *ruleset);          /* some rule counts by user or excepts one */

/* request and user must outlive facts. */
void facts_init(struct facts *facts, const struct ruleset *ruleset, const struct weir_request *request, sv user);
/* The value of one attribute; empty if the request has none. */
sv facts_attribute(struct facts *facts, const struct ruleset *ruleset, const struct rule_by *by);

/* Indexes of the rules that apply, rising (file order); at most `cap` are written, the number that apply is returned.
 * Applies: not off, not expired, all conditions hold, no exception, and every `by` attribute is there. */
size_t ruleset_match(const struct ruleset *ruleset, struct facts *facts, int64_t now_us, uint32_t *ret_rules, size_t cap);

/* The same for one rule, slowly, with the reason: for people, and to test the index against. */
enum match_reason {
    MATCH_YES,
    MATCH_OFF,
    MATCH_EXPIRED,
    MATCH_EVENT,
    MATCH_METHOD,
    MATCH_HOST,
    MATCH_PATH,
    MATCH_HEADER,        /* detail: the header's name */
    MATCH_EXCEPT_IP,
    MATCH_EXCEPT_USER,
    MATCH_NO_ATTRIBUTE,  /* detail: the attribute of `by` that is missing */
};
enum match_reason ruleset_explain(const struct ruleset *ruleset, size_t rule, struct facts *facts, int64_t now_us,
                                  sv *ret_detail);

/* Normalises a path as section "Paths" of docs/rules.md says. out has room for cap bytes; returns what was written. *ret_cut:
 * the path was longer than that. */
sv path_normalise(sv raw, bool ignore_case, char *out, size_t cap, bool *ret_cut);

/* The client's address as `trusted_proxies` has it: from ip, or from peer and X-Forwarded-For. False: there is none. */
bool client_address(const struct weir_request *request, const struct cidr *trusted, size_t trusted_count, struct ip *ret);

#endif
