/* weir_open for a command that ends at once: see weir_open_with in engine/handle.h. */
#ifndef LIBRARY_OPEN_H
#define LIBRARY_OPEN_H

#include <weir/weir.h>

int weir_open_visit(struct weir **ret, const struct weir_options *options, struct weir_error *error);

#endif
