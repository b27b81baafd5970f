/* Which body a client wants: the Accept headers of its request (RFC 9110, section 12.5.1). */
#include "present/answer.h"

enum { RANGES_MAX = 64 }; /* media ranges that are looked at; further ones are ignored */

/* How closely a media range names a type. */
enum closeness { NOT_NAMED, BY_ANY, BY_KIND, BY_FAMILY, BY_NAME };

/* The quality of a type, in 1/1000, by the range that names it most closely. */
struct preference {
    enum closeness by;
    unsigned quality;
};

static void prefer(struct preference *p, enum closeness by, unsigned quality)
{
    if (by > p->by || (by == p->by && quality > p->quality))
        *p = (struct preference){ by, quality };
}

/* Cuts off the text up to `end`, which does not count within quotes. */
static sv cut_unquoted(sv *rest, char end)
{
    bool quoted = false;
    size_t i = 0;
    for (; i < rest->len && (quoted || rest->ptr[i] != end); i++) {
        if (rest->ptr[i] == '"')
            quoted = !quoted;
        else if (quoted && rest->ptr[i] == '\\')
            i++;
    }
    i = i < rest->len ? i : rest->len;
    sv part = sv_of(rest->ptr, i);
    *rest = sv_from(*rest, i < rest->len ? i + 1 : i);
    return sv_trim(part);
}

/* "0", "0.5", "1.000"; at most three digits follow the point. */
static bool read_quality(sv text, unsigned *ret)
{
    if (text.len == 0 || text.len > 5 || (text.ptr[0] != '0' && text.ptr[0] != '1') || (text.len > 1 && text.ptr[1] != '.'))
        return false;
    unsigned quality = text.ptr[0] == '1' ? 1000 : 0, unit = 100;
    for (size_t i = 2; i < text.len; i++, unit /= 10) {
        if (!ascii_digit(text.ptr[i]))
            return false;
        quality += (unsigned)(text.ptr[i] - '0') * unit;
    }
    *ret = quality;
    return quality <= 1000;
}

/* application/json;q=0.8. A range with an invalid quality is ignored. */
static void read_range(sv range, struct preference *problem, struct preference *plain)
{
    unsigned quality = 1000;
    sv type = cut_unquoted(&range, ';');
    while (range.len > 0) {
        sv value = cut_unquoted(&range, ';'), name = sv_trim(sv_cut(&value, '='));
        if (sv_eq_nocase(name, SV("q")) && !read_quality(sv_trim(value), &quality))
            return;
    }
    if (sv_eq_nocase(type, SV("application/problem+json")))
        prefer(problem, BY_NAME, quality);
    else if (sv_eq_nocase(type, SV("application/json")))
        prefer(problem, BY_FAMILY, quality); /* a client that reads JSON reads a problem */
    else if (sv_eq_nocase(type, SV("application/*")))
        prefer(problem, BY_KIND, quality);
    else if (sv_eq_nocase(type, SV("text/plain")))
        prefer(plain, BY_NAME, quality);
    else if (sv_eq_nocase(type, SV("text/*")))
        prefer(plain, BY_KIND, quality);
    if (sv_eq(type, SV("*/*"))) {
        prefer(problem, BY_ANY, quality);
        prefer(plain, BY_ANY, quality);
    }
}

bool problem_accepted(const struct weir_request *request)
{
    struct preference problem = { 0 }, plain = { 0 };
    size_t ranges = 0;
    for (size_t i = 0; request && i < request->header_count; i++) {
        sv rest = request->headers[i].value;
        if (!sv_eq_nocase(request->headers[i].name, SV("accept")))
            continue;
        while (rest.len > 0 && ranges++ < RANGES_MAX)
            read_range(cut_unquoted(&rest, ','), &problem, &plain);
    }
    /* A client that says only that it takes anything gets the plain text. */
    if (problem.by <= BY_ANY)
        return problem.quality > plain.quality;
    return problem.quality > 0 && problem.quality >= plain.quality;
}
