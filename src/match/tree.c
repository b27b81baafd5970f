/* Several templates can match one path: at each segment the literal child, the `#` child and the `{name}` child may all
 * apply, and the search follows each. That cannot explode. A node of a tree is reached in one way only, so no node is
 * visited twice; and a search never goes deeper than the tree, whose depth is PATH_SEGMENTS_MAX at most, so neither a path
 * of thousands of segments nor one made to fail late costs more than walking over the templates that agree with it so far.
 * A level leaves at most two nodes on the stack beside the one that is followed, hence its size.
 *
 * The hash of a long segment and whether it is an id are worked out once, however many nodes ask. A short one is a word,
 * which is as quickly read as remembered. */
#include "match/tree.h"

#include <stdlib.h>

void tree_done(struct tree *tree)
{
    if (!tree)
        return;
    free(tree->nodes);
    *tree = (struct tree){ 0 };
}

static bool set_room(struct tree *tree, size_t cap)
{
    struct tree_node *nodes = aligned_alloc(sizeof *nodes, cap * sizeof *nodes);
    if (!nodes)
        return false;
    if (tree->count > 0)
        memcpy(nodes, tree->nodes, tree->count * sizeof *nodes);
    free(tree->nodes);
    tree->nodes = nodes;
    tree->cap = cap;
    return true;
}

static uint32_t add_node(struct tree *tree)
{
    if ((!tree->nodes || tree->count == tree->cap) && !set_room(tree, tree->cap ? tree->cap * 2 : 16))
        return TABLE_NONE;
    tree->nodes[tree->count] =
        (struct tree_node){ .id_child = TABLE_NONE, .any_child = TABLE_NONE, .first_child = TABLE_NONE };
    return (uint32_t)tree->count++;
}

/* Where a node keeps its child for one segment of a template, which is `fresh` if there was none; NULL: no memory. */
static uint32_t *child_slot(struct tree *tree, struct table *table, uint32_t node, enum template_part kind, sv part,
                            uint32_t fresh)
{
    struct tree_node *n = &tree->nodes[node];
    uint32_t *slot = NULL;
    if (kind == PART_ID)
        slot = &n->id_child;
    else if (kind == PART_ANY)
        slot = &n->any_child;
    else if (part.len <= TABLE_WORD &&
             (n->first_len == 0 || (n->first_len == part.len && n->first_word == table_word(part))))
        slot = &n->first_child;
    if (!slot) {
        n->has_more = true;
        return table_put(table, TREE_SPACE + node, part, fresh);
    }
    if (*slot == TABLE_NONE)
        *slot = fresh;
    if (slot == &n->first_child) {
        n->first_len = (unsigned char)part.len;
        n->first_word = table_word(part);
    }
    return slot;
}

/* The child of `node` for one segment of a template, made if missing. A tree that failed to grow is only freed. */
static uint32_t add_child(struct tree *tree, struct table *table, uint32_t node, enum template_part kind, sv part)
{
    uint32_t fresh = (uint32_t)tree->count;
    uint32_t *slot = child_slot(tree, table, node, kind, part, fresh);
    if (!slot)
        return TABLE_NONE;
    uint32_t child = *slot;
    return child == fresh ? add_node(tree) : child;
}

uint32_t *tree_add(struct tree *tree, struct table *table, sv canonical)
{
    if (!tree->nodes && add_node(tree) == TABLE_NONE)
        return NULL;
    uint32_t node = 0;
    while (canonical.len > 0) {
        sv part = template_next(&canonical);
        enum template_part kind = template_part(&part);
        if (kind == PART_REST)
            return &tree->nodes[node].rest;
        node = add_child(tree, table, node, kind, part);
        if (node == TABLE_NONE)
            return NULL;
    }
    return &tree->nodes[node].ends;
}

/* Where a search stands. */
struct place {
    uint32_t node, depth;
    uint32_t list; /* what LIST_ONLY stands for */
};

struct search {
    const struct tree_node *nodes;
    const struct table *table;
    const struct ids *ids;
    const struct rule_lines *lines;
    uint32_t *lists;
    size_t found, cap;
    size_t height;
    uint64_t hashed, judged; /* bit i: segment i has its hash, its is_id; those that are told at once have neither */
    uint64_t is_id;
    uint64_t hash[PATH_SEGMENTS_MAX];
    struct place stack[2 * PATH_SEGMENTS_MAX + 1];
};
_Static_assert(PATH_SEGMENTS_MAX <= 64, "a bit for each segment");

/* table_word of a segment of 1 to TABLE_WORD bytes, 0 for a longer one. The bytes of the path after it may be read,
 * and are masked. */
static inline uint64_t short_word(sv path, sv segment)
{
    if (segment.len > TABLE_WORD)
        return 0;
    if ((size_t)(path.ptr + path.len - segment.ptr) < TABLE_WORD)
        return sv_short_word(segment);
    return sv_word(segment.ptr) & UINT64_MAX >> 8 * (TABLE_WORD - segment.len);
}

static __attribute__((noinline)) uint64_t long_hash(struct search *s, sv segment, size_t depth)
{
    if (!(s->hashed >> depth & 1)) {
        s->hashed |= UINT64_C(1) << depth;
        s->hash[depth] = table_hash(segment);
    }
    return s->hash[depth];
}

/* Goes to a child that the table has. With many rules in use, the only rule that can be found any more comes from memory:
 * it is on its way while the search goes on. */
static inline void take_child(const struct search *s, uint32_t value, struct place *child)
{
    child->node = child_node(value);
    if (value & CHILD_ONE) {
        rule_lines_load(s->lines, child_rule(value));
        child->list = LIST_ONE | child_rule(value);
    }
}

/* Returns the literal child below a place. Its node is TABLE_NONE if the place has no such child. */
static inline struct place literal_child(struct search *s, const struct tree_node *n, struct place at, sv segment,
                                         uint64_t word)
{
    struct place child = { TABLE_NONE, at.depth + 1, at.list };
    if (n->first_word == word && n->first_len == segment.len)
        child.node = n->first_child;
    else if (n->has_more) {
        if (segment.len > TABLE_WORD)
            word = long_hash(s, segment, at.depth);
        if (n->only)
            rule_lines_load(s->lines, n->only - 1);
        const uint32_t *value = table_find_word(s->table, TREE_SPACE + at.node, segment, word);
        if (value)
            take_child(s, *value, &child);
    }
    return child;
}

static __attribute__((noinline)) bool judge_segment(struct search *s, sv segment, size_t depth)
{
    if (!(s->judged >> depth & 1)) {
        s->judged |= UINT64_C(1) << depth;
        s->is_id |= (uint64_t)ids_accept(s->ids, segment) << depth;
    }
    return s->is_id >> depth & 1;
}

/* Whether a word of 1 to 8 bytes has digits only. The lowest byte that is not a digit gets no carry from those below it,
 * so that one of the two sums shows it in its high bit. */
static inline bool word_is_digits(uint64_t word, size_t len)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t filled = word << 8 * (8 - len) | (each * '0' & ~(UINT64_MAX << 8 * (8 - len)));
    return (((filled + each * (0x7f - '9')) | (filled - each * '0')) & each * 0x80) == 0;
}

/* Few digits are told at once. */
static inline bool segment_is_id(struct search *s, sv segment, uint64_t word, size_t depth)
{
    if (s->ids->custom || segment.len > TABLE_WORD)
        return judge_segment(s, segment, depth);
    return word_is_digits(word, segment.len);
}

/* Many templates may be those of one rule: its list is taken once if they come one after the other. */
static inline void take_list(struct search *s, uint32_t list, struct place at)
{
    list = list == LIST_ONLY ? at.list : list;
    if (s->found == 0 || s->lists[s->found - 1] != list)
        s->lists[s->found++] = list;
}

/* Takes the lists of a node. False: there is no room. */
static inline bool take_lists(struct search *s, const struct tree_node *n, struct place at, bool at_end)
{
    if (!n->rest && !(at_end && n->ends))
        return true;
    if (s->found + 2 > s->cap)
        return false;
    if (n->rest)
        take_list(s, n->rest, at);
    if (at_end && n->ends)
        take_list(s, n->ends, at);
    return true;
}

/* To be followed later. */
static inline void push(struct search *s, uint32_t node, struct place from)
{
    s->stack[s->height++] = (struct place){ node, from.depth + 1, from.list };
}

/* The child to follow next; other children that fit are left on the stack. */
static inline struct place descend(struct search *s, const struct tree_node *n, struct place at, sv path, sv segment)
{
    uint64_t word = short_word(path, segment);
    struct place next = literal_child(s, n, at, segment, word);
    if (n->any_child != TABLE_NONE)
        push(s, n->any_child, at);
    if (n->id_child == TABLE_NONE || !segment_is_id(s, segment, word, at.depth))
        return next;
    push(s, n->id_child, at);
    return next.node == TABLE_NONE ? s->stack[--s->height] : next;
}

size_t tree_find(const struct tree *tree, const struct table *table, sv path, const struct path_segments *segments,
                 const struct ids *ids, const struct rule_lines *lines, uint32_t *ret_lists, size_t cap)
{
    /* Field by field: what is not needed is not touched. */
    struct search s;
    s.nodes = tree->nodes;
    s.table = table;
    s.ids = ids;
    s.lines = lines;
    s.lists = ret_lists;
    s.found = s.height = 0;
    s.cap = cap;
    s.hashed = s.judged = s.is_id = 0;
    struct place at = { 0 };
    for (;;) {
        const struct tree_node *n = &s.nodes[at.node];
        bool at_end = at.depth == segments->count;
        if (!take_lists(&s, n, at, at_end))
            return cap + 1;
        if (at_end)
            at.node = TABLE_NONE;
        else
            at = descend(&s, n, at, path, path_segment_at(path, segments, at.depth));
        if (at.node != TABLE_NONE)
            continue;
        if (s.height == 0)
            return s.found;
        at = s.stack[--s.height];
    }
}
