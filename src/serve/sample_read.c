/* Reading samples while loops write them. */
#include <stdlib.h>

#include "base/err.h"
#include "base/ip.h"
#include "replay/pseudonym.h"
#include "serve/sample_ring.h"

enum { TRIES = 16 };

static uint64_t written(const struct sample *sample)
{
    return __atomic_load_n(&sample->written, __ATOMIC_ACQUIRE);
}

static uint64_t first_kept(const struct sample *sample, uint64_t end)
{
    return end > sample->capacity ? end - sample->capacity : 0;
}

/* False: request i is not there any more, or not all of it. */
static bool read_time(const struct sample *sample, uint64_t i, int64_t *ret_us)
{
    const struct slot *slot = &sample->slots[i % sample->capacity];
    uint64_t seq = slot_seq(sample, i);
    if (__atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE) != seq)
        return false;
    uint64_t word = __atomic_load_n(&slot->words[0], __ATOMIC_ACQUIRE);
    memcpy(ret_us, &word, sizeof *ret_us);
    return __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) == seq;
}

/* Writes the words of request i to `to`, which has room for all. Returns their bytes; 0: it is not there any more. */
static size_t read_slot(const struct sample *sample, uint64_t i, uint64_t *to)
{
    const struct slot *slot = &sample->slots[i % sample->capacity];
    uint64_t seq = slot_seq(sample, i);
    struct record record;
    if (__atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE) != seq)
        return 0;
    for (size_t k = 0; k < sizeof record / 8; k++)
        to[k] = __atomic_load_n(&slot->words[k], __ATOMIC_ACQUIRE);
    memcpy(&record, to, sizeof record);
    size_t words = (record.bytes + 7U) / 8;
    for (size_t k = sizeof record / 8; k < words && k < SLOT_WORDS; k++)
        to[k] = __atomic_load_n(&slot->words[k], __ATOMIC_ACQUIRE);
    bool whole = __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) == seq;
    return whole ? words * 8 : 0;
}

/* ---- the span ---- */

struct ends {
    uint64_t first, end;    /* requests that the ring has */
    int64_t from_us, to_us; /* of the first and the last */
};

/* False: there is nothing. */
static bool find_ends(const struct sample *sample, struct ends *ret)
{
    for (int i = 0; i < TRIES; i++) {
        ret->end = written(sample);
        ret->first = first_kept(sample, ret->end);
        if (ret->end == 0)
            return false;
        if (read_time(sample, ret->first, &ret->from_us) && read_time(sample, ret->end - 1, &ret->to_us))
            return true;
    }
    return false;
}

/* Where all loops have all of theirs: the latest beginning among those that have lost some. */
static int64_t whole_from(struct sample *const *samples, size_t count)
{
    int64_t from_us = INT64_MIN;
    for (size_t i = 0; i < count; i++) {
        struct ends ends;
        if (find_ends(samples[i], &ends) && ends.first > 0 && ends.from_us > from_us)
            from_us = ends.from_us;
    }
    return from_us;
}

/* The first request at or after from_us. The times of a loop rise, unless the clock is set back. */
static uint64_t first_at(const struct sample *sample, const struct ends *ends, int64_t from_us)
{
    uint64_t low = ends->first, high = ends->end;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int64_t at_us;
        /* One that is overwritten meanwhile was among the first. */
        if (!read_time(sample, middle, &at_us) || at_us < from_us)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void sample_span(struct sample *const *samples, size_t count, struct sample_span *ret)
{
    int64_t from_us = whole_from(samples, count), at_us;
    *ret = (struct sample_span){ .seen = 0 };
    for (size_t i = 0; i < count; i++) {
        struct ends ends;
        ret->seen += written(samples[i]);
        if (!find_ends(samples[i], &ends))
            continue;
        uint64_t first = first_at(samples[i], &ends, from_us);
        ret->requests += ends.end - first;
        if (first == ends.end || !read_time(samples[i], first, &at_us))
            continue;
        ret->from_us = ret->from_us == 0 || at_us < ret->from_us ? at_us : ret->from_us;
        ret->to_us = ends.to_us > ret->to_us ? ends.to_us : ret->to_us;
    }
}

void sample_headers(struct sample *sample, void (*each)(sv name, int64_t since_us, void *data), void *data)
{
    struct sample_names names;
    pthread_mutex_lock(&sample->lock);
    names = sample->names;
    pthread_mutex_unlock(&sample->lock);
    for (size_t i = 0; i < names.count; i++)
        each(sv_of(names.list[i].name, names.list[i].len), names.list[i].since_us, data);
}

/* ---- a copy ---- */

struct copied {
    int64_t now_us;
    size_t offset; /* in bytes */
    uint32_t sample;
    uint32_t number; /* among those of its sample */
};

struct sample_copy {
    struct copied *list;
    size_t count, cap;
    char *bytes;
    size_t len, bytes_cap;
    struct sample_names *names; /* of each sample */
    size_t sample_count;
    int64_t from_us; /* nothing is missing from then on */
};

void sample_copy_free(struct sample_copy *copy)
{
    if (!copy)
        return;
    free(copy->list);
    free(copy->bytes);
    free(copy->names);
    free(copy);
}

size_t sample_copy_count(const struct sample_copy *copy)
{
    return copy->count;
}

static bool reserve_bytes(struct sample_copy *copy)
{
    if (copy->bytes_cap - copy->len >= SAMPLE_REQUEST_BYTES)
        return true;
    size_t cap = copy->bytes_cap ? copy->bytes_cap * 2 : 1 << 20;
    char *bytes = realloc(copy->bytes, cap);
    if (!bytes)
        return false;
    copy->bytes = bytes;
    copy->bytes_cap = cap;
    return true;
}

static bool reserve_list(struct sample_copy *copy)
{
    if (copy->count < copy->cap)
        return true;
    size_t cap = copy->cap ? copy->cap * 2 : 4096;
    struct copied *list = realloc(copy->list, cap * sizeof *list);
    if (!list)
        return false;
    copy->list = list;
    copy->cap = cap;
    return true;
}

/* Loops that decide meanwhile add more: those are left out, so that this comes to an end. They also overwrite what has not
 * been copied yet: then the copy begins after that. */
static bool copy_one_loop(struct sample_copy *copy, const struct sample *sample, uint32_t number)
{
    uint64_t end = written(sample), i = first_kept(sample, end);
    for (bool lost = i > 0; i < end; i++) {
        if (!reserve_bytes(copy) || !reserve_list(copy))
            return false;
        uint64_t *to = (uint64_t *)(void *)(copy->bytes + copy->len);
        size_t bytes = read_slot(sample, i, to);
        struct record record;
        memcpy(&record, to, sizeof record);
        if (bytes > 0 && lost && record.now_us > copy->from_us)
            copy->from_us = record.now_us;
        lost = bytes == 0;
        if (lost || record.now_us < copy->from_us)
            continue;
        copy->list[copy->count] = (struct copied){ record.now_us, copy->len, number, (uint32_t)copy->count };
        copy->count++;
        copy->len += bytes;
    }
    return true;
}

static int by_time(const void *a, const void *b)
{
    const struct copied *x = a, *y = b;
    if (x->now_us != y->now_us)
        return x->now_us < y->now_us ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Those before from_us are of the loops that were copied first. */
static void drop_incomplete(struct sample_copy *copy)
{
    size_t first = 0;
    while (first < copy->count && copy->list[first].now_us < copy->from_us)
        first++;
    copy->count -= first;
    memmove(copy->list, copy->list + first, copy->count * sizeof *copy->list);
}

static bool copy_all(struct sample_copy *copy, struct sample *const *samples, size_t count)
{
    copy->from_us = whole_from(samples, count);
    copy->names = calloc(count + 1, sizeof *copy->names);
    copy->sample_count = count;
    for (size_t i = 0; copy->names && i < count; i++) {
        pthread_mutex_lock(&samples[i]->lock);
        copy->names[i] = samples[i]->names;
        pthread_mutex_unlock(&samples[i]->lock);
        if (!copy_one_loop(copy, samples[i], (uint32_t)i))
            return false;
    }
    if (copy->count > 1)
        qsort(copy->list, copy->count, sizeof *copy->list, by_time);
    if (copy->count > 0)
        drop_incomplete(copy);
    return copy->names;
}

int sample_copy_new(struct sample_copy **ret, struct sample *const *samples, size_t count)
{
    struct sample_copy *copy = calloc(1, sizeof *copy);
    if (!copy || !copy_all(copy, samples, count)) {
        sample_copy_free(copy);
        return WEIR_E_NO_MEMORY;
    }
    *ret = copy;
    return 0;
}

/* Requests of this sample have the header from then on; INT64_MAX: none have. */
static int64_t has_since(const struct sample_names *names, sv header)
{
    for (size_t i = 0; i < names->count; i++)
        if (sv_eq(sv_of(names->list[i].name, names->list[i].len), header))
            return names->list[i].since_us;
    return INT64_MAX;
}

size_t sample_copy_without(const struct sample_copy *copy, sv header)
{
    int64_t since_us[SAMPLE_LOOPS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < copy->sample_count; i++)
        since_us[i] = has_since(&copy->names[i], header);
    for (size_t i = 0; i < copy->count; i++)
        count += copy->list[i].now_us < since_us[copy->list[i].sample];
    return count;
}

/* ---- one request ---- */

/* The text of a value that is kept as 8 bytes, or of an address; empty if there is no room, which there is for all that fit
 * into a slot. */
static sv spell(struct sampled *sampled, unsigned tag, sv value)
{
    char *to = sampled->room + sampled->used;
    size_t left = sizeof sampled->room - sampled->used, len;
    if (tag & FIELD_HASHED && left >= PSEUDONYM_TEXT_MAX) {
        uint64_t hash;
        memcpy(&hash, value.ptr, sizeof hash);
        len = pseudonym_text(hash, to);
    } else if (tag == FIELD_ATTRIBUTE + ATTR_IP && left >= IP_TEXT_MAX) {
        struct ip ip;
        memcpy(&ip, value.ptr, sizeof ip);
        len = ip_text(&ip, to);
    } else
        return sv_of("", 0);
    sampled->used += len + 1;
    return sv_of(to, len);
}

static void take_field(struct sampled *sampled, unsigned tag, sv value, struct cost_list *costs)
{
    struct traffic *t = &sampled->traffic;
    unsigned kind = tag & ~(unsigned)FIELD_HASHED;
    if (tag & FIELD_HASHED || kind == FIELD_ATTRIBUTE + ATTR_IP)
        value = spell(sampled, tag, value);
    if (kind < REQUEST_ATTRIBUTE_COUNT)
        request_set(&t->request, (enum attribute)kind, value);
    else if (kind == FIELD_HEADER && t->request.header_count < TRAFFIC_HEADERS_MAX)
        t->headers[t->request.header_count++].name = value;
    else if (kind == FIELD_HEADER_VALUE && t->request.header_count > 0)
        t->headers[t->request.header_count - 1].value = value;
    else if (kind == FIELD_ENTRY && t->request.descriptor_count < WEIR_DESCRIPTOR_MAX)
        t->entries[t->request.descriptor_count++].name = value;
    else if (kind == FIELD_ENTRY_VALUE && t->request.descriptor_count > 0)
        t->entries[t->request.descriptor_count - 1].value = value;
    else if (kind == FIELD_GIVEN) {
        memcpy(&t->request.given_max, value.ptr, 8);
        memcpy(&t->request.given_window_ms, value.ptr + 8, 8);
    } else if (kind == FIELD_COST) {
        uint64_t amount;
        memcpy(&amount, value.ptr, sizeof amount);
        request_add_cost(&t->request, costs, sv_from(value, sizeof amount), amount);
    }
}

void sample_copy_read(const struct sample_copy *copy, size_t i, struct sampled *ret)
{
    const char *p = copy->bytes + copy->list[i].offset, *end;
    struct cost_list costs = { .room = ret->traffic.costs };
    struct record record;
    memcpy(&record, p, sizeof record);
    ret->allowed = record.allowed;
    ret->cut = record.cut;
    ret->used = 0;
    ret->traffic.now_us = record.now_us;
    ret->traffic.request = (struct weir_request){ .headers = ret->traffic.headers, .descriptor = ret->traffic.entries };
    ret->traffic.set_rules = ret->traffic.json = NULL;
    end = p + record.bytes;
    for (p += sizeof record; p < end;) {
        unsigned tag = (unsigned char)p[0];
        sv value = sv_of(p + 2, (unsigned char)p[1]);
        take_field(ret, tag, value, &costs);
        p += 2 + value.len;
    }
    ret->traffic.request.cost = record.cost;
}
