/* MULTI, EXEC, DISCARD: many clients send every pipeline between them. EXEC runs the queued commands one after another, as
 * in any pipeline; commands of other clients may run in between. If a command cannot be queued, EXEC runs none, so that
 * nothing is charged for a transaction that the client sees fail. EXEC and DISCARD need no token, so that a client can
 * leave the transaction after its token was changed. */
#include "serve/commands.h"
#include "serve/server.h"

enum { QUEUE_MOST = 10000 }; /* commands: their replies are made at once, and wait together */

/* ---- what is queued: the number of words, and each with its length before it ---- */

static bool put_size(struct byte_queue *k, size_t size)
{
    return byte_queue_append(k, sv_of((const char *)&size, sizeof size));
}

static bool put_command(struct byte_queue *k, const sv *args, size_t count)
{
    bool good = put_size(k, count);
    for (size_t i = 0; good && i < count; i++)
        good = put_size(k, args[i].len) && byte_queue_append(k, args[i]);
    return good;
}

static const char *get_size(const char *at, size_t *ret)
{
    memcpy(ret, at, sizeof *ret);
    return at + sizeof *ret;
}

static const char *get_command(const char *at, sv args[RESP_ARGS_MAX], size_t *ret_count)
{
    at = get_size(at, ret_count);
    for (size_t i = 0; i < *ret_count; i++) {
        at = get_size(at, &args[i].len);
        args[i].ptr = at;
        at += args[i].len;
    }
    return at;
}

/* ---- for others ---- */

void queue_break(struct session *session)
{
    if (session->queue.state == QUEUE_CLOSED)
        return;
    session->queue.state = QUEUE_BROKEN;
    byte_queue_clear(&session->queue.commands);
}

void queue_clear(struct session *session)
{
    byte_queue_clear(&session->queue.commands);
    session->queue.state = QUEUE_CLOSED;
    session->queue.count = session->queue.done = session->queue.at = 0;
    session->queue.running = false;
}

void queue_add(struct commands *c, const sv *args, size_t count)
{
    struct queue *queue = &c->session->queue;
    const char *why = NULL;
    if (queue->state == QUEUE_OPEN && queue->count == QUEUE_MOST)
        why = "more than 10000 commands";
    else if (queue->state == QUEUE_OPEN && !put_command(&queue->commands, args, count))
        why = "no memory left";
    else if (queue->commands.len > c->loop->server->config.request_bytes)
        why = "more bytes than a request may have";
    if (why) {
        queue_break(c->session);
        resp_error(&c->out, "ERR %s between MULTI and EXEC; a pipeline without MULTI may have any length", why);
        return;
    }
    queue->count++;
    resp_status(&c->out, "QUEUED");
}

/* A command that finds the session waiting for earlier ones was not run, and is the first one later. */
void queue_run(struct commands *c)
{
    struct queue *queue = &c->session->queue;
    sv words[RESP_ARGS_MAX];
    while (queue->done < queue->count) {
        size_t word_count;
        const char *end = get_command(queue->commands.ptr + queue->at, words, &word_count);
        const struct command *command = command_find(c, words[0]);
        if (!(command->flags & COMMAND_GATHER) && !commands_flush(c))
            return;
        command->run(c, words, word_count);
        if (c->session->wait && !wait_is_for_command(c->session))
            return;
        queue->at = (size_t)(end - queue->commands.ptr);
        queue->done++;
        if (c->session->wait)
            return;
    }
    if (commands_flush(c))
        queue_clear(c->session);
}

/* ---- commands ---- */

void multi_command(struct commands *c, const sv *args, size_t count)
{
    (void)args, (void)count;
    if (c->session->queue.state != QUEUE_CLOSED) {
        queue_break(c->session);
        resp_error(&c->out, "ERR MULTI calls can not be nested");
        return;
    }
    c->session->queue.state = QUEUE_OPEN;
    resp_status(&c->out, "OK");
}

void exec_command(struct commands *c, const sv *args, size_t count)
{
    struct queue *queue = &c->session->queue;
    (void)args, (void)count;
    if (queue->state == QUEUE_OPEN) {
        resp_array(&c->out, queue->count);
        queue->running = true;
        queue_run(c);
        return;
    }
    if (queue->state == QUEUE_CLOSED)
        resp_error(&c->out, "ERR EXEC without MULTI");
    else
        resp_error(&c->out, "EXECABORT Transaction discarded because of previous errors.");
    queue_clear(c->session);
}

void discard_command(struct commands *c, const sv *args, size_t count)
{
    (void)args, (void)count;
    if (c->session->queue.state == QUEUE_CLOSED)
        resp_error(&c->out, "ERR DISCARD without MULTI");
    else
        resp_status(&c->out, "OK");
    queue_clear(c->session);
}
