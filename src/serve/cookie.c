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

bool cookie_begin(struct cookie *ret, enum role role, bool https, int64_t now_s)
{
    unsigned char random[COOKIE_NONCE / 2];
    char text[COOKIE_NONCE + 1];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return false;
    hex(random, sizeof random, text);
    ret->role = role;
    ret->https = https;
    ret->ends_s = now_s + COOKIE_LIFE_S;
    memcpy(ret->nonce, text, COOKIE_NONCE);
    return true;
}

int64_t cookie_began_s(const struct cookie *cookie)
{
    return cookie->ends_s - COOKIE_LIFE_S;
}

/* The first words keep what is sealed here apart from anything else that a token may ever be the key for. */
static void seal(sv text, const char *name, const char *token, char ret[MAC_TEXT])
{
    char sealed[SEALED_MAX];
    unsigned char mac[SHA256_SIZE];
    int len = snprintf(sealed, sizeof sealed, "weir session 1\n%s=%.*s", name, SV_FMT(text));
    hmac_sha256(token, strlen(token), sealed, (size_t)len, mac);
    hex(mac, sizeof mac, ret);
}

void cookie_write(const struct cookie *cookie, const char *name, const struct tokens *tokens, char ret[COOKIE_VALUE_MAX])
{
    char mac[MAC_TEXT];
    int len = snprintf(ret, TEXT_MAX, "%s.%s.%" PRId64 ".%.*s", role_names[cookie->role], cookie->https ? "https" : "http",
                       cookie->ends_s, COOKIE_NONCE, cookie->nonce);
    seal(sv_of(ret, (size_t)len), name, tokens->roles[cookie->role], mac);
    snprintf(ret + len, COOKIE_VALUE_MAX - (size_t)len, ".%s", mac);
}

static enum role role_named(sv name)
{
    for (int role = ROLE_READ; role < ROLES; role++)
        if (sv_eq(name, weir_str(role_names[role])))
            return (enum role)role;
    return ROLE_NONE;
}

bool cookie_read(struct cookie *ret, sv value, const char *name, const struct tokens *tokens, int64_t now_s)
{
    char mac[MAC_TEXT];
    const char *dot = value.ptr ? memrchr(value.ptr, '.', value.len) : NULL;
    sv text = sv_of(value.ptr, dot ? (size_t)(dot - value.ptr) : 0), rest = text;
    enum role role = role_named(sv_cut(&rest, '.'));
    if (role == ROLE_NONE || text.len >= TEXT_MAX)
        return false;
    seal(text, name, tokens->roles[role], mac);
    if (!token_is(mac, sv_from(value, text.len + 1)))
        return false;
    /* From here on it is a text that cookie_write has made. */
    uint64_t ends_s;
    bool https = sv_eq(sv_cut(&rest, '.'), SV("https"));
    if (!sv_u64(sv_cut(&rest, '.'), INT64_MAX, &ends_s) || rest.len != COOKIE_NONCE)
        return false;
    ret->role = role;
    ret->https = https;
    ret->ends_s = (int64_t)ends_s;
    memcpy(ret->nonce, rest.ptr, COOKIE_NONCE);
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
