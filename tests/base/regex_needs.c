/* What a regex needs: known cases, and that nothing matches that does not meet the needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "base/buf.h"
#include "base/regex.h"

/* ---- known cases ---- */

/* "abc x|y": the need "abc", and one of "x" and "y". */
static void check(const char *pattern, const char *want)
{
    struct regex_needs *needs = regex_needs_new(weir_str(pattern));
    assert_non_null(needs);
    char got[2000] = "";
    for (size_t i = 0; i < needs->count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s",
                 i == 0                                             ? ""
                 : needs->texts[i].need == needs->texts[i - 1].need ? "|"
                                                                    : " ",
                 SV_FMT(needs->texts[i].text));
    free(needs);
    if (strcmp(got, want) != 0)
        fail_msg("%s needs \"%s\" instead of \"%s\"", pattern, got, want);
}

static void test_needs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "", "" },
        { "/Api/v1", "/api/v1" },
        { "^/api/.*$", "/api/" },
        { "(?i)/Admin", "/admin" },
        { "/api/v[0-9]+/(bundle|access).*", "/api/v / bundle|access" },
        { "/login|/token", "/login|/token" },
        { "/login|.*", "" },
        { "/(login|)", "/" },
        { "/a(b)(?:c)d", "/a b c d" },
        { "/ab?c", "/a c" },
        { "/ab*c", "/a c" },
        { "/ab+c", "/ab c" },
        { "/ab{0}c", "/a c" },
        { "/ab{0,3}c", "/a c" },
        { "/ab{2}?c", "/ab c" },
        { "/ab{1,}+c", "/ab c" },
        { "/a(bcd)?e", "/a e" },
        { "/a(bcd)*e", "/a e" },
        { "/a(bcd)+e", "/a bcd e" },
        { "/a(bcd|ef){0}g", "/a g" },
        { "/(a|bc(d|ef)g|h.*klm)/", "/ a|bc|klm /" },
        { "/(ab(cd|ef)|gh)?/", "/ /" },
        { "\\.php\\?x", ".php?x" },
        { "/\\d+/\\w*x", "/ / x" },
        { "[]a]b[^]]c[\\]d]e", "b c e" },
        { "/a\xc3\xa9z", "/a z" },
        { "/0123456789abcdef0123456789abcdef0123456789", "/0123456789abcdef0123456789abcde f0123456789" },
        { "/0123456789abcdef0123456789abcdef?0", "/0123456789abcdef0123456789abcde 0" },
        /* Not understood. */
        { "(*UTF)/a", "" },
        { "/a(*ACCEPT)b", "" },
        { "/a(?i)b", "" },
        { "(?x)/a b", "" },
        { "(?x:/a b)", "" },
        { "/a(?#b)c", "" },
        { "/a(?=b)b", "" },
        { "/a(?!b)c", "" },
        { "/a(?<=a)b", "" },
        { "/a(?>b)c", "" },
        { "/(?|(a)|(b))c", "" },
        { "(a)(?1)b", "" },
        { "(a)?(?(1)b|c)", "" },
        { "(a|b)\\1c", "" },
        { "/\\Qa*\\Eb", "" },
        { "/a\\Eb", "" },
        { "/a\\Kb", "" },
        { "/a\\bb", "" },
        { "/\\x41", "" },
        { "/\\cA", "" },
        { "/\\p{L}a", "" },
        { "[[:alpha:]]a", "" },
        { "[\\Q]\\E]a", "" },
        { "[\\c]]a", "" },
        { "/a{,3}b", "" },
        { "/a{ 1}b", "" },
        { "/a{x}b", "" },
        { "/a{2}{0}b", "" },
        { "^*a", "" },
        { "a)", "" },
        { "(a", "" },
        { "[a", "" },
        { "a\\", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(cases[i][0], cases[i][1]);
}

static void test_bounds(void **state)
{
    (void)state;
    char pattern[4097] = "";
    memset(pattern, '(', 2000);
    memset(pattern + 2000, ')', 2000);
    check(pattern, "");
    for (size_t i = 0; i < 4096; i += 2)
        memcpy(pattern + i, "a.", 2);
    struct regex_needs *needs = regex_needs_new(weir_str(pattern));
    assert_true(needs && needs->count == NEED_TEXTS_MAX);
    free(needs);
    for (size_t i = 0; i < 4096; i += 2)
        memcpy(pattern + i, "a|", 2);
    check(pattern, "");
    memset(pattern, 'a', 4096);
    needs = regex_needs_new(weir_str(pattern));
    assert_true(needs && needs->count <= NEED_TEXTS_MAX);
    free(needs);
}

/* A regex that reaches its bound says no if the text cannot match. */
static void test_bound(void **state)
{
    (void)state;
    struct regex *regex = NULL;
    char error[200], text[60];
    assert_int_equal(regex_new(&regex, SV("(a+)+[bc](xy|z)"), false, error, sizeof error), 0);
    memset(text, 'a', sizeof text);
    assert_int_equal(regex_match(regex, sv_of(text, sizeof text)), REGEX_NO);
    text[58] = 'Z';
    assert_int_equal(regex_match(regex, sv_of(text, sizeof text)), REGEX_BOUND);
    memcpy(text + 57, "aby", 3);
    assert_int_equal(regex_match(regex, sv_of(text, sizeof text)), REGEX_NO);
    regex_free(regex);
}

/* ---- random ones ---- */

enum { ROOM = 400 };

/* A pattern, and a text that it likely matches. */
struct pair {
    char pattern[ROOM], text[ROOM];
    size_t pattern_len, text_len;
    bool either_case;
};

static void add(char *to, size_t *len, const char *text, size_t n)
{
    if (*len + n < ROOM - 1) {
        memcpy(to + *len, text, n);
        *len += n;
        to[*len] = '\0';
    }
}

static void add_pattern(struct pair *p, const char *text)
{
    add(p->pattern, &p->pattern_len, text, strlen(text));
}

static void add_text(struct pair *p, struct random *r, const char *text)
{
    for (; *text; text++) {
        char c = *text;
        if (p->either_case && ascii_letter(c) && random_one_in(r, 2))
            c ^= 0x20;
        add(p->text, &p->text_len, &c, 1);
    }
}

static void add_alternatives(struct pair *p, struct random *r, int depth);

/* Pieces, and what each of them matches. Some change what follows, or what came before. */
static const char *const pieces[][2] = {
    { "a", "a" },
    { "b", "b" },
    { "/", "/" },
    { "B1", "B1" },
    { "ab", "ab" },
    { "[ab]", "b" },
    { "[^/]", "a" },
    { "[]a]", "]" },
    { "[\\]b-]", "-" },
    { "[[:alpha:]]", "b" },
    { ".", "/" },
    { "\\.", "." },
    { "\\d", "1" },
    { "\\w", "a" },
    { "\\S", "/" },
    { "\\Qa*\\E", "a*" },
    { "(?i)", "" },
    { "(?x) a #b\n", "a" },
    { "(?#c)", "" },
    { "(?=a)a", "a" },
    { "(?!b)a", "a" },
    { "\\x61", "a" },
    { "\\/", "/" },
    { "^", "" },
    { "$", "" },
    { "\\b", "" },
    { "(a)\\1", "aa" },
    { "(?>ab|a)", "ab" },
    { "\\K", "" },
    { "{", "{" },
    { "a{,2}", "" },
    { "\\E", "" },
    { "(*ACCEPT)", "" },
    { "]", "]" },
    { "}", "}" },
    { "(?-i)", "" },
    { "[\\Q]\\E]", "]" },
    { "\xc3\xa9", "\xc3\xa9" },
    { "(?<n>a)", "a" },
    { "(?|(a)|(b))", "b" },
    { "\\N", "b" },
    { "\\R", "\n" },
    { "[\\d/]", "1" },
    { "(?s:.)", "\n" },
    { "(?(?=a)a|b)", "b" },
};

static const struct {
    const char *text;
    int least, most;
} quantifiers[] = {
    { "*", 0, 3 },      { "+", 1, 3 },   { "?", 0, 1 },    { "*?", 0, 2 },     { "+?", 1, 2 },    { "??", 0, 1 },
    { "++", 1, 2 },     { "{0}", 0, 0 }, { "{2}", 2, 2 },  { "{0,}", 0, 2 },   { "{1,2}", 1, 2 }, { "{0,2}", 0, 2 },
    { "{0,1}?", 0, 1 }, { "{1}", 1, 1 }, { "{,2}", 1, 1 }, { "{2}{0}", 0, 0 },
};

static void add_item(struct pair *p, struct random *r, int depth)
{
    size_t before = p->text_len;
    if (depth < 4 && random_one_in(r, 4)) {
        add_pattern(p, random_one_in(r, 2) ? "(" : "(?:");
        add_alternatives(p, r, depth + 1);
        add_pattern(p, ")");
    } else {
        /* Mostly pieces that the parser understands. */
        int64_t last = (int64_t)(sizeof pieces / sizeof pieces[0]) - 1;
        int64_t i = random_in(r, 0, random_one_in(r, 12) ? last : 14);
        add_pattern(p, pieces[i][0]);
        add_text(p, r, pieces[i][1]);
    }
    if (!random_one_in(r, 4))
        return;
    int64_t i = random_in(r, 0, (int64_t)(sizeof quantifiers / sizeof quantifiers[0]) - 1);
    add_pattern(p, quantifiers[i].text);
    char once[ROOM];
    size_t len = p->text_len - before;
    memcpy(once, p->text + before, len);
    p->text_len = before;
    for (int64_t n = random_in(r, quantifiers[i].least, quantifiers[i].most); n > 0; n--)
        add(p->text, &p->text_len, once, len);
}

static void add_sequence(struct pair *p, struct random *r, int depth)
{
    for (int64_t n = random_in(r, 0, 5); n > 0; n--)
        add_item(p, r, depth);
}

static void add_alternatives(struct pair *p, struct random *r, int depth)
{
    int64_t count = random_one_in(r, 3) ? random_in(r, 2, 3) : 1, chosen = random_in(r, 0, count - 1);
    for (int64_t i = 0; i < count; i++) {
        size_t before = p->text_len;
        add_pattern(p, i > 0 ? "|" : "");
        add_sequence(p, r, depth);
        if (i != chosen)
            p->text_len = before;
    }
}

static void change_text(struct pair *p, struct random *r)
{
    static const char bytes[] = "abAB/1.-]{}* \n";
    for (int64_t n = random_in(r, 1, 3); n > 0 && p->text_len > 0; n--)
        p->text[random_in(r, 0, (int64_t)p->text_len - 1)] = bytes[random_in(r, 0, (int64_t)sizeof bytes - 2)];
}

/* Whatever matches meets the needs, and what the bound says agrees with them. */
static void test_random(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    const char *count = getenv("TEST_COUNT");
    size_t matched = 0, useful = 0;
    for (size_t round = 0, rounds = count ? strtoul(count, NULL, 0) : 60000; round < rounds; round++) {
        struct pair p = { .either_case = random_one_in(&r, 4) };
        if (p.either_case && random_one_in(&r, 2))
            add_pattern(&p, "(?i)");
        bool ignore_case = p.either_case && p.pattern_len == 0;
        add_alternatives(&p, &r, 0);
        struct regex *regex = NULL;
        char error[200];
        if (regex_new(&regex, sv_of(p.pattern, p.pattern_len), ignore_case, error, sizeof error) < 0)
            continue;
        for (int try = 0; try < 4; try++) {
            sv text = sv_of(p.text, p.text_len);
            enum regex_result said = regex_match(regex, text);
            if (said != REGEX_NO && !regex_needs_met(regex_needs(regex), text))
                fail_msg("seed %llu, round %zu: `%s` matches \"%.*s\" without what it needs",
                         (unsigned long long)random_seed(), round, p.pattern, SV_FMT(text));
            matched += said == REGEX_YES;
            useful += said == REGEX_YES && regex_needs(regex)->count > 0;
            change_text(&p, &r);
        }
        regex_free(regex);
    }
    assert_true(count || (matched > 20000 && useful > 10000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("regex_needs", tests, NULL, NULL);
}
