/* weir rules init, add, set, disable, enable, rm, import: one change each. */
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/instant.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"

#define MILLISECONDS_FROM UINT64_C(100000000000)
#define EXPIRY_END_US (INT64_C(253402300800) * US_PER_S) /* the year 10000 */

int rules_init(struct rules_call *call)
{
    struct weir_error error = { 0 };
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, 1 << 20);
    if (source_init(call->source, &out, &error) < 0)
        return rules_fail(&error);
    if (out.len == 0)
        buf_printf(&out, "%s: all tables exist\n", source_name(call->source));
    return cli_print(&out, RULES_DONE);
}

int rules_add(struct rules_call *call)
{
    struct weir_error error = { 0 };
    CLEANUP(buf_done) struct buf text = { 0 };
    sv rule = weir_str(call->words[0]);
    if (!sv_starts(sv_trim(rule), SV("{"))) {
        if (!cli_read_named(call->words[0], &text))
            return EXIT_BAD;
        rule = buf_sv(&text);
    }
    if (source_put(call->source, rule, call->options->replace, call->author, &error) < 0)
        return rules_fail(&error);
    printf("the rule is in %s\n", source_name(call->source));
    return RULES_DONE;
}

/* RFC 3339, or whole seconds since 1970. Numbers from MILLISECONDS_FROM on (in seconds: the year 5138) are milliseconds. */
static bool read_expiry(sv text, int64_t *ret_us)
{
    int64_t us;
    uint64_t number;
    if (sv_u64(text, EXPIRY_END_US / US_PER_MS, &number))
        us = (int64_t)number * (number < MILLISECONDS_FROM ? US_PER_S : US_PER_MS);
    else if (!instant_parse_rfc3339(text, &us))
        return false;
    if (us < 0 || us >= EXPIRY_END_US)
        return false;
    *ret_us = us;
    return true;
}

int rules_set(struct rules_call *call)
{
    struct weir_error error = { 0 };
    sv id = weir_str(call->words[0]), value = weir_str(call->words[1]), field = sv_cut(&value, '=');
    if (!strchr(call->words[1], '=') || field.len == 0)
        return options_error(call->command, "'%s' is not allowed here; allowed: FIELD=VALUE, such as max=20",
                             call->words[1]);
    /* The same forms as for --expires and the column; rules files accept seconds only. */
    int64_t us;
    char until[INSTANT_TEXT_MAX];
    if (sv_eq(field, SV("expires")) && read_expiry(value, &us)) {
        instant_text(us, until);
        value = weir_str(until);
    }
    if (source_set(call->source, id, field, value, call->author, &error) < 0)
        return rules_fail(&error);
    printf("%s: %s\n", call->words[0], call->words[1]);
    return RULES_DONE;
}

/* Whether the rule is already enabled, or disabled. Errors of the source or the row are left to the change itself. */
static bool is_already(struct rules_call *call, sv id, bool enabled)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    struct weir_error ignored = { 0 };
    if (source_read(call->source, NULL, &reading, &ignored) < 0)
        return false;
    for (size_t i = 0; i < reading.row_count; i++) {
        const struct source_row *row = &reading.rows[i];
        if (sv_eq(row->rule, id) && row->enabled == enabled &&
            (!enabled || (row->parsed && row->parsed->kind->mode != MODE_OFF)) && !sv_eq(row->table, SV("THROTTLED_CALLS")))
            return true;
    }
    return false;
}

enum change { DISABLE, ENABLE, REMOVE };

static int change_rule(struct rules_call *call, sv id, enum change change, struct weir_error *error)
{
    bool enabled = change == ENABLE;
    if (change == REMOVE)
        return source_remove(call->source, id, call->author, error);
    if (!is_already(call, id, enabled))
        return source_enable(call->source, id, enabled, call->author, error);
    /* Nothing was changed, so the status is the same as for an unknown id. */
    return err_set(error, WEIR_E_UNKNOWN_RULE, "%.*s is already %s; nothing was changed", SV_FMT(id),
                   enabled ? "enabled" : "disabled");
}

/* Changes each rule by itself: if one fails, the others are changed all the same. */
static int change_rules(struct rules_call *call, enum change change)
{
    static const char *const done[] = { [DISABLE] = "disabled", [ENABLE] = "enabled", [REMOVE] = "removed" };
    int worst = RULES_DONE;
    for (size_t i = 0; i < call->word_count; i++) {
        struct weir_error error = { 0 };
        if (change_rule(call, weir_str(call->words[i]), change, &error) < 0) {
            int status = rules_fail(&error);
            worst = status > worst ? status : worst;
        } else {
            printf("%s: %s\n", call->words[i], done[change]);
        }
    }
    return worst;
}

int rules_disable(struct rules_call *call)
{
    return change_rules(call, DISABLE);
}

int rules_enable(struct rules_call *call)
{
    return change_rules(call, ENABLE);
}

int rules_remove(struct rules_call *call)
{
    return change_rules(call, REMOVE);
}

int rules_import(struct rules_call *call)
{
    struct weir_error error = { 0 };
    CLEANUP(buf_done) struct buf text = { 0 }, out;
    buf_init(&out, RULES_OUTPUT_MAX);
    if (!cli_read_named(call->words[0], &text))
        return EXIT_BAD;
    if (source_import(call->source, buf_sv(&text), call->options->replace, call->author, &out, &error) < 0)
        return rules_fail(&error);
    return cli_print(&out, RULES_DONE);
}

int rules_read_until(const struct rules_call *call, int64_t *ret_us)
{
    const struct rules_options *o = call->options;
    *ret_us = RULE_NEVER_EXPIRES;
    if (o->expires && !read_expiry(weir_str(o->expires), ret_us))
        return options_error(call->command,
                             "--expires: '%s' is not allowed here; allowed: a time as in 2027-01-01T00:00:00Z, or whole "
                             "seconds since 1970 (from 100000000000 on: milliseconds)",
                             o->expires);
    if (o->for_ms)
        *ret_us = (clock_now_us() / US_PER_S + ((int64_t)o->for_ms + 999) / 1000) * US_PER_S;
    return -1;
}
