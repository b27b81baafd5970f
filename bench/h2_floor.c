/* The floor for gRPC: a server of nghttp2 that looks at nothing and answers every call with the same message. One thread,
 * one read and one write for a turn, no memory for a stream.
 *
 *   h2_floor PORT MESSAGE
 *
 * MESSAGE is a file with the whole body of an answer. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT_BYTES = 64 << 10, OUTPUT_BYTES = 256 << 10, FRAME_MAX = 32 << 10, MESSAGE_MAX = 16 << 10, STREAMS_MAX = 256 };

#define NV(name, value)                                                             \
    {                                                                               \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1, \
            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE            \
    }

struct connection {
    int fd;
    nghttp2_session *session;
};

static char message[MESSAGE_MAX];
static size_t message_len;
static nghttp2_session_callbacks *callbacks;

static void die(const char *what)
{
    fprintf(stderr, "h2_floor: %s: %s\n", what, strerror(errno));
    exit(2);
}

static ssize_t read_message(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                            nghttp2_data_source *source, void *data)
{
    static const nghttp2_nv trailer = NV("grpc-status", "0");
    (void)source, (void)data;
    if (room < message_len)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(to, message, message_len);
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    nghttp2_submit_trailer(session, id, &trailer, 1);
    return (ssize_t)message_len;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    static const nghttp2_nv headers[] = { NV(":status", "200"), NV("content-type", "application/grpc") };
    nghttp2_data_provider provider = { .read_callback = read_message };
    (void)data;
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        nghttp2_submit_response(session, frame->hd.stream_id, headers, 2, &provider);
    return 0;
}

/* The client takes what it is sent: nothing is kept for later. */
static bool answer(struct connection *c)
{
    static char output[OUTPUT_BYTES];
    size_t len;
    do {
        const uint8_t *bytes;
        ssize_t n = 0;
        for (len = 0; len + FRAME_MAX <= OUTPUT_BYTES; len += (size_t)n) {
            n = nghttp2_session_mem_send(c->session, &bytes);
            if (n <= 0)
                break;
            memcpy(output + len, bytes, (size_t)n);
        }
        if (n < 0 || (len > 0 && send(c->fd, output, len, MSG_NOSIGNAL) != (ssize_t)len))
            return false;
    } while (len + FRAME_MAX > OUTPUT_BYTES);
    return true;
}

static void serve(struct connection *c)
{
    static uint8_t input[INPUT_BYTES];
    ssize_t n = recv(c->fd, input, sizeof input, 0);
    if (n > 0 && nghttp2_session_mem_recv(c->session, input, (size_t)n) == n && answer(c))
        return;
    close(c->fd);
    nghttp2_session_del(c->session);
    free(c);
}

static void accept_one(int listener, int epoll)
{
    nghttp2_settings_entry settings = { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX };
    struct connection *c = calloc(1, sizeof *c);
    int on = 1;
    if (!c || (c->fd = accept(listener, NULL, NULL)) < 0)
        die("accept");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
    if (nghttp2_session_server_new(&c->session, callbacks, c) != 0 ||
        nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, &settings, 1) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event) < 0)
        die("a new connection");
}

static int listen_at(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, SOMAXCONN) < 0)
        die("listen");
    return fd;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 3 ? fopen(argv[2], "rb") : NULL;
    if (!file) {
        fputs("usage: h2_floor PORT MESSAGE\n", stderr);
        return 2;
    }
    message_len = fread(message, 1, sizeof message, file);
    fclose(file);
    int listener = listen_at(atoi(argv[1])), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0 ||
        nghttp2_session_callbacks_new(&callbacks) != 0)
        die("start");
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++)
            if (events[i].data.ptr)
                serve(events[i].data.ptr);
            else
                accept_one(listener, epoll);
    }
}
