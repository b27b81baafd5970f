/* All literals that occur in a text, in one pass: see literal_index.c. */
#ifndef MATCH_LITERAL_INDEX_H
#define MATCH_LITERAL_INDEX_H

#include "base/sv.h"

enum { LITERALS_MAX = 16384 };

/* Number 0 is the root, and stands for no node. */
struct literal_node {
    uint32_t child, sibling; /* the first one, the next one */
    uint32_t back;           /* the longest end of this node's text that is a node, too */
    uint32_t ends;           /* the same among those where a literal ends */
    uint16_t literal;        /* the one that ends here; 0: none does */
    char byte;               /* the last one of its text */
};

struct literal_index {
    struct literal_node *nodes;
    uint32_t node_count, node_cap;
    uint32_t count;         /* of literals, whose numbers begin with 1 */
    uint32_t *lists;        /* by number; the index only stores them */
    uint32_t children[256]; /* of the root, by byte */
};

/* Which literals a request has come upon. */
struct literals_seen {
    uint64_t bits[LITERALS_MAX / 64];
};

void literal_index_done(struct literal_index *index);
/* Where the list of a literal belongs, which is in lower case; lives until the next call. NULL: no memory. At most
 * LITERALS_MAX - 1 different ones. */
uint32_t *literal_index_add(struct literal_index *index, sv literal);
/* After the last literal. False: no memory. */
bool literal_index_finish(struct literal_index *index);
void literals_seen_init(struct literals_seen *seen, const struct literal_index *index);
/* Writes the list of every literal that occurs in the text, in either case, and that was not seen before; at most `cap`
 * of them, in no order. Returns how many; cap + 1: too many. */
size_t literal_index_find(const struct literal_index *index, sv text, struct literals_seen *seen, uint32_t *ret_lists,
                          size_t cap);

#endif
