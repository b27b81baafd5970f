/* Carrying out commands: one table of them, and what they share. What is decided is gathered and decided together; whatever
 * else is asked waits until that is done, so that replies come in the order of the questions.
 *
 * A loop has one of these for all of its connections: it works for one at a time. */
#ifndef SERVE_COMMANDS_H
#define SERVE_COMMANDS_H

#include "serve/loop.h"
#include "serve/resp.h"

/* The version of Redis whose manners these are, for clients that ask. */
#define REDIS_VERSION "7.0.0"

enum access { ACCESS_NONE, ACCESS_DECIDE, ACCESS_ADMIN };

enum { SESSION_TEXT_MAX = 127, DATABASES = 16 };

/* What a connection has told about itself. */
struct session {
    uint64_t id;
    const struct conn *conn;
    enum access access;
    unsigned protocol; /* 2 or 3 */
    unsigned database; /* keeps apart keys of CL.THROTTLE, and nothing else */
    bool quit;         /* wants to be closed once it has its replies */
    char name[SESSION_TEXT_MAX + 1];
    char library[SESSION_TEXT_MAX + 1], library_version[SESSION_TEXT_MAX + 1];
};

void session_init(struct session *session, struct loop *loop, const struct conn *conn);

/* ---- for the connection ---- */

struct commands {
    struct loop *loop;
    struct session *session; /* for which the work is done */
    struct resp_out out;
    uint64_t read_ns; /* when it was read from the network */
    struct batch *batch;
};

int commands_init(struct commands *c, struct loop *loop);
void commands_done(struct commands *c);

void commands_begin(struct commands *c, struct session *session);
/* Its reply may come with commands_flush; until then its arguments have to stay. */
void commands_run(struct commands *c, const struct resp_command *command);
void commands_flush(struct commands *c);

/* ---- for those who carry them out ---- */

typedef void command_run(struct commands *c, const sv *args, size_t count);

enum command_flags {
    COMMAND_OPEN = 1,   /* before AUTH, too */
    COMMAND_ADMIN = 2,  /* with the admin token alone */
    COMMAND_GATHER = 4, /* sees to the order of replies itself */
    COMMAND_KEY = 8,    /* its first argument is a key */
};

struct command {
    const char *name;
    int arity; /* as Redis has it: with the name; negative: at least */
    unsigned flags;
    command_run *run;
    const char *group, *summary;
};
extern const struct command command_table[];
extern const size_t command_count;

const struct command *command_find(sv name);

bool arg_is(sv arg, const char *word); /* in any case */

/* Of CLIENT and the like, whose first argument is what to do. Arity as above, both names included. */
struct subcommand {
    const char *name;
    int arity;
    command_run *run;
};
void run_subcommand(struct commands *c, const char *command, const struct subcommand *table, size_t table_count,
                    const sv *args, size_t count);

/* commands_decide.c */
int batch_new(struct batch **ret);
void batch_free(struct batch *batch);
command_run weir_check_command, weir_peek_command, weir_reset_command, throttle_command;
/* commands_session.c */
command_run hello_command, auth_command, client_command, reset_command, select_command;
/* commands_about.c */
command_run command_command, info_command, config_command;

#endif
