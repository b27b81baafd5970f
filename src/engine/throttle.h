/* CL.THROTTLE: a limit whose numbers come with each call. It is counted in the same cells as the rules, by keys that no
 * rule can have. */
#ifndef ENGINE_THROTTLE_H
#define ENGINE_THROTTLE_H

#include "base/sv.h"
#include "limit/gcra.h"

struct weir;

/* `space` keeps apart what has the same key: the number of a Redis database. GCRA_OK: *ret is the answer. */
enum gcra_code weir_throttle(struct weir *weir, unsigned space, sv key, const struct gcra *gcra, int64_t now_us,
                             struct gcra_answer *ret);
/* As if the key had never come. False: there is nothing to forget. */
bool weir_throttle_forget(struct weir *weir, unsigned space, sv key);

#endif
