/* A relay reads from one side only while what it has read before is on its way to the other side. So it keeps at most one
 * reading in either direction, and what it keeps is part of a budget. */
#include "serve/tls_relay.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "serve/byte_queue.h"
#include "serve/log.h"
#include "serve/server.h"
#include "tls/tls.h"

enum { TICK_MS = 250, LINGER_MS = 1000, READ_BYTES = 32 * 1024, PLAIN_BYTES = READ_BYTES + TLS_RECORD_MAX };

/* Of one listener in one loop. */
struct relays {
    struct loop *loop;
    enum front front;
    struct loop_acceptor inner;
    struct relay *first;
    unsigned lingering;
    struct byte_budget budget;
    uv_timer_t *tick; /* of its own memory: it is closed after this is freed */
    char cipher[READ_BYTES], plain[PLAIN_BYTES];
};

struct side {
    uv_poll_t poll;
    int fd; /* -1: none */
    int events;
    bool is_open;           /* its handle */
    bool ended;             /* nothing more comes from it */
    bool told;              /* nothing more will be sent to it */
    struct byte_queue kept; /* to be sent to it */
};

struct relay {
    struct conn conn;
    struct relays *relays;
    struct relay *prev, *next;
    struct tls *tls;
    struct side client, service;
    int service_fd; /* the other end of the pair, for tls_relay_socket; -1: it was closed, or may have been */
    struct sockaddr_storage peer;
    unsigned handles;         /* that are open */
    bool gone;                /* the service has closed its end, or will send nothing more */
    bool lingers;             /* … and so the connection is at its end, … */
    int64_t lingers_since_ms; /* … since then */
    bool over;
};

/* ---- life ---- */

static void on_closed(uv_handle_t *handle)
{
    struct relay *r = handle->data;
    if (--r->handles == 0)
        free(r);
}

static void close_side(struct side *side)
{
    byte_queue_clear(&side->kept);
    if (side->is_open)
        uv_close((uv_handle_t *)&side->poll, on_closed);
    if (side->fd >= 0)
        close(side->fd);
    side->fd = -1;
    side->is_open = false;
}

static void end_relay(struct relay *r)
{
    if (r->over)
        return;
    r->over = true;
    *(r->prev ? &r->prev->next : &r->relays->first) = r->next;
    if (r->next)
        r->next->prev = r->prev;
    r->relays->loop->relays--;
    r->relays->lingering -= r->lingers;
    conn_leave(&r->conn);
    tls_free(STEAL(r->tls));
    bool has_handle = r->handles > 0;
    close_side(&r->client);
    close_side(&r->service);
    if (!has_handle)
        free(r);
}

static void shut_conn(struct conn *conn)
{
    end_relay((struct relay *)conn);
}

static void on_client(uv_poll_t *poll, int status, int events);
static void on_service(uv_poll_t *poll, int status, int events);

static bool open_side(struct relay *r, struct side *side, int fd)
{
    side->fd = fd;
    side->poll.data = r;
    side->kept.budget = &r->relays->budget;
    if (uv_poll_init(&r->relays->loop->uv, &side->poll, fd) < 0)
        return false;
    side->is_open = true;
    r->handles++;
    return true;
}

static bool wait_for(struct side *side, int events, uv_poll_cb on_event)
{
    if (events == side->events || !side->is_open)
        return true;
    side->events = events;
    return (events ? uv_poll_start(&side->poll, events, on_event) : uv_poll_stop(&side->poll)) == 0;
}

/* ---- sending ---- */

/* Sends what was kept, then `bytes`, and keeps the rest. False: this side is gone. */
static bool send_to(struct side *side, sv bytes)
{
    if (side->kept.len > 0 && !byte_queue_append(&side->kept, bytes))
        return false;
    sv all = side->kept.len > 0 ? sv_of(side->kept.ptr + side->kept.start, side->kept.len) : bytes;
    if (all.len == 0)
        return true;
    ssize_t n = send(side->fd, all.ptr, all.len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return false;
    size_t done = n > 0 ? (size_t)n : 0;
    if (side->kept.len == 0)
        return byte_queue_append(&side->kept, sv_from(bytes, done));
    byte_queue_consume(&side->kept, done);
    return true;
}

static bool send_records(struct relay *r)
{
    sv output = tls_output(r->tls);
    bool sent = send_to(&r->client, output);
    tls_sent(r->tls, output.len);
    return sent;
}

/* The other side has ended, and all that it sent is on its way. */
static void tell_end(struct side *side)
{
    if (!side->told && side->kept.len == 0 && side->fd >= 0)
        shutdown(side->fd, SHUT_WR);
    side->told = side->told || side->kept.len == 0;
}

/* ---- the end of a connection ---- */

/* Closing with unread input would make the client lose the answer. So the client has a moment to close first, and the time
 * of a request if it has yet to read something. Such a relay is not a connection of the loop any more: it keeps nobody out.
 */
static bool lingered(const struct relay *r, int64_t now_ms)
{
    unsigned request_ms = r->relays->loop->conns.limits.request_ms;
    unsigned most_ms = r->client.kept.len > 0 || request_ms < LINGER_MS ? request_ms : LINGER_MS;
    return r->lingers && now_ms - r->lingers_since_ms >= most_ms;
}

static void on_tick(uv_timer_t *timer)
{
    struct relays *all = timer->data;
    int64_t now_ms = loop_now_ms(all->loop);
    for (struct relay *r = all->first, *next; r; r = next) {
        next = r->next;
        if (lingered(r, now_ms))
            end_relay(r);
    }
}

/* As many as there may be connections: of more, the oldest ends. */
static void end_oldest(struct relays *all)
{
    struct relay *oldest = NULL;
    for (struct relay *r = all->first; r; r = r->next)
        if (r->lingers && (!oldest || r->lingers_since_ms < oldest->lingers_since_ms))
            oldest = r;
    if (oldest)
        end_relay(oldest);
}

static void linger(struct relay *r)
{
    struct relays *all = r->relays;
    if (r->lingers)
        return;
    if (all->lingering >= all->loop->conns.limits.most)
        end_oldest(all);
    r->lingers = true;
    r->lingers_since_ms = loop_now_ms(all->loop);
    all->lingering++;
}

/* ---- one turn ---- */

/* Waits for what can come next. False: it is over. */
static bool settle(struct relay *r)
{
    struct side *client = &r->client, *service = &r->service;
    if (service->ended)
        tell_end(client);
    if (client->ended && r->service.fd >= 0)
        tell_end(service);
    if ((client->ended && service->ended && client->kept.len == 0) || (client->ended && service->fd < 0))
        return false;
    if (service->ended || r->gone)
        linger(r);
    bool reads_client = !client->ended && service->kept.len == 0 && client->kept.len == 0;
    bool reads_service = !service->ended && client->kept.len == 0;
    return wait_for(client, (reads_client ? UV_READABLE : 0) | (client->kept.len > 0 ? UV_WRITABLE : 0), on_client) &&
           wait_for(service,
                    (r->gone ? 0 : UV_DISCONNECT) | (reads_service ? UV_READABLE : 0) |
                        (service->kept.len > 0 ? UV_WRITABLE : 0),
                    on_service);
}

/* The handshake is over: from now on the acceptor has the connection. False: there is no descriptor or memory. */
static bool hand_over(struct relay *r)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return false;
    conn_leave(&r->conn);
    r->conn = (struct conn){ .fd = -1 };
    if (!open_side(r, &r->service, pair[0])) {
        close(pair[1]);
        return false;
    }
    r->service_fd = pair[1];
    r->relays->inner.accept(r->relays->inner.data, pair[1], &r->peer);
    return true;
}

static void log_failure(const struct relay *r)
{
    if (!tls_is_open(r->tls))
        log_limited(SELDOM_TLS, "TLS, connection to the %s listener from %s: %s", front_names[r->relays->front],
                    conn_from(&r->conn), tls_error(r->tls));
}

/* The service has closed its end: what the client still sends is dropped, but must be read, or it may lose the answer. */
static void drop_service(struct side *service)
{
    byte_queue_clear(&service->kept);
    service->told = true;
}

static bool read_client(struct relay *r)
{
    struct relays *all = r->relays;
    ssize_t n = recv(r->client.fd, all->cipher, READ_BYTES, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        r->client.ended = true;
    ptrdiff_t len = n == 0 ? 0 : tls_decrypt(r->tls, sv_of(all->cipher, (size_t)n), all->plain, PLAIN_BYTES);
    if (!send_records(r))
        return false;
    if (len < 0) {
        log_failure(r);
        return false;
    }
    if (tls_has_ended(r->tls))
        r->client.ended = true;
    if (tls_is_open(r->tls) && r->service.fd < 0 && !r->service.ended && !hand_over(r))
        return false;
    if (len > 0 && !r->service.told && !send_to(&r->service, sv_of(all->plain, (size_t)len)))
        drop_service(&r->service);
    return settle(r);
}

static bool read_service(struct relay *r)
{
    char *plain = r->relays->plain;
    ssize_t n = recv(r->service.fd, plain, READ_BYTES, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return settle(r);
    if (n <= 0) {
        r->service.ended = true;
        r->service_fd = -1;
        tls_end(r->tls);
    } else if (!tls_encrypt(r->tls, sv_of(plain, (size_t)n)))
        return false;
    return send_records(r) && settle(r);
}

static void on_client(uv_poll_t *poll, int status, int events)
{
    struct relay *r = poll->data;
    bool open = status == 0;
    if (open && events & UV_WRITABLE)
        open = send_to(&r->client, SV("")) && settle(r);
    if (open && events & UV_READABLE && r->client.events & UV_READABLE)
        open = read_client(r);
    if (!open)
        end_relay(r);
}

/* That the service has closed its end must be noticed even if nothing is read from it, because the client reads nothing:
 * from then on the time of the connection is the relay's. An end that is closed before everything was read is an error for
 * libuv, which then stops looking; what was sent before is still to be read. */
static void on_service(uv_poll_t *poll, int status, int events)
{
    struct relay *r = poll->data;
    struct side *service = &r->service;
    bool open = true, readable = status < 0 || (events & UV_READABLE && service->events & UV_READABLE);
    if (status < 0) {
        service->events = 0;
        drop_service(service);
    }
    r->gone = r->gone || status < 0 || events & UV_DISCONNECT;
    if (events & UV_WRITABLE && !service->told && !send_to(service, SV("")))
        drop_service(service);
    if (readable && !service->ended && r->client.kept.len == 0)
        open = read_service(r);
    else
        open = settle(r);
    if (!open)
        end_relay(r);
}

/* ---- the listener ---- */

static void relay_accept(void *data, int fd, const struct sockaddr_storage *peer)
{
    struct relays *all = data;
    struct loop *loop = all->loop;
    int yes = 1;
    if (!loop->tls.of[all->front]) {
        all->inner.accept(all->inner.data, fd, peer);
        return;
    }
    struct relay *r = calloc(1, sizeof *r);
    if (!r) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    r->relays = all;
    r->service.fd = r->service_fd = -1;
    r->client.fd = fd;
    r->peer = *peer;
    r->conn.shut = shut_conn;
    r->conn.counts_later = true; /* when the acceptor has it */
    r->next = all->first;
    if (r->next)
        r->next->prev = r;
    all->first = r;
    loop->relays++;
    r->tls = tls_accept(loop->tls.of[all->front]);
    if (!r->tls || !open_side(r, &r->client, fd) ||
        !conns_enter(&loop->conns, &r->conn, all->front, fd, peer, loop_now_ms(loop))) {
        end_relay(r);
        return;
    }
    conn_busy(&r->conn, loop_now_ms(loop));
    if (!wait_for(&r->client, UV_READABLE, on_client))
        end_relay(r);
}

static void relay_drain(void *data)
{
    struct relays *all = data;
    if (all->inner.drain)
        all->inner.drain(all->inner.data);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static void relays_free(void *data)
{
    struct relays *all = data;
    for (struct relay *r = all->first, *next; r; r = next) {
        next = r->next;
        end_relay(r);
    }
    if (all->inner.free)
        all->inner.free(all->inner.data);
    uv_close((uv_handle_t *)all->tick, free_handle);
    free(all);
}

int tls_relay_wrap(struct loop *loop, enum front front, struct loop_acceptor *acceptor)
{
    struct relays *all = cleanup_calloc(1, sizeof *all); /* the acceptor owns it */
    uv_timer_t *tick = cleanup_calloc(1, sizeof *tick);
    if (!all || !tick) {
        free(all);
        free(tick);
        return UV_ENOMEM;
    }
    uv_timer_init(&loop->uv, tick);
    uv_timer_start(tick, on_tick, TICK_MS, TICK_MS);
    tick->data = all;
    all->tick = tick;
    all->loop = loop;
    all->front = front;
    all->inner = *acceptor;
    all->budget.max = byte_budget_max(0);
    *acceptor = (struct loop_acceptor){ relay_accept, relays_free, all, relay_drain };
    return 0;
}

static const struct relay *relay_of(const struct loop *loop, int fd)
{
    for (int front = 0; front < FRONTS; front++) {
        const struct loop_acceptor *acceptor = &loop->listeners[front].acceptor;
        const struct relays *all = acceptor->accept == relay_accept ? acceptor->data : NULL;
        for (const struct relay *r = all ? all->first : NULL; r; r = r->next)
            if (r->service_fd == fd)
                return r;
    }
    return NULL;
}

int tls_relay_socket(const struct loop *loop, int fd)
{
    const struct relay *r = relay_of(loop, fd);
    return r ? r->client.fd : fd;
}

static size_t unsent(int fd)
{
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
}

size_t tls_relay_unsent(const struct loop *loop, int fd)
{
    const struct relay *r = relay_of(loop, fd);
    return unsent(fd) + (r ? r->client.kept.len + unsent(r->client.fd) : 0);
}
