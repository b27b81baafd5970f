/* weir rules: what several verbs do. */
#include "base/clock.h"
#include "base/instant.h"
#include "cli/cli.h"
#include "cli/rules_cmd.h"

int rules_fail(const struct weir_error *error)
{
    cli_fail(error);
    return error->code == WEIR_E_UNKNOWN_RULE ? RULES_NOTHING : EXIT_BAD;
}

int rules_read_source(struct rules_call *call, struct source_reading *ret)
{
    struct weir_error error = { 0 };
    return source_read(call->source, NULL, ret, &error) == 0 ? -1 : cli_fail(&error);
}

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
