/* The last step of a tree: what only one rule is found by.
 *
 * With many rules in use, little of them is in the cache: a path leads to an entry of the table, that to nodes of the tree,
 * these to a list, and that to the rule as matching sees it and then as its caller does, each a cache miss that waits for
 * the one before. But most entries lead to one rule, whatever the rest of the path is. Such an entry has the rule's number,
 * so that the rule is loaded at once. A node that has many children, and all for one rule, has its number, too.
 *
 * The tails of paths below such entries are many, and nearly all alike: nothing, "/#", "/{name}/settings". Nodes of equal
 * tails become one node, whose lists are LIST_ONLY: the rule of the entry by which the search comes there. These nodes are
 * few, and stay in the cache. A node whose literal children are in the table is not shared, since these know its number.
 *
 * An entry has its rule and the node of its tail in one number, so the tails that most entries have get the lowest numbers,
 * after the root. Entries with a tail beyond CHILD_NODES keep nodes of their own. */
#include "base/cleanup.h"
#include "match/ruleset.h"

#include <stdlib.h>

_Static_assert(RULES_MAX <= 1 << CHILD_RULE_BITS, "an entry has the number of a rule");

/* What can be found by way of a node: 0: nothing; 1 + a rule: only that; or … */
#define SEVERAL UINT32_MAX
/* Of a parent: its child is in the table. */
#define BY_TABLE (UINT32_C(1) << 31)

/* A tail, and by how many entries it is found. */
struct used_tail {
    uint32_t entries, tail;
};

struct tails {
    struct tree *tree;
    struct table *table;
    uint32_t *parents; /* of nodes, by number */
    uint32_t *only;
    uint32_t *tail;   /* the node of its tail, in `shared`; TABLE_NONE: none */
    uint32_t *number; /* the new one; TABLE_NONE: its tail takes its place */
    struct tree_node *shared;
    uint32_t *shared_number; /* the new ones; 0: it is not needed */
    struct used_tail *used;
    uint32_t shared_count, count; /* count: new numbers that are in use */
    uint32_t *slots;              /* 1 + shared nodes, by hash: open addressing, at most half full */
    size_t mask;
};

static void tails_done(struct tails *t)
{
    free(t->parents);
    free(t->only);
    free(t->tail);
    free(t->number);
    free(t->shared);
    free(t->shared_number);
    free(t->used);
    free(t->slots);
}

static bool tails_init(struct tails *t, struct tree *tree, struct table *table)
{
    size_t count = tree->count + 1, slots = 4;
    while (slots < 2 * count)
        slots *= 2;
    *t = (struct tails){ .tree = tree, .table = table, .mask = slots - 1 };
    t->parents = cleanup_calloc(count, sizeof *t->parents);
    t->only = cleanup_calloc(count, sizeof *t->only);
    t->tail = cleanup_calloc(count, sizeof *t->tail);
    t->number = cleanup_calloc(count, sizeof *t->number);
    t->shared = cleanup_calloc(count, sizeof *t->shared);
    t->shared_number = cleanup_calloc(count, sizeof *t->shared_number);
    t->used = cleanup_calloc(count, sizeof *t->used);
    t->slots = cleanup_calloc(slots, sizeof *t->slots);
    return t->parents && t->only && t->tail && t->number && t->shared && t->shared_number && t->used && t->slots;
}

/* The next entry that is a literal child of a node. *next is 0 at first. False: there are no more. */
static bool next_literal(const struct table *table, size_t *next, struct table_entry *ret)
{
    while (table_each(table, next, ret))
        if (*ret->space >= TREE_SPACE && *ret->space < TREE_SPACES_END)
            return true;
    return false;
}

/* ---- what is found below a node ---- */

static void note_parent(uint32_t *parents, uint32_t child, uint32_t parent)
{
    if (child != TABLE_NONE)
        parents[child] = parent;
}

static void note_parents(struct tails *t)
{
    for (uint32_t i = 0; i < t->tree->count; i++) {
        note_parent(t->parents, t->tree->nodes[i].id_child, i);
        note_parent(t->parents, t->tree->nodes[i].any_child, i);
        note_parent(t->parents, t->tree->nodes[i].first_child, i);
    }
    size_t next = 0;
    for (struct table_entry entry; next_literal(t->table, &next, &entry);)
        t->parents[*entry.value] = (*entry.space - TREE_SPACE) | BY_TABLE;
}

static uint32_t only_of_list(uint32_t list)
{
    if (list & LIST_ONE)
        return (list & ~LIST_ONE) + 1;
    return list ? SEVERAL : 0;
}

static uint32_t only_of_both(uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0)
        return a | b;
    return a == b ? a : SEVERAL;
}

/* A node has a higher number than its parent. */
static void note_only_rules(struct tails *t)
{
    for (size_t i = t->tree->count; i-- > 1;) {
        const struct tree_node *node = &t->tree->nodes[i];
        uint32_t *above = &t->only[t->parents[i] & ~BY_TABLE];
        t->only[i] = only_of_both(t->only[i], only_of_both(only_of_list(node->ends), only_of_list(node->rest)));
        *above = only_of_both(*above, t->only[i]);
    }
}

/* ---- nodes of equal tails ---- */

static uint64_t node_hash(const struct tree_node *node)
{
    uint64_t hash = table_fold(node->first_word ^ TABLE_MIX ^ table_salt, TABLE_MIX + node->first_len);
    hash = table_fold(hash ^ node->id_child, TABLE_MIX + node->any_child);
    return table_fold(hash ^ node->first_child, TABLE_MIX + (node->ends != 0) + 2 * (node->rest != 0));
}

static bool same_node(const struct tree_node *a, const struct tree_node *b)
{
    return a->id_child == b->id_child && a->any_child == b->any_child && a->first_child == b->first_child &&
           a->first_word == b->first_word && a->first_len == b->first_len && a->ends == b->ends && a->rest == b->rest;
}

/* Returns the number of a node like this one. */
static uint32_t share(struct tails *t, const struct tree_node *node)
{
    size_t slot = node_hash(node) & t->mask;
    for (; t->slots[slot]; slot = (slot + 1) & t->mask)
        if (same_node(&t->shared[t->slots[slot] - 1], node))
            return t->slots[slot] - 1;
    t->shared[t->shared_count] = *node;
    t->slots[slot] = ++t->shared_count;
    return t->shared_count - 1;
}

/* Puts the tail of a child in its place. False: it has none. */
static bool take_tail(const struct tails *t, uint32_t *child)
{
    if (*child == TABLE_NONE)
        return true;
    *child = t->tail[*child];
    return *child != TABLE_NONE;
}

static void find_tails(struct tails *t)
{
    for (size_t i = t->tree->count; i-- > 0;) {
        struct tree_node node = t->tree->nodes[i];
        t->tail[i] = TABLE_NONE;
        if (t->only[i] == 0 || t->only[i] == SEVERAL || node.has_more)
            continue;
        node.ends = node.ends ? LIST_ONLY : 0;
        node.rest = node.rest ? LIST_ONLY : 0;
        if (take_tail(t, &node.id_child) && take_tail(t, &node.any_child) && take_tail(t, &node.first_child))
            t->tail[i] = share(t, &node);
    }
}

static bool is_tail_of_entry(const struct tails *t, size_t node)
{
    return t->parents[node] & BY_TABLE && t->tail[node] != TABLE_NONE;
}

static int compare_used(const void *a, const void *b)
{
    const struct used_tail *x = a, *y = b;
    if (x->entries != y->entries)
        return x->entries > y->entries ? -1 : 1;
    return (x->tail > y->tail) - (x->tail < y->tail);
}

static void need(struct tails *t, uint32_t shared)
{
    if (shared != TABLE_NONE && !t->shared_number[shared])
        t->shared_number[shared] = t->count++;
}

/* Numbers the tails that entries have, and then what is below them: a node has a lower index in `shared` than its parent.
 */
static void number_tails(struct tails *t)
{
    t->count = 1;
    for (uint32_t i = 0; i < t->shared_count; i++)
        t->used[i].tail = i;
    for (size_t i = 1; i < t->tree->count; i++)
        if (is_tail_of_entry(t, i))
            t->used[t->tail[i]].entries++;
    qsort(t->used, t->shared_count, sizeof *t->used, compare_used);
    for (uint32_t i = 0; i < t->shared_count && t->used[i].entries > 0 && t->count < CHILD_NODES; i++)
        t->shared_number[t->used[i].tail] = t->count++;
    for (size_t i = t->shared_count; i-- > 0;) {
        const struct tree_node *node = &t->shared[i];
        if (!t->shared_number[i])
            continue;
        need(t, node->id_child);
        need(t, node->any_child);
        need(t, node->first_child);
    }
}

/* A tail takes the place of a node that is found by an entry of the table, and of all below it. */
static void number_nodes(struct tails *t)
{
    for (size_t i = 1; i < t->tree->count; i++) {
        uint32_t parent = t->parents[i];
        uint32_t tail = is_tail_of_entry(t, i) ? t->shared_number[t->tail[i]] : 0;
        bool replaced = parent & BY_TABLE ? tail > 0 && tail < CHILD_NODES : t->number[parent] == TABLE_NONE;
        t->number[i] = replaced ? TABLE_NONE : t->count++;
    }
}

static void move_child(uint32_t *child, const uint32_t *number)
{
    if (*child != TABLE_NONE)
        *child = number[*child];
}

static void move_node(struct tree_node *nodes, const struct tree_node *node, const uint32_t *number, uint32_t to)
{
    nodes[to] = *node;
    move_child(&nodes[to].id_child, number);
    move_child(&nodes[to].any_child, number);
    move_child(&nodes[to].first_child, number);
}

static bool move_nodes(struct tails *t)
{
    struct tree *tree = t->tree;
    struct tree_node *nodes = aligned_alloc(sizeof *nodes, t->count * sizeof *nodes);
    if (!nodes)
        return false;
    for (size_t i = 0; i < tree->count; i++)
        if (t->number[i] != TABLE_NONE) {
            move_node(nodes, &tree->nodes[i], t->number, t->number[i]);
            nodes[t->number[i]].only = t->only[i] == SEVERAL ? 0 : t->only[i];
        }
    for (size_t i = 0; i < t->shared_count; i++)
        if (t->shared_number[i])
            move_node(nodes, &t->shared[i], t->shared_number, t->shared_number[i]);
    free(tree->nodes);
    *tree = (struct tree){ nodes, t->count, t->count };
    return true;
}

/* Tells the entries of the tree where their nodes are, and which rules they lead to. */
static void move_entries(struct tails *t)
{
    size_t next = 0;
    for (struct table_entry entry; next_literal(t->table, &next, &entry);) {
        uint32_t node = *entry.value;
        *entry.space = TREE_SPACE + t->number[*entry.space - TREE_SPACE];
        *entry.value = t->number[node];
        if (t->number[node] == TABLE_NONE)
            *entry.value = CHILD_ONE | t->shared_number[t->tail[node]] << CHILD_RULE_BITS | (t->only[node] - 1);
    }
}

bool tree_finish(struct tree *tree, struct table *table)
{
    CLEANUP(tails_done) struct tails t = { 0 };
    if (tree->count == 0)
        return table_trim(table);
    if (!tails_init(&t, tree, table))
        return false;
    note_parents(&t);
    note_only_rules(&t);
    find_tails(&t);
    number_tails(&t);
    number_nodes(&t);
    if (!move_nodes(&t))
        return false;
    move_entries(&t);
    return table_trim(table);
}

void ruleset_load_beside(struct ruleset *ruleset, const void *array, size_t bytes)
{
    ruleset->lines = (struct rule_lines){ .compiled = (const char *)ruleset->compiled,
                                          .beside = array,
                                          .compiled_bytes = sizeof *ruleset->compiled,
                                          .beside_bytes = bytes,
                                          .numbers = ruleset->numbers };
    if (ruleset->added)
        ruleset_load_beside(ruleset->added, array, bytes);
}
