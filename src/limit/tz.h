/* Time zones, from the bytes of a TZif file (RFC 8536, version 2 or later) that somebody else has read. A zone is a view of
 * those bytes: nothing is copied, nothing allocated, and the bytes must stay. Seconds here, as in the files. */
#ifndef LIMIT_TZ_H
#define LIMIT_TZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TZ_UTOFF_MAX_S (26 * 3600) /* no zone is further from UTC, east or west */

/* When a rule of a POSIX TZ string fires in a year. */
struct tz_rule_date {
    enum { TZ_JULIAN_NO_LEAP, TZ_JULIAN, TZ_MONTH_WEEK_DAY } kind;
    uint8_t month, week, day; /* TZ_MONTH_WEEK_DAY */
    uint16_t julian;          /* the other two */
    int32_t time_s;           /* local seconds after midnight, -167 h to 167 h */
};

struct tz {
    const uint8_t *times; /* time_count big-endian 64-bit instants, rising */
    const uint8_t *types; /* for each, an index into infos */
    const uint8_t *infos; /* 6 bytes each: utoff, isdst, abbreviation */
    uint32_t time_count, info_count;
    bool has_footer, has_dst;
    int32_t std_utoff_s, dst_utoff_s;
    struct tz_rule_date dst_start, dst_end;
};

/* 0, or -1 with *ret_why set to a phrase ("not a TZif file", "a truncated TZif file", …). Accepts nothing that a later call
 * could read out of bounds. */
int tz_parse(const void *bytes, size_t len, struct tz *ret, const char **ret_why);
void tz_utc(struct tz *ret);

/* A stretch of time with one offset from UTC. Neighbours with the same offset are joined where they are easily found. */
struct tz_span {
    int64_t start_s, end_s; /* [start, end); INT64_MIN and INT64_MAX where it has no bound */
    int32_t utoff_s;
};

struct tz_span tz_span_at(const struct tz *tz, int64_t utc_s);

#endif
