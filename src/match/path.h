/* Paths: one spelling for each resource, and the other ways in which common servers read a path. */
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

/* Notes of path_normalise about a path. They are cheap and may be wrong in one direction: without a note all readings of
 * the path are the same. */
enum {
    PATH_CUT = 1,          /* it would have been longer than `cap`, and stops there */
    PATH_HAS_PARAMS = 2,   /* a `;`, written or encoded */
    PATH_HAS_SLASH = 4,    /* an encoded slash */
    PATH_HAS_DOTS = 8,     /* what may be a dot segment */
    PATH_HAS_NEWLINE = 16, /* a newline, maybe at the end */
    PATH_HAS_HASH = 32,    /* a `#` as such: it begins a fragment, which is not looked at */
    PATH_HAS_GAPS = 64,    /* an empty segment, or a slash at the end */
};
#define PATH_AMBIGUOUS (PATH_HAS_PARAMS | PATH_HAS_SLASH | PATH_HAS_DOTS | PATH_HAS_NEWLINE | PATH_HAS_HASH)
/* Without these the path has no texts (path_texts). */
#define PATH_MAY_HAVE_TEXTS (PATH_HAS_GAPS | PATH_HAS_SLASH | PATH_HAS_NEWLINE | PATH_HAS_HASH)

/* Normalises `raw` as src/match/README.md says, in its first reading. Returns a part of `raw` if that is as it should be,
 * else what it wrote to `out`, of `cap` bytes (1 to PATH_BYTES_MAX). */
sv path_normalise(sv raw, bool ignore_case, char *out, size_t cap, unsigned *ret_notes, struct path_segments *ret_segments);

/* How a reader answers the questions on which servers differ. */
enum path_params { PARAMS_CUT, PARAMS_CUT_RAW, PARAMS_CUT_LAST, PARAMS_KEPT, PATH_PARAMS };
enum path_dots { DOTS_AFTER_SLASHES, DOTS_BEFORE_SLASHES, PATH_DOTS };
enum path_gaps { GAPS_DROPPED, GAPS_AT_END, GAPS_KEPT };
struct path_way {
    enum path_params params; /* `;…` is cut off; only where it is written as `;`; when dots are resolved, and then dots are
                              * resolved again; or it is part of the segment */
    enum path_dots dots;     /* `..` takes back a segment that is not empty, or any segment */
    bool slash;              /* `%2F` separates segments */
    bool hash;               /* `#` is an ordinary byte */
    enum path_gaps gaps;     /* what is left of empty segments: nothing, as in every reading; a slash at the end; or all of
                              * them, with DOTS_BEFORE_SLASHES */
};

enum {
    PATH_WAYS_MAX = PATH_PARAMS * PATH_DOTS * 2 * 2,
    PATH_READINGS_MAX = 2 * PATH_WAYS_MAX, /* each with and without a newline at its end */
    PATH_POOL_BYTES = 2 * PATH_BYTES_MAX,  /* that all readings share, and all texts */
    /* Each way with a slash at its end; half of them with all empty segments; each with and without a newline. */
    PATH_TEXTS_MAX = 2 * (PATH_WAYS_MAX + PATH_WAYS_MAX / PATH_DOTS),
};

struct path_reading {
    sv path;
    bool cut; /* its last segment may be longer, and others may follow it */
};

/* The path as this reader reads it; the first reading is that of a way that is all zeros. */
struct path_reading path_read(sv raw, struct path_way way, bool ignore_case, char *out, size_t cap);
/* The number of each way's reading, and of that reading without a newline at its end. */
struct path_numbers {
    uint8_t whole[PATH_WAYS_MAX], bare[PATH_WAYS_MAX];
};
/* All readings of a path that differ, given the notes of path_normalise; the first reading comes first. Each gets the same
 * part of `pool`, PATH_BYTES_MAX bytes at most, and is cut at its end. Returns how many there are, 1 or more. */
size_t path_readings(sv raw, unsigned notes, bool ignore_case, char pool[PATH_POOL_BYTES],
                     struct path_reading ret[PATH_READINGS_MAX], struct path_numbers *ret_numbers);

/* A reading before empty segments are dropped: what a server has that keeps them, or the slash at the end. */
struct path_text {
    struct path_reading as;
    uint8_t reading; /* what it is without them */
};
/* All texts of a path that differ from their reading, given what path_readings gave; all zeros if the path has one reading.
 * They share `pool` as readings do. Returns how many there are, 0 or more. */
size_t path_texts(sv raw, unsigned notes, bool ignore_case, const struct path_numbers *numbers, char pool[PATH_POOL_BYTES],
                  struct path_text ret[PATH_TEXTS_MAX]);

/* One segment of a template: percent-decodes, cuts at `;`, folds case. Returns its length, of which at most `cap` bytes are
 * written. */
size_t path_segment(sv raw, bool ignore_case, char *out, size_t cap);

void path_split(sv path, struct path_segments *ret);

static inline sv path_segment_at(sv path, const struct path_segments *segments, size_t i)
{
    return sv_of(path.ptr + segments->start[i], (size_t)(segments->start[i + 1] - 1 - segments->start[i]));
}

/* Digits only, or a UUID in either case: what `#` accepts unless settings.ids says otherwise. */
bool path_segment_is_id(sv segment);
/* Whether some segment that begins like this is one. */
bool path_segment_begins_id(sv begin);

#endif
