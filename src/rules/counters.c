/* Where a rule counts: on each host, in a store that hosts share, or in slices that a host takes from it; and how much of a
 * limit one hold may take. */
#include "rules/reader.h"

#define SLICE_DEFAULT 500
#define TTL_DEFAULT_MS 2000
#define TTL_MIN_US (100 * US_PER_MS)
#define TTL_MAX_US (3600 * US_PER_S)

#define SLICES "a part of the window's budget such as 5%% or 0.5%%, from 0.01%% to 100%%" /* in a format */
#define TTLS "a length such as 500ms, 2s or 1m, from 100ms to 1h"
#define HOLD_SHARES "a part of a limit's max in whole percent such as 50%%, from 1%% to 100%%" /* in a format */

const struct rule_lease lease_default = { .on = true, .slice = SLICE_DEFAULT, .ttl_ms = TTL_DEFAULT_MS };

/* ---- slice and ttl ---- */

/* "5", "0.5" or "12.25" in hundredths. */
static bool parse_hundredths(sv text, uint64_t max, uint64_t *ret)
{
    sv fraction = text, whole = sv_cut(&fraction, '.');
    bool point = whole.len < text.len;
    uint64_t units, hundredths = 0;
    bool zeros = whole.len > 1 && whole.ptr[0] == '0';
    if (zeros || !sv_u64(whole, max / 100, &units))
        return false;
    if (point && (fraction.len > 2 || !sv_u64(fraction, 99, &hundredths)))
        return false;
    if (fraction.len == 1)
        hundredths *= 10;
    uint64_t value = 100 * units + hundredths;
    if (value > max)
        return false;
    *ret = value;
    return true;
}

static void read_slice(struct reader *r, const struct node *node, void *ret)
{
    struct rule_lease *lease = ret;
    sv text = node->kind == NODE_SCALAR ? sv_trim(node->text) : (sv){ 0 };
    bool percent = text.len > 0 && text.ptr[text.len - 1] == '%';
    sv number = percent ? sv_trim(sv_of(text.ptr, text.len - 1)) : text;
    uint64_t slice = 0;
    bool good = parse_hundredths(number, RULE_SLICE_WHOLE, &slice) && slice > 0;
    if (good && percent)
        lease->slice = (uint32_t)slice;
    else if (good)
        report_error(r, node->line, "must be " SLICES "; %s has no percent sign", shown_node(r, node));
    else
        report_error(r, node->line, "must be " SLICES ", in steps of 0.01%%, not %s", shown_node(r, node));
}

static void read_ttl(struct reader *r, const struct node *node, void *ret)
{
    struct rule_lease *lease = ret;
    sv text = node->kind == NODE_SCALAR ? sv_trim(node->text) : (sv){ 0 };
    int64_t us;
    enum amount_found found = read_length(text, TTL_MIN_US, TTL_MAX_US, &us);
    if (found == AMOUNT_GOOD)
        lease->ttl_ms = (uint32_t)(us / US_PER_MS);
    else if (found == AMOUNT_OUT_OF_RANGE)
        report_error(r, node->line, "must be from 100ms to 1h, not %s", shown_node(r, node));
    else
        report_error(r, node->line, "must be " TTLS ", not %s", shown_node(r, node));
}

/* ---- lease ---- */

static void read_lease_value(struct reader *r, const struct node *node, struct rule_lease *ret)
{
    static const struct field fields[] = { { "slice", read_slice }, { "ttl", read_ttl }, { NULL } };
    bool on = true;
    if (node->kind != NODE_MAP && !node_is_bool(node, &on)) {
        report_error(r, node->line, "must be true, false or { slice: 5%%, ttl: 2s }, not %s", shown_node(r, node));
        return;
    }
    if (on)
        *ret = lease_default;
    if (node->kind == NODE_MAP)
        read_fields(r, node, fields, ret);
}

/* A slice is a part of a window's budget, so there must be a window. */
bool limit_can_be_leased(const struct rule_limit *limit)
{
    return limit->algorithm == LIMIT_FIXED_WINDOW || limit->algorithm == LIMIT_CALENDAR;
}

static void check_leased_limits(struct reader *r, const struct node *node, const struct rule_limit *limits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct rule_limit *limit = &limits[i];
        if (limit->algorithm == LIMIT_CONCURRENT)
            report_error(r, node->line, "a slot cannot be leased: limit `%.*s` is concurrent; " SLOTS_APART,
                         SV_FMT(limit->name));
        else if (!limit_can_be_leased(limit))
            report_error(r, node->line,
                         "is allowed with fixed and calendar windows only; limit `%.*s` is a %s: give it `algorithm: "
                         "fixed_window`, or leave `lease` out",
                         SV_FMT(limit->name), algorithm_names[limit->algorithm]);
    }
}

/* After the limits; there are none if they are bad. */
void read_lease(struct reader *r, const struct node *node, void *ret)
{
    struct rule *rule = ret;
    struct rule_lease lease = { .on = false };
    read_lease_value(r, node, &lease);
    if (!lease.on)
        return;
    struct rule_rest *rest = reader_rest(r);
    rest->lease = lease;
    if (rule->kind->counters == COUNTERS_LOCAL)
        report_error(r, node->line, "needs counters that hosts share, not `counters: local`; leave one of the two out");
    else
        r->kind.counters = COUNTERS_SHARED;
    check_leased_limits(r, node, rule->kind->limits, rule->kind->limit_count);
    for (size_t i = 0; i < rest->plan_count; i++)
        check_leased_limits(r, node, rest->plans[i].limits, rest->plans[i].limit_count);
}

/* ---- counters and on_store_failure ---- */

void read_counters(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    int word;
    if (read_word(r, node, counters_names + 1, &word))
        r->kind.counters = COUNTERS_LOCAL + (enum rule_counters)word;
}

void read_on_failure(struct reader *r, const struct node *node, void *ret)
{
    struct rule *rule = ret;
    int word;
    if (read_word(r, node, on_failure_names, &word))
        r->kind.on_failure = (enum rule_on_failure)word;
    if (rule->kind->counters == COUNTERS_LOCAL)
        report_advice(r, node->line, "has no effect, because a rule with `counters: local` needs no store; leave it out");
}

/* ---- hold_max ---- */

void read_hold_max(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    struct rule_rest *rest = reader_rest(r);
    sv text = node->kind == NODE_SCALAR ? sv_trim(node->text) : (sv){ 0 };
    bool sign = text.len > 0 && text.ptr[text.len - 1] == '%';
    sv number = sign ? sv_trim(sv_of(text.ptr, text.len - 1)) : text;
    uint64_t value = 0;
    bool good = number.len > 0 && number.ptr[0] != '0' && sv_u64(number, 100, &value);
    if (good && sign)
        rest->hold_max_percent = (uint32_t)value;
    else if (good)
        report_error(r, node->line, "must be " HOLD_SHARES "; %s has no percent sign", shown_node(r, node));
    else
        report_error(r, node->line, "must be " HOLD_SHARES ", not %s", shown_node(r, node));
}
