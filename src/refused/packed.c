/* Numbers have 7 bits in a byte, the lowest first; the highest bit says that more bytes follow. */
#include "refused/packed.h"

#include "base/clock.h"
#include "refused/top_history.h"

/* ---- writing ---- */

static void put(struct buf *out, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        buf_char(out, (char)(number | 0x80));
    buf_char(out, (char)number);
}

static void put_text(struct buf *out, sv text)
{
    put(out, text.len);
    buf_add(out, text);
}

static void put_subject(struct buf *out, const struct subject *subject)
{
    put(out, subject->cut);
    if (subject->cut)
        put(out, subject->key);
    put(out, subject->rule_len);
    put(out, subject->by_count);
    for (size_t i = 0; i < subject->by_count; i++) {
        put(out, subject->by[i].name_len);
        put(out, subject->by[i].value_len);
    }
    buf_add(out, sv_of(subject->text, subject_bytes(subject) - offsetof(struct subject, text)));
}

void packed_write_list(const struct top_list *list, struct buf *out)
{
    put(out, list->total);
    put(out, list->unlisted);
    put(out, list->count);
    for (size_t i = 0; i < list->count; i++) {
        put(out, list->entries[i].count);
        put(out, list->entries[i].error);
        put_subject(out, &list->entries[i].subject);
    }
}

static void put_request(struct buf *out, const struct recent_request *request)
{
    put(out, request->cut);
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++)
        put_text(out, recent_value(request, i));
    put_text(out, sv_of(request->descriptor, request->descriptor_len));
    put(out, request->cost);
    put(out, request->cost_count);
    for (size_t i = 0; i < request->cost_count; i++) {
        put_text(out, weir_str(request->costs[i].unit));
        put(out, request->costs[i].amount);
    }
}

void packed_write_refusal(const struct recent_refusal *refusal, struct buf *out)
{
    put(out, (uint64_t)refusal->at_us);
    put(out, (uint64_t)(refusal->retry_after_ms - WEIR_NEVER));
    put(out, refusal->status);
    put(out, refusal->reason);
    put(out, refusal->shadow);
    put_text(out, weir_str(refusal->limit));
    put_subject(out, &refusal->subject);
    put_text(out, weir_str(refusal->plan.name));
    put_text(out, weir_str(refusal->plan.header));
    put(out, refusal->of_request);
    if (refusal->of_request)
        put_request(out, &refusal->request);
}

/* ---- reading ---- */

struct reader {
    const char *at, *end;
    bool failed; /* then everything reads as 0 */
};

static struct reader reader_of(sv bytes)
{
    const char *begin = bytes.ptr ? bytes.ptr : "";
    return (struct reader){ begin, begin + bytes.len, false };
}

static bool ends_well(const struct reader *in)
{
    return !in->failed && in->at == in->end;
}

static uint64_t take(struct reader *in, uint64_t most)
{
    uint64_t number = 0;
    bool more = true;
    for (int shift = 0; more && !in->failed; shift += 7) {
        in->failed = in->at == in->end || shift > 63;
        if (in->failed)
            break;
        number |= (uint64_t)(*in->at & 0x7f) << shift;
        more = *in->at++ & 0x80;
    }
    in->failed = in->failed || number > most;
    return in->failed ? 0 : number;
}

static sv take_bytes(struct reader *in, uint64_t len)
{
    in->failed = in->failed || len > (uint64_t)(in->end - in->at);
    sv bytes = sv_of(in->at, in->failed ? 0 : (size_t)len);
    in->at += bytes.len;
    return bytes;
}

static sv take_text(struct reader *in, uint64_t most)
{
    return take_bytes(in, take(in, most));
}

/* A text that ends in NUL, and has no other. */
static void take_name(struct reader *in, char *ret, size_t most)
{
    sv text = take_text(in, most);
    in->failed = in->failed || (text.len > 0 && memchr(text.ptr, '\0', text.len));
    memcpy(ret, text.ptr, text.len);
    ret[text.len] = '\0';
}

static void take_subject(struct reader *in, const struct hash_key *key, struct subject *ret)
{
    ret->cut = take(in, 1);
    uint64_t kept_key = ret->cut ? take(in, UINT64_MAX) : 0;
    ret->rule_len = (uint8_t)take(in, WEIR_ID_MAX);
    ret->by_count = (uint8_t)take(in, RULE_BY_MAX);
    for (size_t i = 0; i < ret->by_count; i++) {
        ret->by[i].name_len = (uint16_t)take(in, SUBJECT_TEXT_MAX);
        ret->by[i].value_len = (uint16_t)take(in, SUBJECT_TEXT_MAX);
    }
    size_t len = subject_bytes(ret) - offsetof(struct subject, text);
    in->failed = in->failed || len > SUBJECT_TEXT_MAX;
    sv text = take_bytes(in, len);
    if (in->failed)
        return;
    memcpy(ret->text, text.ptr, text.len);
    ret->key = ret->cut ? kept_key : subject_find_key(ret, key);
}

int packed_add_list(sv bytes, const struct hash_key *key, struct top_list *sum)
{
    struct reader in = reader_of(bytes);
    uint64_t total = take(&in, WEIR_AMOUNT_MAX), unlisted = take(&in, WEIR_AMOUNT_MAX);
    uint64_t count = take(&in, TOP_HISTORY_SUMMED);
    int r = top_list_reserve(sum, (unsigned)(count + 1) / 2);
    if (r < 0)
        return r;
    for (size_t i = 0; i < count && !in.failed; i++) {
        struct top_entry *to = &sum->entries[sum->count + i];
        to->count = take(&in, WEIR_AMOUNT_MAX) - unlisted;
        to->error = take(&in, WEIR_AMOUNT_MAX) - unlisted;
        take_subject(&in, key, &to->subject);
    }
    if (!ends_well(&in))
        return WEIR_E_INVALID;
    sum->total += total;
    sum->unlisted += unlisted;
    sum->count += (size_t)count;
    return 0;
}

static void take_request(struct reader *in, struct recent_request *ret)
{
    char *to = ret->text;
    ret->cut = take(in, 1);
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv value = take_text(in, i == ATTR_PATH ? RECENT_PATH_MAX : RECENT_VALUE_MAX);
        ret->lengths[i] = (uint16_t)value.len;
        memcpy(to, value.ptr, value.len);
        to += value.len;
    }
    sv descriptor = take_text(in, RECENT_DESCRIPTOR_MAX);
    ret->descriptor_len = (uint16_t)descriptor.len;
    memcpy(ret->descriptor, descriptor.ptr, descriptor.len);
    ret->cost = take(in, UINT64_MAX);
    ret->cost_count = (uint8_t)take(in, RECENT_COSTS);
    for (size_t i = 0; i < ret->cost_count; i++) {
        take_name(in, ret->costs[i].unit, RECENT_UNIT_MAX);
        ret->costs[i].amount = take(in, UINT64_MAX);
        in->failed = in->failed || !unit_name_valid(weir_str(ret->costs[i].unit));
    }
}

bool packed_read_refusal(sv bytes, const struct hash_key *key, struct recent_refusal *ret)
{
    struct reader in = reader_of(bytes);
    ret->at_us = (int64_t)take(&in, CLOCK_END_US - 1);
    ret->retry_after_ms = (int64_t)take(&in, INT64_MAX) + WEIR_NEVER;
    ret->status = (uint16_t)take(&in, 999);
    ret->reason = (enum recent_reason)take(&in, RECENT_REASONS - 1);
    ret->shadow = take(&in, 1);
    take_name(&in, ret->limit, WEIR_NAME_MAX);
    take_subject(&in, key, &ret->subject);
    take_name(&in, ret->plan.name, RULE_NAME_MAX);
    take_name(&in, ret->plan.header, RULE_NAME_MAX);
    ret->of_request = take(&in, 1);
    if (ret->of_request)
        take_request(&in, &ret->request);
    return ends_well(&in);
}
