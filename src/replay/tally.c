#include "replay/tally.h"

#include "base/buf.h"
#include "base/cleanup.h"

bool tally_init(struct tally *tally, const struct tally_bounds *bounds)
{
    *tally = (struct tally){ 0 };
    intern_init(&tally->ids, UINT32_MAX - 1, SIZE_MAX);
    intern_init(&tally->subject_names, bounds->subjects, bounds->subject_bytes);
    timeline_init(&tally->timeline);
    tally->passed_over_time = timeline_series(&tally->timeline);
    tally->refused_over_time = timeline_series(&tally->timeline);
    return tally->passed_over_time && tally->refused_over_time;
}

void tally_done(struct tally *tally)
{
    if (!tally)
        return;
    intern_done(&tally->ids);
    intern_done(&tally->subject_names);
    timeline_done(&tally->timeline);
    free(tally->rules);
    free(tally->subjects);
    free(tally->slots);
}

/* Makes room for element `index` of an array; new elements are zero. */
static bool reserve(void **array, size_t *cap, size_t size, size_t index)
{
    if (index < *cap)
        return true;
    size_t wanted = *cap ? *cap * 2 : 64;
    while (wanted <= index)
        wanted *= 2;
    char *bigger = realloc(*array, wanted * size);
    if (!bigger)
        return false;
    memset(bigger + *cap * size, 0, (wanted - *cap) * size);
    *array = bigger;
    *cap = wanted;
    return true;
}

bool tally_rules(struct tally *tally, const struct rules *rules)
{
    uint32_t *slots = realloc(tally->slots, (rules->rule_count + 1) * sizeof slots[0]);
    if (!slots)
        return false;
    tally->slots = slots;
    for (size_t i = 0; i < rules->rule_count; i++) {
        slots[i] = intern_add(&tally->ids, rules->rules[i].id);
        if (slots[i] == INTERN_NONE || !reserve((void **)&tally->rules, &tally->rule_cap, sizeof tally->rules[0], slots[i]))
            return false;
        tally->rules[slots[i]].mode = rules->rules[i].mode;
    }
    return true;
}

/* A subject's name: its rule's number, then attribute and value of each `by`, every text after its length. */
static void add_text(struct buf *out, sv text)
{
    uint32_t len = (uint32_t)text.len;
    buf_add(out, sv_of((const char *)&len, sizeof len));
    buf_add(out, text);
}

static bool take_text(sv *rest, sv *ret)
{
    uint32_t len;
    if (rest->len < sizeof len)
        return false;
    memcpy(&len, rest->ptr, sizeof len);
    *ret = sv_of(rest->ptr + sizeof len, len);
    *rest = sv_from(*rest, sizeof len + len);
    return true;
}

sv subject_parts(sv name)
{
    return sv_from(name, sizeof(uint32_t));
}

bool subject_next(sv *name, sv *ret_attribute, sv *ret_value)
{
    return take_text(name, ret_attribute) && take_text(name, ret_value);
}

static bool name_subject(struct buf *out, uint32_t slot, const struct rule *rule, struct facts *facts)
{
    buf_add(out, sv_of((const char *)&slot, sizeof slot));
    for (size_t i = 0; i < rule->by_count; i++) {
        const struct rule_by *by = &rule->by[i];
        if (by->name.len > 0) {
            sv attribute = attribute_table[by->attribute].name;
            uint32_t len = (uint32_t)(attribute.len + 1 + by->name.len);
            buf_add(out, sv_of((const char *)&len, sizeof len));
            buf_add(out, attribute);
            buf_char(out, ':');
            buf_add(out, by->name);
        } else {
            add_text(out, attribute_table[by->attribute].name);
        }
        add_text(out, facts_attribute(facts, by));
    }
    return !out->failed;
}

static bool count_subject(struct tally *tally, uint32_t slot, const struct rule *rule, struct facts *facts)
{
    CLEANUP(buf_done) struct buf name;
    buf_init(&name, 1 << 20);
    uint32_t index = INTERN_NONE;
    if (name_subject(&name, slot, rule, facts))
        index = intern_add(&tally->subject_names, buf_sv(&name));
    if (index == INTERN_NONE) {
        tally->subjects_left_out++;
        return true;
    }
    if (!reserve((void **)&tally->subjects, &tally->subject_cap, sizeof tally->subjects[0], index))
        return false;
    tally->subjects[index].rule = slot;
    tally->subjects[index].refusals++;
    return true;
}

static bool count_refusal(struct tally *tally, uint32_t slot, const struct rule *rule, struct facts *facts, size_t bin,
                          bool shadow)
{
    struct tally_rule *row = &tally->rules[slot];
    if (shadow)
        row->would_refuse++;
    else
        row->refused++;
    if (!row->over_time && tally->series_count < TALLY_SERIES_MAX) {
        row->over_time = timeline_series(&tally->timeline);
        tally->series_count += row->over_time != NULL;
    }
    if (row->over_time)
        row->over_time->counts[bin]++;
    return count_subject(tally, slot, rule, facts);
}

static bool is_in_shadow(const struct weir_shadows *shadows, sv id)
{
    for (uint32_t i = 0; i < shadows->count; i++)
        if (sv_eq(weir_str(shadows->names[i]), id))
            return true;
    return false;
}

bool tally_request(struct tally *tally, const struct rules *rules, struct facts *facts, const uint32_t *applied,
                   size_t applied_count, const struct weir_verdict *verdict, int64_t now_us)
{
    size_t bin = timeline_bin(&tally->timeline, now_us);
    tally->requests++;
    tally->passed += verdict->allowed;
    tally->refused += !verdict->allowed;
    tally->unmatched += applied_count == 0 && verdict->allowed; /* a repeated header is refused by no rule */
    const struct weir_request *request = facts->request;
    tally->unreadable += (request->ip.len > 0 || request->peer.len > 0) && !facts_ip(facts);
    tally->shadow_left_out += verdict->shadow_count - request->shadows->count;
    (verdict->allowed ? tally->passed_over_time : tally->refused_over_time)->counts[bin]++;
    for (size_t i = 0; i < applied_count; i++) {
        const struct rule *rule = &rules->rules[applied[i]];
        uint32_t slot = tally->slots[applied[i]];
        struct tally_rule *row = &tally->rules[slot];
        row->applied++;
        row->passed += verdict->allowed;
        bool shadow = is_in_shadow(request->shadows, rule->id);
        bool refused = !verdict->allowed && sv_eq(weir_str(verdict->rule), rule->id);
        if (shadow || refused)
            facts_select_first_match(facts, applied[i]);
        if ((shadow || refused) && !count_refusal(tally, slot, rule, facts, bin, shadow))
            return false;
    }
    return true;
}

static int by_refusals(const void *a, const void *b, void *context)
{
    const struct tally *tally = context;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct tally_rule *x = &tally->rules[i], *y = &tally->rules[j];
    uint64_t xs[] = { x->refused + x->would_refuse, x->applied }, ys[] = { y->refused + y->would_refuse, y->applied };
    for (size_t k = 0; k < 2; k++)
        if (xs[k] != ys[k])
            return xs[k] > ys[k] ? -1 : 1;
    return i < j ? -1 : 1;
}

static int by_rule_and_refusals(const void *a, const void *b, void *context)
{
    const struct tally *tally = context;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct tally_subject *x = &tally->subjects[i], *y = &tally->subjects[j];
    if (x->rule != y->rule)
        return x->rule < y->rule ? -1 : 1;
    if (x->refusals != y->refusals)
        return x->refusals > y->refusals ? -1 : 1;
    return i < j ? -1 : 1;
}

static uint32_t *sorted(const struct tally *tally, size_t count, int (*compare)(const void *, const void *, void *))
{
    uint32_t *order = malloc((count + 1) * sizeof order[0]);
    if (!order)
        return NULL;
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, count, sizeof order[0], compare, (void *)(uintptr_t)tally);
    return order;
}

uint32_t *tally_rules_sorted(const struct tally *tally)
{
    return sorted(tally, tally->ids.count, by_refusals);
}

uint32_t *tally_subjects_sorted(const struct tally *tally)
{
    return sorted(tally, tally->subject_names.count, by_rule_and_refusals);
}
