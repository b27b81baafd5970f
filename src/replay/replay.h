/* Replays recorded requests on a virtual clock, from empty cells: the engine decides each, and the totals count what
 * became of it. For `weir simulate` and for POST /v1/simulate. */
#ifndef REPLAY_REPLAY_H
#define REPLAY_REPLAY_H

#include "base/buf.h"
#include "replay/totals.h"

struct replay {
    struct weir *weir;
    struct ruleset *ruleset; /* the same rules as the engine's */
    struct totals totals;
    uint32_t *applied;           /* room for every rule of the ruleset */
    struct weir_shadows shadows; /* of the last decision */
    struct facts facts;
};

/* Takes over the rules, also on failure. cells_keys: how many keys can be counted at the same time. `replay` has some 50
 * KB, and is zero before. Call replay_done in any case. */
int replay_init(struct replay *replay, struct rules *rules, uint64_t cells_keys, const struct totals_bounds *bounds,
                struct weir_error *error);
void replay_done(struct replay *replay);

/* These rules, which it takes over, are in force from now on. */
int replay_set_rules(struct replay *replay, struct rules *rules, struct weir_error *error);

/* Decides a request, and gives back the slots that it has taken: records do not say when requests end. Sets
 * request->shadows, which replay_count reads. Returns 0, or why the request cannot be judged. */
int replay_decide(struct replay *replay, struct weir_request *request, int64_t now_us, struct weir_verdict *ret);
/* Counts the decision. False: no memory. */
bool replay_count(struct replay *replay, const struct weir_request *request, int64_t now_us,
                  const struct weir_verdict *verdict);

/* Writes the counts as a JSON object. top: how many subjects to list for each rule. hashed: addresses are pseudonyms, and
 * written so that nobody takes them for real ones ("hash:203.0.113.9"). out->failed: no memory. */
void replay_json(const struct replay *replay, unsigned top, bool hashed, struct buf *out);

#endif
