/* What `check` and `explain` share: rules from a file, and a request from options. */
#ifndef CLI_LOAD_H
#define CLI_LOAD_H

#include "base/buf.h"
#include "cli/options.h"
#include "rules/rules.h"

/* Reads and checks a rules file ("-": stdin). False: every error was printed to stderr. *ret_text is the file's text,
 * *ret_rules (may be NULL) its rules. */
bool load_rules(const char *path, struct buf *ret_text, struct rules **ret_rules);

struct request_options {
    const char *rules, *cells;
    uint64_t cells_keys, cells_bytes;
    const char *method, *path, *host, *ip, *peer, *user, *event, *key;
    struct option_list headers;
    uint32_t cost;
    bool peek;
    int64_t now_us; /* -1: the clock's */
};

extern const struct option request_option_table[];

#define REQUEST_OPTIONS_DEFAULT \
    {                           \
        .cost = 1, .now_us = -1 \
    }

/* Reads argv as `command` (whose options are request_option_table) and fills *ret_request, whose headers go into `headers`
 * (OPTION_LIST_MAX of them). Returns -1 to go on, or the exit status. */
int request_read(const struct command *command, int argc, char **argv, struct request_options *options,
                 struct weir_header *headers, struct weir_request *ret_request);

/* For what charges nothing, and so is to make no cells file: if the file is missing, goes on without it and returns its
 * name. NULL: it is there, or none was asked for. */
const char *request_skip_missing_cells(struct request_options *options);

/* Opens the handle that the options name. False: the errors were printed. */
bool request_open(const struct request_options *options, struct weir **ret);

#endif
