/* Commands of Redis clients: the table of them, and what their files share. Requests for decisions are gathered and decided
 * together; any other command runs after them, so that replies are in the order of the commands.
 *
 * A loop has one struct commands for all of its connections: it works for one at a time. */
#ifndef SERVE_COMMANDS_H
#define SERVE_COMMANDS_H

#include "serve/byte_queue.h"
#include "serve/event_loop.h"
#include "serve/resp.h"

/* The version of Redis that weir imitates, for clients that ask. */
#define REDIS_VERSION "7.0.0"

enum access { ACCESS_NONE, ACCESS_DECIDE, ACCESS_ADMIN };

enum { SESSION_TEXT_MAX = 127, DATABASES = 16 };

/* From MULTI to EXEC. */
struct queue {
    enum { QUEUE_CLOSED, QUEUE_OPEN, QUEUE_BROKEN /* something could not be queued: EXEC carries out nothing */ } state;
    bool running;    /* EXEC waits for the store, and continues … */
    size_t done, at; /* … after so many commands, which have so many bytes */
    size_t count;
    struct byte_queue commands; /* see commands_multi.c */
};

/* The state of a connection. What each command needs comes first. */
struct session {
    struct wait *wait; /* for the store: no command runs until it is over; NULL: it does not wait */
    enum access access;
    unsigned generation; /* of the tokens that it was judged by */
    unsigned protocol;   /* 2 or 3 */
    unsigned database;   /* keeps apart keys of CL.THROTTLE, and nothing else */
    bool quit;           /* to be closed after its replies */
    bool has_token;
    struct queue queue;
    const struct conn *conn;
    uint64_t id;
    unsigned char token[SHA256_SIZE]; /* the hash of the one that the client has sent */
    char name[SESSION_TEXT_MAX + 1];
    char library[SESSION_TEXT_MAX + 1], library_version[SESSION_TEXT_MAX + 1];
};

struct commands;
void session_init(struct session *session, struct commands *commands, const struct conn *conn);
void session_done(struct session *session);
/* After a change of the tokens: a client whose token is not valid any more has to send another one. */
void session_check_tokens(struct session *session, const struct loop *loop);
/* Its token is missing or wrong. */
void session_refuse(struct commands *commands, const char *why);

/* ---- for the connection ---- */

enum {
    BATCH_MOST = 64,
    REQUEST_HEADERS_MAX = 100,
    BATCH_HEADERS = 4 * REQUEST_HEADERS_MAX,
    BATCH_ENTRIES = 4 * WEIR_DESCRIPTOR_MAX,
    BATCH_COSTS = 4 * WEIR_COSTS_MAX,
};

/* Requests that are gathered, to be decided together. */
/* For which verdicts a reply has the answer to an HTTP client at its end. */
enum reply_answer { ANSWER_NEVER, ANSWER_REFUSED, ANSWER_ALWAYS };

struct batch {
    size_t count, header_count, entry_count, cost_count;
    struct weir_request requests[BATCH_MOST];
    bool is_long[BATCH_MOST]; /* the reply that was asked for */
    enum reply_answer answers[BATCH_MOST];
    struct weir_header headers[BATCH_HEADERS];
    struct weir_header entries[BATCH_ENTRIES]; /* of descriptors */
    struct weir_cost costs[BATCH_COSTS];
    struct weir_verdict verdicts[BATCH_MOST];
    /* Those of a request that waits are used as soon as they are written, so that later requests may share them. */
    struct weir_shadows shadows[BATCH_MOST];
    struct weir_receipt receipts[BATCH_MOST];
    struct weir_usage usages[BATCH_MOST];
};

struct commands {
    struct loop *loop;
    const struct command *table;
    size_t table_count;
    struct session *session; /* for which the work is done */
    struct resp_out out;
    struct byte_budget budget; /* for all connections */
    uint64_t read_ns;          /* when it was read from the network */
    struct wait *spare;        /* for reuse */
    /* Called when the wait of this session is over: commands_answer writes its replies. */
    void (*decided)(struct session *session);
    struct batch batch;
};

/* *c is zero. */
void commands_init(struct commands *c, struct loop *loop, void (*decided)(struct session *session));
void commands_done(struct commands *c);

void commands_begin(struct commands *c, struct session *session);
/* Continues an EXEC that had to wait. False: it waits again. */
bool commands_continue(struct commands *c);
/* The reply may come with commands_flush; until then the arguments have to stay. False: the command was not run, because
 * earlier ones wait for the store. */
bool commands_run(struct commands *c, const struct resp_command *command);
/* Decides the requests that were gathered. False: they wait for the store, and later commands wait for them. */
bool commands_flush(struct commands *c);
/* The replies that a session has waited for. */
void commands_answer(struct commands *c, struct session *session);

/* ---- for the files of commands ---- */

typedef void command_run(struct commands *c, const sv *args, size_t count);

enum command_flags {
    COMMAND_OPEN = 1,   /* before AUTH, too */
    COMMAND_ADMIN = 2,  /* with the admin token alone */
    COMMAND_GATHER = 4, /* keeps the order of replies itself */
    COMMAND_KEY = 8,    /* its first argument is a key */
    COMMAND_KEYS = 16,  /* all of them are */
    COMMAND_QUEUE = 32, /* is allowed between MULTI and EXEC: changes nothing of the session, and its reply is short */
    COMMAND_NOW = 64,   /* runs there at once */
};

struct command {
    const char *name;
    int arity; /* as Redis has it: with the name; negative: at least */
    unsigned flags;
    command_run *run;
    const char *group, *summary;
};

enum { QUOTED_MAX = 128 }; /* bytes of the client's own words in an error */

static inline bool arity_fits(int arity, size_t count)
{
    return arity < 0 ? count >= (size_t)-arity : count == (size_t)arity;
}

/* commands_args.c */
const struct command *command_find(const struct commands *c, sv name);
bool arg_is(sv arg, const char *word); /* in any case */

/* For CLIENT and others whose first argument is a command itself. Arity as above, both names included. */
struct subcommand {
    const char *name;
    int arity;
    command_run *run;
};
void run_subcommand(struct commands *c, const char *command, const struct subcommand *table, size_t table_count,
                    const sv *args, size_t count);

/* commands_batch.c */
/* For one command that another thread runs, and whose reply comes later. NULL: no memory. */
struct wait *wait_for_command(struct commands *c);
void wait_end_command(struct wait *wait, const char *error); /* NULL: it is OK */
/* It is the newest command itself that the session waits for. */
bool wait_is_for_command(const struct session *session);
void wait_leave(struct session *session); /* the session ends: its replies are dropped */
void wait_free(struct wait *wait);

/* commands_decide.c */
command_run weir_check_command, weir_peek_command, weir_reserve_command;
command_run weir_settle_command, weir_renew_command, weir_refund_command;
/* commands_throttle.c */
command_run throttle_command, del_command;
/* commands_reset.c */
command_run weir_reset_command;
/* commands_multi.c */
command_run multi_command, exec_command, discard_command;
void queue_add(struct commands *c, const sv *args, size_t count);
/* Runs the queued commands, from where it stopped. */
void queue_run(struct commands *c);
void queue_break(struct session *session); /* if there is one */
void queue_clear(struct session *session);
/* commands_session.c */
command_run hello_command, auth_command, client_command, reset_command, select_command;
/* commands_about.c */
command_run command_command, info_command, config_command;

#endif
