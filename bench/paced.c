/* Decisions over RESP at a steady pace, and how long each took: from the moment that it was to be sent, so that a server
 * that stalls is charged for all that had to wait. With a RATE of 0 there are always 50 under way, each on a connection of
 * its own: when one is answered, a connection that is chosen at random sends the next.
 *
 *   paced HOST PORT RATE SECONDS CONNECTIONS KEYS [IDLE]
 *
 * IDLE further connections send nothing. It opens all connections, prints "ready" and waits for a line or the end of its
 * input; then it sends. Prints one line of JSON: sent, rate, p50_us, p99_us, p999_us, max_us; and waits for the end of its
 * input before it closes the connections. So a caller can measure the server without their beginning and end. */
#include <stdbool.h>

#include "bench/client.h"

enum { WAITING_MAX = 4096, CONNECTIONS_MAX = 8192, PAUSE_NS = 30000, UNDER_WAY = 50, RATE_MOST = 500000 };

struct connection {
    int fd;
    int64_t sent_ns[WAITING_MAX]; /* when each of those under way was to be sent, a ring */
    unsigned first, count;
    unsigned lines; /* of the answer that is being read */
};

static struct connection connections[CONNECTIONS_MAX]; /* pages of rings that nothing uses take no memory */
static uint32_t *took_us;
static size_t took_count;

/* An answer is an array of seven: a head, four numbers or more of one line, two strings of two lines. */
static void receive(struct connection *c)
{
    char text[16384];
    ssize_t len = recv(c->fd, text, sizeof text, 0);
    if (len == 0 || (len < 0 && errno != EAGAIN))
        die("the server closed the connection");
    int64_t now = now_ns();
    for (ssize_t i = 0; i < len; i++) {
        if (text[i] == '-' && c->lines == 0) {
            errno = EPROTO;
            die(text + i);
        }
        if (text[i] != '\n' || ++c->lines < 1 + 7 + 2)
            continue;
        c->lines = 0;
        took_us[took_count++] = (uint32_t)((now - c->sent_ns[c->first]) / 1000);
        c->first = (c->first + 1) % WAITING_MAX;
        c->count--;
    }
}

struct load {
    unsigned long rate, total, keys, sent;
    int64_t begin_ns;
    uint64_t random;
};

static int write_one(struct load *load, char *to, size_t room)
{
    char key[24];
    int n = snprintf(key, sizeof key, "u%lu", (unsigned long)(next_random(&load->random) % load->keys));
    return snprintf(to, room, "*5\r\n$10\r\nWEIR.CHECK\r\n$5\r\nevent\r\n$3\r\nocr\r\n$3\r\nkey\r\n$%d\r\n%s\r\n", n, key);
}

/* Those that are due now go to one connection together, the next ones to the next. */
static bool send_due(struct load *load, struct connection *c)
{
    char text[WAITING_MAX * 16];
    size_t len = 0;
    unsigned long due = (unsigned long)((now_ns() - load->begin_ns) * (int64_t)load->rate / 1000000000) + 1;
    for (; load->sent < load->total && load->sent < due && len < sizeof text - 128; load->sent++) {
        if (c->count == WAITING_MAX)
            die("the server does not keep up");
        len += (size_t)write_one(load, text + len, sizeof text - len);
        c->sent_ns[(c->first + c->count++) % WAITING_MAX] =
            load->begin_ns + (int64_t)load->sent * 1000000000 / (int64_t)load->rate;
    }
    if (len > 0 && send(c->fd, text, len, MSG_NOSIGNAL) != (ssize_t)len)
        die("the server does not keep up");
    return len > 0;
}

/* Sends one over a connection that has none under way. */
static void send_somewhere(struct load *load, unsigned long count)
{
    char text[128];
    size_t i = (size_t)(next_random(&load->random) % count);
    while (connections[i].count > 0)
        i = (i + 1) % count;
    struct connection *c = &connections[i];
    int len = write_one(load, text, sizeof text);
    c->sent_ns[(c->first + c->count++) % WAITING_MAX] = now_ns();
    if (send(c->fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        die("send");
    load->sent++;
}

/* Until the time is over, and all are answered. */
static void send_when_answered(struct load *load, int epoll, unsigned long count, int64_t end_ns)
{
    unsigned long most = count < UNDER_WAY ? count : UNDER_WAY;
    while (now_ns() < end_ns || took_count < load->sent) {
        struct epoll_event events[64];
        while (load->sent - took_count < most && load->sent < load->total && now_ns() < end_ns)
            send_somewhere(load, count);
        int n = epoll_wait(epoll, events, 64, 100);
        for (int i = 0; i < n; i++)
            receive(&connections[events[i].data.u32]);
    }
}

static void send_at_pace(struct load *load, int epoll, unsigned long count)
{
    for (unsigned long turn = 0; took_count < load->total;) {
        struct epoll_event events[64];
        turn += send_due(load, &connections[turn % count]);
        int n = epoll_pwait2(epoll, events, 64, &(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
        for (int i = 0; i < n; i++)
            receive(&connections[events[i].data.u32]);
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void open_all(char **argv, int epoll, unsigned long count, unsigned long idle)
{
    for (uint32_t i = 0; i < count; i++)
        connections[i].fd = open_connection(argv[1], atoi(argv[2]), epoll, i);
    for (uint32_t i = 0; i < idle; i++)
        connections[count + i].fd = open_connection(argv[1], atoi(argv[2]), epoll, (uint32_t)count + i);
    puts("ready");
    fflush(stdout);
    getchar();
}

static void report(int64_t took_ns)
{
    qsort(took_us, took_count, sizeof *took_us, compare);
    printf("{\"sent\": %zu, \"rate\": %.0f, \"p50_us\": %u, \"p99_us\": %u, \"p999_us\": %u, \"max_us\": %u}\n", took_count,
           (double)took_count * 1e9 / (double)took_ns, took_us[took_count / 2], took_us[took_count * 99 / 100],
           took_us[took_count * 999 / 1000], took_us[took_count - 1]);
}

int main(int argc, char **argv)
{
    if (argc != 7 && argc != 8) {
        fputs("usage: paced HOST PORT RATE SECONDS CONNECTIONS KEYS [IDLE]\n", stderr);
        return 2;
    }
    struct load load = { .rate = strtoul(argv[3], NULL, 10),
                         .keys = strtoul(argv[6], NULL, 10),
                         .random = 88172645463325252u };
    unsigned long count = strtoul(argv[5], NULL, 10), idle = argc > 7 ? strtoul(argv[7], NULL, 10) : 0;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    unsigned long seconds = strtoul(argv[4], NULL, 10);
    load.total = (load.rate > 0 ? load.rate : RATE_MOST) * seconds;
    took_us = calloc(load.total + 1, sizeof *took_us);
    if (!took_us || load.total == 0 || count == 0 || count > CONNECTIONS_MAX || idle > CONNECTIONS_MAX - count ||
        load.keys == 0 || epoll < 0)
        die("arguments");
    open_all(argv, epoll, count, idle);
    be_quick();
    load.begin_ns = now_ns();
    if (load.rate > 0)
        send_at_pace(&load, epoll, count);
    else
        send_when_answered(&load, epoll, count, load.begin_ns + (int64_t)seconds * 1000000000);
    report(now_ns() - load.begin_ns);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
