/* CL.THROTTLE, and DEL for its keys. The numbers of the limit come with each call: see src/throttle. */
#include "base/utf8.h"
#include "engine/handle.h"
#include "serve/commands.h"
#include "serve/server.h"
#include "serve/stats.h"
#include "throttle/throttle.h"

/* ---- CL.THROTTLE key max_burst count period [quantity] ---- */

#define CELL_ERROR "Cell error: Store error: "

/* As Rust reads it: an optional sign, then digits. */
static bool read_int64(sv s, int64_t *ret)
{
    bool negative = s.len > 0 && s.ptr[0] == '-';
    int64_t n = 0;
    if (negative || (s.len > 0 && s.ptr[0] == '+'))
        s = sv_from(s, 1);
    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        int digit = s.ptr[i] - '0';
        if (!ascii_digit(s.ptr[i]) || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, negative ? -digit : digit, &n))
            return false;
    }
    *ret = n;
    return true;
}

/* redis-cell crashes on arguments that are not UTF-8. */
static bool is_text(const sv *args, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!utf8_valid(args[i]))
            return false;
    return true;
}

static void throttle_answer(struct resp_out *out, const struct gcra_answer *a)
{
    resp_array(out, 5);
    resp_integer(out, a->limited);
    resp_integer(out, a->limit);
    resp_integer(out, a->remaining);
    resp_integer(out, a->retry_after_s);
    resp_integer(out, a->reset_after_s);
}

static void throttle(struct commands *c, sv key, const int64_t n[4])
{
    static const char *const errors[] = {
        [GCRA_ZERO_RATE] = "Zero rates are not supported",
        [GCRA_TOO_LARGE] = "The numbers are too large: together they come to more than 292 years",
        [GCRA_EXPIRED] = "Error while setting key expire",
    };
    struct weir *weir = c->loop->server->weir;
    int64_t now_us = loop_now_us(c->loop);
    struct gcra gcra;
    struct gcra_answer answer;
    enum gcra_code code = gcra_init(&gcra, n[0], n[1], n[2], n[3]);
    if (code == GCRA_OK)
        code = throttle_take(weir->cells, c->session->database, key, &gcra, now_us, &answer);
    if (code == GCRA_OK) {
        enum outcome outcome = n[3] == 0 ? OUTCOME_PEEKED : answer.limited ? OUTCOME_REFUSED : OUTCOME_ALLOWED;
        stats_throttled(c->loop->stats, weir, outcome, c->session->database, key, now_us);
        throttle_answer(&c->out, &answer);
    } else {
        resp_error(&c->out, CELL_ERROR "%s", errors[code]);
    }
}

void throttle_command(struct commands *c, const sv *args, size_t count)
{
    int64_t n[4] = { [3] = 1 };
    if (!is_text(args, count)) {
        resp_error(&c->out, CELL_ERROR "An argument is not UTF-8");
        return;
    }
    if (count != 5 && count != 6) {
        resp_error(&c->out, CELL_ERROR "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]");
        return;
    }
    for (size_t i = 2; i < count; i++)
        if (!read_int64(args[i], &n[i - 2])) {
            resp_error(&c->out, CELL_ERROR "Couldn't parse as integer: %.*s", SV_FMT(args[i]));
            return;
        }
    throttle(c, args[1], n);
}

/* ---- DEL key [key ...] ---- */

void del_command(struct commands *c, const sv *args, size_t count)
{
    int64_t forgotten = 0;
    for (size_t i = 1; i < count; i++)
        forgotten += throttle_forget(c->loop->server->weir->cells, c->session->database, args[i]);
    resp_integer(&c->out, forgotten);
}
