/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/sv.h"

/* Bytes of the character at the start of s, or 0 if there is no valid one. */
size_t utf8_length(sv s);
bool utf8_valid(sv s);

#endif
