/* Verdicts as JSON, and whom a refusal was for. */
#include "engine/verdict.h"
#include "base/utf8.h"
#include "engine/handle.h"
#include "present/present.h"

/* Copies as many whole characters as fit, and a NUL. Returns the length of the whole text. */
static size_t text_out(sv text, char *buf, size_t cap)
{
    if (cap > 0) {
        sv part = utf8_cut(text, cap - 1);
        memcpy(buf, part.ptr, part.len);
        buf[part.len] = '\0';
    }
    return text.len;
}

/* ---- JSON ---- */

static void json_shadows(struct buf *b, const struct weir_shadows *shadows)
{
    buf_add(b, SV(",\"shadow\":["));
    for (uint32_t i = 0; i < shadows->count; i++) {
        if (i)
            buf_char(b, ',');
        buf_json(b, weir_str(shadows->names[i]));
    }
    buf_char(b, ']');
}

static void json_limit(struct buf *b, const struct weir_verdict *v)
{
    buf_json(b, weir_str(v->rule));
    buf_add(b, SV(",\"limit\":"));
    buf_json(b, weir_str(v->limit));
    if (v->unit[0]) {
        buf_add(b, SV(",\"unit\":"));
        buf_json(b, weir_str(v->unit));
    }
    buf_add(b, SV(",\"max\":"));
    buf_number(b, (int64_t)v->max);
    buf_add(b, SV(",\"remaining\":"));
    buf_number(b, (int64_t)v->remaining);
    if (v->debt > 0) {
        buf_add(b, SV(",\"debt\":"));
        buf_number(b, (int64_t)v->debt);
    }
    buf_add(b, SV(",\"reset_ms\":"));
    buf_number(b, v->reset_ms);
}

void verdict_json(const struct weir_request *request, const struct weir_verdict *v, struct buf *out)
{
    buf_add(out, v->allowed ? SV("{\"allowed\":true,\"status\":") : SV("{\"allowed\":false,\"status\":"));
    buf_number(out, v->allowed ? 200 : v->status);
    buf_add(out, SV(",\"rule\":"));
    if (v->applied)
        json_limit(out, v);
    else
        buf_add(out, SV("null,\"limit\":null,\"max\":null,\"remaining\":null,\"reset_ms\":null"));
    buf_add(out, SV(",\"retry_after_ms\":"));
    buf_number(out, v->retry_after_ms);
    if (v->unavailable)
        buf_add(out, SV(",\"unavailable\":true"));
    if (v->penalty)
        buf_add(out, SV(",\"penalty\":true"));
    if (verdict_is_repeated(v)) {
        buf_add(out, SV(",\"repeated_header\":"));
        buf_json(out, weir_str(v->limit));
    }
    if (request->receipt && request->receipt->count > 0) {
        char text[WEIR_RECEIPT_TEXT_MAX];
        buf_add(out, request->receipt->until_us > 0 ? SV(",\"hold\":") : SV(",\"receipt\":"));
        buf_json(out, sv_of(text, weir_receipt_text(request->receipt, text, sizeof text)));
    }
    if (request->shadows)
        json_shadows(out, request->shadows);
    buf_char(out, '}');
}

size_t weir_verdict_json(const struct weir_request *request, const struct weir_verdict *v, char *buf, size_t cap)
{
    char room[VERDICT_JSON_MAX];
    struct buf text;
    buf_over(&text, room, sizeof room);
    verdict_json(request, v, &text);
    return text_out(buf_sv(&text), buf, cap);
}

/* ---- subjects ---- */

/* The key of an entry may have any bytes. */
static void add_name(struct buf *out, sv name)
{
    bool plain = true;
    for (size_t i = 0; i < name.len; i++)
        plain = plain && name.ptr[i] > ' ' && name.ptr[i] < 0x7f && name.ptr[i] != '"' && name.ptr[i] != '=';
    if (plain)
        buf_add(out, name);
    else
        buf_json(out, name);
}

void subject_text(const struct subject *subject, struct buf *out)
{
    for (size_t i = 0; i < subject->by_count; i++) {
        if (i)
            buf_char(out, ' ');
        add_name(out, subject_name(subject, i));
        buf_char(out, '=');
        buf_json(out, subject_value(subject, i));
    }
}

size_t weir_subject_text(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                         char *buf, size_t cap)
{
    char room[SUBJECT_SHOWN_MAX];
    struct subject subject;
    struct buf text;
    buf_over(&text, room, sizeof room);
    if (weir_subject(weir, request, verdict, &subject))
        subject_text(&subject, &text);
    return text_out(buf_sv(&text), buf, cap);
}
