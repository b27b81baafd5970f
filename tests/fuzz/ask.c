/* Any bytes as a JSON request: what our reader takes, jansson takes with the same values, and the other way round. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ip.h"
#include "serve/ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what, sv text)
{
    if (holds)
        return;
    fprintf(stderr, "%s:\n%.*s\n", what, SV_FMT(text));
    abort();
}

/* ---- what jansson makes of it ---- */

static bool good_header(json_t *value, size_t *count)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; json_is_array(value) && i < n; i++)
        if (!json_is_string(json_array_get(value, i)))
            return false;
    *count += n;
    return json_is_string(value) || (json_is_array(value) && n > 0);
}

static bool good_headers(json_t *headers)
{
    const char *name;
    json_t *value;
    size_t count = 0;
    if (json_is_null(headers))
        return true;
    json_object_foreach(headers, name, value) if (!good_header(value, &count)) return false;
    return json_is_object(headers) && count <= ASK_HEADERS_MAX;
}

static bool good_address(json_t *value)
{
    sv text = sv_of(json_string_value(value), json_string_length(value));
    return json_is_null(value) || (json_is_string(value) && (text.len == 0 || ip_parse_hop(text, &(struct ip){ 0 })));
}

static bool good_amount(json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= (json_int_t)WEIR_AMOUNT_MAX;
}

static bool good_unit(const char *name)
{
    size_t plain = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
    return plain > 0 && plain <= WEIR_UNIT_MAX && name[plain] == '\0';
}

static bool good_costs(json_t *costs)
{
    const char *unit;
    json_t *value;
    size_t others = 0;
    if (json_is_null(costs))
        return true;
    json_object_foreach(costs, unit, value)
    {
        others += strcmp(unit, "requests") != 0;
        if (!good_unit(unit) || !good_amount(value))
            return false;
    }
    return json_is_object(costs) && others <= WEIR_COSTS_MAX;
}

static bool good_field(const char *name, json_t *value)
{
    static const char *const texts[] = { "method", "path", "host", "user", "event", "key" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(name, texts[i]) == 0)
            return json_is_string(value) || json_is_null(value);
    if (strcmp(name, "ip") == 0 || strcmp(name, "peer") == 0)
        return good_address(value);
    if (strcmp(name, "headers") == 0)
        return good_headers(value);
    if (strcmp(name, "cost") == 0)
        return json_is_null(value) || good_amount(value);
    if (strcmp(name, "costs") == 0)
        return good_costs(value);
    bool flag = strcmp(name, "peek") == 0 || strcmp(name, "refundable") == 0 || strcmp(name, "reject") == 0;
    return flag && (json_is_boolean(value) || json_is_null(value));
}

static bool good_request(json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) if (!good_field(name, value)) return false;
    return json_is_object(object) &&
           !(json_is_object(json_object_get(object, "costs")) && json_is_integer(json_object_get(object, "cost")));
}

static bool good(json_t *root)
{
    if (!json_is_array(root))
        return good_request(root);
    for (size_t i = 0; i < json_array_size(root); i++)
        if (!good_request(json_array_get(root, i)) || json_is_true(json_object_get(json_array_get(root, i), "reject")))
            return false;
    return json_array_size(root) <= ASK_REQUESTS_MAX;
}

/* ---- the same values ---- */

static bool same_text(json_t *object, const char *name, sv found)
{
    json_t *value = json_object_get(object, name);
    return sv_eq(found, sv_of(json_string_value(value), json_string_length(value)));
}

/* Each header in its turn. */
static bool same_headers(json_t *headers, const struct weir_request *r)
{
    const char *name;
    json_t *value;
    size_t k = 0;
    json_object_foreach(headers, name, value)
    {
        size_t n = json_is_array(value) ? json_array_size(value) : 1;
        for (size_t i = 0; i < n; i++, k++) {
            json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
            sv want = sv_of(json_string_value(item), json_string_length(item));
            if (k >= r->header_count || !sv_eq(r->headers[k].name, weir_str(name)) || !sv_eq(r->headers[k].value, want))
                return false;
        }
    }
    return k == r->header_count;
}

static bool same_costs(json_t *object, const struct weir_request *r)
{
    const char *unit;
    json_t *value, *cost = json_object_get(object, "cost"), *costs = json_object_get(object, "costs");
    size_t k = 0;
    if (!json_is_object(costs))
        return r->cost_count == 0 && r->cost == (uint64_t)(json_is_integer(cost) ? json_integer_value(cost) : 1);
    json_object_foreach(costs, unit, value)
    {
        if (strcmp(unit, "requests") == 0)
            continue;
        if (k >= r->cost_count || !sv_eq(r->costs[k].unit, weir_str(unit)) ||
            r->costs[k].amount != (uint64_t)json_integer_value(value))
            return false;
        k++;
    }
    return k == r->cost_count && r->cost == (uint64_t)json_integer_value(json_object_get(costs, "requests"));
}

static bool same(json_t *object, const struct weir_request *r, bool refundable)
{
    return same_text(object, "method", r->method) && same_text(object, "path", r->path) &&
           same_text(object, "host", r->host) && same_text(object, "ip", r->ip) && same_text(object, "peer", r->peer) &&
           same_text(object, "user", r->user) && same_text(object, "event", r->event) && same_text(object, "key", r->key) &&
           same_costs(object, r) && r->peek == json_is_true(json_object_get(object, "peek")) &&
           refundable == json_is_true(json_object_get(object, "refundable")) &&
           same_headers(json_object_get(object, "headers"), r);
}

static bool all_same(json_t *root, const struct ask *ask)
{
    if (!ask->many)
        return ask->count == 1 && same(root, ask->requests, ask->refundable[0]) &&
               ask->reject == json_is_true(json_object_get(root, "reject"));
    for (size_t i = 0; i < ask->count; i++)
        if (!same(json_array_get(root, i), &ask->requests[i], ask->refundable[i]))
            return false;
    return ask->count == json_array_size(root);
}

/* ---- holds ---- */

/* A settlement without a cost in requests keeps what was held. */
static bool good_settlement(json_t *root, const struct weir_request *r)
{
    json_t *costs = json_object_get(root, "costs");
    bool given = json_is_integer(json_object_get(root, "cost")) || json_is_integer(json_object_get(costs, "requests"));
    return given ? same_costs(root, r) : r->cost == WEIR_AS_HELD;
}

static bool good_ttls(const struct ask *ask)
{
    bool good = true;
    for (size_t i = 0; i < ask->count; i++)
        good = good && ask->requests[i].ttl_ms > 0 && ask->requests[i].ttl_ms <= WEIR_TTL_MAX_MS;
    return good;
}

static void read_holds(sv text, json_t *root)
{
    static const enum ask_kind kinds[] = { ASK_RESERVE, ASK_SETTLE, ASK_RENEW, ASK_REFUND };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char why[ASK_WHY_MAX] = "";
        struct ask ask;
        bool ends = kinds[i] != ASK_RESERVE;
        if (ask_read(&ask, text, kinds[i], why) != 0) {
            require(why[0] != '\0', "a mistake without a reason", text);
            continue;
        }
        require(!ends || (!ask.many && ask.receipt.len > 0), "a list, or no hold", text);
        require(!ends || same_text(root, "receipt", ask.receipt) || same_text(root, "hold", ask.receipt), "another hold",
                text);
        require(kinds[i] != ASK_SETTLE || good_settlement(root, ask.requests), "other amounts", text);
        require(kinds[i] != ASK_RESERVE || good_ttls(&ask), "no time to live", text);
        require(kinds[i] != ASK_RENEW || good_ttls(&ask), "no time to live", text);
        ask_done(&ask);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sv text = sv_of((const char *)data, size);
    char why[ASK_WHY_MAX] = "";
    struct ask ask;
    unsigned status = ask_read(&ask, text, ASK_CHECK, why);
    json_t *root = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
    require(status == 0 || why[0] != '\0', "a mistake without a reason", text);
    /* jansson passes over NUL behind a word, and reads -0 as 0; our reader takes neither NUL nor minus. */
    bool nul = size > 0 && memchr(data, 0, size), minus = size > 0 && memmem(data, size, "-0", 2);
    require(!nul || status != 0, "NUL was taken", text);
    if (!nul && !minus)
        require((root && good(root)) == (status == 0), status ? why : "jansson does not take it", text);
    if (status == 0) {
        require(root && all_same(root, &ask), "read differently", text);
        ask_done(&ask);
    }
    read_holds(text, root);
    json_decref(root);
    return 0;
}
