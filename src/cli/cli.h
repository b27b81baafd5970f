/* Functions that the subcommands of `weir` share.
 *
 * A command is a function in the table of main.c. It gets its own name as argv[0] and the arguments that follow it, and
 * returns the exit status. Results go to stdout, everything else to stderr. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/buf.h"
#include "base/sv.h"

enum { EXIT_ALLOWED = 0, EXIT_REFUSED = 1, EXIT_BAD = 2 };

int cli_check(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_lint(int argc, char **argv);
int cli_simulate(int argc, char **argv);
int cli_convert(int argc, char **argv);
int cli_rules(int argc, char **argv);
int cli_sync(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_token(int argc, char **argv);
int cli_cells(int argc, char **argv);
int cli_top(int argc, char **argv);

/* "weir: " and one line on stderr. Returns EXIT_BAD, so that `return cli_error(…)` reads well. */
int cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says that a cells file is a copy. Only the first process that opens it learns that. */
void cli_warn_copied(bool copied, const char *path);

/* Call it last: a full disk may show only when stdout is flushed. Returns `status`, or EXIT_BAD if the output cannot be
 * written; a reader that closed the pipe gets no error message. */
int cli_finish(int status);

/* The error on stderr. Returns EXIT_BAD. */
int cli_fail(const struct weir_error *error);

/* Prints the text to stdout. Returns `status`, or EXIT_BAD if there was no memory for the text. */
int cli_print(const struct buf *text, int status);

/* Reads a whole file ("-": stdin) into *ret. False: *ret_why says why not ("No such file or directory"). */
bool cli_read_file(const char *path, struct buf *ret, const char **ret_why);
/* The same. False: the reason was printed. */
bool cli_read_named(const char *path, struct buf *ret);
/* Returns the name of the file for messages. */
const char *cli_file_name(const char *path);

#endif
