#include "rules/reader.h"

const char *const algorithm_names[] = { "token_bucket", "fixed_window", "sliding_window", "calendar", "concurrent", NULL };
const char *const unit_names[] = { "minute", "hour", "day", "week", "month", "year", NULL };
const char *const weekday_names[] = { "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", NULL };
const char *const mode_names[] = { "enforce", "shadow", "off", NULL };
const char *const counters_names[] = { "", "local", "shared", NULL };
const char *const on_failure_names[] = { "local", "allow", "deny", NULL };
const char *const repeated_names[] = { "refuse", "first", "last", NULL };
const char *const header_setting_names[] = { "standard", "legacy", "openai", "off", NULL };

void rule_by_text(const struct rule_by *by, struct buf *out)
{
    buf_printf(out, "%s%s%.*s", attribute_table[by->attribute].name.ptr, by->name.len ? ":" : "", SV_FMT(by->name));
}

void override_subject_text(const sv *values, size_t count, struct buf *out)
{
    for (size_t i = 0; i < count; i++) {
        buf_add(out, i ? SV(",") : SV(""));
        for (size_t k = 0; count > 1 && k < values[i].len; k++) {
            char c = values[i].ptr[k];
            if (c == ',' || c == '%')
                buf_add(out, c == ',' ? SV("%2C") : SV("%25"));
            else
                buf_char(out, c);
        }
        if (count == 1)
            buf_add(out, values[i].len > 0 ? values[i] : SV("%"));
    }
}

void rule_length_text(struct buf *out, int64_t us)
{
    static const struct {
        int64_t us;
        const char *unit;
    } units[] = { { 86400 * US_PER_S, "d" }, { 3600 * US_PER_S, "h" }, { 60 * US_PER_S, "m" }, { US_PER_S, "s" } };
    for (size_t i = 0; i < 4; i++) {
        if (us % units[i].us == 0) {
            buf_printf(out, "%lld%s", (long long)(us / units[i].us), units[i].unit);
            return;
        }
    }
    buf_printf(out, "%lldms", (long long)(us / US_PER_MS));
}

void rule_calendar_text(const struct rule_limit *l, struct buf *out)
{
    if (l->unit == CALENDAR_LENGTH)
        rule_length_text(out, l->per_us);
    else
        buf_add(out, weir_str(unit_names[l->unit]));
}

struct window rule_limit_window(const struct rule_limit *limit, int64_t now_us)
{
    return limit->unit == CALENDAR_LENGTH ? aligned_window(limit->per_us, now_us)
                                          : calendar_window(&limit->zone->tz, limit->unit, limit->week_start, now_us);
}

bool rule_limits_same(const struct rule_limit *a, size_t a_count, const struct rule_limit *b, size_t b_count)
{
    _Static_assert(sizeof *a == 80, "a new field of a limit is compared, too");
    bool same = a_count == b_count;
    for (size_t i = 0; a != b && same && i < a_count; i++, a++, b++)
        same = a->max == b->max && a->burst == b->burst && a->per_us == b->per_us && a->algorithm == b->algorithm &&
               a->unit == b->unit && a->week_start == b->week_start && a->named == b->named &&
               a->overdraft == b->overdraft && a->given == b->given && sv_eq(a->name, b->name) &&
               sv_eq(a->cost_unit, b->cost_unit) && !a->zone == !b->zone &&
               (!a->zone || sv_eq(a->zone->name, b->zone->name));
    return same;
}

void rule_limit_hash(const struct rule_limit *l, struct hash *h)
{
    sv zone = l->zone ? l->zone->name : (sv){ 0 };
    hash_word(h, l->max);
    hash_word(h, l->burst);
    hash_word(h, (uint64_t)l->per_us);
    hash_word(h, (uint64_t)l->algorithm << 48 | (uint64_t)l->unit << 32 | (uint64_t)l->week_start << 16 |
                     (uint64_t)l->named << 2 | (uint64_t)l->overdraft << 1 | l->given);
    hash_text(h, l->name.ptr, l->name.len);
    hash_text(h, l->cost_unit.ptr, l->cost_unit.len);
    hash_text(h, zone.ptr, zone.len);
}

void rule_disable(struct rule_kind *kind)
{
    kind->enabled_mode = kind->disabled ? kind->enabled_mode : kind->mode;
    kind->disabled = true;
    kind->mode = MODE_OFF;
}

size_t rules_in_force(const struct rules *rules, int64_t now_us)
{
    size_t count = 0;
    for (size_t i = 0; i < rules->rule_count; i++)
        count += rules->rules[i]->kind->mode != MODE_OFF && rules->rules[i]->kind->rest->expires_us > now_us;
    return count;
}

int word_find(sv text, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (sv_eq(text, weir_str(names[i])))
            return i;
    return -1;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned word_distance(sv a, sv b, unsigned bound)
{
    enum { LENGTH_MAX = 40 };
    size_t differ = a.len > b.len ? a.len - b.len : b.len - a.len;
    if (differ > bound || a.len > LENGTH_MAX || b.len > LENGTH_MAX)
        return bound + 1;
    /* Rows of the usual table; a swap of two neighbours is one change, hence the row before the last. */
    unsigned rows[3][LENGTH_MAX + 1] = { 0 };
    for (size_t j = 0; j <= b.len; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a.len; i++) {
        unsigned *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b.len; j++) {
            char x = ascii_lower(a.ptr[i - 1]), y = ascii_lower(b.ptr[j - 1]);
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (x != y));
            bool swapped = i > 1 && j > 1 && x == ascii_lower(b.ptr[j - 2]) && y == ascii_lower(a.ptr[i - 2]);
            if (swapped)
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return least(rows[a.len % 3][b.len], bound + 1);
}

const char *word_nearest(sv text, const char *const *names)
{
    unsigned bound = text.len < 3 ? 0 : text.len < 6 ? 1 : 2, best = bound + 1;
    const char *nearest = NULL;
    for (size_t i = 0; names[i]; i++) {
        unsigned distance = word_distance(text, weir_str(names[i]), bound);
        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}
