/* The attributes of a request: the one place that lists them.
 *
 * Rules (`match`, `by`), HTTP, RESP, the command line, the logs that simulate reads, explain, metrics and nginx follow this
 * table. A new attribute is a line here and a field in struct weir_request: see "Adding an attribute" in CONTRIBUTING.md.
 */
#ifndef RULES_ATTRIBUTES_H
#define RULES_ATTRIBUTES_H

#include "base/sv.h"

/* How an attribute can be used. */
enum attribute_use {
    IN_MATCH = 1,   /* rules match it: as a text, unless read_match.c treats it specially */
    IN_BY = 2,      /* rules count by it. They see the value as it is given, unless facts_attribute() prepares it */
    IS_ADDRESS = 4, /* callers have to give an IPv4 or IPv6 address */
};

/* clang-format off */

/* The attributes that callers set: one line for each, in the order of the fields of struct weir_request. Rules do not see
 * the peer: weir finds the client's ip with it. */
#define REQUEST_ATTRIBUTES(X)                                                                                           \
    /* name   field   uses                argument and help of the option --field */                                    \
    X(METHOD, method, IN_MATCH | IN_BY,   "NAME",    "the HTTP method")                                                 \
    X(PATH,   path,   IN_MATCH | IN_BY,   "PATH",    "the path as the client sent it; a query may follow")              \
    X(HOST,   host,   IN_MATCH | IN_BY,   "NAME",    "the host of the request")                                         \
    X(IP,     ip,     IN_MATCH | IN_BY | IS_ADDRESS, "ADDRESS", "the client's address")                                 \
    X(PEER,   peer,   IS_ADDRESS,         "ADDRESS", "address of the connection; the client's address is then found "   \
                                                     "with X-Forwarded-For and trusted_proxies")                        \
    X(USER,   user,   IN_MATCH | IN_BY,   "ID",      "the user")                                                        \
    X(EVENT,  event,  IN_MATCH | IN_BY,   "NAME",    "the business action, such as ocr")                                \
    X(KEY,    key,    IN_MATCH | IN_BY,   "TEXT",    "whom or what the action is counted for")                          \
    X(DOMAIN, domain, IN_MATCH | IN_BY,   "NAME",    "the domain of Envoy's rate limit filter")                         \
    /* A new attribute comes last. */

/* The attributes that only rules have. They are not fields: the route comes from the path, the next two from the descriptor.
 * The last two have a name, which is part of the attribute (`by: header:NAME`, `match: { header: { NAME: value } }`).
 * `descriptor` without a name is all entries together. */
#define RULE_ATTRIBUTES(X)                                    \
    /* name              word              uses */            \
    X(ROUTE,             route,            IN_BY)             \
    X(DESCRIPTOR_KEYS,   descriptor_keys,  IN_MATCH | IN_BY)  \
    X(DESCRIPTOR_LIMIT,  descriptor_limit, IN_MATCH)          \
    X(HEADER,            header,           IN_MATCH | IN_BY)  \
    X(DESCRIPTOR,        descriptor,       IN_MATCH | IN_BY)

/* clang-format on */

#define ATTRIBUTE_ENUM(NAME, ...) ATTR_##NAME,
enum attribute {
    REQUEST_ATTRIBUTES(ATTRIBUTE_ENUM) RULE_ATTRIBUTES(ATTRIBUTE_ENUM) ATTRIBUTE_COUNT,
    REQUEST_ATTRIBUTE_COUNT = ATTR_ROUTE,
};

/* "method, path, host, ip, peer, user, event, key, domain, ": the beginning of a list for people. */
#define ATTRIBUTE_LISTED(NAME, field, ...) #field ", "
#define REQUEST_ATTRIBUTE_NAMES REQUEST_ATTRIBUTES(ATTRIBUTE_LISTED)

struct attribute_info {
    sv name;       /* ends in NUL */
    unsigned uses; /* enum attribute_use */
};

extern const struct attribute_info attribute_table[ATTRIBUTE_COUNT];

/* Rules name a part of it: a header, an entry of the descriptor. */
static inline bool attribute_has_name(enum attribute attribute)
{
    return attribute == ATTR_HEADER || attribute == ATTR_DESCRIPTOR;
}

/* Returns the attribute with this name; ATTRIBUTE_COUNT if there is none. */
enum attribute attribute_find(sv name);

/* Returns false for text that is not an address where the attribute is one: it would quietly keep every rule by ip from
 * applying. */
bool text_is_address(sv text);
static inline bool attribute_accepts(enum attribute attribute, sv text)
{
    return !(attribute_table[attribute].uses & IS_ADDRESS) || text.len == 0 || text_is_address(text);
}

/* The field of an attribute; `attribute` is below REQUEST_ATTRIBUTE_COUNT. */
static inline sv request_get(const struct weir_request *request, enum attribute attribute)
{
    return *(const sv *)(const void *)((const char *)request + attribute * sizeof(sv));
}

static inline void request_set(struct weir_request *request, enum attribute attribute, sv value)
{
    *(sv *)(void *)((char *)request + attribute * sizeof(sv)) = value;
}

/* ---- costs by unit ---- */

#define UNIT_REQUESTS "requests" /* the unit of limits that name none, and of a plain `cost` */
#define UNIT_ALLOWED "letters, digits, `_`, `-` and `.`, 1 to 50 bytes"

bool unit_name_valid(sv name);

/* Front ends read the costs of a request one by one. If one of them is in another unit, and none in requests, then
 * requests cost 0. */
struct cost_list {
    struct weir_cost *room; /* for WEIR_COSTS_MAX */
    bool requests;          /* a cost in requests was given */
};

/* Adds a cost to the request, whose `costs` become list->room. Returns NULL, or what is wrong with the unit: " is given
 * twice". */
const char *request_add_cost(struct weir_request *request, struct cost_list *list, sv unit, uint64_t amount);

#endif
