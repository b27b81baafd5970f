#include "base/sv.h"

int sv_compare(sv a, sv b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

sv sv_trim(sv s)
{
    while (s.len > 0 && blank(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && blank(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

sv sv_trim_ows_slow(sv s)
{
    while (s.len > 0 && ascii_ows(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && ascii_ows(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

bool sv_blank(sv s)
{
    return sv_trim(s).len == 0;
}

sv sv_cut(sv *rest, char c)
{
    const char *found = rest->len ? memchr(rest->ptr, c, rest->len) : NULL;
    sv head = *rest;
    if (!found) {
        *rest = sv_from(*rest, rest->len);
        return head;
    }
    head.len = (size_t)(found - head.ptr);
    *rest = sv_from(*rest, head.len + 1);
    return head;
}

ptrdiff_t sv_unescape(sv s, char *to, size_t cap)
{
    size_t len = 0;
    for (size_t i = 0; i < s.len; i++, len++) {
        char c = s.ptr[i];
        if (c == '%') {
            int high = i + 2 < s.len ? ascii_hex(s.ptr[i + 1]) : -1;
            int low = i + 2 < s.len ? ascii_hex(s.ptr[i + 2]) : -1;
            c = (char)(high * 16 + low);
            if (high < 0 || low < 0 || c == '\0')
                return -1;
            i += 2;
        }
        if (len < cap)
            to[len] = c;
    }
    return (ptrdiff_t)len;
}

bool sv_u64(sv s, uint64_t max, uint64_t *ret)
{
    if (s.len == 0)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (!ascii_digit(s.ptr[i]))
            return false;
        uint64_t digit = (uint64_t)(s.ptr[i] - '0');
        if (value > (max - digit) / 10 || digit > max)
            return false;
        value = value * 10 + digit;
    }
    *ret = value;
    return true;
}
