/* Passwords and certificates for connections to the store. They are looked at for each connection, so files that were
 * replaced count from the next connection on: nothing has to be told. */
#ifndef REDIS_CREDENTIALS_H
#define REDIS_CREDENTIALS_H

#include <sys/stat.h>

#include "redis/address.h"
#include "tls/tls.h"

enum { CREDENTIAL_FILES = 3 };

struct credentials {
    char password[SECRET_MAX + 1], sentinel_password[SECRET_MAX + 1]; /* "": none */
    struct tls_context *tls;                                          /* NULL: no TLS */
    struct stat seen[CREDENTIAL_FILES];                               /* what `tls` was made of */
};

/* Reads password files, and certificates if they have changed. A zeroed struct is empty. */
int credentials_read(struct credentials *c, const struct redis_address *address, struct weir_error *error);
void credentials_done(struct credentials *c);

#endif
