/* Path templates in one canonical form, and one at a time: what the tree is built from, and what it is tested against.
 *
 * The form is "/" and a segment for each, the root being empty. Wildcards are as rules write them, so that most templates
 * are their own canonical form: "/repo/v1/entity/#/bundle". Normalised segments hold no `;`: a literal that begins like a
 * wildcard gets one before it ("/a/%23" is "/a/;#"). */
#ifndef MATCH_TEMPLATE_H
#define MATCH_TEMPLATE_H

#include "base/arena.h"
#include "base/regex.h"
#include "match/path.h"

#define TEMPLATE_ID "#"
#define TEMPLATE_ANY "{}"
#define TEMPLATE_REST "*"

enum template_part { PART_LITERAL, PART_ID, PART_ANY, PART_REST };

/* What `#` accepts: settings.ids, or the default. */
struct ids {
    bool custom;
    struct regex **regexes;
    size_t count;
};

bool ids_accept(const struct ids *ids, sv segment);

/* 0, WEIR_E_NO_MEMORY, or WEIR_E_INVALID for a `*` that is not the last segment. *ret lives in `arena`, or is `text`. */
int template_new(sv text, bool ignore_case, struct arena *arena, sv *ret);
size_t template_depth(sv canonical);
/* `cut`: whether it matches some path that begins with this one: the last segment may be longer, and others may follow. */
bool template_matches(sv canonical, sv path, bool cut, const struct ids *ids);

/* A path that a rule must match, or must not match. */
struct compiled_path {
    const char *template; /* canonical; NULL: it is a regex */
    union {
        uint32_t length; /* of the template */
        uint32_t regex;  /* index */
    };
};
static inline bool path_is_regex(const struct compiled_path *path)
{
    return !path->template;
}
static inline sv path_template(const struct compiled_path *path)
{
    return sv_of(path->template, path->length);
}

/* Whether a literal has to be told from a wildcard: it begins like one. */
static inline bool part_is_escaped(sv literal)
{
    return literal.len > 0 && (literal.ptr[0] == '#' || literal.ptr[0] == '{' || literal.ptr[0] == '*');
}

/* Says what a segment of the canonical form is. A literal becomes the text that it stands for. */
static inline enum template_part template_part(sv *part)
{
    switch (part->ptr[0]) {
    case '#':
        return PART_ID;
    case '{':
        return PART_ANY;
    case '*':
        return PART_REST;
    case ';':
        *part = sv_from(*part, 1);
        return PART_LITERAL;
    default:
        return PART_LITERAL;
    }
}

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
