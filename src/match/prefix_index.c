/* The tree finds templates that match a path to its end. If a path is too long, only its beginning is known, and every
 * template that agrees with the beginning applies: all below a node, and at the last segment all literals that begin alike.
 * Sorted templates have both in one piece. The search narrows a range of them segment by segment, as the tree does node by
 * node: a range is reached in one way only, and none is empty. */
#include "match/prefix_index.h"

#include <stdlib.h>

static int compare_paths(const void *a, const void *b, void *paths)
{
    const struct compiled_path *all = paths;
    return sv_compare(path_template(&all[*(const uint32_t *)a]), path_template(&all[*(const uint32_t *)b]));
}

void prefix_index_sort(struct prefix_index *index)
{
    size_t n = 0;
    void *paths = (void *)index->paths;
    if (index->count == 0)
        return;
    qsort_r(index->sorted, index->count, sizeof index->sorted[0], compare_paths, paths);
    for (size_t i = 1; i < index->count; i++)
        if (compare_paths(&index->sorted[n], &index->sorted[i], paths) != 0)
            index->sorted[++n] = index->sorted[i];
    index->count = n + 1;
}

/* Paths that have the first `depth` bytes in common. */
struct range {
    size_t from, to, depth;
};

struct search {
    const struct prefix_index *index;
    const struct ids *ids;
    uint32_t *lists;
    size_t found, cap;
    bool too_many;
};

static inline const struct compiled_path *path_at(const struct search *s, size_t i)
{
    return &s->index->paths[s->index->sorted[i]];
}

/* A segment that templates go on with, or the beginning of one. */
struct wanted {
    sv text;
    bool escaped; /* in canonical form it has a `;` before it */
    bool whole;
};

/* How the rest of a template compares with "/" and the segment, and with another "/" if it is whole: 0 if it begins with
 * that. */
static int compare_rest(sv rest, const struct wanted *wanted)
{
    sv text = wanted->text;
    if (rest.len == 0)
        return -1;
    rest = sv_from(rest, 1); /* each segment has its slash */
    if (wanted->escaped && rest.ptr[0] != ';')
        return (unsigned char)rest.ptr[0] - ';';
    rest = sv_from(rest, wanted->escaped);
    size_t n = rest.len < text.len ? rest.len : text.len;
    int order = n > 0 ? memcmp(rest.ptr, text.ptr, n) : 0;
    if (order != 0 || rest.len < text.len)
        return order != 0 ? order : -1;
    if (!wanted->whole)
        return 0;
    return rest.len == text.len ? -1 : (unsigned char)rest.ptr[text.len] - '/';
}

/* The first path of a range that compares as `least` or more. */
static size_t first_of(const struct search *s, struct range range, const struct wanted *wanted, int least)
{
    while (range.from < range.to) {
        size_t middle = range.from + (range.to - range.from) / 2;
        int order = compare_rest(sv_from(path_template(path_at(s, middle)), range.depth), wanted);
        if ((order > 0) - (order < 0) < least)
            range.from = middle + 1;
        else
            range.to = middle;
    }
    return range.from;
}

/* Those that go on with a segment, or with one that begins so. */
static struct range narrow(const struct search *s, struct range range, struct wanted wanted)
{
    return (struct range){ first_of(s, range, &wanted, 0), first_of(s, range, &wanted, 1),
                           range.depth + 1 + wanted.escaped + wanted.text.len };
}

static struct range narrow_wildcard(const struct search *s, struct range range, sv wildcard, bool whole)
{
    return narrow(s, range, (struct wanted){ .text = wildcard, .whole = whole });
}

static void take(struct search *s, struct range range)
{
    if (s->too_many || range.to - range.from > s->cap - s->found) {
        s->too_many = true;
        return;
    }
    for (size_t i = range.from; i < range.to; i++)
        s->lists[s->found++] = path_at(s, i)->list;
}

/* No deeper than the deepest template. */
static void follow(struct search *s, struct range range, sv rest)
{
    if (range.from == range.to || s->too_many)
        return;
    sv segment = sv_cut(&rest, '/');
    bool last = rest.len == 0;
    take(s, narrow_wildcard(s, range, SV(TEMPLATE_REST), false));
    struct range any = narrow_wildcard(s, range, SV(TEMPLATE_ANY), !last),
                 id = narrow_wildcard(s, range, SV(TEMPLATE_ID), !last), literal = { 0 };
    if (segment.ptr[0] != ';') /* which would look like an escaped one; no literal begins so */
        literal = narrow(s, range, (struct wanted){ segment, part_is_escaped(segment), !last });
    if (!last) {
        follow(s, literal, rest);
        follow(s, any, rest);
        if (id.from < id.to && ids_accept(s->ids, segment))
            follow(s, id, rest);
        return;
    }
    take(s, literal);
    take(s, any);
    if (s->ids->custom || path_segment_begins_id(segment))
        take(s, id);
}

size_t prefix_index_find(const struct prefix_index *index, sv begin, const struct ids *ids, uint32_t *ret_lists, size_t cap)
{
    struct search s = { .index = index, .ids = ids, .lists = ret_lists, .cap = cap };
    struct range all = { 0, index->count, 0 };
    sv rest = begin.len > 0 && begin.ptr[0] == '/' ? sv_from(begin, 1) : begin;
    if (rest.len == 0)
        take(&s, all);
    else
        follow(&s, all, rest);
    return s.too_many ? cap + 1 : s.found;
}
