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

/* ---- costs by unit ---- */

bool unit_name_valid(sv name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = ascii_lower(name.ptr[i]);
        if (!ascii_digit(c) && !(c >= 'a' && c <= 'z') && c != '_' && c != '-' && c != '.')
            return false;
    }
    return name.len > 0 && name.len <= WEIR_UNIT_MAX;
}

const char *request_add_cost(struct weir_request *request, struct cost_list *list, sv unit, uint64_t amount)
{
    if (!unit_name_valid(unit))
        return " is not the name of a unit: " UNIT_ALLOWED;
    bool requests = sv_eq(unit, SV(UNIT_REQUESTS)), twice = requests && list->requests;
    for (size_t i = 0; i < request->cost_count; i++)
        twice = twice || sv_eq(list->room[i].unit, unit);
    if (twice)
        return " is given twice";
    if (!requests && request->cost_count == WEIR_COSTS_MAX)
        return " is too many: a request has costs in at most 16 units besides requests";
    if (requests || !list->requests)
        request->cost = requests ? amount : 0;
    list->requests = list->requests || requests;
    if (!requests)
        list->room[request->cost_count++] = (struct weir_cost){ unit, amount };
    request->costs = list->room;
    return NULL;
}
