/* The messages of Envoy's rate limit service and of gRPC's health checks, in protobuf's wire format and (answers only) in
 * its JSON.
 *
 *   envoy.service.ratelimit.v3.RateLimitRequest, RateLimitResponse
 *   grpc.health.v1.HealthCheckRequest, HealthCheckResponse
 *
 * Reading copies nothing and allocates nothing: strings lie in the bytes that were read. It is stricter than protobuf
 * demands: a known field with a wrong wire type, and a group, are errors, so that no request is judged by less than its
 * caller sent. Unknown fields are skipped. */
#ifndef ENVOY_ENVOY_H
#define ENVOY_ENVOY_H

#include "base/buf.h"
#include "base/sv.h"

enum {
    ENVOY_DESCRIPTORS_MAX = WEIR_TOGETHER_MAX, /* of one request */
    ENVOY_ENTRIES_MAX = 32,                    /* of one descriptor */
    ENVOY_WHY_MAX = 200,
    ENVOY_HEADERS_MAX = 3,
};

/* As in envoy.type.v3.RateLimitUnit and RateLimitResponse.RateLimit.Unit. */
enum envoy_unit {
    ENVOY_UNKNOWN_UNIT,
    ENVOY_SECOND,
    ENVOY_MINUTE,
    ENVOY_HOUR,
    ENVOY_DAY,
    ENVOY_MONTH,
    ENVOY_YEAR,
    ENVOY_WEEK,
    ENVOY_UNITS,
};

/* Names of the enum, for JSON. */
extern const char *const envoy_unit_names[ENVOY_UNITS];
/* Returns the length of a unit; a month has 30 days, and a year 365. 0: an unknown unit. */
uint64_t envoy_unit_ms(int32_t unit);

/* ---- requests ---- */

struct envoy_limit {
    bool given;
    uint32_t requests_per_unit;
    int32_t unit;
    bool has_multiplier;
    uint32_t multiplier; /* only if has_multiplier; else 1 */
};

struct envoy_descriptor {
    uint32_t first_entry, entry_count; /* in `entries` of the request */
    struct envoy_limit limit;
    bool has_hits;
    uint64_t hits;
    bool negative;
};

struct envoy_request {
    sv domain;
    uint32_t hits; /* 0: 1 */
    size_t descriptor_count, entry_count;
    struct envoy_descriptor descriptors[ENVOY_DESCRIPTORS_MAX];
    struct weir_header entries[ENVOY_DESCRIPTORS_MAX * ENVOY_ENTRIES_MAX]; /* of all descriptors, in order */
};

/* Why a message was not read. */
enum envoy_error {
    ENVOY_OK,
    ENVOY_MALFORMED, /* not a message in protobuf's wire format */
    ENVOY_REJECTED,  /* protobuf would skip it: a group, or a known field with a wrong wire type */
    ENVOY_TOO_MANY,  /* over the bounds above */
};

/* `why` receives a sentence if it is not ENVOY_OK. */
enum envoy_error envoy_read_request(struct envoy_request *ret, sv bytes, char why[ENVOY_WHY_MAX]);

/* Adds a descriptor or, to the last one, an entry: for readers of other formats. False: over the bounds. */
bool envoy_add_descriptor(struct envoy_request *request, char why[ENVOY_WHY_MAX]);
bool envoy_add_entry(struct envoy_request *request, sv key, sv value, char why[ENVOY_WHY_MAX]);

/* Returns the cost of a descriptor. */
uint64_t envoy_hits(const struct envoy_request *request, const struct envoy_descriptor *descriptor);
/* The window of a limit that a descriptor brings. False: its unit is unknown, its multiplier is 0, or it is too long. */
bool envoy_limit_window(const struct envoy_limit *limit, uint64_t *ret_ms);

enum envoy_error envoy_read_health(sv *ret_service, sv bytes, char why[ENVOY_WHY_MAX]);

/* ---- answers ---- */

enum envoy_code { ENVOY_CODE_UNKNOWN, ENVOY_CODE_OK, ENVOY_CODE_OVER_LIMIT };

struct envoy_status {
    enum envoy_code code;
    bool has_limit;
    sv name; /* of the limit */
    uint32_t requests_per_unit;
    enum envoy_unit unit;
    uint32_t multiplier; /* left out if it is 1 */
    uint32_t remaining;
    int64_t reset_ms; /* < 0: left out */
};

/* Which limit refused: dynamic_metadata. */
struct envoy_refusal {
    sv rule, limit;
    size_t descriptor;      /* the first that was refused */
    int64_t retry_after_ms; /* < 0: left out */
};

struct envoy_answer {
    enum envoy_code code;
    const struct envoy_status *statuses;
    size_t status_count;
    struct weir_header headers[ENVOY_HEADERS_MAX]; /* response_headers_to_add */
    size_t header_count;
    const struct envoy_refusal *refusal; /* NULL: none */
};

/* Finds the unit for a window: the one that is as long as it, or the longest that divides it. Natural months and years of a
 * time zone, whose lengths differ, are a month and a year. ENVOY_UNKNOWN_UNIT: none is short enough. */
void envoy_unit_of(int64_t window_ms, enum envoy_unit *ret, uint32_t *ret_multiplier);

void envoy_write_answer(struct buf *out, const struct envoy_answer *answer);
/* As protojson writes it, on one line. */
void envoy_write_answer_json(struct buf *out, const struct envoy_answer *answer);

enum envoy_health { ENVOY_HEALTH_UNKNOWN, ENVOY_SERVING, ENVOY_NOT_SERVING, ENVOY_SERVICE_UNKNOWN };
void envoy_write_health(struct buf *out, enum envoy_health health);

#endif
