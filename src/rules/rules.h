/* The rule model: what a rules file, a row or the API can say, checked. Everything in a `struct rules` lives in its arena
 * (or in that of an earlier set, which it holds) and does not change once it is read.
 *
 * Reading collects every error with its line and continues; a rule with an error is left out, all others are used. */
#ifndef RULES_RULES_H
#define RULES_RULES_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/ip.h"
#include "base/sv.h"
#include "limit/calendar.h"
#include "limit/limit.h"
#include "rules/attributes.h"
#include "rules/descriptor.h"

/* Bounds, so that no file can exhaust its reader. */
enum {
    RULES_BYTES_MAX = 64 << 20,
    RULES_NESTING_MAX = 16,
    RULES_VALUES_MAX = 6000000, /* keys and values, what an alias stands for counted each time */
    RULES_FIELDS_MAX = 100,     /* in one mapping */
    RULES_BLANKS_MAX = 4096,    /* and line ends, in a row */
    RULES_DIRECTIVES_MAX = 10,
    RULES_ANCHORS_MAX = 1000,
    RULES_ALIASES_MAX = 10000,
    RULES_MAX = 200000,
    RULES_REGEXES_MAX = 10000, /* in all: each is compiled */
    RULES_BASES_MAX = 64,      /* sets whose memory one set shares */
    RULES_OVERRIDES_MAX = 1000000,
    RULE_LIMITS_MAX = 16,
    RULE_PLANS_MAX = 64,
    RULE_BY_MAX = 8,
    RULE_REPLACES_MAX = 10000,
    RULE_METHODS_MAX = 32,
    RULE_PATHS_MAX = 1000,
    RULE_HEADERS_MAX = 32, /* in `match`, and as many entries of a descriptor */
    RULE_CONDITIONS_MAX = ATTRIBUTE_COUNT + 2 * RULE_HEADERS_MAX,
    RULE_VALUES_MAX = 10000,                    /* of a condition in `match`, and as many in its `not` */
    RULE_PATTERNS_MAX = 100,                    /* prefixes and globs among them: each is compared */
    RULE_EXCEPT_MAX = 10000,                    /* addresses, and as many users */
    SETTINGS_LIST_MAX = 1000,                   /* ids, strip_prefixes, trusted_proxies */
    RULE_NAME_MAX = 100,                        /* bytes of a header's name, a method, a zone */
    RULE_BY_TEXT_MAX = 16 + DESCRIPTOR_KEY_MAX, /* bytes that rule_by_text() writes */
    RULE_TEXT_MAX = 1000,                       /* bytes of an event, a user, a header's value, the why of an override */
    RULE_PATH_MAX = 4096,                       /* bytes of a template or regex, and of the keys of a descriptor */
    RULE_BODY_MAX = 64 << 10,
    PARTITION_SECRET_MIN = 16, /* bytes of partition_key_secret */
    PARTITION_SECRET_MAX = 200,
    RULES_PROBLEMS_MAX = 100,
    RULES_PROBLEM_TEXT_MAX = 1000,
    RULES_ERRORS_MAX = 1000, /* listed; further ones are counted */
};

enum rule_mode { MODE_ENFORCE, MODE_SHADOW, MODE_OFF };

/* Where a rule counts. */
enum rule_counters {
    COUNTERS_DEFAULT, /* not said: in the store if there is one */
    COUNTERS_LOCAL,   /* on this host */
    COUNTERS_SHARED,  /* in the store */
};

/* How a rule that counts in the store decides while the store is unreachable. */
enum rule_on_failure {
    ON_FAILURE_LOCAL, /* counts on this host, to max / hosts */
    ON_FAILURE_ALLOW,
    ON_FAILURE_DENY,
};

/* The headers of answers: see docs/headers.md. */
enum header_setting { HEADERS_STANDARD, HEADERS_LEGACY, HEADERS_OPENAI, HEADERS_OFF };

/* How a request is treated that repeats a header with different values, if a rule uses this header. */
enum repeated_headers {
    REPEATED_REFUSE, /* it is refused as a bad request */
    REPEATED_FIRST,  /* rules see the first value that is not empty */
    REPEATED_LAST,   /* rules see the last one that is not empty */
};

#define RULE_SLICE_WHOLE 10000 /* rule_lease.slice is in 1/100 of a percent */

/* This host fetches slices of a window's budget in advance. */
struct rule_lease {
    bool on;
    uint32_t slice;  /* of max, 1 to RULE_SLICE_WHOLE; default 500, 5% */
    uint32_t ttl_ms; /* 100 to 3600000; default 2000 */
};

/* A subject that the rule's limits refuse `after` times within `within` is refused by the rule for a while: for `for` the
 * first time, then `grow` times as long each time, and at most for `most`. */
struct rule_penalty {
    uint32_t after; /* 1 to 10000; 0: the rule has no penalty */
    uint32_t grow;  /* 1 to 100; default 2 */
    int64_t within_us, for_us;
    int64_t most_us; /* at least for_us; default 24h, or for_us if that is longer or penalties do not grow */
};

/* A regex; or a template, normalised as paths are, but with its case kept, and with characters that are not meant as a
 * wildcard still encoded ("/a/#/{name}/%23"). */
struct rule_path {
    const char *text;
    uint32_t length;
    bool is_regex;
};
_Static_assert(RULE_PATH_MAX <= UINT32_MAX, "length");

static inline sv rule_path_text(struct rule_path path)
{
    return sv_of(path.text, path.length);
}

struct rule_header {
    sv name; /* in lower case */
    sv value;
};

/* How a value of a condition is compared. */
enum value_kind {
    VALUE_EQUAL,
    VALUE_PREFIX,
    VALUE_GLOB, /* has a `*`, which stands for any bytes, also none */
    VALUE_NETWORK,
};

struct rule_value {
    enum value_kind kind;
    union {
        sv text; /* a host is in lower case, without port and final dot; a method is in upper case */
        struct cidr network;
    };
};

struct rule_values {
    const struct rule_value *list;
    size_t count;
};

enum presence { PRESENCE_ANY, PRESENT, ABSENT };

/* The values that an attribute must have. A missing attribute satisfies `is_not`, and nothing in `is`. */
struct rule_condition {
    enum attribute attribute;
    sv name; /* as in struct rule_by */
    enum presence presence;
    struct rule_values is;     /* one of them; none: any value */
    struct rule_values is_not; /* none of them */
};

/* The paths that rules have: any of path_count, or, if that is 0, any path; and none of not_path_count. */
struct rule_match {
    union {
        const char *text;             /* `alone` */
        const struct rule_path *list; /* path_count, and then not_path_count */
    };
    uint16_t path_count, not_path_count;
    uint16_t length; /* as in struct rule_path, of the only path, which is in place of a list */
    bool is_regex, alone;
};
_Static_assert(RULE_PATHS_MAX <= UINT16_MAX, "path_count, not_path_count");

/* Path i: those that must not match come after path_count others. */
static inline struct rule_path rule_path(const struct rule_match *match, size_t i)
{
    return match->alone ? (struct rule_path){ match->text, match->length, match->is_regex } : match->list[i];
}

static inline size_t rule_path_count(const struct rule_match *match)
{
    return (size_t)match->path_count + match->not_path_count;
}

struct rule_by {
    enum attribute attribute;
    /* ATTR_HEADER: in lower case. ATTR_DESCRIPTOR: the key of an entry, written as descriptor_find() takes it; empty in
     * `by`: all entries together. */
    sv name;
};

/* The value of an entry counts as it is given, even if it is empty. Any other attribute is missing then. */
static inline bool by_may_be_empty(const struct rule_by *by)
{
    return by->attribute == ATTR_DESCRIPTOR && by->name.len > 0;
}

/* A time zone: its name, and the TZif bytes that `tz` looks at (none for UTC, which needs no file). */
struct zone {
    sv name;
    struct tz tz;
    sv bytes;
    struct zone *next;
};

struct rule_limit {
    sv name;        /* given, or made: "token_bucket", "day", "day-2" */
    bool named;     /* given */
    bool overdraft; /* while anything is left a request passes, whatever it costs; what it takes beyond that is a debt */
    bool given;     /* `limits: given`: the request brings max and window; a calendar limit without a zone */
    enum limit_algorithm algorithm;
    uint64_t max;            /* concurrent: slots */
    uint64_t burst;          /* token_bucket: its capacity (= max unless given) */
    sv cost_unit;            /* what it counts, such as "tokens"; empty: requests */
    int64_t per_us;          /* all but calendar units; concurrent: its ttl */
    enum calendar_unit unit; /* calendar; CALENDAR_LENGTH: windows of per_us */
    int week_start;          /* calendar: MONDAY … SUNDAY */
    const struct zone *zone; /* calendar */
};

/* The limits of the requests whose `plan` attribute has this value. */
struct rule_plan {
    sv name; /* as facts give the attribute; upper and lower case are the same if the rule says so */
    const struct rule_limit *limits;
    size_t limit_count;
};

struct rule_except {
    struct cidr *ips;
    size_t ip_count;
    sv *users;
    size_t user_count;
};

struct rule_reject {
    uint16_t status; /* 0: not given */
    bool has_body;
    sv body;
    sv content_type;             /* empty: not given */
    struct rule_header *headers; /* names as written */
    size_t header_count;
};

#define RULE_NEVER_EXPIRES INT64_MAX

/* What few rules have. The others share one, in which everything is empty. */
struct rule_rest {
    struct rule_by plan; /* only if there are plans */
    struct rule_plan *plans;
    size_t plan_count;
    struct rule_lease lease;
    uint32_t hold_max_percent; /* of a limit's max that one hold may take; 0: all of it */
    int64_t expires_us;        /* from then on the rule is not there */
    struct rule_except except;
    struct rule_reject reject;
    struct rule_penalty penalty;
    sv *replaces; /* ids of rules that do not count for requests to which this rule applies */
    size_t replace_count;
    sv file; /* that the line is in, where another file includes it; else empty */
};
extern const struct rule_rest rule_no_rest;

/* All that a rule says beside its id and its paths. Most rules say the same as many others. */
struct rule_kind {
    const struct rule_condition *conditions; /* all of them, each at most once; headers come last, and then entries */
    const struct rule_by *by;
    const struct rule_limit *limits; /* of requests that have none of the plans; may be none if there are plans */
    const struct rule_rest *rest;    /* never NULL */
    uint8_t condition_count, by_count, limit_count;
    enum rule_mode mode : 2;         /* the one in force: MODE_OFF while `disabled` */
    enum rule_mode enabled_mode : 2; /* only while `disabled`: the mode that the rule has once it is enabled */
    enum rule_counters counters : 2; /* COUNTERS_SHARED where there is a lease */
    enum rule_on_failure on_failure : 2;
    bool disabled;    /* `enabled: false` */
    bool ignore_case; /* A to Z are compared as a to z in the values of headers in `match`, and of `plan` */
    bool unlimited;   /* `limits: none`: it has no limits and no plans */
};
_Static_assert(RULE_CONDITIONS_MAX <= UINT8_MAX, "condition_count");
_Static_assert(RULE_BY_MAX <= UINT8_MAX && RULE_LIMITS_MAX <= UINT8_MAX, "by_count, limit_count");

/* Sets have very many of them: it is as small as it can be. Equal kinds of a set are one, and so are equal lists of limits
 * (of plans and overrides, too), of conditions and of what rules count by: see share_lists.c. */
struct rule {
    sv id;
    const struct rule_kind *kind; /* never NULL */
    struct rule_match match;
    int line;        /* 0: it was read from a row */
    uint32_t values; /* of a row: in its document, for the bound on those of all rows */
};
_Static_assert(sizeof(struct rule) == 48, "not larger than it has to be");
_Static_assert(RULES_VALUES_MAX <= UINT32_MAX, "values");

enum override_kind { OVERRIDE_LIMITS, OVERRIDE_DENY, OVERRIDE_UNLIMITED };

/* Replaces the limits and plans of a rule for one subject. */
struct rule_override {
    sv rule;    /* its id: that of a rule of the set */
    sv *values; /* one for each attribute of the rule's `by`, in its order, as facts give them; paths as written */
    const struct rule_limit *limits; /* OVERRIDE_LIMITS */
    int64_t expires_us;              /* from then on it has no effect; RULE_NEVER_EXPIRES */
    sv why;                          /* may be empty */
    int line;
    uint8_t value_count, limit_count;
    enum override_kind kind : 8;
};
_Static_assert(sizeof(struct rule_override) == 64, "there may be more of them than rules");

struct settings {
    sv *ids; /* regexes; NULL: the default (digits, UUIDs) */
    size_t id_count;
    bool ignore_case;
    sv *strip_prefixes; /* normalised: "/api/v1"; case as written */
    size_t strip_prefix_count;
    struct cidr *trusted_proxies;
    size_t trusted_proxy_count;
    unsigned ipv6_prefix; /* default 64 */
    enum repeated_headers repeated_headers;
    enum header_setting headers;
    sv partition_key_secret; /* empty: headers have no partition keys */
    struct rule_except except;
    struct rule_reject reject;
};

struct rules {
    struct arena arena; /* what rules and overrides point to; later sets may share it */
    struct arena lists; /* `rules` and `overrides` */
    struct settings settings;
    struct rule **rules; /* in file order, good ones only; later sets may share each of them */
    size_t rule_count;
    struct rule_override *overrides; /* in file order, good ones only, one for a subject */
    size_t override_count;
    struct zone *zones; /* each zone that a limit names, once */
    /* Errors in the source that the rules were copied from: `weir sync` leaves bad rows out, or keeps their last good
     * version, and says so here. For people; the rules are used. */
    sv *problems;
    size_t problem_count;
    struct rules *base; /* the set whose arena, and those of its bases, this one shares; NULL: none */
    unsigned bases;     /* number of them */
    unsigned users;     /* beside the first one; atomic */
    unsigned holders;   /* of its arena, beside its users; atomic */
};

struct rule_problem {
    int line; /* 0: does not belong to a line */
    sv rule;  /* its id, as far as it is known; may be empty */
    sv text;  /* "rule ocr: max: must be 0 to 9007199254740991, not -1" is made of rule and text */
    sv file;  /* that the line is in, where another file includes it; else empty */
};

/* A rule that was left out. */
struct rule_bad {
    sv id;
    size_t before; /* number of good rules before it in its file */
};

/* An override that was left out. Those of a bad rule are not listed: they come back with its last good version. */
struct override_bad {
    sv rule;
    sv *values; /* as in struct rule_override */
    size_t value_count;
};

enum setting {
    SETTING_IDS,
    SETTING_IGNORE_CASE,
    SETTING_STRIP_PREFIXES,
    SETTING_TRUSTED_PROXIES,
    SETTING_IPV6_PREFIX,
    SETTING_REPEATED_HEADERS,
    SETTING_HEADERS,
    SETTING_PARTITION_KEY_SECRET,
    SETTING_EXCEPT,
    SETTING_REJECT,
    SETTINGS
};

struct rules_report {
    struct arena arena;
    struct rule_problem *errors; /* by line */
    size_t error_count;          /* in all; at most RULES_ERRORS_MAX are listed */
    struct rule_problem *advice; /* what lint prints beside errors: "limits: two limits are named …; name them" */
    size_t advice_count;         /* as error_count */
    struct rule_bad *bad;        /* every bad rule whose id is known, in file order */
    size_t bad_count;
    struct override_bad *bad_overrides; /* every bad override whose subject is known */
    size_t bad_override_count;
    bool overrides_unreadable; /* not one override could be read */
    unsigned bad_settings;     /* 1 << enum setting: this one has its default */
    bool unreadable;           /* not one rule could be read: a syntax error, a file too large */
    bool incomplete;           /* a row without a text had to be read: the set is not to be used */
};

void rules_report_done(struct rules_report *report);
/* "FILE:LINE: rule ID: TEXT" and a line end for each error, then, if wanted, for each piece of advice ("advice: " before
 * TEXT). FILE is `file`, or the file that it includes. */
void rules_report_print(const struct rules_report *report, sv file, bool with_advice, struct buf *out);

/* Reads YAML or JSON. Always gives a set (of the rules that are good), except for lack of memory: NULL, and an empty
 * report. */
struct rules *rules_read(sv text, struct rules_report *ret_report);
/* The same for a bare list of rules, as in `set_rules` and in the API, under the settings of `base`. */
struct rules *rules_read_list(sv text, const struct rules *base, struct rules_report *ret_report);
void rules_free(struct rules *rules);
CLEANUP_POINTER(struct rules *, rules_free);
/* One more user of the same set: each of them calls rules_free(). Any threads may do so. */
struct rules *rules_share(struct rules *rules);
/* Keeps what rules and overrides point to, also after the last user has freed the set with its lists. */
struct rules *rules_hold(struct rules *rules);
void rules_let_go(struct rules *rules);
/* Whether the two are one rule, which was read once: the sets share it. */
static inline bool rule_is_shared(const struct rule *a, const struct rule *b)
{
    return a == b;
}
/* Whether the two match the same requests, at any time, and count by the same. */
bool rule_matches_same(const struct rule *a, const struct rule *b);
/* Finds for each rule its number in `before`: it is the same rule there, or one with its id that matches the same requests.
 * UINT32_MAX: it has none. The numbers rise. False: more than `most` rules of the two sets have no counterpart. */
bool rules_align(const struct rules *before, const struct rules *rules, size_t most, uint32_t *ret);
/* Whether requests are matched the same way under both. */
bool settings_match_same(const struct settings *a, const struct settings *b);
/* A set of some rules of `rules`, whose memory it shares, with the same settings. NULL: no memory. */
struct rules *rules_some(struct rules *rules, const uint32_t *numbers, size_t count);
/* NULL: no memory. */
struct rules *rules_copy(const struct rules *rules);

/* ---- rows ---- */

enum rule_row_kind {
    ROW_RULE,
    ROW_CALL, /* a rule; only one may have the same method and path, once they are normalised */
    ROW_SETTING,
    ROW_OVERRIDE, /* `id` is the rule's, `subject` whom it is for. The document may leave `rule` and `by` out */
};

/* One rule, setting or override that is a document of its own, as in a table. */
struct rule_row {
    enum rule_row_kind kind;
    sv id;      /* of the rule, which its document may leave out but not change; or the setting's name */
    sv subject; /* ROW_OVERRIDE: see override_subject_text(); empty: its document has `by` */
    sv text;    /* YAML or JSON; its ptr may be NULL if `rule` is given: see rules_report.incomplete */
    sv fault;   /* not empty: why the row is bad, whatever its text is */
    /* The row of a rule that is disabled: it is read as with `enabled: false`, and if it is bad it is left out and not
     * reported. Such rows come last, so that the bounds hold for the others first. */
    bool disabled;
    /* The good rule that was read from the same row under the same settings; NULL: the row has to be read. Afterwards the
     * good rule of the row, or NULL. */
    struct rule *rule;
    const struct rule_override *same_override;
};

/* Reads rows, settings first and overrides last, wherever they stand. Where a line would be, reports and overrides have the
 * number of the row, from 1. A bad row is left out, all others are used; if two rows have the same id (or call, or
 * subject), the later one is bad. NULL: no memory. */
struct rules *rules_read_rows(struct rule_row *rows, size_t count, struct rules_report *ret_report);
/* The same, where `rule` and `same_override` of the rows are in `before`: the new set shares what did not change. Some rows
 * are read although they have not changed, so that sets do not hold on to ever more memory that nobody uses. A report has
 * advice only for rows that were read. */
struct rules *rules_reread_rows(struct rule_row *rows, size_t count, struct rules *before, struct rules_report *ret_report);

/* Takes a text apart: a document with `settings`, `rules` and `overrides`, a list of rules, or one rule. Each becomes a row
 * whose text is equivalent JSON. The text is checked only as far as that needs. Rows live in `arena`. */
int rules_split(sv text, struct arena *arena, struct rule_row **ret, size_t *ret_count, struct weir_error *error);
/* The same for the text of a file, which may include others; they are not looked at. */
int rules_split_file(sv text, struct arena *arena, struct rule_row **ret, size_t *ret_count, struct weir_error *error);
/* A value in YAML or JSON as JSON. */
int rules_json(sv text, struct buf *out, struct weir_error *error);

/* ---- overrides ---- */

/* The subject of an override as one text, for a column or a URL: the value itself if the rule counts by one attribute; of
 * several the values in the order of `by`, joined by commas, with "%2C" for a comma and "%25" for % inside a value. The
 * only value, if it is empty, is "%". */
void override_subject_text(const sv *values, size_t count, struct buf *out);
/* The inverse: one value for each attribute of the rule's `by`, spelled as facts give it. The values are in `arena`.
 * Returns 0, or WEIR_E_INVALID (WEIR_E_NO_MEMORY) with the reason. */
int override_subject_split(const struct settings *settings, const struct rule *rule, sv text, struct arena *arena,
                           sv ret_values[RULE_BY_MAX], struct weir_error *error);
/* Returns the override of a subject, or NULL. A linear search. */
const struct rule_override *override_find(const struct rules *rules, sv rule, const sv *values, size_t count);

/* Promise 6: puts each rule, override or setting that `report` calls bad back into `fresh` as it is in `last`; all of them
 * if the report says that nothing could be read. A bad rule comes back with its overrides.
 * A rule returns to the place of its bad version, or to the end if the report does not know that. Returns 0, or
 * WEIR_E_NO_MEMORY with `fresh` unchanged. */
int rules_keep_last_good(struct rules *fresh, const struct rules_report *report, const struct rules *last);

/* Writes rules (settings too) as YAML that rules_read reads back the same. */
void rules_write(const struct rules *rules, struct buf *out);

/* A set as rules_write() writes it. */
struct rules_text {
    struct buf text;
    struct rules *rules; /* shared; NULL: there is no text */
    uint32_t *starts;    /* of each rule in the text, and of what follows them */
};
void rules_text_done(struct rules_text *text);
/* Writes a set that may share rules with the one of `before`: what it shares is taken from that text. False: no memory, or
 * more than RULES_BYTES_MAX. */
bool rules_text_write(struct rules_text *ret, struct rules *rules, const struct rules_text *before);
/* In double quotes, with escapes where YAML or people need them. */
void yaml_quote(struct buf *out, sv text);
bool text_has_control(sv text); /* C0 (a tab too), DEL, C1 */

/* Words of the model, as written in rules: one for each value of an enum, and NULL after the last. */
extern const char *const algorithm_names[], *const unit_names[], *const weekday_names[]; /* CALENDAR_LENGTH: NULL */
extern const char *const mode_names[], *const on_failure_names[], *const repeated_names[], *const header_setting_names[];
extern const char *const counters_names[];                     /* "" for COUNTERS_DEFAULT */
int word_find(sv text, const char *const *names);              /* -1: none of them */
void rule_by_text(const struct rule_by *by, struct buf *out);  /* "user", "header:x-tenant", "descriptor:plan" */
bool rule_same_by(const struct rule *a, const struct rule *b); /* in the same order */
/* Removes rules, and their overrides with them. False: no memory, and nothing is removed. */
bool rules_leave_out(struct rules *rules, bool (*out)(const struct rule *rule));
/* The condition on an attribute that has no name; NULL: there is none. */
const struct rule_condition *rule_condition_of(const struct rule *rule, enum attribute attribute);
/* "ann, bob or job-*": for people. */
void rule_values_text(const struct rule_values *values, struct buf *out);
/* "ann or bob", "not ann", "present": for people. */
void rule_condition_text(const struct rule_condition *condition, struct buf *out);
/* Does what `enabled: false` does. */
void rule_disable(struct rule_kind *kind);
/* Returns the number of rules that are neither off nor expired. */
size_t rules_in_force(const struct rules *rules, int64_t now_us);
/* "10 per 1m", "5 per 1m burst 20", "100 per day (Asia/Shanghai)", "100 per 7d calendar", "5 per 1m sliding_window", "10
 * concurrent (ttl 1m)": for people. */
void rule_limit_text(const struct rule_limit *limit, struct buf *out);
/* The current window of a calendar limit. */
struct window rule_limit_window(const struct rule_limit *limit, int64_t now_us);
/* Returns whether the rule has `limits: given`. */
static inline bool rule_limit_is_given(const struct rule *rule)
{
    return rule->kind->limit_count == 1 && rule->kind->limits[0].given;
}
bool rule_limits_same(const struct rule_limit *a, size_t a_count, const struct rule_limit *b, size_t b_count);
void rule_limit_hash(const struct rule_limit *limit, struct hash *h); /* of all that rule_limits_same() compares */
void rule_length_text(struct buf *out, int64_t us);                   /* "90s" */
/* The period of a calendar limit, "day" or "7d": as `calendar` has it. */
void rule_calendar_text(const struct rule_limit *limit, struct buf *out);
/* For a set of limits: "10 per 1m, 100 per day". */
void rule_limits_text(const struct rule_limit *limits, size_t count, struct buf *out);

#endif
