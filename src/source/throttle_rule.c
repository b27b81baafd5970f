/* Throttling a call with a whole rule, as the page's form does: the same call, counted in the same way, has the same id. */
#include <stdio.h>

#include "base/err.h"
#include "base/instant.h"
#include "source/backend.h"

enum { SLUG_MAX = 40, PART_BYTES_MAX = 64 << 10 };

/* {"method":"GET","path":"/entity/#"}; the method in capitals, as in rules. */
static void add_match(sv call, struct buf *out)
{
    sv method, path;
    call_split(call, &method, &path);
    buf_char(out, '{');
    if (method.len > 0) {
        CLEANUP(buf_done) struct buf capitals;
        buf_init(&capitals, PART_BYTES_MAX);
        for (size_t i = 0; i < method.len; i++)
            buf_char(&capitals,
                     (char)(method.ptr[i] >= 'a' && method.ptr[i] <= 'z' ? method.ptr[i] - 'a' + 'A' : method.ptr[i]));
        buf_add(out, SV("\"method\":"));
        buf_json(out, buf_sv(&capitals));
        buf_char(out, ',');
        out->failed |= capitals.failed;
    }
    buf_add(out, SV("\"path\":"));
    buf_json(out, path);
    buf_char(out, '}');
}

/* Lower-case letters and digits; everything between them is one dash. */
static void add_slug(sv call, struct buf *out)
{
    size_t begin = out->len;
    bool dash = false;
    for (size_t i = 0; i < call.len && out->len - begin < SLUG_MAX; i++) {
        char c = call.ptr[i] >= 'A' && call.ptr[i] <= 'Z' ? (char)(call.ptr[i] - 'A' + 'a') : call.ptr[i];
        bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (kept && dash && out->len > begin)
            buf_char(out, '-');
        if (kept && out->len - begin < SLUG_MAX)
            buf_char(out, c);
        dash = !kept;
    }
    if (out->len == begin)
        buf_add(out, SV("call"));
}

/* FNV-1a of the JSON of [match, by], in base 36: ui/parts.js has the same. */
static void add_hash(sv match, sv by, struct buf *out)
{
    CLEANUP(buf_done) struct buf text;
    char digits[8];
    size_t count = 0;
    uint32_t hash = 2166136261U;
    buf_init(&text, PART_BYTES_MAX);
    buf_printf(&text, "[%.*s,%.*s]", SV_FMT(match), SV_FMT(by));
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.ptr[i]) * 16777619U;
    do {
        digits[count++] = "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
        hash /= 36;
    } while (hash > 0);
    while (count > 0)
        buf_char(out, digits[--count]);
}

struct throttle_rule {
    const struct source_throttle *wanted;
    struct buf id;
};

/* A row of THROTTLED_CALLS for the same call would limit it as well, and a reader of one would not expect the other. */
static int refuse_row(struct plan *plan, const struct source_throttle *wanted)
{
    const struct stored_row *found = NULL;
    struct stored_row row = { .table = TABLE_CALLS, .key = SV("0"), .enabled = true };
    struct sql_value path = { .text = plan_copy(plan, sv_trim(wanted->call)) };
    if (in_files(plan->source) || !sv_eq(wanted->by, SV("[\"user\"]")))
        return 0;
    call_write(&row, path, 1, US_PER_S, RULE_NEVER_EXPIRES, plan->arena);
    int r = call_read(&row, plan->arena, plan->error);
    if (r == 0 && plan_is_good(plan, &row)) /* else the rule is refused later, and named */
        r = call_find(plan, &row, &found);
    if (r < 0 || !found)
        return r;
    return err_set(plan->error, WEIR_E_INVALID,
                   "%s: %.*s limits this call already, in a fixed window: it is a row of THROTTLED_CALLS; add --row to "
                   "change that row, or remove it first: weir rules rm %.*s --from %s",
                   plan->source->address.shown, SV_FMT(found->rule), SV_FMT(found->rule), plan->source->address.shown);
}

/* The fields of the rule that a throttle decides. `patch`: null for those that go. */
static void add_fields(const struct plan *plan, const struct source_throttle *wanted, bool patch, struct buf *out)
{
    buf_printf(out, "\"limits\":[%.*s]", SV_FMT(wanted->limit));
    if (wanted->expires_us != RULE_NEVER_EXPIRES) {
        char text[INSTANT_TEXT_MAX];
        instant_text(wanted->expires_us, text);
        buf_printf(out, ",\"expires\":\"%s\"", text);
    } else if (patch) {
        buf_add(out, SV(",\"expires\":null"));
    }
    if (patch) /* it is in force again, whatever was done to it */
        buf_printf(out, ",\"mode\":null,\"enabled\":%s}", in_files(plan->source) ? "null" : "true");
    else
        buf_char(out, '}');
}

static int make_throttle_rule(struct plan *plan, void *data)
{
    struct throttle_rule *t = data;
    const struct source_throttle *wanted = t->wanted;
    CLEANUP(buf_done) struct buf match, text, patch;
    buf_init(&match, PART_BYTES_MAX);
    buf_init(&text, SQL_VALUE_MAX);
    buf_init(&patch, SQL_VALUE_MAX);
    add_match(wanted->call, &match);
    buf_add(&t->id, SV("throttle-"));
    add_slug(wanted->call, &t->id);
    buf_char(&t->id, '-');
    add_hash(buf_sv(&match), wanted->by, &t->id);
    sv id = plan_copy(plan, buf_sv(&t->id));
    int r = id.ptr ? refuse_row(plan, wanted) : WEIR_E_NO_MEMORY;
    const struct stored_row *old = r == 0 ? snapshot_rule(plan->snapshot, id) : NULL;
    if (r == 0 && old) {
        buf_char(&patch, '{');
        add_fields(plan, wanted, true, &patch);
        r = document_patch(old->text, buf_sv(&patch), &text, plan->error);
    } else if (r == 0) {
        buf_printf(&text, "{\"id\":\"%.*s\",\"match\":%.*s,", SV_FMT(id), SV_FMT(buf_sv(&match)));
        if (!sv_eq(wanted->by, SV("[]")))
            buf_printf(&text, "\"by\":%.*s,", SV_FMT(wanted->by));
        add_fields(plan, wanted, false, &text);
    }
    if (r == 0 && (match.failed || text.failed || patch.failed))
        r = err_set(plan->error, WEIR_E_INVALID, "the call is too long");
    sv document = r == 0 ? plan_copy(plan, buf_sv(&text)) : SV("");
    if (r < 0 || !document.ptr)
        return r < 0 ? r : WEIR_E_NO_MEMORY;
    return plan_put_rule(plan, id, document, true);
}

int source_put_throttle(struct source *source, const struct source_throttle *wanted, struct source_author author,
                        char ret_id[WEIR_ID_MAX + 1], struct weir_error *error)
{
    struct throttle_rule throttle = { .wanted = wanted };
    buf_init(&throttle.id, WEIR_ID_MAX);
    int r = source_change(source, make_throttle_rule, &throttle, author, error);
    if (r == 0)
        snprintf(ret_id, WEIR_ID_MAX + 1, "%.*s", SV_FMT(buf_sv(&throttle.id)));
    buf_done(&throttle.id);
    return r;
}
