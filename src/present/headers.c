/* The headers of an answer: RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11), X-RateLimit-*, those
 * that clients of language models know, and Retry-After. docs/headers.md describes them. */
#include <stdlib.h>

#include "base/sha256.h"
#include "engine/hazard.h"
#include "present/answer.h"

/* ---- the answer ---- */

/* The rules may have been replaced since the decision, or the usage may be of another handle. */
static const struct weir_usage *usage_of(const struct bound *bound, const struct weir_request *request,
                                         const struct weir_verdict *v)
{
    const struct weir_usage *usage = request ? request->usage : NULL;
    size_t rules = ruleset_rules(bound->ruleset)->rule_count;
    if (!usage || usage->count == 0 || usage->count > WEIR_USAGE_LIMITS + 1 || usage->rules != bound->version)
        return NULL;
    for (uint32_t i = 0; i < usage->count; i++) {
        const struct weir_left *left = &usage->left[i];
        const struct bound_limit *limit = bound_limit_at(bound, left->limit);
        if (left->rule >= rules || !limit || !limit->terms)
            return NULL;
        if (i == usage->named && !sv_eq(bound->rules[left->rule].rule->id, weir_str(v->rule)))
            return NULL;
    }
    return usage;
}

static sv partition_secret(const struct bound *bound)
{
    return ruleset_rules(bound->ruleset)->settings.partition_key_secret;
}

bool answer_begin(struct answer *ret, struct weir *weir, const struct weir_request *request,
                  const struct weir_verdict *verdict)
{
    ret->weir = weir;
    ret->request = request;
    ret->verdict = verdict;
    ret->user = (sv){ 0 };
    ret->bound = hazard_acquire((void *const *)&weir->current);
    if (ret->bound && request && partition_secret(ret->bound).len > 0) {
        hazard_release();
        ret->bound = weir_acquire(weir, request, ret->user_buf, &ret->user);
    }
    if (ret->bound)
        ret->usage = usage_of(ret->bound, request, verdict);
    return ret->bound;
}

/* ---- policies ---- */

char *policy_name_put(char *to, sv rule, sv limit)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < rule.len; i++) {
        unsigned char c = (unsigned char)rule.ptr[i];
        if (c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%' && c != '/') {
            *to++ = (char)c;
        } else {
            *to++ = '%';
            *to++ = hex[c >> 4];
            *to++ = hex[c & 15];
        }
    }
    *to++ = '/';
    memcpy(to, limit.ptr, limit.len);
    return to + limit.len;
}

/* Returns the unit of a limit as a value of `qu`; empty for requests, the default. */
static sv quota_unit(const struct bound_terms *terms)
{
    return terms->limit.algorithm == LIMIT_CONCURRENT ? SV("concurrent-requests") : terms->spec->cost_unit;
}

/* The key of a partition: a keyed hash of names and values of the rule's `by`. */
struct partition {
    bool known;
    uint64_t key;
};

static struct partition partition_of(const struct rule *rule, struct facts *facts, const struct hash_key *key)
{
    struct partition partition = { .known = rule->kind->by_count > 0 };
    struct hash h;
    hash_init(&h, key);
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        const struct rule_by *by = &rule->kind->by[i];
        sv name = attribute_table[by->attribute].name, value = facts_attribute(facts, by);
        hash_text(&h, name.ptr, name.len);
        hash_text(&h, by->name.ptr, by->name.len);
        hash_text(&h, value.ptr, value.len);
        partition.known = partition.known && fact_is_there(by, value);
    }
    partition.key = hash_final(&h);
    return partition;
}

/* The secret is the same on all hosts, unlike that of their tables, so that a subject has the same key everywhere. */
static __attribute__((noinline)) void find_partitions(const struct answer *a, struct partition *ret)
{
    unsigned char digest[SHA256_SIZE];
    struct hash_key key;
    struct facts facts;
    sv secret = partition_secret(a->bound);
    sha256(secret.ptr, secret.len, digest);
    memcpy(&key.k0, digest, sizeof key.k0);
    memcpy(&key.k1, digest + sizeof key.k0, sizeof key.k1);
    facts_init(&facts, a->bound->ruleset, a->request, a->user);
    for (uint32_t i = 0; i < a->usage->count; i++) {
        const struct weir_left *left = &a->usage->left[i];
        if (left->reading < facts_readings(&facts))
            facts_select_reading(&facts, left->reading);
        ret[i] = partition_of(a->bound->rules[left->rule].rule, &facts, &key);
    }
}

/* ---- lists of structured fields (RFC 9651) ---- */

enum {
    PARTITION_MAX = 12, /* bytes of a key in base64 */
    ITEM_MAX = POLICY_NAME_MAX + 2 + 4 * 8 + 2 * NUMBER_MAX + WEIR_UNIT_MAX + PARTITION_MAX,
};
_Static_assert(2 * ITEM_MAX <= WEIR_HEADER_VALUE_MAX, "RateLimit has room for the limit that decides");

struct list {
    char *start, *to; /* room for WEIR_HEADER_VALUE_MAX bytes */
    bool full;
};

/* An item that does not fit ends the list. */
static void list_add(struct list *list, const char *item, size_t len)
{
    size_t comma = list->to > list->start ? 2 : 0;
    list->full = list->full || (size_t)(list->to - list->start) + comma + len >= WEIR_HEADER_VALUE_MAX;
    if (list->full)
        return;
    memcpy(list->to, ", ", comma);
    memcpy(list->to + comma, item, len);
    list->to += comma + len;
}

static char *put_text(char *to, sv text)
{
    memcpy(to, text.ptr, text.len);
    return to + text.len;
}

/* An Integer of structured fields has at most 15 digits. A field with a longer one is invalid. */
#define INTEGER_MAX INT64_C(999999999999999)

static char *put_number(char *to, sv before, int64_t number)
{
    return number_put(put_text(to, before), number < INTEGER_MAX ? number : INTEGER_MAX);
}

static char *put_name(char *to, sv rule, sv limit)
{
    *to++ = '"';
    to = policy_name_put(to, rule, limit);
    *to++ = '"';
    return to;
}

/* ;pk=:4UfDFmJQ5Hk=: */
static char *put_partition(char *to, const struct partition *partition)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (!partition->known)
        return to;
    to = put_text(to, SV(";pk=:"));
    for (int shift = 58; shift >= 4; shift -= 6)
        *to++ = digits[partition->key >> shift & 63];
    *to++ = digits[partition->key << 2 & 63];
    return put_text(to, SV("=:"));
}

static int64_t seconds_up(int64_t ms)
{
    return ms <= 0 ? 0 : (ms + 999) / 1000;
}

/* The part of a policy that never changes: "ocr/day";q=100;qu="pages";w=86400 */
struct policy_text {
    uint16_t name; /* bytes of the name with its quotes */
    uint16_t len;
    char text[ITEM_MAX];
};

static void policy_write(struct policy_text *ret, sv rule, sv limit, uint64_t quota, sv unit, int64_t window_ms)
{
    char *to = put_name(ret->text, rule, limit);
    ret->name = (uint16_t)(to - ret->text);
    to = put_number(to, SV(";q="), (int64_t)quota);
    if (unit.len > 0) {
        to = put_text(to, SV(";qu=\""));
        to = put_text(to, unit);
        *to++ = '"';
    }
    if (window_ms > 0)
        to = put_number(to, SV(";w="), seconds_up(window_ms));
    ret->len = (uint16_t)(to - ret->text);
}

/* Keeps the text for other answers. Returns it, or `text` if out of memory. */
static const struct policy_text *policy_keep(struct policy_text **kept, const struct policy_text *text)
{
    size_t size = offsetof(struct policy_text, text) + text->len;
    struct policy_text *copy = kept ? malloc(size) : NULL, *earlier = NULL;
    if (!copy)
        return text;
    memcpy(copy, text, size);
    if (__atomic_compare_exchange_n(kept, &earlier, copy, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return copy;
    free(copy);
    return earlier;
}

/* The window of a calendar limit changes, so its text has none. `room` is for the case that memory is short. */
static const struct policy_text *policy_of(const struct answer *a, const struct weir_left *left, struct policy_text *room)
{
    const struct bound_limit *limit = bound_limit_at(a->bound, left->limit);
    struct policy_text **place = bound_policy(a->bound, left->limit);
    const struct policy_text *kept = place ? __atomic_load_n(place, __ATOMIC_ACQUIRE) : NULL;
    if (__builtin_expect(kept != NULL, 1))
        return kept;
    const struct bound_terms *terms = limit->terms;
    sv rule = a->bound->rules[left->rule].rule->id, name = limit_name(limit), unit = quota_unit(terms);
    if (terms->spec->given) { /* each request has its own */
        policy_write(room, rule, name, left->given_max, unit, 0);
        return room;
    }
    policy_write(room, rule, name, terms->limit.capacity, unit,
                 terms->limit.algorithm == LIMIT_CALENDAR ? 0 : left->window_ms);
    return policy_keep(place, room);
}

static void add_policy(struct list *list, const struct policy_text *policy, int64_t window_ms,
                       const struct partition *partition)
{
    char item[ITEM_MAX], *to = put_text(item, sv_of(policy->text, policy->len));
    if (window_ms > 0)
        to = put_number(to, SV(";w="), seconds_up(window_ms));
    list_add(list, item, (size_t)(put_partition(to, partition) - item));
}

struct service_limit {
    uint64_t remaining;
    int64_t more_ms; /* below 0: no more becomes available, or nobody knows when */
    struct partition partition;
};

/* "ocr/day";r=99;t=6400 */
static void add_service_limit(struct list *list, sv name, const struct service_limit *limit)
{
    char item[ITEM_MAX], *to = put_text(item, name);
    to = put_number(to, SV(";r="), (int64_t)limit->remaining);
    if (limit->more_ms >= 0)
        to = put_number(to, SV(";t="), seconds_up(limit->more_ms));
    list_add(list, item, (size_t)(put_partition(to, &limit->partition) - item));
}

/* ---- headers ---- */

struct writer {
    struct weir_headers *headers;
    char *to;
};

static void end_header(struct writer *w, sv name, char *end)
{
    *end = '\0';
    w->headers->header[w->headers->count++] = (struct weir_header){ name, sv_of(w->to, (size_t)(end - w->to)) };
    w->to = end + 1;
}

static void add_number(struct writer *w, sv name, int64_t number)
{
    end_header(w, name, number_put(w->to, number));
}

static void add_policies(struct writer *w, const struct answer *a, const struct partition *partitions)
{
    const struct weir_verdict *v = a->verdict;
    struct list list = { .start = w->to, .to = w->to };
    struct policy_text room;
    if (!a->usage) {
        policy_write(&room, weir_str(v->rule), weir_str(v->limit), v->max, weir_str(v->unit), v->window_ms);
        list_add(&list, room.text, room.len);
    }
    for (uint32_t i = 0; a->usage && i < a->usage->listed && !list.full; i++) {
        const struct weir_left *left = &a->usage->left[i];
        bool calendar = bound_limit_at(a->bound, left->limit)->terms->limit.algorithm == LIMIT_CALENDAR;
        add_policy(&list, policy_of(a, left, &room), calendar ? left->window_ms : 0, &partitions[i]);
    }
    end_header(w, SV("RateLimit-Policy"), list.to);
}

/* Without usage the time until more is available is unknown if the request passed. A refused request comes back after
 * Retry-After, so no time is later than that. */
static struct service_limit deciding_limit(const struct answer *a, const struct partition *partitions)
{
    const struct weir_verdict *v = a->verdict;
    bool known = a->usage && a->usage->named < a->usage->count;
    struct service_limit limit = { v->remaining, LIMIT_NEVER_US, { 0 } };
    if (known) {
        const struct weir_left *left = &a->usage->left[a->usage->named];
        limit.partition = partitions[a->usage->named];
        limit.more_ms = left->known ? left->more_ms : LIMIT_NEVER_US;
    }
    if (!v->allowed && v->retry_after_ms > 0 && (limit.more_ms < 0 || limit.more_ms > v->retry_after_ms))
        limit.more_ms = v->retry_after_ms;
    return limit;
}

/* The limit that decides comes first, then the others: all of them if the request passed, else those that refuse it. The
 * others of a refusal may have more to give only after Retry-After, and would contradict it. */
static void add_service_limits(struct writer *w, const struct answer *a, const struct partition *partitions)
{
    struct list list = { .start = w->to, .to = w->to };
    struct service_limit deciding = deciding_limit(a, partitions);
    struct policy_text room;
    char name[POLICY_NAME_MAX + 2], *end = put_name(name, weir_str(a->verdict->rule), weir_str(a->verdict->limit));
    add_service_limit(&list, sv_of(name, (size_t)(end - name)), &deciding);
    for (uint32_t i = 0; a->usage && i < a->usage->listed && !list.full; i++) {
        const struct weir_left *left = &a->usage->left[i];
        if (i == a->usage->named || !left->known || (!a->verdict->allowed && !left->refuses))
            continue;
        const struct policy_text *policy = policy_of(a, left, &room);
        add_service_limit(&list, sv_of(policy->text, policy->name),
                          &(struct service_limit){ left->remaining, left->more_ms, partitions[i] });
    }
    end_header(w, SV("RateLimit"), list.to);
}

static void add_standard(struct writer *w, const struct answer *a)
{
    struct partition partitions[WEIR_USAGE_LIMITS + 1] = { 0 };
    if (a->usage && partition_secret(a->bound).len > 0)
        find_partitions(a, partitions);
    add_policies(w, a, partitions);
    add_service_limits(w, a, partitions);
}

static void add_legacy(struct writer *w, const struct weir_verdict *v)
{
    add_number(w, SV("X-RateLimit-Limit"), (int64_t)v->max);
    add_number(w, SV("X-RateLimit-Remaining"), (int64_t)v->remaining);
    add_number(w, SV("X-RateLimit-Reset"), seconds_up(v->reset_ms));
}

/* ---- headers of language models ---- */

/* 6m0s, 1.5s, 20ms: as Go writes a length of time. */
static char *put_duration(char *to, int64_t ms)
{
    int64_t seconds = ms / 1000, rest = ms % 1000;
    if (ms > 0 && seconds == 0)
        return put_text(number_put(to, rest), SV("ms"));
    if (seconds >= 3600)
        to = put_text(number_put(to, seconds / 3600), SV("h"));
    if (seconds >= 60)
        to = put_text(number_put(to, seconds / 60 % 60), SV("m"));
    to = number_put(to, seconds % 60);
    if (rest > 0) {
        *to++ = '.';
        for (int64_t unit = 100; rest > 0; rest %= unit, unit /= 10)
            *to++ = (char)('0' + rest / unit);
    }
    return put_text(to, SV("s"));
}

/* The numbers in the headers of one unit. */
struct unit_left {
    bool known;
    uint64_t max, remaining;
    int64_t reset_ms;
};

/* If several limits count the unit, returns the one with the least left, and the first of equal ones. */
static struct unit_left left_of_unit(const struct answer *a, sv unit)
{
    const struct weir_verdict *v = a->verdict;
    struct unit_left least = { 0 };
    if (!a->usage && sv_eq(weir_str(v->unit), unit))
        return (struct unit_left){ true, v->max, v->remaining, v->reset_ms };
    for (uint32_t i = 0; a->usage && i < a->usage->count; i++) {
        const struct weir_left *left = &a->usage->left[i];
        const struct bound_terms *terms = bound_limit_at(a->bound, left->limit)->terms;
        if (left->known && sv_eq(quota_unit(terms), unit) && (!least.known || left->remaining < least.remaining))
            least = (struct unit_left){ true, terms->spec->given ? left->given_max : terms->limit.capacity, left->remaining,
                                        left->reset_ms };
    }
    return least;
}

static void add_openai(struct writer *w, const struct answer *a)
{
    static const struct {
        sv unit, limit, remaining, reset;
    } units[] = {
        { SV(""), SV("x-ratelimit-limit-requests"), SV("x-ratelimit-remaining-requests"),
          SV("x-ratelimit-reset-requests") },
        { SV("tokens"), SV("x-ratelimit-limit-tokens"), SV("x-ratelimit-remaining-tokens"),
          SV("x-ratelimit-reset-tokens") },
    };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        struct unit_left left = left_of_unit(a, units[i].unit);
        if (!left.known)
            continue;
        add_number(w, units[i].limit, (int64_t)left.max);
        add_number(w, units[i].remaining, (int64_t)left.remaining);
        if (left.reset_ms >= 0)
            end_header(w, units[i].reset, put_duration(w->to, left.reset_ms));
    }
}

/* ---- all of them ---- */

enum { SHORT_VALUE_MAX = 48 }; /* bytes of a number or a length of time, with the NUL */
_Static_assert(2 * WEIR_HEADER_VALUE_MAX + (WEIR_HEADERS_MAX - 2) * SHORT_VALUE_MAX <= WEIR_HEADERS_BYTES,
               "all headers fit, so values are written without asking for room");

static unsigned style_of_setting(const struct bound *bound)
{
    static const unsigned styles[] = { [HEADERS_STANDARD] = WEIR_HEADERS_STANDARD,
                                       [HEADERS_LEGACY] = WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY,
                                       [HEADERS_OPENAI] = WEIR_HEADERS_OPENAI,
                                       [HEADERS_OFF] = 0 };
    return styles[ruleset_rules(bound->ruleset)->settings.headers];
}

void answer_headers(const struct answer *a, unsigned style, struct weir_headers *ret)
{
    const struct weir_verdict *v = a->verdict;
    struct writer w = { ret, ret->text };
    ret->count = 0;
    if (style & WEIR_HEADERS_SETTING)
        style |= style_of_setting(a->bound);
    style &= WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY | WEIR_HEADERS_OPENAI;
    if (!v->applied || style == 0)
        return;
    if (style & WEIR_HEADERS_STANDARD)
        add_standard(&w, a);
    if (style & WEIR_HEADERS_LEGACY)
        add_legacy(&w, v);
    if (style & WEIR_HEADERS_OPENAI)
        add_openai(&w, a);
    if (!v->allowed && v->retry_after_ms > 0)
        add_number(&w, SV("Retry-After"), seconds_up(v->retry_after_ms));
}

void weir_headers(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict, unsigned style,
                  struct weir_headers *ret)
{
    struct answer a;
    ret->count = 0;
    if (!verdict->applied || style == 0 || !answer_begin(&a, weir, request, verdict))
        return;
    answer_headers(&a, style, ret);
    hazard_release();
}
