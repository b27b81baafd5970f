/* From rules to a ruleset, and from a request to the rules that apply to it.
 *
 * A ruleset is immutable and owns its rules. Matching allocates nothing and may be done by any number of threads at once.
 * src/match/README.md says how paths are normalised and how rules are found. */
#ifndef MATCH_MATCH_H
#define MATCH_MATCH_H

#include "base/ip.h"
#include "match/path.h"
#include "rules/rules.h"

struct ruleset;

/* Takes over `rules` (freed with the ruleset, also on failure). */
int ruleset_new(struct ruleset **ret, struct rules *rules, struct weir_error *error);
/* The same for rules that follow those of `before` (NULL: none), which only the caller's thread uses or frees meanwhile. If
 * few rules differ, the new one shares the indexes of `before`: see follow.c. *ret_was (malloc): for each rule its number
 * in `before` if it was there, or was a rule that matches the same requests; else UINT32_MAX. The numbers rise. NULL: too
 * many rules differ. */
int ruleset_follow(struct ruleset **ret, struct ruleset *before, struct rules *rules, uint32_t **ret_was,
                   struct weir_error *error);
/* Whether the two share their indexes. */
bool ruleset_is_like(const struct ruleset *a, const struct ruleset *b);
/* Matching starts loading the member of this array that belongs to a rule when it knows that the rule may apply. `bytes`:
 * of a member. Before anything is matched; the array has to outlive the ruleset's use. */
void ruleset_load_beside(struct ruleset *ruleset, const void *array, size_t bytes);
void ruleset_free(struct ruleset *ruleset);
const struct rules *ruleset_rules(const struct ruleset *ruleset);
bool ruleset_trusts(const struct ruleset *ruleset, sv address); /* settings.trusted_proxies has it */
bool ruleset_wants_user(const struct ruleset *ruleset);         /* some rule that is not off looks at the user */
/* Some rule that can refuse at that time matches or counts by the attribute, has plans of it, or excepts a user. `header`
 * is its name in lower case, for ATTR_HEADER. Whatever looks at a part of the descriptor looks at ATTR_DESCRIPTOR. */
bool ruleset_looks_at(const struct ruleset *ruleset, enum attribute attribute, sv header, int64_t now_us);
/* The same for every rule that is not off, whatever its mode, at any time. If proxies are trusted, whatever looks at the
 * client's address looks at X-Forwarded-For. */
bool ruleset_ever_looks_at(const struct ruleset *ruleset, enum attribute attribute, sv header);
/* There is a header for which that is so. */
bool ruleset_looks_at_headers(const struct ruleset *ruleset);
/* The names of all headers that rules which are not off look at, in lower case and in order. */
size_t ruleset_header_count(const struct ruleset *ruleset);
sv ruleset_header(const struct ruleset *ruleset, size_t i);

enum { FACTS_HOST_MAX = 255 };
enum { FACTS_PATH = 1 }; /* in facts.made: the path */

/* A header of the request. */
struct header_fact {
    sv name;
    sv value;
    bool differs; /* the request repeats it with different values */
};
enum { FACTS_HEADERS = 4 };

/* The values of a request that rules use. Each is computed at its first use: call the functions below, do not read the
 * fields. facts_init does not touch most of these 54 KB, so the structure belongs on the stack. One thread at a time. */
struct facts {
    const struct ruleset *ruleset;
    const struct weir_request *request;
    sv user;       /* the one of the request, or of the getter */
    sv repeated;   /* ruleset_match: refuse the request, since it repeats this header with different values */
    unsigned made; /* which of the following are */
    bool path_cut;
    bool has_ip;
    uint8_t reading, reading_count; /* the one in use, and how many there are; 0: there is no path */
    uint8_t path_notes;             /* of path_normalise */
    uint8_t text_count;
    bool descriptor_plain;
    sv path; /* of the reading in use, as are path_cut, segments and route */
    sv host;
    sv ip_text;
    sv ip_given; /* what the caller said it is */
    sv route;
    struct header_fact headers[FACTS_HEADERS]; /* the last ones that were looked up */
    unsigned header_count;                     /* that were looked up in all */
    struct ip ip;
    struct path_segments segments;
    char ip_buf[IP_TEXT_MAX + 4];
    char host_buf[FACTS_HOST_MAX];
    struct path_reading readings[PATH_READINGS_MAX]; /* where there are several */
    char route_buf[PATH_BYTES_MAX];
    char path_buf[PATH_POOL_BYTES];
    struct path_numbers numbers; /* of readings */
    struct path_text texts[PATH_TEXTS_MAX];
    char text_buf[PATH_POOL_BYTES];
    sv descriptor, descriptor_keys, descriptor_limit;
    char descriptor_buf[DESCRIPTOR_TEXT_MAX];
    char descriptor_keys_buf[DESCRIPTOR_TEXT_MAX];
    char descriptor_limit_buf[64];
};

/* ruleset, request and the bytes of user (the request's own, or what the getter gave) must outlive facts. Blanks and tabs
 * at the ends of a header, the host, the method and the address are not part of it, whoever asks: most servers drop them,
 * so they must not make a subject. User, key, event, domain and the entries of a descriptor count as they are given. */
void facts_init(struct facts *facts, const struct ruleset *ruleset, const struct weir_request *request, sv user);

/* From now on facts_path and facts_route are those of this reading. */
void facts_select_reading(struct facts *facts, size_t reading);
/* Normalised, without the prefix that settings.strip_prefixes takes off; empty if the request has none. */
sv facts_path(struct facts *facts);
/* How many readings the path has that differ; 0: the request has no path. The first is in use unless facts_select_reading
 * says otherwise. */
static inline size_t facts_readings(struct facts *facts)
{
    if (!(facts->made & FACTS_PATH))
        facts_path(facts);
    return facts->reading_count;
}
/* How many texts the path has, on which regexes are tried besides its readings: facts->texts. */
size_t facts_make_texts(struct facts *facts);
static inline size_t facts_texts(struct facts *facts)
{
    return facts_readings(facts) > 0 && facts->path_notes & PATH_MAY_HAVE_TEXTS ? facts_make_texts(facts) : 0;
}
/* The path as one server has it: templates look at the reading, regexes at the text. */
struct path_view {
    struct path_reading reading, text;
    size_t number; /* of the reading */
    size_t parts;  /* how many such texts share the bound of a regex */
};
/* Returns how many there are: each reading by itself, then each text; 0: the request has no path. */
size_t facts_views(struct facts *facts);
struct path_view facts_view(const struct facts *facts, size_t i);
/* facts_path was too long and is cut: every regex counts as a match, and every template that could match. */
bool facts_path_cut(struct facts *facts);
/* The path with every id segment as `#`, as far as PATH_SEGMENTS_MAX segments. */
sv facts_route(struct facts *facts);
sv facts_host(struct facts *facts);             /* in lower case, without port and final dot */
sv facts_whole_host(const struct facts *facts); /* without port and final dot; not in lower case, and never cut */
const struct ip *facts_ip(struct facts *facts); /* the client's address, whole; NULL: there is none */
/* The subject of `by: ip`: IPv6 by settings.ipv6_prefix ("2001:db8:1:2::/64"). */
sv facts_ip_text(struct facts *facts);
sv facts_method(const struct facts *facts);
/* The value of a header: of several the first that is not empty, or the last where settings.repeated_headers says so. */
sv facts_header(struct facts *facts, sv lower_case_name);
/* The request has the header more than once, with values that differ; an empty one differs from others. */
bool facts_header_differs(struct facts *facts, sv lower_case_name);
/* The first header that the rule matches, counts by or has plans of and that differs, where settings.repeated_headers
 * refuses that; else empty. */
sv facts_repeated(struct facts *facts, const struct rule *rule);
bool facts_descriptor_plain(struct facts *facts); /* see descriptor_is_plain() */
/* The value of an entry of the descriptor, see descriptor_find(); ptr is NULL if there is no such entry. */
sv facts_entry(struct facts *facts, sv name);
/* The value of one attribute, as rules see it; see fact_is_there(). */
sv facts_attribute(struct facts *facts, const struct rule_by *by);
/* Whether the request has the attribute whose value this is. */
static inline bool fact_is_there(const struct rule_by *by, sv value)
{
    return value.len > 0 || (by_may_be_empty(by) && value.ptr);
}
/* The attributes that facts_attribute prepares; the others are as they are given. */
enum {
    FACTS_PREPARED = 1 << ATTR_METHOD | 1 << ATTR_PATH | 1 << ATTR_HOST | 1 << ATTR_IP | 1 << ATTR_USER | 1 << ATTR_ROUTE |
                     1 << ATTR_DESCRIPTOR_KEYS | 1 << ATTR_DESCRIPTOR_LIMIT | 1 << ATTR_DESCRIPTOR
};
/* facts_attribute for an attribute that has no name. */
static inline sv facts_text(struct facts *facts, enum attribute attribute)
{
    return FACTS_PREPARED >> attribute & 1 ? facts_attribute(facts, &(struct rule_by){ .attribute = attribute })
                                           : request_get(facts->request, attribute);
}

/* Indexes of the rules that apply, rising (file order); the number that apply is returned. At most `cap` are written; if
 * more apply, these may be any of them.
 * Applies: not off, not expired, all conditions hold, no exception, and every `by` attribute is there. A rule for which the
 * request repeats a header (facts_repeated) does not apply; an enforced one sets facts->repeated. */
size_t ruleset_match(const struct ruleset *ruleset, struct facts *facts, int64_t now_us, uint32_t *ret_rules, size_t cap);

/* The same for one rule, slowly and by other code, with the reason: for people, and to test the index against. */
enum match_reason {
    MATCH_YES,
    MATCH_OFF,
    MATCH_EXPIRED,
    MATCH_EXCEPT_IP,    /* detail: "settings" if it is excepted there, for all rules */
    MATCH_EXCEPT_USER,  /* detail: the same */
    MATCH_NO_ATTRIBUTE, /* detail: the attribute of `by` that is missing; of a header or entry its name */
    MATCH_REPEATED,     /* all else holds; detail: facts_repeated */
    MATCH_REPLACED,     /* all holds, but another rule that applies replaces it; detail: its id. Only src/engine knows */
    MATCH_NO_LIMIT,     /* all holds, but its limit is given, and the request brings none. Only src/engine says it */
    MATCH_UNEQUAL,      /* + enum attribute: its condition does not hold; detail: of a header or entry its name */
};
/* MATCH_YES leaves the first reading in use in which the rule matches the path, anything else the first of all. */
enum match_reason ruleset_explain(const struct ruleset *ruleset, size_t rule, struct facts *facts, int64_t now_us,
                                  sv *ret_detail);
/* Whether the reading in use satisfies the rule's condition on the path; true if it has none. */
bool ruleset_reads(const struct ruleset *ruleset, size_t rule, struct facts *facts);
/* Uses the first reading in which it does. */
void facts_select_first_match(struct facts *facts, size_t rule);

#endif
