#include "refused/recent.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "refused/list_room.h"

struct recent {
    unsigned slots;
    uint64_t added; /* so far; the next one goes to added % slots */
    struct recent_refusal *entries;
    /* Used by the thread that refuses, and by no other. */
    int64_t second;
    unsigned taken, looks; /* in this second */
    uint64_t keys[RECENT_PER_SECOND];
    uint64_t left_out; /* atomic: others read it */
};

int recent_new(struct recent **ret, unsigned slots)
{
    assert(slots > 0);
    struct recent *r = calloc(1, sizeof *r);
    if (!r)
        return WEIR_E_NO_MEMORY;
    r->slots = slots;
    r->entries = calloc(slots, sizeof *r->entries);
    if (!r->entries) {
        free(r);
        return WEIR_E_NO_MEMORY;
    }
    *ret = r;
    return 0;
}

void recent_free(struct recent *recent)
{
    if (!recent)
        return;
    free(recent->entries);
    free(recent);
}

/* ---- which are added ---- */

static bool leave_out(struct recent *r, uint64_t count)
{
    __atomic_store_n(&r->left_out, r->left_out + count, __ATOMIC_RELAXED);
    return false;
}

static void go_on(struct recent *r, int64_t now_us)
{
    int64_t second = now_us / US_PER_S;
    if (second == r->second)
        return;
    r->second = second;
    r->taken = r->looks = 0;
}

bool recent_leaves_out(struct recent *recent, uint64_t count, int64_t now_us)
{
    go_on(recent, now_us);
    bool full = recent->taken == RECENT_PER_SECOND || recent->looks >= RECENT_LOOKS;
    if (full)
        leave_out(recent, count);
    return full;
}

bool recent_wants(struct recent *recent, uint64_t key, int64_t now_us)
{
    go_on(recent, now_us);
    if (recent->taken == RECENT_PER_SECOND)
        return leave_out(recent, 1);
    if (key == 0)
        return recent->looks++ < RECENT_LOOKS || leave_out(recent, 1);
    unsigned same = 0;
    for (unsigned i = 0; i < recent->taken; i++)
        if (recent->keys[i] == key && ++same == RECENT_OF_ONE)
            return leave_out(recent, 1);
    recent->keys[recent->taken++] = key;
    return true;
}

uint64_t recent_left_out(const struct recent *recent)
{
    return __atomic_load_n(&recent->left_out, __ATOMIC_RELAXED);
}

/* ---- adding ---- */

static uint64_t last_number; /* atomic */

static uint64_t next_number(int64_t now_us)
{
    uint64_t last = __atomic_load_n(&last_number, __ATOMIC_SEQ_CST), next;
    do
        next = (uint64_t)now_us > last ? (uint64_t)now_us : last + 1;
    while (!__atomic_compare_exchange_n(&last_number, &last, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return next;
}

uint64_t recent_newest(void)
{
    return __atomic_load_n(&last_number, __ATOMIC_SEQ_CST);
}

struct recent_refusal *recent_add(struct recent *recent, int64_t now_us)
{
    struct recent_refusal *entry = &recent->entries[recent->added++ % recent->slots];
    entry->number = next_number(now_us);
    entry->at_us = now_us;
    return entry;
}

void recent_restore(struct recent *recent, const struct recent_refusal *refusal)
{
    uint64_t last = __atomic_load_n(&last_number, __ATOMIC_SEQ_CST);
    recent->entries[recent->added++ % recent->slots] = *refusal;
    while (last < refusal->number &&
           !__atomic_compare_exchange_n(&last_number, &last, refusal->number, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

/* Returns the value as it is kept. */
static sv kept_value(const struct weir_request *request, enum attribute attribute, sv client)
{
    if (attribute == ATTR_IP)
        return client;
    if (attribute == ATTR_PEER) /* the client is known */
        return (sv){ 0 };
    sv rest = request_get(request, attribute);
    return attribute == ATTR_PATH ? sv_cut(&rest, '?') : rest;
}

void recent_fill_request(struct recent_request *ret, const struct weir_request *request, sv client)
{
    char *to = ret->text;
    ret->cut = request->cost_count > RECENT_COSTS;
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv whole = kept_value(request, i, client);
        sv part = utf8_cut(whole, i == ATTR_PATH ? RECENT_PATH_MAX : RECENT_VALUE_MAX);
        ret->cut = ret->cut || part.len < whole.len;
        ret->lengths[i] = (uint16_t)part.len;
        if (part.len > 0)
            memcpy(to, part.ptr, part.len);
        to += part.len;
    }
    char room[DESCRIPTOR_TEXT_MAX];
    sv descriptor = descriptor_text(request, room);
    bool fits = descriptor.len <= RECENT_DESCRIPTOR_MAX;
    ret->cut = ret->cut || !fits;
    ret->descriptor_len = (uint16_t)(fits ? descriptor.len : 0);
    memcpy(ret->descriptor, room, ret->descriptor_len);
    ret->cost = request->cost;
    ret->cost_count = (uint8_t)(request->cost_count < RECENT_COSTS ? request->cost_count : RECENT_COSTS);
    for (size_t i = 0; i < ret->cost_count; i++) {
        snprintf(ret->costs[i].unit, sizeof ret->costs[i].unit, "%.*s", SV_FMT(request->costs[i].unit));
        ret->costs[i].amount = request->costs[i].amount;
    }
}

sv recent_value(const struct recent_request *request, enum attribute attribute)
{
    size_t offset = 0;
    for (enum attribute i = 0; i < attribute; i++)
        offset += request->lengths[i];
    return sv_of(request->text + offset, request->lengths[attribute]);
}

/* ---- reading ---- */

int recent_list_reserve(struct recent_list *list, unsigned most)
{
    void *entries = list->entries;
    int r = list_room(&entries, sizeof *list->entries, list->count, most, &list->cap);
    list->entries = entries;
    return r;
}

void recent_collect(const struct recent *recent, uint64_t after, uint64_t until, sv rule, unsigned most,
                    struct recent_list *list)
{
    unsigned found = 0, kept = (unsigned)(recent->added < recent->slots ? recent->added : recent->slots);
    for (unsigned i = 1; i <= kept && found < most; i++) {
        const struct recent_refusal *entry = &recent->entries[(recent->added - i) % recent->slots];
        if (entry->number <= after)
            break;
        if (entry->number > until || (rule.len > 0 && !sv_eq(subject_rule(&entry->subject), rule)))
            continue;
        assert(list->count < list->cap);
        list->entries[list->count++] = *entry;
        found++;
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct recent_refusal *)a)->number, y = ((const struct recent_refusal *)b)->number;
    return (x < y) - (x > y);
}

void recent_list_sort(struct recent_list *list)
{
    if (list->count > 0)
        qsort(list->entries, list->count, sizeof *list->entries, compare);
}

void recent_list_done(struct recent_list *list)
{
    if (list)
        free(list->entries);
}
