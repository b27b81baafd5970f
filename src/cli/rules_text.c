/* weir rules: rules, rows and errors as people and programs read them. */
#include "base/clock.h"
#include "base/instant.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"

int rules_fail(const struct weir_error *error)
{
    plain_say(weir_str(error->text));
    return error->code == WEIR_E_UNKNOWN_RULE ? RULES_NOTHING : EXIT_BAD;
}

int rules_read_source(struct rules_call *call, struct source_reading *ret)
{
    struct weir_error error = { 0 };
    if (source_read(call->source, NULL, ret, &error) == 0)
        return -1;
    rules_fail(&error);
    return EXIT_BAD;
}

int rules_print(struct buf *text, int status)
{
    if (text->failed)
        status = cli_error("out of memory");
    else
        fwrite(buf_sv(text).ptr, 1, text->len, stdout);
    buf_done(text);
    return status;
}

/* ---- rows ---- */

void rules_add_time(sv text, struct buf *out)
{
    int64_t us;
    char whole[INSTANT_TEXT_MAX];
    if (!instant_parse_rfc3339(text, &us) || !clock_valid(us)) {
        buf_add(out, text);
        return;
    }
    instant_text(us - us % US_PER_S, whole);
    buf_add(out, weir_str(whole));
}

bool rules_is_setting(const struct source_row *row)
{
    return row->rule.len == 0 && !sv_eq(row->table, SV("WEIR_RULES"));
}
