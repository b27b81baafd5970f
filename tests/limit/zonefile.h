/* Zones of this system, for tests. */
#ifndef TESTS_LIMIT_ZONEFILE_H
#define TESTS_LIMIT_ZONEFILE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limit/tz.h"

#define ZONEINFO "/usr/share/zoneinfo"

enum { ZONE_BYTES_MAX = 64 << 10 };

struct zonefile {
    size_t len;
    unsigned char bytes[ZONE_BYTES_MAX];
};

static inline bool zonefile_read(const char *path, struct zonefile *ret)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    ret->len = fread(ret->bytes, 1, sizeof ret->bytes, f);
    fclose(f);
    return true;
}

/* A file of version 2 without transitions, with one type and the given last line. */
static inline void zonefile_make(const char *footer, struct zonefile *ret)
{
    static const unsigned char header[44] = { 'T', 'Z', 'i', 'f', '2', [39] = 1, [43] = 4 };
    static const unsigned char block[10] = { 0, 0, 0, 0, 0, 0, 'U', 'T', 'C', 0 };
    unsigned char *p = ret->bytes;
    for (int i = 0; i < 2; i++) {
        memcpy(p, header, sizeof header);
        memcpy(p + sizeof header, block, sizeof block);
        p += sizeof header + sizeof block;
    }
    ret->len = (size_t)(p - ret->bytes) + (size_t)sprintf((char *)p, "\n%s\n", footer);
}

#endif
