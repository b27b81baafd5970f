/* The rows of a source, wherever they live, and changes of them. A change is worked out and judged on the rows in memory;
 * only then is it written: to tables in one transaction, or to a file. */
#ifndef SOURCE_BACKEND_H
#define SOURCE_BACKEND_H

#include "rules/included.h"
#include "source/address.h"
#include "source/source.h"
#include "source/sql.h"

enum row_table { TABLE_RULES, TABLE_CALLS, TABLE_SETTINGS, TABLE_OVERRIDES, TABLE_HISTORY, TABLES };

extern const char *const table_names[TABLES];

#define CALL_ID_PREFIX "throttled-call-"

/* The columns of a row of THROTTLED_CALLS beside its key, in their order. */
enum call_column { CALL_PATH, CALL_MAX, CALL_PER, CALL_EXPIRES, CALL_COLUMNS };

struct stored_row {
    enum row_table table;
    sv key;  /* of an override: SUBJECT; `rule` belongs to its key, too */
    sv rule; /* id; empty for a setting */
    sv text; /* RULE, VALUE or OVERRIDE as it stands; of a call: the rule that it makes, as JSON */
    struct sql_value call[CALL_COLUMNS]; /* of a call: as the database writes them */
    bool enabled;
    sv updated_at, updated_by, note;
    sv fault;      /* not empty: why the row is bad, whatever its text is */
    sv file;       /* that it is in, which another may include; empty in a table */
    uint32_t came; /* its number among the rows of its table, as the database gave them */
};

struct seen;

struct snapshot {
    struct arena arena;
    struct stored_row *rows;
    size_t count;
    bool ordered;               /* by table and key; else as they came */
    struct stored_row **by_key; /* made by snapshot_index */
    /* Rows of WEIR_RULES that say what they said before are not in `rows`: their rules are known. */
    const struct seen *seen; /* NULL: all rows are there */
    uint32_t *known;         /* for each of these rules: 1 + the row's number as it came; 0: there is no such row */
    size_t known_count;
};

void snapshot_done(struct snapshot *snapshot);
/* Adds a row in O(1). NULL: no memory. */
struct stored_row *snapshot_add(struct snapshot *snapshot, size_t *cap);
/* Puts ordered rows in order, and makes them findable. */
int snapshot_index(struct snapshot *snapshot, struct weir_error *error);
/* The rows as they are, with room for `more`: for a reading that leaves the snapshot alone. */
int snapshot_copy(const struct snapshot *from, size_t more, struct snapshot *ret, struct weir_error *error);
const struct stored_row *snapshot_find(const struct snapshot *snapshot, enum row_table table, sv key);
const struct stored_row *snapshot_override(const struct snapshot *snapshot, sv rule, sv subject);
/* The row that makes the rule of this id. */
const struct stored_row *snapshot_rule(const struct snapshot *snapshot, sv id);
/* The row for rules_read_rows(). */
struct rule_row row_to_read(const struct stored_row *row);
/* The row for lists; `table`: as people know it, unless the row is in a file. */
struct source_row row_listed(const struct stored_row *row, sv table);
/* As source_version. */
uint64_t snapshot_version(const struct snapshot *snapshot, sv id);

/* ---- seen.c ---- */

/* Another number whenever the row says something else; not 0. */
uint64_t row_version(const struct stored_row *row);

/* A row that was read, and was good. */
struct seen_row {
    uint64_t version; /* seen_version() */
    union {
        struct rule *rule;
        const struct rule_override *override; /* of a row of WEIR_OVERRIDES */
    };
};

/* What was read from the rows of tables. */
struct seen {
    struct rules *rules;   /* NULL: nothing was read, or it cannot be used */
    uint64_t settings;     /* seen_settings() of the rows */
    struct seen_row *rows; /* first those of WEIR_RULES, in the order of their ids */
    size_t count;
    size_t rule_count; /* rows of WEIR_RULES */
    uint32_t *came;    /* numbers of these, in the order in which the database gave them; NULL: in that of their ids */
    uint32_t *slots;   /* 1 + numbers of the other rows, by version: open addressing, at most half full */
    size_t mask;
};
/* The settings of all rows as one number: rules are read under them. */
uint64_t seen_settings(const struct snapshot *snapshot);
void seen_done(struct seen *seen);
/* For at most so many rows; `most_others`: not of WEIR_RULES. Shares the rules. False: no memory. */
bool seen_begin(struct seen *seen, struct rules *rules, uint64_t settings, size_t most, size_t most_others);
/* By which a row is known: all that its rule or override is made of, as one number. The lowest bit: it is enabled. */
uint64_t seen_version(const struct stored_row *row);
/* Rows of WEIR_RULES come first, in the order of their ids. */
void seen_add_rule(struct seen *seen, uint64_t version, struct rule *rule);
void seen_add_other(struct seen *seen, struct seen_row row);
/* After the last rule, when `came` has `count` places: takes out those that are UINT32_MAX, and gives back what is not
 * needed. */
void seen_trim_came(struct seen *seen, size_t count);
/* NULL: no such row was seen. */
const struct seen_row *seen_find(const struct seen *seen, const struct stored_row *row, uint64_t version);
/* The same for rows of WEIR_RULES, one after another as the database gives them. *next is 0 at first. */
const struct seen_row *seen_next(const struct seen *seen, sv id, uint64_t version, size_t *next);
/* The number of the first row of WEIR_RULES whose id is not less. */
size_t seen_place(const struct seen *seen, sv id);

/* ---- snapshot.c ---- */

/* How the rows of a snapshot are read. */
struct snapshot_terms {
    const struct rules *last; /* last good versions for rows that are bad; may be NULL */
    bool rows;                /* the reading has lists of the rows, too */
    bool all;                 /* rows that are not enabled are read as if they were */
    struct seen *seen;        /* what was read before, and afterwards what was read now; NULL: every row is read */
};
/* Takes over the snapshot's memory. Returns 1, and nothing in *ret, if rows that are not in the snapshot must be read after
 * all: only a snapshot with all rows will do. */
int snapshot_read(struct snapshot *snapshot, const struct snapshot_terms *terms, struct source_reading *ret,
                  struct weir_error *error);

/* ---- changes ---- */

struct change {
    const char *what;                /* "add", "change", "remove", "enable", "disable", "undo 17" */
    const struct stored_row *before; /* NULL: was not there */
    const struct stored_row *after;  /* NULL: will not be there */
    bool may_be_bad;                 /* it was, and this is not what makes it so */
};

struct plan {
    struct source *source;
    struct snapshot *snapshot;
    struct arena *arena; /* the snapshot's */
    struct change *changes;
    size_t count, cap;
    struct weir_error *error;
};

/* before or after may be NULL. */
int plan_add(struct plan *plan, const char *what, const struct stored_row *before, const struct stored_row *after);
/* The same with a copy of `after`. */
int plan_put(struct plan *plan, const char *what, const struct stored_row *before, struct stored_row after);
int no_such_rule(struct plan *plan, sv id);
/* 0 if the report has no errors; else the first of them, and how many there are. */
int refuse_report(struct plan *plan, const struct rules_report *report);
/* Puts a rule as JSON in its row. `replace` false: an error if there is one. */
int plan_put_rule(struct plan *plan, sv id, sv text, bool replace);
sv plan_copy(struct plan *plan, sv text); /* plan->error is set where there is no memory */
int no_memory(struct weir_error *error);

/* Works something out, and adds its changes to the plan. */
typedef int plan_maker(struct plan *plan, void *data);
/* Begins, makes a plan, judges it, writes it: all or nothing. */
int source_change(struct source *source, plan_maker *make, void *data, struct source_author author,
                  struct weir_error *error);
/* The same for a change of one override, whose maker finds its row itself, and asks the terms' check. */
int source_change_override(struct source *source, plan_maker *make, void *data, struct source_author author,
                           struct weir_error *error);
/* Reads one rule as it would be read from its row, under the settings that are there; to look at it. NULL after an error.
 * The row of an override is read with its rule. */
struct rules *plan_rule(struct plan *plan, const struct stored_row *row);
bool plan_is_good(struct plan *plan, const struct stored_row *row); /* plan_rule can read it */

/* ---- where rows live ---- */

struct backend {
    /* Reads all rows; with `change` it holds on to them until apply or end. It may leave out overrides that are not in
     * `which` (NULL: it leaves out none). */
    int (*begin)(struct source *source, bool change, const struct source_overrides *which, struct snapshot *ret,
                 struct weir_error *error);
    /* After begin: adds the override of one subject, if it was left out. May be NULL. */
    int (*find)(struct source *source, sv rule, sv subject, struct snapshot *snapshot, struct weir_error *error);
    /* After begin: the rule as it last was, of an id that has no row; ret->text stays empty if nobody knows. May be NULL.
     */
    int (*last)(struct source *source, sv id, struct arena *arena, struct stored_row *ret, struct weir_error *error);
    /* `after`: all rows as they will be. */
    int (*apply)(struct source *source, const struct snapshot *after, const struct plan *plan, struct source_author author,
                 struct weir_error *error);
    void (*end)(struct source *source); /* may be NULL */
    int (*read)(struct source *source, const struct rules *last, bool rows, struct source_reading *ret,
                struct weir_error *error);
    int (*changed)(struct source *source, bool *ret, struct weir_error *error);
    int (*wait)(struct source *source, int timeout_ms, int wake_fd, struct weir_error *error);
    int (*init)(struct source *source, struct buf *out, struct weir_error *error);
};

extern const struct backend table_backend, file_backend;

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
    struct seen seen; /* of the tables, when they were last read */
    bool listening;

    struct file_version file;
    struct buf file_text;
    struct included included; /* by the file */
};

/* Its rules are in files, and have no history. */
static inline bool in_files(const struct source *source)
{
    return source->address.kind == SOURCE_FILE || source->address.kind == SOURCE_ENVOY;
}

/* Another number once source_changed would say something else than before: because something was read or changed. */
uint64_t source_seen(const struct source *source);

/* ---- sql_open.c ---- */

/* Connects source->sql, if there is no connection, or it was lost. */
int source_connect(struct source *source, struct weir_error *error);
/* sql_run of a statement that was put together in a buffer. */
int source_run(struct source *source, const struct buf *statement, const struct sql_value *params, size_t param_count,
               sql_row *row, void *data, uint64_t *ret_changed, struct weir_error *error);

/* ---- schema.c ---- */

const char *table_create(enum row_table table, enum source_kind kind); /* the statement */
/* The names of its columns, in lower case, in the order of the CREATE statement; ends in NULL. */
const char *const *table_columns(enum row_table table);
/* How many columns are the key: the first ones. */
size_t table_keys(enum row_table table);
/* "SELECT ID, RULE, … FROM WEIR_RULES": NULL for a column that is missing. `notes` false: only the columns that rules are
 * made of. */
void table_select(const struct source *source, enum row_table table, bool notes, struct buf *out);
/* "INSERT INTO WEIR_RULES (RULE, …, ID) VALUES (?, …, ?)": the key comes last, or (`numbered`) not at all. */
void table_insert(const struct source *source, enum row_table table, bool numbered, struct buf *out);
/* Whether the table is there with all its columns; to read: with those without which its rows cannot be read. */
int table_check(const struct source *source, enum row_table table, bool to_read, struct weir_error *error);

/* ---- override.c ---- */

enum { SUBJECT_MAX = 1000 }; /* bytes, in a table */

/* Puts rows of overrides, whose texts say whom they are for, in their rows. `rows`: all of the text that they come from. */
int overrides_import(struct plan *plan, struct rule_row *rows, size_t count);

/* ---- throttled_calls.c ---- */

/* Fills id and text, or fault, from the columns. */
int call_read(struct stored_row *row, struct arena *arena, struct weir_error *error);
/* The columns that say what the rule says; WEIR_E_INVALID: THROTTLED_CALLS cannot say that. `old`, `old_rule` (NULL: it was
 * bad): the row before. */
int call_from_rule(const struct rule *rule, const struct stored_row *old, const struct rule *old_rule,
                   struct stored_row *row, struct arena *arena, struct weir_error *error);
/* A bad row with something harmless in each column that is bad, in NORMALIZED_CALL if `path`: so that one of its columns
 * can be set as in any other row, and taken from there. */
int call_stand_in(const struct stored_row *bad, bool path, struct stored_row *ret, struct arena *arena,
                  struct weir_error *error);
int call_take_column(sv field, const struct sql_value *from, struct sql_value *to, struct weir_error *error);
/* Writes the columns of a row. */
void call_write(struct stored_row *row, struct sql_value path, uint64_t max, int64_t per_us, int64_t expires_us,
                struct arena *arena);
/* Returns an error if the call or its max does not fit the columns as every database has them. */
int call_bounds(sv call, uint64_t max, struct weir_error *error);
bool call_same(const struct rule *a, const struct rule *b, bool ignore_case);
/* "POST /entity/#" is a method and a path; the method may be missing. */
void call_split(sv call, sv *ret_method, sv *ret_path);

/* ---- add_throttled_call.c ---- */

/* Finds the row of THROTTLED_CALLS that has the call of `row`, however the two are spelled. *ret stays as it is if there is
 * none. */
int call_find(struct plan *plan, const struct stored_row *row, const struct stored_row **ret);

/* ---- set_field.c ---- */

/* The document with one field changed; `rule`: what it says now. */
int document_set(sv document, const struct rule *rule, sv field, sv value, struct buf *out, struct weir_error *error);
/* The document with a JSON merge patch (RFC 7396) applied to it. */
int document_patch(sv document, sv patch, struct buf *out, struct weir_error *error);
/* The document of an override with `rule` and `by`, as a file has it; values NULL: without them, as a table does. */
int document_of_override(sv document, const struct rule *rule, const sv *values, struct buf *out, struct weir_error *error);
/* The JSON document has this field, and not null in it. */
bool document_has(sv text, const char *field);
bool json_is_valid(sv text);
bool json_is_same(sv a, sv b); /* says the same */

/* ---- history.c ---- */

int history_add(struct source *source, const struct plan *plan, struct source_author author, struct weir_error *error);
/* The rule of this id as it was in the newest entry about it; ret->text stays empty where there is none. */
int history_last_rule(struct source *source, sv id, struct arena *arena, struct stored_row *ret, struct weir_error *error);
/* The keys that rows of THROTTLED_CALLS ever had, and those of whole rules with such an id, as rows of one value; nothing
 * where there is no history. */
int history_call_keys(struct source *source, sql_row *row, void *data, struct weir_error *error);

#endif
