/* Questions to the scripts, for tests of what they answer. Time is passed in. */
#ifndef TESTS_REDIS_QUESTION_H
#define TESTS_REDIS_QUESTION_H

#include "limit/take.h"
#include "redis/script.h"
#include "servers.h"

#define S US_PER_S
#define HOUR_US (3600 * S)
#define DAY_US (24 * HOUR_US)
/* Noon of some day. */
#define NOON_US (INT64_C(20000) * DAY_US + DAY_US / 2)

#define FIRST "weir:1:{u1}:first:key"
#define SECOND "weir:1:{u1}:second:key"

enum { CELLS = 4, RULES = 2 };

/* A question about up to some rules. */
struct question {
    struct limit limits[RULES][CELLS];
    struct store_cell cells[RULES][CELLS];
    struct store_rule rules[RULES];
    struct store_call call;
    bool expires;    /* by the store's own clock; else no test depends on how quickly it runs */
    char error[200]; /* of the last answer; empty: it was none */
};

extern struct redis_server server;
extern struct talk talk;

/* Starts the server; ends it; for each test an empty store and a connection of its own: a test that failed may have left
 * replies behind. */
int question_set_up(void **state);
int question_tear_down(void **state);
int question_empty(void **state);

/* ---- asking ---- */

void question_init(struct question *q, int64_t now_us);
/* Adds a limit to a rule, in the order of rules, with a cost of 1. */
struct store_cell *add(struct question *q, size_t rule, enum limit_algorithm algorithm, uint64_t max, int64_t per_us);
/* Natural hours and days in UTC; the windows are those of an instant. */
struct store_cell *add_calendar(struct question *q, size_t rule, uint64_t max, int64_t unit_us, int64_t at_us);
/* The same cost for all cells. */
void set_costs(struct question *q, uint64_t cost);

/* The answer, or q->error. */
void ask_with(struct question *q, sv prefix);
void ask(struct question *q);
/* It has to be decided. */
bool allowed(struct question *q);

/* ---- what is stored ---- */

/* A command that answers with an integer. */
#define INTEGER(...) (talk_write(&talk, __VA_ARGS__, NULL), read_integer())
int64_t read_integer(void);
int64_t keys_in_store(void);
void put(const char *key, const char *field, const double *numbers, size_t count);
/* Returns how many numbers the field has. */
size_t stored(const char *key, const char *field, double numbers[3]);
/* The third number of a window. */
double stored_count(const char *key, const char *field);
/* Returns the state of a window, as it was answered. */
uint64_t count_of(const struct store_cell *cell);

/* ---- slices ---- */

/* Of "one" in FIRST, a fixed window of a minute. */
void ask_init(struct slice_ask *ask, uint64_t max, uint32_t need, uint32_t slice);
struct lent lend_with(const struct slice_ask *ask, uint32_t lacks, uint64_t debt, uint32_t hosts, int64_t now_us);
struct lent lend(const struct slice_ask *ask, uint32_t hosts, int64_t now_us);
int64_t give_back(const struct slice_ask *ask, int64_t end_us, uint32_t tokens);

#endif
