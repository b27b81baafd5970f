/* Several requests in one decision against a slow model of it, on random schedules of a virtual clock that goes forward:
 * parts that share counters, rules that replace others, limits that requests bring, costs that are charged always or given
 * back, shadow rules, peeks. After each step what each part says for itself has to be what the model says.
 *
 * With SIM_STORE all rules count in a real redis-server, whose clock is the virtual one. TEST_SEED and TEST_ROUNDS are as
 * in engine.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "engine/handle.h"
#ifdef SIM_STORE
#include "servers.h"
#endif

#define MS INT64_C(1000)
#define S INT64_C(1000000)

enum { RULES = 6, LIMITS = 2, PARTS = 5, COUNTS = 400, ENTRIES = PARTS * RULES * LIMITS, STEPS = 40, TEXT = 40 };
#ifdef SIM_STORE
enum { SCHEDULES = 150 };
#else
enum { SCHEDULES = 5000 };
#endif

enum by { BY_NOTHING, BY_KEY, BY_EVENT };
enum what { FIXED, MINUTE, GIVEN };

struct m_limit {
    enum what what;
    uint64_t max;
    int64_t per_us;
};

struct m_rule {
    char id[TEXT];
    int event; /* that it matches; -1: any */
    enum by by;
    bool shadow;
    struct m_limit limits[LIMITS];
    int limit_count; /* 0: none */
    bool replaces[RULES];
};

struct m_part {
    int event, key;
    uint64_t cost;
    enum weir_charging charging;
    uint64_t given_max;
    int64_t given_us; /* 0: none */
};

/* What a limit has counted for a subject. */
struct m_count {
    int rule, limit, subject;
    int64_t given_us;
    uint64_t count;
    int64_t end_us;
};

/* One limit of one rule for one part. */
struct m_entry {
    int part, rule, limit;
    struct m_count *count;
    struct m_limit numbers;
    uint64_t cost, so_far, total;
    enum weir_charging charging; /* what costs nothing is looked at */
    struct m_entry *leader;
    bool fits;      /* the part's own costs, after those before it */
    uint64_t shown; /* the count that is told of */
};

struct schedule {
    uint64_t seed;
    struct random rnd;
    struct weir *weir;
    struct m_rule rules[RULES];
    int rule_count;
    struct m_count counts[COUNTS];
    int count_count;
    int64_t now_us;
    int step;
};

static int64_t pick(struct schedule *s, int64_t low, int64_t high)
{
    return random_in(&s->rnd, low, high);
}

static bool one_in(struct schedule *s, int n)
{
    return random_one_in(&s->rnd, n);
}

/* ---- rules ---- */

static void pick_rule(struct schedule *s, int i)
{
    struct m_rule *r = &s->rules[i];
    *r = (struct m_rule){ .event = one_in(s, 2) ? -1 : (int)pick(s, 0, 2),
                          .by = (enum by)pick(s, BY_NOTHING, BY_EVENT),
                          .shadow = one_in(s, 3) };
    snprintf(r->id, sizeof r->id, "r%d-%llu", i, (unsigned long long)s->seed);
    bool given = one_in(s, 4);
    r->limit_count = given ? 1 : one_in(s, 6) ? 0 : (int)pick(s, 1, LIMITS);
    for (int k = 0; k < r->limit_count; k++) {
        struct m_limit *l = &r->limits[k];
        l->what = given ? GIVEN : (enum what)pick(s, FIXED, MINUTE);
        l->max = one_in(s, 12) ? 0 : (uint64_t)pick(s, 1, 12);
        l->per_us = pick(s, 1, 90) * S;
    }
    for (int k = 0; k < s->rule_count; k++)
        r->replaces[k] = k != i && one_in(s, 12);
}

static void put_in_force(struct schedule *s)
{
    char text[8000], *to = text;
    for (int i = 0; i < s->rule_count; i++) {
        const struct m_rule *r = &s->rules[i];
        static const char *const by[] = { "[]", "[\"key\"]", "[\"event\"]" };
        to += sprintf(to, "%s{\"id\":\"%s\",\"mode\":\"%s\",\"by\":%s", i ? ",\n" : "[", r->id,
                      r->shadow ? "shadow" : "enforce", by[r->by]);
        if (r->event >= 0)
            to += sprintf(to, ",\"match\":{\"event\":\"e%d\"}", r->event);
        if (r->limit_count == 0)
            to += sprintf(to, ",\"limits\":\"none\"");
        else if (r->limits[0].what == GIVEN)
            to += sprintf(to, ",\"limits\":\"given\"");
        for (int k = 0; k < r->limit_count && r->limits[0].what != GIVEN; k++) {
            const struct m_limit *l = &r->limits[k];
            to +=
                sprintf(to, "%s{\"name\":\"l%d\",\"max\":%llu,", k ? "," : ",\"limits\":[", k, (unsigned long long)l->max);
            if (l->what == FIXED)
                to += sprintf(to, "\"algorithm\":\"fixed_window\",\"per\":\"%llds\"}", (long long)(l->per_us / S));
            else
                to += sprintf(to, "\"calendar\":\"minute\"}");
            if (k == r->limit_count - 1)
                to += sprintf(to, "]");
        }
        bool first = true;
        for (int k = 0; k < s->rule_count; k++)
            if (r->replaces[k]) {
                to += sprintf(to, "%s\"%s\"", first ? ",\"replaces\":[" : ",", s->rules[k].id);
                first = false;
            }
        to += sprintf(to, first ? "}" : "]}");
    }
    sprintf(to, "]");
    struct weir_error error = { .code = WEIR_OK };
    if (weir_set_rules(s->weir, text, strlen(text), &error) < 0)
        fail_msg("seed %llu: %s\n%s", (unsigned long long)s->seed, error.text, text);
}

/* ---- the model ---- */

static bool applies(const struct m_rule *r, const struct m_part *p)
{
    return (r->event < 0 || r->event == p->event) &&
           !(r->limit_count > 0 && r->limits[0].what == GIVEN && p->given_us == 0);
}

static struct m_count *find_count(struct schedule *s, int rule, int limit, const struct m_part *p)
{
    const struct m_rule *r = &s->rules[rule];
    int subject = r->by == BY_KEY ? p->key : r->by == BY_EVENT ? 100 + p->event : -1;
    int64_t given_us = r->limits[limit].what == GIVEN ? p->given_us : 0;
    for (int i = 0; i < s->count_count; i++) {
        struct m_count *c = &s->counts[i];
        if (c->rule == rule && c->limit == limit && c->subject == subject && c->given_us == given_us)
            return c;
    }
    assert_true(s->count_count < COUNTS);
    s->counts[s->count_count] = (struct m_count){ .rule = rule, .limit = limit, .subject = subject, .given_us = given_us };
    return &s->counts[s->count_count++];
}

static int64_t window_end(const struct m_entry *e, int64_t now_us)
{
    int64_t length = e->numbers.what == GIVEN ? e->count->given_us : 60 * S;
    return e->numbers.what == FIXED ? now_us + e->numbers.per_us : now_us - now_us % length + length;
}

static void charge(struct m_entry *e, int64_t now_us, uint64_t cost)
{
    if (cost > 0 && e->count->count == 0)
        e->count->end_us = window_end(e, now_us);
    e->count->count += cost;
}

static bool has_room(const struct m_entry *e, uint64_t used, uint64_t cost)
{
    return e->numbers.max > 0 && used + cost <= e->numbers.max;
}

/* What costs nothing is looked at, unless others charge the same count always: then it is one of these. */
static void set_looks(struct m_entry *entries, int n)
{
    for (int i = 0; i < n; i++) {
        bool charged = entries[i].charging != WEIR_CHARGE_ALWAYS;
        for (int k = 0; k < n; k++)
            charged = charged || (entries[k].count == entries[i].count && entries[k].cost > 0 &&
                                  entries[k].charging == WEIR_CHARGE_ALWAYS);
        if (!charged)
            entries[i].charging = WEIR_CHARGE_IF_ROOM;
    }
}

/* Of one mode, one part after another. */
static int plan(struct schedule *s, const struct m_part *parts, int count, bool shadow, struct m_entry *entries)
{
    int n = 0;
    for (int p = 0; p < count; p++)
        for (int i = 0; i < s->rule_count; i++) {
            bool replaced = false;
            for (int k = 0; k < s->rule_count; k++)
                for (int q = 0; q < count; q++)
                    replaced = replaced || (s->rules[k].replaces[i] && applies(&s->rules[k], &parts[q]));
            if (s->rules[i].shadow != shadow || replaced || !applies(&s->rules[i], &parts[p]))
                continue;
            for (int k = 0; k < s->rules[i].limit_count; k++) {
                struct m_entry *e = &entries[n++];
                *e = (struct m_entry){ .part = p, .rule = i, .limit = k, .cost = parts[p].cost, .leader = e };
                e->count = find_count(s, i, k, &parts[p]);
                e->numbers = s->rules[i].limits[k];
                e->charging = parts[p].charging;
                if (e->numbers.what == GIVEN)
                    e->numbers.max = parts[p].given_max;
                if (e->count->end_us <= s->now_us)
                    e->count->count = 0;
            }
        }
    set_looks(entries, n);
    for (int i = 0; i < n; i++) {
        struct m_entry *e = &entries[i];
        for (int k = i - 1; k >= 0; k--)
            if (entries[k].count == e->count && entries[k].charging == e->charging)
                e->leader = entries[k].leader;
        e->leader->total += e->cost;
        e->so_far = e->leader->total;
    }
    return n;
}

/* What is charged always or given back, first. */
static void insist(struct m_entry *entries, int n, bool charges, int64_t now_us)
{
    for (int i = 0; i < n; i++) {
        struct m_entry *e = &entries[i];
        enum weir_charging charging = e->charging;
        uint64_t *count = &e->count->count, later = e->leader->total - e->so_far;
        if (charging == WEIR_GIVE_BACK) {
            if (charges && e->leader == e)
                *count -= e->total < *count ? e->total : *count;
            e->shown = e->leader == e ? *count : e->leader->shown;
            e->fits = true;
        } else if (charging == WEIR_CHARGE_ALWAYS && charges && e->leader->total > 0) {
            if (e->leader == e)
                charge(e, now_us, e->total);
            uint64_t after = e->leader == e ? *count : e->leader->shown + e->leader->total - e->leader->so_far;
            e->shown = after - later;
            e->fits = e->numbers.max > 0 && e->shown <= e->numbers.max;
        }
    }
}

static bool is_counted(const struct m_entry *e, bool charges)
{
    enum weir_charging charging = e->charging;
    return charging == WEIR_GIVE_BACK || (charging == WEIR_CHARGE_ALWAYS && charges && e->leader->total > 0);
}

/* Those from `from` on that charge if there is room: all or none. */
static bool take(struct m_entry **group, int n, bool charges, bool may, int64_t now_us)
{
    bool all = true;
    for (int i = 0; i < n; i++) {
        struct m_entry *e = group[i];
        if (!is_counted(e, charges))
            e->fits = has_room(e, e->count->count, e->so_far);
        if (e->leader == e && !is_counted(e, charges))
            all = all && has_room(e, e->count->count, e->total);
        all = all && e->fits;
    }
    for (int i = 0; all && may && charges && i < n; i++)
        if (group[i]->leader == group[i] && !is_counted(group[i], charges))
            charge(group[i], now_us, group[i]->total);
    for (int i = 0; i < n; i++) {
        struct m_entry *e = group[i];
        if (!is_counted(e, charges))
            e->shown = e->count->count - (all && may && charges ? e->leader->total - e->so_far : 0);
    }
    return all;
}

/* ---- comparing ---- */

static uint64_t left_of(const struct m_entry *e)
{
    return e->shown < e->numbers.max ? e->numbers.max - e->shown : 0;
}

static void own_line(const struct schedule *s, const struct m_entry *entries, int n, int part, char line[300])
{
    const struct m_entry *named = NULL;
    bool allowed = true;
    for (int i = 0; i < n; i++) {
        const struct m_entry *e = &entries[i];
        if (e->part != part)
            continue;
        allowed = allowed && e->fits;
        if (!named || left_of(e) < left_of(named))
            named = e;
    }
    if (!allowed)
        snprintf(line, 300, "refuse");
    else if (!named)
        snprintf(line, 300, "pass");
    else
        snprintf(line, 300, "pass %s %llu of %llu", s->rules[named->rule].id, (unsigned long long)left_of(named),
                 (unsigned long long)named->numbers.max);
}

static void add_shadows(const struct schedule *s, const struct m_entry *entries, int n, int part, char line[300])
{
    for (int i = 0; i < n; i++) {
        bool refuses = false;
        if (entries[i].part != part || entries[i].limit > 0)
            continue;
        for (int k = i; k < n && entries[k].part == part && entries[k].rule == entries[i].rule; k++)
            refuses = refuses || !entries[k].fits;
        if (refuses)
            snprintf(line + strlen(line), 300 - strlen(line), " %s", s->rules[entries[i].rule].id);
    }
}

static void line_of(const struct weir_verdict *v, const struct weir_shadows *shadows, char line[300])
{
    if (!v->allowed)
        snprintf(line, 300, "refuse");
    else if (!v->applied)
        snprintf(line, 300, "pass");
    else
        snprintf(line, 300, "pass %s %llu of %llu", v->rule, (unsigned long long)v->remaining, (unsigned long long)v->max);
    for (uint32_t i = 0; i < shadows->count; i++)
        snprintf(line + strlen(line), 300 - strlen(line), " %s", shadows->names[i]);
}

/* What the shadow rules of a part say. */
static void add_line(const struct weir_verdict *v, char line[300])
{
    char one[300];
    line_of(v, &(struct weir_shadows){ .count = 0 }, one);
    snprintf(line + strlen(line), 300 - strlen(line), "; shadows %.100s", one);
}

static void add_own_line(const struct schedule *s, const struct m_entry *entries, int n, int part, char line[300])
{
    char one[300];
    own_line(s, entries, n, part, one);
    snprintf(line + strlen(line), 300 - strlen(line), "; shadows %.100s", one);
}

/* Shadow rules are decided one by one, of one part after another. */
static void decide_shadows(struct m_entry *entries, int n, bool charges, bool allowed, int64_t now_us)
{
    insist(entries, n, charges, now_us);
    for (int i = 0, end; i < n; i = end) {
        struct m_entry *group[LIMITS * PARTS];
        int count = 0;
        for (end = i; end < n && entries[end].part == entries[i].part && entries[end].rule == entries[i].rule; end++)
            ;
        /* The leaders decide for those that follow them. */
        if (entries[i].leader != &entries[i])
            continue;
        for (int k = 0; k < n; k++)
            if (entries[k].leader >= &entries[i] && entries[k].leader < &entries[end])
                group[count++] = &entries[k];
        take(group, count, charges, allowed, now_us);
    }
}

static void ask(struct schedule *s)
{
    struct m_part parts[PARTS];
    struct weir_request requests[PARTS] = { 0 };
    struct weir_verdict own[PARTS], own_shadow[PARTS], verdict;
    struct weir_shadows shadows[PARTS];
    static char events[3][4] = { "e0", "e1", "e2" }, keys[2][4] = { "k0", "k1" };
    int count = one_in(s, 4) ? 1 : (int)pick(s, 1, PARTS);
    bool peek = one_in(s, 8), charges = false, plain = one_in(s, 2);
    uint64_t given_max = (uint64_t)pick(s, 0, 9);
    for (int i = 0; i < count; i++) {
        struct m_part *p = &parts[i];
        *p = (struct m_part){ (int)pick(s, 0, 2), (int)pick(s, 0, 1), one_in(s, 6) ? 0 : (uint64_t)pick(s, 1, 4), 0, 0, 0 };
        p->charging = plain ? WEIR_CHARGE_IF_ROOM : (enum weir_charging)pick(s, WEIR_CHARGE_IF_ROOM, WEIR_GIVE_BACK);
        if (one_in(s, 3)) {
            p->given_us = one_in(s, 2) ? 10 * S : 60 * S;
            p->given_max = given_max;
        }
        charges = charges || p->cost > 0;
        requests[i] = (struct weir_request){ .event = weir_str(events[p->event]),
                                             .key = weir_str(keys[p->key]),
                                             .cost = p->cost,
                                             .charging = p->charging,
                                             .given_max = p->given_max,
                                             .given_window_ms = (uint64_t)(p->given_us / MS),
                                             .with = i + 1 < count ? &requests[i + 1] : NULL,
                                             .peek = peek && i == 0,
                                             .own = &own[i],
                                             .own_shadow = &own_shadow[i],
                                             .shadows = &shadows[i] };
    }
    charges = charges && !peek;
    memset(shadows, 0x77, sizeof shadows);
    assert_int_equal(weir_check(s->weir, requests, s->now_us, &verdict), 0);

    static struct m_entry enforced[ENTRIES], shadow[ENTRIES];
    struct m_entry *group[ENTRIES];
    int n = plan(s, parts, count, false, enforced), m = plan(s, parts, count, true, shadow);
    for (int i = 0; i < n; i++)
        group[i] = &enforced[i];
    insist(enforced, n, charges, s->now_us);
    bool allowed = take(group, n, charges, true, s->now_us);
    decide_shadows(shadow, m, charges, allowed, s->now_us);
    for (int i = 0; i < count; i++) {
        char is[300], should[300];
        line_of(&own[i], &shadows[i], is);
        add_line(&own_shadow[i], is);
        own_line(s, enforced, n, i, should);
        add_shadows(s, shadow, m, i, should);
        add_own_line(s, shadow, m, i, should);
        for (int k = 0; (strcmp(is, should) != 0 || verdict.allowed != allowed) && k < count; k++)
            print_error("part %d: e%d k%d cost %llu, charging %d, given %llu per %lld ms%s\n", k, parts[k].event,
                        parts[k].key, (unsigned long long)parts[k].cost, (int)parts[k].charging,
                        (unsigned long long)parts[k].given_max, (long long)(parts[k].given_us / MS), peek ? ", peek" : "");
        if (strcmp(is, should) != 0 || verdict.allowed != allowed)
            fail_msg("seed %llu, step %d at %lld, part %d of %d: engine: %s, all %s; model: %s, all %s",
                     (unsigned long long)s->seed, s->step, (long long)s->now_us, i, count, is,
                     verdict.allowed ? "pass" : "refuse", should, allowed ? "pass" : "refuse");
    }
}

/* ---- schedules ---- */

static void run(struct schedule *s, struct weir *weir, uint64_t seed)
{
    *s = (struct schedule){ .seed = seed, .rnd = { seed * UINT64_C(0x9e3779b97f4a7c15) }, .weir = weir };
    s->now_us = (1700000000 + pick(s, 0, 1000000)) * S;
    s->rule_count = (int)pick(s, 1, RULES);
    for (int i = 0; i < s->rule_count; i++)
        pick_rule(s, i);
    put_in_force(s);
    for (s->step = 0; s->step < STEPS; s->step++) {
        ask(s);
        if (one_in(s, 3))
            s->now_us += pick(s, 0, one_in(s, 4) ? 100 : 5) * S;
    }
}

static void every_part_says_what_the_model_says(void **state)
{
    (void)state;
    static struct schedule s;
    struct weir *weir;
    struct weir_options options = { .size = sizeof options, .rules_text = "rules: []", .cells_keys = 2000000 };
    struct weir_error error = { .code = WEIR_OK };
#ifdef SIM_STORE
    static struct redis_server server;
    char address[60];
    assert_true(redis_server_start(&server));
    snprintf(address, sizeof address, "redis://127.0.0.1:%u", server.port);
    options.counters = address;
    options.store_deadline_ms = 60000;
    options.store_hosts = 1;
#endif
    if (weir_open(&weir, &options, &error) < 0)
        fail_msg("%s", error.text);
#ifdef SIM_STORE
    struct weir_store_status status = { 0 };
    weir->store_by_now = true;
    while (!status.up)
        weir_store_status(weir, &status);
#endif
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t first = random_seed(), count = rounds ? strtoull(rounds, NULL, 0) : SCHEDULES;
    for (uint64_t seed = first; seed < first + count; seed++)
        run(&s, weir, seed);
    weir_close(weir);
#ifdef SIM_STORE
    redis_server_stop(&server);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_part_says_what_the_model_says) };
    return cmocka_run_group_tests_name("sim/together", tests, NULL, NULL);
}
