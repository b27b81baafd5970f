/* The service: the engine, the thread that follows its rules, and the loops. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "serve/config.h"
#include "serve/event_loop.h"
#include "serve/listen.h"
#include "serve/table_place.h"

struct counts;
struct live;
struct refusals;
struct rule_sync;
struct saving;
struct admin_state;
struct tally;
struct weir;
struct top_watch;
struct simulation;

/* Forward only. */
enum stage { STAGE_STARTING, STAGE_READY, STAGE_ENDING };

struct server {
    struct config config;
    struct weir *weir;
    struct rule_sync *rule_sync;
    struct table_place table_place;
    struct saving *saving; /* NULL: the table is a plain file */
    struct loop *loops;    /* loop_count that decide, then the one of the admin listener */
    unsigned loop_count;
    unsigned connections;              /* config.connections, or as many as there may be open files */
    struct tls_setup tls;              /* of the main thread */
    int64_t certificate_until_us;      /* when the certificate expires; 0: none. Atomic: any thread may ask */
    struct tokens *tokens;             /* of the main thread */
    char tokens_error[WEIR_ERROR_MAX]; /* of the last look at them; "": none */
    bool tokens_failing;               /* and the log has said so */
    unsigned tokens_posted;            /* the generation that all loops were told of */
    struct admin_state *admin;         /* the admin loop's */
    struct hash_key sample_key;        /* of the hashes in samples: random, and nowhere else */
    struct simulation *simulation;     /* under way; NULL: none; the admin loop's */
    int64_t started_us;
    char where[FRONTS][LISTEN_WHERE_MAX]; /* as it was bound: "127.0.0.1:8080", "unix:/run/weir.sock", "off" */
    enum stage stage;                     /* any thread may ask: server_ready, server_ending */
    struct {
        uint64_t used;
        int64_t steady_us;       /* when; 0: not yet */
    } fill;                      /* of the table, as report.c saw it last; the admin loop's */
    struct top_watch *top_watch; /* these are the admin loop's, too */
    struct tally *tally;
    struct counts *counts;
    struct refusals *refusals;
    struct live *live;
};

/* Rules are in force, all listeners are open, and the shutdown has not begun. Any thread may ask. */
static inline bool server_ready(const struct server *server)
{
    return __atomic_load_n(&server->stage, __ATOMIC_ACQUIRE) == STAGE_READY;
}

/* True from the signal on, before the loops have heard of it: each further HTTP answer closes its connection. */
static inline bool server_ending(const struct server *server)
{
    return __atomic_load_n(&server->stage, __ATOMIC_ACQUIRE) == STAGE_ENDING;
}

/* Runs until SIGTERM or SIGINT. Returns the exit status. */
int server_run(int argc, char **argv);

/* From admin_simulate.c: ends a simulation that is under way. After the admin loop has ended, and before loop_done. */
void simulation_stop(struct server *server);

/* From greet.c. */
void server_greet(const struct server *server);

#endif
