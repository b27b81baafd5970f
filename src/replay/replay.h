/* Replays recorded requests on a virtual clock, from empty cells: the engine decides each, and the totals count what
 * became of it. For `weir simulate` and for POST /v1/simulate. */
#ifndef REPLAY_REPLAY_H
#define REPLAY_REPLAY_H

#include "base/buf.h"
#include "replay/log_block.h"
#include "replay/totals.h"

enum { REPLAY_BATCH = 16 }; /* requests that are decided at a time: their cells are loaded from memory together */

/* The requests that were decided last. */
struct replay_batch {
    struct weir_request requests[REPLAY_BATCH];
    struct weir_header headers[REPLAY_BATCH][LOG_HEADERS];
    struct weir_verdict verdicts[REPLAY_BATCH];
    struct weir_shadows shadows[REPLAY_BATCH];
    size_t first; /* line of the block */
};

struct replay {
    struct weir *weir;
    void *table; /* of a long replay: memory of its own for the cells; else NULL */
    size_t table_bytes;
    const struct ruleset *ruleset; /* the engine's */
    struct totals totals;
    bool brief;                  /* the caller does not need the numbers in verdicts on requests that pass */
    uint32_t *applied;           /* room for every rule of the ruleset */
    size_t applied_count;        /* rules that apply to the last request */
    struct weir_shadows shadows; /* of the last decision */
    struct facts facts;
    struct replay_batch batch;
};

struct replay_size {
    uint64_t cells_keys; /* how many keys can be counted at the same time */
    bool is_long;        /* hundreds of thousands of requests: all memory of the table will be used */
};

/* Takes over the rules, also on failure. `replay` has some 80 KB, and is zero before. Call replay_done in any case. */
int replay_init(struct replay *replay, struct rules *rules, struct replay_size size, const struct totals_bounds *bounds,
                struct weir_error *error);
void replay_done(struct replay *replay);

/* These rules, which it takes over, are in force from now on. */
int replay_set_rules(struct replay *replay, struct rules *rules, struct weir_error *error);

/* Decides a request, and gives back the slots that it has taken: records do not say when requests end. Sets
 * request->shadows, which replay_count reads. Returns 0, or why the request cannot be judged. */
int replay_decide(struct replay *replay, struct weir_request *request, int64_t now_us, struct weir_verdict *ret);
/* Counts the request that was decided last. False: no memory. */
bool replay_count(struct replay *replay, const struct weir_request *request, int64_t now_us,
                  const struct weir_verdict *verdict);

/* Decides lines of a log in their order, from line `first` of the block on, which is not a bad one: up to the next bad
 * line, and at most REPLAY_BATCH. The block was filled with the rules in force. Returns how many are decided; 0: no memory.
 * replay->batch has the requests and the verdicts. */
size_t replay_decide_lines(struct replay *replay, const struct log_block *block, size_t first);
/* Counts one of them, by its number in the batch. False: no memory. */
bool replay_count_line(struct replay *replay, const struct log_block *block, size_t number);

/* Writes the counts as a JSON object. top: how many subjects to list for each rule. hashed: addresses are pseudonyms, and
 * written so that nobody takes them for real ones ("hash:203.0.113.9"). out->failed: no memory. */
void replay_json(const struct replay *replay, unsigned top, bool hashed, struct buf *out);

#endif
