/* The newest refused requests, by time: a ring of fixed size for each thread. A flood of refusals costs it nothing: it
 * takes RECENT_PER_SECOND of them each second, and RECENT_OF_ONE of one subject, so that one client does not hide the
 * others.
 *
 * The numbers of the entries rise over all rings of the process, and are times: microseconds since 1970, or one more than
 * the number before if that is later. So a reader that has seen everything up to some number goes on from there, also after
 * a restart of the service. */
#ifndef REFUSED_RECENT_H
#define REFUSED_RECENT_H

#include "refused/subject.h"

enum {
    RECENT_SLOTS = 500,
    RECENT_PER_SECOND = 50,
    RECENT_OF_ONE = 5,
    RECENT_LOOKS = 200,
    RECENT_PATH_MAX = 400,
    RECENT_VALUE_MAX = 100,
    RECENT_DESCRIPTOR_MAX = 400,
    RECENT_TEXT_MAX = RECENT_PATH_MAX + REQUEST_ATTRIBUTE_COUNT * RECENT_VALUE_MAX,
    RECENT_UNIT_MAX = 50,
    RECENT_COSTS = 4,
};

enum recent_reason {
    RECENT_LIMIT,       /* a limit of the rule has no room */
    RECENT_PENALTY,     /* the subject is penalised */
    RECENT_UNAVAILABLE, /* the store does not answer, and the rule refuses then */
    RECENT_REPEATED,    /* the request repeats a header with different values; `limit` is its name */
    RECENT_UNJUDGED,    /* there was no memory to judge it */
    RECENT_REASONS,
};

/* The request's attributes and costs, as far as they are kept: neither headers nor the query of the path, which may be
 * secrets. (But see struct recent_plan.) */
struct recent_request {
    uint16_t lengths[REQUEST_ATTRIBUTE_COUNT];
    bool cut; /* something was too long */
    uint8_t cost_count;
    uint64_t cost;
    struct {
        char unit[RECENT_UNIT_MAX + 1];
        uint64_t amount;
    } costs[RECENT_COSTS];
    char text[RECENT_TEXT_MAX]; /* the values, one after another */
    uint16_t descriptor_len;
    char descriptor[RECENT_DESCRIPTOR_MAX]; /* as descriptor_text() writes it; all of it, or nothing */
};

/* The plan of a rule that a request has chosen. Its name is a value that the rule itself names, so it is not a secret. */
struct recent_plan {
    char name[RULE_NAME_MAX + 1];   /* "": none */
    char header[RULE_NAME_MAX + 1]; /* that chooses it; "": another attribute does */
};

struct recent_refusal {
    uint64_t number;
    int64_t at_us;
    int64_t retry_after_ms; /* WEIR_NEVER: no wait is long enough */
    uint16_t status;
    enum recent_reason reason : 8;
    bool shadow;                   /* it would have been refused: neither status nor wait */
    bool of_request;               /* `request` is filled; false: CL.THROTTLE */
    char limit[WEIR_NAME_MAX + 1]; /* "": not known */
    struct subject subject;        /* its rule is empty if no rule refused it */
    struct recent_plan plan;       /* of that rule */
    struct recent_request request;
};

/* `client` is the address that rules see; empty if there is none. */
void recent_fill_request(struct recent_request *ret, const struct weir_request *request, sv client);
sv recent_value(const struct recent_request *request, enum attribute attribute);

/* Used by one thread at a time, but for the following. */
struct recent;
int recent_new(struct recent **ret, unsigned slots);
void recent_free(struct recent *recent);
/* For the thread that refuses, which needs no lock: whether one more refusal is to be added now. `key` is the subject's,
 * and 0 if finding it takes time, which it is worth RECENT_LOOKS times a second: then ask again with it. A refusal that is
 * not added counts as left out. */
bool recent_wants(struct recent *recent, uint64_t key, int64_t now_us);
/* Returns whether it wants none of `count` refusals whose subjects are not known: they are left out. */
bool recent_leaves_out(struct recent *recent, uint64_t count, int64_t now_us);
/* Returns the place of the next entry, whose number is set; the rest is for the caller. */
struct recent_refusal *recent_add(struct recent *recent, int64_t now_us);
/* Adds one of an earlier run, with its number, which is above those that the ring has. Later numbers are above it. */
void recent_restore(struct recent *recent, const struct recent_refusal *refusal);
/* Number of refusals that were not added, since the start. Any thread may ask. */
uint64_t recent_left_out(const struct recent *recent);

/* ---- the newest of some rings ---- */

struct recent_list {
    struct recent_refusal *entries; /* after recent_list_sort: the newest first */
    size_t count, cap;
};

/* Returns the newest number of all rings. Entries with this number and less that are not in their rings yet come before
 * their owner's next recent_collect: so a reader asks for this first, then collects up to it, and misses nothing. */
uint64_t recent_newest(void);
/* Room for `most` more, so that recent_collect asks for no memory. */
int recent_list_reserve(struct recent_list *list, unsigned most);
/* Adds the newest, at most `most`, whose numbers are above `after` and up to `until`. `rule` empty: of all rules. */
void recent_collect(const struct recent *recent, uint64_t after, uint64_t until, sv rule, unsigned most,
                    struct recent_list *list);
void recent_list_sort(struct recent_list *list);
void recent_list_done(struct recent_list *list);

#endif
