/* What is known of a client's request, from its first decision to its end. */
#include "module.h"

static void passage_mark(void *data)
{
    (void)data;
}

/* nginx forgets what modules know of a request when it redirects the request internally. It keeps the handlers that run
 * when the memory of the request is freed, so the passage is stored as one of them. */
static struct passage *find_passage(const ngx_http_request_t *r)
{
    for (ngx_pool_cleanup_t *c = r->pool->cleanup; c; c = c->next)
        if (c->handler == passage_mark)
            return c->data;
    return NULL;
}

struct passage *passage_of(ngx_http_request_t *r)
{
    struct passage *passage = ngx_http_get_module_ctx(r, ngx_http_weir_module);
    if (!passage && (r->internal || r->filter_finalize)) {
        passage = find_passage(r);
        ngx_http_set_ctx(r, passage, ngx_http_weir_module);
    }
    return passage;
}

struct passage *passage_make(ngx_http_request_t *r)
{
    struct passage *passage = passage_of(r);
    if (passage)
        return passage;
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof *passage);
    if (!cleanup)
        return NULL;
    passage = cleanup->data;
    memset(passage, 0, sizeof *passage);
    cleanup->handler = passage_mark;
    ngx_http_set_ctx(r, passage, ngx_http_weir_module);
    return passage;
}
