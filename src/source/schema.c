/* The tables: how they are made, and what their columns are called. */
#include "base/err.h"
#include "base/program.h"
#include "source/backend.h"

const char *const table_names[TABLES] = { "WEIR_RULES", "THROTTLED_CALLS", "WEIR_SETTINGS", "WEIR_OVERRIDES",
                                          "WEIR_HISTORY" };

/* Keys are compared byte by byte, and texts may be long. */
#define MYSQL_END ") CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

#define RULES_TABLE(TEXT, END)                                                                                           \
    "CREATE TABLE WEIR_RULES (ID VARCHAR(100) NOT NULL PRIMARY KEY, RULE " TEXT " NOT NULL, ENABLED SMALLINT DEFAULT 1 " \
    "NOT NULL, UPDATED_AT VARCHAR(40), UPDATED_BY VARCHAR(200), NOTE VARCHAR(1000)" END
#define SETTINGS_TABLE(TEXT, END)                                                     \
    "CREATE TABLE WEIR_SETTINGS (NAME VARCHAR(100) NOT NULL PRIMARY KEY, VALUE " TEXT \
    " NOT NULL, UPDATED_AT VARCHAR(40), "                                             \
    "UPDATED_BY VARCHAR(200), NOTE VARCHAR(1000)" END
#define CALLS_TABLE(END)                                                                                          \
    "CREATE TABLE THROTTLED_CALLS (THROTTLE_ID INT NOT NULL PRIMARY KEY, NORMALIZED_CALL VARCHAR(256) NOT NULL, " \
    "MAX_LOCKS INT NOT NULL, LOCK_TIMEOUT_SECONDS INT NOT NULL, THROTTLE_EXPIRATION BIGINT DEFAULT NULL, "        \
    "UNIQUE (NORMALIZED_CALL)" END
/* A subject is compared and sorted byte by byte, blanks at its end included: hence its own type. */
#define OVERRIDES_TABLE(SUBJECT, TEXT, END)                                                                    \
    "CREATE TABLE WEIR_OVERRIDES (RULE_ID VARCHAR(100) NOT NULL, SUBJECT " SUBJECT " NOT NULL, OVERRIDE " TEXT \
    " NOT NULL, UPDATED_AT VARCHAR(40), UPDATED_BY VARCHAR(200), NOTE VARCHAR(1000), PRIMARY KEY (RULE_ID, SUBJECT)" END
#define HISTORY_TABLE(NUMBER, TEXT, END)                                                                              \
    "CREATE TABLE WEIR_HISTORY (HISTORY_ID " NUMBER ", CHANGED_AT VARCHAR(40) NOT NULL, CHANGED_BY VARCHAR(200), "    \
    "NOTE VARCHAR(1000), WHAT VARCHAR(40) NOT NULL, TABLE_NAME VARCHAR(40) NOT NULL, ROW_KEY VARCHAR(200) NOT NULL, " \
    "RULE_ID VARCHAR(200), BEFORE_ROW " TEXT ", AFTER_ROW " TEXT END

const char *table_create(enum row_table table, enum source_kind kind)
{
    static const char *const sqlite[TABLES] = { RULES_TABLE("TEXT", ")"), CALLS_TABLE(")"), SETTINGS_TABLE("TEXT", ")"),
                                                OVERRIDES_TABLE("VARCHAR(1000)", "TEXT", ")"),
                                                HISTORY_TABLE("INTEGER PRIMARY KEY AUTOINCREMENT", "TEXT", ")") };
    static const char *const mysql[TABLES] = {
        RULES_TABLE("MEDIUMTEXT", MYSQL_END), CALLS_TABLE(MYSQL_END), SETTINGS_TABLE("MEDIUMTEXT", MYSQL_END),
        OVERRIDES_TABLE("VARBINARY(1000)", "MEDIUMTEXT", MYSQL_END),
        HISTORY_TABLE("BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY", "LONGTEXT", MYSQL_END)
    };
    static const char *const postgres[TABLES] = { RULES_TABLE("TEXT", ")"), CALLS_TABLE(")"), SETTINGS_TABLE("TEXT", ")"),
                                                  OVERRIDES_TABLE("VARCHAR(1000) COLLATE \"C\"", "TEXT", ")"),
                                                  HISTORY_TABLE("BIGSERIAL PRIMARY KEY", "TEXT", ")") };
    switch (kind) {
    case SOURCE_MYSQL:
        return mysql[table];
    case SOURCE_POSTGRES:
        return postgres[table];
    case SOURCE_SQLITE:
    case SOURCE_FILE:
    case SOURCE_ENVOY:
        break;
    }
    return sqlite[table];
}

const char *const *table_columns(enum row_table table)
{
    static const char *const rules[] = { "id", "rule", "enabled", "updated_at", "updated_by", "note", NULL };
    static const char *const calls[] = { "throttle_id",          "normalized_call",     "max_locks",
                                         "lock_timeout_seconds", "throttle_expiration", NULL };
    static const char *const settings[] = { "name", "value", "updated_at", "updated_by", "note", NULL };
    static const char *const overrides[] = { "rule_id", "subject", "override", "updated_at", "updated_by", "note", NULL };
    static const char *const history[] = { "history_id", "changed_at", "changed_by", "note",      "what", "table_name",
                                           "row_key",    "rule_id",    "before_row", "after_row", NULL };
    static const char *const *const all[TABLES] = { rules, calls, settings, overrides, history };
    return all[table];
}

size_t table_keys(enum row_table table)
{
    return table == TABLE_OVERRIDES ? 2 : 1;
}

/* The columns that rules are made of: the first ones. */
static const size_t needed[TABLES] = { [TABLE_RULES] = 3, [TABLE_CALLS] = 5, [TABLE_SETTINGS] = 2, [TABLE_OVERRIDES] = 3 };

void table_select(const struct source *source, enum row_table table, bool notes, struct buf *out)
{
    const char *const *columns = table_columns(table);
    for (size_t i = 0; columns[i] && (notes || i < needed[table]); i++) {
        const char *name = sql_column(&source->tables[table], columns[i]);
        buf_printf(out, "%s %s", i ? "," : "SELECT", name ? name : "NULL");
    }
    buf_printf(out, " FROM %s", source->tables[table].name);
}

void table_insert(const struct source *source, enum row_table table, bool numbered, struct buf *out)
{
    const struct sql_table *to = &source->tables[table];
    const char *const *columns = table_columns(table);
    size_t count = 0, keys = table_keys(table);
    buf_printf(out, "INSERT INTO %s (", to->name);
    for (size_t i = keys; columns[i]; i++)
        buf_printf(out, "%s%s", count++ ? ", " : "", sql_column(to, columns[i]));
    for (size_t i = 0; i < keys && !numbered; i++)
        buf_printf(out, "%s%s", count++ ? ", " : "", sql_column(to, columns[i]));
    for (size_t i = 0; i < count; i++)
        buf_add(out, i ? SV(", ?") : SV(") VALUES (?"));
    buf_char(out, ')');
}

int table_check(const struct source *source, enum row_table table, bool to_read, struct weir_error *error)
{
    const char *const *columns = table_columns(table);
    char room[PROGRAM_WORD_BYTES];
    if (!source->tables[table].there)
        return err_set(error, WEIR_E_RULES, "%s: there is no table %s; create it with `%s rules init --from %s`, or: %s;",
                       source->address.shown, table_names[table], program_command(),
                       program_word(source->address.shown, room), table_create(table, source->address.kind));
    for (size_t i = 0; columns[i] && (!to_read || i < needed[table]); i++) {
        if (sql_column(&source->tables[table], columns[i]))
            continue;
        char upper[72] = "";
        for (size_t j = 0; columns[i][j] && j + 1 < sizeof upper; j++)
            upper[j] = columns[i][j] >= 'a' && columns[i][j] <= 'z' ? (char)(columns[i][j] - 'a' + 'A') : columns[i][j];
        return err_set(error, WEIR_E_RULES, "%s: the table %s has no column %s; the table is created by: %s;",
                       source->address.shown, table_names[table], upper, table_create(table, source->address.kind));
    }
    return 0;
}
