#include "replay/log_block.h"

#include <stdlib.h>

enum { RULES_PER_LINE = 4 }; /* that there is room for, if all lines of a block have as many */

bool log_block_init(struct log_block *block, const struct bound *bound)
{
    block->rules_room = ruleset_rules(bound->ruleset)->rule_count + (size_t)LOG_BLOCK_LINES * RULES_PER_LINE;
    block->rules = malloc(block->rules_room * sizeof block->rules[0]);
    block->subjects = malloc(block->rules_room * sizeof block->subjects[0]);
    log_block_clear(block);
    return block->rules && block->subjects;
}

void log_block_done(struct log_block *block)
{
    if (!block)
        return;
    free(block->rules);
    free(block->subjects);
}

void log_block_clear(struct log_block *block)
{
    block->count = block->rules_used = 0;
}

bool log_block_full(const struct log_block *block, const struct bound *bound)
{
    return block->count == LOG_BLOCK_LINES ||
           block->rules_room - block->rules_used < ruleset_rules(bound->ruleset)->rule_count;
}

/* No header of an access log comes twice, so none is repeated with another value. */
static void match(struct log_block *block, const struct bound *bound, struct facts *facts, struct log_line *line)
{
    struct weir_request request;
    struct weir_header headers[LOG_HEADERS];
    log_request_as(&line->request, &request, headers);
    facts_init(facts, bound->ruleset, &request, request.user);
    line->first_rule = (uint32_t)block->rules_used;
    line->rule_count = (uint32_t)ruleset_match(bound->ruleset, facts, line->request.now_us,
                                               block->rules + block->rules_used, block->rules_room - block->rules_used);
    matched_subjects(bound, facts, block->rules + block->rules_used, line->rule_count, block->subjects + block->rules_used);
    block->rules_used += line->rule_count;
    line->unreadable = !facts_ip(facts);
}

void log_block_add(struct log_block *block, const struct bound *bound, struct facts *facts, char *line, size_t len,
                   uint64_t number)
{
    struct log_line *next = &block->lines[block->count++];
    next->number = number;
    next->why = log_request_read(line, len, &next->request);
    if (!next->why)
        match(block, bound, facts, next);
}
