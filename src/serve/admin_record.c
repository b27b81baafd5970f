/* Records in the history of changes what people do to subjects. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/utf8.h"
#include "refused/subject.h"
#include "serve/admin.h"
#include "serve/log.h"
#include "serve/status.h"

enum { DETAILS_MAX = 8 * SUBJECT_TEXT_MAX };

bool admin_read_author(struct http_call *call, struct source_author *ret)
{
    struct weir_error error;
    *ret = (struct source_author){ admin_author(call), sv_trim(http_header(call, "x-weir-note")) };
    if (source_check_author(*ret, &error) == 0)
        return true;
    http_error(call, 400, NULL, "%s", error.text);
    return false;
}

struct recording {
    struct source_job job; /* first */
    struct arena arena;
    struct source_act act;
    struct source_author author;
};

static void recording_free(struct recording *r)
{
    arena_done(&r->arena);
    free(r);
}

/* The log has an entry about the act itself already. */
static void say_lost(const char *what, sv rule, const char *why)
{
    log_say(LEVEL_WARNING, "change", "rule %.*s: %s is not in the history: %s", SV_FMT(rule), what, why);
}

static int run(struct source *source, struct source_job *job, struct weir_error *error)
{
    const struct recording *r = (const struct recording *)job;
    return source_record(source, &r->act, r->author, error);
}

static void done(struct source_job *job, int result, const struct weir_error *error)
{
    struct recording *r = (struct recording *)job;
    if (result < 0)
        say_lost(r->act.what, r->act.rule, error->text);
    recording_free(r);
}

static void add_details(const struct subject *subject, int64_t length_us, struct buf *out)
{
    buf_char(out, '{');
    status_write_whom(subject, out);
    if (length_us > 0)
        buf_printf(out, ", \"for_ms\": %lld", (long long)(length_us / US_PER_MS));
    buf_char(out, '}');
}

/* A database may refuse what is not UTF-8, as keys of RESP clients may be; `details` has it with escapes. */
static void add_readable(sv text, struct buf *out)
{
    while (text.len > 0) {
        size_t len = utf8_length(text);
        buf_add(out, len ? sv_of(text.ptr, len) : SV("?"));
        text = sv_from(text, len ? len : 1);
    }
}

/* NULL: no memory. The secrets in a subject are cut already. */
static struct recording *recording_new(const char *what, const struct subject *subject, int64_t length_us,
                                       struct source_author author)
{
    struct recording *r = calloc(1, sizeof *r);
    CLEANUP(buf_done) struct buf text, readable, details;
    sv values[RULE_BY_MAX];
    buf_init(&text, DETAILS_MAX);
    buf_init(&readable, DETAILS_MAX);
    buf_init(&details, 2 * DETAILS_MAX);
    for (size_t i = 0; i < subject->by_count; i++)
        values[i] = subject_value(subject, i);
    override_subject_text(values, subject->by_count, &text);
    add_readable(buf_sv(&text), &readable);
    add_details(subject, length_us, &details);
    if (!r)
        return NULL;
    r->job = (struct source_job){ .run = run, .done = done };
    r->act = (struct source_act){ what, arena_copy(&r->arena, subject_rule(subject)),
                                  arena_copy(&r->arena, buf_sv(&readable)), arena_copy(&r->arena, buf_sv(&details)) };
    r->author = (struct source_author){ arena_copy(&r->arena, author.who), arena_copy(&r->arena, author.note) };
    if (!text.failed && !readable.failed && !details.failed && r->act.rule.ptr && r->act.subject.ptr &&
        r->act.details.ptr && r->author.who.ptr && r->author.note.ptr)
        return r;
    recording_free(r);
    return NULL;
}

void admin_record(struct server *server, const char *what, const struct subject *subject, int64_t length_us,
                  struct source_author author)
{
    if (rule_sync_is_file(server->rule_sync))
        return;
    struct recording *r = recording_new(what, subject, length_us, author);
    if (!r) {
        say_lost(what, subject_rule(subject), "out of memory");
    } else if (!rule_sync_run(server->rule_sync, &r->job)) {
        say_lost(what, subject_rule(subject), "too many requests are waiting for the source of the rules");
        recording_free(r);
    }
}
