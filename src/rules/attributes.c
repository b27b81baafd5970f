#include "rules/attributes.h"

#include "base/ip.h"

/* request_get() computes the place of a field from its number. */
#define IN_ORDER(NAME, field, ...)                                                   \
    _Static_assert(offsetof(struct weir_request, field) == ATTR_##NAME * sizeof(sv), \
                   "attributes.h has the order of struct weir_request");
REQUEST_ATTRIBUTES(IN_ORDER)
_Static_assert(offsetof(struct weir_request, headers) == REQUEST_ATTRIBUTE_COUNT * sizeof(sv),
               "each attribute of struct weir_request has a line in attributes.h");

#define REQUEST_INFO(NAME, field, uses, argument, help) { { #field, sizeof #field - 1 }, uses },
#define RULE_INFO(NAME, word, uses) { { #word, sizeof #word - 1 }, uses },
const struct attribute_info attribute_table[] = { REQUEST_ATTRIBUTES(REQUEST_INFO) RULE_ATTRIBUTES(RULE_INFO) };

enum attribute attribute_find(sv name)
{
    enum attribute i = 0;
    while (i < ATTRIBUTE_COUNT && !sv_eq(name, attribute_table[i].name))
        i++;
    return i;
}

bool attribute_accepts(enum attribute attribute, sv text)
{
    return !(attribute_table[attribute].uses & IS_ADDRESS) || text.len == 0 || ip_parse_hop(text, &(struct ip){ 0 });
}
