/* Who is refused most, now: a list of fixed size, with a bound on its error.
 *
 * Space-saving (Metwally, Agrawal, El Abbadi 2005): as many subjects as fit are counted exactly. A newcomer takes the place
 * of the one with the smallest count, and begins with that count, which is its error: it may have come as often before.
 * With K places and N refusals, count - error <= true count <= count, whoever came more than N / K times has a place, and
 * whoever has none came at most as often as the smallest count.
 *
 * "Now" is two windows of TOP_WINDOW_US that follow each other, the current one and the one before; they begin at the same
 * time for everybody. Lists of windows and of threads add up: who is missing in one is taken for its smallest count there,
 * so that the bounds hold for the sum. */
#ifndef ENGINE_TOP_H
#define ENGINE_TOP_H

#include "base/buf.h"
#include "engine/bound.h"

enum { TOP_PLACES = 1000, SUBJECT_TEXT_MAX = 400 };
#define TOP_WINDOW_US (30 * US_PER_S)

/* Whom a refusal was for. */
struct subject {
    uint64_t key; /* a hash of all of it, before anything was cut; this says who is who */
    uint8_t rule_len, by_count;
    bool cut; /* some name or value is not whole: it was too long, or the value is that of a header */
    struct {
        uint16_t name_len, value_len;
    } by[RULE_BY_MAX];
    char text[SUBJECT_TEXT_MAX]; /* the rule's id, then names and values of its `by`, one after another */
};

/* Of a refused request. False: it was refused by no rule, or its rule has been changed since and does not apply. */
bool weir_subject(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                  struct subject *ret);
/* Of a key that CL.THROTTLE refused, as if it were that of a rule by this name; `space` as for weir_throttle. */
void weir_throttle_subject(struct weir *weir, sv rule, unsigned space, sv key, struct subject *ret);
/* Of a rule and the values that it counts by. Only the beginning of a long header is kept, since it may be a password; so
 * nothing that shows a subject can give one away. */
void subject_fill(struct subject *ret, const struct rule *rule, const struct weir_str *values, const struct hash_key *key);
sv subject_rule(const struct subject *subject);
sv subject_name(const struct subject *subject, size_t i); /* "user", "header:x-tenant" */
sv subject_value(const struct subject *subject, size_t i);

/* Used by one thread at a time. */
struct top;
int top_new(struct top **ret, unsigned places);
void top_free(struct top *top);
void top_add(struct top *top, const struct subject *subject, int64_t now_us);

struct top_entry {
    uint64_t count, error;
    struct subject subject;
};

/* The sum of some lists. */
struct top_list {
    struct top_entry *entries; /* after top_list_sort: each subject once, highest count first */
    size_t count, cap;
    uint64_t total;    /* refusals, of those who are not listed too */
    uint64_t unlisted; /* who is not listed was refused at most so often */
};

/* Room for one more `top`, so that top_collect, which others may have to wait for, asks for no memory. */
int top_list_reserve(struct top_list *list, unsigned places);
void top_collect(struct top *top, int64_t now_us, struct top_list *list);
/* Once, when all are collected. */
void top_list_sort(struct top_list *list);
void top_list_done(struct top_list *list);

#endif
