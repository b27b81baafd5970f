#include "cli/term.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/utf8.h"

enum { COLUMNS_MIN = 40, COLUMNS_MAX = 240, COLUMNS_DEFAULT = 80, ROWS_DEFAULT = 24 };

static unsigned columns_of(int fd)
{
    struct winsize size;
    uint64_t n = 0;
    const char *given = getenv("COLUMNS");
    if (ioctl(fd, TIOCGWINSZ, &size) == 0)
        n = size.ws_col;
    else if (given && !sv_u64(weir_str(given), UINT32_MAX, &n))
        n = 0;
    if (n == 0)
        return COLUMNS_DEFAULT;
    return n < COLUMNS_MIN ? COLUMNS_MIN : n > COLUMNS_MAX ? COLUMNS_MAX : (unsigned)n;
}

static unsigned rows_of(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : ROWS_DEFAULT;
}

/* The locale that the environment names, in the order of setlocale. */
static const char *locale_name(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return value;
    }
    return "C";
}

/* Asks the environment's locale without setting it, because that would change how numbers are printed. A locale that is not
 * installed, as in small containers, is judged by its name. */
static bool locale_is_utf8(void)
{
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!locale)
        return strcasestr(locale_name(), "utf-8") || strcasestr(locale_name(), "utf8");
    bool utf8 = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return utf8;
}

struct term term_of(int fd)
{
    const char *no_color = getenv("NO_COLOR"), *kind = getenv("TERM");
    bool dumb = kind && strcmp(kind, "dumb") == 0;
    bool is_terminal = isatty(fd) == 1;
    return (struct term){
        .is_terminal = is_terminal,
        .color = is_terminal && !dumb && !(no_color && no_color[0]),
        .unicode = !dumb && locale_is_utf8(),
        .columns = columns_of(fd),
        .rows = rows_of(fd),
    };
}

size_t term_width(sv text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((unsigned char)text.ptr[i] & 0xc0) != 0x80;
    return n;
}

static bool printable(const struct term *term, sv text, size_t len)
{
    return utf8_shown(text, len) && (len == 1 || term->unicode);
}

void term_add(const struct term *term, struct buf *out, sv text, size_t columns)
{
    bool cut = term_width(text) > columns;
    size_t room = cut && columns > 3 ? columns - 3 : columns;
    for (size_t used = 0; text.len > 0 && used < room; used++) {
        size_t n = utf8_length(text);
        buf_add(out, printable(term, text, n) ? sv_of(text.ptr, n) : SV("?"));
        text = sv_from(text, n ? n : 1);
    }
    if (text.len > 0)
        buf_add(out, SV("..."));
}

void term_add_padded(const struct term *term, struct buf *out, sv text, size_t columns)
{
    size_t before = out->len;
    term_add(term, out, text, columns);
    for (size_t width = term_width(sv_from(buf_sv(out), before)); width < columns; width++)
        buf_char(out, ' ');
}

#define SEQUENCE(name, code)                         \
    const char *term_##name(const struct term *term) \
    {                                                \
        return term->color ? "\033[" code "m" : "";  \
    }

SEQUENCE(bold, "1")
SEQUENCE(dim, "2")
SEQUENCE(red, "31")
SEQUENCE(green, "32")
SEQUENCE(yellow, "33")
SEQUENCE(plain, "0")
