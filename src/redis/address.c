#include "redis/address.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/err.h"

/* Errors do not quote the address: what looks like a port may be half of a password. */
static const char allowed[] = "an address is redis://HOST:PORT/DB, redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB, "
                              "redis+cluster://HOST:PORT,HOST:PORT, the same with rediss for TLS, or unix:PATH";

/* Copies s and decodes %41 to A; `what` names it in an error. */
static int decode(char *ret, size_t max, sv s, const char *what, struct weir_error *error)
{
    ptrdiff_t len = sv_unescape(s, ret, max);
    if (len < 0)
        return err_set(error, WEIR_E_INVALID,
                       "the %s in the store's address contains a %% that is not followed by two hexadecimal digits, or "
                       "%%00; write %%25 for a percent sign",
                       what);
    if ((size_t)len > max)
        return err_set(error, WEIR_E_INVALID, "the %s in the store's address is longer than %zu bytes", what, max);
    ret[len] = '\0';
    return 0;
}

static int read_db(struct redis_address *a, sv text, struct weir_error *error)
{
    uint64_t db;
    if (!sv_u64(text, REDIS_DB_MAX, &db))
        return err_set(error, WEIR_E_INVALID, "the database in the store's address is not a number from 0 to %d",
                       REDIS_DB_MAX);
    a->db = (unsigned)db;
    return 0;
}

static bool prefix_valid(sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = ascii_lower(s.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !ascii_digit(c) && !memchr("-_.:", c, 4))
            return false;
    }
    return s.len > 0 && s.len <= SCRIPT_PREFIX_MAX;
}

static int read_prefix(struct redis_address *a, sv value, struct weir_error *error)
{
    if (!prefix_valid(value))
        return err_set(
            error, WEIR_E_INVALID,
            "the prefix in the store's address must be 1 to %d letters, digits or any of -_.:", SCRIPT_PREFIX_MAX);
    return decode(a->prefix, SCRIPT_PREFIX_MAX, value, "prefix", error);
}

static int unknown_option(const struct redis_address *a, struct weir_error *error)
{
    const char *more = a->kind == REDIS_UNIX ? "db, user, " : a->tls ? "ca, cert, key, name, " : "";
    const char *sentinel = a->kind == REDIS_SENTINEL ? "sentinel_password_file, " : "";
    return err_set(error, WEIR_E_INVALID,
                   "unknown option after ? in the store's address; allowed: %s%spassword_file and prefix", more, sentinel);
}

static int read_option(struct redis_address *a, sv name, sv value, struct weir_error *error)
{
    const struct {
        sv name;
        char *to;
        size_t max;
        bool allowed, tls;
    } options[] = {
        { SV("user"), a->user, REDIS_HOST_MAX, .allowed = a->kind == REDIS_UNIX },
        { SV("password_file"), a->password_file, REDIS_FILE_MAX, .allowed = true },
        { SV("sentinel_password_file"), a->sentinel_password_file, REDIS_FILE_MAX, .allowed = a->kind == REDIS_SENTINEL },
        { SV("ca"), a->ca, REDIS_FILE_MAX, .tls = true },
        { SV("cert"), a->cert, REDIS_FILE_MAX, .tls = true },
        { SV("key"), a->key, REDIS_FILE_MAX, .tls = true },
        { SV("name"), a->name, REDIS_HOST_MAX, .tls = true },
    };
    if (sv_eq(name, SV("prefix")))
        return read_prefix(a, value, error);
    if (a->kind == REDIS_UNIX && sv_eq(name, SV("db")))
        return read_db(a, value, error);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!sv_eq(name, options[i].name) || !(options[i].allowed || options[i].tls))
            continue;
        if (options[i].tls && !a->tls)
            return err_set(error, WEIR_E_INVALID,
                           "the option %.*s in the store's address needs TLS: write rediss://, rediss+sentinel:// or "
                           "rediss+cluster://",
                           SV_FMT(name));
        if (value.len == 0)
            return err_set(error, WEIR_E_INVALID, "the option %.*s in the store's address is empty", SV_FMT(name));
        return decode(options[i].to, options[i].max, value, options[i].name.ptr, error);
    }
    return unknown_option(a, error);
}

static int check_options(const struct redis_address *a, struct weir_error *error)
{
    if (a->key[0] && !a->cert[0])
        return err_set(error, WEIR_E_INVALID, "the store's address has a key and no cert; give cert=FILE, too");
    if (a->password[0] && a->password_file[0])
        return err_set(error, WEIR_E_INVALID, "the store's address has a password and a password_file; leave out one");
    return 0;
}

static int read_options(struct redis_address *a, sv query, struct weir_error *error)
{
    int r = 0;
    while (r == 0 && query.len > 0) {
        sv value = sv_cut(&query, '&');
        sv name = sv_cut(&value, '=');
        r = read_option(a, name, value, error);
    }
    return r < 0 ? r : check_options(a, error);
}

static int read_port(sv text, uint16_t *port, struct weir_error *error)
{
    uint64_t number;
    if (!sv_u64(text, UINT16_MAX, &number) || number == 0)
        return err_set(
            error, WEIR_E_INVALID,
            "the port in the store's address is not a number from 1 to 65535; in a user or password write %%3A for "
            ":, %%2F for / and %%40 for @");
    *port = (uint16_t)number;
    return 0;
}

/* HOST, HOST:PORT, [::1]:PORT */
static int read_endpoint(sv text, uint16_t port, struct redis_endpoint *ret, struct weir_error *error)
{
    bool brackets = text.len > 0 && text.ptr[0] == '[';
    sv rest = brackets ? sv_from(text, 1) : text;
    if (brackets && !memchr(rest.ptr, ']', rest.len))
        return err_set(error, WEIR_E_INVALID, "the store's address has a [ without a ]; %s", allowed);
    sv host = sv_cut(&rest, brackets ? ']' : ':');
    if (host.len == 0)
        return err_set(error, WEIR_E_INVALID, "the store's address does not name a host; %s", allowed);
    ret->port = port;
    bool has_port = brackets ? rest.len > 0 : host.len < text.len;
    if (brackets && has_port && rest.ptr[0] != ':')
        return err_set(error, WEIR_E_INVALID, "in the store's address, ] must be followed by :PORT or nothing");
    int r = has_port ? read_port(brackets ? sv_from(rest, 1) : rest, &ret->port, error) : 0;
    return r < 0 ? r : decode(ret->host, REDIS_HOST_MAX, host, "host", error);
}

static int read_endpoints(struct redis_address *a, sv list, struct weir_error *error)
{
    if (a->kind == REDIS_TCP) {
        a->endpoint_count = 1;
        return read_endpoint(list, REDIS_PORT, &a->endpoints[0], error);
    }
    bool sentinels = a->kind == REDIS_SENTINEL;
    do {
        sv text = sv_cut(&list, ',');
        if (a->endpoint_count == REDIS_ENDPOINTS_MAX)
            return err_set(error, WEIR_E_INVALID, "the store's address names more than %d %s", REDIS_ENDPOINTS_MAX,
                           sentinels ? "sentinels" : "nodes; some of them suffice");
        int r =
            read_endpoint(text, sentinels ? REDIS_SENTINEL_PORT : REDIS_PORT, &a->endpoints[a->endpoint_count++], error);
        if (r < 0)
            return r;
    } while (list.len > 0);
    return 0;
}

static int read_user(struct redis_address *a, sv *endpoints, struct weir_error *error)
{
    const char *at = memrchr(endpoints->ptr, '@', endpoints->len);
    if (!at)
        return 0;
    sv password = sv_of(endpoints->ptr, (size_t)(at - endpoints->ptr));
    sv user = sv_cut(&password, ':');
    *endpoints = sv_from(*endpoints, (size_t)(at - endpoints->ptr) + 1);
    int r = decode(a->user, REDIS_HOST_MAX, user, "user", error);
    return r < 0 ? r : decode(a->password, SECRET_MAX, password, "password", error);
}

/* [USER[:PASSWORD]@]HOSTS[/MASTER][/DB] */
static int read_url(struct redis_address *a, sv rest, struct weir_error *error)
{
    sv query = rest;
    rest = sv_cut(&query, '?');
    sv endpoints = sv_cut(&rest, '/');
    int r = endpoints.len > 0 ? read_user(a, &endpoints, error) : 0;
    if (r == 0)
        r = read_endpoints(a, endpoints, error);
    if (r == 0 && a->kind == REDIS_SENTINEL) {
        sv master = sv_cut(&rest, '/');
        if (master.len == 0)
            return err_set(error, WEIR_E_INVALID,
                           "the address of sentinels must name the master, as in redis+sentinel://HOST:PORT/MASTER");
        r = decode(a->master, REDIS_HOST_MAX, master, "master's name", error);
    }
    if (r == 0 && rest.len > 0 && a->kind == REDIS_CLUSTER)
        return err_set(error, WEIR_E_INVALID,
                       "the address of a cluster names hosts and nothing after them: a cluster has one database");
    if (r == 0 && rest.len > 0)
        r = read_db(a, rest, error);
    return r < 0 ? r : read_options(a, query, error);
}

static int read_unix(struct redis_address *a, sv rest, struct weir_error *error)
{
    sv query = rest, path = sv_cut(&query, '?');
    if (sv_starts(path, SV("///")))
        path = sv_from(path, 2);
    if (path.len == 0 || sv_starts(path, SV("//")))
        return err_set(error, WEIR_E_INVALID,
                       "unix: must be followed by the path of a socket, as in unix:/run/redis/redis.sock");
    int r = decode(a->path, sizeof a->path - 1, path, "path", error);
    return r < 0 ? r : read_options(a, query, error);
}

void redis_endpoint_show(const struct redis_endpoint *endpoint, char shown[REDIS_SHOWN_MAX + 1])
{
    bool brackets = strchr(endpoint->host, ':') != NULL;
    snprintf(shown, REDIS_SHOWN_MAX + 1, brackets ? "[%.180s]:%u" : "%.180s:%u", endpoint->host, endpoint->port);
}

static void show(struct redis_address *a)
{
    static const char *const kinds[] = {
        [REDIS_TCP] = "", [REDIS_UNIX] = "", [REDIS_SENTINEL] = "+sentinel", [REDIS_CLUSTER] = "+cluster"
    };
    struct buf out;
    char room[sizeof a->endpoints + 2 * REDIS_HOST_MAX];
    buf_over(&out, room, sizeof room);
    if (a->kind == REDIS_UNIX)
        buf_printf(&out, "unix:%s", a->path);
    else
        buf_printf(&out, "%s%s://%s%s", a->tls ? "rediss" : "redis", kinds[a->kind], a->user, a->user[0] ? "@" : "");
    for (size_t i = 0; i < a->endpoint_count; i++) {
        bool brackets = strchr(a->endpoints[i].host, ':') != NULL;
        buf_printf(&out, brackets ? "%s[%s]:%u" : "%s%s:%u", i > 0 ? "," : "", a->endpoints[i].host, a->endpoints[i].port);
    }
    if (a->kind == REDIS_SENTINEL)
        buf_printf(&out, "/%s", a->master);
    if (a->db > 0)
        buf_printf(&out, a->kind == REDIS_UNIX ? "?db=%u" : "/%u", a->db);
    if (strcmp(a->prefix, "weir") != 0)
        buf_printf(&out, "%cprefix=%s", a->kind == REDIS_UNIX && a->db > 0 ? '&' : '?', a->prefix);
    snprintf(a->shown, sizeof a->shown, "%.*s", REDIS_SHOWN_MAX, room);
}

static int take_secret(char *ret, const char *variable, struct weir_error *error)
{
    const char *secret = getenv(variable);
    if (!secret || ret[0] != '\0')
        return 0;
    size_t len = strlen(secret);
    if (len > SECRET_MAX)
        return err_set(error, WEIR_E_INVALID, "%s is longer than %d bytes", variable, SECRET_MAX);
    memcpy(ret, secret, len + 1);
    return 0;
}

static int read_kind(struct redis_address *a, sv text, struct weir_error *error)
{
    static const struct {
        sv start;
        enum redis_kind kind;
        bool tls;
    } kinds[] = {
        { SV("redis://"), REDIS_TCP },
        { SV("valkey://"), REDIS_TCP },
        { SV("rediss://"), REDIS_TCP, true },
        { SV("valkeys://"), REDIS_TCP, true },
        { SV("redis+sentinel://"), REDIS_SENTINEL },
        { SV("rediss+sentinel://"), REDIS_SENTINEL, true },
        { SV("redis+cluster://"), REDIS_CLUSTER },
        { SV("valkey+cluster://"), REDIS_CLUSTER },
        { SV("rediss+cluster://"), REDIS_CLUSTER, true },
        { SV("valkeys+cluster://"), REDIS_CLUSTER, true },
        { SV("redis+unix:"), REDIS_UNIX },
        { SV("unix:"), REDIS_UNIX },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!sv_starts(text, kinds[i].start))
            continue;
        a->kind = kinds[i].kind;
        a->tls = kinds[i].tls;
        sv rest = sv_from(text, kinds[i].start.len);
        return a->kind == REDIS_UNIX ? read_unix(a, rest, error) : read_url(a, rest, error);
    }
    return err_set(error, WEIR_E_INVALID, "not a valid address of a store; %s", allowed);
}

int redis_address_read(struct redis_address *ret, const char *text, struct weir_error *error)
{
    *ret = (struct redis_address){ .prefix = "weir" };
    int r = read_kind(ret, weir_str(text), error);
    if (r == 0 && ret->password_file[0] == '\0')
        r = take_secret(ret->password, "WEIR_REDIS_PASSWORD", error);
    if (r == 0 && ret->kind == REDIS_SENTINEL && ret->sentinel_password_file[0] == '\0')
        r = take_secret(ret->sentinel_password, "WEIR_SENTINEL_PASSWORD", error);
    if (r == 0)
        show(ret);
    return r;
}
