/* Random rulesets and requests: the index, the slow explanation and a model written a third time must agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "base/regex.h"
#include "match/ruleset.h"
#include "read.h"

static const int64_t now_us = INT64_C(1700000000) * US_PER_S;

/* ---- a model of rules: words of small vocabularies, so that much overlaps ---- */

static const char *const segments[] = { "a", "b", "1", "22", "a1", "%2F" };
static const char *const parts[] = { "a", "b", "1", "22", "a1", "%2F", "#", "{x}", "{y}" };
static const char *const events[] = { "", "", "e1", "e2", "e3", " e1" };
static const char *const hosts[] = { "", "", "h1", "h2" };
static const char *const asked_hosts[] = { "", "h1", "h2", "x.h1" };
static const char *const methods[] = { "", "GET", "PUT" };
static const char *const values[] = { "", "v1", "v2", "V1" };
static const char *const users[] = { "", "u1", "u2", "u1 " };
static const char *const ips[] = { "", "1.1.1.1", "1.2.2.2", "2001:db8::1" };
static const char *const networks[] = { "", "1.0.0.0/8", "1.2.0.0/16", "2001:db8::/32" };
static const char *const regexes[] = { "/a.*",      ".*/b",   "/[0-9]+(?:/.*)?", "(?:/1)*",      "/(?:a|22)/b",
                                       "(?i)/A1.*", "/a1?/b", ".*(?:%2F|22)",    "/[^/]+//?/.*", "/a/1|/b/22" };
static const char *const by[] = { "", "user", "ip", "key", "host", "'header:x-a'", "route", "event", "method" };

/* Conditions beyond one plain value: what to write, and the values that hold; "" is a request without the attribute. */
struct model_condition {
    const char *yaml;
    const char *holds[6]; /* ends in NULL */
    bool ignore_case;     /* of a header */
};

static const struct model_condition user_conditions[] = {
    { "user: [u2, u1]", { "u1", "u2" } },
    { "user: { not: [u1, u3] }", { "", "u2", "u1 " } },
    { "user: { prefix: u1 }", { "u1", "u1 " } },
    { "user: { glob: '*1*' }", { "u1", "u1 " } },
    { "user: [u2, { glob: 'u* ' }]", { "u2", "u1 " } },
    { "user: { present: true }", { "u1", "u2", "u1 " } },
    { "user: { absent: true }", { "" } },
    { "user: { prefix: u, not: { glob: '*2' } }", { "u1", "u1 " } },
    { "user: { present: true, not: u1 }", { "u2", "u1 " } },
    { "user: { is: [u1, u2], not: u2 }", { "u1" } },
};
static const struct model_condition ip_conditions[] = {
    { "ip: 1.1.1.1", { "1.1.1.1" } },
    { "ip: [1.0.0.0/8, '2001:db8::/32']", { "1.1.1.1", "1.2.2.2", "2001:db8::1" } },
    { "ip: { not: 1.2.0.0/16 }", { "", "1.1.1.1", "2001:db8::1" } },
    { "ip: { is: 0.0.0.0/0, not: 1.1.1.1 }", { "1.2.2.2" } },
    { "ip: { present: true }", { "1.1.1.1", "1.2.2.2", "2001:db8::1" } },
    { "ip: { absent: true }", { "" } },
};
static const struct model_condition host_conditions[] = {
    { "host: [h1, H2.]", { "h1", "h2" } },         { "host: '*.h1'", { "x.h1" } },
    { "host: { not: h1 }", { "", "h2", "x.h1" } }, { "host: { glob: '*1' }", { "h1", "x.h1" } },
    { "host: { prefix: H }", { "h1", "h2" } },
};
static const struct model_condition header_conditions[] = {
    { "header: { X-A: [v2, v3] }", { "v2" } },
    { "header: { X-A: { not: v1 } }", { "", "v2", "V1" } },
    { "header: { X-A: { absent: true } }", { "" } },
    { "header: { X-A: { present: true } }", { "v1", "v2", "V1" } },
    { "header: { X-A: { glob: '*1' } }", { "v1", "V1" } },
    { "header: { X-A: V1 }", { "v1", "V1" }, true },
    { "header: { X-A: [V1, x] }", { "v1", "V1" }, true },
    { "header: { X-A: { prefix: V, not: V2 } }", { "v1", "V1" }, true },
    { "header: { X-A: { glob: '*V*' } }", { "v1", "v2", "V1" }, true },
};
static const struct model_condition method_conditions[] = {
    { "method: { not: [PUT, HEAD] }", { "", "GET" } },
    { "method: { glob: '*t' }", { "GET", "PUT" } },
    { "method: { present: true }", { "GET", "PUT" } },
};
static const struct model_condition event_conditions[] = {
    { "event: [e1, e2]", { "e1", "e2" } },
    { "event: { not: [e1, { glob: ' *' }] }", { "", "e2", "e3" } },
};

static bool condition_allows(const struct model_condition *condition, const char *value)
{
    for (size_t i = 0; condition && condition->holds[i]; i++)
        if (strcmp(condition->holds[i], value) == 0)
            return true;
    return !condition;
}

#define PICK(r, words) ((words)[random_in((r), 0, (int64_t)(sizeof(words) / sizeof(words)[0]) - 1)])

enum { RULES = 40, PATHS = 3, DEPTH = 5 };

struct model_path {
    const char *regex; /* or a template: */
    int depth;
    const char *part[DEPTH];
    bool rest;
};

struct model_rule {
    const char *event, *host, *method, *header, *user, *network, *by;
    /* In place of those above; NULL: none. */
    const struct model_condition *event_condition, *host_condition, *method_condition, *header_condition, *user_condition,
        *ip_condition;
    bool off, expired;
    int path_count;
    bool not_paths; /* it must match none of them */
    struct model_path path[PATHS];
};

/* A path as somebody reads it. */
struct model_reading {
    int depth; /* -1: no path */
    const char *segment[2 * (DEPTH + 1)];
};

struct model_request {
    const char *event, *host, *method, *header, *user, *ip, *key;
    const char *second;        /* the header again; NULL: it is there once */
    struct model_reading sent; /* with `.` and `%2F` as they are */
    char path[100];
};

static struct model_rule random_rule(struct random *r)
{
    struct model_rule rule = {
        .event = PICK(r, events),
        .host = PICK(r, hosts),
        .method = PICK(r, methods),
        .header = random_one_in(r, 5) ? PICK(r, values) : "",
        .user = random_one_in(r, 5) ? PICK(r, users) : "",
        .network = random_one_in(r, 5) ? PICK(r, networks) : "",
        .by = random_one_in(r, 2) ? PICK(r, by) : "",
        .off = random_one_in(r, 20),
        .expired = random_one_in(r, 20),
        .path_count = (int)random_in(r, 0, PATHS),
    };
#define MAYBE(r, words) (random_one_in((r), 6) ? &PICK((r), words) : NULL)
    rule.event_condition = rule.event[0] ? NULL : MAYBE(r, event_conditions);
    rule.host_condition = rule.host[0] ? NULL : MAYBE(r, host_conditions);
    rule.method_condition = rule.method[0] ? NULL : MAYBE(r, method_conditions);
    rule.header_condition = rule.header[0] ? NULL : MAYBE(r, header_conditions);
    rule.user_condition = MAYBE(r, user_conditions);
    rule.ip_condition = MAYBE(r, ip_conditions);
    rule.not_paths = random_one_in(r, 5);
    for (int i = 0; i < rule.path_count; i++) {
        struct model_path *path = &rule.path[i];
        if (random_one_in(r, 6)) {
            path->regex = PICK(r, regexes);
            continue;
        }
        path->depth = (int)random_in(r, 0, DEPTH);
        path->rest = random_one_in(r, 5);
        for (int k = 0; k < path->depth; k++)
            path->part[k] = PICK(r, parts);
    }
    return rule;
}

static void write_rule(struct buf *out, const struct model_rule *rule, int number)
{
    const struct model_condition *conditions[] = { rule->event_condition,  rule->host_condition, rule->method_condition,
                                                   rule->header_condition, rule->user_condition, rule->ip_condition };
    bool any = rule->event[0] || rule->host[0] || rule->method[0] || rule->header[0] || rule->path_count > 0;
    for (size_t i = 0; i < 6; i++)
        any = any || conditions[i];
    buf_printf(out, "- id: r%d\n  limits: [1 per 1s]\n%s", number, any ? "  match:\n" : "");
    for (size_t i = 0; i < 6; i++)
        if (conditions[i])
            buf_printf(out, "    %s\n", conditions[i]->yaml);
    if (rule->event[0])
        buf_printf(out, "    event: '%s'\n", rule->event);
    if (rule->host[0])
        buf_printf(out, "    host: %s\n", rule->host);
    if (rule->method[0])
        buf_printf(out, "    method: [%s, POST]\n", rule->method);
    if (rule->header[0])
        buf_printf(out, "    header: { X-A: %s }\n", rule->header);
    for (int i = 0; i < rule->path_count; i++) {
        const struct model_path *path = &rule->path[i];
        buf_printf(out, "%s      - ", i > 0 ? "" : rule->not_paths ? "    path:\n      not:\n" : "    path:\n");
        if (path->regex) {
            buf_printf(out, "{ regex: '%s' }\n", path->regex);
            continue;
        }
        buf_printf(out, "'");
        for (int k = 0; k < path->depth; k++)
            buf_printf(out, "/%s", path->part[k]);
        buf_printf(out, "%s'\n", path->rest ? "/*" : path->depth == 0 ? "/" : "");
    }
    if (rule->user[0] || rule->network[0])
        buf_printf(out, "  except: { user: [%s%s%s], ip: [%s%s%s] }\n", rule->user[0] ? "'" : "", rule->user,
                   rule->user[0] ? "'" : "", rule->network[0] ? "'" : "", rule->network, rule->network[0] ? "'" : "");
    if (rule->by[0])
        buf_printf(out, "  by: [%s]\n", rule->by);
    if (rule->header_condition && rule->header_condition->ignore_case)
        buf_printf(out, "  ignore_case: true\n");
    if (rule->off)
        buf_printf(out, "  mode: off\n");
    buf_printf(out, "  expires: %d\n", rule->expired ? 1700000000 : 1700000001);
}

static struct model_request random_request(struct random *r)
{
    struct model_request request = {
        .event = PICK(r, events),
        .host = PICK(r, asked_hosts),
        .method = PICK(r, methods),
        .header = PICK(r, values),
        .second = random_one_in(r, 3) ? PICK(r, values) : NULL,
        .user = PICK(r, users),
        .ip = PICK(r, ips),
        .key = random_one_in(r, 2) ? "k" : "",
    };
    int depth = (int)random_in(r, -1, DEPTH + 1);
    if (depth < 0)
        request.sent.depth = -1;
    if (depth == 0)
        strcpy(request.path, "/");
    for (int i = 0; i < depth; i++) {
        if (random_one_in(r, 9))
            request.sent.segment[request.sent.depth++] = ".";
        request.sent.segment[request.sent.depth++] = PICK(r, segments);
    }
    for (int i = 0; i < request.sent.depth; i++) {
        strcat(request.path, "/");
        strcat(request.path, request.sent.segment[i]);
    }
    return request;
}

/* What is left of empty segments. */
enum model_gaps { NO_GAPS, GAP_AT_END, ALL_GAPS };

/* `slash`: an encoded slash separates, and here it stands between two others. */
static struct model_reading model_read(const struct model_reading *sent, bool slash, enum model_gaps gaps)
{
    struct model_reading reading = { .depth = sent->depth < 0 ? -1 : 0 };
    for (int i = 0; i < sent->depth; i++) {
        bool gap = slash && sent->segment[i][0] == '%';
        if (gap ? gaps == ALL_GAPS : sent->segment[i][0] != '.')
            reading.segment[reading.depth++] = gap ? "" : sent->segment[i];
        if (gap && (gaps == ALL_GAPS || (gaps == GAP_AT_END && i + 1 == sent->depth)))
            reading.segment[reading.depth++] = "";
    }
    return reading;
}

static bool digits(const char *s)
{
    return s[strspn(s, "0123456789")] == '\0';
}

static bool model_path_matches(const struct model_path *path, const struct model_reading *request)
{
    if (request->depth < path->depth || (request->depth > path->depth && !path->rest))
        return false;
    for (int i = 0; i < path->depth; i++) {
        const char *part = path->part[i], *segment = request->segment[i];
        if (part[0] == '#' ? !digits(segment) : part[0] != '{' && strcmp(part, segment) != 0)
            return false;
    }
    return true;
}

/* Regexes are the one thing that the model takes from the code. */
static bool model_regex_matches(const char *pattern, const struct model_reading *request)
{
    char path[100] = "", error[200];
    for (int i = 0; i < request->depth; i++)
        sprintf(path + strlen(path), "/%s", request->segment[i]);
    struct regex *regex = NULL;
    assert_int_equal(regex_new(&regex, weir_str(pattern), false, error, sizeof error), 0);
    bool matches = request->depth >= 0 && regex_match(regex, weir_str(path[0] ? path : "/")) == REGEX_YES;
    regex_free(regex);
    return matches;
}

/* What settings.repeated_headers makes of a header that is there twice. */
static const char *model_header(const struct model_request *request, enum repeated_headers repeated)
{
    const char *first = request->header, *second = request->second ? request->second : "";
    return repeated == REPEATED_LAST ? (second[0] ? second : first) : (first[0] ? first : second);
}

static bool model_differs(const struct model_request *request, enum repeated_headers repeated)
{
    return repeated == REPEATED_REFUSE && request->second && strcmp(request->header, request->second) != 0;
}

static bool model_looks_at_header(const struct model_rule *rule)
{
    return rule->header[0] || rule->header_condition || strstr(rule->by, "header");
}

static bool model_has(const char *attribute, const struct model_request *request)
{
    const struct {
        const char *name;
        bool has;
    } all[] = {
        { "", true },
        { "user", request->user[0] },
        { "ip", request->ip[0] },
        { "key", request->key[0] },
        { "host", request->host[0] },
        { "'header:x-a'", model_header(request, REPEATED_FIRST)[0] },
        { "route", request->sent.depth >= 0 },
        { "event", request->event[0] },
        { "method", request->method[0] },
    };
    size_t i = 0;
    while (strcmp(all[i].name, attribute) != 0)
        i++;
    return all[i].has;
}

static bool model_conditions_hold(const struct model_rule *rule, const struct model_request *request,
                                  enum repeated_headers repeated)
{
    return condition_allows(rule->event_condition, request->event) &&
           condition_allows(rule->host_condition, request->host) &&
           condition_allows(rule->method_condition, request->method) &&
           (model_differs(request, repeated) ||
            condition_allows(rule->header_condition, model_header(request, repeated))) &&
           condition_allows(rule->user_condition, request->user) && condition_allows(rule->ip_condition, request->ip);
}

/* Templates look at the reading, regexes at the text. */
static bool model_paths_hold(const struct model_rule *rule, const struct model_reading *reading,
                             const struct model_reading *text)
{
    bool some = false;
    for (int i = 0; i < rule->path_count; i++)
        some = some || (rule->path[i].regex ? model_regex_matches(rule->path[i].regex, text)
                                            : model_path_matches(&rule->path[i], reading));
    return rule->path_count == 0 || some != rule->not_paths;
}

/* But for a header that differs. */
static bool model_applies(const struct model_rule *rule, const struct model_request *request,
                          enum repeated_headers repeated)
{
    if (rule->off || rule->expired || !model_has(rule->by, request))
        return false;
    if ((rule->event[0] && strcmp(rule->event, request->event) != 0) ||
        (rule->host[0] && strcmp(rule->host, request->host) != 0) ||
        (rule->method[0] && strcmp(rule->method, request->method) != 0) ||
        (rule->header[0] && !model_differs(request, repeated) &&
         strcmp(rule->header, model_header(request, repeated)) != 0))
        return false;
    if (!model_conditions_hold(rule, request, repeated) || (rule->user[0] && strcmp(rule->user, request->user) == 0))
        return false;
    size_t same = rule->network[0] == '2' ? 9 : rule->network[0] == 0 ? 0 : rule->network[2] == '0' ? 2 : 4;
    if (same > 0 && strncmp(rule->network, request->ip, same) == 0)
        return false;
    bool applies = false;
    for (int slash = 0; slash < 2; slash++) {
        struct model_reading reading = model_read(&request->sent, slash, NO_GAPS);
        for (enum model_gaps gaps = NO_GAPS; gaps <= ALL_GAPS; gaps++) {
            struct model_reading text = model_read(&request->sent, slash, gaps);
            applies = applies || model_paths_hold(rule, &reading, &text);
        }
    }
    return applies;
}

/* With blanks at its ends at times, which are no part of a header, a host, a method or an address. Lives until some more
 * are made. */
static struct weir_str padded(struct random *r, const char *text)
{
    static const char *const blanks[] = { "", "", "", " ", "\t", "\t \t\t" };
    static char rooms[16][40];
    static unsigned next;
    char *room = rooms[next++ % 16];
    const char *before = PICK(r, blanks), *after = PICK(r, blanks);
    snprintf(room, sizeof rooms[0], "%s%s%s", before, text, after);
    return weir_str(room);
}

static struct weir_request real_request(struct random *r, const struct model_request *model, struct weir_header headers[2])
{
    headers[0] = (struct weir_header){ WEIR_STR("x-a"), padded(r, model->header) };
    headers[1] = (struct weir_header){ WEIR_STR("X-A"), padded(r, model->second ? model->second : "") };
    return (struct weir_request){
        .event = weir_str(model->event),
        .host = padded(r, model->host),
        .method = padded(r, model->method),
        .ip = padded(r, model->ip),
        .key = weir_str(model->key),
        .user = weir_str(model->user),
        .path = weir_str(model->path),
        .headers = headers,
        .header_count = model->second ? 2 : 1,
    };
}

/* Compares the match with the explanation of every rule; returns how many apply. */
static size_t compare(const struct ruleset *ruleset, const struct weir_request *request, uint32_t *found, size_t cap,
                      const char *where, bool *ret_repeated)
{
    sv user = request->user;
    bool repeated = false;
    struct facts facts, again;
    facts_init(&facts, ruleset, request, user);
    facts_init(&again, ruleset, request, user);
    size_t count = ruleset_match(ruleset, &facts, now_us, found, cap), at = 0;
    assert_true(count <= cap);
    for (size_t i = 0; i < ruleset_rules(ruleset)->rule_count; i++) {
        sv detail;
        enum match_reason reason = ruleset_explain(ruleset, i, &again, now_us, &detail);
        bool explained = reason == MATCH_YES;
        repeated = repeated || reason == MATCH_REPEATED;
        bool matched = at < count && found[at] == i;
        at += matched;
        if (explained != matched)
            fail_msg("%s: rule %zu: explained %d, matched %d", where, i, explained, matched);
    }
    assert_int_equal(at, count);
    if (repeated != (facts.repeated.len > 0))
        fail_msg("%s: explained that a header is repeated: %d, matched: %d", where, repeated, !repeated);
    *ret_repeated = repeated;
    return count;
}

static struct ruleset *ruleset_of(const struct model_rule *rules, int count, enum repeated_headers repeated)
{
    struct buf yaml;
    buf_init(&yaml, 1 << 20);
    buf_printf(&yaml, "settings: { repeated_headers: %s }\n", repeated_names[repeated]);
    buf_printf(&yaml, "rules:%s\n", count == 0 ? " []" : "");
    for (int i = 0; i < count; i++)
        write_rule(&yaml, &rules[i], i);
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    return ruleset;
}

/* ---- rulesets that follow others ---- */

enum { STEPS = 4, SPARE = RULES / 2 };

/* Rows of all rules, and of spare ones among them that do not last. */
struct grown {
    struct rule_row rows[RULES + SPARE];
    struct rule *read[RULES + SPARE]; /* as the row was last read; NULL: it is not there */
    struct buf texts[RULES + SPARE];
    char ids[RULES + SPARE][16];
    bool spare[RULES + SPARE];
    int count;
    struct rule_row setting;
};

static void grown_init(struct grown *g, struct random *r, const struct model_rule *rules, int count,
                       enum repeated_headers repeated)
{
    *g = (struct grown){
        .setting = { .kind = ROW_SETTING, .id = SV("repeated_headers"), .text = weir_str(repeated_names[repeated]) }
    };
    for (int i = 0; i < count || (g->count < count + SPARE && random_one_in(r, 2));) {
        bool spare = i == count || (g->count - i < SPARE && random_one_in(r, 4));
        struct model_rule other = random_rule(r);
        int number = spare ? 1000 + g->count : i;
        struct buf *text = &g->texts[g->count];
        buf_init(text, 1 << 16);
        write_rule(text, spare ? &other : &rules[i], number);
        text->ptr[0] = ' '; /* not an item of a list */
        snprintf(g->ids[g->count], sizeof g->ids[0], "r%d", number);
        g->rows[g->count] = (struct rule_row){ .kind = ROW_RULE, .id = weir_str(g->ids[g->count]), .text = buf_sv(text) };
        g->spare[g->count++] = spare;
        i += !spare;
    }
}

static void grown_done(struct grown *g)
{
    for (int i = 0; i < g->count; i++)
        buf_done(&g->texts[i]);
}

/* Reads some of the rows anew, shares the others with the set before, and leaves some out, in the end the spare ones. */
static struct rules *grown_step(struct grown *g, struct random *r, struct rules *before, bool last)
{
    struct rule_row rows[RULES + SPARE + 1] = { g->setting };
    int of[RULES + SPARE + 1], count = 1;
    for (int i = 0; i < g->count; i++) {
        if (last ? g->spare[i] : random_one_in(r, 5))
            continue;
        rows[count] = g->rows[i];
        rows[count].rule = random_one_in(r, 8) ? NULL : g->read[i];
        of[count++] = i;
    }
    struct rules_report report = { 0 };
    struct rules *rules = rules_reread_rows(rows, (size_t)count, before, &report);
    if (!rules || report.error_count > 0)
        fail_msg("%.*s: %.*s", SV_FMT(report.errors->rule), SV_FMT(report.errors->text));
    rules_report_done(&report);
    memset(g->read, 0, sizeof g->read);
    for (int i = 1; i < count; i++)
        g->read[of[i]] = rows[i].rule;
    return rules;
}

/* The same rules, put in force bit by bit: what is there is shared. */
static struct ruleset *grown_ruleset(struct random *r, const struct model_rule *rules, int count,
                                     enum repeated_headers repeated, size_t *layered)
{
    struct grown g;
    struct ruleset *ruleset = NULL;
    struct weir_error error;
    grown_init(&g, r, rules, count, repeated);
    for (int step = 0; step < STEPS; step++) {
        struct ruleset *before = ruleset;
        uint32_t *was;
        struct rules *next = grown_step(&g, r, before ? (struct rules *)ruleset_rules(before) : NULL, step == STEPS - 1);
        assert_int_equal(ruleset_follow_most(&ruleset, before, next, random_in(r, 0, 2 * RULES), &was, &error), 0);
        free(was);
        ruleset_free(before);
    }
    *layered += ruleset->added != NULL;
    grown_done(&g);
    return ruleset;
}

static void check_round(struct random *r, int round, size_t *applied, size_t *layered)
{
    struct model_rule rules[RULES];
    int count = (int)random_in(r, 0, RULES);
    enum repeated_headers repeated = (enum repeated_headers)random_in(r, 0, 2);
    for (int i = 0; i < count; i++)
        rules[i] = random_rule(r);
    struct ruleset *ruleset =
        round % 2 ? grown_ruleset(r, rules, count, repeated, layered) : ruleset_of(rules, count, repeated);
    for (int ask = 0; ask < 60; ask++) {
        struct model_request model = random_request(r);
        struct weir_header headers[2];
        struct weir_request request = real_request(r, &model, headers);
        bool was_repeated, is_repeated = false;
        char where[300];
        snprintf(where, sizeof where, "seed %llu, round %d, ask %d: %s", (unsigned long long)random_seed(), round, ask,
                 model.path);
        uint32_t found[RULES];
        size_t n = compare(ruleset, &request, found, RULES, where, &was_repeated), at = 0;
        *applied += n;
        for (int i = 0; i < count; i++) {
            bool matched = at < n && found[at] == (uint32_t)i;
            at += matched;
            bool applies = model_applies(&rules[i], &model, repeated);
            bool differs = applies && model_differs(&model, repeated) && model_looks_at_header(&rules[i]);
            is_repeated = is_repeated || differs;
            if ((applies && !differs) != matched)
                fail_msg("%s: rule %d: matched %d, against the model", where, i, matched);
        }
        if (was_repeated != is_repeated)
            fail_msg("%s: repeated %d, against the model", where, was_repeated);
    }
    ruleset_free(ruleset);
}

static void test_against_model(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    size_t applied = 0, layered = 0;
    for (int round = 0; round < 2500; round++)
        check_round(&r, round, &applied, &layered);
    assert_true(applied > 1000);
    assert_true(layered > 500);
}

static struct rules *read_rows(struct rule_row *rows, size_t count, struct rules *before)
{
    struct rules_report report = { 0 };
    struct rules *rules = rules_reread_rows(rows, count, before, &report);
    assert_non_null(rules);
    assert_int_equal(report.error_count, 0);
    rules_report_done(&report);
    return rules;
}

static void check_repeated(const struct ruleset *ruleset, const char *name)
{
    struct weir_header headers[] = { { WEIR_STR("x-a"), WEIR_STR("1") },
                                     { WEIR_STR("x-a"), WEIR_STR("2") },
                                     { WEIR_STR("x-b"), WEIR_STR("1") },
                                     { WEIR_STR("x-b"), WEIR_STR("2") } };
    struct weir_request request = { .headers = headers, .header_count = 4 };
    struct facts facts;
    uint32_t found[4];
    facts_init(&facts, ruleset, &request, request.user);
    assert_int_equal(ruleset_match(ruleset, &facts, now_us, found, 4), 0);
    assert_true(sv_eq(facts.repeated, weir_str(name)));
}

/* Which header a refusal names does not depend on how the rules came. */
static void test_repeated_in_layers(void **state)
{
    (void)state;
    struct rule_row rows[] = {
        { .kind = ROW_RULE, .id = SV("new"), .text = SV("{ by: ['header:x-a'], limits: [1 per 1s] }") },
        { .kind = ROW_RULE, .id = SV("r1"), .text = SV("{ by: ['header:x-b'], limits: [1 per 1s] }") },
        { .kind = ROW_RULE, .id = SV("r2"), .text = SV("{ by: [user], limits: [1 per 1s] }") },
    };
    struct ruleset *before, *layered, *fresh;
    struct weir_error error;
    uint32_t *was;
    assert_int_equal(ruleset_new(&before, read_rows(rows + 1, 2, NULL), &error), 0);
    struct rules *rules = read_rows(rows, 3, (struct rules *)ruleset_rules(before));
    assert_int_equal(ruleset_follow_most(&layered, before, rules, 3, &was, &error), 0);
    assert_non_null(layered->added);
    free(was);
    assert_int_equal(ruleset_new(&fresh, read_rows(rows, 3, NULL), &error), 0);
    check_repeated(fresh, "x-a");
    check_repeated(layered, "x-a");
    ruleset_free(before);
    ruleset_free(layered);
    ruleset_free(fresh);
}

/* Every mixture of literal, `#` and `{name}` over six segments: more lists than a request merges. */
static void test_every_branch(void **state)
{
    (void)state;
    static const char *const kinds[] = { "1", "#", "{x}", "2" };
    struct buf yaml;
    buf_init(&yaml, 1 << 22);
    buf_printf(&yaml, "rules:\n");
    for (int i = 0; i < 4096; i++) {
        buf_printf(&yaml, "- { id: r%d, limits: [1 per 1s], match: { path: '", i);
        for (int k = 0; k < 6; k++)
            buf_printf(&yaml, "/%s", kinds[i >> (2 * k) & 3]);
        buf_printf(&yaml, "%s' } }\n", i % 7 == 0 ? "/*" : "");
    }
    buf_printf(&yaml, "- { id: off, limits: [1 per 1s], mode: off }\n");
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    static uint32_t found[4096];
    bool repeated;
    struct weir_request request = { .path = WEIR_STR("/1/1/1/1/1/1") };
    assert_int_equal(compare(ruleset, &request, found, 4096, "all ones", &repeated), 729);
    request.path = WEIR_STR("/2/2/2/2/2/x");
    assert_int_equal(compare(ruleset, &request, found, 4096, "few", &repeated), 243);
    request.path = WEIR_STR("/x/y/x/y/x/y");
    assert_int_equal(compare(ruleset, &request, found, 4096, "one", &repeated), 1);
    request.path = WEIR_STR("/1/1/1/1/1");
    assert_int_equal(compare(ruleset, &request, found, 4096, "none", &repeated), 0);
    ruleset_free(ruleset);
}

/* One rule with many templates that match one path: one list, so that not every rule has to be looked at. */
static void test_one_rule(void **state)
{
    (void)state;
    enum { DEEP = 9 };
    struct buf yaml;
    buf_init(&yaml, 1 << 20);
    buf_printf(&yaml, "rules:\n- { id: r, limits: [1 per 1s], match: { path: [");
    for (int i = 0; i < 1 << DEEP; i++) {
        buf_printf(&yaml, "%s'", i > 0 ? ", " : "");
        for (int k = 0; k < DEEP; k++)
            buf_printf(&yaml, "%s", i >> k & 1 ? "/#" : "/{x}");
        buf_printf(&yaml, "'");
    }
    buf_printf(&yaml, "] } }\n");
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    struct path_segments cut;
    uint32_t lists[RULESET_LISTS_MAX];
    sv path = SV("/1/1/1/1/1/1/1/1/1");
    path_split(path, &cut);
    assert_int_equal(
        tree_find(&ruleset->tree, &ruleset->table, path, &cut, &ruleset->ids, &ruleset->lines, lists, RULESET_LISTS_MAX),
        1);
    ruleset_free(ruleset);
}

/* Templates and paths deeper than the tree. */
static void test_deep(void **state)
{
    (void)state;
    struct buf yaml, path;
    buf_init(&yaml, 1 << 20);
    buf_init(&path, 1 << 20);
    buf_printf(&yaml, "rules:\n");
    for (int depth = 60; depth < 70; depth++)
        for (int kind = 0; kind < 4; kind++) {
            buf_printf(&yaml, "- { id: r%d-%d, limits: [1 per 1s], match: { path: '", depth, kind);
            for (int i = 0; i < depth; i++)
                buf_printf(&yaml, "/%s", kind == 1 ? "{x}" : "1");
            buf_printf(&yaml, "%s' } }\n", kind == 2 ? "/*" : kind == 3 ? "/#" : "");
        }
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    uint32_t found[100];
    for (int depth = 0; depth < 4000; depth += depth < 80 ? 1 : 999) {
        buf_clear(&path);
        for (int i = 0; i < depth; i++)
            buf_printf(&path, "/1");
        bool repeated;
        struct weir_request request = { .path = buf_sv(&path) };
        size_t n = compare(ruleset, &request, found, 100, "deep", &repeated);
        assert_int_equal(n > 0, depth >= 60);
    }
    ruleset_free(ruleset);
    buf_done(&yaml);
    buf_done(&path);
}

/* Many rules of each kind: each request finds its own. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 3000 };
    struct buf yaml;
    buf_init(&yaml, 8 << 20);
    buf_printf(&yaml, "rules:\n");
    for (int i = 0; i < MANY; i++) {
        buf_printf(&yaml, "- { id: t%d, limits: [1 per 1s], match: { path: '/service%d/{x}/item/#' } }\n", i, i);
        buf_printf(&yaml, "- { id: e%d, limits: [1 per 1s], match: { event: event%d } }\n", i, i);
        buf_printf(&yaml, "- { id: h%d, limits: [1 per 1s], match: { host: host%d, path: '/*' } }\n", i, i);
        buf_printf(&yaml, "- { id: p%d, limits: [1 per 1s], match: { event: shared, path: '/shared/%d' } }\n", i, i);
    }
    struct ruleset *ruleset = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    for (uint32_t i = 0; i < MANY; i += 7) {
        char texts[4][50];
        snprintf(texts[0], 50, "/service%u/abc/item/%u", i, i);
        snprintf(texts[1], 50, "event%u", i);
        snprintf(texts[2], 50, "host%u", i);
        snprintf(texts[3], 50, "/shared/%u", i);
        struct weir_request requests[] = {
            { .path = weir_str(texts[0]) },
            { .event = weir_str(texts[1]) },
            { .host = weir_str(texts[2]), .path = WEIR_STR("/") },
            { .event = WEIR_STR("shared"), .path = weir_str(texts[3]) },
        };
        for (uint32_t k = 0; k < 4; k++) {
            struct facts facts;
            uint32_t found[2];
            facts_init(&facts, ruleset, &requests[k], requests[k].user);
            assert_int_equal(ruleset_match(ruleset, &facts, now_us, found, 2), 1);
            assert_int_equal(found[0], 4 * i + k);
        }
    }
    ruleset_free(ruleset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model), cmocka_unit_test(test_repeated_in_layers),
        cmocka_unit_test(test_every_branch),  cmocka_unit_test(test_one_rule),
        cmocka_unit_test(test_deep),          cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
