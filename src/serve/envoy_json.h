/* The HTTP/1.1 interface of Envoy's rate limit service: POST /json and /healthcheck. */
#ifndef SERVE_ENVOY_JSON_H
#define SERVE_ENVOY_JSON_H

#include "serve/http.h"

struct server;

enum { ENVOY_JSON_MAX = 64 << 10 }; /* bytes of a body: a document takes many times as much memory */

void envoy_json(struct http_call *call, struct server *server);
void envoy_healthcheck(struct http_call *call, struct server *server);

#endif
