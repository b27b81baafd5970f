/* The output of `weir simulate` for people; replay_json writes the same for programs. */
#ifndef CLI_SIMULATE_H
#define CLI_SIMULATE_H

#include "base/buf.h"
#include "cli/term.h"
#include "replay/replay.h"

struct simulation_result {
    const char *input; /* name of the input */
    const struct totals *totals;
    struct weir_status status;
    unsigned top; /* subjects to list for each rule */
};

/* out->failed: no memory. */
void simulation_text(const struct simulation_result *result, const struct term *term, struct buf *out);

#endif
