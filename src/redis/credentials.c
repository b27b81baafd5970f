#include "redis/credentials.h"

#include <errno.h>
#include <fcntl.h>

#include "base/cleanup.h"
#include "base/err.h"

/* ---- passwords ---- */

static int bad_file(const char *option, const char *path, const char *why, struct weir_error *error)
{
    return err_set(error, WEIR_E_INVALID, "cannot use the %s %s of the store's address: %s", option, path, why);
}

/* The first line. Editors end a file with a newline, which does not belong to the password. */
static int read_password(char ret[REDIS_SECRET_MAX + 1], const char *option, const char *path, struct weir_error *error)
{
    char text[REDIS_SECRET_MAX + 3];
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (n < 0)
        return bad_file(option, path, strerror(errno), error);
    sv rest = sv_of(text, (size_t)n), line = sv_cut(&rest, '\n');
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    bool good = line.len > 0 && line.len <= REDIS_SECRET_MAX && rest.len == 0 && !memchr(line.ptr, '\0', line.len);
    if (good) {
        memcpy(ret, line.ptr, line.len);
        ret[line.len] = '\0';
    }
    explicit_bzero(text, sizeof text);
    if (good)
        return 0;
    return err_set(error, WEIR_E_INVALID,
                   "the %s %s of the store's address must contain the password as its only line, of 1 to %d bytes", option,
                   path, REDIS_SECRET_MAX);
}

static int read_passwords(struct credentials *c, const struct redis_address *a, struct weir_error *error)
{
    int r = 0;
    memcpy(c->password, a->password, sizeof c->password);
    memcpy(c->sentinel_password, a->sentinel_password, sizeof c->sentinel_password);
    if (a->password_file[0])
        r = read_password(c->password, "password_file", a->password_file, error);
    if (r == 0 && a->sentinel_password_file[0])
        r = read_password(c->sentinel_password, "sentinel_password_file", a->sentinel_password_file, error);
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
