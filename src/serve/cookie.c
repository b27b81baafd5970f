#include "serve/cookie.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/sha256.h"

enum {
    EARLY_S = 300, /* the clock may have been set back since the session began */
    TEXT_MAX = COOKIE_VALUE_MAX - 2 * SHA256_SIZE - 1,
    SEALED_MAX = 40 + COOKIE_NAME_MAX + TEXT_MAX,
    MAC_TEXT = 2 * SHA256_SIZE + 1,
};

static void hex(const unsigned char *bytes, size_t count, char *ret)
{
    for (size_t i = 0; i < count; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

void cookie_name(const char *where, char ret[COOKIE_NAME_MAX])
{
    const char *colon = strrchr(where, ':');
    uint64_t port;
    if (strncmp(where, "unix:", 5) != 0 && colon && sv_u64(weir_str(colon + 1), UINT16_MAX, &port)) {
        snprintf(ret, COOKIE_NAME_MAX, "weir_%u", (unsigned)port);
        return;
    }
    unsigned char hash[SHA256_SIZE];
    char text[2 * 4 + 1];
    sha256(where, strlen(where), hash);
    hex(hash, 4, text);
    snprintf(ret, COOKIE_NAME_MAX, "weir_unix_%s", text);
}

bool cookie_begin(struct cookie *ret, const struct token *token, bool https, int64_t now_s)
{
    unsigned char random[COOKIE_NONCE / 2];
    char text[COOKIE_NONCE + 1];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return false;
    hex(random, sizeof random, text);
    ret->role = token->role;
    memcpy(ret->token, token->name, sizeof ret->token);
    ret->https = https;
    ret->ends_s = now_s + COOKIE_LIFE_S;
    memcpy(ret->nonce, text, COOKIE_NONCE);
    return true;
}

int64_t cookie_began_s(const struct cookie *cookie)
{
    return cookie->ends_s - COOKIE_LIFE_S;
}

/* The first words keep what is sealed here apart from anything else that these keys may ever be used for. */
static void seal(sv text, const char *name, const struct tokens *tokens, const struct token *token, char ret[MAC_TEXT])
{
    char sealed[SEALED_MAX];
    unsigned char key[2 * SHA256_SIZE], mac[SHA256_SIZE];
    memcpy(key, tokens->session_key, SHA256_SIZE);
    memcpy(key + SHA256_SIZE, token->hash, SHA256_SIZE);
    int len = snprintf(sealed, sizeof sealed, "weir session 2\n%s=%.*s", name, SV_FMT(text));
    hmac_sha256(key, sizeof key, sealed, (size_t)len, mac);
    hex(mac, sizeof mac, ret);
}

void cookie_write(const struct cookie *cookie, const char *name, const struct tokens *tokens, char ret[COOKIE_VALUE_MAX])
{
    char mac[MAC_TEXT];
    int len = snprintf(ret, TEXT_MAX, "%s.%s.%" PRId64 ".%.*s.%s", role_names[cookie->role],
                       cookie->https ? "https" : "http", cookie->ends_s, COOKIE_NONCE, cookie->nonce, cookie->token);
    seal(sv_of(ret, (size_t)len), name, tokens, token_named(tokens, weir_str(cookie->token)), mac);
    snprintf(ret + len, COOKIE_VALUE_MAX - (size_t)len, ".%s", mac);
}

bool cookie_read(struct cookie *ret, sv value, const char *name, const struct tokens *tokens, int64_t now_s)
{
    char mac[MAC_TEXT];
    uint64_t ends_s;
    const char *dot = value.ptr ? memrchr(value.ptr, '.', value.len) : NULL;
    sv text = sv_of(value.ptr, dot ? (size_t)(dot - value.ptr) : 0), rest = text;
    sv role = sv_cut(&rest, '.'), scheme = sv_cut(&rest, '.'), ends = sv_cut(&rest, '.'), nonce = sv_cut(&rest, '.');
    const struct token *token = token_named(tokens, rest);
    if (!token || text.len >= TEXT_MAX)
        return false;
    seal(text, name, tokens, token, mac);
    if (!token_is(mac, sv_from(value, text.len + 1)))
        return false;
    /* From here on it is a text that cookie_write has made. */
    if (!sv_eq(role, weir_str(role_names[token->role])) || !sv_u64(ends, INT64_MAX, &ends_s) || nonce.len != COOKIE_NONCE)
        return false;
    ret->role = token->role;
    memcpy(ret->token, token->name, sizeof ret->token);
    ret->https = sv_eq(scheme, SV("https"));
    ret->ends_s = (int64_t)ends_s;
    memcpy(ret->nonce, nonce.ptr, COOKIE_NONCE);
    return now_s < ret->ends_s && cookie_began_s(ret) <= now_s + EARLY_S;
}

sv cookie_next(sv *rest, const char *name)
{
    while (rest->len > 0) {
        sv value = sv_cut(rest, ';'), key = sv_trim_ows(sv_cut(&value, '='));
        if (sv_eq(key, weir_str(name)))
            return value.ptr ? sv_trim_ows(value) : SV("");
    }
    return sv_of(NULL, 0);
}
