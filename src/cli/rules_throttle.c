/* weir rules throttle: limits one call, with a rule or with a row of THROTTLED_CALLS. */
#include "base/clock.h"
#include "base/err.h"
#include "base/instant.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"

enum { TEXT_BYTES_MAX = 64 << 10 };

/* Reads a rule with this `by` and this limit, both in JSON, with the reader of rules files, so that both mean the same and
 * have the same errors. NULL: *why says what is wrong. */
static struct rules *read_rule(sv by, sv limit, struct buf *why)
{
    CLEANUP(buf_done) struct buf list;
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    buf_init(&list, 1 << 20);
    buf_printf(&list, "[{\"id\":\"x\",\"by\":%.*s,\"limits\":[%.*s]}]", SV_FMT(by), SV_FMT(limit));
    struct rules *rules = list.failed ? NULL : rules_read_list(buf_sv(&list), NULL, &report);
    if (rules && report.error_count == 0 && rules->rule_count == 1)
        return rules;
    sv text = report.error_count > 0 ? report.errors[0].text : SV("");
    if (report.error_count > 0) /* the command has one limit, and the user does not see a list of them */
        buf_add(why, sv_starts(text, SV("limits[0]: ")) ? sv_from(text, strlen("limits[0]: ")) : text);
    else
        buf_add(why, SV("out of memory"));
    rules_free(rules);
    return NULL;
}

/* --by as a list in JSON. -1 to go on, or the exit status. */
static int read_by(const struct rules_call *call, struct buf *ret)
{
    const char *given = call->options->by ? call->options->by : "user";
    sv rest = weir_str(given);
    CLEANUP(buf_done) struct buf why;
    buf_init(&why, 4000);
    buf_char(ret, '[');
    while (rest.len > 0 && strcmp(given, "all") != 0) {
        buf_add(ret, ret->len > 1 ? SV(",") : SV(""));
        buf_json(ret, sv_trim(sv_cut(&rest, ',')));
    }
    buf_char(ret, ']');
    CLEANUP(rules_freep) struct rules *rules = read_rule(buf_sv(ret), SV("\"1 per 1s\""), &why);
    if (rules && given[0])
        return -1;
    /* It was the author in earlier versions. */
    return options_error(call->command,
                         "--by: %s%.*s; it says whom the limit counts for: user, ip, key, another attribute, or all; who "
                         "makes the change is --author %s",
                         given[0] ? "" : "empty", SV_FMT(buf_sv(&why)), given[0] && !strpbrk(given, ",:") ? given : "WHO");
}

/* The words after the call as a text in JSON, such as "10 per 60s". */
static void limit_words(const struct rules_call *call, struct buf *ret)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    for (size_t i = 1; i < call->word_count; i++)
        buf_printf(&text, "%s%s", i > 1 ? " " : "", call->words[i]);
    buf_json(ret, buf_sv(&text));
    ret->failed |= text.failed;
}

/* A row of THROTTLED_CALLS is a number of calls in whole seconds, by user. -1 to go on, or the exit status. */
static int fits_row(const struct rules_call *call, const struct rule_limit *limit, sv by)
{
    if (!sv_eq(by, SV("[\"user\"]")))
        return options_error(call->command, "throttle: a row of THROTTLED_CALLS counts by user; leave out --by or --row");
    if (limit->algorithm == LIMIT_TOKEN_BUCKET && limit->burst == limit->max && limit->cost_unit.len == 0 &&
        limit->per_us % US_PER_S == 0)
        return -1;
    return options_error(call->command,
                         "throttle: a row of THROTTLED_CALLS holds a number of calls in whole seconds, such as 10 per 60s, "
                         "and no other limit; leave out --row for that");
}

static void add_whom(const struct rule *rule, const char *called, struct buf *out)
{
    buf_add(out, rule->kind->by_count ? SV("for each ") : SV("for all callers"));
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        buf_add(out, i ? SV(" and ") : SV(""));
        rule_by_text(&rule->kind->by[i], out);
    }
    buf_add(out, SV(" of "));
    plain_add(out, weir_str(called), TEXT_BYTES_MAX);
    buf_add(out, rule->kind->by_count ? SV("") : SV(" together"));
}

/* "ID: 10 per 1m as a token bucket, for each ip of GET /entity/#, until 2027-01-01T00:00:00Z" */
static int print_done(const struct rules_call *call, const char *id, const struct rule *rule, int64_t expires_us)
{
    static const char *const kinds[] = { [LIMIT_TOKEN_BUCKET] = "a token bucket",
                                         [LIMIT_FIXED_WINDOW] = "a fixed window",
                                         [LIMIT_CALENDAR] = "a calendar window",
                                         [LIMIT_CONCURRENT] = "slots" };
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, 1 << 20);
    buf_printf(&out, "%s: ", id);
    rule_limit_text(&rule->kind->limits[0], &out);
    buf_printf(&out, " as %s, ", kinds[call->options->row ? LIMIT_FIXED_WINDOW : rule->kind->limits[0].algorithm]);
    add_whom(rule, call->words[0], &out);
    if (expires_us != RULE_NEVER_EXPIRES) {
        char until[INSTANT_TEXT_MAX];
        instant_text(expires_us, until);
        buf_printf(&out, ", until %s", until);
    }
    buf_char(&out, '\n');
    return cli_print(&out, RULES_DONE);
}

/* -1 to go on, or the exit status. */
static int check_wanted(const struct rules_call *call, const struct source_throttle *wanted)
{
    if (!utf8_valid(wanted->call))
        return options_error(call->command, "throttle: CALL is not UTF-8; write other bytes of a path as %%XX");
    if (wanted->expires_us <= clock_now_us())
        return options_error(call->command, "--expires: '%s' has passed; leave it out for a rule that does not expire",
                             call->options->expires);
    return -1;
}

int rules_throttle(struct rules_call *call)
{
    struct weir_error error = { 0 };
    struct source_throttle wanted = { .call = weir_str(call->words[0]) };
    char id[WEIR_ID_MAX + 1];
    CLEANUP(buf_done) struct buf by, limit, why;
    buf_init(&by, TEXT_BYTES_MAX);
    buf_init(&limit, TEXT_BYTES_MAX);
    buf_init(&why, 4000);
    int status = read_by(call, &by);
    if (status < 0)
        status = rules_read_until(call, &wanted.expires_us);
    if (status < 0)
        status = check_wanted(call, &wanted);
    if (status >= 0)
        return status;
    limit_words(call, &limit);
    CLEANUP(rules_freep) struct rules *rules = limit.failed ? NULL : read_rule(buf_sv(&by), buf_sv(&limit), &why);
    if (!rules)
        return options_error(call->command, "throttle: %.*s", SV_FMT(limit.failed ? SV("too long") : buf_sv(&why)));
    const struct rule *rule = rules->rules[0];
    if (call->options->row && (status = fits_row(call, &rule->kind->limits[0], buf_sv(&by))) >= 0)
        return status;
    wanted.by = buf_sv(&by);
    wanted.limit = buf_sv(&limit);
    int r = call->options->row ? source_throttle(call->source, wanted.call, rule->kind->limits[0].max,
                                                 rule->kind->limits[0].per_us, wanted.expires_us, call->author, id, &error)
                               : source_put_throttle(call->source, &wanted, call->author, id, &error);
    return r < 0 ? rules_fail(&error) : print_done(call, id, rule, wanted.expires_us);
}
