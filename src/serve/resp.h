/* RESP, the protocol of Redis: reading commands and writing replies. Pure: bytes in, bytes out. */
#ifndef SERVE_RESP_H
#define SERVE_RESP_H

#include "base/sv.h"

enum {
    RESP_ARGS_MAX = 1024,        /* words of a command, its name included */
    RESP_INLINE_MAX = 64 * 1024, /* bytes of a command that is one line of text */
    RESP_WRONG_MAX = 100,        /* bytes of the description of an error */
    RESP_NUMBER_MAX = 3 + 20,    /* bytes of a number as a reply */
};

/* ---- commands ---- */

enum resp_parsed {
    RESP_WHOLE,   /* `bytes` is where the next one begins; without arguments: nothing to do */
    RESP_PARTIAL, /* more has to come */
    RESP_WRONG,   /* not RESP, or too large: `wrong` says why */
    RESP_HTTP,    /* it begins like HTTP: a browser was led here */
};

struct resp_command {
    size_t count, bytes;
    sv args[RESP_ARGS_MAX]; /* where they stand */
    char wrong[RESP_WRONG_MAX];
};

/* Reads the command at the start of `bytes`, of at most `most` bytes in all. It keeps nothing between two calls: a command
 * of which a part was missing is read from its start again, which is cheap because strings are skipped by their lengths. An
 * inline command is unquoted where it stands. */
enum resp_parsed resp_parse(char *bytes, size_t len, size_t most, struct resp_command *ret);

/* ---- replies ---- */

struct resp_out {
    char *ptr;
    size_t len, cap;
    unsigned protocol; /* 2 or 3 */
    bool failed;       /* out of memory: what is there is not whole */
};

void resp_out_done(struct resp_out *out);
/* Returns where to write so many bytes at the end; the caller then raises len. NULL: no memory. */
char *resp_room(struct resp_out *out, size_t bytes);

void resp_raw(struct resp_out *out, sv bytes);
void resp_status(struct resp_out *out, const char *text); /* +OK */
/* -ERR and so on; line ends in it become blanks. */
void resp_error(struct resp_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void resp_integer(struct resp_out *out, int64_t n);
void resp_bulk(struct resp_out *out, sv s);
void resp_text(struct resp_out *out, const char *s);                       /* the same */
void resp_pair(struct resp_out *out, const char *name, const char *value); /* of a map: two texts */
void resp_null(struct resp_out *out);
void resp_array(struct resp_out *out, size_t count); /* its elements follow */
void resp_map(struct resp_out *out, size_t count);   /* as many keys with their values follow */

/* ":123\r\n" at `to`, at most RESP_NUMBER_MAX bytes; returns its end. The first byte is the type. */
char *resp_put_number(char *to, char type, int64_t n);

#endif
