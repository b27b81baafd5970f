/* Paths: one spelling for each resource. */
#ifndef MATCH_PATH_H
#define MATCH_PATH_H

#include "base/sv.h"

enum {
    PATH_BYTES_MAX = 8192,  /* a longer path is cut there */
    PATH_SEGMENTS_MAX = 64, /* that the tree looks at; a deeper template is compared by itself */
};

/* Where the segments of a path begin: segment i is [start[i], start[i + 1] - 1). Only the first PATH_SEGMENTS_MAX + 1. */
struct path_segments {
    uint32_t count;
    uint16_t start[PATH_SEGMENTS_MAX + 2];
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte of a word is its lowest");

/* Up to eight bytes as a word, with zeros behind them. */
static inline uint64_t sv_short_word(sv s)
{
    const char *p = s.ptr;
    size_t n = s.len;
    if (n == 8)
        return sv_word(p);
    if (n >= 4)
        return sv_half(p) | (uint64_t)sv_half(p + n - 4) << 8 * (n - 4);
    if (n == 0)
        return 0;
    return (unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 * (n / 2) |
           (uint64_t)(unsigned char)p[n - 1] << 8 * (n - 1);
}

/* Normalises `raw` as src/match/README.md says. Returns a part of `raw` if that is as it should be, else what it wrote to
 * `out`. *ret_cut: it would have been longer than `cap` (1 to PATH_BYTES_MAX), and stops there. */
sv path_normalise(sv raw, bool ignore_case, char *out, size_t cap, bool *ret_cut, struct path_segments *ret_segments);

/* One segment: percent-decodes, cuts at `;`, folds case. Returns its length, of which at most `cap` bytes are written. */
size_t path_segment(sv raw, bool ignore_case, char *out, size_t cap);

void path_split(sv path, struct path_segments *ret);

static inline sv path_segment_at(sv path, const struct path_segments *segments, size_t i)
{
    return sv_of(path.ptr + segments->start[i], (size_t)(segments->start[i + 1] - 1 - segments->start[i]));
}

/* Digits only, or a UUID in either case: what `#` accepts unless settings.ids says otherwise. */
bool path_segment_is_id(sv segment);

#endif
