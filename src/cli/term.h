/* What the terminal can do. */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include "base/buf.h"

struct term {
    bool is_terminal;
    bool color;       /* a terminal, and NO_COLOR is not set */
    bool unicode;     /* the locale is UTF-8 and TERM is not dumb */
    unsigned columns; /* of the terminal, or 80 */
    unsigned rows;    /* of the terminal, or 24 */
};

struct term term_of(int fd);

/* Columns that a UTF-8 string takes, counting one for each character. */
size_t term_width(sv text);

/* Text from strangers: what utf8_shown does not let people see, or the terminal cannot show, becomes "?". Cut ("...") at
 * about `columns`. */
void term_add(const struct term *term, struct buf *out, sv text, size_t columns);

/* The same, with blanks up to `columns`. */
void term_add_padded(const struct term *term, struct buf *out, sv text, size_t columns);

/* Escape sequences; "" where colour is off. */
const char *term_bold(const struct term *term);
const char *term_dim(const struct term *term);
const char *term_red(const struct term *term);
const char *term_green(const struct term *term);
const char *term_yellow(const struct term *term);
const char *term_plain(const struct term *term);

#endif
