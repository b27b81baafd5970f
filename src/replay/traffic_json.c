#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "replay/time_text.h"
#include "replay/traffic.h"
#include "rules/attributes.h"

#define FIELDS "t, " REQUEST_ATTRIBUTE_NAMES "headers, descriptor, cost, costs, peek, or t and set_rules"

static bool wrong(char *why, const char *field, const char *allowed)
{
    snprintf(why, TRAFFIC_WHY_MAX, "%s: must be %s", field, allowed);
    return false;
}

static bool read_time(const json_t *value, int64_t *ret_us)
{
    if (json_is_string(value))
        return when_parse_rfc3339(sv_of(json_string_value(value), json_string_length(value)), ret_us);
    double ms = json_number_value(value);
    if (!json_is_number(value) || !(ms >= 0 && ms < (double)CLOCK_END_US / 1e3))
        return false;
    int64_t us = json_is_integer(value) ? json_integer_value(value) * US_PER_MS : llround(ms * 1e3);
    if (!clock_valid(us))
        return false;
    *ret_us = us;
    return true;
}

static bool read_string(enum attribute attribute, const json_t *value, struct weir_request *request, char *why)
{
    if (json_is_null(value))
        return true;
    if (!json_is_string(value))
        return wrong(why, attribute_table[attribute].name.ptr, "a string");
    request_set(request, attribute, sv_of(json_string_value(value), json_string_length(value)));
    return true;
}

static bool add_header(struct traffic *t, const char *name, const json_t *value, char *why)
{
    if (!json_is_string(value))
        return wrong(why, "headers", "an object of strings or lists of strings");
    if (t->request.header_count == TRAFFIC_HEADERS_MAX)
        return wrong(why, "headers", "at most 256");
    t->headers[t->request.header_count++] =
        (struct weir_header){ weir_str(name), sv_of(json_string_value(value), json_string_length(value)) };
    return true;
}

static bool read_headers(struct traffic *t, json_t *object, char *why)
{
    const char *name;
    json_t *value, *item;
    size_t i;
    if (json_is_null(object))
        return true;
    if (!json_is_object(object))
        return wrong(why, "headers", "an object of strings or lists of strings");
    json_object_foreach(object, name, value)
    {
        if (!json_is_array(value)) {
            if (!add_header(t, name, value, why))
                return false;
            continue;
        }
        json_array_foreach(value, i, item) if (!add_header(t, name, item, why)) return false;
    }
    t->request.headers = t->headers;
    return true;
}

static bool read_entry(struct traffic *t, json_t *object, char *why)
{
    struct weir_header *entry = &t->entries[t->request.descriptor_count];
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return wrong(why, "descriptor", "a list of entries: [{\"key\": \"plan\", \"value\": \"free\"}]");
    *entry = (struct weir_header){ 0 };
    json_object_foreach(object, name, value)
    {
        bool key = strcmp(name, "key") == 0;
        if (!key && strcmp(name, "value") != 0)
            return wrong(why, "descriptor", "a list of entries that have nothing but key and value");
        if (!json_is_string(value) && !json_is_null(value))
            return wrong(why, "descriptor", "a list of entries whose key and value are strings");
        *(key ? &entry->name : &entry->value) =
            sv_of(json_is_string(value) ? json_string_value(value) : "", json_string_length(value));
    }
    t->request.descriptor_count++;
    return entry->name.len > 0 || wrong(why, "descriptor", "a list of entries that have a key");
}

/* As in POST /v1/check, a value that is missing is empty. */
static bool read_descriptor(struct traffic *t, json_t *list, char *why)
{
    json_t *item;
    size_t i;
    if (json_is_null(list))
        return true;
    if (!json_is_array(list) || json_array_size(list) > WEIR_DESCRIPTOR_MAX)
        return wrong(why, "descriptor", "a list of at most 256 entries: [{\"key\": \"plan\", \"value\": \"free\"}]");
    json_array_foreach(list, i, item) if (!read_entry(t, item, why)) return false;
    t->request.descriptor = t->entries;
    return true;
}

static bool read_amount(const json_t *value, const char *field, uint64_t *ret, char *why)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > WEIR_AMOUNT_MAX)
        return wrong(why, field, "a whole number from 0 to 9007199254740991");
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

/* A unit that `costs` does not name costs 0. */
static bool read_costs(struct traffic *t, json_t *object, char *why)
{
    struct cost_list list = { .room = t->costs };
    const char *unit;
    json_t *value;
    if (json_is_null(object))
        return true;
    if (!json_is_object(object))
        return wrong(why, "costs", "an object: {\"requests\": 1, \"tokens\": 1200}");
    t->request.cost = 0;
    json_object_foreach(object, unit, value)
    {
        uint64_t amount;
        if (!read_amount(value, "each of costs", &amount, why))
            return false;
        const char *bad = request_add_cost(&t->request, &list, weir_str(unit), amount);
        if (bad) {
            snprintf(why, TRAFFIC_WHY_MAX, "costs: \"%.100s\"%s", unit, bad);
            return false;
        }
    }
    return true;
}

static bool read_field(struct traffic *t, const char *name, json_t *value, char *why)
{
    enum attribute attribute = attribute_find(weir_str(name));
    if (attribute < REQUEST_ATTRIBUTE_COUNT)
        return read_string(attribute, value, &t->request, why);
    if (strcmp(name, "t") == 0)
        return read_time(value, &t->now_us) ||
               wrong(why, "t", "an RFC 3339 string or milliseconds since 1970, from 1970 to 2112");
    if (strcmp(name, "headers") == 0)
        return read_headers(t, value, why);
    if (strcmp(name, "descriptor") == 0)
        return read_descriptor(t, value, why);
    if (strcmp(name, "cost") == 0)
        return json_is_null(value) || read_amount(value, "cost", &t->request.cost, why);
    if (strcmp(name, "costs") == 0)
        return read_costs(t, value, why);
    if (strcmp(name, "peek") == 0) {
        t->request.peek = json_is_true(value);
        return json_is_boolean(value) || json_is_null(value) || wrong(why, "peek", "true or false");
    }
    snprintf(why, TRAFFIC_WHY_MAX, "unknown field \"%.100s\"; allowed: " FIELDS, name);
    return false;
}

static bool read_set_rules(struct traffic *t, json_t *object, json_t *list, char *why)
{
    if (!json_is_array(list) && !json_object_get(list, "rules"))
        return wrong(why, "set_rules", "a list of rules, or a document with rules and overrides");
    if (json_object_size(object) != 2 || !json_object_get(object, "t")) {
        snprintf(why, TRAFFIC_WHY_MAX, "set_rules: only t is allowed beside it");
        return false;
    }
    if (!read_field(t, "t", json_object_get(object, "t"), why))
        return false;
    t->set_rules = json_dumps(list, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!t->set_rules)
        snprintf(why, TRAFFIC_WHY_MAX, "out of memory");
    return t->set_rules != NULL;
}

/* As in POST /v1/check, a field that is null is as if it were missing. */
static bool is_given(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return value && !json_is_null(value);
}

static bool read_object(struct traffic *t, json_t *object, char *why)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object)) {
        snprintf(why, TRAFFIC_WHY_MAX, "a line must be an object: {\"t\": …, \"path\": …}");
        return false;
    }
    json_t *list = json_object_get(object, "set_rules");
    if (list)
        return read_set_rules(t, object, list, why);
    t->now_us = -1;
    if (is_given(object, "cost") && is_given(object, "costs"))
        return wrong(why, "cost", "left out beside costs; write it as \"requests\" there");
    json_object_foreach(object, name, value) if (!read_field(t, name, value, why)) return false;
    if (t->now_us < 0)
        return wrong(why, "t", "given: an RFC 3339 string or milliseconds since 1970");
    return true;
}

bool traffic_from_json(char *line, size_t len, struct traffic *ret, char *why)
{
    json_error_t error;
    ret->request = (struct weir_request){ .cost = 1 };
    ret->set_rules = NULL;
    ret->json = json_loadb(line, len, JSON_REJECT_DUPLICATES, &error);
    if (!ret->json) {
        snprintf(why, TRAFFIC_WHY_MAX, "no JSON: column %d: %s", error.column, error.text);
        return false;
    }
    if (read_object(ret, ret->json, why))
        return true;
    traffic_done(ret);
    return false;
}

void traffic_done(struct traffic *traffic)
{
    if (!traffic)
        return;
    json_decref(traffic->json);
    free(traffic->set_rules);
    traffic->json = NULL;
    traffic->set_rules = NULL;
}
