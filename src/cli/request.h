/* Shared by `check` and `explain`: rules from a file, and a request from options. */
#ifndef CLI_REQUEST_H
#define CLI_REQUEST_H

#include "base/buf.h"
#include "cli/options.h"
#include "rules/rules.h"

/* Reads the text of a file ("-": stdin, which cannot include files). *ret_includes (may be NULL): it includes others. */
struct rules *read_rules(const char *path, sv text, struct rules_report *ret_report, bool *ret_includes);
/* Reads and checks a rules file ("-": stdin). False: every error was printed to stderr. *ret_text is the file's text, with
 * all that it includes, *ret_rules (may be NULL) its rules. */
bool load_rules(const char *path, struct buf *ret_text, struct rules **ret_rules);

struct request_options {
    const char *rules, *cells, *counters;
    uint64_t hosts;
    uint64_t cells_keys, cells_bytes;
    const char *attributes[REQUEST_ATTRIBUTE_COUNT];
    struct option_list headers;
    struct option_list entries; /* of the descriptor */
    struct option_list costs;
    bool peek;
    int64_t now_us; /* -1: the clock's */
    struct weir_cost cost_room[WEIR_COSTS_MAX];
};

extern const struct option request_check_options[], request_explain_options[];

#define REQUEST_OPTIONS_DEFAULT \
    {                           \
        .now_us = -1            \
    }

/* The headers and the entries of a request. */
struct request_lists {
    struct weir_header headers[OPTION_LIST_MAX], entries[OPTION_LIST_MAX];
};

/* Reads argv as `command` (whose options are one of these tables) and fills *ret_request, whose headers and entries go
 * into `lists`. Returns -1 to go on, or the exit status. */
int request_read(const struct command *command, int argc, char **argv, struct request_options *options,
                 struct request_lists *lists, struct weir_request *ret_request);

/* Returns whether the cells file that the options name is missing. A command that charges nothing must not create it. */
bool request_cells_missing(const struct request_options *options);

/* Opens the handle that the options name. False: the errors were printed. */
bool request_open(const struct request_options *options, struct weir **ret);
/* Closes it, and says on stderr if the store did not answer. */
void request_close(struct weir *weir);

#endif
