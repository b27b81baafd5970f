/* A verdict does not list the rules that applied to a request. So the rules are matched here, and the engine is told which
 * ones apply. */
#include "replay/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/err.h"
#include "engine/handle.h"

int replay_set_rules(struct replay *replay, struct rules *rules, struct weir_error *error)
{
    int r = weir_take_rules(replay->weir, rules, error);
    if (r < 0)
        return r;
    /* Nobody else changes the rules of this handle, so they stay until the next call. */
    replay->ruleset = replay->weir->current->ruleset;
    const struct rules *in_force = ruleset_rules(replay->ruleset);
    uint32_t *applied = realloc(replay->applied, (in_force->rule_count + 1) * sizeof applied[0]);
    if (applied)
        replay->applied = applied;
    return applied && totals_rules(&replay->totals, in_force) ? 0 : err_no_memory(error);
}

/* Large pages take fewer faults and fewer translations of addresses: a third of the time of a decision. But the kernel
 * clears a whole page of 2 MiB for the first key in it, so a short replay is faster without them. */
static int map_table(struct replay *replay, struct weir_options *options, struct weir_error *error)
{
    size_t bytes = 0;
    int r = cells_memory_bytes((struct cells_size){ .keys = options->cells_keys }, &bytes, error);
    if (r < 0)
        return r;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return err_set(error, WEIR_E_NO_MEMORY, "cannot get memory for a table of %zu bytes: %s", bytes, strerror(errno));
    madvise(map, bytes, MADV_HUGEPAGE); /* a kernel without them has small ones */
    replay->table = options->cells_memory = map;
    replay->table_bytes = options->cells_memory_bytes = bytes;
    options->cells_keys = 0;
    return 0;
}

int replay_init(struct replay *replay, struct rules *rules, struct replay_size size, const struct totals_bounds *bounds,
                struct weir_error *error)
{
    struct weir_options options = { .size = sizeof options, .rules_text = "rules: []\n", .cells_keys = size.cells_keys };
    int r = totals_init(&replay->totals, bounds) ? 0 : err_no_memory(error);
    if (r == 0 && size.is_long)
        r = map_table(replay, &options, error);
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
    if (replay->table)
        munmap(replay->table, replay->table_bytes);
    totals_done(&replay->totals);
    free(replay->applied);
}

/* Some limit counts what is in flight: each request has to end before the next one. */
static bool has_slots(const struct replay *replay)
{
    return replay->weir->current->slots;
}

/* Decides requests, only one if there are slots. Returns how many are decided. */
static size_t decide(struct replay *replay, const struct matched *matched, struct weir_request *requests, size_t count,
                     struct weir_verdict *ret)
{
    struct weir_receipt receipt = { 0 };
    if (!has_slots(replay))
        return weir_check_matched(replay->weir, matched, count, ret);
    requests->receipt = &receipt;
    requests->if_held = true;
    size_t decided = weir_check_matched(replay->weir, matched, 1, ret);
    requests->receipt = NULL;
    if (decided && receipt.count > 0) {
        replay->totals.in_flight++;
        weir_release(replay->weir, &receipt, matched->now_us);
    }
    return decided;
}

int replay_decide(struct replay *replay, struct weir_request *request, int64_t now_us, struct weir_verdict *ret)
{
    const struct rules *rules = ruleset_rules(replay->ruleset);
    facts_init(&replay->facts, replay->ruleset, request, request->user);
    replay->applied_count = ruleset_match(replay->ruleset, &replay->facts, now_us, replay->applied, rules->rule_count);
    struct matched matched = { .request = request,
                               .now_us = now_us,
                               .rules = replay->applied,
                               .rule_count = replay->applied_count,
                               .repeated = replay->facts.repeated };
    request->shadows = &replay->shadows;
    request->brief = replay->brief;
    return decide(replay, &matched, request, 1, ret) == 1 ? 0 : WEIR_E_NO_MEMORY;
}

bool replay_count(struct replay *replay, const struct weir_request *request, int64_t now_us,
                  const struct weir_verdict *verdict)
{
    bool unreadable = (request->ip.len > 0 || request->peer.len > 0) && !facts_ip(&replay->facts);
    const struct totals_seen seen = { now_us, replay->applied, replay->applied_count, unreadable };
    return totals_request(&replay->totals, ruleset_rules(replay->ruleset), &replay->facts, &seen, verdict);
}

size_t replay_decide_lines(struct replay *replay, const struct log_block *block, size_t first)
{
    struct replay_batch *batch = &replay->batch;
    struct matched matched[REPLAY_BATCH];
    size_t count = 0, most = has_slots(replay) ? 1 : REPLAY_BATCH;
    for (; count < most && first + count < block->count; count++) {
        const struct log_line *line = &block->lines[first + count];
        struct weir_request *request = &batch->requests[count];
        if (line->why)
            break;
        log_request_as(&line->request, request, batch->headers[count]);
        request->shadows = &batch->shadows[count];
        request->brief = replay->brief;
        matched[count] = (struct matched){ .request = request,
                                           .now_us = line->request.now_us,
                                           .rules = block->rules + line->first_rule,
                                           .rule_count = line->rule_count,
                                           .subjects = block->subjects + line->first_rule };
    }
    batch->first = first;
    return decide(replay, matched, batch->requests, count, batch->verdicts);
}

bool replay_count_line(struct replay *replay, const struct log_block *block, size_t number)
{
    const struct log_line *line = &block->lines[replay->batch.first + number];
    const struct weir_request *request = &replay->batch.requests[number];
    const struct totals_seen seen = { line->request.now_us, block->rules + line->first_rule, line->rule_count,
                                      line->unreadable };
    facts_init(&replay->facts, replay->ruleset, request, request->user);
    return totals_request(&replay->totals, ruleset_rules(replay->ruleset), &replay->facts, &seen,
                          &replay->batch.verdicts[number]);
}
