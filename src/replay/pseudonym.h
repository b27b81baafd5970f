/* Replaces values that identify a person by keyed hashes, in requests and in the rules that these are replayed with. Equal
 * values have equal hashes, and addresses that share a prefix share one of the same length afterwards. So rules decide on
 * the hashes as they would on the values, with the exceptions that pseudonym_rules reports. */
#ifndef REPLAY_PSEUDONYM_H
#define REPLAY_PSEUDONYM_H

#include "base/buf.h"
#include "base/hash.h"
#include "base/ip.h"
#include "rules/rules.h"

/* False: values of this attribute are kept as they are. */
static inline bool pseudonym_hides(enum attribute attribute)
{
    switch (attribute) {
    case ATTR_METHOD:
    case ATTR_PATH:
    case ATTR_ROUTE:
    case ATTR_HOST:
    case ATTR_EVENT:
    case ATTR_DOMAIN:
    case ATTR_DESCRIPTOR_KEYS:
    case ATTR_DESCRIPTOR_LIMIT:
        return false;
    default:
        return true;
    }
}

/* Not for addresses. */
uint64_t pseudonym_hash(const struct hash_key *key, enum attribute attribute, sv text);
/* "hash:0123456789abcdef" and a NUL. Returns the length without it. */
enum { PSEUDONYM_TEXT_MAX = 22 };
size_t pseudonym_text(uint64_t hash, char out[PSEUDONYM_TEXT_MAX]);
/* Writes a value as a JSON string. `mark`: it is an address that pseudonym_ip made. */
void buf_json_pseudonym(struct buf *out, sv value, bool mark);
/* An address of the same family. */
struct ip pseudonym_ip(const struct hash_key *key, const struct ip *ip);

/* Replaces the values that the rules name; the rules belong to the caller alone. A rule that looks at more of a hidden
 * value than whether it equals another one is disabled, and reported. False: no memory. */
typedef void pseudonym_unjudged(sv rule, const char *why, void *data);
bool pseudonym_rules(const struct hash_key *key, struct rules *rules, pseudonym_unjudged *each, void *data);

#endif
