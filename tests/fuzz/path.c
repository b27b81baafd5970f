/* Paths from anywhere: normalising keeps its invariants, and the index finds what the explanation says. The first byte
 * holds switches, the rest is the path. */
#include <stdio.h>
#include <stdlib.h>

#include "match/match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what, sv path)
{
    if (holds)
        return;
    fprintf(stderr, "%s: \"%.*s\"\n", what, SV_FMT(path));
    abort();
}

static const char yaml[] = "settings: { strip_prefixes: [/api/v1, /x], ignore_case: false }\n"
                           "rules:\n"
                           "- { id: root, match: { path: / }, limits: [1 per 1s] }\n"
                           "- { id: all, match: { path: '/*' }, limits: [1 per 1s] }\n"
                           "- { id: a, match: { path: /a }, limits: [1 per 1s] }\n"
                           "- { id: ab, match: { path: /a/b }, limits: [1 per 1s] }\n"
                           "- { id: id, match: { path: '/a/#' }, limits: [1 per 1s] }\n"
                           "- { id: any, match: { path: '/{x}/b' }, by: [route], limits: [1 per 1s] }\n"
                           "- { id: deep, match: { path: '/{x}/#/{y}/*' }, by: [path], limits: [1 per 1s] }\n"
                           "- { id: list, match: { path: [/a, '/#', { regex: '/a(/.*)?' }] }, limits: [1 per 1s] }\n"
                           "- { id: regex, match: { path: { regex: '/(a|b)+/(a|b)+' } }, limits: [1 per 1s] }\n"
                           "- { id: hard, match: { path: { regex: '(/[^/]*)+x(.*?)(.*?)y' } }, limits: [1 per 1s] }\n"
                           "- { id: need, match: { path: { regex: '.*/(b|x)/?' } }, limits: [1 per 1s] }\n"
                           "- { id: mixed, match: { path: [/b, { regex: '(?i)/A/.*%2F.*' }] }, limits: [1 per 1s] }\n"
                           "- { id: none, match: { path: { regex: '[^a]*' } }, limits: [1 per 1s] }\n"
                           "- { id: get, match: { method: GET, path: '/b/*' }, limits: [1 per 1s] }\n"
                           "- { id: event, match: { event: e, path: '/a/*' }, limits: [1 per 1s] }\n"
                           "- { id: host, match: { host: h, path: '/{x}' }, limits: [1 per 1s] }\n";

static struct ruleset *make_ruleset(void)
{
    struct rules_report report = { 0 };
    struct rules *rules = rules_read(SV(yaml), &report);
    struct ruleset *ruleset = NULL;
    struct weir_error error;
    if (!rules || report.error_count > 0 || ruleset_new(&ruleset, rules, &error) < 0)
        abort();
    rules_report_done(&report);
    return ruleset;
}

/* A "%" without its two digits stays and may form an escape with what is decoded behind it; "?" and "#" arrive decoded. In
 * all other outputs a second pass changes nothing. */
static bool once_is_enough(sv raw, sv path)
{
    for (size_t i = 0; i < raw.len; i++)
        if (raw.ptr[i] == '%' && (raw.len - i < 3 || !memchr("0123456789abcdefABCDEF", raw.ptr[i + 1], 22) ||
                                  !memchr("0123456789abcdefABCDEF", raw.ptr[i + 2], 22)))
            return false;
    for (size_t i = 0; i < path.len; i++)
        if (path.ptr[i] == '?' || path.ptr[i] == '#')
            return false;
    return true;
}

static void check_segments(sv path, const struct path_segments *segments, const struct path_segments *again)
{
    require(segments->count == again->count, "segments counted twice differ", path);
    for (size_t i = 0; i < segments->count; i++) {
        sv segment = path_segment_at(path, segments, i);
        require(sv_eq(segment, path_segment_at(path, again, i)), "segments differ", path);
        require(segment.len > 0 && !memchr(segment.ptr, '/', segment.len), "a segment is empty or two", path);
        require(!memchr(segment.ptr, ';', segment.len), "a parameter is left", path);
    }
}

static void check_path(sv raw, bool ignore_case, size_t cap)
{
    static char out[PATH_BYTES_MAX], again[PATH_BYTES_MAX];
    unsigned notes, notes_again;
    struct path_segments segments, split;
    sv path = path_normalise(raw, ignore_case, out, cap, &notes, &segments);
    bool cut = notes & PATH_CUT;
    require(path.len > 0 && path.len <= cap && path.len <= raw.len + 1, "length", path);
    require(path.ptr[0] == '/' || sv_eq(path, SV("*")), "start", path);
    require(path.len == 1 || path.ptr[path.len - 1] != '/', "end", path);
    path_split(path, &split);
    check_segments(path, &segments, &split);
    for (size_t i = 0; ignore_case && i < path.len; i++)
        require(ascii_lower(path.ptr[i]) == path.ptr[i] || (i > 0 && memchr("%2F", path.ptr[i], 3)), "case", path);
    for (size_t i = 0; !cut && i + 1 < path.len; i++)
        if (path.ptr[i] == '/') {
            sv rest = sv_from(path, i + 1);
            sv segment = sv_cut(&rest, '/');
            require(!sv_eq(segment, SV(".")) && !sv_eq(segment, SV("..")), "dots", path);
        }
    if (cut || !once_is_enough(raw, path))
        return;
    sv twice = path_normalise(path, ignore_case, again, sizeof again, &notes_again, &split);
    require(!(notes_again & PATH_CUT) && sv_eq(path, twice), "not idempotent", path);
}

static bool is_dots(sv segment)
{
    return sv_eq(segment, SV(".")) || sv_eq(segment, SV(".."));
}

/* The text without its empty segments, and without a slash at the end. */
static sv merged(sv text, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] != '/' || (i + 1 < text.len && text.ptr[i + 1] != '/'))
            out[len++] = text.ptr[i];
    if (len == 0)
        out[len++] = '/';
    return sv_of(out, len);
}

/* A path that has no notes of texts has none, and each text becomes its reading. */
static void check_texts(sv raw, unsigned notes, bool ignore_case)
{
    static char pool[PATH_POOL_BYTES], text_pool[PATH_POOL_BYTES], out[PATH_BYTES_MAX];
    struct path_reading readings[PATH_READINGS_MAX];
    struct path_numbers numbers;
    struct path_text texts[PATH_TEXTS_MAX];
    size_t readings_count = path_readings(raw, notes, ignore_case, pool, readings, &numbers);
    size_t count = path_texts(raw, notes, ignore_case, &numbers, text_pool, texts);
    require(count == 0 || notes & PATH_MAY_HAVE_TEXTS, "a text was overlooked", raw);
    require(count <= PATH_TEXTS_MAX, "count of texts", raw);
    for (size_t i = 0; i < count; i++) {
        require(texts[i].reading < readings_count, "the number of a reading", raw);
        const struct path_reading *reading = &readings[texts[i].reading];
        require(texts[i].as.cut || reading->cut || sv_eq(merged(texts[i].as.path, out), reading->path), "a text", raw);
    }
}

/* A path without notes reads the same in every way; the others have no reading twice, and none that is not normal. */
static void check_readings(sv raw, bool ignore_case)
{
    static char pool[PATH_POOL_BYTES], out[PATH_BYTES_MAX];
    struct path_reading readings[PATH_READINGS_MAX];
    struct path_numbers numbers;
    struct path_segments segments;
    unsigned notes;
    sv first = path_normalise(raw, ignore_case, out, sizeof out, &notes, &segments);
    for (unsigned i = 0; !(notes & PATH_AMBIGUOUS) && i < PATH_WAYS_MAX; i++) {
        struct path_way way = {
            .params = i % PATH_PARAMS,
            .slash = i / PATH_PARAMS % 2,
            .dots = i / PATH_PARAMS / 2 % PATH_DOTS,
            .hash = i / PATH_PARAMS / 2 / PATH_DOTS,
        };
        struct path_reading other = path_read(raw, way, ignore_case, pool, PATH_BYTES_MAX);
        bool cut = notes & PATH_CUT || other.cut;
        require(cut || sv_eq(first, other.path), "an ambiguity was overlooked", raw);
    }
    check_texts(raw, notes, ignore_case);
    size_t count = path_readings(raw, notes, ignore_case, pool, readings, &numbers);
    require(count > 0 && count <= PATH_READINGS_MAX, "count", raw);
    require(readings[0].cut || sv_eq(readings[0].path, first), "the first reading", raw);
    for (size_t i = 0; i < count; i++) {
        sv path = readings[i].path;
        require(path.len > 0 && (path.ptr[0] == '/' || sv_eq(path, SV("*"))), "start of a reading", raw);
        require(path.len == 1 || path.ptr[path.len - 1] != '/', "end of a reading", raw);
        for (size_t k = 0; k < i; k++)
            require(readings[k].cut != readings[i].cut || !sv_eq(readings[k].path, path), "a reading twice", raw);
        path_split(path, &segments);
        for (size_t k = 0; k < segments.count; k++) {
            sv segment = path_segment_at(path, &segments, k);
            require(segment.len > 0 && !memchr(segment.ptr, '/', segment.len), "an empty segment", raw);
            require(notes & (PATH_HAS_DOTS | PATH_HAS_HASH) || readings[i].cut || !is_dots(segment), "dots of a reading",
                    raw);
        }
    }
}

static void check_match(const struct ruleset *ruleset, const struct weir_request *request)
{
    static struct facts facts, other;
    uint32_t found[50];
    size_t at = 0;
    facts_init(&facts, ruleset, request, request->user);
    facts_init(&other, ruleset, request, request->user);
    size_t count = ruleset_match(ruleset, &facts, 0, found, 50);
    for (size_t i = 0; i < ruleset_rules(ruleset)->rule_count; i++) {
        sv detail;
        bool explained = ruleset_explain(ruleset, i, &other, 0, &detail) == MATCH_YES;
        bool matched = at < count && found[at] == i;
        at += matched;
        require(explained == matched, "match and explanation differ", request->path);
    }
    sv route = facts_route(&facts);
    require(route.len <= facts_path(&facts).len, "route", route);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ruleset *ruleset;
    if (!ruleset)
        ruleset = make_ruleset();
    if (size == 0)
        return 0;
    /* A copy of the exact size, so that reading beyond it is seen. */
    char *text = malloc(size);
    if (!text)
        return 0;
    memcpy(text, data, size);
    sv raw = sv_of(text + 1, size - 1);
    check_path(raw, text[0] & 1, text[0] & 2 ? 1 + (unsigned char)text[0] / 4 : PATH_BYTES_MAX);
    check_readings(raw, text[0] & 1);
    struct weir_request request = { .path = raw };
    request.method = text[0] & 4 ? SV("GET") : SV("PUT");
    request.event = text[0] & 8 ? SV("e") : SV("");
    request.host = text[0] & 16 ? SV("H:80") : SV("");
    check_match(ruleset, &request);
    free(text);
    return 0;
}
