/* A subject that was refused, for people to read: the rule's id, and names and values of the attributes that it counts by.
 */
#ifndef REFUSED_SUBJECT_H
#define REFUSED_SUBJECT_H

#include "base/buf.h"
#include "base/hash.h"
#include "rules/rules.h"

enum { SUBJECT_TEXT_MAX = 400 };

struct subject {
    uint64_t key; /* a hash of all of it, before anything was cut: it identifies the subject */
    uint8_t rule_len, by_count;
    bool cut; /* some name or value is not whole: it was too long, or the value is that of a header */
    struct {
        uint16_t name_len, value_len;
    } by[RULE_BY_MAX];
    char text[SUBJECT_TEXT_MAX]; /* the rule's id, then names and values of its `by`, one after another */
};

/* For a rule and the values that it counts by. Only the beginning of a long header is kept, since it may be a password: so
 * nothing that shows a subject can reveal it. */
void subject_fill(struct subject *ret, const struct rule *rule, const struct weir_str *values, const struct hash_key *key);
/* For a key that CL.THROTTLE refused, as if a rule with this id had; `space` as for throttle_take. */
void subject_fill_throttle(struct subject *ret, sv rule, unsigned space, sv key, const struct hash_key *hash_key);
/* Returns the key of a subject of which nothing was cut, from its text: the one that it was filled with, if the hash has
 * the same secret. */
uint64_t subject_find_key(const struct subject *subject, const struct hash_key *key);
/* Bytes that subject_copy copies. */
size_t subject_bytes(const struct subject *subject);
void subject_copy(struct subject *to, const struct subject *from);
sv subject_rule(const struct subject *subject);
sv subject_name(const struct subject *subject, size_t i); /* "user", "header:x-tenant" */
sv subject_value(const struct subject *subject, size_t i);

#endif
