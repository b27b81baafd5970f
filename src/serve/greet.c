/* Prints the addresses of the service at the start, and commands to try first. */
#include <ctype.h>
#include <stdio.h>
#include <unistd.h>

#include "base/program.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "serve/rule_sync.h"
#include "serve/server.h"

enum { EVENT_SHOWN_MAX = 40 };

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
    char room[PROGRAM_WORD_BYTES];
    printf("  curl %s", options);
    if (token_file)
        printf("-H \"Authorization: Bearer $(cat %s)\" ", program_word(token_file, room));
    if (is_unix(where))
        printf("--unix-socket %s ", program_word(where + 5, room));
    print_url(where, tls);
}

/* A request that a rule counts, for the commands to try. The tour in the README has other keys, so that its numbers are
 * right for those who have tried these commands. */
struct sample {
    char event[EVENT_SHOWN_MAX + 1]; /* empty: no rule is for an event */
    const char *by;                  /* "key" or "user" */
};

static bool is_plain(sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!isalnum((unsigned char)text.ptr[i]) && text.ptr[i] != '-' && text.ptr[i] != '_' && text.ptr[i] != '.')
            return false;
    return text.len > 0 && text.len <= EVENT_SHOWN_MAX;
}

static bool sample_of_rule(const struct rule *rule, struct sample *ret)
{
    const struct rule_kind *kind = rule->kind;
    if (kind->mode != MODE_ENFORCE || kind->condition_count != 1 || rule->match.path_count > 0 || kind->by_count != 1)
        return false;
    const struct rule_condition *condition = &kind->conditions[0];
    enum attribute by = rule->kind->by[0].attribute;
    if (condition->attribute != ATTR_EVENT || condition->is.count == 0 || condition->is.list[0].kind != VALUE_EQUAL ||
        !is_plain(condition->is.list[0].text) || (by != ATTR_KEY && by != ATTR_USER))
        return false;
    snprintf(ret->event, sizeof ret->event, "%.*s", SV_FMT(condition->is.list[0].text));
    ret->by = attribute_table[by].name.ptr;
    return true;
}

static void find_sample(struct weir *weir, struct sample *ret)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return;
    const struct rules *rules = ruleset_rules(bound->ruleset);
    for (size_t i = 0; i < rules->rule_count && !ret->event[0]; i++)
        sample_of_rule(rules->rules[i], ret);
    hazard_release();
}

static void print_redis_cli(const char *where, bool tls, const char *token_file, const struct sample *sample)
{
    char room[PROGRAM_WORD_BYTES];
    if (is_unix(where))
        printf("  redis-cli -s %s ", program_word(where + 5, room));
    else
        printf("  redis-cli -p %s %s", strrchr(where, ':') + 1, tls ? "--tls " : "");
    if (token_file)
        printf("-a \"$(cat %s)\" --no-auth-warning ", program_word(token_file, room));
    if (sample->event[0])
        printf("WEIR.CHECK event %s %s somebody\n", sample->event, sample->by);
    else
        puts("WEIR.CHECK method GET path / ip 192.0.2.1");
}

static void print_samples(const struct server *server)
{
    const struct config *config = &server->config;
    const char *http = server->where[FRONT_HTTP], *resp = server->where[FRONT_RESP];
    struct sample sample = { 0 };
    if (!is_on(http) && !is_on(resp))
        return;
    find_sample(server->weir, &sample);
    puts("\nTry a decision:");
    if (is_on(http)) {
        print_curl("-i ", http, has_tls(server, FRONT_HTTP), config->token_file);
        printf("/v1/check -H 'Content-Type: application/json' -d ");
        if (sample.event[0])
            printf("'{\"event\": \"%s\", \"%s\": \"somebody\"}'\n", sample.event, sample.by);
        else
            puts("'{\"method\": \"GET\", \"path\": \"/\", \"ip\": \"192.0.2.1\"}'");
    }
    if (is_on(resp))
        print_redis_cli(resp, has_tls(server, FRONT_RESP), config->token_file, &sample);
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
    if (server->table_place.live)
        printf("  table  in memory, %s, saved to %s\n", server->table_place.live, server->table_place.saved);
    else
        printf("  table  in the file %s\n", server->table_place.path);
    if (config->counters) {
        struct weir_store_status store;
        weir_store_status(server->weir, &store);
        printf("  counts %s\n", store.address);
    }
    if (watched && tokens_read_own(config, ROLE_ADMIN, token, &error) == 0)
        printf("  token  %s (of the admin listener; stored in %s)\n", token, token_file);
    print_samples(server);
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
