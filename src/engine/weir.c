/* The public API: open, decide, reset. */
#include "engine/weir.h"

#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "engine/hazard.h"
#include "engine/keys.h"
#include "engine/shared.h"
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
    return clock_now_us();
}

/* ---- open and close ---- */

void weir_free_retired(struct weir *weir)
{
    struct bound **link = &weir->retired;
    while (*link) {
        struct bound *bound = *link;
        if (hazard_held(bound) || __atomic_load_n(&bound->waiting, __ATOMIC_SEQ_CST) > 0) {
            link = &bound->next_retired;
            continue;
        }
        *link = bound->next_retired;
        bound_free(bound);
    }
}

/* Is there a store: this process's own, or one whose slices are put into its cells? */
static bool shares(const struct weir *weir)
{
    return weir->store || lease_read_news(weir->cells, clock_steady_us()).counters;
}

/* A process that must not wait for a network can count in slices, and not in the store itself; in slices only where
 * whoever fetches them reaches its cells. NULL: this rule can be counted. */
static const char *why_not(const struct weir *weir, const struct bound_rule *rule)
{
    if (rule->mode == MODE_OFF || rule->counting == COUNT_LOCAL)
        return NULL;
    if (rule->counting == COUNT_LEASED)
        return weir->store || weir->options.cells_file
                   ? NULL
                   : "is leased, and the cells here are in memory, where nobody can put slices; give the cells file of the "
                     "host's `weir serve --counters` (in nginx cells=FILE), or leave `lease` out";
    if (!weir->options.never_wait)
        return "counts in the store of the `weir serve --counters` on these cells, and nothing here says where that is; "
               "give its address (--counters ADDRESS on the command line, options.counters in C), or give the rule "
               "`lease: true` or `counters: local`";
    if (rule->rule->counters == COUNTERS_SHARED)
        return "counts in the store that many hosts share (`counters: shared`), and nothing here may wait for "
               "that; give it `lease: true`, or `counters: local`";
    return "counts in the store that many hosts share (the default on the cells of a `weir serve --counters`), and nothing "
           "here may wait for that; give it `lease: true`, or `counters: local`";
}

static int check_shared(const struct weir *weir, const struct bound *bound, struct weir_error *error)
{
    size_t count = ruleset_rules(bound->ruleset)->rule_count;
    for (size_t i = 0; i < count; i++) {
        const struct rule *rule = bound->rules[i].rule;
        const char *why = why_not(weir, &bound->rules[i]);
        if (why)
            return err_set(error, WEIR_E_RULES, "%s:%d: rule %.*s %s", weir->rules_file ? weir->rules_file : "rules",
                           rule->line, SV_FMT(rule->id), why);
    }
    return 0;
}

int weir_install(struct weir *weir, struct rules *rules, struct weir_error *error)
{
    struct ruleset *ruleset;
    struct bound *fresh;
    if (weir->trusted) {
        rules->settings.trusted_proxies = weir->trusted;
        rules->settings.trusted_proxy_count = weir->trusted_count;
    }
    int r = ruleset_new(&ruleset, rules, error);
    if (r < 0)
        return r;
    struct bound_sharing sharing = { .store = shares(weir), .leases = weir->options.never_wait };
    r = bound_new(&fresh, ruleset, weir->cells, sharing, error);
    if (r < 0)
        return r;
    if (!weir->store && (r = check_shared(weir, fresh, error)) < 0) {
        bound_free(fresh);
        return r;
    }
    fresh->version = ++weir->version;
    struct bound *old = __atomic_exchange_n(&weir->current, fresh, __ATOMIC_SEQ_CST);
    if (old) {
        old->next_retired = weir->retired;
        weir->retired = old;
    }
    weir_free_retired(weir);
    if (weir->store && old)
        weir->ops->recall(weir->store);
    return 0;
}

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
        return err_set(error, WEIR_E_INVALID, "options.cells_memory has its size and no file");
    if (o->watch_ms && !o->rules_file)
        return err_set(error, WEIR_E_INVALID, "options.watch_ms watches a rules_file, and there is none");
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
    return cells_open(&weir->cells, o->cells_file, (struct cells_size){ o->cells_keys, o->cells_bytes }, error);
}

static int open_store(struct weir *weir, struct weir_error *error)
{
    enum { FIRST_LOOK_NS = 500000 };
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
    for (int64_t until_us = clock_steady_us() + options.deadline_ms * US_PER_MS;
         r == 0 && !weir_store_up(weir) && clock_steady_us() < until_us;)
        nanosleep(&(struct timespec){ 0, FIRST_LOOK_NS }, NULL);
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
    free(weir->trusted);
    free(weir);
}

/* ---- decide ---- */

void verdict_unjudged(struct weir_verdict *v)
{
    verdict_blank(v);
    v->status = 503;
}

/* What it says is cut to the buffer, which is blank where it did not write: the same user is the same subject each time. */
static sv ask_user(const struct weir *weir, const struct weir_request *request, char *buf, size_t cap)
{
    memset(buf, 0, cap);
    size_t len = weir->options.user_id(request, buf, cap, weir->options.user_id_data);
    return sv_of(buf, len < cap ? len : cap);
}

const struct bound *weir_acquire(struct weir *weir, const struct weir_request *request, char user_buf[WEIR_USER_MAX],
                                 sv *ret_user)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    *ret_user = request->user;
    if (!bound || ret_user->len || !weir->options.user_id || !bound->wants_user)
        return bound;
    /* Nothing is held meanwhile: the callback may do what it likes. */
    hazard_release();
    *ret_user = ask_user(weir, request, user_buf, WEIR_USER_MAX);
    return hazard_acquire((void *const *)&weir->current);
}

/* A plan of more cells than fit on the stack. */
static __attribute__((noinline)) int decide_large(const struct bound *bound, const struct weir_request *request, sv user,
                                                  int64_t now_us, size_t needed, struct weir_verdict *ret)
{
    bool made = false;
    while (!made) {
        struct plan plan;
        struct plan_room room = { .cap = needed };
        void *memory = needed ? malloc(needed * (sizeof *room.entries + sizeof *room.order)) : NULL;
        if (!memory) {
            verdict_unjudged(ret);
            return WEIR_E_NO_MEMORY;
        }
        room.entries = memory;
        room.order = (struct plan_entry **)(room.entries + needed);
        made = plan_make(&plan, bound, request, user, now_us, &room, &needed);
        if (made)
            plan_decide(&plan, bound, ret);
        free(memory);
    }
    return 0;
}

static inline int decide_one(const struct bound *bound, const struct weir_request *request, sv user, int64_t now_us,
                             struct weir_verdict *ret)
{
    struct plan_entry entries[PLAN_INLINE], *order[PLAN_INLINE];
    struct plan plan;
    size_t needed;
    if (__builtin_expect(
            !plan_make(&plan, bound, request, user, now_us, &(struct plan_room){ entries, order, PLAN_INLINE }, &needed),
            0))
        return decide_large(bound, request, user, now_us, needed, ret);
    plan_decide(&plan, bound, ret);
    return 0;
}

static inline int weir_check_until(struct weir *weir, const struct weir_request *request, int64_t now_us, int64_t until_us,
                                   struct weir_verdict *ret_verdict)
{
    char user_buf[WEIR_USER_MAX];
    sv user;
    if (!clock_valid(now_us)) {
        verdict_unjudged(ret_verdict);
        return WEIR_E_INVALID;
    }
    const struct bound *bound = weir_acquire(weir, request, user_buf, &user);
    if (!bound) {
        verdict_unjudged(ret_verdict);
        return WEIR_E_NO_MEMORY;
    }
    int r = bound->shared ? weir_check_shared(weir, bound, request, user, now_us, until_us, ret_verdict)
                          : decide_one(bound, request, user, now_us, ret_verdict);
    hazard_release();
    return r;
}

int weir_check(struct weir *weir, const struct weir_request *request, int64_t now_us, struct weir_verdict *ret_verdict)
{
    return weir_check_until(weir, request, now_us, -1, ret_verdict);
}

int weir_check_soon(struct weir *weir, const struct weir_request *request, int64_t now_us, int64_t until_us,
                    struct weir_verdict *ret_verdict)
{
    return weir_check_until(weir, request, now_us, until_us < 0 ? 0 : until_us, ret_verdict);
}

const struct weir_attribute *weir_attribute(size_t i)
{
#define PUBLIC_ATTRIBUTE(NAME, field, uses, ...) \
    { (uses) & (IN_MATCH | IN_BY) ? #field : NULL, offsetof(struct weir_request, field), ((uses)&IS_ADDRESS) != 0 },
    static const struct weir_attribute all[] = { REQUEST_ATTRIBUTES(PUBLIC_ATTRIBUTE) };
    for (enum attribute k = 0; k < REQUEST_ATTRIBUTE_COUNT; k++)
        if (all[k].name && i-- == 0)
            return &all[k];
    return NULL;
}

/* Something that is no attribute of rules, such as the cost, matters to all of them. */
static bool some_rule_looks_at(const struct bound *bound, const char *attribute, int64_t now_us)
{
    sv name = weir_str(attribute);
    char lower[RULE_NAME_MAX];
    if (sv_starts(name, SV("header:"))) {
        name = sv_from(name, strlen("header:"));
        for (size_t i = 0; i < name.len && i < sizeof lower; i++)
            lower[i] = ascii_lower(name.ptr[i]);
        return name.len <= sizeof lower && ruleset_looks_at(bound->ruleset, ATTR_HEADER, sv_of(lower, name.len), now_us);
    }
    enum attribute found = attribute_find(name);
    if (found == ATTRIBUTE_COUNT || !(attribute_table[found].uses & (IN_MATCH | IN_BY)))
        return true;
    return ruleset_looks_at(bound->ruleset, found, (sv){ 0 }, now_us);
}

enum weir_take weir_repeated(struct weir *weir, const char *attribute, struct weir_str header, int64_t now_us,
                             struct weir_verdict *ret_verdict)
{
    static const enum weir_take takes[] = {
        [REPEATED_REFUSE] = WEIR_TAKE_NONE, [REPEATED_FIRST] = WEIR_TAKE_FIRST, [REPEATED_LAST] = WEIR_TAKE_LAST
    };
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound) {
        verdict_unjudged(ret_verdict);
        return WEIR_TAKE_NONE;
    }
    enum weir_take take = takes[ruleset_rules(bound->ruleset)->settings.repeated_headers];
    if (take == WEIR_TAKE_NONE && !some_rule_looks_at(bound, attribute, now_us))
        take = WEIR_TAKE_FIRST;
    hazard_release();
    if (take == WEIR_TAKE_NONE)
        verdict_repeated(ret_verdict, header);
    return take;
}

bool weir_trusts(struct weir *weir, sv address)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return false;
    bool trusts = ruleset_trusts(bound->ruleset, address);
    hazard_release();
    return trusts;
}

/* ---- batches ---- */

enum { BATCH = 16, BATCH_ROOM = 64 };

/* Plans as many requests as there is room for, which starts loading their cells; then decides them. Returns how many. */
static size_t decide_some(const struct bound *bound, const struct weir_request *requests, size_t count, int64_t now_us,
                          struct weir_verdict *ret)
{
    struct plan_entry entries[BATCH_ROOM], *order[BATCH_ROOM];
    struct plan_room room = { entries, order, BATCH_ROOM };
    struct plan plans[BATCH];
    size_t n = 0, needed;
    while (n < count && n < BATCH && plan_make(&plans[n], bound, &requests[n], requests[n].user, now_us, &room, &needed)) {
        room.entries += plans[n].count;
        room.cap -= plans[n++].count;
    }
    plans_decide(plans, n, bound, ret);
    return n;
}

static int check_each(struct weir *weir, const struct weir_request *requests, size_t count, int64_t now_us,
                      struct weir_verdict *ret)
{
    int result = 0;
    for (size_t i = 0; i < count; i++) {
        int r = weir_check(weir, &requests[i], now_us, &ret[i]);
        result = r < 0 ? r : result;
    }
    return result;
}

int weir_check_batch(struct weir *weir, const struct weir_request *requests, size_t count, int64_t now_us,
                     struct weir_verdict *ret_verdicts)
{
    /* With a getter each has to ask for its user first, which may take any time: nothing to overlap. */
    const struct bound *bound = NULL;
    if (!clock_valid(now_us) || weir->options.user_id || !(bound = hazard_acquire((void *const *)&weir->current)))
        return check_each(weir, requests, count, now_us, ret_verdicts);
    if (bound->shared) {
        hazard_release();
        return check_each(weir, requests, count, now_us, ret_verdicts);
    }
    int result = 0;
    for (size_t done = 0; done < count;) {
        size_t n = decide_some(bound, requests + done, count - done, now_us, ret_verdicts + done);
        if (n == 0) {
            int r = decide_one(bound, &requests[done], requests[done].user, now_us, &ret_verdicts[done]);
            result = r < 0 ? r : result;
            n = 1;
        }
        done += n;
    }
    hazard_release();
    return result;
}

/* ---- reset ---- */

/* One value as facts would spell it: they are asked about a request that has nothing else. */
static sv spell(struct facts *facts, const struct bound *bound, const struct rule_by *by, sv value)
{
    struct weir_header header = { by->header, value };
    struct weir_request request = { .headers = &header, .header_count = by->attribute == ATTR_HEADER };
    if (by->attribute == ATTR_ROUTE)
        request.path = value;
    else if (by->attribute != ATTR_HEADER)
        request_set(&request, by->attribute, value);
    facts_init(facts, bound->ruleset, &request, request.user);
    return facts_attribute(facts, by);
}

/* The value as it is counted. A route with its `#` and a network are that already, if people copy what they were shown. */
static sv counted_value(struct facts *facts, const struct bound *bound, const struct rule_by *by, sv value)
{
    if (by->attribute == ATTR_ROUTE && value.len && memchr(value.ptr, '#', value.len))
        return value;
    if (by->attribute != ATTR_IP)
        return spell(facts, bound, by, value);
    sv network = sv_trim_ows(value), address = sv_cut(&network, '/'); /* as the ip of a request is */
    sv counted = spell(facts, bound, by, address), of = counted;
    sv_cut(&of, '/');
    return network.len == 0 || sv_eq(network, of) ? counted : (sv){ 0 };
}

static int wrong_count(const struct rule *rule, size_t given, struct weir_error *error)
{
    struct buf names;
    buf_init(&names, 2000);
    for (size_t i = 0; i < rule->by_count; i++) {
        buf_add(&names, i ? SV(", ") : SV(""));
        rule_by_text(&rule->by[i], &names);
    }
    int r = err_set(error, WEIR_E_INVALID, "rule %.*s counts by %s: give %zu %s%s, not %zu", SV_FMT(rule->id),
                    names.len ? names.ptr : "nothing, for all together", rule->by_count,
                    rule->by_count == 1 ? "value" : "values", rule->by_count > 1 ? " in this order" : "", given);
    buf_done(&names);
    return r;
}

static bool is_counted(const struct bound *bound, const struct bound_limit *limit, uint64_t key, int64_t now_us)
{
    struct window window = limit_current_window(limit, now_us);
    struct cells_ask ask = { key, &limit->limit, &window, now_us, 0 };
    struct cells_look look;
    cells_look(bound->cells, &ask, &look);
    struct limit_report report = limit_report(&limit->limit, &window, look.state, now_us, 0);
    return report.remaining < limit->limit.capacity || report.reset_us > 0;
}

/* True: something was counted on this host. */
static bool forget_subject(const struct bound *bound, const struct bound_rule *rule, uint64_t subject, int64_t now_us)
{
    bool found = false;
    for (size_t i = 0; i < rule->limit_count; i++) {
        const struct bound_limit *limit = &rule->limits[i];
        /* A cell that has decayed may be there still, and is as good as none. */
        found = is_counted(bound, limit, cell_key(limit, subject), now_us) || found;
        cells_forget(bound->cells, cell_key(limit, subject));
        if (rule->counting == COUNT_LOCAL)
            continue;
        found = is_counted(bound, limit, standin_cell(limit, subject), now_us) || found;
        cells_forget(bound->cells, standin_cell(limit, subject));
        found = cells_forget(bound->cells, owed_cell(limit, subject)) || found;
        found = cells_forget(bound->cells, slice_cell(bound->cells, limit, subject)) || found;
    }
    return found;
}

/* Forgets it here; `key` is what is to be forgotten in the store, too. Values are copied to `arena`. */
static int reset_in(const struct bound *bound, const struct bound_rule *rule, const struct weir_str *by, int64_t now_us,
                    struct arena *arena, struct weir_forgotten *ret, char key[LEASE_KEY_MAX], size_t *ret_key_len,
                    struct weir_error *error)
{
    sv values[RULE_BY_MAX];
    struct hash subject;
    hash_init(&subject, cells_hash_key(bound->cells));
    for (size_t i = 0; i < rule->rule->by_count; i++) {
        struct facts facts;
        const struct rule_by *attribute = &rule->rule->by[i];
        sv value = counted_value(&facts, bound, attribute, by[i]);
        if (value.len == 0)
            return err_set(error, WEIR_E_INVALID, "rule %.*s counts by %s, and `%.*s` is none", SV_FMT(rule->rule->id),
                           attribute_table[attribute->attribute].name.ptr, SV_FMT(by[i]));
        subject_add(&subject, value);
        values[i] = arena_copy(arena, value);
        if (!values[i].ptr)
            return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    }
    subject_fill(&ret->subject, rule->rule, values, cells_hash_key(bound->cells));
    ret->counted = forget_subject(bound, rule, hash_final(&subject), now_us);
    *ret_key_len = rule->counting == COUNT_LOCAL ? 0 : key_write(key, rule, values);
    return 0;
}

int weir_forget(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count, int64_t now_us,
                struct weir_forgotten *ret, struct weir_error *error)
{
    char key[LEASE_KEY_MAX];
    size_t key_len = 0;
    struct arena arena = { 0 };
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    const struct bound_rule *rule = bound_find(bound, weir_str(rule_id));
    int r;
    if (!rule)
        r = err_set(error, WEIR_E_UNKNOWN_RULE, "there is no rule `%s`", rule_id);
    else if (by_count != rule->rule->by_count)
        r = wrong_count(rule->rule, by_count, error);
    else
        r = reset_in(bound, rule, by, now_us, &arena, ret, key, &key_len, error);
    hazard_release();
    arena_done(&arena);
    if (r < 0 || key_len == 0 || !weir->store)
        return r;
    r = weir->ops->forget(weir->store, &(struct weir_str){ key, key_len }, 1, error);
    if (r > 0)
        ret->counted = true;
    return r < 0 ? r : 0;
}

int weir_reset(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count, struct weir_error *error)
{
    struct weir_forgotten forgotten;
    return weir_forget(weir, rule_id, by, by_count, clock_now_us(), &forgotten, error);
}

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

static int detect(struct weir *weir, const char *event, const char *key)
{
    struct weir_request request = { .event = weir_str(event), .key = weir_str(key), .cost = 1 };
    if (sv_blank(request.event) || sv_blank(request.key)) {
        verdict_unjudged(&last_verdict);
        return WEIR_E_BLANK;
    }
    int r = weir_check(weir, &request, clock_now_us(), &last_verdict);
    if (r < 0)
        return r;
    if (!last_verdict.applied && last_verdict.allowed)
        return WEIR_NO_RULE;
    return last_verdict.allowed ? WEIR_ALLOWED : WEIR_REFUSED;
}

int weir_detect(struct weir *weir, const char *event, const char *key, struct weir_verdict *ret_verdict)
{
    last_detected = detect(weir, event, key);
    if (ret_verdict)
        *ret_verdict = last_verdict;
    return last_detected;
}

const struct weir_verdict *weir_last(int *ret_detected)
{
    if (ret_detected)
        *ret_detected = last_detected;
    return &last_verdict;
}
