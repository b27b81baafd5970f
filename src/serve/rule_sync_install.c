/* Puts rules into force, and logs what is new: how many rules, and what is wrong with those of the source. */
#include "base/clock.h"
#include "base/hash.h"
#include "engine/handle.h"
#include "serve/log.h"
#include "serve/rule_sync_internal.h"

enum { PROBLEMS_LOGGED_MAX = 50, PROBLEM_BYTES_MAX = 1000, ALONE_NAMED_MAX = 10 };

/* ---- problems of the source ---- */

static bool same_problem(const struct source_problem *a, const struct source_problem *b)
{
    return sv_eq(a->row, b->row) && sv_eq(a->text, b->text) && sv_eq(a->table, b->table);
}

static bool was_known(const struct problems *before, const struct source_problem *problem)
{
    for (size_t i = 0; i < before->count; i++)
        if (same_problem(&before->list[i], problem))
            return true;
    return false;
}

static void log_problem(const struct rule_sync *sync, const struct source_problem *problem)
{
    CLEANUP(buf_done) struct buf line;
    buf_init(&line, RULES_BYTES_MAX);
    source_problem_print(problem, &line);
    sv text = sv_trim(buf_sv(&line));
    log_say(LEVEL_WARNING, "rules", "bad %s: %.*s", sync->is_file ? "rule" : "row", SV_SHOWN(text, PROBLEM_BYTES_MAX));
}

/* Only what is new. */
static void log_problems(const struct rule_sync *sync, const struct source_problem *list, size_t count)
{
    size_t fresh = 0;
    for (size_t i = 0; i < count; i++)
        if (!was_known(&sync->problems, &list[i]) && fresh++ < PROBLEMS_LOGGED_MAX)
            log_problem(sync, &list[i]);
    if (fresh > PROBLEMS_LOGGED_MAX)
        log_say(LEVEL_WARNING, "rules", "and %zu more bad %s; GET /v1/status of the admin listener lists them",
                fresh - PROBLEMS_LOGGED_MAX, sync->is_file ? "rules" : "rows");
    if (count == 0 && sync->problems.count > 0)
        log_say(LEVEL_INFO, "rules", "all %s of %s are good again", sync->is_file ? "rules" : "rows", sync->name);
}

static struct problems copy_problems(const struct source_problem *list, size_t count)
{
    struct problems copy = { 0 };
    copy.list = ARENA_ARRAY(&copy.arena, struct source_problem, count + 1);
    for (; copy.list && copy.count < count; copy.count++) {
        const struct source_problem *from = &list[copy.count];
        copy.list[copy.count] = (struct source_problem){
            .table = arena_copy(&copy.arena, from->table),
            .row = arena_copy(&copy.arena, from->row),
            .rule = arena_copy(&copy.arena, from->rule),
            .text = arena_copy(&copy.arena, from->text),
        };
    }
    return copy;
}

void rule_sync_note_problems(struct rule_sync *sync, const struct source_problem *list, size_t count)
{
    log_problems(sync, list, count);
    struct problems copy = copy_problems(list, count);
    pthread_mutex_lock(&sync->lock);
    struct problems old = sync->problems;
    sync->problems = copy;
    pthread_mutex_unlock(&sync->lock);
    arena_done(&old.arena);
}

/* ---- rules ---- */

/* Warns, once for the same rules, of those that many hosts are to share although there is no store. */
static void warn_of_unshared(struct rule_sync *sync, const struct rules *rules)
{
    static const struct hash_key key = { 0, 0 };
    size_t count = 0;
    struct hash hash;
    CLEANUP(buf_done) struct buf names;
    hash_init(&hash, &key);
    buf_init(&names, 2 * ALONE_NAMED_MAX * WEIR_ID_MAX);
    for (size_t i = 0; !sync->has_store && i < rules->rule_count; i++) {
        const struct rule *rule = rules->rules[i];
        if (rule->kind->counters != COUNTERS_SHARED || rule->kind->mode == MODE_OFF)
            continue;
        hash_text(&hash, rule->id.ptr, rule->id.len);
        if (count++ >= ALONE_NAMED_MAX)
            continue;
        buf_add(&names, count > 1 ? SV(", ") : SV(""));
        buf_add(&names, rule->id);
    }
    uint64_t which = count > 0 ? hash_final(&hash) | 1 : 0;
    if (count > 0 && which != sync->unshared)
        log_say(LEVEL_WARNING, "rules",
                "%zu %s to be shared by many hosts, but without --counters %s on this host alone: %.*s%s", count,
                count == 1 ? "rule is" : "rules are", count == 1 ? "it counts" : "they count", SV_FMT(buf_sv(&names)),
                count > ALONE_NAMED_MAX ? ", …" : "");
    sync->unshared = which;
}

int rule_sync_install(struct rule_sync *sync, struct rules *rules, struct weir_error *error)
{
    size_t count = rules_in_force(rules, clock_now_us());
    struct kept_text *before = &sync->kept;
    CLEANUP(kept_text_done) struct kept_text kept = { 0 };
    kept_text_load(before, sync->copy);
    bool written = rules_text_write(&kept.text, rules, &before->text);
    bool same = written && before->text.rules && sv_eq(buf_sv(&before->text.text), buf_sv(&kept.text.text));
    kept_text_unload(before);
    if (same) {
        rules_free(rules);
    } else {
        warn_of_unshared(sync, rules);
        int r = weir_take_rules(sync->weir, rules, error);
        if (r < 0)
            return r;
        kept_text_take(before, &kept);
    }
    pthread_mutex_lock(&sync->lock);
    bool none_left = sync->rules > 0 && count == 0;
    sync->rules = count;
    pthread_mutex_unlock(&sync->lock);
    if (!same)
        log_say(none_left ? LEVEL_WARNING : LEVEL_INFO, "rules", "%zu %s of %s %s in force%s", count,
                count == 1 ? "rule" : "rules", sync->name, count == 1 ? "is" : "are",
                none_left ? ": every request passes now" : "");
    return !same;
}
