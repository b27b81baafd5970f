/* Slots of limits with `concurrent`: a request holds them until it is over, whatever way it ends. */
#include "module.h"

/* What one decision holds. nginx frees it with the request's memory, which is the last thing that happens to a request on
 * every path: an answer, an error, a client that is gone, an internal redirect before that. */
struct held {
    ngx_queue_t link;
    struct zone *zone;
    ngx_event_t timer;
    struct weir_receipt receipt;
};

/* Those of this worker. */
static ngx_queue_t all = { &all, &all };

static void release(struct held *held)
{
    if (!held->zone)
        return;
    weir_release(held->zone->weir, &held->receipt, weir_now_us());
    held->zone = NULL;
    ngx_queue_remove(&held->link);
}

static void request_is_over(void *data)
{
    struct held *held = data;
    if (held->timer.timer_set)
        ngx_del_timer(&held->timer);
    release(held);
}

/* The rules may change while the request runs, and with them how soon it has to renew its slot. */
static void renew_later(struct held *held)
{
    uint32_t ttl_ms = weir_slot_ttl_ms(held->zone->weir, &held->receipt);
    if (ttl_ms > 0)
        ngx_add_timer(&held->timer, ngx_max(ttl_ms / 2, 1));
}

/* A request that outlives the time to live keeps its slot: the time to live is for a worker that dies. */
static void renew(ngx_event_t *timer)
{
    struct held *held = timer->data;
    if (weir_renew(held->zone->weir, &held->receipt, 0, weir_now_us()) > 0)
        renew_later(held);
}

ngx_int_t hold_for_request(ngx_http_request_t *r, struct zone *zone, const struct weir_receipt *receipt)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof(struct held));
    if (!cleanup) {
        weir_release(zone->weir, receipt, weir_now_us());
        return NGX_ERROR;
    }
    struct held *held = cleanup->data;
    *held = (struct held){ .zone = zone, .receipt = *receipt };
    ngx_queue_insert_tail(&all, &held->link);
    cleanup->handler = request_is_over;
    held->timer.handler = renew;
    held->timer.data = held;
    held->timer.log = ngx_cycle->log;
    held->timer.cancelable = 1; /* a worker that shuts down waits for the request, not for this */
    renew_later(held);
    return NGX_OK;
}

void release_all(void)
{
    while (!ngx_queue_empty(&all))
        release(ngx_queue_data(ngx_queue_head(&all), struct held, link));
}
