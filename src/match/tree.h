/* The tree over the segments of all templates. See the essay in tree.c. */
#ifndef MATCH_TREE_H
#define MATCH_TREE_H

#include "match/template.h"
#include "match/text_table.h"

/* A list of rules, rising: 0 is the empty list, LIST_ONE | rule is that rule, anything else is the position in the
 * ruleset's pool of its length, which its rules follow. */
#define LIST_ONE (UINT32_C(1) << 31)
/* Of a node of a shared tail: LIST_ONE | the only rule of the entry by which the search came there. */
#define LIST_ONLY UINT32_MAX

/* Number 0 is the root; TABLE_NONE stands for no node.
 *
 * Most nodes have one literal child at most. The first whose text fits into a word stands in the node itself; the others
 * are in the table, under the space TREE_SPACE + this node's number. */
struct tree_node {
    uint32_t id_child, any_child;
    uint32_t ends;          /* list: templates that end here */
    uint32_t rest;          /* list: templates that go on with `*` from here */
    uint64_t first_word;    /* table_word of the literal child's text */
    uint32_t first_child;   /* TABLE_NONE: there is none */
    uint32_t first_len : 8; /* 0: there is none */
    uint32_t has_more : 1;  /* in the table */
    uint32_t only : 23; /* 1 + the only rule that can be found by way of this node; 0: there are several, or it is shared */
};
_Static_assert(sizeof(struct tree_node) == 32, "two in a cache line");

enum { TREE_SPACE = 24 };
#define TREE_SPACES_END (UINT32_C(1) << 31)

/* The value of a literal child in the table is its node, or says more: if only one rule can be found by way of it, and one
 * of the first nodes stands for all that can follow, it is CHILD_ONE | node << CHILD_RULE_BITS | rule. */
#define CHILD_ONE (UINT32_C(1) << 31)
enum { CHILD_RULE_BITS = 18, CHILD_RULES = 1 << CHILD_RULE_BITS, CHILD_NODES = 1 << (31 - CHILD_RULE_BITS) };

static inline uint32_t child_node(uint32_t value)
{
    return value & CHILD_ONE ? (value & ~CHILD_ONE) >> CHILD_RULE_BITS : value;
}

/* Of a value with CHILD_ONE. */
static inline uint32_t child_rule(uint32_t value)
{
    return value & (CHILD_RULES - 1);
}

/* Where all that is read of each rule begins: what matching reads, and what its caller reads next. */
struct rule_lines {
    const char *compiled, *beside;
    size_t compiled_bytes, beside_bytes; /* of a rule */
    const uint32_t *numbers;             /* of the rules, for `beside`; NULL: the same */
};

/* Starts loading what is read of a rule first. */
static inline void rule_lines_load(const struct rule_lines *lines, uint32_t rule)
{
    __builtin_prefetch(lines->compiled + rule * lines->compiled_bytes);
    if (__builtin_expect(lines->numbers != NULL, 0))
        rule = lines->numbers[rule];
    __builtin_prefetch(lines->beside + rule * lines->beside_bytes);
}

struct tree {
    struct tree_node *nodes;
    size_t count, cap;
};

/* A tree without its root has no templates. */
void tree_done(struct tree *tree);
/* Where the list of a template belongs; lives until the next call. NULL: no memory. */
uint32_t *tree_add(struct tree *tree, struct table *table, sv canonical);
/* After the last template, when lists are in their places: gives back the memory that tree and table do not need. Nothing
 * is added any more. False: no memory; then both can only be freed. */
bool tree_finish(struct tree *tree, struct table *table);
/* Writes the list of every template that matches, at most `cap` of them, in no order. Returns how many; cap + 1:
 * too many. A rule that is all that can be found any more is loaded meanwhile. */
size_t tree_find(const struct tree *tree, const struct table *table, sv path, const struct path_segments *segments,
                 const struct ids *ids, const struct rule_lines *lines, uint32_t *ret_lists, size_t cap);

#endif
