/* Room in a growing array of entries, for the lists of this folder. */
#ifndef REFUSED_LIST_ROOM_H
#define REFUSED_LIST_ROOM_H

#include <stddef.h>

/* Makes room for `more` entries of `size` bytes after the first `count` of *entries. Returns 0 or WEIR_E_NO_MEMORY. */
int list_room(void **entries, size_t size, size_t count, size_t more, size_t *cap);

#endif
