#include "base/program.h"

#include <errno.h>
#include <string.h>

/* What no shell reads as anything else, wherever it stands in a word; a tilde only in its beginning. */
static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";

const char *program_command(void)
{
    return strcmp(program_invocation_short_name, "weir") == 0 ? program_invocation_name : "weir";
}

const char *program_word(const char *text, char room[PROGRAM_WORD_BYTES])
{
    size_t used = 0;
    if (text[0] && text[strspn(text, plain)] == '\0')
        return text;
    room[used++] = '\'';
    for (const char *c = text; *c; c++) {
        if (used + 6 > PROGRAM_WORD_BYTES)
            return text;
        if (*c == '\'') {
            memcpy(room + used, "'\\'", 3);
            used += 3;
        }
        room[used++] = *c;
    }
    room[used++] = '\'';
    room[used] = '\0';
    return room;
}
