/* The state of a client's request, from its first decision to its end. */
#include "module.h"

static void state_marker(void *data)
{
    (void)data;
}

/* nginx clears the data that modules keep of a request when it redirects the request internally. It keeps the handlers that
 * run when the memory of the request is freed, so the state is stored as the data of one of them; both are one piece of
 * memory. */
struct stored_state {
    ngx_pool_cleanup_t cleanup;
    struct request_state state;
};

static struct request_state *find_in_cleanups(const ngx_http_request_t *r)
{
    for (ngx_pool_cleanup_t *c = r->pool->cleanup; c; c = c->next)
        if (c->handler == state_marker)
            return c->data;
    return NULL;
}

struct request_state *request_state_find(ngx_http_request_t *r)
{
    struct request_state *state = ngx_http_get_module_ctx(r, ngx_http_weir_module);
    if (!state && (r->internal || r->filter_finalize)) {
        state = find_in_cleanups(r);
        ngx_http_set_ctx(r, state, ngx_http_weir_module);
    }
    return state;
}

struct request_state *request_state_make(ngx_http_request_t *r)
{
    struct request_state *state = request_state_find(r);
    if (state)
        return state;
    struct stored_state *stored = ngx_palloc(r->pool, sizeof *stored);
    if (!stored)
        return NULL;
    stored->state = (struct request_state){ 0 };
    stored->cleanup = (ngx_pool_cleanup_t){ state_marker, &stored->state, r->pool->cleanup };
    r->pool->cleanup = &stored->cleanup;
    ngx_http_set_ctx(r, &stored->state, ngx_http_weir_module);
    return &stored->state;
}
