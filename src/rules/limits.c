/* Limits: "10 per 60s", "10 concurrent", or a mapping. */
#include <inttypes.h>
#include <stdio.h>

#include "rules/reader.h"

#define LENGTHS "a length such as 500ms, 60s, 1m, 24h or 1d, from 1ms to 3650d"
#define TTLS "a length such as 500ms, 60s, 1m or 24h, from 1ms to 24h"

/* Most requests are over by then, and a slot of a process that died is not lost for long. */
const int64_t slot_ttl_default_us = 60 * US_PER_S;

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

static bool short_number(struct reader *r, const struct node *node, sv text, const char *what, uint64_t min, uint64_t *ret)
{
    uint64_t value;
    if (!sv_u64(text, LIMIT_MAX_MAX, &value) || value < min) {
        report_error(r, node->line, "%s must be a whole number from %" PRIu64 " to %" PRIu64 ", not %s", what, min,
                     LIMIT_MAX_MAX, shown_text(r, text));
        return false;
    }
    *ret = value;
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
    report_error(r, node->line,
                 "must look like \"10 per 60s\", \"5 per 1m burst 20\", \"100 per day\", \"1000 tokens per 1m\" or \"10 "
                 "concurrent\", not %s (lengths: ms, s, m, h, d; calendar: "
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
                     "nothing may follow the calendar unit here; for a time zone write { calendar: %s, max: %" PRIu64
                     ", tz: … }",
                     unit_names[unit], ret->max);
    } else {
        ret->algorithm = LIMIT_CALENDAR;
        ret->unit = (enum calendar_unit)unit;
        ret->zone = read_zone(r, NULL);
    }
}

/* "1000 tokens per 1m" has the unit of costs as its second word, which is taken out. A number there is a mistake. */
static void take_cost_unit(struct reader *r, sv *words, size_t *count, struct rule_limit *ret)
{
    if (*count < 4 || !sv_eq(words[2], SV("per")) || !unit_name_valid(words[1]) || ascii_digit(words[1].ptr[0]))
        return;
    if (!sv_eq(words[1], SV(UNIT_REQUESTS)))
        ret->cost_unit = reader_copy(r, words[1]);
    for (size_t i = 1; i + 1 < *count; i++)
        words[i] = words[i + 1];
    --*count;
}

/* "10 concurrent" and what should not follow it. */
static void read_short_concurrent(struct reader *r, const struct node *node, const sv *words, size_t count,
                                  struct rule_limit *ret)
{
    if (!short_number(r, node, words[0], "concurrent", 0, &ret->max))
        return;
    if (count > 2)
        report_error(r, node->line,
                     "nothing may follow `concurrent` here; for a time to live write { concurrent: %" PRIu64 ", ttl: … }",
                     ret->max);
    ret->algorithm = LIMIT_CONCURRENT;
    ret->per_us = slot_ttl_default_us;
}

static void read_short(struct reader *r, const struct node *node, struct rule_limit *ret)
{
    sv words[WORDS_MAX];
    size_t count = split_words(node->text, words);
    if (count >= 2 && whole_number(words[0]) && sv_eq(words[1], SV("concurrent")) &&
        (count == 2 || !sv_eq(words[2], SV("per")))) {
        read_short_concurrent(r, node, words, count, ret);
        return;
    }
    take_cost_unit(r, words, &count, ret);
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
    /* "60 s" is two words, which follow each other in one text. */
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

static void read_name(struct reader *r, const struct node *node, void *ret)
{
    struct rule_limit *limit = ret;
    if (!read_text(r, node, 1, WEIR_NAME_MAX, &limit->name))
        return;
    limit->named = sv_trim(limit->name).len == limit->name.len;
    for (size_t i = 0; i < limit->name.len; i++) {
        char c = limit->name.ptr[i];
        limit->named = limit->named && c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
    }
    if (!limit->named)
        report_error(r, node->line, "must be printable ASCII without \", \\, and leading or trailing blanks, not %s",
                     shown_node(r, node));
}

static void read_count(struct reader *r, const struct node *node, uint64_t min, uint64_t *ret)
{
    read_number(r, node, min, LIMIT_MAX_MAX, ret);
}

static void read_max(struct reader *r, const struct node *node, void *ret)
{
    read_count(r, node, 0, ret);
}

static void read_burst(struct reader *r, const struct node *node, void *ret)
{
    read_count(r, node, 1, ret);
}

static void read_cost_unit(struct reader *r, const struct node *node, void *ret)
{
    struct rule_limit *limit = ret;
    sv unit;
    if (!read_text(r, node, 1, WEIR_UNIT_MAX, &unit))
        return;
    if (!unit_name_valid(unit))
        report_error(r, node->line, "must be a name of letters, digits, `_`, `-` and `.`, such as tokens, not %s",
                     shown_node(r, node));
    else if (!sv_eq(unit, SV(UNIT_REQUESTS)))
        limit->cost_unit = unit;
}

static void read_overdraft(struct reader *r, const struct node *node, void *ret)
{
    read_bool(r, node, ret);
}

static void read_algorithm(struct reader *r, const struct node *node, void *ret)
{
    struct rule_limit *limit = ret;
    /* All but the last, which is written `concurrent: 10`. */
    const char *names[LIMIT_CONCURRENT + 1] = { NULL };
    memcpy(names, algorithm_names, LIMIT_CONCURRENT * sizeof *names);
    int word;
    if (read_word(r, node, names, &word))
        limit->algorithm = (enum limit_algorithm)word;
}

static void read_per(struct reader *r, const struct node *node, void *ret)
{
    struct rule_limit *limit = ret;
    sv text = node->kind == NODE_SCALAR ? sv_trim(node->text) : (sv){ 0 };
    enum amount_found found = read_length(text, LIMIT_PER_MIN_US, LIMIT_PER_MAX_US, &limit->per_us);
    int unit = word_find(text, unit_names);
    if (found == AMOUNT_OUT_OF_RANGE)
        report_error(r, node->line, "must be from 1ms to 3650d, not %s", shown_node(r, node));
    else if (found == AMOUNT_INVALID && unit >= 0)
        report_error(r, node->line,
                     "`%s` is a calendar unit, and %s takes " LENGTHS "; write `calendar: %s` for the natural %s",
                     unit_names[unit], algorithm_names[limit->algorithm], unit_names[unit], unit_names[unit]);
    else if (found == AMOUNT_INVALID && all_digits(text))
        report_error(r, node->line, "must be " LENGTHS "; %s has no unit", shown_node(r, node));
    else if (found == AMOUNT_INVALID)
        report_error(r, node->line, "must be " LENGTHS ", not %s", shown_node(r, node));
}

static void read_unit(struct reader *r, const struct node *node, void *ret)
{
    struct rule_limit *limit = ret;
    int word;
    if (read_word(r, node, unit_names, &word))
        limit->unit = (enum calendar_unit)word;
}

/* A unit, or a length. */
static void read_calendar_period(struct reader *r, const struct node *node, void *ret)
{
    struct rule_limit *limit = ret;
    sv text = node->kind == NODE_SCALAR ? sv_trim(node->text) : (sv){ 0 };
    if (text.len == 0 || !ascii_digit(text.ptr[0])) {
        read_unit(r, node, ret);
        return;
    }
    limit->unit = CALENDAR_LENGTH;
    if (read_length(text, US_PER_S, LIMIT_PER_MAX_US, &limit->per_us) != AMOUNT_GOOD)
        report_error(r, node->line, "must be a unit such as day, or a length such as 10m or 7d, from 1s to 3650d, not %s",
                     shown_node(r, node));
}

static void read_tz(struct reader *r, const struct node *node, void *ret)
{
    struct rule_limit *limit = ret;
    limit->zone = read_zone(r, node);
}

static void read_week_start(struct reader *r, const struct node *node, void *ret)
{
    read_word(r, node, weekday_names, ret);
}

static void read_ttl(struct reader *r, const struct node *node, void *ret)
{
    struct rule_limit *limit = ret;
    sv text = node->kind == NODE_SCALAR ? sv_trim(node->text) : (sv){ 0 };
    enum amount_found found = read_length(text, US_PER_MS, WEIR_TTL_MAX_MS * US_PER_MS, &limit->per_us);
    if (found == AMOUNT_OUT_OF_RANGE)
        report_error(r, node->line, "must be from 1ms to 24h, not %s", shown_node(r, node));
    else if (found == AMOUNT_INVALID)
        report_error(r, node->line, all_digits(text) ? "must be " TTLS "; %s has no unit" : "must be " TTLS ", not %s",
                     shown_node(r, node));
}

/* Which of them may be there depends on others: read_long() reads them one by one. */
enum limit_field {
    NAME,
    ALGORITHM,
    MAX,
    PER,
    BURST,
    CALENDAR,
    TZ,
    WEEK_START,
    UNIT,
    OVERDRAFT,
    CONCURRENT,
    TTL,
    LIMIT_FIELDS
};

static const struct field limit_fields[] = {
    [NAME] = { "name", read_name },
    [ALGORITHM] = { "algorithm", read_algorithm },
    [MAX] = { "max", read_max, offsetof(struct rule_limit, max) },
    [PER] = { "per", read_per },
    [BURST] = { "burst", read_burst, offsetof(struct rule_limit, burst) },
    [CALENDAR] = { "calendar", read_calendar_period },
    [TZ] = { "tz", read_tz },
    [WEEK_START] = { "week_start", read_week_start, offsetof(struct rule_limit, week_start) },
    [UNIT] = { "unit", read_cost_unit },
    [OVERDRAFT] = { "overdraft", read_overdraft, offsetof(struct rule_limit, overdraft) },
    [CONCURRENT] = { "concurrent", read_max, offsetof(struct rule_limit, max) },
    [TTL] = { "ttl", read_ttl },
    [LIMIT_FIELDS] = { NULL },
};

struct long_limit {
    const struct node *node, *fields[LIMIT_FIELDS];
    struct rule_limit *limit;
};

static void read_one(struct reader *r, const struct long_limit *l, enum limit_field field)
{
    read_field(r, &limit_fields[field], l->fields[field], l->limit);
}

static void not_with(struct reader *r, const struct long_limit *l, enum limit_field field, const char *why)
{
    if (!l->fields[field])
        return;
    size_t before = path_field(r, weir_str(limit_fields[field].name));
    report_error(r, l->fields[field]->line, "%s", why);
    path_end(r, before);
}

static void read_calendar(struct reader *r, const struct long_limit *l)
{
    static const struct field unit_in_per = { "per", read_unit };
    size_t errors = r->errors;
    if (l->fields[CALENDAR]) {
        read_one(r, l, CALENDAR);
    } else if (l->fields[PER]) {
        read_field(r, &unit_in_per, l->fields[PER], l->limit);
    } else {
        report_error(r, l->node->line, "algorithm calendar needs `calendar`: minute, hour, day, week, month or year");
        return;
    }
    bool other_unit = r->errors == errors && l->limit->unit != CALENDAR_WEEK;
    bool length = r->errors == errors && l->limit->unit == CALENDAR_LENGTH;
    if (l->fields[CALENDAR])
        not_with(r, l, PER, "cannot be combined with `calendar`; leave one of the two out");
    not_with(r, l, BURST, "is allowed with token_bucket only, not with a calendar window");
    if (length)
        not_with(r, l, TZ,
                 "is allowed with a calendar unit such as day only: windows of a length are counted from 1970 in UTC");
    if (l->fields[TZ] && !length)
        read_one(r, l, TZ);
    else
        l->limit->zone = read_zone(r, NULL);
    if (other_unit)
        not_with(r, l, WEEK_START, "is allowed with `calendar: week` only");
    else
        read_one(r, l, WEEK_START);
}

static void read_by_length(struct reader *r, const struct long_limit *l)
{
    not_with(r, l, CALENDAR, "is allowed with algorithm calendar only; leave `algorithm` out");
    not_with(r, l, TZ, "is allowed with `calendar` only");
    not_with(r, l, WEEK_START, "is allowed with `calendar: week` only");
    if (l->limit->algorithm == LIMIT_SLIDING_WINDOW && l->limit->max > LIMIT_SLIDE_MAX)
        not_with(r, l, MAX,
                 "a sliding_window counts to 4294967295 at most; take token_bucket, fixed_window or calendar for more");
    if (!l->fields[PER] && !l->fields[CALENDAR])
        report_error(r, l->node->line, "needs `per`, " LENGTHS ", or `calendar`");
    read_one(r, l, PER);
    if (l->limit->algorithm == LIMIT_TOKEN_BUCKET) {
        l->limit->burst = l->limit->max;
        read_one(r, l, BURST);
    } else {
        not_with(r, l, BURST, "is allowed with token_bucket only");
    }
}

/* A limit counts no further than its states do: there has to be room for debts. */
static void check_overdraft(struct reader *r, const struct long_limit *l)
{
    bool slide = l->limit->algorithm == LIMIT_SLIDING_WINDOW;
    uint64_t most = slide ? LIMIT_SLIDE_OVERDRAFT_MAX : LIMIT_OVERDRAFT_MAX;
    if (!l->limit->overdraft || (l->limit->max <= most && l->limit->burst <= most))
        return;
    size_t before = path_field(r, weir_str(limit_fields[OVERDRAFT].name));
    report_error(r, l->fields[OVERDRAFT]->line,
                 "%s with overdraft has a `max` of at most %" PRIu64 "%s, so that debts can be counted, too; lower it, or "
                 "leave `overdraft` out",
                 slide ? "a sliding_window" : "a limit", most, l->fields[BURST] ? ", and so is its `burst`" : "");
    path_end(r, before);
}

static bool says_concurrent(const struct long_limit *l)
{
    const struct node *algorithm = l->fields[ALGORITHM];
    return algorithm && algorithm->kind == NODE_SCALAR &&
           sv_eq(algorithm->text, weir_str(algorithm_names[LIMIT_CONCURRENT]));
}

static void read_concurrent(struct reader *r, const struct long_limit *l)
{
    static const enum limit_field others[] = { MAX, PER, BURST, CALENDAR, TZ, WEEK_START, UNIT, OVERDRAFT };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        not_with(r, l, others[i],
                 "cannot be combined with `concurrent`, which counts requests that are in flight and takes only `name` and "
                 "`ttl`; leave it out, or write a second limit");
    read_one(r, l, CONCURRENT);
    if (!says_concurrent(l))
        not_with(r, l, ALGORITHM, "cannot be combined with `concurrent`; leave one of the two out");
    l->limit->algorithm = LIMIT_CONCURRENT;
    l->limit->per_us = slot_ttl_default_us;
    read_one(r, l, TTL);
}

/* `algorithm: concurrent` without `concurrent`. */
static void need_concurrent(struct reader *r, const struct long_limit *l)
{
    uint64_t max = l->fields[MAX] ? l->limit->max : 10;
    report_error(r, l->fields[ALGORITHM]->line,
                 "algorithm: a limit of requests in flight is written { concurrent: %" PRIu64 ", ttl: 60s }; write "
                 "`concurrent: %" PRIu64 "` in place of `algorithm: concurrent`%s",
                 max, max, l->fields[MAX] ? " and `max`" : "");
}

static void read_long(struct reader *r, const struct node *node, struct rule_limit *ret)
{
    struct long_limit l = { .node = node, .limit = ret };
    find_fields(r, node, limit_fields, l.fields);
    read_one(r, &l, NAME);
    if (l.fields[CONCURRENT]) {
        read_concurrent(r, &l);
        return;
    }
    if (says_concurrent(&l)) {
        read_one(r, &l, MAX);
        need_concurrent(r, &l);
        return;
    }
    not_with(r, &l, TTL, "is allowed with `concurrent` only");
    read_one(r, &l, UNIT);
    if (!l.fields[MAX])
        report_error(r, node->line, "needs `max`, a whole number from 0 to %" PRIu64, LIMIT_MAX_MAX);
    read_one(r, &l, MAX);
    const struct node *per = l.fields[PER];
    bool bare_unit = per && per->kind == NODE_SCALAR && word_find(per->text, unit_names) >= 0;
    ret->algorithm = l.fields[CALENDAR] || bare_unit ? LIMIT_CALENDAR : LIMIT_TOKEN_BUCKET;
    size_t errors = r->errors;
    read_one(r, &l, ALGORITHM);
    if (r->errors > errors)
        return;
    if (ret->algorithm == LIMIT_CALENDAR)
        read_calendar(r, &l);
    else
        read_by_length(r, &l);
    read_one(r, &l, OVERDRAFT);
    check_overdraft(r, &l);
}

/* ---- names ---- */

/* "day", "7d", "token_bucket" */
static const char *default_name(struct reader *r, const struct rule_limit *limit)
{
    if (limit->algorithm != LIMIT_CALENDAR)
        return algorithm_names[limit->algorithm];
    if (limit->unit != CALENDAR_LENGTH)
        return unit_names[limit->unit];
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 100);
    rule_calendar_text(limit, &text);
    buf_char(&text, '\0');
    sv copy = reader_copy(r, buf_sv(&text));
    return copy.len > 0 ? copy.ptr : "";
}

static bool name_taken(const struct rule_limit *limits, size_t count, sv name)
{
    for (size_t i = 0; i < count; i++)
        if (sv_eq(limits[i].name, name))
            return true;
    return false;
}

/* Given names first: the others make way for them. */
static void give_names(struct reader *r, const struct node *node, struct rule_limit *limits, size_t count)
{
    int line[RULE_LIMITS_MAX] = { 0 };
    struct walk walk = walk_list(node);
    const struct node *item;
    for (size_t i = 0; (item = walk_next(r, &walk)); i++) {
        struct rule_limit *limit = &limits[i];
        line[i] = item->line;
        for (size_t j = 0; limit->named && j < i; j++)
            if (limits[j].named && sv_eq(limits[j].name, limit->name))
                report_error(r, line[i],
                             "the name %s is given twice, first in line %d; the limits of a rule need different names",
                             shown_text(r, limit->name), line_in_file(r, line[j]));
    }
    for (size_t i = 0; i < count; i++) {
        struct rule_limit *limit = &limits[i];
        if (limit->named)
            continue;
        char name[WEIR_NAME_MAX];
        const char *made = default_name(r, limit);
        sv free_name = weir_str(made);
        int number = 1;
        while (name_taken(limits, count, free_name))
            free_name = sv_of(name, (size_t)snprintf(name, sizeof name, "%s-%d", made, ++number));
        limit->name = number > 1 ? reader_copy(r, free_name) : free_name;
        if (number > 1) {
            size_t before = path_index(r, i);
            report_advice(r, line[i],
                          "gets the name %s, because %s is already used; give it a name, so that it keeps its counts when "
                          "others change",
                          name, made);
            path_end(r, before);
        }
    }
}

/* "10 GiB per day" is 10 of a unit that is called GiB, which is rarely meant: no request names that unit. */
static void advise_on_multiples(struct reader *r, const struct node *node, sv unit)
{
    static const char *const multiples[] = { "k",   "m",   "g",   "t",   "kb",  "mb",       "gb",      "tb",
                                             "kib", "mib", "gib", "tib", "pib", "thousand", "million", "billion" };
    for (size_t i = 0; i < sizeof multiples / sizeof *multiples; i++)
        if (sv_eq_nocase(unit, weir_str(multiples[i])))
            report_advice(r, node->line,
                          "%.*s is the name of a unit here, and does not multiply the number; write the number in full, "
                          "such as \"1073741824 bytes per day\"",
                          SV_FMT(unit));
}

/* Easily written by mistake, and then everybody is refused without a word about it. */
static void advise_on_zero(struct reader *r, const struct node *node)
{
    report_advice(r, node->line, "max 0 has no room for any request, so everything is refused; %s",
                  r->override_number > 0
                      ? "if you want that, write `deny: true` in place of `limits`"
                      : "to limit nothing, write `mode: off`; to refuse one subject, write an override with "
                        "`deny: true`");
}

static void read_limit(struct reader *r, const struct node *node, void *ret)
{
    const struct rule_limit *limit = ret;
    size_t errors = r->errors;
    if (node->kind == NODE_MAP)
        read_long(r, node, ret);
    else if (node->kind == NODE_SCALAR)
        read_short(r, node, ret);
    else
        wrong_form(r, node);
    advise_on_multiples(r, node, limit->cost_unit);
    if (r->errors == errors && limit->max == 0)
        advise_on_zero(r, node);
}

const struct rule_limit *read_limit_list(struct reader *r, const struct node *node, size_t *ret_count)
{
    static const struct list list = { read_limit, sizeof(struct rule_limit), 1, RULE_LIMITS_MAX,
                                      "a rule needs at least one limit, such as \"10 per 60s\"" };
    struct arena_mark before = arena_mark(&r->rules->arena);
    struct rule_limit *limits = read_list(r, node, &list, ret_count);
    if (!limits)
        return NULL;
    give_names(r, node, limits, *ret_count);
    const struct rule_limit *shared = share_limits(&r->shared, limits, *ret_count);
    /* No zone of the set is given back: if the list has one that is new, no earlier list is equal. */
    if (shared != limits)
        arena_back(&r->rules->arena, &before);
    return shared;
}

/* ---- limits: given, limits: none ---- */

static bool says(const struct node *node, const char *word)
{
    return node->kind == NODE_SCALAR && sv_eq(sv_trim(node->text), weir_str(word));
}

/* Fields that have no meaning without limits of the rule's own. */
void check_limit_words(struct reader *r, const struct node *node, const struct rule *rule)
{
    static const char *const with_given[] = { "plan", "plans", NULL };
    static const char *const with_none[] = { "plan",    "plans",    "counters", "lease", "on_store_failure",
                                             "penalty", "hold_max", "reject",   NULL };
    const char *const *names = rule->kind->unlimited ? with_none : rule_limit_is_given(rule) ? with_given : NULL;
    for (; names && *names; names++) {
        const struct node *field = node_get(node, weir_str(*names));
        if (field && !node_is_null(field))
            report_error(r, field->line, "%s: cannot be combined with `limits: %s`, %s; leave one of the two out", *names,
                         rule->kind->unlimited ? "none" : "given",
                         rule->kind->unlimited ? "which limits nothing" : "for which each request brings its limit");
    }
}

void read_limits(struct reader *r, const struct node *node, void *ret)
{
    static const struct rule_limit given = { .name = { "given", 5 }, .algorithm = LIMIT_CALENDAR, .given = true };
    (void)ret;
    if (says(node, "none")) {
        r->kind.unlimited = true;
    } else if (says(node, "given")) {
        r->kind.limits = &given;
        r->kind.limit_count = 1;
    } else {
        size_t count = 0;
        r->kind.limits = read_limit_list(r, node, &count);
        r->kind.limit_count = (uint8_t)count;
    }
}
