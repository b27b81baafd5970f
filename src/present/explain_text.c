/* The sentences of an explanation, but for the reason why a rule does not apply: see reason.c. */
#include <inttypes.h>
#include <stdio.h>

#include "base/instant.h"
#include "engine/verdict.h"
#include "present/present.h"

/* ---- times ---- */

void span_text(int64_t us, char out[SPAN_TEXT_MAX])
{
    static const struct {
        const char *name;
        int64_t us;
    } units[] = {
        { "d", 86400 * US_PER_S }, { "h", 3600 * US_PER_S }, { "min", 60 * US_PER_S },
        { "s", US_PER_S },         { "ms", US_PER_MS },      { "us", 1 },
    };
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof units[0] && us < units[i].us)
        i++;
    int64_t first = us / units[i].us, rest = us % units[i].us;
    int64_t second = i + 1 < sizeof units / sizeof units[0] ? rest / units[i + 1].us : 0;
    if (second && us < 100 * units[i].us)
        snprintf(out, SPAN_TEXT_MAX, "%lld %s %lld %s", (long long)first, units[i].name, (long long)second,
                 units[i + 1].name);
    else
        snprintf(out, SPAN_TEXT_MAX, "%lld %s", (long long)first, units[i].name);
}

void wait_text(int64_t us, char out[SPAN_TEXT_MAX])
{
    int64_t unit_us = us < US_PER_S           ? US_PER_MS
                      : us < 3600 * US_PER_S  ? US_PER_S
                      : us < 86400 * US_PER_S ? 60 * US_PER_S
                                              : 3600 * US_PER_S;
    span_text((us + unit_us - 1) / unit_us * unit_us, out);
}

/* "; resets in 52 s" */
static void add_wait(struct buf *out, const char *before, int64_t us)
{
    char text[SPAN_TEXT_MAX];
    wait_text(us, text);
    buf_printf(out, "%s%s", before, text);
}

/* ---- rules ---- */

void explain_subject(const struct explained_rule *e, struct buf *out)
{
    buf_add(out, e->rule->kind->by_count ? SV("counts for ") : SV("counts for everybody together"));
    for (size_t i = 0; i < e->rule->kind->by_count; i++) {
        const struct rule_by *by = &e->rule->kind->by[i];
        buf_printf(out, "%s%s ", i ? ", " : "", attribute_table[by->attribute].name.ptr);
        if (by->name.len > 0)
            buf_printf(out, "%.*s ", SV_FMT(by->name));
        buf_add(out, e->by[i].len > 0 ? e->by[i] : SV("(empty)"));
    }
}

static void add_override(const struct rule_override *o, struct buf *out)
{
    static const char *const texts[] = {
        [OVERRIDE_LIMITS] = "an override is in force",
        [OVERRIDE_DENY] = "an override denies every request",
        [OVERRIDE_UNLIMITED] = "an override exempts this subject from the limits of the rule",
    };
    buf_add(out, weir_str(texts[o->kind]));
    if (o->expires_us != RULE_NEVER_EXPIRES) {
        char until[INSTANT_TEXT_MAX];
        instant_text(o->expires_us, until);
        buf_printf(out, " until %s", until);
    }
    if (o->why.len > 0)
        buf_printf(out, ": %.*s", SV_FMT(o->why));
}

static void add_plan(const struct explained_rule *e, struct buf *out)
{
    const struct rule_by *by = &e->rule->kind->rest->plan;
    if (e->plan)
        buf_printf(out, "plan %.*s, chosen by ", SV_FMT(e->plan->name));
    else
        buf_add(out, SV("no plan applies: "));
    buf_printf(out, "%s%s%.*s", attribute_table[by->attribute].name.ptr, by->name.len ? " " : "", SV_FMT(by->name));
    if (!e->plan && !fact_is_there(by, e->plan_value))
        buf_add(out, SV(" is missing"));
    else if (!e->plan)
        buf_printf(out, " is %.*s", SV_FMT(e->plan_value));
    if (!e->plan && e->limit_count == 0)
        buf_add(out, SV("; the rule has no limits for that"));
}

bool explain_choice(const struct explained_rule *e, struct buf *out)
{
    if (e->override)
        add_override(e->override, out);
    else if (e->rule->kind->rest->plan_count > 0)
        add_plan(e, out);
    else if (e->rule->kind->unlimited)
        buf_add(out, SV("it has `limits: none`, and limits nothing"));
    return e->override || e->rule->kind->rest->plan_count > 0 || e->rule->kind->unlimited;
}

bool explain_where(const struct explained_rule *e, bool has_store, struct buf *out)
{
    bool unknown = e->limit_count > 0 && e->limits[0].unknown;
    const char *text = "";
    if (e->counting == COUNTER_STORE)
        text = unknown ? "counts in the store, which does not answer" : "counts in the store, for all hosts together";
    else if (e->counting == COUNTER_SLICE && has_store)
        text = unknown ? "is leased from the store, which does not answer"
                       : "is leased from the store: what is lent to hosts counts as used";
    else if (e->counting == COUNTER_SLICE)
        text = "is leased from a store; --counters ADDRESS shows what is used there";
    else if (e->rule->kind->counters == COUNTERS_SHARED && !e->override)
        text = "counts on this host, because no store is given (--counters ADDRESS)";
    buf_add(out, weir_str(text));
    return text[0];
}

/* "until 2026-03-01T12:00:00Z" */
static void add_until(struct buf *out, const char *before, int64_t at_us)
{
    char until[INSTANT_TEXT_MAX];
    instant_text(clock_within(at_us) / US_PER_MS * US_PER_MS, until);
    buf_printf(out, "%suntil %s", before, until);
}

/* "after 5 refusals within 1 min" */
static void add_cause(struct buf *out, const struct penalty_cause *cause)
{
    char within[SPAN_TEXT_MAX];
    span_text(cause->within_us, within);
    if (cause->by_hand)
        buf_add(out, SV("set by hand"));
    else
        buf_printf(out, "after %u %s within %s", cause->after, cause->after == 1 ? "refusal" : "refusals", within);
}

void explain_note_penalty(const struct explained_rule *e, struct penalty_cause *cause)
{
    const struct rule_penalty *p = &e->rule->kind->rest->penalty;
    if (e->rule->kind->mode == MODE_ENFORCE && e->penalty.rest_us > cause->rest_us)
        *cause = (struct penalty_cause){ e->penalty.rest_us, e->penalty.by_hand, p->after, p->within_us };
}

bool explain_penalty(const struct explained_rule *e, int64_t now_us, struct buf *out)
{
    const struct rule_penalty *p = &e->rule->kind->rest->penalty;
    bool counts = p->after > 0 && e->rule->kind->mode == MODE_ENFORCE && e->limit_count > 0;
    if (!counts)
        return false;
    struct penalty_cause cause = { 0 };
    explain_note_penalty(e, &cause);
    if (cause.rest_us > 0) {
        add_wait(out, "penalised for another ", cause.rest_us);
        add_until(out, ", ", now_us + cause.rest_us);
        buf_add(out, SV(", "));
        add_cause(out, &cause);
    } else
        buf_printf(out, "not penalised: %u of %u refusals", e->penalty.refused, p->after);
    if (e->penalty.level > 0) {
        bool more = e->penalty.level > 1;
        buf_printf(out, more ? "; %u penalties in a row" : "; %u penalty", e->penalty.level);
        add_wait(out, ", the next one lasts ", penalty_length_us(p, e->penalty.level + 1));
    }
    return true;
}

void explain_usage(const struct explained_rule *e, const struct explained_limit *l, struct buf *out)
{
    char end[INSTANT_TEXT_MAX];
    if (e->counting == COUNTER_SLICE)
        buf_printf(out, "this host holds %u unspent; ", l->held);
    if (l->unknown) {
        buf_add(out, SV("the use is unknown"));
        return;
    }
    /* Nobody knows when a slot is given back. */
    bool slots = l->spec->algorithm == LIMIT_CONCURRENT;
    buf_printf(out, "%" PRIu64 " of %" PRIu64 " %s", l->limit.capacity - l->report.remaining, l->limit.capacity,
               slots ? "in flight" : "used");
    if (l->report.debt > 0)
        buf_printf(out, "; %" PRIu64 " in debt", l->report.debt);
    if (l->report.reset_us > 0 && !slots)
        add_wait(out, "; resets in ", l->report.reset_us);
    if (l->spec->algorithm == LIMIT_CALENDAR && clock_valid(l->window.end_us)) {
        instant_text(l->window.end_us, end);
        const char *unit = unit_names[l->spec->unit];
        buf_printf(out, "; the %s ends at %s", unit ? unit : "window", end);
    }
    if (!l->fits && l->report.retry_after_us < 0)
        buf_printf(out, "; never has room for %" PRIu64, l->cost);
    else if (!l->fits)
        add_wait(out, "; retry in ", l->report.retry_after_us);
}

void explain_uncounted(sv unit, struct buf *out)
{
    buf_printf(out, "no limit that applies counts the unit %.*s, so this cost has no effect", SV_FMT(unit));
}

/* ---- the verdict ---- */

/* The limits may have room, so none is named. If one has none, the wait may be longer than the penalty. */
static void add_penalty(const struct weir_verdict *v, const struct penalty_cause *cause, int64_t now_us, struct buf *out)
{
    buf_add(out, cause->by_hand ? SV("a penalty; ") : SV("a penalty for too many refusals; "));
    if (v->retry_after_ms == WEIR_NEVER)
        buf_add(out, SV("no wait will help"));
    else
        add_wait(out, "retry in ", v->retry_after_ms * US_PER_MS);
    if (cause->rest_us == 0)
        return;
    add_until(out, "; it lasts ", now_us + cause->rest_us);
    buf_add(out, SV(", "));
    add_cause(out, cause);
}

void explain_verdict(const struct weir_verdict *v, const struct penalty_cause *cause, int64_t now_us, struct buf *out)
{
    if (verdict_is_repeated(v))
        buf_printf(out, "refused: the header %s is repeated with different values (settings: repeated_headers)", v->limit);
    else if (!v->applied)
        buf_add(out, SV("allowed: no enforced rule limits this request"));
    else if (v->allowed)
        buf_printf(out, "allowed: the least is left of %s, limit %s: %" PRIu64 " of %" PRIu64 "%s%s", v->rule, v->limit,
                   v->remaining, v->max, v->unit[0] ? " " : "", v->unit);
    else
        buf_printf(out, "refused by %s%s%s: ", v->rule, v->penalty ? "" : ", limit ", v->penalty ? "" : v->limit);
    if (v->allowed || !v->applied)
        return;
    if (v->penalty)
        add_penalty(v, cause, now_us, out);
    else if (v->unavailable)
        buf_add(out, SV("the store does not answer, and its on_store_failure is deny"));
    else if (v->retry_after_ms == WEIR_NEVER)
        buf_add(out, SV("no wait will help"));
    else
        add_wait(out, "retry in ", v->retry_after_ms * US_PER_MS);
}
