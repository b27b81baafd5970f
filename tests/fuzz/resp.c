/* Bytes from anywhere as RESP: the same commands come out whatever the pieces they arrive in, arguments lie in what was
 * read, and every command that is carried out gets exactly one reply that is well formed. The first byte holds switches. */
#include <stdio.h>
#include <stdlib.h>

#include "serve/commands.h"
#include "serve/rule_sync_internal.h"
#include "serve/server.h"
#include "serve/stats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4096 };

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* ---- replies ---- */

static const char *line_end(const char *p, const char *end)
{
    while (p < end && *p != '\r' && *p != '\n')
        p++;
    require(end - p >= 2 && p[0] == '\r' && p[1] == '\n', "a line of a reply does not end");
    return p;
}

/* Returns where it ends. */
static const char *skip_reply(const char *p, const char *end, int depth)
{
    require(p < end && depth < 10, "a reply is missing");
    const char *line = line_end(p, end), *next = line + 2;
    long n = strtol(p + 1, NULL, 10);
    switch (*p) {
    case '+':
    case '-':
    case '_':
    case ':':
        return next;
    case '$':
        require(n >= -1 && (n < 0 || end - next >= n + 2), "a string of a reply is cut");
        return n < 0 ? next : line_end(next + n, end) + 2;
    case '*':
    case '%':
        for (long i = 0; i < (*p == '%' ? 2 * n : n); i++)
            next = skip_reply(next, end, depth + 1);
        return next;
    default:
        require(false, "a reply of no known type");
        return NULL;
    }
}

/* ---- the service around it ---- */

static const char rules[] = "rules:\n"
                            "- { id: a, by: [key], limits: [5 per 1h] }\n"
                            "- { id: b, match: { path: '/a/#' }, by: [ip, 'header:X'], limits: [1 per 1s], mode: shadow }\n"
                            "- { id: c, match: { event: e }, by: [user], limits: [2 per 1s, { calendar: day, max: 9 }] }\n";

static struct rule_sync rule_sync = { .is_file = true }; /* so that resets are in no history */
static struct server server = { .rule_sync = &rule_sync };
static struct loop loop;
static struct commands commands;

static struct tokens *make_tokens(void)
{
    static const char *const secrets[] = { "the-token-to-ask", "the-admin-token!" };
    struct tokens *tokens = calloc(1, sizeof *tokens + 2 * sizeof tokens->of[0]);
    if (!tokens)
        abort();
    tokens->count = 2;
    for (size_t i = 0; i < 2; i++) {
        strcpy(tokens->of[i].name, i ? "ann" : "bob");
        tokens->of[i].role = i ? ROLE_ADMIN : ROLE_ASK;
        sha256(secrets[i], strlen(secrets[i]), tokens->of[i].hash);
    }
    return tokens;
}

static void make_loop(void)
{
    struct weir_options options = { .size = sizeof options, .rules_text = rules, .cells_keys = 1000 };
    struct weir_error error;
    server.config.request_bytes = server.config.pipeline_bytes = MOST;
    loop.server = &server;
    if (weir_open(&server.weir, &options, &error) < 0 || stats_new(&loop.stats) < 0)
        abort();
    commands_init(&commands, &loop, NULL);
    loop.tokens = make_tokens();
    strcpy(server.where[FRONT_RESP], "off");
}

/* ---- parsing ---- */

static struct resp_command whole, piecemeal;

static void same_in_pieces(const char *bytes, size_t len, enum resp_parsed parsed)
{
    for (size_t n = 1; n < len; n++) {
        char *part = malloc(n);
        if (!part)
            return;
        memcpy(part, bytes, n);
        enum resp_parsed r = resp_parse(part, n, MOST, &piecemeal);
        free(part);
        if (r == RESP_PARTIAL)
            continue;
        require(r == parsed, "pieces are read otherwise");
        require(r != RESP_WHOLE || (piecemeal.bytes == whole.bytes && piecemeal.count == whole.count && n == whole.bytes),
                "a command ends elsewhere");
        return;
    }
}

static void check_args(const char *bytes)
{
    for (size_t i = 0; i < whole.count; i++)
        require(whole.args[i].ptr >= bytes && whole.args[i].ptr + whole.args[i].len <= bytes + whole.bytes,
                "an argument lies outside");
}

/* Returns how many replies there have to be. */
static size_t carry_out(char *bytes, size_t len)
{
    size_t replies = 0;
    for (size_t at = 0; at < len; at += whole.bytes) {
        char *copy = malloc(len - at);
        if (!copy)
            break;
        memcpy(copy, bytes + at, len - at);
        enum resp_parsed parsed = resp_parse(bytes + at, len - at, MOST, &whole);
        if (len - at < 300)
            same_in_pieces(copy, len - at, parsed);
        free(copy);
        require(parsed != RESP_WRONG || strlen(whole.wrong) > 0, "a mistake without words");
        if (parsed != RESP_WHOLE)
            break;
        require(whole.bytes > 0 && whole.bytes <= len - at, "length of a command");
        check_args(bytes + at);
        if (whole.count > 0)
            commands_run(&commands, &whole);
        replies += whole.count > 0;
    }
    commands_flush(&commands);
    return replies;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!loop.server)
        make_loop();
    char *bytes = size > 1 ? malloc(size - 1) : NULL;
    if (!bytes)
        return 0;
    memcpy(bytes, data + 1, size - 1);
    struct conn conn = { .fd = 1 };
    struct session session;
    loop.tokens->required = data[0] & 1;
    loop.now_us = INT64_C(1763200000000000);
    session_init(&session, &commands, &conn);
    if (data[0] & 2)
        session.access = ACCESS_ADMIN;
    commands_begin(&commands, &session);
    size_t replies = carry_out(bytes, size - 1);
    const char *p = commands.out.ptr ? commands.out.ptr : "", *end = p + commands.out.len;
    while (replies-- > 0)
        p = skip_reply(p, end, 0);
    require(p == end, "more replies than commands");
    commands.out.len = 0;
    session_done(&session);
    require(commands.budget.used == 0, "something is kept");
    free(bytes);
    return 0;
}
