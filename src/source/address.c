#include "source/address.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

enum { ADDRESS_MAX = 4096, PORT_MAX = 65535 };

/* Errors do not quote the address: what looks like a port may be half of a password. */
static const char allowed[] = "an address is file:PATH, sqlite:PATH, envoy:FOLDER, mysql://USER@HOST:PORT/DATABASE or "
                              "postgres://USER@HOST:PORT/DATABASE";

static const struct scheme {
    const char *name;
    enum source_kind kind;
} schemes[] = {
    { "file", SOURCE_FILE },           { "envoy", SOURCE_ENVOY },   { "sqlite", SOURCE_SQLITE },
    { "mysql", SOURCE_MYSQL },         { "mariadb", SOURCE_MYSQL }, { "postgres", SOURCE_POSTGRES },
    { "postgresql", SOURCE_POSTGRES },
};

struct url_parts {
    sv scheme, user, password, host, port, database, query;
    bool has_user;
};

void address_done(struct source_address *address)
{
    if (!address)
        return;
    if (address->password)
        explicit_bzero(address->password, strlen(address->password));
    char *fields[] = { address->path, address->user,     address->password, address->password_file,
                       address->host, address->database, address->query,    address->shown };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        free(fields[i]);
    *address = (struct source_address){ 0 };
}

/* A copy of s with %41 decoded to A; `what` names it in an error. */
static int decode(char **ret, sv s, const char *what, struct weir_error *error)
{
    CLEANUP_FREE char *text = cleanup_calloc(1, s.len + 1);
    if (!text)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    ptrdiff_t len = sv_unescape(s, text, s.len);
    if (len < 0)
        return err_set(error, WEIR_E_INVALID,
                       "the %s in the address contains a %% that is not followed by two hexadecimal digits, or %%00; write "
                       "%%25 for a percent sign",
                       what);
    text[len] = '\0';
    *ret = STEAL(text);
    return 0;
}

static int copy(char **ret, sv s, struct weir_error *error)
{
    char *text = strndup(s.ptr ? s.ptr : "", s.len);
    if (!text)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    *ret = text;
    return 0;
}

static sv scheme_of(sv text)
{
    size_t n = 0;
    while (n < text.len && ((ascii_lower(text.ptr[n]) >= 'a' && ascii_lower(text.ptr[n]) <= 'z') ||
                            (n > 0 && (ascii_digit(text.ptr[n]) || text.ptr[n] == '+' || text.ptr[n] == '-'))))
        n++;
    return n > 1 && n < text.len && text.ptr[n] == ':' ? sv_of(text.ptr, n) : (sv){ 0 };
}

static const struct scheme *find_scheme(sv name)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (sv_eq_nocase(name, weir_str(schemes[i].name)))
            return &schemes[i];
    return NULL;
}

static int read_path(sv text, sv path, struct source_address *address, struct weir_error *error)
{
    static const char *const kinds[] = { [SOURCE_FILE] = "file", [SOURCE_ENVOY] = "envoy", [SOURCE_SQLITE] = "sqlite" };
    const char *kind = kinds[address->kind];
    if (path.len == 0)
        return err_set(error, WEIR_E_INVALID, "the address does not name a file; %s", allowed);
    /* sqlite://rules.db would name a host in other addresses; here it means neither that nor /rules.db. */
    if (sv_starts(path, SV("//")) && !sv_starts(path, SV("///")))
        return err_set(error, WEIR_E_INVALID, "%s: must be followed by a path without //: %s:%.*s", kind, kind,
                       SV_FMT(sv_from(path, 2)));
    int r = copy(&address->path, path, error);
    return r < 0 ? r : copy(&address->shown, text, error);
}

static int bad_option(sv pair, struct weir_error *error)
{
    return err_set(error, WEIR_E_INVALID,
                   "\"%.*s\" in the address is not an option; allowed are merge=true, windows=natural and tz=ZONE",
                   SV_FMT(pair));
}

/* envoy:FOLDER?merge=true&windows=natural&tz=Asia/Shanghai */
static int read_envoy(sv text, sv rest, struct source_address *address, struct weir_error *error)
{
    sv query = rest, path = sv_cut(&query, '?');
    int r = read_path(text, path, address, error);
    if (r == 0)
        r = copy(&address->query, query, error);
    sv left = r == 0 ? weir_str(address->query) : SV("");
    while (r == 0 && left.len > 0) {
        sv pair = sv_cut(&left, '&'), value = pair, name = sv_cut(&value, '=');
        if (sv_eq(name, SV("tz")) && value.len > 0)
            address->envoy.tz = value;
        else if (sv_eq(pair, SV("merge=true")))
            address->envoy.merge = true;
        else if (sv_eq(pair, SV("windows=natural")))
            address->envoy.natural = true;
        else
            r = bad_option(pair, error);
    }
    if (r == 0 && address->envoy.tz.len > 0 && !address->envoy.natural)
        r = err_set(error, WEIR_E_INVALID, "tz in the address needs windows=natural");
    return r;
}

/* user:password@host:port/database?query */
static void split(sv rest, struct url_parts *p)
{
    size_t end = 0, at = SIZE_MAX;
    while (end < rest.len && rest.ptr[end] != '/' && rest.ptr[end] != '?') {
        if (rest.ptr[end] == '@')
            at = end;
        end++;
    }
    sv authority = sv_of(rest.ptr, end);
    rest = sv_from(rest, end);
    if (at != SIZE_MAX) {
        p->has_user = true;
        p->password = sv_of(authority.ptr, at);
        authority = sv_from(authority, at + 1);
        p->user = sv_cut(&p->password, ':');
    }
    sv after = authority;
    if (authority.len > 0 && authority.ptr[0] == '[') {
        after = sv_from(authority, 1);
        p->host = sv_cut(&after, ']');
        if (after.len > 0 && after.ptr[0] == ':')
            p->port = sv_from(after, 1);
    } else {
        p->host = sv_cut(&after, ':');
        p->port = after;
    }
    p->query = rest;
    p->database = sv_cut(&p->query, '?');
    if (p->database.len > 0)
        p->database = sv_from(p->database, 1);
}

/* Passwords in the query: `password` and `password_file` are taken out of it, and that of a key is not shown. */
static int read_query(sv query, struct source_address *address, struct buf *other_options, struct buf *shown,
                      struct weir_error *error)
{
    while (query.len > 0) {
        sv pair = sv_cut(&query, '&'), value = pair;
        sv name = sv_cut(&value, '=');
        bool password = sv_eq(name, SV("password"));
        char **field = password                           ? &address->password
                       : sv_eq(name, SV("password_file")) ? &address->password_file
                       : sv_eq(name, SV("socket"))        ? &address->host
                                                          : NULL;
        CLEANUP_FREE char *text = NULL;
        if (pair.len == 0)
            continue;
        int r = decode(&text, value, "part after ?", error);
        if (r < 0)
            return r;
        if (field) {
            free(*field);
            *field = STEAL(text);
        } else {
            buf_printf(other_options, "%s%.*s", other_options->len ? "&" : "", SV_FMT(pair));
        }
        if (!password && !sv_eq(name, SV("sslpassword")))
            buf_printf(shown, "%s%.*s", shown->len ? "&" : "", SV_FMT(pair));
    }
    return 0;
}

static void show(const struct url_parts *p, sv query, struct buf *out)
{
    bool brackets = memchr(p->host.ptr ? p->host.ptr : "", ':', p->host.len) != NULL;
    buf_printf(out, "%.*s://%.*s%s", SV_FMT(p->scheme), SV_FMT(p->user), p->has_user && p->user.len ? "@" : "");
    buf_printf(out, brackets ? "[%.*s]" : "%.*s", SV_FMT(p->host));
    if (p->port.len)
        buf_printf(out, ":%.*s", SV_FMT(p->port));
    if (p->database.len)
        buf_printf(out, "/%.*s", SV_FMT(p->database));
    if (query.len)
        buf_printf(out, "?%.*s", SV_FMT(query));
}

static int read_server(const struct url_parts *p, struct source_address *address, struct buf *other_options,
                       struct buf *shown, struct weir_error *error)
{
    const struct {
        char **to;
        sv text;
        const char *what;
    } fields[] = { { &address->user, p->user, "user" },
                   { &address->password, p->password, "password" },
                   { &address->host, p->host, "host" },
                   { &address->database, p->database, "name of the database" } };
    uint64_t port = 0;
    const char *password = getenv("WEIR_DB_PASSWORD");
    if (p->port.len > 0 && (!sv_u64(p->port, PORT_MAX, &port) || port == 0))
        return err_set(error, WEIR_E_INVALID,
                       "the port in the address is not a number from 1 to %d; in a user or password write %%3A for :, "
                       "%%2F for / and %%40 for @",
                       PORT_MAX);
    address->port = (unsigned)port;
    int r = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && r == 0; i++)
        r = decode(fields[i].to, fields[i].text, fields[i].what, error);
    if (r == 0)
        r = read_query(p->query, address, other_options, shown, error);
    if (r < 0)
        return r;
    bool from_file = address->password_file && address->password_file[0];
    if (from_file && address->password[0])
        return err_set(error, WEIR_E_INVALID, "the address has a password and a password_file; leave out one");
    if (!from_file && address->password[0] == '\0' && password) {
        free(STEAL(address->password));
        r = copy(&address->password, weir_str(password), error);
    }
    return r < 0 ? r : copy(&address->query, buf_sv(other_options), error);
}

static int read_url(sv scheme, sv rest, struct source_address *address, struct weir_error *error)
{
    struct url_parts parts = { .scheme = scheme };
    CLEANUP(buf_done) struct buf other_options, shown_query, shown;
    buf_init(&other_options, ADDRESS_MAX);
    buf_init(&shown_query, ADDRESS_MAX);
    buf_init(&shown, 2 * ADDRESS_MAX);
    if (!sv_starts(rest, SV("//")))
        return err_set(error, WEIR_E_INVALID, "%.*s: must be followed by //; %s", SV_FMT(scheme), allowed);
    split(sv_from(rest, 2), &parts);
    int r = read_server(&parts, address, &other_options, &shown_query, error);
    if (r < 0)
        return r;
    show(&parts, buf_sv(&shown_query), &shown);
    if (other_options.failed || shown_query.failed || shown.failed)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    return copy(&address->shown, buf_sv(&shown), error);
}

/* Sets what is not given to "", so that no field is NULL. */
static int fill(struct source_address *address, struct weir_error *error)
{
    char **parts[] = { &address->path, &address->user,     &address->password, &address->password_file,
                       &address->host, &address->database, &address->query };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!*parts[i] && copy(parts[i], SV(""), error) < 0)
            return WEIR_E_NO_MEMORY;
    return 0;
}

int address_read(const char *text, struct source_address *ret, struct weir_error *error)
{
    sv whole = weir_str(text), scheme = scheme_of(whole);
    struct source_address address = { .kind = SOURCE_FILE };
    int r;
    if (whole.len > ADDRESS_MAX)
        return err_set(error, WEIR_E_INVALID, "the address is longer than %d bytes", ADDRESS_MAX);
    if (scheme.len == 0 && text && strchr(text, '@') && strstr(text, "//")) {
        /* Errors quote paths, and this is rather mysql//user:password@host than a path. */
        r = err_set(error, WEIR_E_INVALID, "the address does not begin with its kind; %s", allowed);
    } else if (scheme.len == 0) {
        r = read_path(whole, whole, &address, error);
    } else {
        const struct scheme *found = find_scheme(scheme);
        if (!found)
            return err_set(error, WEIR_E_INVALID, "unknown kind of source \"%.*s\"; %s", SV_FMT(scheme), allowed);
        address.kind = found->kind;
        sv rest = sv_from(whole, scheme.len + 1);
        if (found->kind == SOURCE_ENVOY)
            r = read_envoy(whole, rest, &address, error);
        else if (found->kind == SOURCE_FILE || found->kind == SOURCE_SQLITE)
            r = read_path(whole, rest, &address, error);
        else
            r = read_url(scheme, rest, &address, error);
    }
    if (r == 0)
        r = fill(&address, error);
    if (r < 0)
        address_done(&address);
    else
        *ret = address;
    return r;
}
