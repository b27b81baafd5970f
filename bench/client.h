/* What the clients of the benchmarks share: the clock, connections, and short turns on a CPU. */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline __attribute__((noreturn)) void die(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    exit(2);
}

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Without blocking from now on; its events have `number`. */
static inline int open_connection(const char *host, int port, int epoll, uint32_t number)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, host, &address.sin_addr);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = number };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl");
    return fd;
}

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* It sleeps between two turns: a client that takes a CPU for itself would slow down what it measures. And it asks for short
 * turns that come soon, as the server does: what it waits for a CPU is not the server's. */
static inline void be_quick(void)
{
    /* As the kernel has it. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } turns = { .size = sizeof turns, .runtime_ns = 100000 };
    prctl(PR_SET_TIMERSLACK, 1000);
    syscall(SYS_sched_setattr, 0, &turns, 0);
}

#endif
