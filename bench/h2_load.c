/* Requests over HTTP/2, made of bytes that are known beforehand, so that the client takes less of a CPU than any server.
 * (One that is built on nghttp2, such as h2load, takes more than the bare server does: it would be what is measured.)
 *
 *   h2_load PORT PATH BODY CONNECTIONS STREAMS SECONDS RATE KEYS ANSWER [NAME VALUE]…
 *
 * BODY is a file with a call of gRPC, whose last six bytes become one of KEYS numbers. "-": requests are a GET.
 * ANSWER is how the message of an answer has to begin, in hexadecimal digits; "." stands for any digit.
 * RATE 0: STREAMS on each connection are always under way. Else so many requests a second, and each answer's time begins
 * when its request was to be sent, so that a server that stalls is charged for all that had to wait.
 *
 * Each answer has to be 200. Prints one line of JSON: answered, rate, p50_us, p99_us, p999_us,
 * max_us. */
#include <nghttp2/nghttp2.h>
#include <stdbool.h>

#include "bench/client.h"

enum {
    CONNECTIONS_MAX = 64,
    STREAMS_MAX = 1024, /* of a connection, a power of two */
    BLOCK_MAX = 1024,
    BODY_MAX = 1024,
    DIGITS = 6,
    HEAD = 9, /* bytes before the payload of a frame */
    INPUT_BYTES = 1 << 20,
    OUTPUT_BYTES = 1 << 20,
    TOOK_MAX_US = 1 << 20,
    PAUSE_NS = 30000,
    WINDOW = 65535,
    WINDOW_MORE = 1 << 30,
};

enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, WINDOW_UPDATE = 8 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8, PRIORITY = 32 };

struct stream {
    int64_t due_ns;
    bool headers, data; /* that have come */
};

struct connection {
    int fd;
    unsigned open;
    int64_t window, taken; /* what may be sent; what was received since the server was told that it may send more */
    uint32_t next_id;
    size_t input_len, output_len;
    struct stream streams[STREAMS_MAX];
    uint8_t input[INPUT_BYTES], output[OUTPUT_BYTES];
};

static struct connection *connections[CONNECTIONS_MAX];
static uint8_t first_block[BLOCK_MAX], block[BLOCK_MAX], body[BODY_MAX];
static size_t first_block_len, block_len, body_len;
static const char *answer;
static uint64_t random_state = 88172645463325252u, keys;
static uint32_t took_us[TOOK_MAX_US];
static unsigned long answered;

/* ---- frames out ---- */

static void put_frame(struct connection *c, unsigned type, unsigned flags, uint32_t stream, const void *payload, size_t len)
{
    uint8_t *to = c->output + c->output_len;
    const uint8_t head[HEAD] = { (uint8_t)(len >> 16),    (uint8_t)(len >> 8),    (uint8_t)len,
                                 (uint8_t)type,           (uint8_t)flags,         (uint8_t)(stream >> 24),
                                 (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream };
    if (c->output_len + HEAD + len > OUTPUT_BYTES)
        die("the server does not keep up");
    memcpy(to, head, HEAD);
    memcpy(to + HEAD, payload, len);
    c->output_len += HEAD + len;
}

static void put_window_update(struct connection *c, uint32_t more)
{
    const uint8_t payload[4] = { (uint8_t)(more >> 24), (uint8_t)(more >> 16), (uint8_t)(more >> 8), (uint8_t)more };
    put_frame(c, WINDOW_UPDATE, 0, 0, payload, sizeof payload);
}

static bool has_room(const struct connection *c, unsigned streams)
{
    return c->open < streams && c->window >= (int64_t)body_len;
}

static void put_request(struct connection *c, int64_t due_ns)
{
    uint32_t id = c->next_id;
    const uint8_t *bytes = id == 1 ? first_block : block;
    c->streams[id / 2 % STREAMS_MAX] = (struct stream){ .due_ns = due_ns };
    put_frame(c, HEADERS, END_HEADERS | (body_len ? 0 : END_STREAM), id, bytes, id == 1 ? first_block_len : block_len);
    if (body_len) {
        uint64_t number = next_random(&random_state) % keys;
        for (size_t i = 0; i < DIGITS; i++, number /= 10)
            body[body_len - 1 - i] = (uint8_t)('0' + number % 10);
        put_frame(c, DATA, END_STREAM, id, body, body_len);
        c->window -= (int64_t)body_len;
    }
    c->next_id += 2;
    c->open++;
}

static void flush(struct connection *c)
{
    ssize_t n = c->output_len ? send(c->fd, c->output, c->output_len, MSG_NOSIGNAL) : 0;
    if (n < 0 && errno != EAGAIN)
        die("send");
    if (n > 0) {
        c->output_len -= (size_t)n;
        memmove(c->output, c->output + n, c->output_len);
    }
}

/* ---- frames in ---- */

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static __attribute__((noreturn)) void refuse(const char *what)
{
    errno = EPROTO;
    die(what);
}

/* `:status: 200` has a number of its own in HPACK; a change of the table's size may come before. */
static bool is_200(const uint8_t *at, size_t len)
{
    size_t i = 0;
    while (i < len && (at[i] & 0xe0) == 0x20) {
        bool more = (at[i++] & 0x1f) == 0x1f;
        while (more && i < len)
            more = at[i++] & 0x80;
    }
    return i < len && at[i] == 0x88;
}

/* A message follows a byte that says that it is not compressed, and its length. */
static bool is_ok(const uint8_t *at, size_t len)
{
    enum { BEFORE = 5 };
    size_t digits = strlen(answer);
    if (len < BEFORE + digits / 2 || at[0] != 0)
        return false;
    for (size_t i = 0; i < digits; i++) {
        unsigned digit = at[BEFORE + i / 2] >> (i % 2 ? 0 : 4) & 15;
        if (answer[i] != '.' && answer[i] != "0123456789abcdef"[digit])
            return false;
    }
    return true;
}

static void take_answer(struct connection *c, const uint8_t *frame, size_t len, int64_t now)
{
    unsigned type = frame[3], flags = frame[4];
    struct stream *s = &c->streams[number_at(frame + 5) / 2 % STREAMS_MAX];
    if (flags & PADDED || (type == HEADERS && flags & PRIORITY))
        refuse("the server pads its frames");
    if (type == HEADERS && !s->headers && !is_200(frame + HEAD, len))
        refuse("the answer is not 200");
    if (type == DATA && body_len && !s->data && !is_ok(frame + HEAD, len))
        refuse("the call is not answered as it should be");
    s->headers |= type == HEADERS;
    s->data |= type == DATA;
    c->taken += type == DATA ? (int64_t)len : 0;
    if (!(flags & END_STREAM))
        return;
    if (body_len && !s->data)
        refuse("the call failed");
    int64_t us = (now - s->due_ns) / 1000;
    took_us[us < TOOK_MAX_US ? us : TOOK_MAX_US - 1]++;
    answered++;
    c->open--;
}

static void take_frame(struct connection *c, const uint8_t *frame, size_t len, int64_t now)
{
    bool ack = frame[4] & ACK;
    switch (frame[3]) {
    case HEADERS:
    case DATA:
        take_answer(c, frame, len, now);
        break;
    case SETTINGS:
        if (!ack)
            put_frame(c, SETTINGS, ACK, 0, "", 0);
        break;
    case PING:
        if (!ack)
            put_frame(c, PING, ACK, 0, frame + HEAD, len);
        break;
    case WINDOW_UPDATE:
        if (number_at(frame + 5) == 0)
            c->window += number_at(frame + HEAD);
        break;
    case RST_STREAM:
        refuse("the server reset a stream");
    case GOAWAY:
        refuse("the server sent GOAWAY");
    default:
        break;
    }
}

static void receive(struct connection *c)
{
    ssize_t n = recv(c->fd, c->input + c->input_len, INPUT_BYTES - c->input_len, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        die("the server closed the connection");
    if (n < 0)
        return;
    int64_t now = now_ns();
    size_t at = 0, end = c->input_len + (size_t)n;
    while (end - at >= HEAD) {
        size_t len = (size_t)c->input[at] << 16 | (size_t)c->input[at + 1] << 8 | c->input[at + 2];
        if (end - at < HEAD + len)
            break;
        take_frame(c, c->input + at, len, now);
        at += HEAD + len;
    }
    c->input_len = end - at;
    memmove(c->input, c->input + at, c->input_len);
    if (c->taken > WINDOW_MORE / 2) {
        put_window_update(c, (uint32_t)c->taken);
        c->taken = 0;
    }
}

/* ---- the request ---- */

static size_t deflate_with(nghttp2_hd_deflater *deflater, const nghttp2_nv *headers, size_t count, uint8_t to[BLOCK_MAX])
{
    ssize_t n = nghttp2_hd_deflate_hd(deflater, to, BLOCK_MAX, headers, count);
    if (n < 0)
        refuse("the headers are too long");
    return (size_t)n;
}

static nghttp2_nv header_of(const char *name, const char *value)
{
    return (nghttp2_nv){ (uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), 0 };
}

/* The first request of a connection fills the server's table of headers; all later ones have the same bytes, those that
 * Envoy would send, too. */
static void make_blocks(const char *path, char **more, size_t more_count)
{
    enum { OWN = 4, COUNT_MAX = 16 };
    nghttp2_nv headers[COUNT_MAX] = { header_of(":method", body_len ? "POST" : "GET"), header_of(":path", path),
                                      header_of(":scheme", "http"), header_of(":authority", "weir") };
    nghttp2_hd_deflater *deflater;
    size_t count = OWN;
    for (size_t i = 0; i + 1 < more_count && count < COUNT_MAX; i += 2)
        headers[count++] = header_of(more[i], more[i + 1]);
    if (more_count != 2 * (count - OWN) || nghttp2_hd_deflate_new(&deflater, 4096) != 0)
        refuse("arguments");
    first_block_len = deflate_with(deflater, headers, count, first_block);
    block_len = deflate_with(deflater, headers, count, block);
    nghttp2_hd_deflate_del(deflater);
}

static void read_body(const char *path)
{
    if (strcmp(path, "-") == 0)
        return;
    FILE *file = fopen(path, "rb");
    if (!file)
        die(path);
    body_len = fread(body, 1, sizeof body, file);
    fclose(file);
    if (body_len < DIGITS)
        refuse(path);
}

/* ---- the load ---- */

struct load {
    unsigned long count, streams, rate, sent;
    int64_t begin_ns, end_ns;
};

static void begin_connection(struct connection *c, const char *port, int epoll, uint32_t number)
{
    connections[number] = c;
    if (!c)
        die("memory");
    c->fd = open_connection("127.0.0.1", atoi(port), epoll, number);
    c->next_id = 1;
    c->window = WINDOW;
    memcpy(c->output, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    c->output_len = NGHTTP2_CLIENT_MAGIC_LEN;
    put_frame(c, SETTINGS, 0, 0, "", 0);
    put_window_update(c, WINDOW_MORE);
}

static void send_always(const struct load *load, struct connection *c, int64_t now)
{
    while (now < load->end_ns && has_room(c, (unsigned)load->streams))
        put_request(c, now);
}

/* Requests go to the connections in turn, when they are due. */
static void send_due(struct load *load, int64_t now)
{
    int64_t until = now < load->end_ns ? now : load->end_ns;
    unsigned long due = (unsigned long)((until - load->begin_ns) * (int64_t)load->rate / 1000000000);
    for (; load->sent < due; load->sent++) {
        struct connection *c = connections[load->sent % load->count];
        if (!has_room(c, (unsigned)load->streams))
            refuse("the server does not keep up");
        put_request(c, load->begin_ns + (int64_t)load->sent * 1000000000 / (int64_t)load->rate);
    }
}

static bool is_under_way(const struct load *load)
{
    for (size_t i = 0; i < load->count; i++)
        if (connections[i]->open)
            return true;
    return false;
}

static void run(struct load *load, int epoll)
{
    struct timespec pause = { .tv_nsec = load->rate ? PAUSE_NS : 100000000 };
    int64_t now = load->begin_ns;
    do {
        struct epoll_event events[CONNECTIONS_MAX];
        for (size_t i = 0; i < load->count && !load->rate; i++)
            send_always(load, connections[i], now);
        if (load->rate)
            send_due(load, now);
        for (size_t i = 0; i < load->count; i++)
            flush(connections[i]);
        int n = epoll_pwait2(epoll, events, CONNECTIONS_MAX, &pause, NULL);
        for (int i = 0; i < n; i++)
            receive(connections[events[i].data.u32]);
        now = now_ns();
    } while (now < load->end_ns || is_under_way(load));
}

static unsigned quantile_us(double part)
{
    unsigned long rank = (unsigned long)((double)(answered - 1) * part), seen = 0;
    unsigned us = 0;
    while (us < TOOK_MAX_US - 1 && (seen += took_us[us]) <= rank)
        us++;
    return us;
}

int main(int argc, char **argv)
{
    if (argc < 10) {
        fputs("usage: h2_load PORT PATH BODY CONNECTIONS STREAMS SECONDS RATE KEYS ANSWER [NAME VALUE]...\n", stderr);
        return 2;
    }
    struct load load = { .count = strtoul(argv[4], NULL, 10),
                         .streams = strtoul(argv[5], NULL, 10),
                         .rate = strtoul(argv[7], NULL, 10) };
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    keys = strtoul(argv[8], NULL, 10);
    if (keys == 0 || load.count == 0 || load.count > CONNECTIONS_MAX || load.streams == 0 ||
        load.streams > STREAMS_MAX / 2 || epoll < 0)
        die("arguments");
    answer = argv[9];
    read_body(argv[3]);
    make_blocks(argv[2], argv + 10, (size_t)argc - 10);
    for (uint32_t i = 0; i < load.count; i++)
        begin_connection(calloc(1, sizeof(struct connection)), argv[1], epoll, i);
    if (load.rate)
        be_quick();
    load.begin_ns = now_ns();
    load.end_ns = load.begin_ns + strtol(argv[6], NULL, 10) * INT64_C(1000000000);
    run(&load, epoll);
    printf("{\"answered\": %lu, \"rate\": %.0f, \"p50_us\": %u, \"p99_us\": %u, \"p999_us\": %u, \"max_us\": %u}\n",
           answered, (double)answered * 1e9 / (double)(now_ns() - load.begin_ns), quantile_us(0.5), quantile_us(0.99),
           quantile_us(0.999), quantile_us(1));
    return 0;
}
