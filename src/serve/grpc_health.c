/* grpc.health.v1.Health, for the services "" and "ratelimit". */
#include "envoy/envoy.h"
#include "serve/grpc.h"
#include "serve/server.h"

static bool is_known(sv service)
{
    return service.len == 0 || sv_eq(service, SV("ratelimit"));
}

static enum envoy_health health_of(const struct h2_stream *stream)
{
    return server_ready(stream->loop->server) && !stream->loop->draining ? ENVOY_SERVING : ENVOY_NOT_SERVING;
}

static sv message_of(enum envoy_health health, char room[16])
{
    struct buf out;
    buf_over(&out, room, 16);
    envoy_write_health(&out, health);
    return buf_sv(&out);
}

void grpc_health_check(struct h2_stream *stream, sv message)
{
    char why[ENVOY_WHY_MAX], room[16];
    sv service;
    if (envoy_read_health(&service, message, why) != ENVOY_OK)
        h2_fail(stream, GRPC_INVALID_ARGUMENT, why);
    else if (!is_known(service))
        h2_fail(stream, GRPC_NOT_FOUND, "unknown service; there are \"\" and \"ratelimit\"");
    else
        h2_reply(stream, message_of(health_of(stream), room));
}

void grpc_health_watch(struct h2_stream *stream, sv message)
{
    char why[ENVOY_WHY_MAX], room[16];
    sv service;
    if (envoy_read_health(&service, message, why) != ENVOY_OK) {
        h2_fail(stream, GRPC_INVALID_ARGUMENT, why);
        return;
    }
    enum envoy_health health = is_known(service) ? health_of(stream) : ENVOY_SERVICE_UNKNOWN;
    stream->data = is_known(service) ? stream : NULL; /* whether it changes */
    if (!h2_watch(stream))
        h2_fail(stream, GRPC_RESOURCE_EXHAUSTED, "too many streams of health.v1.Health/Watch");
    else if (h2_watch_send(stream, message_of(health, room)) && stream->loop->draining)
        h2_watch_end(stream, GRPC_UNAVAILABLE);
}

void grpc_health_drain(struct h2_stream *stream)
{
    char room[16];
    if (!stream->data || h2_watch_send(stream, message_of(ENVOY_NOT_SERVING, room)))
        h2_watch_end(stream, GRPC_UNAVAILABLE);
}
