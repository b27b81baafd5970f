/* Instants as people, rules and logs write them, in microseconds since 1970. Digits finer than that are cut. */
#ifndef BASE_INSTANT_H
#define BASE_INSTANT_H

#include "base/clock.h"
#include "base/sv.h"

/* "2026-03-01T12:00:00.25+08:00": RFC 3339, the whole of text, a date that exists; also with a blank for the T. */
bool instant_parse_rfc3339(sv text, int64_t *ret_us);
/* "10/Oct/2000:13:55:36 -0700": as in access logs. */
bool instant_parse_clf(sv text, int64_t *ret_us);
/* "1767225600.5": a number of units, of a second or less, since 1970. */
bool instant_parse_number(sv text, int64_t unit_us, int64_t *ret_us);

struct civil {
    int year, month, day, hour, minute, second;
    int micros;
};

struct civil civil_from_us(int64_t us);         /* from 1970 on */
int64_t civil_to_us(const struct civil *civil); /* of a date that exists */

enum { INSTANT_TEXT_MAX = 40 };
/* "2026-03-01T12:00:00Z", with a fraction if there is one. */
void instant_text(int64_t us, char out[INSTANT_TEXT_MAX]);

#endif
