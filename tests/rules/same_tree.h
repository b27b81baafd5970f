/* Comparing what quick.c and libyaml have read. */
#ifndef TESTS_RULES_SAME_TREE_H
#define TESTS_RULES_SAME_TREE_H

#include "rules/node.h"

static inline bool same_tree(const struct node *a, const struct node *b)
{
    if (!a || !b)
        return a == b;
    if (a->kind != b->kind || a->plain != b->plain || a->height != b->height || a->line != b->line ||
        a->weight != b->weight || a->count != b->count)
        return false;
    if (a->kind == NODE_SCALAR)
        return sv_eq(a->text, b->text) && a->text.ptr[a->text.len] == '\0';
    const struct node_item *x = a->first, *y = b->first;
    for (; x && y; x = x->next, y = y->next)
        if (!same_tree(x->key, y->key) || !same_tree(x->value, y->value))
            return false;
    return !x && !y;
}

#endif
