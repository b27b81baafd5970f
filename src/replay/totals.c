#include "replay/totals.h"

#include "base/buf.h"
#include "base/cleanup.h"

bool totals_init(struct totals *totals, const struct totals_bounds *bounds)
{
    *totals = (struct totals){ 0 };
    intern_init(&totals->ids, UINT32_MAX - 1, SIZE_MAX);
    intern_init(&totals->subject_names, bounds->subjects, bounds->subject_bytes);
    timeline_init(&totals->timeline);
    totals->passed_over_time = timeline_series(&totals->timeline);
    totals->refused_over_time = timeline_series(&totals->timeline);
    return totals->passed_over_time && totals->refused_over_time;
}

void totals_done(struct totals *totals)
{
    if (!totals)
        return;
    intern_done(&totals->ids);
    intern_done(&totals->subject_names);
    timeline_done(&totals->timeline);
    free(totals->rules);
    free(totals->subjects);
    free(totals->slots);
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

bool totals_rules(struct totals *totals, const struct rules *rules)
{
    uint32_t *slots = realloc(totals->slots, (rules->rule_count + 1) * sizeof slots[0]);
    if (!slots)
        return false;
    totals->slots = slots;
    for (size_t i = 0; i < rules->rule_count; i++) {
        slots[i] = intern_add(&totals->ids, rules->rules[i]->id);
        if (slots[i] == INTERN_NONE ||
            !reserve((void **)&totals->rules, &totals->rule_cap, sizeof totals->rules[0], slots[i]))
            return false;
        totals->rules[slots[i]].mode = rules->rules[i]->kind->mode;
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
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        const struct rule_by *by = &rule->kind->by[i];
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

static bool count_subject(struct totals *totals, uint32_t slot, const struct rule *rule, struct facts *facts)
{
    CLEANUP(buf_done) struct buf name;
    buf_init(&name, 1 << 20);
    uint32_t index = INTERN_NONE;
    if (name_subject(&name, slot, rule, facts))
        index = intern_add(&totals->subject_names, buf_sv(&name));
    if (index == INTERN_NONE) {
        totals->subjects_left_out++;
        return true;
    }
    if (!reserve((void **)&totals->subjects, &totals->subject_cap, sizeof totals->subjects[0], index))
        return false;
    totals->subjects[index].rule = slot;
    totals->subjects[index].refusals++;
    return true;
}

static bool count_refusal(struct totals *totals, uint32_t slot, const struct rule *rule, struct facts *facts, size_t bin,
                          bool shadow)
{
    struct totals_rule *row = &totals->rules[slot];
    if (shadow)
        row->would_refuse++;
    else
        row->refused++;
    if (!row->over_time && totals->series_count < TOTALS_SERIES_MAX) {
        row->over_time = timeline_series(&totals->timeline);
        totals->series_count += row->over_time != NULL;
    }
    if (row->over_time)
        row->over_time->counts[bin]++;
    return count_subject(totals, slot, rule, facts);
}

static bool is_in_shadow(const struct weir_shadows *shadows, sv id)
{
    for (uint32_t i = 0; i < shadows->count; i++)
        if (sv_eq(weir_str(shadows->names[i]), id))
            return true;
    return false;
}

bool totals_request(struct totals *totals, const struct rules *rules, struct facts *facts, const struct totals_seen *seen,
                    const struct weir_verdict *verdict)
{
    size_t bin = timeline_bin(&totals->timeline, seen->now_us);
    totals->requests++;
    totals->passed += verdict->allowed;
    totals->refused += !verdict->allowed;
    totals->unmatched += seen->applied_count == 0 && verdict->allowed; /* a repeated header is refused by no rule */
    const struct weir_request *request = facts->request;
    totals->unreadable += seen->unreadable;
    totals->shadow_left_out += verdict->shadow_count - request->shadows->count;
    (verdict->allowed ? totals->passed_over_time : totals->refused_over_time)->counts[bin]++;
    for (size_t i = 0; i < seen->applied_count; i++) {
        const struct rule *rule = rules->rules[seen->applied[i]];
        uint32_t slot = totals->slots[seen->applied[i]];
        struct totals_rule *row = &totals->rules[slot];
        row->applied++;
        row->passed += verdict->allowed;
        bool shadow = is_in_shadow(request->shadows, rule->id);
        bool refused = !verdict->allowed && sv_eq(weir_str(verdict->rule), rule->id);
        if (shadow || refused)
            facts_select_first_match(facts, seen->applied[i]);
        if ((shadow || refused) && !count_refusal(totals, slot, rule, facts, bin, shadow))
            return false;
    }
    return true;
}

static int by_refusals(const void *a, const void *b, void *context)
{
    const struct totals *totals = context;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct totals_rule *x = &totals->rules[i], *y = &totals->rules[j];
    uint64_t xs[] = { x->refused + x->would_refuse, x->applied }, ys[] = { y->refused + y->would_refuse, y->applied };
    for (size_t k = 0; k < 2; k++)
        if (xs[k] != ys[k])
            return xs[k] > ys[k] ? -1 : 1;
    return i < j ? -1 : 1;
}

static int by_rule_and_refusals(const void *a, const void *b, void *context)
{
    const struct totals *totals = context;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct totals_subject *x = &totals->subjects[i], *y = &totals->subjects[j];
    if (x->rule != y->rule)
        return x->rule < y->rule ? -1 : 1;
    if (x->refusals != y->refusals)
        return x->refusals > y->refusals ? -1 : 1;
    return i < j ? -1 : 1;
}

static uint32_t *sorted(const struct totals *totals, size_t count, int (*compare)(const void *, const void *, void *))
{
    uint32_t *order = malloc((count + 1) * sizeof order[0]);
    if (!order)
        return NULL;
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, count, sizeof order[0], compare, (void *)(uintptr_t)totals);
    return order;
}

uint32_t *totals_rules_sorted(const struct totals *totals)
{
    return sorted(totals, totals->ids.count, by_refusals);
}

uint32_t *totals_subjects_sorted(const struct totals *totals)
{
    return sorted(totals, totals->subject_names.count, by_rule_and_refusals);
}
