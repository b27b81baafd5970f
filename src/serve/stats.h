/* What one loop counts: decisions by rule and outcome, how long they took, and the subjects that were refused most. Written
 * by its loop alone, read by others at any time. */
#ifndef SERVE_STATS_H
#define SERVE_STATS_H

#include <weir/weir.h>

#include "base/buf.h"

struct stats;

int stats_new(struct stats **ret);
void stats_free(struct stats *stats);

/* Some decisions that were made together. elapsed_ns: from the time that they were read to the time that they were decided,
 * each. */
void stats_decided(struct stats *stats, struct weir *weir, const struct weir_request *requests,
                   const struct weir_verdict *verdicts, size_t count, int64_t now_us, uint64_t elapsed_ns);

#endif
