/* Prefixes and globs. Comparing takes time in proportion to the text, whatever the pattern is. */
#ifndef MATCH_PATTERN_H
#define MATCH_PATTERN_H

#include "base/arena.h"
#include "rules/rules.h"

struct pattern {
    sv text;              /* in lower case if case is ignored */
    const uint16_t *back; /* of a glob, for each byte; see pattern.c */
};
_Static_assert(RULE_TEXT_MAX <= UINT16_MAX, "an index into a text fits");

/* Makes a VALUE_PREFIX or VALUE_GLOB ready. Lives in `arena`. False: no memory. */
bool pattern_init(struct pattern *pattern, struct arena *arena, const struct rule_value *value, bool ignore_case);
/* ignore_case: as it was given to pattern_init. */
bool pattern_matches(const struct pattern *pattern, sv text, bool ignore_case);

#endif
