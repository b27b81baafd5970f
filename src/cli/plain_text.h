/* Text from strangers (rows, servers) on its way to a terminal, a log or a comment in a file. */
#ifndef CLI_PLAIN_TEXT_H
#define CLI_PLAIN_TEXT_H

#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"

/* What every reader takes for one line: what utf8_shown does not let people see becomes "?". Cut ("...") at `most`
 * characters. */
void plain_add(struct buf *out, sv text, size_t most);

/* The lines of TEXT on stderr. */
void plain_print(sv text);
/* One line on stderr, whatever line ends the values have; the second with `before` before it. */
void plain_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
void plain_vprintf(const char *before, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
/* "weir: TEXT" and a line end on stderr, in lines of their own where TEXT has line ends. */
void plain_say(sv text);

/* An address as it may be shown: overwrites passwords in it with `*`, in place, so that they are in no process list: that
 * of the user, and all that follows `?` by a name that ends in "password". */
void plain_hide_password(char *address);

/* The address that --from gives (a word of argv, or NULL), else $WEIR_FROM, else "": a copy, and no password is left in
 * argv. NULL: out of memory. */
char *plain_address(const char *from);

#endif
