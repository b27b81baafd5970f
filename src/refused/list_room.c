#include "refused/list_room.h"

#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

int list_room(void **entries, size_t size, size_t count, size_t more, size_t *cap)
{
    if (count + more <= *cap)
        return 0;
    char *grown = realloc(*entries, (count + more) * size);
    if (!grown)
        return WEIR_E_NO_MEMORY;
    /* The kernel provides pages at their first use: here, and not while others wait. */
    memset(grown + count * size, 0, more * size);
    *entries = grown;
    *cap = count + more;
    return 0;
}
