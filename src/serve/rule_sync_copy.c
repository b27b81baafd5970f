/* The copy of the last good rules in the data folder: for a start while the source is unreachable, or while one of its
 * rules is bad. */
#include "base/clock.h"
#include "base/err.h"
#include "rules/rules_file.h"
#include "serve/log.h"
#include "serve/rule_sync_internal.h"

enum { COPY_AGAIN_S = 10 };

#define MARK "# The last good rules of "

/* The first line of the copy. A copy of another source is not used. */
static void add_mark(const struct rule_sync *sync, struct buf *out)
{
    buf_add(out, SV(MARK));
    for (const char *c = sync->name; *c; c++)
        buf_char(out, (unsigned char)*c < ' ' ? '?' : *c);
    buf_char(out, '\n');
}

void rule_sync_write_copy(struct rule_sync *sync)
{
    struct weir_error error = { .code = WEIR_OK };
    CLEANUP(buf_done) struct buf head;
    buf_init(&head, RULES_BYTES_MAX);
    add_mark(sync, &head);
    buf_add(&head,
            SV("# weir serve writes this file, for a start while the source is unreachable or has bad rules. Changes "
               "made here are lost.\n"));
    int r = head.failed || !sync->kept.text.rules ? err_no_memory(&error)
                                                  : kept_text_write(&sync->kept, sync->copy, buf_sv(&head), &error);
    if (r < 0 && !sync->copy_failed)
        log_say(LEVEL_WARNING, "rules", "%s; a restart while the source is unreachable would use older rules", error.text);
    if (r == 0 && sync->copy_failed)
        log_say(LEVEL_INFO, "rules", "%s is written again", sync->copy);
    sync->copy_failed = r < 0;
    sync->copy_again_us = clock_steady_us() + COPY_AGAIN_S * US_PER_S;
}

bool rule_sync_read_copy_text(const struct rule_sync *sync, struct buf *text)
{
    struct file_version version;
    return rules_file_read(sync->copy, text, &version, NULL) == 0;
}

bool rule_sync_is_copy_of_own(sv text)
{
    sv line = sv_cut(&text, '\n'), end = SV("/rules.db");
    return sv_starts(line, SV(MARK "sqlite:")) && line.len > end.len && sv_eq(sv_from(line, line.len - end.len), end);
}

struct rules *rule_sync_read_copy(const struct rule_sync *sync)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    CLEANUP(buf_done) struct buf text;
    CLEANUP(buf_done) struct buf mark;
    buf_init(&text, RULES_BYTES_MAX);
    buf_init(&mark, RULES_BYTES_MAX);
    add_mark(sync, &mark);
    if (!rule_sync_read_copy_text(sync, &text) || mark.failed || !sv_starts(buf_sv(&text), buf_sv(&mark)))
        return NULL;
    struct rules *rules = rules_read(buf_sv(&text), &report);
    if (!rules || !report.unreadable)
        return rules;
    rules_free(rules);
    return NULL;
}
