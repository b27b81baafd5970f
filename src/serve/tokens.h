/* The secrets that clients send: with a request for a decision, and with any request to the admin listener. */
#ifndef SERVE_TOKENS_H
#define SERVE_TOKENS_H

#include "base/sv.h"

struct config;

enum { TOKEN_MAX = 256 };

struct tokens {
    char decide[TOKEN_MAX]; /* of the decision listeners; "": they require none */
    char admin[TOKEN_MAX];
    unsigned generation; /* rises when one of them changes */
};

/* Creates the admin token at the first start. *tokens has what was read before, or zeroes. Returns 0 or an error. */
int tokens_read(struct tokens *tokens, const struct config *config, struct weir_error *error);
/* Compares in a time that does not tell where they differ. */
bool token_is(const char *token, sv given);
/* The same for "Bearer TOKEN", the value of the header Authorization. */
bool token_is_bearer(const char *token, sv authorization);

#endif
