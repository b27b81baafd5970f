#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

int err_set(struct weir_error *error, enum weir_code code, const char *format, ...)
{
    if (!error)
        return code;
    error->code = code;
    va_list args;
    va_start(args, format);
    int len = vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    /* A text that was cut ends with a whole character: it may become part of a JSON text. */
    if (len >= (int)sizeof error->text)
        error->text[utf8_whole(sv_of(error->text, sizeof error->text - 1))] = '\0';
    return code;
}

int err_no_memory(struct weir_error *error)
{
    return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
}

const char *err_text(enum weir_code code)
{
    switch (code) {
#define CODE_TEXT(name, number, text) \
    case WEIR_E_##name:               \
        return text;
        WEIR_CODES(CODE_TEXT)
#undef CODE_TEXT
    case WEIR_OK:
        break;
    }
    return "no error";
}
