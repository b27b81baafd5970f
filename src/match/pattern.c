/* A glob is pieces with a `*` between them. The first piece has to be at the beginning of the text, the last one at its
 * end, and each of the others is looked for after the one before it: the leftmost place leaves the most text for the rest,
 * so there is nothing to try again. A piece is found as Knuth, Morris and Pratt do it: if a byte does not fit, `back` says
 * how many bytes of the piece fit nevertheless, and no byte of the text is looked at from the start again. */
#include "match/pattern.h"

/* For each beginning of the piece: the length of the longest shorter one that it ends with. */
static void fill_back(sv piece, uint16_t *back)
{
    uint16_t fits = 0;
    for (size_t i = 1; i < piece.len; i++) {
        while (fits > 0 && piece.ptr[i] != piece.ptr[fits])
            fits = back[fits - 1];
        fits += piece.ptr[i] == piece.ptr[fits];
        back[i] = fits;
    }
}

bool pattern_init(struct pattern *pattern, struct arena *arena, const struct rule_value *value, bool ignore_case)
{
    pattern->text = value->text;
    pattern->back = NULL;
    if (ignore_case) {
        char *lower = arena_alloc(arena, value->text.len + 1);
        for (size_t i = 0; lower && i < value->text.len; i++)
            lower[i] = ascii_lower(value->text.ptr[i]);
        pattern->text = sv_of(lower, value->text.len);
    }
    if (!pattern->text.ptr || value->kind == VALUE_PREFIX)
        return pattern->text.ptr;
    uint16_t *back = ARENA_ARRAY(arena, uint16_t, value->text.len);
    pattern->back = back;
    sv rest = pattern->text;
    while (back && rest.len > 0) {
        size_t at = pattern->text.len - rest.len;
        fill_back(sv_cut(&rest, '*'), back + at);
    }
    return back;
}

static inline char as_compared(char c, bool ignore_case)
{
    return ignore_case ? ascii_lower(c) : c;
}

static bool begins(sv text, sv piece, bool ignore_case)
{
    if (text.len < piece.len)
        return false;
    if (!ignore_case)
        return sv_starts(text, piece);
    return sv_eq_lower(sv_of(text.ptr, piece.len), piece);
}

/* Cuts off the text what stands before the piece, and the piece. False: it is not there. */
static bool find_piece(sv *text, sv piece, const uint16_t *back, bool ignore_case)
{
    size_t fits = 0;
    for (size_t i = 0; i < text->len; i++) {
        char c = as_compared(text->ptr[i], ignore_case);
        while (fits > 0 && piece.ptr[fits] != c)
            fits = back[fits - 1];
        fits += piece.ptr[fits] == c;
        if (fits == piece.len) {
            *text = sv_from(*text, i + 1);
            return true;
        }
    }
    return false;
}

static bool glob_matches(const struct pattern *pattern, sv text, bool ignore_case)
{
    sv rest = pattern->text, first = sv_cut(&rest, '*');
    size_t last = pattern->text.len;
    while (pattern->text.ptr[last - 1] != '*')
        last--;
    sv end = sv_from(pattern->text, last);
    if (text.len < first.len + end.len || !begins(text, first, ignore_case) ||
        !begins(sv_from(text, text.len - end.len), end, ignore_case))
        return false;
    text = sv_of(text.ptr + first.len, text.len - first.len - end.len);
    for (size_t at = first.len + 1; at < last;) {
        rest = sv_from(pattern->text, at);
        sv piece = sv_cut(&rest, '*');
        if (piece.len > 0 && !find_piece(&text, piece, pattern->back + at, ignore_case))
            return false;
        at += piece.len + 1;
    }
    return true;
}

bool pattern_matches(const struct pattern *pattern, sv text, bool ignore_case)
{
    return pattern->back ? glob_matches(pattern, text, ignore_case) : begins(text, pattern->text, ignore_case);
}
