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

/* One comparison after another, with lengths that the compiler knows: RESP calls this for each attribute of a request. */
enum attribute attribute_find(sv name)
{
#define FIND(NAME, word, ...)                                                           \
    if (name.len == sizeof #word - 1 && memcmp(name.ptr, #word, sizeof #word - 1) == 0) \
        return ATTR_##NAME;
    REQUEST_ATTRIBUTES(FIND)
    RULE_ATTRIBUTES(FIND)
    return ATTRIBUTE_COUNT;
}

bool text_is_address(sv text)
{
    return ip_parse_hop(text, &(struct ip){ 0 });
}
