/* The tree that envoy_config.c reads and envoy_rules.c writes as rules. */
#ifndef SOURCE_ENVOY_TREE_H
#define SOURCE_ENVOY_TREE_H

#include "rules/node.h"
#include "source/envoy.h"

enum envoy_unit { ENVOY_SECOND, ENVOY_MINUTE, ENVOY_HOUR, ENVOY_DAY, ENVOY_WEEK, ENVOY_MONTH, ENVOY_YEAR, ENVOY_UNITS };

/* How a node is chosen for an entry of a descriptor, in this order. */
enum envoy_choice { ENVOY_EXACT, ENVOY_WILDCARD, ENVOY_DEFAULT };

struct envoy_limit {
    int line;
    bool unlimited;
    uint64_t max;
    enum envoy_unit unit;
    uint64_t multiplier;
    sv name;
    const struct node *replaces; /* a list, or NULL */
};

struct envoy_node {
    sv key, value; /* value without the `*` of a wildcard */
    enum envoy_choice choice;
    sv file;
    int line;
    bool limited; /* it has a limit */
    struct envoy_limit limit;
    bool shadow, quota, share, metrics;
    struct envoy_node *parent, *first, *last, *next;
    size_t count; /* of children */
    size_t nth;   /* child of its parent, from 0 on */
    /* For writing: */
    sv id;                          /* of its rule */
    sv excluded;                    /* `not: […]`: values for which siblings are chosen before it; or empty */
    const struct envoy_node *hider; /* a sibling that takes all of its values; or NULL */
};

struct envoy_domain {
    sv name;
    struct envoy_node root;
    struct envoy_domain *next;
};

struct envoy_config {
    struct envoy_options options;
    struct arena arena;
    struct buf errors;
    size_t error_count;
    bool no_memory;
    struct envoy_domain *domains, *last_domain;
    size_t node_count; /* that are limited */
};

void envoy_error(struct envoy_config *config, sv file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The next node in the order of the file, below `top`; NULL at the end. */
struct envoy_node *envoy_next(const struct envoy_node *top, struct envoy_node *node);

/* After the last file: what can be seen only in the whole tree. */
void envoy_check(struct envoy_config *config);

#endif
