/* The literals are in a tree of bytes. The search goes down the tree with each byte of the text. Where there is no child,
 * it goes on with the longest end of what it has read that is in the tree, too (Aho and Corasick): `back` leads there. Each
 * step back makes that end shorter, and each byte makes it longer by one, so the steps of a search are at most twice the
 * bytes of the text. Each step looks at the children of one node, one by one; only the root has a table.
 *
 * At each byte all literals that end there are ends of each other. `ends` leads from one to the next shorter one. */
#include "match/literal_index.h"

#include <stdlib.h>

void literal_index_done(struct literal_index *index)
{
    if (!index)
        return;
    free(index->nodes);
    free(index->lists);
    *index = (struct literal_index){ 0 };
}

static bool add_node(struct literal_index *index, struct literal_node node)
{
    if (index->node_count == index->node_cap) {
        uint32_t cap = index->node_cap ? index->node_cap * 2 : 64;
        struct literal_node *nodes = realloc(index->nodes, cap * sizeof *nodes);
        if (!nodes)
            return false;
        index->nodes = nodes;
        index->node_cap = cap;
    }
    index->nodes[index->node_count++] = node;
    return true;
}

/* 0: it has no such child. */
static inline uint32_t child_of(const struct literal_index *index, uint32_t node, char byte)
{
    if (node == 0)
        return index->children[(unsigned char)byte];
    uint32_t child = index->nodes[node].child;
    while (child && index->nodes[child].byte != byte)
        child = index->nodes[child].sibling;
    return child;
}

static uint32_t add_child(struct literal_index *index, uint32_t node, char byte)
{
    uint32_t child = child_of(index, node, byte), fresh = index->node_count;
    if (child)
        return child;
    if (!add_node(index, (struct literal_node){ .byte = byte, .sibling = index->nodes[node].child }))
        return 0;
    index->nodes[node].child = fresh;
    if (node == 0)
        index->children[(unsigned char)byte] = fresh;
    return fresh;
}

uint32_t *literal_index_add(struct literal_index *index, sv literal)
{
    if (!index->lists)
        index->lists = calloc(LITERALS_MAX, sizeof *index->lists);
    if (!index->lists || (index->node_count == 0 && !add_node(index, (struct literal_node){ 0 })))
        return NULL;
    uint32_t node = 0;
    for (size_t i = 0; i < literal.len; i++) {
        node = add_child(index, node, literal.ptr[i]);
        if (!node)
            return NULL;
    }
    if (!index->nodes[node].literal)
        index->nodes[node].literal = (uint16_t)++index->count;
    return &index->lists[index->nodes[node].literal];
}

/* The parent of a node has its `back`, and everything that is shorter than the node. */
static void lead_back(struct literal_index *index, uint32_t parent, uint32_t node)
{
    struct literal_node *n = &index->nodes[node];
    uint32_t at = parent;
    do {
        at = index->nodes[at].back;
        n->back = child_of(index, at, n->byte);
    } while (at && !n->back);
    n->ends = index->nodes[n->back].literal ? n->back : index->nodes[n->back].ends;
}

bool literal_index_finish(struct literal_index *index)
{
    if (index->node_count == 0)
        return true;
    uint32_t *queue = malloc(index->node_count * sizeof *queue);
    if (!queue)
        return false;
    uint32_t count = 1;
    queue[0] = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t child = index->nodes[queue[i]].child; child; child = index->nodes[child].sibling) {
            if (queue[i] > 0)
                lead_back(index, queue[i], child);
            queue[count++] = child;
        }
    free(queue);
    return true;
}

void literals_seen_init(struct literals_seen *seen, const struct literal_index *index)
{
    memset(seen->bits, 0, (index->count / 64 + 1) * sizeof seen->bits[0]);
}

/* Takes the list of the literal that ends at a node. False: there is no room. */
static bool take(const struct literal_index *index, uint32_t node, struct literals_seen *seen, uint32_t *lists,
                 size_t *found, size_t cap)
{
    uint32_t literal = index->nodes[node].literal;
    uint64_t bit = UINT64_C(1) << literal % 64;
    if (seen->bits[literal / 64] & bit)
        return true;
    seen->bits[literal / 64] |= bit;
    if (*found == cap)
        return false;
    lists[(*found)++] = index->lists[literal];
    return true;
}

size_t literal_index_find(const struct literal_index *index, sv text, struct literals_seen *seen, uint32_t *ret_lists,
                          size_t cap)
{
    size_t found = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < text.len; i++) {
        char byte = ascii_lower(text.ptr[i]);
        uint32_t next = child_of(index, node, byte);
        while (!next && node) {
            node = index->nodes[node].back;
            next = child_of(index, node, byte);
        }
        node = next;
        for (uint32_t end = index->nodes[node].literal ? node : index->nodes[node].ends; end; end = index->nodes[end].ends)
            if (!take(index, end, seen, ret_lists, &found, cap))
                return cap + 1;
    }
    return found;
}
