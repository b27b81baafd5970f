#include "serve/h2_fields.h"

enum {
    SEEN_METHOD = 1,
    SEEN_SCHEME = 2,
    SEEN_PATH = 4,
    SEEN_AUTHORITY = 8,
    SEEN_HOST = 16,
    SEEN_REGULAR = 32,    /* a field that is none of the first four: none of these may follow */
    SEEN_CONNECT = 64,    /* the method */
    SEEN_OPTIONS = 128,   /* the method */
    SEEN_HTTP = 256,      /* the scheme is http or https */
    SEEN_SLASH = 512,     /* the path begins with a slash, … */
    SEEN_ASTERISK = 1024, /* … or is `*` */
};

/* ---- bytes ---- */

/* Bytes of names: those of a token (RFC 9110, 5.6.2) but for upper case. */
static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || ascii_digit(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Whether all of eight bytes are letters in lower case, or `-`, as in most names. Nothing is carried from one byte to the
 * next, since the high bit of each is 0 before. */
static bool word_is_usual(uint64_t word)
{
    const uint64_t each = UINT64_C(0x0101010101010101), high = each * 0x80, low = ~high;
    uint64_t letters = ((word & low) + each * (0x80 - 'a')) & ~((word & low) + each * (0x7f - 'z'));
    uint64_t other = (((word ^ each * '-') & low) + low); /* the high bit: it is not `-` */
    return ((letters | ~other) & ~word & high) == high;
}

static bool name_is_usual(sv name)
{
    size_t n = name.len;
    if (n < 8)
        return word_is_usual(sv_short_word(name) | UINT64_C(0x6161616161616161) << 8 * n);
    for (size_t i = 0; i + 8 < n; i += 8)
        if (!word_is_usual(sv_word(name.ptr + i)))
            return false;
    return word_is_usual(sv_word(name.ptr + n - 8));
}

static bool is_name(sv name)
{
    if (name.len > 0 && name.ptr[0] == ':')
        name = sv_from(name, 1);
    if (name.len > 0 && name_is_usual(name))
        return true;
    for (size_t i = 0; i < name.len; i++)
        if (!is_name_byte(name.ptr[i]))
            return false;
    return name.len > 0;
}

static bool has_upper_case(sv name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] >= 'A' && name.ptr[i] <= 'Z')
            return true;
    return false;
}

/* Whether some of eight bytes is below ' ' or is DEL. A byte that is not so gets a carry from one below it only if that one
 * is so. */
static bool word_has_control(uint64_t word)
{
    const uint64_t each = UINT64_C(0x0101010101010101), high = each * 0x80;
    uint64_t low = (word - each * ' ') & ~word & high, del = word ^ each * 0x7f;
    return low | ((del - each) & ~del & high);
}

static bool is_value_slowly(sv value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.ptr[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

/* No controls but tabs, and no blanks at its ends. */
static bool is_value(sv value)
{
    size_t n = value.len;
    if (n == 0)
        return true;
    if (ascii_ows(value.ptr[0]) || ascii_ows(value.ptr[n - 1]))
        return false;
    if (n < 8)
        return !word_has_control(sv_short_word(value) | UINT64_C(0x2020202020202020) << 8 * n) || is_value_slowly(value);
    for (size_t i = 0; i + 8 < n; i += 8)
        if (word_has_control(sv_word(value.ptr + i)))
            return is_value_slowly(value);
    return !word_has_control(sv_word(value.ptr + n - 8)) || is_value_slowly(value);
}

/* ---- fields ---- */

static unsigned method_bits(sv value)
{
    return SEEN_METHOD | (sv_eq(value, SV("CONNECT")) ? SEEN_CONNECT : sv_eq(value, SV("OPTIONS")) ? SEEN_OPTIONS : 0);
}

static unsigned scheme_bits(sv value)
{
    bool http = sv_eq_nocase(value, SV("http")) || sv_eq_nocase(value, SV("https"));
    return SEEN_SCHEME | (http ? SEEN_HTTP : 0);
}

static unsigned path_bits(sv value)
{
    return SEEN_PATH | (value.len > 0 && value.ptr[0] == '/' ? SEEN_SLASH : sv_eq(value, SV("*")) ? SEEN_ASTERISK : 0);
}

static struct h2_field judge_pseudo(sv name, sv value)
{
    unsigned bits = sv_eq(name, SV(":path"))        ? path_bits(value)
                    : sv_eq(name, SV(":method"))    ? method_bits(value)
                    : sv_eq(name, SV(":scheme"))    ? scheme_bits(value)
                    : sv_eq(name, SV(":authority")) ? SEEN_AUTHORITY
                                                    : 0;
    if (bits == 0 || value.len == 0)
        return (struct h2_field){ H2_FIELD_MALFORMED, 0 };
    return (struct h2_field){ H2_FIELD_PSEUDO, (uint16_t)bits };
}

/* Those of HTTP/1.1 that are about the connection have no place in HTTP/2. */
static bool is_forbidden(sv name, sv value)
{
    static const sv names[] = { SV("connection"), SV("keep-alive"), SV("proxy-connection"), SV("transfer-encoding"),
                                SV("upgrade") };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (sv_eq(name, names[i]))
            return true;
    return sv_eq(name, SV("te")) && !sv_eq_nocase(value, SV("trailers"));
}

struct h2_field h2_field_judge(sv name, sv value)
{
    bool pseudo = name.len > 0 && name.ptr[0] == ':', good = is_name(name) && is_value(value);
    uint64_t length;
    struct h2_field field = { H2_FIELD_REGULAR, SEEN_REGULAR };
    if (pseudo && good)
        return judge_pseudo(name, value);
    if (!good)
        field.kind = pseudo || has_upper_case(name) ? H2_FIELD_MALFORMED : H2_FIELD_IGNORED;
    else if (is_forbidden(name, value))
        field.kind = H2_FIELD_MALFORMED;
    else if (sv_eq(name, SV("host"))) {
        field.kind = value.len > 0 ? H2_FIELD_HOST : H2_FIELD_MALFORMED;
        field.bits |= SEEN_HOST;
    } else if (sv_eq(name, SV("content-length")))
        field.kind = sv_u64(value, INT64_MAX, &length) ? H2_FIELD_LENGTH : H2_FIELD_MALFORMED;
    return field;
}

/* Those with a colon come first. None of them comes twice, nor do host and the length. */
bool h2_fields_add_special(struct h2_fields *f, struct h2_field field, sv value, bool trailer)
{
    const unsigned once = SEEN_METHOD | SEEN_SCHEME | SEEN_PATH | SEEN_AUTHORITY;
    unsigned before = f->seen;
    f->seen |= field.bits;
    switch (field.kind) {
    case H2_FIELD_PSEUDO:
        return !trailer && !(before & (SEEN_REGULAR | (field.bits & once)));
    case H2_FIELD_HOST:
        return !(before & SEEN_HOST);
    case H2_FIELD_LENGTH:
        if (f->has_length)
            return false;
        f->has_length = true;
        return sv_u64(value, INT64_MAX, &f->length);
    case H2_FIELD_MALFORMED:
        return false;
    default:
        return true;
    }
}

bool h2_fields_complete(const struct h2_fields *f)
{
    const unsigned all = SEEN_METHOD | SEEN_SCHEME | SEEN_PATH;
    if (f->seen & SEEN_CONNECT)
        return f->seen & SEEN_AUTHORITY && !(f->seen & (SEEN_SCHEME | SEEN_PATH));
    if ((f->seen & all) != all || !(f->seen & (SEEN_AUTHORITY | SEEN_HOST)))
        return false;
    return !(f->seen & SEEN_HTTP) || f->seen & SEEN_SLASH || (f->seen & SEEN_OPTIONS && f->seen & SEEN_ASTERISK);
}

bool h2_fields_received(struct h2_fields *f, size_t bytes)
{
    f->received += bytes;
    return !f->has_length || f->received <= f->length;
}

bool h2_fields_ended(const struct h2_fields *f)
{
    return !f->has_length || f->received == f->length;
}
