#include "base/utf8.h"

size_t utf8_length(sv s)
{
    if (s.len == 0)
        return 0;
    const unsigned char *p = (const unsigned char *)s.ptr;
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || s.len < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] > 0x9f;
    bool beyond = p[0] == 0xf4 && p[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : n;
}

/* Most texts are ASCII, and are looked at eight bytes at a time. */
static bool is_ascii(sv s)
{
    const uint64_t high = UINT64_C(0x8080808080808080);
    if (s.len < 8)
        return !(sv_short_word(s) & high);
    for (size_t i = 0; i + 8 < s.len; i += 8)
        if (sv_word(s.ptr + i) & high)
            return false;
    return !(sv_word(s.ptr + s.len - 8) & high);
}

bool utf8_valid(sv s)
{
    if (is_ascii(s))
        return true;
    while (s.len > 0) {
        size_t n = utf8_length(s);
        if (n == 0)
            return false;
        s = sv_from(s, n);
    }
    return true;
}

size_t utf8_whole(sv s)
{
    for (size_t back = 1; back <= 3 && back <= s.len; back++) {
        unsigned char c = (unsigned char)s.ptr[s.len - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return length > back ? s.len - back : s.len;
    }
    return s.len;
}

sv utf8_cut(sv s, size_t most)
{
    return s.len <= most ? s : sv_of(s.ptr, utf8_whole(sv_of(s.ptr, most)));
}

uint32_t utf8_code(sv s, size_t length)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    uint32_t code = length <= 1 ? p[0] : p[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (p[i] & 0x3f);
    return code;
}

/* Cf, Zl and Zp of Unicode 15.1 beyond Latin-1, in order. Gaps of code points that are not assigned yet and belong to
 * format characters are closed. */
static const struct {
    uint32_t first, last;
} hidden[] = {
    { 0x0600, 0x0605 },   /* signs that span Arabic numbers */
    { 0x061c, 0x061c },   /* Arabic letter mark */
    { 0x06dd, 0x06dd },   /* end of ayah */
    { 0x070f, 0x070f },   /* Syriac abbreviation mark */
    { 0x0890, 0x0891 },   /* Arabic pound and piastre marks */
    { 0x08e2, 0x08e2 },   /* disputed end of ayah */
    { 0x180e, 0x180e },   /* Mongolian vowel separator */
    { 0x200b, 0x200f },   /* zero width, joiners, marks of direction */
    { 0x2028, 0x202e },   /* line and paragraph separator, embedding and override of direction */
    { 0x2060, 0x206f },   /* word joiner, invisible operators, isolates, deprecated ones */
    { 0xfdd0, 0xfdef },   /* noncharacters */
    { 0xfeff, 0xfeff },   /* byte order mark */
    { 0xfff0, 0xfffb },   /* interlinear annotation */
    { 0x110bd, 0x110bd }, /* Kaithi number sign */
    { 0x110cd, 0x110cd }, /* Kaithi number sign above */
    { 0x13430, 0x1343f }, /* Egyptian hieroglyph format controls */
    { 0x1bca0, 0x1bca3 }, /* shorthand format controls */
    { 0x1d173, 0x1d17a }, /* musical beams and slurs */
    { 0xe0000, 0xe007f }, /* tags */
};

bool utf8_shown(sv s, size_t length)
{
    if (length == 0)
        return false;
    uint32_t code = utf8_code(s, length);
    if (code < 0x0600) /* nearly all there is */
        return code >= 0x20 && (code < 0x7f || code > 0x9f) && code != 0xad;
    if ((code & 0xfffe) == 0xfffe) /* the last two of each plane are noncharacters */
        return false;
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0] && hidden[i].first <= code; i++)
        if (code <= hidden[i].last)
            return false;
    return true;
}
