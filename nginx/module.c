/* The module as nginx loads it: its order among other modules, its phases, and the start of a worker. */
#include "module.h"

/* Handlers of a phase run in the reverse of the modules' order. weir comes before realip in that order, so it runs after
 * it, when the client's address is known. */
#define EXPORTED __attribute__((visibility("default")))
static char own_name[] = "ngx_http_weir_module", next_name[] = "ngx_http_realip_module";
EXPORTED ngx_module_t *ngx_modules[] = { &ngx_http_weir_module, NULL };
EXPORTED char *ngx_module_names[] = { own_name, NULL };
EXPORTED extern char *ngx_module_order[];
char *ngx_module_order[] = { own_name, next_name, NULL };

static ngx_int_t add_handler(ngx_conf_t *cf, ngx_http_phases phase, ngx_http_handler_pt handler)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *slot = ngx_array_push(&core->phases[phase].handlers);
    if (!slot)
        return NGX_ERROR;
    *slot = handler;
    return NGX_OK;
}

/* Only one phase follows access control and precedes the content. weir registers for it only if some location uses it. The
 * log phase is the one that every request reaches, also one whose client has gone. */
static ngx_int_t add_handlers(ngx_conf_t *cf)
{
    struct main_conf *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    main->variables = variables_used(cf);
    if (add_handler(cf, NGX_HTTP_PREACCESS_PHASE, decide_preaccess) != NGX_OK)
        return NGX_ERROR;
    if (main->later && add_handler(cf, NGX_HTTP_LOG_PHASE, charge_later) != NGX_OK)
        return NGX_ERROR;
    return main->after_auth ? add_handler(cf, NGX_HTTP_PRECONTENT_PHASE, decide_after_auth) : NGX_OK;
}

static ngx_int_t begin_worker(ngx_cycle_t *cycle)
{
    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
        return NGX_OK;
    struct main_conf *main = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    if (main)
        zones_begin(main, cycle);
    return NGX_OK;
}

static void end_worker(ngx_cycle_t *cycle)
{
    (void)cycle;
    release_all();
}

static ngx_http_module_t context = {
    .preconfiguration = variables_add,
    .postconfiguration = add_handlers,
    .create_main_conf = conf_create_main,
    .init_main_conf = conf_init_main,
    .create_loc_conf = conf_create_location,
    .merge_loc_conf = conf_merge_location,
};

ngx_module_t ngx_http_weir_module = {
    NGX_MODULE_V1,
    .ctx = &context,
    .commands = conf_commands,
    .type = NGX_HTTP_MODULE,
    .init_process = begin_worker,
    .exit_process = end_worker,
};
