/* Texts in double quotes, as YAML and people read them. */
#include "base/utf8.h"
#include "rules/reader.h"

bool text_has_control(sv text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool c1 = c == 0xc2 && i + 1 < text.len && (unsigned char)text.ptr[i + 1] < 0xa0;
        if (c < 0x20 || c == 0x7f || c1)
            return true;
    }
    return false;
}

/* Line ends, and characters that YAML or utf8_shown does not allow, become escapes. So does a blank in a run that comes
 * near RULES_BLANKS_MAX. */
void yaml_quote(struct buf *out, sv s)
{
    size_t blanks = 0;
    buf_char(out, '"');
    while (s.len > 0) {
        size_t length = utf8_length(s);
        unsigned c = length ? utf8_code(s, length) : 0xfffd;
        blanks = c == ' ' ? blanks + 1 : 0;
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", (char)c);
        else if (c == '\n')
            buf_add(out, SV("\\n"));
        else if (c == '\t')
            buf_add(out, SV("\\t"));
        else if (!utf8_shown(s, length) || (blanks && blanks % (RULES_BLANKS_MAX / 2) == 0))
            buf_printf(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        else
            buf_add(out, sv_of(s.ptr, length));
        s = sv_from(s, length ? length : 1);
    }
    buf_char(out, '"');
}
