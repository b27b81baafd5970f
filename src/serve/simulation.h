/* Shows the effect that a change of the rules would have had: replays recent requests, or those of a log, with the rules in
 * force and with the changed ones. A thread of low priority does it, one simulation at a time (admin_simulate.c). */
#ifndef SERVE_SIMULATION_H
#define SERVE_SIMULATION_H

#include "base/buf.h"
#include "replay/replay.h"
#include "serve/sample.h"

enum {
    SIMULATION_BODY_MAX = 32 << 20, /* bytes of the request, with its log */
    SIMULATION_VALUES_MAX = 200000, /* of its JSON; a text is one, however long */
    SIMULATION_CPU_MS = 10000,      /* that a simulation may use */
    SIMULATION_KEYS = 1 << 20,      /* that each of the two replays can count */
    SIMULATION_SUBJECTS = 100000,   /* that each can list, … */
    SIMULATION_NAMES = 16 << 20,    /* … and the bytes of their names */
    SIMULATION_CHANGED_MAX = 20,    /* requests listed whose verdict changes */
    SIMULATION_TOP_MAX = 100,
    SIMULATION_RULES_MAX = 1000, /* that one simulation changes, and as many that it removes */
};

struct simulation_task {
    struct weir *weir; /* whose rules are in force */
    sv body;
    struct sample **samples; /* of the loops; sample_count 0: none are kept */
    size_t sample_count;
    bool hashed;
    struct hash_key key;
    int64_t end_us; /* on the clock that does not step: stop then */
    /* From any thread: stop now. */
    bool (*cancelled)(void *data);
    void *data;

    /* The answer. */
    unsigned status;
    struct buf out; /* JSON; empty if `error` has the reason */
    struct weir_error error;
    const char *hint;
};

/* Returns when the answer is there; status 0 if it was cancelled. */
void simulation_run(struct simulation_task *task);

/* ---- private to simulation_*.c ---- */

enum simulation_input { INPUT_SAMPLE, INPUT_JSON, INPUT_COMBINED };

struct json_t;

/* The question. */
struct simulation_asked {
    struct json_t *json;  /* owns what follows */
    struct json_t *rules; /* a list of rules; NULL: none */
    struct json_t *remove;
    sv log;
    enum simulation_input input;
    unsigned top;
    bool strict; /* a bad line of an access log is an error */
};

/* From simulation_ask.c. Each returns 0, or -1 with the answer in `task`. */
int simulation_ask(struct simulation_task *task, struct simulation_asked *ret);
void simulation_asked_done(struct simulation_asked *asked);
/* The rules in force, and as they would be. */
int simulation_rules(struct simulation_task *task, const struct simulation_asked *asked, struct rules **ret_now,
                     struct rules **ret_then);
int simulation_refuse(struct simulation_task *task, unsigned status, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
