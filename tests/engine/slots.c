/* Limits of requests in flight, gauges of them, and holds that may take a part of a limit only. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "../limit/random.h"
#include "engine/handle.h"
#include "helpers.h"

/* ---- asking ---- */

struct gauge {
    const char *rule, *limit;
    uint64_t holds;
    int told;
};

static void note(const struct weir_in_flight *in_flight, void *data)
{
    struct gauge *g = data;
    size_t rule = strlen(g->rule), limit = strlen(g->limit);
    if (in_flight->rule.len != rule || memcmp(in_flight->rule.ptr, g->rule, rule) != 0 || in_flight->limit.len != limit ||
        memcmp(in_flight->limit.ptr, g->limit, limit) != 0)
        return;
    g->holds += in_flight->holds;
    g->told++;
}

/* -1: it is not told of. */
static int64_t in_flight(struct weir *weir, const char *rule, const char *limit, int64_t now_us)
{
    struct gauge g = { .rule = rule, .limit = limit };
    assert_int_equal(weir_each_in_flight(weir, now_us, note, &g), 0);
    assert_true(g.told <= 1);
    return g.told ? (int64_t)g.holds : -1;
}

static bool ask(struct weir *weir, struct weir_request request, int64_t now_us, struct weir_receipt *ret,
                struct weir_verdict *verdict)
{
    struct weir_verdict unused;
    verdict = verdict ? verdict : &unused;
    request.receipt = ret;
    assert_int_equal(weir_check(weir, &request, now_us, verdict), 0);
    return verdict->allowed;
}

static bool run(struct weir *weir, const char *key, int64_t now_us, struct weir_receipt *ret)
{
    return ask(weir, one("e", key), now_us, ret, NULL);
}

#define RULE(limits) "rules: [ { id: r, by: key, limits: " limits " } ]"

/* ---- slots ---- */

static void a_slot_is_taken_and_freed(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("{ name: running, concurrent: 2, ttl: 10s }"));
    struct weir_receipt a, b, c;
    struct weir_verdict v;
    assert_int_equal(in_flight(weir, "r", "running", NOW), 0);
    assert_true(run(weir, "k", NOW, &a));
    assert_true(run(weir, "k", NOW, &b));
    assert_int_equal(in_flight(weir, "r", "running", NOW), 2);
    assert_false(ask(weir, one("e", "k"), NOW, &c, &v));
    assert_string_equal(v.limit, "running");
    assert_int_equal(v.max, 2);
    assert_int_equal(v.remaining, 0);
    assert_true(v.retry_after_ms > 0);
    assert_true(run(weir, "other", NOW, &c));
    assert_int_equal(in_flight(weir, "r", "running", NOW), 3);
    assert_int_equal(weir_release(weir, &a, NOW), 1);
    assert_int_equal(weir_release(weir, &a, NOW), 0); /* twice is once */
    assert_int_equal(in_flight(weir, "r", "running", NOW), 2);
    assert_true(run(weir, "k", NOW, &a));
    /* However it is settled, the slot is free. */
    assert_int_equal(weir_settle(weir, &a, 5, NULL, 0, NOW), 1);
    assert_int_equal(weir_refund(weir, &b, NOW), 1);
    assert_int_equal(weir_release(weir, &c, NOW), 1);
    assert_int_equal(in_flight(weir, "r", "running", NOW), 0);
    weir_close(weir);
}

static void a_slot_ends_with_its_ttl(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("{ concurrent: 1, ttl: 10s }"));
    struct weir_receipt a, b;
    assert_true(run(weir, "k", NOW, &a));
    assert_false(run(weir, "k", NOW + 10 * S - 1, &b));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + 10 * S - 1), 1);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + 10 * S), 0);
    assert_true(run(weir, "k", NOW + 10 * S, &b));
    /* What is over does not free the slot of another. */
    weir_release(weir, &a, NOW + 10 * S);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + 10 * S), 1);
    assert_false(run(weir, "k", NOW + 11 * S, &a));
    /* Renewed, it lasts. */
    assert_int_equal(weir_renew(weir, &b, 10000, NOW + 19 * S), 1);
    assert_false(run(weir, "k", NOW + 29 * S - 1, &a));
    assert_true(run(weir, "k", NOW + 29 * S, &a));
    assert_int_equal(weir_renew(weir, &b, 10000, NOW + 29 * S), 0);
    weir_close(weir);
}

static void no_slot_is_taken(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("[ { name: running, concurrent: 1 }, { name: rate, max: 1, per: 1h } ]"));
    struct weir_receipt a, b;
    assert_true(ask(weir, peek_of("e", "k", 1), NOW, &a, NULL));
    assert_true(ask(weir, cost_of("e", "k", 0), NOW, &a, NULL));
    assert_int_equal(in_flight(weir, "r", "running", NOW), 0);
    assert_true(run(weir, "k", NOW, &a));
    assert_int_equal(in_flight(weir, "r", "running", NOW), 1);
    assert_int_equal(in_flight(weir, "r", "rate", NOW), -1);
    assert_int_equal(weir_release(weir, &a, NOW), 2);
    /* The rate refuses: all or nothing. */
    assert_false(run(weir, "k", NOW, &b));
    assert_int_equal(in_flight(weir, "r", "running", NOW), 0);
    assert_true(ask(weir, cost_of("e", "z", 0), NOW, &a, NULL));
    weir_close(weir);
}

static void zero_slots_refuse_all(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("0 concurrent"));
    struct weir_receipt a;
    struct weir_verdict v;
    assert_false(ask(weir, one("e", "k"), NOW, &a, &v));
    assert_int_equal(v.retry_after_ms, WEIR_NEVER);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 0);
    weir_close(weir);
}

static void shadow_rules_do_not_leak(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n- { id: s, by: key, mode: shadow, limits: 1 concurrent }\n"
                                   "- { id: r, by: key, limits: { name: rate, max: 2, per: 1h } }\n");
    struct weir_receipt a, b, c;
    assert_true(run(weir, "k", NOW, &a));
    assert_true(run(weir, "k", NOW, &b));
    assert_int_equal(in_flight(weir, "s", "concurrent", NOW), 1);
    assert_false(run(weir, "k", NOW, &c)); /* by the rate: the shadow rule holds nothing for it */
    assert_int_equal(in_flight(weir, "s", "concurrent", NOW), 1);
    weir_release(weir, &a, NOW);
    assert_int_equal(in_flight(weir, "s", "concurrent", NOW), 0);
    weir_release(weir, &b, NOW);
    assert_int_equal(in_flight(weir, "s", "concurrent", NOW), 0);
    weir_close(weir);
}

static void plans_and_overrides(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n- id: r\n  by: key\n  plan: user\n  limits: 1 concurrent\n"
                                   "  plans: { pro: { concurrent: 3, ttl: 5s } }\n"
                                   "overrides:\n- { rule: r, by: { key: vip }, limits: { name: vips, concurrent: 4 } }\n");
    struct weir_receipt receipts[5];
    struct weir_request pro = one("e", "k");
    pro.user = weir_str("pro");
    assert_true(run(weir, "k", NOW, &receipts[0]));
    assert_false(run(weir, "k", NOW, &receipts[1]));
    assert_true(ask(weir, pro, NOW, &receipts[1], NULL)); /* the same count, another max */
    assert_true(ask(weir, pro, NOW, &receipts[2], NULL));
    assert_false(ask(weir, pro, NOW, &receipts[3], NULL));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_release(weir, &receipts[i], NOW), 1);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 0);
    for (int i = 0; i < 4; i++)
        assert_true(run(weir, "vip", NOW, &receipts[i]));
    assert_false(run(weir, "vip", NOW, &receipts[4]));
    assert_int_equal(in_flight(weir, "r", "vips", NOW), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(weir_release(weir, &receipts[i], NOW), 1);
    assert_int_equal(in_flight(weir, "r", "vips", NOW), -1);
    weir_close(weir);
}

static void rules_change(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("3 concurrent"));
    struct weir_receipt a, b, c;
    assert_true(run(weir, "k", NOW, &a));
    assert_true(run(weir, "k", NOW, &b));
    set_rules(weir, RULE("1 concurrent"));
    assert_false(run(weir, "k", NOW, &c));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 2);
    assert_int_equal(weir_release(weir, &a, NOW), 1);
    assert_false(run(weir, "k", NOW, &c));
    assert_int_equal(weir_release(weir, &b, NOW), 1);
    assert_true(run(weir, "k", NOW, &c));
    /* A rule that is gone and comes back: the slots are where they were, and what ended meanwhile is free. */
    set_rules(weir, RULE("2 concurrent"));
    assert_true(run(weir, "k", NOW, &a));
    set_rules(weir, "rules: []");
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), -1);
    assert_int_equal(weir_slot_ttl_ms(weir, &c), 0);
    assert_int_equal(weir_release(weir, &c, NOW), 1);
    assert_int_equal(weir_release(weir, &c, NOW), 0);
    set_rules(weir, RULE("2 concurrent"));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 1);
    assert_int_equal(weir_release(weir, &a, NOW), 1);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 0);
    weir_close(weir);
}

/* More than a block has room for: some are joined, and none is lost. */
static void many_slots(void **state)
{
    (void)state;
    enum { MANY = 300 };
    static struct weir_receipt receipts[MANY];
    struct weir_receipt more;
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULE("300 concurrent"), .cells_keys = 100000 });
    for (int i = 0; i < MANY; i++)
        assert_true(run(weir, "k", NOW + i * MS, &receipts[i]));
    assert_false(run(weir, "k", NOW + S, &more));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + S), MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(weir_release(weir, &receipts[i], NOW + S), 1);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + S), 0);
    for (int i = 0; i < MANY; i++)
        assert_true(run(weir, "k", NOW + S, &receipts[i]));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + 62 * S), 0);
    weir_close(weir);
}

/* Numbers of receipts are remembered for so many of a subject. */
static void a_busy_subject(void **state)
{
    (void)state;
    enum { LATER = 17000 };
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULE("3 concurrent"), .cells_keys = 100000 });
    struct weir_receipt first, r;
    assert_true(run(weir, "k", NOW, &first));
    for (int i = 0; i < LATER; i++) {
        assert_true(run(weir, "k", NOW, &r));
        assert_int_equal(weir_release(weir, &r, NOW), 1);
    }
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 1);
    assert_int_equal(weir_renew(weir, &first, 0, NOW), 1);
    assert_int_equal(weir_release(weir, &first, NOW), 1);
    assert_int_equal(weir_release(weir, &first, NOW), 0);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 0);
    weir_close(weir);
}

/* The true amount of a hold is charged once, also if the table has forgotten its number. */
static void a_busy_budget(void **state)
{
    (void)state;
    enum { LATER = 17000 };
    struct weir *weir = open_with((struct weir_options){
        .rules_text = RULE("{ name: l, algorithm: fixed_window, max: 1000000, per: 1h }"), .cells_keys = 100000 });
    struct weir_receipt first, r;
    struct weir_request reserve = cost_of("e", "k", 10);
    reserve.ttl_ms = 60000;
    assert_true(ask(weir, reserve, NOW, &first, NULL));
    for (int i = 0; i < LATER; i++)
        assert_true(run(weir, "k", NOW, &r));
    assert_int_equal(weir_renew(weir, &first, 60000, NOW), 1);
    assert_int_equal(weir_settle(weir, &first, 5000, NULL, 0, NOW), 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_settle(weir, &first, 5000u * (unsigned)i, NULL, 0, NOW), 0);
    assert_int_equal(weir_renew(weir, &first, 60000, NOW), 0);
    assert_int_equal(check_at(weir, peek_of("e", "k", 1), NOW + 100 * S).remaining, 1000000 - LATER - 5000);
    weir_close(weir);
}

/* Holds that were joined have lost their numbers. One that is over must not be renewed as a part of the others'. */
static void a_settled_hold_is_not_renewed(void **state)
{
    (void)state;
    enum { MANY = 300, OVER = 100 };
    static struct weir_receipt receipts[MANY];
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULE("300 concurrent"), .cells_keys = 100000 });
    for (int i = 0; i < MANY; i++)
        assert_true(run(weir, "k", NOW + i * MS, &receipts[i]));
    for (int i = 0; i < OVER; i++)
        assert_int_equal(weir_release(weir, &receipts[i], NOW + S), 1);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(weir_renew(weir, &receipts[i], 0, NOW + S), i >= OVER);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + S), MANY - OVER);
    for (int i = OVER; i < MANY; i++)
        assert_int_equal(weir_release(weir, &receipts[i], NOW + S), 1);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + S), 0);
    weir_close(weir);
}

/* A receipt has room for 16 limits; slots come first. */
static void many_limits(void **state)
{
    (void)state;
    char rules[4000];
    int n = snprintf(rules, sizeof rules, "rules:\n");
    for (int i = 0; i < 20; i++)
        n += snprintf(rules + n, sizeof rules - (size_t)n, "- { id: r%d, by: key, limits: 10 per 1h }\n", i);
    snprintf(rules + n, sizeof rules - (size_t)n, "- { id: r, by: key, limits: 1 concurrent }\n");
    struct weir *weir = open_rules(rules);
    struct weir_receipt a;
    assert_true(run(weir, "k", NOW, &a));
    weir_release(weir, &a, NOW);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 0);
    weir_close(weir);
}

static void renewed_by_the_rule(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules(RULE("[ { name: long, concurrent: 1, ttl: 1m }, { name: short, concurrent: 1, ttl: 10s }, "
                        "{ name: rate, max: 9, per: 1h } ]"));
    struct weir_receipt a, b;
    struct weir_request check = one("e", "plain"), reserve = one("e", "k");
    assert_true(run(weir, "k", NOW, &a));
    assert_int_equal(weir_slot_ttl_ms(weir, &a), 10000);
    for (int i = 1; i < 20; i++)
        assert_int_equal(weir_renew(weir, &a, 0, NOW + i * 5 * S), 2);
    assert_int_equal(in_flight(weir, "r", "short", NOW + 105 * S - 1), 1);
    assert_int_equal(in_flight(weir, "r", "short", NOW + 105 * S), 0);
    assert_int_equal(in_flight(weir, "r", "long", NOW + 105 * S), 1);
    assert_int_equal(weir_renew(weir, &a, 0, NOW + 105 * S), 1);
    weir_release(weir, &a, NOW + 105 * S);
    assert_int_equal(in_flight(weir, "r", "long", NOW + 105 * S), 0);
    /* What is not a slot is not renewed so. */
    set_rules(weir, RULE("{ name: rate, max: 9, per: 1h }"));
    reserve.ttl_ms = 1000;
    assert_true(ask(weir, reserve, NOW, &b, NULL));
    assert_int_equal(weir_slot_ttl_ms(weir, &b), 0);
    assert_int_equal(weir_renew(weir, &b, 0, NOW), 0);
    assert_true(ask(weir, check, NOW, &b, NULL));
    assert_int_equal(weir_slot_ttl_ms(weir, &b), 0);
    b.count = UINT32_MAX;
    assert_int_equal(weir_slot_ttl_ms(weir, &b), 0);
    weir_close(weir);
}

/* A small table has four blocks. */
static void no_room_in_the_table(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULE("2 concurrent"), .cells_keys = 100 });
    struct weir_receipt a[4], b;
    struct weir_verdict v;
    char key[] = "a";
    for (int i = 0; i < 4; i++, key[0]++)
        assert_true(run(weir, key, NOW, &a[i]));
    assert_false(ask(weir, one("e", "z"), NOW, &b, &v));
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.retry_after_ms, 1000);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 4);
    assert_int_equal(weir_release(weir, &a[2], NOW), 1);
    assert_true(run(weir, "z", NOW, &b));
    assert_int_equal(weir_release(weir, &b, NOW), 1);
    /* Nobody comes for the others. When they are over, their blocks are for whoever needs one. */
    assert_true(run(weir, "z", NOW, &b));
    for (key[0] = 'k'; key[0] < 'o'; key[0]++)
        assert_true(run(weir, key, NOW + 200 * S, &b));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + 200 * S), 4);
    weir_close(weir);
}

/* A cell whose slots are over is reused for another subject, and its block with it, although the process that made it
 * lives. */
static void blocks_of_cells_that_are_reused(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULE("2 concurrent"), .cells_keys = 100 });
    struct weir_receipt receipt;
    char key[16];
    for (int i = 0; i < 400; i++) {
        snprintf(key, sizeof key, "u%d", i);
        assert_true(run(weir, key, NOW + i / 4 * 200 * S, &receipt));
    }
    weir_close(weir);
}

/* To free one of several slots takes a block for the others. Without one it stays until its time to live is over, or until
 * it is released again: the others must not be forgotten. */
static void no_room_for_the_other_slots(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULE("3 concurrent"), .cells_keys = 100 });
    struct weir_receipt mine[3], others[3], r;
    char key[] = "a";
    for (int i = 0; i < 3; i++)
        assert_true(run(weir, "k", NOW, &mine[i]));
    for (int i = 0; i < 3; i++, key[0]++)
        assert_true(run(weir, key, NOW, &others[i]));
    assert_int_equal(weir_release(weir, &mine[0], NOW), 0);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 6);
    assert_int_equal(weir_release(weir, &others[0], NOW), 1);
    assert_false(run(weir, "k", NOW, &r));
    assert_int_equal(weir_release(weir, &mine[0], NOW), 1);
    assert_true(run(weir, "k", NOW, &r));
    assert_false(run(weir, "k", NOW, &r));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), 5);
    weir_close(weir);
}

/* ---- processes that die ---- */

enum { CHILDREN = 5 };

static void in_folder(char folder[static 32], char file[static 64])
{
    strcpy(folder, "/tmp/weir-slots-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, 64, "%s/cells", folder);
}

static void remove_folder(const char *folder, const char *file)
{
    unlink(file);
    rmdir(folder);
}

/* Each takes a slot, and is killed. */
static void kill_some(struct weir *weir)
{
    for (int i = 0; i < CHILDREN; i++) {
        struct weir_receipt r;
        pid_t pid = fork();
        if (pid == 0) {
            run(weir, "k", NOW, &r);
            kill(getpid(), SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
    }
}

static void killed_processes(void **state)
{
    (void)state;
    char folder[32], file[64];
    in_folder(folder, file);
    struct weir *weir = open_with((struct weir_options){
        .rules_text = RULE("[ { concurrent: 5, ttl: 1h }, { name: rate, max: 1000, per: 1h } ]"), .cells_file = file });
    struct weir_receipt own, r[CHILDREN];
    struct weir_verdict v;
    kill_some(weir);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + S), 0);
    assert_true(ask(weir, peek_of("e", "k", 1), NOW + S, &r[0], &v));
    kill_some(weir); /* a child takes the place of another */
    assert_true(run(weir, "k", NOW + S, &own));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + S), 1);
    for (int i = 1; i < CHILDREN; i++)
        assert_true(run(weir, "k", NOW + S, &r[i]));
    assert_false(run(weir, "k", NOW + S, &r[0]));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + S), CHILDREN);
    /* A handle is not its process: what was taken stays taken. */
    weir_close(weir);
    weir = open_with((struct weir_options){ .rules_text = RULE("{ concurrent: 5, ttl: 1h }"), .cells_file = file });
    assert_false(run(weir, "k", NOW + 2 * S, &r[0]));
    assert_int_equal(weir_release(weir, &own, NOW + 2 * S), 1);
    assert_true(run(weir, "k", NOW + 2 * S, &r[0]));
    weir_close(weir);
    remove_folder(folder, file);
}

/* A command ends at once: its slots are for whoever has the receipt, and end with their time to live. */
static void killed_visitors(void **state)
{
    (void)state;
    char folder[32], file[64];
    in_folder(folder, file);
    struct weir_options options = {
        .size = sizeof options, .rules_text = RULE("{ concurrent: 5, ttl: 10s }"), .cells_file = file, .cells_keys = 1000
    };
    struct weir *weir;
    struct weir_receipt r;
    assert_int_equal(weir_open_with(&weir, &options, NULL, true, NULL), 0);
    kill_some(weir);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW), CHILDREN);
    assert_false(run(weir, "k", NOW + 9 * S, &r));
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + 10 * S), 0);
    for (int i = 0; i < CHILDREN; i++)
        assert_true(run(weir, "k", NOW + 10 * S, &r));
    weir_close(weir);
    remove_folder(folder, file);
}

/* A receipt is good in other processes. One that renews it goes on with the work. */
static void handed_over(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("{ concurrent: 2, ttl: 1h }"));
    struct weir_receipt r[2], more;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool done = run(weir, "k", NOW, &r[0]) && run(weir, "k", NOW, &r[1]);
        done = done && write(pipes[1], r, sizeof r) == sizeof r;
        alarm(120);
        for (;;)
            pause();
    }
    close(pipes[1]);
    for (size_t got = 0; got < sizeof r;) {
        ssize_t n = read(pipes[0], (char *)r + got, sizeof r - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
    close(pipes[0]);
    assert_int_equal(weir_renew(weir, &r[0], 0, NOW), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(run(weir, "k", NOW + S, &more));
    assert_false(run(weir, "k", NOW + S, &more));
    assert_int_equal(weir_release(weir, &r[1], NOW + S), 0); /* its owner died */
    assert_int_equal(weir_release(weir, &r[0], NOW + S), 1);
    assert_int_equal(in_flight(weir, "r", "concurrent", NOW + S), 1);
    weir_close(weir);
}

/* ---- threads ---- */

enum { THREADS = 4, TURNS = 3000, SLOTS = 3 };

struct crowd {
    struct weir *weir;
    int running, most; /* atomic */
};

static void *take_turns(void *data)
{
    struct crowd *c = data;
    for (int i = 0; i < TURNS; i++) {
        struct weir_receipt r;
        if (!run(c->weir, "k", NOW, &r))
            continue;
        int running = __atomic_add_fetch(&c->running, 1, __ATOMIC_SEQ_CST);
        int most = __atomic_load_n(&c->most, __ATOMIC_SEQ_CST);
        while (running > most &&
               !__atomic_compare_exchange_n(&c->most, &most, running, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            ;
        __atomic_sub_fetch(&c->running, 1, __ATOMIC_SEQ_CST);
        weir_release(c->weir, &r, NOW);
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    struct crowd c = { .weir = open_rules(RULE("3 concurrent")) };
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_turns, &c), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_true(c.most > 0 && c.most <= SLOTS);
    assert_int_equal(in_flight(c.weir, "r", "concurrent", NOW), 0);
    weir_close(c.weir);
}

/* ---- at random ---- */

enum { KEYS = 3, MOST = 4, TTL_S = 10, STEPS = 30000, REMEMBERED = 64 };

/* The number in flight, according to the requests and answers. */
struct model {
    struct {
        struct weir_receipt receipt;
        unsigned key;
        int64_t until_us; /* 0: released, or over */
        bool used;        /* it was released, so that doing so again does nothing */
    } holds[REMEMBERED];
    size_t next;
};

static int64_t taken(const struct model *m, int key, int64_t now_us)
{
    int64_t count = 0;
    for (size_t i = 0; i < REMEMBERED; i++)
        count += m->holds[i].until_us > now_us && (key < 0 || m->holds[i].key == (unsigned)key);
    return count;
}

static void step(struct weir *weir, struct model *m, struct random *random, int64_t now_us)
{
    size_t i = (size_t)random_in(random, 0, REMEMBERED - 1);
    bool lasts = m->holds[i].until_us > now_us;
    int released;
    switch (random_in(random, 0, 5)) {
    case 0:
        released = weir_release(weir, &m->holds[i].receipt, now_us);
        assert_true(lasts ? released == 1 : !m->holds[i].used || released == 0);
        m->holds[i].until_us = 0;
        m->holds[i].used = true;
        break;
    case 1:
        assert_int_equal(weir_renew(weir, &m->holds[i].receipt, 0, now_us), lasts);
        m->holds[i].until_us = lasts ? now_us + TTL_S * S : 0;
        break;
    case 2:
        assert_int_equal(in_flight(weir, "r", "concurrent", now_us), taken(m, -1, now_us));
        break;
    default:
        i = m->next % REMEMBERED;
        if (m->holds[i].until_us > now_us)
            break;
        unsigned number = (unsigned)random_in(random, 0, KEYS - 1);
        char key[2] = { (char)('a' + number), 0 };
        struct weir_receipt receipt = { .count = 0 };
        bool passes = taken(m, (int)number, now_us) < MOST;
        assert_int_equal(run(weir, key, now_us, &receipt), passes);
        if (passes) {
            m->holds[i].receipt = receipt;
            m->holds[i].key = number;
            m->holds[i].used = false;
            m->holds[i].until_us = now_us + TTL_S * S;
            m->next++;
        }
    }
}

static void as_the_model_says(void **state)
{
    (void)state;
    struct random random = { random_seed() };
    struct model *m = calloc(1, sizeof *m);
    struct weir *weir = open_rules(RULE("{ concurrent: 4, ttl: 10s }"));
    int64_t now_us = NOW;
    for (int i = 0; i < STEPS; i++) {
        now_us += random_in(&random, 0, 8) == 0 ? random_in(&random, 0, 4 * S) : 0;
        step(weir, m, &random, now_us);
    }
    weir_close(weir);
    free(m);
}

/* ---- hold_max ---- */

static void a_hold_takes_a_part_only(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [ { id: r, by: key, hold_max: 50%, limits: [ { name: budget, max: 101, per: 1h }, "
                   "{ name: running, concurrent: 1 } ] } ]");
    struct weir_receipt a, b;
    struct weir_verdict v;
    struct weir_request reserve = cost_of("e", "k", 51);
    reserve.ttl_ms = 1000;
    assert_false(ask(weir, reserve, NOW, &a, &v)); /* 50% of 101 is 50 */
    assert_string_equal(v.limit, "budget");
    assert_int_equal(v.retry_after_ms, WEIR_NEVER);
    assert_int_equal(in_flight(weir, "r", "running", NOW), 0);
    reserve.cost = 50;
    assert_true(ask(weir, reserve, NOW, &a, &v)); /* hold_max does not apply to slots */
    assert_int_equal(in_flight(weir, "r", "budget", NOW), 1);
    assert_int_equal(in_flight(weir, "r", "running", NOW), 1);
    /* The truth may be more. */
    assert_int_equal(weir_settle(weir, &a, 60, NULL, 0, NOW), 2);
    assert_int_equal(in_flight(weir, "r", "budget", NOW), -1);
    assert_int_equal(in_flight(weir, "r", "running", NOW), 0);
    /* A plain check may take all of it. */
    assert_true(ask(weir, cost_of("e", "z", 101), NOW, &b, NULL));
    weir_release(weir, &b, NOW);
    /* 1% of less than 100 is nothing. */
    set_rules(weir, "rules: [ { id: small, hold_max: 1%, limits: 99 per 1h } ]");
    reserve.cost = 1;
    assert_false(ask(weir, reserve, NOW, &a, &v));
    assert_int_equal(v.retry_after_ms, WEIR_NEVER);
    set_rules(weir, "rules: [ { id: whole, hold_max: 100%, limits: 99 per 1h } ]");
    reserve.cost = 99;
    assert_true(ask(weir, reserve, NOW, &a, &v));
    assert_int_equal(in_flight(weir, "whole", "token_bucket", NOW), 1);
    assert_int_equal(in_flight(weir, "whole", "token_bucket", NOW + S), -1);
    weir_close(weir);
}

/* The rest of a hold is not owed: a part of `max` is all that it may take. */
static void a_hold_takes_a_part_only_with_overdraft(void **state)
{
    static const char *const limits[] = { "{ name: l, max: 100, per: 1h, overdraft: true }",
                                          "{ name: l, algorithm: fixed_window, max: 100, per: 1h, overdraft: true }",
                                          "{ name: l, algorithm: sliding_window, max: 100, per: 1h, overdraft: true }",
                                          "{ name: l, calendar: day, max: 100, overdraft: true }" };
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char rules[300];
        snprintf(rules, sizeof rules, "rules: [ { id: r, by: key, hold_max: 50%%, limits: [ %s ] } ]", limits[i]);
        struct weir *weir = open_rules(rules);
        struct weir_receipt receipt;
        struct weir_verdict v;
        struct weir_request reserve = cost_of("e", "k", 51);
        reserve.ttl_ms = 1000;
        for (int used = 0; used < 2; used++) { /* a cell that is not there, and one that is */
            assert_false(ask(weir, reserve, NOW, &receipt, &v));
            assert_int_equal(v.retry_after_ms, WEIR_NEVER);
            assert_int_equal(v.debt, 0);
            assert_int_equal(v.remaining, used ? 99 : 100);
            if (!used)
                assert_true(check_at(weir, one("e", "k"), NOW).allowed);
        }
        reserve.cost = 50;
        assert_true(ask(weir, reserve, NOW, &receipt, &v));
        weir_close(weir);
    }
}

static void gauges_want_a_time(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("1 concurrent"));
    assert_int_equal(weir_each_in_flight(weir, -1, note, NULL), WEIR_E_INVALID);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_is_taken_and_freed),
        cmocka_unit_test(a_slot_ends_with_its_ttl),
        cmocka_unit_test(no_slot_is_taken),
        cmocka_unit_test(zero_slots_refuse_all),
        cmocka_unit_test(shadow_rules_do_not_leak),
        cmocka_unit_test(plans_and_overrides),
        cmocka_unit_test(rules_change),
        cmocka_unit_test(many_slots),
        cmocka_unit_test(no_room_in_the_table),
        cmocka_unit_test(blocks_of_cells_that_are_reused),
        cmocka_unit_test(no_room_for_the_other_slots),
        cmocka_unit_test(a_busy_subject),
        cmocka_unit_test(a_busy_budget),
        cmocka_unit_test(a_settled_hold_is_not_renewed),
        cmocka_unit_test(many_limits),
        cmocka_unit_test(renewed_by_the_rule),
        cmocka_unit_test(killed_processes),
        cmocka_unit_test(killed_visitors),
        cmocka_unit_test(handed_over),
        cmocka_unit_test(threads),
        cmocka_unit_test(as_the_model_says),
        cmocka_unit_test(a_hold_takes_a_part_only),
        cmocka_unit_test(a_hold_takes_a_part_only_with_overdraft),
        cmocka_unit_test(gauges_want_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
