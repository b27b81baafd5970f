/* The subject of an override: the values of a rule's `by`, as facts give them, and one text for all of them. */
#include <stdio.h>

#include "base/err.h"
#include "rules/reader.h"

/* The text of a subject that is nothing but an empty value: a text that is empty means that there is none. */
#define NO_VALUE SV("%")

/* ---- values ---- */

/* As facts_ip_text() does. A network is accepted, too: weir shows subjects in that form, and people copy them. */
static bool ip_value(unsigned ipv6_prefix, sv text, char out[IP_TEXT_MAX + 4])
{
    sv network = sv_trim_ows(text), address = sv_cut(&network, '/');
    bool has_network = address.len < sv_trim_ows(text).len;
    struct ip ip;
    uint64_t prefix;
    if (!ip_parse_hop(address, &ip))
        return false;
    bool whole = ip_is_v4(&ip) || ipv6_prefix >= 128;
    if (has_network && (whole || !sv_u64(network, 128, &prefix) || prefix != ipv6_prefix))
        return false;
    if (!whole)
        ip_mask(&ip, ipv6_prefix);
    size_t len = ip_text(&ip, out);
    if (!whole)
        snprintf(out + len, 5, "/%u", ipv6_prefix);
    return true;
}

size_t by_value_max(const struct rule_by *by)
{
    switch (by->attribute) {
    case ATTR_PATH:
    case ATTR_ROUTE:
    case ATTR_DESCRIPTOR_KEYS:
        return RULE_PATH_MAX;
    case ATTR_DESCRIPTOR:
        return by->name.len > 0 ? RULE_TEXT_MAX : DESCRIPTOR_TEXT_MAX;
    default:
        return RULE_TEXT_MAX;
    }
}

/* All entries, in the spelling of descriptor_text(). */
static sv descriptor_value(sv text, struct arena *arena)
{
    struct weir_header *entries = ARENA_ARRAY(arena, struct weir_header, WEIR_DESCRIPTOR_MAX);
    char *bytes = arena_alloc(arena, text.len + 1), *room = arena_alloc(arena, DESCRIPTOR_TEXT_MAX);
    if (!entries || !bytes || !room)
        return (sv){ 0 };
    struct weir_request request = { .descriptor = entries, .descriptor_count = descriptor_read(text, bytes, entries) };
    return descriptor_text(&request, room);
}

static const char *value_allowed(const struct rule_by *by)
{
    switch (by->attribute) {
    case ATTR_IP:
        return "an IPv4 address, or an IPv6 address or a network of as many bits as `ipv6_prefix` says";
    case ATTR_HOST:
        return "a host name such as api.example.com, an IPv4 address, or an IPv6 address in brackets";
    case ATTR_PATH:
    case ATTR_ROUTE:
        return "a path that begins with /";
    case ATTR_DESCRIPTOR:
        return by->name.len > 0 ? "a text other than a single %"
                                : "all entries, such as plan=free,user=ann, with %25 for %, %2C for a comma and "
                                  "%3D for = inside a key or value";
    default:
        return "a text that is not blank";
    }
}

bool by_value(const struct settings *settings, const struct rule_by *by, sv text, struct arena *arena, sv *ret,
              const char **ret_allowed)
{
    CLEANUP(arena_done) struct arena scratch = { 0 };
    char room[IP_TEXT_MAX + 4];
    sv value = text;
    *ret_allowed = value_allowed(by);
    if (by->attribute == ATTR_IP)
        value = ip_value(settings->ipv6_prefix, text, room) ? weir_str(room) : (sv){ 0 };
    else if (by->attribute == ATTR_HOST)
        value = host_name(sv_trim_ows(text));
    else if (by->attribute == ATTR_HEADER || by->attribute == ATTR_METHOD)
        value = sv_trim_ows(text);
    else if ((by->attribute == ATTR_PATH || by->attribute == ATTR_ROUTE) && !sv_starts(text, SV("/")))
        value = (sv){ 0 };
    else if (by->attribute == ATTR_DESCRIPTOR && by->name.len == 0)
        value = descriptor_value(text, &scratch);
    bool entry = by_may_be_empty(by);
    if ((value.len == 0 && !entry) || value.len > by_value_max(by) || (entry && sv_eq(value, NO_VALUE)))
        return false;
    sv copy = arena_copy(arena, value);
    if (!copy.ptr) {
        *ret_allowed = NULL;
        return false;
    }
    for (size_t i = 0; by->attribute == ATTR_HOST && i < copy.len; i++)
        ((char *)copy.ptr)[i] = ascii_lower(copy.ptr[i]);
    *ret = copy;
    return true;
}

bool same_values(const sv *a, size_t a_count, const sv *b, size_t b_count)
{
    bool same = a_count == b_count;
    for (size_t i = 0; same && i < a_count; i++)
        same = sv_eq(a[i], b[i]);
    return same;
}

bool same_by_lists(const struct rule_by *a, size_t a_count, const struct rule_by *b, size_t b_count)
{
    bool same = a_count == b_count;
    for (size_t i = 0; a != b && same && i < a_count; i++)
        same = a[i].attribute == b[i].attribute && sv_eq(a[i].name, b[i].name);
    return same;
}

bool rule_same_by(const struct rule *a, const struct rule *b)
{
    return same_by_lists(a->kind->by, a->kind->by_count, b->kind->by, b->kind->by_count);
}

int override_compare(const struct rule_override *a, const struct rule_override *b)
{
    int order = a->rule.ptr == b->rule.ptr ? 0 : sv_compare(a->rule, b->rule);
    if (order == 0)
        order = (a->value_count > b->value_count) - (a->value_count < b->value_count);
    for (size_t i = 0; order == 0 && i < a->value_count; i++)
        order = sv_compare(a->values[i], b->values[i]);
    return order;
}

/* ---- one text for all of them ---- */

/* One of several values. False: a % that override_subject_text() does not write. */
static bool decode_value(sv text, char *to, sv *ret)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        sv rest = sv_from(text, i);
        bool comma = sv_starts(rest, SV("%2C")) || sv_starts(rest, SV("%2c")), percent = sv_starts(rest, SV("%25"));
        if (text.ptr[i] == '%' && !comma && !percent)
            return false;
        to[len++] = comma ? ',' : text.ptr[i];
        i += comma || percent ? 2 : 0;
    }
    *ret = sv_of(to, len);
    return true;
}

static int wrong_count(const struct rule *rule, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf names;
    buf_init(&names, RULE_BY_MAX * (RULE_BY_TEXT_MAX + 2));
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        buf_add(&names, i ? SV(", ") : SV(""));
        rule_by_text(&rule->kind->by[i], &names);
    }
    if (rule->kind->by_count == 0)
        return err_set(error, WEIR_E_INVALID, "rule %.*s counts for all together, so it has no subjects", SV_FMT(rule->id));
    return err_set(error, WEIR_E_INVALID,
                   "rule %.*s counts by %.*s: the subject must have %d values, joined by commas in this order, with %%2C "
                   "for a comma and %%25 for %% inside a value",
                   SV_FMT(rule->id), SV_FMT(buf_sv(&names)), rule->kind->by_count);
}

int override_subject_split(const struct settings *settings, const struct rule *rule, sv text, struct arena *arena,
                           sv ret_values[RULE_BY_MAX], struct weir_error *error)
{
    CLEANUP_FREE char *room = NULL; /* for one of several values */
    size_t commas = 0;
    for (size_t i = 0; i < text.len; i++)
        commas += text.ptr[i] == ',';
    if (rule->kind->by_count == 1 && by_may_be_empty(&rule->kind->by[0]) && sv_eq(text, NO_VALUE))
        text = SV("");
    if (rule->kind->by_count == 0 || (rule->kind->by_count > 1 && commas != (size_t)rule->kind->by_count - 1))
        return wrong_count(rule, error);
    if (rule->kind->by_count > 1 && !(room = cleanup_calloc(text.len + 1, 1)))
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        const char *allowed;
        sv value = rule->kind->by_count == 1 ? text : sv_cut(&text, ',');
        if (rule->kind->by_count > 1 && !decode_value(value, room, &value))
            return wrong_count(rule, error);
        if (by_value(settings, &rule->kind->by[i], value, arena, &ret_values[i], &allowed))
            continue;
        if (!allowed)
            return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
        return err_set(error, WEIR_E_INVALID, "%s: must be %s", attribute_table[rule->kind->by[i].attribute].name.ptr,
                       allowed);
    }
    return 0;
}

const struct rule_override *override_find(const struct rules *rules, sv rule, const sv *values, size_t count)
{
    for (size_t i = 0; i < rules->override_count; i++) {
        const struct rule_override *o = &rules->overrides[i];
        if (sv_eq(o->rule, rule) && same_values(o->values, o->value_count, values, count))
            return o;
    }
    return NULL;
}
