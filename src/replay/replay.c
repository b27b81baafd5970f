/* A verdict does not list the rules that applied to a request, so the same rules are matched once more here. */
#include "replay/replay.h"

#include <stdlib.h>

#include "base/err.h"
#include "engine/handle.h"

/* Takes over the rules for the matching here. */
static int use_rules(struct replay *replay, struct rules *rules, struct weir_error *error)
{
    struct ruleset *ruleset;
    int r = ruleset_new(&ruleset, rules, error);
    if (r < 0)
        return r;
    ruleset_free(replay->ruleset);
    replay->ruleset = ruleset;
    uint32_t *applied = realloc(replay->applied, (ruleset_rules(ruleset)->rule_count + 1) * sizeof applied[0]);
    if (applied)
        replay->applied = applied;
    return applied && totals_rules(&replay->totals, ruleset_rules(ruleset)) ? 0 : err_no_memory(error);
}

int replay_set_rules(struct replay *replay, struct rules *rules, struct weir_error *error)
{
    struct rules *copy = rules_copy(rules);
    int r = use_rules(replay, rules, error);
    if (r == 0 && copy)
        return weir_take_rules(replay->weir, copy, error);
    rules_free(copy);
    return r < 0 ? r : err_no_memory(error);
}

int replay_init(struct replay *replay, struct rules *rules, uint64_t cells_keys, const struct totals_bounds *bounds,
                struct weir_error *error)
{
    struct weir_options options = { .size = sizeof options, .rules_text = "rules: []\n", .cells_keys = cells_keys };
    int r = totals_init(&replay->totals, bounds) ? 0 : err_no_memory(error);
    if (r == 0)
        r = weir_open_with(&replay->weir, &options, NULL, false, error);
    if (r == 0)
        return replay_set_rules(replay, rules, error);
    rules_free(rules);
    return r;
}

void replay_done(struct replay *replay)
{
    if (!replay)
        return;
    weir_close(replay->weir);
    ruleset_free(replay->ruleset);
    totals_done(&replay->totals);
    free(replay->applied);
}

int replay_decide(struct replay *replay, struct weir_request *request, int64_t now_us, struct weir_verdict *ret)
{
    struct weir_receipt receipt;
    request->shadows = &replay->shadows;
    request->receipt = &receipt;
    request->if_held = true;
    int r = weir_check(replay->weir, request, now_us, ret);
    request->receipt = NULL;
    if (r < 0)
        return r;
    if (receipt.count > 0) {
        replay->totals.in_flight++;
        weir_release(replay->weir, &receipt, now_us);
    }
    return 0;
}

bool replay_count(struct replay *replay, const struct weir_request *request, int64_t now_us,
                  const struct weir_verdict *verdict)
{
    const struct rules *rules = ruleset_rules(replay->ruleset);
    facts_init(&replay->facts, replay->ruleset, request, request->user);
    size_t count = ruleset_match(replay->ruleset, &replay->facts, now_us, replay->applied, rules->rule_count);
    return totals_request(&replay->totals, rules, &replay->facts, replay->applied, count, verdict, now_us);
}
