/* The history of changes, and undoing them. On SQLite, MariaDB and PostgreSQL. */
#include <pthread.h>

#include "source/show.h"
#include "sources.h"

static int show_event(const struct source_event *event, void *data, struct weir_error *e)
{
    struct buf *out = data;
    (void)e;
    assert_true(event->at.len >= 20);
    assert_true(sv_eq(event->who, SV("tester")));
    assert_true(sv_eq(event->note, SV("a note")));
    buf_printf(out, "%lld %.*s %.*s %.*s [%.*s] [%.*s]\n", (long long)event->number, SV_FMT(event->what),
               SV_FMT(event->table), SV_FMT(event->key), SV_FMT(event->before), SV_FMT(event->after));
    return 0;
}

static void expect_history(struct source *source, const char *id, unsigned most, const char *expected)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    buf_add(&out, SV(""));
    good(source_history(source, weir_str(id), 0, most, show_event, &out, &error));
    assert_string_equal(out.ptr, expected);
    buf_done(&out);
}

static int64_t undo(struct source *source, const char *id, int64_t number)
{
    struct source_undone done = { .number = -1 };
    good(source_undo(source, weir_str(id), number, me, &done, &error));
    assert_non_null(done.what);
    int64_t undone = done.number;
    source_undone_done(&done);
    return undone;
}

/* `change`: what it did, the rule, the table and the row. */
static void expect_undone(struct source_undone *done, const char *what, const char *change, const char *text)
{
    char found[600];
    struct buf out;
    buf_init(&out, 1000);
    snprintf(found, sizeof found, "%.*s %.*s %.*s %.*s", SV_FMT(done->change), SV_FMT(done->rule), SV_FMT(done->table),
             SV_FMT(done->row));
    source_undone_text(done, &out);
    assert_string_equal(done->what, what);
    assert_string_equal(found, change);
    assert_string_equal(out.ptr, text);
    buf_done(&out);
    source_undone_done(done);
}

#define A1 "{\"id\":\"a\",\"limits\":[\"1 per 1s\"]}"
#define A2 "{\"id\": \"a\", \"limits\": [{\"max\": 2, \"per\": \"1s\"}]}"

static void every_change_is_kept(void **state)
{
    struct source *source = fresh_source(*state);
    char id[64];
    put(source, "{ id: a, limits: [1 per 1s] }");
    good(set(source, "a", "max", "2"));
    good(set(source, "a", "max", "2")); /* changes nothing */
    good(source_enable(source, SV("a"), false, me, &error));
    good(source_throttle(source, SV("/x"), 5, 60000000, RULE_NEVER_EXPIRES, me, id, &error));
    good(source_put_settings(source, SV("{\"ipv6_prefix\": 48}"), me, &error));
    good(source_remove(source, SV("a"), me, &error));
    bad(set(source, "a", "max", "3"), "there is no rule"); /* not in the history */
    expect_history(source, "", 100,
                   "6 remove WEIR_RULES a [{\"enabled\":false,\"rule\":" A2 "}] []\n"
                   "5 add WEIR_SETTINGS ipv6_prefix [] [{\"value\":48}]\n"
                   "4 add THROTTLED_CALLS 1 [] [{\"NORMALIZED_CALL\":\"/x\",\"MAX_LOCKS\":5,\"LOCK_TIMEOUT_SECONDS\":60,"
                   "\"THROTTLE_EXPIRATION\":null}]\n"
                   "3 disable WEIR_RULES a [{\"enabled\":true,\"rule\":" A2 "}] [{\"enabled\":false,\"rule\":" A2 "}]\n"
                   "2 change WEIR_RULES a [{\"enabled\":true,\"rule\":" A1 "}] [{\"enabled\":true,\"rule\":" A2 "}]\n"
                   "1 add WEIR_RULES a [] [{\"enabled\":true,\"rule\":" A1 "}]\n");
    expect_history(source, "throttled-call-1", 1,
                   "4 add THROTTLED_CALLS 1 [] [{\"NORMALIZED_CALL\":\"/x\",\"MAX_LOCKS\":5,\"LOCK_TIMEOUT_SECONDS\":60,"
                   "\"THROTTLE_EXPIRATION\":null}]\n");
    expect_history(source, "nobody", 100, "");
    source_close(source);
}

static void undoing_goes_back_step_by_step(void **state)
{
    struct source *source = fresh_source(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    put(source, "{ id: b, limits: [9 per 1s] }");
    good(set(source, "a", "max", "2"));
    good(source_enable(source, SV("a"), false, me, &error));
    good(source_remove(source, SV("a"), me, &error));
    expect_rules(source, NULL, "b 9 per 1s");
    assert_int_equal(undo(source, "a", 0), 5);
    expect_rules(source, NULL, "b 9 per 1s; disabled a 2 per 1s");
    assert_int_equal(undo(source, "a", 0), 4);
    expect_rules(source, NULL, "a 2 per 1s; b 9 per 1s");
    assert_int_equal(undo(source, "a", 0), 3);
    expect_rules(source, NULL, "a 1 per 1s; b 9 per 1s");
    /* What was undone can be done again by its number. */
    assert_int_equal(undo(source, "", 8), 8);
    expect_rules(source, NULL, "a 2 per 1s; b 9 per 1s");
    assert_int_equal(undo(source, "a", 0), 3);
    assert_int_equal(undo(source, "a", 0), 1);
    expect_rules(source, NULL, "b 9 per 1s");
    assert_int_equal(undo(source, "", 0), 2);
    expect_rules(source, NULL, "");
    bad(source_undo(source, SV(""), 0, me, NULL, &error), "there is no such change to undo");
    bad(source_undo(source, SV(""), 999, me, NULL, &error), "there is no such change to undo");
    bad(source_undo(source, SV(""), -1, me, NULL, &error), "numbered from 1");
    source_close(source);
}

static void settings_are_undone_too(void **state)
{
    struct source *source = fresh_source(*state);
    struct source_reading reading;
    good(source_put_settings(source, SV("{\"ipv6_prefix\": 48}"), me, &error));
    good(source_put_settings(source, SV("{\"ipv6_prefix\": 56}"), me, &error));
    assert_int_equal(undo(source, "", 0), 2);
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.rules->settings.ipv6_prefix, 48);
    source_reading_done(&reading);
    assert_int_equal(undo(source, "", 0), 1);
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.row_count, 0);
    source_reading_done(&reading);
    source_close(source);
}

static void settings_have_a_history_of_their_own(void **state)
{
    struct source *source = fresh_source(*state);
    struct source_undone done;
    good(source_put_settings(source, SV("{\"ipv6_prefix\": 48}"), me, &error));
    put(source, A1);
    good(source_put_settings(source, SV("{\"ipv6_prefix\": 56}"), me, &error));
    put(source, "{ id: b, limits: [2 per 1s] }");
    expect_history(source, "\n", 10,
                   "3 change WEIR_SETTINGS ipv6_prefix [{\"value\":48}] [{\"value\":56}]\n"
                   "1 add WEIR_SETTINGS ipv6_prefix [] [{\"value\":48}]\n");
    bad(source_undo(source, SOURCE_SETTINGS, 2, me, NULL, &error), "change 2 does not belong to the settings");
    bad(source_undo(source, SV("a"), 1, me, NULL, &error), "change 1 does not belong to rule a");
    good(source_undo(source, SOURCE_SETTINGS, 0, me, &done, &error));
    assert_int_equal(done.number, 3);
    expect_undone(&done, "change", "change  WEIR_SETTINGS ipv6_prefix", "the setting ipv6_prefix is as it was before");
    good(source_undo(source, SOURCE_SETTINGS, 0, me, &done, &error));
    assert_int_equal(done.number, 1);
    expect_undone(&done, "remove", "add  WEIR_SETTINGS ipv6_prefix", "the setting ipv6_prefix is removed");
    bad(source_undo(source, SOURCE_SETTINGS, 0, me, NULL, &error), "there is no such change to undo");
    expect_rules(source, NULL, "a 1 per 1s; b 2 per 1s");
    source_close(source);
}

static void undoing_says_what_it_did(void **state)
{
    struct source *source = fresh_source(*state);
    static const struct {
        const char *what, *change, *text;
    } steps[] = { { "disable", "enable a WEIR_RULES a", "rule a is disabled" },
                  { "enable", "disable a WEIR_RULES a", "rule a is enabled" },
                  { "change", "change a WEIR_RULES a", "rule a is as it was before" },
                  { "remove", "add a WEIR_RULES a", "rule a is removed" } };
    struct source_undone done;
    put(source, A1);
    good(set(source, "a", "max", "3"));
    good(source_enable(source, SV("a"), false, me, &error));
    good(source_enable(source, SV("a"), true, me, &error));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        good(source_undo(source, SV("a"), 0, me, &done, &error));
        expect_undone(&done, steps[i].what, steps[i].change, steps[i].text);
    }
    /* Undoing what was undone. */
    good(source_undo(source, SV("a"), 8, me, &done, &error));
    expect_undone(&done, "add", "undo 1 a WEIR_RULES a", "rule a is back");
    /* The subject is whole, although the history has only its beginning in the column. */
    char subject[501] = "";
    memset(subject, 'x', 500);
    struct source_subject whom = { .text = weir_str(subject) };
    char change[600], text[600];
    snprintf(change, sizeof change, "add b WEIR_OVERRIDES %s", subject);
    snprintf(text, sizeof text, "the override of rule b for %s is removed", subject);
    put(source, "{ id: b, by: [user], limits: [1 per 1s] }");
    good(source_put_override(source, SV("b"), whom, SV("{\"deny\":true}"), me, NULL, &error));
    good(source_undo(source, SV("b"), 0, me, &done, &error));
    expect_undone(&done, "remove", change, text);
    source_close(source);
}

static void undoing_restores_exactly(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);

    char statement[300];
    static const char written[] = "{ \"limits\" :\n [ \"1 per 1s\" ],\"reject\":{\"body\":\"'\"} }";

    snprintf(statement, sizeof statement, "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('a', '%s')",
             "{ \"limits\" :\n [ \"1 per 1s\" ],\"reject\":{\"body\":\"''\"} }");
    hand(sql, statement);
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (7, ' GET  /x/ ', 5, 60, 1900000000250)");
    good(set(source, "a", "mode", "shadow"));
    good(set(source, "throttled-call-7", "max", "6"));
    undo(source, "a", 0);
    undo(source, "throttled-call-7", 0);
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.row_count, 2);
    assert_string_equal(reading.rows[0].text.ptr, written);
    assert_non_null(strstr(reading.rows[1].text.ptr, "2030-03-17T17:46:40.250Z"));
    source_reading_done(&reading);
    expect_rules(source, NULL, "a 1 per 1s; throttled-call-7 5 per 1m fixed_window");
    source_close(source);
    sql_close(sql);
}

static void undoing_is_refused_where_the_row_has_changed(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    good(set(source, "a", "max", "2"));
    good(set(source, "a", "max", "3"));
    bad(source_undo(source, SV(""), 2, me, NULL, &error),
        "change 2 of a cannot be undone, because the row was changed after it");
    hand(sql, "UPDATE WEIR_RULES SET RULE = '{\"limits\":[\"7 per 1s\"]}'");
    bad(source_undo(source, SV("a"), 0, me, NULL, &error), "change 3 of a cannot be undone");
    expect_rules(source, NULL, "a 7 per 1s");
    /* What was bad is not brought back. */
    hand(sql, "UPDATE WEIR_RULES SET RULE = '{'");
    good(source_put(source, SV("{ id: a, limits: [8 per 1s] }"), true, me, &error));
    bad(source_undo(source, SV("a"), 0, me, NULL, &error), "not YAML or JSON");
    expect_rules(source, NULL, "a 8 per 1s");
    /* Nor is what another row has taken meanwhile. */
    char id[64];
    good(source_throttle(source, SV("/x"), 5, 60000000, RULE_NEVER_EXPIRES, me, id, &error));
    good(source_remove(source, weir_str(id), me, &error));
    good(source_throttle(source, SV("//x"), 6, 60000000, RULE_NEVER_EXPIRES, me, id, &error));
    bad(source_undo(source, SV(""), 6, me, NULL, &error), "this would break rule throttled-call-2");
    source_close(source);
    sql_close(sql);
}

/* ---- two who change at once ---- */

enum { CHANGES = 15 };

struct changer {
    struct source *source;
    struct weir_error error;
    int failed;
    unsigned first;
};

static void *change_again_and_again(void *data)
{
    struct changer *c = data;
    for (unsigned i = 0; i < CHANGES; i++) {
        char value[16];
        snprintf(value, sizeof value, "%u", c->first + i);
        c->failed += source_set(c->source, SV("a"), SV("max"), weir_str(value), me, &c->error) < 0;
    }
    return NULL;
}

static int follow_chain(const struct source_event *event, void *data, struct weir_error *e)
{
    struct buf *before = data;
    (void)e;
    /* The newest first: what this one left is what the next one found. */
    if (before->len > 0)
        assert_true(sv_eq(event->after, buf_sv(before)));
    buf_clear(before);
    buf_add(before, event->before);
    return 0;
}

static void two_change_at_once(void **state)
{
    struct changer changers[2] = { { .source = fresh_source(*state), .first = 100 }, { .first = 200 } };
    pthread_t threads[2];
    struct buf chain;
    changers[1].source = open_source(*state);
    put(changers[0].source, "{ id: a, limits: [1 per 1s] }");
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, change_again_and_again, &changers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        if (changers[i].failed)
            fail_msg("%s", changers[i].error.text);
        assert_int_equal(changers[i].failed, 0);
    }
    buf_init(&chain, 1 << 20);
    good(source_history(changers[0].source, SV("a"), 0, 100, follow_chain, &chain, &error));
    assert_int_equal(chain.len, 0); /* all the way back to where it was added */
    buf_done(&chain);
    source_close(changers[0].source);
    source_close(changers[1].source);
}

static void nothing_is_kept_of_what_failed(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    hand(sql, "DROP TABLE WEIR_HISTORY");
    bad(set(source, "a", "max", "2"), "there is no table WEIR_HISTORY");
    expect_rules(source, NULL, "a 1 per 1s");
    bad(source_history(source, SV(""), 0, 10, show_event, NULL, &error),
        "there is no table WEIR_HISTORY; create it with `weir rules init --from ");
    source_close(source);
    sql_close(sql);
}

int main(void)
{
    static const struct place_case cases[] = {
        { "every change is kept", every_change_is_kept },
        { "undoing goes back step by step", undoing_goes_back_step_by_step },
        { "settings are undone too", settings_are_undone_too },
        { "settings have a history of their own", settings_have_a_history_of_their_own },
        { "undoing says what it did", undoing_says_what_it_did },
        { "undoing restores exactly", undoing_restores_exactly },
        { "undoing is refused where the row has changed", undoing_is_refused_where_the_row_has_changed },
        { "two change at once", two_change_at_once },
        { "nothing is kept of what failed", nothing_is_kept_of_what_failed },
    };
    return places_run(cases, sizeof cases / sizeof *cases);
}
