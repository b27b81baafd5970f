/* gRPC: which method a stream calls, whether it may, and its message. */
#ifndef SERVE_GRPC_H
#define SERVE_GRPC_H

#include "serve/h2.h"

/* For h2_new. */
extern const struct h2_service grpc_service;

/* From grpc_health.c: grpc.health.v1.Health. */
void grpc_health_check(struct h2_stream *stream, sv message);
void grpc_health_watch(struct h2_stream *stream, sv message);
void grpc_health_drain(struct h2_stream *stream); /* of a watch */

#endif
