/* Charging work that is done: its cost is known only now, so there is nothing to refuse. */
#include "engine/counter.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/remote.h"

enum { ROOM = 8 }; /* counters of most requests */

static int charge_by(struct weir *weir, const struct bound *bound, const struct weir_request *request, const sv *users,
                     int64_t now_us)
{
    struct decision *d = decision_new(weir, bound, request, users, now_us, ROOM);
    if (!d)
        return WEIR_E_NO_MEMORY;
    for (size_t i = 0; i < d->count; i++)
        if (d->counters[i].ask.cost > 0 && d->counters[i].ask.limit->algorithm != LIMIT_CONCURRENT)
            counter_ops[d->counters[i].kind].charge(d, &d->counters[i]);
    if (d->remote)
        remote_renew_slices(d);
    decision_free(d);
    return 0;
}

int weir_charge(struct weir *weir, const struct weir_request *request, int64_t now_us)
{
    struct users users;
    if (!clock_valid(now_us) || !request_valid(request))
        return WEIR_E_INVALID;
    const struct bound *bound = weir_acquire_all(weir, request, &users);
    if (!bound)
        return WEIR_E_NO_MEMORY;
    int r = charge_by(weir, bound, request, users.of, now_us);
    hazard_release();
    users_done(&users);
    return r;
}
