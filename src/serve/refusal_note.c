#include "serve/refusal_note.h"

#include <stdio.h>

#include "engine/handle.h"
#include "engine/verdict.h"

static void set_subject(struct recent_refusal *ret, const struct subject *subject)
{
    static const struct subject nobody;
    subject_copy(&ret->subject, subject ? subject : &nobody);
}

/* After its subject. */
static void set_request(struct recent_refusal *ret, struct weir *weir, const struct weir_request *request)
{
    char client[IP_TEXT_MAX];
    size_t len = weir_client(weir, request, client);
    recent_fill_request(&ret->request, request, sv_of(client, len));
    ret->of_request = true;
    weir_plan_of(weir, request, subject_rule(&ret->subject), &ret->plan);
}

static enum recent_reason reason_of(const struct weir_verdict *verdict)
{
    if (verdict_is_repeated(verdict))
        return RECENT_REPEATED;
    if (!verdict->applied)
        return RECENT_UNJUDGED;
    if (verdict->penalty)
        return RECENT_PENALTY;
    return verdict->unavailable ? RECENT_UNAVAILABLE : RECENT_LIMIT;
}

void refusal_note(struct recent_refusal *ret, struct weir *weir, const struct weir_request *request,
                  const struct weir_verdict *verdict, const struct subject *subject)
{
    ret->shadow = false;
    ret->status = (uint16_t)verdict->status;
    ret->retry_after_ms = verdict->retry_after_ms;
    ret->reason = reason_of(verdict);
    snprintf(ret->limit, sizeof ret->limit, "%s", ret->reason == RECENT_UNJUDGED ? "" : verdict->limit);
    set_subject(ret, subject);
    set_request(ret, weir, request);
}

void refusal_note_shadow(struct recent_refusal *ret, struct weir *weir, const struct weir_request *request, sv limit,
                         const struct subject *subject)
{
    ret->shadow = true;
    ret->status = 0;
    ret->retry_after_ms = WEIR_NEVER;
    ret->reason = RECENT_LIMIT;
    snprintf(ret->limit, sizeof ret->limit, "%.*s", SV_FMT(limit));
    set_subject(ret, subject);
    set_request(ret, weir, request);
}

void refusal_note_throttle(struct recent_refusal *ret, const struct subject *subject)
{
    ret->shadow = ret->of_request = false;
    ret->status = 0;
    ret->retry_after_ms = WEIR_NEVER;
    ret->reason = RECENT_LIMIT;
    ret->limit[0] = ret->plan.name[0] = ret->plan.header[0] = '\0';
    set_subject(ret, subject);
}
