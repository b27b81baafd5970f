/* Penalties: who is refused too often is refused for longer, each time longer. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "engine/handle.h"
#include "engine/named.h"
#include "engine/penalty.h"
#include "helpers.h"

#define MINUTE (60 * S)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

/* One in two minutes, which is less than any penalty: until then every further request is refused. */
#define RULES(penalty)                                                                                             \
    "rules:\n  - { id: r, match: { event: e }, by: [key], limits: [ { algorithm: fixed_window, max: 1, per: 2m } " \
    "]" penalty " }\n"
#define PENALTY ", penalty: { after: 3, within: 1m, for: 10m, grow: 3, most: 1h }"

static struct weir_verdict ask(struct weir *weir, int64_t now_us)
{
    return check_at(weir, one("e", "k"), now_us);
}

static void assert_refused(struct weir_verdict v)
{
    assert_false(v.allowed);
    assert_false(v.penalty);
}

/* A penalty with this much left. */
static void assert_penalty(struct weir_verdict v, int64_t rest_us)
{
    assert_false(v.allowed);
    assert_true(v.penalty);
    assert_string_equal(v.rule, "r");
    assert_int_equal(v.status, 429);
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.retry_after_ms, (rest_us + 999) / 1000);
    assert_int_equal(v.reset_ms, v.retry_after_ms);
}

/* The first request passes where nothing was used; `after` refusals follow, the last of which begins a penalty. */
static void provoke(struct weir *weir, int64_t now_us, int64_t length_us)
{
    struct weir_verdict v = { 0 };
    for (int i = 0; i < 10 && !v.penalty; i++)
        v = ask(weir, now_us);
    assert_penalty(v, length_us);
}

static void the_last_refusal_begins_it(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    assert_true(ask(weir, NOW).allowed);
    assert_refused(ask(weir, NOW));
    assert_refused(ask(weir, NOW + 1));
    assert_penalty(ask(weir, NOW + 2), 10 * MINUTE);
    assert_penalty(ask(weir, NOW + 2 + MINUTE), 9 * MINUTE);
    assert_penalty(ask(weir, NOW + 1 + 10 * MINUTE), 1);
    assert_true(ask(weir, NOW + 2 + 10 * MINUTE).allowed);
    assert_true(check_at(weir, one("e", "other"), NOW).allowed);
    weir_close(weir);
}

static void refusals_count_within_a_window(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    assert_true(ask(weir, NOW).allowed);
    assert_refused(ask(weir, NOW));
    assert_refused(ask(weir, NOW + MINUTE - 2 * MS));
    assert_refused(ask(weir, NOW + MINUTE)); /* the first of the next window */
    assert_refused(ask(weir, NOW + MINUTE));
    assert_penalty(ask(weir, NOW + 2 * MINUTE - 2 * MS), 10 * MINUTE);
    weir_close(weir);
}

/* A window is known to 1024 µs. */
static void a_window_ends_on_time(void **state)
{
    (void)state;
    int64_t first = NOW / 1024 * 1024;
    for (int64_t early = 0; early < 2; early++) {
        struct weir *weir = open_rules(RULES(", penalty: { after: 2, within: 1m, for: 10m }"));
        assert_true(ask(weir, first).allowed);
        assert_refused(ask(weir, first));
        assert_int_equal(ask(weir, first + MINUTE - early).penalty, early == 1);
        weir_close(weir);
    }
}

static void each_is_longer_up_to_the_most(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    int64_t now = NOW;
    provoke(weir, now, 10 * MINUTE);
    provoke(weir, now += 10 * MINUTE, 30 * MINUTE);
    for (int i = 0; i < 5; i++) {
        now += i == 0 ? 30 * MINUTE : HOUR;
        provoke(weir, now, HOUR);
    }
    /* It is remembered for `most` after its end. */
    now += 2 * HOUR - 1;
    provoke(weir, now, HOUR);
    now += 2 * HOUR;
    provoke(weir, now, 10 * MINUTE);
    weir_close(weir);
}

static void without_growth_all_are_alike(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(", penalty: { after: 1, within: 1s, for: 5m, grow: 1 }"));
    for (int64_t now = NOW; now < NOW + DAY; now += 5 * MINUTE)
        provoke(weir, now, 5 * MINUTE);
    weir_close(weir);
}

static void by_default_they_double_up_to_a_day(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(", penalty: { after: 1, within: 1s, for: 7h }"));
    provoke(weir, NOW, 7 * HOUR);
    provoke(weir, NOW + 7 * HOUR, 14 * HOUR);
    provoke(weir, NOW + 21 * HOUR, 24 * HOUR);
    weir_close(weir);
}

/* Neither peeks nor costs of 0 count; both are refused while a penalty lasts. */
static void looking_does_not_count(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    assert_true(ask(weir, NOW).allowed);
    for (int i = 0; i < 10; i++) {
        assert_refused(check_at(weir, peek_of("e", "k", 1), NOW));
        assert_true(check_at(weir, cost_of("e", "k", 0), NOW).allowed);
    }
    provoke(weir, NOW, 10 * MINUTE);
    assert_penalty(check_at(weir, peek_of("e", "k", 1), NOW), 10 * MINUTE);
    assert_penalty(check_at(weir, cost_of("e", "k", 0), NOW + MINUTE), 9 * MINUTE);
    weir_close(weir);
}

static void refusals_during_a_penalty_change_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    provoke(weir, NOW, 10 * MINUTE);
    for (int i = 0; i < 100; i++)
        assert_penalty(ask(weir, NOW + 10 * MINUTE - 1), 1);
    assert_true(ask(weir, NOW + 10 * MINUTE).allowed);
    assert_refused(ask(weir, NOW + 10 * MINUTE));
    assert_refused(ask(weir, NOW + 10 * MINUTE));
    assert_penalty(ask(weir, NOW + 10 * MINUTE), 30 * MINUTE);
    weir_close(weir);
}

/* All or nothing: what is refused by a penalty is charged to no rule. */
static void nothing_is_charged(void **state)
{
    (void)state;
    struct weir *weir = open_rules(
        "rules:\n"
        "  - { id: r, match: { event: e }, by: [key], limits: [ { algorithm: fixed_window, max: 1, per: 1s } ],\n"
        "      penalty: { after: 1, within: 1m, for: 10m } }\n"
        "  - { id: all, limits: [ { algorithm: fixed_window, max: 3, per: 1h } ] }\n"
        "  - { id: seen, mode: shadow, limits: [ { algorithm: fixed_window, max: 3, per: 1h } ] }\n");
    assert_true(ask(weir, NOW).allowed);
    assert_penalty(ask(weir, NOW), 10 * MINUTE);
    for (int i = 0; i < 10; i++)
        assert_true(ask(weir, NOW + MINUTE).penalty);
    assert_true(check_at(weir, one("x", "y"), NOW + MINUTE).allowed);
    assert_int_equal(check_at(weir, one("x", "y"), NOW + MINUTE).remaining, 0);
    /* The verdict names the longest wait. */
    struct weir_verdict v = ask(weir, NOW + MINUTE);
    assert_string_equal(v.rule, "all");
    assert_false(v.penalty);
    weir_close(weir);
}

/* The limit of the rule itself may have to be waited for longer. */
static void the_wait_is_the_longest(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n  - { id: r, limits: [ { algorithm: fixed_window, max: 1, per: 1h } ], "
                                   "penalty: { after: 1, within: 1m, for: 10m } }\n");
    assert_true(ask(weir, NOW).allowed);
    for (int64_t now = NOW; now < NOW + 10 * MINUTE; now += MINUTE) {
        struct weir_verdict v = ask(weir, now);
        assert_true(v.penalty);
        assert_int_equal(v.retry_after_ms, (NOW + HOUR - now) / MS);
    }
    weir_close(weir);
}

static void only_its_own_refusals_count(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n"
                                   "  - { id: r, match: { event: e }, by: [key], limits: [ \"1000 per 1h\" ], penalty: { "
                                   "after: 1, within: 1m, for: 10m } }\n"
                                   "  - { id: small, limits: [ \"1 per 1h\" ] }\n");
    assert_true(ask(weir, NOW).allowed);
    for (int i = 0; i < 20; i++)
        assert_refused(ask(weir, NOW));
    weir_close(weir);
}

static void shadow_rules_penalise_nobody(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY ", mode: shadow"));
    for (int i = 0; i < 20; i++)
        assert_true(ask(weir, NOW).allowed);
    set_rules(weir, RULES(PENALTY));
    provoke(weir, NOW, 10 * MINUTE);
    set_rules(weir, RULES(PENALTY ", mode: shadow"));
    assert_true(ask(weir, NOW).allowed);
    set_rules(weir, RULES(PENALTY));
    assert_penalty(ask(weir, NOW + MINUTE), 9 * MINUTE);
    weir_close(weir);
}

static void a_changed_rule_shortens_and_never_lengthens(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    provoke(weir, NOW, 10 * MINUTE);
    set_rules(weir, RULES(", penalty: { after: 3, within: 1m, for: 20m }"));
    assert_penalty(ask(weir, NOW + MINUTE), 9 * MINUTE);
    set_rules(weir, RULES(", penalty: { after: 3, within: 1m, for: 2m }"));
    assert_penalty(ask(weir, NOW + MINUTE), 2 * MINUTE);
    assert_penalty(ask(weir, NOW + 3 * MINUTE - 1), 1);
    set_rules(weir, RULES(""));
    assert_true(ask(weir, NOW + 3 * MINUTE - 1).allowed);
    weir_close(weir);
}

static void reset(struct weir *weir)
{
    struct weir_error error;
    struct weir_str key = WEIR_STR("k");
    assert_int_equal(weir_reset(weir, "r", &key, 1, &error), 0);
}

static void resetting_lifts_it(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    provoke(weir, NOW, 10 * MINUTE);
    provoke(weir, NOW + 10 * MINUTE, 30 * MINUTE);
    reset(weir);
    assert_true(ask(weir, NOW + 10 * MINUTE).allowed);
    provoke(weir, NOW + 10 * MINUTE, 10 * MINUTE);
    weir_close(weir);
}

#define OVERRIDE(what) RULES(PENALTY) "overrides: [ { rule: r, by: { key: k }, " what " } ]\n"

static void overrides_exempt_from_it(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    provoke(weir, NOW, 10 * MINUTE);
    set_rules(weir, OVERRIDE("unlimited: true"));
    assert_true(ask(weir, NOW).allowed);
    set_rules(weir, OVERRIDE("limits: [ \"100 per 1h\" ]"));
    assert_penalty(ask(weir, NOW), 10 * MINUTE);
    weir_close(weir);
}

/* Somebody said so: it is not the subject's doing. */
static void denials_do_not_count(void **state)
{
    (void)state;
    struct weir *weir = open_rules(OVERRIDE("deny: true"));
    for (int i = 0; i < 20; i++) {
        struct weir_verdict v = ask(weir, NOW);
        assert_refused(v);
        assert_int_equal(v.retry_after_ms, WEIR_NEVER);
    }
    set_rules(weir, RULES(PENALTY));
    assert_true(ask(weir, NOW).allowed);
    weir_close(weir);
}

static void a_clock_that_steps_back_refuses_for_one_length_at_most(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    provoke(weir, NOW + 365 * DAY, 10 * MINUTE);
    assert_penalty(check_at(weir, peek_of("e", "k", 1), NOW + MINUTE), 10 * MINUTE); /* writes nothing */
    assert_penalty(ask(weir, NOW), 10 * MINUTE);
    assert_penalty(ask(weir, NOW + MINUTE), 9 * MINUTE);
    assert_false(ask(weir, NOW + 10 * MINUTE).penalty);
    /* Ahead again: all is long over, and the level is forgotten. */
    provoke(weir, NOW + 365 * DAY, 10 * MINUTE);
    weir_close(weir);
}

static void refusals_of_a_wrong_clock_are_kept(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    assert_true(ask(weir, NOW + DAY).allowed);
    assert_refused(ask(weir, NOW + DAY));
    assert_refused(ask(weir, NOW + DAY));
    assert_penalty(ask(weir, NOW), 10 * MINUTE);
    weir_close(weir);
}

static void the_end_of_time(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(", penalty: { after: 1, within: 3650d, for: 3650d }"));
    int64_t last = (INT64_C(1) << 52) - 1;
    assert_true(ask(weir, last).allowed);
    ask(weir, last);
    ask(weir, last);
    weir_close(weir);
}

static void batches_know_it(void **state)
{
    (void)state;
    enum { BATCH = 16 };
    struct weir_request requests[BATCH];
    struct weir_verdict verdicts[BATCH];
    struct weir *weir = open_rules(RULES(PENALTY));
    for (int i = 0; i < BATCH; i++)
        requests[i] = one("e", "k");
    assert_int_equal(weir_check_batch(weir, requests, BATCH, NOW, verdicts), 0);
    for (int i = 0; i < BATCH; i++) {
        assert_int_equal(verdicts[i].allowed, i == 0);
        assert_int_equal(verdicts[i].penalty, i >= 3);
    }
    weir_close(weir);
}

/* ---- each rule ---- */

struct told {
    int begins, runs;
};

static void tell(const struct weir_rule_said *said, void *context)
{
    struct told *told = context;
    told->begins += said->penalty == WEIR_PENALTY_BEGINS && said->limit.len > 0;
    told->runs += said->penalty == WEIR_PENALTY_RUNS && said->limit.len == 0;
}

static void each_rule_is_told(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    struct told told = { 0 };
    struct weir_request request = one("e", "k");
    request.each_rule = tell;
    request.context = &told;
    for (int i = 0; i < 10; i++)
        check_at(weir, request, NOW);
    assert_int_equal(told.begins, 1);
    assert_int_equal(told.runs, 6);
    weir_close(weir);
}

/* ---- many at once ---- */

enum { THREADS = 4, ROUNDS = 300 };

struct worker {
    pthread_t thread;
    struct weir *weir;
    pthread_barrier_t *turn;
    struct told told;
};

static void *refuse_together(void *ptr)
{
    struct worker *w = ptr;
    for (int i = 0; i < ROUNDS; i++) {
        char key[20];
        snprintf(key, sizeof key, "k%d", i);
        struct weir_request request = one("e", key);
        request.each_rule = tell;
        request.context = &w->told;
        pthread_barrier_wait(w->turn);
        for (int k = 0; k < 5; k++)
            check_at(w->weir, request, NOW);
    }
    return NULL;
}

/* Of 20 requests for each subject one passes, two are refused, one begins the penalty, and sixteen are penalised. */
static void a_penalty_begins_once(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULES(PENALTY), .cells_keys = 10 * ROUNDS });
    struct worker workers[THREADS];
    pthread_barrier_t turn;
    struct told told = { 0 };
    pthread_barrier_init(&turn, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .weir = weir, .turn = &turn };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, refuse_together, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        told.begins += workers[i].told.begins;
        told.runs += workers[i].told.runs;
    }
    pthread_barrier_destroy(&turn);
    assert_int_equal(told.begins, ROUNDS);
    /* A thread may look before the penalty begins, and be refused after it: it is then told of neither. */
    assert_in_range(told.runs, (16 - 2 * (THREADS - 1)) * ROUNDS, 16 * ROUNDS);
    weir_close(weir);
}

/* ---- in a file ---- */

static void it_outlives_the_process(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-penalty-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    struct weir_options options = { .rules_text = RULES(PENALTY), .cells_file = path };
    pid_t child = fork();
    if (child == 0) {
        struct weir *weir = open_with(options);
        provoke(weir, NOW, 10 * MINUTE);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    struct weir *weir = open_with(options);
    assert_penalty(ask(weir, NOW + MINUTE), 9 * MINUTE);
    provoke(weir, NOW + 10 * MINUTE, 30 * MINUTE);
    weir_close(weir);
    unlink(path);
}

/* ---- a full table ---- */

/* A flood of new subjects lifts no penalty: their counts are dropped first. */
static void a_flood_lifts_no_penalty(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){
        .rules_text = "rules:\n  - { id: r, match: { event: e }, by: [key], limits: [ \"1 per 1m\" ], penalty: { after: 1, "
                      "within: 1m, for: 10m } }\n"
                      "  - { id: flood, match: { event: f }, by: [key], limits: [ \"10 per 1h\" ] }\n",
        .cells_keys = 100 });
    assert_true(ask(weir, NOW).allowed);
    assert_penalty(ask(weir, NOW), 10 * MINUTE);
    for (int i = 0; i < 100000; i++) {
        char key[20];
        snprintf(key, sizeof key, "%d", i);
        check_at(weir, one("f", key), NOW);
    }
    assert_penalty(ask(weir, NOW), 10 * MINUTE);
    weir_close(weir);
}

/* ---- by hand ---- */

static const struct weir_str somebody = WEIR_STR("k");

static void penalise(struct weir *weir, int64_t length_us, int64_t now_us)
{
    struct penalised_entry entry;
    struct weir_error error;
    assert_int_equal(weir_penalise(weir, &(struct subject_name){ "r", &somebody, 1 }, length_us, now_us, &entry, &error),
                     0);
    assert_int_equal(entry.ends_us, now_us + length_us);
}

/* Shorter and longer than the rule's own, which are 10 to 60 minutes. */
static void a_person_sets_its_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = { S, MINUTE, 10 * MINUTE, 2 * HOUR, 31 * DAY };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct weir *weir = open_rules(RULES(PENALTY));
        int64_t length = lengths[i];
        penalise(weir, length, NOW);
        assert_penalty(ask(weir, NOW), length);
        assert_penalty(ask(weir, NOW + length - 1), 1);
        assert_true(ask(weir, NOW + length).allowed);
        weir_close(weir);
    }
}

/* It is one more in a row; the rule's next one is of its second length. One that runs is replaced. */
static void a_person_begins_one_like_the_rule(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    penalise(weir, 5 * MINUTE, NOW);
    penalise(weir, 20 * MINUTE, NOW);
    penalise(weir, 20 * MINUTE, NOW + MINUTE);
    assert_penalty(ask(weir, NOW + MINUTE), 20 * MINUTE);
    provoke(weir, NOW + 21 * MINUTE, 30 * MINUTE);
    penalise(weir, MINUTE, NOW + 22 * MINUTE); /* in place of the rule's */
    assert_penalty(ask(weir, NOW + 22 * MINUTE), MINUTE);
    provoke(weir, NOW + 23 * MINUTE, HOUR);
    struct weir_error error;
    assert_int_equal(weir_reset(weir, "r", &somebody, 1, &error), 0);
    assert_true(ask(weir, NOW + 23 * MINUTE).allowed);
    weir_close(weir);
}

static void a_clock_that_steps_back_keeps_a_persons_length(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES(PENALTY));
    penalise(weir, 3 * HOUR, NOW);
    struct weir_verdict v = ask(weir, NOW - 5 * DAY);
    assert_true(v.penalty);
    assert_true(v.retry_after_ms >= 3 * HOUR / MS && v.retry_after_ms <= 3 * HOUR / MS + 2);
    assert_true(ask(weir, NOW - 5 * DAY + 3 * HOUR + 2 * MS).allowed);
    weir_close(weir);
}

static void it_refuses_to_penalise(struct weir *weir, const char *rule, sv key, int wanted)
{
    struct penalised_entry entry;
    struct weir_error error = { 0 };
    assert_int_equal(weir_penalise(weir, &(struct subject_name){ rule, &key, 1 }, MINUTE, NOW, &entry, &error), wanted);
    assert_true(error.text[0]);
}

static void only_rules_that_penalise(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n"
                   "  - { id: plain, match: { event: e }, by: [key], limits: 1 per 2m }\n"
                   "  - { id: shadow, match: { event: e }, by: [key], mode: shadow, limits: 1 per 2m" PENALTY " }\n"
                   "  - { id: r, match: { event: e }, by: [key], limits: 1 per 2m" PENALTY " }\n"
                   "overrides: [ { rule: r, by: { key: free }, unlimited: true } ]\n");
    it_refuses_to_penalise(weir, "plain", SV("k"), WEIR_CANNOT_PENALISE);
    it_refuses_to_penalise(weir, "shadow", SV("k"), WEIR_CANNOT_PENALISE);
    it_refuses_to_penalise(weir, "r", SV("free"), WEIR_CANNOT_PENALISE);
    it_refuses_to_penalise(weir, "none", SV("k"), WEIR_E_UNKNOWN_RULE);
    it_refuses_to_penalise(weir, "r", SV(""), WEIR_E_INVALID);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_refusal_begins_it),
        cmocka_unit_test(refusals_count_within_a_window),
        cmocka_unit_test(a_window_ends_on_time),
        cmocka_unit_test(each_is_longer_up_to_the_most),
        cmocka_unit_test(without_growth_all_are_alike),
        cmocka_unit_test(by_default_they_double_up_to_a_day),
        cmocka_unit_test(looking_does_not_count),
        cmocka_unit_test(refusals_during_a_penalty_change_nothing),
        cmocka_unit_test(nothing_is_charged),
        cmocka_unit_test(the_wait_is_the_longest),
        cmocka_unit_test(only_its_own_refusals_count),
        cmocka_unit_test(shadow_rules_penalise_nobody),
        cmocka_unit_test(a_changed_rule_shortens_and_never_lengthens),
        cmocka_unit_test(resetting_lifts_it),
        cmocka_unit_test(overrides_exempt_from_it),
        cmocka_unit_test(denials_do_not_count),
        cmocka_unit_test(a_clock_that_steps_back_refuses_for_one_length_at_most),
        cmocka_unit_test(refusals_of_a_wrong_clock_are_kept),
        cmocka_unit_test(the_end_of_time),
        cmocka_unit_test(batches_know_it),
        cmocka_unit_test(each_rule_is_told),
        cmocka_unit_test(a_penalty_begins_once),
        cmocka_unit_test(it_outlives_the_process),
        cmocka_unit_test(a_flood_lifts_no_penalty),
        cmocka_unit_test(a_person_sets_its_length),
        cmocka_unit_test(a_person_begins_one_like_the_rule),
        cmocka_unit_test(a_clock_that_steps_back_keeps_a_persons_length),
        cmocka_unit_test(only_rules_that_penalise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
