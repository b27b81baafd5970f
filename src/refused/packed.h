/* Lists of refused subjects and single refusals as bytes, for a file that outlives the process. Reading believes nothing:
 * bytes that were not written here are refused, or are some other valid list.
 *
 * Subjects are kept by their text, since their keys are hashes with the secret of a table of cells, which the file may
 * outlive. Only a subject that was cut keeps its key: several may have the same text. With another secret it becomes
 * another subject. */
#ifndef REFUSED_PACKED_H
#define REFUSED_PACKED_H

#include "refused/most_refused.h"
#include "refused/recent.h"

/* A list that is sorted, with at most TOP_HISTORY_SUMMED subjects. */
void packed_write_list(const struct top_list *list, struct buf *out);
/* Adds a list to a sum, before top_list_sort. Returns 0, WEIR_E_NO_MEMORY, or WEIR_E_INVALID if it is not a list; then
 * the sum stays as it was. */
int packed_add_list(sv bytes, const struct hash_key *key, struct top_list *sum);

/* All of a refusal but its number. */
void packed_write_refusal(const struct recent_refusal *refusal, struct buf *out);
/* Returns false if it is not a refusal. */
bool packed_read_refusal(sv bytes, const struct hash_key *key, struct recent_refusal *ret);

#endif
