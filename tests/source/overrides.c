/* Overrides in tables: set, removed, read in part, imported, undone; patches of rules. */
#include "base/err.h"
#include "source/backend.h"
#include "source/show.h"
#include "sources.h"

static struct source_subject subject(const char *text)
{
    return (struct source_subject){ .text = weir_str(text) };
}

static void override(struct source *source, const char *rule, const char *whom, const char *document)
{
    good(source_put_override(source, weir_str(rule), subject(whom), weir_str(document), me, NULL, &error));
}

/* "RULE SUBJECT LIMITS, …" of what is in force. */
static void expect_overrides(struct source *source, const struct rules *last, const char *wanted)
{
    struct source_reading reading;
    struct buf out;
    buf_init(&out, 10000);
    good(source_read(source, last, &reading, &error));
    for (size_t i = 0; i < reading.rules->override_count; i++) {
        const struct rule_override *o = &reading.rules->overrides[i];
        buf_printf(&out, "%s%.*s ", i ? ", " : "", SV_FMT(o->rule));
        override_subject_text(o->values, o->value_count, &out);
        buf_char(&out, ' ');
        source_show_override(o, &out);
    }
    assert_string_equal(out.ptr ? out.ptr : "", wanted);
    buf_done(&out);
    source_reading_done(&reading);
}

static struct source *with_rules(void **state)
{
    struct source *source = fresh_source(*state);
    put(source, "{ id: a, by: [user], limits: [1 per 1s] }");
    put(source, "{ id: b, by: [user, ip], limits: [1 per 1s] }");
    return source;
}

static void one_is_set_and_removed(void **state)
{
    struct source *source = with_rules(state);
    struct buf stored;
    buf_init(&stored, 1000);
    override(source, "a", "x", "{ limits: [7 per 1m], why: fair }");
    good(source_put_override(source, SV("b"), subject("u%2Cv,::FFFF:10.0.0.1"), SV("{deny: true}"), me, &stored, &error));
    assert_string_equal(stored.ptr, "u%2Cv,10.0.0.1");
    buf_done(&stored);
    expect_overrides(source, NULL, "a x 7 per 1m, b u%2Cv,10.0.0.1 deny");
    override(source, "a", "x", "{ unlimited: true }");
    expect_overrides(source, NULL, "a x unlimited, b u%2Cv,10.0.0.1 deny");
    good(source_remove_override(source, SV("b"), subject("u%2Cv,10.0.0.1"), me, &error));
    bad(source_remove_override(source, SV("b"), subject("u%2Cv,10.0.0.1"), me, &error),
        "has no override for u%2Cv,10.0.0.1");
    bad(source_put_override(source, SV("c"), subject("x"), SV("{deny: true}"), me, NULL, &error), "there is no rule c");
    bad(source_put_override(source, SV("b"), subject("x"), SV("{deny: true}"), me, NULL, &error), "2 values");
    bad(source_put_override(source, SV("a"), (struct source_subject){ SV("x,y"), 2 }, SV("{deny: true}"), me, NULL, &error),
        "rule a counts by user: give 1 value, not 2");
    bad(source_put_override(source, SV("a"), (struct source_subject){ .text = { "x\0y", 3 } }, SV("{deny: true}"), me, NULL,
                            &error),
        "without NUL");
    bad(source_put_override(source, SV("a"), subject("\xff"), SV("{deny: true}"), me, NULL, &error), "UTF-8");
    bad(source_put_override(source, SV("a"), subject("y"), SV("[]"), me, NULL, &error), "override of rule a for y");
    bad(source_put_override(source, SV("a"), subject("y"), SV("{"), me, NULL, &error), "not YAML or JSON");
    expect_overrides(source, NULL, "a x unlimited");
    source_close(source);
}

/* Only some of them are read, and what follows the source is not told that all were. */
static void some_are_read(void **state)
{
    struct source *source = with_rules(state);
    struct source_reading reading;
    struct source_overrides which = { .rule = SV("a"), .after = SV("B"), .most = 2 };
    static const char *const names[] = { "B", "a", "a b", "b", "c" };
    bool changed = true;
    for (size_t i = 0; i < 5; i++)
        override(source, "a", names[i], "{ deny: true }");
    override(source, "b", "bb,10.0.0.1", "{ deny: true }");
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.override_count, 6);
    source_reading_done(&reading);
    struct sql *sql = place_connect(*state);
    hand(sql, "DELETE FROM WEIR_OVERRIDES WHERE SUBJECT = 'c'");
    good(source_read_overrides(source, &which, &reading, &error));
    assert_int_equal(reading.override_count, 2);
    assert_true(sv_eq(reading.overrides[0].key, SV("a")) && sv_eq(reading.overrides[1].key, SV("a b")));
    assert_int_equal(reading.rules->rule_count, 2);
    source_reading_done(&reading);
    good(source_read_override(source, SV("b"), SV("bb,::ffff:10.0.0.1"), &reading, &error));
    assert_true(reading.override_count == 1 && reading.overrides[0].override);
    source_reading_done(&reading);
    good(source_changed(source, &changed, &error));
    assert_true(changed);
    bad(source_read_override(source, SV("a"), SV("c"), &reading, &error), "has no override for c");
    sql_close(sql);
    source_close(source);
}

static void a_bad_row_keeps_its_last_good_version(void **state)
{
    struct source *source = with_rules(state);
    struct source_reading reading;
    struct sql *sql = place_connect(*state);
    override(source, "a", "x", "{ limits: [7 per 1m] }");
    override(source, "a", "y", "{ limits: [8 per 1m] }");
    good(source_read(source, NULL, &reading, &error));
    hand(sql, "UPDATE WEIR_OVERRIDES SET OVERRIDE = '{\"limits\":[]}' WHERE SUBJECT = 'x'");
    hand(sql, "UPDATE WEIR_OVERRIDES SET OVERRIDE = '{\"deny\":true}' WHERE SUBJECT = 'y'");
    expect_overrides(source, reading.rules, "a y deny, a x 7 per 1m");
    expect_overrides(source, NULL, "a y deny");
    /* The rule is bad: it stays as it was, and so do its overrides. */
    hand(sql, "UPDATE WEIR_RULES SET RULE = '{' WHERE ID = 'a'");
    expect_overrides(source, reading.rules, "a x 7 per 1m, a y 8 per 1m");
    expect_overrides(source, NULL, "");
    source_reading_done(&reading);
    sql_close(sql);
    source_close(source);
}

static void the_rule_matters(void **state)
{
    struct source *source = with_rules(state);
    struct source_reading reading;
    override(source, "a", "x", "{ deny: true }");
    bad(source_set(source, SV("a"), SV("by"), SV("ip"), me, &error), "this would break the override of rule a for x");
    bad(source_patch(source, SV("a"), SV("{\"by\":[\"ip\"]}"), me, &error),
        "this would break the override of rule a for x");
    good(source_remove(source, SV("a"), me, &error));
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.unused_overrides, 1);
    assert_int_equal(reading.problem_count, 0);
    assert_int_equal(reading.override_count, 1);
    assert_string_equal(source_override_state(&reading, &reading.overrides[0], 0), "unused");
    source_reading_done(&reading);
    good(source_undo(source, SV(""), 0, me, NULL, &error));
    expect_overrides(source, NULL, "a x deny");
    good(source_remove(source, SV("a"), me, &error));
    /* It comes back as another rule: x was a user. */
    bad(source_put(source, SV("{ id: a, by: [key], limits: [1 per 1s] }"), false, me, &error),
        "rule a: by: the rule has overrides from before it was removed");
    good(source_put(source, SV("{ id: a, by: [user], limits: [2 per 1s] }"), false, me, &error));
    expect_overrides(source, NULL, "a x deny");
    good(source_remove(source, SV("a"), me, &error));
    good(source_remove_override(source, SV("a"), subject("x"), me, &error));
    good(source_put(source, SV("{ id: a, by: [key], limits: [1 per 1s] }"), false, me, &error));
    expect_overrides(source, NULL, "");
    source_close(source);
}

static void changes_are_undone(void **state)
{
    struct source *source = with_rules(state);
    char whom[901];
    memset(whom, 'u', 900);
    whom[900] = '\0';
    override(source, "a", whom, "{ limits: [ 7 per 1m ] }");
    override(source, "a", whom, "{ deny: true }");
    good(source_remove_override(source, SV("a"), subject(whom), me, &error));
    for (int i = 0; i < 2; i++)
        good(source_undo(source, SV("a"), 0, me, NULL, &error));
    struct source_reading reading;
    good(source_read_override(source, SV("a"), weir_str(whom), &reading, &error));
    assert_true(sv_eq(reading.overrides[0].text, SV("{\"limits\":[\"7 per 1m\"]}")));
    source_reading_done(&reading);
    good(source_undo(source, SV("a"), 0, me, NULL, &error));
    expect_overrides(source, NULL, "");
    source_close(source);
}

static int wants_none(uint64_t version, void *data, struct weir_error *why)
{
    (void)data;
    return version ? err_set(why, WEIR_E_INVALID, "it is there") : 0;
}

static void terms_hold(void **state)
{
    struct source *source = with_rules(state);
    source_set_terms(source, &(struct source_terms){ .check = wants_none });
    override(source, "a", "x", "{ deny: true }");
    bad(source_put_override(source, SV("a"), subject("x"), SV("{unlimited: true}"), me, NULL, &error), "it is there");
    bad(source_remove_override(source, SV("a"), subject("x"), me, &error), "it is there");
    source_set_terms(source, &(struct source_terms){ .dry_run = true });
    good(source_remove_override(source, SV("a"), subject("x"), me, &error));
    source_set_terms(source, &(struct source_terms){ 0 });
    expect_overrides(source, NULL, "a x deny");
    source_close(source);
}

static void texts_are_imported(void **state)
{
    struct source *source = with_rules(state);
    override(source, "a", "x", "{ deny: true }");
    good(source_import(source, SV("overrides: [{ rule: b, by: { ip: 10.0.0.1, user: u }, deny: true }]"), false, me, NULL,
                       &error));
    expect_overrides(source, NULL, "a x deny, b u,10.0.0.1 deny");
    bad(source_import(source, SV("overrides: [{ rule: c, by: { user: u }, deny: true }]"), false, me, NULL, &error),
        "override of rule c: there is no rule");
    good(source_import(source,
                       SV("rules: [{ id: a, by: [user], limits: [1 per 1s] }]\n"
                          "overrides: [{ rule: a, by: { user: y }, unlimited: true }]"),
                       true, me, NULL, &error));
    expect_overrides(source, NULL, "a y unlimited");
    source_close(source);
}

static void a_patch_is_merged(void **state)
{
    struct source *source = fresh_source(*state);
    put(source, "{ id: a, by: [user], limits: [1 per 1s], reject: { status: 503, body: gone } }");
    good(source_patch(source, SV("a"), SV("{\"limits\":[\"2 per 1s\"],\"by\":null,\"reject\":{\"body\":null}}"), me,
                      &error));
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    assert_true(
        json_is_same(reading.rows[0].text, SV("{\"id\":\"a\",\"limits\":[\"2 per 1s\"],\"reject\":{\"status\":503}}")));
    source_reading_done(&reading);
    bad(source_patch(source, SV("a"), SV("{\"id\":\"b\"}"), me, &error), "an id cannot be changed");
    bad(source_patch(source, SV("a"), SV("[]"), me, &error), "must be an object");
    bad(source_patch(source, SV("b"), SV("{}"), me, &error), "there is no rule b");
    bad(source_patch(source, SV("a"), SV("{\"limits\":null}"), me, &error), "limits");
    good(source_undo(source, SV("a"), 0, me, NULL, &error));
    source_close(source);
}

int main(void)
{
    static const struct place_case cases[] = {
        { "one is set and removed", one_is_set_and_removed },
        { "some are read", some_are_read },
        { "a bad row keeps its last good version", a_bad_row_keeps_its_last_good_version },
        { "the rule matters", the_rule_matters },
        { "changes are undone", changes_are_undone },
        { "terms hold", terms_hold },
        { "texts are imported", texts_are_imported },
        { "a patch is merged", a_patch_is_merged },
    };
    return places_run(cases, sizeof cases / sizeof *cases);
}
