#include "serve/tls_setup.h"

#include <string.h>

#include "base/err.h"
#include "serve/config.h"
#include "tls/tls.h"

static int switch_of(const struct config *config, enum front front)
{
    const int switches[FRONTS] = { config->http_tls, config->resp_tls, config->grpc_tls, config->admin_tls };
    return switches[front];
}

bool tls_setup_has(const struct config *config, enum front front, const char *where)
{
    return config->certificate && switch_of(config, front) != CONFIG_TLS_NO && strncmp(where, "unix:", 5) != 0;
}

static int read_one(struct tls_setup *ret, const struct config *config, enum front front, struct weir_error *error)
{
    static const char *const protocols[FRONTS][2] = {
        [FRONT_HTTP] = { "http/1.1" }, [FRONT_ADMIN] = { "http/1.1" }, [FRONT_GRPC] = { "h2" }
    };
    bool clients = switch_of(config, front) == CONFIG_TLS_CLIENTS;
    if (switch_of(config, front) == CONFIG_TLS_NO)
        return 0;
    if (clients && !config->client_authorities)
        return err_set(error, WEIR_E_INVALID,
                       "%s-tls is \"clients\", but client-authorities does not name who signs their certificates",
                       front_names[front]);
    const struct tls_files files = { config->certificate, config->certificate_key,
                                     clients ? config->client_authorities : NULL };
    return tls_server_new(&ret->of[front], &files, protocols[front], error);
}

int tls_setup_read(struct tls_setup *ret, const struct config *config, struct weir_error *error)
{
    int r = 0;
    *ret = (struct tls_setup){ .of = { NULL } };
    if (!config->certificate && (config->certificate_key || config->client_authorities))
        return err_set(error, WEIR_E_INVALID, "%s needs the option certificate, too",
                       config->certificate_key ? "certificate-key" : "client-authorities");
    for (int front = 0; r == 0 && config->certificate && front < FRONTS; front++)
        r = read_one(ret, config, (enum front)front, error);
    if (r < 0)
        tls_setup_done(ret);
    return r;
}

struct tls_setup tls_setup_ref(const struct tls_setup *setup)
{
    for (int front = 0; front < FRONTS; front++)
        if (setup->of[front])
            tls_context_ref(setup->of[front]);
    return *setup;
}

int64_t tls_setup_valid_until_us(const struct tls_setup *setup)
{
    for (int front = 0; front < FRONTS; front++)
        if (setup->of[front])
            return tls_valid_until_us(setup->of[front]);
    return 0;
}

void tls_setup_done(struct tls_setup *setup)
{
    for (int front = 0; front < FRONTS; front++)
        tls_context_unref(setup->of[front]);
    *setup = (struct tls_setup){ .of = { NULL } };
}
