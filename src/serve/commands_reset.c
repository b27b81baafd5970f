/* WEIR.RESET rule [value ...]: as many values as the rule counts by. The history of changes has it, with the name of the
 * token.
 *
 * A store may take as long to answer as for a decision. So another thread asks it, and the session waits. */
#include <stdio.h>
#include <stdlib.h>

#include "refused/subject.h"
#include "serve/admin.h"
#include "serve/commands.h"
#include "serve/server.h"

#define AUTHOR "redis client (%s)"

enum { FROM_MAX = 100, AUTHOR_MAX = sizeof AUTHOR + TOKEN_NAME_MAX };

struct reset {
    uv_work_t work;
    struct loop *loop;
    struct wait *wait;
    char rule[WEIR_ID_MAX + 1];
    char from[FROM_MAX], author[AUTHOR_MAX];
    int result;
    struct weir_error error;
    struct subject_reset whom;
    sv values[]; /* followed by their text */
};

/* Returns what subject_reset does. */
static int reset_and_record(struct server *server, const struct subject_reset *whom, int64_t now_us,
                            struct weir_error *error)
{
    struct subject subject;
    int r = subject_reset(server, whom, now_us, &subject, error);
    if (r == 0)
        admin_record(server, "reset", &subject, 0, (struct source_author){ whom->author, SV("") });
    return r;
}

/* In another thread. */
static void reset_in_store(uv_work_t *work)
{
    struct reset *reset = work->data;
    reset->result = reset_and_record(reset->loop->server, &reset->whom, weir_now_us(), &reset->error);
}

static void on_reset(uv_work_t *work, int status)
{
    struct reset *reset = work->data;
    bool good = status == 0 && reset->result == 0;
    reset->loop->working--;
    wait_end_command(reset->wait, good ? NULL : reset->error.text);
    free(reset);
}

/* NULL: no memory. */
static struct reset *reset_new(struct loop *loop, const struct subject_reset *whom)
{
    size_t bytes = sizeof(struct reset) + whom->count * sizeof *whom->values;
    for (size_t i = 0; i < whom->count; i++)
        bytes += whom->values[i].len;
    struct reset *reset = calloc(1, bytes);
    if (!reset)
        return NULL;
    reset->work.data = reset;
    reset->loop = loop;
    snprintf(reset->rule, sizeof reset->rule, "%s", whom->rule);
    snprintf(reset->from, sizeof reset->from, "%s", whom->from);
    snprintf(reset->author, sizeof reset->author, "%.*s", SV_FMT(whom->author));
    char *at = (char *)&reset->values[whom->count];
    for (size_t i = 0; i < whom->count; i++) {
        sv value = whom->values[i];
        reset->values[i] = sv_of(memcpy(at, value.ptr, value.len), value.len);
        at += value.len;
    }
    reset->whom = (struct subject_reset){ reset->rule, reset->values, whom->count, weir_str(reset->author), reset->from };
    return reset;
}

static void reset_in_thread(struct commands *c, const struct subject_reset *whom)
{
    struct reset *reset = reset_new(c->loop, whom);
    struct wait *wait = reset ? wait_for_command(c) : NULL;
    if (!wait) {
        free(reset);
        resp_error(&c->out, "ERR out of memory");
        return;
    }
    reset->wait = wait;
    c->loop->working++;
    uv_queue_work(&c->loop->uv, &reset->work, reset_in_store, on_reset); /* fails only without a function */
}

void weir_reset_command(struct commands *c, const sv *args, size_t count)
{
    const struct token *token = token_with_hash(c->loop->tokens, c->session->token);
    char rule[WEIR_ID_MAX + 1] = "", author[AUTHOR_MAX];
    snprintf(author, sizeof author, AUTHOR, token ? token->name : "unknown");
    struct subject_reset whom = { rule, args + 2, count - 2, weir_str(author), conn_from(c->session->conn) };
    struct weir_error error;
    if (args[1].len > WEIR_ID_MAX || memchr(args[1].ptr, '\0', args[1].len)) {
        resp_error(&c->out, "ERR not the id of a rule: at most %d bytes, none of them NUL", WEIR_ID_MAX);
        return;
    }
    memcpy(rule, args[1].ptr, args[1].len);
    if (c->loop->store)
        reset_in_thread(c, &whom);
    else if (reset_and_record(c->loop->server, &whom, loop_now_us(c->loop), &error) == 0)
        resp_status(&c->out, "OK");
    else
        resp_error(&c->out, "ERR %s", error.text);
}
