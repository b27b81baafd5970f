#include <inttypes.h>
#include <stdio.h>

#include "match/ruleset.h"

enum { MADE_PATH = FACTS_PATH, MADE_HOST = 2, MADE_IP = 4, MADE_IP_TEXT = 8, MADE_ROUTE = 16, MADE_TEXTS = 32 };
enum { MADE_DESCRIPTOR = 64, MADE_KEYS = 128, MADE_LIMIT = 256, MADE_PLAIN = 512 };

void facts_init(struct facts *facts, const struct ruleset *ruleset, const struct weir_request *request, sv user)
{
    facts->ruleset = ruleset;
    facts->request = request;
    facts->user = user;
    facts->repeated = sv_of(NULL, 0);
    facts->made = facts->header_count = 0;
}

/* True the first time. */
static bool make(struct facts *facts, unsigned part)
{
    if (facts->made & part)
        return false;
    facts->made |= part;
    return true;
}

/* Whole segments, the first that fits, once. */
static sv strip_prefix(const struct ruleset *ruleset, sv path)
{
    for (size_t i = 0; i < ruleset->rules->settings.strip_prefix_count; i++) {
        sv prefix = ruleset->strip_prefixes[i];
        if (!sv_starts(path, prefix))
            continue;
        if (path.len == prefix.len)
            return SV("/");
        if (path.ptr[prefix.len] == '/')
            return sv_from(path, prefix.len);
    }
    return path;
}

static void select_reading(struct facts *facts, size_t reading)
{
    facts->reading = (uint8_t)reading;
    facts->path = facts->readings[reading].path;
    facts->path_cut = facts->readings[reading].cut;
    facts->made &= ~(unsigned)MADE_ROUTE;
    path_split(facts->path, &facts->segments);
}

/* The first reading is made again: it has a smaller part of the pool if there are many. */
static __attribute__((noinline)) void make_readings(struct facts *facts, unsigned notes)
{
    const struct ruleset *ruleset = facts->ruleset;
    facts->reading_count = (uint8_t)path_readings(facts->request->path, notes, ruleset->rules->settings.ignore_case,
                                                  facts->path_buf, facts->readings, &facts->numbers);
    for (size_t i = 0; i < facts->reading_count; i++)
        facts->readings[i].path = strip_prefix(ruleset, facts->readings[i].path);
    select_reading(facts, 0);
}

static void make_path(struct facts *facts)
{
    const struct ruleset *ruleset = facts->ruleset;
    facts->path = sv_of("", 0);
    facts->path_cut = false;
    facts->reading = facts->reading_count = 0;
    facts->segments.count = 0;
    if (facts->request->path.len == 0)
        return;
    unsigned notes;
    sv path = path_normalise(facts->request->path, ruleset->rules->settings.ignore_case, facts->path_buf, PATH_BYTES_MAX,
                             &notes, &facts->segments);
    facts->reading_count = 1;
    facts->path_cut = notes & PATH_CUT;
    facts->path_notes = (uint8_t)notes;
    facts->path = strip_prefix(ruleset, path);
    if (facts->path.len != path.len)
        path_split(facts->path, &facts->segments);
    if (notes & PATH_AMBIGUOUS)
        make_readings(facts, notes);
}

size_t facts_make_texts(struct facts *facts)
{
    const struct ruleset *ruleset = facts->ruleset;
    if (!make(facts, MADE_TEXTS))
        return facts->text_count;
    if (!(facts->path_notes & PATH_AMBIGUOUS))
        facts->numbers = (struct path_numbers){ 0 };
    facts->text_count = (uint8_t)path_texts(facts->request->path, facts->path_notes, ruleset->rules->settings.ignore_case,
                                            &facts->numbers, facts->text_buf, facts->texts);
    for (size_t i = 0; i < facts->text_count; i++)
        facts->texts[i].as.path = strip_prefix(ruleset, facts->texts[i].as.path);
    return facts->text_count;
}

size_t facts_views(struct facts *facts)
{
    size_t readings = facts_readings(facts);
    return readings > 0 ? readings + facts_texts(facts) : 0;
}

static struct path_reading reading_at(const struct facts *facts, size_t i)
{
    return facts->reading_count > 1 ? facts->readings[i] : (struct path_reading){ facts->path, facts->path_cut };
}

struct path_view facts_view(const struct facts *facts, size_t i)
{
    size_t count = facts->reading_count;
    if (i < count)
        return (struct path_view){ reading_at(facts, i), reading_at(facts, i), i, count };
    const struct path_text *text = &facts->texts[i - count];
    return (struct path_view){ reading_at(facts, text->reading), text->as, text->reading, facts->text_count };
}

void facts_select_reading(struct facts *facts, size_t reading)
{
    if (facts_readings(facts) <= 1 || facts->reading == reading)
        return;
    select_reading(facts, reading);
}

sv facts_path(struct facts *facts)
{
    if (make(facts, MADE_PATH))
        make_path(facts);
    return facts->path;
}

bool facts_path_cut(struct facts *facts)
{
    facts_path(facts);
    return facts->path_cut;
}

static void make_route(struct facts *facts)
{
    sv rest = facts_path(facts);
    facts->route = rest;
    if (rest.len < 2 || rest.ptr[0] != '/')
        return;
    char *to = facts->route_buf;
    rest = sv_from(rest, 1);
    for (size_t i = 0; rest.len > 0; i++) {
        sv segment = sv_cut(&rest, '/');
        /* A path of thousands of segments must not run thousands of regexes. */
        if (i < PATH_SEGMENTS_MAX && ids_accept(&facts->ruleset->ids, segment))
            segment = SV("#");
        *to++ = '/';
        memcpy(to, segment.ptr, segment.len);
        to += segment.len;
    }
    facts->route = sv_of(facts->route_buf, (size_t)(to - facts->route_buf));
}

sv facts_route(struct facts *facts)
{
    if (make(facts, MADE_ROUTE))
        make_route(facts);
    return facts->route;
}

sv facts_host(struct facts *facts)
{
    if (make(facts, MADE_HOST))
        facts->host = host_normalise(sv_trim_ows(facts->request->host), facts->host_buf, sizeof facts->host_buf);
    return facts->host;
}

sv facts_whole_host(const struct facts *facts)
{
    return host_part(sv_trim_ows(facts->request->host));
}

const struct ip *facts_ip(struct facts *facts)
{
    if (make(facts, MADE_IP))
        facts->has_ip = client_address(facts->request, &facts->ruleset->trusted, &facts->ip, &facts->ip_given);
    return facts->has_ip ? &facts->ip : NULL;
}

/* An IPv4 address has one spelling only, so what the caller gave will do where there is nothing but the address. */
static bool given_is_text(sv given)
{
    return given.len > 0 && ascii_digit(given.ptr[0]) && ascii_digit(given.ptr[given.len - 1]) &&
           !memchr(given.ptr, ':', given.len);
}

static sv make_ip_text(struct facts *facts)
{
    const struct ip *ip = facts_ip(facts);
    if (!ip)
        return sv_of("", 0);
    if (given_is_text(facts->ip_given))
        return facts->ip_given;
    unsigned prefix = facts->ruleset->rules->settings.ipv6_prefix;
    if (ip_is_v4(ip) || prefix >= 128)
        return sv_of(facts->ip_buf, ip_text(ip, facts->ip_buf));
    struct cidr network = { *ip, (uint8_t)prefix };
    ip_mask(&network.ip, prefix);
    return sv_of(facts->ip_buf, cidr_text(&network, facts->ip_buf));
}

sv facts_ip_text(struct facts *facts)
{
    if (make(facts, MADE_IP_TEXT))
        facts->ip_text = make_ip_text(facts);
    return facts->ip_text;
}

sv facts_method(const struct facts *facts)
{
    return sv_trim_ows(facts->request->method);
}

static struct header_fact read_header(const struct facts *facts, sv lower_case_name)
{
    const struct weir_request *request = facts->request;
    struct header_fact found = { .name = lower_case_name, .value = sv_of("", 0) };
    const struct weir_header *before = NULL;
    for (size_t i = 0; i < request->header_count; i++) {
        const struct weir_header *header = &request->headers[i];
        if (!sv_eq_lower(header->name, lower_case_name))
            continue;
        sv value = sv_trim_ows(header->value);
        found.differs = found.differs || (before && !sv_eq(value, sv_trim_ows(before->value)));
        before = header;
        if (value.len > 0 && (found.value.len == 0 || facts->ruleset->rules->settings.repeated_headers == REPEATED_LAST))
            found.value = value;
    }
    return found;
}

/* Each is looked for by several steps, and by several rules. */
static const struct header_fact *header_of(struct facts *facts, sv lower_case_name)
{
    for (unsigned i = 0; i < facts->header_count && i < FACTS_HEADERS; i++)
        if (sv_eq(facts->headers[i].name, lower_case_name))
            return &facts->headers[i];
    struct header_fact *next = &facts->headers[facts->header_count++ % FACTS_HEADERS];
    *next = read_header(facts, lower_case_name);
    return next;
}

sv facts_header(struct facts *facts, sv lower_case_name)
{
    return header_of(facts, lower_case_name)->value;
}

bool facts_header_differs(struct facts *facts, sv lower_case_name)
{
    return header_of(facts, lower_case_name)->differs;
}

sv facts_repeated(struct facts *facts, const struct rule *rule)
{
    if (facts->ruleset->rules->settings.repeated_headers != REPEATED_REFUSE)
        return sv_of("", 0);
    for (size_t i = 0; i < rule->kind->by_count; i++)
        if (rule->kind->by[i].attribute == ATTR_HEADER && facts_header_differs(facts, rule->kind->by[i].name))
            return rule->kind->by[i].name;
    for (size_t i = 0; i < rule->kind->condition_count; i++) {
        const struct rule_condition *condition = &rule->kind->conditions[i];
        if (condition->attribute == ATTR_HEADER && facts_header_differs(facts, condition->name))
            return condition->name;
    }
    if (rule->kind->rest->plan_count > 0 && rule->kind->rest->plan.attribute == ATTR_HEADER &&
        facts_header_differs(facts, rule->kind->rest->plan.name))
        return rule->kind->rest->plan.name;
    return sv_of("", 0);
}

/* ---- the descriptor ---- */

bool facts_descriptor_plain(struct facts *facts)
{
    if (make(facts, MADE_PLAIN))
        facts->descriptor_plain = descriptor_is_plain(facts->request);
    return facts->descriptor_plain;
}

static const struct weir_header *find_plain(const struct weir_request *request, sv name)
{
    for (size_t i = 0; i < request->descriptor_count; i++)
        if (sv_eq(request->descriptor[i].name, name))
            return &request->descriptor[i];
    return NULL;
}

sv facts_entry(struct facts *facts, sv name)
{
    const struct weir_header *entry =
        facts_descriptor_plain(facts) ? find_plain(facts->request, name) : descriptor_find(facts->request, name);
    return entry ? sv_of(entry->value.len > 0 ? entry->value.ptr : "", entry->value.len) : (sv){ 0 };
}

static sv facts_descriptor(struct facts *facts)
{
    if (make(facts, MADE_DESCRIPTOR))
        facts->descriptor = descriptor_text(facts->request, facts->descriptor_buf);
    return facts->descriptor;
}

static sv facts_descriptor_keys(struct facts *facts)
{
    if (make(facts, MADE_KEYS))
        facts->descriptor_keys = facts_descriptor_plain(facts)
                                     ? descriptor_plain_keys(facts->request, facts->descriptor_keys_buf)
                                     : descriptor_keys(facts->request, facts->descriptor_keys_buf);
    return facts->descriptor_keys;
}

/* "100 per 60000ms" */
static sv facts_descriptor_limit(struct facts *facts)
{
    const struct weir_request *request = facts->request;
    char *room = facts->descriptor_limit_buf;
    if (make(facts, MADE_LIMIT)) {
        size_t most = sizeof facts->descriptor_limit_buf;
        int len = request->given_window_ms > 0
                      ? snprintf(room, most, "%" PRIu64 " per %" PRIu64 "ms", request->given_max, request->given_window_ms)
                      : 0;
        facts->descriptor_limit = sv_of(room, (size_t)len);
    }
    return facts->descriptor_limit;
}

/* Apart, so that requests without a descriptor do not pay for it. */
static __attribute__((noinline)) sv facts_of_descriptor(struct facts *facts, const struct rule_by *by)
{
    if (by->attribute == ATTR_DESCRIPTOR_KEYS)
        return facts_descriptor_keys(facts);
    if (by->attribute == ATTR_DESCRIPTOR_LIMIT)
        return facts_descriptor_limit(facts);
    return by->name.len > 0 ? facts_entry(facts, by->name) : facts_descriptor(facts);
}

sv facts_attribute(struct facts *facts, const struct rule_by *by)
{
    switch (by->attribute) {
    case ATTR_METHOD:
        return facts_method(facts);
    case ATTR_PATH:
        return facts_path(facts);
    case ATTR_HOST:
        return facts_host(facts);
    case ATTR_IP:
        return facts_ip_text(facts);
    case ATTR_USER:
        return facts->user;
    case ATTR_ROUTE:
        return facts_route(facts);
    case ATTR_HEADER:
        return facts_header(facts, by->name);
    case ATTR_DESCRIPTOR:
    case ATTR_DESCRIPTOR_KEYS:
    case ATTR_DESCRIPTOR_LIMIT:
        return facts_of_descriptor(facts, by);
    default:
        return request_get(facts->request, by->attribute);
    }
}
