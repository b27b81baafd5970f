/* Options of a command: one table says what they are, reads them and makes --help. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdio.h>

#include "base/amount.h"

enum option_kind {
    OPTION_NUMBER = AMOUNT_NUMBER, /* uint64_t */
    OPTION_COUNT = AMOUNT_COUNT,   /* uint64_t */
    OPTION_SIZE = AMOUNT_SIZE,     /* uint64_t */
    OPTION_LENGTH = AMOUNT_TIME,   /* uint64_t in milliseconds */
    OPTION_FLAG,                   /* bool */
    OPTION_TEXT,                   /* const char * */
    OPTION_CHOICE,                 /* int: which word of `argument` ("a|b|c"), counted from 0 */
    OPTION_TIME,                   /* int64_t in microseconds; RFC 3339 or epoch milliseconds */
    OPTION_LIST,                   /* struct option_list: may be repeated */
};

enum { OPTION_LIST_MAX = 64 };

struct option_list {
    const char *items[OPTION_LIST_MAX];
    size_t count;
};

struct option {
    const char *name;     /* without its dashes; NULL ends the table */
    const char *argument; /* what --help calls the value: "FILE"; for OPTION_CHOICE the choices; NULL for a flag */
    enum option_kind kind;
    size_t offset;    /* where in the command's own structure the value goes */
    const char *help; /* NULL: it is accepted, and not listed */
    /* NUMBER, SIZE, COUNT and LENGTH: what is allowed; max 0: as much as there is room for. */
    uint64_t min, max;
    uint64_t bare; /* LENGTH: milliseconds that a number without a unit counts in; 0: it needs a unit */
};

/* Bounds of options that several commands have. */
#define OPTION_CELLS_KEYS_MAX UINT64_C(50000000000)
#define OPTION_CELLS_BYTES_MAX (UINT64_C(1) << 41)

struct command {
    const char *program;          /* what the user types before the name; NULL: "weir" */
    const char *name;             /* "check" */
    const char *usage;            /* what follows the name: "--rules FILE [OPTION]... INPUT" */
    const char *text;             /* what it does, in paragraphs */
    const char *footer;           /* after the options: the exit status, and so on */
    const struct option *options; /* NULL: only --help */
};

/* Reads the options in argv[1 …] into `values`; other arguments are moved to argv[0 … *ret_count). Returns -1 to go on, or
 * the exit status: 0 after --help, EXIT_BAD after one sentence on stderr. */
int options_read(const struct command *command, int argc, char **argv, void *values, size_t *ret_count);

/* For what a command checks itself: "weir check: SENTENCE; see 'weir check --help'" on stderr. Returns EXIT_BAD. */
int options_error(const struct command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a word that is not one of `names`, which end with NULL: "unknown verb 'lst' (did you mean list?)". */
int options_unknown(const struct command *command, const char *what, const char *word, const char *const *names);

void options_help(const struct command *command, FILE *out);

/* `text` in lines of at most 80 columns, each but the first with `indent` blanks before it. */
void options_wrap(const char *text, size_t indent, FILE *out);

#endif
