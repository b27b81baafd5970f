/* Rules and rows as people and programs read them. */
#ifndef SOURCE_SHOW_H
#define SOURCE_SHOW_H

#include <jansson.h>

#include "source/source.h"

/* "10 per 1m, 100 per day (UTC)"; "GET,POST /entity/#"; "user, ip". */
void source_show_limits(const struct rule *rule, struct buf *out);
void source_show_match(const struct rule *rule, struct buf *out);
void source_show_by(const struct rule *rule, struct buf *out);

/* "bad", "disabled", "expired", or the rule's mode. All of them, up to NULL: source_row_states. */
extern const char *const source_row_states[];
const char *source_row_state(const struct source_row *row, int64_t now_us);
bool source_problem_is_of(const struct source_problem *problem, const struct source_row *row);

/* "bad", "unused" (its rule is not there, or is bad), "expired", "limits", "deny" or "unlimited". */
const char *source_override_state(const struct source_reading *reading, const struct source_row *row, int64_t now_us);
/* "50000 per 1m", "deny", "unlimited". */
void source_show_override(const struct rule_override *override, struct buf *out);
/* Reads the override of a row that is unused, to show what it would do; its rule and subject are not those of the row.
 * NULL: it is invalid, or out of memory. The caller frees the result. */
struct rules *source_read_unused(const struct source_row *row);
/* The row of an override as one object, its document included. */
void source_override_json(const struct source_reading *reading, const struct source_row *row, struct buf *out);
/* Its document with `rule` and `by`, as a rules file has it. NULL: it was not read, or no memory. */
json_t *source_override_document(const struct source_reading *reading, const struct source_row *row);
/* A row as one object, its rule included. */
void source_row_json(const struct source_reading *reading, const struct source_row *row, struct buf *out);
void source_problem_json(const struct source_problem *problem, struct buf *out);
/* Whether settings that are secret are shown, or "(hidden)" in their place. */
enum source_secrets { SECRETS_HIDDEN, SECRETS_SHOWN };
/* All settings as one object. */
void source_settings_json(const struct source_reading *reading, enum source_secrets secrets, struct buf *out);
/* Writes the result of an undo: "the override of rule api for 4711 is back". */
void source_undone_text(const struct source_undone *undone, struct buf *out);
/* The members of an object, without its braces: the number, what came of it, the same as a text, and the change. */
void source_undone_json(const struct source_undone *undone, struct buf *out);
/* One change of the history, with the row before and after it. */
void source_event_json(const struct source_event *event, enum source_secrets secrets, struct buf *out);

/* A document in YAML or JSON; NULL: it is neither. */
json_t *source_json_load(sv text);
/* The same as JSON in one line; a text that is not a document becomes a string. */
void source_json_add(sv text, struct buf *out);
/* ,"name": and the same; null if the text is empty. */
void source_json_add_member(const char *name, sv text, struct buf *out);

#endif
