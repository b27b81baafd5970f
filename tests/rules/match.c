/* Conditions of a rule. */
#include "one_rule.h"

static sv text_of(const struct rule *rule, enum attribute attribute)
{
    const struct rule_condition *condition = rule_condition_of(rule, attribute);
    return condition ? condition->is.list[0].text : (sv){ 0 };
}

static void conditions(void **state)
{
    (void)state;
    struct reading r =
        rule_of("match: { event: 42, method: [get, Post], host: 'API.Example.COM.:8080', path: [/a//b/, { regex: "
                "'/x(y|z)' }], header: { X-Plan: free, x-v: 2 } }");
    const struct rule *rule = r.rules->rules[0];
    const struct rule_match *m = &rule->match;
    assert_text(text_of(rule, ATTR_EVENT), "42");
    const struct rule_condition *method = rule_condition_of(rule, ATTR_METHOD);
    assert_int_equal(method->is.count, 2);
    assert_text(method->is.list[0].text, "GET");
    assert_text(method->is.list[1].text, "POST");
    assert_text(text_of(rule, ATTR_HOST), "api.example.com");
    assert_int_equal(m->path_count, 2);
    assert_false(rule_path(m, 0).is_regex);
    assert_text(rule_path_text(rule_path(m, 0)), "/a/b");
    assert_true(rule_path(m, 1).is_regex);
    assert_text(rule_path_text(rule_path(m, 1)), "/x(y|z)");
    const struct rule_condition *headers = rule_condition_of(rule, ATTR_HEADER);
    assert_text(headers[0].name, "x-plan");
    assert_text(headers[0].is.list[0].text, "free");
    assert_text(headers[1].is.list[0].text, "2");
    reading_done(&r);
    r = rule_of("match: { method: DELETE, path: /x, event: no }");
    rule = r.rules->rules[0];
    m = &rule->match;
    assert_text(text_of(rule, ATTR_METHOD), "DELETE");
    assert_text(rule_path_text(rule_path(m, 0)), "/x");
    assert_text(text_of(rule, ATTR_EVENT), "no");
    reading_done(&r);
    r = rule_of("match: { path: { regex: 'a' } }");
    assert_true(rule_path(&r.rules->rules[0]->match, 0).is_regex);
    reading_done(&r);
}

static void hosts(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        { "example.com", "example.com" },
        { "EXAMPLE.com:80", "example.com" },
        { "'example.com:'", "example.com" },
        { "10.0.0.1:8080", "10.0.0.1" },
        { "'[::1]'", "[::1]" },
        { "'[FD00::1]:443'", "[fd00::1]" },
        { "my_host-1", "my_host-1" },
        { "localhost.", "localhost" },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[100];
        snprintf(text, sizeof text, "match: { host: %s }", good[i][0]);
        struct reading r = rule_of(text);
        assert_text(text_of(r.rules->rules[0], ATTR_HOST), good[i][1]);
        reading_done(&r);
    }
    static const char *const bad[] = { "http://x", "'*.'",     "'*.*.de'",     "'a.*.de'", "'*.[::1]'", "'*'", "'::1'",
                                       "'[::1'",   "'[::1]x'", "'[10.0.0.1]'", "'a b'",    "x:99999",   "x:y", "a/b",
                                       "'.'",      "'[]'",     "':80'",        "ü.de",     "'['" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[100], report[300], shown[50];
        snprintf(text, sizeof text, "match: { host: %s }", bad[i]);
        size_t quote = bad[i][0] == '\'';
        snprintf(shown, sizeof shown, "%.*s", (int)(strlen(bad[i]) - 2 * quote), bad[i] + quote);
        snprintf(
            report, sizeof report,
            "f:1: rule a: match.host: must be a host name such as api.example.com or *.example.com, an IPv4 address, or an "
            "IPv6 address in brackets, without scheme or path, not \"%s\"\n",
            shown);
        expect_rule(text, report);
    }
}

static void bad_conditions(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "match: ocr", "f:1: rule a: match: must be a mapping (field: value), not \"ocr\"\n" },
        { "match: { event: }", "f:1: rule a: match.event: must be text, not nothing\n" },
        { "match: { event: '' }", "f:1: rule a: match.event: must have 1 to 1000 bytes, not 0\n" },
        { "match: { event: ' ' }", "f:1: rule a: match.event: must not be blank\n" },
        { "match:", "f:1: rule a: match: is empty; leave out `match` to match every request\n" },
        { "match: ~", "f:1: rule a: match: is empty; leave out `match` to match every request\n" },
        { "match: {}", "f:1: rule a: match: is empty; leave out `match` to match every request\n" },
        { "match: []", "f:1: rule a: match: must be a mapping (field: value), not a list\n" },
        { "match: { event: [] }", "f:1: rule a: match.event: the list is empty; leave `event` out to match all\n" },
        { "match: { event: [[a]] }", "f:1: rule a: match.event[0]: must be text, not a list\n" },
        { "match: { event: [a, ] , user: [b, ~] }", "f:1: rule a: match.user[1]: must be text, not nothing\n" },
        { "match: { event: true }",
          "f:1: rule a: match.event: must be text, not true; put it in quotes if you mean the text\n" },
        { "match: { method: }", "f:1: rule a: match.method: must be text, not nothing\n" },
        { "match: { method: [] }", "f:1: rule a: match.method: the list is empty; leave `method` out to match all\n" },
        { "match: { method: [GET, 'P T'] }",
          "f:1: rule a: match.method[1]: must be a method such as GET, not \"P T\"; leave `method` out to match all\n" },
        { "match: { method: '*' }",
          "f:1: rule a: match.method: must be a method such as GET, not \"*\"; leave `method` out to match all\n" },
        { "match: { host: }", "f:1: rule a: match.host: must be text, not nothing\n" },
        { "match: { path: }", "f:1: rule a: match.path: must be text, not nothing\n" },
        { "match: { path: [] }", "f:1: rule a: match.path: the list is empty; leave `path` out to match all\n" },
        { "match: { path: {} }", "f:1: rule a: match.path: needs `regex`; or write a template such as /files/#/{name}\n" },
        { "match: { path: { regexp: x } }",
          "f:1: rule a: match.path: unknown field \"regexp\"; did you mean `regex`? Allowed: is, not, present, absent, "
          "regex\n" },
        { "match: { path: { regex: } }", "f:1: rule a: match.path.regex: must be text, not nothing\n" },
        { "match: { path: { regex: '(' } }",
          "f:1: rule a: match.path.regex: invalid regular expression \"(\": missing closing parenthesis (at byte 1)\n" },
        { "match: { path: [ /a, { regex: '[' } ] }", "f:1: rule a: match.path[1].regex: invalid regular expression \"[\": "
                                                     "missing terminating ] for character class (at byte "
                                                     "1)\n" },
        { "match: { header: }", "f:1: rule a: match.header: must be a mapping (NAME: value), not nothing\n" },
        { "match: { header: {} }", "f:1: rule a: match.header: the mapping is empty; leave `header` out to match all\n" },
        { "match: { header: X }", "f:1: rule a: match.header: must be a mapping (NAME: value), not \"X\"\n" },
        { "match: { header: { X: [] } }", "f:1: rule a: match.header.X: the list is empty; leave it out\n" },
        { "match: { header: { X: '' } }", "f:1: rule a: match.header.X: must have 1 to 1000 bytes, not 0\n" },
        { "match: { header: { X: ' a' } }",
          "f:1: rule a: match.header.X: the value of a header must not begin or end with a blank\n" },
        { "match: { header: { X: \"a\\rb\" } }",
          "f:1: rule a: match.header.X: the value of a header must not contain line breaks or other control characters\n" },
        { "match: { header: { X: a, x: b } }",
          "f:1: rule a: match.header: the field \"x\" is given twice; the first is in line 1\n" },
        { "match: { header: { 'a b': c } }",
          "f:1: rule a: match.header: the name of a header must have 1 to 100 letters, digits "
          "or any of !#$%&'*+-.^_`|~, not \"a "
          "b\"\n" },
    };
    EXPECT_RULES(cases);
    expect_listed("match: { paht: /x }", IN_MATCH,
                  "f:1: rule a: match: unknown field \"paht\"; did you mean `path`? Allowed: %s\n");
}

static const struct rule_condition *only_condition(const struct reading *r)
{
    assert_int_equal(r->rules->rules[0]->kind->condition_count, 1);
    return &r->rules->rules[0]->kind->conditions[0];
}

static void conditions_of_all_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        { "user: [ann, bob]", "ann or bob" },
        { "user: { is: [ann, bob, 3] }", "ann, bob or 3" },
        { "user: { not: ann }", "not ann" },
        { "key: { prefix: job- }", "job-*" },
        { "key: { glob: 'a*b*' }", "a*b*" },
        { "key: { glob: ab }", "ab" },
        { "key: [ a, { prefix: b }, { glob: '*c' } ]", "a, b* or *c" },
        { "key: { prefix: a, not: [ ab, { prefix: ac } ] }", "a*, not ab or ac*" },
        { "key: { glob: 'a*', present: true }", "a*, present" },
        { "event: { present: true }", "present" },
        { "event: { absent: yes }", "absent" },
        { "event: 'a*'", "a*" },
        { "ip: [10.0.0.0/8, '2001:DB8::1/32', 192.0.2.1]", "10.0.0.0/8, 2001:db8::/32 or 192.0.2.1" },
        { "ip: { is: 10.0.0.0/8, not: 10.1.1.1/24 }", "10.0.0.0/8, not 10.1.1.0/24" },
        { "host: '*.Example.COM.'", "*.example.com" },
        { "host: [A.de, '*.A.de']", "a.de or *.a.de" },
        { "host: { glob: 'API-*.example.com' }", "api-*.example.com" },
        { "host: { prefix: 'Api.' }", "api.*" },
        { "method: { not: [get, Head] }", "not GET or HEAD" },
        { "method: { glob: 'prop*' }", "PROP*" },
        { "path: { present: true }", "present" },
        { "path: { absent: true }", "absent" },
        { "header: { X-A: [b, C] }", "b or C" },
        { "header: { X-A: { prefix: 'Bearer ' } }", "Bearer *" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "match: { %s }", cases[i].text);
        struct reading r = rule_of(text);
        struct buf shown;
        buf_init(&shown, 1000);
        rule_condition_text(only_condition(&r), &shown);
        assert_text(buf_sv(&shown), cases[i].shown);
        buf_done(&shown);
        reading_done(&r);
    }
    struct reading r = rule_of("match: { path: { is: [/a, { regex: b }], not: /a/b } }, ignore_case: true");
    assert_int_equal(r.rules->rules[0]->match.path_count, 2);
    assert_int_equal(r.rules->rules[0]->match.not_path_count, 1);
    assert_true(r.rules->rules[0]->kind->ignore_case);
    reading_done(&r);
    r = rule_of("match: { path: { regex: /a.*, not: { regex: /ab.* }, present: true } }");
    assert_true(rule_path(&r.rules->rules[0]->match, 0).is_regex);
    assert_true(rule_path(&r.rules->rules[0]->match, 1).is_regex);
    assert_int_equal(r.rules->rules[0]->kind->condition_count, 0);
    reading_done(&r);
    expect_rule("match: { path: { is: [], regex: b } }",
                "f:1: rule a: match.path: `is` and `regex` exclude each other; write a list, as in is: [/a, { regex: … }]\n"
                "f:1: rule a: match.path.is: the list is empty; leave `path` out to match all\n");
    expect_rule("match: { event: 'ocr-*' }",
                "f:1: rule a: advice: match.event: a `*` in a plain value stands for itself; write "
                "{ glob: \"ocr-*\" } for a pattern\n");
}

static void bad_conditions_of_all_kinds(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "match: { user: {} }", "f:1: rule a: match.user: the mapping is empty; leave it out to match all\n" },
        { "match: { user: { is: } }", "f:1: rule a: match.user.is: must be text, not nothing\n" },
        { "match: { user: { not: } }", "f:1: rule a: match.user.not: must be text, not nothing\n" },
        { "match: { user: { not: [] } }",
          "f:1: rule a: match.user.not: the list is empty; leave `user` out to match all\n" },
        { "match: { user: { not: { not: a } } }",
          "f:1: rule a: match.user.not: unknown field \"not\"; allowed: prefix, glob\n" },
        { "match: { user: { nto: a } }",
          "f:1: rule a: match.user: unknown field \"nto\"; did you mean `not`? Allowed: is, not, "
          "present, absent, prefix, glob\n" },
        { "match: { user: { prefix: } }", "f:1: rule a: match.user.prefix: must be text, not nothing\n" },
        { "match: { user: { prefix: [a, b] } }", "f:1: rule a: match.user.prefix: must be text, not a list\n" },
        { "match: { user: { prefix: '' } }", "f:1: rule a: match.user.prefix: must have 1 to 1000 bytes, not 0\n" },
        { "match: { user: { prefix: a, glob: b } }",
          "f:1: rule a: match.user: `is`, `prefix` and `glob` exclude each other; "
          "write a list, as in is: [a, { prefix: b }]\n" },
        { "match: { user: [ { prefix: a, glob: b } ] }", "f:1: rule a: match.user[0]: needs either `prefix` or `glob`\n" },
        { "match: { user: [ {} ] }", "f:1: rule a: match.user[0]: needs either `prefix` or `glob`\n" },
        { "match: { user: { glob: '**' } }",
          "f:1: rule a: match.user.glob: matches every value; use `present: true` for that\n" },
        { "match: { user: { present: false } }",
          "f:1: rule a: match.user.present: must be true; write `absent: true` for the opposite\n" },
        { "match: { user: { absent: false } }",
          "f:1: rule a: match.user.absent: must be true; write `present: true` for the opposite\n" },
        { "match: { user: { absent: 1 } }", "f:1: rule a: match.user.absent: must be true or false, not 1\n" },
        { "match: { user: { absent: true, not: a } }",
          "f:1: rule a: match.user: `absent` cannot be combined with other fields: an absent attribute has no value\n" },
        { "match: { user: { absent: true, present: true } }",
          "f:1: rule a: match.user: `absent` cannot be combined with other fields: an absent attribute has no value\n" },
        { "match: { ip: 10.0.0.0/33 }",
          "f:1: rule a: match.ip: must be an address or a network such as 10.0.0.0/8 or fd00::/8, "
          "not \"10.0.0.0/33\"\n" },
        { "match: { ip: { prefix: '10.' } }", "f:1: rule a: match.ip: unknown field \"prefix\"; "
                                              "allowed: is, not, present, absent\n" },
        { "match: { path: { is: /a, regex: b } }",
          "f:1: rule a: match.path: `is` and `regex` exclude each other; write a list, "
          "as in is: [/a, { regex: … }]\n" },
        { "match: { path: { not: } }", "f:1: rule a: match.path.not: must be text, not nothing\n" },
        { "match: { path: { prefix: /a } }",
          "f:1: rule a: match.path: a path has no `prefix`; write a template such as \"/a/*\"\n" },
        { "match: { path: [/b, { prefix: /a/b/ }] }",
          "f:1: rule a: match.path[1]: a path has no `prefix`; write a template such as \"/a/b/*\"\n" },
        { "match: { path: { not: { glob: '/a/*' } } }",
          "f:1: rule a: match.path.not: a path has no `glob`; write a template such as \"/a/*\"\n" },
        { "match: { path: { glob: '/a*b' } }",
          "f:1: rule a: match.path: a path has no `glob`; write a template such as \"/files/*\"\n" },
        { "match: { path: { prefix: [/a] } }",
          "f:1: rule a: match.path: a path has no `prefix`; write a template such as \"/files/*\"\n" },
        { "match: { path: { prefix: / } }",
          "f:1: rule a: match.path: a path has no `prefix`; write a template such as \"/*\"\n" },
        { "match: { header: { X: { glob: 'a* ' } } }",
          "f:1: rule a: match.header.X.glob: the value of a header must not begin or end with a blank\n" },
        { "match: { header: { X: [a, \"b\\n\"] } }", "f:1: rule a: match.header.X[1]: the value of a header must not "
                                                     "contain line breaks or other control characters\n" },
        { "match: { host: { glob: '*/a' } }", "f:1: rule a: match.host.glob: must be a host name such as api.example.com "
                                              "or *.example.com, an IPv4 address, or an "
                                              "IPv6 address in brackets, without scheme or path, not \"*/a\"\n" },
        { "ignore_case: 1", "f:1: rule a: ignore_case: must be true or false, not 1\n" },
    };
    EXPECT_RULES(cases);
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add(&text, SV("match: { user: ["));
    for (int i = 0; i < RULE_PATTERNS_MAX + 1; i++)
        buf_printf(&text, "%s{ prefix: p%d }", i ? ", " : "", i);
    buf_add(&text, SV("] }"));
    buf_char(&text, '\0');
    expect_rule(text.ptr, "f:1: rule a: match.user: 101 prefixes and globs are too many; at most 100\n");
    buf_clear(&text);
    buf_add(&text, SV("match: { user: ["));
    for (int i = 0; i < RULE_VALUES_MAX + 1; i++)
        buf_printf(&text, "%sa", i ? "," : "");
    buf_add(&text, SV("] }"));
    buf_char(&text, '\0');
    expect_rule(text.ptr, "f:1: rule a: match.user: 10001 are too many; at most 10000\n");
    buf_done(&text);
}

static void bad_entries(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "match: { descriptor: }", "f:1: rule a: match.descriptor: must be a mapping (KEY: value), not nothing\n" },
        { "match: { descriptor: {} }",
          "f:1: rule a: match.descriptor: the mapping is empty; leave `descriptor` out to match all\n" },
        { "match: { descriptor: a }", "f:1: rule a: match.descriptor: must be a mapping (KEY: value), not \"a\"\n" },
        { "match: { descriptor: { a: } }", "f:1: rule a: match.descriptor.a: must be text, not nothing\n" },
        { "match: { descriptor: { a: [] } }", "f:1: rule a: match.descriptor.a: the list is empty; leave it out\n" },
        { "match: { descriptor: { a: { prefix: '' } } }",
          "f:1: rule a: match.descriptor.a.prefix: matches every value; use `present: true` for that\n" },
        { "match: { descriptor: { a: { glob: '*' } } }",
          "f:1: rule a: match.descriptor.a.glob: matches every value; use `present: true` for that\n" },
        { "match: { descriptor: { '': x } }",
          "f:1: rule a: match.descriptor: the key of an entry has 1 to 300 bytes, not \"\"\n" },
        { "match: { descriptor: { '50%': x } }",
          "f:1: rule a: match.descriptor: a `%` in the key of an entry is written %25, not \"50%\"\n" },
        { "match: { descriptor: { 'a#1': x } }", "f:1: rule a: match.descriptor: after `#` is the number of an entry among "
                                                 "those with the same key, from 2 to 256; "
                                                 "a `#` that is part of the key is written %23, not \"a#1\"\n" },
        { "match: { descriptor: { a: x, a: y } }",
          "f:1: rule a: match.descriptor: the field \"a\" is given twice; the first is in line 1\n" },
        { "match: { descriptor: { 'a%2cb': x, 'a,b': y } }",
          "f:1: rule a: match.descriptor: the entry \"a%2Cb\" is given twice\n" },
        { "match: { descriptor_keys: '' }", "f:1: rule a: match.descriptor_keys: must have 1 to 4096 bytes, not 0\n" },
        { "by: ['descriptor:a', 'descriptor:a']", "f:1: rule a: by[1]: \"descriptor:a\" is given twice\n" },
        { "by: 'descriptor:'", "f:1: rule a: by: the key of an entry has 1 to 300 bytes, not \"descriptor:\"\n" },
        { "by: 'descriptor:a#0'", "f:1: rule a: by: after `#` is the number of an entry among those with the same key, "
                                  "from 2 to 256; a `#` that is "
                                  "part of the key is written %23, not \"descriptor:a#0\"\n" },
    };
    EXPECT_RULES(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conditions),
        cmocka_unit_test(hosts),
        cmocka_unit_test(bad_conditions),
        cmocka_unit_test(conditions_of_all_kinds),
        cmocka_unit_test(bad_conditions_of_all_kinds),
        cmocka_unit_test(bad_entries),
    };
    return cmocka_run_group_tests_name("rules/match", tests, NULL, NULL);
}
