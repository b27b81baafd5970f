/* quick.c beside libyaml: what it reads, it reads as libyaml does; and it reads what is usually written. */
#include "helpers.h"
#include "same_tree.h"

/* ---- comparing ---- */

/* Returns whether quick.c has read it. */
static bool compare(sv text)
{
    struct arena arena = { 0 };
    struct node_error error = { 0 };
    const struct node *quick = NULL, *slow = NULL;
    bool checked = text_check(text, &error) == 0 && (!json_looks(text) || json_check(text, &error) == 0);
    bool read = checked && quick_read(text, 5, &arena, &quick);
    if (read) {
        int r = node_read_libyaml(text, 5, &arena, &slow, &error);
        if (r < 0 || !same_tree(quick, slow))
            print_error("seed text (libyaml: %s):\n%.*s<end>\n", r < 0 ? error.text : "another tree", SV_FMT(text));
        assert_int_equal(r, 0);
        assert_true(same_tree(quick, slow));
    }
    arena_done(&arena);
    return read;
}

/* ---- texts that are read ---- */

static void test_usual(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        " \n\t[ 1, -2.5e3, true, null, \"\" ]\n\t",
        "{\"id\": \"a\\u00e9\\n\\\"\\/\", \"limits\":[{\"max\":1 , \"per\" : \"1m\"}]}",
        "{\r\n\t\"a\": [\r\n\t\t1,\r\n\t\t2\r\n\t]\r\n}\r\n",
        "{\"a\": {\"b\": [[], {}, [1]]}}",
        "rules: []\n",
        "---\nrules: []",
        "# first\n\nrules:   # all of them\n  - id: a # one\n    by: [ip, user]\n\n  # two\n  - id: \"b\"\n    match: { "
        "path: /a/#, "
        "method: [GET, 'POST'] }\nsettings:\n    ids:\n",
        "rules:\n- id: a\n  limits:\n  - 10 per 60s\n  - max: 5\n    per: 1m\n- id: b\n",
        "a:\n  -   b: 1\n      c: 2\n  - - x\n    - y\n  -\n    d: e\n",
        "a: it's 5 o'clock, a:b\nb: -x\nc: 'it''s'\nd: \"\\x41\\U0001f600\"\n'e f' : g  \nh: a#b # c\n",
        "a: [b, c-d, \"e\", {f: g, \"h\":1, 'i': [j]},\n  k]\nb: ~\n",
        "\xc3\xa9: [\xe4\xb8\xad, \"\xf0\x9f\x98\x80\"]\n",
        "word",
        "'text'\n# and a comment",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!compare(weir_str(texts[i])))
            print_error("not read: %s\n", texts[i]);
        assert_true(compare(weir_str(texts[i])));
    }
}

/* Rules as weir writes them, as rows and as a file. */
static void test_written(void **state)
{
    (void)state;
    struct reading r = good_reading("settings: { ids: ['[0-9]+'], trusted_proxies: [10.0.0.0/8, 'fd00::/8'] }\n"
                                    "rules:\n"
                                    "  - id: \"a b\"\n"
                                    "    match: { path: [/a/#, '/b/{x}/*'], header: { x-a: [1, 'B c'] }, ip: 10.0.0.0/8 }\n"
                                    "    by: [user, 'header:x-b']\n"
                                    "    limits: [10 per 1m, { name: n, calendar: day, max: 5, tz: Asia/Shanghai }]\n"
                                    "    reject: { body: \"a\\nb\", headers: { A: b } }\n"
                                    "    plan: user\n"
                                    "    plans: { p: [1 per 1s] }\n"
                                    "overrides:\n"
                                    "  - { rule: a b, by: { user: '1', 'header:x-b': x }, limits: [7 per 1s] }\n");
    struct buf text;
    buf_init(&text, 1 << 20);
    rules_write(r.rules, &text);
    assert_true(compare(buf_sv(&text)));
    buf_done(&text);
    reading_done(&r);
}

/* ---- texts that are left to libyaml ---- */

static void test_given_up(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "# nothing\n",
        "a: &x 1\nb: *x\n",
        "a: !!str 1\n",
        "a: |\n  text\n",
        "a: >\n  text\n",
        "? a\n: b\n",
        "a: b\n  c\n",
        "a: \"b\n  c\"\n",
        "a:\n\t- b\n",
        "a: b: c\n",
        "a: 1\n b: 2\n",
        "  a: 1\n b: 2\n",
        "[a, ]",
        "[a",
        "{a}",
        "{a: }",
        "[a: b]",
        "%YAML 1.1\n---\na: 1\n",
        "a: 1\n---\nb: 2\n",
        "a: 1\n...\n",
        "a: @b\n",
        "- a\nb: c\n",
        "a: - b\n",
        "{\"a\"\n: 1}",
        "a: \"1\" \"b\"",
        "[a] b\n",
        "{\"a\": \"\\ud83d\\ude00\"}",
        "{\"a\": \"\\u0000\"}",
        "{\\\"\\ud83d\\ude06: x}",
        "{'a\"\\ud83d\\ude06': x}",
        "\"\\q\"",
        "a: b#c\n  #d\n e",
        "-\n- a\n",
        "a:\n- b\n - c\n",
        "a: \xc2\x85 b\n",
        "'a': 'b'c\n",
        "a: [b\n c]\n",
        "[---]",
        "a: `b`\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (compare(weir_str(texts[i])))
            print_error("read: %s\n", texts[i]);
        assert_false(compare(weir_str(texts[i])));
    }
}

/* As deep and as large as libyaml's tree may be, and no further. */
static void test_bounds(void **state)
{
    (void)state;
    char deep[64] = "";
    for (int levels = 1; levels <= RULES_NESTING_MAX + 1; levels++) {
        memset(deep, '[', (size_t)levels);
        memset(deep + levels, ']', (size_t)levels);
        assert_int_equal(compare(sv_of(deep, 2 * (size_t)levels)), levels <= RULES_NESTING_MAX);
        for (int i = 0; i < levels; i++)
            memcpy(deep + 2 * i, "- ", 2);
        deep[2 * levels] = 'x';
        assert_int_equal(compare(sv_of(deep, 2 * (size_t)levels + 1)), levels <= RULES_NESTING_MAX);
    }
    struct buf text;
    for (int fields = RULES_FIELDS_MAX; fields <= RULES_FIELDS_MAX + 1; fields++) {
        buf_init(&text, 1 << 20);
        for (int i = 0; i < fields; i++)
            buf_printf(&text, "f%d: 1\n", i);
        assert_int_equal(compare(buf_sv(&text)), fields <= RULES_FIELDS_MAX);
        buf_done(&text);
    }
    for (int length = 990; length < 1100; length++) {
        buf_init(&text, 1 << 20);
        buf_add(&text, SV("{\""));
        for (int i = 0; i < length; i++)
            buf_char(&text, 'k');
        buf_add(&text, SV("\": 1}"));
        compare(buf_sv(&text));
        buf_done(&text);
    }
}

/* ---- random texts ---- */

static uint64_t seed;

static size_t below(size_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(seed >> 33) % n;
}

static const char *const pieces[] = {
    "a",      "b",          "key",    ": ",       ":",      " :",       "\n",          "\n",           "\n  ",
    "\n    ", "\n- ",       "\n  - ", "\n    - ", "- ",     "-",        " ",           "  ",           "[",
    "]",      "{",          "}",      ", ",       ",",      "\"x\"",    "'y'",         "\"",           "'",
    "''",     "#c",         " # c",   "---",      "...",    "&a ",      "*a",          "!t ",          "|",
    ">",      "?",          "\t",     "\r\n",     "\\",     "\\n",      "\"\\u00e9\"", "\xc3\xa9",     "%",
    "@",      "~",          "null",   "true",     "-1",     "1.5",      "\xc2\x85",    "\xe2\x80\xa8", "\xef\xbb\xbf",
    "/a/#/b", "10 per 60s", "x: y",   "\n  k: v", "\nk: v", "\n  k:\n", "=",           "<<",           "`",
    "\x7f",
};

static void random_soup(struct buf *out)
{
    static const char *const starts[] = { "", "", "{", "[", "a: ", "a:\n", "- ", "rules:\n  - id: x\n", "{\"a\": " };
    buf_add(out, weir_str(starts[below(sizeof starts / sizeof *starts)]));
    for (size_t i = below(14); i > 0; i--)
        buf_add(out, weir_str(pieces[below(sizeof pieces / sizeof *pieces)]));
}

static void random_scalar(struct buf *out, bool flow)
{
    static const char *const words[] = { "a",    "b c", "10 per 60s", "/a/#", "'it''s'", "\"q\\\"\\n\"",
                                         "true", "-5",  "\"\"",       "x:y" };
    static const char *const blocks[] = { "a, b", "/a/{b}", "a [b]", "c?" };
    bool block = !flow && below(4) == 0;
    buf_add(out, weir_str(block ? blocks[below(4)] : words[below(sizeof words / sizeof *words)]));
}

static void random_flow(struct buf *out, int depth)
{
    bool map = below(2);
    buf_char(out, map ? '{' : '[');
    for (size_t i = 0, n = below(4); i < n; i++) {
        buf_add(out, i ? weir_str(below(3) ? ", " : ",\n      ") : SV(""));
        if (map)
            buf_printf(out, below(2) ? "k%zu: " : "\"k%zu\": ", i);
        if (depth < 3 && below(3) == 0)
            random_flow(out, depth + 1);
        else
            random_scalar(out, true);
    }
    buf_char(out, map ? '}' : ']');
}

static void random_end(struct buf *out)
{
    static const char *const ends[] = { "\n", "\n", "\n", " # c\n", "\n\n", "  \n", "\n# c\n", "\n      # c\n" };
    buf_add(out, weir_str(ends[below(sizeof ends / sizeof *ends)]));
}

/* Behind "key:" or "-". */
static void random_block(struct buf *out, int indent, int depth)
{
    size_t kind = depth > 3 ? below(2) : below(5);
    if (kind < 2) {
        buf_char(out, ' ');
        if (kind == 0)
            random_scalar(out, false);
        else
            random_flow(out, 0);
        random_end(out);
        return;
    }
    bool list = kind == 2, same = list && indent > 0 && below(3) == 0;
    int deeper = same ? indent : indent + 1 + (int)below(4);
    random_end(out);
    for (size_t i = 0, n = 1 + below(3); i < n; i++) {
        if (list)
            buf_printf(out, "%*s-", deeper, "");
        else
            buf_printf(out, "%*sk%zu:", deeper, "", i);
        if (!list && below(8) == 0)
            random_end(out);
        else
            random_block(out, deeper, depth + 1);
    }
}

static void spoil(struct buf *text)
{
    for (size_t i = below(3); i > 0 && text->len > 0; i--) {
        const char *piece = pieces[below(sizeof pieces / sizeof *pieces)];
        size_t at = below(text->len), n = strlen(piece);
        if (below(2) && at + n <= text->len)
            memcpy(text->ptr + at, piece, n);
        else
            text->len -= below(text->len - at + 1);
    }
}

static void test_random(void **state)
{
    (void)state;
    const char *given = getenv("TEST_SEED"), *count = getenv("TEST_COUNT");
    uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    size_t rounds = count ? strtoull(count, NULL, 10) : 60000, read = 0;
    for (size_t i = 0; i < rounds; i++) {
        struct buf text;
        buf_init(&text, 1 << 20);
        buf_add(&text, SV(""));
        seed = first * 1000003 + i;
        size_t kind = below(3);
        if (kind == 0)
            random_soup(&text);
        else if (kind == 1)
            random_flow(&text, 0);
        else
            for (size_t k = 0, n = 1 + below(3); k < n; k++) {
                buf_printf(&text, "t%zu:", k);
                random_block(&text, 0, 0);
            }
        if (below(2))
            spoil(&text);
        read += compare(buf_sv(&text));
        buf_done(&text);
    }
    print_message("# TEST_SEED=%llu: %zu of %zu texts read\n", (unsigned long long)first, read, rounds);
    assert_true(read > rounds / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usual),  cmocka_unit_test(test_written), cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("quick", tests, NULL, NULL);
}
