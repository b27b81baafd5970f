/* A change keeps all other lines as they are. It is written under another name and renamed, so that nobody reads half of
 * it; whoever changes it holds a lock on the folder. */
#include "serve/token_list.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

enum { FILE_BYTES_MAX = 256 << 10, NAMES_SHOWN = 100 };

static const sv hash_kind = SV("sha256:");

bool token_make(char ret[2 * TOKEN_SECRET_BYTES + 1])
{
    unsigned char random[TOKEN_SECRET_BYTES];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return false;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(ret + 2 * i, 3, "%02x", random[i]);
    return true;
}

void token_list_done(struct token_list *list)
{
    free(list->of);
    *list = (struct token_list){ .of = NULL };
}

/* ---- reading ---- */

/* The names of the roles are those of the host's own tokens; "default" is what Redis clients call a user without a name. */
static bool is_name(sv name)
{
    static const char others[] = "._@+-";
    for (size_t i = 0; i < name.len; i++)
        if (!ascii_digit(name.ptr[i]) && !ascii_letter(name.ptr[i]) && !memchr(others, name.ptr[i], sizeof others - 1))
            return false;
    return name.len > 0 && name.len <= TOKEN_NAME_MAX && role_named(name) == ROLE_NONE &&
           !sv_eq_nocase(name, SV("default")) && !sv_eq_nocase(name, SV("unknown"));
}

static int bad_name(sv name, struct weir_error *error)
{
    return err_set(error, WEIR_E_INVALID,
                   "the name of a token has 1 to %d letters, digits or . _ @ + -, and is not the name of a role, "
                   "default or unknown; `%.*s` is not such a name",
                   TOKEN_NAME_MAX, SV_SHOWN(name, NAMES_SHOWN));
}

static bool read_hash(sv text, unsigned char ret[SHA256_SIZE])
{
    if (!sv_starts(text, hash_kind) || text.len != hash_kind.len + 2 * SHA256_SIZE)
        return false;
    for (size_t i = 0; i < SHA256_SIZE; i++) {
        int high = ascii_hex(text.ptr[hash_kind.len + 2 * i]), low = ascii_hex(text.ptr[hash_kind.len + 2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static sv next_word(sv *rest)
{
    *rest = sv_trim(*rest);
    size_t len = 0;
    while (len < rest->len && rest->ptr[len] != ' ' && rest->ptr[len] != '\t')
        len++;
    sv word = sv_of(rest->ptr, len);
    *rest = sv_trim(sv_from(*rest, len));
    return word;
}

static bool is_comment(sv line)
{
    line = sv_trim(line);
    return line.len == 0 || line.ptr[0] == '#';
}

static int read_line(sv line, struct token *ret, struct weir_error *error)
{
    sv name = next_word(&line), role = next_word(&line), hash = next_word(&line);
    if (line.len > 0 || !read_hash(hash, ret->hash))
        return err_set(
            error, WEIR_E_INVALID,
            "a line has a name, a role and sha256: with 64 hexadecimal digits; 'weir token add' writes such lines");
    if (!is_name(name))
        return bad_name(name, error);
    ret->role = role_named(role);
    if (ret->role == ROLE_NONE)
        return err_set(error, WEIR_E_INVALID, "the role is ask, read, operate or admin, and not `%.*s`",
                       SV_SHOWN(role, NAMES_SHOWN));
    ret->is_named = true;
    memcpy(ret->name, name.ptr, name.len);
    ret->name[name.len] = '\0';
    return 0;
}

/* Others must not be able to give themselves a token. */
static int read_text(const char *path, struct buf *ret, struct weir_error *error)
{
    struct stat st;
    ssize_t n = 0;
    char some[4096];
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
        return err_set(error, WEIR_E_INVALID, "%s is not a file", path);
    if (fd >= 0 && geteuid() != 0 && st.st_uid != 0 && st.st_uid != geteuid())
        return err_set(error, WEIR_E_INVALID, "%s belongs to another user", path);
    if (fd >= 0 && (st.st_mode & 022) != 0)
        return err_set(error, WEIR_E_INVALID, "other users may write to %s; run 'chmod go-w %s'", path, path);
    while (fd >= 0 && !ret->failed && (n = read(fd, some, sizeof some)) > 0)
        buf_add(ret, sv_of(some, (size_t)n));
    if (fd < 0 || n < 0)
        return err_set(error, WEIR_E_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    return ret->failed ? err_set(error, WEIR_E_INVALID, "%s has more than %d KB", path, FILE_BYTES_MAX >> 10) : 0;
}

static int check_new(const struct token_list *list, const struct token *token, struct weir_error *error)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcasecmp(list->of[i].name, token->name) == 0)
            return err_set(error, WEIR_E_INVALID, "there is already a token with the name %s", token->name);
        else if (memcmp(list->of[i].hash, token->hash, SHA256_SIZE) == 0)
            return err_set(error, WEIR_E_INVALID, "%s and %s are the same token, but each name needs its own",
                           list->of[i].name, token->name);
    return list->count < TOKENS_MAX ? 0 : err_set(error, WEIR_E_INVALID, "there are more than %d tokens", TOKENS_MAX);
}

static int parse(sv text, const char *path, struct token_list *ret, struct weir_error *error)
{
    struct weir_error why;
    ret->of = cleanup_calloc(TOKENS_MAX, sizeof *ret->of);
    if (!ret->of)
        return err_no_memory(error);
    for (unsigned number = 1; text.len > 0; number++) {
        struct token token = { .role = ROLE_NONE };
        sv line = sv_cut(&text, '\n');
        if (is_comment(line))
            continue;
        int r = read_line(line, &token, &why);
        if (r == 0)
            r = check_new(ret, &token, &why);
        if (r < 0)
            return err_set(error, why.code, "%s:%u: %s", path, number, why.text);
        ret->of[ret->count++] = token;
    }
    return 0;
}

/* A list that cannot be read is empty. */
static int read_both(const char *path, struct buf *ret_text, struct token_list *ret, struct weir_error *error)
{
    *ret = (struct token_list){ .of = NULL };
    buf_init(ret_text, FILE_BYTES_MAX);
    int r = read_text(path, ret_text, error);
    if (r == 0)
        r = parse(buf_sv(ret_text), path, ret, error);
    if (r < 0)
        token_list_done(ret);
    return r;
}

int token_list_read(struct token_list *ret, const char *path, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf text;
    return read_both(path, &text, ret, error);
}

/* ---- changing ---- */

/* An administrator may call this, and the service must be able to read it: the new file belongs to the owner of the old
 * one, or of the folder. */
static bool keep_owner(int fd, const char *path, int folder)
{
    struct stat own, st;
    bool there = stat(path, &st) == 0;
    if (fstat(fd, &own) < 0 || (!there && fstat(folder, &st) < 0))
        return false;
    if ((own.st_uid != st.st_uid || own.st_gid != st.st_gid) && fchown(fd, st.st_uid, st.st_gid) < 0)
        return false;
    return !there || fchmod(fd, st.st_mode & 0777) == 0;
}

/* `folder` is the descriptor of the folder that it is in. */
static int write_text(const char *path, int folder, const struct buf *text, struct weir_error *error)
{
    CLEANUP_FREE char *new_path = NULL;
    if (text->failed)
        return err_set(error, WEIR_E_INVALID, "%s would have more than %d KB", path, FILE_BYTES_MAX >> 10);
    if (asprintf(&new_path, "%s.%d.new", path, (int)getpid()) < 0)
        return err_no_memory(error);
    unlink(new_path);
    CLEANUP_CLOSE int fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && keep_owner(fd, path, folder) && write(fd, text->ptr, text->len) == (ssize_t)text->len &&
        fsync(fd) == 0 && rename(new_path, path) == 0)
        return 0;
    int r = err_set(error, WEIR_E_SYSTEM, "cannot write %s: %s", path, strerror(errno));
    unlink(new_path);
    return r;
}

/* Returns a descriptor, which holds the lock until it is closed, or an error. */
static int lock_folder(const char *path, struct weir_error *error)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    const char *folder = dirname(copy);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0)
        return fd;
    int r = err_set(error, WEIR_E_SYSTEM, "cannot open the folder %s: %s", folder, strerror(errno));
    if (fd >= 0)
        close(fd);
    return r;
}

static void add_line(struct buf *text, const struct token *token)
{
    if (text->len > 0 && text->ptr[text->len - 1] != '\n')
        buf_char(text, '\n');
    buf_printf(text, "%s %s %.*s", token->name, role_names[token->role], SV_FMT(hash_kind));
    for (size_t i = 0; i < SHA256_SIZE; i++)
        buf_printf(text, "%02x", token->hash[i]);
    buf_char(text, '\n');
}

/* The file that a link leads to, so that a change does not replace the link. */
static const char *follow(const char *path, char room[PATH_MAX])
{
    return realpath(path, room) ? room : path;
}

int token_list_add(const char *path, sv name, enum role role, char ret[TOKEN_MAX], struct weir_error *error)
{
    char room[PATH_MAX];
    path = follow(path, room);
    CLEANUP(token_list_done) struct token_list list = { 0 };
    CLEANUP(buf_done) struct buf text = { 0 };
    struct token token = { .role = role };
    char secret[2 * TOKEN_SECRET_BYTES + 1];
    if (!is_name(name))
        return bad_name(name, error);
    if (!token_make(secret))
        return err_set(error, WEIR_E_SYSTEM, "the system has no random numbers: %s", strerror(errno));
    CLEANUP_CLOSE int lock = lock_folder(path, error);
    int r = lock < 0 ? lock : read_both(path, &text, &list, error);
    if (r < 0)
        return r;
    memcpy(token.name, name.ptr, name.len);
    sha256(secret, strlen(secret), token.hash);
    r = check_new(&list, &token, error);
    add_line(&text, &token);
    if (r == 0)
        r = write_text(path, lock, &text, error);
    if (r == 0)
        memcpy(ret, secret, sizeof secret);
    return r;
}

static void copy_without(sv text, sv name, struct buf *out)
{
    while (text.len > 0) {
        sv line = sv_cut(&text, '\n'), rest = line;
        if (is_comment(line) || !sv_eq(next_word(&rest), name)) {
            buf_add(out, line);
            buf_char(out, '\n');
        }
    }
}

int token_list_remove(const char *path, sv name, struct weir_error *error)
{
    char room[PATH_MAX];
    path = follow(path, room);
    CLEANUP(token_list_done) struct token_list list = { 0 };
    CLEANUP(buf_done) struct buf text = { 0 }, rest;
    bool found = false;
    buf_init(&rest, FILE_BYTES_MAX + 1);
    CLEANUP_CLOSE int lock = lock_folder(path, error);
    int r = lock < 0 ? lock : read_both(path, &text, &list, error);
    if (r < 0)
        return r;
    for (size_t i = 0; i < list.count; i++)
        found = found || sv_eq(weir_str(list.of[i].name), name);
    if (!found)
        return err_set(error, WEIR_E_INVALID,
                       "%s has no token with the name %.*s; 'weir token list --file %s' shows the names", path,
                       SV_SHOWN(name, NAMES_SHOWN), path);
    copy_without(buf_sv(&text), name, &rest);
    return write_text(path, lock, &rest, error);
}
