/* The first start creates the tokens of the roles in the data folder, readable for its user only. The token for decisions
 * is in a file that the administrator names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "serve/config.h"
#include "serve/tokens.h"

enum { TOKEN_RANDOM = 24, TOKEN_LEAST = 16 };

const char *const role_names[ROLES] = { "none", "read", "operate", "admin" };

static int read_token(const char *path, char ret[TOKEN_MAX], struct weir_error *error)
{
    char text[TOKEN_MAX + 1];
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (len < 0)
        return err_set(error, WEIR_E_SYSTEM, "cannot read the token file %s: %s", path, strerror(errno));
    sv token = sv_trim(sv_of(text, (size_t)len));
    bool fits = token.len >= TOKEN_LEAST && token.len < TOKEN_MAX;
    for (size_t i = 0; i < token.len; i++)
        fits = fits && token.ptr[i] > ' ' && token.ptr[i] < 0x7f;
    if (!fits)
        return err_set(error, WEIR_E_INVALID,
                       "the token file %s must hold one line of %d to %d visible ASCII characters without blanks", path,
                       TOKEN_LEAST, TOKEN_MAX - 1);
    memset(ret, 0, TOKEN_MAX);
    memcpy(ret, token.ptr, token.len);
    return 0;
}

/* Under another name until it is complete. A token that another process has created meanwhile stays. */
static int make_token(enum role role, const char *path, struct weir_error *error)
{
    unsigned char random[TOKEN_RANDOM];
    char text[2 * TOKEN_RANDOM + 2];
    CLEANUP_FREE char *new_path = NULL;
    if (access(path, F_OK) == 0)
        return 0;
    if (asprintf(&new_path, "%s.%d.new", path, (int)getpid()) < 0)
        return err_no_memory(error);
    unlink(new_path);
    CLEANUP_CLOSE int fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool made = fd >= 0 && getrandom(random, sizeof random, 0) == sizeof random;
    for (size_t i = 0; made && i < sizeof random; i++)
        snprintf(text + 2 * i, 4, "%02x\n", random[i]);
    made = made && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fsync(fd) == 0 &&
           (link(new_path, path) == 0 || errno == EEXIST);
    int r = made ? 0
                 : err_set(error, WEIR_E_SYSTEM, "cannot write the %s token to %s: %s", role_names[role], path,
                           strerror(errno));
    unlink(new_path);
    return r;
}

static int read_role_token(enum role role, const char *path, char ret[TOKEN_MAX], struct weir_error *error)
{
    struct stat st;
    int r = make_token(role, path, error);
    if (r == 0)
        r = read_token(path, ret, error);
    if (r == 0 && (stat(path, &st) < 0 || (st.st_mode & 077) != 0))
        r = err_set(error, WEIR_E_INVALID,
                    "other users may read the %s token in %s; run 'chmod 600 %s', or remove it and weir "
                    "creates a new one",
                    role_names[role], path, path);
    return r;
}

/* Two roles with one token would be one role. */
static int check_that_they_differ(const struct tokens *tokens, const char *folder, struct weir_error *error)
{
    for (int a = ROLE_READ; a < ROLES; a++)
        for (int b = a + 1; b < ROLES; b++)
            if (strcmp(tokens->roles[a], tokens->roles[b]) == 0)
                return err_set(error, WEIR_E_INVALID,
                               "the files %s-token and %s-token in %s have the same token, but each role needs its own; "
                               "remove one of them and weir creates a new one",
                               role_names[a], role_names[b], folder);
    return 0;
}

static int read_role_tokens(struct tokens *tokens, const char *folder, struct weir_error *error)
{
    for (int role = ROLE_READ; role < ROLES; role++) {
        CLEANUP_FREE char *path = NULL;
        if (asprintf(&path, "%s/%s-token", folder, role_names[role]) < 0)
            return err_no_memory(error);
        int r = read_role_token((enum role)role, path, tokens->roles[role], error);
        if (r < 0)
            return r;
    }
    return check_that_they_differ(tokens, folder, error);
}

int tokens_read(struct tokens *tokens, const struct config *config, struct weir_error *error)
{
    struct tokens fresh = { .decide = "" };
    int r = config->token_file ? read_token(config->token_file, fresh.decide, error) : 0;
    if (r == 0)
        r = read_role_tokens(&fresh, config->data, error);
    if (r < 0)
        return r;
    bool decide = strcmp(fresh.decide, tokens->decide) != 0;
    bool admin = strcmp(fresh.roles[ROLE_ADMIN], tokens->roles[ROLE_ADMIN]) != 0;
    bool any = decide || memcmp(fresh.roles, tokens->roles, sizeof fresh.roles) != 0;
    fresh.generation = tokens->generation + any;
    fresh.resp_generation = tokens->resp_generation + (decide || admin);
    *tokens = fresh;
    return 0;
}

bool token_is(const char *token, sv given)
{
    size_t len = strlen(token);
    unsigned char differ = (unsigned char)(len == 0 || len != given.len);
    for (size_t i = 0; i < given.len; i++)
        differ |= (unsigned char)(given.ptr[i] ^ token[i % (len + 1)]);
    return differ == 0;
}

enum role token_role(const struct tokens *tokens, sv given)
{
    unsigned role = ROLE_NONE;
    for (unsigned i = ROLE_READ; i < ROLES; i++)
        role |= i * token_is(tokens->roles[i], given); /* they differ, so at most one is */
    return (enum role)role;
}

sv token_of_bearer(sv authorization)
{
    sv scheme = sv_cut(&authorization, ' '), token = sv_trim(authorization);
    return sv_eq_nocase(scheme, SV("Bearer")) && token.len > 0 ? token : sv_of(NULL, 0);
}

bool token_is_bearer(const char *token, sv authorization)
{
    return token_is(token, token_of_bearer(authorization));
}
