/* Names of hosts, as rules have them. */
#include "rules/reader.h"

bool host_character(char c)
{
    c = ascii_lower(c);
    return ascii_digit(c) || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '_';
}

sv host_name(sv text)
{
    sv name = text, port;
    if (text.len > 0 && text.ptr[0] == '[') {
        sv rest = sv_from(text, 1);
        sv address = sv_cut(&rest, ']');
        struct ip ip;
        if (!ip_parse(address, &ip) || ip_is_v4(&ip) || address.len + 2 > text.len)
            return (sv){ 0 };
        name.len = address.len + 2;
        port = rest;
    } else {
        name = text.len ? sv_of(text.ptr, 0) : text;
        while (name.len < text.len && text.ptr[name.len] != ':')
            if (!host_character(text.ptr[name.len++]))
                return (sv){ 0 };
        port = sv_from(text, name.len);
    }
    uint64_t number;
    bool good = port.len == 0 || (port.ptr[0] == ':' && (port.len == 1 || sv_u64(sv_from(port, 1), 65535, &number)));
    while (good && name.len > 0 && name.ptr[name.len - 1] == '.')
        name.len--;
    return good ? name : (sv){ 0 };
}
