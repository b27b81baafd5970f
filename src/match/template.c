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

enum template_result template_new(sv text, bool ignore_case, struct arena *arena, sv *ret)
{
    /* A wildcard is longer than what it is written as by one byte, a segment by its slash. */
    char *out = arena_alloc(arena, 2 * text.len + 2);
    if (!out)
        return TEMPLATE_NO_MEMORY;
    size_t len = 0, depth = 0;
    bool ended = false;
    while (text.len > 0) {
        sv raw = sv_cut(&text, '/');
        sv wild = wildcard(raw);
        char *to = out + len + 1;
        size_t n = wild.len;
        if (wild.len > 0)
            memcpy(to, wild.ptr, wild.len);
        else
            n = path_segment(raw, ignore_case, to, raw.len);
        if (n == 0 || (n == 1 && to[0] == '.'))
            continue;
        if (ended)
            return TEMPLATE_STAR_INSIDE;
        if (n == 2 && to[0] == '.' && to[1] == '.') {
            while (len > 0 && out[--len] != '/')
                ;
            depth -= depth > 0;
            continue;
        }
        ended = sv_eq(wild, SV(TEMPLATE_REST));
        if (++depth > PATH_SEGMENTS_MAX)
            return TEMPLATE_TOO_DEEP;
        out[len] = '/';
        len += n + 1;
    }
    *ret = sv_of(out, len);
    return TEMPLATE_OK;
}

bool template_matches(sv canonical, sv path, const struct path_segments *segments, const struct ids *ids)
{
    size_t i = 0;
    for (; canonical.len > 0; i++) {
        sv part = template_next(&canonical);
        if (sv_eq(part, SV(TEMPLATE_REST)))
            return true;
        if (i == segments->count)
            return false;
        sv segment = path_segment_at(path, segments, i);
        if (sv_eq(part, SV(TEMPLATE_ANY)))
            continue;
        if (sv_eq(part, SV(TEMPLATE_ID)) ? !ids_accept(ids, segment) : !sv_eq(part, segment))
            return false;
    }
    return i == segments->count;
}
