/* One spelling for each resource. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

#include "../limit/random.h"
#include "match/path.h"

static char out[PATH_BYTES_MAX];
static struct path_segments segments;

static sv normalise(sv raw, bool ignore_case)
{
    unsigned notes = ~0U;
    sv path = path_normalise(raw, ignore_case, out, sizeof out, &notes, &segments);
    assert_false(notes & PATH_CUT);
    return path;
}

static void check(const char *raw, const char *want)
{
    sv got = normalise(weir_str(raw), false);
    if (!sv_eq(got, weir_str(want)))
        fail_msg("\"%s\": \"%.*s\" instead of \"%s\"", raw, SV_FMT(got), want);
}

static void test_query(void **state)
{
    (void)state;
    check("/a?b=/../c#d", "/a");
    check("/a#b?c", "/a");
    check("/a/?", "/a");
    check("/?x", "/");
    check("?x", "/");
    check("#", "/");
    check("/a%3Fb", "/a?b");
    check("/a%23b", "/a#b");
}

static void test_escapes(void **state)
{
    (void)state;
    check("/%61%62", "/ab");
    check("/%7e%7E", "/~~");
    check("/a%2fb", "/a%2Fb");
    check("/a%2Fb", "/a%2Fb");
    check("/a%5cb%5Cc", "/a\\b\\c");
    check("/%2561", "/%2561");
    check("/a%00b", "/a%00b");
    check("/%zz%4", "/%zz%4");
    check("/%", "/%");
    check("/%%61", "/%a");
    check("/a%20b%0A", "/a b\n");
    check("/%C3%A9", "/\xc3\xa9");
    check("/a\\b", "/a\\b");
}

static void test_parameters(void **state)
{
    (void)state;
    check("/a;v=1/b;w", "/a/b");
    check("/a;v=1", "/a");
    check("/;x/a", "/a");
    check("/a/;x", "/a");
    check("/;x", "/");
    check("/a%3Bv=1/b", "/a/b");
    check("/a;v=%2F..%2F/b", "/a/b");
    check("/a;?b", "/a");
}

static void test_dots(void **state)
{
    (void)state;
    check("/a/./b", "/a/b");
    check("/a/../b", "/b");
    check("/a/b/../../c", "/c");
    check("/../../a", "/a");
    check("/a/..", "/");
    check("/a/b/..", "/a");
    check("/a/.", "/a");
    check("/.", "/");
    check("/..", "/");
    check("/%2e/%2E%2e/a", "/a");
    check("/a/.%2e/b", "/b");
    check("/a/..;x/b", "/b");
    check("/a/.;/b", "/a/b");
    check("/a/..%3B/b", "/b");
    check("/a//../b", "/b");
    check("/a/...", "/a/...");
    check("/.well-known/x", "/.well-known/x");
    check("/a..b/.c", "/a..b/.c");
    check("/a%2F..%2Fb", "/a%2F..%2Fb");
}

static void test_slashes(void **state)
{
    (void)state;
    check("", "/");
    check("/", "/");
    check("//", "/");
    check("///a////b//", "/a/b");
    check("/a/", "/a");
    check("a/b", "/a/b");
    check("a", "/a");
    check("../a", "/a");
}

static void test_forms(void **state)
{
    (void)state;
    check("*", "*");
    check("*?x", "*");
    check("**", "/**");
    check("/*", "/*");
    check("http://host/a/b?c", "/a/b");
    check("HTTPS://user@host:443//a/../b", "/b");
    check("http://host", "/");
    check("http://host?a/b", "/");
    check("http://host/*", "/*");
    check("ws+unix.1-a://x/y", "/y");
    check("http:/a", "/http:/a");
    check("1http://a/b", "/1http:/a/b");
    check("://a/b", "/:/a/b");
    check("/http://a/b", "/http:/a/b");
    check("//host/a", "/host/a");
}

static void test_case(void **state)
{
    (void)state;
    check("/A%41", "/AA");
    assert_true(sv_eq(normalise(SV("/Ab%41%C3%89%2f%ZZ"), true), SV("/aba\xc3\x89%2F%zz")));
    assert_true(sv_eq(normalise(SV("/ab/C"), true), SV("/ab/c")));
    assert_true(sv_eq(normalise(SV("HTTP://HOST/A"), true), SV("/a")));
}

static void test_plain_is_not_copied(void **state)
{
    (void)state;
    sv raw = SV("/repo/v1/entity/42/bundle?x=1");
    assert_ptr_equal(normalise(raw, false).ptr, raw.ptr);
    assert_ptr_equal(normalise(raw, true).ptr, raw.ptr);
}

/* ---- the same, written again: a list of segments, no shortcuts ---- */

struct model {
    size_t count, len[600];
    char text[600][600];
};

static int model_hex(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) % 16 : -1;
}

static void model_segment(struct model *m, sv raw, bool ignore_case)
{
    char text[600];
    size_t len = 0;
    for (size_t i = 0; i < raw.len; i++) {
        int high = i + 2 < raw.len && raw.ptr[i] == '%' ? model_hex(raw.ptr[i + 1]) : -1;
        int low = high >= 0 ? model_hex(raw.ptr[i + 2]) : -1;
        int c = low >= 0 ? high * 16 + low : (unsigned char)raw.ptr[i];
        if (low >= 0)
            i += 2;
        if (c == ';')
            break;
        if (low >= 0 && (c == 0 || c == '/' || c == '%')) {
            memcpy(text + len, c == 0 ? "%00" : c == '/' ? "%2F" : "%25", 3);
            len += 3;
        } else {
            text[len++] = ignore_case && c >= 'A' && c <= 'Z' ? (char)(c + 32) : (char)c;
        }
    }
    if (len == 0 || (len == 1 && text[0] == '.'))
        return;
    if (len == 2 && text[0] == '.' && text[1] == '.') {
        m->count -= m->count > 0;
        return;
    }
    memcpy(m->text[m->count], text, len);
    m->len[m->count++] = len;
}

static size_t model_normalise(sv raw, bool ignore_case, char *to)
{
    static struct model m;
    m.count = 0;
    size_t start = 0;
    for (size_t i = 0; i <= raw.len; i++)
        if (i == raw.len || raw.ptr[i] == '/') {
            model_segment(&m, sv_of(raw.ptr + start, i - start), ignore_case);
            start = i + 1;
        }
    size_t len = 0;
    for (size_t i = 0; i < m.count; i++) {
        to[len++] = '/';
        memcpy(to + len, m.text[i], m.len[i]);
        len += m.len[i];
    }
    if (len == 0)
        to[len++] = '/';
    return len;
}

/* ---- the other readings ---- */

static void check_readings(const char *raw, const char *want)
{
    static char pool[PATH_POOL_BYTES];
    struct path_reading readings[PATH_READINGS_MAX];
    struct path_numbers numbers;
    char got[1000] = "";
    unsigned notes;
    sv first = path_normalise(weir_str(raw), false, out, sizeof out, &notes, &segments);
    size_t count = path_readings(weir_str(raw), notes, false, pool, readings, &numbers);
    assert_true(sv_eq(first, readings[0].path));
    if (!(notes & PATH_AMBIGUOUS))
        assert_int_equal(count, 1);
    for (size_t i = 0; i < count; i++) {
        assert_false(readings[i].cut);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", i ? " " : "", SV_FMT(readings[i].path));
    }
    if (strcmp(got, want) != 0)
        fail_msg("\"%s\": \"%s\" instead of \"%s\"", raw, got, want);
}

static void test_readings(void **state)
{
    (void)state;
    check_readings("/a/b", "/a/b");
    check_readings("//a///b/", "/a/b");
    check_readings("/%61%20?;/..%2F", "/a ");
    check_readings("/.well-known/x", "/.well-known/x");
    check_readings("*", "*");
    check_readings("/adm//../x", "/x /adm/x");
    check_readings("/adm/../x", "/x");
    check_readings("/adm/./x", "/adm/x");
    check_readings("/a;v=1/b", "/a/b /a;v=1/b");
    check_readings("/a%3bv=1/b", "/a/b /a;v=1/b");
    check_readings("/a;v/b%3bw", "/a/b /a/b;w /a;v/b;w");
    check_readings("/a/..;/b", "/b /a/..;/b");
    check_readings("/a/;/../b", "/b /a/b");
    check_readings("/a%2fb", "/a%2Fb /a/b");
    check_readings("/a%2F..%2Fb", "/a%2F..%2Fb /b");
    check_readings("/a;x%2Fy/b", "/a/b /a;x%2Fy/b /a/y/b /a;x/y/b");
    check_readings("/a/b/..;/c;/..;/../x", "/x /a/c/x /a/b/..;/c;/x");
    check_readings("/a/%%32e%%32e;/..;/../x", "/x /a/%2e%2e/x /a/%2e%2e;/x");
    check_readings("/a#b/c", "/a /a#b/c");
    check_readings("/a#/../c", "/a /c");
    check_readings("/a?#/../c", "/a");
    check_readings("/a#?/../c", "/a /a#");
    check_readings("/a%23/c", "/a#/c");
    check_readings("/x%0a", "/x\n /x");
    check_readings("/x\n", "/x\n /x");
    check_readings("/x/%0A", "/x/\n /x");
    check_readings("/%0A", "/\n /");
    check_readings("/x%0A/", "/x\n /x");
    check_readings("/x%0Ay", "/x\ny");
    check_readings("http://h/a%2Fb?c%2Fd", "/a%2Fb /a/b");
}

/* ---- texts ---- */

/* Each text, with the number of its reading. */
static void check_texts(const char *raw, const char *want)
{
    static char pool[PATH_POOL_BYTES], text_pool[PATH_POOL_BYTES];
    struct path_reading readings[PATH_READINGS_MAX];
    struct path_numbers numbers;
    struct path_text texts[PATH_TEXTS_MAX];
    char got[1000] = "";
    unsigned notes;
    path_normalise(weir_str(raw), false, out, sizeof out, &notes, &segments);
    path_readings(weir_str(raw), notes, false, pool, readings, &numbers);
    size_t count = path_texts(weir_str(raw), notes, false, &numbers, text_pool, texts);
    if (!(notes & PATH_MAY_HAVE_TEXTS))
        assert_int_equal(count, 0);
    for (size_t i = 0; i < count; i++) {
        assert_false(texts[i].as.cut);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%u:%.*s", i ? " " : "", texts[i].reading,
                 SV_FMT(texts[i].as.path));
    }
    if (strcmp(got, want) != 0)
        fail_msg("\"%s\": \"%s\" instead of \"%s\"", raw, got, want);
}

static void test_texts(void **state)
{
    (void)state;
    check_texts("/", "");
    check_texts("*", "");
    check_texts("/a/b", "");
    check_texts("/a%20/../b;x", "");
    check_texts("/a?/b//", "");
    check_texts("/a/", "0:/a/");
    check_texts("/a/?b", "0:/a/");
    check_texts("/a//", "0:/a/ 0:/a//");
    check_texts("//", "0://");
    check_texts("//a", "0://a");
    check_texts("http://h//a", "0://a");
    check_texts("/a/.", "0:/a/");
    check_texts("/a/b/..", "0:/a/");
    check_texts("/..", "");
    check_texts("/a//..", "1:/a/");
    check_texts("/x/../any///../thing/../", "1:/any/ 1:/any//");
    check_texts("/a/;x", "0:/a/");
    check_texts("/a/;x/b", "0:/a//b");
    check_texts("/a%2F", "1:/a/");
    check_texts("/a%2f%2Fb", "1:/a//b");
    check_texts("/a/%2F", "1:/a/ 1:/a//");
    check_texts("/a/..;/", "1:/a/..;/");
    check_texts("/a#//", "1:/a#/ 1:/a#//");
    check_texts("/a/%0a", "1:/a/");
    check_texts("/a//%0a", "1:/a/ 0:/a//\n 1:/a//");
    check_texts("/a%0a/", "0:/a\n/");
}

/* All readings have their part of the pool, and none leaves it. */
static void test_readings_are_bounded(void **state)
{
    (void)state;
    static char pool[PATH_POOL_BYTES + 1], text_pool[PATH_POOL_BYTES + 1], raw[40000];
    struct path_text texts[PATH_TEXTS_MAX];
    struct path_reading readings[PATH_READINGS_MAX];
    struct path_numbers numbers;
    unsigned notes;
    for (size_t length = 10; length < sizeof raw - 20; length = length * 3 / 2) {
        size_t len = 0;
        static const char spelled[] = "/a;x/b%3b//c%2f..%0a";
        while (len + sizeof spelled < length)
            memcpy(raw + len, spelled, sizeof spelled - 1), len += sizeof spelled - 1;
        memcpy(raw + len, "/y%0A", 5);
        sv path = sv_of(raw, len + 5);
        pool[PATH_POOL_BYTES] = 'Q';
        path_normalise(path, false, out, sizeof out, &notes, &segments);
        size_t count = path_readings(path, notes, false, pool, readings, &numbers);
        assert_int_equal(pool[PATH_POOL_BYTES], 'Q');
        assert_true(count <= PATH_READINGS_MAX);
        for (size_t i = 0; i < count; i++) {
            assert_true(readings[i].path.ptr >= pool &&
                        readings[i].path.ptr + readings[i].path.len <= pool + PATH_POOL_BYTES);
            for (size_t k = 0; k < i; k++)
                assert_false(readings[i].cut == readings[k].cut && sv_eq(readings[i].path, readings[k].path));
        }
        text_pool[PATH_POOL_BYTES] = 'Q';
        size_t text_count = path_texts(path, notes, false, &numbers, text_pool, texts);
        assert_int_equal(text_pool[PATH_POOL_BYTES], 'Q');
        assert_true(text_count <= PATH_TEXTS_MAX && (text_count > 0 || len == 0));
        for (size_t i = 0; i < text_count; i++) {
            assert_true(texts[i].reading < count);
            assert_true(texts[i].as.path.ptr >= text_pool &&
                        texts[i].as.path.ptr + texts[i].as.path.len <= text_pool + PATH_POOL_BYTES);
        }
    }
}

static size_t random_path(struct random *r, char *raw, size_t max)
{
    static const char *const pieces[] = { "/",    "/",   "/",     "/a",  "/bc/D", ".",   "..", "/..",
                                          "/../", "%2e", "%2F",   "%25", ";",     "%3b", "%",  "%6",
                                          "A",    "%41", "x/y/z", "%00", "\\",    "//",  "1",  "\xff" };
    size_t len = 0;
    raw[len++] = '/';
    for (int64_t n = random_in(r, 0, 30); n > 0; n--) {
        const char *piece = pieces[random_in(r, 0, sizeof pieces / sizeof pieces[0] - 1)];
        if (len + strlen(piece) > max)
            break;
        memcpy(raw + len, piece, strlen(piece));
        len += strlen(piece);
    }
    return len;
}

static void test_against_model(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    char raw[200], want[700];
    for (int round = 0; round < 200000; round++) {
        sv path = sv_of(raw, random_path(&r, raw, sizeof raw));
        bool ignore_case = random_one_in(&r, 2);
        size_t len = model_normalise(path, ignore_case, want);
        sv got = normalise(path, ignore_case);
        if (!sv_eq(got, sv_of(want, len)))
            fail_msg("seed %llu, round %d: \"%.*s\": \"%.*s\" instead of \"%.*s\"", (unsigned long long)random_seed(),
                     round, SV_FMT(path), SV_FMT(got), (int)len, want);
    }
}

/* A path that does not fit is the beginning of what it would be with more room; one that fits in the end is whole, however
 * long it was on the way. */
static void test_cut(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    char raw[200], small[200];
    for (int round = 0; round < 100000; round++) {
        sv path = sv_of(raw, random_path(&r, raw, sizeof raw));
        size_t cap = (size_t)random_in(&r, 1, 20);
        unsigned notes;
        sv whole = normalise(path, false);
        sv got = path_normalise(path, false, small, cap, &notes, &segments);
        bool cut = notes & PATH_CUT;
        assert_true(got.len <= cap && got.len > 0);
        assert_int_equal(cut, whole.len > cap);
        sv want = cut ? sv_of(whole.ptr, cap) : whole;
        if (cut && want.len > 1 && want.ptr[want.len - 1] == '/')
            want.len--;
        if (!sv_eq(got, want))
            fail_msg("seed %llu, round %d: \"%.*s\" in %zu bytes: \"%.*s\" instead of \"%.*s\"",
                     (unsigned long long)random_seed(), round, SV_FMT(path), cap, SV_FMT(got), SV_FMT(want));
    }
}

static void test_hidden_behind_length(void **state)
{
    (void)state;
    static char raw[60000];
    size_t len = 0;
    for (int i = 0; i < 8000; i++, len += 2)
        memcpy(raw + len, "/x", 2);
    for (int i = 0; i < 8000; i++, len += 3)
        memcpy(raw + len, "/..", 3);
    memcpy(raw + len, "/login", 6);
    assert_true(sv_eq(normalise(sv_of(raw, len + 6), false), SV("/login")));
}

static void test_split(void **state)
{
    (void)state;
    path_split(SV("/"), &segments);
    assert_int_equal(segments.count, 0);
    path_split(SV("*"), &segments);
    assert_int_equal(segments.count, 1);
    sv path = SV("/a/bc/d");
    path_split(path, &segments);
    assert_int_equal(segments.count, 3);
    assert_true(sv_eq(path_segment_at(path, &segments, 0), SV("a")));
    assert_true(sv_eq(path_segment_at(path, &segments, 1), SV("bc")));
    assert_true(sv_eq(path_segment_at(path, &segments, 2), SV("d")));
    static char deep[PATH_BYTES_MAX];
    for (size_t i = 0; i < sizeof deep; i += 2)
        memcpy(deep + i, "/x", 2);
    path_split(sv_of(deep, 2 * PATH_SEGMENTS_MAX), &segments);
    assert_int_equal(segments.count, PATH_SEGMENTS_MAX);
    path_split(sv_of(deep, sizeof deep), &segments);
    assert_int_equal(segments.count, PATH_SEGMENTS_MAX + 1);
}

static void test_ids(void **state)
{
    (void)state;
    const char *good[] = { "0", "42", "123456789012345678901234567890", "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
                           "6BA7B810-9DAD-11D1-80B4-00C04FD430C8" };
    const char *bad[] = { "",
                          "a",
                          "4a",
                          "-1",
                          "6ba7b810-9dad-11d1-80b4-00c04fd430c",
                          "6ba7b810-9dad-11d1-80b4-00c04fd430c8a",
                          "6ba7b8109dad-11d1-80b4-00c04fd430c8aa",
                          "6ba7b810-9dad-11d1-80b4-00c04fd430cg",
                          "------------------------------------" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!path_segment_is_id(weir_str(good[i])))
            fail_msg("%s is no id", good[i]);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        for (size_t len = 0; len <= strlen(good[i]); len++)
            assert_true(path_segment_begins_id(sv_of(good[i], len)));
    assert_false(path_segment_begins_id(SV("a-")));
    assert_false(path_segment_begins_id(SV("x")));
    assert_false(path_segment_begins_id(SV("6ba7b810-9dad-11d1-80b4-00c04fd430c8a")));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (path_segment_is_id(weir_str(bad[i])))
            fail_msg("%s is an id", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_dots),
        cmocka_unit_test(test_slashes),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_case),
        cmocka_unit_test(test_plain_is_not_copied),
        cmocka_unit_test(test_readings),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_readings_are_bounded),
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_hidden_behind_length),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests_name("path", tests, NULL, NULL);
}
