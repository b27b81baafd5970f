/* The first start creates the tokens of the host in the data folder, readable for its user only. The token for decisions is
 * in a file that the administrator names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "serve/config.h"
#include "serve/token_list.h"

enum { TOKEN_LEAST = 16, HOST_TOKENS = 4 };

/* ---- files with one secret ---- */

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

/* Under another name until it is complete. A secret that another process has created meanwhile stays. */
static int make_secret(const char *what, const char *path, struct weir_error *error)
{
    char secret[2 * TOKEN_SECRET_BYTES + 1], text[sizeof secret + 1];
    CLEANUP_FREE char *new_path = NULL;
    if (access(path, F_OK) == 0)
        return 0;
    if (asprintf(&new_path, "%s.%d.new", path, (int)getpid()) < 0)
        return err_no_memory(error);
    unlink(new_path);
    CLEANUP_CLOSE int fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool made = fd >= 0 && token_make(secret);
    snprintf(text, sizeof text, "%s\n", made ? secret : "");
    made = made && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fsync(fd) == 0 &&
           (link(new_path, path) == 0 || errno == EEXIST);
    int r = made ? 0 : err_set(error, WEIR_E_SYSTEM, "cannot write the %s to %s: %s", what, path, strerror(errno));
    unlink(new_path);
    return r;
}

/* A secret of the data folder, which the first start creates. */
static int read_secret(const char *folder, const char *file, const char *what, char ret[TOKEN_MAX],
                       struct weir_error *error)
{
    struct stat st;
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, file) < 0)
        return err_no_memory(error);
    int r = make_secret(what, path, error);
    if (r == 0)
        r = read_token(path, ret, error);
    if (r == 0 && (stat(path, &st) < 0 || (st.st_mode & 077) != 0))
        r = err_set(error, WEIR_E_INVALID,
                    "other users may read the %s in %s; run 'chmod 600 %s', or remove it and weir creates a new one", what,
                    path, path);
    return r;
}

int tokens_read_own(const struct config *config, enum role role, char ret[TOKEN_MAX], struct weir_error *error)
{
    char file[32], what[32];
    snprintf(file, sizeof file, "%s-token", role_names[role]);
    snprintf(what, sizeof what, "%s token", role_names[role]);
    return read_secret(config->data, file, what, ret, error);
}

/* ---- all of them ---- */

/* With those that have names. NULL: *error says why. */
static struct tokens *new_tokens(const struct config *config, struct weir_error *error)
{
    CLEANUP(token_list_done) struct token_list list = { 0 };
    CLEANUP_FREE char *path = NULL;
    if (!config->tokens && asprintf(&path, "%s/tokens", config->data) < 0) {
        err_no_memory(error);
        return NULL;
    }
    if (token_list_read(&list, config->tokens ? config->tokens : path, error) < 0)
        return NULL;
    struct tokens *tokens = calloc(1, sizeof *tokens + (list.count + HOST_TOKENS) * sizeof tokens->of[0]);
    if (!tokens) {
        err_no_memory(error);
        return NULL;
    }
    if (list.count > 0)
        memcpy(tokens->of, list.of, list.count * sizeof *list.of);
    tokens->count = list.count;
    tokens->refs = 1;
    tokens->required = config->token_file || config->require_token == CONFIG_YES;
    return tokens;
}

static const char *file_of(const struct token *token)
{
    static const char *const files[ROLES] = { "", "--token-file", "read-token", "operate-token", "admin-token" };
    return token->is_named ? token->name : files[token->role];
}

/* Two names for one token would leave open whose it is. */
static int add_own(struct tokens *tokens, enum role role, const char *secret, struct weir_error *error)
{
    struct token *token = &tokens->of[tokens->count];
    token->role = role;
    snprintf(token->name, sizeof token->name, "%s", role_names[role]);
    sha256(secret, strlen(secret), token->hash);
    const struct token *other = token_with_hash(tokens, token->hash);
    if (other)
        return err_set(error, WEIR_E_INVALID, "%s and %s are the same token, but each needs its own; change one of them",
                       file_of(other), file_of(token));
    tokens->count++;
    return 0;
}

static int add_all_own(struct tokens *tokens, const struct config *config, struct weir_error *error)
{
    char secret[TOKEN_MAX];
    int r = 0;
    for (int role = ROLE_READ; r == 0 && role < ROLES; role++) {
        r = tokens_read_own(config, (enum role)role, secret, error);
        if (r == 0)
            r = add_own(tokens, (enum role)role, secret, error);
    }
    if (r == 0 && config->token_file) {
        r = read_token(config->token_file, secret, error);
        if (r == 0)
            r = add_own(tokens, ROLE_ASK, secret, error);
    }
    if (r == 0)
        r = read_secret(config->data, "session-key", "key of sessions", secret, error);
    if (r == 0)
        sha256(secret, strlen(secret), tokens->session_key);
    return r;
}

static bool is_same(const struct tokens *a, const struct tokens *b)
{
    return a->required == b->required && memcmp(a->session_key, b->session_key, sizeof a->session_key) == 0 &&
           a->count == b->count && memcmp(a->of, b->of, a->count * sizeof a->of[0]) == 0;
}

int tokens_read(struct tokens **tokens, const struct config *config, struct weir_error *error)
{
    struct tokens *fresh = new_tokens(config, error), *before = *tokens;
    int r = fresh ? add_all_own(fresh, config, error) : (int)error->code;
    if (r < 0 || (before && is_same(before, fresh))) {
        tokens_unref(fresh);
        return r;
    }
    fresh->generation = before ? before->generation + 1 : 1;
    *tokens = fresh;
    tokens_unref(before);
    return 0;
}

struct tokens *tokens_ref(struct tokens *tokens)
{
    __atomic_add_fetch(&tokens->refs, 1, __ATOMIC_RELAXED);
    return tokens;
}

void tokens_unref(struct tokens *tokens)
{
    if (tokens && __atomic_sub_fetch(&tokens->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(tokens);
}

/* ---- asking ---- */

const struct token *token_with_hash(const struct tokens *tokens, const unsigned char hash[SHA256_SIZE])
{
    for (size_t i = 0; i < tokens->count; i++)
        if (memcmp(tokens->of[i].hash, hash, SHA256_SIZE) == 0)
            return &tokens->of[i];
    return NULL;
}

/* Nobody learns a token from the time that comparing hashes takes: who tries does not know the hash of the next try. */
const struct token *token_find(const struct tokens *tokens, sv given)
{
    unsigned char hash[SHA256_SIZE];
    if (given.len < TOKEN_LEAST || given.len >= TOKEN_MAX)
        return NULL;
    sha256(given.ptr, given.len, hash);
    return token_with_hash(tokens, hash);
}

const struct token *token_named(const struct tokens *tokens, sv name)
{
    for (size_t i = 0; i < tokens->count; i++)
        if (sv_eq(weir_str(tokens->of[i].name), name))
            return &tokens->of[i];
    return NULL;
}

bool token_may_ask(const struct tokens *tokens, sv authorization)
{
    if (!tokens->required)
        return true;
    const struct token *token = token_find(tokens, token_of_bearer(authorization));
    return token && token->role == ROLE_ASK;
}

sv token_of_bearer(sv authorization)
{
    sv scheme = sv_cut(&authorization, ' '), token = sv_trim(authorization);
    return sv_eq_nocase(scheme, SV("Bearer")) && token.len > 0 ? token : sv_of(NULL, 0);
}

bool token_is(const char *token, sv given)
{
    size_t len = strlen(token);
    unsigned char differ = (unsigned char)(len == 0 || len != given.len);
    for (size_t i = 0; i < given.len; i++)
        differ |= (unsigned char)(given.ptr[i] ^ token[i % (len + 1)]);
    return differ == 0;
}
