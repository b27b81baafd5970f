/* weir token: the tokens of a service that have names. It changes the file of tokens, which the service follows. */
#include <stdio.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "serve/token_list.h"

enum { PATH_BYTES_MAX = 8192, OUTPUT_MAX = 1 << 20, NAME_COLUMNS = 24 };

struct values {
    const char *data, *file;
    int role;
};

static const struct option options[] = {
    { "role", "ask|read|operate|admin", OPTION_CHOICE, offsetof(struct values, role),
      "add: what the token may do; ask: ask for decisions; read: see the page and the metrics; operate: also set subjects "
      "free, override limits, penalise and undo changes; admin: also change rules and settings" },
    { "data", "DIR", OPTION_TEXT, offsetof(struct values, data), "data folder of the service; weir-data" },
    { "file", "FILE", OPTION_TEXT, offsetof(struct values, file),
      "file of the tokens, if the service has the option tokens; tokens in the data folder" },
    { NULL },
};

static const struct command command = {
    .name = "token",
    .usage = "add NAME --role ROLE | list | withdraw NAME",
    .text =
        "Adds and withdraws tokens: the secrets by which clients show a service what they may do. Each has a name, which "
        "the history of the rules has with every change that was made with it.\n\n"
        "  add       create a token and print it; it is not stored anywhere, only its hash is\n"
        "  list      print names and roles\n"
        "  withdraw  make a token invalid\n\n"
        "A running service follows the file: a change is in force within a second, and sessions in the page that "
        "were begun with a withdrawn token end.",
    .footer = "The exit status is 0, or 2 after an error.\n\nExamples:\n"
              "  weir token add prometheus --role read --data /var/lib/weir\n"
              "  weir token withdraw prometheus --data /var/lib/weir",
    .options = options,
};

static int add(const char *path, sv name, int role)
{
    struct weir_error error;
    char token[TOKEN_MAX];
    if (role < 0)
        return options_error(&command, "say what the token may do: --role ask, read, operate or admin");
    if (token_list_add(path, name, (enum role)(ROLE_ASK + role), token, &error) < 0)
        return cli_fail(&error);
    puts(token);
    return 0;
}

static int list(const char *path)
{
    CLEANUP(token_list_done) struct token_list tokens = { 0 };
    struct weir_error error;
    if (token_list_read(&tokens, path, &error) < 0)
        return cli_fail(&error);
    for (size_t i = 0; i < tokens.count; i++)
        printf("%-*s  %s\n", NAME_COLUMNS, tokens.of[i].name, role_names[tokens.of[i].role]);
    return 0;
}

static int withdraw(const char *path, sv name)
{
    struct weir_error error;
    return token_list_remove(path, name, &error) < 0 ? cli_fail(&error) : 0;
}

int cli_token(int argc, char **argv)
{
    static const char *const verbs[] = { "add", "list", "withdraw", NULL };
    struct values values = { .data = "weir-data", .role = -1 };
    CLEANUP(buf_done) struct buf path = { 0 };
    size_t words;
    int status = options_read(&command, argc, argv, &values, &words);
    if (status >= 0)
        return status;
    buf_init(&path, PATH_BYTES_MAX);
    buf_printf(&path, "%s%s", values.file ? values.file : values.data, values.file ? "" : "/tokens");
    const char *what = words > 0 ? argv[0] : "";
    bool adds = strcmp(what, "add") == 0, lists = strcmp(what, "list") == 0;
    if (path.failed)
        return cli_error("the path of the file is too long");
    if (!adds && !lists && strcmp(what, "withdraw") != 0)
        return words ? options_unknown(&command, "verb", what, verbs)
                     : options_error(&command, "say what to do: add, list or withdraw");
    if (words != (lists ? 1 : 2))
        return options_error(&command, lists ? "list takes no name" : "%s takes one name", what);
    if (!adds && values.role >= 0)
        return options_error(&command, "only add takes --role");
    if (lists)
        return list(path.ptr);
    return adds ? add(path.ptr, weir_str(argv[1]), values.role) : withdraw(path.ptr, weir_str(argv[1]));
}
