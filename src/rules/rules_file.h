/* A rules file: its bytes, and what tells one version of it from the next. */
#ifndef RULES_RULES_FILE_H
#define RULES_RULES_FILE_H

#include "base/buf.h"

struct weir_error;

struct file_version {
    uint64_t device, inode, bytes;
    int64_t modified_ns, changed_ns;
};

/* Its bytes (at most RULES_BYTES_MAX, and `out` has room for as many), and the version that they are of; the version also
 * if they are too many (WEIR_E_RULES). WEIR_E_SYSTEM: "FILE: cannot be read: …". */
int rules_file_read(const char *path, struct buf *out, struct file_version *ret_version, struct weir_error *error);
/* The version that is there now. False: errno says why there is none. */
bool rules_file_version(const char *path, struct file_version *ret);
bool file_version_same(const struct file_version *a, const struct file_version *b);
/* Written long enough ago to be whole, as far as can be told. */
bool file_version_settled(const struct file_version *version);

#endif
