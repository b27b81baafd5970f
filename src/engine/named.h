/* A subject of a rule that a person or a program names: the rule's id, and each value that the rule counts by. */
#ifndef ENGINE_NAMED_H
#define ENGINE_NAMED_H

#include "engine/bound.h"

struct subject_name {
    const char *rule;
    const struct weir_str *by; /* in the order of the rule's `by` */
    size_t by_count;
};

struct weir;

struct named {
    const struct bound *bound; /* the rules in force */
    const struct bound_rule *rule;
    sv values[RULE_BY_MAX]; /* as they are counted */
    uint64_t hash;          /* of them */
    struct arena arena;     /* has the values */
};

/* The lengths of the windows that requests bring are not known: those that Envoy has names for are tried. */
enum { GIVEN_LENGTHS = 7 };
extern const int64_t given_lengths_us[GIVEN_LENGTHS];

/* Takes the rules in force, finds the rule, and writes the values as facts would (networks, case, routes). Returns 0: then
 * named_end is to follow, and until then the thread must not take the rules again. Or WEIR_E_UNKNOWN_RULE, WEIR_E_INVALID
 * if the values are not those that the rule counts by, or WEIR_E_NO_MEMORY. */
int named_begin(struct weir *weir, const struct subject_name *name, struct named *ret, struct weir_error *error);
void named_end(struct named *named);

#endif
