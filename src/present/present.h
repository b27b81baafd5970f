/* Verdicts and explanations as texts for people and programs. The functions of <weir/weir.h> that make such texts
 * (weir_headers, weir_refuse, weir_verdict_json, weir_subject_text) are in this folder, too.
 *
 * The texts contain ids and values as they are, also characters that a terminal must not get. */
#ifndef PRESENT_PRESENT_H
#define PRESENT_PRESENT_H

#include "base/buf.h"
#include "engine/explain.h"
#include "refused/subject.h"

/* ---- verdicts ---- */

enum { VERDICT_JSON_MAX = 16384 }; /* bytes of any verdict as JSON: each byte of its ids may be escaped */
/* Adds what weir_verdict_json writes. */
void verdict_json(const struct weir_request *request, const struct weir_verdict *verdict, struct buf *out);

enum { SUBJECT_SHOWN_MAX = 6 * SUBJECT_TEXT_MAX + 8 * RULE_BY_MAX };
/* Adds `ip="203.0.113.7" user="ann"`, the values as JSON; at most SUBJECT_SHOWN_MAX bytes with a NUL. */
void subject_text(const struct subject *subject, struct buf *out);

/* ---- times ---- */

enum { SPAN_TEXT_MAX = 40 };
/* Writes a length of time in its two largest units: "3 h 20 min", "250 ms". */
void span_text(int64_t us, char out[SPAN_TEXT_MAX]);
/* The same for a time to wait, rounded up to what is shown, and to whole seconds from one second on: "53 s". */
void wait_text(int64_t us, char out[SPAN_TEXT_MAX]);

/* ---- explanations ---- */

/* Sentences without their full stop. Each is added to `out`, which needs up to EXPLAIN_TEXT_MAX bytes. */
enum { EXPLAIN_TEXT_MAX = 1 << 20 };

/* Adds why the rule does not apply; nothing if it does. */
void explain_reason(const struct explained_rule *rule, const struct weir_request *request, struct buf *out);
/* "counts for ip 203.0.113.7, user ann" */
void explain_subject(const struct explained_rule *rule, struct buf *out);
/* Adds which plan was chosen, or that an override is in force, until when and why; returns whether there is anything to
 * say. */
bool explain_choice(const struct explained_rule *rule, struct buf *out);
/* Adds where a rule counts. Returns false, and adds nothing, if it counts on this host as it should. `has_store`: a store
 * was given. */
bool explain_where(const struct explained_rule *rule, bool has_store, struct buf *out);
/* "penalised for another 12 min, until 2026-03-01T12:00:00Z, after 5 refusals within 1 min; 1 penalty, the next one lasts
 * 30 min". Returns false, and adds nothing, if the rule does not penalise the subject. */
bool explain_penalty(const struct explained_rule *rule, int64_t now_us, struct buf *out);
/* "20 of 20 used; resets in 52 s; retry in 52 s" */
void explain_usage(const struct explained_rule *rule, const struct explained_limit *limit, struct buf *out);
/* "no limit that applies counts the unit byte, so this cost has no effect" */
void explain_uncounted(sv unit, struct buf *out);

/* Why the penalty runs that a verdict may name. It begins as { 0 }. */
struct penalty_cause {
    int64_t rest_us; /* 0: none runs */
    bool by_hand;
    uint32_t after; /* refusals within this time began it */
    int64_t within_us;
};
/* For each rule of an explanation: keeps the penalty that the verdict will name, the longest one. */
void explain_note_penalty(const struct explained_rule *rule, struct penalty_cause *cause);
/* "refused by ocr, limit day: retry in 15 h" */
void explain_verdict(const struct weir_verdict *verdict, const struct penalty_cause *cause, int64_t now_us,
                     struct buf *out);

/* EXPLAIN_APPLYING: those that do not apply are only counted. */
enum explain_which { EXPLAIN_ALL, EXPLAIN_APPLYING };
/* Writes the whole explanation as JSON: request, rules, verdict. Returns what weir_explain returns. */
int explain_json(struct weir *weir, const struct weir_request *request, enum explain_which which, int64_t now_us,
                 struct buf *out);
/* Writes one subject of a rule as JSON: its limits, its override and its penalty. Returns what weir_explain_subject
 * returns. */
int subject_json(struct weir *weir, const struct subject_question *question, int64_t now_us, struct buf *out,
                 struct weir_error *error);

#endif
