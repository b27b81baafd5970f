/* What is written reads back the same: over rules made at random, with texts made to hurt. */
#include "../limit/random.h"
#include "base/utf8.h"
#include "equal.h"
#include "helpers.h"

enum { SETS = 400 };

/* ---- random parts, straight into the model ---- */

struct maker {
    struct random random;
    struct rules *rules;
};

static size_t below(struct maker *m, size_t count)
{
    return (size_t)random_in(&m->random, 0, (int64_t)count - 1);
}

static bool maybe(struct maker *m)
{
    return random_one_in(&m->random, 2);
}

static sv keep(struct maker *m, sv text)
{
    sv copy = arena_copy(&m->rules->arena, text);
    assert_non_null(copy.ptr);
    return copy;
}

static void *keep_array(struct maker *m, size_t size)
{
    void *array = arena_alloc(&m->rules->arena, size);
    assert_non_null(array);
    return array;
}

static sv pick(struct maker *m, const char *const *from, size_t count)
{
    return keep(m, weir_str(from[below(m, count)]));
}
#define PICK(m, list) pick((m), (list), sizeof(list) / sizeof *(list))

/* Any text without NUL, of 1 to 200 bytes. */
static sv any_text(struct maker *m, bool header_value)
{
    static const char *const hard[] = { "true",
                                        "no",
                                        "~",
                                        "null",
                                        "- a",
                                        "a: b",
                                        "a #b",
                                        "#",
                                        "&a",
                                        "*a",
                                        "!x",
                                        "%",
                                        "@",
                                        "`",
                                        "'",
                                        "\"",
                                        "\\",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        "?",
                                        "|",
                                        ">",
                                        "0x10",
                                        "1e3",
                                        "1.5",
                                        "ü",
                                        "😀",
                                        "\xe2\x80\xa8",
                                        "\xc2\x85",
                                        "\xef\xbb\xbf",
                                        "\xef\xbf\xbf",
                                        "\x7f",
                                        "---",
                                        "...",
                                        "=",
                                        "<<",
                                        "2027-01-01",
                                        "off",
                                        "y",
                                        "N",
                                        ":",
                                        "a:",
                                        "::1",
                                        "/",
                                        "$",
                                        "\xc2\xa0" };
    static const char *const controls[] = { "\n", "\r", "\t", "\x01", "\x1b", " ", "\n\n", "\r\n", "  ", "\n " };
    struct buf text;
    buf_init(&text, 1 << 16);
    size_t parts = (size_t)random_scaled(&m->random, 12);
    for (size_t i = 0; i < parts; i++) {
        if (!header_value && random_one_in(&m->random, 4))
            buf_add(&text, weir_str(controls[below(m, sizeof controls / sizeof *controls)]));
        else if (maybe(m))
            buf_add(&text, weir_str(hard[below(m, sizeof hard / sizeof *hard)]));
        else
            buf_char(&text, (char)random_in(&m->random, '!', '~'));
    }
    /* DEL may not stand in a header. */
    for (size_t i = 0; header_value && i < text.len; i++)
        if (text.ptr[i] == 0x7f)
            text.ptr[i] = 'x';
    sv kept = keep(m, buf_sv(&text));
    buf_done(&text);
    return kept.len > 0 && !sv_blank(kept) ? kept : keep(m, SV("x"));
}

static sv any_id(struct maker *m, size_t index)
{
    static const char *const words[] = { "login", "true", "a b", "ü", "x: y", "#", "'", "\"", "\\", "- a", "😀", "12" };
    char text[100];
    int n = snprintf(text, sizeof text, "%s%zu", words[below(m, sizeof words / sizeof *words)], index);
    return keep(m, sv_of(text, (size_t)n));
}

static struct cidr any_cidr(struct maker *m)
{
    static const char *const from[] = { "10.0.0.0/8",     "0.0.0.0/0", "1.2.3.4",       "255.255.255.255/31",
                                        "::/0",           "::1",       "fd00::/8",      "::ffff:0:0/90",
                                        "2001:db8::/127", "fe80::/10", "192.168.0.0/16" };
    struct cidr cidr;
    assert_true(cidr_parse(weir_str(from[below(m, sizeof from / sizeof *from)]), &cidr));
    return cidr;
}

static struct cidr *any_cidrs(struct maker *m, size_t *ret_count)
{
    *ret_count = maybe(m) ? below(m, 5) : 0;
    struct cidr *list = keep_array(m, *ret_count * sizeof *list);
    for (size_t i = 0; i < *ret_count; i++)
        list[i] = any_cidr(m);
    return list;
}

static struct rule_header *any_headers(struct maker *m, size_t *ret_count)
{
    *ret_count = maybe(m) ? below(m, 4) : 0;
    struct rule_header *list = keep_array(m, *ret_count * sizeof *list);
    for (size_t i = 0; i < *ret_count; i++) {
        char name[20];
        int n = snprintf(name, sizeof name, "%cX-%zu", "a!#'*~"[below(m, 6)], i);
        list[i] = (struct rule_header){ keep(m, sv_of(name, (size_t)n)), any_text(m, true) };
    }
    return list;
}

static struct rule_except any_except(struct maker *m)
{
    struct rule_except e = { 0 };
    e.ips = any_cidrs(m, &e.ip_count);
    e.user_count = maybe(m) ? below(m, 5) : 0;
    e.users = keep_array(m, e.user_count * sizeof *e.users);
    for (size_t i = 0; i < e.user_count; i++)
        e.users[i] = any_text(m, false);
    return e;
}

static struct rule_reject any_reject(struct maker *m)
{
    static const char *const types[] = { "text/plain", "application/json; charset=\"utf-8\"", "a/b" };
    struct rule_reject reject = { 0 };
    reject.status = maybe(m) ? (uint16_t)random_in(&m->random, 400, 599) : 0;
    reject.has_body = maybe(m);
    if (reject.has_body && maybe(m))
        reject.body = any_text(m, false);
    if (maybe(m))
        reject.content_type = PICK(m, types);
    reject.headers = any_headers(m, &reject.header_count);
    return reject;
}

static sv any_value_text(struct maker *m, enum attribute attribute, enum value_kind kind)
{
    static const char *const methods[] = { "GET", "POST", "M-SEARCH", "X!#" };
    static const char *const hosts[] = { "example.com", "[fd00::1]", "10.0.0.1", "no", "true" };
    static const char *const prefixes[] = { "api.", "10.", "true", "-" }, *const globs[] = { "*.example.com", "a*.*",
                                                                                             "*-" };
    static const char *const text_globs[] = { "*", "a*", "{*}", "* #", "*: *", "true*" };
    if (attribute == ATTR_HOST)
        return kind == VALUE_EQUAL ? PICK(m, hosts) : kind == VALUE_PREFIX ? PICK(m, prefixes) : PICK(m, globs);
    if (attribute == ATTR_METHOD)
        return kind == VALUE_GLOB ? weir_str("P*") : PICK(m, methods);
    if (attribute == ATTR_DESCRIPTOR && kind == VALUE_EQUAL && maybe(m))
        return maybe(m) ? SV("") : SV("  x ");
    if (kind != VALUE_GLOB)
        return any_text(m, attribute == ATTR_HEADER);
    sv glob = PICK(m, text_globs);
    return glob.len > 1 ? glob : weir_str("x*");
}

static struct rule_values any_values(struct maker *m, enum attribute attribute, size_t count)
{
    struct rule_value *list = keep_array(m, count * sizeof *list);
    for (size_t i = 0; i < count; i++) {
        struct rule_value *value = &list[i];
        value->kind = attribute == ATTR_IP ? VALUE_NETWORK : (enum value_kind)below(m, VALUE_NETWORK);
        if (attribute == ATTR_IP)
            value->network = any_cidr(m);
        else
            value->text = any_value_text(m, attribute, value->kind);
    }
    return (struct rule_values){ list, count };
}

/* On a path only its presence. */
static void any_condition(struct maker *m, struct rule_condition *condition)
{
    enum attribute attribute = condition->attribute;
    condition->presence = maybe(m) ? (enum presence)below(m, 3) : PRESENCE_ANY;
    if (condition->presence == ABSENT || attribute == ATTR_PATH)
        return;
    condition->is = any_values(m, attribute, below(m, 4));
    condition->is_not = any_values(m, attribute, maybe(m) ? below(m, 4) : 0);
    if (condition->presence == PRESENCE_ANY && condition->is.count + condition->is_not.count == 0)
        condition->presence = PRESENT;
}

/* Returns the number of paths. */
static uint16_t any_paths(struct maker *m, struct rule_path *paths)
{
    static const char *const templates[] = { "/",      "/a/#/{name}/*", "/a b/%2F%25%00", "/*",    "/ü",
                                             "/\"\\'", "/\xff\n\t",     "/%23%7B",        "/true", "/a:b,c",
                                             "/A",     "/\x7f\xc2\x85", "/- a: b" };
    static const char *const regexes[] = { "/(a|b)+", "\\d{3}", "/\"x\"#", "[^/]*", "/ü\\x{fc}?", "/\n" };
    size_t count = maybe(m) ? below(m, 4) : 0;
    for (size_t i = 0; i < count; i++) {
        bool is_regex = maybe(m);
        sv text = is_regex ? PICK(m, regexes) : PICK(m, templates);
        paths[i] = (struct rule_path){ text.ptr, (uint32_t)text.len, is_regex };
    }
    return (uint16_t)count;
}

/* The name of an entry; `index` makes it differ from others. */
static sv any_entry_name(struct maker *m, size_t index)
{
    static const char *const keys[] = { "user", "a b", "a%23b", "%25%2C", "{}: ", "\"", "\\", "\n\t", "ü", "- ", "#2" };
    char name[60];
    const char *key = keys[below(m, 10)];
    int n = snprintf(name, sizeof name, "%s%zu%s", key, index, maybe(m) ? keys[10] : "");
    return keep(m, sv_of(name, (size_t)n));
}

static struct rule_match any_match(struct maker *m, struct rule_kind *kind)
{
    struct rule_match match = { 0 };
    struct rule_path *paths = keep_array(m, 8 * sizeof *paths);
    struct rule_condition *conditions = keep_array(m, RULE_CONDITIONS_MAX * sizeof *conditions);
    kind->conditions = conditions;
    match.path_count = any_paths(m, paths);
    match.not_path_count = any_paths(m, paths + match.path_count);
    match.list = paths;
    if (rule_path_count(&match) == 1 && maybe(m))
        match = (struct rule_match){ .text = paths->text,
                                     .path_count = match.path_count,
                                     .not_path_count = match.not_path_count,
                                     .length = (uint16_t)paths->length,
                                     .is_regex = paths->is_regex,
                                     .alone = true };
    for (enum attribute i = 0; i < ATTR_HEADER; i++) {
        bool path = i == ATTR_PATH;
        if (!(attribute_table[i].uses & IN_MATCH) || maybe(m) || (path && rule_path_count(&match) > 0))
            continue;
        struct rule_condition condition = { .attribute = i };
        any_condition(m, &condition);
        if (!path || condition.presence != PRESENCE_ANY)
            conditions[kind->condition_count++] = condition;
    }
    size_t headers = maybe(m) ? below(m, 5) : 0;
    for (size_t i = 0; i < headers; i++) {
        char name[20];
        int n = snprintf(name, sizeof name, "%cx-%zu", "a!#'*~"[below(m, 6)], i);
        struct rule_condition condition = { .attribute = ATTR_HEADER, .name = keep(m, sv_of(name, (size_t)n)) };
        any_condition(m, &condition);
        conditions[kind->condition_count++] = condition;
    }
    size_t entries = maybe(m) ? below(m, 5) : 0;
    for (size_t i = 0; i < entries; i++) {
        struct rule_condition condition = { .attribute = ATTR_DESCRIPTOR, .name = any_entry_name(m, i) };
        any_condition(m, &condition);
        conditions[kind->condition_count++] = condition;
    }
    return match;
}

static const struct zone *utc_zone(struct maker *m)
{
    const struct zone *zone = m->rules->zones;
    while (!sv_eq(zone->name, SV("UTC")))
        zone = zone->next;
    return zone;
}

static const struct zone *any_zone(struct maker *m)
{
    /* Zones are shared within a set, so they come from a set that was read. */
    size_t count = 0;
    for (const struct zone *zone = m->rules->zones; zone; zone = zone->next)
        count++;
    size_t index = below(m, count);
    const struct zone *zone = m->rules->zones;
    while (index-- > 0)
        zone = zone->next;
    return zone;
}

static struct rule_limit any_limit(struct maker *m, size_t index)
{
    static const int64_t units[] = { US_PER_MS, US_PER_S, 60 * US_PER_S, 3600 * US_PER_S, 86400 * US_PER_S };
    struct rule_limit l = { .algorithm = (enum limit_algorithm)below(m, LIMIT_CONCURRENT + 1),
                            .max = (uint32_t)random_u64(&m->random),
                            .named = true };
    if (maybe(m))
        l.max = (uint32_t)below(m, 20);
    static const char *const words[] = { "day", "a b", "true", "{x}", "'", "#", "5", ": ", "token_bucket-" };
    char name[WEIR_NAME_MAX];
    int n = snprintf(name, sizeof name, "%s%zu", words[below(m, sizeof words / sizeof *words)], index);
    l.name = keep(m, sv_of(name, (size_t)n));
    if (l.algorithm == LIMIT_CALENDAR) {
        l.unit = (enum calendar_unit)below(m, CALENDAR_LENGTH + 1);
        l.week_start = l.unit == CALENDAR_WEEK ? (int)below(m, 7) : MONDAY;
        l.zone = l.unit == CALENDAR_LENGTH ? utc_zone(m) : any_zone(m);
        if (l.unit == CALENDAR_LENGTH)
            l.per_us = random_in(&m->random, 1000, LIMIT_PER_MAX_US / US_PER_MS) * US_PER_MS;
    } else if (l.algorithm == LIMIT_CONCURRENT) {
        l.per_us = maybe(m) ? 60 * US_PER_S : random_in(&m->random, 1, WEIR_TTL_MAX_MS) * US_PER_MS;
    } else {
        int64_t unit = units[below(m, 5)];
        l.per_us = unit * random_scaled(&m->random, LIMIT_PER_MAX_US / unit);
    }
    if (l.algorithm == LIMIT_TOKEN_BUCKET)
        l.burst = maybe(m) ? l.max : (uint32_t)random_scaled(&m->random, UINT32_MAX);
    l.overdraft = maybe(m) && l.algorithm != LIMIT_CONCURRENT &&
                  (l.algorithm != LIMIT_SLIDING_WINDOW || l.max <= LIMIT_SLIDE_OVERDRAFT_MAX);
    return l;
}

/* Some limits get the names that a reader would give them. */
static void unname(struct maker *m, struct rule_limit *limits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct rule_limit *l = &limits[i];
        char length[40];
        snprintf(length, sizeof length, "%lldms", (long long)(l->per_us / US_PER_MS));
        const char *name = l->algorithm == LIMIT_CALENDAR ? unit_names[l->unit] : algorithm_names[l->algorithm];
        if (!name && l->per_us % US_PER_S == 0)
            continue; /* the reader would shorten it */
        name = name ? name : length;
        bool taken = false;
        for (size_t j = 0; j < count; j++)
            taken = taken || sv_eq(limits[j].name, weir_str(name));
        if (taken || maybe(m))
            continue;
        l->named = false;
        l->name = keep(m, weir_str(name));
    }
}

static struct rule_limit *any_limits(struct maker *m, size_t *ret_count)
{
    *ret_count = 1 + below(m, 4);
    struct rule_limit *limits = keep_array(m, *ret_count * sizeof *limits);
    for (size_t i = 0; i < *ret_count; i++)
        limits[i] = any_limit(m, i);
    unname(m, limits, *ret_count);
    return limits;
}

/* Plans are values of an attribute that takes any text without blanks at its ends. */
static void any_plans(struct maker *m, struct rule_kind *kind, struct rule_rest *rest)
{
    static const char *const names[] = { "free", "Free", "true ", "a: b", "ü", "'", "\"", "#", "12", "{", "-", "?" };
    kind->ignore_case = maybe(m);
    rest->plan = (struct rule_by){ ATTR_HEADER, keep(m, SV("x-plan")) };
    rest->plan_count = below(m, 5);
    rest->plans = keep_array(m, rest->plan_count * sizeof *rest->plans);
    for (size_t i = 0; i < rest->plan_count; i++) {
        char name[40];
        int n = snprintf(name, sizeof name, "%s%zu", names[below(m, sizeof names / sizeof *names)], i);
        rest->plans[i].name = keep(m, sv_of(name, (size_t)n));
        rest->plans[i].limits = any_limits(m, &rest->plans[i].limit_count);
    }
}

static void any_by(struct maker *m, struct rule_kind *kind)
{
    enum attribute first = (enum attribute)below(m, ATTR_HEADER);
    kind->by_count = (uint8_t)below(m, 4);
    struct rule_by *by = keep_array(m, kind->by_count * sizeof *by);
    kind->by = by;
    for (size_t i = 0; i < kind->by_count; i++) {
        unsigned attribute = (unsigned)first + (unsigned)i;
        if (attribute < ATTR_HEADER && attribute_table[attribute].uses & IN_BY) {
            by[i].attribute = (enum attribute)attribute;
        } else if (maybe(m)) {
            by[i] = (struct rule_by){ ATTR_DESCRIPTOR, any_entry_name(m, i) };
        } else {
            char name[20];
            int n = snprintf(name, sizeof name, "x-%c%u", "a!#'*~"[below(m, 6)], attribute);
            by[i] = (struct rule_by){ ATTR_HEADER, keep(m, sv_of(name, (size_t)n)) };
        }
    }
}

static void any_counters(struct maker *m, struct rule_kind *kind, struct rule_rest *rest)
{
    bool windows = rest->plan_count == 0;
    for (size_t i = 0; i < kind->limit_count; i++)
        windows =
            windows && (kind->limits[i].algorithm == LIMIT_FIXED_WINDOW || kind->limits[i].algorithm == LIMIT_CALENDAR);
    kind->counters = (enum rule_counters)below(m, 3);
    kind->on_failure = (enum rule_on_failure)below(m, 3);
    rest->hold_max_percent = maybe(m) ? 0 : (uint32_t)random_in(&m->random, 1, 100);
    if (!windows || maybe(m))
        return;
    kind->counters = COUNTERS_SHARED;
    rest->lease = (struct rule_lease){ .on = true, .slice = 500, .ttl_ms = 2000 };
    if (maybe(m))
        rest->lease.slice = (uint32_t)random_in(&m->random, 1, RULE_SLICE_WHOLE);
    if (maybe(m))
        rest->lease.ttl_ms = (uint32_t)random_in(&m->random, 1, 36000) * 100;
}

static void any_penalty(struct maker *m, struct rule_penalty *penalty)
{
    if (maybe(m))
        return;
    penalty->after = (uint32_t)random_in(&m->random, 1, 10000);
    penalty->grow = (uint32_t)random_in(&m->random, 1, 100);
    penalty->within_us = random_in(&m->random, 1000, 10000000) * US_PER_MS;
    penalty->for_us = random_in(&m->random, 1000, 10000000) * US_PER_MS;
    penalty->most_us = penalty->for_us + random_in(&m->random, 0, 10000000) * US_PER_MS;
}

/* Of this set, or not. */
static void any_replaces(struct maker *m, struct rule_rest *rest)
{
    rest->replace_count = maybe(m) ? 0 : 1 + below(m, 3);
    rest->replaces = keep_array(m, rest->replace_count * sizeof *rest->replaces);
    for (size_t i = 0; i < rest->replace_count; i++)
        rest->replaces[i] = keep(m, maybe(m) ? SV("another: \"one\"") : SV("other"));
}

/* limits: given, limits: none */
static void any_word(struct maker *m, struct rule_kind *kind, struct rule_rest *rest)
{
    kind->unlimited = maybe(m);
    kind->limit_count = kind->unlimited ? 0 : 1;
    static const struct rule_limit given = { .name = { "given", 5 }, .algorithm = LIMIT_CALENDAR, .given = true };
    kind->limits = kind->unlimited ? NULL : &given;
    if (!kind->unlimited)
        return;
    kind->counters = COUNTERS_DEFAULT;
    kind->on_failure = ON_FAILURE_LOCAL;
    rest->lease = (struct rule_lease){ 0 };
    rest->hold_max_percent = 0;
    rest->penalty = (struct rule_penalty){ 0 };
    rest->reject = (struct rule_reject){ 0 };
}

static struct rule any_rule(struct maker *m, size_t index)
{
    size_t limit_count = 0;
    struct rule_rest *rest = keep_array(m, sizeof *rest);
    struct rule_kind *kind = keep_array(m, sizeof *kind);
    struct rule rule = { .id = any_id(m, index), .kind = kind };
    kind->mode = (enum rule_mode)below(m, 3);
    kind->rest = rest;
    rest->expires_us = RULE_NEVER_EXPIRES;
    if (below(m, 4) == 0)
        rule_disable(kind);
    if (maybe(m))
        rest->expires_us = random_in(&m->random, 0, INT64_C(253402300799)) * (maybe(m) ? US_PER_S : 1000003);
    if (rest->expires_us >= INT64_C(253402300800) * US_PER_S)
        rest->expires_us = RULE_NEVER_EXPIRES;
    rule.match = any_match(m, kind);
    kind->ignore_case = maybe(m);
    any_by(m, kind);
    any_plans(m, kind, rest);
    if (rest->plan_count == 0 || maybe(m))
        kind->limits = any_limits(m, &limit_count);
    kind->limit_count = (uint8_t)limit_count;
    rest->except = any_except(m);
    rest->reject = any_reject(m);
    any_counters(m, kind, rest);
    any_penalty(m, &rest->penalty);
    any_replaces(m, rest);
    if (rest->plan_count == 0 && below(m, 6) == 0)
        any_word(m, kind, rest);
    return rule;
}

static void any_settings(struct maker *m, struct settings *s)
{
    static const char *const ids[] = { "[0-9]+", "\\w{3}", "a|b", "true" };
    static const char *const prefixes[] = { "/api", "/a b/c", "/%2F%23", "/\xfe", "/ü" };
    if (maybe(m)) {
        s->id_count = 1 + below(m, 3);
        s->ids = keep_array(m, s->id_count * sizeof *s->ids);
        for (size_t i = 0; i < s->id_count; i++)
            s->ids[i] = PICK(m, ids);
    }
    s->ignore_case = maybe(m);
    s->strip_prefix_count = below(m, 3);
    s->strip_prefixes = keep_array(m, s->strip_prefix_count * sizeof *s->strip_prefixes);
    for (size_t i = 0; i < s->strip_prefix_count; i++)
        s->strip_prefixes[i] = PICK(m, prefixes);
    s->trusted_proxies = any_cidrs(m, &s->trusted_proxy_count);
    s->ipv6_prefix = maybe(m) ? 64 : (unsigned)random_in(&m->random, 1, 128);
    s->repeated_headers = (enum repeated_headers)below(m, 3);
    s->headers = (enum header_setting)below(m, 4);
    s->partition_key_secret = maybe(m) ? SV("not \"so\" secret: \xc3\xbc") : (sv){ 0 };
    s->except = any_except(m);
    s->reject = any_reject(m);
}

/* `index` makes it differ from others. */
static sv any_value(struct maker *m, enum attribute attribute, size_t index)
{
    char text[300];
    sv any = any_text(m, true);
    int n;
    if (attribute == ATTR_IP)
        n = snprintf(text, sizeof text, "10.0.0.%zu", index);
    else if (attribute == ATTR_HOST)
        n = snprintf(text, sizeof text, "h%zu.example.com", index);
    else
        n = snprintf(text, sizeof text, "%s%.*s%zu", attribute == ATTR_PATH || attribute == ATTR_ROUTE ? "/" : "x",
                     SV_FMT(any), index);
    return keep(m, sv_of(text, (size_t)n));
}

static void any_overrides(struct maker *m)
{
    struct rules *rules = m->rules;
    rules->overrides = keep_array(m, 20 * sizeof *rules->overrides);
    for (size_t i = 0; i < 20 && rules->rule_count > 0; i++) {
        const struct rule *rule = rules->rules[below(m, rules->rule_count)];
        struct rule_override *o = &rules->overrides[rules->override_count];
        size_t limit_count = 0;
        if (rule->kind->by_count == 0 || rule->kind->rest->lease.on)
            continue;
        *o = (struct rule_override){ .rule = rule->id,
                                     .expires_us = RULE_NEVER_EXPIRES,
                                     .value_count = rule->kind->by_count };
        o->values = keep_array(m, o->value_count * sizeof *o->values);
        for (size_t k = 0; k < o->value_count; k++)
            o->values[k] = any_value(m, rule->kind->by[k].attribute, i);
        o->kind = (enum override_kind)below(m, 3);
        if (o->kind == OVERRIDE_LIMITS)
            o->limits = any_limits(m, &limit_count);
        o->limit_count = (uint8_t)limit_count;
        if (maybe(m))
            o->expires_us = random_in(&m->random, 0, INT64_C(253402300799)) * US_PER_S;
        if (maybe(m))
            o->why = keep(m, SV("a migration: #42, \"the big one\""));
        rules->override_count++;
    }
}

/* A set at random, in the arena of one that was read for its zones. */
static struct reading any_set(uint64_t seed)
{
    struct reading r =
        good_reading("rules: [ { id: z, limits: [ 1 per day, { name: a, calendar: day, max: 1, tz: Asia/Shanghai }, { "
                     "name: b, calendar: day, max: 1, tz: Etc/GMT+5 }, { name: c, calendar: day, max: 1, tz: "
                     "America/Argentina/Buenos_Aires } ] } ]");
    struct maker m = { { seed }, r.rules };
    any_settings(&m, &r.rules->settings);
    r.rules->rule_count = below(&m, 6);
    r.rules->rules = keep_array(&m, r.rules->rule_count * sizeof *r.rules->rules);
    for (size_t i = 0; i < r.rules->rule_count; i++) {
        r.rules->rules[i] = keep_array(&m, sizeof **r.rules->rules);
        *r.rules->rules[i] = any_rule(&m, i);
    }
    any_overrides(&m);
    return r;
}

static void random_sets_read_back_the_same(void **state)
{
    (void)state;
    uint64_t first = random_seed();
    for (uint64_t seed = first; seed < first + SETS; seed++) {
        struct reading made = any_set(seed);
        struct buf text, again;
        buf_init(&text, 1 << 20);
        buf_init(&again, 1 << 20);
        rules_write(made.rules, &text);
        assert_false(text.failed);
        assert_true(utf8_valid(buf_sv(&text)));
        struct reading back = reading_of(buf_sv(&text));
        struct rules *copy = rules_copy(made.rules);
        assert_non_null(copy);
        bool same = back.report.error_count == 0 && rules_equal(made.rules, back.rules) && rules_equal(made.rules, copy);
        rules_free(copy);
        rules_write(back.rules, &again);
        same = same && sv_eq(buf_sv(&text), buf_sv(&again));
        if (!same)
            print_error("TEST_SEED=%llu\n%s\n%s\n%s\n", (unsigned long long)seed, text.ptr, back.text.ptr, again.ptr);
        assert_true(same);
        reading_done(&back);
        reading_done(&made);
        buf_done(&text);
        buf_done(&again);
    }
}

/* ---- how it looks ---- */

static void written_rules_are_plain_to_read(void **state)
{
    (void)state;
    struct reading r =
        good_reading("rules:\n"
                     "- { id: a, limits: [10 per 60s, 5 per 1m burst 20, 100 per day, { algorithm: fixed_window, max: "
                     "1, per: 1s } ], mode: off, by: [user, 'header:X'] }\n"
                     "- { id: 'yes', match: { path: [/a/b, '/a/#', { regex: 'x' }], method: get, header: { A: b } }, "
                     "limits: { calendar: week, max: 1, week_start: sunday, tz: Asia/Tokyo }, expires: 0 }\n"
                     "settings: { ipv6_prefix: 48, strip_prefixes: [/x, /y], except: { ip: ['::1', 10.0.0.1] } }\n");
    struct buf text;
    buf_init(&text, 1 << 20);
    rules_write(r.rules, &text);
    assert_string_equal(text.ptr, "settings:\n"
                                  "  strip_prefixes: [/x, /y]\n"
                                  "  ipv6_prefix: 48\n"
                                  "  except:\n"
                                  "    ip: [\"::1\", 10.0.0.1]\n"
                                  "rules:\n"
                                  "  - id: a\n"
                                  "    by: [user, \"header:x\"]\n"
                                  "    limits:\n"
                                  "      - \"10 per 1m\"\n"
                                  "      - \"5 per 1m burst 20\"\n"
                                  "      - \"100 per day\"\n"
                                  "      - {algorithm: fixed_window, max: 1, per: 1s}\n"
                                  "    mode: \"off\"\n"
                                  "  - id: \"yes\"\n"
                                  "    match:\n"
                                  "      method: [GET]\n"
                                  "      path:\n"
                                  "        - /a/b\n"
                                  "        - \"/a/#\"\n"
                                  "        - {regex: \"x\"}\n"
                                  "      header: {a: b}\n"
                                  "    limits:\n"
                                  "      - {calendar: week, max: 1, tz: Asia/Tokyo, week_start: sunday}\n"
                                  "    expires: 1970-01-01T00:00:00Z\n");
    buf_done(&text);
    reading_done(&r);
    r = good_reading("rules: []");
    buf_init(&text, 100);
    rules_write(r.rules, &text);
    assert_string_equal(text.ptr, "rules: []\n");
    buf_done(&text);
    reading_done(&r);
    r = good_reading("{\"problems\": [\"a: b\", \"c\"], \"rules\": []}");
    assert_int_equal(r.rules->problem_count, 2);
    buf_init(&text, 100);
    rules_write(r.rules, &text);
    assert_string_equal(text.ptr, "problems:\n  - \"a: b\"\n  - c\nrules: []\n");
    buf_done(&text);
    reading_done(&r);
}

/* More blanks in a row than a file may have. */
static void long_blanks_are_broken_up(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add(&text, SV("settings: { reject: { body: \""));
    for (int i = 0; i < 10000; i++)
        buf_add(&text, SV("\\x20"));
    buf_add(&text, SV("\" } }\nrules: []"));
    struct reading r = good_reading(text.ptr);
    buf_clear(&text);
    rules_write(r.rules, &text);
    struct reading back = good_reading(text.ptr);
    assert_true(rules_equal(r.rules, back.rules));
    assert_int_equal(back.rules->settings.reject.body.len, 10000);
    reading_done(&r);
    reading_done(&back);
    buf_done(&text);
}

static void a_full_buffer_is_noticed(void **state)
{
    (void)state;
    struct reading r = any_set(1);
    struct buf text;
    buf_init(&text, 20);
    rules_write(r.rules, &text);
    assert_true(text.failed);
    buf_done(&text);
    reading_done(&r);
}

static void words_of_the_model(void **state)
{
    (void)state;
    assert_string_equal(attribute_table[ATTR_METHOD].name.ptr, "method");
    assert_string_equal(attribute_table[ATTR_ROUTE].name.ptr, "route");
    assert_string_equal(attribute_table[ATTR_HEADER].name.ptr, "header");
    assert_string_equal(algorithm_names[LIMIT_TOKEN_BUCKET], "token_bucket");
    assert_string_equal(algorithm_names[LIMIT_CALENDAR], "calendar");
    assert_string_equal(unit_names[CALENDAR_MINUTE], "minute");
    assert_string_equal(unit_names[CALENDAR_YEAR], "year");
    assert_string_equal(mode_names[MODE_OFF], "off");
    assert_string_equal(counters_names[COUNTERS_DEFAULT], "");
    assert_string_equal(counters_names[COUNTERS_LOCAL], "local");
    assert_string_equal(counters_names[COUNTERS_SHARED], "shared");
    assert_string_equal(on_failure_names[ON_FAILURE_LOCAL], "local");
    assert_string_equal(on_failure_names[ON_FAILURE_ALLOW], "allow");
    assert_string_equal(on_failure_names[ON_FAILURE_DENY], "deny");
}

static void destructors_take_null(void **state)
{
    (void)state;
    rules_free(NULL);
    rules_report_done(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sets_read_back_the_same),
        cmocka_unit_test(written_rules_are_plain_to_read),
        cmocka_unit_test(long_blanks_are_broken_up),
        cmocka_unit_test(a_full_buffer_is_noticed),
        cmocka_unit_test(words_of_the_model),
        cmocka_unit_test(destructors_take_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
