/* The decision listener: POST /v1/check, POST /v1/refund, /v1/auth and others. */
#ifndef SERVE_HTTP_DECIDE_H
#define SERVE_HTTP_DECIDE_H

#include "serve/http.h"

/* See struct http_service. */
bool decide_screen(struct http_call *call, void *server);
void decide_handle(struct http_call *call, void *server);
size_t decide_body_max(const struct http_call *call, void *server);

#endif
