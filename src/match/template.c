#include "match/template.h"

bool ids_accept(const struct ids *ids, sv segment)
{
    if (!ids->custom)
        return path_segment_is_id(segment);
    for (size_t i = 0; i < ids->count; i++)
        if (regex_match(ids->regexes[i], segment) != REGEX_NO)
            return true;
    return false;
}

/* A wildcard is told by how it is written, before decoding: "%23" is a literal "#". */
static sv wildcard(sv raw)
{
    if (sv_eq(raw, SV("#")))
        return SV(TEMPLATE_ID);
    if (sv_eq(raw, SV("*")))
        return SV(TEMPLATE_REST);
    if (raw.len >= 2 && raw.ptr[0] == '{' && raw.ptr[raw.len - 1] == '}')
        return SV(TEMPLATE_ANY);
    return sv_of("", 0);
}

/* Writes the canonical form of a segment that is not a wildcard. Returns its length. */
static size_t write_literal(sv raw, bool ignore_case, char *to)
{
    size_t n = path_segment(raw, ignore_case, to, raw.len);
    if (!part_is_escaped(sv_of(to, n)))
        return n;
    memmove(to + 1, to, n);
    to[0] = ';';
    return n + 1;
}

int template_new(sv text, bool ignore_case, struct arena *arena, sv *ret)
{
    /* Each segment gets a slash; a wildcard, or a literal that begins like one, is one byte longer here than in the text.
     */
    size_t room = text.len + 3;
    for (size_t i = 0; i < text.len; i++)
        room += 2 * (text.ptr[i] == '/');
    struct arena_mark before = arena_mark(arena);
    char *out = arena_text(arena, room);
    if (!out)
        return WEIR_E_NO_MEMORY;
    size_t len = 0;
    bool ended = false;
    for (sv left = text; left.len > 0;) {
        sv raw = sv_cut(&left, '/');
        sv wild = wildcard(raw);
        char *to = out + len + 1;
        size_t n = wild.len;
        if (wild.len > 0)
            memcpy(to, wild.ptr, wild.len);
        else
            n = write_literal(raw, ignore_case, to);
        if (n == 0 || (n == 1 && to[0] == '.'))
            continue;
        if (ended)
            return WEIR_E_INVALID;
        if (n == 2 && to[0] == '.' && to[1] == '.') {
            while (len > 0 && out[--len] != '/')
                ;
            continue;
        }
        ended = sv_eq(wild, SV(TEMPLATE_REST));
        out[len] = '/';
        len += n + 1;
    }
    *ret = sv_of(out, len);
    /* Most templates are written so: they need no text of their own. */
    if (sv_eq(*ret, text)) {
        arena_back(arena, &before);
        *ret = text;
    }
    return 0;
}

size_t template_depth(sv canonical)
{
    size_t depth = 0;
    for (size_t i = 0; i < canonical.len; i++)
        depth += canonical.ptr[i] == '/';
    return depth;
}

/* The last segment of a path that was cut may be only the beginning of one. */
static bool part_fits(enum template_part kind, sv part, sv segment, bool begins, const struct ids *ids)
{
    if (kind == PART_ANY)
        return true;
    if (kind == PART_LITERAL)
        return begins ? sv_starts(part, segment) : sv_eq(part, segment);
    return begins ? ids->custom || path_segment_begins_id(segment) : ids_accept(ids, segment);
}

bool template_matches(sv canonical, sv path, bool cut, const struct ids *ids)
{
    sv rest = path.len > 0 && path.ptr[0] == '/' ? sv_from(path, 1) : path;
    while (canonical.len > 0 && !(cut && rest.len == 0)) {
        sv part = template_next(&canonical);
        enum template_part kind = template_part(&part);
        if (kind == PART_REST)
            return true;
        if (rest.len == 0)
            return false;
        sv segment = sv_cut(&rest, '/');
        if (!part_fits(kind, part, segment, cut && rest.len == 0, ids))
            return false;
    }
    return rest.len == 0;
}
