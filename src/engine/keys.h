/* Names in the store: the key of a rule and a subject, and the field of a limit in it. The same on every host, so nothing
 * secret goes into them, and nothing of this host.
 *
 *     {VALUES}:RULE:BY      {u1}:ocr:key      {203.0.113.7,ann}:login:ip,user      {*}:all:
 *
 * The text in the braces decides in which part of a cluster a key lies, so all keys of one subject lie in the same part.
 * Bytes with a meaning of their own are written as %XX. A long value, and every value of a header, which may be a password,
 * is written as # and the first half of its SHA-256. An empty value, which the entry of a descriptor may have, is %. */
#ifndef ENGINE_KEYS_H
#define ENGINE_KEYS_H

#include "engine/bound.h"
#include "engine/store.h"

/* The end of a rule's keys, "}:ocr:key", made once for a rule. At most KEY_END_MAX bytes are written; returns how many. */
enum { KEY_END_MAX = 212 };
size_t key_write_end(char to[KEY_END_MAX], const struct rule *rule);
/* A whole key for these values of the rule's `by`. At most STORE_KEY_MAX bytes; returns how many. */
size_t key_write(char to[STORE_KEY_MAX], const struct bound_rule *rule, const sv *values);
size_t key_write_facts(char to[STORE_KEY_MAX], const struct bound_rule *rule, struct facts *facts);

/* "day.c". Returns its length. */
size_t field_write(char to[STORE_FIELD_MAX], const struct rule_limit *limit);
/* The same for a limit that requests bring: each length of its window counts apart. */
size_t field_write_given(char to[STORE_FIELD_MAX], const struct rule_limit *limit, int64_t length_us);

#endif
