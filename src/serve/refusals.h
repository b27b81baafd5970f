/* The newest refusals of all loops, and of earlier runs of the service. Of the thread of the admin loop. */
#ifndef SERVE_REFUSALS_H
#define SERVE_REFUSALS_H

#include "refused/recent.h"

struct server;
struct refusals;

int refusals_new(struct refusals **ret, struct server *server);
void refusals_free(struct refusals *refusals);

/* Adds those of an earlier run, the newest first. */
void refusals_restore(struct refusals *refusals, const struct recent_list *list);
/* Fills an empty list, the newest first, see recent_collect; it may have more than `most`. *ret_left_out: refusals since
 * the start that were not noted. Returns 0 or WEIR_E_NO_MEMORY. */
int refusals_collect(const struct refusals *refusals, uint64_t after, uint64_t until, sv rule, unsigned most,
                     struct recent_list *list, uint64_t *ret_left_out);
/* Fills an empty list with the newest, at most `most`, that came after the last call. */
int refusals_take(struct refusals *refusals, unsigned most, struct recent_list *list);

#endif
