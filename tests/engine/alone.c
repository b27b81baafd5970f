/* weir_open without a store: the engine by itself. */
#include "engine/handle.h"

int weir_open(struct weir **ret, const struct weir_options *options, struct weir_error *error)
{
    return weir_open_with(ret, options, NULL, false, error);
}
