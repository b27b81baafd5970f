/* Ports for servers that tests start. */
#ifndef TESTS_PORTS_H
#define TESTS_PORTS_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* One that is free on 127.0.0.1, and none that a connection may get before the server does: those are from 32768 on. 0:
 * there is none. */
static inline unsigned free_port(void)
{
    enum { FIRST = 20000, LAST = 32767, TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t chance = 0;
        if (getrandom(&chance, sizeof chance, 0) != sizeof chance)
            return 0;
        unsigned port = FIRST + chance % (LAST - FIRST + 1);
        struct sockaddr_in place = { .sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&place, sizeof place) == 0;
        if (fd >= 0)
            close(fd);
        if (bound)
            return port;
    }
    return 0;
}

#endif
