/* The conditions of a rule on single attributes, as requests are compared with them. */
#ifndef MATCH_CONDITION_H
#define MATCH_CONDITION_H

#include "match/client_address.h"
#include "match/match.h"
#include "match/pattern.h"

/* Texts in order: by length, then by bytes; none twice. */
struct names {
    const sv *sorted;
    size_t count;
};

/* Lives in `arena`. False: no memory. */
bool names_init(struct names *names, struct arena *arena, const sv *texts, size_t count);
/* ignore_case: `names` are in lower case, and `name` is compared without its case. */
bool names_contain(const struct names *names, sv name, bool ignore_case);

struct compiled_values {
    struct names equal;
    const struct pattern *patterns;
    size_t pattern_count;
    const struct networks *networks; /* of ATTR_IP */
};

struct compiled_condition {
    uint8_t attribute; /* enum attribute */
    uint8_t presence;  /* enum presence */
    bool ignore_case;
    bool has_is;
    bool is_one_text; /* nothing but one text that has to be equal */
    uint32_t space;   /* of its texts in the table: the attribute, or that of the entry that it names */
    sv name;
    struct compiled_values is;
    const struct compiled_values *is_not; /* NULL: none */
};

/* Lives in `arena`, and refers to `from`. False: no memory. */
bool condition_init(struct compiled_condition *condition, struct arena *arena, const struct rule_condition *from,
                    bool ignore_case);
/* The texts that the attribute must be one of are all that it is looked up by in a table. */
static inline bool condition_is_list(const struct compiled_condition *condition)
{
    return condition->has_is && condition->is.pattern_count == 0 && !condition->is.networks;
}
bool condition_holds_slowly(const struct compiled_condition *condition, struct facts *facts);
/* Most conditions are one text. */
static inline bool condition_holds(const struct compiled_condition *condition, struct facts *facts)
{
    enum attribute attribute = (enum attribute)condition->attribute;
    if (condition->is_one_text && attribute != ATTR_HEADER)
        return sv_eq(*condition->is.equal.sorted, facts_text(facts, attribute));
    return condition_holds_slowly(condition, facts);
}

#endif
