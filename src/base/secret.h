/* Secrets in files. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stddef.h>

struct weir_error;

enum { SECRET_MAX = 511 };

/* Reads the secret that is the only line of a file. Returns 0 or WEIR_E_INVALID; the error names `what`, such as
 * "password_file of the store's address", and shows nothing of what the file has. */
int secret_read(char ret[SECRET_MAX + 1], const char *what, const char *path, struct weir_error *error);

#endif
