/* The secrets that clients send: with a request for a decision, and with any request to the admin listener, where each role
 * has a token of its own. */
#ifndef SERVE_TOKENS_H
#define SERVE_TOKENS_H

#include "base/sv.h"

struct config;

enum { TOKEN_MAX = 256 };

/* The rights of a client of the admin listener. Each role has those of the roles before it, too. */
enum role { ROLE_NONE, ROLE_READ, ROLE_OPERATE, ROLE_ADMIN, ROLES };
extern const char *const role_names[ROLES]; /* "none", "read", "operate", "admin" */

struct tokens {
    char decide[TOKEN_MAX];       /* of the decision listeners; "": they require none */
    char roles[ROLES][TOKEN_MAX]; /* of the admin listener; ROLE_NONE has none */
    unsigned generation;          /* rises when one of them changes */
    unsigned resp_generation;     /* rises when one changes that Redis clients send */
};

/* Creates the tokens of the roles at the first start. *tokens has what was read before, or zeroes. Returns 0 or an error.
 */
int tokens_read(struct tokens *tokens, const struct config *config, struct weir_error *error);
/* Compares with any secret, in a time that does not tell where they differ. */
bool token_is(const char *token, sv given);
/* The role of the token that was given; ROLE_NONE: it is not one of them. Takes the same time whichever it is. */
enum role token_role(const struct tokens *tokens, sv given);
/* The token in "Bearer TOKEN", the value of the header Authorization. ptr NULL: it has no such token. */
sv token_of_bearer(sv authorization);
/* token_is for "Bearer TOKEN", the value of the header Authorization. */
bool token_is_bearer(const char *token, sv authorization);

#endif
