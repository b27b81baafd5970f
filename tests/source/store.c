/* Rules in tables: read, changed by hand, changed through weir. On SQLite, MariaDB and PostgreSQL. */
#include "sources.h"

/* The table as people have it, its names in another case. */
static const char old_table[] = "CREATE TABLE throttled_calls (Throttle_Id int PRIMARY KEY, Normalized_Call varchar(256), "
                                "Max_Locks int, Lock_Timeout_Seconds int, Throttle_Expiration bigint DEFAULT NULL)";

static void the_old_table_works_as_it_stands(void **state)
{
    drop_tables(*state);
    struct sql *sql = place_connect(*state);
    hand(sql, old_table);
    hand(sql, "INSERT INTO throttled_calls VALUES (1, '/entity/#', 10, 60, NULL)");
    hand(sql, "INSERT INTO throttled_calls VALUES (12, 'post /entity/#', 0, 1, 1900000000)");
    hand(sql, "INSERT INTO throttled_calls VALUES (2, '/repo/v1/{name}/*', 3, 86400, 1900000000250)");
    struct source *source = open_source(*state);
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.problem_count, 0);
    assert_int_equal(reading.row_count, 3);
    struct rule *const *rules = reading.rules->rules;
    assert_int_equal(reading.rules->rule_count, 3);
    assert_true(sv_eq(rules[0]->id, SV("throttled-call-1")));
    assert_true(sv_eq(rules[2]->id, SV("throttled-call-12")));
    assert_int_equal(rules[0]->kind->by[0].attribute, ATTR_USER);
    assert_int_equal(rules[0]->kind->limits[0].algorithm, LIMIT_FIXED_WINDOW);
    assert_int_equal(rules[0]->kind->limits[0].per_us, 60000000);
    assert_true(rules[0]->kind->rest->expires_us == RULE_NEVER_EXPIRES);
    assert_true(rules[1]->kind->rest->expires_us == INT64_C(1900000000250000));
    assert_true(rules[2]->kind->rest->expires_us == INT64_C(1900000000000000));
    assert_true(sv_eq(rules[2]->kind->conditions[0].is.list[0].text, SV("POST")));
    assert_ptr_equal(reading.rows[0].parsed, rules[0]);
    source_reading_done(&reading);
    source_close(source);
    sql_close(sql);
}

static void bad_rows_are_named_and_hide_no_other(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    hand(sql, "DROP TABLE THROTTLED_CALLS");
    hand(sql, old_table);
    hand(sql, "INSERT INTO throttled_calls VALUES (1, '/good', 10, 60, NULL)");
    hand(sql, "INSERT INTO throttled_calls VALUES (2, '/negative', -1, 60, NULL)");
    hand(sql, "INSERT INTO throttled_calls VALUES (3, '/null', NULL, 60, NULL)");
    hand(sql, "INSERT INTO throttled_calls VALUES (4, '/zero', 1, 0, NULL)");
    hand(sql, "INSERT INTO throttled_calls VALUES (5, '/ends', 1, 1, -5)");
    hand(sql, "INSERT INTO throttled_calls VALUES (6, '//good/', 1, 1, NULL)");
    hand(sql, "INSERT INTO throttled_calls VALUES (7, NULL, 1, 1, NULL)");
    hand(sql, "INSERT INTO throttled_calls VALUES (8, 'no-path', 1, 1, NULL)");
    hand(sql, "INSERT INTO throttled_calls VALUES (9, '/a/*/b', 1, 1, NULL)");
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('fine', '{\"limits\":[\"1 per 1s\"]}')");
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('json', '{\"limits\":[')");
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('regex', '{\"match\":{\"path\":{\"regex\":\"(\"}},"
              "\"limits\":[\"1 per 1s\"]}')");
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('zone', '{\"limits\":[{\"calendar\":\"day\",\"max\":1,"
              "\"tz\":\"Mars/Base\"}]}')");
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE, ENABLED) VALUES ('enabled', '{\"limits\":[\"1 per 1s\"]}', 7)");
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE, ENABLED) VALUES ('off', 'no rule at all', 0)");
    hand(sql, "INSERT INTO WEIR_SETTINGS (NAME, VALUE) VALUES ('ipv6_prefix', '4800')");
    static const char *const said[] = {
        "THROTTLED_CALLS: row 2: rule throttled-call-2: MAX_LOCKS: must be 0 to 4294967295, not \"-1\"",
        "THROTTLED_CALLS: row 3: rule throttled-call-3: MAX_LOCKS: must be 0 to 4294967295, not NULL",
        "THROTTLED_CALLS: row 4: rule throttled-call-4: LOCK_TIMEOUT_SECONDS: must be 1 to 315360000",
        "THROTTLED_CALLS: row 5: rule throttled-call-5: THROTTLE_EXPIRATION: must be NULL, or seconds or milliseconds",
        "row 6: rule throttled-call-6: NORMALIZED_CALL: after normalising this is the same call as in rule throttled-",
        "row 7: rule throttled-call-7: NORMALIZED_CALL: must be a path such as /entity/#",
        "row 8: rule throttled-call-8: NORMALIZED_CALL: \"no-path\": a path must begin with `/`",
        "row 9: rule throttled-call-9: NORMALIZED_CALL: ",
        "WEIR_RULES: row json: rule json: not YAML or JSON",
        "WEIR_RULES: row regex: rule regex: match.path.regex: invalid regular expression",
        "WEIR_RULES: row zone: rule zone: limits[0].tz: ",
        "WEIR_RULES: row enabled: rule enabled: ENABLED: must be 0 or 1",
        "WEIR_SETTINGS: row ipv6_prefix: ipv6_prefix: ",
    };
    expect_problems(source, sizeof said / sizeof *said, said);
    expect_rules(source, NULL, "fine 1 per 1s; throttled-call-1 10 per 1m fixed_window");
    source_close(source);
    sql_close(sql);
}

static void a_bad_row_keeps_its_last_good_version(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    put(source, "{ id: b, limits: [2 per 1s] }");
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1, '/x', 3, 1, NULL)");
    struct source_reading last;
    good(source_read(source, NULL, &last, &error));
    hand(sql, "UPDATE WEIR_RULES SET RULE = '{' WHERE ID = 'a'");
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = -3");
    hand(sql, "UPDATE WEIR_RULES SET RULE = '{\"limits\":[\"4 per 1s\"]}' WHERE ID = 'b'");
    expect_rules(source, last.rules, "a 1 per 1s; b 4 per 1s; throttled-call-1 3 per 1s fixed_window");
    expect_rules(source, NULL, "b 4 per 1s");
    /* Removed is removed, and mended is mended. */
    hand(sql, "DELETE FROM THROTTLED_CALLS");
    hand(sql, "UPDATE WEIR_RULES SET RULE = '{\"limits\":[\"5 per 1s\"]}' WHERE ID = 'a'");
    expect_rules(source, last.rules, "a 5 per 1s; b 4 per 1s");
    source_reading_done(&last);
    source_close(source);
    sql_close(sql);
}

static void missing_tables_are_said_in_a_sentence(void **state)
{
    drop_tables(*state);
    struct source *source = open_source(*state);
    struct sql *sql = place_connect(*state);
    struct source_reading reading;
    bad(source_read(source, NULL, &reading, &error),
        "neither a table THROTTLED_CALLS nor a table WEIR_RULES; create both with `weir rules "
        "init --from ");
    bad(WEIR_E_RULES, "`, or: CREATE TABLE THROTTLED_CALLS (");
    hand(sql, "CREATE TABLE WEIR_RULES (ID varchar(100) PRIMARY KEY, RULE text, UPDATED_AT varchar(40), UPDATED_BY "
              "varchar(40), NOTE varchar(40))");
    bad(source_read(source, NULL, &reading, &error),
        "the table WEIR_RULES has no column ENABLED; the table is created by: CREATE TABLE WEIR_RULES (");
    hand(sql, "ALTER TABLE WEIR_RULES ADD COLUMN enabled smallint DEFAULT 1");
    expect_rules(source, NULL, "");
    bad(source_put(source, SV("{ id: a, limits: [1 per 1s] }"), false, me, &error), "there is no table WEIR_HISTORY");
    bad(source_throttle(source, SV("/x"), 1, 1000000, RULE_NEVER_EXPIRES, me, (char[64]){ 0 }, &error),
        "there is no table THROTTLED_CALLS; create it with `weir rules init --from ");
    bad(WEIR_E_RULES, "`, or: CREATE TABLE");
    expect_rules(source, NULL, "");
    /* Each of the two is enough, for one who never saw the other. */
    hand(sql, "DROP TABLE WEIR_RULES");
    source_close(source);
    source = open_source(*state);
    hand(sql, old_table);
    expect_rules(source, NULL, "");
    /* Making tables leaves those that are there alone. */
    hand(sql, "INSERT INTO throttled_calls VALUES (1, '/x', 3, 1, NULL)");
    struct buf out;
    buf_init(&out, 4000);
    good(source_init(source, &out, &error));
    assert_string_equal(out.ptr, "WEIR_RULES is created\nTHROTTLED_CALLS already exists\nWEIR_SETTINGS is created\n"
                                 "WEIR_OVERRIDES is created\nWEIR_HISTORY is created\n");
    buf_done(&out);
    expect_rules(source, NULL, "throttled-call-1 3 per 1s fixed_window");
    put(source, "{ id: a, limits: [1 per 1s] }");
    source_close(source);
    sql_close(sql);
}

static void a_table_that_is_gone_is_missed(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    struct source_reading reading;
    bool changed = false;
    put(source, "{ id: a, limits: [1 per 1s] }");
    expect_rules(source, NULL, "a 1 per 1s");
    hand(sql, "DROP TABLE WEIR_RULES");
    for (int i = 0; i < 2; i++) {
        good(source_changed(source, &changed, &error));
        assert_true(changed);
        bad(source_read(source, NULL, &reading, &error),
            "the table WEIR_RULES is gone; create it again with `weir rules init --from ");
    }
    bad(source_throttle(source, SV("/x"), 1, 1000000, RULE_NEVER_EXPIRES, me, (char[64]){ 0 }, &error),
        "the table WEIR_RULES is gone");
    struct buf out;
    buf_init(&out, 4000);
    good(source_init(source, &out, &error));
    buf_done(&out);
    expect_rules(source, NULL, "");
    hand(sql, "DROP TABLE WEIR_SETTINGS");
    bad(source_read(source, NULL, &reading, &error), "the table WEIR_SETTINGS is gone");
    source_close(source);
    sql_close(sql);
}

/* MariaDB hides tables on which a user has no right. */
static void a_table_out_of_sight_is_not_taken_for_absent(void **state)
{
    struct place *place = *state;
    struct sql *sql = place_connect(place);
    struct source_reading reading;
    struct source *source = fresh_source(place);
    char address[600];
    put(source, "{ id: a, limits: [1 per 1s] }");
    source_close(source);
    hand(sql, "CREATE OR REPLACE USER narrow@localhost IDENTIFIED BY 'x'");
    hand(sql, "GRANT SELECT ON THROTTLED_CALLS TO narrow@localhost");
    hand(sql, "GRANT SELECT ON WEIR_SETTINGS TO narrow@localhost");
    snprintf(address, sizeof address, "mysql://narrow:x%s", strchr(place->address, '@'));
    good(source_open(&source, address, &error));
    bad(source_read(source, NULL, &reading, &error), "this user may not read the table WEIR_RULES");
    hand(sql, "GRANT SELECT ON WEIR_RULES TO narrow@localhost");
    expect_rules(source, NULL, "a 1 per 1s"); /* the history is not needed to read */
    source_close(source);
    hand(sql, "DROP USER narrow@localhost");
    sql_close(sql);
}

static void what_it_takes_to_read_is_little(void **state)
{
    drop_tables(*state);
    struct sql *sql = place_connect(*state);
    hand(sql, "CREATE TABLE WEIR_RULES (ID varchar(100) PRIMARY KEY, RULE text, ENABLED smallint)");
    hand(sql, "CREATE TABLE WEIR_SETTINGS (NAME varchar(100) PRIMARY KEY, VALUE text)");
    hand(sql, "CREATE TABLE WEIR_HISTORY (CHANGED_AT varchar(40))");
    hand(sql, "INSERT INTO WEIR_RULES VALUES ('a', '{\"limits\":[\"1 per 1s\"]}', 1)");
    hand(sql, "INSERT INTO WEIR_SETTINGS VALUES ('ipv6_prefix', '48')");
    struct source *source = open_source(*state);
    expect_problems(source, 0, NULL);
    expect_rules(source, NULL, "a 1 per 1s");
    bad(set(source, "a", "max", "2"),
        "the table WEIR_RULES has no column UPDATED_AT; the table is created by: CREATE TABLE");
    bad(source_put_settings(source, SV("{\"ipv6_prefix\": 56}"), me, &error), "the table WEIR_SETTINGS has no column");
    bad(source_undo(source, SV(""), 0, me, NULL, &error), "the table WEIR_HISTORY has no column HISTORY_ID");
    hand(sql, "DROP TABLE WEIR_RULES");
    struct buf out;
    buf_init(&out, 4000);
    bad(source_init(source, &out, &error), "has no column");
    buf_done(&out);
    source_close(source);
    sql_close(sql);
}

static void enabled_in_many_spellings(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    hand(sql, "DROP TABLE WEIR_RULES");
    hand(sql,
         "CREATE TABLE weir_rules (Id varchar(100) PRIMARY KEY, Rule text, Enabled varchar(9), Updated_At varchar(40), "
         "Updated_By varchar(40), Note varchar(40))");
    static const char *const spellings[] = { "1", "0", "true", "FALSE", "t", "f", "True" };
    for (size_t i = 0; i < 7; i++) {
        char statement[200];
        snprintf(statement, sizeof statement,
                 "INSERT INTO weir_rules (id, rule, enabled) VALUES ('r%zu', '{\"limits\":[\"1 per 1s\"]}', '%s')", i,
                 spellings[i]);
        hand(sql, statement);
    }
    expect_problems(source, 0, NULL);
    expect_rules(
        source, NULL,
        "r0 1 per 1s; r2 1 per 1s; r4 1 per 1s; r6 1 per 1s; disabled r1 1 per 1s; disabled r3 1 per 1s; disabled r5 1 per "
        "1s");
    source_close(source);
    sql_close(sql);
}

static void rules_are_put_set_switched_and_removed(void **state)
{
    struct source *source = fresh_source(*state);
    put(source,
        "id: ocr\nmatch: { event: ocr }\nby: key\nlimits:\n  - 10 per 60s\n  - { name: day, calendar: day, max: 100, "
        "tz: Asia/Shanghai }\n");
    put(source, "{\"id\": \"q'\\\"\\\\;--\", \"limits\": [\"5 per 1m burst 20\"]}");
    expect_rules(source, NULL, "ocr 10 per 1m 100 per day (Asia/Shanghai); q'\"\\;-- 5 per 1m burst 20");
    bad(source_put(source, SV("{ id: ocr, limits: [1 per 1s] }"), false, me, &error), "there is a rule ocr already");
    bad(source_put(source, SV("{ id: bad, limits: [1 per x] }"), false, me, &error), "rule bad: limits[0]: must look like");
    bad(source_put(source, SV("{ limits: [1 per x] }"), false, me, &error), "a rule needs `id`");
    good(set(source, "ocr", "limits.day.max", "120"));
    good(set(source, "ocr", "limits.token_bucket.max", "11"));
    bad(set(source, "ocr", "max", "1"), "has 2 limits; choose one: limits.token_bucket, limits.day");
    bad(set(source, "ocr", "limits.week.max", "1"), "has no limit `week`");
    bad(set(source, "ocr", "mode", "shadowy"), "rule ocr: mode: must be");
    bad(set(source, "ocr", "id", "x"), "an id cannot be changed");
    bad(set(source, "ocr", "colour", "red"), "unknown field; try max");
    bad(set(source, "nobody", "max", "1"), "there is no rule nobody");
    good(set(source, "q'\"\\;--", "max", "6"));
    expect_rules(source, NULL, "ocr 11 per 1m 120 per day (Asia/Shanghai); q'\"\\;-- 6 per 1m burst 20");
    good(source_enable(source, SV("ocr"), false, me, &error));
    expect_rules(source, NULL, "q'\"\\;-- 6 per 1m burst 20; disabled ocr 11 per 1m 120 per day (Asia/Shanghai)");
    /* A rule that is off is checked all the same. */
    bad(set(source, "ocr", "limits.day.max", "-1"), "nothing was changed");
    good(set(source, "ocr", "limits.day.max", "121"));
    good(source_enable(source, SV("ocr"), true, me, &error));
    good(source_remove(source, SV("q'\"\\;--"), me, &error));
    bad(source_remove(source, SV("q'\"\\;--"), me, &error), "there is no rule");
    good(source_put(source, SV("{ id: ocr, limits: [1 per 1s] }"), true, me, &error));
    expect_rules(source, NULL, "ocr 1 per 1s");
    source_close(source);
}

static void a_field_is_set_and_the_rest_stays(void **state)
{
    struct source *source = fresh_source(*state);
    struct source_reading reading;
    put(source, "{\"id\":\"a\",\"limits\":[{\"per\":\"1m\",\"max\":5}],\"by\":[\"user\"],\"match\":{\"path\":\"/x\"}}");
    good(set(source, "a", "max", "20"));
    good(set(source, "a", "mode", "shadow"));
    good(set(source, "a", "method", "[GET, POST]"));
    good(set(source, "a", "expires", "2027-01-01T00:00:00Z"));
    good(set(source, "a", "reject.status", "503"));
    good(set(source, "a", "except.ip", "10.0.0.0/8"));
    good(set(source, "a", "reject.body", "say \"no\" # and 'go'"));
    good(set(source, "a", "expires", ""));
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.row_count, 1);
    static const char wanted[] =
        "{\"id\": \"a\", \"limits\": [{\"per\": \"1m\", \"max\": 20}], \"by\": [\"user\"], \"match\": {\"path\": \"/x\", "
        "\"method\": [\"GET\", \"POST\"]}, \"mode\": \"shadow\", \"reject\": {\"status\": 503, \"body\": \"say \\\"no\\\" "
        "# and "
        "'go'\"}, \"except\": {\"ip\": \"10.0.0.0/8\"}}";
    assert_string_equal(reading.rows[0].text.ptr, wanted);
    assert_true(sv_eq(reading.rows[0].updated_by, SV("tester")));
    assert_true(sv_eq(reading.rows[0].note, SV("a note")));
    source_reading_done(&reading);
    source_close(source);
}

static void calls_are_throttled(void **state)
{
    struct source *source = fresh_source(*state);
    char id[64];
    good(source_throttle(source, SV("GET /entity/#"), 10, 60000000, RULE_NEVER_EXPIRES, me, id, &error));
    assert_string_equal(id, "throttled-call-1");
    good(source_throttle(source, SV("/entity/#"), 20, 60000000, INT64_C(1900000000) * 1000000, me, id, &error));
    assert_string_equal(id, "throttled-call-2");
    /* The same call in another spelling is changed. */
    good(source_throttle(source, SV("get //entity/#/"), 11, 30000000, RULE_NEVER_EXPIRES, me, id, &error));
    assert_string_equal(id, "throttled-call-1");
    expect_rules(source, NULL, "throttled-call-1 11 per 30s fixed_window; throttled-call-2 20 per 1m fixed_window");
    bad(source_throttle(source, SV("entity"), 1, 1000000, RULE_NEVER_EXPIRES, me, id, &error),
        "a path must begin with `/`");
    bad(source_throttle(source, SV("/x"), 1, 1500000, RULE_NEVER_EXPIRES, me, id, &error), "whole seconds");
    good(set(source, "throttled-call-2", "max", "21"));
    good(set(source, "throttled-call-2", "per", "2m"));
    good(set(source, "throttled-call-2", "expires", ""));
    good(set(source, "throttled-call-2", "path", "/other/#"));
    expect_rules(source, NULL, "throttled-call-1 11 per 30s fixed_window; throttled-call-2 21 per 2m fixed_window");
    bad(set(source, "throttled-call-2", "mode", "shadow"), "remove it and add a whole rule");
    bad(set(source, "throttled-call-2", "lease", "true"), "remove it and add a whole rule");
    bad(set(source, "throttled-call-2", "on_store_failure", "deny"), "remove it and add a whole rule");
    bad(set(source, "throttled-call-2", "max", "-1"), "must be");
    /* It would become the call of another row. */
    good(set(source, "throttled-call-2", "method", "GET"));
    bad(set(source, "throttled-call-2", "path", "/entity/#"), "after normalising this is the same call as in rule");
    bad(set(source, "throttled-call-1", "path", "/other/#"), "this would break rule throttled-call-2");
    bad(source_enable(source, SV("throttled-call-2"), false, me, &error), "cannot be switched off");
    bad(source_put(source, SV("{ id: throttled-call-2, limits: [1 per 1s] }"), true, me, &error),
        "a row of THROTTLED_CALLS");
    good(source_remove(source, SV("throttled-call-1"), me, &error));
    expect_rules(source, NULL, "throttled-call-2 21 per 2m fixed_window");
    put(source, "{ id: throttled-call-3, limits: [1 per 1s] }");
    good(source_throttle(source, SV("/more"), 1, 1000000, RULE_NEVER_EXPIRES, me, id, &error));
    assert_string_equal(id, "throttled-call-4");
    source_close(source);
}

static void expect_call(struct source *source, const char *call, const char *expected)
{
    char id[64];
    good(source_throttle(source, weir_str(call), 1, 1000000, RULE_NEVER_EXPIRES, me, id, &error));
    assert_string_equal(id, expected);
}

/* A number that was used before would take over counts and a history that are not its own. */
static void numbers_of_calls_are_used_once(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    expect_call(source, "/a", "throttled-call-1");
    expect_call(source, "/b", "throttled-call-2");
    good(source_remove(source, SV("throttled-call-2"), me, &error));
    expect_call(source, "/c", "throttled-call-3");
    put(source, "{ id: throttled-call-4, limits: [1 per 1s] }");
    good(source_remove(source, SV("throttled-call-4"), me, &error));
    expect_call(source, "/d", "throttled-call-5");
    /* Behind the highest there is none: the lowest that never was. */
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (2147483647, '/last', 1, 1, NULL)");
    expect_call(source, "/e", "throttled-call-6");
    good(source_remove(source, SV("throttled-call-6"), me, &error));
    expect_call(source, "/f", "throttled-call-7");
    expect_call(source, "/last", "throttled-call-2147483647");
    source_close(source);
    sql_close(sql);
}

static void calls_have_bounds_of_their_own(void **state)
{
    struct source *source = fresh_source(*state);
    char id[64], call[300] = "/\xc3\xa9";
    while (strlen(call) < 257)
        strcat(call, "x");
    good(source_throttle(source, weir_str(call), INT32_MAX, 1000000, RULE_NEVER_EXPIRES, me, id, &error));
    strcat(call, "y");
    bad(source_throttle(source, weir_str(call), 1, 1000000, RULE_NEVER_EXPIRES, me, id, &error),
        "a call in THROTTLED_CALLS has at most 256 characters, and this one has 257");
    bad(source_throttle(source, SV("/x"), (uint32_t)INT32_MAX + 1, 1000000, RULE_NEVER_EXPIRES, me, id, &error),
        "MAX_LOCKS in THROTTLED_CALLS is at most 2147483647, not 2147483648");
    good(set(source, id, "per", "2s"));
    bad(set(source, id, "max", "2147483648"), "at most 2147483647");
    bad(set(source, id, "path", call), "at most 256 characters");
    source_close(source);
}

/* SQLite takes anything for a number, and NULL for a key. */
static void keys_that_are_no_numbers(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    hand(sql, "DROP TABLE THROTTLED_CALLS");
    hand(sql, "CREATE TABLE THROTTLED_CALLS (THROTTLE_ID varchar(9) PRIMARY KEY, NORMALIZED_CALL text, MAX_LOCKS int, "
              "LOCK_TIMEOUT_SECONDS int, THROTTLE_EXPIRATION bigint)");
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (NULL, '/a', 1, 1, NULL)");
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES ('x1', '/b', 1, 1, NULL)");
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1.5, '/c', 1, 1, NULL)");
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (hex(zeroblob(50000)), '/d', 1, 1, NULL)");
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (7, '/e', 1, 1, NULL)");
    static const char *const said[] = {
        "THROTTLED_CALLS: THROTTLE_ID: must be a whole number, not NULL; the row's NORMALIZED_CALL is \"/a\"",
        "THROTTLED_CALLS: row x1: rule throttled-call-x1: THROTTLE_ID: must be a whole number, not \"x1\"",
        "row 1.5: rule throttled-call-1.5: THROTTLE_ID: must be a whole number",
        "THROTTLED_CALLS: THROTTLE_ID: must be a whole number, not \"0000",
    };
    expect_problems(source, sizeof said / sizeof *said, said);
    expect_rules(source, NULL, "throttled-call-7 1 per 1s fixed_window");
    bad(source_remove(source, SV("throttled-call-"), me, &error), "there is no rule throttled-call-");
    good(source_remove(source, SV("throttled-call-x1"), me, &error));
    struct buf out;
    buf_init(&out, 4000);
    good(source_import(source, SV("rules:\n- { id: a, limits: [2 per 1s] }\n"), true, me, &out, &error));
    buf_done(&out);
    expect_rules(source, NULL, "a 2 per 1s");
    source_close(source);
    sql_close(sql);
}

static void expect_text(struct source *source, const char *text, bool enabled)
{
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    assert_string_equal(reading.rows[0].text.ptr, text);
    assert_int_equal(reading.rows[0].enabled, enabled);
    source_reading_done(&reading);
}

static void what_is_enabled_is_in_force(void **state)
{
    struct source *source = fresh_source(*state);
    struct source_reading reading;
    put(source, "{ id: a, mode: off, limits: [1 per 1s] }");
    for (int i = 0; i < 2; i++) {
        good(source_enable(source, SV("a"), true, me, &error));
        good(source_read(source, NULL, &reading, &error));
        assert_int_equal(reading.rules->rule_count, 1);
        assert_int_equal(reading.rules->rules[0]->kind->mode, MODE_ENFORCE);
        source_reading_done(&reading);
        good(set(source, "a", "mode", "off"));
        good(source_enable(source, SV("a"), false, me, &error));
    }
    source_close(source);
}

static void a_rule_that_is_off_keeps_its_mode(void **state)
{
    struct source *source = fresh_source(*state);
    struct buf out;
    buf_init(&out, 4000);
    put(source, "{\"id\":\"a\",\"mode\":\"shadow\",\"limits\":[\"1 per 60s\"]}");
    good(source_enable(source, SV("a"), false, me, &error));
    good(source_import(source, SV("rules:\n- { id: a, limits: [1 per 1m], mode: off }\n"), false, me, &out, &error));
    assert_string_equal(out.ptr, "0 added, 0 changed, 0 removed\n");
    expect_text(source, "{\"id\":\"a\",\"mode\":\"shadow\",\"limits\":[\"1 per 60s\"]}", false);
    good(source_import(source, SV("rules:\n- { id: a, limits: [2 per 1m], mode: off }\n"), false, me, &out, &error));
    expect_text(source, "{\"id\": \"a\", \"limits\": [\"2 per 1m\"], \"mode\": \"shadow\"}", false);
    good(set(source, "a", "mode", "enforce"));
    good(source_import(source, SV("rules:\n- { id: a, limits: [3 per 1m], mode: off }\n"), false, me, &out, &error));
    expect_text(source, "{\"id\": \"a\", \"limits\": [\"3 per 1m\"]}", false);
    buf_done(&out);
    source_close(source);
}

static void enabled_in_a_document_is_the_column(void **state)
{
    struct source *source = fresh_source(*state);
    struct source_reading reading;
    struct buf out;
    buf_init(&out, 4000);
    static const char shadow[] = "{\"id\": \"a\", \"limits\": [\"1 per 1m\"], \"mode\": \"shadow\"}";
    good(source_import(source, SV("rules:\n- { id: a, limits: [1 per 1m], mode: shadow, enabled: false }\n"), false, me,
                       &out, &error));
    expect_text(source, shadow, false);
    /* Not said: it stays as it is. */
    good(source_put(source, SV("{ id: a, limits: [1 per 1m], mode: shadow, enabled: null }"), true, me, &error));
    expect_rules(source, NULL, "disabled a 1 per 1m");
    good(source_put(source, SV("{ id: a, limits: [1 per 1m], mode: shadow, enabled: true }"), true, me, &error));
    expect_text(source, shadow, true);
    good(set(source, "a", "enabled", "false"));
    expect_text(source, shadow, false);
    good(source_undo(source, SV("a"), 0, me, NULL, &error));
    expect_text(source, shadow, true);
    bad(source_put(source, SV("{ id: a, limits: [1 per 1m], enabled: 7 }"), true, me, &error),
        "rule a: enabled: must be true or false");
    good(source_remove(source, SV("a"), me, &error));
    /* By hand it may stand in the document. */
    struct sql *sql = place_connect(*state);
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('b', '{\"limits\":[\"1 per "
              "1s\"],\"mode\":\"shadow\",\"enabled\":false}')");
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.rules->rules[0]->kind->mode, MODE_OFF);
    source_reading_done(&reading);
    good(source_enable(source, SV("b"), true, me, &error));
    expect_text(source, "{\"limits\": [\"1 per 1s\"], \"mode\": \"shadow\"}", true);
    sql_close(sql);
    buf_done(&out);
    source_close(source);
}

static void bad_rows_can_be_mended(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('a', '{\"limits\":[')");
    good(source_enable(source, SV("a"), false, me, &error));
    expect_problems(source, 0, NULL);
    expect_text(source, "{\"limits\":[", false);
    bad(source_enable(source, SV("a"), true, me, &error), "rule a: not YAML or JSON");
    good(source_undo(source, SV("a"), 0, me, NULL, &error));
    expect_problems(source, 1, (const char *const[]){ "row a: rule a: not YAML or JSON" });
    good(source_remove(source, SV("a"), me, &error));
    good(source_undo(source, SV("a"), 0, me, NULL, &error));
    expect_text(source, "{\"limits\":[", true);
    good(source_remove(source, SV("a"), me, &error));
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1, 'GET  /x/', -1, 60, 1900000000250)");
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (2, 'POST y', -1, 0, -1)");
    bad(set(source, "throttled-call-1", "max", "-5"), "must be");
    bad(set(source, "throttled-call-1", "by", "ip"), "a row of THROTTLED_CALLS");
    bad(set(source, "throttled-call-1", "hold_max", "50%"), "a row of THROTTLED_CALLS");
    bad(set(source, "throttled-call-1", "unit", "tokens"), "a row of THROTTLED_CALLS");
    bad(set(source, "throttled-call-1", "limits", "5 concurrent"), "a row of THROTTLED_CALLS");
    good(set(source, "throttled-call-1", "max", "5"));
    good(source_remove(source, SV("throttled-call-2"), me, &error));
    good(source_undo(source, SV("throttled-call-2"), 0, me, NULL, &error));
    expect_rules(source, NULL, "throttled-call-1 5 per 1m fixed_window");
    good(set(source, "throttled-call-2", "expires", ""));
    good(set(source, "throttled-call-2", "max", "1"));
    good(set(source, "throttled-call-2", "per", "2m"));
    expect_problems(source, 1, (const char *const[]){ "row 2: rule throttled-call-2: NORMALIZED_CALL: " });
    good(set(source, "throttled-call-2", "path", "/y"));
    expect_rules(source, NULL, "throttled-call-1 5 per 1m fixed_window; throttled-call-2 1 per 2m fixed_window");
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    assert_non_null(strstr(reading.rows[0].text.ptr, "2030-03-17T17:46:40.250Z"));
    assert_non_null(strstr(reading.rows[1].text.ptr, "\"method\":\"POST\",\"path\":\"/y\""));
    source_reading_done(&reading);
    source_close(source);
    sql_close(sql);
}

static void settings_hold_for_calls_too(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    struct source_reading reading;
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1, '/Entity/#', 3, 1, NULL)");
    good(source_put_settings(source, SV("{\"ids\": [\"[A-Z]+\"], \"ipv6_prefix\": 48}"), me, &error));
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.rules->settings.ipv6_prefix, 48);
    assert_int_equal(reading.rules->settings.id_count, 1);
    source_reading_done(&reading);
    bad(source_put_settings(source, SV("{\"ids\": [\"(\"]}"), me, &error), "settings: ids[0]: invalid regular expression");
    bad(source_put_settings(source, SV("{\"id\": []}"), me, &error), "unknown field");
    good(source_put_settings(source, SV("{\"ids\": null}"), me, &error));
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (2, '/entity/#', 3, 1, NULL)");
    expect_problems(source, 0, NULL);
    /* It would make two calls one. */
    bad(source_put_settings(source, SV("{\"ignore_case\": true}"), me, &error), "this would break rule throttled-call-2");
    source_close(source);
    sql_close(sql);
}

static void texts_are_imported_whole_or_not_at_all(void **state)
{
    struct source *source = fresh_source(*state);
    char id[64];
    struct buf out;
    buf_init(&out, 1 << 20);
    put(source, "{ id: old, limits: [9 per 1s] }");
    good(source_throttle(source, SV("/x"), 10, 60000000, RULE_NEVER_EXPIRES, me, id, &error));
    bad(source_import(source, SV("rules:\n- { id: a, limits: [1 per 1s] }\n- { id: b, limits: [x] }\n"), false, me, &out,
                      &error),
        "rule b: limits[0]");
    bad(source_import(source, SV("rules:\n- { id: a, limits: [1 per 1s] }\n- { id: a, limits: [1 per 1s] }\n"), false, me,
                      &out, &error),
        "rule a: another row already has this id");
    expect_rules(source, NULL, "old 9 per 1s; throttled-call-1 10 per 1m fixed_window");
    good(source_import(source,
                       SV("settings: { ipv6_prefix: 48 }\nrules:\n- { id: a, limits: [1 per 1s] }\n- { id: old, limits: "
                          "[8 per 1s] }\n"),
                       false, me, &out, &error));
    assert_string_equal(out.ptr, "2 added, 1 changed, 0 removed\n");
    expect_rules(source, NULL, "a 1 per 1s; old 8 per 1s; throttled-call-1 10 per 1m fixed_window");
    /* What is written can be taken back in, and changes nothing. */
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    struct buf text;
    buf_init(&text, 1 << 20);
    rules_write(reading.rules, &text);
    source_reading_done(&reading);
    buf_clear(&out);
    good(source_import(source, buf_sv(&text), true, me, &out, &error));
    expect_rules(source, NULL, "a 1 per 1s; old 8 per 1s; throttled-call-1 10 per 1m fixed_window");
    buf_clear(&out);
    good(source_import(source, SV("rules:\n- { id: a, limits: [2 per 1s] }\n"), true, me, &out, &error));
    assert_string_equal(out.ptr, "0 added, 1 changed, 3 removed\n");
    expect_rules(source, NULL, "a 2 per 1s");
    buf_done(&text);
    buf_done(&out);
    source_close(source);
}

static void hostile_values_are_data(void **state)
{
    struct source *source = fresh_source(*state);
    struct buf rule;
    buf_init(&rule, 8 << 20);
    put(source, "{ id: a, limits: [1 per 1s] }");
    good(set(source, "a", "event", "'; DROP TABLE WEIR_RULES; -- \" \\ ` ? $1 %s"));
    bad(source_set(source, SV("a"), SV("event"), SV("a\0b"), me, &error), "NUL");
    bad(source_set(source, SV("a"), SV("event"), SV("\xff\xfe"), me, &error), "UTF-8");
    bad(source_set(source, SV("a\0b"), SV("event"), SV("x"), me, &error), "there is no rule");
    bad(source_put(source, SV("{ id: \"\\0\", limits: [1 per 1s] }"), false, me, &error), "NUL");
    bad(source_put(source, SV("\xff"), false, me, &error), "UTF-8");
    buf_add(&rule, SV("{ id: long, limits: [1 per 1s], match: { event: \""));
    for (int i = 0; i < 1 << 17; i++)
        buf_add(&rule, SV("';--\xe2\x82\xac!"));
    buf_add(&rule, SV("\" } }"));
    bad(source_put(source, buf_sv(&rule), false, me, &error), "rule long: match.event");
    struct source_author odd = { .who = SV("'; DROP TABLE WEIR_HISTORY; --"), .note = SV("\"\\\n'") };
    good(source_remove(source, SV("a"), odd, &error));
    struct source_author broken = { .who = SV("\xff") }, wordy = { .note = buf_sv(&rule) };
    bad(source_put(source, SV("{ id: b, limits: [1 per 1s] }"), false, broken, &error), "UTF-8");
    bad(source_put(source, SV("{ id: b, limits: [1 per 1s] }"), false, wordy, &error), "at most 1000 bytes");
    expect_rules(source, NULL, "");
    buf_done(&rule);
    source_close(source);
}

static void ten_thousand_rules_are_read(void **state)
{
    struct source *source = fresh_source(*state);
    struct buf text, out;
    buf_init(&text, 8 << 20);
    buf_init(&out, 4000);
    buf_add(&text, SV("rules:\n"));
    for (int i = 0; i < 10000; i++)
        buf_printf(&text, "- { id: rule-%05d, match: { path: /a/%d/# }, by: user, limits: [%d per 60s] }\n", i, i, i + 1);
    good(source_import(source, buf_sv(&text), false, me, &out, &error));
    assert_string_equal(out.ptr, "10000 added, 0 changed, 0 removed\n");
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.rules->rule_count, 10000);
    assert_int_equal(reading.rules->rules[9999]->kind->limits[0].max, 10000);
    assert_int_equal(reading.problem_count, 0);
    source_reading_done(&reading);
    good(set(source, "rule-05000", "max", "7"));
    bool changed = false;
    good(source_changed(source, &changed, &error));
    assert_true(changed);
    buf_done(&text);
    buf_done(&out);
    source_close(source);
    drop_tables(*state);
}

/* More than are listed. */
static void many_bad_rows_are_in_nobodys_way(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    struct source_reading reading;
    char id[64];
    hand(sql, "BEGIN");
    for (int i = 1; i <= RULES_ERRORS_MAX + 100; i++) {
        char statement[200];
        snprintf(statement, sizeof statement, "INSERT INTO THROTTLED_CALLS VALUES (%d, '/%d', -1, 1, NULL)", i, i);
        hand(sql, statement);
    }
    hand(sql, "COMMIT");
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.problem_count, RULES_ERRORS_MAX);
    assert_int_equal(reading.unlisted, 100);
    source_reading_done(&reading);
    put(source, "{ id: a, limits: [1 per 1s] }");
    bad(source_put(source, SV("{ id: zzz, limits: [x] }"), false, me, &error), "rule zzz: limits[0]");
    good(source_remove(source, SV("throttled-call-7"), me, &error));
    good(source_throttle(source, SV("/1050"), 5, 1000000, RULE_NEVER_EXPIRES, me, id, &error));
    assert_string_equal(id, "throttled-call-1050");
    expect_rules(source, NULL, "a 1 per 1s; throttled-call-1050 5 per 1s fixed_window");
    source_close(source);
    sql_close(sql);
}

static void changes_are_noticed(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    bool changed = false;
    static const char *const changes[] = {
        "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('x', '{\"limits\":[\"1 per 1s\"]}')",
        "UPDATE WEIR_RULES SET RULE = '{\"limits\":[\"2 per 1s\"]}'",
        "UPDATE WEIR_RULES SET ENABLED = 0",
        "INSERT INTO THROTTLED_CALLS VALUES (1, '/x', 3, 1, NULL)",
        "UPDATE THROTTLED_CALLS SET MAX_LOCKS = 4",
        "INSERT INTO WEIR_SETTINGS (NAME, VALUE) VALUES ('ipv6_prefix', '48')",
        "DELETE FROM WEIR_SETTINGS",
        "DELETE FROM WEIR_RULES",
    };
    good(source_changed(source, &changed, &error));
    assert_true(changed);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct source_reading reading;
        good(source_read(source, NULL, &reading, &error));
        source_reading_done(&reading);
        good(source_changed(source, &changed, &error));
        assert_false(changed);
        hand(sql, changes[i]);
        good(source_changed(source, &changed, &error));
        if (!changed)
            print_error("not noticed: %s\n", changes[i]);
        assert_true(changed);
    }
    source_close(source);
    sql_close(sql);
}

int main(void)
{
    static const struct place_case cases[] = {
        { "the old table works as it stands", the_old_table_works_as_it_stands },
        { "bad rows are named and hide no other", bad_rows_are_named_and_hide_no_other },
        { "a bad row keeps its last good version", a_bad_row_keeps_its_last_good_version },
        { "missing tables are said in a sentence", missing_tables_are_said_in_a_sentence },
        { "a table that is gone is missed", a_table_that_is_gone_is_missed },
        { "a table out of sight is not taken for absent", a_table_out_of_sight_is_not_taken_for_absent, ON_MYSQL },
        { "what it takes to read is little", what_it_takes_to_read_is_little },
        { "enabled in many spellings", enabled_in_many_spellings },
        { "rules are put, set, switched and removed", rules_are_put_set_switched_and_removed },
        { "a field is set and the rest stays", a_field_is_set_and_the_rest_stays },
        { "calls are throttled", calls_are_throttled },
        { "numbers of calls are used once", numbers_of_calls_are_used_once },
        { "calls have bounds of their own", calls_have_bounds_of_their_own },
        { "keys that are no numbers", keys_that_are_no_numbers, ON_SQLITE },
        { "what is enabled is in force", what_is_enabled_is_in_force },
        { "enabled in a document is the column", enabled_in_a_document_is_the_column },
        { "a rule that is off keeps its mode", a_rule_that_is_off_keeps_its_mode },
        { "bad rows can be mended", bad_rows_can_be_mended },
        { "settings hold for calls too", settings_hold_for_calls_too },
        { "texts are imported whole or not at all", texts_are_imported_whole_or_not_at_all },
        { "hostile values are data", hostile_values_are_data },
        { "ten thousand rules are read", ten_thousand_rules_are_read },
        { "many bad rows are in nobody's way", many_bad_rows_are_in_nobodys_way },
        { "changes are noticed", changes_are_noticed },
    };
    return places_run(cases, sizeof cases / sizeof *cases);
}
