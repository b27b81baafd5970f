/* The counts of a replay: in all, by rule, by subject and over time. */
#ifndef REPLAY_TOTALS_H
#define REPLAY_TOTALS_H

#include "match/match.h"
#include "replay/intern.h"
#include "replay/timeline.h"

/* Series beyond this are still counted in all and by rule; and so are subjects beyond their bounds. */
enum { TOTALS_SERIES_MAX = 1000 }; /* rules with a series of their own */

struct totals_bounds {
    size_t subjects;      /* different ones */
    size_t subject_bytes; /* of their names */
};

/* A rule, by its id: it may come and go, and change, while the replay runs. */
struct totals_rule {
    enum rule_mode mode;      /* as it was last */
    uint64_t applied;         /* requests that it applied to */
    uint64_t passed;          /* … and that passed */
    uint64_t refused;         /* … and that it refused; the rest was refused by other rules */
    uint64_t would_refuse;    /* as a shadow rule */
    struct series *over_time; /* of what it refused, or would have; NULL: nothing yet */
};

struct totals_subject {
    uint32_t rule;
    uint64_t refusals; /* or what would have been */
};

struct totals {
    uint64_t requests, passed, refused;
    uint64_t unmatched;        /* requests that no rule applied to */
    uint64_t bad_lines;        /* lines that are no request, and were skipped; the caller counts them */
    uint64_t unreadable;       /* requests with an address that cannot be read */
    uint64_t shadow_left_out;  /* shadow rules that would have refused and that a verdict had no room to list */
    uint64_t in_flight;        /* requests that touched a limit with `concurrent` */
    uint64_t rule_changes;     /* set_rules lines */
    struct intern ids;         /* of rules */
    struct totals_rule *rules; /* one for each id */
    size_t rule_cap;
    struct intern subject_names;
    struct totals_subject *subjects; /* one for each name */
    size_t subject_cap;
    uint64_t subjects_left_out; /* refusals of subjects beyond the bound */
    struct timeline timeline;
    struct series *passed_over_time, *refused_over_time;
    size_t series_count;
    uint32_t *slots; /* for each rule of the ruleset in force, its index in `rules` */
};

/* Each returns false if out of memory. */
bool totals_init(struct totals *totals, const struct totals_bounds *bounds);
void totals_done(struct totals *totals);

/* These rules are in force from now on. */
bool totals_rules(struct totals *totals, const struct rules *rules);

/* A request, apart from its facts. */
struct totals_seen {
    int64_t now_us;
    const uint32_t *applied; /* the rules that apply: indexes into the rules in force */
    size_t applied_count;
    bool unreadable; /* it has an address that cannot be read */
};
/* One request and its verdict. */
bool totals_request(struct totals *totals, const struct rules *rules, struct facts *facts, const struct totals_seen *seen,
                    const struct weir_verdict *verdict);

/* The parts of a subject's name, one after the other: "ip" and "203.0.113.9". False: there are no more. */
bool subject_next(sv *name, sv *ret_attribute, sv *ret_value);
/* Where the parts begin in the name that `subject_names` holds. */
sv subject_parts(sv name);

/* Indexes of rules and of subjects, the most refused first; the caller frees them. NULL: no memory. */
uint32_t *totals_rules_sorted(const struct totals *totals);
/* Subjects ordered by rule, then by refusals. */
uint32_t *totals_subjects_sorted(const struct totals *totals);

#endif
