#include "cli/plain.h"

#include <stdlib.h>

#include "base/utf8.h"

enum { SAID_BYTES_MAX = 64 << 10 };

/* Neither a control character (of ASCII or Latin-1) nor a line end, a mark of byte order or a character that is none: what
 * a reader of YAML refuses, or takes for the end of a comment. */
static bool is_plain(const char *c, size_t length)
{
    if (length <= 1)
        return length == 1 && c[0] >= 0x20 && c[0] < 0x7f;
    if (length == 2)
        return !(c[0] == '\xc2' && (unsigned char)c[1] < 0xa0);
    if (length == 3)
        return memcmp(c, "\u2028", 3) != 0 && memcmp(c, "\u2029", 3) != 0 && memcmp(c, "\ufeff", 3) != 0 &&
               memcmp(c, "\xef\xbf\xbe", 3) != 0 && memcmp(c, "\xef\xbf\xbf", 3) != 0;
    return true;
}

void plain_add(struct buf *out, sv text, size_t most)
{
    for (size_t used = 0; text.len > 0; used++) {
        size_t length = utf8_length(text);
        if (used >= most) {
            buf_add(out, SV("..."));
            return;
        }
        buf_add(out, is_plain(text.ptr, length) ? sv_of(text.ptr, length) : SV("?"));
        text = sv_from(text, length ? length : 1);
    }
}

static void overwrite(char *from, const char *to)
{
    while (from < to)
        *from++ = '*';
}

/* Whatever a message quotes of an address: "password=" and what follows it. */
static void hide_values(char *text)
{
    for (char *at = strcasestr(text, "password="); at; at = strcasestr(at, "password=")) {
        at += 9;
        overwrite(at, at + strcspn(at, "& \n"));
    }
}

void plain_say(sv text)
{
    struct buf out;
    buf_init(&out, SAID_BYTES_MAX);
    buf_add(&out, SV("weir: "));
    while (text.len > 0) {
        plain_add(&out, sv_cut(&text, '\n'), SAID_BYTES_MAX / 8);
        buf_char(&out, '\n');
    }
    if (out.ptr)
        hide_values(out.ptr);
    fwrite(buf_sv(&out).ptr, 1, out.len, stderr);
    buf_done(&out);
}

void plain_hide_password(char *address)
{
    char *rest = strstr(address, "://");
    if (!rest)
        return;
    rest += 3;
    /* A password may hold any of "/?#@" that somebody forgot to encode: up to the last @ is hidden rather than too little.
     */
    char *at = strrchr(rest, '@'), *colon = strchr(rest, ':');
    if (at && colon && colon < at)
        overwrite(colon + 1, at);
    for (char *query = strchr(rest, '?'); query; query = strchr(query + 1, '&')) {
        size_t name = strcspn(query + 1, "=&");
        char *value = query + 1 + name + 1;
        if (query[1 + name] == '=' && name >= 8 && strncasecmp(value - 9, "password", 8) == 0)
            overwrite(value, value + strcspn(value, "&"));
    }
}

char *plain_address(const char *from)
{
    const char *given = from ? from : getenv("WEIR_FROM");
    char *copy = strdup(given ? given : "");
    if (from)
        plain_hide_password((char *)from);
    return copy;
}
