/* A subject of a rule that a person or a program names: the rule's id, and each value that the rule counts by. */
#ifndef ENGINE_NAMED_H
#define ENGINE_NAMED_H

#include "engine/bound.h"

struct subject_name {
    const char *rule;
    const struct weir_str *by; /* in the order of the rule's `by` */
    size_t by_count;
};

struct named {
    const struct bound_rule *rule;
    sv values[RULE_BY_MAX]; /* as they are counted */
    uint64_t hash;          /* of them */
};

/* Finds the rule, and writes the values as facts would (networks, case, routes); copies of them are in `arena`. Returns
 * WEIR_E_UNKNOWN_RULE, or WEIR_E_INVALID if the values are not those that the rule counts by. */
int named_find(const struct bound *bound, const struct subject_name *name, struct arena *arena, struct named *ret,
               struct weir_error *error);

#endif
