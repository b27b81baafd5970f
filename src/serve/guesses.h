/* Wrong tokens, counted by the address that sent them: after the first ones, each answer has to wait longer. Right tokens
 * are never counted nor delayed, so that nobody who shares an address with others can be locked out by them.
 *
 * The table has a fixed size. If it is full, the address with the fewest wrong tokens is forgotten. */
#ifndef SERVE_GUESSES_H
#define SERVE_GUESSES_H

#include "base/ip.h"

enum {
    GUESSES_FREE = 5, /* answered at once */
    GUESSES_ADDRESSES = 256,
    GUESSES_WAIT_MS = 500, /* of the first one after these; each further one waits twice as long */
    GUESSES_WAIT_MAX_MS = 5000,
    GUESSES_FORGOTTEN_MS = 15 * 60 * 1000, /* after the last one */
};

struct guesses {
    struct guess {
        struct ip ip; /* for IPv6 the network: a client that has one address of it has them all */
        unsigned count;
        int64_t last_ms;
    } of[GUESSES_ADDRESSES];
};

/* Counts a wrong token, and returns how long its answer has to wait. All unix sockets are the address `::`. The time is of
 * a clock that does not step. */
unsigned guesses_add(struct guesses *guesses, struct ip ip, int64_t now_ms);

#endif
