/* Whatever a common server makes of a path, the rules for that apply. The servers are written here as simply as they can
 * be, each for itself: text in, segments out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "base/regex.h"
#include "read.h"

enum { TEXT_MAX = 40000, SEGMENTS_MAX = 20000 };

/* A path as a server sees it: text, with its query gone. */
struct text {
    size_t len;
    char at[TEXT_MAX];
};

static struct text a, b;

static int hex(char c)
{
    const char *digits = "0123456789abcdefABCDEF", *found = c ? strchr(digits, c) : NULL;
    return !found ? -1 : found - digits < 16 ? (int)(found - digits) : (int)(found - digits) - 6;
}

static int escape(const struct text *t, size_t i)
{
    if (t->at[i] != '%' || i + 2 >= t->len || hex(t->at[i + 1]) < 0 || hex(t->at[i + 2]) < 0)
        return -1;
    return hex(t->at[i + 1]) * 16 + hex(t->at[i + 2]);
}

/* Percent-decodes it, an encoded slash only if `slash`. What weir keeps encoded in a segment is so here. */
static void decode(struct text *t, bool slash)
{
    size_t n = 0;
    for (size_t i = 0; i < t->len; i++) {
        int c = escape(t, i);
        bool kept = c == '%' || c == 0 || (c == '/' && !slash);
        if (kept)
            n += (size_t)sprintf(b.at + n, "%%%02X", (unsigned)c);
        else
            b.at[n++] = c >= 0 ? (char)c : t->at[i];
        i += c >= 0 ? 2 : 0;
    }
    memcpy(t->at, b.at, n);
    t->len = n;
}

/* Drops `;…` of each segment. */
static void drop_params(struct text *t)
{
    size_t n = 0;
    bool inside = false;
    for (size_t i = 0; i < t->len; i++) {
        inside = t->at[i] == ';' || (inside && t->at[i] != '/');
        if (!inside)
            t->at[n++] = t->at[i];
    }
    t->len = n;
}

static void merge_slashes(struct text *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->len; i++)
        if (t->at[i] != '/' || n == 0 || t->at[n - 1] != '/')
            t->at[n++] = t->at[i];
    t->len = n;
}

/* RFC 3986, 5.2.4, word by word, for a path that begins with a slash. */
static void remove_dot_segments(struct text *t)
{
    size_t in = 0, n = 0;
    t->at[t->len] = '\0';
    while (in < t->len) {
        const char *rest = t->at + in;
        if (strncmp(rest, "/./", 3) == 0) {
            in += 2;
        } else if (strcmp(rest, "/.") == 0) {
            in++;
            t->at[in] = '/';
        } else if (strncmp(rest, "/../", 4) == 0 || strcmp(rest, "/..") == 0) {
            bool last = rest[3] == '\0';
            in += last ? 2 : 3;
            t->at[in] = '/';
            while (n > 0 && b.at[--n] != '/')
                ;
        } else {
            do
                b.at[n++] = t->at[in++];
            while (in < t->len && t->at[in] != '/');
        }
    }
    memcpy(t->at, b.at, n);
    t->len = n;
}

/* ---- the servers ---- */

static void nginx(void)
{
    decode(&a, true);
    merge_slashes(&a);
    remove_dot_segments(&a);
}

static void nginx_merge_slashes_off(void)
{
    decode(&a, true);
    remove_dot_segments(&a);
}

static void httpd_no_decode(void)
{
    decode(&a, false);
    merge_slashes(&a);
    remove_dot_segments(&a);
}

static void rfc_3986(void)
{
    decode(&a, false);
    remove_dot_segments(&a);
}

static void tomcat(void)
{
    drop_params(&a);
    decode(&a, false);
    merge_slashes(&a);
    remove_dot_segments(&a);
}

static void tomcat_decodes_slashes(void)
{
    drop_params(&a);
    decode(&a, true);
    merge_slashes(&a);
    remove_dot_segments(&a);
}

static void jetty(void)
{
    drop_params(&a);
    decode(&a, false);
    remove_dot_segments(&a);
}

static void jetty_decodes_slashes(void)
{
    drop_params(&a);
    decode(&a, true);
    remove_dot_segments(&a);
}

/* Behind a proxy that hands on what it has decoded. */
static void decoded_then_tomcat(void)
{
    decode(&a, true);
    drop_params(&a);
    merge_slashes(&a);
    remove_dot_segments(&a);
}

static void decoded_then_jetty(void)
{
    decode(&a, true);
    drop_params(&a);
    remove_dot_segments(&a);
}

/* nginx hands on the path of its location, and Tomcat reads what is left of it. */
static void nginx_then_tomcat(void)
{
    nginx();
    drop_params(&a);
    merge_slashes(&a);
    remove_dot_segments(&a);
}

static void nginx_then_jetty(void)
{
    nginx_merge_slashes_off();
    drop_params(&a);
    remove_dot_segments(&a);
}

static void (*const servers[])(void) = {
    nginx,
    nginx_merge_slashes_off,
    httpd_no_decode,
    rfc_3986,
    tomcat,
    tomcat_decodes_slashes,
    jetty,
    jetty_decodes_slashes,
    decoded_then_tomcat,
    decoded_then_jetty,
    nginx_then_tomcat,
    nginx_then_jetty,
};

/* ---- rules ---- */

enum { RULES = 60, DEPTH = 4 };

static const char *const words[] = { "a", "b", "1", "22", "adm", "#", "{x}", "a%2Fb", "b", "a" };
static const char *templates[RULES][DEPTH + 1]; /* ended by NULL; the last word may be "*" */

/* Rules with regexes, behind the others. */
static const char *const patterns[] = { "/a/.+",  "/a/.*",        "/a/",        ".*/b/",      ".*//.*",      "//+",
                                        "/a//b",  "/[^/]+/[^/]*", "/(a|1)/+b?", "(/+[a-z])+", "(/[^/]*){3}", "/adm/?",
                                        "/adm/.", "/a/[a-z]*",    "/.{2,3}",    "/+",         ".*[^/]" };
enum { PATTERNS = sizeof patterns / sizeof *patterns, ALL_RULES = RULES + PATTERNS };
static struct regex *regexes[PATTERNS];

static int make_regexes(void **state)
{
    (void)state;
    char error[200];
    for (size_t i = 0; i < PATTERNS; i++)
        assert_int_equal(regex_new(&regexes[i], weir_str(patterns[i]), false, error, sizeof error), 0);
    return 0;
}

static int free_regexes(void **state)
{
    (void)state;
    for (size_t i = 0; i < PATTERNS; i++)
        regex_free(regexes[i]);
    return 0;
}

static struct ruleset *random_rules(struct random *r)
{
    struct buf yaml;
    buf_init(&yaml, 1 << 20);
    buf_printf(&yaml, "rules:\n");
    for (int i = 0; i < RULES; i++) {
        int depth = (int)random_in(r, 1, DEPTH);
        for (int k = 0; k < depth; k++)
            templates[i][k] = words[random_in(r, 0, sizeof words / sizeof *words - 1)];
        if (random_one_in(r, 4))
            templates[i][depth - 1] = "*";
        templates[i][depth] = NULL;
        buf_printf(&yaml, "- { id: r%d, limits: [1 per 1s], match: { path: '", i);
        for (int k = 0; k < depth; k++)
            buf_printf(&yaml, "/%s", templates[i][k]);
        buf_printf(&yaml, "' } }\n");
    }
    for (size_t i = 0; i < PATTERNS; i++)
        buf_printf(&yaml, "- { id: x%zu, limits: [1 per 1s], match: { path: { regex: '%s' } } }\n", i, patterns[i]);
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    return ruleset;
}

static bool word_fits(const char *word, const char *segment, size_t len)
{
    if (word[0] == '{')
        return true;
    if (word[0] == '#')
        return strspn(segment, "0123456789") >= len;
    return strlen(word) == len && memcmp(word, segment, len) == 0;
}

/* The template against what a server has read; empty segments are none. */
static bool fits(const char *const *template, const struct text *t)
{
    for (size_t i = 0; i < t->len;) {
        if (t->at[i] == '/') {
            i++;
            continue;
        }
        size_t end = i;
        while (end < t->len && t->at[end] != '/')
            end++;
        if (!*template)
            return false;
        if (strcmp(*template, "*") == 0)
            return true;
        if (!word_fits(*template ++, t->at + i, end - i))
            return false;
        i = end;
    }
    return !*template || strcmp(*template, "*") == 0;
}

static void check(const struct ruleset *ruleset, sv raw, size_t *needed)
{
    static struct facts facts;
    struct weir_request request = { .path = raw };
    uint32_t found[ALL_RULES];
    bool has[ALL_RULES] = { false };
    facts_init(&facts, ruleset, &request, request.user);
    size_t count = ruleset_match(ruleset, &facts, 0, found, ALL_RULES);
    for (size_t i = 0; i < count; i++)
        has[found[i]] = true;
    for (size_t i = 0; i < ALL_RULES; i++) {
        sv detail;
        if (has[i] != (ruleset_explain(ruleset, i, &facts, 0, &detail) == MATCH_YES))
            fail_msg("seed %llu: \"%.*s\": rule %zu: matched %d, but not explained so", (unsigned long long)random_seed(),
                     raw.len < 200 ? (int)raw.len : 200, raw.ptr, i, has[i]);
    }
    for (size_t s = 0; s < sizeof servers / sizeof *servers; s++)
        for (int newline = 0; newline < 2; newline++) {
            memcpy(a.at, raw.ptr, raw.len);
            a.len = raw.len;
            servers[s]();
            a.len -= newline && a.len > 0 && a.at[a.len - 1] == '\n';
            for (size_t i = 0; i < ALL_RULES; i++) {
                bool wanted =
                    i < RULES ? fits(templates[i], &a) : regex_match(regexes[i - RULES], sv_of(a.at, a.len)) == REGEX_YES;
                *needed += wanted;
                if (wanted && !has[i])
                    fail_msg("seed %llu: \"%.*s\": server %zu reads \"%.*s\", and rule %zu does not apply",
                             (unsigned long long)random_seed(), raw.len < 200 ? (int)raw.len : 200, raw.ptr, s,
                             a.len < 200 ? (int)a.len : 200, a.at, i);
            }
        }
}

static const char *const pieces[] = { "/",   "/",    "/",     "/a",   "/b",  "/1",    "/22",    "/adm",  "//",
                                      "/..", "/../", "/.",    "%2e",  "%2F", "%2f",   ";",      "%3b",   ";x=1",
                                      "..;", "/;/",  "%2F..", "%2f/", "..",  "/%2e.", "%2F%2F", "%25",   "%61",
                                      "/a",  "/b",   "//..",  "%5c",  "\\",  "b",     "/;%23",  "/;%3f", "/;*" };
static const char *const ends[] = { "", "", "", "", "/", "%0a", "%0A", "/%0a", "%0a;x", ";%0a", "%0d" };

static size_t put(char *to, const char *text)
{
    memcpy(to, text, strlen(text));
    return strlen(text);
}

static size_t random_path(struct random *r, char *raw)
{
    size_t len = put(raw, "/");
    for (int64_t n = random_in(r, 0, 12); n > 0; n--)
        len += put(raw + len, pieces[random_in(r, 0, sizeof pieces / sizeof *pieces - 1)]);
    return len + put(raw + len, ends[random_in(r, 0, sizeof ends / sizeof *ends - 1)]);
}

static void test_every_server(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    size_t needed = 0;
    for (int round = 0; round < 60; round++) {
        struct ruleset *ruleset = random_rules(&r);
        for (int ask = 0; ask < 500; ask++) {
            char raw[200];
            check(ruleset, sv_of(raw, random_path(&r, raw)), &needed);
        }
        ruleset_free(ruleset);
    }
    assert_true(needed > 100000);
}

/* The beginning is all that is read of a path that is too long; the rest may be anything, and may be taken back. */
static void test_too_long(void **state)
{
    (void)state;
    static char raw[TEXT_MAX];
    static const char *const fillers[] = { "x", "1", "/b", "/x", "%2Fb", ";", "b;/", "//", "/./b", "%61", "/%2e" };
    struct random r = { random_seed() };
    size_t needed = 0;
    for (int round = 0; round < 60; round++) {
        struct ruleset *ruleset = random_rules(&r);
        for (int ask = 0; ask < 10; ask++) {
            size_t len = random_path(&r, raw), length = (size_t)random_in(&r, 500, 20000);
            const char *filler = fillers[random_in(&r, 0, sizeof fillers / sizeof *fillers - 1)];
            int back = 0;
            len += put(raw + len, "/");
            for (; len < length; back++)
                len += put(raw + len, filler);
            for (back -= (int)random_in(&r, 0, 3); random_one_in(&r, 2) && back > 0 && len < TEXT_MAX - 300; back--)
                len += put(raw + len, "/..");
            len += random_path(&r, raw + len);
            check(ruleset, sv_of(raw, len), &needed);
        }
        ruleset_free(ruleset);
    }
    assert_true(needed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_server),
        cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests_name("readers", tests, make_regexes, free_regexes);
}
