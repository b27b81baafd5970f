/* CL.THROTTLE: a limit whose numbers come with each call. Its counts are in the same cells as those of the rules, under
 * keys that no rule can have. */
#ifndef THROTTLE_THROTTLE_H
#define THROTTLE_THROTTLE_H

#include "base/sv.h"
#include "throttle/gcra.h"

struct cells;

/* `space` separates equal keys: the number of a Redis database. Returns GCRA_OK if *ret is the answer. */
enum gcra_code throttle_take(struct cells *cells, unsigned space, sv key, const struct gcra *gcra, int64_t now_us,
                             struct gcra_answer *ret);
/* Returns false if there is nothing to forget. */
bool throttle_forget(struct cells *cells, unsigned space, sv key);

#endif
