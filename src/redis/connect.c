#include "redis/connect.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "redis/reply.h"

#define CONNECT_US US_PER_S /* for a server: from the first packet to the last answer */

enum { ANSWER_MAX = 64 << 10, COMMAND_MAX = 1 << 20, KEEPALIVE_S = 15, SECURE_BYTES = 16 << 10, TLS_ALERT = 21 };

/* A connection that is being made. */
struct handshake {
    int fd, stop_fd;
    int64_t until_us;
    struct buf out;
    struct tls *tls;   /* NULL: none */
    bool client_cert;  /* there is one for the server */
    bool tcp, heard;   /* heard: the server has sent something */
    size_t len, taken; /* of what was read, and of what was parsed of it */
    char *why;
    char in[ANSWER_MAX];
};

__attribute__((format(printf, 2, 3))) static int fail(struct handshake *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(t->why, CONNECT_WHY_MAX, format, args);
    va_end(args);
    return -1;
}

static int timed_out(struct handshake *t)
{
    bool greeting = t->tls && !tls_is_open(t->tls);
    return fail(t, "no answer within %d ms%s", (int)(CONNECT_US / US_PER_MS),
                greeting ? " to the TLS handshake; does the server expect TLS on this port?" : "");
}

static int wait_for(struct handshake *t, short events)
{
    struct pollfd fds[] = { { .fd = t->fd, .events = events }, { .fd = t->stop_fd, .events = POLLIN } };
    for (;;) {
        int64_t left_us = t->until_us - clock_steady_us();
        if (left_us <= 0)
            return timed_out(t);
        int n = poll(fds, 2, (int)(left_us / US_PER_MS) + 1);
        if (n < 0 && errno != EINTR)
            return fail(t, "%s", strerror(errno));
        if (n > 0 && fds[1].revents)
            return fail(t, "the store is being closed");
        if (n > 0 && fds[0].revents)
            return 0;
    }
}

/* ---- commands and replies ---- */

/* What the certificate says, and what to do. */
static int tls_failed(struct handshake *t)
{
    static const char *const advice[] = {
        [TLS_PROBLEM_UNVERIFIED] = "the server's certificate is not trusted: %s; name its authority by ca=FILE",
        [TLS_PROBLEM_NAME] = "the server's certificate is for another name: %s; give the right one by name=HOST",
        [TLS_PROBLEM_TIME] = "the server's certificate is not valid now: %s",
        [TLS_PROBLEM_NO_TLS] = "the server does not speak TLS on this port: %s; write redis:// for one without TLS",
        [TLS_PROBLEM_WANTED] = "the server wants a client certificate: %s; name one by cert=FILE&key=FILE",
        [TLS_PROBLEM_REFUSED] = "the server does not accept the client certificate: %s",
        [TLS_PROBLEM_OTHER] = "TLS: %s",
    };
    enum tls_problem problem = tls_problem(t->tls);
    /* Some servers say of a missing certificate that it is bad. */
    if (problem == TLS_PROBLEM_REFUSED && !t->client_cert)
        problem = TLS_PROBLEM_WANTED;
    return fail(t, advice[problem], tls_error(t->tls));
}

/* Adds the plain text to t->in; it may be none. */
static int decrypt(struct handshake *t, sv bytes)
{
    ptrdiff_t n = tls_decrypt(t->tls, bytes, t->in + t->len, sizeof t->in - t->len);
    if (n < 0)
        return tls_failed(t);
    t->len += (size_t)n;
    return n == 0 && tls_has_ended(t->tls) ? fail(t, "the server closed the connection") : 0;
}

/* A server that expects TLS says nothing to a client without. */
static int broken_off(struct handshake *t, const char *how)
{
    bool silent = t->tcp && !t->tls && !t->heard;
    return fail(t, "%s%s", how, silent ? "; if the server expects TLS on this port, write rediss://" : "");
}

/* A server that does not like the client's certificate says so, and closes: the reason may be there to be read when nothing
 * can be sent any more. */
static int send_failed(struct handshake *t, int no)
{
    char bytes[SECURE_BYTES];
    ssize_t n = t->tls && sizeof t->in - t->len >= sizeof bytes + TLS_RECORD_MAX ? recv(t->fd, bytes, sizeof bytes, 0) : -1;
    if (n > 0 && decrypt(t, sv_of(bytes, (size_t)n)) < 0)
        return -1;
    return broken_off(t, strerror(no));
}

static int send_bytes(struct handshake *t, sv rest)
{
    while (rest.len > 0) {
        ssize_t n = send(t->fd, rest.ptr, rest.len, MSG_NOSIGNAL);
        if (n > 0)
            rest = sv_from(rest, (size_t)n);
        else if (errno != EAGAIN && errno != EINTR)
            return send_failed(t, errno);
        else if (errno == EAGAIN && wait_for(t, POLLOUT) < 0)
            return -1;
    }
    return 0;
}

static int send_encrypted(struct handshake *t)
{
    sv output = tls_output(t->tls);
    int r = send_bytes(t, output);
    if (r == 0)
        tls_sent(t->tls, output.len);
    return r;
}

static int send_all(struct handshake *t)
{
    int r;
    if (t->out.failed || (t->tls && !tls_encrypt(t->tls, buf_sv(&t->out))))
        return fail(t, "out of memory");
    r = t->tls ? send_encrypted(t) : send_bytes(t, buf_sv(&t->out));
    if (r == 0)
        buf_clear(&t->out);
    return r;
}

static int read_failed(struct handshake *t, ssize_t n)
{
    if (n == 0)
        return broken_off(t, "the server closed the connection");
    if (errno == EAGAIN)
        return wait_for(t, POLLIN);
    return errno == EINTR ? 0 : broken_off(t, strerror(errno));
}

/* Waits if there is nothing to read. */
static int read_more(struct handshake *t)
{
    char bytes[SECURE_BYTES];
    if (clock_steady_us() >= t->until_us)
        return timed_out(t); /* also if something always comes */
    memmove(t->in, t->in + t->taken, t->len - t->taken);
    t->len -= t->taken;
    t->taken = 0;
    if (t->len + (t->tls ? sizeof bytes + TLS_RECORD_MAX : 1) > sizeof t->in)
        return fail(t, "an answer is too long; this is not a Redis server");
    ssize_t n = t->tls ? recv(t->fd, bytes, sizeof bytes, 0) : recv(t->fd, t->in + t->len, sizeof t->in - t->len, 0);
    if (n <= 0)
        return read_failed(t, n);
    t->heard = true;
    if (t->tls)
        return decrypt(t, sv_of(bytes, (size_t)n)) < 0 ? -1 : send_encrypted(t);
    t->len += (size_t)n;
    return 0;
}

/* The next reply; it lies in t->in. */
static int read_reply(struct handshake *t, struct reply *ret)
{
    for (;;) {
        ssize_t n = reply_parse(sv_of(t->in + t->taken, t->len - t->taken), ret);
        if (n < 0)
            return fail(t, "the answer is not in the Redis protocol%s",
                        !t->tls && t->in[t->taken] == TLS_ALERT ? "; the server expects TLS: write rediss://" : "");
        t->taken += (size_t)n;
        if (n > 0)
            return 0;
        if (read_more(t) < 0)
            return -1;
    }
}

/* Reports the error of the server, with advice if there is any. */
static int refused(struct handshake *t, const char *what, sv text)
{
    bool secret = sv_starts(text, SV("NOAUTH")) || sv_starts(text, SV("WRONGPASS")) || sv_starts(text, SV("ERR AUTH"));
    return fail(
        t, "%s%s%.*s%s", what, what[0] ? ": " : "", SV_FMT(text),
        secret ? "; set WEIR_REDIS_PASSWORD (of sentinels: WEIR_SENTINEL_PASSWORD), or name a file by password_file=FILE"
               : "");
}

static int read_good_reply(struct handshake *t, const char *what, struct reply *ret)
{
    if (read_reply(t, ret) < 0)
        return -1;
    if (ret->kind == REPLY_ERROR)
        return refused(t, what, ret->text);
    return 0;
}

static bool next_bulk(struct reply *array, sv *ret)
{
    struct reply element;
    bool there = reply_next(array, &element) && (element.kind == REPLY_BULK || element.kind == REPLY_STATUS);
    if (there)
        *ret = element.text;
    return there;
}

/* ---- sockets ---- */

static void handshake_done(struct handshake *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    tls_free(STEAL(t->tls));
    if (t->out.ptr)
        explicit_bzero(t->out.ptr, t->out.cap); /* there was a password in it */
    buf_done(&t->out);
}

static void handshake_init(struct handshake *t, int stop_fd, char *why)
{
    t->fd = -1;
    t->tls = NULL;
    t->tcp = t->heard = false;
    t->stop_fd = stop_fd;
    t->why = why;
    t->len = t->taken = 0;
    t->until_us = clock_steady_us() + CONNECT_US;
    buf_init(&t->out, COMMAND_MAX);
}

static int connect_to(struct handshake *t, int family, const struct sockaddr *to, socklen_t len)
{
    int error = 0, one = 1, idle_s = KEEPALIVE_S;
    socklen_t error_len = sizeof error;
    t->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (t->fd < 0)
        return fail(t, "%s", strerror(errno));
    if (family != AF_UNIX) {
        setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(t->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        setsockopt(t->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
        setsockopt(t->fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
    }
    if (connect(t->fd, to, len) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return fail(t, "%s", strerror(errno));
    if (wait_for(t, POLLOUT) < 0)
        return -1;
    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &error_len) < 0)
        error = errno;
    return error ? fail(t, "%s", strerror(error)) : 0;
}

static int connect_unix(struct handshake *t, const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    memcpy(to.sun_path, path, strlen(path) + 1);
    return connect_to(t, AF_UNIX, (struct sockaddr *)&to, sizeof to);
}

/* Each address of the host in turn, within the same time. */
static int connect_tcp(struct handshake *t, const struct redis_endpoint *endpoint)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *list;
    char port[8];
    snprintf(port, sizeof port, "%u", endpoint->port);
    int no = getaddrinfo(endpoint->host, port, &hints, &list);
    if (no != 0)
        return fail(t, "cannot resolve the host name: %s", gai_strerror(no));
    t->until_us = clock_steady_us() + CONNECT_US;
    t->tcp = true;
    int r = -1;
    for (struct addrinfo *a = list; a && r < 0 && clock_steady_us() < t->until_us; a = a->ai_next) {
        if (t->fd >= 0)
            close(t->fd);
        r = connect_to(t, a->ai_family, a->ai_addr, a->ai_addrlen);
    }
    freeaddrinfo(list);
    return r;
}

/* The name to check is the one that was asked for, whatever addresses it has. */
static int secure(struct handshake *t, const struct redis_address *address, const struct credentials *c, const char *host)
{
    if (!c->tls)
        return 0;
    t->client_cert = address->cert[0] != '\0';
    t->tls = tls_connect(c->tls, address->name[0] ? address->name : host);
    if (!t->tls)
        return fail(t, "cannot begin a TLS handshake with the name %.100s", address->name[0] ? address->name : host);
    int r = send_encrypted(t);
    while (r == 0 && !tls_is_open(t->tls))
        r = read_more(t);
    return r;
}

/* ---- sentinels ---- */

static int login(struct handshake *t, const char *user, const char *password)
{
    struct reply reply;
    if (user[0] == '\0' && password[0] == '\0')
        return 0;
    if (user[0] != '\0')
        COMMAND_WRITE(&t->out, SV("AUTH"), weir_str(user), weir_str(password));
    else
        COMMAND_WRITE(&t->out, SV("AUTH"), weir_str(password));
    return send_all(t) < 0 ? -1 : read_good_reply(t, "the login failed", &reply);
}

static int read_master(struct handshake *t, const char *master, struct redis_endpoint *ret)
{
    struct reply reply;
    sv host, port;
    uint64_t number;
    COMMAND_WRITE(&t->out, SV("SENTINEL"), SV("get-master-addr-by-name"), weir_str(master));
    if (send_all(t) < 0 || read_good_reply(t, "it does not name the master", &reply) < 0)
        return -1;
    if (reply.kind == REPLY_NULL)
        return fail(t, "it does not know a master named %s", master);
    if (!next_bulk(&reply, &host) || !next_bulk(&reply, &port) || host.len > REDIS_HOST_MAX ||
        !sv_u64(port, UINT16_MAX, &number))
        return fail(t, "its answer does not contain the address of the master");
    memcpy(ret->host, host.ptr, host.len);
    ret->host[host.len] = '\0';
    ret->port = (uint16_t)number;
    return 0;
}

static void to_front(struct redis_address *address, size_t i)
{
    struct redis_endpoint first = address->endpoints[i];
    memmove(&address->endpoints[1], &address->endpoints[0], i * sizeof first);
    address->endpoints[0] = first;
}

/* Asks each sentinel in turn: one may know a name that another does not. */
static int ask_sentinels(struct handshake *t, struct redis_address *address, const struct credentials *c,
                         struct redis_endpoint *ret)
{
    int stop_fd = t->stop_fd;
    char *why = t->why, said[CONNECT_WHY_MAX], shown[REDIS_SHOWN_MAX + 1];
    for (size_t i = 0; i < address->endpoint_count; i++) {
        handshake_init(t, stop_fd, why);
        int r = connect_tcp(t, &address->endpoints[i]);
        if (r == 0)
            r = secure(t, address, c, address->endpoints[i].host);
        if (r == 0)
            r = login(t, "", c->sentinel_password);
        if (r == 0)
            r = read_master(t, address->master, ret);
        handshake_done(t);
        if (r == 0) {
            to_front(address, i);
            return 0;
        }
        memcpy(said, why, sizeof said);
        redis_endpoint_show(&address->endpoints[i], shown);
        snprintf(why, CONNECT_WHY_MAX, "no sentinel names the master %.40s; the last one, %.60s, said: %.100s",
                 address->master, shown, said);
    }
    return -1;
}

/* ---- greetings ---- */

/* A replica refuses to write; a master that was just replaced may not know it yet, but its sentinels do. In a cluster every
 * node knows who the masters are. */
static int check_role(struct handshake *t, enum redis_kind kind)
{
    struct reply reply;
    sv role;
    if (read_reply(t, &reply) < 0)
        return -1;
    if (reply.kind == REPLY_ERROR && sv_starts(reply.text, SV("NOPERM")))
        return 0;
    if (reply.kind == REPLY_ERROR)
        return refused(t, "", reply.text);
    if (kind != REDIS_CLUSTER && next_bulk(&reply, &role) && !sv_eq(role, SV("master")))
        return fail(t, "it is not a master but a %.*s", SV_FMT(role));
    return 0;
}

/* The line of INFO that begins with `name`, which ends in a colon. */
static sv info_line(sv info, sv name)
{
    while (info.len > 0) {
        sv line = sv_trim(sv_cut(&info, '\n'));
        if (sv_starts(line, name))
            return sv_from(line, name.len);
    }
    return (sv){ 0 };
}

/* A server and an address of different kinds. Redis calls the line redis_mode, and Valkey server_mode. */
static int check_mode(struct handshake *t, sv info, enum redis_kind kind)
{
    sv mode = info_line(info, SV("redis_mode:"));
    if (mode.len == 0)
        mode = info_line(info, SV("server_mode:"));
    if (sv_eq(mode, SV("sentinel")))
        return fail(t, "it is a sentinel: write redis+sentinel://HOST:PORT/MASTER");
    if (sv_eq(mode, SV("cluster")) && kind != REDIS_CLUSTER)
        return fail(t, "it is a node of a Redis Cluster: write redis+cluster://HOST:PORT");
    if (sv_eq(mode, SV("standalone")) && kind == REDIS_CLUSTER)
        return fail(t, "it is not a node of a Redis Cluster: write redis://HOST:PORT");
    return 0;
}

static int read_info(struct handshake *t, enum redis_kind kind, struct connected *c)
{
    struct reply reply;
    c->run_id[0] = '\0';
    if (read_reply(t, &reply) < 0)
        return -1;
    if (reply.kind == REPLY_ERROR && sv_starts(reply.text, SV("NOPERM")))
        return 0;
    if (reply.kind == REPLY_ERROR)
        return refused(t, "", reply.text);
    if (check_mode(t, reply.text, kind) < 0)
        return -1;
    snprintf(c->run_id, sizeof c->run_id, "%.*s", SV_FMT(info_line(reply.text, SV("run_id:"))));
    return 0;
}

static int read_clock(struct handshake *t, int64_t sent_us, struct connected *c)
{
    struct reply reply;
    int64_t server_us;
    if (read_good_reply(t, "TIME", &reply) < 0)
        return -1;
    if (!reply_time(reply, &server_us))
        return fail(t, "its answer to TIME is invalid");
    int64_t got_us = clock_now_us();
    c->offset_us = server_us - (sent_us + (got_us - sent_us) / 2);
    return 0;
}

/* Three round trips: the last only to know the clock well. */
static int greet(struct handshake *t, const struct redis_address *address, const char *password, struct connected *c)
{
    struct reply reply;
    char db[8];
    snprintf(db, sizeof db, "%u", address->db);
    if (login(t, address->user, password) < 0)
        return -1;
    COMMAND_WRITE(&t->out, SV("INFO"), SV("server"));
    COMMAND_WRITE(&t->out, SV("SELECT"), weir_str(db));
    COMMAND_WRITE(&t->out, SV("CLIENT"), SV("SETNAME"), SV("weir"));
    COMMAND_WRITE(&t->out, SV("ROLE"));
    for (size_t i = 0; i < SCRIPTS; i++)
        COMMAND_WRITE(&t->out, SV("SCRIPT"), SV("LOAD"), scripts[i].text);
    if (send_all(t) < 0 || read_info(t, address->kind, c) < 0 ||
        read_good_reply(t, "cannot select the database", &reply) < 0 || read_reply(t, &reply) < 0 ||
        check_role(t, address->kind) < 0)
        return -1;
    for (size_t i = 0; i < SCRIPTS; i++) {
        if (read_good_reply(t, "cannot load a script", &reply) < 0)
            return -1;
        if (!sv_eq(reply.text, weir_str(scripts[i].sha)))
            return fail(t, "the SHA-1 of script %s is not the one that weir expects: this build of weir is broken",
                        scripts[i].name);
    }
    /* With no plan: says nothing, and changes nothing. */
    double now = 0;
    COMMAND_WRITE(&t->out, SV("EVALSHA"), weir_str(scripts[SCRIPT_DECIDE].sha), SV("0"),
                  sv_of((const char *)&now, sizeof now));
    if (send_all(t) < 0 ||
        read_good_reply(t, "cannot call scripts (docs/redis.md lists the permissions that the user needs)", &reply) < 0)
        return -1;
    int64_t sent_us = clock_now_us();
    COMMAND_WRITE(&t->out, SV("TIME"));
    return send_all(t) < 0 ? -1 : read_clock(t, sent_us, c);
}

bool redis_master_moved(struct redis_address *address, struct credentials *credentials, int stop_fd, const char *shown)
{
    struct handshake handshake;
    struct redis_endpoint master;
    struct weir_error error;
    char why[CONNECT_WHY_MAX], now[REDIS_SHOWN_MAX + 1];
    if (credentials_read(credentials, address, &error) < 0)
        return false;
    handshake_init(&handshake, stop_fd, why);
    if (ask_sentinels(&handshake, address, credentials, &master) < 0)
        return false;
    redis_endpoint_show(&master, now);
    return strcmp(now, shown) != 0;
}

/* endpoint: NULL for a unix socket. */
static int connect_server(struct handshake *t, const struct redis_address *address, const struct credentials *credentials,
                          const struct redis_endpoint *endpoint, struct connected *ret)
{
    char said[CONNECT_WHY_MAX];
    if (endpoint)
        redis_endpoint_show(endpoint, ret->shown);
    else
        snprintf(ret->shown, sizeof ret->shown, "%s", address->path);
    int r = endpoint ? connect_tcp(t, endpoint) : connect_unix(t, address->path);
    if (r == 0 && endpoint)
        r = secure(t, address, credentials, endpoint->host);
    if (r == 0)
        r = greet(t, address, credentials->password, ret);
    if (r == 0)
        return 0;
    memcpy(said, t->why, sizeof said);
    snprintf(t->why, CONNECT_WHY_MAX, "%.80s: %.170s", ret->shown, said);
    return r;
}

int redis_connect(struct redis_address *address, struct credentials *credentials, int stop_fd,
                  const struct redis_endpoint *node, struct connected *ret, char why[CONNECT_WHY_MAX])
{
    struct handshake handshake;
    struct redis_endpoint master;
    struct weir_error error;
    ret->fd = -1;
    ret->tls = NULL;
    if (credentials_read(credentials, address, &error) < 0) {
        snprintf(why, CONNECT_WHY_MAX, "%.250s", error.text);
        return -1;
    }
    handshake_init(&handshake, stop_fd, why);
    if (address->kind == REDIS_SENTINEL && ask_sentinels(&handshake, address, credentials, &master) < 0)
        return -1;
    handshake_init(&handshake, stop_fd, why);
    const struct redis_endpoint *endpoints[] = {
        [REDIS_TCP] = &address->endpoints[0], [REDIS_UNIX] = NULL, [REDIS_SENTINEL] = &master, [REDIS_CLUSTER] = node
    };
    const struct redis_endpoint *endpoint = endpoints[address->kind];
    int r = connect_server(&handshake, address, credentials, endpoint, ret);
    if (r == 0) {
        ret->fd = handshake.fd;
        ret->tls = STEAL(handshake.tls);
        handshake.fd = -1;
    }
    handshake_done(&handshake);
    return r;
}
