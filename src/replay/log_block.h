/* Lines of an access log that are read and matched ahead of their decisions: by another thread, if the caller likes. */
#ifndef REPLAY_LOG_BLOCK_H
#define REPLAY_LOG_BLOCK_H

#include "engine/handle.h"
#include "replay/traffic.h"

enum { LOG_BLOCK_LINES = 2048 };

struct log_line {
    uint64_t number; /* of the line in the log, from 1 */
    const char *why; /* why it is not a line of an access log; NULL: it is one, and the following count */
    struct log_request request;
    uint32_t first_rule, rule_count; /* the rules that apply: in the block's `rules` */
    bool unreadable;                 /* its address cannot be read */
};

struct log_block {
    struct log_line lines[LOG_BLOCK_LINES];
    size_t count;
    uint32_t *rules;    /* indexes into the rules in force */
    uint64_t *subjects; /* of each of these rules */
    size_t rules_used, rules_room;
};

/* The block is zero before. Returns false if out of memory. */
bool log_block_init(struct log_block *block, const struct bound *bound);
void log_block_done(struct log_block *block);
void log_block_clear(struct log_block *block);

/* There is no room for another line. */
bool log_block_full(const struct log_block *block, const struct bound *bound);
/* Adds a line, which has to stay where it is as long as the block is in use, and may be changed: escapes are undone in
 * place. `facts` is working space. */
void log_block_add(struct log_block *block, const struct bound *bound, struct facts *facts, char *line, size_t len,
                   uint64_t number);

#endif
