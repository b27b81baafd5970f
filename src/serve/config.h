/* The options of `weir serve`: from its flags, its configuration file, and the defaults. The table in options.def has name,
 * default, bounds, help and documentation of each option; flags, the file, --help and the man page all come from it. */
#ifndef SERVE_CONFIG_H
#define SERVE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/amount.h"

struct weir_error;

enum config_log { CONFIG_LOG_PLAIN, CONFIG_LOG_JSON };
enum config_switch { CONFIG_NO, CONFIG_YES };
enum config_tls { CONFIG_TLS_NO, CONFIG_TLS_YES, CONFIG_TLS_CLIENTS };
enum config_envoy_charge { CONFIG_CHARGE_TOGETHER, CONFIG_CHARGE_EACH };
enum config_sample_values { CONFIG_SAMPLE_HASHED, CONFIG_SAMPLE_PLAIN };

struct config {
    char *config; /* the file that was read, or NULL */

    char *data;         /* folder: rules, cells, tokens */
    char *rules;        /* source; NULL: rules.db in data */
    char *cells;        /* file; NULL: cells in data */
    char *cells_memory; /* folder for the table, or "none"; NULL: table_place.c chooses it */
    unsigned save_ms;   /* how often a table in memory is saved */
    uint64_t cells_keys;
    bool cells_keys_given; /* it is not the default */
    unsigned poll_ms;      /* how often the source is asked for changes */

    char *counters;             /* address of the store; NULL: rules count on this host alone */
    unsigned store_deadline_ms; /* of a decision there */
    unsigned hosts;             /* that count there; 0: counted through it */

    char *http, *resp, *grpc, *admin; /* "host:port", "unix:PATH", "off" */
    unsigned threads;                 /* 0: one for each CPU */

    char *certificate, *certificate_key;         /* PEM files; NULL: no TLS, and the key is with the certificate */
    char *client_authorities;                    /* PEM file; NULL: none */
    int http_tls, resp_tls, grpc_tls, admin_tls; /* enum config_tls */

    char *tokens;      /* file of named tokens; NULL: tokens in data */
    char *token_file;  /* of the decision listeners; NULL: they want none, unless … */
    int require_token; /* enum config_switch: … decisions require one that has a name */
    char *user_header; /* forward auth: whose value is the user; NULL: none */
    char *admin_hosts; /* names, with commas, that the admin listener answers to beside its own address */

    unsigned connections, connections_per_address;
    unsigned idle_ms;    /* between two requests */
    unsigned request_ms; /* for one, from its first byte to the last of its answer */
    unsigned drain_ms;   /* after SIGTERM */
    uint64_t request_bytes, header_bytes, pipeline_bytes;

    int keep_subjects; /* enum config_switch */

    int envoy_headers; /* enum config_switch: headers for the client in answers to Envoy */
    int envoy_charge;  /* enum config_envoy_charge */

    unsigned sample;   /* requests to keep; 0: none */
    int sample_values; /* enum config_sample_values */

    int log;               /* enum config_log */
    unsigned log_refusals; /* maximum lines per second; 0: none */
};

/* Defaults, then the file that --config names, then the flags. argv[0] is the name of the command; argv is left as it is.
 * Negative: *error says in one sentence what is wrong ("weir.yaml:7: …"). */
int config_read(struct config *ret, int argc, char **argv, struct weir_error *error);
void config_done(struct config *config);

/* Names of options, with commas between; "": none. */
enum { CONFIG_NAMES_MAX = 500 };
struct config_changes {
    char live[CONFIG_NAMES_MAX];    /* those that can change while it runs: exchanged */
    char restart[CONFIG_NAMES_MAX]; /* those that need a restart: left alone */
};
/* Finds where the two differ, and exchanges the values that can change while the service runs. A second call undoes the
 * first. */
void config_exchange(struct config *config, struct config *fresh, struct config_changes *ret);

/* ---- the table ---- */

enum config_kind {
    CONFIG_NUMBER = AMOUNT_NUMBER, /* unsigned */
    CONFIG_COUNT = AMOUNT_COUNT,   /* uint64_t */
    CONFIG_SIZE = AMOUNT_SIZE,     /* uint64_t */
    CONFIG_TIME = AMOUNT_TIME,     /* unsigned, in milliseconds */
    CONFIG_TEXT,                   /* char * */
    CONFIG_ADDRESS,                /* char *, see listen.h */
    CONFIG_HEADER,                 /* char *, the name of an HTTP header */
    CONFIG_CHOICE,                 /* int: which word of `argument` ("a|b") */
};

enum config_when { CONFIG_RESTART, CONFIG_LIVE }; /* a changed value counts from the next start, or from a reload on */

struct config_option {
    const char *name; /* without its dashes; NULL ends the table */
    size_t offset;    /* in struct config */
    size_t size;
    enum config_kind kind;
    const char *initial;  /* the default as it would be written; NULL: none */
    uint64_t min, max;    /* of a text: its bytes */
    const char *argument; /* what --help calls the value */
    enum config_when when;
    const char *help; /* one line */
    const char *text; /* what else there is to know; "" or sentences */
};

extern const struct config_option config_options[];

/* From config_value.c. */

/* Stores a value. NULL, or what is allowed, in `scratch` or elsewhere. */
enum { CONFIG_ALLOWED_MAX = 200 };
const char *config_store(const struct config_option *option, sv value, struct config *config,
                         char scratch[CONFIG_ALLOWED_MAX]);
/* "100ms to 1h"; "" for texts. */
void config_bounds(const struct config_option *option, char out[CONFIG_ALLOWED_MAX]);

#endif
