/* Several templates can match one path: at each segment the literal child, the `#` child and the `{name}` child may all
 * apply, and the search follows each. That cannot explode. A node of a tree is reached in one way only, so no node is
 * visited twice; and a search never goes deeper than the tree, whose depth is PATH_SEGMENTS_MAX at most, so neither a path
 * of thousands of segments nor one made to fail late costs more than walking over the templates that agree with it so far.
 * A level leaves at most two nodes on the stack beside the one that is followed, hence its size.
 *
 * A segment's hash and whether it is an id are worked out once, however many nodes ask. */
#include "match/tree.h"

#include <stdlib.h>

void tree_done(struct tree *tree)
{
    if (!tree)
        return;
    free(tree->nodes);
    *tree = (struct tree){ 0 };
}

static uint32_t add_node(struct tree *tree)
{
    if (tree->count == tree->cap) {
        size_t cap = tree->cap ? tree->cap * 2 : 16;
        struct tree_node *nodes = realloc(tree->nodes, cap * sizeof *nodes);
        if (!nodes)
            return TABLE_NONE;
        tree->nodes = nodes;
        tree->cap = cap;
    }
    tree->nodes[tree->count] = (struct tree_node){ .id_child = TABLE_NONE, .any_child = TABLE_NONE };
    return (uint32_t)tree->count++;
}

/* The child of `node` for one segment of a template, made if missing. */
static uint32_t add_child(struct tree *tree, struct table *table, uint32_t node, sv part)
{
    uint32_t fresh = (uint32_t)tree->count;
    bool id = sv_eq(part, SV(TEMPLATE_ID)), any = sv_eq(part, SV(TEMPLATE_ANY));
    uint32_t child = fresh;
    if (id && tree->nodes[node].id_child != TABLE_NONE)
        child = tree->nodes[node].id_child;
    else if (any && tree->nodes[node].any_child != TABLE_NONE)
        child = tree->nodes[node].any_child;
    else if (!id && !any) {
        uint32_t *value = table_put(table, TREE_SPACE + node, part, fresh);
        if (!value)
            return TABLE_NONE;
        child = *value;
    }
    if (child != fresh)
        return child;
    if (add_node(tree) == TABLE_NONE)
        return TABLE_NONE;
    if (id)
        tree->nodes[node].id_child = child;
    else if (any)
        tree->nodes[node].any_child = child;
    else
        tree->nodes[node].has_literals = true;
    return child;
}

uint32_t *tree_add(struct tree *tree, struct table *table, sv canonical)
{
    if (tree->count == 0 && add_node(tree) == TABLE_NONE)
        return NULL;
    uint32_t node = 0;
    while (canonical.len > 0) {
        sv part = template_next(&canonical);
        if (sv_eq(part, SV(TEMPLATE_REST)))
            return &tree->nodes[node].rest;
        node = add_child(tree, table, node, part);
        if (node == TABLE_NONE)
            return NULL;
    }
    return &tree->nodes[node].ends;
}

struct search {
    sv path;
    const struct path_segments *segments;
    uint64_t hashed, judged; /* bit i: segment i has its hash, its is_id */
    uint64_t hash[PATH_SEGMENTS_MAX];
    bool is_id[PATH_SEGMENTS_MAX];
};
_Static_assert(PATH_SEGMENTS_MAX <= 64, "a bit for each segment");

static uint32_t literal_child(struct search *s, const struct table *table, uint32_t node, size_t depth)
{
    sv segment = path_segment_at(s->path, s->segments, depth);
    if (!(s->hashed >> depth & 1)) {
        s->hashed |= UINT64_C(1) << depth;
        s->hash[depth] = table_hash(segment);
    }
    return table_find_hashed(table, TREE_SPACE + node, segment, s->hash[depth]);
}

static bool segment_is_id(struct search *s, const struct ids *ids, size_t depth)
{
    if (!(s->judged >> depth & 1)) {
        s->judged |= UINT64_C(1) << depth;
        s->is_id[depth] = ids_accept(ids, path_segment_at(s->path, s->segments, depth));
    }
    return s->is_id[depth];
}

size_t tree_find(const struct tree *tree, const struct table *table, sv path, const struct path_segments *segments,
                 const struct ids *ids, uint32_t *ret_lists, size_t cap)
{
    struct search s;
    s.path = path;
    s.segments = segments;
    s.hashed = s.judged = 0;
    struct {
        uint32_t node, depth;
    } stack[2 * PATH_SEGMENTS_MAX + 1];
    size_t height = 0, found = 0;
    uint32_t node = 0, depth = 0;
    for (;;) {
        const struct tree_node *n = &tree->nodes[node];
        bool at_end = depth == segments->count;
        uint32_t next = TABLE_NONE;
        if (found + 2 > cap && (n->rest || (at_end && n->ends)))
            return cap + 1;
        if (n->rest)
            ret_lists[found++] = n->rest;
        if (at_end && n->ends)
            ret_lists[found++] = n->ends;
        if (!at_end) {
            depth++;
            if (n->has_literals)
                next = literal_child(&s, table, node, depth - 1);
            if (n->any_child != TABLE_NONE) {
                stack[height].node = n->any_child;
                stack[height++].depth = depth;
            }
            if (n->id_child != TABLE_NONE && segment_is_id(&s, ids, depth - 1)) {
                stack[height].node = n->id_child;
                stack[height++].depth = depth;
            }
        }
        if (next == TABLE_NONE) {
            if (height == 0)
                return found;
            next = stack[--height].node;
            depth = stack[height].depth;
        }
        node = next;
    }
}
