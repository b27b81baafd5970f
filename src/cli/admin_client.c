#include "cli/admin_client.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "tls/tls.h"

enum { PATH_BYTES_MAX = 4096, TOKEN_BYTES_MAX = 1024 };
enum {
    CHUNK_BYTES = 65536,
    WAIT_MS = 3000,
    BODY_BYTES_MAX = 32 << 20,
    REQUEST_BYTES_MAX = 8192,
    HOST_MAX = 256,
    PORT_MAX = 6
};

/* ---- addresses ---- */

/* Splits "HOST:PORT" or "[HOST]:PORT". */
static bool split(const char *address, char host[HOST_MAX], char port[PORT_MAX])
{
    const char *colon = strrchr(address, ':');
    uint64_t number;
    if (!colon || !sv_u64(weir_str(colon + 1), UINT16_MAX, &number) || number == 0 || strlen(colon + 1) >= PORT_MAX)
        return false;
    sv name = sv_of(address, (size_t)(colon - address));
    bool in_brackets = name.len > 2 && name.ptr[0] == '[' && name.ptr[name.len - 1] == ']';
    if (in_brackets)
        name = sv_of(name.ptr + 1, name.len - 2);
    else if (name.len && memchr(name.ptr, ':', name.len))
        return false;
    if (name.len == 0 || name.len >= HOST_MAX)
        return false;
    memcpy(host, name.ptr, name.len);
    host[name.len] = '\0';
    snprintf(port, PORT_MAX, "%s", colon + 1);
    return true;
}

static const char *unix_path(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL;
}

/* Without "https://", which *ret_tls tells. */
static const char *without_scheme(const char *address, bool *ret_tls)
{
    *ret_tls = strncmp(address, "https://", 8) == 0;
    return *ret_tls ? address + 8 : address;
}

bool client_is_address(const char *address)
{
    char host[HOST_MAX], port[PORT_MAX];
    bool tls;
    const char *path = unix_path(address);
    if (path)
        return path[0] && strlen(path) < sizeof(((struct sockaddr_un *)0)->sun_path);
    return split(without_scheme(address, &tls), host, port);
}

/* ---- a connection ---- */

/* Returns 0 or an errno. */
static int wait_for(int fd, short events, int64_t end_us)
{
    struct pollfd ready = { .fd = fd, .events = events };
    for (;;) {
        int64_t left_ms = (end_us - clock_steady_us()) / US_PER_MS;
        int n = left_ms > 0 ? poll(&ready, 1, (int)left_ms) : 0;
        if (n > 0)
            return 0;
        if (n == 0)
            return ETIMEDOUT;
        if (errno != EINTR)
            return errno;
    }
}

/* Returns the descriptor, or a negative errno. */
static int connect_to(const struct sockaddr *to, socklen_t len, int64_t end_us)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), why = 0;
    if (fd < 0)
        return -errno;
    if (connect(fd, to, len) < 0)
        why = errno;
    if (why == EINPROGRESS || why == EAGAIN) {
        socklen_t size = sizeof why;
        why = wait_for(fd, POLLOUT, end_us);
        if (why == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) < 0)
            why = errno;
    }
    if (why == 0)
        return fd;
    close(fd);
    return -why;
}

static int connect_unix(const char *path, int64_t end_us, struct weir_error *error)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    int fd = connect_to((const struct sockaddr *)&to, sizeof to, end_us);
    return fd < 0 ? err_set(error, WEIR_E_SYSTEM, "%s", strerror(-fd)) : fd;
}

static int connect_tcp(const char *address, int64_t end_us, struct weir_error *error)
{
    char host[HOST_MAX], port[PORT_MAX];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list;
    if (!split(address, host, port))
        return err_set(error, WEIR_E_INVALID, "no address");
    int r = getaddrinfo(host, port, &hints, &list), fd = -ENOENT;
    if (r != 0)
        return err_set(error, WEIR_E_SYSTEM, "%s", gai_strerror(r));
    for (struct addrinfo *to = list; to && fd < 0; to = to->ai_next)
        fd = connect_to(to->ai_addr, to->ai_addrlen, end_us);
    freeaddrinfo(list);
    return fd < 0 ? err_set(error, WEIR_E_SYSTEM, "%s", strerror(-fd)) : fd;
}

/* ---- request and answer ---- */

struct wire {
    int fd;
    struct tls *tls; /* NULL: plain */
};

static void wire_done(struct wire *wire)
{
    tls_free(wire->tls);
    if (wire->fd >= 0)
        close(wire->fd);
}

static int send_bytes(int fd, sv text, int64_t end_us)
{
    while (text.len > 0) {
        int why = wait_for(fd, POLLOUT, end_us);
        if (why)
            return why;
        ssize_t n = send(fd, text.ptr, text.len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return errno;
        text = sv_from(text, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

static int send_records(const struct wire *wire, int64_t end_us)
{
    sv output = tls_output(wire->tls);
    int why = send_bytes(wire->fd, output, end_us);
    tls_sent(wire->tls, output.len);
    return why;
}

/* EPROTO: tls_error has the reason. */
static int take_records(const struct wire *wire, sv bytes, struct buf *out, int64_t end_us)
{
    char plain[CHUNK_BYTES + TLS_RECORD_MAX];
    ptrdiff_t len = tls_decrypt(wire->tls, bytes, plain, sizeof plain);
    int why = send_records(wire, end_us);
    if (len > 0)
        buf_add(out, sv_of(plain, (size_t)len));
    return len < 0 ? EPROTO : why;
}

/* Receives once. *ret_more is false at the end. */
static int receive_some(const struct wire *wire, struct buf *out, int64_t end_us, bool *ret_more)
{
    char chunk[CHUNK_BYTES];
    int why = wait_for(wire->fd, POLLIN, end_us);
    if (why)
        return why;
    ssize_t n = recv(wire->fd, chunk, sizeof chunk, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : errno;
    sv bytes = sv_of(chunk, (size_t)n);
    if (!wire->tls)
        buf_add(out, bytes);
    else if (n > 0)
        why = take_records(wire, bytes, out, end_us);
    *ret_more = n > 0 && (!wire->tls || !tls_has_ended(wire->tls));
    if (why == 0 && n == 0 && wire->tls && !tls_has_ended(wire->tls))
        why = ECONNRESET; /* something may be missing */
    return why ? why : out->failed ? EMSGSIZE : 0;
}

static int send_all(const struct wire *wire, sv text, int64_t end_us)
{
    CLEANUP(buf_done) struct buf early; /* nothing comes before the answer */
    int why = 0;
    bool more = true;
    buf_init(&early, CHUNK_BYTES);
    if (!wire->tls)
        return send_bytes(wire->fd, text, end_us);
    if (!tls_encrypt(wire->tls, text))
        return ENOMEM;
    why = send_records(wire, end_us);
    while (why == 0 && more && !tls_is_open(wire->tls))
        why = receive_some(wire, &early, end_us, &more);
    return why;
}

static int receive_all(const struct wire *wire, struct buf *out, int64_t end_us)
{
    bool more = true;
    int why = 0;
    while (why == 0 && more)
        why = receive_some(wire, out, end_us, &more);
    return why;
}

/* Reads "HTTP/1.1 200 OK", headers, a blank line, and a body as long as Content-Length says. Returns the status, or 0 if
 * the answer is something else. */
static int parse_answer(sv answer, sv *ret_body)
{
    uint64_t status, length = UINT64_MAX;
    sv rest = answer, line = sv_trim(sv_cut(&rest, '\n'));
    if (!sv_starts(line, SV("HTTP/1.")) || line.len < 12 || !sv_u64(sv_of(line.ptr + 9, 3), 999, &status))
        return 0;
    while (rest.len > 0 && (line = sv_trim(sv_cut(&rest, '\n'))).len > 0) {
        sv value = line, name = sv_cut(&value, ':');
        if (sv_eq_nocase(name, SV("content-length")) && !sv_u64(sv_trim(value), BODY_BYTES_MAX, &length))
            return 0;
    }
    *ret_body = rest;
    return length == UINT64_MAX || length == rest.len ? (int)status : 0;
}

struct question {
    const char *address, *method, *path;
    const struct source_author *author; /* NULL: nothing changes */
    sv token, body;
};

/* A line break would end the header. */
static bool is_header(sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' || text.ptr[i] == 0x7f)
            return false;
    return true;
}

static int check_author(const struct source_author *author, struct weir_error *error)
{
    if (!author || (is_header(author->who) && is_header(author->note)))
        return 0;
    return err_set(error, WEIR_E_INVALID, "the author and the note must not have line breaks or control characters");
}

static int ask(const struct wire *wire, const struct question *q, struct buf *answer, struct weir_error *error,
               int64_t end_us)
{
    CLEANUP(buf_done) struct buf request;
    buf_init(&request, REQUEST_BYTES_MAX);
    /* 1.0: the answer ends with the connection, and comes in one piece. */
    buf_printf(&request, "%s %s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %.*s\r\n", q->method, q->path,
               unix_path(q->address) ? "localhost" : q->address, SV_FMT(q->token));
    if (q->author && q->author->who.len > 0)
        buf_printf(&request, "X-Weir-Author: %.*s\r\n", SV_FMT(q->author->who));
    if (q->author && q->author->note.len > 0)
        buf_printf(&request, "X-Weir-Note: %.*s\r\n", SV_FMT(q->author->note));
    if (q->body.len > 0)
        buf_printf(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n", q->body.len);
    buf_add(&request, SV("\r\n"));
    buf_add(&request, q->body);
    int why = request.failed ? EMSGSIZE : send_all(wire, buf_sv(&request), end_us);
    if (why == 0)
        why = receive_all(wire, answer, end_us);
    if (why == EPROTO)
        return err_set(error, WEIR_E_SYSTEM, "TLS: %s", tls_error(wire->tls));
    return why ? err_set(error, WEIR_E_SYSTEM, "%s", strerror(why)) : 0;
}

/* The authorities are those that the system trusts, or those in the file that SSL_CERT_FILE names. */
static int begin_tls(struct wire *wire, const char *address, struct weir_error *error)
{
    char host[HOST_MAX], port[PORT_MAX];
    struct tls_context *context = NULL;
    int r = tls_client_new(&context, &(struct tls_files){ NULL }, error);
    if (r < 0)
        return r;
    if (split(address, host, port))
        wire->tls = tls_connect(context, host);
    tls_context_unref(context);
    return wire->tls ? 0 : err_no_memory(error);
}

static int open_wire(struct wire *wire, const char *address, bool tls, int64_t end_us, struct weir_error *error)
{
    const char *path = unix_path(address);
    wire->fd = path ? connect_unix(path, end_us, error) : connect_tcp(address, end_us, error);
    if (wire->fd < 0)
        return wire->fd;
    return tls ? begin_tls(wire, address, error) : 0;
}

int client_get(const char *address, sv token, const char *path, struct buf *ret_body, struct weir_error *error)
{
    return client_ask(address, token, "GET", path, NULL, (sv){ 0 }, ret_body, error);
}

int client_ask(const char *address, sv token, const char *method, const char *path, const struct source_author *author,
               sv body, struct buf *ret_body, struct weir_error *error)
{
    bool tls;
    address = without_scheme(address, &tls);
    const struct question question = { address, method, path, author, token, body };
    int64_t end_us = clock_steady_us() + WAIT_MS * US_PER_MS;
    int r = check_author(author, error);
    if (r < 0)
        return r;
    CLEANUP(wire_done) struct wire wire = { .fd = -1 };
    CLEANUP(buf_done) struct buf answer;
    sv answered = { 0 };
    buf_init(&answer, BODY_BYTES_MAX);
    r = open_wire(&wire, address, tls, end_us, error);
    if (r == 0)
        r = ask(&wire, &question, &answer, error, end_us);
    if (r < 0)
        return r;
    int status = parse_answer(buf_sv(&answer), &answered);
    if (status == 0)
        return err_set(error, WEIR_E_INVALID, "the answer is not HTTP, or is incomplete");
    buf_init(ret_body, BODY_BYTES_MAX);
    buf_add(ret_body, answered);
    return status;
}

/* ---- the service ---- */

int client_read_token(const struct client_service *service, struct buf *ret, struct weir_error *error)
{
    static const char *const roles[] = { "admin", "operate", "read" };
    const char *first_why = NULL;
    for (size_t i = 0; i < (service->changes ? 2 : 3); i++) {
        CLEANUP(buf_done) struct buf path;
        const char *why = "the path is too long";
        buf_init(&path, PATH_BYTES_MAX);
        buf_printf(&path, "%s/%s-token", service->data, roles[i]);
        bool read = !path.failed && cli_read_file(path.ptr, ret, &why);
        if (read && sv_trim(buf_sv(ret)).len <= TOKEN_BYTES_MAX)
            return 0;
        if (read)
            buf_done(ret);
        if (!first_why)
            first_why = read ? "not a valid token" : why;
    }
    return err_set(error, WEIR_E_SYSTEM, "%s/admin-token: %s; give the data folder of the service with --data",
                   service->data, first_why);
}

int client_bad_status(const struct client_service *service, int status, sv body, struct weir_error *error)
{
    if (status == 401)
        return err_set(
            error, WEIR_E_INVALID,
            "%s: the service does not accept the token in the folder %s; give the data folder of that service with --data",
            service->admin, service->data);
    json_auto_t *json = json_loadb(body.ptr, body.len, 0, NULL);
    const char *text = json_string_value(json_object_get(json, "error"));
    return err_set(error, WEIR_E_INVALID, "%s: answers %d: %s", service->admin, status, text ? text : "no reason");
}

void client_encode(sv text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool is_plain = ascii_digit((char)c) || (ascii_lower((char)c) >= 'a' && ascii_lower((char)c) <= 'z') || c == '-' ||
                        c == '.' || c == '_' || c == '~';
        if (is_plain)
            buf_char(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
}
