/* A YAML or JSON document as a tree that knows its lines. Aliases are followed: the tree shares what they stand for, and is
 * bounded as if it did not. */
#ifndef RULES_NODE_H
#define RULES_NODE_H

#include "base/arena.h"
#include "base/sv.h"

enum node_kind { NODE_SCALAR, NODE_LIST, NODE_MAP };

struct node_item;

struct node {
    uint8_t kind;
    bool plain;     /* a scalar without quotes: it may be a number, a boolean or nothing */
    uint8_t height; /* levels of lists and mappings from here down */
    int line;
    uint32_t weight; /* values from here down */
    uint32_t count;  /* of items */
    union {
        sv text;
        struct node_item *first;
    };
};

struct node_item {
    const struct node *key; /* NULL in a list */
    const struct node *value;
    struct node_item *next;
};

struct node_error {
    bool no_memory;
    int line;
    char text[300];
};

/* 0 with *ret_root (NULL for a document that is empty), or -1 with *ret_error. The tree lives in `arena`. A text that looks
 * like JSON has to be JSON. */
int node_read(sv text, struct arena *arena, const struct node **ret_root, struct node_error *ret_error);

/* The same with this number added to the lines of the nodes; an error has the line in the text. */
int node_read_at(sv text, int lines_before, struct arena *arena, const struct node **ret_root,
                 struct node_error *ret_error);

bool node_is_null(const struct node *node);
bool node_is_bool(const struct node *node, bool *ret); /* true/false, yes/no, on/off */
bool node_is_number(const struct node *node);          /* as JSON writes numbers, or with zeros before it */
bool node_is_json_number(const struct node *node);
/* The value of a key; NULL if there is none. */
const struct node *node_get(const struct node *map, sv key);

/* From json.c. A mapping, or a list of them, whose first key is in quotes, with brackets around it. */
bool json_looks(sv text);
int json_check(sv text, struct node_error *ret_error);

/* From quick.c. Returns false if only libyaml can read the text or say what is wrong with it (or for lack of memory). The
 * text was checked, and is JSON if it looks so. */
bool quick_read(sv text, int lines_before, struct arena *arena, const struct node **ret_root);
void node_close(struct node *node); /* sets height and weight of a list or mapping that has all its items */
/* The same as node_read_at, by libyaml, for a text that was checked. */
int node_read_libyaml(sv text, int lines_before, struct arena *arena, const struct node **ret_root,
                      struct node_error *ret_error);

/* From prepare_text.c. Whether the bytes are UTF-8 and within the bounds; without a byte order mark. */
int text_check(sv text, struct node_error *ret_error);
/* A view of `text` that libyaml reads as it was meant, in `scratch` if it had to be changed. */
struct buf;
int text_prepare(sv text, struct buf *scratch, sv *ret, struct node_error *ret_error);
int node_fail(struct node_error *error, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
