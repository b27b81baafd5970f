/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/sv.h"

/* Bytes of the character at the start of s, or 0 if there is no valid one. */
size_t utf8_length(sv s);
bool utf8_valid(sv s);

/* Bytes of s without the part of a character at its end, if there is one. */
size_t utf8_whole(sv s);
/* At most `most` bytes of s, and no part of a character. */
sv utf8_cut(sv s, size_t most);

/* The code point of the character at the start of s, whose `length` utf8_length has found. */
uint32_t utf8_code(sv s, size_t length);

/* May people be shown the character at the start of s as it is? `length` is what utf8_length says of it.
 *
 * False for characters that control a terminal, end a line, are invisible, or change how their neighbours look: control
 * characters (Cc), format characters (Cf: direction, joiners, soft hyphen, tags), line and paragraph separators (Zl, Zp),
 * noncharacters, and bytes that are not UTF-8 (length 0; surrogates are among them). Every log, terminal, JSON text and
 * YAML text asks this function, and writes an escape or "?" in place of such a character. */
bool utf8_shown(sv s, size_t length);

#endif
