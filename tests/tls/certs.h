/* Certificates for tests, made when they run: no file of the tree can expire. */
#ifndef TESTS_TLS_CERTS_H
#define TESTS_TLS_CERTS_H

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct issued {
    X509 *certificate;
    EVP_PKEY *key;
};

static void issued_done(struct issued *one)
{
    X509_free(one->certificate);
    EVP_PKEY_free(one->key);
}

static void add_extension(X509 *certificate, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* by: NULL for an authority that signs itself. names: such as "DNS:weir.test,IP:127.0.0.1". It is valid from so many days
 * ago, and for so many days from now. */
static struct issued issue(const char *common_name, const struct issued *by, const char *names, int since_days,
                           int for_days)
{
    static long serial;
    struct issued one = { X509_new(), EVP_EC_gen("P-256") };
    assert_true(one.certificate && one.key);
    X509_set_version(one.certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(one.certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(one.certificate), -86400L * since_days);
    X509_gmtime_adj(X509_getm_notAfter(one.certificate), 86400L * for_days);
    X509_set_pubkey(one.certificate, one.key);
    X509_NAME *name = X509_get_subject_name(one.certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common_name, -1, -1, 0);
    X509 *issuer = by ? by->certificate : one.certificate;
    X509_set_issuer_name(one.certificate, X509_get_subject_name(issuer));
    if (!by)
        add_extension(one.certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
    if (names)
        add_extension(one.certificate, issuer, NID_subject_alt_name, names);
    assert_true(X509_sign(one.certificate, by ? by->key : one.key, EVP_sha256()) > 0);
    return one;
}

/* Writes PATH (certificate) and, if key_path is not NULL, the key. */
static void write_pem(const struct issued *one, const char *path, const char *key_path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, one->certificate), 1);
    assert_int_equal(fclose(file), 0);
    if (!key_path)
        return;
    file = fopen(key_path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_PrivateKey(file, one->key, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(fclose(file), 0);
}

#endif
