/* From other limiters to weir's rules. */
#ifndef CLI_CONVERT_H
#define CLI_CONVERT_H

#include "cli/drogon.h"

/* Rules in YAML that do what Hodor did, with comments on what differs. `file`: the name of what was read. */
void hodor_write(const struct hodor *hodor, const char *file, struct buf *out);

#endif
