#include "redis/credentials.h"

#include "base/err.h"

/* ---- passwords ---- */

static int read_passwords(struct credentials *c, const struct redis_address *a, struct weir_error *error)
{
    int r = 0;
    memcpy(c->password, a->password, sizeof c->password);
    memcpy(c->sentinel_password, a->sentinel_password, sizeof c->sentinel_password);
    if (a->password_file[0])
        r = secret_read(c->password, "password_file of the store's address", a->password_file, error);
    if (r == 0 && a->sentinel_password_file[0])
        r = secret_read(c->sentinel_password, "sentinel_password_file of the store's address", a->sentinel_password_file,
                        error);
    return r;
}

/* ---- certificates ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Reading the authorities of a system takes 100 ms, and sentinels are asked every second. The files are looked at before
 * they are read, so that a change in between is noticed the next time. */
static int read_certificates(struct credentials *c, const struct redis_address *a, struct weir_error *error)
{
    const struct tls_files files = { .certificate = a->cert[0] ? a->cert : NULL,
                                     .key = a->key[0] ? a->key : NULL,
                                     .authorities = a->ca[0] ? a->ca : NULL };
    const char *paths[CREDENTIAL_FILES] = { files.authorities ? a->ca : tls_system_authorities(), a->cert, a->key };
    struct stat now[CREDENTIAL_FILES] = { 0 };
    bool same = c->tls != NULL;
    for (size_t i = 0; i < CREDENTIAL_FILES; i++) {
        if (stat(paths[i], &now[i]) < 0)
            now[i] = (struct stat){ 0 };
        same = same && same_file(&now[i], &c->seen[i]);
    }
    if (same)
        return 0;
    struct tls_context *fresh;
    int r = tls_client_new(&fresh, &files, error);
    if (r < 0)
        return r;
    tls_context_unref(c->tls);
    c->tls = fresh;
    memcpy(c->seen, now, sizeof now);
    return 0;
}

int credentials_read(struct credentials *c, const struct redis_address *address, struct weir_error *error)
{
    int r = read_passwords(c, address, error);
    return r < 0 || !address->tls ? r : read_certificates(c, address, error);
}

void credentials_done(struct credentials *c)
{
    tls_context_unref(c->tls);
    explicit_bzero(c, sizeof *c);
}
