/* The text of a set, put together from that of an earlier set, with which it shares most rules. Both have their rules in
 * the same order, but for those that came, went or changed. */
#include <stdlib.h>

#include "rules/reader.h"

enum { AHEAD_MAX = 16 }; /* rules that were removed in a row; behind more of them all rules are written */

void rules_text_done(struct rules_text *text)
{
    buf_done(&text->text);
    rules_free(text->rules);
    free(text->starts);
    *text = (struct rules_text){ 0 };
}

/* The place of a rule in the earlier set, from `at` on; SIZE_MAX: it is not there, or too far away. */
static size_t find_before(const struct rules *before, const struct rule *rule, size_t at)
{
    for (size_t i = at; i < before->rule_count && i < at + AHEAD_MAX; i++)
        if (rule_is_shared(before->rules[i], rule))
            return i;
    return SIZE_MAX;
}

/* Rules of the earlier text that were not copied yet: from..to. */
struct run {
    const struct rules_text *before;
    size_t from, to;
};

static void copy_run(struct run *run, struct buf *out)
{
    if (run->from < run->to) {
        const uint32_t *starts = run->before->starts;
        buf_add(out, sv_of(run->before->text.ptr + starts[run->from], starts[run->to] - starts[run->from]));
    }
    run->from = run->to;
}

static void write_rules(struct rules_text *ret, const struct rules *rules, const struct rules_text *before)
{
    struct run run = { .before = before };
    for (size_t i = 0; i < rules->rule_count; i++) {
        const struct rule *rule = rules->rules[i];
        size_t found = before->rules ? find_before(before->rules, rule, run.to) : SIZE_MAX;
        if (found != run.to)
            copy_run(&run, &ret->text);
        size_t waiting = before->rules ? before->starts[run.to] - before->starts[run.from] : 0;
        ret->starts[i] = (uint32_t)(ret->text.len + waiting);
        if (found != SIZE_MAX) {
            run.from = found == run.to ? run.from : found;
            run.to = found + 1;
            continue;
        }
        write_rule(&ret->text, rule);
        /* It replaces one that has its id, and may come before others. */
        bool replaces =
            before->rules && run.to < before->rules->rule_count && sv_eq(before->rules->rules[run.to]->id, rule->id);
        run.from = run.to += replaces;
    }
    copy_run(&run, &ret->text);
    ret->starts[rules->rule_count] = (uint32_t)ret->text.len;
}

bool rules_text_write(struct rules_text *ret, struct rules *rules, const struct rules_text *before)
{
    *ret = (struct rules_text){ .starts = calloc(rules->rule_count + 1, sizeof *ret->starts) };
    buf_init(&ret->text, RULES_BYTES_MAX);
    if (ret->starts) {
        write_before_rules(&ret->text, rules);
        write_rules(ret, rules, before);
        write_overrides(&ret->text, rules);
        ret->rules = rules_share(rules);
        buf_trim(&ret->text);
    }
    if (ret->starts && !ret->text.failed)
        return true;
    rules_text_done(ret);
    return false;
}
