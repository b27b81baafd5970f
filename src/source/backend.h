/* The rows of a source, wherever they live, and changes of them. A change is worked out and judged on the rows in memory;
 * only then is it written: to tables in one transaction, or to a file. */
#ifndef SOURCE_BACKEND_H
#define SOURCE_BACKEND_H

#include "rules/rules_file.h"
#include "source/address.h"
#include "source/source.h"
#include "source/sql.h"

enum row_table { TABLE_RULES, TABLE_CALLS, TABLE_SETTINGS, TABLE_HISTORY, TABLES };

extern const char *const table_names[TABLES];

#define CALL_ID_PREFIX "throttled-call-"

/* The numbers of a row of THROTTLED_CALLS, as the database writes them. */
struct call_columns {
    struct sql_value call, max, per, expires;
};

struct stored {
    enum row_table table;
    sv key;
    sv rule; /* id; empty for a setting */
    sv text; /* RULE or VALUE as it stands; of a call: the rule that it makes, as JSON */
    struct call_columns call;
    bool enabled;
    sv updated_at, updated_by, note;
    sv fault; /* not empty: why the row is bad, whatever its text is */
};

struct snapshot {
    struct arena arena;
    struct stored *rows;
    size_t count;
    bool ordered;           /* by table and key; else as they came */
    struct stored **by_key; /* made by snapshot_index */
};

void snapshot_done(struct snapshot *snapshot);
/* Adds a row in O(1). NULL: no memory. */
struct stored *snapshot_add(struct snapshot *snapshot, size_t *cap);
/* Puts ordered rows in order, and makes them findable. */
int snapshot_index(struct snapshot *snapshot, struct weir_error *error);
/* The rows as they are, with room for `more`: for a reading that leaves the snapshot alone. */
int snapshot_copy(const struct snapshot *from, size_t more, struct snapshot *ret, struct weir_error *error);
const struct stored *snapshot_find(const struct snapshot *snapshot, enum row_table table, sv key);
/* The row that makes the rule of this id. */
const struct stored *snapshot_rule(const struct snapshot *snapshot, sv id);
uint64_t row_version(const struct stored *row);
/* As source_version. */
uint64_t snapshot_version(const struct snapshot *snapshot, sv id);
/* Takes over the snapshot's memory. `last` may be NULL; `all`: rows that are not enabled are
 * read as if they were. */
int snapshot_read(struct snapshot *snapshot, const struct rules *last, bool all, struct source_reading *ret,
                  struct weir_error *error);

/* ---- changes ---- */

struct change {
    const char *what;            /* "add", "change", "remove", "enable", "disable", "undo 17" */
    const struct stored *before; /* NULL: was not there */
    const struct stored *after;  /* NULL: will not be there */
    bool may_be_bad;             /* it was, and this is not what makes it so */
};

struct plan {
    struct source *source;
    struct snapshot *snapshot;
    struct arena *arena; /* the snapshot's */
    struct change *changes;
    size_t count, cap;
    struct weir_error *error;
};

struct stored *plan_row(struct plan *plan, struct stored row); /* a copy; NULL: no memory, and plan->error is set */
/* before or after may be NULL. */
int plan_add(struct plan *plan, const char *what, const struct stored *before, const struct stored *after);
sv plan_copy(struct plan *plan, sv text); /* plan->error is set where there is no memory */
int no_memory(struct weir_error *error);

/* Works something out, and adds its changes to the plan. */
typedef int plan_maker(struct plan *plan, void *data);
/* Begins, makes a plan, judges it, writes it: all or nothing. */
int source_change(struct source *source, plan_maker *make, void *data, struct source_author author,
                  struct weir_error *error);
/* Reads one rule as it would be read from its row, under the settings that are there; to look at it. NULL after an error.
 */
struct rules *plan_rule(struct plan *plan, const struct stored *row);

/* ---- where rows live ---- */

struct backend {
    /* Reads all rows; with `change` it holds on to them until apply or end. */
    int (*begin)(struct source *source, bool change, struct snapshot *ret, struct weir_error *error);
    /* `after`: all rows as they will be. */
    int (*apply)(struct source *source, const struct snapshot *after, const struct plan *plan, struct source_author author,
                 struct weir_error *error);
    void (*end)(struct source *source);
    int (*read)(struct source *source, const struct rules *last, struct source_reading *ret, struct weir_error *error);
    int (*changed)(struct source *source, bool *ret, struct weir_error *error);
    int (*wait)(struct source *source, int timeout_ms, int wake_fd, struct weir_error *error);
    int (*init)(struct source *source, struct buf *out, struct weir_error *error);
};

extern const struct backend store_backend, file_backend;

struct source {
    struct source_address address;
    const struct backend *backend;
    bool drop_comments;
    struct source_terms terms;
    bool changed; /* by ourselves since it was last read */
    bool read_once;

    struct sql *sql;
    struct sql_table tables[TABLES]; /* as they were found when they were last read */
    bool known[TABLES];              /* there when the rows were last read */
    struct buf version;
    bool listening;

    struct file_version file;
    struct buf file_text;
};

/* Another number once source_changed would say something else than before: because something was read or changed. */
uint64_t source_seen(const struct source *source);

/* ---- table_backend.c ---- */

int store_connect(struct source *source, struct weir_error *error);
/* "the table WEIR_RULES is missing; make it with …" */
int store_missing(const struct source *source, enum row_table table, struct weir_error *error);
/* Looks at the tables as they are now, and that they can be read: none of them lacks a column that it takes, or is gone. */
int store_tables(struct source *source, struct weir_error *error);

/* ---- schema.c ---- */

const char *table_create(enum row_table table, enum source_kind kind); /* the statement */
/* The names of its columns, in lower case, in the order of the CREATE statement; ends in NULL. */
const char *const *table_columns(enum row_table table);
/* That no column is missing: none at all, or none without which the rows cannot be read. */
int table_check(const struct source *source, enum row_table table, struct weir_error *error);
int table_check_to_read(const struct source *source, enum row_table table, struct weir_error *error);

/* ---- throttled_calls.c ---- */

/* Fills id and text, or fault, from the columns. */
int call_read(struct stored *row, struct arena *arena, struct weir_error *error);
/* The columns that say what the rule says; WEIR_E_INVALID: THROTTLED_CALLS cannot say that. `old`, `old_rule` (NULL: it was
 * bad): the row before. */
int call_from_rule(const struct rule *rule, const struct stored *old, const struct rule *old_rule, struct stored *row,
                   struct arena *arena, struct weir_error *error);
/* A bad row with something harmless in each column that is bad, in NORMALIZED_CALL if `path`: so that one of its columns
 * can be set as in any other row, and taken from there. */
int call_stand_in(const struct stored *bad, bool path, struct stored *ret, struct arena *arena, struct weir_error *error);
int call_take_column(sv field, const struct call_columns *from, struct call_columns *to, struct weir_error *error);
/* What fits the columns as they are made everywhere. */
int call_bounds(sv call, uint64_t max, struct weir_error *error);
bool call_same(const struct rule *a, const struct rule *b, bool ignore_case);

/* ---- set_field.c ---- */

/* The document with one field changed; `rule`: what it says now. */
int document_set(sv document, const struct rule *rule, sv field, sv value, struct buf *out, struct weir_error *error);
/* The JSON document has this field, and not null in it. */
bool document_has(sv text, const char *field);
bool json_is_valid(sv text);
bool json_is_same(sv a, sv b); /* says the same */

/* ---- history.c ---- */

int history_add(struct source *source, const struct plan *plan, struct source_author author, struct weir_error *error);
/* The keys that rows of THROTTLED_CALLS ever had, and those of whole rules with such an id; nothing where there is no
 * history. */
typedef int history_key(sv key, void *data, struct weir_error *error);
int history_call_keys(struct source *source, history_key *row, void *data, struct weir_error *error);

#endif
