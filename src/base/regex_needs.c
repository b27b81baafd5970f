/* Which texts must occur where a regex matches.
 *
 * `/api/v[0-9]+/(bundle|access).*` needs "/api/v", and "/", and one of "bundle" and "access". A parser of a small part of
 * the syntax finds that. It knows plain characters, escaped punctuation, `.`, classes, `^` and `$`, groups without options
 * and quantifiers; with anything else it gives up, and nothing is known about the regex. It is sound and not complete:
 * whatever the regex matches meets each need, and a need that is overlooked costs time only.
 *
 * - A *run* is characters that follow each other. A quantifier ends it, and takes the last character out if that may be
 *   missing. Everything that is not a plain character ends it, too, but for `^` and `$`, which have no width.
 * - Everything in a sequence is needed, so its needs add up. A group that may be missing needs nothing.
 * - Of alternatives one has to match, so they have one need: one text of each, of the need whose shortest text is longest.
 *   If an alternative needs nothing, neither do all together.
 *
 * Texts are compared without case, so it does not matter whether the regex is. Without PCRE2_UTF only A to Z have two
 * cases; bytes above 127 are not part of a run all the same. */
#include "base/regex_needs.h"

#include <stdlib.h>

enum { DEPTH_MAX = 20 };

/* The item that a quantifier would repeat. */
enum item { ITEM_NONE, ITEM_LITERAL, ITEM_OTHER };

/* The needs on their way. */
struct draft {
    size_t count;
    struct need_text texts[NEED_TEXTS_MAX];
    char bytes[NEED_TEXTS_MAX * NEED_BYTES_MAX];
};

struct parser {
    struct draft *needs;
    sv rest;
    size_t used;   /* bytes of needs->bytes */
    size_t run;    /* length of the run, which is the last of the used bytes */
    uint16_t next; /* number of the next need */
    unsigned depth;
    bool failed;
};

static bool at(const struct parser *p, char c)
{
    return p->rest.len > 0 && p->rest.ptr[0] == c;
}

static void skip(struct parser *p, size_t n)
{
    p->rest = sv_from(p->rest, n);
}

/* ---- needs ---- */

/* Makes the run a need. One that finds no room is left out, which is sound: it is a need of its own. */
static void end_run(struct parser *p)
{
    struct draft *needs = p->needs;
    if (p->run > 0 && needs->count < NEED_TEXTS_MAX) {
        sv text = sv_of(needs->bytes + p->used - p->run, p->run);
        needs->texts[needs->count++] = (struct need_text){ text, p->next++ };
    } else {
        p->used -= p->run;
    }
    p->run = 0;
}

static void add_to_run(struct parser *p, char c)
{
    if (p->run == NEED_BYTES_MAX)
        end_run(p);
    if (p->used == sizeof p->needs->bytes) {
        p->failed = true;
        return;
    }
    p->needs->bytes[p->used++] = ascii_lower(c);
    p->run++;
}

/* The end of the need that begins at `from`, and the length of its shortest text. */
static size_t need_end(const struct draft *needs, size_t from, size_t *ret_shortest)
{
    size_t to = from;
    *ret_shortest = SIZE_MAX;
    for (; to < needs->count && needs->texts[to].need == needs->texts[from].need; to++)
        if (needs->texts[to].text.len < *ret_shortest)
            *ret_shortest = needs->texts[to].text.len;
    return to;
}

/* Keeps one of the needs from `from` on: the one whose shortest text is longest. Returns whether there is one. */
static bool keep_best(struct draft *needs, size_t from, uint16_t number)
{
    size_t best = from, best_end = from, longest = 0;
    for (size_t i = from; i < needs->count;) {
        size_t shortest, end = need_end(needs, i, &shortest);
        if (shortest > longest) {
            best = i;
            best_end = end;
            longest = shortest;
        }
        i = end;
    }
    for (size_t i = best; i < best_end; i++)
        needs->texts[from + i - best] = needs->texts[i];
    needs->count = from + best_end - best;
    for (size_t i = from; i < needs->count; i++)
        needs->texts[i].need = number;
    return needs->count > from;
}

/* ---- the parts of a regex ---- */

/* Backslash and punctuation is that character; \d and such are one of some characters. */
static enum item parse_escape(struct parser *p, bool in_class)
{
    char c = p->rest.len > 1 ? p->rest.ptr[1] : '\0';
    skip(p, 2);
    if (c > ' ' && c < 0x7f && !ascii_letter(c) && !ascii_digit(c)) {
        if (!in_class)
            add_to_run(p, c);
        return ITEM_LITERAL;
    }
    if (c == '\0' || !strchr("dDwWsS", c))
        p->failed = true;
    return ITEM_OTHER;
}

/* From `[` on. A `]` that comes first is one of the characters. */
static void parse_class(struct parser *p)
{
    skip(p, 1);
    if (at(p, '^'))
        skip(p, 1);
    for (bool first = true; !p->failed; first = false) {
        if (p->rest.len == 0) {
            p->failed = true;
        } else if (at(p, '\\')) {
            parse_escape(p, true);
        } else if (at(p, ']') && !first) {
            skip(p, 1);
            return;
        } else {
            /* "[:", "[." and "[=" may begin a name. */
            p->failed = at(p, '[') && (p->rest.len < 2 || strchr(":.=", p->rest.ptr[1]));
            skip(p, 1);
        }
    }
}

static bool parse_alternatives(struct parser *p);

/* From `(` on: a group without options. */
static void parse_group(struct parser *p)
{
    skip(p, 1);
    if (at(p, '?')) {
        p->failed = p->rest.len < 2 || p->rest.ptr[1] != ':';
        skip(p, 2);
    }
    if (p->failed || at(p, '*') || ++p->depth > DEPTH_MAX) {
        p->failed = true;
        return;
    }
    p->failed = !parse_alternatives(p) || !at(p, ')');
    p->depth--;
    skip(p, 1);
}

static bool parse_number(struct parser *p, unsigned *ret)
{
    size_t digits = 0;
    for (*ret = 0; p->rest.len > 0 && ascii_digit(p->rest.ptr[0]); digits++) {
        *ret = digits < 5 ? *ret * 10 + (unsigned)(p->rest.ptr[0] - '0') : *ret;
        skip(p, 1);
    }
    return digits > 0;
}

/* From `{` on: {n}, {n,} or {n,m}. What else a brace may be depends on the version of PCRE2. */
static unsigned parse_braces(struct parser *p)
{
    unsigned least, most;
    skip(p, 1);
    bool good = parse_number(p, &least);
    if (good && at(p, ',')) {
        skip(p, 1);
        parse_number(p, &most);
    }
    p->failed = !good || !at(p, '}');
    skip(p, 1);
    return least;
}

static bool at_quantifier(const struct parser *p)
{
    return p->rest.len > 0 && memchr("*+?{", p->rest.ptr[0], 4);
}

/* How often the item before has to be there at least; 1 if there is no quantifier. */
static unsigned parse_quantifier(struct parser *p, bool *ret_there)
{
    unsigned least = 1;
    *ret_there = at_quantifier(p);
    if (!*ret_there)
        return 1;
    if (at(p, '{')) {
        least = parse_braces(p);
    } else {
        least = at(p, '+');
        skip(p, 1);
    }
    if (at(p, '?') || at(p, '+'))
        skip(p, 1);
    p->failed = p->failed || at_quantifier(p);
    return least;
}

/* One character, class or group. */
static enum item parse_item(struct parser *p)
{
    char c = p->rest.ptr[0];
    if (c == '\\')
        return parse_escape(p, false);
    if (c == '[') {
        parse_class(p);
        return ITEM_OTHER;
    }
    if (c == '(') {
        parse_group(p);
        return ITEM_OTHER;
    }
    skip(p, 1);
    if (c == '^' || c == '$')
        return ITEM_NONE;
    if (c == '.' || (unsigned char)c > 0x7f)
        return ITEM_OTHER;
    if (memchr("*+?{", c, 4) || (unsigned char)c < ' ')
        p->failed = true;
    add_to_run(p, c);
    return ITEM_LITERAL;
}

static void parse_sequence(struct parser *p)
{
    while (!p->failed && p->rest.len > 0 && !at(p, '|') && !at(p, ')')) {
        bool group = at(p, '('), quantified = false;
        if (group)
            end_run(p);
        size_t before = p->needs->count;
        enum item item = parse_item(p);
        if (item == ITEM_OTHER && !group)
            end_run(p);
        unsigned least = p->failed ? 1 : parse_quantifier(p, &quantified);
        if (p->failed || !quantified)
            continue;
        if (item == ITEM_NONE) {
            p->failed = true;
        } else if (item == ITEM_OTHER) {
            p->needs->count = group && least == 0 ? before : p->needs->count;
        } else {
            p->used -= least == 0;
            p->run -= least == 0;
            end_run(p);
        }
    }
    end_run(p);
}

/* Up to the end, or a `)`. Returns whether it is still known what the regex says. */
static bool parse_alternatives(struct parser *p)
{
    size_t start = p->needs->count;
    uint16_t number = p->next++;
    bool all = true;
    for (size_t count = 1;; count++) {
        size_t from = p->needs->count;
        parse_sequence(p);
        if (p->failed)
            return false;
        bool last = !at(p, '|');
        if (count == 1 && last)
            return true;
        all = keep_best(p->needs, from, number) && all;
        if (last)
            break;
        skip(p, 1);
    }
    if (!all)
        p->needs->count = start;
    return true;
}

struct regex_needs *regex_needs_new(sv pattern)
{
    struct draft draft;
    draft.count = 0;
    struct parser p = { .needs = &draft, .rest = pattern };
    if (sv_starts(pattern, SV("(?i)")))
        skip(&p, 4);
    if (!parse_alternatives(&p) || p.rest.len > 0)
        draft.count = p.used = 0;
    struct regex_needs *needs = malloc(sizeof *needs + draft.count * sizeof needs->texts[0] + p.used);
    if (!needs)
        return NULL;
    needs->count = draft.count;
    char *bytes = (char *)&needs->texts[draft.count];
    memcpy(bytes, draft.bytes, p.used);
    for (size_t i = 0; i < draft.count; i++) {
        sv text = draft.texts[i].text;
        needs->texts[i] = (struct need_text){ sv_of(bytes + (text.ptr - draft.bytes), text.len), draft.texts[i].need };
    }
    return needs;
}

/* ---- a text ---- */

static bool occurs(sv lower, sv text)
{
    for (size_t i = 0; i + lower.len <= text.len; i++)
        if (ascii_lower(text.ptr[i]) == lower.ptr[0] && sv_eq_lower(sv_of(text.ptr + i, lower.len), lower))
            return true;
    return false;
}

bool regex_needs_met(const struct regex_needs *needs, sv text)
{
    bool met = true;
    for (size_t i = 0; i < needs->count; i++) {
        bool begins = i == 0 || needs->texts[i].need != needs->texts[i - 1].need;
        if (begins && !met)
            return false;
        met = (!begins && met) || occurs(needs->texts[i].text, text);
    }
    return met;
}
