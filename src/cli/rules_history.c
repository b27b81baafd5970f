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
    struct buf out;
    size_t count;
    bool json;
};

/* What a row said, in one line: of a whole rule its document, since "enable" and "disable" say the rest. */
static void flatten(sv text, struct buf *out)
{
    json_t *row = text.len ? source_json_load(text) : NULL, *rule = json_object_get(row, "rule");
    char *line = rule ? json_dumps(rule, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (line)
        buf_add(out, weir_str(line));
    else
        buf_add(out, text);
    free(line);
    json_decref(row);
}

static void add_version(struct history *h, const char *mark, const char *color, sv text)
{
    if (text.len == 0)
        return;
    buf_printf(&h->out, "      %s%s ", color, mark);
    plain_add(&h->out, text, TEXT_MAX);
    buf_printf(&h->out, "%s\n", color[0] ? term_plain(&h->term) : "");
}

static void add_versions(struct history *h, const struct source_event *event)
{
    struct buf before, after;
    buf_init(&before, RULES_OUTPUT_MAX);
    buf_init(&after, RULES_OUTPUT_MAX);
    flatten(event->before, &before);
    flatten(event->after, &after);
    if (!sv_eq(buf_sv(&before), buf_sv(&after))) {
        add_version(h, "-", term_red(&h->term), buf_sv(&before));
        add_version(h, "+", term_green(&h->term), buf_sv(&after));
    }
    buf_done(&before);
    buf_done(&after);
}

static void add_event(struct history *h, const struct source_event *event)
{
    struct buf line;
    buf_init(&line, RULES_OUTPUT_MAX);
    rules_add_time(event->at, &line);
    buf_printf(&line, "  %.*s  %.*s %.*s (%.*s)%s%.*s", SV_FMT(event->who), SV_FMT(event->what),
               SV_FMT(event->rule.len ? event->rule : event->key), SV_FMT(event->table), event->note.len ? "  " : "",
               SV_FMT(event->note));
    buf_printf(&h->out, "%4" PRId64 "  ", event->number);
    plain_add(&h->out, buf_sv(&line), TEXT_MAX);
    buf_char(&h->out, '\n');
    buf_done(&line);
    add_versions(h, event);
}

static void add_field(struct buf *out, const char *name, sv text)
{
    buf_printf(out, ",\"%s\":", name);
    buf_json(out, text);
}

static void add_version_json(struct buf *out, const char *name, sv text)
{
    buf_printf(out, ",\"%s\":", name);
    if (text.len > 0)
        source_json_add(text, out);
    else
        buf_add(out, SV("null"));
}

static void add_event_json(struct history *h, const struct source_event *event)
{
    buf_printf(&h->out, "%s{\"number\":%" PRId64, h->count ? ",\n" : "", event->number);
    add_field(&h->out, "at", event->at);
    add_field(&h->out, "who", event->who);
    add_field(&h->out, "what", event->what);
    add_field(&h->out, "rule", event->rule);
    add_field(&h->out, "table", event->table);
    add_field(&h->out, "row", event->key);
    add_field(&h->out, "note", event->note);
    add_version_json(&h->out, "before", event->before);
    add_version_json(&h->out, "after", event->after);
    buf_char(&h->out, '}');
}

static int on_event(const struct source_event *event, void *data, struct weir_error *error)
{
    struct history *h = data;
    (void)error;
    if (h->json)
        add_event_json(h, event);
    else
        add_event(h, event);
    h->count++;
    return 0;
}

int rules_history(struct rules_call *call)
{
    struct weir_error error = { 0 };
    struct history h = { .term = term_of(1), .json = call->options->json };
    sv id = call->word_count ? weir_str(call->words[0]) : (sv){ 0 };
    buf_init(&h.out, RULES_OUTPUT_MAX);
    if (h.json)
        buf_char(&h.out, '[');
    unsigned most = call->options->most ? call->options->most : MOST_DEFAULT;
    if (source_history(call->source, id, most, on_event, &h, &error) < 0) {
        buf_done(&h.out);
        return rules_fail(&error);
    }
    if (h.json)
        buf_add(&h.out, SV("]\n"));
    if (h.count == 0)
        cli_error("no change%s%s is in the history of %s", id.len ? " of " : "", id.len ? id.ptr : "",
                  source_name(call->source));
    return rules_print(&h.out, h.count ? RULES_DONE : RULES_NOTHING);
}

int rules_undo(struct rules_call *call)
{
    struct weir_error error = { 0 };
    sv id = call->word_count ? weir_str(call->words[0]) : (sv){ 0 };
    struct source_undone undone;
    if (source_undo(call->source, id, call->options->change, call->author, &undone, &error) < 0) {
        int status = rules_fail(&error);
        return error.code == WEIR_E_INVALID ? RULES_NOTHING : status; /* none is there, or the row was changed since */
    }
    printf("change %" PRId64 " is undone\n", undone.number);
    return RULES_DONE;
}
