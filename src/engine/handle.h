/* The handle behind the public API: rules that are swapped whole, and the table they count in. */
#ifndef ENGINE_HANDLE_H
#define ENGINE_HANDLE_H

#include <pthread.h>
#include <sys/types.h>

#include "engine/bound.h"
#include "engine/store.h"
#include "refused/penalised.h"
#include "rules/included.h"

struct penalty_view;

enum { LATE_SLOTS = 4096 };

struct weir {
    struct bound *current; /* swapped whole; readers take it through hazard_acquire */
    struct cells *cells;
    const struct store_ops *ops; /* of the store; NULL: this program has none */
    struct store *store;         /* NULL: there is none */
    bool visits;                 /* see weir_open_with */
    bool store_by_now;           /* for tests: the store takes the request's clock for its own */
    /* Debts that an answer which is late may undo, by the key of their cell: see remote_count_late(). Debts that share a
     * slot wait for each other's answers, and nothing else comes of it. */
    uint32_t late[LATE_SLOTS];
    struct weir_options options; /* its strings are not kept, but for … */
    char *rules_file;            /* … this one */
    struct cidr *trusted;        /* options.trusted_proxies, if they were given */
    size_t trusted_count;
    uint64_t prepared[PREPARED_PARTS]; /* bits of the numbers of prepared checks that are in use; atomic */

    /* Below: changed under `lock`, when rules change. */
    pthread_mutex_t lock;
    struct bound *retired; /* replaced, but perhaps still in use */
    uint64_t version;
    struct file_version file; /* last read */
    struct included included; /* by the file */
    bool unreadable;          /* the file could not be read, and this was reported */

    /* Held for a moment only, unlike `lock`: a caller that asks for the status must not wait while rules are compiled. */
    pthread_mutex_t error_lock;
    struct weir_error rules_error; /* of the newest rules; code 0: none */

    pthread_t watcher, reader;
    pid_t watching, reading; /* the process that has the thread; 0: there is none */
    bool has_read;           /* the reader is done */
    pthread_mutex_t watch_lock;
    pthread_cond_t watch_stop;
    bool stopping;
};

/* weir_open with a store of this kind (NULL: options.counters is an error). visits: for a command that ends at once and
 * leaves no trace beyond its charges. Slots that it takes outlive it. With options.counters it is not a host of its own,
 * tells the other processes of the table nothing about the store, and fetches no slices for them. */
int weir_open_with(struct weir **ret, const struct weir_options *options, const struct store_ops *ops, bool visits,
                   struct weir_error *error);

/* Returns whether there is a store that answers. */
static inline bool weir_store_up(const struct weir *weir)
{
    return weir->store && weir->ops->up(weir->store);
}

enum { WEIR_USER_MAX = 512 }; /* bytes of what options.user_id says */

/* Returns the rules in force, valid until hazard_release, or NULL if out of memory. *ret_user is the user of the request;
 * if a rule needs the user and the caller has not set it, options.user_id is called and writes to user_buf. */
const struct bound *weir_acquire(struct weir *weir, const struct weir_request *request, char user_buf[WEIR_USER_MAX],
                                 sv *ret_user);

/* A request whose rules are known, since the caller counts them, too: weir does not look for them again. It is decided
 * alone, and charges if there is room. */
struct matched {
    const struct weir_request *request;
    int64_t now_us;
    const uint32_t *rules; /* that ruleset_match() found in the ruleset in force */
    size_t rule_count;
    const uint64_t *subjects; /* of matched_subjects(); NULL: weir finds them */
    sv repeated;              /* facts.repeated after that */
};
/* The subject that each of these rules counts for. The facts are those that the rules were found with, and `bound` has the
 * rules in force. */
void matched_subjects(const struct bound *bound, struct facts *facts, const uint32_t *rules, size_t count,
                      uint64_t *ret_subjects);
/* weir_check() for each of these, in order: their cells are loaded from memory at the same time. All rules count in cells,
 * and options.user_id is not called. Returns how many are decided: fewer than `count` if out of memory. */
size_t weir_check_matched(struct weir *weir, const struct matched *requests, size_t count,
                          struct weir_verdict *ret_verdicts);

/* The same for one, by rules that the caller has acquired. Returns what weir_check returns. */
int weir_decide_matched(const struct bound *bound, const struct matched *m, struct weir_verdict *ret);

/* Returns whether a request and those that are decided together with it can be judged: there are not too many, and what
 * they do with their costs goes together. */
bool request_valid(const struct weir_request *request);
/* The users of requests that are decided together, which are valid. */
struct users {
    sv of[WEIR_TOGETHER_MAX];
    char *room; /* for what options.user_id says; NULL: nobody was asked */
};
/* weir_acquire for all of them; users_done afterwards, unless NULL is returned. */
const struct bound *weir_acquire_all(struct weir *weir, const struct weir_request *request, struct users *ret);
void users_done(struct users *users);

/* From block.c: decides by rules some of which are leased or exact, and waits for the store. until_us < 0: it waits for
 * slices, too, until the deadline. Else it does not wait for slices: it asks for them while now_us is before until_us, and
 * returns 1. */
int weir_check_remote(struct weir *weir, const struct bound *bound, const struct weir_request *request, const sv *users,
                      int64_t now_us, int64_t until_us, struct weir_verdict *ret);
/* Looks at all that a request would be charged for, in the store too, and charges nothing. `look` is given the decision
 * with the state of each counter. `known` is false if the store did not answer in time: then counters in the store look
 * unused. */
struct decision;
typedef void weir_look_sink(const struct decision *d, bool known, void *data);
int weir_look_remote(struct weir *weir, const struct bound *bound, const struct weir_request *request, const sv *users,
                     int64_t now_us, weir_look_sink *look, void *data);
/* The same for the counters of a decision that is on the heap, which it frees. NULL: out of memory. */
int weir_look_decision(struct decision *d, weir_look_sink *look, void *data);
/* How long a decision waits for the store. */
int weir_deadline_ms(const struct weir *weir);

/* The address is one of settings.trusted_proxies. */
bool weir_trusts(struct weir *weir, sv address);

/* Finds the subject that a refused request was counted for. Returns false if no rule refused it, or if its rule was changed
 * since and does not apply any more. */
bool weir_subject(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                  struct subject *ret);

/* The same for a rule that is named, such as one in shadow mode. */
bool weir_subject_of(struct weir *weir, const struct weir_request *request, const char *rule_id, struct subject *ret);

/* The plan of a rule that a request has chosen; an empty name if it has none of its plans. */
struct recent_plan;
void weir_plan_of(struct weir *weir, const struct weir_request *request, sv rule_id, struct recent_plan *ret);
/* The subject that a person names, as weir_subject finds it for a request, and whether its rule has plans. Returns what
 * named_begin returns. */
struct subject_name;
int weir_name_subject(struct weir *weir, const struct subject_name *name, struct subject *ret, bool *ret_plans,
                      struct weir_error *error);

/* Writes the client's address as rules see it. Returns its length; 0 if there is none. */
size_t weir_client(struct weir *weir, const struct weir_request *request, char out[IP_TEXT_MAX]);

/* The same for a refusal because of a penalty; *ret is for penalised_add. */
bool weir_penalised(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                    int64_t now_us, struct penalised_entry *ret);
/* Looks at the penalties of these subjects, which are sorted by rule. ret[i].rest_us is 0 if none is in force: it is over
 * or lifted, its rule is gone or in shadow mode, or an override exempts the subject. */
void weir_look_penalties(struct weir *weir, const struct penalised_entry *entries, size_t count, int64_t now_us,
                         struct penalty_view *ret);

struct weir_forgotten {
    struct subject subject; /* for a log */
    bool counted;           /* there was something to forget, on this host or in the store */
};
/* weir_reset; *ret says what it found. */
int weir_forget(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count, int64_t now_us,
                struct weir_forgotten *ret, struct weir_error *error);
/* Lifts the penalty of a subject, and forgets earlier ones. Its counts stay. `counted`: it was penalised. */
int weir_lift(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count, int64_t now_us,
              struct weir_forgotten *ret, struct weir_error *error);

/* Penalises a subject from now on, as if its rule had. *ret is for penalised_add. Returns 0; WEIR_CANNOT_PENALISE, with the
 * reason in `error`, if the rule has no penalties or does not limit the subject; or an error of named_begin. */
enum { WEIR_CANNOT_PENALISE = 1 };
int weir_penalise(struct weir *weir, const struct subject_name *name, int64_t length_us, int64_t now_us,
                  struct penalised_entry *ret, struct weir_error *error);

/* Puts rules in force. Owns `rules` from now on. The caller holds `lock`, or nobody else has the handle yet. */
int weir_install(struct weir *weir, struct rules *rules, struct weir_error *error);
/* The same while others decide and change rules. */
int weir_take_rules(struct weir *weir, struct rules *rules, struct weir_error *error);
void weir_free_retired(struct weir *weir);
/* Sets what weir_rules_error returns. */
void weir_set_rules_error(struct weir *weir, const struct weir_error *error);

/* The rules, all of them good, or an error that names every bad one. `base` may be NULL: a bare list of rules is read under
 * its settings. */
int weir_read_file(struct weir *weir, struct rules **ret, struct weir_error *error);
int weir_read_text(sv text, const struct rules *base, struct rules **ret, struct weir_error *error);

/* Returns the problems that the source of the rules has reported with them; 0: none. */
int weir_problems_of(const struct rules *rules, struct weir_error *error);

int weir_watch_start(struct weir *weir, struct weir_error *error);
void weir_end_threads(struct weir *weir);

#endif
