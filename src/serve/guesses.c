#include "serve/guesses.h"

enum { IPV6_PREFIX = 64 };

static bool is_forgotten(const struct guess *guess, int64_t now_ms)
{
    return guess->count == 0 || now_ms - guess->last_ms >= GUESSES_FORGOTTEN_MS;
}

/* Whether `a` is the one to forget. */
static bool matters_less(const struct guess *a, const struct guess *b)
{
    return a->count != b->count ? a->count < b->count : a->last_ms < b->last_ms;
}

/* The entry of this address, which has count 0 if the address is new. */
static struct guess *find(struct guesses *guesses, const struct ip *ip, int64_t now_ms)
{
    struct guess *least = &guesses->of[0];
    for (int i = 0; i < GUESSES_ADDRESSES; i++) {
        struct guess *guess = &guesses->of[i];
        if (is_forgotten(guess, now_ms))
            guess->count = 0;
        else if (memcmp(&guess->ip, ip, sizeof *ip) == 0)
            return guess;
        if (matters_less(guess, least))
            least = guess;
    }
    *least = (struct guess){ .ip = *ip };
    return least;
}

unsigned guesses_add(struct guesses *guesses, struct ip ip, int64_t now_ms)
{
    if (!ip_is_v4(&ip))
        ip_mask(&ip, IPV6_PREFIX);
    struct guess *guess = find(guesses, &ip, now_ms);
    guess->last_ms = now_ms;
    if (guess->count < UINT32_MAX)
        guess->count++;
    if (guess->count <= GUESSES_FREE)
        return 0;
    unsigned wait_ms = GUESSES_WAIT_MS;
    for (unsigned i = GUESSES_FREE + 1; i < guess->count && wait_ms < GUESSES_WAIT_MAX_MS; i++)
        wait_ms *= 2;
    return wait_ms < GUESSES_WAIT_MAX_MS ? wait_ms : GUESSES_WAIT_MAX_MS;
}
