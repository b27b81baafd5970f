/* weir rules: what its parts share. One verb (`list`, `add`, …) is one function. */
#ifndef CLI_RULES_CMD_H
#define CLI_RULES_CMD_H

#include "base/buf.h"
#include "cli/options.h"
#include "cli/term.h"
#include "source/show.h"

/* Exit statuses, beside EXIT_BAD for errors. */
enum { RULES_DONE = 0, RULES_NOTHING = 1 /* nothing was found or changed, or there are bad rows */ };

enum { RULES_OUTPUT_MAX = 256 << 20 };

struct rules_options {
    const char *from, *author, *by, *note, *expires, *why, *admin, *data;
    uint64_t for_ms;
    bool json, replace, row, drop_comments, deny, unlimited, remove;
    struct option_list limits;
    uint64_t most, change;
};

struct rules_call {
    const struct command *command;
    const struct rules_options *options;
    char **words; /* what stands behind the verb */
    size_t word_count;
    struct source *source; /* NULL: the verb asks a running service */
    struct source_author author;
};

/* Each returns the exit status, having said why. */
int rules_list(struct rules_call *call);
int rules_show(struct rules_call *call);
int rules_export(struct rules_call *call);
int rules_history(struct rules_call *call);
int rules_add(struct rules_call *call);
int rules_set(struct rules_call *call);
int rules_disable(struct rules_call *call);
int rules_enable(struct rules_call *call);
int rules_remove(struct rules_call *call);
int rules_undo(struct rules_call *call);
int rules_import(struct rules_call *call);
int rules_throttle(struct rules_call *call);
int rules_override(struct rules_call *call);
int rules_init(struct rules_call *call);
int rules_penalties(struct rules_call *call);
int rules_lift(struct rules_call *call);
int rules_penalise(struct rules_call *call);

/* All of the source. -1 to go on, or the exit status. */
int rules_read_source(struct rules_call *call, struct source_reading *ret);

/* When it expires: --expires, --for, or never. -1 to go on, or the exit status. */
int rules_read_until(const struct rules_call *call, int64_t *ret_us);

/* ---- what they print ---- */

/* The error on stderr, and the status that it means. */
int rules_fail(const struct weir_error *error);
/* An instant without parts of a second, or whatever else the text is. */
void rules_add_time(sv text, struct buf *out);

#endif
