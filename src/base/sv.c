#include "base/sv.h"

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
