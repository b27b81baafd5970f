/* Decisions over RESP at a steady pace, and how long each took: from the moment that it was to be sent, so that a server
 * that stalls is charged for all that had to wait.
 *
 *   paced HOST PORT RATE SECONDS CONNECTIONS KEYS
 *
 * Prints one line of JSON: sent, rate, p50_us, p99_us, p999_us, max_us. */
#include <stdbool.h>

#include "bench/client.h"

enum { WAITING_MAX = 4096, CONNECTIONS_MAX = 512, PAUSE_NS = 30000 };

struct connection {
    int fd;
    int64_t sent_ns[WAITING_MAX]; /* when each of those under way was to be sent, a ring */
    unsigned first, count;
    unsigned lines; /* of the answer that is being read */
};

static struct connection connections[CONNECTIONS_MAX];
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

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
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
    if (argc != 7) {
        fputs("usage: paced HOST PORT RATE SECONDS CONNECTIONS KEYS\n", stderr);
        return 2;
    }
    struct load load = { .rate = strtoul(argv[3], NULL, 10),
                         .keys = strtoul(argv[6], NULL, 10),
                         .random = 88172645463325252u };
    unsigned long count = strtoul(argv[5], NULL, 10), turn = 0;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    load.total = load.rate * strtoul(argv[4], NULL, 10);
    took_us = calloc(load.total + 1, sizeof *took_us);
    if (!took_us || load.total == 0 || count == 0 || count > CONNECTIONS_MAX || load.keys == 0 || epoll < 0)
        die("arguments");
    for (uint32_t i = 0; i < count; i++)
        connections[i].fd = open_connection(argv[1], atoi(argv[2]), epoll, i);
    be_quick();
    load.begin_ns = now_ns();
    while (took_count < load.total) {
        struct epoll_event events[64];
        turn += send_due(&load, &connections[turn % count]);
        int n = epoll_pwait2(epoll, events, 64, &(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
        for (int i = 0; i < n; i++)
            receive(&connections[events[i].data.u32]);
    }
    report(now_ns() - load.begin_ns);
    return 0;
}
