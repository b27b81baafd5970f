/* The sum of the counters of all loops, by rule, for counts over time and live figures. It may be read at any time. It
 * remembers where each loop counts which rule, so that reading 10,000 rules takes less than a millisecond.
 *
 * It belongs to the thread of the admin loop, and to the main thread after that loop's end. */
#ifndef SERVE_TALLY_H
#define SERVE_TALLY_H

#include "serve/stats.h"

struct server;
struct tally;

/* All decisions. The counters since the start, or their differences. */
struct tally_all {
    uint64_t allowed, refused, shadow, without_rule;
    uint64_t errors; /* decisions that the store should have made and did not */
};

int tally_new(struct tally **ret, struct server *server);
void tally_free(struct tally *tally);

/* Reads the counters of all loops now. Returns 0 or WEIR_E_NO_MEMORY: then what was read before stays. */
int tally_read(struct tally *tally);

size_t tally_rule_count(const struct tally *tally);
const char *tally_rule_id(const struct tally *tally, size_t i);
/* False: nobody has counted this rule yet. */
bool tally_find(const struct tally *tally, sv id, size_t *ret);

/* The state of all counters at one time. Begins as zeroes. */
struct tally_mark {
    struct tally_all all;
    struct stats_said *said; /* by number of the rule */
    size_t count;
};
void tally_mark_done(struct tally_mark *mark);
/* Remembers what was read last. Returns 0 or WEIR_E_NO_MEMORY: then the mark stays as it was. */
int tally_set_mark(const struct tally *tally, struct tally_mark *mark);

/* Return the counts between the mark and the last reading. */
struct tally_all tally_since(const struct tally *tally, const struct tally_mark *mark);
struct stats_said tally_rule_since(const struct tally *tally, const struct tally_mark *mark, size_t i);

static inline uint64_t tally_busy(struct stats_said said)
{
    return said.passed + said.refused + said.would_refuse;
}

struct tally_rule {
    size_t rule;
    struct stats_said said;
};
/* Writes the busiest rules since the mark to `ret`, the busiest first, at most `most` of them, and the sum of the others to
 * *ret_rest. STATS_OTHER belongs to the others. Returns how many it wrote. */
size_t tally_busiest(const struct tally *tally, const struct tally_mark *mark, struct tally_rule *ret, size_t most,
                     struct stats_said *ret_rest);

#endif
