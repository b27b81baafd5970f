/* Prints the addresses of the service at the start, and commands to try first. */
#include <stdio.h>
#include <unistd.h>

#include "serve/rule_sync.h"
#include "serve/server.h"

static bool is_unix(const char *where)
{
    return strncmp(where, "unix:", 5) == 0;
}

static bool is_on(const char *where)
{
    return strcmp(where, "off") != 0;
}

/* "http://127.0.0.1:8080" or "https://…": every address of this host can be reached at the first one. */
static void print_url(const char *where, bool tls)
{
    const char *scheme = tls ? "https" : "http";
    if (is_unix(where))
        printf("%s://localhost", scheme);
    else if (strncmp(where, "[::]:", 5) == 0 || strncmp(where, "0.0.0.0:", 8) == 0)
        printf("%s://127.0.0.1%s", scheme, strrchr(where, ':'));
    else
        printf("%s://%s", scheme, where);
}

static bool has_tls(const struct server *server, enum front front)
{
    return tls_setup_has(&server->config, front, server->where[front]);
}

/* "curl …" up to the path. */
static void print_curl(const char *options, const char *where, bool tls, const char *token_file)
{
    printf("  curl %s", options);
    if (token_file)
        printf("-H \"Authorization: Bearer $(cat %s)\" ", token_file);
    if (is_unix(where))
        printf("--unix-socket %s ", where + 5);
    print_url(where, tls);
}

static void print_redis_cli(const char *where, bool tls, const char *token_file)
{
    if (is_unix(where))
        printf("  redis-cli -s %s ", where + 5);
    else
        printf("  redis-cli -p %s %s", strrchr(where, ':') + 1, tls ? "--tls " : "");
    if (token_file)
        printf("-a \"$(cat %s)\" --no-auth-warning ", token_file);
    puts("WEIR.CHECK event ocr key u1");
}

/* Prints the token to a terminal only, never into a log. */
void server_greet(const struct server *server)
{
    const struct config *config = &server->config;
    const char *http = server->where[FRONT_HTTP], *resp = server->where[FRONT_RESP], *admin = server->where[FRONT_ADMIN];
    char token_file[4200], token[TOKEN_MAX];
    struct weir_error error;
    struct rule_sync_state state;
    bool watched = isatty(STDOUT_FILENO);
    if (!watched && config->log == CONFIG_LOG_JSON)
        return;
    rule_sync_state(server->rule_sync, &state);
    snprintf(token_file, sizeof token_file, "%s/admin-token", config->data);
    printf("weir %s\n  http   %s\n  resp   %s\n", weir_version(), http, resp);
    if (is_on(server->where[FRONT_GRPC]))
        printf("  grpc   %s\n", server->where[FRONT_GRPC]);
    printf("  admin  %s\n  rules  %zu from %s\n", admin, state.rules, state.source);
    if (config->counters) {
        struct weir_store_status store;
        weir_store_status(server->weir, &store);
        printf("  counts %s\n", store.address);
    }
    if (watched && tokens_read_own(config, ROLE_ADMIN, token, &error) == 0)
        printf("  token  %s (of the admin listener; stored in %s)\n", token, token_file);
    if (is_on(http) || is_on(resp))
        puts("\nTry a decision:");
    if (is_on(http)) {
        print_curl("-i ", http, has_tls(server, FRONT_HTTP), config->token_file);
        puts("/v1/check -H 'Content-Type: application/json' -d '{\"event\": \"ocr\", \"key\": \"u1\"}'");
    }
    if (is_on(resp))
        print_redis_cli(resp, has_tls(server, FRONT_RESP), config->token_file);
    if (is_on(admin) && !is_unix(admin)) {
        printf("Open the page in a browser, and sign in with the token in %s:\n  ", token_file);
        print_url(admin, has_tls(server, FRONT_ADMIN));
        puts("/");
    }
    if (is_on(admin)) {
        puts("Or look at the rules here:");
        print_curl("", admin, has_tls(server, FRONT_ADMIN), token_file);
        puts("/v1/rules");
    }
    fflush(stdout);
}
