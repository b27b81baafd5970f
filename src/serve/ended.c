/* The file has a line for each session, "operate 1767268800 NONCE", and one for each role whose list was full once,
 * "operate until 1767268800". */
#include "serve/ended.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

enum { LINE_BYTES = 80, FILE_BYTES_MAX = ROLES * (ENDED_MAX + 1) * LINE_BYTES };

bool ended_has(const struct ended *ended, const struct cookie *session)
{
    const struct ended_role *of = &ended->roles[session->role];
    if (cookie_began_s(session) <= of->until_s)
        return true;
    for (unsigned i = 0; i < of->count; i++)
        if (memcmp(of->sessions[i].nonce, session->nonce, COOKIE_NONCE) == 0)
            return true;
    return false;
}

/* Sessions that have expired, or that `until_s` ends, need not be remembered. */
static void forget(struct ended_role *of, int64_t now_s)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < of->count; i++)
        if (of->sessions[i].ends_s > now_s && cookie_began_s(&of->sessions[i]) > of->until_s)
            of->sessions[kept++] = of->sessions[i];
    of->count = kept;
}

static void add(struct ended_role *of, const struct cookie *session, int64_t now_s)
{
    forget(of, now_s);
    if (of->count == ENDED_MAX) {
        of->until_s = cookie_began_s(&of->sessions[0]);
        for (unsigned i = 1; i < of->count; i++)
            if (cookie_began_s(&of->sessions[i]) < of->until_s)
                of->until_s = cookie_began_s(&of->sessions[i]);
        forget(of, now_s);
    }
    of->sessions[of->count++] = *session;
}

/* ---- the file ---- */

static void write_role(const struct ended_role *of, const char *role, struct buf *out)
{
    if (of->until_s)
        buf_printf(out, "%s until %" PRId64 "\n", role, of->until_s);
    for (unsigned i = 0; i < of->count; i++)
        buf_printf(out, "%s %" PRId64 " %.*s\n", role, of->sessions[i].ends_s, COOKIE_NONCE, of->sessions[i].nonce);
}

/* Under another name until it is complete. */
static int store(const struct ended *ended, struct weir_error *error)
{
    CLEANUP_FREE char *new_path = NULL;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, FILE_BYTES_MAX);
    for (int role = ROLE_READ; role < ROLES; role++)
        write_role(&ended->roles[role], role_names[role], &text);
    if (text.failed || asprintf(&new_path, "%s.new", ended->path) < 0)
        return err_no_memory(error);
    unlink(new_path);
    CLEANUP_CLOSE int fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, text.ptr, text.len) == (ssize_t)text.len && fsync(fd) == 0 &&
        rename(new_path, ended->path) == 0)
        return 0;
    int r = err_set(error, WEIR_E_SYSTEM, "cannot write %s: %s", ended->path, strerror(errno));
    unlink(new_path);
    return r;
}

static bool read_line(struct ended *ended, sv line, int64_t now_s)
{
    struct cookie session = { .role = ROLE_NONE };
    sv name = sv_cut(&line, ' '), second = sv_cut(&line, ' ');
    uint64_t until_s = 0, ends_s = 0;
    for (int role = ROLE_READ; role < ROLES; role++)
        if (sv_eq(name, weir_str(role_names[role])))
            session.role = (enum role)role;
    struct ended_role *of = &ended->roles[session.role];
    if (session.role == ROLE_NONE)
        return false;
    if (sv_eq(second, SV("until")) && sv_u64(line, INT64_MAX, &until_s)) {
        /* A clock that was wrong then must not keep out those who sign in now. */
        of->until_s = (int64_t)until_s < now_s ? (int64_t)until_s : now_s;
        return true;
    }
    if (!sv_u64(second, INT64_MAX, &ends_s) || line.len != COOKIE_NONCE)
        return false;
    session.ends_s = (int64_t)ends_s;
    memcpy(session.nonce, line.ptr, COOKIE_NONCE);
    add(of, &session, now_s);
    return true;
}

static void read_all(struct ended *ended, sv text, int64_t now_s)
{
    bool whole = text.len <= FILE_BYTES_MAX && (text.len == 0 || text.ptr[text.len - 1] == '\n');
    while (whole && text.len > 0)
        whole = read_line(ended, sv_cut(&text, '\n'), now_s);
    for (int role = ROLE_READ; !whole && role < ROLES; role++)
        ended->roles[role].until_s = now_s;
}

int ended_init(struct ended *ended, const char *folder, int64_t now_s, struct weir_error *error)
{
    *ended = (struct ended){ .path = NULL };
    if (asprintf(&ended->path, "%s/ended-sessions", folder) < 0) {
        ended->path = NULL;
        return err_no_memory(error);
    }
    CLEANUP_CLOSE int fd = open(ended->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    CLEANUP_FREE char *text = cleanup_calloc(1, FILE_BYTES_MAX + 1);
    if (!text)
        return err_no_memory(error);
    ssize_t len = fd < 0 ? -1 : read(fd, text, FILE_BYTES_MAX + 1);
    if (len < 0)
        return err_set(error, WEIR_E_SYSTEM, "cannot read %s: %s", ended->path, strerror(errno));
    read_all(ended, sv_of(text, (size_t)len), now_s);
    return 0;
}

void ended_done(struct ended *ended)
{
    free(ended->path);
    ended->path = NULL;
}

int ended_add(struct ended *ended, const struct cookie *session, int64_t now_s, struct weir_error *error)
{
    if (ended_has(ended, session))
        return 0;
    add(&ended->roles[session->role], session, now_s);
    return store(ended, error);
}
