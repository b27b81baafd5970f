/* Parameters, headers and answers of a call, for all routes of the admin listener. */
#include "base/amount.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/admin.h"

void admin_answer(struct http_call *call, sv type, const struct buf *body)
{
    if (body->failed)
        http_error(call, 503, NULL, "out of memory for the answer");
    else
        http_answer(call, &(struct http_answer){ 200, type, buf_sv(body) });
}

bool admin_number(struct http_call *call, const char *name, uint64_t least, uint64_t most, uint64_t otherwise,
                  uint64_t *ret)
{
    sv text = http_parameter(call, name, 0);
    uint64_t number = otherwise;
    if (text.ptr && (!sv_u64(text, most, &number) || number < least)) {
        http_error(call, 400, NULL, "the parameter `%s` must be a number, %llu to %llu", name, (unsigned long long)least,
                   (unsigned long long)most);
        return false;
    }
    *ret = number;
    return true;
}

bool admin_length(struct http_call *call, const char *name, int64_t least_us, int64_t most_us, int64_t *ret_us)
{
    const struct amount_range range = { .kind = AMOUNT_TIME,
                                        .min = (uint64_t)(least_us / US_PER_MS),
                                        .max = (uint64_t)(most_us / US_PER_MS) };
    char allowed[AMOUNT_ALLOWED_MAX];
    sv text = http_parameter(call, name, 0);
    uint64_t ms;
    if (!text.ptr)
        return true;
    if (amount_read(sv_trim(text), &range, &ms) != AMOUNT_GOOD) {
        amount_range_text(&range, allowed);
        http_error(call, 400, NULL, "the parameter `%s` must be a length of time, %s", name, allowed);
        return false;
    }
    *ret_us = (int64_t)ms * US_PER_MS;
    return true;
}

static bool is_one_of(sv name, const char *const *names)
{
    while (*names && !sv_eq(name, weir_str(*names)))
        names++;
    return *names;
}

bool admin_check_parameters(struct http_call *call, const char *const *names)
{
    for (sv rest = call->query; rest.len > 0;) {
        sv value = sv_cut(&rest, '&'), name = http_decode(call, sv_cut(&value, '='), true);
        if (name.ptr && (name.len == 0 || is_one_of(name, names)))
            continue;
        CLEANUP(buf_done) struct buf all;
        buf_init(&all, 1000);
        for (size_t i = 0; names[i]; i++)
            buf_printf(&all, "%s%s", i ? ", " : "allowed: ", names[i]);
        http_error(call, 400, all.len ? all.ptr : "no parameters are allowed", "unknown parameter `%.*s`",
                   SV_SHOWN(name, 100));
        return false;
    }
    return true;
}

bool admin_is_dry_run(struct http_call *call)
{
    sv value = http_parameter(call, "dry_run", 0);
    return sv_eq(value, SV("1")) || sv_eq(value, SV("true"));
}
