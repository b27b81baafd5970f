/* Makes entries of the list of recent refusals (refused/recent.h) from requests and verdicts. */
#ifndef SERVE_REFUSAL_NOTE_H
#define SERVE_REFUSAL_NOTE_H

#include "refused/recent.h"

/* A refused request; subject NULL: it is not known. `ret` is what recent_add returned. */
void refusal_note(struct recent_refusal *ret, struct weir *weir, const struct weir_request *request,
                  const struct weir_verdict *verdict, const struct subject *subject);
/* A request that a rule in shadow mode would have refused; `limit` is empty if it is not known. */
void refusal_note_shadow(struct recent_refusal *ret, struct weir *weir, const struct weir_request *request, sv limit,
                         const struct subject *subject);
/* A CL.THROTTLE. */
void refusal_note_throttle(struct recent_refusal *ret, const struct subject *subject);

#endif
