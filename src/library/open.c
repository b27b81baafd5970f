/* Where the engine and its store come together. */
#include "library/open.h"

#include "engine/handle.h"
#include "redis/redis_store.h"

int weir_open(struct weir **ret, const struct weir_options *options, struct weir_error *error)
{
    return weir_open_with(ret, options, &redis_store, false, error);
}

int weir_open_visit(struct weir **ret, const struct weir_options *options, struct weir_error *error)
{
    return weir_open_with(ret, options, &redis_store, true, error);
}
