/* The tree finds templates that match a path to its end. If a path is too long, only its beginning is known, and every
 * template that agrees with the beginning applies: all below a node, and at the last segment all below the literals that
 * begin alike. The table does not find these, so the index has its literals sorted: those of a node are in one piece, and
 * in it those that begin alike.
 *
 * The search visits each node once, since a tree has one way to it, and goes no deeper than the tree. All that it visits
 * leads to some list, so it is short, too: it ends when there are too many of them. */
#include "match/prefix_index.h"

#include <stdlib.h>

#include "base/cleanup.h"

static bool is_literal(const struct table_entry *entry)
{
    return *entry->space >= TREE_SPACE && *entry->space < TREE_SPACES_END;
}

static int compare_with(const struct table_entry *entry, uint32_t space, sv text)
{
    if (*entry->space != space)
        return *entry->space < space ? -1 : 1;
    return sv_compare(entry->text, text);
}

static int compare_texts(const void *a, const void *b, void *table)
{
    struct table_entry x = table_at(table, *(const uint32_t *)a), y = table_at(table, *(const uint32_t *)b);
    return compare_with(&x, *y.space, y.text);
}

/* A literal, before its text is looked at. */
struct literal {
    uint32_t space, slot;
};

static int compare_spaces(const void *a, const void *b)
{
    const struct literal *x = a, *y = b;
    return (x->space > y->space) - (x->space < y->space);
}

/* The literals are in the order of their nodes, so that sorting those of a node looks at few lines of the table. */
static void sort_nodes(const struct prefix_index *index, const struct literal *literals)
{
    size_t from = 0;
    for (size_t i = 0; i < index->count; i++) {
        index->sorted[i] = literals[i].slot;
        if (i + 1 < index->count && literals[i + 1].space == literals[i].space)
            continue;
        qsort_r(index->sorted + from, i + 1 - from, sizeof *index->sorted, compare_texts, (void *)index->table);
        from = i + 1;
    }
}

bool prefix_index_init(struct prefix_index *ret, const struct tree *tree, const struct table *table, struct arena *arena)
{
    struct prefix_index index = { .tree = tree, .table = table };
    CLEANUP_FREE struct literal *literals = cleanup_calloc(table->count + (size_t)1, sizeof *literals);
    struct table_entry entry;
    for (size_t next = 0; literals && table_each(table, &next, &entry);)
        if (is_literal(&entry))
            literals[index.count++] = (struct literal){ *entry.space, (uint32_t)next - 1 };
    index.sorted = ARENA_ARRAY(arena, uint32_t, index.count);
    if (!literals || !index.sorted)
        return false;
    qsort(literals, index.count, sizeof *literals, compare_spaces);
    sort_nodes(&index, literals);
    *ret = index;
    return true;
}

struct search {
    const struct prefix_index *index;
    const struct ids *ids;
    uint32_t *lists;
    size_t found, cap;
    bool too_many;
};

struct place {
    uint32_t node; /* TABLE_NONE: there is none */
    uint32_t list; /* what LIST_ONLY stands for */
};

static const struct tree_node *node_at(const struct search *s, struct place at)
{
    return &s->index->tree->nodes[at.node];
}

/* The place of a child that is in the node. */
static struct place child_of(struct place at, uint32_t child)
{
    return (struct place){ child, at.list };
}

static struct place child_in_table(struct place at, uint32_t value)
{
    return (struct place){ child_node(value), value & CHILD_ONE ? LIST_ONE | child_rule(value) : at.list };
}

static sv first_text(const struct tree_node *node)
{
    return sv_of((const char *)&node->first_word, node->first_len);
}

/* Returns the first literal of a node in the table whose text is not less. */
static size_t first_literal(const struct prefix_index *index, uint32_t node, sv text)
{
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct table_entry entry = table_at(index->table, index->sorted[middle]);
        if (compare_with(&entry, TREE_SPACE + node, text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether there is a literal of the node with this number that begins so. */
static bool literal_at(const struct prefix_index *index, size_t i, uint32_t node, sv begin, struct table_entry *ret)
{
    if (i == index->count)
        return false;
    *ret = table_at(index->table, index->sorted[i]);
    return *ret->space == TREE_SPACE + node && sv_starts(ret->text, begin);
}

/* ---- all below a node ---- */

static void take(struct search *s, uint32_t list, struct place at)
{
    if (!list)
        return;
    if (s->found == s->cap)
        s->too_many = true;
    else
        s->lists[s->found++] = list == LIST_ONLY ? at.list : list;
}

static void take_literals(struct search *s, struct place at, sv begin);

static void take_all(struct search *s, struct place at)
{
    if (at.node == TABLE_NONE || s->too_many)
        return;
    const struct tree_node *node = node_at(s, at);
    take(s, node->ends, at);
    take(s, node->rest, at);
    take_all(s, child_of(at, node->id_child));
    take_all(s, child_of(at, node->any_child));
    take_literals(s, at, SV(""));
}

/* All below the literal children that begin so. */
static void take_literals(struct search *s, struct place at, sv begin)
{
    const struct tree_node *node = node_at(s, at);
    struct table_entry entry;
    if (node->first_len > 0 && sv_starts(first_text(node), begin))
        take_all(s, child_of(at, node->first_child));
    if (!node->has_more)
        return;
    size_t i = first_literal(s->index, at.node, begin);
    for (; !s->too_many && literal_at(s->index, i, at.node, begin, &entry); i++)
        take_all(s, child_in_table(at, *entry.value));
}

/* ---- along the path ---- */

static struct place literal_child(const struct search *s, struct place at, sv segment)
{
    const struct tree_node *node = node_at(s, at);
    struct place none = { TABLE_NONE, 0 };
    if (node->first_len > 0 && sv_eq(first_text(node), segment))
        return child_of(at, node->first_child);
    const uint32_t *value =
        node->has_more ? table_find_word(s->index->table, TREE_SPACE + at.node, segment, table_word(segment)) : NULL;
    return value ? child_in_table(at, *value) : none;
}

/* `rest`: not empty. */
static void follow(struct search *s, struct place at, sv rest)
{
    if (at.node == TABLE_NONE || s->too_many)
        return;
    const struct tree_node *node = node_at(s, at);
    sv segment = sv_cut(&rest, '/');
    take(s, node->rest, at);
    if (rest.len > 0) {
        follow(s, literal_child(s, at, segment), rest);
        follow(s, child_of(at, node->any_child), rest);
        if (node->id_child != TABLE_NONE && ids_accept(s->ids, segment))
            follow(s, child_of(at, node->id_child), rest);
        return;
    }
    take_literals(s, at, segment);
    take_all(s, child_of(at, node->any_child));
    if (s->ids->custom || path_segment_begins_id(segment))
        take_all(s, child_of(at, node->id_child));
}

size_t prefix_index_find(const struct prefix_index *index, sv begin, const struct ids *ids, uint32_t *ret_lists, size_t cap)
{
    struct search s = { .index = index, .ids = ids, .lists = ret_lists, .cap = cap };
    struct place root = { 0, 0 };
    sv rest = begin.len > 0 && begin.ptr[0] == '/' ? sv_from(begin, 1) : begin;
    if (index->tree->count == 0)
        return 0;
    if (rest.len == 0)
        take_all(&s, root);
    else
        follow(&s, root, rest);
    return s.too_many ? cap + 1 : s.found;
}
