/* Linked with -Wl,--wrap=store_place: each key is a place of its own, as if its slot were being moved. So every call with
 * several rules is divided, and the tests that count in a real server run once more like that. */
#include "redis/divided.h"

uint32_t __wrap_store_place(struct store *store, struct weir_str key);

uint32_t __wrap_store_place(struct store *store, struct weir_str key)
{
    uint32_t hash = 2166136261u;
    (void)store;
    for (size_t i = 0; i < key.len; i++)
        hash = (hash ^ (unsigned char)key.ptr[i]) * 16777619u;
    return hash;
}
