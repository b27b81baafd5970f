/* The state of a client's request, from its first decision to its end. */
#include "module.h"

static void state_marker(void *data)
{
    (void)data;
}

/* nginx clears the data that modules keep of a request when it redirects the request internally. It keeps the handlers that
 * run when the memory of the request is freed, so the state is stored as the data of one of them. */
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
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof *state);
    if (!cleanup)
        return NULL;
    state = cleanup->data;
    memset(state, 0, sizeof *state);
    cleanup->handler = state_marker;
    ngx_http_set_ctx(r, state, ngx_http_weir_module);
    return state;
}
