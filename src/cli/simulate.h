/* Parts of `weir simulate`: the replay (simulate.c) and what it prints (simulate_text.c, simulate_json.c). */
#ifndef CLI_SIMULATE_H
#define CLI_SIMULATE_H

#include "base/buf.h"
#include "cli/tally.h"
#include "cli/term.h"

struct simulation_result {
    const char *input; /* name of the input */
    const struct tally *tally;
    struct weir_status status;
    unsigned top; /* subjects to list for each rule */
};

/* out->failed: no memory. */
void simulation_text(const struct simulation_result *result, const struct term *term, struct buf *out);
void simulation_json(const struct simulation_result *result, struct buf *out);

#endif
