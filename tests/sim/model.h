/* The whole engine once more, slowly and plainly, from what the design and docs/concepts.md promise: rules over events,
 * keys and users, every limit with a cell for each subject, and the verdict. Shares no code with src/.
 *
 * Time is in microseconds. Parts of a token are whole numbers of 1/scale: see struct sim_limit. */
#ifndef TESTS_SIM_MODEL_H
#define TESTS_SIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIM_RULES = 4,
    SIM_LIMITS = 3,
    SIM_CELLS = 1200,
    SIM_TEXT = 40,
    SIM_NEVER = -1,
};

enum sim_algorithm { SIM_BUCKET, SIM_FIXED, SIM_SLIDING, SIM_CALENDAR };
enum sim_unit { SIM_MINUTE, SIM_HOUR, SIM_DAY, SIM_WEEK, SIM_MONTH, SIM_YEAR, SIM_LENGTH };
enum { SIM_UNITS = 3 }; /* requests, u1, u2 */
enum sim_mode { SIM_ENFORCE, SIM_SHADOW, SIM_OFF };
enum { SIM_BY_EVENT = 1, SIM_BY_KEY = 2, SIM_BY_USER = 4, SIM_BY_ENTRY = 8, SIM_BY_MOST = 15 };

struct sim_limit {
    char name[SIM_TEXT];
    enum sim_algorithm algorithm;
    uint64_t max, burst; /* burst 0: none given */
    int64_t per_us;
    int counts;         /* its unit; 0: requests */
    bool overdraft;     /* while 1 fits everything passes; not of buckets */
    int64_t scale;      /* bucket: a multiple of per_us, the same for as long as the cell lives */
    enum sim_unit unit; /* calendar, with an offset from UTC that never changes; SIM_LENGTH: windows of per_us, in UTC */
    int64_t utc_offset_us;
};

struct sim_penalty {
    unsigned after; /* 0: none */
    unsigned grow;
    int64_t within_us, for_us, most_us;
};

struct sim_rule {
    char id[SIM_TEXT];
    enum sim_mode mode;
    char event[SIM_TEXT]; /* that it matches; empty: any */
    unsigned by;
    struct sim_limit limits[SIM_LIMITS];
    size_t limit_count;
    struct sim_penalty penalty;
};

/* All zero: unused. */
struct sim_state {
    __int128 used; /* bucket: in 1/scale of a token, at when_us */
    int64_t when_us;
    int64_t start_us, end_us; /* of the window; sliding has no end */
    uint64_t count, previous;
    bool wide; /* its count has had more than 32 bits: the engine may know the length only to a quarter */
};

/* A clock that was set back by more than a period: the last time. */
struct sim_rebase {
    bool made;
    int64_t to_us;
    int64_t lead_us;  /* where the cell was */
    unsigned returns; /* how often it was there again since, less what has been worked off */
    int64_t until_us; /* the engine may have forgotten it then */
};

struct sim_cell {
    /* What it is: */
    char rule[SIM_TEXT], limit_name[SIM_TEXT];
    enum sim_algorithm algorithm;
    unsigned by;
    char event[SIM_TEXT], key[SIM_TEXT], user[SIM_TEXT], entry[SIM_TEXT];

    struct sim_limit limit; /* as it was last asked about */
    struct sim_state state;
    int64_t latest_us; /* the clock has been here since the last charge */
    struct sim_rebase rebase;
};

/* Whom a rule has refused, and penalised. */
struct sim_punished {
    char rule[SIM_TEXT];
    unsigned by;
    char event[SIM_TEXT], key[SIM_TEXT], user[SIM_TEXT], entry[SIM_TEXT];
    unsigned level; /* penalties in a row */
    int64_t end_us; /* of the last one */
    unsigned count; /* refusals since since_us */
    int64_t since_us;
    int64_t forgotten_us; /* by the numbers that it was written with, the table may have forgotten it then */
    int64_t latest_us;    /* the clock has been here since */
};

struct sim {
    bool one_clock; /* a store's: whoever asks, its clock is the one that counts, and nobody is stale */
    struct sim_rule rules[SIM_RULES];
    size_t rule_count;
    struct sim_cell cells[SIM_CELLS];
    size_t cell_count;
    struct sim_punished punished[SIM_CELLS];
    size_t punished_count;
};

struct sim_request {
    const char *event, *key, *user; /* "": none */
    const char *entry;              /* of the descriptor; NULL: none */
    uint64_t cost;
    bool peek;
    uint64_t others[SIM_UNITS]; /* costs in other units; the first is not used */
};

struct sim_verdict {
    bool penalty;
    bool allowed, applied;
    const char *rule, *limit;
    int unit;
    uint64_t max, remaining, debt;
    int64_t reset_ms, retry_after_ms, window_ms;
    const char *shadow[SIM_RULES];
    size_t shadow_count;
};

void sim_decide(struct sim *sim, const struct sim_request *request, int64_t now_us, struct sim_verdict *ret);
/* Forgets what the subject of this request has used of a rule. */
void sim_reset(struct sim *sim, const struct sim_rule *rule, const struct sim_request *request);

/* The rule and the limit that count in this cell now; false: none do. */
bool sim_owner(const struct sim *sim, const struct sim_cell *cell, const struct sim_rule **ret_rule,
               const struct sim_limit **ret_limit);
/* Would this cell be as if unused at this time? */
bool sim_unused_at(const struct sim_cell *cell, int64_t now_us);
/* Is this cell ahead of the clock in a way that leaves open whether the clock was wrong? A window is, if it is ahead by its
 * own length, rounded or not, or within the length that `limit` has given to windows since. So is any cell that was rebased
 * close to this time, so long ago that the engine may have forgotten it. */
bool sim_doubtful_at(const struct sim_cell *cell, const struct sim_limit *limit, int64_t now_us);

/* The rule whose subject this is, with the `by` that it has now; NULL: none. */
const struct sim_rule *sim_punisher(const struct sim *sim, const struct sim_punished *punished);
/* Nothing is left of it at this time. */
bool sim_forgiven_at(const struct sim_punished *punished, const struct sim_penalty *penalty, int64_t now_us);

#endif
