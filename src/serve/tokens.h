/* The secrets that clients send: with a request for a decision, and with any request to the admin listener.
 *
 * A token has a name and a role. Named tokens are lines of the file of tokens, which has their hashes only. Those of the
 * host itself are files that have the token, and their role is their name: admin-token, operate-token and read-token of
 * the data folder, and the one that --token-file names. */
#ifndef SERVE_TOKENS_H
#define SERVE_TOKENS_H

#include "base/sha256.h"
#include "base/sv.h"
#include "serve/roles.h"

struct config;

enum { TOKEN_MAX = 256, TOKEN_NAME_MAX = 64, TOKENS_MAX = 1000 };

struct token {
    char name[TOKEN_NAME_MAX + 1];
    bool is_named; /* it is a line of the file of tokens */
    enum role role;
    unsigned char hash[SHA256_SIZE];
};

/* Never changed once it is read: each loop holds on to the one that it uses. */
struct tokens {
    unsigned refs;
    unsigned generation; /* rises with each change */
    bool required;       /* for decisions, too */
    unsigned char session_key[SHA256_SIZE];
    size_t count;
    struct token of[];
};

/* Reads all of them. The first start creates those of the host. *tokens was read before, or is NULL; it is replaced if
 * something has changed. Returns 0 or an error: then it stays. */
int tokens_read(struct tokens **tokens, const struct config *config, struct weir_error *error);
struct tokens *tokens_ref(struct tokens *tokens);
void tokens_unref(struct tokens *tokens); /* NULL: nothing happens */
/* The token of the host for this role, for people. Returns 0 or an error. */
int tokens_read_own(const struct config *config, enum role role, char ret[TOKEN_MAX], struct weir_error *error);

/* NULL: there is no such token. */
const struct token *token_find(const struct tokens *tokens, sv given);
const struct token *token_with_hash(const struct tokens *tokens, const unsigned char hash[SHA256_SIZE]);
const struct token *token_named(const struct tokens *tokens, sv name);
/* Whether "Bearer TOKEN", the value of the header Authorization, may ask for decisions, if they require a token. */
bool token_may_ask(const struct tokens *tokens, sv authorization);

/* The token in "Bearer TOKEN", the value of the header Authorization. ptr NULL: it has no such token. */
sv token_of_bearer(sv authorization);
/* Compares secrets, in a time that does not tell where they differ. */
bool token_is(const char *token, sv given);

#endif
