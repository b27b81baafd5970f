/* Which rules of a set are those of the set before it. The sets are long, and differ in a few places. */
#include "rules/rules.h"

static bool is_same(const struct rule *a, const struct rule *b)
{
    return rule_is_shared(a, b) || (sv_eq(a->id, b->id) && rule_matches_same(a, b));
}

/* Where two sets agree again, after they differ: both ends count, too. */
struct gap {
    size_t before, after; /* rules of the two that have no counterpart */
};

/* Looks for the smallest gap, of at most `most` rules in all. */
static bool find_gap(const struct rules *before, size_t i, const struct rules *rules, size_t j, size_t most,
                     struct gap *ret)
{
    size_t left = before->rule_count - i, right = rules->rule_count - j;
    for (size_t size = 1; size <= most && size <= left + right; size++) {
        for (size_t a = size > right ? size - right : 0; a <= size && a <= left; a++) {
            size_t b = size - a;
            bool end = a == left && b == right;
            if (end || (a < left && b < right && rule_is_shared(before->rules[i + a], rules->rules[j + b]))) {
                *ret = (struct gap){ a, b };
                return true;
            }
        }
    }
    return false;
}

bool rules_align(const struct rules *before, const struct rules *rules, size_t most, uint32_t *ret)
{
    size_t i = 0, j = 0;
    while (i < before->rule_count || j < rules->rule_count) {
        if (i < before->rule_count && j < rules->rule_count && is_same(before->rules[i], rules->rules[j])) {
            ret[j++] = (uint32_t)i++;
            continue;
        }
        struct gap gap;
        if (!find_gap(before, i, rules, j, most, &gap))
            return false;
        most -= gap.before + gap.after;
        i += gap.before;
        for (size_t k = 0; k < gap.after; k++)
            ret[j++] = UINT32_MAX;
    }
    return true;
}
