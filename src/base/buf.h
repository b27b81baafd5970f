/* A growable string with a maximum. A write that would exceed it, or finds no memory, sets `failed` and changes nothing;
 * the caller checks once, at the end. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/sv.h"

struct buf {
    char *ptr; /* ends in NUL once anything was written */
    size_t len;
    size_t cap;
    size_t max;
    bool failed;
};

void buf_init(struct buf *b, size_t max);
/* Over memory of the caller, `size` > 0 bytes: it never grows, and needs no buf_done. */
void buf_over(struct buf *b, char *room, size_t size);
void buf_done(struct buf *b);
void buf_clear(struct buf *b);
/* Gives back the room that is not used: for a text that is kept. */
void buf_trim(struct buf *b);

void buf_add(struct buf *b, sv s);
void buf_char(struct buf *b, char c);
void buf_number(struct buf *b, int64_t number);

enum { NUMBER_MAX = 20 };
/* In decimal, at most NUMBER_MAX bytes and no NUL, where there is room for sure. Returns the end. */
char *number_put(char *to, int64_t number);

void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* s as a JSON string, with quotes. Characters that utf8_shown rejects are escaped; bytes that are not UTF-8 become
 * U+FFFD, since JSON cannot express them. */
void buf_json(struct buf *b, sv s);

/* Room for `most` bytes behind what is there, which buf_grown() adds up to `end`. NULL: it has failed. */
char *buf_room(struct buf *b, size_t most);
static inline void buf_grown(struct buf *b, char *end)
{
    b->len = (size_t)(end - b->ptr);
    *end = '\0';
}

static inline sv buf_sv(const struct buf *b)
{
    return sv_of(b->ptr ? b->ptr : "", b->len);
}

#endif
