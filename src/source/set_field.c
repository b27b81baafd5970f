/* A rule's document with some fields changed: one that is set, or those of a merge patch. The others stay as they are. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "source/backend.h"

enum { FIELD_MAX = 200, VALUE_MAX = 64 << 10, SEGMENTS_MAX = 6 };

static const char *const limit_fields[] = { "max",        "per",  "burst",     "unit",       "algorithm", "calendar", "tz",
                                            "week_start", "name", "overdraft", "concurrent", "ttl",       NULL };
static const char *const rule_fields[] = { "match", "ignore_case",      "by",      "plan",     "plans",    "limits",
                                           "mode",  "enabled",          "expires", "except",   "reject",   "counters",
                                           "lease", "on_store_failure", "penalty", "hold_max", "replaces", NULL };

static const char id_stays[] = "an id cannot be changed, because the counts belong to it; add a rule and remove this one";

static json_t *load(sv text)
{
    return json_loadb(text.ptr ? text.ptr : "", text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

bool json_is_valid(sv text)
{
    json_auto_t *json = load(text);
    return json != NULL;
}

bool document_has(sv text, const char *field)
{
    if (!text.ptr || !memmem(text.ptr, text.len, field, strlen(field)))
        return false;
    json_auto_t *json = load(text);
    const json_t *value = json_object_get(json, field);
    return value && !json_is_null(value);
}

bool json_is_same(sv a, sv b)
{
    if (sv_eq(a, b))
        return true;
    json_auto_t *x = load(a), *y = load(b);
    return x && y && json_equal(x, y);
}

/* ---- the value ---- */

/* Lists, mappings, quoted texts, numbers and booleans are what they look like; all else is text. */
static int read_value(sv value, json_t **ret, struct weir_error *error)
{
    if (value.len > VALUE_MAX)
        return err_set(error, WEIR_E_INVALID, "the value has %zu bytes; at most %d", value.len, VALUE_MAX);
    bool made = value.len > 0 && strchr("[{\"", value.ptr[0]) && value.ptr[0] != '\0';
    if (!made) {
        json_auto_t *plain = load(value);
        *ret = json_is_number(plain) || json_is_boolean(plain) ? json_incref(plain) : json_stringn(value.ptr, value.len);
        return *ret ? 0 : err_set(error, WEIR_E_INVALID, "the value is not UTF-8");
    }
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 6 * VALUE_MAX);
    int r = rules_json(value, &text, error);
    *ret = r == 0 ? load(buf_sv(&text)) : NULL;
    if (r == 0 && !*ret)
        r = err_set(error, WEIR_E_INVALID, "the value is neither YAML nor JSON");
    return r;
}

/* ---- limits ---- */

static void limit_names(const struct rule *rule, struct buf *out)
{
    for (size_t i = 0; i < rule->kind->limit_count; i++)
        buf_printf(out, "%slimits.%.*s", i ? ", " : "", SV_FMT(rule->kind->limits[i].name));
}

/* Which limit is meant: the one that has this name; with no name, the only one. */
static int find_limit(const struct rule *rule, sv name, sv field, size_t *ret, struct weir_error *error)
{
    if (rule_limit_is_given(rule))
        return err_set(error, WEIR_E_INVALID, "rule %.*s has `limits: given`; set limits='[\"10 per 60s\"]'",
                       SV_FMT(rule->id));
    for (size_t i = 0; i < rule->kind->limit_count; i++) {
        if (name.len > 0 ? sv_eq(rule->kind->limits[i].name, name) : rule->kind->limit_count == 1) {
            *ret = i;
            return 0;
        }
    }
    if (rule->kind->unlimited)
        return err_set(error, WEIR_E_INVALID, "rule %.*s has `limits: none`; set limits='[\"10 per 60s\"]'",
                       SV_FMT(rule->id));
    if (rule->kind->limit_count == 0)
        return err_set(
            error, WEIR_E_INVALID,
            "rule %.*s has no `limits`, only plans; set all limits of a plan, as in plans.%.*s='[\"10 per 60s\"]'",
            SV_FMT(rule->id), SV_FMT(rule->kind->rest->plans[0].name));
    CLEANUP(buf_done) struct buf names;
    buf_init(&names, 2000);
    limit_names(rule, &names);
    if (name.len > 0)
        return err_set(error, WEIR_E_INVALID, "rule %.*s has no limit `%.*s`; it has %.*s", SV_FMT(rule->id), SV_FMT(name),
                       SV_FMT(buf_sv(&names)));
    return err_set(error, WEIR_E_INVALID, "rule %.*s has %d limits; choose one: %.*s, followed by .%.*s", SV_FMT(rule->id),
                   rule->kind->limit_count, SV_FMT(buf_sv(&names)), SV_FMT(field));
}

/* "10 per 60s" as a mapping. */
static json_t *long_limit(const struct rule_limit *limit)
{
    json_t *made = json_object();
    if (limit->algorithm == LIMIT_CONCURRENT) {
        json_object_set_new(made, "concurrent", json_integer((json_int_t)limit->max));
        return made;
    }
    if (limit->cost_unit.len > 0)
        json_object_set_new(made, "unit", json_stringn(limit->cost_unit.ptr, limit->cost_unit.len));
    if (limit->algorithm == LIMIT_CALENDAR) { /* a unit: a length has no short form */
        json_object_set_new(made, "calendar", json_string(unit_names[limit->unit]));
        json_object_set_new(made, "max", json_integer((json_int_t)limit->max));
        return made;
    }
    char per[32];
    bool seconds = limit->per_us % 1000000 == 0;
    snprintf(per, sizeof per, "%lld%s", (long long)(limit->per_us / (seconds ? 1000000 : 1000)), seconds ? "s" : "ms");
    json_object_set_new(made, "max", json_integer((json_int_t)limit->max));
    json_object_set_new(made, "per", json_string(per));
    if (limit->burst != limit->max)
        json_object_set_new(made, "burst", json_integer((json_int_t)limit->burst));
    return made;
}

/* The mapping of that limit in the document, made from its short form if need be. */
static json_t *limit_object(json_t *document, const struct rule *rule, size_t index)
{
    json_t *limits = json_object_get(document, "limits");
    if (!json_is_array(limits)) {
        json_t *list = json_array();
        json_array_append(list, limits);
        json_object_set_new(document, "limits", list);
        limits = list;
    }
    json_t *limit = json_array_get(limits, index);
    if (json_is_string(limit)) {
        json_array_set_new(limits, index, long_limit(&rule->kind->limits[index]));
        limit = json_array_get(limits, index);
    }
    return limit;
}

/* ---- the field ---- */

/* Walks down mappings, making them where they are missing. */
static json_t *descend(json_t *from, sv *path, struct weir_error *error)
{
    for (int depth = 0; memchr(path->ptr, '.', path->len); depth++) {
        sv name = sv_cut(path, '.');
        if (depth == SEGMENTS_MAX || name.len == 0) {
            err_set(error, WEIR_E_INVALID, "fields are written as in match.path or reject.status");
            return NULL;
        }
        json_t *next = json_object_getn(from, name.ptr, name.len);
        if (!json_is_object(next)) {
            next = json_object();
            json_object_setn_new(from, name.ptr, name.len, next);
        }
        from = next;
    }
    return from;
}

/* The mapping that holds the field, and the field's name in it. */
static json_t *find_parent(json_t *document, const struct rule *rule, sv *field, struct weir_error *error)
{
    size_t index;
    if (word_find(*field, limit_fields) >= 0)
        return find_limit(rule, (sv){ 0 }, *field, &index, error) < 0 ? NULL : limit_object(document, rule, index);
    if (sv_starts(*field, SV("limits.")) && field->len > 7) {
        sv rest = sv_from(*field, 7);
        size_t dot = rest.len;
        while (dot > 0 && rest.ptr[dot - 1] != '.')
            dot--;
        sv name = dot > 0 ? sv_of(rest.ptr, dot - 1) : rest;
        *field = dot > 0 ? sv_from(rest, dot) : SV("");
        if (find_limit(rule, name, *field, &index, error) < 0)
            return NULL;
        if (word_find(*field, limit_fields) < 0) {
            err_set(
                error, WEIR_E_INVALID,
                "a limit has max, per, burst, unit, overdraft, algorithm, calendar, tz, week_start, concurrent, ttl and "
                "name");
            return NULL;
        }
        return limit_object(document, rule, index);
    }
    enum attribute attribute = attribute_find(*field);
    if (attribute < ATTRIBUTE_COUNT && attribute_table[attribute].uses & IN_MATCH) {
        json_t *match = json_object_get(document, "match");
        if (!json_is_object(match))
            json_object_set_new(document, "match", match = json_object());
        return match;
    }
    sv rest = *field, first = sv_cut(&rest, '.');
    if (sv_eq(first, SV("plans")) && memchr(rest.ptr, '.', rest.len)) {
        sv plan = sv_cut(&rest, '.');
        err_set(error, WEIR_E_INVALID, "set all limits of a plan at once, as in plans.%.*s='[\"10 per 60s\"]'",
                SV_FMT(plan));
        return NULL;
    }
    if (word_find(first, rule_fields) < 0) {
        err_set(error, WEIR_E_INVALID, "%s",
                sv_eq(first, SV("id"))
                    ? id_stays
                    : "unknown field; try max, per, limits.NAME.max, plans.NAME, mode, enabled, expires, path, method, "
                      "match.host, by, except.ip, reject.status, counters, lease, penalty.for or hold_max");
        return NULL;
    }
    return descend(document, field, error);
}

static int write_document(json_t *document, sv before, struct buf *out, struct weir_error *error)
{
    bool lines = before.len > 0 && memchr(before.ptr, '\n', before.len);
    CLEANUP_FREE char *text = json_dumps(document, lines ? JSON_INDENT(2) : 0);
    if (text)
        buf_add(out, weir_str(text));
    return text && !out->failed ? 0 : no_memory(error);
}

/* JSON, or YAML that was written by hand. */
static json_t *load_any(sv document, struct weir_error *error)
{
    json_t *json = load(document);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    if (!json && rules_json(document, &text, error) == 0)
        json = load(buf_sv(&text));
    return json;
}

static json_t *load_document(sv document, struct weir_error *error)
{
    json_t *json = load_any(document, error);
    if (json_is_object(json))
        return json;
    json_decref(json);
    err_set(error, WEIR_E_RULES, "the stored rule is not a JSON document; add the rule again");
    return NULL;
}

static int name_subject(json_t *json, const struct rule *rule, const sv *values)
{
    json_auto_t *by = json_object();
    CLEANUP(buf_done) struct buf name;
    buf_init(&name, RULE_BY_TEXT_MAX);
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        buf_clear(&name);
        rule_by_text(&rule->kind->by[i], &name);
        if (name.failed || json_object_setn_new(by, name.ptr, name.len, json_stringn(values[i].ptr, values[i].len)) < 0)
            return -1;
    }
    int r = json_object_get(json, "rule") ? 0 : json_object_set_new(json, "rule", json_stringn(rule->id.ptr, rule->id.len));
    return r < 0 || json_object_get(json, "by") ? r : json_object_set(json, "by", by);
}

int document_of_override(sv document, const struct rule *rule, const sv *values, struct buf *out, struct weir_error *error)
{
    json_auto_t *json = load_any(document, error);
    if (!json_is_object(json))
        return err_set(error, WEIR_E_INVALID, "an override must be an object, {\"limits\": [\"10 per 60s\"]}");
    if (!values) {
        json_object_del(json, "rule");
        json_object_del(json, "by");
    } else if (name_subject(json, rule, values) < 0) {
        return no_memory(error);
    }
    return write_document(json, document, out, error);
}

/* RFC 7396: null removes a field, an object is merged, and all else replaces what was there. */
static int merge(json_t *into, const json_t *patch)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)patch, name, value)
    {
        json_t *old = json_object_get(into, name);
        int r = 0;
        if (json_is_null(value)) {
            json_object_del(into, name);
        } else if (!json_is_object(value)) {
            r = json_object_set(into, name, value);
        } else {
            if (!json_is_object(old))
                r = json_object_set_new(into, name, old = json_object());
            r = r < 0 ? r : merge(old, value);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

int document_patch(sv document, sv patch, struct buf *out, struct weir_error *error)
{
    json_auto_t *json = load_document(document, error);
    if (!json)
        return error ? (int)error->code : WEIR_E_RULES;
    json_auto_t *changes = load(patch);
    if (!json_is_object(changes))
        return err_set(error, WEIR_E_INVALID, "a merge patch must be an object, {\"field\": value, …}");
    if (json_object_get(changes, "id"))
        return err_set(error, WEIR_E_INVALID, "%s", id_stays);
    return merge(json, changes) < 0 ? no_memory(error) : write_document(json, document, out, error);
}

int document_set(sv document, const struct rule *rule, sv field, sv value, struct buf *out, struct weir_error *error)
{
    if (field.len == 0 || field.len > FIELD_MAX || memchr(field.ptr, '\0', field.len))
        return err_set(error, WEIR_E_INVALID, "the name of a field must have 1 to %d bytes, as in max=20", FIELD_MAX);
    json_auto_t *json = load_document(document, error);
    if (!json)
        return error ? (int)error->code : WEIR_E_RULES;
    bool had_match = json_object_get(json, "match");
    json_t *parent = find_parent(json, rule, &field, error);
    if (!parent)
        return error ? (int)error->code : WEIR_E_INVALID;
    if (!json_is_object(parent))
        return err_set(error, WEIR_E_RULES, "the stored rule does not have the expected form; add the rule again");
    if (value.len == 0) {
        json_object_deln(parent, field.ptr, field.len);
        if (!had_match && json_object_size(json_object_get(json, "match")) == 0)
            json_object_del(json, "match"); /* made to look for the field */
    } else {
        json_t *made = NULL;
        int r = read_value(value, &made, error);
        if (r < 0)
            return r;
        if (json_object_setn_new(parent, field.ptr, field.len, made) < 0)
            return err_set(error, WEIR_E_INVALID, "the field's name is not UTF-8");
    }
    return write_document(json, document, out, error);
}
