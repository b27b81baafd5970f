/* TLS, as a filter of bytes: what the peer has sent goes in, and plain text comes out; plain text goes in, and what is to
 * be sent comes out. It does no I/O of its own, so that it suits any loop.
 *
 *     peer ──recv──► tls_decrypt ──► plain text
 *     peer ◄──send── tls_output  ◄── tls_encrypt
 *
 * A context belongs to all threads: certificates and what is asked of the peer. It never changes; a reload makes a new one,
 * and connections keep theirs. A connection belongs to one thread. */
#ifndef TLS_TLS_H
#define TLS_TLS_H

#include "base/sv.h"

struct tls_context;
struct tls;

/* Paths of PEM files; NULL: none. */
struct tls_files {
    const char *certificate; /* the own one, and those between it and the authority */
    const char *key;         /* of the certificate; NULL: it is in the same file */
    const char *authorities; /* that the peer's certificate has to be signed by */
};

/* For connections that are accepted. Authorities: clients must have a certificate of one of these. protocols: for ALPN, the
 * best first, such as "h2", and NULL at the end; a client that asks for none of them is accepted without. */
int tls_server_new(struct tls_context **ret, const struct tls_files *files, const char *const *protocols,
                   struct weir_error *error);
/* For connections that are made. Without authorities, those that the system trusts. */
int tls_client_new(struct tls_context **ret, const struct tls_files *files, struct weir_error *error);
struct tls_context *tls_context_ref(struct tls_context *context);
void tls_context_unref(struct tls_context *context); /* NULL: nothing happens */
/* Returns when the first certificate of the own file expires: that of this host, or one between it and the authority.
 * INT64_MAX: there is none. */
int64_t tls_valid_until_us(const struct tls_context *context);

/* A connection that begins. NULL: no memory. */
struct tls *tls_accept(struct tls_context *context);
/* name: of the server, which its certificate must have; an address is a name, too. */
struct tls *tls_connect(struct tls_context *context, const char *name);
void tls_free(struct tls *tls); /* NULL: nothing happens */

/* More plain text than the bytes that came may be the result: a record that came in parts. */
enum { TLS_RECORD_MAX = 16384 + 512 };

/* Takes bytes of the peer, all of them. Returns the length of the plain text; `size` is at least bytes.len +
 * TLS_RECORD_MAX. There may be something to send afterwards. Negative: the connection is to be ended after what is to be
 * sent, and tls_error says why. */
ptrdiff_t tls_decrypt(struct tls *tls, sv bytes, char *plain, size_t size);
/* Adds plain text to what is to be sent. Before the handshake is over it waits. False: no memory, or the connection has
 * failed.
 */
bool tls_encrypt(struct tls *tls, sv plain);
/* Adds the end of the connection to what is to be sent: without it the peer cannot know that nothing is missing. */
void tls_end(struct tls *tls);

/* Bytes for the peer. They stay until tls_sent says how many of them were sent. */
sv tls_output(const struct tls *tls);
void tls_sent(struct tls *tls, size_t count);

bool tls_is_open(const struct tls *tls);   /* the handshake is over */
bool tls_has_ended(const struct tls *tls); /* the peer has said that nothing more comes */
/* The protocol that both chose by ALPN; empty: none. */
sv tls_protocol(const struct tls *tls);
/* Why tls_decrypt has failed, in words: "certificate has expired". */
const char *tls_error(const struct tls *tls);
/* The same, for advice. */
enum tls_problem {
    TLS_PROBLEM_OTHER,
    TLS_PROBLEM_UNVERIFIED, /* the peer's certificate is not signed by an authority that is trusted */
    TLS_PROBLEM_NAME,       /* it is for another name */
    TLS_PROBLEM_TIME,       /* it has expired, or is not valid yet */
    TLS_PROBLEM_NO_TLS,     /* the peer does not speak TLS */
    TLS_PROBLEM_WANTED,     /* the peer wants a certificate, and there is none */
    TLS_PROBLEM_REFUSED,    /* the peer does not accept the own certificate */
};
enum tls_problem tls_problem(const struct tls *tls);

/* The file of the authorities that the system trusts, for those who look for changes of it. */
const char *tls_system_authorities(void);

#endif
