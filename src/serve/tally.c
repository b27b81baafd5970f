#include "serve/tally.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "serve/server.h"
#include "serve/status_facts.h"

struct place_list {
    uint32_t *places; /* of the rules of a loop, in the order of their numbers there: their numbers here */
    size_t count;
};

struct tally {
    struct server *server;
    struct stats *names; /* counts nothing: the ids of all rules, and their numbers */
    struct place_list *loops;
    struct tally_all all;
    struct stats_said *said; /* by number; of the last reading */
    size_t count;
};

void tally_free(struct tally *tally)
{
    if (!tally)
        return;
    for (unsigned i = 0; tally->loops && i <= tally->server->loop_count; i++)
        free(tally->loops[i].places);
    free(tally->loops);
    stats_free(tally->names);
    free(tally->said);
    free(tally);
}

CLEANUP_POINTER(struct tally *, tally_free);

int tally_new(struct tally **ret, struct server *server)
{
    CLEANUP(tally_freep) struct tally *tally = cleanup_calloc(1, sizeof *tally);
    if (!tally)
        return WEIR_E_NO_MEMORY;
    tally->server = server;
    tally->loops = calloc(server->loop_count + 1, sizeof *tally->loops);
    if (!tally->loops || stats_new(&tally->names) < 0)
        return WEIR_E_NO_MEMORY;
    *ret = STEAL(tally);
    return 0;
}

/* ---- reading ---- */

/* Rules that this loop has begun to count since the last time. */
static int learn_places(struct tally *tally, struct place_list *list, const struct stats *stats)
{
    size_t count = stats_rule_count(stats);
    if (count == list->count)
        return 0;
    uint32_t *places = realloc(list->places, count * sizeof *places);
    if (!places)
        return WEIR_E_NO_MEMORY;
    list->places = places;
    while (list->count < count) {
        places[list->count] = (uint32_t)stats_add_rule(tally->names, weir_str(stats_rule_id(stats, list->count)));
        list->count++;
    }
    return 0;
}

int tally_read(struct tally *tally)
{
    struct server *server = tally->server;
    uint64_t totals[OUTCOMES] = { 0 }, without_rule = 0;
    for (unsigned i = 0; i <= server->loop_count; i++)
        if (learn_places(tally, &tally->loops[i], server->loops[i].stats) < 0)
            return WEIR_E_NO_MEMORY;
    size_t count = stats_rule_count(tally->names);
    struct stats_said *said = calloc(count, sizeof *said);
    if (!said)
        return WEIR_E_NO_MEMORY;
    for (unsigned i = 0; i <= server->loop_count; i++) {
        stats_add_said(server->loops[i].stats, tally->loops[i].places, tally->loops[i].count, said, totals);
        without_rule += stats_without_rule(server->loops[i].stats);
    }
    free(tally->said);
    tally->said = said;
    tally->count = count;
    struct weir_store_status store;
    weir_store_status(server->weir, &store);
    tally->all = (struct tally_all){ totals[OUTCOME_ALLOWED], totals[OUTCOME_REFUSED], totals[OUTCOME_SHADOW], without_rule,
                                     status_store_errors(&store) };
    return 0;
}

size_t tally_rule_count(const struct tally *tally)
{
    return tally->count;
}

const char *tally_rule_id(const struct tally *tally, size_t i)
{
    return stats_rule_id(tally->names, i);
}

bool tally_find(const struct tally *tally, sv id, size_t *ret)
{
    return stats_find_rule(tally->names, id, ret) && *ret < tally->count;
}

/* ---- differences ---- */

void tally_mark_done(struct tally_mark *mark)
{
    free(mark->said);
    *mark = (struct tally_mark){ .count = 0 };
}

int tally_set_mark(const struct tally *tally, struct tally_mark *mark)
{
    if (mark->count < tally->count) {
        struct stats_said *said = realloc(mark->said, tally->count * sizeof *said);
        if (!said)
            return WEIR_E_NO_MEMORY;
        mark->said = said;
    }
    if (tally->count > 0)
        memcpy(mark->said, tally->said, tally->count * sizeof *mark->said);
    mark->count = tally->count;
    mark->all = tally->all;
    return 0;
}

struct tally_all tally_since(const struct tally *tally, const struct tally_mark *mark)
{
    const struct tally_all *now = &tally->all, *then = &mark->all;
    return (struct tally_all){
        .allowed = now->allowed - then->allowed,
        .refused = now->refused - then->refused,
        .shadow = now->shadow - then->shadow,
        .without_rule = now->without_rule - then->without_rule,
        .errors = now->errors - then->errors,
    };
}

struct stats_said tally_rule_since(const struct tally *tally, const struct tally_mark *mark, size_t i)
{
    struct stats_said said = tally->said[i];
    if (i < mark->count) {
        said.passed -= mark->said[i].passed;
        said.refused -= mark->said[i].refused;
        said.would_refuse -= mark->said[i].would_refuse;
    }
    return said;
}

static void add_said(struct stats_said *sum, struct stats_said said)
{
    sum->passed += said.passed;
    sum->refused += said.refused;
    sum->would_refuse += said.would_refuse;
}

/* A heap: the least busy rule comes first, and each before its two followers. Moves the one at `i` to its place. */
static void sink(struct tally_rule *heap, size_t count, size_t i)
{
    for (size_t least; (least = 2 * i + 1) < count; i = least) {
        if (least + 1 < count && tally_busy(heap[least + 1].said) < tally_busy(heap[least].said))
            least++;
        if (tally_busy(heap[i].said) <= tally_busy(heap[least].said))
            return;
        struct tally_rule other = heap[i];
        heap[i] = heap[least];
        heap[least] = other;
    }
}

static int compare(const void *left, const void *right)
{
    const struct tally_rule *a = left, *b = right;
    uint64_t busy_a = tally_busy(a->said), busy_b = tally_busy(b->said);
    if (busy_a != busy_b)
        return busy_a < busy_b ? 1 : -1;
    return a->rule < b->rule ? -1 : a->rule > b->rule;
}

size_t tally_busiest(const struct tally *tally, const struct tally_mark *mark, struct tally_rule *ret, size_t most,
                     struct stats_said *ret_rest)
{
    size_t count = 0;
    *ret_rest = (struct stats_said){ 0 };
    for (size_t i = 0; i < tally->count; i++) {
        struct tally_rule rule = { i, tally_rule_since(tally, mark, i) };
        if (tally_busy(rule.said) == 0)
            continue;
        bool other = strcmp(tally_rule_id(tally, i), STATS_OTHER) == 0;
        if (!other && count < most) {
            ret[count++] = rule;
            for (size_t k = count == most ? most / 2 : 0; k-- > 0;)
                sink(ret, count, k);
            continue;
        }
        if (!other && tally_busy(rule.said) > tally_busy(ret[0].said)) {
            struct tally_rule least = ret[0];
            ret[0] = rule;
            sink(ret, count, 0);
            rule = least;
        }
        add_said(ret_rest, rule.said);
    }
    qsort(ret, count, sizeof *ret, compare);
    return count;
}
