/* Where rules live, and how they are changed there: a file, or tables of a database.
 *
 *   THROTTLED_CALLS  rows as they always were: by user, fixed window; the id of the rule is throttled-call-<THROTTLE_ID>
 *   WEIR_RULES       whole rules as JSON documents
 *   WEIR_SETTINGS    the settings, one row for each (NAME, VALUE as JSON)
 *   WEIR_OVERRIDES   overrides as JSON documents, one row for each rule and subject
 *   WEIR_HISTORY     every change that was made through here: who, when, before, after
 *
 * A source is used by one thread at a time. */
#ifndef SOURCE_SOURCE_H
#define SOURCE_SOURCE_H

#include "rules/rules.h"

struct weir_error;
struct source;

/* Checks the address; connects when it first has to, and again after the connection was lost. */
int source_open(struct source **ret, const char *address, struct weir_error *error);
void source_close(struct source *source);
/* The address without its password. */
const char *source_name(const struct source *source);
bool source_is_file(const struct source *source);

/* ---- reading ---- */

struct source_problem {
    sv table; /* "WEIR_RULES", "THROTTLED_CALLS", "WEIR_SETTINGS", "WEIR_OVERRIDES"; of a file: its name */
    sv row;   /* its key (of an override: its subject), or "line 7" */
    sv rule;  /* id of the rule, as far as it is known */
    sv text;  /* what is wrong, and what is allowed */
};

/* One row as it stands, for lists. */
struct source_row {
    sv table;
    sv key;                          /* ID, THROTTLE_ID, NAME or SUBJECT */
    sv rule;                         /* id of the rule; empty for a setting */
    sv text;                         /* the rule, setting or override as JSON */
    bool enabled;                    /* of WEIR_RULES; true for others */
    bool setting;                    /* and no rule */
    uint64_t version;                /* another one whenever the row says something else; not 0 */
    sv updated_at, updated_by, note; /* may be empty */
    const struct rule *parsed;       /* in `rules`; NULL: bad */
    /* A row of an override: the override in `rules`. NULL if it is bad, or if its rule does not exist or is bad. */
    const struct rule_override *override;
};

/* All of it at one instant. */
struct source_reading {
    struct arena arena;
    struct rules *rules;     /* the good ones; bad ones as they are in `last`, if they are there; disabled ones are off */
    struct source_row *rows; /* of rules and settings */
    size_t row_count;
    struct source_row *overrides; /* of tables, by rule and subject; those of a file: see source_read_overrides */
    size_t override_count;
    /* Overrides whose rule was removed: they have no effect, and are not a problem. */
    size_t unused_overrides;
    struct source_problem *problems;
    size_t problem_count; /* at most RULES_ERRORS_MAX */
    size_t unlisted;      /* further problems */
};
/* Returns an error, and no reading, if the source is unreachable or not a source (tables are missing; a file is not YAML
 * and there is no `last`; a table is gone that was there when this source was last read). */
int source_read(struct source *source, const struct rules *last, struct source_reading *ret, struct weir_error *error);
/* The same without the rows: to put the rules in force. */
int source_read_rules(struct source *source, const struct rules *last, struct source_reading *ret,
                      struct weir_error *error);
void source_reading_done(struct source_reading *reading); /* frees reading->rules too, unless it was set to NULL */

/* Which overrides are wanted. */
struct source_overrides {
    sv rule;       /* of this rule; empty: of all */
    sv subject;    /* as the row has it; empty: all */
    sv after_rule; /* of all rules: only those that follow the subject `after` of this rule */
    sv after;      /* only those that follow this subject */
    unsigned most; /* 0: none at all; UINT_MAX: no page, so that those of a file have the order of the file */
};
/* Reads rules and settings, and only these overrides: quickly, although there may be many others. A page of them is in the
 * order of rules and subjects, byte by byte. */
int source_read_overrides(struct source *source, const struct source_overrides *which, struct source_reading *ret,
                          struct weir_error *error);
/* The same for one subject (see override_subject_text()), however it is spelled. WEIR_E_UNKNOWN_RULE: it has none. */
int source_read_override(struct source *source, sv rule, sv subject, struct source_reading *ret, struct weir_error *error);
/* "TABLE: row KEY: rule ID: TEXT" and a line end. */
void source_problem_print(const struct source_problem *problem, struct buf *out);

/* Writes to *ret whether anything has changed since the last source_read. Cheap. */
int source_changed(struct source *source, bool *ret, struct weir_error *error);
/* Waits for timeout_ms, or until the source says that something has changed (returns 1), or wake_fd is readable. Negative:
 * the source is unreachable. */
int source_wait(struct source *source, int timeout_ms, int wake_fd, struct weir_error *error);

/* ---- changing ---- */

/* Writes a file of two parts, whole or not at all (write, fsync, rename). It keeps its mode and owner; a new one has mode
 * 0644. */
int source_write_file(const char *path, sv head, sv text, struct weir_error *error);

/* A change of a file writes it anew, without its comments; it refuses to do so unless this was called. */
void source_drop_comments(struct source *source);

/* The author of a change and the reason for it, for the history. */
struct source_author {
    sv who, note;
};

/* The version of a rule's row, or, if `id` is empty, of all settings together: another number once they change. 0: there
 * is no such rule. */
uint64_t source_version(const struct source_reading *reading, sv id);

/* Conditions of the changes that follow. */
struct source_terms {
    bool dry_run; /* judged as any other, and not written */
    bool enable;  /* source_put: a row that is not enabled is so from then on */
    /* Asked in the transaction, before anything is written, with the version of `id` as it is then; negative: the change is
     * not made, for the reason that it says. May be NULL. */
    int (*check)(uint64_t version, void *data, struct weir_error *error);
    /* Called in a dry run with everything as it would be after the change. Not called if nothing would change. May be NULL.
     */
    int (*look)(const struct source_reading *after, void *data, struct weir_error *error);
    sv id;
    void *data;
};
/* They apply until they are set again. */
void source_set_terms(struct source *source, const struct source_terms *terms);

/* Creates missing tables (WEIR_*, and THROTTLED_CALLS), and triggers that report changes. Writes to *out what it created.
 */
int source_init(struct source *source, struct buf *out, struct weir_error *error);
/* A rule as JSON or YAML. `replace` false: an error if the id is there. Nothing is written unless the rule is good. */
int source_put(struct source *source, sv rule, bool replace, struct source_author author, struct weir_error *error);
/* One field: "max=20", "limits.day.max=20", "mode=shadow", "expires=2027-01-01T00:00:00Z"; also of a row of
 * THROTTLED_CALLS (max, per, expires, path). "enabled=false" is source_enable. */
int source_set(struct source *source, sv id, sv field, sv value, struct source_author author, struct weir_error *error);
/* Changes the rule's document by a JSON merge patch (RFC 7396): {"mode": "shadow", "expires": null}. A patch cannot change
 * the id; `enabled` in it is source_enable. */
int source_patch(struct source *source, sv id, sv patch, struct source_author author, struct weir_error *error);
/* WEIR_RULES: its column ENABLED; a file: the field `enabled`. Either way the rule keeps its mode, except that a rule whose
 * mode is `off` gets `enforce` when it is enabled. A bad row can be disabled. Rows of THROTTLED_CALLS can be neither. */
int source_enable(struct source *source, sv id, bool enabled, struct source_author author, struct weir_error *error);
int source_remove(struct source *source, sv id, struct source_author author, struct weir_error *error);

/* The subject that an override is for. */
struct source_subject {
    sv text;      /* see override_subject_text() */
    size_t count; /* of the values that the text was made of; 0: it is as it was typed */
};
/* Sets the override of a subject of a rule: `document` is JSON or YAML with `limits`, `deny` or `unlimited`, `expires` and
 * `why`. *ret_subject (may be NULL): the subject as it is stored, written before the terms are asked. */
int source_put_override(struct source *source, sv rule, struct source_subject subject, sv document,
                        struct source_author author, struct buf *ret_subject, struct weir_error *error);
/* WEIR_E_UNKNOWN_RULE: there is none. */
int source_remove_override(struct source *source, sv rule, struct source_subject subject, struct source_author author,
                           struct weir_error *error);
/* A rule that limits one call. */
struct source_throttle {
    sv call;  /* "/entity/#", or a method before it */
    sv by;    /* JSON: ["user"]; []: all callers together */
    sv limit; /* JSON: "10 per 60s" in quotes */
    int64_t expires_us;
};
/* The rule of a throttle: added, or, if this call is throttled by these attributes already, its limit, expiry and mode are
 * changed. The id (*ret_id) is the one that the page gives it. WEIR_E_INVALID: THROTTLED_CALLS has a row for the call. */
int source_put_throttle(struct source *source, const struct source_throttle *wanted, struct source_author author,
                        char ret_id[WEIR_ID_MAX + 1], struct weir_error *error);
/* A row of THROTTLED_CALLS: added, or changed if the call is there. *ret_id: id of its rule. */
int source_throttle(struct source *source, sv call, uint64_t max, int64_t per_us, int64_t expires_us,
                    struct source_author author, char ret_id[64], struct weir_error *error);
/* Settings as JSON: {"ids": […]}. */
int source_put_settings(struct source *source, sv settings, struct source_author author, struct weir_error *error);
/* All rules, settings and overrides of a text (YAML or JSON), in one transaction. `replace`: those that are not in it are
 * removed. */
int source_import(struct source *source, sv text, bool replace, struct source_author author, struct buf *out,
                  struct weir_error *error);

struct source_event {
    int64_t number; /* rises */
    sv at, who, note;
    sv what; /* "add", "change", "remove", "enable", "disable", "undo 17"; of a subject: see struct source_act */
    sv table, key, rule;
    sv before, after; /* as JSON; empty: was not there */
};
/* Whether it changed a row, so that it can be undone. */
bool source_event_is_change(const struct source_event *event);
typedef int source_event_row(const struct source_event *event, void *data, struct weir_error *error);
/* In place of the id of a rule, which has no such character: all settings. */
#define SOURCE_SETTINGS SV("\n")

/* The newest first; id empty: of everything. `before`: only changes with a lower number; 0: all. */
int source_history(struct source *source, sv id, int64_t before, unsigned most, source_event_row *row, void *data,
                   struct weir_error *error);
/* An act of a person on a subject of a running service. It changes no row, and it cannot be undone. */
struct source_act {
    const char *what; /* "reset", "penalise", "lift" */
    sv rule, subject; /* the id, and the values as one text */
    sv details;       /* JSON */
};
/* In place of the name of a table, in entries about these. */
#define SOURCE_SUBJECTS "subject"
/* Records it in the history. Does nothing if the rules are in files, which have no history. */
int source_record(struct source *source, const struct source_act *act, struct source_author author,
                  struct weir_error *error);
/* The author and the note are of a form that the history can have. */
int source_check_author(struct source_author author, struct weir_error *error);
struct source_undone {
    int64_t number;      /* of the change that is undone */
    const char *what;    /* came of it: "add", "change", "remove", "enable" or "disable" of the row */
    sv change;           /* what the change did, as in struct source_event */
    sv table, row, rule; /* the row that it changed, likewise; that of an override is its whole subject */
    struct arena arena;  /* of these texts */
};
void source_undone_done(struct source_undone *undone);
/* Undoes a change: number 0 is the newest of `id` (of all rules and settings if it is empty) that is not undone yet.
 * Fails if the row was changed since, or the change does not belong to `id`. `ret` may be NULL. */
int source_undo(struct source *source, sv id, int64_t number, struct source_author author, struct source_undone *ret,
                struct weir_error *error);

#endif
