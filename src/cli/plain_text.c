#include "cli/plain_text.h"

#include "base/cleanup.h"
#include "base/utf8.h"

enum { LINE_BYTES_MAX = 64 << 10 };

void plain_add(struct buf *out, sv text, size_t most)
{
    for (size_t used = 0; text.len > 0; used++) {
        size_t length = utf8_length(text);
        if (used >= most) {
            buf_add(out, SV("..."));
            return;
        }
        buf_add(out, utf8_shown(text, length) ? sv_of(text.ptr, length) : SV("?"));
        text = sv_from(text, length ? length : 1);
    }
}

static void overwrite(char *from, const char *to)
{
    while (from < to)
        *from++ = '*';
}

/* Overwrites what follows "password=": a message may quote an address. */
static void hide_values(char *text)
{
    for (char *at = strcasestr(text, "password="); at; at = strcasestr(at, "password=")) {
        at += 9;
        overwrite(at, at + strcspn(at, "& \n"));
    }
}

static void print_line(const char *before, sv text, bool hide)
{
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, LINE_BYTES_MAX);
    buf_add(&out, weir_str(before));
    plain_add(&out, text, LINE_BYTES_MAX / 8);
    buf_char(&out, '\n');
    if (out.ptr && hide)
        hide_values(out.ptr);
    fwrite(buf_sv(&out).ptr, 1, out.len, stderr);
}

void plain_print(sv text)
{
    while (text.len > 0)
        print_line("", sv_cut(&text, '\n'), false);
}

void plain_vprintf(const char *before, const char *format, va_list args)
{
    char text[LINE_BYTES_MAX / 4];
    vsnprintf(text, sizeof text, format, args);
    print_line(before, weir_str(text), false);
}

void plain_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    plain_vprintf("", format, args);
    va_end(args);
}

void plain_say(sv text)
{
    for (const char *before = "weir: "; before[0] || text.len > 0; before = "")
        print_line(before, sv_cut(&text, '\n'), true);
}

void plain_hide_password(char *address)
{
    char *rest = strstr(address, "://");
    if (!rest)
        return;
    rest += 3;
    /* Somebody may have forgotten to encode "/?#@" in a password, so everything up to the last @ is hidden. */
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
