/* What signing in needs: the cookie of a session, the list of ended sessions, and the slow-down of wrong tokens. Time is an
 * argument. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "serve/ended.h"
#include "serve/guesses.h"

#include "files.h"

CLEANUP_POINTER(struct tokens *, tokens_unref);

enum { NOW_S = 1767225600 };

enum { TOKENS = 4 };

static struct token make_token(const char *name, enum role role, const char *secret)
{
    struct token token = { .role = role };
    snprintf(token.name, sizeof token.name, "%s", name);
    sha256(secret, strlen(secret), token.hash);
    return token;
}

static struct tokens *some_tokens(void)
{
    struct tokens *tokens = calloc(1, sizeof *tokens + TOKENS * sizeof tokens->of[0]);
    assert_non_null(tokens);
    tokens->refs = 1;
    tokens->of[0] = make_token("read", ROLE_READ, "read-read-read-read");
    tokens->of[1] = make_token("operate", ROLE_OPERATE, "operate-operate-operate");
    tokens->of[2] = make_token("admin", ROLE_ADMIN, "admin-admin-admin-admin");
    tokens->of[3] = make_token("a.n+n@example.org", ROLE_OPERATE, "ann-ann-ann-ann-ann");
    tokens->count = TOKENS;
    return tokens;
}

/* ---- cookies ---- */

static void names(void **state)
{
    char name[COOKIE_NAME_MAX], other[COOKIE_NAME_MAX];
    (void)state;
    cookie_name("127.0.0.1:8081", name);
    assert_string_equal(name, "weir_8081");
    cookie_name("[::1]:65535", name);
    assert_string_equal(name, "weir_65535");
    cookie_name("unix:/run/weir:8081", name);
    cookie_name("unix:/run/weir:8082", other);
    assert_int_equal(strncmp(name, "weir_unix_", 10), 0);
    assert_string_not_equal(name, other);
    cookie_name("off", name);
}

static bool reads(const char *value, const struct tokens *tokens, int64_t now_s)
{
    struct cookie read;
    return cookie_read(&read, weir_str(value), "weir_8081", tokens, now_s);
}

static void cookies(void **state)
{
    CLEANUP(tokens_unrefp) struct tokens *tokens = some_tokens();
    char value[COOKIE_VALUE_MAX];
    struct cookie cookie, read;
    (void)state;
    for (size_t i = 0; i < TOKENS; i++)
        for (int https = 0; https < 2; https++) {
            assert_true(cookie_begin(&cookie, &tokens->of[i], https, NOW_S));
            cookie_write(&cookie, "weir_8081", tokens, value);
            assert_true(cookie_read(&read, weir_str(value), "weir_8081", tokens, NOW_S));
            assert_int_equal(read.role, tokens->of[i].role);
            assert_string_equal(read.token, tokens->of[i].name);
            assert_int_equal(read.https, https);
            assert_int_equal(read.ends_s, NOW_S + COOKIE_LIFE_S);
            assert_int_equal(cookie_began_s(&read), NOW_S);
            assert_memory_equal(read.nonce, cookie.nonce, COOKIE_NONCE);
            assert_null(strpbrk(value, " ,;\"\\=\r\n")); /* it needs no quotes */
        }
    assert_true(reads(value, tokens, NOW_S + COOKIE_LIFE_S - 1));
    assert_false(reads(value, tokens, NOW_S + COOKIE_LIFE_S));
    assert_true(reads(value, tokens, NOW_S - 300));
    assert_false(reads(value, tokens, NOW_S - 301));
    assert_false(cookie_read(&read, weir_str(value), "weir_8082", tokens, NOW_S)); /* of another port */

    struct cookie second;
    assert_true(cookie_begin(&second, &tokens->of[3], true, NOW_S));
    assert_memory_not_equal(second.nonce, cookie.nonce, COOKIE_NONCE);

    /* It ends with its own token, with another role of it, and with the key of the host. */
    const struct token ann = tokens->of[3];
    tokens->of[3] = make_token(ann.name, ann.role, "another-another");
    assert_false(reads(value, tokens, NOW_S));
    tokens->of[3] = ann;
    tokens->of[3].role = ROLE_ADMIN;
    assert_false(reads(value, tokens, NOW_S));
    tokens->of[3] = ann;
    tokens->session_key[31]++;
    assert_false(reads(value, tokens, NOW_S));
    tokens->session_key[31]--;
    tokens->of[2] = make_token("admin", ROLE_ADMIN, "another-another");
    assert_true(reads(value, tokens, NOW_S));
    tokens->count--;
    assert_false(reads(value, tokens, NOW_S));
}

/* Each byte of it matters, and so does its end. */
static void changed_cookies(void **state)
{
    CLEANUP(tokens_unrefp) struct tokens *tokens = some_tokens();
    char value[COOKIE_VALUE_MAX], other[2 * COOKIE_VALUE_MAX];
    struct cookie cookie;
    (void)state;
    assert_true(cookie_begin(&cookie, &tokens->of[0], false, NOW_S));
    cookie_write(&cookie, "weir_8081", tokens, value);
    size_t len = strlen(value);
    for (size_t i = 0; i < len; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(other, value, len + 1);
            other[i] = (char)(other[i] ^ 1 << bit);
            struct cookie read;
            assert_false(cookie_read(&read, sv_of(other, len), "weir_8081", tokens, NOW_S));
        }
    for (size_t i = 0; i < len; i++) {
        memcpy(other, value, i);
        other[i] = '\0';
        assert_false(reads(other, tokens, NOW_S));
    }
    snprintf(other, sizeof other, "%sx", value);
    assert_false(reads(other, tokens, NOW_S));
    snprintf(other, sizeof other, "\"%s\"", value);
    assert_false(reads(other, tokens, NOW_S));
    /* Another role, sealed with the token of the role that it had. */
    snprintf(other, sizeof other, "admin%s", strchr(value, '.'));
    assert_false(reads(other, tokens, NOW_S));
    snprintf(other, sizeof other, "none%s", strchr(value, '.'));
    assert_false(reads(other, tokens, NOW_S));
    /* Another name, sealed with the token of the name that it had. */
    snprintf(other, sizeof other, "%.*s.operate%s", (int)(strstr(value, ".read.") - value), value,
             strstr(value, ".read.") + 5);
    assert_false(reads(other, tokens, NOW_S));
    memset(other, '.', sizeof other - 1);
    other[sizeof other - 1] = '\0';
    assert_false(reads(other, tokens, NOW_S));
    memcpy(other, "read.", 5);
    assert_false(reads(other, tokens, NOW_S));
}

static void cookie_headers(void **state)
{
    sv rest = SV("a=1; weir_8081=one;weir_8081=\"two\" ; weir_80812=x; xweir_8081=y; weir_8081; weir_8081=; "
                 "Weir_8081=z;;=;weir_8081=a=b");
    (void)state;
    static const char *const found[] = { "one", "\"two\"", "", "", "a=b" };
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        sv value = cookie_next(&rest, "weir_8081");
        assert_non_null(value.ptr);
        if (!sv_eq(value, weir_str(found[i])))
            fail_msg("%zu: `%.*s`", i, SV_FMT(value));
    }
    assert_null(cookie_next(&rest, "weir_8081").ptr);
    rest = (sv){ 0 };
    assert_null(cookie_next(&rest, "weir_8081").ptr);
    rest = SV(";;; ; =;");
    assert_null(cookie_next(&rest, "weir_8081").ptr);
}

/* ---- ended sessions ---- */

struct folder {
    char path[64], file[96];
};

static struct folder make_folder(void)
{
    struct folder folder = { .path = "/tmp/weir-session.XXXXXX" };
    assert_non_null(mkdtemp(folder.path));
    snprintf(folder.file, sizeof folder.file, "%s/ended-sessions", folder.path);
    return folder;
}

static void remove_folder(const struct folder *folder)
{
    unlink(folder->file);
    assert_int_equal(rmdir(folder->path), 0);
}

static struct cookie begun(enum role role, int64_t now_s)
{
    const struct token token = make_token("x", role, "some-some-some-some");
    struct cookie cookie;
    assert_true(cookie_begin(&cookie, &token, false, now_s));
    return cookie;
}

static void ended_sessions(void **state)
{
    struct folder folder = make_folder();
    struct ended *ended = calloc(1, sizeof *ended);
    struct weir_error error;
    struct stat st;
    (void)state;
    struct cookie first = begun(ROLE_READ, NOW_S), second = begun(ROLE_READ, NOW_S), third = begun(ROLE_ADMIN, NOW_S);
    assert_int_equal(ended_init(ended, folder.path, NOW_S, &error), 0);
    assert_false(ended_has(ended, &first));
    assert_int_equal(ended_add(ended, &first, NOW_S, &error), 0);
    assert_int_equal(ended_add(ended, &third, NOW_S, &error), 0);
    assert_int_equal(ended_add(ended, &third, NOW_S, &error), 0);
    assert_true(stat(folder.file, &st) == 0 && (st.st_mode & 0777) == 0600);
    for (int again = 0; again < 2; again++) {
        assert_true(ended_has(ended, &first) && ended_has(ended, &third));
        assert_false(ended_has(ended, &second));
        ended_done(ended);
        assert_int_equal(ended_init(ended, folder.path, NOW_S + 1, &error), 0);
    }
    assert_int_equal(ended->roles[ROLE_ADMIN].count, 1);
    ended_done(ended);
    /* What has expired is not kept. */
    assert_int_equal(ended_init(ended, folder.path, NOW_S + COOKIE_LIFE_S, &error), 0);
    struct cookie late = begun(ROLE_READ, NOW_S + COOKIE_LIFE_S);
    assert_int_equal(ended_add(ended, &late, NOW_S + COOKIE_LIFE_S, &error), 0);
    assert_int_equal(ended->roles[ROLE_READ].count, 1);
    ended_done(ended);
    remove_folder(&folder);
    free(ended);
}

/* More than there is room for: those of that role that began no later than the oldest have ended, and no other ones. */
static void many_ended_sessions(void **state)
{
    struct folder folder = make_folder();
    struct ended *ended = calloc(1, sizeof *ended);
    struct weir_error error;
    struct cookie sessions[ENDED_MAX + 1];
    (void)state;
    assert_int_equal(ended_init(ended, folder.path, NOW_S, &error), 0);
    struct cookie older = begun(ROLE_READ, NOW_S + 3), younger = begun(ROLE_READ, NOW_S + 4);
    struct cookie other = begun(ROLE_ADMIN, NOW_S);
    for (int i = 0; i <= ENDED_MAX; i++) {
        sessions[i] = begun(ROLE_READ, NOW_S + 3 + (i + 7) % ENDED_MAX); /* one of them begins first */
        assert_false(ended_has(ended, &older));
        assert_int_equal(ended_add(ended, &sessions[i], NOW_S + 10, &error), 0);
    }
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i <= ENDED_MAX; i++)
            assert_true(ended_has(ended, &sessions[i]));
        assert_true(ended_has(ended, &older));
        assert_false(ended_has(ended, &younger));
        assert_false(ended_has(ended, &other));
        assert_int_equal(ended->roles[ROLE_READ].count, ENDED_MAX);
        ended_done(ended);
        assert_int_equal(ended_init(ended, folder.path, NOW_S + 11, &error), 0);
    }
    ended_done(ended);
    remove_folder(&folder);
    free(ended);
}

static void damaged_list(void **state)
{
    static const char *const texts[] = { "x\n",
                                         "read\n",
                                         "read 1\n",
                                         "read x 0123456789abcdef0123456789abcdef\n",
                                         "none until 3\n",
                                         "read 1767229999 0123456789abcdef0123456789abcde\n",
                                         "read until x\n",
                                         "\n",
                                         "read 1767229999 0123456789abcdef0123456789abcdef" /* cut */ };
    struct folder folder = make_folder();
    struct ended *ended = calloc(1, sizeof *ended);
    struct weir_error error;
    (void)state;
    struct cookie before = begun(ROLE_ADMIN, NOW_S), after = begun(ROLE_ADMIN, NOW_S + 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(folder.file, texts[i]);
        assert_int_equal(ended_init(ended, folder.path, NOW_S, &error), 0);
        if (!ended_has(ended, &before) || ended_has(ended, &after))
            fail_msg("after `%s`", texts[i]);
        ended_done(ended);
    }
    /* A clock that was far ahead does not keep anybody out for longer. */
    write_text(folder.file, "admin until 9999999999\n");
    assert_int_equal(ended_init(ended, folder.path, NOW_S, &error), 0);
    assert_true(ended_has(ended, &before));
    assert_false(ended_has(ended, &after));
    ended_done(ended);
    remove_folder(&folder);
    /* Nothing can be written: it has ended all the same, and the caller is told. */
    assert_int_equal(ended_init(ended, folder.path, NOW_S, &error), 0);
    assert_int_equal(ended_add(ended, &before, NOW_S, &error), WEIR_E_SYSTEM);
    assert_true(ended_has(ended, &before));
    ended_done(ended);
    free(ended);
}

/* ---- wrong tokens ---- */

static struct ip address(const char *text)
{
    struct ip ip;
    assert_true(ip_parse(weir_str(text), &ip));
    return ip;
}

static void guesses_wait(void **state)
{
    static const unsigned waits[] = { 0, 0, 0, 0, 0, 500, 1000, 2000, 4000, 5000, 5000, 5000 };
    static struct guesses guesses;
    struct ip ip = address("192.0.2.1"), local = { { 0 } };
    int64_t now_ms = 5;
    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        assert_int_equal(guesses_add(&guesses, ip, now_ms), waits[i]);
    assert_int_equal(guesses_add(&guesses, address("192.0.2.2"), now_ms), 0);
    assert_int_equal(guesses_add(&guesses, local, now_ms), 0);
    /* Forgotten after 15 minutes without one, and not before. */
    now_ms += GUESSES_FORGOTTEN_MS - 1;
    assert_int_equal(guesses_add(&guesses, ip, now_ms), 5000);
    now_ms += GUESSES_FORGOTTEN_MS;
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(guesses_add(&guesses, ip, now_ms), waits[i]);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(guesses_add(&guesses, ip, now_ms) > 0, true);
}

static void guesses_by_network(void **state)
{
    static struct guesses guesses;
    char text[64];
    unsigned wait_ms = 0;
    (void)state;
    for (int i = 0; i < 6; i++) {
        snprintf(text, sizeof text, "2001:db8::%x:%x", i * 7, i);
        wait_ms = guesses_add(&guesses, address(text), 1);
    }
    assert_int_equal(wait_ms, 500);
    assert_int_equal(guesses_add(&guesses, address("2001:db8:0:1::1"), 1), 0);
    assert_int_equal(guesses_add(&guesses, address("::ffff:192.0.2.1"), 1), 0);
    for (int i = 0; i < 5; i++)
        wait_ms = guesses_add(&guesses, address("192.0.2.1"), 1);
    assert_int_equal(wait_ms, 500);
    assert_int_equal(guesses_add(&guesses, address("192.0.2.2"), 1), 0);
}

/* A flood of addresses does not make the table forget one that guesses. */
static void guesses_flood(void **state)
{
    static struct guesses guesses;
    char text[64];
    int64_t now_ms = 1000;
    (void)state;
    for (int i = 0; i < 8; i++)
        guesses_add(&guesses, address("192.0.2.1"), now_ms);
    for (int i = 0; i < 100 * GUESSES_ADDRESSES; i++) {
        snprintf(text, sizeof text, "10.%d.%d.%d", i >> 16 & 255, i >> 8 & 255, i & 255);
        assert_int_equal(guesses_add(&guesses, address(text), ++now_ms), 0);
    }
    assert_int_equal(guesses_add(&guesses, address("192.0.2.1"), now_ms), 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),          cmocka_unit_test(cookies),        cmocka_unit_test(changed_cookies),
        cmocka_unit_test(cookie_headers), cmocka_unit_test(ended_sessions), cmocka_unit_test(many_ended_sessions),
        cmocka_unit_test(damaged_list),   cmocka_unit_test(guesses_wait),   cmocka_unit_test(guesses_by_network),
        cmocka_unit_test(guesses_flood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
