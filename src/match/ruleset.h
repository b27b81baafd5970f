/* The parts of a ruleset. Private to src/match/. */
#ifndef MATCH_RULESET_H
#define MATCH_RULESET_H

#include "base/regex.h"
#include "match/condition.h"
#include "match/literal_index.h"
#include "match/match.h"
#include "match/prefix_index.h"
#include "match/template.h"
#include "match/text_table.h"
#include "match/tree.h"

enum {
    RULESET_METHODS_MAX = 32, /* different ones that have a bit; a rule with another compares texts */
    RULESET_MEMO_MAX = 16384, /* regexes whose result is kept; of more, the last are evaluated for each rule */
    RULESET_LISTS_MAX = 256,  /* that one request merges; with more, every rule is looked at */
    REGEX_INDEX_MIN = 4,      /* regexes; fewer are run sooner than a path is searched for what they need */
};

/* Bits of attributes, and of what else is to be looked at in a candidate. */
#define BIT(attribute) (UINT32_C(1) << (attribute))
enum {
    CHECK_CONDITIONS = (1 << ATTRIBUTE_COUNT) - 1, /* the bits of all attributes */
    CHECK_EXCEPT = 1 << ATTRIBUTE_COUNT,
    CHECK_METHODS = CHECK_EXCEPT << 1,  /* compiled_rest.methods, in place of the condition on ATTR_METHOD */
    CHECK_PATHS = CHECK_METHODS << 1,   /* one of the paths matches */
    CHECK_NOT_PATHS = CHECK_PATHS << 1, /* it has `not_paths`: in one reading a path matches, and none of these */
    /* The request brings a limit, or none; in place of a condition on ATTR_DESCRIPTOR_LIMIT that says only this, as most
     * rules for Envoy do. */
    CHECK_BRINGS = CHECK_NOT_PATHS << 1,
    CHECK_BRINGS_NONE = CHECK_BRINGS << 1,
    CHECK_EXPIRES = CHECK_BRINGS_NONE << 1,
    CHECK_OFF = CHECK_EXPIRES << 1,  /* the rule is off, and in no index */
    CHECK_REPEATED = CHECK_OFF << 1, /* it looks at headers: the request must not repeat them with different values */
};
_Static_assert(CHECK_REPEATED > 0, "a bit for each");

/* Spaces of the table beside those of the attributes: names of headers, each with the list of the rules that want the
 * header to be there, and of those that are found by its value. */
enum { NAMED_SPACE = ATTRIBUTE_COUNT, VALUED_SPACE, OTHER_SPACES };
_Static_assert((int)OTHER_SPACES <= (int)TREE_SPACE, "the table has a space for each attribute, and an int a bit");

/* The table numbers the entries of descriptors that rules match, under ATTR_DESCRIPTOR. The values of entry n are in the
 * space ENTRY_SPACE + n, which no node of the tree has. Headers have numbers under ATTR_HEADER: the values of header n are
 * in HEADER_SPACE + 2n, and those in lower case, of rules that ignore case, in the next one. Networks are in NETWORK_SPACE
 * + the length of their prefix. */
#define ENTRY_SPACE TREE_SPACES_END
#define HEADER_SPACE (UINT32_C(3) << 30)
#define NETWORK_SPACE (UINT32_MAX - 256)

struct compiled_except {
    struct networks ips;
    struct names users;
};

/* The checks that a rule needs: bits of attributes, and CHECK_…. A set has few different kinds, which stay in the cache. */
struct compiled_kind {
    uint32_t checks; /* if its index found it */
    uint32_t all;    /* if not */
    uint32_t by;     /* bits of attributes that have to be there */
};
_Static_assert(sizeof(struct compiled_kind) <= TABLE_INLINE, "compile_kinds() finds equal ones in a table");

/* The parts that few rules have: conditions, exceptions, an expiry, and paths that are not written as they are compiled.
 * All other rules share the first one, in which everything is empty. */
struct compiled_rest {
    int64_t expires_us; /* CHECK_EXPIRES */
    const struct compiled_condition *conditions;
    const struct compiled_except *except; /* CHECK_EXCEPT */
    uint32_t condition_count;
    uint32_t methods;    /* bits: CHECK_METHODS */
    uint32_t first_path; /* number in `paths`, or PATHS_AS_WRITTEN; those that must not match follow */
};

/* The rule has its paths in canonical form, as nearly all templates are written: they are not kept twice. */
#define PATHS_AS_WRITTEN UINT32_MAX

/* A rule as matching looks at it: four of them are a cache line. Rulesets that share indexes share it: what matching reads
 * of `rule` is the same in the rules of all of them. */
struct compiled_rule {
    const struct rule *rule;
    uint32_t kind, rest; /* numbers in the ruleset */
};
_Static_assert(sizeof(struct compiled_rule) == 16, "four in a cache line");

/* A header that rules match, count by or have plans of, and when the last enforced one of these expires; INT64_MIN if all
 * of them are in shadow mode. */
struct looked_header {
    sv name;
    int64_t until_us;
};

/* Which attributes rules look at: see used_attributes.c. */
struct looks {
    bool user;                         /* some rule that is not off, or an exception for all rules */
    uint32_t attributes;               /* bits of those but headers that some rule which is not off looks at */
    int64_t until_us[ATTRIBUTE_COUNT]; /* when the last enforced rule that looks at the attribute expires */
    struct looked_header *headers;     /* in order of their names */
    size_t header_count;
};

struct ruleset {
    struct rules *rules;
    struct rule_lines lines; /* `compiled`, and what ruleset_load_beside() says */

    /* What differs from the indexes, of rules that follow others: see follow.c. */
    uint32_t *numbers; /* of each rule of the indexes: its number in `rules`; TABLE_NONE: it is not there. NULL: the same */
    struct ruleset *added; /* the rules that the indexes lack; NULL: none */
    uint32_t
        *places; /* of each rule in `rules`, if there are `numbers`: where it is in the indexes, or ADDED | in `added` */

    struct looks looks; /* its headers may be those of `base` */

    /* Everything below is the same in rulesets that share their indexes, and belongs to the first of them. */
    struct ruleset *base; /* the first one; NULL: this one */
    unsigned sharers;     /* of a first one: further rulesets that use it; atomic */
    struct arena arena;

    struct compiled_rule *compiled;
    size_t compiled_count;
    struct compiled_kind *kinds;
    struct compiled_rest *rests;
    uint32_t rest_count;
    struct table table; /* texts that rules match, by their attribute; literal segments of paths */
    struct tree tree;
    struct compiled_path *paths; /* of the other rules, in their order */
    uint32_t path_count;
    struct prefix_index begin; /* the literals of the tree, for paths that are cut */
    uint32_t *pool;
    sv *methods; /* each one's number is its bit */
    size_t method_count;
    uint32_t always;  /* list: rules that no index finds */
    uint32_t indexed; /* bits of attributes whose texts find rules in the table, but for entries */
    enum {
        FINDS_PATHS = 1,    /* templates in the tree find rules */
        FINDS_ENTRIES = 2,  /* values of entries do */
        FINDS_HEADERS = 4,  /* names and values of headers do */
        FINDS_NETWORKS = 8, /* networks of the address do */
        FINDS_REGEXES = 16, /* literals that regexes need do */
    } finds;                /* besides the texts of `indexed` */
    uint32_t entry_count;   /* numbered entries */
    uint32_t header_count;
    sv *header_names;                       /* by number */
    uint64_t header_lengths;                /* bit n: some name has this length modulo 64 */
    uint64_t network_lengths[128 / 64 + 1]; /* bit n: some network has a prefix of n bits */
    bool folds;                             /* some value of a header is found without its case */
    struct literal_index literals;
    uint32_t with_regex; /* list: the rules that literals find, for paths that are cut */

    struct regex **regexes;
    size_t regex_count;

    struct ids ids;
    sv *strip_prefixes;
    struct networks trusted;
    struct compiled_except except;
    bool has_except;
};

#define ADDED (UINT32_C(1) << 31)
_Static_assert(RULES_MAX < ADDED, "places");

/* A rule, and the ruleset whose indexes and paths are meant in it. */
struct placed_rule {
    const struct ruleset *in;
    const struct compiled_rule *rule;
};
static inline struct placed_rule ruleset_place(const struct ruleset *ruleset, size_t rule)
{
    uint32_t place = ruleset->numbers ? ruleset->places[rule] : (uint32_t)rule;
    const struct ruleset *in = place & ADDED ? ruleset->added : ruleset;
    return (struct placed_rule){ in, &in->compiled[place & ~ADDED] };
}

static inline const struct compiled_rest *compiled_rest(const struct ruleset *ruleset, const struct compiled_rule *rule)
{
    return &ruleset->rests[rule->rest];
}

/* Path i of a rule; those that must not match follow the others. */
static inline struct compiled_path compiled_path(const struct ruleset *ruleset, const struct compiled_rule *rule, size_t i)
{
    uint32_t first = compiled_rest(ruleset, rule)->first_path;
    if (first != PATHS_AS_WRITTEN)
        return ruleset->paths[first + i];
    struct rule_path path = rule_path(&rule->rule->match, i);
    return (struct compiled_path){ .template = path.text, .length = path.length };
}

/* The list of an entry of a descriptor with this value; TABLE_NONE: there is none. */
uint32_t entry_list(const struct ruleset *ruleset, sv name, sv value);
bool compile_looks(struct ruleset *ruleset); /* false: no memory */
/* As ruleset_follow(), where at most `most` rules may be missing in the indexes, or be in them and have gone. */
int ruleset_follow_most(struct ruleset **ret, struct ruleset *before, struct rules *rules, size_t most, uint32_t **ret_was,
                        struct weir_error *error);

#endif
