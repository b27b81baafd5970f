/* Two ends of a connection in memory: handshakes in any split, certificates that must be refused, garbage, and reloads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "certs.h"
#include "tls/tls.h"

CLEANUP_POINTER(struct tls_context *, tls_context_unref);
CLEANUP_POINTER(struct tls *, tls_free);

enum { PIECE_MAX = 4096, PLAIN_MAX = PIECE_MAX + TLS_RECORD_MAX };

/* ---- certificates ---- */

struct place {
    char folder[64];
    char ca[96], other_ca[96], server[96], server_key[96], client[96], client_key[96], expired[96], early[96], own[96],
        bad[96];
    struct issued authority, other;
};

static void write_issued(struct place *p, const char *path, const char *key, const struct issued *by, const char *names,
                         int since, int days)
{
    (void)p;
    struct issued one = issue("leaf", by, names, since, days);
    write_pem(&one, path, key);
    issued_done(&one);
}

/* Certificate and key in one file. */
static void write_together(const char *path, const struct issued *by, const char *names, int since, int days)
{
    struct issued one = issue("leaf", by, names, since, days);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    PEM_write_X509(file, one.certificate);
    PEM_write_PrivateKey(file, one.key, NULL, NULL, 0, NULL, NULL);
    fclose(file);
    issued_done(&one);
}

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    snprintf(p->folder, sizeof p->folder, "/tmp/weir-tls.XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    static const char *const names[] = { "ca",         "other-ca", "server", "server-key", "client",
                                         "client-key", "expired",  "early",  "own",        "bad" };
    char(*paths)[96] = &p->ca;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s.pem", p->folder, names[i]);
    p->authority = issue("authority", NULL, NULL, 1, 10);
    p->other = issue("other", NULL, NULL, 1, 10);
    write_pem(&p->authority, p->ca, NULL);
    write_pem(&p->other, p->other_ca, NULL);
    write_issued(p, p->server, p->server_key, &p->authority, "DNS:weir.test,DNS:*.many.test,IP:127.0.0.1,IP:::1", 1, 10);
    write_issued(p, p->client, p->client_key, &p->other, NULL, 1, 10);
    write_together(p->expired, &p->authority, "DNS:weir.test", 5, -1);
    write_together(p->early, &p->authority, "DNS:weir.test", -1, 10);
    write_together(p->own, NULL, "DNS:weir.test", 1, 10);
    FILE *file = fopen(p->bad, "w");
    fputs("nothing\n", file);
    fclose(file);
    *state = p;
    return 0;
}

static int clean_up(void **state)
{
    struct place *p = *state;
    char(*paths)[96] = &p->ca;
    for (size_t i = 0; i < 10; i++)
        unlink(paths[i]);
    issued_done(&p->authority);
    issued_done(&p->other);
    int r = rmdir(p->folder);
    free(p);
    return r;
}

/* ---- two ends ---- */

struct ends {
    struct tls *server, *client;
    char to_server[1 << 20], to_client[1 << 20]; /* plain text that came out there */
    size_t server_len, client_len;
    bool failed;
};

static struct tls_context *server_context(const struct place *p, const char *certificate, const char *key,
                                          const char *authorities)
{
    static const char *const protocols[] = { "h2", "http/1.1", NULL };
    struct tls_context *context = NULL;
    struct weir_error error;
    (void)p;
    int r = tls_server_new(&context, &(struct tls_files){ certificate, key, authorities }, protocols, &error);
    if (r < 0)
        fail_msg("%s", error.text);
    return context;
}

static struct tls_context *client_context(const char *certificate, const char *key, const char *authorities)
{
    struct tls_context *context = NULL;
    struct weir_error error;
    if (tls_client_new(&context, &(struct tls_files){ certificate, key, authorities }, &error) < 0)
        fail_msg("%s", error.text);
    return context;
}

static struct ends *connect_ends(struct tls_context *server, struct tls_context *client, const char *name)
{
    struct ends *ends = cleanup_calloc(1, sizeof *ends);
    ends->server = tls_accept(server);
    ends->client = tls_connect(client, name);
    assert_true(ends->server && ends->client);
    return ends;
}

static void ends_free(struct ends *ends)
{
    tls_free(ends->server);
    tls_free(ends->client);
    free(ends);
}
CLEANUP_POINTER(struct ends *, ends_free);

/* Moves at most `most` bytes from one end to the other. */
static bool move(struct ends *ends, struct tls *from, struct tls *to, size_t most, char *out, size_t *out_len)
{
    char piece[PIECE_MAX], plain[PLAIN_MAX];
    sv output = tls_output(from);
    size_t len = output.len < most ? output.len : most;
    if (len == 0)
        return false;
    memcpy(piece, output.ptr, len);
    tls_sent(from, len);
    ptrdiff_t n = tls_decrypt(to, sv_of(piece, len), plain, len + TLS_RECORD_MAX);
    if (n < 0)
        ends->failed = true;
    else {
        memcpy(out + *out_len, plain, (size_t)n);
        *out_len += (size_t)n;
    }
    return true;
}

static void run(struct ends *ends, size_t most)
{
    bool moved = true;
    while (moved) {
        moved = move(ends, ends->client, ends->server, most, ends->to_server, &ends->server_len);
        moved |= move(ends, ends->server, ends->client, most, ends->to_client, &ends->client_len);
    }
}

static void in_any_split(void **state)
{
    struct place *p = *state;
    CLEANUP(tls_context_unrefp) struct tls_context *server = server_context(p, p->server, p->server_key, NULL);
    CLEANUP(tls_context_unrefp) struct tls_context *client = client_context(NULL, NULL, p->ca);
    static char text[300000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7 + i / 251);
    static const size_t pieces[] = { 1, 2, 3, 5, 7, 64, 1000, PIECE_MAX };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        CLEANUP(ends_freep) struct ends *ends = connect_ends(server, client, "weir.test");
        assert_true(tls_encrypt(ends->client, SV("before the handshake is over")));
        run(ends, pieces[i]);
        assert_false(ends->failed);
        assert_true(tls_is_open(ends->server) && tls_is_open(ends->client));
        assert_int_equal(ends->server_len, 28);
        assert_memory_equal(ends->to_server, "before the handshake is over", 28);
        ends->server_len = 0;
        size_t len = pieces[i] < 64 ? 40000 : sizeof text;
        assert_true(tls_encrypt(ends->client, sv_of(text, len)) && tls_encrypt(ends->server, sv_of(text, len)));
        run(ends, pieces[i]);
        assert_true(ends->server_len == len && ends->client_len == len);
        assert_true(memcmp(ends->to_server, text, len) == 0 && memcmp(ends->to_client, text, len) == 0);
        assert_false(tls_has_ended(ends->server));
        tls_end(ends->client);
        run(ends, pieces[i]);
        assert_true(tls_has_ended(ends->server) && !ends->failed);
    }
}

static void names_are_checked(void **state)
{
    struct place *p = *state;
    CLEANUP(tls_context_unrefp) struct tls_context *server = server_context(p, p->server, p->server_key, NULL);
    CLEANUP(tls_context_unrefp) struct tls_context *client = client_context(NULL, NULL, p->ca);
    static const struct {
        const char *name;
        bool right;
    } cases[] = { { "weir.test", true },
                  { "WEIR.test", true },
                  { "a.many.test", true },
                  { "127.0.0.1", true },
                  { "::1", true },
                  { "other.test", false },
                  { "many.test", false },
                  { "a.b.many.test", false },
                  { "weir.test.evil", false },
                  { "127.0.0.2", false },
                  { "leaf", false } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP(ends_freep) struct ends *ends = connect_ends(server, client, cases[i].name);
        run(ends, PIECE_MAX);
        if (tls_is_open(ends->client) == ends->failed || ends->failed == cases[i].right)
            fail_msg("%s", cases[i].name);
        if (!cases[i].right)
            assert_non_null(strstr(tls_error(ends->client), "mismatch"));
    }
}

static void bad_certificates(void **state)
{
    struct place *p = *state;
    const struct {
        const char *certificate, *authorities, *why;
    } cases[] = {
        { p->expired, p->ca, "has expired" }, { p->early, p->ca, "not yet valid" },
        { p->own, p->ca, "self-signed" },     { p->expired, p->other_ca, "unable to get local issuer" },
        { p->own, NULL, "self-signed" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP(tls_context_unrefp) struct tls_context *server = server_context(p, cases[i].certificate, NULL, NULL);
        CLEANUP(tls_context_unrefp) struct tls_context *client = client_context(NULL, NULL, cases[i].authorities);
        CLEANUP(ends_freep) struct ends *ends = connect_ends(server, client, "weir.test");
        tls_encrypt(ends->client, SV("secret"));
        run(ends, PIECE_MAX);
        assert_true(ends->failed && ends->server_len == 0);
        if (!strstr(tls_error(ends->client), cases[i].why))
            fail_msg("%zu: %s", i, tls_error(ends->client));
        assert_non_null(strstr(tls_error(ends->server), "alert"));
        assert_false(tls_encrypt(ends->client, SV("x")));
        char plain[PLAIN_MAX];
        assert_int_equal(tls_decrypt(ends->client, SV(""), plain, sizeof plain), -1);
    }
    /* It is its own authority. */
    CLEANUP(tls_context_unrefp) struct tls_context *server = server_context(p, p->own, NULL, NULL);
    CLEANUP(tls_context_unrefp) struct tls_context *client = client_context(NULL, NULL, p->own);
    CLEANUP(ends_freep) struct ends *ends = connect_ends(server, client, "weir.test");
    run(ends, PIECE_MAX);
    assert_false(ends->failed);
}

static void certificates_of_clients(void **state)
{
    struct place *p = *state;
    CLEANUP(tls_context_unrefp) struct tls_context *server = server_context(p, p->server, p->server_key, p->other_ca);
    const struct {
        const char *certificate, *key;
        bool right;
    } cases[] = {
        { p->client, p->client_key, true }, { NULL, NULL, false }, { p->own, NULL, false }, { p->expired, NULL, false }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP(tls_context_unrefp) struct tls_context *client = client_context(cases[i].certificate, cases[i].key, p->ca);
        CLEANUP(ends_freep) struct ends *ends = connect_ends(server, client, "weir.test");
        tls_encrypt(ends->client, SV("secret"));
        run(ends, PIECE_MAX);
        assert_int_equal(ends->failed, !cases[i].right);
        assert_int_equal(ends->server_len, cases[i].right ? 6 : 0);
        assert_int_equal(tls_is_open(ends->server), cases[i].right);
    }
}

static void files_that_are_wrong(void **state)
{
    struct place *p = *state;
    const struct {
        const char *certificate, *key, *authorities, *why;
    } cases[] = {
        { "/nowhere/x.pem", NULL, NULL, "certificate in /nowhere/x.pem: No such file" },
        { p->bad, NULL, NULL, "certificate in" },
        { p->server, p->bad, NULL, "key in" },
        { p->server, "/nowhere/key", NULL, "key in /nowhere/key: No such file" },
        { p->server, p->client_key, NULL, "key values mismatch" },
        { p->server, NULL, NULL, "key in" },
        { p->server, p->server_key, p->bad, "certificates of authorities in" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tls_files files = { cases[i].certificate, cases[i].key, cases[i].authorities };
        struct tls_context *context = NULL;
        struct weir_error error;
        assert_int_equal(tls_server_new(&context, &files, NULL, &error), WEIR_E_INVALID);
        if (context || !strstr(error.text, cases[i].why))
            fail_msg("%zu: %s", i, error.text);
        assert_int_equal(tls_client_new(&context, &files, &error), WEIR_E_INVALID);
    }
}

/* Whatever comes: it fails, or waits for more, and nothing of it is plain text. */
static void garbage(void **state)
{
    struct place *p = *state;
    CLEANUP(tls_context_unrefp) struct tls_context *server = server_context(p, p->server, p->server_key, NULL);
    CLEANUP(tls_context_unrefp) struct tls_context *client = client_context(NULL, NULL, p->ca);
    static const char *const texts[] = { "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                         "*1\r\n$4\r\nPING\r\n", "\x16\x03\x01\xff\xff" };
    char plain[PLAIN_MAX];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CLEANUP(tls_freep) struct tls *tls = tls_accept(server);
        assert_true(tls_decrypt(tls, weir_str(texts[i]), plain, sizeof plain) <= 0);
    }
    unsigned seed = 5;
    for (int round = 0; round < 2000; round++) {
        CLEANUP(ends_freep) struct ends *ends = connect_ends(server, client, "weir.test");
        bool handshake = round % 2;
        if (handshake)
            run(ends, PIECE_MAX);
        else
            move(ends, ends->client, ends->server, PIECE_MAX, ends->to_server, &ends->server_len);
        tls_encrypt(ends->client, SV("some text of the client"));
        /* One byte of what is on its way is changed. */
        char piece[PIECE_MAX];
        struct tls *from = handshake ? ends->client : ends->server, *to = handshake ? ends->server : ends->client;
        sv output = tls_output(from);
        size_t len = output.len < sizeof piece ? output.len : sizeof piece;
        memcpy(piece, output.ptr, len);
        piece[(size_t)rand_r(&seed) % len] ^= (char)(1 << (rand_r(&seed) % 8));
        tls_sent(from, len);
        assert_true(tls_decrypt(to, sv_of(piece, len), plain, sizeof plain) <= 0);
        /* A few bits of a handshake mean nothing (the version of a record): then all goes on, and else nothing does. */
        run(ends, PIECE_MAX);
        assert_true(ends->server_len == (!handshake && tls_is_open(ends->server) ? 23 : 0));
    }
}

static void protocols(void **state)
{
    struct place *p = *state;
    CLEANUP(tls_context_unrefp) struct tls_context *server = server_context(p, p->server, p->server_key, NULL);
    CLEANUP(tls_context_unrefp) struct tls_context *client = client_context(NULL, NULL, p->ca);
    CLEANUP(ends_freep) struct ends *ends = connect_ends(server, client, "weir.test");
    run(ends, PIECE_MAX);
    assert_int_equal(tls_protocol(ends->server).len, 0); /* this client asks for none */
}

/* Connections outlive their context. */
static void reload(void **state)
{
    struct place *p = *state;
    struct tls_context *server = server_context(p, p->server, p->server_key, NULL);
    struct tls_context *client = client_context(NULL, NULL, p->ca);
    CLEANUP(ends_freep) struct ends *half = connect_ends(server, client, "weir.test");
    CLEANUP(ends_freep) struct ends *whole = connect_ends(server, client, "weir.test");
    run(whole, PIECE_MAX);
    move(half, half->client, half->server, 100, half->to_server, &half->server_len);
    tls_context_unref(server);
    tls_context_unref(client);
    tls_encrypt(whole->client, SV("still there"));
    run(whole, PIECE_MAX);
    run(half, PIECE_MAX);
    assert_true(whole->server_len == 11 && tls_is_open(half->client) && !half->failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_any_split),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(bad_certificates),
        cmocka_unit_test(certificates_of_clients),
        cmocka_unit_test(files_that_are_wrong),
        cmocka_unit_test(garbage),
        cmocka_unit_test(protocols),
        cmocka_unit_test(reload),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
