#include "serve/sample.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "engine/handle.h"
#include "engine/hazard.h"
#include "replay/pseudonym.h"
#include "serve/sample_ring.h"

/* ---- life ---- */

static size_t bytes_of(const struct sample *sample)
{
    return sample->capacity * sizeof *sample->slots;
}

/* Pages are used when they are written. A core dump is a file, too, and does not get them. */
int sample_new(struct sample **ret, size_t requests, bool hashed, const struct hash_key *key)
{
    struct sample *sample = calloc(1, sizeof *sample);
    if (!sample)
        return WEIR_E_NO_MEMORY;
    sample->capacity = requests > 0 ? requests : 1;
    sample->hashed = hashed;
    sample->key = *key;
    sample->slots =
        mmap(NULL, bytes_of(sample), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sample->slots == MAP_FAILED) {
        free(sample);
        return WEIR_E_NO_MEMORY;
    }
    madvise(sample->slots, bytes_of(sample), MADV_DONTDUMP);
    pthread_mutex_init(&sample->lock, NULL);
    *ret = sample;
    return 0;
}

void sample_free(struct sample *sample)
{
    if (!sample)
        return;
    munmap(sample->slots, bytes_of(sample));
    pthread_mutex_destroy(&sample->lock);
    free(sample);
}

/* ---- one request ---- */

struct draft {
    uint64_t words[SLOT_WORDS];
    size_t len;
    bool cut;
};

static inline char *draft_end(struct draft *draft)
{
    return (char *)draft->words + draft->len;
}

static bool has_room(const struct draft *draft, size_t len)
{
    return len <= FIELD_VALUE_MAX && draft->len + 2 + len <= sizeof draft->words;
}

static void put(struct draft *draft, unsigned tag, const void *value, size_t len)
{
    if (!has_room(draft, len)) {
        draft->cut = true;
        return;
    }
    char *to = draft_end(draft);
    to[0] = (char)tag;
    to[1] = (char)len;
    memcpy(to + 2, value, len);
    draft->len += 2 + len;
}

static void put_value(struct draft *draft, const struct sample *sample, unsigned tag, enum attribute attribute, sv value)
{
    bool hidden = sample->hashed && pseudonym_hides(attribute);
    if (value.len == 0 || (!hidden && value.len <= SAMPLE_VALUE_MAX)) {
        put(draft, tag, value.len ? value.ptr : "", value.len);
        return;
    }
    uint64_t hash = pseudonym_hash(&sample->key, attribute, value);
    put(draft, tag | FIELD_HASHED, &hash, sizeof hash);
    draft->cut = draft->cut || !hidden;
}

/* Rules do not see the query, so it is not kept. */
static void put_path(struct draft *draft, sv path)
{
    if (path.len == 0)
        return;
    const char *query = memchr(path.ptr, '?', path.len);
    path.len = query ? (size_t)(query - path.ptr) : path.len;
    if (path.len > SAMPLE_PATH_MAX) {
        path.len = SAMPLE_PATH_MAX;
        draft->cut = true;
    }
    if (path.len > 0)
        put(draft, FIELD_ATTRIBUTE + ATTR_PATH, path.ptr, path.len);
    else
        put(draft, FIELD_ATTRIBUTE + ATTR_PATH, "/", 1);
}

/* The client's, as the rules in force find it: neither the peer nor X-Forwarded-For are needed any more. */
static void put_address(struct draft *draft, const struct sample *sample, const struct ruleset *ruleset,
                        const struct weir_request *request)
{
    struct facts facts;
    if (request->ip.len + request->peer.len == 0)
        return;
    facts_init(&facts, ruleset, request, request->user);
    const struct ip *ip = facts_ip(&facts);
    if (!ip)
        return;
    struct ip kept = sample->hashed ? pseudonym_ip(&sample->key, ip) : *ip;
    put(draft, FIELD_ATTRIBUTE + ATTR_IP, &kept, sizeof kept);
}

static bool is_recorded(const struct sample_names *names, sv name)
{
    for (size_t i = 0; i < names->count; i++)
        if (sv_eq_lower(name, sv_of(names->list[i].name, names->list[i].len)))
            return true;
    return false;
}

/* All or none: a header without its value would be another one. */
static void put_headers(struct draft *draft, const struct sample *sample, const struct weir_request *request)
{
    for (size_t i = 0; sample->names.count > 0 && i < request->header_count; i++) {
        sv name = request->headers[i].name, value = sv_trim_ows(request->headers[i].value);
        if (!is_recorded(&sample->names, name))
            continue;
        size_t before = draft->len;
        put(draft, FIELD_HEADER, name.ptr, name.len);
        size_t middle = draft->len;
        if (middle > before)
            put_value(draft, sample, FIELD_HEADER_VALUE, ATTR_HEADER, value);
        if (draft->len == middle)
            draft->len = before;
    }
}

/* All or none: a part of a descriptor would be another one. */
static void put_descriptor(struct draft *draft, const struct sample *sample, const struct weir_request *request)
{
    size_t before = draft->len;
    for (size_t i = 0; i < request->descriptor_count; i++) {
        const struct weir_header *entry = &request->descriptor[i];
        size_t start = draft->len;
        put(draft, FIELD_ENTRY, entry->name.ptr, entry->name.len);
        size_t middle = draft->len;
        if (middle > start)
            put_value(draft, sample, FIELD_ENTRY_VALUE, ATTR_DESCRIPTOR, entry->value);
        if (draft->len == middle) {
            draft->len = before;
            return;
        }
    }
    uint64_t given[] = { request->given_max, request->given_window_ms };
    if (request->given_window_ms > 0)
        put(draft, FIELD_GIVEN, given, sizeof given);
}

static void put_costs(struct draft *draft, const struct weir_request *request)
{
    for (size_t i = 0; i < request->cost_count; i++) {
        char text[8 + WEIR_UNIT_MAX];
        sv unit = request->costs[i].unit;
        if (unit.len > WEIR_UNIT_MAX)
            continue;
        memcpy(text, &request->costs[i].amount, 8);
        memcpy(text + 8, unit.ptr, unit.len);
        put(draft, FIELD_COST, text, 8 + unit.len);
    }
}

static void fill(struct draft *draft, const struct sample *sample, const struct ruleset *ruleset,
                 const struct weir_request *request, bool allowed, int64_t now_us)
{
    draft->len = sizeof(struct record);
    draft->cut = false;
    put_address(draft, sample, ruleset, request);
    put_path(draft, request->path);
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++)
        if (i != ATTR_PATH && i != ATTR_IP && i != ATTR_PEER && request_get(request, i).len > 0)
            put_value(draft, sample, FIELD_ATTRIBUTE + i, i, request_get(request, i));
    put_costs(draft, request);
    put_descriptor(draft, sample, request);
    put_headers(draft, sample, request);
    /* No byte of the ring is left to chance: what lies on the stack may be a value that must not be kept. */
    struct record record;
    memset(&record, 0, sizeof record);
    record.now_us = now_us;
    record.cost = request->cost;
    record.bytes = (uint16_t)draft->len;
    record.allowed = allowed;
    record.cut = draft->cut;
    memcpy(draft->words, &record, sizeof record);
    memset(draft_end(draft), 0, -draft->len % 8);
}

/* ---- the ring ---- */

static void append(struct sample *sample, const struct draft *draft)
{
    uint64_t i = sample->written;
    struct slot *slot = &sample->slots[i % sample->capacity];
    uint64_t seq = slot_seq(sample, i);
    __atomic_store_n(&slot->seq, seq - 1, __ATOMIC_RELAXED);
    for (size_t k = 0; k < (draft->len + 7) / 8; k++)
        __atomic_store_n(&slot->words[k], draft->words[k], __ATOMIC_RELEASE);
    __atomic_store_n(&slot->seq, seq, __ATOMIC_RELEASE);
    __atomic_store_n(&sample->written, i + 1, __ATOMIC_RELEASE);
}

static int64_t recorded_since(const struct sample_names *names, sv name, int64_t otherwise)
{
    for (size_t i = 0; i < names->count; i++)
        if (sv_eq(sv_of(names->list[i].name, names->list[i].len), name))
            return names->list[i].since_us;
    return otherwise;
}

/* A reader that is in the way has the lock for a moment: then the next request tries again. */
static __attribute__((noinline)) void learn_headers(struct sample *sample, const struct bound *bound, int64_t now_us)
{
    struct sample_names fresh = { .count = 0 };
    size_t count = ruleset_header_count(bound->ruleset);
    for (size_t i = 0; i < count && fresh.count < SAMPLE_HEADERS_MAX; i++) {
        sv name = ruleset_header(bound->ruleset, i);
        struct sample_header *header = &fresh.list[fresh.count];
        if (name.len > RULE_NAME_MAX)
            continue;
        memcpy(header->name, name.ptr, name.len);
        header->len = name.len;
        /* From the first rules on it is as if they were always there. */
        header->since_us = sample->version ? recorded_since(&sample->names, name, now_us) : INT64_MIN;
        fresh.count++;
    }
    if (pthread_mutex_trylock(&sample->lock) != 0)
        return;
    sample->names = fresh;
    sample->version = bound->version;
    pthread_mutex_unlock(&sample->lock);
}

void sample_add(struct sample *sample, struct weir *weir, const struct weir_request *requests,
                const struct weir_verdict *verdicts, size_t count, int64_t now_us)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return;
    if (sample->version != bound->version)
        learn_headers(sample, bound, now_us);
    for (size_t i = 0; i < count; i++) {
        struct draft draft;
        if (requests[i].peek)
            continue;
        fill(&draft, sample, bound->ruleset, &requests[i], verdicts[i].allowed, now_us);
        append(sample, &draft);
    }
    hazard_release();
}
