/* A rules file that changes: weir_poll, the watcher, bad versions, and the callback that tells of them. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "helpers.h"

#define RULE(id, limits) "  - { id: " id ", match: { event: " id " }, by: [key], limits: [" limits "] }\n"

/* ---- what the callback heard ---- */

struct heard {
    pthread_mutex_t lock;
    unsigned bad, good;
    char text[WEIR_ERROR_MAX];
};

static void hear(const struct weir_error *error, void *data)
{
    struct heard *heard = data;
    pthread_mutex_lock(&heard->lock);
    if (error->code == WEIR_OK)
        heard->good++;
    else
        heard->bad++;
    snprintf(heard->text, sizeof heard->text, "%s", error->text);
    pthread_mutex_unlock(&heard->lock);
}

struct fixture {
    struct folder folder;
    char rules[300], spare[300];
    struct heard heard;
    struct weir *weir;
};

/* Written long enough ago to be whole, each time at another time. */
static void write_old(struct fixture *f, const char *text)
{
    static int age_s = 1000;
    age_s--;
    struct timespec times[2] = { { .tv_sec = NOW / S + age_s }, { .tv_sec = NOW / S + age_s } };
    write_file(f->rules, text);
    assert_int_equal(utimensat(AT_FDCWD, f->rules, times, 0), 0);
}

static void open_fixture(struct fixture *f, const char *text, uint32_t watch_ms)
{
    *f = (struct fixture){ .heard.lock = PTHREAD_MUTEX_INITIALIZER };
    folder_make(&f->folder);
    snprintf(f->rules, sizeof f->rules, "%s", folder_file(&f->folder, "rules.yaml"));
    snprintf(f->spare, sizeof f->spare, "%s", folder_file(&f->folder, "spare.yaml"));
    write_old(f, text);
    f->weir = open_with((struct weir_options){
        .rules_file = f->rules, .on_rules = hear, .on_rules_data = &f->heard, .watch_ms = watch_ms });
}

static void close_fixture(struct fixture *f)
{
    weir_close(f->weir);
    folder_remove(&f->folder, (const char *const[]){ "rules.yaml", "spare.yaml", NULL });
}

static bool rules_bad(struct weir *weir)
{
    struct weir_status status;
    weir_status(weir, &status);
    return status.rules_bad;
}

/* ---- polling ---- */

static void a_change_is_taken_over(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "5 per 1h"), 0);
    struct weir_error error = { .code = WEIR_OK };
    assert_int_equal(weir_poll(f.weir, &error), 0);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 3), 3);
    write_old(&f, "rules:\n" RULE("a", "4 per 1h"));
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_int_equal(weir_poll(f.weir, &error), 0);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 1);
    assert_int_equal(f.heard.good, 1);
    assert_int_equal(f.heard.bad, 0);
    /* Replaced by another file, as editors do. */
    write_file(f.spare, "rules:\n" RULE("a", "6 per 1h"));
    struct timespec times[2] = { { .tv_sec = NOW / S }, { .tv_sec = NOW / S } };
    assert_int_equal(utimensat(AT_FDCWD, f.spare, times, 0), 0);
    assert_int_equal(rename(f.spare, f.rules), 0);
    assert_int_equal(weir_poll(f.weir, NULL), 1);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 2);
    close_fixture(&f);
}

/* A file that the rules file includes is followed, too, and so is a folder. */
static void included_files_are_followed(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300], inside[320];
    struct timespec old[2] = { { .tv_sec = NOW / S }, { .tv_sec = NOW / S } };
    open_fixture(&f, "rules: []\n", 0);
    struct weir_error error = { .code = WEIR_OK };
    snprintf(folder, sizeof folder, "%s", folder_file(&f.folder, "more"));
    snprintf(inside, sizeof inside, "%s/b.yaml", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    write_file(f.spare, "rules:\n" RULE("a", "2 per 1h"));
    utimensat(AT_FDCWD, f.spare, old, 0);
    utimensat(AT_FDCWD, folder, old, 0);
    write_old(&f, "include: [ spare.yaml, more ]\n");
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_int_equal(weir_poll(f.weir, &error), 0);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 2);
    assert_int_equal(passes(f.weir, one("b", "k"), NOW, 9), 9);
    write_file(f.spare, "rules:\n" RULE("a", "3 per 1h"));
    assert_int_equal(weir_poll(f.weir, &error), 0); /* it may not be whole yet */
    utimensat(AT_FDCWD, f.spare, old, 0);
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 1);
    write_file(inside, "rules:\n" RULE("b", "2 per 1h"));
    utimensat(AT_FDCWD, inside, old, 0);
    utimensat(AT_FDCWD, folder, old, 0);
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_int_equal(passes(f.weir, one("b", "k"), NOW, 9), 2);
    /* A file that is missing: the rules stay, and that is told once. */
    assert_int_equal(unlink(f.spare), 0);
    assert_int_equal(weir_poll(f.weir, &error), WEIR_E_RULES);
    assert_non_null(strstr(error.text, "spare.yaml: cannot be read"));
    assert_int_equal(weir_poll(f.weir, &error), 0);
    assert_true(rules_bad(f.weir));
    assert_int_equal(passes(f.weir, one("a", "k2"), NOW, 9), 3);
    write_file(f.spare, "rules:\n" RULE("a", "4 per 1h"));
    utimensat(AT_FDCWD, f.spare, old, 0);
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_false(rules_bad(f.weir));
    assert_int_equal(passes(f.weir, one("a", "k2"), NOW, 9), 1);
    /* An error in it has its name and line, and the other rules are taken over. */
    write_file(inside, "rules:\n" RULE("b", "x") RULE("c", "1 per 1h"));
    utimensat(AT_FDCWD, inside, old, 0);
    assert_int_equal(weir_poll(f.weir, &error), WEIR_E_RULES);
    assert_non_null(strstr(error.text, "more/b.yaml:2: rule b: limits"));
    assert_int_equal(passes(f.weir, one("b", "k2"), NOW, 9), 2);
    assert_int_equal(passes(f.weir, one("c", "k"), NOW, 9), 1);
    assert_int_equal(unlink(inside), 0);
    assert_int_equal(rmdir(folder), 0);
    close_fixture(&f);
}

/* By the address that a rule by ip counts for: who is connected, or who is said to stand behind it. */
static bool trusts(struct weir *weir, const char *peer)
{
    struct weir_header forwarded = { WEIR_STR("X-Forwarded-For"), WEIR_STR("192.0.2.1") };
    struct weir_request request = { .peer = weir_str(peer), .headers = &forwarded, .header_count = 1, .cost = 1 };
    return !check_at(weir, request, NOW).applied;
}

#define TRUSTING(networks, rules)             \
    "settings: { trusted_proxies: [" networks \
    "] }\nrules:\n  - { id: ip, by: ip, limits: [0 per 1h], except: { ip: 192.0.2.1 } }\n" rules

/* options.trusted_proxies stand, whatever the rules say now or later, good or bad. */
static void the_callers_trusted_proxies_win(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, TRUSTING("10.0.0.0/8", ""), 0);
    assert_true(trusts(f.weir, "10.0.0.1"));
    struct weir *some =
        open_with((struct weir_options){ .rules_file = f.rules, .trusted_proxies = "172.16.0.1, fd00::/8" });
    struct weir *none = open_with((struct weir_options){ .rules_file = f.rules, .trusted_proxies = "" });
    static const struct {
        const char *text;
        int expected;
    } versions[] = {
        { NULL, 0 },
        { TRUSTING("172.16.0.0/16, 10.1.0.0/16", ""), 1 },
        { TRUSTING("10.0.0.0/99", ""), WEIR_E_RULES },
        { TRUSTING("10.0.0.0/8", RULE("a", "nonsense")), WEIR_E_RULES },
        { "rules: [", WEIR_E_RULES },
        { TRUSTING("", ""), 1 },
        { TRUSTING("0.0.0.0/0", ""), 1 },
    };
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        if (versions[i].text)
            write_old(&f, versions[i].text);
        assert_int_equal(weir_poll(some, NULL), versions[i].expected);
        assert_int_equal(weir_poll(none, NULL), versions[i].expected);
        assert_true(trusts(some, "172.16.0.1") && trusts(some, "fd00::1"));
        assert_false(trusts(some, "10.0.0.1") || trusts(some, "172.16.0.2"));
        assert_false(trusts(none, "10.0.0.1") || trusts(none, "172.16.0.1"));
    }
    set_rules(some, "[{ id: ip, by: ip, limits: [0 per 1h], except: { ip: 192.0.2.1 } }]");
    assert_true(trusts(some, "172.16.0.1") && !trusts(some, "10.0.0.1"));
    weir_close(some);
    weir_close(none);
    close_fixture(&f);
}

static void without_a_file_there_is_nothing_to_poll(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "5 per 1h"));
    assert_int_equal(weir_poll(weir, NULL), 0);
    weir_close(weir);
}

static void a_bad_rule_keeps_its_last_good_version(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h") RULE("b", "1 per 1h"), 0);
    struct weir_error error = { .code = WEIR_OK };
    write_old(&f, "rules:\n" RULE("a", "0 per lifetime") RULE("b", "2 per 1h") RULE("c", "3 per 1h") RULE("d", "nonsense"));
    assert_int_equal(weir_poll(f.weir, &error), WEIR_E_RULES);
    assert_int_equal(error.code, WEIR_E_RULES);
    assert_non_null(strstr(error.text, "rules.yaml:2: rule a: "));
    assert_non_null(strstr(error.text, "rules.yaml:5: rule d: "));
    assert_true(rules_bad(f.weir));
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 1);
    assert_int_equal(passes(f.weir, one("b", "k"), NOW, 9), 2);
    assert_int_equal(passes(f.weir, one("c", "k"), NOW, 9), 3);
    EXPECT(f.weir, one("d", "k"), NOW, "pass no rule");
    /* Once for each bad version. */
    assert_int_equal(weir_poll(f.weir, &error), 0);
    assert_int_equal(f.heard.bad, 1);
    assert_string_equal(f.heard.text, error.text);
    write_old(&f, "rules:\n" RULE("a", "1 per never") RULE("b", "2 per 1h"));
    assert_int_equal(weir_poll(f.weir, &error), WEIR_E_RULES);
    EXPECT(f.weir, one("c", "k"), NOW, "pass no rule");
    assert_int_equal(passes(f.weir, one("a", "k2"), NOW, 9), 1);
    /* And the recovery. */
    write_old(&f, "rules:\n" RULE("a", "2 per 1h"));
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_false(rules_bad(f.weir));
    assert_int_equal(f.heard.good, 1);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 1);
    close_fixture(&f);
}

/* As weir sync writes it. */
static void problems_of_the_source_are_told(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "problems: ['WEIR_RULES: row b: bad']\nrules:\n" RULE("a", "1 per 1h"), 0);
    struct weir_error error = { .code = WEIR_OK };
    assert_int_equal(weir_rules_error(f.weir, NULL), WEIR_E_RULES);
    assert_int_equal(weir_rules_error(f.weir, &error), WEIR_E_RULES);
    assert_string_equal(error.text, "WEIR_RULES: row b: bad");
    assert_true(rules_bad(f.weir));
    write_old(&f, "problems: [one, two]\nrules:\n" RULE("a", "2 per 1h"));
    assert_int_equal(weir_poll(f.weir, &error), WEIR_E_RULES);
    assert_string_equal(error.text, "one\ntwo");
    assert_string_equal(f.heard.text, "one\ntwo");
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 2);
    assert_int_equal(weir_poll(f.weir, &error), 0);
    write_old(&f, "rules:\n" RULE("a", "3 per 1h"));
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_int_equal(weir_rules_error(f.weir, &error), 0);
    assert_int_equal(error.code, WEIR_OK);
    assert_false(rules_bad(f.weir));
    close_fixture(&f);
}

static void a_file_that_makes_no_sense_changes_nothing(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "rules:\n  - { id: a, match: { event", "", "# the rules\n\n", "rules: 5\n", "- { id: a }\n", "rules:\n\t- tabs\n"
    };
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h") RULE("b", "1 per 1h"), 0);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_old(&f, broken[i]);
        struct weir_error error = { .code = WEIR_OK };
        assert_int_equal(weir_poll(f.weir, &error), WEIR_E_RULES);
        assert_non_null(strstr(error.text, f.rules));
        assert_int_equal(weir_poll(f.weir, &error), 0);
        assert_true(rules_bad(f.weir));
        assert_false(check_at(f.weir, peek_of("a", "k", 2), NOW).allowed);
        assert_false(check_at(f.weir, peek_of("b", "k", 2), NOW).allowed);
    }
    assert_int_equal(f.heard.bad, sizeof broken / sizeof *broken);
    close_fixture(&f);
}

/* A file that was written a moment ago may not be whole. It is read once it has been left alone. */
static void a_file_just_written_has_to_settle(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h"), 0);
    write_file(f.rules, "rules:\n" RULE("a", "2 per 1h"));
    struct timespec soon = { .tv_nsec = 5000000 };
    int r = 0;
    for (int i = 0; i < 1000 && r == 0; i++) {
        r = weir_poll(f.weir, NULL);
        nanosleep(&soon, NULL);
    }
    assert_int_equal(r, 1);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 2);
    /* A time in the future is no reason to wait for it. */
    write_file(f.rules, "rules:\n" RULE("a", "3 per 1h"));
    struct timespec times[2] = { { .tv_sec = INT64_C(4000000000) }, { .tv_sec = INT64_C(4000000000) } };
    assert_int_equal(utimensat(AT_FDCWD, f.rules, times, 0), 0);
    assert_int_equal(weir_poll(f.weir, NULL), 1);
    close_fixture(&f);
}

static void a_file_that_goes_and_comes_back(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h"), 0);
    struct weir_error error = { .code = WEIR_OK };
    assert_int_equal(rename(f.rules, f.spare), 0);
    assert_int_equal(weir_poll(f.weir, &error), WEIR_E_SYSTEM);
    assert_non_null(strstr(error.text, f.rules));
    assert_non_null(strstr(error.text, "the last good rules stay"));
    assert_int_equal(weir_poll(f.weir, &error), 0);
    assert_int_equal(f.heard.bad, 1);
    assert_true(rules_bad(f.weir));
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 1);
    assert_int_equal(rename(f.spare, f.rules), 0);
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_int_equal(f.heard.good, 1);
    assert_false(rules_bad(f.weir));
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 0);
    /* The next time is told of again. */
    assert_int_equal(rename(f.rules, f.spare), 0);
    assert_int_equal(weir_poll(f.weir, &error), WEIR_E_SYSTEM);
    assert_int_equal(f.heard.bad, 2);
    close_fixture(&f);
}

/* A folder stands for all that can be seen and not read: root may read everything else. */
static void a_file_that_cannot_be_read_is_tried_again_and_told_once(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h"), 0);
    struct weir_error error = { .code = WEIR_OK };
    struct timespec times[2] = { { .tv_sec = NOW / S }, { .tv_sec = NOW / S } };
    assert_int_equal(rename(f.rules, f.spare), 0);
    assert_int_equal(mkdir(f.rules, 0700), 0);
    assert_int_equal(utimensat(AT_FDCWD, f.rules, times, 0), 0);
    assert_int_equal(weir_poll(f.weir, &error), WEIR_E_SYSTEM);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_poll(f.weir, &error), 0);
    assert_true(rules_bad(f.weir));
    assert_int_equal(rmdir(f.rules), 0);
    assert_int_equal(weir_poll(f.weir, &error), 0);
    assert_int_equal(rename(f.spare, f.rules), 0);
    assert_int_equal(weir_poll(f.weir, &error), 1);
    assert_int_equal(f.heard.bad, 1);
    assert_int_equal(f.heard.good, 1);
    close_fixture(&f);
}

static void rules_that_were_set_stay_until_the_file_changes(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h"), 0);
    set_rules(f.weir, "rules:\n" RULE("a", "2 per 1h"));
    assert_int_equal(weir_poll(f.weir, NULL), 0);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 2);
    write_old(&f, "rules:\n" RULE("a", "3 per 1h"));
    assert_int_equal(weir_poll(f.weir, NULL), 1);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 1);
    close_fixture(&f);
}

/* Nothing is held while the callback runs. */
static void answer_with_rules(const struct weir_error *error, void *data)
{
    struct weir *weir = *(struct weir **)data;
    struct weir_status status;
    weir_status(weir, &status);
    assert_int_equal(weir_poll(weir, NULL), 0);
    if (error->code != WEIR_OK)
        set_rules(weir, "rules:\n" RULE("a", "7 per 1h"));
}

static void the_callback_may_use_weir(void **state)
{
    (void)state;
    struct fixture f;
    struct weir *weir = NULL;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h"), 0);
    weir_close(f.weir);
    f.weir = weir =
        open_with((struct weir_options){ .rules_file = f.rules, .on_rules = answer_with_rules, .on_rules_data = &weir });
    write_old(&f, "rules: no");
    assert_int_equal(weir_poll(weir, NULL), WEIR_E_RULES);
    assert_int_equal(passes(weir, one("a", "k"), NOW, 9), 7);
    write_old(&f, "rules:\n" RULE("a", "8 per 1h"));
    assert_int_equal(weir_poll(weir, NULL), 1);
    assert_int_equal(passes(weir, one("a", "k"), NOW, 9), 1);
    close_fixture(&f);
}

/* ---- the watcher ---- */

static unsigned wait_for(struct heard *heard, const unsigned *what, unsigned count)
{
    struct timespec soon = { .tv_nsec = 2000000 };
    unsigned seen = 0;
    for (int i = 0; i < 5000 && seen < count; i++) {
        nanosleep(&soon, NULL);
        pthread_mutex_lock(&heard->lock);
        seen = *what;
        pthread_mutex_unlock(&heard->lock);
    }
    return seen;
}

static void the_watcher_polls_by_itself(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h"), 1);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 1);
    write_old(&f, "rules:\n" RULE("a", "3 per 1h"));
    assert_true(wait_for(&f.heard, &f.heard.good, 1) >= 1);
    /* Seen between truncating and writing it may have been complained about; in the end it is in force. */
    struct timespec soon = { .tv_nsec = 2000000 };
    for (int i = 0; i < 5000 && check_at(f.weir, cost_of("a", "k", 0), NOW).max != 3; i++)
        nanosleep(&soon, NULL);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 2);
    unsigned bad = f.heard.bad;
    unlink(f.rules);
    assert_true(wait_for(&f.heard, &f.heard.bad, bad + 1) > bad);
    assert_int_equal(passes(f.weir, one("a", "k2"), NOW, 9), 3);
    close_fixture(&f);
}

/* Until one more has been heard than before. */
static void poll_aside_until_heard(struct fixture *f, const unsigned *count)
{
    struct timespec soon = { .tv_nsec = 2000000 };
    pthread_mutex_lock(&f->heard.lock);
    unsigned before = *count, now = before;
    pthread_mutex_unlock(&f->heard.lock);
    for (int i = 0; i < 5000 && now == before; i++) {
        weir_poll_aside(f->weir);
        nanosleep(&soon, NULL);
        pthread_mutex_lock(&f->heard.lock);
        now = *count;
        pthread_mutex_unlock(&f->heard.lock);
    }
    assert_int_equal(now, before + 1);
}

/* For loops: a thread reads what has changed, and ends. */
static void a_change_is_read_aside(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h"), 0);
    assert_int_equal(weir_poll_aside(f.weir), 0);
    write_old(&f, "rules:\n" RULE("a", "3 per 1h"));
    poll_aside_until_heard(&f, &f.heard.good);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 3);
    write_old(&f, "rules: [x]");
    poll_aside_until_heard(&f, &f.heard.bad);
    assert_int_equal(weir_rules_error(f.weir, NULL), WEIR_E_RULES);
    unlink(f.rules);
    poll_aside_until_heard(&f, &f.heard.bad);
    assert_int_equal(weir_rules_error(f.weir, NULL), WEIR_E_SYSTEM);
    write_old(&f, "rules:\n" RULE("a", "4 per 1h"));
    poll_aside_until_heard(&f, &f.heard.good);
    assert_int_equal(passes(f.weir, one("a", "k"), NOW, 9), 1);
    /* Closed while it reads. */
    write_old(&f, "rules:\n" RULE("a", "5 per 1h"));
    assert_int_equal(weir_poll_aside(f.weir), 1);
    close_fixture(&f);
    struct weir *weir = open_rules("rules:\n" RULE("a", "5 per 1h"));
    assert_int_equal(weir_poll_aside(weir), 0);
    weir_close(weir);
}

static void a_watcher_that_waits_long_stops_at_once(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "rules:\n" RULE("a", "1 per 1h"), UINT32_MAX);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_is_taken_over),
        cmocka_unit_test(included_files_are_followed),
        cmocka_unit_test(the_callers_trusted_proxies_win),
        cmocka_unit_test(without_a_file_there_is_nothing_to_poll),
        cmocka_unit_test(a_bad_rule_keeps_its_last_good_version),
        cmocka_unit_test(problems_of_the_source_are_told),
        cmocka_unit_test(a_file_that_makes_no_sense_changes_nothing),
        cmocka_unit_test(a_file_just_written_has_to_settle),
        cmocka_unit_test(a_file_that_goes_and_comes_back),
        cmocka_unit_test(a_file_that_cannot_be_read_is_tried_again_and_told_once),
        cmocka_unit_test(rules_that_were_set_stay_until_the_file_changes),
        cmocka_unit_test(the_callback_may_use_weir),
        cmocka_unit_test(the_watcher_polls_by_itself),
        cmocka_unit_test(a_change_is_read_aside),
        cmocka_unit_test(a_watcher_that_waits_long_stops_at_once),
    };
    return cmocka_run_group_tests_name("engine/file", tests, NULL, NULL);
}
