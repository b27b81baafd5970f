#include "base/cleanup.h"

void *cleanup_calloc(size_t count, size_t size)
{
    return calloc(count, size);
}
