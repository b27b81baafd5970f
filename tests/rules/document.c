/* Documents: what can be read at all, with which bounds, and what the tree says when it cannot. */
#include "helpers.h"

static void no_rules_are_an_empty_set(void **state)
{
    (void)state;
    const char *const texts[] = { "rules: []", " rules: [] ", "settings:\nrules: []\n", "{\"rules\": []}" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct reading r = good_reading(texts[i]);
        assert_int_equal(r.rules->rule_count, 0);
        assert_int_equal(r.rules->settings.ipv6_prefix, 64);
        assert_false(r.report.unreadable);
        reading_done(&r);
    }
}

/* A file that was emptied and not written yet must not lift all limits. */
static void a_document_that_says_nothing_is_unreadable(void **state)
{
    (void)state;
    const char *const texts[] = { "", "\n", "# nothing yet\n", "---\n", "null", "\xef\xbb\xbf" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        expect_report(texts[i], "f:1: is empty; to have no rules, write `rules: []`\n");
        struct reading r = reading_of(weir_str(texts[i]));
        assert_true(r.report.unreadable);
        reading_done(&r);
    }
}

/* Nor must one of which only the beginning is written. */
static void a_document_without_rules_is_unreadable(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "{}", "f:1: has no `rules`; to have no rules, write `rules: []`\n" },
        { "\n\nsettings: { ipv6_prefix: 48 }", "f:3: has no `rules`; to have no rules, write `rules: []`\n" },
        { "settings:\n", "f:1: has no `rules`; to have no rules, write `rules: []`\n" },
        { "rules:\n", "f:1: `rules` is empty; to have no rules, write `rules: []`\n" },
        { "settings:\nrules:\n", "f:2: `rules` is empty; to have no rules, write `rules: []`\n" },
        { "{\"rules\": null}", "f:1: `rules` is empty; to have no rules, write `rules: []`\n" },
        { "rules: ~", "f:1: `rules` is empty; to have no rules, write `rules: []`\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_report(cases[i].text, cases[i].report);
        struct reading r = reading_of(weir_str(cases[i].text));
        assert_true(r.report.unreadable);
        reading_done(&r);
    }
}

static void a_byte_order_mark_is_skipped(void **state)
{
    (void)state;
    struct reading r = good_reading("\xef\xbb\xbf# rules\r\nrules:\r\n  - id: a\r\n    limits: 1 per 1s\r\n");
    assert_int_equal(r.rules->rule_count, 1);
    assert_int_equal(r.rules->rules[0]->line, 3);
    reading_done(&r);
}

#define QUOTE "; quote values that contain { } [ ] or begin with * & ! % @ `, as in path: \"/users/{id}\""

static void what_is_no_document_is_unreadable(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "rules:\n  - id: [a\nb: c",
          "f:3: not YAML or JSON: did not find expected ',' or ']' while parsing a flow sequence that begins in line 2\n" },
        { "a: b: c", "f:1: not YAML or JSON: mapping values are not allowed in this context\n" },
        { "rules:\n\t- id: a", "f:2: not YAML or JSON: the line is indented by a tab; use spaces\n" },
        { "rules:\n  \t- id: a", "f:2: not YAML or JSON: the line is indented by a tab; use spaces\n" },
        { "rules: @a",
          "f:1: not YAML or JSON: found character that cannot start any token while scanning for the next token "
          "that begins in line 1" QUOTE "\n" },
        { "rules:\n  - { id: a, match: { path: /users/{id} } }",
          "f:2: not YAML or JSON: did not find expected ',' or '}' while parsing a flow mapping that begins in line 2" QUOTE
          "\n" },
        { "{\"rules\": [\n{\"id\": \"\\ud83d\"}]}", "f:2: not YAML or JSON: found invalid Unicode character escape code "
                                                    "while parsing a quoted scalar that begins in line "
                                                    "2\n" },
        { "rules: []\n---\nrules: []\n",
          "f:2: a second YAML document; put all rules into one, without `---` between them\n" },
        { "rules: []\na: \xff\n", "f:2: the byte 0xff is not UTF-8; save the file as UTF-8\n" },
        { "rules: []\na: \xed\xa0\x80\n", "f:2: the byte 0xed is not UTF-8; save the file as UTF-8\n" },
        { "\xff\xfe"
          "a",
          "f:1: the byte 0xff is not UTF-8; save the file as UTF-8\n" },
        { "a: b\nc: \x01\n", "f:2: control characters are not allowed (U+0001)\n" },
        { "a: b\nc: \"\\0\"\n", "f:2: a NUL character (\\0, \\x00 or \\u0000) is not allowed in any text\n" },
        { "a: !x b", "f:1: the tag !x is not allowed; write the value alone\n" },
        { "a: !!int 5", "f:1: the tag tag:yaml.org,2002:int is not allowed; write the value alone\n" },
        { "a: !%07x b", "f:1: the tag here is not allowed; write the value alone\n" },
        { "a: *b", "f:1: unknown alias *b; no &b comes before it\n" },
        { "a: &b\n  - *b", "f:2: the alias *b is inside the value that it refers to\n" },
        { "5", "f:1: must be a mapping with `settings` and `rules`, not 5\n" },
        { "- id: a\n", "f:1: must be a mapping with `settings` and `rules`, not a list; put the list under `rules:`\n" },
        { "rules: 5", "f:1: rules: must be a list of rules (- id: …), not 5\n" },
        { "rules:\n  a:\n    limits: x", "f:2: rules: must be a list of rules (- id: …), not a mapping\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_report(cases[i].text, cases[i].report);
        struct reading r = reading_of(weir_str(cases[i].text));
        assert_true(r.report.unreadable);
        assert_int_equal(r.rules->rule_count, 0);
        reading_done(&r);
    }
    struct reading nul = reading_of(SV("a: b\n\0"));
    assert_string_equal(nul.text.ptr, "f:2: contains a NUL byte; rules are text in YAML or JSON\n");
    reading_done(&nul);
}

#define AS_JSON "; a text that begins with {\" is read as JSON, not as YAML\n"

/* libyaml would take it for YAML. */
static void what_looks_like_json_is_json(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "{\"rules\": [\n  {\"id\": \"a\", \"limits\": [\"1 per 1s\"],}\n]}",
          "f:2: not JSON: column 38: there is no value between the comma and this bracket; leave the comma out" AS_JSON },
        { "\xef\xbb\xbf{\"rules\": [\n\n],}",
          "f:3: not JSON: column 3: there is no value between the comma and this bracket; leave the comma out" AS_JSON },
        { "{\"rules\": [], \"x\": [\"\xc3\xbc\", ]}",
          "f:1: not JSON: column 26: there is no value between the comma and this bracket; leave the comma out" AS_JSON },
        { "[{\"id\": \"a\", \"limits\": \"1 per 1s\"}, ]",
          "f:1: not JSON: column 37: there is no value between the comma and this bracket; leave the comma out" AS_JSON },
        { "{\"rules\": []} # none", "f:1: not JSON: column 15: unexpected text after the end" AS_JSON },
        { "{\"rules\": ['a']}", "f:1: not JSON: column 12: neither a number nor a string in \"quotes\"" AS_JSON },
        { "{\"rules\": yes}", "f:1: not JSON: column 11: neither a number nor a string in \"quotes\"" AS_JSON },
        { "{\"rules\": [01]}", "f:1: not JSON: column 12: neither a number nor a string in \"quotes\"" AS_JSON },
        { "{\"rules\": [-01]}", "f:1: not JSON: column 12: neither a number nor a string in \"quotes\"" AS_JSON },
        { "{\"rules\": [.5]}", "f:1: not JSON: column 12: neither a number nor a string in \"quotes\"" AS_JSON },
        { "{\"rules\":}", "f:1: not JSON: column 10: a value is missing" AS_JSON },
        { "{\"rules\"}", "f:1: not JSON: column 9: a colon is missing" AS_JSON },
        { "{\"rules\": [], rest: 1}", "f:1: not JSON: column 15: the name of a field is missing, in \"quotes\"" AS_JSON },
        { "{\"rules\": [\"\\x41\"]}", "f:1: not JSON: column 13: unknown escape" AS_JSON },
        { "{\"rules\": [\"a\tb\"]}",
          "f:1: not JSON: column 14: a control character in a string; write it as \\n, \\t or \\u00XX" AS_JSON },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_report(cases[i].text, cases[i].report);
    /* JSON, and YAML that has brackets. */
    static const char *const good[] = {
        "\t{ \"rules\" : [ ] , \"settings\" : { \"ipv6_prefix\" : 48 } }\r\n\n",
        ("{\"rules\": [{\"id\": \"a\\/\\u00fc\\ud83d\\ude00\", \"limits\": {\"max\": 1, \"per\": \"1s\"}, \"expires\": "
         "1500000000.5}]}"),
        "{ rules: [ { \"id\": a, limits: [ 1 per 1s, ] }, ] } # YAML",
        "{ 'rules': [], }",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct reading r = good_reading(good[i]);
        reading_done(&r);
    }
}

static void unknown_parts_of_a_document_are_named(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "rule: []",
          "f:1: unknown field \"rule\"; did you mean `rules`? Allowed: settings, rules, overrides, include, problems\n"
          "f:1: has no `rules`; to have no rules, write `rules: []`\n" },
        { "version: 2\nrules: []",
          "f:1: unknown field \"version\"; allowed: settings, rules, overrides, include, problems\n" },
        { "rules: []\nrules: []", "f:2: the field \"rules\" is given twice; the first is in line 1\n" },
        { "? [a]\n: b\nrules: []", "f:1: the name of a field must be text, not a list\n" },
        { "<<: {}\nrules: []", "f:1: merge keys (<<) are not supported; use an alias for a whole value\n" },
        { "\"a\\nb\\u0007\": 1\nrules: []",
          "f:1: unknown field \"a\\nb\\u0007\"; allowed: settings, rules, overrides, include, problems\n" },
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: 1\nrules: []",
          "f:1: unknown field \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…\"; allowed: settings, "
          "rules, overrides, include, problems\n" },
    };
    EXPECT_REPORTS(cases);
}

/* ---- aliases ---- */

static void aliases_stand_for_values(void **state)
{
    (void)state;
    struct reading r = good_reading("rules:\n"
                                    "  - { id: a, by: &who [user, ip], limits: &l [ 1 per 1s ] }\n"
                                    "  - { id: b, by: *who, limits: *l }\n");
    assert_int_equal(r.rules->rules[1]->kind->by_count, 2);
    assert_int_equal(r.rules->rules[1]->kind->limits[0].max, 1);
    reading_done(&r);
}

static void alias_bombs_end_in_an_error(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add(&text, SV("a: &a [x,x,x,x,x,x,x,x,x,x]\n"));
    for (char c = 'b'; c <= 'h'; c++)
        buf_printf(&text, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c - 1, c - 1, c - 1, c - 1, c - 1,
                   c - 1, c - 1, c - 1, c - 1, c - 1);
    expect_report(text.ptr, "f:7: more than 6000000 values (the value of an alias counts each time); use fewer\n");
    buf_clear(&text);

    buf_add(&text, SV("a: &a x\nb: ["));
    for (int i = 0; i <= RULES_ALIASES_MAX; i++)
        buf_add(&text, SV("*a,\n"));
    buf_add(&text, SV("]"));
    expect_report(text.ptr, "f:10002: more than 10000 aliases\n");
    buf_clear(&text);

    buf_add(&text, SV("a: ["));
    for (int i = 0; i <= RULES_ANCHORS_MAX; i++)
        buf_printf(&text, "&a%d x,\n", i);
    buf_add(&text, SV("]"));
    expect_report(text.ptr, "f:1001: more than 1000 anchors\n");
    buf_done(&text);
}

/* ---- bounds ---- */

static void nest(struct buf *text, char open, char close, int depth)
{
    buf_add(text, SV("rules: "));
    for (int i = 0; i < depth; i++)
        buf_char(text, open);
    for (int i = 0; close && i < depth; i++)
        buf_char(text, close);
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 4 << 20);
    nest(&text, '[', ']', RULES_NESTING_MAX - 1);
    expect_report(text.ptr, "f:1: rule #1: must be a mapping (field: value), not a list\n");
    buf_clear(&text);
    nest(&text, '[', ']', RULES_NESTING_MAX);
    expect_report(text.ptr, "f:1: nested too deeply; at most 16 levels\n");
    buf_clear(&text);
    nest(&text, '[', 0, 200000);
    expect_report(text.ptr, "f:1: nested too deeply; at most 16 levels\n");
    buf_clear(&text);
    for (int i = 0; i < 1000; i++) {
        for (int blanks = 0; blanks < i; blanks++)
            buf_char(&text, ' ');
        buf_add(&text, SV("a:\n"));
    }
    expect_report(text.ptr, "f:17: nested too deeply; at most 16 levels\n");
    buf_clear(&text);
    /* Through an alias: eight levels below nine. */
    buf_add(&text, SV("a: &a [[[[[[[[1]]]]]]]]\nb: [[[[[[[[*a]]]]]]]]\n"));
    expect_report(text.ptr, "f:2: nested too deeply; at most 16 levels\n");
    buf_done(&text);
}

static void sizes_are_bounded(void **state)
{
    (void)state;
    size_t size = (size_t)RULES_BYTES_MAX + 1;
    char *large = calloc(1, size); /* refused before it is looked at */
    assert_non_null(large);
    struct reading r = reading_of(sv_of(large, size));
    assert_string_equal(r.text.ptr, "f: 67108865 bytes are too many; at most 67108864 are read\n");
    assert_true(r.report.unreadable);
    reading_done(&r);
    free(large);

    struct buf text;
    buf_init(&text, 16 << 20);
    for (int i = 0; i <= RULES_FIELDS_MAX; i++)
        buf_printf(&text, "a%d: x\n", i);
    expect_report(text.ptr, "f:101: more than 100 fields in one mapping\n");
    buf_clear(&text);

    buf_add(&text, SV("rules:\n"));
    for (int i = 0; i <= RULES_MAX; i++)
        buf_add(&text, SV("- a\n"));
    expect_report(text.ptr, "f:2: rules: 200001 rules are too many; at most 200000\n");
    buf_done(&text);
}

static void regexes_are_bounded(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 16 << 20);
    buf_add(&text, SV("rules:\n"));
    for (int rule = 0; rule <= RULES_REGEXES_MAX / 100; rule++) {
        buf_printf(&text, "- { id: r%d, limits: 1 per 1s, match: { path: [", rule);
        for (int i = 0; i < (rule < RULES_REGEXES_MAX / 100 ? 100 : 1); i++)
            buf_add(&text, SV("{ regex: a }, "));
        buf_add(&text, SV("] } }\n"));
    }
    expect_report(
        text.ptr,
        "f:102: rule r100: match.path[0].regex: more than 10000 regular expressions; use templates where you can\n");
    buf_done(&text);
}

/* Where libyaml takes the square of the time. */
static void slow_texts_are_refused(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i <= RULES_DIRECTIVES_MAX; i++)
        buf_printf(&text, "%%TAG !a%d! x\n", i);
    expect_report(text.ptr, "f:11: too many YAML directives (lines that begin with %)\n");
    buf_clear(&text);
    buf_add(&text, SV("rules: []\n"));
    for (int i = 1; i < RULES_BLANKS_MAX; i++)
        buf_char(&text, '\n');
    expect_report(text.ptr, "");
    buf_add(&text, SV("\n"));
    expect_report(text.ptr, "f:4097: too many blanks and line breaks in a row\n");
    buf_done(&text);
}

/* ---- many errors ---- */

static void errors_are_listed_up_to_a_bound_and_by_line(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 16 << 20);
    buf_add(&text, SV("rules:\n"));
    for (int i = 0; i < 1500; i++)
        buf_printf(&text, "- { id: r%d, limits: x }\n", i);
    buf_add(&text, SV("settings: { ipv6_prefix: 0 }\n"));
    struct reading r = reading_of(buf_sv(&text));
    assert_int_equal(r.report.error_count, 1501);
    assert_int_equal(r.report.bad_count, 1500);
    assert_text(r.report.bad[1499].id, "r1499");
    for (size_t i = 1; i < RULES_ERRORS_MAX; i++)
        assert_true(r.report.errors[i - 1].line <= r.report.errors[i].line);
    assert_non_null(strstr(r.text.ptr, "\nf:1502: settings: ipv6_prefix: must be a whole number from 1 to 128, not 0\n"));
    assert_non_null(strstr(r.text.ptr, "\nf: and 501 more errors\n"));
    reading_done(&r);
    buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_rules_are_an_empty_set),
        cmocka_unit_test(a_document_that_says_nothing_is_unreadable),
        cmocka_unit_test(a_document_without_rules_is_unreadable),
        cmocka_unit_test(a_byte_order_mark_is_skipped),
        cmocka_unit_test(what_is_no_document_is_unreadable),
        cmocka_unit_test(what_looks_like_json_is_json),
        cmocka_unit_test(unknown_parts_of_a_document_are_named),
        cmocka_unit_test(aliases_stand_for_values),
        cmocka_unit_test(alias_bombs_end_in_an_error),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(regexes_are_bounded),
        cmocka_unit_test(slow_texts_are_refused),
        cmocka_unit_test(errors_are_listed_up_to_a_bound_and_by_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
