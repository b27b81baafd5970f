/* Why a request would pass or not: every rule, whether it applies and why, whom it counts for, and the state of each of its
 * cells. Charges nothing, and is as slow as it is thorough. */
#ifndef ENGINE_EXPLAIN_H
#define ENGINE_EXPLAIN_H

#include "engine/bound.h"
#include "engine/named.h"
#include "engine/penalty.h"

struct explained_limit {
    const struct rule_limit *spec;
    struct limit limit;
    struct window window;       /* calendar: the current one */
    uint64_t cost;              /* of the request, in the limit's unit */
    struct limit_report report; /* for that cost */
    bool fits;
    bool unknown;  /* counted in the store, which did not answer */
    uint32_t held; /* of a leased rule: what this host was lent and has not spent */
    /* The used part that may be given back: reservations, and requests in flight. Unknown (false) if the store counts it.
     */
    bool holds_known;
    uint64_t on_hold;
    int64_t lasts_us; /* limit_lasts_us */
};

struct explained_rule {
    const struct rule *rule;
    enum match_reason reason;
    sv detail;                                      /* see enum match_reason */
    sv reading;                                     /* of a rule that applies: the path as read when it does, unless that is
                                                     * its first reading */
    sv by[RULE_BY_MAX];                             /* the subject: values of rule->by; only of a rule that applies */
    struct explained_limit limits[RULE_LIMITS_MAX]; /* likewise; those that count for the subject */
    size_t limit_count;
    sv plan_value;                        /* likewise: the value of the attribute that chooses the plan */
    const struct rule_plan *plan;         /* likewise: the plan that was chosen; NULL: none, or an override is in force */
    const struct rule_override *override; /* likewise: in force; NULL: there is none */
    enum counter_kind counting;           /* COUNTER_SLICE: what is left is what this host has of it */
    struct penalty_view penalty;          /* of a rule that applies and penalises: the subject's, on this host */
};

struct explain_sink {
    void (*request)(struct facts *facts, void *data);            /* first */
    void (*rule)(const struct explained_rule *rule, void *data); /* for each rule, in file order */
    /* last: what a peek answers, with the names of its shadow rules */
    void (*verdict)(const struct weir_request *request, const struct weir_verdict *verdict, void *data);
    /* between the rules and the verdict: each unit in which the request has a cost, and that no limit which applies counts.
     * NULL: nobody wants to know */
    void (*uncounted)(sv unit, void *data);
};

/* The arguments of the sink's functions are valid only during the call. Returns 0 or an error of weir_check. */
int weir_explain(struct weir *weir, const struct weir_request *request, int64_t now_us, const struct explain_sink *sink,
                 void *data);

/* One subject of a rule, whether or not a request is there. `plan` is the name of the plan whose limits to show; empty:
 * those of `last_plan`, if the rule has such a plan, or the rule's own. An override that is in force counts instead. The
 * limits are judged for a cost of 1 in their unit. */
struct subject_question {
    struct subject_name name;
    sv plan, last_plan;
    bool own; /* show the rule's own limits, whatever `last_plan` is */
};

/* Calls `show` once, with a rule that applies; its strings are valid only during the call. Waits for the store until the
 * deadline. Returns 0, an error of named_begin, WEIR_E_INVALID if the rule has no such plan, or WEIR_E_NO_MEMORY. */
int weir_explain_subject(struct weir *weir, const struct subject_question *question, int64_t now_us,
                         void (*show)(const struct explained_rule *rule, void *data), void *data, struct weir_error *error);

/* A subject that a rule knows. */
struct found_subject {
    const struct rule *rule; /* which counts by one attribute */
    sv value;                /* as it is counted */
    bool known;              /* false: the store counts, and was not asked */
    bool used;               /* one of its limits is not unused */
    bool penalised, overridden;
};
struct subject_search {
    sv value; /* as people write it */
    sv after; /* only rules after the one with this id; empty: all */
};
/* Looks for the value as the subject of each rule that is not off and counts by one attribute, in their order. Asks no
 * store: rules that count there are shown with `known` false. `show` returns whether to go on; its argument is valid only
 * during the call. WEIR_E_UNKNOWN_RULE: there is no rule `after`. */
int weir_find_subjects(struct weir *weir, const struct subject_search *search, int64_t now_us,
                       bool (*show)(const struct found_subject *found, void *data), void *data, struct weir_error *error);

#endif
