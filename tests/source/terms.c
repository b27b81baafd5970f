/* Changes that are subject to something: only tried, or only made to a version that is known. */
#include "base/err.h"
#include "sources.h"

static uint64_t version_of(struct source *source, const char *id)
{
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    uint64_t version = source_version(&reading, weir_str(id));
    source_reading_done(&reading);
    return version;
}

static void versions_tell_rows_apart(void **state)
{
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1, '/x', 5, 60, NULL)");
    uint64_t a = version_of(source, "a"), call = version_of(source, "throttled-call-1"), settings = version_of(source, "");
    assert_true(a && call && settings);
    assert_int_equal(version_of(source, "b"), 0);
    good(source_put(source, SV("{ id: a, limits: [2 per 1s] }"), true, me, &error));
    assert_int_not_equal(version_of(source, "a"), a);
    assert_int_equal(version_of(source, "throttled-call-1"), call);
    good(source_put(source, SV("{ id: a, limits: [1 per 1s] }"), true, me, &error));
    assert_int_equal(version_of(source, "a"), a);
    good(source_enable(source, SV("a"), false, me, &error));
    assert_int_not_equal(version_of(source, "a"), a);
    /* Bad rows have versions, too. */
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = -1");
    uint64_t bad_call = version_of(source, "throttled-call-1");
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = -2");
    assert_true(bad_call != call && version_of(source, "throttled-call-1") != bad_call);
    assert_int_equal(version_of(source, ""), settings);
    good(source_put_settings(source, SV("{ ipv6_prefix: 56 }"), me, &error));
    assert_int_not_equal(version_of(source, ""), settings);
    sql_close(sql);
    source_close(source);
}

struct wanted {
    uint64_t version;
    unsigned asked;
};

static int check(uint64_t version, void *data, struct weir_error *why)
{
    struct wanted *wanted = data;
    wanted->asked++;
    return version == wanted->version ? 0 : err_set(why, WEIR_E_INVALID, "it is another one");
}

static void changes_are_made_to_a_version_that_is_known(void **state)
{
    struct source *source = fresh_source(*state);
    struct wanted wanted = { 0 };
    struct source_terms terms = { .check = check, .id = SV("a"), .data = &wanted };
    source_set_terms(source, &terms);
    put(source, "{ id: a, limits: [1 per 1s] }");
    bad(source_put(source, SV("{ id: a, limits: [2 per 1s] }"), true, me, &error), "it is another one");
    bad(source_remove(source, SV("a"), me, &error), "it is another one");
    expect_rules(source, NULL, "a 1 per 1s");
    wanted.version = version_of(source, "a");
    good(source_put(source, SV("{ id: a, limits: [2 per 1s] }"), true, me, &error));
    bad(source_put(source, SV("{ id: a, limits: [3 per 1s] }"), true, me, &error), "it is another one");
    assert_int_equal(wanted.asked, 5);
    terms.id = SV("");
    source_set_terms(source, &terms);
    wanted.version = version_of(source, "");
    good(source_put_settings(source, SV("{ ipv6_prefix: 56 }"), me, &error));
    bad(source_put_settings(source, SV("{ ipv6_prefix: 48 }"), me, &error), "it is another one");
    source_set_terms(source, &(struct source_terms){ 0 });
    good(source_put(source, SV("{ id: a, limits: [4 per 1s] }"), true, me, &error));
    expect_rules(source, NULL, "a 4 per 1s");
    source_close(source);
}

/* As text: the limits of `a`, as they would be. */
static int look(const struct source_reading *after, void *data, struct weir_error *why)
{
    struct buf *out = data;
    (void)why;
    for (size_t i = 0; i < after->row_count; i++)
        if (sv_eq(after->rows[i].rule, SV("a")))
            buf_add(out, after->rows[i].text);
    return 0;
}

static void what_would_be_can_be_looked_at(void **state)
{
    struct source *source = fresh_source(*state);
    struct buf out;
    buf_init(&out, 1000);
    put(source, "{ id: a, limits: [1 per 1s] }");
    source_set_terms(source, &(struct source_terms){ .dry_run = true, .look = look, .data = &out });
    good(source_put(source, SV("{ id: a, limits: [1 per 1s] }"), true, me, &error)); /* nothing to be seen */
    good(source_put(source, SV("{ id: a, limits: [2 per 1s] }"), true, me, &error));
    bad(source_put(source, SV("{ id: a, limits: [x] }"), true, me, &error), "rule a: ");
    assert_string_equal(out.ptr, "{\"id\":\"a\",\"limits\":[\"2 per 1s\"]}");
    buf_done(&out);
    source_close(source);
}

static void trying_changes_nothing(void **state)
{
    struct source *source = fresh_source(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    uint64_t before = version_of(source, "a");
    source_set_terms(source, &(struct source_terms){ .dry_run = true });
    good(source_put(source, SV("{ id: a, limits: [2 per 1s] }"), true, me, &error));
    good(source_put(source, SV("{ id: b, limits: [2 per 1s] }"), true, me, &error));
    good(source_remove(source, SV("a"), me, &error));
    bad(source_put(source, SV("{ id: a, limits: [x] }"), true, me, &error), "rule a: ");
    source_set_terms(source, &(struct source_terms){ 0 });
    assert_int_equal(version_of(source, "a"), before);
    expect_rules(source, NULL, "a 1 per 1s");
    source_close(source);
}

static void what_is_put_can_be_enabled(void **state)
{
    struct source *source = fresh_source(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    good(source_enable(source, SV("a"), false, me, &error));
    good(source_put(source, SV("{ id: a, limits: [2 per 1s] }"), true, me, &error));
    expect_rules(source, NULL, "disabled a 2 per 1s");
    source_set_terms(source, &(struct source_terms){ .enable = true });
    good(source_put(source, SV("{ id: a, limits: [2 per 1s] }"), true, me, &error));
    expect_rules(source, NULL, "a 2 per 1s");
    source_close(source);
}

int main(void)
{
    static const struct place_case cases[] = {
        { "versions tell rows apart", versions_tell_rows_apart },
        { "changes are made to a version that is known", changes_are_made_to_a_version_that_is_known },
        { "trying changes nothing", trying_changes_nothing },
        { "what would be can be looked at", what_would_be_can_be_looked_at },
        { "what is put can be enabled", what_is_put_can_be_enabled },
    };
    return places_run(cases, sizeof cases / sizeof *cases);
}
