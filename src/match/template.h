/* Path templates in one canonical form, and one at a time: what the tree is built from, and what it is tested against.
 *
 * The form is "/" and a segment for each, the root being empty. Normalised segments hold no `;`, so one that begins with it
 * is free to stand for a wildcard: "/repo/v1/entity/;#/bundle". */
#ifndef MATCH_TEMPLATE_H
#define MATCH_TEMPLATE_H

#include "base/arena.h"
#include "base/regex.h"
#include "match/path.h"

#define TEMPLATE_ID ";#"
#define TEMPLATE_ANY ";?"
#define TEMPLATE_REST ";*"

/* What `#` accepts: settings.ids, or the default. */
struct ids {
    bool custom;
    struct regex **regexes;
    size_t count;
};

bool ids_accept(const struct ids *ids, sv segment);

/* 0, WEIR_E_NO_MEMORY, or WEIR_E_INVALID for a `*` that is not the last segment. *ret lives in `arena`. */
int template_new(sv text, bool ignore_case, struct arena *arena, sv *ret);
size_t template_depth(sv canonical);
/* `cut`: whether it matches some path that begins with this one: the last segment may be longer, and others may follow. */
bool template_matches(sv canonical, sv path, bool cut, const struct ids *ids);

/* Cuts the next segment off a canonical form that is not empty. */
static inline sv template_next(sv *rest)
{
    *rest = sv_from(*rest, 1);
    const char *end = rest->len > 0 ? memchr(rest->ptr, '/', rest->len) : NULL;
    sv segment = end ? sv_of(rest->ptr, (size_t)(end - rest->ptr)) : *rest;
    *rest = sv_from(*rest, segment.len);
    return segment;
}

#endif
