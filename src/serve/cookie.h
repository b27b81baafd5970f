/* The session of a browser: the value of its cookie, "operate.http.1767268800.NONCE.NAME.MAC".
 *
 * The service stores nothing for a session: the value says the name of its token, the role, and when it ends. A MAC seals
 * it, whose key is the hash of that token and the host's own key, since others may know the hash. So a session outlives a
 * restart, and ends when its token is withdrawn, or gets another role. The MAC includes the name of the cookie, which has
 * the port: browsers send a cookie to all ports of a host. */
#ifndef SERVE_COOKIE_H
#define SERVE_COOKIE_H

#include "serve/tokens.h"

enum { COOKIE_NAME_MAX = 32, COOKIE_VALUE_MAX = 224, COOKIE_NONCE = 32, COOKIE_LIFE_S = 12 * 3600 };

struct cookie {
    enum role role;
    char token[TOKEN_NAME_MAX + 1]; /* its name */
    bool https;                     /* the page came over https; a page of the same host that did not is another one */
    int64_t ends_s;                 /* since 1970 */
    char nonce[COOKIE_NONCE];       /* hexadecimal digits; no two sessions have the same */
};

/* "weir_8081" for "127.0.0.1:8081"; for a unix socket a part of the hash of its path stands for the port. */
void cookie_name(const char *where, char ret[COOKIE_NAME_MAX]);

/* A session that begins now. False: there are no random numbers. */
bool cookie_begin(struct cookie *ret, const struct token *token, bool https, int64_t now_s);
/* When it began, in seconds since 1970. */
int64_t cookie_began_s(const struct cookie *cookie);

/* The value, and a NUL. Its token is one of `tokens`. */
void cookie_write(const struct cookie *cookie, const char *name, const struct tokens *tokens, char ret[COOKIE_VALUE_MAX]);
/* False: it was not made here with the tokens as they are, or has expired. */
bool cookie_read(struct cookie *ret, sv value, const char *name, const struct tokens *tokens, int64_t now_s);

/* The next value of this name in *rest, the value of a header Cookie: there may be several, since a page of another port or
 * path can set one, too. ptr NULL: no more. */
sv cookie_next(sv *rest, const char *name);

#endif
