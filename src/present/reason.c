/* Why a rule does not apply, as a sentence. */
#include "base/instant.h"
#include "present/present.h"

enum { PATHS_SHOWN = 5 };

/* "the method must be POST or PUT, and is GET". */
static void add_mismatch(struct buf *out, const char *what, sv is, const sv *wanted, size_t count)
{
    buf_printf(out, "the %s must be ", what);
    for (size_t i = 0; i < count; i++) {
        buf_add(out, weir_str(i == 0 ? "" : i + 1 == count ? " or " : ", "));
        buf_add(out, wanted[i]);
    }
    buf_add(out, SV(", and is "));
    buf_add(out, is.len ? is : SV("not given"));
}

static void add_paths(struct buf *out, const struct rule_match *match)
{
    buf_add(out, SV("the path does not fit "));
    for (size_t i = 0; i < match->path_count && i < PATHS_SHOWN; i++) {
        buf_add(out, weir_str(i ? ", " : ""));
        buf_add(out, weir_str(match->paths[i].is_regex ? "regex " : ""));
        buf_add(out, match->paths[i].text);
    }
    buf_add(out, weir_str(match->path_count > PATHS_SHOWN ? ", ..." : ""));
}

static void add_header(struct buf *out, const struct rule_match *match, sv name)
{
    buf_add(out, SV("the header "));
    buf_add(out, name);
    buf_add(out, SV(" is not "));
    for (size_t i = 0; i < match->header_count; i++)
        if (sv_eq(match->headers[i].name, name))
            buf_add(out, match->headers[i].value);
}

static void add_expiry(struct buf *out, int64_t us)
{
    char text[INSTANT_TEXT_MAX];
    instant_text(us, text);
    buf_printf(out, "it expired at %s", text);
}

void explain_reason(const struct explained_rule *rule, const struct weir_request *request, struct buf *out)
{
    const struct rule_match *match = &rule->rule->match;
    switch (rule->reason) {
    case MATCH_YES:
        break;
    case MATCH_OFF:
        buf_add(out, SV("it is off"));
        break;
    case MATCH_EXPIRED:
        add_expiry(out, rule->rule->expires_us);
        break;
    case MATCH_EVENT:
        add_mismatch(out, "event", request->event, &match->event, 1);
        break;
    case MATCH_METHOD:
        add_mismatch(out, "method", request->method, match->methods, match->method_count);
        break;
    case MATCH_HOST:
        add_mismatch(out, "host", request->host, &match->host, 1);
        break;
    case MATCH_PATH:
        add_paths(out, match);
        break;
    case MATCH_HEADER:
        add_header(out, match, rule->detail);
        break;
    case MATCH_EXCEPT_IP:
    case MATCH_EXCEPT_USER:
        buf_printf(out, "the %s is excepted%s", rule->reason == MATCH_EXCEPT_IP ? "client's address" : "user",
                   rule->detail.len ? " from all rules, in the settings" : "");
        break;
    case MATCH_NO_ATTRIBUTE:
        buf_add(out, SV("it counts by "));
        buf_add(out, rule->detail);
        buf_add(out, SV(", which the request does not have"));
        break;
    case MATCH_REPEATED:
        buf_add(out, SV("the request repeats the header "));
        buf_add(out, rule->detail);
        buf_add(out, rule->rule->mode == MODE_ENFORCE ? SV(" with different values, and is refused for that")
                                                      : SV(" with different values, and would be refused for that"));
        break;
    }
}
