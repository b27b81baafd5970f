/* Tokens: those of the host, those with names, and the file of these. */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "serve/config.h"
#include "serve/token_list.h"

#include "files.h"

CLEANUP_POINTER(struct tokens *, tokens_unref);

struct place {
    char folder[64], list[96], read[96], operate[96], admin[96], ask[96], key[96];
    struct config config;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    snprintf(p->folder, sizeof p->folder, "/tmp/weir-tokens.XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->list, sizeof p->list, "%s/tokens", p->folder);
    snprintf(p->read, sizeof p->read, "%s/read-token", p->folder);
    snprintf(p->operate, sizeof p->operate, "%s/operate-token", p->folder);
    snprintf(p->admin, sizeof p->admin, "%s/admin-token", p->folder);
    snprintf(p->ask, sizeof p->ask, "%s/ask", p->folder);
    snprintf(p->key, sizeof p->key, "%s/session-key", p->folder);
    p->config.data = p->folder;
    *state = p;
    return 0;
}

static int clean_up(void **state)
{
    struct place *p = *state;
    const char *const files[] = { p->list, p->read, p->operate, p->admin, p->ask, p->key };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    int r = rmdir(p->folder);
    free(p);
    return r;
}

static void read_text(const char *path, char *ret, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    ret[fread(ret, 1, size - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
}

static enum role role_of(const struct tokens *tokens, sv given)
{
    const struct token *token = token_find(tokens, given);
    return token ? token->role : ROLE_NONE;
}

/* ---- tokens of the host ---- */

static void roles(void **state)
{
    struct place *p = *state;
    CLEANUP(tokens_unrefp) struct tokens *tokens = NULL;
    struct weir_error error;
    write_text(p->read, "read-read-read-read\n");
    write_text(p->operate, "operate-operate-operate\n");
    write_text(p->admin, "admin-admin-admin-admin\n");
    write_text(p->ask, "decide-decide-decide");
    chmod(p->read, 0600), chmod(p->operate, 0600), chmod(p->admin, 0600);
    p->config.token_file = p->ask;
    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    assert_true(tokens->required);
    assert_int_equal(role_of(tokens, SV("read-read-read-read")), ROLE_READ);
    assert_int_equal(role_of(tokens, SV("operate-operate-operate")), ROLE_OPERATE);
    assert_int_equal(role_of(tokens, SV("admin-admin-admin-admin")), ROLE_ADMIN);
    assert_int_equal(role_of(tokens, SV("decide-decide-decide")), ROLE_ASK);
    assert_true(token_may_ask(tokens, SV("Bearer decide-decide-decide")));
    assert_false(token_may_ask(tokens, SV("Bearer read-read-read-read")));
    assert_false(token_may_ask(tokens, SV("Bearer admin-admin-admin-admin")));
    assert_false(token_may_ask(tokens, SV("decide-decide-decide")));
    assert_false(token_may_ask(tokens, (sv){ 0 }));
    static const char *const wrong[] = { "",
                                         "read-read-read-reae",
                                         "read-read-read-rea",
                                         "read-read-read-readx",
                                         "Read-read-read-read",
                                         " read-read-read-read" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(role_of(tokens, weir_str(wrong[i])), ROLE_NONE);
    assert_int_equal(role_of(tokens, SV("read-read-read-read\0")), ROLE_NONE);
    assert_int_equal(role_of(tokens, SV("read-read-\0ead-read")), ROLE_NONE);
    assert_int_equal(role_of(tokens, SV("\0")), ROLE_NONE);
    assert_int_equal(role_of(tokens, (sv){ 0 }), ROLE_NONE);
    /* Longer than any token, and the same again after that. */
    char big[3 * TOKEN_MAX];
    memset(big, 0, sizeof big);
    memcpy(big, "read-read-read-read", 19);
    assert_int_equal(role_of(tokens, sv_of(big, sizeof big)), ROLE_NONE);
    assert_int_equal(role_of(tokens, sv_of(big, TOKEN_MAX)), ROLE_NONE);
}

static void bearers(void **state)
{
    (void)state;
    assert_true(sv_eq(token_of_bearer(SV("Bearer abc")), SV("abc")));
    assert_true(sv_eq(token_of_bearer(SV("bEARER   abc ")), SV("abc")));
    static const char *const none[] = {
        "", "Bearer", "Bearer ", "Bearer   ", "Basic abc", "abc", "Bearerabc", "Bearer\tabc"
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(token_of_bearer(weir_str(none[i])).ptr);
    assert_null(token_of_bearer((sv){ 0 }).ptr);
}

static void files_of_the_host(void **state)
{
    struct place *p = *state;
    CLEANUP(tokens_unrefp) struct tokens *tokens = NULL;
    struct weir_error error;
    struct stat st;
    char text[TOKEN_MAX], before[TOKEN_MAX];
    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    const char *const files[] = { p->read, p->operate, p->admin, p->key };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_true(stat(files[i], &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_int_equal(tokens_read_own(&p->config, ROLE_READ, before, &error), 0);
    assert_int_equal(role_of(tokens, weir_str(before)), ROLE_READ);
    assert_false(tokens->required);
    assert_true(token_may_ask(tokens, (sv){ 0 }));
    const struct tokens *first = tokens;
    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    assert_ptr_equal(tokens, first);

    /* One that was removed is made anew. */
    unsigned generation = tokens->generation;
    unlink(p->read);
    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    assert_int_equal(tokens->generation, generation + 1);
    assert_int_equal(tokens_read_own(&p->config, ROLE_READ, text, &error), 0);
    assert_string_not_equal(text, before);
    assert_int_equal(role_of(tokens, weir_str(before)), ROLE_NONE);

    first = tokens;
    write_text(p->operate, text);
    assert_int_equal(tokens_read(&tokens, &p->config, &error), WEIR_E_INVALID);
    assert_non_null(strstr(error.text, "read-token and operate-token"));
    assert_ptr_equal(tokens, first);
    write_text(p->operate, "another-operate-token");
    chmod(p->operate, 0640);
    assert_int_equal(tokens_read(&tokens, &p->config, &error), WEIR_E_INVALID);
    assert_non_null(strstr(error.text, "operate token"));
    chmod(p->operate, 0600);
    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    assert_ptr_not_equal(tokens, first);
}

/* ---- tokens with names ---- */

static void names(void **state)
{
    struct place *p = *state;
    CLEANUP(tokens_unrefp) struct tokens *tokens = NULL;
    struct weir_error error;
    char ann[TOKEN_MAX], bob[TOKEN_MAX], other[TOKEN_MAX], text[1000];
    struct stat st;
    write_text(p->list, "# who may do what\n\n");
    chmod(p->list, 0640);
    assert_int_equal(token_list_add(p->list, SV("ann@example.org"), ROLE_ADMIN, ann, &error), 0);
    assert_int_equal(token_list_add(p->list, SV("bob"), ROLE_ASK, bob, &error), 0);
    assert_int_equal(token_list_add(p->list, SV("bob"), ROLE_READ, other, &error), WEIR_E_INVALID);
    assert_non_null(strstr(error.text, "already a token with the name bob"));
    assert_true(stat(p->list, &st) == 0 && (st.st_mode & 0777) == 0640);
    read_text(p->list, text, sizeof text);
    assert_null(strstr(text, ann));
    assert_int_equal(strncmp(text, "# who may do what\n\nann@example.org admin sha256:", 48), 0);

    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    const struct token *found = token_find(tokens, weir_str(ann));
    assert_true(found && found->role == ROLE_ADMIN && found->is_named && strcmp(found->name, "ann@example.org") == 0);
    assert_ptr_equal(token_named(tokens, SV("ann@example.org")), found);
    assert_int_equal(role_of(tokens, weir_str(bob)), ROLE_ASK);
    assert_false(tokens->required);
    p->config.require_token = CONFIG_YES;
    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    assert_true(tokens->required);

    assert_int_equal(token_list_remove(p->list, SV("eve"), &error), WEIR_E_INVALID);
    assert_int_equal(token_list_remove(p->list, SV("ann"), &error), WEIR_E_INVALID); /* a part of a name */
    assert_int_equal(token_list_remove(p->list, SV("ann@example.org"), &error), 0);
    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    assert_int_equal(role_of(tokens, weir_str(ann)), ROLE_NONE);
    assert_int_equal(role_of(tokens, weir_str(bob)), ROLE_ASK);
    read_text(p->list, text, sizeof text);
    assert_int_equal(strncmp(text, "# who may do what\n\nbob ask", 26), 0);
    assert_int_equal(token_list_remove(p->list, SV("bob"), &error), 0);
    assert_int_equal(tokens_read(&tokens, &p->config, &error), 0);
    assert_true(tokens->required); /* withdrawing the last one opens nothing */
}

#define HASH "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void bad_lists(void **state)
{
    struct place *p = *state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "x\n", ":1: a line has a name" },
        { "\n# y\nann admin\n", ":3: a line has a name" },
        { "ann admin " HASH " x\n", ":1: a line has a name" },
        { "ann admin sha256:0123\n", ":1: a line has a name" },
        { "ann admin sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeg\n", ":1: a line has a name" },
        { "ann root " HASH "\n", "and not `root`" },
        { "ann none " HASH "\n", "and not `none`" },
        { "admin admin " HASH "\n", "not the name of a role" },
        { "a/b admin " HASH "\n", "`a/b` is not such a name" },
        { "a\xc3\xa4 admin " HASH "\n", "is not such a name" },
        { "ann admin " HASH "\nann read " HASH "\n", ":2: there is already" },
        { "ann admin " HASH "\nbob read " HASH "\n", ":2: ann and bob are the same token" },
    };
    struct token_list list;
    struct weir_error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(p->list, cases[i].text);
        assert_int_equal(token_list_read(&list, p->list, &error), WEIR_E_INVALID);
        if (!strstr(error.text, cases[i].why))
            fail_msg("`%s`: %s", cases[i].text, error.text);
        assert_null(list.of);
    }
    write_text(p->list, " \tann\t admin  " HASH " \r\n#\n\n");
    assert_int_equal(token_list_read(&list, p->list, &error), 0);
    assert_int_equal(list.count, 1);
    token_list_done(&list);
    chmod(p->list, 0620);
    assert_int_equal(token_list_read(&list, p->list, &error), WEIR_E_INVALID);
    assert_non_null(strstr(error.text, "chmod go-w"));
    unlink(p->list);
    assert_int_equal(token_list_read(&list, p->list, &error), 0);
    assert_int_equal(list.count, 0);
    token_list_done(&list);
    static const char *const names[] = {
        "", "admin", "ask", "a b", "a\n", "..//", "ä", "0123456789012345678901234567890123456789012345678901234567890123x"
    };
    char token[TOKEN_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(token_list_add(p->list, weir_str(names[i]), ROLE_READ, token, &error), WEIR_E_INVALID);
    assert_int_equal(access(p->list, F_OK), -1);
}

/* Nobody's change is lost. */
static void several_at_once(void **state)
{
    enum { WRITERS = 8, EACH = 10 };
    struct place *p = *state;
    struct token_list list;
    struct weir_error error;
    for (int i = 0; i < WRITERS; i++)
        if (fork() == 0) {
            char name[32], token[TOKEN_MAX];
            int failed = 0;
            for (int k = 0; k < EACH; k++) {
                snprintf(name, sizeof name, "n%d-%d", i, k);
                failed |= token_list_add(p->list, weir_str(name), ROLE_READ, token, &error) < 0;
                if (k % 2)
                    failed |= token_list_remove(p->list, weir_str(name), &error) < 0;
            }
            _exit(failed);
        }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        assert_true(wait(&status) > 0 && status == 0);
    }
    assert_int_equal(token_list_read(&list, p->list, &error), 0);
    assert_int_equal(list.count, WRITERS * EACH / 2);
    token_list_done(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(roles, set_up, clean_up),
        cmocka_unit_test(bearers),
        cmocka_unit_test_setup_teardown(files_of_the_host, set_up, clean_up),
        cmocka_unit_test_setup_teardown(names, set_up, clean_up),
        cmocka_unit_test_setup_teardown(bad_lists, set_up, clean_up),
        cmocka_unit_test_setup_teardown(several_at_once, set_up, clean_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
