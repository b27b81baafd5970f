/* The file of named tokens. A line has a name, a role and the hash of the token: "ann admin sha256:9f86…". Lines that begin
 * with # are comments. The tokens themselves are nowhere. */
#ifndef SERVE_TOKEN_LIST_H
#define SERVE_TOKEN_LIST_H

#include "serve/tokens.h"

struct token_list {
    struct token *of;
    size_t count;
};

/* Reads the file; if it is not there, the list is empty. Returns 0 or an error, which names file and line. */
int token_list_read(struct token_list *ret, const char *path, struct weir_error *error);
void token_list_done(struct token_list *list);

/* Creates a token for a new name, and adds its line. Returns 0 or an error. */
int token_list_add(const char *path, sv name, enum role role, char ret[TOKEN_MAX], struct weir_error *error);
/* Removes the line of a name. Returns 0 or an error. */
int token_list_remove(const char *path, sv name, struct weir_error *error);

enum { TOKEN_SECRET_BYTES = 24 };
/* A new secret: hexadecimal digits and NUL. False: the system has no random numbers. */
bool token_make(char ret[2 * TOKEN_SECRET_BYTES + 1]);

#endif
