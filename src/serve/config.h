/* What `weir serve` was told: by its flags, its configuration file, and the defaults. The table in options.def has name,
 * default, bounds, help and documentation of each option; flags, the file, --help and the man page all come from it. */
#ifndef SERVE_CONFIG_H
#define SERVE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct weir_error;

enum config_log { CONFIG_LOG_PLAIN, CONFIG_LOG_JSON };

struct config {
    char *config; /* the file that was read, or NULL */

    char *data;  /* folder: rules, cells, tokens */
    char *rules; /* source; NULL: rules.db in data */
    char *cells; /* file; NULL: cells in data */
    uint64_t cells_keys;
    unsigned poll_ms; /* how often the source is asked for changes */

    char *http, *resp, *admin; /* "host:port", "unix:PATH", "off" */
    unsigned threads;          /* 0: one for each CPU */

    char *token_file;  /* of the decision listeners; NULL: they want none */
    char *user_header; /* forward auth: whose value is the user; NULL: none */
    char *admin_hosts; /* names, with commas, that the admin listener answers to beside its own address */

    unsigned connections, connections_per_address;
    unsigned idle_ms;    /* between two requests */
    unsigned request_ms; /* for one, from its first byte to the last of its answer */
    unsigned drain_ms;   /* after SIGTERM */
    uint64_t request_bytes, header_bytes, pipeline_bytes;

    int log;               /* enum config_log */
    unsigned log_refusals; /* at most so many lines a second; 0: none */
};

/* Defaults, then the file that --config names, then the flags. argv[0] is the name of the command. 0; 1: --help was asked
 * for, and printed; negative: *error says in one sentence what is wrong ("weir.yaml:7: …"). */
int config_read(struct config *ret, int argc, char **argv, struct weir_error *error);
void config_done(struct config *config);

#endif
