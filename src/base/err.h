/* Errors: a code of the public table and a sentence that names what is wrong and what to do. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <weir/weir.h>

/* Fills *error (which may be NULL) and returns code, so that `return err_set(…)` reads well. */
int err_set(struct weir_error *error, enum weir_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "out of memory"; returns WEIR_E_NO_MEMORY. */
int err_no_memory(struct weir_error *error);

const char *err_text(enum weir_code code);

#endif
