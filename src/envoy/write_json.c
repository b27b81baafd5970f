#include "envoy/envoy.h"

static const char *const code_names[] = { "UNKNOWN", "OK", "OVER_LIMIT" };

static void put_limit(struct buf *out, const struct envoy_status *status)
{
    const char *comma = "";
    buf_add(out, SV(", \"currentLimit\": {"));
    if (status->name.len) {
        buf_add(out, SV("\"name\": "));
        buf_json(out, status->name);
        comma = ", ";
    }
    if (status->requests_per_unit) {
        buf_printf(out, "%s\"requestsPerUnit\": %u", comma, status->requests_per_unit);
        comma = ", ";
    }
    if (status->unit) {
        buf_printf(out, "%s\"unit\": \"%s\"", comma, envoy_unit_names[status->unit]);
        comma = ", ";
    }
    if (status->multiplier > 1)
        buf_printf(out, "%s\"unitMultiplier\": %u", comma, status->multiplier);
    buf_char(out, '}');
}

static void put_status(struct buf *out, const struct envoy_status *status)
{
    buf_printf(out, "{\"code\": \"%s\"", code_names[status->code]);
    if (status->has_limit)
        put_limit(out, status);
    if (status->remaining)
        buf_printf(out, ", \"limitRemaining\": %u", status->remaining);
    if (status->reset_ms >= 0 && status->reset_ms % 1000)
        buf_printf(out, ", \"durationUntilReset\": \"%lld.%03ds\"", (long long)(status->reset_ms / 1000),
                   (int)(status->reset_ms % 1000));
    else if (status->reset_ms >= 0)
        buf_printf(out, ", \"durationUntilReset\": \"%llds\"", (long long)(status->reset_ms / 1000));
    buf_char(out, '}');
}

static void put_refusal(struct buf *out, const struct envoy_refusal *refusal)
{
    buf_add(out, SV(", \"dynamicMetadata\": {\"rule\": "));
    buf_json(out, refusal->rule);
    buf_add(out, SV(", \"limit\": "));
    buf_json(out, refusal->limit);
    buf_printf(out, ", \"descriptor\": %zu", refusal->descriptor);
    if (refusal->retry_after_ms >= 0)
        buf_printf(out, ", \"retry_after_ms\": %lld", (long long)refusal->retry_after_ms);
    buf_char(out, '}');
}

void envoy_write_answer_json(struct buf *out, const struct envoy_answer *answer)
{
    buf_printf(out, "{\"overallCode\": \"%s\"", code_names[answer->code]);
    for (size_t i = 0; i < answer->status_count; i++) {
        buf_add(out, i ? SV(", ") : SV(", \"statuses\": ["));
        put_status(out, &answer->statuses[i]);
    }
    if (answer->status_count)
        buf_char(out, ']');
    for (size_t i = 0; i < answer->header_count; i++) {
        buf_add(out, i ? SV(", {\"key\": ") : SV(", \"responseHeadersToAdd\": [{\"key\": "));
        buf_json(out, answer->headers[i].name);
        buf_add(out, SV(", \"value\": "));
        buf_json(out, answer->headers[i].value);
        buf_char(out, '}');
    }
    if (answer->header_count)
        buf_char(out, ']');
    if (answer->refusal)
        put_refusal(out, answer->refusal);
    buf_char(out, '}');
}
