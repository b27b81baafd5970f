/* Following a source while threads decide. On SQLite, MariaDB and PostgreSQL. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "source/watch.h"
#include "sources.h"

enum { DEADLINE_MS = 30000, POLL_MS = 100, DECIDERS = 2 };

/* ---- what the watcher's callbacks find ---- */

struct follower {
    struct weir *weir;
    _Atomic bool over;      /* nobody may call any more */
    _Atomic bool unwilling; /* new rules cannot be put in force */
    _Atomic size_t told, problems, states, unreachable;
    _Atomic uint64_t first_max; /* of the first rule */
    _Atomic uint64_t allowed, refused;
    _Atomic bool stop;
    pthread_t deciders[DECIDERS];
};

static int on_rules(struct rules *rules, const struct source_problem *problems, size_t count, void *data,
                    struct weir_error *why)
{
    struct follower *f = data;
    struct buf text;
    (void)problems;
    assert_false(atomic_load(&f->over));
    if (atomic_load(&f->unwilling)) {
        rules_free(rules);
        return err_set(why, WEIR_E_NO_MEMORY, "no room for them");
    }
    buf_init(&text, RULES_BYTES_MAX);
    rules_write(rules, &text);
    if (f->weir)
        assert_int_equal(weir_set_rules(f->weir, text.ptr, text.len, NULL), 0);
    atomic_store(&f->problems, count);
    atomic_store(&f->first_max, rules->rule_count ? rules->rules[0]->kind->limits[0].max : 0);
    atomic_fetch_add(&f->told, 1);
    buf_done(&text);
    rules_free(rules);
    return 0;
}

static void on_state(const struct source_watch_state *state, void *data)
{
    struct follower *f = data;
    assert_false(atomic_load(&f->over));
    atomic_fetch_add(&f->states, 1);
    if (!state->reachable)
        atomic_fetch_add(&f->unreachable, 1);
}

static struct source_watch *follow_every(struct follower *f, struct source *source, unsigned poll_ms)
{
    struct source_watch_options options = { .poll_ms = poll_ms, .on_rules = on_rules, .on_state = on_state, .data = f };
    struct source_watch *watch = NULL;
    good(source_watch_start(&watch, source, NULL, &options, &error));
    return watch;
}

static struct source_watch *follow(struct follower *f, struct source *source)
{
    return follow_every(f, source, POLL_MS);
}

static void unfollow(struct follower *f, struct source_watch *watch)
{
    source_watch_stop(watch);
    atomic_store(&f->over, true);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

/* Until it is so, or the deadline has passed. */
#define WAIT_FOR(condition)                                            \
    do {                                                               \
        int64_t until = clock_steady_us() + DEADLINE_MS * US_PER_MS;   \
        while (!(condition) && clock_steady_us() < until)              \
            sleep_ms(5);                                               \
        if (!(condition))                                              \
            fail_msg("not within %d ms: %s", DEADLINE_MS, #condition); \
    } while (0)

/* It follows what the callbacks were told, a moment later. */
static struct source_watch_state state_of(struct source_watch *watch)
{
    struct source_watch_state state;
    source_watch_state(watch, &state);
    return state;
}

static bool reachable(struct source_watch *watch)
{
    return state_of(watch).reachable;
}

/* ---- threads that decide ---- */

static void *decide(void *data)
{
    struct follower *f = data;
    struct weir_request request = { .method = WEIR_STR("GET"), .path = WEIR_STR("/x/5"), .user = WEIR_STR("u"), .cost = 1 };
    while (!atomic_load(&f->stop)) {
        struct weir_verdict verdict;
        weir_check(f->weir, &request, weir_now_us(), &verdict);
        atomic_fetch_add(verdict.allowed ? &f->allowed : &f->refused, 1);
        sched_yield();
    }
    return NULL;
}

static void start_deciding(struct follower *f)
{
    struct weir_options options = { .size = sizeof options,
                                    .rules_text = "rules:\n- { id: none, limits: [0 per 1s] }\n",
                                    .cells_keys = 1000 };
    good(weir_open(&f->weir, &options, &error));
    for (int i = 0; i < DECIDERS; i++)
        assert_int_equal(pthread_create(&f->deciders[i], NULL, decide, f), 0);
}

static void stop_deciding(struct follower *f)
{
    atomic_store(&f->stop, true);
    for (int i = 0; i < DECIDERS; i++)
        pthread_join(f->deciders[i], NULL);
    weir_close(f->weir);
}

static void changes_count_from_the_next_request(void **state)
{
    struct follower f = { 0 };
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1, '/x/#', 5, 86400, NULL)");
    start_deciding(&f);
    struct source_watch *watch = follow(&f, source);
    WAIT_FOR(atomic_load(&f.allowed) == 5);
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = 8");
    WAIT_FOR(atomic_load(&f.allowed) == 8);
    /* Lowered, it forgives nothing; raised again, what was used stays used. */
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = 6");
    WAIT_FOR(atomic_load(&f.first_max) == 6);
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = 9");
    WAIT_FOR(atomic_load(&f.allowed) == 9);
    /* A bad row is told of, and its last good version stays in force. */
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = -1");
    WAIT_FOR(atomic_load(&f.problems) == 1);
    WAIT_FOR(state_of(watch).problem_count == 1);
    struct source_watch_state now = state_of(watch);
    assert_true(now.reachable);
    assert_non_null(strstr(now.problem, "THROTTLED_CALLS: row 1: rule throttled-call-1: MAX_LOCKS: must be"));
    assert_int_equal(atomic_load(&f.first_max), 9);
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = 10");
    WAIT_FOR(atomic_load(&f.allowed) == 10 && atomic_load(&f.problems) == 0);
    WAIT_FOR(state_of(watch).problem_count == 0);
    assert_string_equal(state_of(watch).problem, "");
    unfollow(&f, watch);
    stop_deciding(&f);
    assert_int_equal(atomic_load(&f.allowed), 10);
    assert_true(atomic_load(&f.refused) > 0);
    sql_close(sql);
}

static void nothing_changed_is_not_read(void **state)
{
    struct follower f = { 0 };
    struct source *source = fresh_source(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    struct source_watch *watch = follow(&f, source);
    struct source_watch_state now;
    do {
        sleep_ms(20);
        source_watch_state(watch, &now);
    } while (now.checks < 3);
    assert_int_equal(now.reads, 1);
    assert_int_equal(atomic_load(&f.told), 1);
    assert_int_equal(atomic_load(&f.states), 1);
    assert_true(now.good_us > 0);
    unfollow(&f, watch);
}

/* A server is killed; the file of SQLite is moved away. */
static bool take_away(struct place *place, bool away)
{
    if (place->kind != SOURCE_SQLITE)
        return away ? server_kill(place->server) : server_restart(place->server);
    char path[600], moved[610];
    snprintf(path, sizeof path, "%s", place->address + strlen("sqlite:"));
    snprintf(moved, sizeof moved, "%s.away", path);
    return (away ? rename(path, moved) : rename(moved, path)) == 0;
}

static void the_last_good_rules_survive_the_server(void **state)
{
    struct place *place = *state;
    struct follower f = { 0 };
    struct source_watch_state now;
    struct source *source = fresh_source(place);
    struct sql *sql = place_connect(place);
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1, '/x/#', 5, 86400, NULL)");
    sql_close(sql);
    start_deciding(&f);
    struct source_watch *watch = follow(&f, source);
    WAIT_FOR(atomic_load(&f.allowed) == 5 && reachable(watch));
    assert_true(take_away(place, true));
    WAIT_FOR(!reachable(watch));
    source_watch_state(watch, &now);
    assert_memory_equal(now.problem, "rules are ", 10);
    assert_non_null(strstr(now.problem, " s old: "));
    assert_null(strstr(now.problem, SERVER_PASSWORD_ENCODED));
    uint64_t refused = atomic_load(&f.refused);
    WAIT_FOR(atomic_load(&f.refused) > refused + 100);
    assert_int_equal(atomic_load(&f.allowed), 5);
    assert_true(take_away(place, false));
    sql = place_connect(place);
    hand(sql, "UPDATE THROTTLED_CALLS SET MAX_LOCKS = 7");
    WAIT_FOR(atomic_load(&f.allowed) == 7);
    WAIT_FOR(reachable(watch));
    assert_int_equal(atomic_load(&f.unreachable), 1);
    WAIT_FOR(atomic_load(&f.states) == 3);
    sql_close(sql);
    unfollow(&f, watch);
    stop_deciding(&f);
    assert_int_equal(atomic_load(&f.allowed), 7);
}

/* PostgreSQL tells of a change; nobody has to look. */
static void changes_are_told_at_once(void **state)
{
    struct place *place = *state;
    struct follower f = { 0 };
    if (place->kind != SOURCE_POSTGRES)
        return;
    struct source *source = fresh_source(place);
    struct sql *sql = place_connect(place);
    struct source_watch *watch = follow_every(&f, source, 3600000);
    WAIT_FOR(atomic_load(&f.told) == 1);
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1, '/x/#', 5, 86400, NULL)");
    WAIT_FOR(atomic_load(&f.first_max) == 5);
    hand(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('a', '{\"limits\":[\"6 per 1s\"]}')");
    WAIT_FOR(atomic_load(&f.first_max) == 6);
    unfollow(&f, watch);
    sql_close(sql);
}

static void missing_tables_are_waited_for(void **state)
{
    struct follower f = { 0 };
    struct source_watch_state now;
    drop_tables(*state);
    struct source_watch *watch = follow(&f, open_source(*state));
    WAIT_FOR(atomic_load(&f.unreachable) == 1);
    source_watch_state(watch, &now);
    assert_memory_equal(now.problem, "no rules yet: ", 14);
    assert_non_null(strstr(now.problem, "neither a table THROTTLED_CALLS nor a table WEIR_RULES"));
    assert_int_equal(atomic_load(&f.told), 0);
    struct source *source = fresh_source(*state);
    put(source, "{ id: a, limits: [4 per 1s] }");
    source_close(source);
    WAIT_FOR(atomic_load(&f.first_max) == 4);
    unfollow(&f, watch);
}

static void last_good_rules_are_taken_over(void **state)
{
    struct follower f = { 0 };
    struct source *source = fresh_source(*state);
    struct sql *sql = place_connect(*state);
    struct rules_report report;
    struct rules *last = rules_read(SV("rules: [{ id: throttled-call-1, limits: [7 per 1s] }]"), &report);
    struct source_watch_options options = { .poll_ms = POLL_MS, .on_rules = on_rules, .data = &f };
    struct source_watch *watch = NULL;
    hand(sql, "INSERT INTO THROTTLED_CALLS VALUES (1, '/x', -1, 1, NULL)");
    good(source_watch_start(&watch, source, last, &options, &error));
    rules_free(last);
    rules_report_done(&report);
    WAIT_FOR(atomic_load(&f.told) == 1);
    assert_int_equal(atomic_load(&f.first_max), 7);
    assert_int_equal(atomic_load(&f.problems), 1);
    unfollow(&f, watch);
    sql_close(sql);
}

static void a_file_is_followed(void **state)
{
    struct place *place = *state;
    struct follower f = { 0 };
    struct source *source = NULL;
    char path[128];
    if (place->kind != SOURCE_SQLITE)
        return;
    snprintf(path, sizeof path, "%s/rules.yaml", places_folder());
    good(source_open(&source, path, &error));
    struct source_watch *watch = follow(&f, source);
    WAIT_FOR(atomic_load(&f.unreachable) == 1);
    good(source_write_file(path, SV(""), SV("rules: [{ id: a, limits: [3 per 1s] }]\n"), &error));
    WAIT_FOR(atomic_load(&f.first_max) == 3);
    good(source_write_file(path, SV(""), SV("rules: [{ id: a, limits: [4 per 1s] }]\n"), &error));
    WAIT_FOR(atomic_load(&f.first_max) == 4);
    good(source_write_file(path, SV(""), SV("rules: [{ id: a, limits: [x] }]\n"), &error));
    WAIT_FOR(atomic_load(&f.problems) == 1);
    assert_int_equal(atomic_load(&f.first_max), 4);
    unlink(path);
    WAIT_FOR(atomic_load(&f.unreachable) == 2);
    unfollow(&f, watch);
}

/* PostgreSQL: the one that is waited on. It is back before anything has changed. */
static void a_broken_connection_leaves_no_problem(void **state)
{
    struct place *place = *state;
    struct sql *sql = place_connect(place);
    struct follower f = { 0 };
    struct source *source = fresh_source(place);
    struct source_watch_state now;
    put(source, "{ id: a, limits: [1 per 1s] }");
    struct source_watch *watch = follow_every(&f, source, 2000);
    WAIT_FOR(atomic_load(&f.told) == 1);
    sleep_ms(100);
    hand(sql, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user AND pid <> "
              "pg_backend_pid()");
    WAIT_FOR(atomic_load(&f.unreachable) == 1);
    source_watch_state(watch, &now);
    assert_non_null(strstr(now.problem, " s old: "));
    WAIT_FOR(atomic_load(&f.states) == 3);
    source_watch_state(watch, &now);
    assert_true(now.reachable);
    assert_string_equal(now.problem, "");
    assert_int_equal(now.reads, 1);
    unfollow(&f, watch);
    sql_close(sql);
}

static void starting_and_stopping_at_once(void **state)
{
    struct source *source = fresh_source(*state);
    source_close(source);
    for (int i = 0; i < 10; i++) {
        struct follower f = { 0 };
        struct source_watch *watch = follow(&f, open_source(*state));
        if (i % 2)
            sleep_ms(i);
        unfollow(&f, watch);
    }
    struct source_watch_options options = { .poll_ms = 99, .on_rules = on_rules };
    struct source_watch *watch = NULL;
    bad(source_watch_start(&watch, open_source(*state), NULL, &options, &error), "must be 100 ms to 3600000 ms, not 99 ms");
    source_watch_stop(NULL);
}

/* ---- jobs ---- */

struct job {
    struct source_job job;
    struct follower *f;
    const char *rule;   /* to be put; NULL: only read */
    _Atomic bool *hold; /* until this is false */
    uint64_t max_when_done;
    struct weir_error error;
    int result;
    _Atomic bool begun, done;
};

static int run_job(struct source *source, struct source_job *base, struct weir_error *why)
{
    struct job *job = (struct job *)base;
    struct source_reading reading;
    atomic_store(&job->begun, true);
    while (job->hold && atomic_load(job->hold))
        sleep_ms(1);
    if (job->rule)
        return source_put(source, weir_str(job->rule), true, me, why);
    int r = source_read(source, NULL, &reading, why);
    if (r == 0)
        source_reading_done(&reading);
    return r;
}

static void job_done(struct source_job *base, int result, const struct weir_error *why)
{
    struct job *job = (struct job *)base;
    assert_false(atomic_load(&job->f->over));
    job->max_when_done = atomic_load(&job->f->first_max);
    job->result = result;
    job->error = *why;
    atomic_store(&job->done, true);
}

static struct job job_of(struct follower *f, const char *rule)
{
    return (struct job){ .job = { .run = run_job, .done = job_done, .writes = rule != NULL }, .f = f, .rule = rule };
}

static void run(struct source_watch *watch, struct job *job)
{
    assert_true(source_watch_run(watch, &job->job));
    WAIT_FOR(atomic_load(&job->done));
}

static void what_a_job_writes_is_in_force_when_it_is_done(void **state)
{
    struct follower f = { 0 };
    struct source_watch *watch = follow_every(&f, fresh_source(*state), 3600000);
    struct job jobs[3] = { job_of(&f, "{ id: a, limits: [5 per 1s] }"), job_of(&f, "{ id: a, limits: [6 per 1s] }"),
                           job_of(&f, "{ id: a, limits: [x] }") };
    for (int i = 0; i < 3; i++)
        run(watch, &jobs[i]);
    assert_int_equal(jobs[0].result, 0);
    assert_int_equal(jobs[0].max_when_done, 5);
    assert_int_equal(jobs[1].result, 0);
    assert_int_equal(jobs[1].max_when_done, 6);
    assert_int_equal(jobs[2].result, WEIR_E_RULES);
    assert_non_null(strstr(jobs[2].error.text, "nothing was changed"));
    assert_int_equal(jobs[2].max_when_done, 6);
    unfollow(&f, watch);
}

static void jobs_say_why_the_source_is_out_of_reach(void **state)
{
    struct follower f = { 0 };
    struct place *place = *state;
    struct source *source = fresh_source(place);
    put(source, "{ id: a, limits: [5 per 1s] }");
    struct source_watch *watch = follow(&f, source);
    WAIT_FOR(atomic_load(&f.told) == 1 && reachable(watch));
    assert_true(take_away(place, true));
    WAIT_FOR(!reachable(watch));
    struct job away = job_of(&f, NULL), back = job_of(&f, "{ id: a, limits: [7 per 1s] }");
    run(watch, &away);
    assert_int_equal(away.result, WEIR_E_SYSTEM);
    assert_string_not_equal(away.error.text, "");
    assert_true(take_away(place, false));
    run(watch, &back);
    assert_int_equal(back.result, 0);
    assert_int_equal(back.max_when_done, 7);
    assert_true(reachable(watch));
    unfollow(&f, watch);
}

static void jobs_wait_in_a_queue_that_has_an_end(void **state)
{
    enum { MANY = SOURCE_JOBS_MAX + 1 };
    static struct job jobs[MANY + 1];
    struct follower f = { 0 };
    _Atomic bool hold = true;
    struct source_watch *watch = follow_every(&f, fresh_source(*state), 3600000);
    for (int i = 0; i <= MANY; i++)
        jobs[i] = job_of(&f, NULL);
    jobs[0].hold = &hold;
    assert_true(source_watch_run(watch, &jobs[0].job));
    WAIT_FOR(atomic_load(&jobs[0].begun));
    for (int i = 1; i < MANY; i++)
        assert_true(source_watch_run(watch, &jobs[i].job));
    assert_false(source_watch_run(watch, &jobs[MANY].job));
    atomic_store(&hold, false);
    WAIT_FOR(atomic_load(&jobs[MANY - 1].done));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(jobs[i].result, 0);
    assert_false(atomic_load(&jobs[MANY].begun));
    unfollow(&f, watch);
}

/* A job that reads would take a change of others away from the one who follows. */
static void what_a_job_has_read_is_in_force(void **state)
{
    struct follower f = { 0 };
    struct source *other = fresh_source(*state);
    struct source_watch *watch = follow_every(&f, open_source(*state), 3600000);
    struct job read = job_of(&f, NULL), refused = job_of(&f, "{ id: a, limits: [x] }");
    WAIT_FOR(atomic_load(&f.told) == 1);
    put(other, "{ id: a, limits: [3 per 1s] }");
    run(watch, &read);
    WAIT_FOR(atomic_load(&f.first_max) == 3);
    good(source_put(other, SV("{ id: a, limits: [4 per 1s] }"), true, me, &error));
    run(watch, &refused);
    assert_int_equal(refused.result, WEIR_E_RULES);
    WAIT_FOR(atomic_load(&f.first_max) == 4);
    source_close(other);
    unfollow(&f, watch);
}

static void a_job_whose_rules_are_not_in_force_says_so(void **state)
{
    struct follower f = { 0 };
    struct source_watch_state now;
    struct source_watch *watch = follow(&f, fresh_source(*state));
    struct job job = job_of(&f, "{ id: a, limits: [5 per 1s] }");
    WAIT_FOR(atomic_load(&f.told) == 1);
    atomic_store(&f.unwilling, true);
    run(watch, &job);
    assert_int_equal(job.result, WEIR_E_SYSTEM);
    assert_non_null(strstr(job.error.text, "the change was written"));
    assert_non_null(strstr(job.error.text, "no room for them"));
    source_watch_state(watch, &now);
    assert_string_equal(now.reason, "no room for them");
    atomic_store(&f.unwilling, false);
    WAIT_FOR(atomic_load(&f.first_max) == 5);
    unfollow(&f, watch);
}

static void *let_go(void *data)
{
    sleep_ms(50);
    atomic_store((_Atomic bool *)data, false);
    return NULL;
}

static void jobs_that_are_left_at_the_end_are_told(void **state)
{
    struct follower f = { 0 };
    _Atomic bool hold = true;
    pthread_t thread;
    struct source_watch *watch = follow_every(&f, fresh_source(*state), 3600000);
    struct job first = job_of(&f, NULL), second = job_of(&f, NULL);
    first.hold = &hold;
    assert_true(source_watch_run(watch, &first.job));
    WAIT_FOR(atomic_load(&first.begun));
    assert_true(source_watch_run(watch, &second.job));
    assert_int_equal(pthread_create(&thread, NULL, let_go, &hold), 0);
    unfollow(&f, watch);
    pthread_join(thread, NULL);
    assert_int_equal(first.result, 0);
    assert_true(atomic_load(&second.done));
    assert_false(atomic_load(&second.begun));
    assert_int_equal(second.result, WEIR_E_SYSTEM);
    assert_non_null(strstr(second.error.text, "is stopping"));
}

static void a_poke_looks_at_once(void **state)
{
    struct follower f = { 0 };
    struct source *other = fresh_source(*state);
    struct source_watch *watch = follow_every(&f, open_source(*state), 3600000);
    WAIT_FOR(atomic_load(&f.told) == 1);
    put(other, "{ id: a, limits: [3 per 1s] }");
    source_watch_look_now(watch);
    WAIT_FOR(atomic_load(&f.first_max) == 3);
    source_close(other);
    unfollow(&f, watch);
}

int main(void)
{
    static const struct place_case cases[] = {
        { "changes count from the next request", changes_count_from_the_next_request },
        { "nothing changed is not read", nothing_changed_is_not_read },
        { "changes are told at once", changes_are_told_at_once },
        { "missing tables are waited for", missing_tables_are_waited_for },
        { "last good rules are taken over", last_good_rules_are_taken_over },
        { "a file is followed", a_file_is_followed },
        { "a broken connection leaves no problem", a_broken_connection_leaves_no_problem, ON_POSTGRES },
        { "starting and stopping at once", starting_and_stopping_at_once },
        { "what a job writes is in force when it is done", what_a_job_writes_is_in_force_when_it_is_done },
        { "what a job has read is in force", what_a_job_has_read_is_in_force },
        { "a job whose rules are not in force says so", a_job_whose_rules_are_not_in_force_says_so },
        { "jobs wait in a queue that has an end", jobs_wait_in_a_queue_that_has_an_end },
        { "jobs that are left at the end are told", jobs_that_are_left_at_the_end_are_told },
        { "a poke looks at once", a_poke_looks_at_once },
        { "jobs say why the source is out of reach", jobs_say_why_the_source_is_out_of_reach },
        { "the last good rules survive the server", the_last_good_rules_survive_the_server },
    };
    return places_run(cases, sizeof cases / sizeof *cases);
}
