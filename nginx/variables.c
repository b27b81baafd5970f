/* $weir_verdict and the others, for logs and conditions. */
#include "module.h"

static ngx_str_t verdict_text(const struct request_state *state)
{
    if (!state->applied)
        return (ngx_str_t)ngx_string("no_rule");
    const char *name = outcome_names[state->outcome];
    return (ngx_str_t){ strlen(name), (u_char *)name };
}

static ngx_str_t number(ngx_http_request_t *r, int64_t n)
{
    ngx_str_t text = { 0, ngx_pnalloc(r->pool, NGX_INT64_LEN) };
    if (text.data)
        text.len = (size_t)(ngx_sprintf(text.data, "%L", n) - text.data);
    return text;
}

static ngx_str_t text_of(ngx_http_request_t *r, const struct request_state *state, enum variable variable)
{
    switch (variable) {
    case VAR_VERDICT:
        return verdict_text(state);
    case VAR_RULE:
        return state->rule;
    case VAR_LIMIT:
        return state->limit;
    case VAR_REMAINING:
        return state->named ? number(r, state->remaining) : (ngx_str_t)ngx_null_string;
    case VAR_RETRY_AFTER:
        return state->retry_after_s > 0 ? number(r, state->retry_after_s) : (ngx_str_t)ngx_null_string;
    case VAR_SHADOW:
        return state->shadow;
    case VAR_PENALTY:
        return state->penalty ? (ngx_str_t)ngx_string("1") : (ngx_str_t)ngx_null_string;
    }
    return (ngx_str_t)ngx_null_string;
}

static ngx_int_t get(ngx_http_request_t *r, ngx_http_variable_value_t *value, uintptr_t data)
{
    const struct request_state *state = request_state_find(r->main);
    ngx_str_t text = state && state->zones ? text_of(r, state, (enum variable)data) : (ngx_str_t)ngx_null_string;
    value->valid = 1;
    value->no_cacheable = 0;
    value->not_found = text.len == 0;
    value->len = (unsigned)text.len & 0xfffffff;
    value->data = text.data;
    return NGX_OK;
}

static const struct {
    ngx_str_t name;
    enum variable variable;
} variables[] = {
    { ngx_string("weir_verdict"), VAR_VERDICT },
    { ngx_string("weir_rule"), VAR_RULE },
    { ngx_string("weir_limit"), VAR_LIMIT },
    { ngx_string("weir_remaining"), VAR_REMAINING },
    { ngx_string("weir_retry_after"), VAR_RETRY_AFTER },
    { ngx_string("weir_shadow"), VAR_SHADOW },
    { ngx_string("weir_penalty"), VAR_PENALTY },
};

ngx_int_t variables_add(ngx_conf_t *cf)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        ngx_str_t name = variables[i].name;
        /* The values change with the decision. variables_used needs NOHASH: nginx then lists only the variables that the
         * configuration names. */
        ngx_http_variable_t *variable = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE | NGX_HTTP_VAR_NOHASH);
        if (!variable)
            return NGX_ERROR;
        variable->get_handler = get;
        variable->data = variables[i].variable;
    }
    return NGX_OK;
}

unsigned variables_used(ngx_conf_t *cf)
{
    const ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    const ngx_http_variable_t *used = core->variables.elts;
    unsigned bits = 0;
    for (ngx_uint_t i = 0; i < core->variables.nelts; i++)
        for (size_t k = 0; k < sizeof variables / sizeof *variables; k++)
            if (used[i].name.len == variables[k].name.len &&
                ngx_strncmp(used[i].name.data, variables[k].name.data, used[i].name.len) == 0)
                bits |= 1U << variables[k].variable;
    return bits;
}
