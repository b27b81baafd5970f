#include "serve/envoy_decide.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/zero.h"
#include "serve/server.h"
#include "serve/stats.h"

enum { PENDING_BYTES_MAX = 64 << 20 }; /* of a loop */

/* Shared by the pending decisions of a loop with a store. Each uses the receipt and the shadows at the moment when it is
 * made. */
struct shared {
    size_t pending_bytes;
    struct weir_receipt receipt;
    struct weir_shadows shadows[ENVOY_DESCRIPTORS_MAX];
};

static struct shared *shared_of(struct loop *loop)
{
    if (!loop->envoy_shared)
        loop->envoy_shared = calloc(1, sizeof(struct shared));
    return loop->envoy_shared;
}

/* ---- the answer ---- */

static uint32_t at_most_u32(uint64_t number)
{
    return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

/* Shadow rules are shown where no enforced rule limits the descriptor. One that rules apply to, and none limits, has as
 * much left as can be said. */
static void fill_status(struct envoy_status *ret, const struct weir_verdict *own, const struct weir_verdict *shadow)
{
    const struct weir_verdict *v = own->applied ? own : shadow;
    *ret = (struct envoy_status){ .code = own->allowed ? ENVOY_CODE_OK : ENVOY_CODE_OVER_LIMIT, .reset_ms = -1 };
    if (!v->applied) {
        ret->remaining = own->matched ? UINT32_MAX : 0;
        return;
    }
    ret->has_limit = true;
    ret->name = v->unnamed ? SV("") : weir_str(v->limit);
    ret->requests_per_unit = at_most_u32(v->max);
    ret->remaining = at_most_u32(v->remaining);
    ret->reset_ms = v->reset_ms == 0 ? v->window_end_ms : v->reset_ms; /* also of what is unused */
    envoy_unit_of(v->window_ms, &ret->unit, &ret->multiplier);
}

struct header_room {
    char limit[24], remaining[24], reset[24];
};

/* RateLimit-Limit and so on, of the limit that the verdict names. */
static void add_headers(struct envoy_answer *answer, const struct weir_verdict *v, struct header_room *room)
{
    int64_t reset_s = v->reset_ms < 0 ? 0 : (v->reset_ms + 999) / 1000;
    if (!v->applied)
        return;
    snprintf(room->limit, sizeof room->limit, "%llu", (unsigned long long)v->max);
    snprintf(room->remaining, sizeof room->remaining, "%llu", (unsigned long long)v->remaining);
    snprintf(room->reset, sizeof room->reset, "%lld", (long long)reset_s);
    answer->headers[0] = (struct weir_header){ SV("RateLimit-Limit"), weir_str(room->limit) };
    answer->headers[1] = (struct weir_header){ SV("RateLimit-Remaining"), weir_str(room->remaining) };
    answer->headers[2] = (struct weir_header){ SV("RateLimit-Reset"), weir_str(room->reset) };
    answer->header_count = 3;
}

static size_t first_refused(const struct envoy_status *statuses, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (statuses[i].code == ENVOY_CODE_OVER_LIMIT)
            return i;
    return 0;
}

/* A request that cannot be judged is refused, and names no rule: Envoy does then what its configuration says. */
static bool is_unjudged(const struct weir_verdict *v)
{
    return !v->allowed && !v->applied;
}

static void give_answer(struct envoy_call *call, const struct weir_verdict *verdict)
{
    struct envoy_status statuses[ENVOY_DESCRIPTORS_MAX];
    struct envoy_answer answer;
    struct envoy_refusal refusal;
    struct header_room room;
    if (is_unjudged(verdict)) {
        call->answer(call, NULL);
        return;
    }
    answer.code = verdict->allowed ? ENVOY_CODE_OK : ENVOY_CODE_OVER_LIMIT;
    answer.statuses = statuses;
    answer.status_count = call->count;
    answer.header_count = 0;
    answer.refusal = NULL;
    for (size_t i = 0; i < call->count; i++)
        fill_status(&statuses[i], call->own ? &call->own[i] : verdict, &call->shadow[i]);
    if (call->decisions.loop->server->config.envoy_headers == CONFIG_YES)
        add_headers(&answer, verdict, &room);
    if (!verdict->allowed) {
        refusal = (struct envoy_refusal){ weir_str(verdict->rule), weir_str(verdict->limit),
                                          first_refused(statuses, call->count), verdict->retry_after_ms };
        answer.refusal = &refusal;
    }
    call->answer(call, &answer);
}

/* ---- the requests ---- */

static bool check_request(const struct envoy_request *request, char why[ENVOY_WHY_MAX])
{
    uint64_t window_ms;
    const char *wrong = request->domain.len == 0         ? "the domain is empty"
                        : request->descriptor_count == 0 ? "there are no descriptors"
                                                         : NULL;
    if (wrong) {
        snprintf(why, ENVOY_WHY_MAX, "%s", wrong);
        return false;
    }
    for (size_t i = 0; i < request->descriptor_count; i++)
        if (request->descriptors[i].limit.given && !envoy_limit_window(&request->descriptors[i].limit, &window_ms)) {
            snprintf(why, ENVOY_WHY_MAX,
                     "descriptor [%zu]: the limit has an unknown unit, or a unit_multiplier that is 0 or too large", i);
            return false;
        }
    return true;
}

static enum weir_charging charging_of(const struct config *config, const struct envoy_descriptor *descriptor)
{
    if (descriptor->negative)
        return WEIR_GIVE_BACK;
    return config->envoy_charge == CONFIG_CHARGE_EACH ? WEIR_CHARGE_ALWAYS : WEIR_CHARGE_IF_ROOM;
}

/* Makes the chain of requests. `entries` are those of the request, or a copy. */
static void fill_requests(struct envoy_call *call, const struct envoy_question *question, sv domain,
                          const struct weir_header *entries, struct weir_shadows *shadows)
{
    const struct envoy_request *from = question->request;
    struct loop *loop = question->loop;
    for (size_t i = 0; i < call->count; i++) {
        const struct envoy_descriptor *d = &from->descriptors[i];
        struct weir_request *to = &call->requests[i];
        zero(to, sizeof *to);
        to->domain = domain;
        to->descriptor = entries + d->first_entry;
        to->descriptor_count = d->entry_count;
        to->cost = envoy_hits(from, d);
        to->charging = charging_of(&loop->server->config, d);
        to->with = i + 1 < call->count ? to + 1 : NULL;
        to->own = call->own ? &call->own[i] : NULL;
        to->own_shadow = &call->shadow[i];
        to->shadows = &shadows[i];
        if (d->limit.given) {
            to->given_max = d->limit.requests_per_unit;
            envoy_limit_window(&d->limit, &to->given_window_ms);
        }
        if (call->own)
            zero(&call->own[i], sizeof call->own[i]);
        shadows[i].count = 0;
        stats_count_rules_of(loop->stats, to);
    }
}

/* The calls of a batch, which have one request each, are one list of decisions: that of the first call. */
static sv trace_of_call(const void *of, const struct weir_request *request)
{
    const struct envoy_call *call = of;
    if (call->count == 1)
        call += request - call->requests;
    return sv_of(call->trace, call->trace_len);
}

static void begin(struct envoy_call *call, const struct envoy_question *question)
{
    call->decisions = (struct decisions){ .loop = question->loop, .read_ns = question->read_ns, .trace = trace_of_call };
    call->answer = question->answer;
    call->to = question->to;
    call->count = question->request->descriptor_count;
    call->trace_len = question->trace.len;
    if (question->trace.len == TRACE_LEN)
        memcpy(call->trace, question->trace.ptr, TRACE_LEN);
}

/* ---- without a store ---- */

/* The unused entries of these arrays cost nothing. */
static enum envoy_outcome decide_now(const struct envoy_question *question)
{
    struct weir_request requests[ENVOY_DESCRIPTORS_MAX];
    struct weir_verdict own[ENVOY_DESCRIPTORS_MAX], shadow[ENVOY_DESCRIPTORS_MAX], verdict;
    struct weir_shadows shadows[ENVOY_DESCRIPTORS_MAX];
    struct envoy_call call;
    begin(&call, question);
    call.requests = requests;
    call.own = call.count > 1 ? own : NULL;
    call.shadow = shadow;
    fill_requests(&call, question, question->request->domain, question->request->entries, shadows);
    if (decisions_make(&call.decisions, &call.wait, 0, requests, &verdict, 1) < 0)
        call.answer(&call, NULL);
    else
        give_answer(&call, &verdict);
    return ENVOY_ANSWERED;
}

/* A call that could not be judged has a verdict that says so. */
void envoy_batch_decide(struct envoy_batch *batch)
{
    size_t count = batch->count;
    batch->count = 0;
    if (count == 0)
        return;
    decisions_make(&batch->calls->decisions, &batch->calls->wait, 0, batch->requests, batch->verdicts, count);
    for (size_t i = 0; i < count; i++)
        give_answer(&batch->calls[i], &batch->verdicts[i]);
}

/* Adds a call with one descriptor to the batch. All calls of a batch were read at the same time, which the stats need. */
static enum envoy_outcome decide_soon(const struct envoy_question *question)
{
    struct envoy_batch *batch = question->batch;
    const struct envoy_request *request = question->request;
    if (batch->count == ENVOY_BATCH || (batch->count > 0 && batch->calls->decisions.read_ns != question->read_ns))
        envoy_batch_decide(batch);
    size_t i = batch->count++;
    struct envoy_call *call = &batch->calls[i];
    begin(call, question);
    call->requests = &batch->requests[i];
    call->own = NULL;
    call->shadow = &batch->shadow[i];
    if (request->entry_count > 0)
        memcpy(batch->entries[i], request->entries, request->entry_count * sizeof request->entries[0]);
    fill_requests(call, question, request->domain, batch->entries[i], &batch->shadows[i]);
    return ENVOY_ANSWERED;
}

/* ---- with a store: a call that waits has everything in its own memory ---- */

static void on_decided(struct decision_wait *wait, const struct weir_verdict *verdict)
{
    struct envoy_call *call = (struct envoy_call *)wait->all;
    struct loop *loop = call->decisions.loop;
    if (call->to)
        give_answer(call, verdict);
    else if (verdict->allowed && call->requests->receipt && call->requests->receipt->count > 0)
        weir_refund(loop->server->weir, call->requests->receipt, loop_now_us(loop));
}

static void call_free(struct envoy_call *call)
{
    shared_of(call->decisions.loop)->pending_bytes -= call->bytes;
    free(call);
}

static void on_finished(struct decisions *decisions)
{
    call_free((struct envoy_call *)decisions);
}

void envoy_abandon(struct envoy_call *call)
{
    call->to = NULL;
}

/* A string of `text`, in its copy. */
static sv moved(sv s, sv text, const char *copy)
{
    return text.len && s.len ? sv_of(copy + (s.ptr - text.ptr), s.len) : s;
}

static struct envoy_call *call_new(const struct envoy_question *question)
{
    const struct envoy_request *from = question->request;
    size_t count = from->descriptor_count, entries = from->entry_count;
    size_t bytes = sizeof(struct envoy_call) + count * (sizeof(struct weir_request) + 2 * sizeof(struct weir_verdict)) +
                   entries * sizeof(struct weir_header) + question->text.len;
    struct shared *shared = shared_of(question->loop);
    struct envoy_call *call = shared && bytes <= PENDING_BYTES_MAX - shared->pending_bytes ? malloc(bytes) : NULL;
    if (!call)
        return NULL;
    shared->pending_bytes += bytes;
    begin(call, question);
    call->bytes = bytes;
    call->requests = (struct weir_request *)(call + 1);
    struct weir_verdict *own = (struct weir_verdict *)(call->requests + count);
    call->own = count > 1 ? own : NULL;
    call->shadow = own + count;
    struct weir_header *copies = (struct weir_header *)(call->shadow + count);
    char *text = (char *)(copies + entries);
    if (question->text.len)
        memcpy(text, question->text.ptr, question->text.len);
    for (size_t i = 0; i < entries; i++)
        copies[i] = (struct weir_header){ moved(from->entries[i].name, question->text, text),
                                          moved(from->entries[i].value, question->text, text) };
    fill_requests(call, question, moved(from->domain, question->text, text), copies, shared->shadows);
    if (question->loop->server->config.envoy_charge == CONFIG_CHARGE_TOGETHER)
        call->requests->receipt = &shared->receipt;
    return call;
}

static enum envoy_outcome decide_later(const struct envoy_question *question, struct envoy_call **ret_pending)
{
    struct envoy_call *call = call_new(question);
    struct weir_verdict verdict;
    if (!call)
        return ENVOY_FULL;
    call->decisions.decided = on_decided;
    call->decisions.finished = on_finished;
    int r = decisions_make(&call->decisions, &call->wait, 0, call->requests, &verdict, 1);
    if (r == DECISIONS_WAIT) {
        *ret_pending = call;
        return ENVOY_PENDING;
    }
    if (r < 0)
        call->answer(call, NULL);
    else
        give_answer(call, &verdict);
    call_free(call);
    return ENVOY_ANSWERED;
}

enum envoy_outcome envoy_decide(const struct envoy_question *question, struct envoy_call **ret_pending,
                                char why[ENVOY_WHY_MAX])
{
    if (!check_request(question->request, why))
        return ENVOY_MISTAKE;
    if (question->loop->store)
        return decide_later(question, ret_pending);
    if (question->batch && question->request->descriptor_count == 1)
        return decide_soon(question);
    if (question->batch)
        envoy_batch_decide(question->batch); /* these calls came first */
    return decide_now(question);
}
