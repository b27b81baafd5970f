/* The configuration of envoyproxy/ratelimit, read as rules.
 *
 * Each node with a `rate_limit` becomes a rule that applies to descriptors of exactly its keys. The service there looks for
 * the exact value first, then for values that end in `*` in the order of the file, then for the key alone. Here a rule
 * names those of its siblings that come before it, in `not`. */
#ifndef SOURCE_ENVOY_H
#define SOURCE_ENVOY_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "rules/rules_file.h"

struct weir_error;

struct envoy_options {
    bool merge;   /* several files may name the same domain, as with MERGE_DOMAIN_CONFIG there */
    bool natural; /* windows of the calendar, in the zone `tz`; else they are counted from 1970, as there */
    sv tz;        /* empty: UTC */
};

struct envoy_config;

struct envoy_config *envoy_config_new(const struct envoy_options *options); /* NULL: no memory */
void envoy_config_free(struct envoy_config *config);
CLEANUP_POINTER(struct envoy_config *, envoy_config_free);

/* Adds a file. Its name and text must remain valid. Errors are kept for envoy_config_write. */
void envoy_config_add(struct envoy_config *config, sv file, sv text);
/* Writes the rules in YAML, with comments on what differs. Returns WEIR_E_RULES if something cannot be taken over: `out`
 * has the errors then, a line for each ("FILE:LINE: …"), and no rules. */
int envoy_config_write(struct envoy_config *config, struct buf *out);

/* The same for files, and for all files of folders, except those whose name begins with a dot. *ret_version: which they
 * were. Errors: WEIR_E_SYSTEM, WEIR_E_RULES; error->text has as many lines as there is room for. */
int envoy_read(const char *const *paths, size_t count, const struct envoy_options *options, struct buf *out,
               struct file_version *ret_version, struct weir_error *error);
/* The version of a file or folder that is there now. False: errno says why there is none. */
bool envoy_version(const char *path, struct file_version *ret);

#endif
