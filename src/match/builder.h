/* A ruleset while it is made: between compile.c and compile_rule.c. */
#ifndef MATCH_BUILDER_H
#define MATCH_BUILDER_H

#include "base/err.h"
#include "match/ruleset.h"

/* Spaces of the builder's own table. */
enum { COUNT_TEXT, COUNT_TEMPLATE = COUNT_TEXT + OTHER_SPACES, COUNT_LITERAL, KNOWN_REGEX, KNOWN_KIND };

struct listed {
    uint32_t list, rule;
};

struct builder {
    struct ruleset *ruleset;
    struct table known;          /* how many rules have a text, a template; numbers of regexes and kinds */
    struct compiled_kind *kinds; /* of each rule */
    size_t regex_cap, rest_cap;
    uint32_t list_count;
    struct listed *listed;
    size_t listed_count, listed_cap;
    struct weir_error *error;
};

static inline int no_memory(struct builder *b)
{
    return err_set(b->error, WEIR_E_NO_MEMORY, "out of memory for a set of %zu rules", b->ruleset->rules->rule_count);
}

/* ---- compile_rule.c ---- */

bool compile_except(struct compiled_except *except, struct arena *arena, const struct rule_except *from);
/* The rest of a rule that has one of its own; until the next call. NULL: no memory. */
struct compiled_rest *own_rest(struct builder *b, struct compiled_rule *compiled);
int compile_rule(struct builder *b, uint32_t number);

#endif
