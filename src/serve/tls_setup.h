/* The certificates of the listeners. */
#ifndef SERVE_TLS_SETUP_H
#define SERVE_TLS_SETUP_H

#include "serve/conns.h"

struct config;
struct tls_context;
struct weir_error;

/* A context for each listener that speaks TLS; NULL for the others. */
struct tls_setup {
    struct tls_context *of[FRONTS];
};

/* Whether a listener speaks TLS. `where` is its address; unix sockets do not. */
bool tls_setup_has(const struct config *config, enum front front, const char *where);

/* Reads the files. Returns 0 or an error; then *ret is empty. */
int tls_setup_read(struct tls_setup *ret, const struct config *config, struct weir_error *error);
struct tls_setup tls_setup_ref(const struct tls_setup *setup);
/* Returns when the certificate of the listeners expires; 0: no listener speaks TLS. */
int64_t tls_setup_valid_until_us(const struct tls_setup *setup);
void tls_setup_done(struct tls_setup *setup);

#endif
