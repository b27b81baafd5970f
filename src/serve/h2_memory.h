/* Memory for the sessions of a loop. nghttp2 takes and gives back some twenty pieces for each request, always of the same
 * few sizes: pieces that were given back are kept, by size, for the next request. All of it belongs to the thread of the
 * loop. Builds with a sanitizer of addresses use malloc, so that it sees each piece. */
#ifndef SERVE_H2_MEMORY_H
#define SERVE_H2_MEMORY_H

#include <nghttp2/nghttp2.h>

enum {
    H2_MEMORY_STEP = 64,     /* sizes are multiples of this */
    H2_MEMORY_SIZES = 17,    /* larger pieces, such as the buffer of a session, come from malloc */
    H2_MEMORY_KEPT = 1 << 20 /* bytes that are kept at most */
};

struct h2_piece;

struct h2_memory {
    nghttp2_mem calls;
    struct h2_piece *kept[H2_MEMORY_SIZES];
    size_t kept_bytes;
};

void h2_memory_init(struct h2_memory *memory);
/* Everything has been given back. */
void h2_memory_done(struct h2_memory *memory);
/* What sessions are made with. They end before the memory does. */
nghttp2_mem *h2_memory_calls(struct h2_memory *memory);

#endif
