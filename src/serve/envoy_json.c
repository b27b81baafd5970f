/* RateLimitRequest as protobuf's JSON: names in lowerCamelCase or as in the .proto file, numbers also as strings, enums by
 * name or number; null is a field that is not set. Unknown fields are errors. */
#include "serve/envoy_json.h"

#include <jansson.h>
#include <stdio.h>

#include "base/format.h"
#include "serve/envoy_decide.h"
#include "serve/log.h"
#include "serve/server.h"

struct reader {
    struct envoy_request *request;
    char why[ENVOY_WHY_MAX];
};

static __attribute__((format(printf, 2, 3))) bool fail(struct reader *r, const char *format, ...)
{
    FORMAT_ARGUMENTS(r->why, format);
    return false;
}

/* A field of a message, by either of its names. */
struct field {
    const char *name, *other;
    bool (*take)(struct reader *r, const char *name, const json_t *value, void *to);
    size_t offset; /* in what the message is read into */
};

static bool take_message(struct reader *r, const char *what, const json_t *value, const struct field *fields, size_t count,
                         void *to)
{
    const char *key;
    json_t *member;
    unsigned seen = 0;
    if (!json_is_object(value))
        return fail(r, "%s: not an object", what);
    json_object_foreach((json_t *)value, key, member)
    {
        size_t i = 0;
        while (i < count && strcmp(key, fields[i].name) != 0 && strcmp(key, fields[i].other) != 0)
            i++;
        if (i == count)
            return fail(r, "%s: unknown field '%.50s'", what, key);
        if (seen & 1U << i)
            return fail(r, "%s: field '%.50s' is given twice", what, key);
        seen |= 1U << i;
        if (!json_is_null(member) && !fields[i].take(r, fields[i].name, member, (char *)to + fields[i].offset))
            return false;
    }
    return true;
}

static bool read_number(struct reader *r, const char *name, const json_t *value, uint64_t max, uint64_t *ret)
{
    bool good = false;
    if (json_is_string(value))
        good = sv_u64(sv_of(json_string_value(value), json_string_length(value)), max, ret);
    else if (json_is_integer(value)) {
        good = json_integer_value(value) >= 0 && (uint64_t)json_integer_value(value) <= max;
        *ret = (uint64_t)json_integer_value(value);
    } else if (json_is_real(value)) {
        double real = json_real_value(value);
        good = real >= 0 && real <= (double)WEIR_AMOUNT_MAX && real <= (double)max && real == (double)(uint64_t)real;
        *ret = good ? (uint64_t)real : 0;
    }
    return good || fail(r, "%s: not a whole number from 0 to %llu", name, (unsigned long long)max);
}

static bool take_u32(struct reader *r, const char *name, const json_t *value, void *to)
{
    uint64_t number = 0;
    if (!read_number(r, name, value, UINT32_MAX, &number))
        return false;
    *(uint32_t *)to = (uint32_t)number;
    return true;
}

static bool take_text(struct reader *r, const char *name, const json_t *value, void *to)
{
    if (!json_is_string(value))
        return fail(r, "%s: not a string", name);
    *(sv *)to = sv_of(json_string_value(value), json_string_length(value));
    return true;
}

static bool take_unit(struct reader *r, const char *name, const json_t *value, void *to)
{
    uint64_t number = 0;
    for (int32_t i = 0; json_is_string(value) && i < ENVOY_UNITS; i++)
        if (strcmp(json_string_value(value), envoy_unit_names[i]) == 0) {
            *(int32_t *)to = i;
            return true;
        }
    if (json_is_string(value) || !read_number(r, name, value, INT32_MAX, &number))
        return fail(r, "%s: not a unit; allowed: SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, YEAR", name);
    *(int32_t *)to = (int32_t)number;
    return true;
}

static bool take_multiplier(struct reader *r, const char *name, const json_t *value, void *to)
{
    struct envoy_limit *limit = to;
    limit->has_multiplier = true;
    return take_u32(r, name, value, &limit->multiplier);
}

static bool take_limit(struct reader *r, const char *name, const json_t *value, void *to)
{
    static const struct field fields[] = {
        { "requestsPerUnit", "requests_per_unit", take_u32, offsetof(struct envoy_limit, requests_per_unit) },
        { "unit", "unit", take_unit, offsetof(struct envoy_limit, unit) },
        { "unitMultiplier", "unit_multiplier", take_multiplier, 0 },
    };
    ((struct envoy_limit *)to)->given = true;
    return take_message(r, name, value, fields, sizeof fields / sizeof fields[0], to);
}

static bool take_hits(struct reader *r, const char *name, const json_t *value, void *to)
{
    struct envoy_descriptor *descriptor = to;
    descriptor->has_hits = true;
    return read_number(r, name, value, UINT64_MAX, &descriptor->hits);
}

static bool take_bool(struct reader *r, const char *name, const json_t *value, void *to)
{
    if (!json_is_boolean(value))
        return fail(r, "%s: not true or false", name);
    *(bool *)to = json_is_true(value);
    return true;
}

static bool take_entries(struct reader *r, const char *name, const json_t *value, void *to)
{
    static const struct field fields[] = {
        { "key", "key", take_text, offsetof(struct weir_header, name) },
        { "value", "value", take_text, offsetof(struct weir_header, value) },
    };
    size_t i;
    json_t *member;
    (void)to;
    if (!json_is_array(value))
        return fail(r, "%s: not a list", name);
    json_array_foreach((json_t *)value, i, member)
    {
        struct weir_header entry = { SV(""), SV("") };
        if (!take_message(r, name, member, fields, sizeof fields / sizeof fields[0], &entry) ||
            !envoy_add_entry(r->request, entry.name, entry.value, r->why))
            return false;
    }
    return true;
}

static bool take_descriptors(struct reader *r, const char *name, const json_t *value, void *to)
{
    static const struct field fields[] = {
        { "entries", "entries", take_entries, 0 },
        { "limit", "limit", take_limit, offsetof(struct envoy_descriptor, limit) },
        { "hitsAddend", "hits_addend", take_hits, 0 },
        { "isNegativeHits", "is_negative_hits", take_bool, offsetof(struct envoy_descriptor, negative) },
    };
    struct envoy_request *request = to;
    size_t i;
    json_t *member;
    if (!json_is_array(value))
        return fail(r, "%s: not a list", name);
    json_array_foreach((json_t *)value, i,
                       member) if (!envoy_add_descriptor(request, r->why) ||
                                   !take_message(r, name, member, fields, sizeof fields / sizeof fields[0],
                                                 &request->descriptors[request->descriptor_count - 1])) return false;
    return true;
}

static bool read_request(struct reader *r, const json_t *document)
{
    static const struct field fields[] = {
        { "domain", "domain", take_text, offsetof(struct envoy_request, domain) },
        { "descriptors", "descriptors", take_descriptors, 0 },
        { "hitsAddend", "hits_addend", take_u32, offsetof(struct envoy_request, hits) },
    };
    struct envoy_request *request = r->request;
    request->domain = SV("");
    request->hits = 0;
    request->descriptor_count = request->entry_count = 0;
    return take_message(r, "the request", document, fields, sizeof fields / sizeof fields[0], request);
}

/* ---- the call ---- */

struct json_call {
    struct http_call *http_call;
    json_t *document; /* the strings of the request */
};

static void answer(struct envoy_call *call, const struct envoy_answer *answer)
{
    enum { ANSWER_MAX = 64 << 10 };
    struct json_call *json_call = call->to;
    struct http_call *http_call = json_call->http_call;
    struct buf out;
    buf_init(&out, ANSWER_MAX);
    if (answer)
        envoy_write_answer_json(&out, answer);
    buf_char(&out, '\n');
    if (!answer || out.failed)
        http_error(http_call, 500, NULL, "the request cannot be judged");
    else
        http_answer(http_call,
                    &(struct http_answer){ .status = answer->code == ENVOY_CODE_OK ? 200 : 429, .body = buf_sv(&out) });
    buf_done(&out);
    json_decref(json_call->document);
}

static void mistake(struct http_call *call, const char *why)
{
    log_limited(SELDOM_CHECK, "/json, request from %s: 400, %s", conn_from(call->conn), why);
    http_error(call, 400, NULL, "%s; nothing was charged", why);
}

void envoy_json(struct http_call *call, struct server *server)
{
    struct envoy_request request;
    struct reader reader = { .request = &request };
    struct json_call *json_call = http_alloc(call, sizeof *json_call);
    json_error_t error;
    (void)server;
    json_t *document = json_call ? json_loadb(call->body.ptr, call->body.len, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (!json_call) {
        http_error(call, 500, NULL, "out of memory");
        return;
    }
    if (!document) {
        snprintf(reader.why, sizeof reader.why, "not JSON: %.150s", error.text);
        mistake(call, reader.why);
        return;
    }
    *json_call = (struct json_call){ call, document };
    loop_time_passed(call->loop);
    struct envoy_question question = {
        .loop = call->loop,
        .request = &request,
        .read_ns = uv_hrtime(),
        .answer = answer,
        .to = json_call,
        .trace = trace_of_headers(call->headers, call->header_count),
    };
    struct envoy_call *pending;
    enum envoy_outcome outcome =
        read_request(&reader, document) ? envoy_decide(&question, &pending, reader.why) : ENVOY_MISTAKE;
    if (outcome == ENVOY_PENDING)
        http_suspend(call);
    if (outcome == ENVOY_MISTAKE)
        mistake(call, reader.why);
    if (outcome == ENVOY_FULL)
        http_error(call, 500, NULL, "too many decisions are waiting for the store, or out of memory");
    if (outcome == ENVOY_MISTAKE || outcome == ENVOY_FULL)
        json_decref(document);
}

void envoy_healthcheck(struct http_call *call, struct server *server)
{
    bool ready = server_ready(server);
    http_answer(call, &(struct http_answer){ .status = ready ? 200 : 500,
                                             .content_type = SV("text/plain"),
                                             .body = ready ? SV("OK") : SV("") });
}
