/* What a ruleset is made of. Private to src/match/. */
#ifndef MATCH_RULESET_H
#define MATCH_RULESET_H

#include "base/regex.h"
#include "match/client_address.h"
#include "match/match.h"
#include "match/prefix_index.h"
#include "match/template.h"
#include "match/text_table.h"
#include "match/tree.h"

enum {
    RULESET_METHODS_MAX = 32, /* different ones that have a bit; a rule with another compares texts */
    RULESET_MEMO_MAX = 16384, /* regexes whose result is kept; of more, the last are evaluated for each rule */
    RULESET_LISTS_MAX = 256,  /* that one request merges; with more, every rule is looked at */
};

/* Spaces of the table below TREE_SPACE. */
enum { SPACE_EVENT, SPACE_HOST };

/* What is to be looked at in a candidate. */
enum {
    CHECK_EVENT = 1 << 0,
    CHECK_METHOD = 1 << 1,
    CHECK_HOST = 1 << 2,
    CHECK_PATH = 1 << 3,
    CHECK_HEADER = 1 << 4,
    CHECK_EXCEPT_IP = 1 << 5,
    CHECK_EXCEPT_USER = 1 << 6,
    CHECK_METHOD_TEXT = 1 << 7, /* beside CHECK_METHOD */
};

struct compiled_path {
    bool is_regex;
    uint32_t regex; /* index */
    sv template;    /* canonical */
};

/* Strings in order: by length, then by bytes. */
struct names {
    sv *sorted;
    size_t count;
};

struct compiled_except {
    struct networks ips;
    struct names users;
};

/* A rule as matching looks at it; one cache line. */
struct compiled_rule {
    int64_t expires_us; /* the lowest for a rule that is off */
    uint8_t checks;     /* of a candidate that its index found */
    uint8_t all_checks;
    uint16_t by;      /* 1 << enum attribute */
    uint32_t methods; /* bits */
    const struct rule *rule;
    const struct compiled_path *paths;
    size_t path_count;
    const struct compiled_except *except; /* NULL: none */
    sv host;                              /* normalised */
};
_Static_assert(sizeof(struct compiled_rule) == 64, "one cache line");

/* A list of rules, rising: 0 is none, LIST_ONE | rule is that rule, anything else is where in the pool its length stands,
 * with the rules behind it. */
#define LIST_ONE (UINT32_C(1) << 31)

/* A header that enforced rules match or count by, and when the last of these expires. */
struct looked_header {
    sv name;
    int64_t until_us;
};

struct ruleset {
    struct rules *rules;
    struct arena arena;
    struct compiled_rule *compiled;

    struct table table; /* events, hosts, literal segments */
    struct tree tree;
    struct prefix_index begin; /* the same templates, for paths that are cut */
    uint32_t *pool;
    sv *methods; /* each one's number is its bit */
    size_t method_count;
    uint32_t always; /* list: rules that no index finds */
    bool has_events, has_hosts;

    struct regex **regexes;
    size_t regex_count;

    struct ids ids;
    sv *strip_prefixes;
    struct networks trusted;
    struct compiled_except except;
    bool has_except;
    bool wants_user;

    int64_t looked_until_us[ATTR_HEADER]; /* when the last enforced rule that looks at the attribute expires */
    struct looked_header *looked_headers; /* in order of their names */
    size_t looked_header_count;
};

bool compile_looks(struct ruleset *ruleset); /* false: no memory */
bool names_have(const struct names *names, sv name);
/* The rule's header conditions: each has a header of that name and value. Else *ret_missing is the first that has none. */
bool headers_hold(const struct rule_match *match, struct facts *facts, sv *ret_missing);

#endif
