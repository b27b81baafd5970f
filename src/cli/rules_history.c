/* weir rules history, undo: who changed what, and back. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"

enum { MOST_DEFAULT = 20, TEXT_MAX = 4000 };

struct history {
    struct term term;
    struct buf *out;
    size_t count;
    bool json;
};

/* The text of a row in one line: for a whole rule only its document, since "enable" and "disable" say the rest. */
static void flatten(sv text, struct buf *out)
{
    json_auto_t *row = text.len ? source_json_load(text) : NULL;
    const json_t *rule = json_object_get(row, "rule");
    CLEANUP_FREE char *line = rule ? json_dumps(rule, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (line)
        buf_add(out, weir_str(line));
    else
        buf_add(out, text);
}

static void add_version(struct history *h, const char *mark, const char *color, sv text)
{
    if (text.len == 0)
        return;
    buf_printf(h->out, "      %s%s ", color, mark);
    plain_add(h->out, text, TEXT_MAX);
    buf_printf(h->out, "%s\n", color[0] ? term_plain(&h->term) : "");
}

static void add_versions(struct history *h, const struct source_event *event)
{
    CLEANUP(buf_done) struct buf before, after;
    buf_init(&before, RULES_OUTPUT_MAX);
    buf_init(&after, RULES_OUTPUT_MAX);
    flatten(event->before, &before);
    flatten(event->after, &after);
    if (!sv_eq(buf_sv(&before), buf_sv(&after))) {
        add_version(h, "-", term_red(&h->term), buf_sv(&before));
        add_version(h, "+", term_green(&h->term), buf_sv(&after));
    }
}

static void add_event(struct history *h, const struct source_event *event)
{
    CLEANUP(buf_done) struct buf line;
    buf_init(&line, RULES_OUTPUT_MAX);
    rules_add_time(event->at, &line);
    bool change = source_event_is_change(event);
    sv row = change ? event->table : event->key.len ? event->key : SV("everybody");
    buf_printf(&line, "  %.*s  %.*s %.*s (%s%.*s)%s%.*s", SV_FMT(event->who), SV_FMT(event->what),
               SV_FMT(event->rule.len ? event->rule : event->key), change ? "" : "cannot be undone; subject ", SV_FMT(row),
               event->note.len ? "  " : "", SV_FMT(event->note));
    buf_printf(h->out, "%4" PRId64 "  ", event->number);
    plain_add(h->out, buf_sv(&line), TEXT_MAX);
    buf_char(h->out, '\n');
    if (change)
        add_versions(h, event);
}

static int on_event(const struct source_event *event, void *data, struct weir_error *error)
{
    struct history *h = data;
    (void)error;
    if (h->json) {
        buf_add(h->out, h->count ? SV(",\n") : SV(""));
        source_event_json(event, SECRETS_SHOWN, h->out);
    } else {
        add_event(h, event);
    }
    h->count++;
    return 0;
}

int rules_history(struct rules_call *call)
{
    struct weir_error error = { 0 };
    CLEANUP(buf_done) struct buf out;
    struct history h = { .term = term_of(1), .out = &out, .json = call->options->json };
    sv id = call->word_count ? weir_str(call->words[0]) : (sv){ 0 };
    buf_init(&out, RULES_OUTPUT_MAX);
    if (h.json)
        buf_char(&out, '[');
    unsigned most = call->options->most ? (unsigned)call->options->most : MOST_DEFAULT;
    if (source_history(call->source, id, 0, most, on_event, &h, &error) < 0)
        return rules_fail(&error);
    if (h.json)
        buf_add(&out, SV("]\n"));
    if (h.count == 0)
        cli_error("no change%s%s is in the history of %s", id.len ? " of " : "", id.len ? id.ptr : "",
                  source_name(call->source));
    return cli_print(&out, h.count ? RULES_DONE : RULES_NOTHING);
}

int rules_undo(struct rules_call *call)
{
    struct weir_error error = { 0 };
    sv id = call->word_count ? weir_str(call->words[0]) : (sv){ 0 };
    CLEANUP(source_undone_done) struct source_undone undone = { 0 };
    CLEANUP(buf_done) struct buf out, text;
    buf_init(&out, RULES_OUTPUT_MAX);
    buf_init(&text, RULES_OUTPUT_MAX);
    if (source_undo(call->source, id, call->options->change, call->author, &undone, &error) < 0) {
        int status = rules_fail(&error);
        return error.code == WEIR_E_INVALID ? RULES_NOTHING : status; /* none is there, or the row was changed since */
    }
    source_undone_text(&undone, &text);
    buf_printf(&out, "change %" PRId64 " is undone: ", undone.number);
    plain_add(&out, buf_sv(&text), TEXT_MAX);
    buf_char(&out, '\n');
    return cli_print(&out, RULES_DONE);
}
