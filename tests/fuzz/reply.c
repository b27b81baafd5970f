/* Bytes from anywhere as a reply: the same comes out whatever the pieces they arrive in, views lie in what was read, and an
 * array has as many elements as it says. */
#include <stdio.h>
#include <stdlib.h>

#include "redis/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void walk(sv bytes, struct reply reply, unsigned depth)
{
    struct reply element;
    size_t count = reply.count;
    require(depth <= REPLY_NESTING_MAX, "too deep");
    require(reply.text.len == 0 ||
                (reply.text.ptr >= bytes.ptr && reply.text.ptr + reply.text.len <= bytes.ptr + bytes.len),
            "a view lies outside");
    if (reply.kind != REPLY_ARRAY)
        return;
    while (reply_next(&reply, &element)) {
        count--;
        walk(bytes, element, depth + 1);
    }
    require(count == 0 && reply.text.len == 0, "an array is not as long as it says");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reply reply, again;
    sv bytes = sv_of((const char *)data, size);
    ssize_t n = reply_parse(bytes, &reply);
    require(n >= -1 && n <= (ssize_t)size, "length of a reply");
    for (size_t cut = 0; cut < size && size < 300; cut++) {
        char *part = malloc(cut ? cut : 1);
        if (!part)
            return 0;
        memcpy(part, data, cut);
        ssize_t r = reply_parse(sv_of(part, cut), &again);
        free(part);
        require(r == 0 || r == n, "pieces are read otherwise");
        require(r <= 0 || cut >= (size_t)n, "a reply ends too early");
    }
    if (n > 0)
        walk(bytes, reply, 0);
    return 0;
}
