/* For beginnings of paths, the index finds the templates that template_matches() finds, and no others.
 *
 * TEST_SEED is the seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "match/ruleset.h"
#include "read.h"

enum { RULES = 60, ASKS = 60 };

static const char *any_of(struct random *r, const char *const *list, size_t count)
{
    return list[random_in(r, 0, (int64_t)count - 1)];
}
#define ANY(r, list) any_of(r, list, sizeof(list) / sizeof *(list))

/* Literals that begin each other, in a node, in an entry of the table and beyond it; and those that look like wildcards. */
static const char *const literals[] = { "a", "ab",  "abc",  "abcdefgh", "abcdefghi", "abcdefghijklm",
                                        "b", "%23", "%23x", "%7B",      "12",        "1a" };

static void random_template(struct random *r, struct buf *out)
{
    static const char *const wildcards[] = { "#", "{x}" };
    int64_t depth = random_in(r, 0, 4);
    for (int64_t i = 0; i < depth; i++)
        buf_printf(out, "/%s", random_in(r, 0, 3) ? ANY(r, literals) : ANY(r, wildcards));
    if (depth == 0 || random_in(r, 0, 5) == 0)
        buf_printf(out, "/%s", random_in(r, 0, 1) ? "*" : "");
}

static struct ruleset *random_ruleset(struct random *r)
{
    struct buf yaml;
    buf_init(&yaml, 1 << 20);
    if (random_in(r, 0, 3) == 0)
        buf_printf(&yaml, "settings: { ids: [\"[a-z]2?\"] }\n");
    buf_printf(&yaml, "rules:\n");
    int64_t rules = random_in(r, 1, RULES);
    for (int64_t i = 0; i < rules; i++) {
        buf_printf(&yaml, "- { id: r%d, limits: [1 per 1s], match: { path: [", (int)i);
        for (int64_t k = random_in(r, 0, 5) ? 0 : 1; k >= 0; k--) {
            buf_printf(&yaml, "'");
            random_template(r, &yaml);
            buf_printf(&yaml, "'%s", k ? ", " : "");
        }
        buf_printf(&yaml, "] } }\n");
    }
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    return ruleset;
}

/* The beginning of a path as it is normalised. */
static void random_begin(struct random *r, struct buf *out)
{
    static const char *const others[] = { "#", "{", "{}", "*", "7", "c", "abcdefghijk", "6ba7b810-9dad" };
    for (int64_t i = random_in(r, 0, 4); i >= 0; i--) {
        sv literal = weir_str(random_in(r, 0, 2) ? ANY(r, literals) : ANY(r, others));
        if (sv_starts(literal, SV("%")))
            literal = SV("#x");
        buf_char(out, '/');
        buf_add(out, sv_of(literal.ptr, (size_t)random_in(r, i == 0 ? 1 : (int64_t)literal.len, (int64_t)literal.len)));
    }
    if (random_in(r, 0, 20) == 0)
        out->len = 1;
}

static void note_list(const struct ruleset *ruleset, uint32_t list, bool found[RULES])
{
    if (list & LIST_ONE)
        found[list & ~LIST_ONE] = true;
    for (uint32_t i = 1; !(list & LIST_ONE) && i <= ruleset->pool[list]; i++)
        found[ruleset->pool[list + i]] = true;
}

static sv template_of(const struct ruleset *ruleset, const struct compiled_rule *rule, size_t i)
{
    struct compiled_path path = compiled_path(ruleset, rule, i);
    return path_template(&path);
}

static size_t check_begin(const struct ruleset *ruleset, sv begin)
{
    uint32_t lists[RULESET_LISTS_MAX];
    bool found[RULES] = { false };
    size_t matched = 0, n = prefix_index_find(&ruleset->begin, begin, &ruleset->ids, lists, RULESET_LISTS_MAX);
    assert_true(n <= RULESET_LISTS_MAX);
    for (size_t i = 0; i < n; i++)
        note_list(ruleset, lists[i], found);
    for (size_t i = 0; i < ruleset->rules->rule_count; i++) {
        const struct compiled_rule *rule = &ruleset->compiled[i];
        bool wanted = false;
        for (size_t k = 0; k < rule->rule->match.path_count; k++)
            wanted = wanted || template_matches(template_of(ruleset, rule, k), begin, true, &ruleset->ids);
        if (found[i] != wanted)
            fail_msg("seed %llu: %.*s: rule %zu: found %d", (unsigned long long)random_seed(), SV_FMT(begin), i, found[i]);
        matched += wanted;
    }
    for (size_t cap = 0; cap < n; cap += 1 + cap)
        assert_int_equal(prefix_index_find(&ruleset->begin, begin, &ruleset->ids, lists, cap), cap + 1);
    return matched;
}

static void test_random(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    size_t matched = 0, asked = 0;
    for (int i = 0; i < 300; i++) {
        struct ruleset *ruleset = random_ruleset(&r);
        for (int k = 0; k < ASKS; k++) {
            struct buf begin;
            buf_init(&begin, 1000);
            random_begin(&r, &begin);
            matched += check_begin(ruleset, buf_sv(&begin));
            asked++;
            buf_done(&begin);
        }
        ruleset_free(ruleset);
    }
    assert_true(matched > asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_random) };
    return cmocka_run_group_tests_name("prefix_index", tests, NULL, NULL);
}
