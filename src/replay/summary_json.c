/* The summary of a replay, for programs. */
#include "base/cleanup.h"
#include "base/instant.h"
#include "replay/pseudonym.h"
#include "replay/replay.h"

enum { STEPS = 100 }; /* of the series, at most */

struct output {
    unsigned top;
    bool hashed;
    const struct totals *totals;
    struct buf *out;
    struct columns columns;
    uint32_t *subjects;
};

static void add_number(struct buf *out, const char *name, uint64_t n)
{
    buf_printf(out, ",\"%s\":%llu", name, (unsigned long long)n);
}

static void add_instant(struct buf *out, const char *name, int64_t us)
{
    char text[INSTANT_TEXT_MAX];
    instant_text(us, text);
    buf_printf(out, ",\"%s\":\"%s\"", name, text);
}

static void add_series(const struct output *p, const char *name, const struct series *series)
{
    buf_printf(p->out, ",\"%s\":[", name);
    for (size_t i = 0; i < p->columns.count; i++)
        buf_printf(p->out, "%s%llu", i ? "," : "",
                   series ? (unsigned long long)columns_count(&p->columns, &p->totals->timeline, series, i) : 0);
    buf_char(p->out, ']');
}

static void add_subject(const struct output *p, uint32_t index)
{
    sv parts = subject_parts(intern_text(&p->totals->subject_names, index)), attribute, value;
    buf_add(p->out, SV("{\"by\":{"));
    for (bool first = true; subject_next(&parts, &attribute, &value); first = false) {
        buf_add(p->out, weir_str(first ? "" : ","));
        buf_json(p->out, attribute);
        buf_char(p->out, ':');
        buf_json_pseudonym(p->out, value, p->hashed && sv_eq(attribute, SV("ip")));
    }
    buf_char(p->out, '}');
    add_number(p->out, "refused", p->totals->subjects[index].refusals);
    buf_char(p->out, '}');
}

/* Rules and subjects are both in the order of the rules: *next is the first subject not yet passed. */
static void add_rule(const struct output *p, uint32_t index, size_t *next)
{
    const struct totals_rule *row = &p->totals->rules[index];
    buf_add(p->out, SV("{\"id\":"));
    buf_json(p->out, intern_text(&p->totals->ids, index));
    buf_printf(p->out, ",\"mode\":\"%s\"", mode_names[row->mode]);
    add_number(p->out, "requests", row->applied);
    add_number(p->out, "passed", row->passed);
    add_number(p->out, "refused", row->refused);
    add_number(p->out, "would_refuse", row->would_refuse);
    if (row->over_time)
        add_series(p, "refused_over_time", row->over_time);
    buf_add(p->out, SV(",\"subjects\":["));
    size_t count = 0;
    for (; *next < p->totals->subject_names.count && p->totals->subjects[p->subjects[*next]].rule == index;
         (*next)++, count++) {
        if (count >= p->top)
            continue;
        buf_add(p->out, weir_str(count ? "," : ""));
        add_subject(p, p->subjects[*next]);
    }
    buf_add(p->out, SV("]"));
    add_number(p->out, "subject_count", count);
    buf_char(p->out, '}');
}

void replay_json(const struct replay *replay, unsigned top, bool hashed, struct buf *out)
{
    const struct totals *t = &replay->totals;
    struct output p = { .top = top, .hashed = hashed, .totals = t, .out = out };
    struct weir_status status;
    CLEANUP_FREE uint32_t *subjects = p.subjects = totals_subjects_sorted(t);
    if (!subjects) {
        out->failed = true;
        return;
    }
    p.columns = timeline_columns(&t->timeline, STEPS);
    buf_printf(out, "{\"requests\":%llu", (unsigned long long)t->requests);
    add_number(out, "passed", t->passed);
    add_number(out, "refused", t->refused);
    add_number(out, "no_rule", t->unmatched);
    add_number(out, "rule_changes", t->rule_changes);
    add_number(out, "bad_lines", t->bad_lines);
    add_number(out, "unreadable_addresses", t->unreadable);
    add_number(out, "shadow_left_out", t->shadow_left_out);
    if (t->requests) {
        add_instant(out, "from", t->timeline.first_us);
        add_instant(out, "to", t->timeline.last_us);
        buf_add(out, SV(",\"over_time\":{"));
        buf_printf(out, "\"step_ms\":%lld", (long long)(p.columns.width_us / US_PER_MS));
        add_instant(out, "start", p.columns.start_us);
        add_series(&p, "passed", t->passed_over_time);
        add_series(&p, "refused", t->refused_over_time);
        buf_char(out, '}');
    }
    buf_add(out, SV(",\"rules\":["));
    size_t next = 0;
    for (size_t i = 0; i < t->ids.count; i++) {
        buf_add(out, weir_str(i ? "," : ""));
        add_rule(&p, (uint32_t)i, &next);
    }
    weir_status(replay->weir, &status);
    buf_printf(out, "],\"cells\":{\"count\":%llu", (unsigned long long)status.cells);
    add_number(out, "drops", status.drops);
    add_number(out, "drops_at_limit", status.drops_at_limit);
    buf_add(out, SV("}}"));
}
