/* Several requests that are decided together: the parts of a decision. See parts.c. */
#ifndef ENGINE_PARTS_H
#define ENGINE_PARTS_H

#include "engine/decision.h"

/* Returns how many requests are decided together with this one, itself counted; more than WEIR_TOGETHER_MAX are not counted
 * any further. */
size_t request_parts(const struct weir_request *request);
/* Empties what each request asks for besides the verdict. */
void parts_clear(const struct weir_request *request);
/* None of them could be judged. */
void parts_unjudged(const struct weir_request *request, struct weir_verdict *verdict);
/* One of them repeats a header. */
void parts_repeated(const struct decision *d);

/* Planning: counters know what their request does with its costs. */
void parts_set_charging(struct decision *d);
/* Planning: counters of several parts that are the same become one. */
void parts_join(struct decision *d);

/* The outcomes are there, and what was charged is given back if the request is refused: fills `own` and `usage` of each
 * part. After it counters that were joined have the state of the one that counts for them. */
void parts_report(struct decision *d);
/* Shadow rules are decided: says which of them would have refused. */
void parts_report_shadows(struct decision *d);
/* … and fills `own_shadow` of each part. */
void parts_own_shadows(struct decision *d);
/* Calls each_rule of each part. */
void parts_each_rule(struct decision *d);

#endif
