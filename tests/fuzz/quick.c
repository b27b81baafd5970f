/* Any bytes as YAML or JSON: what quick.c reads, libyaml reads as the same tree. */
#include <stdio.h>
#include <stdlib.h>

#include "../rules/same_tree.h"
#include "rules/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = { 0 };
    struct node_error error = { 0 };
    const struct node *quick = NULL, *slow = NULL;
    /* A copy of the exact size, so that reading beyond it is seen. */
    char *copy = malloc(size + !size);
    if (!copy)
        abort();
    if (size > 0)
        memcpy(copy, data, size);
    sv text = sv_of(copy, size);
    bool checked = text_check(text, &error) == 0 && (!json_looks(text) || json_check(text, &error) == 0);
    if (checked && quick_read(text, 0, &arena, &quick)) {
        int r = node_read_libyaml(text, 0, &arena, &slow, &error);
        if (r < 0 || !same_tree(quick, slow)) {
            fprintf(stderr, "libyaml: %s\n%.*s\n", r < 0 ? error.text : "another tree", (int)size, copy);
            abort();
        }
    }
    arena_done(&arena);
    free(copy);
    return 0;
}
