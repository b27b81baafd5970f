/* The descriptor of a request: a list of entries, each a key and a value, as Envoy's rate limit filter sends it.
 *
 * Texts about a descriptor write the bytes that mean something in them as %XX: `%`, `,` and `#` in the name of an entry,
 * `%`,
 * `,` and `=` in a text of all entries. So no key and no value can look like another entry. */
#ifndef RULES_DESCRIPTOR_H
#define RULES_DESCRIPTOR_H

#include "base/sv.h"

enum {
    DESCRIPTOR_KEY_MAX = 300,   /* bytes of an entry's name in a rule */
    DESCRIPTOR_TEXT_MAX = 4096, /* bytes of descriptor_text() and descriptor_keys() */
};

/* ---- names of entries in rules: "user", "user#2" for the second entry with this key, "a%23b" for the key a#b ---- */

/* Reads a name as people write it. `to` has room for it three times. False: not a name, and *ret_allowed says what is. */
bool descriptor_name_read(sv text, char *to, sv *ret, const char **ret_allowed);
/* Whether the name of each entry is its key: there are few, no key comes twice, and none has a byte that is written as %XX.
 * Most descriptors are so, and a name is then found by comparing it with keys. */
bool descriptor_is_plain(const struct weir_request *request);
/* Returns the entry with this name, or NULL. */
const struct weir_header *descriptor_find(const struct weir_request *request, sv name);
/* Returns the name of an entry, made in `room` if need be; empty if it is longer than any that a rule can have. */
sv descriptor_name(const struct weir_request *request, size_t entry, char room[DESCRIPTOR_KEY_MAX]);

/* ---- texts. One that is longer than its room has a hash in place of a part of it, after "%#" ---- */

/* "user,plan,user#2": the names of all entries, in their order. Empty if there is no descriptor. */
sv descriptor_keys(const struct weir_request *request, char room[DESCRIPTOR_TEXT_MAX]);
sv descriptor_plain_keys(const struct weir_request *request, char room[DESCRIPTOR_TEXT_MAX]); /* if it is plain */
/* "user=ann,plan=free": all entries, in their order. Empty if there is no descriptor. */
sv descriptor_text(const struct weir_request *request, char room[DESCRIPTOR_TEXT_MAX]);
/* Reads a text of all entries, as descriptor_text() writes it or with other digits in its %XX. Returns the number of
 * entries, which lie in `bytes` (room for as many as the text has); 0: not such a text. */
size_t descriptor_read(sv text, char *bytes, struct weir_header entries[WEIR_DESCRIPTOR_MAX]);

#endif
