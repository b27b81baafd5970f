#include "tls/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/ip.h"

enum {
    OUTPUT_MAX = 64 << 20, /* callers bound what they write; this is against mistakes */
    WAITING_MAX = 1 << 20, /* plain text before the handshake is over */
    WHY_MAX = 256,
    PROTOCOLS_MAX = 64,
    OUTPUT_KEPT = 64 << 10, /* memory for output that an idle connection keeps */
};

/* Of TLS 1.2: with forward secrecy, and with authenticated encryption. All of TLS 1.3 have both. */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20"

struct tls_context {
    unsigned refs;
    SSL_CTX *ssl;
    unsigned char protocols[PROTOCOLS_MAX]; /* as ALPN has them */
    unsigned protocols_len;
};

struct tls {
    SSL *ssl;
    struct tls_context *context; /* the callback for ALPN uses it */
    sv input;                    /* what tls_decrypt was given, and is not used up */
    struct buf output;           /* from `sent` on, it is to be sent */
    size_t sent;
    struct buf waiting; /* plain text that waits for the end of the handshake */
    bool failed, ended;
    enum tls_problem problem;
    char why[WHY_MAX];
};

/* ---- errors ---- */

/* The reason of the oldest error of this thread; the later ones say only where it was noticed. */
static void take_reason(char ret[WHY_MAX], const char *otherwise)
{
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    if (code && ERR_SYSTEM_ERROR(code))
        reason = strerror(ERR_GET_REASON(code));
    snprintf(ret, WHY_MAX, "%s", reason ? reason : otherwise);
    ERR_clear_error();
}

static int bad_file(const char *what, const char *path, struct weir_error *error)
{
    char why[WHY_MAX];
    take_reason(why, "it is not a PEM file");
    return err_set(error, WEIR_E_INVALID, "cannot use the %s in %s: %s", what, path, why);
}

/* ---- the bytes of a connection ---- */

static int on_read(BIO *bio, char *to, int size)
{
    struct tls *tls = BIO_get_data(bio);
    size_t len = tls->input.len < (size_t)size ? tls->input.len : (size_t)size;
    BIO_clear_retry_flags(bio);
    if (len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(to, tls->input.ptr, len);
    tls->input = sv_from(tls->input, len);
    return (int)len;
}

static int on_write(BIO *bio, const char *bytes, int len)
{
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    buf_add(&tls->output, sv_of(bytes, (size_t)len));
    return tls->output.failed ? -1 : len;
}

static long on_control(BIO *bio, int what, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *method;

/* A program may exit while threads of the library use TLS: what OpenSSL frees then, they still use. */
static void make_method(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weir");
    if (method) {
        BIO_meth_set_read(method, on_read);
        BIO_meth_set_write(method, on_write);
        BIO_meth_set_ctrl(method, on_control);
    }
}

/* ---- contexts ---- */

struct tls_context *tls_context_ref(struct tls_context *context)
{
    __atomic_add_fetch(&context->refs, 1, __ATOMIC_RELAXED);
    return context;
}

void tls_context_unref(struct tls_context *context)
{
    if (!context || __atomic_sub_fetch(&context->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}

static struct tls_context *new_context(const SSL_METHOD *kind, struct weir_error *error)
{
    static CRYPTO_ONCE once = CRYPTO_ONCE_STATIC_INIT;
    CRYPTO_THREAD_run_once(&once, make_method);
    struct tls_context *context = calloc(1, sizeof *context);
    SSL_CTX *ssl = context && method ? SSL_CTX_new(kind) : NULL;
    if (!ssl) {
        free(context);
        ERR_clear_error();
        err_no_memory(error);
        return NULL;
    }
    context->refs = 1;
    context->ssl = ssl;
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    /* Renegotiation lets a peer make the other side work for nothing. */
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
    return context;
}

/* Nobody is there to type the password of a key. */
static int no_password(char *to, int size, int writes, void *data)
{
    (void)to, (void)size, (void)writes, (void)data;
    return -1;
}

static int use_files(SSL_CTX *ssl, const struct tls_files *files, struct weir_error *error)
{
    const char *key = files->key ? files->key : files->certificate;
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(ssl, no_password);
    if (files->certificate && SSL_CTX_use_certificate_chain_file(ssl, files->certificate) != 1)
        return bad_file("certificate", files->certificate, error);
    if (key && SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) != 1)
        return bad_file("key", key, error);
    if (files->authorities && SSL_CTX_load_verify_file(ssl, files->authorities) != 1)
        return bad_file("certificates of authorities", files->authorities, error);
    return 0;
}

/* ---- servers ---- */

static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len, const unsigned char *offered,
                           unsigned len, void *data)
{
    const struct tls_context *context = data;
    unsigned char *chosen;
    (void)ssl;
    if (SSL_select_next_proto(&chosen, ret_len, context->protocols, context->protocols_len, offered, len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *ret = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static void add_protocols(struct tls_context *context, const char *const *protocols)
{
    for (; protocols && *protocols; protocols++) {
        size_t len = strlen(*protocols);
        if (context->protocols_len + 1 + len > PROTOCOLS_MAX)
            break;
        context->protocols[context->protocols_len++] = (unsigned char)len;
        memcpy(context->protocols + context->protocols_len, *protocols, len);
        context->protocols_len += (unsigned)len;
    }
    if (context->protocols_len > 0)
        SSL_CTX_set_alpn_select_cb(context->ssl, choose_protocol, context);
}

static int ask_for_certificates(SSL_CTX *ssl, const char *authorities, struct weir_error *error)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(authorities);
    if (!names)
        return bad_file("certificates of authorities", authorities, error);
    SSL_CTX_set_client_CA_list(ssl, names);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    /* A ticket would outlive the certificate: it is not looked at again. */
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(ssl, 0);
    return 0;
}

int tls_server_new(struct tls_context **ret, const struct tls_files *files, const char *const *protocols,
                   struct weir_error *error)
{
    struct tls_context *context = new_context(TLS_server_method(), error);
    int r = context ? use_files(context->ssl, files, error) : (int)error->code;
    if (r == 0 && files->authorities)
        r = ask_for_certificates(context->ssl, files->authorities, error);
    if (r < 0) {
        tls_context_unref(context);
        return r;
    }
    SSL_CTX_set_options(context->ssl, SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_cipher_list(context->ssl, CIPHERS);
    /* Tickets carry the state of a session, so the server stores none. */
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(context->ssl, (const unsigned char *)"weir", 4);
    add_protocols(context, protocols);
    *ret = context;
    return 0;
}

/* ---- clients ---- */

int tls_client_new(struct tls_context **ret, const struct tls_files *files, struct weir_error *error)
{
    struct tls_context *context = new_context(TLS_client_method(), error);
    int r = context ? use_files(context->ssl, files, error) : (int)error->code;
    if (r == 0 && !files->authorities && SSL_CTX_set_default_verify_paths(context->ssl) != 1)
        r = err_set(error, WEIR_E_SYSTEM, "the system has no list of authorities that it trusts; name a file of them");
    if (r < 0) {
        tls_context_unref(context);
        return r;
    }
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, NULL);
    *ret = context;
    return 0;
}

/* ---- certificates ---- */

static int64_t sooner_us(int64_t end_us, const X509 *certificate)
{
    struct tm when;
    if (!certificate || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &when) != 1)
        return end_us;
    int64_t own_us = (int64_t)timegm(&when) * US_PER_S;
    return own_us < end_us ? own_us : end_us;
}

int64_t tls_valid_until_us(const struct tls_context *context)
{
    STACK_OF(X509) *others = NULL;
    int64_t end_us = sooner_us(INT64_MAX, SSL_CTX_get0_certificate(context->ssl));
    SSL_CTX_get0_chain_certs(context->ssl, &others);
    for (int i = 0; i < sk_X509_num(others); i++)
        end_us = sooner_us(end_us, sk_X509_value(others, i));
    ERR_clear_error();
    return end_us;
}

/* ---- connections ---- */

static struct tls *new_tls(struct tls_context *context)
{
    struct tls *tls = calloc(1, sizeof *tls);
    SSL *ssl = tls ? SSL_new(context->ssl) : NULL;
    BIO *bio = ssl ? BIO_new(method) : NULL;
    if (!bio) {
        SSL_free(ssl);
        free(tls);
        ERR_clear_error();
        return NULL;
    }
    tls->ssl = ssl;
    tls->context = tls_context_ref(context);
    buf_init(&tls->output, OUTPUT_MAX);
    buf_init(&tls->waiting, WAITING_MAX);
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    return tls;
}

struct tls *tls_accept(struct tls_context *context)
{
    struct tls *tls = new_tls(context);
    if (tls)
        SSL_set_accept_state(tls->ssl);
    return tls;
}

/* Servers that are addresses are not named in the handshake. */
static bool set_name(SSL *ssl, const char *name)
{
    struct ip ip;
    if (ip_parse(weir_str(name), &ip))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

struct tls *tls_connect(struct tls_context *context, const char *name)
{
    struct tls *tls = new_tls(context);
    if (!tls)
        return NULL;
    SSL_set_connect_state(tls->ssl);
    if (!set_name(tls->ssl, name) || SSL_do_handshake(tls->ssl) == 1 || tls->output.failed) {
        tls_free(tls);
        tls = NULL;
    }
    ERR_clear_error();
    return tls;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    tls_context_unref(tls->context);
    buf_done(&tls->output);
    buf_done(&tls->waiting);
    free(tls);
}

static enum tls_problem judge_certificate(long result)
{
    switch (result) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return TLS_PROBLEM_NAME;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return TLS_PROBLEM_TIME;
    default:
        return TLS_PROBLEM_UNVERIFIED;
    }
}

static enum tls_problem judge_error(unsigned long code)
{
    if (ERR_GET_LIB(code) != ERR_LIB_SSL)
        return TLS_PROBLEM_OTHER;
    switch (ERR_GET_REASON(code)) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_HTTP_REQUEST:
        return TLS_PROBLEM_NO_TLS;
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return TLS_PROBLEM_WANTED;
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        return TLS_PROBLEM_REFUSED;
    default:
        return TLS_PROBLEM_OTHER;
    }
}

static void fail(struct tls *tls)
{
    long verified = SSL_get_verify_result(tls->ssl);
    tls->failed = true;
    tls->problem = verified != X509_V_OK ? judge_certificate(verified) : judge_error(ERR_peek_error());
    take_reason(tls->why, "the peer has broken off");
    if (verified != X509_V_OK)
        snprintf(tls->why, sizeof tls->why, "%s", X509_verify_cert_error_string(verified));
}

static bool write_all(struct tls *tls, sv plain)
{
    size_t done;
    if (plain.len == 0)
        return true;
    ERR_clear_error();
    if (SSL_write_ex(tls->ssl, plain.ptr, plain.len, &done) == 1 && done == plain.len)
        return true;
    fail(tls);
    return false;
}

ptrdiff_t tls_decrypt(struct tls *tls, sv bytes, char *plain, size_t size)
{
    size_t len = 0, n;
    if (tls->failed)
        return -1;
    tls->input = bytes;
    ERR_clear_error();
    while (len < size && SSL_read_ex(tls->ssl, plain + len, size - len, &n) == 1)
        len += n;
    int why = len < size ? SSL_get_error(tls->ssl, 0) : SSL_ERROR_SSL;
    tls->ended = tls->ended || why == SSL_ERROR_ZERO_RETURN;
    tls->input = SV("");
    if (why != SSL_ERROR_WANT_READ && !tls->ended) {
        fail(tls);
        return -1;
    }
    if (tls->waiting.len > 0 && tls_is_open(tls)) {
        bool written = write_all(tls, buf_sv(&tls->waiting));
        buf_done(&tls->waiting);
        return written ? (ptrdiff_t)len : -1;
    }
    return (ptrdiff_t)len;
}

bool tls_encrypt(struct tls *tls, sv plain)
{
    if (tls->failed)
        return false;
    if (tls_is_open(tls))
        return write_all(tls, plain);
    buf_add(&tls->waiting, plain);
    return !tls->waiting.failed;
}

void tls_end(struct tls *tls)
{
    if (!tls->failed && tls_is_open(tls))
        SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

sv tls_output(const struct tls *tls)
{
    return sv_from(buf_sv(&tls->output), tls->sent);
}

void tls_sent(struct tls *tls, size_t count)
{
    struct buf *output = &tls->output;
    tls->sent += count;
    if (tls->sent == output->len && output->cap > OUTPUT_KEPT)
        buf_done(output);
    else if (tls->sent == output->len)
        buf_clear(output);
    else if (tls->sent > output->len / 2) {
        memmove(output->ptr, output->ptr + tls->sent, output->len - tls->sent);
        output->len -= tls->sent;
    } else
        return;
    tls->sent = 0;
}

bool tls_is_open(const struct tls *tls)
{
    return SSL_is_init_finished(tls->ssl);
}

bool tls_has_ended(const struct tls *tls)
{
    return tls->ended;
}

sv tls_protocol(const struct tls *tls)
{
    const unsigned char *name;
    unsigned len;
    SSL_get0_alpn_selected(tls->ssl, &name, &len);
    return sv_of((const char *)name, len);
}

const char *tls_error(const struct tls *tls)
{
    return tls->why;
}

enum tls_problem tls_problem(const struct tls *tls)
{
    return tls->problem;
}

const char *tls_system_authorities(void)
{
    const char *other = getenv(X509_get_default_cert_file_env());
    return other ? other : X509_get_default_cert_file();
}
