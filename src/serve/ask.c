#include "serve/ask.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

struct reader {
    struct ask *ask;
    enum ask_kind kind;
    const char *start, *at, *end;
    unsigned seen;                    /* fields of this request, by their bits */
    size_t first_header, first_entry; /* of this request */
    bool cost_given;                  /* `cost`, by this request */
    struct cost_list costs;
    struct weir_cost cost_room[WEIR_COSTS_MAX];
    unsigned status;
    char *why;
};

/* ---- mistakes ---- */

static __attribute__((format(printf, 3, 4))) bool fail(struct reader *r, unsigned status, const char *format, ...)
{
    va_list args;
    int len = 0;
    va_start(args, format);
    if (r->ask->many && r->ask->count > 0)
        len = snprintf(r->why, ASK_WHY_MAX, "request [%zu]: ", r->ask->count - 1);
    vsnprintf(r->why + len, ASK_WHY_MAX - (size_t)len, format, args);
    va_end(args);
    r->status = status;
    return false;
}

static bool no_json(struct reader *r, const char *why)
{
    return fail(r, 400, "not JSON: byte %zu: %s", (size_t)(r->at - r->start) + 1, why);
}

static bool no_memory(struct reader *r)
{
    return fail(r, 503, "out of memory");
}

/* ---- characters ---- */

static sv rest(const struct reader *r)
{
    return sv_of(r->at, (size_t)(r->end - r->at));
}

/* Skips blanks. Returns the next character without taking it; NUL at the end. */
static char next(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

static bool take(struct reader *r, char c)
{
    if (next(r) != c)
        return false;
    r->at++;
    return true;
}

static bool take_word(struct reader *r, sv word)
{
    next(r);
    if (!sv_starts(rest(r), word))
        return false;
    r->at += word.len;
    return true;
}

/* ---- strings ---- */

/* Skips to the quote or backslash. */
static bool skip_plain(struct reader *r)
{
    while (r->at < r->end && *r->at != '"' && *r->at != '\\') {
        unsigned char c = (unsigned char)*r->at;
        size_t n = c < 0x80 ? 1 : utf8_length(rest(r));
        if (c < 0x20)
            return no_json(r, "a control character in a string has to be escaped");
        if (n == 0)
            return no_json(r, "this is not UTF-8");
        r->at += n;
    }
    return r->at < r->end || no_json(r, "the string does not end");
}

/* The four digits after "\u". */
static bool read_unit(struct reader *r, uint32_t *ret)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        int value = r->at < r->end ? ascii_hex(*r->at) : -1;
        if (value < 0)
            return no_json(r, "four hexadecimal digits have to follow \\u");
        unit = unit << 4 | (uint32_t)value;
    }
    *ret = unit;
    return true;
}

static bool is_surrogate(uint32_t unit, uint32_t from)
{
    return unit >= from && unit < from + 0x400;
}

/* After "\u". A character above U+FFFF is a pair of surrogates. NUL is not allowed because not every log or screen could
 * show it. */
static bool read_code_point(struct reader *r, uint32_t *ret)
{
    uint32_t high, low;
    if (!read_unit(r, &high))
        return false;
    if (is_surrogate(high, 0xd800)) {
        if (!sv_starts(rest(r), SV("\\u")))
            return no_json(r, "the second half of a surrogate pair is missing");
        r->at += 2;
        if (!read_unit(r, &low))
            return false;
        high = is_surrogate(low, 0xdc00) ? 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00) : 0xdc00;
    }
    if (high == 0 || is_surrogate(high, 0xdc00))
        return no_json(r, "NUL and half a surrogate pair are not allowed in a string");
    *ret = high;
    return true;
}

static size_t put_utf8(char *to, uint32_t c)
{
    static const unsigned char first[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(first[n] | c);
    return n;
}

/* After the backslash. */
static bool read_escape(struct reader *r, char **to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->end ? *r->at : '\0';
    const char *known = c ? strchr(names, c) : NULL;
    uint32_t code_point = 0;
    if (known) {
        *(*to)++ = values[known - names];
        r->at++;
        return true;
    }
    if (c != 'u')
        return no_json(r, "one of \" \\ / b f n r t u has to follow a backslash");
    r->at++;
    if (!read_code_point(r, &code_point))
        return false;
    *to += put_utf8(*to, code_point);
    return true;
}

/* From the first backslash on. An escape is longer than its character, so all strings fit into as many bytes as the text
 * has. */
static bool read_escaped(struct reader *r, const char *from, sv *ret)
{
    struct ask *ask = r->ask;
    if (!ask->unescaped && !(ask->unescaped = malloc((size_t)(r->end - r->start))))
        return no_memory(r);
    char *string = ask->unescaped + ask->unescaped_len, *to = string;
    for (;;) {
        memcpy(to, from, (size_t)(r->at - from));
        to += r->at - from;
        if (*r->at++ == '"')
            break;
        if (!read_escape(r, &to))
            return false;
        from = r->at;
        if (!skip_plain(r))
            return false;
    }
    *ret = sv_of(string, (size_t)(to - string));
    ask->unescaped_len += ret->len;
    return true;
}

/* The quote that begins it is next. */
static bool read_string(struct reader *r, sv *ret)
{
    const char *from = ++r->at;
    if (!skip_plain(r))
        return false;
    if (*r->at == '\\')
        return read_escaped(r, from, ret);
    *ret = sv_of(from, (size_t)(r->at++ - from));
    return true;
}

/* ---- objects and lists ---- */

typedef bool read_value(struct reader *r, sv name);

/* The brace that begins it is next. */
static bool read_object(struct reader *r, read_value *member)
{
    r->at++;
    if (take(r, '}'))
        return true;
    do {
        sv name;
        if (next(r) != '"')
            return no_json(r, "a name in quotes is missing");
        if (!read_string(r, &name))
            return false;
        if (!take(r, ':'))
            return no_json(r, "a colon is missing");
        if (!member(r, name))
            return false;
    } while (take(r, ','));
    return take(r, '}') || no_json(r, "a comma or } is missing");
}

/* The bracket that begins it is next; each item gets `name`. */
static bool read_list(struct reader *r, read_value *item, sv name)
{
    r->at++;
    if (take(r, ']'))
        return true;
    do {
        if (!item(r, name))
            return false;
    } while (take(r, ','));
    return take(r, ']') || no_json(r, "a comma or ] is missing");
}

/* Room for one more. The first `room` lies in the structure itself. */
static void *grown(void *array, const void *room, size_t size, size_t count, size_t *cap)
{
    if (count < *cap)
        return array;
    void *larger = array == room ? malloc(2 * *cap * size) : realloc(array, 2 * *cap * size);
    if (!larger)
        return NULL;
    if (array == room)
        memcpy(larger, room, count * size);
    *cap *= 2;
    return larger;
}

/* ---- headers ---- */

static bool add_header(struct reader *r, sv name)
{
    struct ask *ask = r->ask;
    sv value;
    if (next(r) != '"')
        return fail(r, 400, "headers: must be an object of strings, or of lists of strings where a header is repeated");
    if (!read_string(r, &value))
        return false;
    if (ask->header_count - r->first_header == ASK_HEADERS_MAX)
        return fail(r, 400, "headers: at most %d are allowed", ASK_HEADERS_MAX);
    struct weir_header *headers =
        grown(ask->headers, ask->headers_inline, sizeof *headers, ask->header_count, &ask->header_cap);
    if (!headers)
        return no_memory(r);
    ask->headers = headers;
    headers[ask->header_count++] = (struct weir_header){ name, value };
    return true;
}

static bool read_header(struct reader *r, sv name)
{
    struct ask *ask = r->ask;
    for (size_t i = r->first_header; i < ask->header_count; i++)
        if (sv_eq(ask->headers[i].name, name))
            return fail(r, 400, "headers: \"%.*s\" is given twice; send a list of its values", SV_FMT(name));
    if (next(r) != '[')
        return add_header(r, name);
    size_t before = ask->header_count;
    if (!read_list(r, add_header, name))
        return false;
    return ask->header_count > before || fail(r, 400, "headers: a list must have a value");
}

/* ---- descriptors ---- */

#define ENTRY_FORM "descriptor: must be a list of entries: [{\"key\": \"plan\", \"value\": \"free\"}]"

/* A member of the entry that was added last. */
static bool read_entry_member(struct reader *r, sv name)
{
    struct weir_header *entry = &r->ask->entries[r->ask->entry_count - 1];
    bool key = sv_eq(name, SV("key"));
    if (!key && !sv_eq(name, SV("value")))
        return fail(r, 400, "descriptor: unknown field \"%.*s\" of an entry; allowed: key, value", SV_SHOWN(name, 100));
    sv *to = key ? &entry->name : &entry->value;
    if (to->ptr)
        return fail(r, 400, "descriptor: %s is given twice", key ? "key" : "value");
    if (next(r) != '"')
        return take_word(r, SV("null")) || fail(r, 400, "descriptor: %s must be a string", key ? "key" : "value");
    return read_string(r, to);
}

/* As in the JSON of protocol buffers, a value that is missing is empty. */
static bool read_entry(struct reader *r, sv name)
{
    (void)name;
    struct ask *ask = r->ask;
    if (next(r) != '{')
        return fail(r, 400, ENTRY_FORM);
    if (ask->entry_count - r->first_entry == WEIR_DESCRIPTOR_MAX)
        return fail(r, 400, "descriptor: at most %d entries are allowed", WEIR_DESCRIPTOR_MAX);
    struct weir_header *entries =
        grown(ask->entries, ask->entries_inline, sizeof *entries, ask->entry_count, &ask->entry_cap);
    if (!entries)
        return no_memory(r);
    ask->entries = entries;
    entries[ask->entry_count++] = (struct weir_header){ 0 };
    if (!read_object(r, read_entry_member))
        return false;
    return ask->entries[ask->entry_count - 1].name.len > 0 || fail(r, 400, "descriptor: an entry needs a key");
}

/* ---- requests ---- */

struct field {
    sv name;
    bool (*read)(struct reader *r, const struct field *field);
    unsigned kinds;           /* enum ask_kind: where it is allowed */
    enum attribute attribute; /* read_attribute */
    size_t flag_offset;       /* read_flag: in struct weir_request; 0: `refundable`, which is not in it */
};

static struct weir_request *current(struct reader *r)
{
    return &r->ask->requests[r->ask->count - 1];
}

static bool must_be(struct reader *r, const struct field *field, const char *allowed)
{
    return fail(r, 400, "%s: must be %s", field->name.ptr, allowed);
}

static bool read_attribute(struct reader *r, const struct field *field)
{
    enum attribute attribute = field->attribute;
    sv text = { 0 };
    if (next(r) != '"')
        return take_word(r, SV("null")) || must_be(r, field, "a string");
    if (!read_string(r, &text))
        return false;
    request_set(current(r), attribute, text);
    return attribute_accepts(attribute, text) ||
           must_be(r, field,
                   "one IPv4 or IPv6 address; put a whole X-Forwarded-For into headers, and into peer the address that "
                   "sent it");
}

static bool read_headers(struct reader *r, const struct field *field)
{
    if (next(r) == '{')
        return read_object(r, read_header);
    return take_word(r, SV("null")) || must_be(r, field, "an object: {\"X-Name\": \"value\"}");
}

static bool read_descriptor(struct reader *r, const struct field *field)
{
    (void)field;
    if (next(r) == '[')
        return read_list(r, read_entry, SV(""));
    return take_word(r, SV("null")) || fail(r, 400, ENTRY_FORM);
}

static bool take_amount(struct reader *r, uint64_t *ret)
{
    next(r);
    const char *from = r->at;
    while (r->at < r->end && (ascii_digit(*r->at) || memchr("+-.eE", *r->at, 5)))
        r->at++;
    sv digits = sv_of(from, (size_t)(r->at - from));
    return !(digits.len > 1 && *from == '0') && sv_u64(digits, WEIR_AMOUNT_MAX, ret);
}

static bool read_cost(struct reader *r, const struct field *field)
{
    uint64_t cost;
    if (take_word(r, SV("null")))
        return true;
    if (r->costs.room)
        return fail(r, 400, "cost: cannot be combined with costs; write it as \"requests\" there");
    if (!take_amount(r, &cost))
        return must_be(r, field, "a whole number from 0 to 9007199254740991");
    r->cost_given = true;
    current(r)->cost = cost;
    return true;
}

static bool read_bool(struct reader *r, const struct field *field, bool *ret)
{
    *ret = take_word(r, SV("true"));
    return *ret || take_word(r, SV("false")) || take_word(r, SV("null")) || must_be(r, field, "true or false");
}

static bool read_unit_cost(struct reader *r, sv unit)
{
    uint64_t cost;
    if (!take_amount(r, &cost))
        return fail(r, 400, "costs: \"%.*s\" must be a whole number from 0 to 9007199254740991", SV_SHOWN(unit, 100));
    const char *wrong = request_add_cost(current(r), &r->costs, unit, cost);
    return !wrong || fail(r, 400, "costs: \"%.*s\"%s", SV_SHOWN(unit, 100), wrong);
}

/* A unit that `costs` does not name costs 0. Settling, it keeps what was held: see read_request. */
static bool read_costs(struct reader *r, const struct field *field)
{
    if (take_word(r, SV("null")))
        return true;
    if (next(r) != '{')
        return must_be(r, field, "an object: {\"requests\": 1, \"tokens\": 1200}");
    if (r->cost_given)
        return fail(r, 400, "costs: cannot be combined with cost; write that as \"requests\" here");
    r->costs.room = r->cost_room;
    current(r)->cost = 0;
    return read_object(r, read_unit_cost);
}

static bool read_flag(struct reader *r, const struct field *field)
{
    bool *flag =
        field->flag_offset ? (bool *)((char *)current(r) + field->flag_offset) : &r->ask->refundable[r->ask->count - 1];
    return read_bool(r, field, flag);
}

static bool read_reject(struct reader *r, const struct field *field)
{
    if (!read_bool(r, field, &r->ask->reject))
        return false;
    return !(r->ask->reject && r->ask->many) || must_be(r, field, "left out of a list, whose answer is a list of verdicts");
}

static bool read_receipt(struct reader *r, const struct field *field)
{
    if (r->ask->receipt.len > 0)
        return must_be(r, field, "left out: hold and receipt are the same");
    return next(r) == '"' ? read_string(r, &r->ask->receipt) : must_be(r, field, "a string");
}

static bool read_ttl(struct reader *r, const struct field *field)
{
    uint64_t ttl_ms;
    if (!take_amount(r, &ttl_ms) || ttl_ms == 0 || ttl_ms > WEIR_TTL_MAX_MS)
        return must_be(r, field, "a whole number of milliseconds from 1 to 86400000");
    current(r)->ttl_ms = r->ask->ttl_ms = (uint32_t)ttl_ms;
    return true;
}

static bool read_expiry(struct reader *r, const struct field *field)
{
    sv text = { 0 };
    if (next(r) == '"' && !read_string(r, &text))
        return false;
    current(r)->keep = sv_eq(text, SV("keep"));
    return current(r)->keep || sv_eq(text, SV("release")) || must_be(r, field, "\"release\" or \"keep\"");
}

enum {
    DECIDED = ASK_CHECK | ASK_RESERVE,
    REQUESTED = DECIDED | ASK_REFUND,
    COSTED = REQUESTED | ASK_SETTLE,
    HELD = ASK_SETTLE | ASK_RENEW | ASK_REFUND,
};

#define ATTRIBUTE(number, field, ...) { SV(#field), read_attribute, REQUESTED, ATTR_##number, 0 },
#define FLAG(field)                                                                             \
    {                                                                                           \
        SV(#field), read_flag, REQUESTED, ATTRIBUTE_COUNT, offsetof(struct weir_request, field) \
    }

static const struct field fields[] = {
    REQUEST_ATTRIBUTES(ATTRIBUTE){ SV("headers"), read_headers, REQUESTED, ATTRIBUTE_COUNT, 0 },
    { SV("descriptor"), read_descriptor, REQUESTED, ATTRIBUTE_COUNT, 0 },
    { SV("cost"), read_cost, COSTED, ATTRIBUTE_COUNT, 0 },
    { SV("costs"), read_costs, COSTED, ATTRIBUTE_COUNT, 0 },
    FLAG(peek),
    { SV("refundable"), read_flag, REQUESTED, ATTRIBUTE_COUNT, 0 },
    { SV("reject"), read_reject, REQUESTED, ATTRIBUTE_COUNT, 0 },
    { SV("ttl_ms"), read_ttl, ASK_RESERVE | ASK_RENEW, ATTRIBUTE_COUNT, 0 },
    { SV("on_expiry"), read_expiry, ASK_RESERVE, ATTRIBUTE_COUNT, 0 },
    { SV("hold"), read_receipt, HELD, ATTRIBUTE_COUNT, 0 },
    { SV("receipt"), read_receipt, HELD, ATTRIBUTE_COUNT, 0 },
};

static const char *allowed_fields(enum ask_kind kind)
{
    switch (kind) {
    case ASK_RESERVE:
        return ASK_FIELDS ", ttl_ms, on_expiry";
    case ASK_SETTLE:
        return "hold, cost, costs";
    case ASK_RENEW:
        return "hold, ttl_ms";
    case ASK_REFUND:
        return "receipt, " ASK_FIELDS;
    default:
        return ASK_FIELDS;
    }
}

static bool wrong_field(struct reader *r, sv name, bool known)
{
    static const char *const paths[] = { "/v1/check", "/v1/reserve", "/v1/settle", "/v1/renew", "/v1/refund" };
    return fail(r, 400, "%s \"%.*s\"%s%s; allowed: %s", known ? "field" : "unknown field", SV_SHOWN(name, 100),
                known ? " is not allowed in " : "", known ? paths[__builtin_ctz(r->kind)] : "", allowed_fields(r->kind));
}

static bool read_field(struct reader *r, sv name)
{
    for (unsigned i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!sv_eq(name, fields[i].name))
            continue;
        if (!(fields[i].kinds & r->kind))
            return wrong_field(r, name, true);
        if (r->seen & 1u << i)
            return fail(r, 400, "%s: is given twice", fields[i].name.ptr);
        r->seen |= 1u << i;
        return fields[i].read(r, &fields[i]);
    }
    return wrong_field(r, name, false);
}

/* Copies the costs from cost_room, which the next request uses for its own. */
static bool keep_costs(struct reader *r)
{
    struct ask *ask = r->ask;
    for (size_t i = 0; i < current(r)->cost_count; i++) {
        struct weir_cost *costs = grown(ask->costs, ask->costs_inline, sizeof *costs, ask->cost_count, &ask->cost_cap);
        if (!costs)
            return no_memory(r);
        ask->costs = costs;
        costs[ask->cost_count++] = r->cost_room[i];
    }
    return true;
}

static bool read_request(struct reader *r, sv name)
{
    (void)name;
    struct ask *ask = r->ask;
    if (ask->count == ASK_REQUESTS_MAX) {
        r->ask->count = 0; /* the sentence is about the list */
        return fail(r, 413, "at most %d requests are allowed in one list", ASK_REQUESTS_MAX);
    }
    struct weir_request *requests =
        grown(ask->requests, ask->request_inline, sizeof *requests, ask->count, &ask->request_cap);
    if (!requests)
        return no_memory(r);
    ask->requests = requests;
    ask->refundable[ask->count] = false;
    requests[ask->count++] = (struct weir_request){ .cost = r->kind == ASK_SETTLE ? WEIR_AS_HELD : 1 };
    r->seen = 0;
    r->first_header = ask->header_count;
    r->first_entry = ask->entry_count;
    r->cost_given = false;
    r->costs = (struct cost_list){ 0 };
    if (next(r) != '{')
        return fail(r, 400, "a request must be an object: {\"event\": \"ocr\", \"key\": \"u1\"}");
    if (!read_object(r, read_field))
        return false;
    if (r->kind & (ASK_RESERVE | ASK_RENEW) && current(r)->ttl_ms == 0)
        return fail(r, 400, "ttl_ms: is missing; it is how long the hold lasts, in milliseconds");
    if (r->kind == ASK_SETTLE && r->costs.room && !r->costs.requests)
        current(r)->cost = WEIR_AS_HELD;
    current(r)->header_count = ask->header_count - r->first_header;
    current(r)->descriptor_count = ask->entry_count - r->first_entry;
    return keep_costs(r);
}

/* The arrays of headers, entries and costs move while they grow, so requests point to them only when all have been read. */
static void place_lists(struct ask *ask)
{
    const struct weir_header *headers = ask->headers, *entries = ask->entries;
    const struct weir_cost *costs = ask->costs;
    for (size_t i = 0; i < ask->count; i++) {
        ask->requests[i].headers = headers;
        headers += ask->requests[i].header_count;
        ask->requests[i].descriptor = entries;
        entries += ask->requests[i].descriptor_count;
        ask->requests[i].costs = costs;
        costs += ask->requests[i].cost_count;
    }
}

static bool read_all(struct reader *r)
{
    r->ask->many = next(r) == '[';
    bool read = r->ask->many ? read_list(r, read_request, SV("")) : read_request(r, SV(""));
    if (!read)
        return false;
    if (r->kind & HELD && r->ask->many)
        return fail(r, 400, "must be one object, not a list");
    if (r->kind & HELD && r->ask->receipt.len == 0)
        return fail(r, 400,
                    r->kind == ASK_REFUND ? "receipt: is missing; send the receipt of the verdict"
                                          : "hold: is missing; send the hold that /v1/reserve answered");
    if (next(r) != '\0' || r->at < r->end)
        return no_json(r, "unexpected text after the end");
    place_lists(r->ask);
    return true;
}

unsigned ask_read(struct ask *ret, sv text, enum ask_kind kind, char why[ASK_WHY_MAX])
{
    ret->count = ret->header_count = ret->entry_count = ret->cost_count = ret->unescaped_len = 0;
    ret->unescaped = NULL;
    ret->reject = false;
    ret->ttl_ms = 0;
    ret->receipt = (sv){ NULL, 0 };
    ret->requests = ret->request_inline;
    ret->request_cap = 1;
    ret->headers = ret->headers_inline;
    ret->header_cap = ASK_HEADERS_INLINE;
    ret->entries = ret->entries_inline;
    ret->entry_cap = ASK_ENTRIES_INLINE;
    ret->costs = ret->costs_inline;
    ret->cost_cap = WEIR_COSTS_MAX;
    struct reader r;
    r.ask = ret;
    r.kind = kind;
    r.start = r.at = text.ptr;
    r.end = text.ptr + text.len;
    r.why = why;
    if (read_all(&r))
        return 0;
    ask_done(ret);
    return r.status;
}

void ask_done(struct ask *ask)
{
    if (!ask)
        return;
    if (ask->requests != ask->request_inline)
        free(ask->requests);
    if (ask->headers != ask->headers_inline)
        free(ask->headers);
    if (ask->entries != ask->entries_inline)
        free(ask->entries);
    if (ask->costs != ask->costs_inline)
        free(ask->costs);
    free(ask->unescaped);
}
