/* Descriptors: names of entries, texts of all of them, and rules that match them; the index, the slow explanation and a
 * model must agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "read.h"

static const int64_t now_us = INT64_C(1700000000) * US_PER_S;

#define PICK(r, words) ((words)[random_in((r), 0, (int64_t)(sizeof(words) / sizeof(words)[0]) - 1)])

static void assert_sv(sv found, sv wanted)
{
    if (!sv_eq(found, wanted))
        fail_msg("found %.*s, not %.*s", SV_FMT(found), SV_FMT(wanted));
}

/* ---- names ---- */

static void names_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *error;
    } cases[] = {
        { "user", "user", NULL },     { "User Id", "User Id", NULL }, { "a#2", "a#2", NULL },
        { "a#256", "a#256", NULL },   { "a%232", "a%232", NULL },     { "a%2cb", "a%2Cb", NULL },
        { "a,b", "a%2Cb", NULL },     { "%25", "%25", NULL },         { "a=b", "a=b", NULL },
        { "a#1", NULL, "after `#`" }, { "a#257", NULL, "after `#`" }, { "a#02", NULL, "after `#`" },
        { "a#", NULL, "after `#`" },  { "a#2#3", NULL, "after `#`" }, { "a%", NULL, "a `%`" },
        { "a%2", NULL, "a `%`" },     { "a%3D", NULL, "a `%`" },      { "", NULL, "1 to 300" },
        { "#2", NULL, "1 to 300" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char room[100];
        sv name;
        const char *allowed;
        bool good = descriptor_name_read(weir_str(cases[i].text), room, &name, &allowed);
        assert_int_equal(good, cases[i].name != NULL);
        if (good)
            assert_sv(name, weir_str(cases[i].name));
        else
            assert_non_null(strstr(allowed, cases[i].error));
    }
    char text[301], room[3 * sizeof text];
    sv name;
    const char *allowed;
    memset(text, 'k', sizeof text);
    assert_true(descriptor_name_read(sv_of(text, 300), room, &name, &allowed));
    assert_false(descriptor_name_read(sv_of(text, 301), room, &name, &allowed));
    memset(text, ',', sizeof text);
    assert_true(descriptor_name_read(sv_of(text, 100), room, &name, &allowed));
    assert_false(descriptor_name_read(sv_of(text, 101), room, &name, &allowed));
}

#define ENTRY(key, value)              \
    {                                  \
        WEIR_STR(key), WEIR_STR(value) \
    }
#define REQUEST(...)                                                                                   \
    {                                                                                                  \
        .descriptor = (struct weir_header[]){ __VA_ARGS__ },                                           \
        .descriptor_count = sizeof((struct weir_header[]){ __VA_ARGS__ }) / sizeof(struct weir_header) \
    }

static sv found_value(const struct weir_request *request, const char *name)
{
    const struct weir_header *entry = descriptor_find(request, weir_str(name));
    return entry ? entry->value : SV("(none)");
}

static void entries_are_found(void **state)
{
    (void)state;
    struct weir_request r = REQUEST(ENTRY("a", "1"), ENTRY("a#2", "2"), ENTRY("a", "3"), ENTRY("a", ""), ENTRY("%", "5"),
                                    ENTRY("a,b", "6"), ENTRY("a%232", "7"), ENTRY("x\0y", "8"), ENTRY("A", "9"));
    char room[DESCRIPTOR_TEXT_MAX];
    assert_sv(found_value(&r, "a"), SV("1"));
    assert_sv(found_value(&r, "a#2"), SV("3"));
    assert_sv(found_value(&r, "a#3"), SV(""));
    assert_sv(found_value(&r, "a#4"), SV("(none)"));
    assert_sv(found_value(&r, "a%232"), SV("2"));
    assert_sv(found_value(&r, "a%25232"), SV("7"));
    assert_sv(found_value(&r, "%25"), SV("5"));
    assert_sv(found_value(&r, "a%2Cb"), SV("6"));
    assert_sv(found_value(&r, "A"), SV("9"));
    assert_sv(found_value(&r, "x"), SV("(none)"));
    assert_sv(descriptor_keys(&r, room), SV("a,a%232,a#2,a#3,%25,a%2Cb,a%25232,x\0y,A"));
    assert_sv(descriptor_text(&r, room), SV("a=1,a#2=2,a=3,a=,%25=5,a%2Cb=6,a%25232=7,x\0y=8,A=9"));
    for (size_t i = 0; i < r.descriptor_count; i++) {
        sv name = descriptor_name(&r, i, room);
        assert_ptr_equal(descriptor_find(&r, name), &r.descriptor[i]);
    }
    struct weir_request none = { 0 };
    assert_int_equal(descriptor_keys(&none, room).len, 0);
    assert_int_equal(descriptor_text(&none, room).len, 0);
    assert_null(descriptor_find(&none, SV("a")));
}

/* A value that looks like another entry is not one. */
static void texts_are_told_apart(void **state)
{
    (void)state;
    const struct weir_request requests[] = {
        REQUEST(ENTRY("a", "x"), ENTRY("b", "y")),
        REQUEST(ENTRY("a", "x,b=y")),
        REQUEST(ENTRY("a", "x%2Cb=y")),
        REQUEST(ENTRY("a", "x%2Cb%3Dy")),
        REQUEST(ENTRY("a=x,b", "y")),
        REQUEST(ENTRY("a=x", "b=y")),
        REQUEST(ENTRY("b", "y"), ENTRY("a", "x")),
        REQUEST(ENTRY("a", "x"), ENTRY("b", "y"), ENTRY("b", "")),
        REQUEST(ENTRY("a", "")),
        REQUEST(ENTRY("a", " ")),
        REQUEST(ENTRY("a", "x")),
        REQUEST(ENTRY("a", "x"), ENTRY("b", "")),
        REQUEST(ENTRY("a", "x\0")),
        REQUEST(ENTRY("A", "x")),
    };
    const size_t count = sizeof requests / sizeof *requests;
    for (size_t i = 0; i < count; i++) {
        char room[DESCRIPTOR_TEXT_MAX], again[DESCRIPTOR_TEXT_MAX], bytes[100];
        struct weir_header entries[WEIR_DESCRIPTOR_MAX];
        sv text = descriptor_text(&requests[i], room);
        for (size_t k = 0; k < i; k++)
            assert_false(sv_eq(text, descriptor_text(&requests[k], again)));
        struct weir_request read = { .descriptor = entries };
        read.descriptor_count = descriptor_read(text, bytes, entries);
        assert_int_equal(read.descriptor_count, requests[i].descriptor_count);
        assert_sv(descriptor_text(&read, again), text);
    }
    static const char *const bad[] = { "", "a", "a=b,", ",a=b", "=b", "a=b=c", "a=%", "a=%41", "a=%2", "a=b,c" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char bytes[100];
        struct weir_header entries[WEIR_DESCRIPTOR_MAX];
        assert_int_equal(descriptor_read(weir_str(bad[i]), bytes, entries), 0);
    }
}

/* Texts that are longer than their room: they differ wherever they differ, and the room is never exceeded. */
static void long_texts_keep_their_differences(void **state)
{
    (void)state;
    enum { LONG = 8192, MANY = WEIR_DESCRIPTOR_MAX + 10 };
    static char value[LONG], room[DESCRIPTOR_TEXT_MAX], other[DESCRIPTOR_TEXT_MAX];
    static struct weir_header entries[MANY];
    struct weir_request request = { .descriptor = entries, .descriptor_count = 3 };
    memset(value, ',', sizeof value);
    for (size_t i = 0; i < MANY; i++)
        entries[i] = (struct weir_header){ WEIR_STR("k"), { value, LONG } };
    sv before = descriptor_text(&request, room);
    assert_true(before.len <= DESCRIPTOR_TEXT_MAX && memmem(before.ptr, before.len, "%#", 2));
    for (size_t at = 0; at < LONG; at += 331) {
        value[at] = 'x';
        assert_false(sv_eq(before, descriptor_text(&request, other)));
        value[at] = ',';
    }
    assert_sv(descriptor_text(&request, other), before);
    entries[2].value.len--;
    assert_false(sv_eq(before, descriptor_text(&request, other)));
    entries[2].value.len++;
    for (size_t len = 0; len < LONG; len += 1 + len / 37) { /* each length of the room is met */
        struct weir_header one = { WEIR_STR("k"), { value, len } };
        struct weir_request short_one = { .descriptor = &one, .descriptor_count = 1 };
        sv text = descriptor_text(&short_one, other);
        assert_true(text.len <= DESCRIPTOR_TEXT_MAX && (3 * len + 2 > DESCRIPTOR_TEXT_MAX || text.len == 3 * len + 2));
    }
    request.descriptor_count = MANY;
    sv keys = descriptor_keys(&request, room);
    assert_true(sv_starts(keys, SV("k,k#2,k#3,")));
    request.descriptor_count = WEIR_DESCRIPTOR_MAX; /* more are not seen */
    assert_sv(descriptor_keys(&request, other), keys);
    assert_ptr_equal(descriptor_find(&request, SV("k#256")), &entries[255]);
    request.descriptor_count--;
    assert_false(sv_eq(descriptor_keys(&request, other), keys));
    assert_null(descriptor_find(&request, SV("k#256")));
}

/* ---- rules, against a model ---- */

/* A key, and how texts write it. */
static const struct {
    const char *key, *written;
} keys[] = { { "a", "a" }, { "b", "b" }, { "a#2", "a%232" }, { "a,b", "a%2Cb" }, { "%", "%25" }, { "A", "A" } };
enum { KEYS = sizeof keys / sizeof *keys };

static const sv values[] = { { "", 0 }, { "x", 1 }, { "y", 1 }, { " x", 2 }, { "x,b=y", 5 }, { "x\0y", 3 }, { "X", 1 } };
static const char *const domains[] = { "", "d1", "d2", " d1" };

/* What a condition says, and the values that it holds for; "(absent)": for a descriptor without the entry,
 * "(nul)": for x, NUL, y. */
static const struct {
    const char *yaml;
    const char *holds[8];
} conditions[] = {
    { "x", { "x" } },
    { "''", { "" } },
    { "[y, '']", { "y", "" } },
    { "' x'", { " x" } },
    { "'x,b=y'", { "x,b=y" } },
    { "{ not: x }", { "(absent)", "", "y", " x", "x,b=y", "(nul)", "X" } },
    { "{ not: '' }", { "(absent)", "x", "y", " x", "x,b=y", "(nul)", "X" } },
    { "{ present: true, not: [x, y] }", { "", " x", "x,b=y", "(nul)", "X" } },
    { "{ present: true }", { "", "x", "y", " x", "x,b=y", "(nul)", "X" } },
    { "{ absent: true }", { "(absent)" } },
    { "{ prefix: x, not: 'x,b=y' }", { "x", "(nul)" } },
    { "{ glob: 'x*y' }", { "x,b=y", "(nul)" } },
    { "{ is: ['', { prefix: y }], not: yy }", { "", "y" } },
};
static bool model_allows(size_t condition, const sv *value)
{
    for (size_t i = 0; i < 8 && conditions[condition].holds[i]; i++) {
        const char *text = conditions[condition].holds[i];
        sv wanted = strcmp(text, "(nul)") == 0 ? SV("x\0y") : weir_str(text);
        if (value ? sv_eq(*value, wanted) : strcmp(text, "(absent)") == 0)
            return true;
    }
    return false;
}

enum { RULES = 40, ENTRIES = 4, CONDITIONS = 2, BY = 2 };

struct model_name {
    size_t key;
    unsigned number;
};

struct model_rule {
    const char *domain;
    int key_count; /* in descriptor_keys; 0: no condition on it */
    size_t key[ENTRIES];
    bool keys_not; /* … which is a `not` */
    int condition_count;
    struct model_name name[CONDITIONS];
    size_t condition[CONDITIONS];
    int by_count;
    struct model_name by[BY];
    bool by_all, by_keys, limit_absent, limit_present;
};

struct model_request {
    const char *domain;
    int count;
    size_t key[ENTRIES], value[ENTRIES];
    bool limit;
};

static bool same_name(struct model_name a, struct model_name b)
{
    return a.key == b.key && a.number == b.number;
}

static struct model_name random_name(struct random *r)
{
    return (struct model_name){ (size_t)random_in(r, 0, KEYS - 1), random_one_in(r, 3) ? (unsigned)random_in(r, 2, 3) : 1 };
}

static struct model_rule random_rule(struct random *r)
{
    struct model_rule rule = { .domain = PICK(r, domains), .keys_not = random_one_in(r, 5) };
    rule.key_count = random_one_in(r, 2) ? (int)random_in(r, 1, 2) : 0;
    for (int i = 0; i < rule.key_count; i++)
        rule.key[i] = (size_t)random_in(r, 0, random_one_in(r, 2) ? 1 : KEYS - 1);
    rule.condition_count = (int)random_in(r, 0, CONDITIONS);
    for (int i = 0; i < rule.condition_count; i++) {
        do
            rule.name[i] = random_name(r);
        while (i > 0 && same_name(rule.name[i], rule.name[0]));
        rule.condition[i] = (size_t)random_in(r, 0, (int64_t)(sizeof conditions / sizeof *conditions) - 1);
    }
    rule.by_count = (int)random_in(r, 0, BY);
    for (int i = 0; i < rule.by_count; i++)
        do
            rule.by[i] = random_name(r);
        while (i > 0 && same_name(rule.by[i], rule.by[0]));
    rule.by_all = random_one_in(r, 5);
    rule.by_keys = random_one_in(r, 5);
    rule.limit_absent = random_one_in(r, 5);
    rule.limit_present = !rule.limit_absent && random_one_in(r, 5);
    return rule;
}

static void write_name(struct buf *out, struct model_name name)
{
    buf_add(out, weir_str(keys[name.key].written));
    if (name.number > 1)
        buf_printf(out, "#%u", name.number);
}

static void write_keys(struct buf *out, const size_t *key, int count)
{
    for (int i = 0; i < count; i++) {
        struct model_name name = { key[i], 1 };
        for (int k = 0; k < i; k++)
            name.number += key[k] == key[i];
        buf_add(out, i ? SV(",") : SV(""));
        write_name(out, name);
    }
}

static void write_rule(struct buf *out, const struct model_rule *rule, int number)
{
    bool any = rule->domain[0] || rule->key_count || rule->condition_count || rule->limit_absent || rule->limit_present;
    buf_printf(out, "- id: r%d\n  limits: [1 per 1s]\n%s", number, any ? "  match:\n" : "");
    if (rule->domain[0])
        buf_printf(out, "    domain: '%s'\n", rule->domain);
    if (rule->key_count) {
        buf_printf(out, "    descriptor_keys: %s'", rule->keys_not ? "{ not: " : "");
        write_keys(out, rule->key, rule->key_count);
        buf_printf(out, "'%s\n", rule->keys_not ? " }" : "");
    }
    for (int i = 0; i < rule->condition_count; i++) {
        buf_add(out, i ? SV(", '") : SV("    descriptor: { '"));
        write_name(out, rule->name[i]);
        buf_printf(out, "': %s%s", conditions[rule->condition[i]].yaml, i + 1 == rule->condition_count ? " }\n" : "");
    }
    if (rule->limit_absent || rule->limit_present)
        buf_printf(out, "    descriptor_limit: { %s: true }\n", rule->limit_absent ? "absent" : "present");
    buf_printf(out, "  by: [");
    for (int i = 0; i < rule->by_count; i++) {
        buf_add(out, i ? SV(", 'descriptor:") : SV("'descriptor:"));
        write_name(out, rule->by[i]);
        buf_add(out, SV("'"));
    }
    buf_printf(out, "%s%s%s%s]\n", rule->by_count && rule->by_all ? ", " : "", rule->by_all ? "descriptor" : "",
               (rule->by_count || rule->by_all) && rule->by_keys ? ", " : "", rule->by_keys ? "descriptor_keys" : "");
}

static const sv *model_value(const struct model_request *request, struct model_name name)
{
    unsigned number = 0;
    for (int i = 0; i < request->count; i++)
        if (request->key[i] == name.key && ++number == name.number)
            return &values[request->value[i]];
    return NULL;
}

static bool model_applies(const struct model_rule *rule, const struct model_request *request)
{
    bool same = rule->key_count == request->count;
    for (int i = 0; same && i < rule->key_count; i++)
        same = rule->key[i] == request->key[i];
    if ((rule->domain[0] && strcmp(rule->domain, request->domain) != 0) || (rule->key_count && same == rule->keys_not) ||
        (rule->limit_absent && request->limit) || (rule->limit_present && !request->limit))
        return false;
    for (int i = 0; i < rule->condition_count; i++)
        if (!model_allows(rule->condition[i], model_value(request, rule->name[i])))
            return false;
    for (int i = 0; i < rule->by_count; i++)
        if (!model_value(request, rule->by[i]))
            return false;
    return request->count > 0 || (!rule->by_all && !rule->by_keys);
}

static struct weir_request random_request(struct random *r, struct model_request *model, struct weir_header *entries)
{
    *model = (struct model_request){ .domain = PICK(r, domains),
                                     .count = (int)random_in(r, 0, ENTRIES),
                                     .limit = random_one_in(r, 3) };
    for (int i = 0; i < model->count; i++) {
        model->key[i] = (size_t)random_in(r, 0, random_one_in(r, 2) ? 1 : KEYS - 1);
        model->value[i] = (size_t)random_in(r, 0, (int64_t)(sizeof values / sizeof *values) - 1);
        sv value = values[model->value[i]];
        entries[i] = (struct weir_header){ weir_str(keys[model->key[i]].key), value.len ? value : (sv){ 0 } };
    }
    return (struct weir_request){ .domain = weir_str(model->domain),
                                  .descriptor = entries,
                                  .descriptor_count = (size_t)model->count,
                                  .given_max = 5,
                                  .given_window_ms = model->limit ? 1000 : 0 };
}

static void check_round(struct random *r, int round, size_t *applied)
{
    struct model_rule rules[RULES];
    int count = (int)random_in(r, 1, RULES);
    struct buf yaml;
    buf_init(&yaml, 1 << 20);
    buf_printf(&yaml, "rules:\n");
    for (int i = 0; i < count; i++) {
        rules[i] = random_rule(r);
        write_rule(&yaml, &rules[i], i);
    }
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    for (int ask = 0; ask < 60; ask++) {
        struct model_request model;
        struct weir_header entries[ENTRIES];
        struct weir_request request = random_request(r, &model, entries);
        struct facts facts, again;
        uint32_t found[RULES];
        facts_init(&facts, ruleset, &request, request.user);
        facts_init(&again, ruleset, &request, request.user);
        size_t n = ruleset_match(ruleset, &facts, now_us, found, RULES), at = 0;
        for (int i = 0; i < count; i++) {
            sv detail;
            bool matched = at < n && found[at] == (uint32_t)i;
            bool explained = ruleset_explain(ruleset, (size_t)i, &again, now_us, &detail) == MATCH_YES;
            bool wanted = model_applies(&rules[i], &model);
            at += matched;
            if (matched != wanted || explained != wanted)
                fail_msg("seed %llu, round %d, ask %d: rule %d: matched %d, explained %d, the model says %d",
                         (unsigned long long)random_seed(), round, ask, i, matched, explained, wanted);
        }
        assert_int_equal(at, n);
        *applied += n;
    }
    ruleset_free(ruleset);
}

static void rules_apply_as_the_model_says(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    size_t applied = 0;
    for (int round = 0; round < 1500; round++)
        check_round(&r, round, &applied);
    assert_true(applied > 10000);
}

/* More entries than a request merges lists for: every rule is looked at. */
static void many_entries(void **state)
{
    (void)state;
    enum { ALL = WEIR_DESCRIPTOR_MAX };
    static struct weir_header entries[ALL];
    static char key[ALL][8];
    static uint32_t found[3 * ALL];
    struct buf yaml;
    buf_init(&yaml, 1 << 20);
    buf_printf(&yaml, "rules:\n- { id: all, limits: [1 per 1s], by: descriptor }\n");
    for (int i = 0; i < ALL; i++) {
        buf_printf(&yaml, "- { id: r%d, limits: [1 per 1s], match: { descriptor: { k%d: v } } }\n", i, i);
        buf_printf(&yaml, "- { id: s%d, limits: [1 per 1s], match: { descriptor: { k%d: w } } }\n", i, i);
        snprintf(key[i], sizeof key[i], "k%d", i);
        entries[i] = (struct weir_header){ weir_str(key[i]), WEIR_STR("v") };
    }
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    for (size_t count = 0; count <= ALL; count += 32) {
        struct weir_request request = { .descriptor = entries, .descriptor_count = count };
        struct facts facts;
        facts_init(&facts, ruleset, &request, request.user);
        assert_int_equal(ruleset_match(ruleset, &facts, now_us, found, 3 * ALL), count + (count > 0));
    }
    ruleset_free(ruleset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read),
        cmocka_unit_test(entries_are_found),
        cmocka_unit_test(texts_are_told_apart),
        cmocka_unit_test(long_texts_keep_their_differences),
        cmocka_unit_test(rules_apply_as_the_model_says),
        cmocka_unit_test(many_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
