#include "serve/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "serve/conns.h"

enum {
    UNIX_MODE = 0660,
    PORT_TRIES = 8, /* for a port that the system chooses: another process may take it between two binds */
};

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
    struct sockaddr_storage room;
};

struct endpoint {
    union address address;
    socklen_t len;
    bool off;
    bool both; /* "*": IPv4, too, on a socket for IPv6 */
};

/* The parameters of listen_open, for all its steps. */
struct opening {
    const char *name, *text;
    struct weir_error *error;
};

/* ---- addresses ---- */

static bool parse_unix(const char *path, struct endpoint *ret)
{
    struct sockaddr_un *un = &ret->address.un;
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof un->sun_path)
        return false;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, len + 1);
    ret->len = sizeof *un;
    return true;
}

/* getaddrinfo without a look-up: it knows the zones of link-local addresses (fe80::1%eth0). */
static bool parse_numeric(const char *host, const char *port, struct endpoint *ret)
{
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM }, *found;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        return false;
    memcpy(&ret->address, found->ai_addr, found->ai_addrlen);
    ret->len = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static bool parse_tcp(const char *text, struct endpoint *ret)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    char host[80];
    if (!colon || !sv_u64(weir_str(colon + 1), 65535, &port))
        return false;
    sv name = sv_of(text, (size_t)(colon - text));
    bool brackets = name.len > 2 && name.ptr[0] == '[' && name.ptr[name.len - 1] == ']';
    if (brackets)
        name = sv_of(name.ptr + 1, name.len - 2);
    if (name.len == 0 || name.len >= sizeof host || brackets != (memchr(name.ptr, ':', name.len) != NULL))
        return false;
    snprintf(host, sizeof host, "%.*s", SV_FMT(name));
    ret->both = strcmp(host, "*") == 0;
    return parse_numeric(ret->both ? "::" : strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, colon + 1, ret);
}

static bool parse(const char *text, struct endpoint *ret)
{
    *ret = (struct endpoint){ .off = strcmp(text, "off") == 0 };
    if (ret->off)
        return true;
    return strncmp(text, "unix:", 5) == 0 ? parse_unix(text + 5, ret) : parse_tcp(text, ret);
}

bool listen_is_address(const char *text)
{
    struct endpoint endpoint;
    return parse(text, &endpoint);
}

/* Writes the address of a socket as users write it. */
static void write_where(int fd, char out[LISTEN_WHERE_MAX])
{
    union address address = { 0 };
    socklen_t len = sizeof address;
    char host[NI_MAXHOST], port[8];
    bool known = getsockname(fd, &address.any, &len) == 0, local = known && address.any.sa_family == AF_UNIX;
    if (local)
        snprintf(out, LISTEN_WHERE_MAX, "unix:%s", address.un.sun_path);
    else if (known &&
             getnameinfo(&address.any, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(out, LISTEN_WHERE_MAX, address.any.sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    else
        snprintf(out, LISTEN_WHERE_MAX, "a socket");
}

/* ---- errors ---- */

static int in_use(const struct opening *o)
{
    return err_set(o->error, WEIR_E_SYSTEM, "%s is in use; choose another address with --%s", o->text, o->name);
}

static int failed(const struct opening *o)
{
    int no = errno;
    switch (no) {
    case EADDRINUSE:
        return in_use(o);
    case EADDRNOTAVAIL:
        return err_set(o->error, WEIR_E_SYSTEM, "%s is not an address of this host; choose another one with --%s", o->text,
                       o->name);
    case EACCES:
    case EPERM:
        return err_set(o->error, WEIR_E_SYSTEM,
                       "this user may not listen on %s: %s; choose another address with --%s, or let systemd open it",
                       o->text, strerror(no), o->name);
    default:
        return err_set(o->error, WEIR_E_SYSTEM, "cannot listen on %s: %s; choose another address with --%s", o->text,
                       strerror(no), o->name);
    }
}

static void close_all(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
}

/* Makes the others duplicates of fds[0]. */
static int duplicate(const struct opening *o, unsigned count, int *fds)
{
    for (unsigned i = 1; i < count; i++) {
        fds[i] = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
        if (fds[i] < 0) {
            int r = failed(o);
            close_all(fds, i);
            return r;
        }
    }
    return 0;
}

/* ---- TCP ---- */

/* A bound socket, or -1 with errno. Accepted sockets inherit TCP_NODELAY. */
static int bind_tcp(const struct endpoint *endpoint, bool reuse_port)
{
    static const int yes = 1;
    int only_v6 = !endpoint->both;
    bool v6 = endpoint->address.any.sa_family == AF_INET6;
    int fd = socket(endpoint->address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        (!reuse_port || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) == 0) &&
        (!v6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6) == 0) &&
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0 &&
        bind(fd, &endpoint->address.any, endpoint->len) == 0)
        return fd;
    cleanup_close(&fd);
    return -1;
}

/* Sockets that share a port would also share it with those of another weir, and get only part of the requests. So the first
 * socket does not share: it finds out whether the port is free, and which one it is. */
static int probe(struct endpoint *endpoint)
{
    socklen_t len = sizeof endpoint->address;
    CLEANUP_CLOSE int fd = bind_tcp(endpoint, false);
    return fd < 0 || listen(fd, 1) < 0 || getsockname(fd, &endpoint->address.any, &len) < 0 ? -1 : 0;
}

static int try_tcp(struct endpoint endpoint, unsigned count, int *fds)
{
    if (count > 1 && probe(&endpoint) < 0)
        return -1;
    for (unsigned i = 0; i < count; i++) {
        fds[i] = bind_tcp(&endpoint, count > 1);
        if (fds[i] < 0 || listen(fds[i], LISTEN_BACKLOG) < 0) {
            int no = errno;
            close_all(fds, fds[i] < 0 ? i : i + 1);
            errno = no;
            return -1;
        }
    }
    return 0;
}

static int open_tcp(const struct opening *o, struct endpoint *endpoint, unsigned count, int *fds)
{
    bool any_port = endpoint->address.v4.sin_port == 0; /* at the same offset in both families */
    int r = try_tcp(*endpoint, count, fds);
    if (r < 0 && errno == EAFNOSUPPORT && endpoint->both) {
        uint16_t port = endpoint->address.v6.sin6_port;
        *endpoint = (struct endpoint){ .address.v4 = { .sin_family = AF_INET, .sin_port = port },
                                       .len = sizeof(struct sockaddr_in) };
        r = try_tcp(*endpoint, count, fds);
    }
    for (int i = 1; r < 0 && errno == EADDRINUSE && any_port && i < PORT_TRIES; i++)
        r = try_tcp(*endpoint, count, fds);
    return r < 0 ? failed(o) : 0;
}

/* ---- unix sockets ---- */

/* Removes the file of a process that has died. */
static int clear_path(const struct opening *o, const struct endpoint *endpoint)
{
    const char *path = endpoint->address.un.sun_path;
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : failed(o);
    if (!S_ISSOCK(st.st_mode))
        return err_set(o->error, WEIR_E_SYSTEM,
                       "%s is a file that is not a socket, and weir leaves it as it is; choose another path with --%s",
                       path, o->name);
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return failed(o);
    if (connect(fd, &endpoint->address.any, endpoint->len) == 0 || errno != ECONNREFUSED)
        return in_use(o);
    return unlink(path) < 0 && errno != ENOENT ? failed(o) : 0;
}

/* The file begins with the mode of the unbound socket, so that other users can never connect; chmod then sets the bits that
 * the umask removed. */
static int bind_unix(const struct opening *o, const struct endpoint *endpoint, int fd)
{
    const char *path = endpoint->address.un.sun_path;
    if (fchmod(fd, UNIX_MODE) < 0 || bind(fd, &endpoint->address.any, endpoint->len) < 0)
        return failed(o);
    if (chmod(path, UNIX_MODE) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
        return 0;
    int r = failed(o);
    unlink(path);
    return r;
}

static int open_unix(const struct opening *o, const struct endpoint *endpoint, unsigned count, int *fds)
{
    int r = clear_path(o, endpoint);
    if (r < 0)
        return r;
    fds[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fds[0] < 0)
        return failed(o);
    r = bind_unix(o, endpoint, fds[0]);
    if (r < 0)
        close(fds[0]);
    else if ((r = duplicate(o, count, fds)) < 0)
        unlink(endpoint->address.un.sun_path);
    return r;
}

/* ---- handed over ---- */

static bool is_known(const char *name)
{
    for (int front = 0; front < FRONTS; front++)
        if (strcmp(name, front_names[front]) == 0)
            return true;
    return false;
}

/* Returns 1 with *ret_fd if the service manager has passed a socket of this name, 0 if not. An unknown name is an error:
 * clients of that socket would wait for ever. */
static int handed_over(const char *name, int *ret_fd, struct weir_error *error)
{
    char **given = NULL;
    int count = sd_listen_fds_with_names(false, &given), fd = -1, r = 0;
    if (count < 0)
        return err_set(error, WEIR_E_SYSTEM, "cannot take over the sockets of the service manager: %s", strerror(-count));
    for (int i = 0; i < count && r == 0; i++) {
        if (!is_known(given[i]))
            r = err_set(error, WEIR_E_INVALID,
                        "the service manager hands over a socket named '%.50s'; allowed: http, resp, grpc, admin "
                        "(FileDescriptorName= in its unit)",
                        given[i]);
        else if (strcmp(given[i], name) == 0 && fd >= 0)
            r = err_set(error, WEIR_E_INVALID, "the service manager hands over two sockets named %s; leave out one", name);
        else if (strcmp(given[i], name) == 0)
            fd = SD_LISTEN_FDS_START + i;
    }
    for (int i = 0; i < count; i++)
        free(given[i]);
    free(given);
    if (r < 0 || fd < 0)
        return r;
    *ret_fd = fd;
    return 1;
}

static int take_over(const struct opening *o, int fd, unsigned count, int *fds, char where[LISTEN_WHERE_MAX])
{
    if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0)
        return err_set(o->error, WEIR_E_INVALID, "the socket %s of the service manager is not a listening stream socket",
                       o->name);
    int flags = fcntl(fd, F_GETFL), yes = 1;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return failed(o);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* fails for a unix socket */
    fds[0] = fd;
    write_where(fd, where);
    return duplicate(o, count, fds);
}

/* ---- all together ---- */

int listen_open(const char *name, const char *address, unsigned count, int *ret_fds, char ret_where[LISTEN_WHERE_MAX],
                struct weir_error *error)
{
    struct opening o = { name, address, error };
    struct endpoint endpoint;
    int fd, r = handed_over(name, &fd, error);
    if (r < 0)
        return r;
    if (r > 0)
        return take_over(&o, fd, count, ret_fds, ret_where);
    if (!parse(address, &endpoint))
        return err_set(error, WEIR_E_INVALID, "--%s: '%.60s' is not allowed here; allowed: %s", name, address,
                       LISTEN_ALLOWED);
    if (endpoint.off) {
        snprintf(ret_where, LISTEN_WHERE_MAX, "off");
        return 0;
    }
    if (endpoint.address.any.sa_family == AF_UNIX)
        r = open_unix(&o, &endpoint, count, ret_fds);
    else
        r = open_tcp(&o, &endpoint, count, ret_fds);
    if (r == 0)
        write_where(ret_fds[0], ret_where);
    return r;
}

void listen_close(const char *name, const char *where)
{
    int fd;
    if (strncmp(where, "unix:", 5) == 0 && handed_over(name, &fd, NULL) == 0)
        unlink(where + 5);
}
