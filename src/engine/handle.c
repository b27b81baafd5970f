/* The handle: open, close, status, and the guard. */
#include "engine/handle.h"

#include <stdlib.h>

#include "base/err.h"
#include "engine/hazard.h"
#include "engine/verdict.h"
#include "version.h"

int weir_abi_version(void)
{
    return WEIR_ABI_VERSION;
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}

int64_t weir_now_us(void)
{
    return clock_recent_us();
}

/* ---- open and close ---- */

static int check_options(const struct weir_options *o, struct weir_error *error)
{
    if (!o || o->size < offsetof(struct weir_options, rules_text) || o->size > sizeof *o)
        return err_set(error, WEIR_E_INVALID, "options.size must be sizeof(struct weir_options)");
    return 0;
}

static int check_given(const struct weir_options *o, struct weir_error *error)
{
    if (!o->rules_file == !o->rules_text)
        return err_set(error, WEIR_E_INVALID, "give either options.rules_file or options.rules_text");
    if (o->cells_keys && o->cells_bytes)
        return err_set(error, WEIR_E_INVALID, "give the size of the cells in keys or in bytes, not both");
    if (o->cells_memory && (o->cells_file || o->cells_keys || o->cells_bytes))
        return err_set(error, WEIR_E_INVALID,
                       "options.cells_memory cannot be combined with cells_file, cells_keys or cells_bytes");
    if (o->watch_ms && !o->rules_file)
        return err_set(error, WEIR_E_INVALID, "options.watch_ms needs options.rules_file, the file to watch");
    return 0;
}

static int read_rules(struct weir *weir, struct rules **ret, struct weir_error *error)
{
    const struct weir_options *o = &weir->options;
    if (!o->rules_file) {
        size_t len = o->rules_text_len ? o->rules_text_len : strlen(o->rules_text);
        return weir_read_text(sv_of(o->rules_text, len), NULL, ret, error);
    }
    weir->rules_file = strdup(o->rules_file);
    if (!weir->rules_file)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    return weir_read_file(weir, ret, error);
}

static int read_trusted(struct weir *weir, struct weir_error *error)
{
    sv rest = weir_str(weir->options.trusted_proxies);
    if (!rest.ptr)
        return 0;
    weir->trusted = calloc(rest.len / 2 + 1, sizeof *weir->trusted);
    if (!weir->trusted)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    while (rest.len > 0) {
        size_t len = 0;
        while (len < rest.len && !strchr(" \t\n,", rest.ptr[len]))
            len++;
        sv word = sv_of(rest.ptr, len);
        rest = sv_from(rest, len < rest.len ? len + 1 : len);
        if (len > 0 && !cidr_parse(word, &weir->trusted[weir->trusted_count++]))
            return err_set(error, WEIR_E_INVALID,
                           "a trusted proxy must be an address or a network such as 10.0.0.0/8 or fd00::/8, not `%.*s`",
                           SV_FMT(word));
    }
    return 0;
}

static int open_cells(struct weir *weir, struct weir_error *error)
{
    const struct weir_options *o = &weir->options;
    if (o->cells_memory)
        return cells_open_at(&weir->cells, o->cells_memory, o->cells_memory_bytes, error);
    int r = cells_open(&weir->cells, o->cells_file, (struct cells_size){ o->cells_keys, o->cells_bytes }, error);
    if (r == 0 && cells_copied(weir->cells))
        lender_status_note_copy(weir->cells);
    if (r == 0 && weir->visits)
        cells_disown(weir->cells);
    return r;
}

static int open_store(struct weir *weir, struct weir_error *error)
{
    const struct weir_options *o = &weir->options;
    struct store_options options = { .address = o->counters,
                                     .deadline_ms = (uint32_t)weir_deadline_ms(weir),
                                     .hosts = o->store_hosts,
                                     .visits = weir->visits,
                                     .on_event = o->on_store,
                                     .on_event_data = o->on_store_data };
    if (!o->counters)
        return 0;
    if (!weir->ops)
        return err_set(error, WEIR_E_INVALID, "options.counters: this program has no store");
    int r = weir->ops->open(&weir->store, &options, weir->cells, error);
    /* So that the first decisions of a program find it, if it is there. */
    for (int64_t left_us, until_us = clock_steady_us() + options.deadline_ms * US_PER_MS; r == 0;) {
        uint32_t seen = answers_seen(weir->cells);
        if (weir_store_up(weir) || (left_us = until_us - clock_steady_us()) <= 0)
            break;
        answers_wait(weir->cells, seen, left_us);
    }
    return r;
}

/* Rules first: a mistake there should not leave a new cells file behind. */
static int open_parts(struct weir *weir, struct weir_error *error)
{
    const struct weir_options *o = &weir->options;
    struct rules *rules;
    int r = check_given(o, error);
    if (r == 0)
        r = read_trusted(weir, error);
    if (r == 0)
        r = read_rules(weir, &rules, error);
    if (r < 0)
        return r;
    r = open_cells(weir, error);
    if (r < 0) {
        rules_free(rules);
        return r;
    }
    r = open_store(weir, error);
    if (r < 0) {
        rules_free(rules);
        return r;
    }
    weir_problems_of(rules, &weir->rules_error); /* nobody else knows the handle yet */
    r = weir_install(weir, rules, error);
    return r == 0 && o->watch_ms ? weir_watch_start(weir, error) : r;
}

int weir_open_with(struct weir **ret, const struct weir_options *options, const struct store_ops *ops, bool visits,
                   struct weir_error *error)
{
    int r = check_options(options, error);
    if (r < 0)
        return r;
    struct weir *weir = calloc(1, sizeof *weir);
    if (!weir)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    memcpy(&weir->options, options, options->size);
    weir->ops = ops;
    weir->visits = visits;
    pthread_mutex_init(&weir->lock, NULL);
    pthread_mutex_init(&weir->error_lock, NULL);
    pthread_mutex_init(&weir->watch_lock, NULL);
    r = open_parts(weir, error);
    if (r < 0) {
        weir_close(weir);
        return r;
    }
    *ret = weir;
    return 0;
}

void weir_close(struct weir *weir)
{
    if (!weir)
        return;
    weir_end_threads(weir);
    if (weir->ops)
        weir->ops->close(weir->store);
    weir_free_retired(weir);
    bound_free(weir->current);
    cells_close(weir->cells);
    pthread_mutex_destroy(&weir->lock);
    pthread_mutex_destroy(&weir->error_lock);
    pthread_mutex_destroy(&weir->watch_lock);
    free(weir->rules_file);
    included_done(&weir->included);
    free(weir->trusted);
    free(weir);
}

/* ---- status ---- */

void weir_store_status(struct weir *weir, struct weir_store_status *ret)
{
    *ret = (struct weir_store_status){ 0 };
    if (weir->store)
        weir->ops->status(weir->store, ret);
}

void weir_status(struct weir *weir, struct weir_status *ret)
{
    struct cells_stats stats = cells_stats(weir->cells);
    *ret = (struct weir_status){
        .cells = stats.cells, .bytes = stats.bytes, .drops = stats.drops, .drops_at_limit = stats.drops_at_limit
    };
    ret->rules_bad = weir_rules_error(weir, NULL) != WEIR_OK;
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return;
    ret->rules = rules_in_force(ruleset_rules(bound->ruleset), clock_now_us());
    hazard_release();
}

bool weir_cells_copied(const struct weir *weir)
{
    return cells_copied(weir->cells);
}

uint64_t weir_cells_used(struct weir *weir, int64_t now_us, uint64_t most)
{
    return cells_estimate_live(weir->cells, now_us, most);
}

/* ---- the guard ---- */

static _Thread_local struct weir_verdict last_verdict;
static _Thread_local int last_detected;

static int detect(struct weir *weir, const char *event, const char *key, struct weir_receipt *held)
{
    struct weir_request request = {
        .event = weir_str(event), .key = weir_str(key), .cost = 1, .receipt = held, .if_held = true
    };
    if (held)
        held->count = 0;
    if (sv_blank(request.event) || sv_blank(request.key)) {
        verdict_unjudged(&last_verdict, NULL);
        return WEIR_E_BLANK;
    }
    int r = weir_check(weir, &request, clock_recent_us(), &last_verdict);
    if (r < 0)
        return r;
    if (!last_verdict.applied && last_verdict.allowed)
        return WEIR_NO_RULE;
    return last_verdict.allowed ? WEIR_ALLOWED : WEIR_REFUSED;
}

int weir_detect_held(struct weir *weir, const char *event, const char *key, struct weir_receipt *ret_held,
                     struct weir_verdict *ret_verdict)
{
    last_detected = detect(weir, event, key, ret_held);
    if (ret_verdict)
        *ret_verdict = last_verdict;
    return last_detected;
}

int weir_detect(struct weir *weir, const char *event, const char *key, struct weir_verdict *ret_verdict)
{
    return weir_detect_held(weir, event, key, NULL, ret_verdict);
}

const struct weir_verdict *weir_last(int *ret_detected)
{
    if (ret_detected)
        *ret_detected = last_detected;
    return &last_verdict;
}
