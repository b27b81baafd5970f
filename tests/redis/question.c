#include "question.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

struct redis_server server;
struct talk talk;

/* ---- asking ---- */

void question_init(struct question *q, int64_t now_us)
{
    static const char *const keys[RULES] = { "{u1}:first:key", "{u1}:second:key" };
    *q = (struct question){ .call = { .rules = q->rules, .charge = true, .now_us = now_us } };
    for (size_t i = 0; i < RULES; i++)
        q->rules[i] = (struct store_rule){ .key = { keys[i], strlen(keys[i]) }, .cells = q->cells[i] };
}

struct store_cell *add(struct question *q, size_t rule, enum limit_algorithm algorithm, uint64_t max, int64_t per_us)
{
    static const char *const names[CELLS] = { "one", "two", "three", "four" };
    size_t i = q->rules[rule].cell_count++;
    struct store_cell *cell = &q->cells[rule][i];
    limit_init(&q->limits[rule][i], algorithm, max, 0, per_us);
    *cell = (struct store_cell){ .limit = &q->limits[rule][i], .field = { names[i], strlen(names[i]) }, .cost = 1 };
    if (q->call.rule_count <= rule)
        q->call.rule_count = rule + 1;
    return cell;
}

struct store_cell *add_calendar(struct question *q, size_t rule, uint64_t max, int64_t unit_us, int64_t at_us)
{
    struct store_cell *cell = add(q, rule, LIMIT_CALENDAR, max, 0);
    int64_t start_us = at_us / unit_us * unit_us;
    cell->window = (struct window){ start_us, start_us + unit_us };
    cell->next = (struct window){ start_us + unit_us, start_us + 2 * unit_us };
    return cell;
}

void set_costs(struct question *q, uint64_t cost)
{
    for (size_t i = 0; i < RULES * CELLS; i++)
        q->cells[i / CELLS][i % CELLS].cost = cost;
}

void ask_with(struct question *q, sv prefix)
{
    struct reply reply;
    q->error[0] = '\0';
    script_write_decide(&talk.out, prefix, &q->call);
    if (!q->expires) {
        talk_write(&talk, "PERSIST", FIRST, NULL);
        talk_write(&talk, "PERSIST", SECOND, NULL);
    }
    assert_true(talk_read(&talk, &reply));
    if (reply.kind == REPLY_ERROR)
        snprintf(q->error, sizeof q->error, "%.*s", SV_FMT(reply.text));
    else
        assert_true(reply.kind == REPLY_BULK && script_read_decide(&q->call, reply.text));
    if (reply.kind != REPLY_ERROR && q->call.result == STORE_FAILED)
        snprintf(q->error, sizeof q->error, "%.150s", q->call.why);
    for (int i = 0; i < 2 && !q->expires; i++)
        assert_true(talk_read(&talk, &reply));
}

void ask(struct question *q)
{
    ask_with(q, SV("weir"));
    assert_string_equal(q->error, "");
}

bool allowed(struct question *q)
{
    ask(q);
    assert_int_equal(q->call.result, STORE_DECIDED);
    return q->call.allowed;
}

int64_t read_integer(void)
{
    struct reply reply;
    assert_true(talk_read(&talk, &reply));
    assert_int_equal(reply.kind, REPLY_INTEGER);
    return reply.integer;
}

int64_t keys_in_store(void)
{
    return INTEGER("DBSIZE");
}

void put(const char *key, const char *field, const double *numbers, size_t count)
{
    buf_printf(&talk.out, "*4\r\n$4\r\nHSET\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(key), key, strlen(field),
               field, count * sizeof *numbers);
    buf_add(&talk.out, sv_of((const char *)numbers, count * sizeof *numbers));
    buf_add(&talk.out, SV("\r\n"));
    read_integer();
}

size_t stored(const char *key, const char *field, double numbers[3])
{
    struct reply reply;
    talk_write(&talk, "HGET", key, field, NULL);
    assert_true(talk_read(&talk, &reply));
    if (reply.kind == REPLY_NULL)
        return 0;
    assert_true(reply.text.len <= 3 * sizeof numbers[0]);
    memcpy(numbers, reply.text.ptr, reply.text.len);
    return reply.text.len / sizeof numbers[0];
}

double stored_count(const char *key, const char *field)
{
    double numbers[3] = { 0 };
    size_t count = stored(key, field, numbers);
    assert_true(count == 0 || count == 3);
    return numbers[2];
}

uint64_t count_of(const struct store_cell *cell)
{
    return limit_state_count(cell->state);
}

/* ---- slices ---- */

void ask_init(struct slice_ask *ask, uint64_t max, uint32_t need, uint32_t slice)
{
    *ask = (struct slice_ask){
        .need = need, .slice = slice, .key_len = 14, .field_len = 3, .key = "{u1}:first:key", .field = "one"
    };
    limit_init(&ask->limit, LIMIT_FIXED_WINDOW, max, 0, 60 * S);
}

struct lent lend_with(const struct slice_ask *ask, uint32_t lacks, uint64_t debt, uint32_t hosts, int64_t now_us)
{
    struct reply reply;
    struct lent lent;
    script_write_lend(&talk.out, SV("weir"), ask, lacks, debt, hosts, now_us);
    assert_true(talk_read(&talk, &reply));
    assert_true(reply.kind == REPLY_BULK && script_read_lend(reply.text, &lent));
    assert_int_equal(lent.server_us, now_us);
    return lent;
}

struct lent lend(const struct slice_ask *ask, uint32_t hosts, int64_t now_us)
{
    return lend_with(ask, ask->need, 0, hosts, now_us);
}

int64_t give_back(const struct slice_ask *ask, int64_t end_us, uint32_t tokens)
{
    script_write_return(&talk.out, SV("weir"), ask, end_us, tokens);
    return read_integer();
}

/* ---- the server ---- */

int question_set_up(void **state)
{
    (void)state;
    return redis_server_start(&server) && talk_open(&talk, &server) && talk_load_scripts(&talk) ? 0 : -1;
}

int question_tear_down(void **state)
{
    (void)state;
    talk_close(&talk);
    redis_server_stop(&server);
    return 0;
}

int question_empty(void **state)
{
    struct reply reply;
    (void)state;
    talk_close(&talk);
    talk_open(&talk, &server);
    talk_write(&talk, "FLUSHALL", NULL);
    return talk_read(&talk, &reply) && reply.kind == REPLY_STATUS ? 0 : -1;
}
