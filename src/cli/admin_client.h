/* One question to the admin listener of a service, over HTTP. */
#ifndef CLI_ADMIN_CLIENT_H
#define CLI_ADMIN_CLIENT_H

#include "base/buf.h"
#include "source/source.h"

/* "HOST:PORT" ("[::1]:8081" for IPv6), "https://HOST:PORT" or "unix:PATH". */
bool client_is_address(const char *address);

/* GET. Returns the status, with the body in *ret_body; negative if there was no whole answer within a few seconds: *error
 * says why, and *ret_body is not written. */
int client_get(const char *address, sv token, const char *path, struct buf *ret_body, struct weir_error *error);
/* The same with another method, and a body in JSON, or an empty one. `author`, who may be NULL, is for the
 * log and the history of the service. */
int client_ask(const char *address, sv token, const char *method, const char *path, const struct source_author *author,
               sv body, struct buf *ret_body, struct weir_error *error);

/* Where the admin listener is, and the data folder of its service, which has the tokens. */
struct client_service {
    const char *admin, *data;
    bool changes; /* what is asked changes something: the read token is not enough */
};
/* Reads the admin token, or, if it cannot be read, that of the next lower role that is enough. *ret is to be initialised.
 */
int client_read_token(const struct client_service *service, struct buf *ret, struct weir_error *error);
/* For an answer that is not what was asked for. Returns an error. */
int client_bad_status(const struct client_service *service, int status, sv body, struct weir_error *error);

/* `text` as a part of a query. */
void client_encode(sv text, struct buf *out);

#endif
