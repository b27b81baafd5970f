/* Instants as people and logs write them. Microseconds since 1970 in UTC, within [0, CLOCK_END_US). */
#ifndef CLI_WHEN_H
#define CLI_WHEN_H

#include "base/clock.h"
#include "base/sv.h"

/* "2026-03-01T12:00:00.25+08:00": the whole of text. Digits behind the sixth of a fraction are cut. */
bool when_parse_rfc3339(sv text, int64_t *ret_us);
/* "10/Oct/2000:13:55:36 -0700", as in access logs. */
bool when_parse_clf(sv text, int64_t *ret_us);
/* RFC 3339, or decimal milliseconds since 1970. */
bool when_parse(sv text, int64_t *ret_us);

struct civil {
    int year, month, day, hour, minute, second;
    int micros;
};

struct civil civil_from_us(int64_t us);
int64_t civil_to_us(const struct civil *civil); /* of a real date; hour 24 and second 60 carry over */

enum { WHEN_TEXT_MAX = 40, SPAN_TEXT_MAX = 40 };
/* "2026-03-01T12:00:00Z", with a fraction if there is one. */
void when_text(int64_t us, char out[WHEN_TEXT_MAX]);
/* A length of time in its two largest units: "3 h 20 min", "250 ms". */
void span_text(int64_t us, char out[SPAN_TEXT_MAX]);

#endif
