/* Loading what is read of a rule before it is known that the rule applies.
 *
 * With many rules in use, little of them is in the cache: a path leads to an entry of the table, that to nodes of the tree,
 * these to a list, and that to the rule as matching sees it and then as its caller does, each a cache miss that waits for
 * the one before. But most entries lead to one rule, whatever the rest of the path is. Such an entry has the rule's number,
 * so that the others are loaded at once. */
#include "base/cleanup.h"
#include "match/ruleset.h"

void ruleset_load_beside(struct ruleset *ruleset, const void *array, size_t bytes)
{
    ruleset->lines = (struct rule_lines){ .compiled = (const char *)ruleset->compiled,
                                          .beside = array,
                                          .compiled_bytes = sizeof *ruleset->compiled,
                                          .beside_bytes = bytes };
}

/* What can be found: 0: nothing yet; 1 + a rule: only that. */
#define SEVERAL UINT32_MAX

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

/* Whether it is a literal child of a node. */
static bool is_of_tree(const struct table_entry *entry)
{
    return entry->value != TABLE_NONE && entry->space >= TREE_SPACE && entry->space < ENTRY_SPACE;
}

static void note_parent(uint32_t *parents, uint32_t child, uint32_t parent)
{
    if (child != TABLE_NONE)
        parents[child] = parent;
}

static void note_parents(const struct ruleset *ruleset, uint32_t *parents)
{
    const struct tree *tree = &ruleset->tree;
    const struct table *table = &ruleset->table;
    for (uint32_t i = 0; i < tree->count; i++) {
        note_parent(parents, tree->nodes[i].id_child, i);
        note_parent(parents, tree->nodes[i].any_child, i);
        note_parent(parents, tree->nodes[i].first_child, i);
    }
    for (size_t i = 0; table->count > 0 && i <= table->mask; i++)
        if (is_of_tree(&table->entries[i]))
            parents[table->entries[i].value] = table->entries[i].space - TREE_SPACE;
}

/* A node has a higher number than its parent. */
bool note_only_rules(struct ruleset *ruleset)
{
    const struct tree *tree = &ruleset->tree;
    const struct table *table = &ruleset->table;
    CLEANUP_FREE uint32_t *parents = cleanup_calloc(tree->count + 1, sizeof *parents);
    CLEANUP_FREE uint32_t *only = cleanup_calloc(tree->count + 1, sizeof *only);
    if (!parents || !only)
        return false;
    note_parents(ruleset, parents);
    for (size_t i = tree->count; i-- > 1;) {
        uint32_t own = only_of_both(only_of_list(tree->nodes[i].ends), only_of_list(tree->nodes[i].rest));
        only[i] = only_of_both(only[i], own);
        only[parents[i]] = only_of_both(only[parents[i]], only[i]);
    }
    for (size_t i = 0; table->count > 0 && i <= table->mask; i++)
        if (is_of_tree(&table->entries[i]) && only[table->entries[i].value] != SEVERAL)
            table->entries[i].only = only[table->entries[i].value];
    return true;
}
