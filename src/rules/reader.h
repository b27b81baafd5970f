/* Shared by the files of the reader: the position in the file, the rule that an error belongs to, and readers of simple
 * values.
 *
 * A reader of a value returns false after it has reported an error (or found no memory), and then leaves *ret alone. */
#ifndef RULES_READER_H
#define RULES_READER_H

#include <stdarg.h>

#include "base/amount.h"
#include "rules/included.h"
#include "rules/node.h"
#include "rules/rules.h"

enum { READER_PATH_MAX = 200, READER_SHOWN_MAX = 60 };

/* The lists that rules and overrides of a set share. */
struct shared_lists {
    struct shared_list *slots;
    size_t size, count; /* size: 0 or a power of 2 */
};

struct reader {
    struct rules *rules;
    struct rules_report *report;
    struct arena *arena;             /* in which values are read: that of the set, or scratch */
    struct arena *scratch;           /* given back when the reading is over */
    struct shared_lists shared;      /* the same */
    const struct included *included; /* the files that lines after those of the first text are of; NULL: none */
    bool no_memory;
    bool quiet;    /* errors count, and are not listed: those of a row that is disabled */
    bool disables; /* the rule of such a row is disabled, too */

    sv rule_id;            /* of the rule at hand, as far as it is known */
    struct rule_kind kind; /* of the rule at hand, and its rest, if it has one */
    struct rule_rest rest;
    sv file;            /* of the last rule that was in an included file, in the arena of the set */
    size_t rule_number; /* from 1; 0: not in a rule */
    bool in_settings;
    int row;                  /* > 0: stands for the line in reports */
    size_t errors;            /* so far */
    size_t regexes;           /* so far */
    enum attribute attribute; /* of the condition at hand */

    /* The override that is being read: errors begin with "override of rule ID for SUBJECT". */
    size_t override_number; /* from 1; 0: not in an override */
    sv override_rule;
    const sv *override_values; /* its subject, as far as it is known */
    size_t override_value_count;

    struct id_entry *rule_ids; /* of all rules, bad ones too, sorted */
    size_t rule_id_count;

    char path[READER_PATH_MAX]; /* "limits[1].max" */
    size_t path_len;
    char shown[6 * READER_SHOWN_MAX + 40];

    const char **zone_names; /* made for the first bad zone */
    size_t zone_name_count;
};

/* ---- report.c ---- */

void report_error(struct reader *r, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void report_advice(struct reader *r, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The override at hand is left out of the set. */
void report_bad_override(struct reader *r);
/* A rule is left out of the set; `before` good ones stand before it. */
void report_bad_rule(struct reader *r, size_t before, size_t rule_max);
void report_sort(struct rules_report *report);
void report_locate(struct reader *r); /* after sorting: problems get their files, and the lines in these */
/* The line in its file, where the reader numbers the lines of all files. */
int line_in_file(const struct reader *r, int line);
sv file_of_line(const struct reader *r, int line); /* empty: the first file */
/* "line 7", or "line 7 of conf.d/a.yaml" for an error in the line `from`, if that is in another file. As those below: until
 * the next call. */
const char *shown_line(struct reader *r, int line, int from);
/* A value as an error shows it, until the next call. */
const char *shown_node(struct reader *r, const struct node *node);
const char *shown_text(struct reader *r, sv text);

/* ---- words.c ---- */

/* The one that was probably meant; NULL if none is near. */
const char *word_nearest(sv text, const char *const *names);
/* How many letters must be changed to make b from a, upper and lower case alike; more than `bound` is bound + 1. */
unsigned word_distance(sv a, sv b, unsigned bound);

/* ---- fields.c ---- */

/* Where the reader is: returns what path_end takes to go back. */
size_t path_field(struct reader *r, sv name);
size_t path_index(struct reader *r, size_t index);
void path_end(struct reader *r, size_t before);

/* Reads a value into a member of the structure that its mapping or list makes. */
typedef void value_reader(struct reader *r, const struct node *node, void *ret);

struct field {
    const char *name;
    value_reader *read;
    size_t offset;       /* of what `read` gets, in the structure of the whole mapping */
    const char *missing; /* the error if there is no such field; NULL: it may be left out */
    bool keep_null;      /* else a field without a value is as if it were not there */
};

/* Finds the values of a mapping: ret_nodes[i] is that of fields[i], and left alone where there is none; the last field has
 * no name. Reports fields that are unknown or given twice. */
bool find_fields(struct reader *r, const struct node *node, const struct field *fields, const struct node **ret_nodes);
/* Reads one of them; node NULL: it is missing. */
void read_field(struct reader *r, const struct field *field, const struct node *node, void *ret);
/* Both, in the order of `fields`. */
bool read_fields(struct reader *r, const struct node *node, const struct field *fields, void *ret);

/* The elements of a list; of anything else, the thing itself. */
struct walk {
    const struct node_item *next;
    const struct node *only;
    size_t index, path_before;
    bool list, started;
};
struct walk walk_list(const struct node *node);
const struct node *walk_next(struct reader *r, struct walk *walk);

struct list {
    value_reader *read;                             /* one element */
    size_t size;                                    /* of an element */
    size_t min, max;                                /* elements; min is 0 or 1 */
    const char *empty;                              /* what to do about an empty list, if min is 1 */
    bool (*same)(const void *one, const void *two); /* NULL: elements may be equal */
};
/* Returns the elements in the arena; NULL, and *ret_count as it was, after an error. */
void *read_list(struct reader *r, const struct node *node, const struct list *list, size_t *ret_count);
/* The same for elements that are in another arena. What they point to is in that of the set. */
void *read_list_in(struct reader *r, const struct node *node, const struct list *list, struct arena *arena,
                   size_t *ret_count);

bool check_text(struct reader *r, const struct node *node, size_t min, size_t max);
bool read_text(struct reader *r, const struct node *node, size_t min, size_t max, sv *ret); /* a copy in the arena */
bool read_number(struct reader *r, const struct node *node, uint64_t min, uint64_t max, uint64_t *ret);
bool read_bool(struct reader *r, const struct node *node, bool *ret);
bool read_word(struct reader *r, const struct node *node, const char *const *names, int *ret);
bool http_token(sv text);
/* { NAME: value, … } */
bool read_headers(struct reader *r, const struct node *node, struct rule_header **ret, size_t *ret_count);
bool check_named_map(struct reader *r, const struct node *node, enum attribute attribute); /* a mapping, not too large */
bool check_header(struct reader *r, const struct node *map, const struct node_item *item); /* its name, not given before */
bool check_entry(struct reader *r, const struct node *map, const struct node_item *item);  /* the same, without its form */
bool check_header_value(struct reader *r, int line, sv value);
sv reader_copy(struct reader *r, sv text);
sv reader_copy_lower(struct reader *r, sv text);
sv reader_copy_upper(struct reader *r, sv text);
void *reader_alloc(struct reader *r, size_t size);
struct rule_rest *reader_rest(struct reader *r);            /* r->kind.rest, to write what the rule at hand has */
void reader_keep_kind(struct reader *r, struct rule *rule); /* rule->kind is then in the set, and not r->kind */
void *reader_list(struct reader *r, size_t size);           /* for `rules` or `overrides` of the set; without zeroes */

/* ---- include.c ---- */

/* The document of a file and of all that it includes: `root` itself if there is no `include`. A file that cannot be read is
 * left out, and the report is `unreadable`. */
const struct node *read_included(struct reader *r, sv text, const struct node *root, struct included *included);

/* ---- read.c ---- */

/* Clears r->report and makes r->rules. False: no memory. */
bool reader_begin(struct reader *r);
/* The rules, with a sorted report; NULL, and an empty report, if there was no memory. */
struct rules *reader_end(struct reader *r);
bool id_valid(const struct node *node);
/* `twin`: the id of an earlier rule, the same as this one's. */
bool read_rule(struct reader *r, const struct node *node, const struct node *twin, struct rule *rule);

/* ---- the parts of a rule ---- */

value_reader read_match, read_except, read_reject, read_settings;
/* These read into r->kind; `ret` is the struct rule, for errors. */
value_reader read_by, read_limits, read_counters, read_lease, read_on_failure, read_hold_max;
value_reader read_plan, read_plans;                                                /* after the limits */
value_reader read_penalty, read_replaces;                                          /* after the mode */
bool read_entry_name(struct reader *r, const struct node *node, sv text, sv *ret); /* see descriptor_name_read() */
value_reader read_attribute;                                                       /* a struct rule_by */
value_reader read_regex, read_expiry;                                              /* an sv, an int64_t in microseconds */
value_reader read_cidr;                                                            /* a struct cidr */
int setting_find(sv name);                                                         /* -1: there is none of this name */
struct cidr *read_cidrs(struct reader *r, const struct node *node, size_t max, size_t *ret_count);
/* NULL, and *ret_count as it was, after an error. */
const struct rule_limit *read_limit_list(struct reader *r, const struct node *node, size_t *ret_count);
bool limit_can_be_leased(const struct rule_limit *limit);
/* The advice of errors about a slot in a leased rule. */
#define SLOTS_APART "put it into a rule of its own with `counters: local`"
bool host_character(char c);
/* The name without its port and the dot of a full name; empty if it is not a valid host. */
sv host_name(sv text);
/* Reports errors in the plans as a whole; `node` is the rule's. */
void check_plans(struct reader *r, const struct node *node, const struct rule *rule);
/* Reports what does not go with `limits: given` and `limits: none`; `node` is the rule's. */
void check_limit_words(struct reader *r, const struct node *node, const struct rule *rule);
/* A template, or a prefix to strip: collapsed, decoded as paths are, without a slash at the end. */
value_reader read_template, read_prefix;

/* Lengths of time, "90s" */
enum amount_found read_length(sv text, int64_t min_us, int64_t max_us, int64_t *ret_us);

extern const struct rule_lease lease_default; /* `lease: true` */
extern const int64_t slot_ttl_default_us;     /* `concurrent` without `ttl` */

/* ---- overrides.c, by_values.c ---- */

/* Overrides, as they are read: after the rules. */
struct override_reader {
    struct reader *r;
    struct id_entry *good; /* the rules of the set, by id */
    struct rule_override *list;
    size_t count;
    sv values[RULE_BY_MAX]; /* the subject of the row at hand */
};
/* With room for `most`. False: no memory. */
bool overrides_begin(struct override_reader *o, struct reader *r, size_t most);
/* Says whom a row is for, before its document is read: errors that follow are of that override. False: it cannot be read;
 * report_bad_override() follows. */
bool overrides_name(struct override_reader *o, const struct rule_row *row);
/* Takes over what was read from the row before, if the rule that it is for has not changed. False: it has to be read. */
bool overrides_share(struct override_reader *o, const struct rule_row *row);
/* Reads one; `row` is NULL for those of a list. */
void overrides_read(struct override_reader *o, const struct node *node, const struct rule_row *row);
/* Finds subjects that are there twice, and puts the others into the set. */
void overrides_end(struct override_reader *o);
value_reader read_overrides; /* of a struct rules */

/* A value of `by` as facts give it, in `arena`; a path as it is. False: it is not one, and *ret_allowed says what is (or no
 * memory, and *ret_allowed is NULL). */
bool by_value(const struct settings *settings, const struct rule_by *by, sv text, struct arena *arena, sv *ret,
              const char **ret_allowed);
size_t by_value_max(const struct rule_by *by); /* bytes of a value as it is written */
bool same_values(const sv *a, size_t a_count, const sv *b, size_t b_count);
int override_compare(const struct rule_override *a, const struct rule_override *b); /* by rule and subject */

bool same_conditions(const struct rule_condition *a, size_t a_count, const struct rule_condition *b, size_t b_count);
bool same_short_rests(const struct rule_rest *a, const struct rule_rest *b); /* lists apart */
bool same_by_lists(const struct rule_by *a, size_t a_count, const struct rule_by *b, size_t b_count);

/* ---- share_lists.c ---- */

void shared_lists_done(struct shared_lists *s);
/* Returns an earlier list that is equal: the caller gives the new one back to its arena. If there is no such list, returns
 * the new one, which must not change from then on. */
const struct rule_limit *share_limits(struct shared_lists *s, const struct rule_limit *limits, size_t count);
const struct rule_by *share_by(struct shared_lists *s, const struct rule_by *by, size_t count);
/* A rest that has lists or long texts is not shared. */
const struct rule_rest *share_rest(struct shared_lists *s, const struct rule_rest *rest);
const struct rule_condition *share_conditions(struct shared_lists *s, const struct rule_condition *conditions,
                                              size_t count);
/* The lists of the kind must be shared already. */
const struct rule_kind *share_kind(struct shared_lists *s, const struct rule_kind *kind);

/* ---- zones.c ---- */

const struct zone *read_zone(struct reader *r, const struct node *node); /* node NULL: UTC */
/* The zone of another set, in this one. NULL: no memory. */
const struct zone *zone_copy(struct rules *rules, const struct zone *zone);

/* ---- write_yaml.c: the parts of rules_write(), in their order ---- */

void write_before_rules(struct buf *out, const struct rules *rules);
void write_rule(struct buf *out, const struct rule *rule);
void write_overrides(struct buf *out, const struct rules *rules);

/* ---- quote.c ---- */

/* ---- copy.c, ids.c ---- */

void rules_build_on(struct rules *rules, struct rules *base); /* shares its memory */
/* Returns a copy of a list, or an equal list of the same arena. NULL: no memory, or an empty list. */
const struct rule_condition *conditions_copy(struct arena *arena, struct shared_lists *shared,
                                             const struct rule_condition *from, size_t count);
bool settings_copy(struct arena *arena, const struct settings *from, struct settings *ret);

/* Ids, sorted: to find one, and to find those that are there twice. */
struct id_entry {
    sv id;
    size_t index;
};
void ids_sort(struct id_entry *ids, size_t count);        /* the same id: by index */
struct id_entry *ids_of_rules(const struct rules *rules); /* to be freed; NULL: no memory */
const struct id_entry *ids_find(const struct id_entry *ids, size_t count, sv id);
/* Sorts. For each entry whose id an earlier one has, writes the index of that one plus 1 to twins[index]. */
void ids_find_twins(struct id_entry *ids, size_t count, size_t *twins);

#endif
