/* One question to the admin listener of a service, over HTTP. */
#ifndef CLI_ADMIN_CLIENT_H
#define CLI_ADMIN_CLIENT_H

#include "base/buf.h"

/* "HOST:PORT" ("[::1]:8081" for IPv6) or "unix:PATH". */
bool client_is_address(const char *address);

/* GET. Returns the status, with the body in *ret_body; negative if there was no whole answer within a few seconds: *error
 * says why, and *ret_body is not written. */
int client_get(const char *address, sv token, const char *path, struct buf *ret_body, struct weir_error *error);

/* `text` as a part of a query. */
void client_encode(sv text, struct buf *out);

#endif
