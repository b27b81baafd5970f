/* THROTTLED_CALLS: each row is a rule by user with one fixed window. */
#include <stdio.h>

#include "base/err.h"
#include "base/instant.h"
#include "base/utf8.h"
#include "source/backend.h"

#define MILLISECONDS_FROM INT64_C(100000000000)          /* as seconds this is the year 5138 */
#define EXPIRY_END_US (INT64_C(253402300800) * US_PER_S) /* the year 10000 */
enum { CALL_CHARACTERS_MAX = 256 };

/* The columns are 32-bit integers. */
#define CALL_MAX_MOST UINT32_MAX
#define PER_MAX_S (LIMIT_PER_MAX_US / US_PER_S)

static void add_shown(struct buf *out, const struct sql_value *value)
{
    if (value->null)
        buf_add(out, SV("NULL"));
    else
        buf_json(out, sv_of(value->text.ptr, value->text.len < 60 ? value->text.len : 60));
}

static sv say(struct arena *arena, const char *column, const char *allowed, const struct sql_value *value)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1000);
    buf_printf(&text, "%s: must be %s, not ", column, allowed);
    add_shown(&text, value);
    return arena_copy(arena, buf_sv(&text));
}

/* SQLite takes anything for a number, and NULL for a primary key. */
static bool number_key(sv key)
{
    sv digits = sv_starts(key, SV("-")) ? sv_from(key, 1) : key;
    uint64_t number;
    return digits.len < 20 && sv_u64(digits, INT64_MAX, &number);
}

static sv say_key(struct arena *arena, const struct stored_row *row)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1000);
    struct sql_value key = { .text = row->key, .null = row->key.len == 0 };
    buf_add(&text, say(arena, "THROTTLE_ID", "a whole number", &key));
    buf_add(&text, SV("; the row's NORMALIZED_CALL is "));
    add_shown(&text, &row->call[CALL_PATH]);
    return arena_copy(arena, buf_sv(&text));
}

static bool whole_number(const struct sql_value *value, uint64_t min, uint64_t max, uint64_t *ret)
{
    return !value->null && sv_u64(sv_trim(value->text), max, ret) && *ret >= min;
}

/* Microseconds since 1970. */
static bool expiry_of(const struct sql_value *value, int64_t *ret_us)
{
    uint64_t number;
    if (value->null) {
        *ret_us = RULE_NEVER_EXPIRES;
        return true;
    }
    if (!whole_number(value, 0, (uint64_t)(EXPIRY_END_US / US_PER_MS) - 1, &number))
        return false;
    int64_t us = (int64_t)number >= MILLISECONDS_FROM ? (int64_t)number * US_PER_MS : (int64_t)number * US_PER_S;
    *ret_us = us;
    return us < EXPIRY_END_US;
}

void call_split(sv call, sv *ret_method, sv *ret_path)
{
    call = sv_trim(call);
    *ret_method = (sv){ 0 };
    *ret_path = call;
    if (sv_starts(call, SV("/")))
        return;
    size_t n = 0;
    while (n < call.len && !sv_blank(sv_of(call.ptr + n, 1)))
        n++;
    if (n < call.len) {
        *ret_method = sv_of(call.ptr, n);
        *ret_path = sv_trim(sv_from(call, n));
    }
}

static void write_rule(const struct stored_row *row, uint64_t max, uint64_t per_s, int64_t expires_us, struct buf *out)
{
    sv method, path;
    call_split(row->call[CALL_PATH].text, &method, &path);
    buf_add(out, SV("{\"match\":{"));
    if (method.len > 0) {
        buf_add(out, SV("\"method\":"));
        buf_json(out, method);
        buf_char(out, ',');
    }
    buf_add(out, SV("\"path\":"));
    buf_json(out, path);
    buf_printf(out, "},\"by\":[\"user\"],\"limits\":[{\"algorithm\":\"fixed_window\",\"max\":%llu,\"per\":\"%llus\"}]",
               (unsigned long long)max, (unsigned long long)per_s);
    if (expires_us != RULE_NEVER_EXPIRES) {
        char text[INSTANT_TEXT_MAX];
        instant_text(expires_us, text);
        buf_printf(out, ",\"expires\":\"%s\"", text);
    }
    buf_char(out, '}');
}

/* A key that is not text, or is too long, cannot become an id. */
static void name_rule(struct stored_row *row, struct arena *arena)
{
    char id[WEIR_ID_MAX + 1];
    if (row->key.len + sizeof CALL_ID_PREFIX > sizeof id || !utf8_valid(row->key))
        row->key = SV("");
    int n = snprintf(id, sizeof id, "%s%.*s", CALL_ID_PREFIX, SV_FMT(row->key));
    row->rule = row->key.len > 0 ? arena_copy(arena, sv_of(id, (size_t)n)) : SV("");
}

int call_read(struct stored_row *row, struct arena *arena, struct weir_error *error)
{
    const struct sql_value *c = row->call;
    uint64_t max = 0, per_s = 0;
    int64_t expires_us = 0;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 64 << 10);
    row->text = row->fault = SV("");
    if (!number_key(row->key))
        row->fault = say_key(arena, row);
    else if (c[CALL_PATH].null || sv_blank(c[CALL_PATH].text))
        row->fault = say(arena, "NORMALIZED_CALL", "a path such as /entity/#, or a method and a path", &c[CALL_PATH]);
    else if (!utf8_valid(c[CALL_PATH].text) || c[CALL_PATH].text.len > 2 * RULE_PATH_MAX)
        row->fault = say(arena, "NORMALIZED_CALL", "a path in UTF-8 that is not too long", &c[CALL_PATH]);
    else if (!whole_number(&c[CALL_MAX], 0, CALL_MAX_MOST, &max))
        row->fault = say(arena, "MAX_LOCKS", "0 to 4294967295", &c[CALL_MAX]);
    else if (!whole_number(&c[CALL_PER], 1, PER_MAX_S, &per_s))
        row->fault = say(arena, "LOCK_TIMEOUT_SECONDS", "1 to 315360000 (ten years)", &c[CALL_PER]);
    else if (!expiry_of(&c[CALL_EXPIRES], &expires_us))
        row->fault = say(arena, "THROTTLE_EXPIRATION", "NULL, or seconds or milliseconds since 1970", &c[CALL_EXPIRES]);
    else {
        write_rule(row, max, per_s, expires_us, &text);
        row->text = arena_copy(arena, buf_sv(&text));
    }
    name_rule(row, arena);
    return text.failed || !row->rule.ptr || !row->text.ptr || !row->fault.ptr ? no_memory(error) : 0;
}

/* ---- mending ---- */

int call_stand_in(const struct stored_row *bad, bool path, struct stored_row *ret, struct arena *arena,
                  struct weir_error *error)
{
    struct sql_value *c = ret->call;
    sv method, rest;
    uint64_t number;
    int64_t us;
    *ret = *bad;
    if (!whole_number(&c[CALL_MAX], 0, CALL_MAX_MOST, &number))
        c[CALL_MAX] = (struct sql_value){ .text = SV("1") };
    if (!whole_number(&c[CALL_PER], 1, PER_MAX_S, &number))
        c[CALL_PER] = (struct sql_value){ .text = SV("1") };
    if (!expiry_of(&c[CALL_EXPIRES], &us))
        c[CALL_EXPIRES] = (struct sql_value){ .text = SV(""), .null = true };
    if (path) {
        CLEANUP(buf_done) struct buf text;
        buf_init(&text, 64 << 10);
        call_split(c[CALL_PATH].null ? SV("") : c[CALL_PATH].text, &method, &rest);
        if (method.len > 0)
            buf_printf(&text, "%.*s ", SV_FMT(method));
        buf_char(&text, '/');
        c[CALL_PATH] = (struct sql_value){ .text = arena_copy(arena, buf_sv(&text)) };
    }
    return call_read(ret, arena, error);
}

int call_take_column(sv field, const struct sql_value *from, struct sql_value *to, struct weir_error *error)
{
    static const char *const fields[] = { "path", "max", "per", "expires", NULL };
    while (field.len > 0 && memchr(field.ptr, '.', field.len))
        sv_cut(&field, '.');
    int column = word_find(field, fields);
    if (column < 0)
        return err_set(error, WEIR_E_INVALID, "the row of THROTTLED_CALLS is bad; set its max, per, expires or path first");
    to[column] = from[column];
    return 0;
}

/* ---- back ---- */

/* The method of a call; empty: any. */
static sv method_of(const struct rule *rule)
{
    const struct rule_condition *method = rule_condition_of(rule, ATTR_METHOD);
    return method && method->is.count > 0 ? method->is.list[0].text : (sv){ 0 };
}

/* No condition but one method and one template. */
static bool is_call(const struct rule *rule)
{
    const struct rule_match *m = &rule->match;
    const struct rule_condition *method = rule_condition_of(rule, ATTR_METHOD);
    bool one = !method || (method->is.count == 1 && method->is.list[0].kind == VALUE_EQUAL && method->is_not.count == 0 &&
                           method->presence == PRESENCE_ANY);
    return one && rule->kind->condition_count == (method ? 1 : 0) && m->path_count == 1 && !rule_path(m, 0).is_regex &&
           m->not_path_count == 0;
}

static bool fits(const struct rule *rule)
{
    const struct rule_reject *j = &rule->kind->rest->reject;
    const struct rule_limit *l = rule->kind->limits;
    return rule->kind->limit_count == 1 && rule->kind->rest->plan_count == 0 && l->algorithm == LIMIT_FIXED_WINDOW &&
           !l->named && l->cost_unit.len == 0 && l->per_us % US_PER_S == 0 && rule->kind->by_count == 1 &&
           rule->kind->by[0].attribute == ATTR_USER && is_call(rule) && !rule->kind->ignore_case &&
           rule->kind->mode == MODE_ENFORCE &&
           rule->kind->rest->except.ip_count + rule->kind->rest->except.user_count == 0 && !j->status && !j->has_body &&
           j->content_type.len == 0 && j->header_count == 0 && rule->kind->counters == COUNTERS_DEFAULT &&
           rule->kind->on_failure == ON_FAILURE_LOCAL && rule->kind->rest->hold_max_percent == 0 &&
           rule->kind->rest->penalty.after == 0 && rule->kind->rest->replace_count == 0;
}

static struct sql_value number_value(struct arena *arena, int64_t number)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%lld", (long long)number);
    return (struct sql_value){ .text = arena_copy(arena, sv_of(text, (size_t)n)) };
}

static struct sql_value expiry_value(struct arena *arena, int64_t us)
{
    if (us == RULE_NEVER_EXPIRES)
        return (struct sql_value){ .text = SV(""), .null = true };
    int64_t ms = us / US_PER_MS;
    return number_value(arena, ms % 1000 && ms >= MILLISECONDS_FROM ? ms : us / US_PER_S);
}

static struct sql_value call_value(const struct rule *rule, struct arena *arena)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 64 << 10);
    if (method_of(rule).len > 0)
        buf_printf(&text, "%.*s ", SV_FMT(method_of(rule)));
    buf_add(&text, rule_path_text(rule_path(&rule->match, 0)));
    return (struct sql_value){ .text = arena_copy(arena, buf_sv(&text)) };
}

void call_write(struct stored_row *row, struct sql_value path, uint64_t max, int64_t per_us, int64_t expires_us,
                struct arena *arena)
{
    row->call[CALL_PATH] = path;
    row->call[CALL_MAX] = number_value(arena, max);
    row->call[CALL_PER] = number_value(arena, per_us / US_PER_S);
    row->call[CALL_EXPIRES] = expiry_value(arena, expires_us);
}

bool call_same(const struct rule *a, const struct rule *b, bool ignore_case)
{
    if (!is_call(a) || !is_call(b) || !sv_eq(method_of(a), method_of(b)))
        return false;
    sv p = rule_path_text(rule_path(&a->match, 0)), q = rule_path_text(rule_path(&b->match, 0));
    return ignore_case ? sv_eq_nocase(p, q) : sv_eq(p, q);
}

int call_bounds(sv call, uint64_t max, struct weir_error *error)
{
    size_t characters = 0;
    for (size_t i = 0; i < call.len; i++)
        characters += (call.ptr[i] & 0xc0) != 0x80;
    if (characters > CALL_CHARACTERS_MAX)
        return err_set(error, WEIR_E_INVALID,
                       "a call in THROTTLED_CALLS has at most %d characters, and this one has %zu; add a whole rule for it",
                       CALL_CHARACTERS_MAX, characters);
    if (max > INT32_MAX)
        return err_set(error, WEIR_E_INVALID, "MAX_LOCKS in THROTTLED_CALLS is at most %d, not %llu", INT32_MAX,
                       (unsigned long long)max);
    return 0;
}

int call_from_rule(const struct rule *rule, const struct stored_row *old, const struct rule *old_rule,
                   struct stored_row *row, struct arena *arena, struct weir_error *error)
{
    if (!fits(rule))
        return err_set(error, WEIR_E_INVALID,
                       "rule %.*s: a row of THROTTLED_CALLS has one path, at most one method, one fixed window of whole "
                       "seconds by user, and an end; remove it and add a whole rule for more",
                       SV_FMT(rule->id));
    /* As it was written, where it is the same call. */
    bool same = old_rule && call_same(rule, old_rule, false);
    uint64_t max = rule->kind->limits[0].max;
    struct sql_value call = same ? old->call[CALL_PATH] : call_value(rule, arena);
    int r = call_bounds(same ? SV("") : call.text, old_rule && old_rule->kind->limits[0].max == max ? 0 : max, error);
    if (r < 0)
        return r;
    call_write(row, call, max, rule->kind->limits[0].per_us, rule->kind->rest->expires_us, arena);
    return call_read(row, arena, error);
}
