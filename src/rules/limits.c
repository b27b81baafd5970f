/* Limits: "10 per 60s", or a mapping. */
#include <stdio.h>

#include "rules/reader.h"

#define LENGTHS "a length such as 500ms, 60s, 1m, 24h or 1d, from 1ms to 3650d"

static bool all_digits(sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!ascii_digit(s.ptr[i]))
            return false;
    return s.len > 0;
}

/* Digits without a zero before them. */
static bool whole_number(sv s)
{
    return all_digits(s) && (s.len == 1 || s.ptr[0] != '0');
}

/* One whole number and one unit, blanks between them if you like. */
enum amount_found read_length(sv text, int64_t min_us, int64_t max_us, int64_t *ret_us)
{
    struct amount_range range = { .kind = AMOUNT_TIME,
                                  .min = (uint64_t)(min_us / US_PER_MS),
                                  .max = (uint64_t)(max_us / US_PER_MS) };
    uint64_t ms;
    enum amount_found found = amount_read(text, &range, &ms);
    if (found == AMOUNT_GOOD)
        *ret_us = (int64_t)ms * US_PER_MS;
    return found;
}

static bool short_number(struct reader *r, const struct node *node, sv text, const char *what, uint64_t min, uint32_t *ret)
{
    uint64_t value;
    if (!sv_u64(text, LIMIT_MAX_MAX, &value) || value < min) {
        report_error(r, node->line, "%s must be a whole number from %d to %u, not %s", what, (int)min, LIMIT_MAX_MAX,
                     shown_text(r, text));
        return false;
    }
    *ret = (uint32_t)value;
    return true;
}

/* ---- the short form ---- */

enum { WORDS_MAX = 8 };

static size_t split_words(sv text, sv words[WORDS_MAX])
{
    size_t count = 0;
    for (sv rest = sv_trim(text); rest.len > 0; rest = sv_trim(rest)) {
        size_t n = 0;
        while (n < rest.len && !sv_blank(sv_of(rest.ptr + n, 1)))
            n++;
        if (count == WORDS_MAX)
            return 0;
        words[count++] = sv_of(rest.ptr, n);
        rest = sv_from(rest, n);
    }
    return count;
}

static void wrong_form(struct reader *r, const struct node *node)
{
    report_error(
        r, node->line,
        "must look like \"10 per 60s\", \"5 per 1m burst 20\" or \"100 per day\", not %s (units: ms, s, m, h, d; calendar: "
        "minute, hour, day, week, month, year)",
        shown_node(r, node));
}

/* "100 per day" and what should not follow it. */
static void read_short_calendar(struct reader *r, const struct node *node, const sv *words, size_t count, int unit,
                                struct rule_limit *ret)
{
    if (count > 3 && sv_eq(words[3], SV("burst"))) {
        report_error(r, node->line, "burst is allowed with a length such as 1d, not with the calendar unit %s",
                     unit_names[unit]);
    } else if (count > 3) {
        report_error(r, node->line,
                     "nothing may follow the calendar unit here; for a time zone write { calendar: %s, max: %u, tz: "
                     "… }",
                     unit_names[unit], ret->max);
    } else {
        ret->algorithm = LIMIT_CALENDAR;
        ret->unit = (enum calendar_unit)unit;
        ret->zone = zone_utc(r->rules);
        r->no_memory = r->no_memory || !ret->zone;
    }
}

static void read_short(struct reader *r, const struct node *node, struct rule_limit *ret)
{
    sv words[WORDS_MAX];
    size_t count = split_words(node->text, words);
    if (count < 3 || !whole_number(words[0]) || !sv_eq(words[1], SV("per"))) {
        wrong_form(r, node);
        return;
    }
    if (!short_number(r, node, words[0], "max", 0, &ret->max))
        return;
    int unit = word_find(words[2], unit_names);
    if (unit >= 0) {
        read_short_calendar(r, node, words, count, unit, ret);
        return;
    }
    /* "60 s" is two words, and they lie behind each other in one text. */
    size_t used = 3;
    sv length = words[2];
    if (all_digits(length) && count > used) {
        length = sv_of(length.ptr, (size_t)(words[used].ptr - length.ptr) + words[used].len);
        used++;
    }
    enum amount_found found = read_length(length, LIMIT_PER_MIN_US, LIMIT_PER_MAX_US, &ret->per_us);
    bool burst = count == used + 2 && sv_eq(words[used], SV("burst")) && whole_number(words[used + 1]);
    if (found == AMOUNT_INVALID || (count > used && !burst)) {
        wrong_form(r, node);
        return;
    }
    if (found == AMOUNT_OUT_OF_RANGE)
        report_error(r, node->line, "the time must be from 1ms to 3650d, not %s", shown_text(r, length));
    ret->burst = ret->max;
    if (burst)
        short_number(r, node, words[used + 1], "burst", 1, &ret->burst);
}

/* ---- the long form ---- */

struct limit_nodes {
    const struct node *name, *algorithm, *max, *per, *burst, *calendar, *tz, *week_start;
};

static const struct field limit_fields[] = {
    { "name", offsetof(struct limit_nodes, name) },
    { "algorithm", offsetof(struct limit_nodes, algorithm) },
    { "max", offsetof(struct limit_nodes, max) },
    { "per", offsetof(struct limit_nodes, per) },
    { "burst", offsetof(struct limit_nodes, burst) },
    { "calendar", offsetof(struct limit_nodes, calendar) },
    { "tz", offsetof(struct limit_nodes, tz) },
    { "week_start", offsetof(struct limit_nodes, week_start) },
    { NULL },
};

static void read_name(struct reader *r, const struct node *node, struct rule_limit *ret)
{
    IN_FIELD(r, "name");
    if (read_text(r, node, 1, WEIR_NAME_MAX, &ret->name)) {
        bool good = sv_trim(ret->name).len == ret->name.len;
        for (size_t i = 0; i < ret->name.len; i++) {
            char c = ret->name.ptr[i];
            good = good && c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        }
        if (!good)
            report_error(r, node->line, "must be printable ASCII without \", \\, and leading or trailing blanks, not %s",
                         shown_node(r, node));
        ret->named = good;
    }
}

static void read_count(struct reader *r, const struct node *node, sv name, uint64_t min, uint32_t *ret)
{
    size_t before = path_field(r, name);
    uint64_t value;
    if (read_number(r, node, min, LIMIT_MAX_MAX, &value))
        *ret = (uint32_t)value;
    path_end(r, before);
}

static void read_per(struct reader *r, const struct node *node, struct rule_limit *ret)
{
    IN_FIELD(r, "per");
    sv text = node->kind == NODE_SCALAR ? sv_trim(node->text) : (sv){ 0 };
    enum amount_found found = read_length(text, LIMIT_PER_MIN_US, LIMIT_PER_MAX_US, &ret->per_us);
    int unit = word_find(text, unit_names);
    if (found == AMOUNT_OUT_OF_RANGE)
        report_error(r, node->line, "must be from 1ms to 3650d, not %s", shown_node(r, node));
    else if (found == AMOUNT_INVALID && unit >= 0)
        report_error(r, node->line,
                     "`%s` is a calendar unit, and %s takes " LENGTHS "; write `calendar: %s` for the natural %s",
                     unit_names[unit], algorithm_name(ret->algorithm), unit_names[unit], unit_names[unit]);
    else if (found == AMOUNT_INVALID && all_digits(text))
        report_error(r, node->line, "must be " LENGTHS "; %s has no unit", shown_node(r, node));
    else if (found == AMOUNT_INVALID)
        report_error(r, node->line, "must be " LENGTHS ", not %s", shown_node(r, node));
}

static void not_with(struct reader *r, const struct node *node, sv field, const char *why)
{
    if (!node)
        return;
    size_t before = path_field(r, field);
    report_error(r, node->line, "%s", why);
    path_end(r, before);
}

static void read_calendar(struct reader *r, const struct node *node, const struct limit_nodes *n, struct rule_limit *ret)
{
    ret->algorithm = LIMIT_CALENDAR;
    bool as_per = !n->calendar;
    if (as_per && !n->per) {
        report_error(r, node->line, "algorithm calendar needs `calendar`: minute, hour, day, week, month or year");
        return;
    }
    int unit = -1, week_start = MONDAY;
    size_t before = path_field(r, as_per ? SV("per") : SV("calendar"));
    read_word(r, as_per ? n->per : n->calendar, unit_names, &unit);
    path_end(r, before);
    ret->unit = unit >= 0 ? (enum calendar_unit)unit : CALENDAR_DAY;
    if (!as_per)
        not_with(r, n->per, SV("per"), "cannot be combined with `calendar`; leave one of the two out");
    not_with(r, n->burst, SV("burst"), "is allowed with token_bucket only, not with a calendar window");
    if (n->tz) {
        before = path_field(r, SV("tz"));
        ret->zone = read_zone(r, n->tz);
        path_end(r, before);
    } else {
        ret->zone = zone_utc(r->rules);
        r->no_memory = r->no_memory || !ret->zone;
    }
    if (n->week_start && unit >= 0 && unit != CALENDAR_WEEK) {
        not_with(r, n->week_start, SV("week_start"), "is allowed with `calendar: week` only");
    } else if (n->week_start) {
        before = path_field(r, SV("week_start"));
        if (read_word(r, n->week_start, weekday_names, &week_start))
            ret->week_start = week_start;
        path_end(r, before);
    }
}

static void read_by_length(struct reader *r, const struct node *node, const struct limit_nodes *n, struct rule_limit *ret)
{
    not_with(r, n->calendar, SV("calendar"), "is allowed with algorithm calendar only; leave `algorithm` out");
    not_with(r, n->tz, SV("tz"), "is allowed with `calendar` only");
    not_with(r, n->week_start, SV("week_start"), "is allowed with `calendar: week` only");
    if (n->per)
        read_per(r, n->per, ret);
    else if (!n->calendar)
        report_error(r, node->line, "needs `per`, " LENGTHS ", or `calendar`");
    ret->burst = ret->algorithm == LIMIT_TOKEN_BUCKET ? ret->max : 0;
    if (n->burst && ret->algorithm != LIMIT_TOKEN_BUCKET)
        not_with(r, n->burst, SV("burst"), "is allowed with token_bucket only");
    else if (n->burst)
        read_count(r, n->burst, SV("burst"), 1, &ret->burst);
}

static void read_long(struct reader *r, const struct node *node, struct rule_limit *ret)
{
    struct limit_nodes n = { 0 };
    read_fields(r, node, limit_fields, &n);
    if (n.name)
        read_name(r, n.name, ret);
    if (n.max)
        read_count(r, n.max, SV("max"), 0, &ret->max);
    else
        report_error(r, node->line, "needs `max`, a whole number from 0 to %u", LIMIT_MAX_MAX);
    bool bare_unit = n.per && n.per->kind == NODE_SCALAR && word_find(n.per->text, unit_names) >= 0;
    int algorithm = n.calendar || bare_unit ? LIMIT_CALENDAR : LIMIT_TOKEN_BUCKET;
    if (n.algorithm) {
        size_t before = path_field(r, SV("algorithm"));
        bool good = read_word(r, n.algorithm, algorithm_names, &algorithm);
        path_end(r, before);
        if (!good)
            return;
    }
    ret->algorithm = (enum limit_algorithm)algorithm;
    if (algorithm == LIMIT_CALENDAR)
        read_calendar(r, node, &n, ret);
    else
        read_by_length(r, node, &n, ret);
}

/* ---- names ---- */

static const char *default_name(const struct rule_limit *limit)
{
    return limit->algorithm == LIMIT_CALENDAR ? unit_names[limit->unit] : algorithm_name(limit->algorithm);
}

static bool name_taken(const struct rule *rule, sv name)
{
    for (size_t i = 0; i < rule->limit_count; i++)
        if (sv_eq(rule->limits[i].name, name))
            return true;
    return false;
}

/* Given names first: the others make way for them. */
static void give_names(struct reader *r, const struct node *node, struct rule *rule)
{
    int line[RULE_LIMITS_MAX] = { 0 };
    struct walk walk = walk_list(node);
    const struct node *item;
    for (size_t i = 0; (item = walk_next(r, &walk)); i++) {
        struct rule_limit *limit = &rule->limits[i];
        line[i] = item->line;
        for (size_t j = 0; limit->named && j < i; j++)
            if (rule->limits[j].named && sv_eq(rule->limits[j].name, limit->name))
                report_error(r, line[i],
                             "the name %s is given twice, first in line %d; the limits of a rule need different names",
                             shown_text(r, limit->name), line[j]);
    }
    for (size_t i = 0; i < rule->limit_count; i++) {
        struct rule_limit *limit = &rule->limits[i];
        if (limit->named)
            continue;
        char name[WEIR_NAME_MAX];
        int n = snprintf(name, sizeof name, "%s", default_name(limit)), number = 1;
        while (name_taken(rule, sv_of(name, (size_t)n)))
            n = snprintf(name, sizeof name, "%s-%d", default_name(limit), ++number);
        limit->name = reader_copy(r, sv_of(name, (size_t)n));
        if (number > 1) {
            size_t before = path_index(r, i);
            report_advice(r, line[i],
                          "gets the name %s, because %s is already used; give it a name, so that it keeps its counts when "
                          "others change",
                          name, default_name(limit));
            path_end(r, before);
        }
    }
}

void read_limits(struct reader *r, const struct node *node, struct rule *rule)
{
    size_t before = path_field(r, SV("limits")), errors = r->errors;
    if (check_count(r, node, 1, RULE_LIMITS_MAX, "a rule needs at least one limit, such as \"10 per 60s\"")) {
        rule->limit_count = list_count(node);
        rule->limits = reader_alloc(r, rule->limit_count * sizeof *rule->limits);
        struct walk walk = walk_list(node);
        const struct node *item;
        for (size_t i = 0; rule->limits && (item = walk_next(r, &walk)); i++) {
            if (item->kind == NODE_MAP)
                read_long(r, item, &rule->limits[i]);
            else if (item->kind == NODE_SCALAR)
                read_short(r, item, &rule->limits[i]);
            else
                wrong_form(r, item);
        }
        if (r->errors == errors && rule->limits)
            give_names(r, node, rule);
    }
    path_end(r, before);
}
