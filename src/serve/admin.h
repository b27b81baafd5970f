/* For the files of the admin listener: its routes, and work for the rule thread. */
#ifndef SERVE_ADMIN_H
#define SERVE_ADMIN_H

#include "base/arena.h"
#include "serve/ended.h"
#include "serve/guesses.h"
#include "serve/http.h"
#include "serve/rule_sync.h"
#include "serve/server.h"
#include "source/show.h"

struct admin_job;

enum { ADMIN_NUMBERS = 2, ADMIN_TEXTS = 4 };

/* Work of the rule thread for a call. */
struct admin_work {
    int (*run)(struct source *source, struct admin_job *job, struct weir_error *error);
    const char *change; /* for the log: "put"; NULL: it changes nothing */
    bool needs_json, takes_dry_run, needs_history;
    bool of_all; /* overrides, history and undo: of everything */
    struct {
        const char *name; /* NULL: none */
        uint64_t min, max, otherwise;
    } numbers[ADMIN_NUMBERS];       /* parameters */
    const char *texts[ADMIN_TEXTS]; /* parameters that are texts; NULL: none */
};
/* admin_rules.c */
extern const struct admin_work admin_list_rules, admin_get_rule, admin_put_rule, admin_patch_rule, admin_enable_rule,
    admin_disable_rule, admin_delete_rule, admin_get_settings, admin_put_settings;
/* admin_overrides.c */
extern const struct admin_work admin_list_overrides, admin_list_all_overrides, admin_get_override, admin_put_override,
    admin_delete_override;
/* admin_history.c. Without an id: of the settings. */
extern const struct admin_work admin_get_history, admin_undo, admin_get_all_history, admin_undo_any;

struct admin_route {
    const char *method;
    const char *path; /* "{id}" and "{subject}" are one segment each, whatever it is */
    enum role role;   /* the least one that may ask; for a dry run ROLE_READ is enough */
    void (*run)(struct http_call *call, struct server *server);
    const struct admin_work *work; /* in place of `run` */
    bool open;                     /* requires no token */
    unsigned body_max;             /* bytes; 0: as many as any request */
};
extern const struct admin_route admin_routes[];
extern const size_t admin_route_count;

/* See struct http_service. */
bool admin_screen(struct http_call *call, void *server);
void admin_handle(struct http_call *call, void *server);
size_t admin_body_max(const struct http_call *call, void *server);
enum { ADMIN_HEADERS = 5 };
extern const struct weir_header admin_headers[ADMIN_HEADERS];

/* ---- who may ask ---- */

/* The state of the admin listener's loop. */
struct admin_state {
    char cookie_name[COOKIE_NAME_MAX];
    struct ended ended;
    struct guesses guesses;
};
int admin_state_new(struct admin_state **ret, const struct server *server, struct weir_error *error);
void admin_state_free(struct admin_state *state);

/* The sender of a request, known by a token or by the cookie of a session. If a request has both, the token counts. */
struct admin_caller {
    enum role role;            /* ROLE_NONE: unknown */
    const struct token *token; /* NULL: unknown */
    bool has_session;
    struct cookie session;
};
/* NULL: there is no such token, or it is for decisions only. */
const struct token *admin_token(const struct http_call *call, sv given);
/* From the headers alone: asked again later, it says whether the session has ended meanwhile. */
struct admin_caller admin_caller(const struct http_call *call);
/* The session of each cookie that is valid. `i` counts them. False: no more. */
bool admin_session(const struct http_call *call, unsigned i, struct cookie *ret);

enum { ADMIN_SIGN_IN_BODY_MAX = 4096 };

/* The checks of a request. False: it is refused, and the call has been answered. */
bool admin_check_host(struct http_call *call, const struct server *server);
bool admin_check_caller(struct http_call *call, struct server *server,
                        const struct admin_route *route); /* NULL: no route */
/* The request comes from no page of another origin. A change by a session must come from a page of this one: the request is
 * refused if it does not say so. session: that the caller is known by; NULL: none. */
bool admin_check_page(struct http_call *call, const struct server *server, const struct cookie *session);
/* Answers a request with a wrong token; later, if there were many from its address. */
void admin_refuse_token(struct http_call *call, struct server *server);

/* Whether the Host of a request, or its Origin, is one of ours: an address or name that `address` (of this host, as the
 * connection came in), loopback or `names` (with commas between) have. Ports are not compared. */
bool admin_host_is_ours(sv host, sv address, const char *names);
bool admin_origin_is_ours(sv origin, sv address, const char *names);
/* Whether a page of this origin is a page of the service at `host`: the same host and port, or exactly one of `names`. */
bool admin_origin_is_same(sv origin, sv host, const char *names);

/* ---- answers ---- */

enum { ADMIN_BODY_MAX = 256 << 20 };

/* 200 with this body. type empty: JSON. */
void admin_answer(struct http_call *call, sv type, const struct buf *body);
/* A parameter that is a number. False: it is out of bounds, and the call has been answered. */
bool admin_number(struct http_call *call, const char *name, uint64_t least, uint64_t most, uint64_t otherwise,
                  uint64_t *ret);
/* The same for a length of time; *ret_us stays as it is if there is none. */
bool admin_length(struct http_call *call, const char *name, int64_t least_us, int64_t most_us, int64_t *ret_us);
/* Each parameter of the query has one of these names, which end in NULL; else the call has been answered. */
bool admin_check_parameters(struct http_call *call, const char *const *names);
/* The parameter dry_run says that nothing is to be changed. */
bool admin_is_dry_run(struct http_call *call);
/* The author of a change: the header X-Weir-Author, or else "page (operate)" for a session, "admin api" for a token. If the
 * token has a name, it stands behind it: "Ann (ops)", "admin api (ops)". */
sv admin_author(struct http_call *call);

/* ---- work with the source ---- */

/* Two threads compete to leave ADMIN_WAITING: the rule thread when it begins, and the loop's when the call times out. */
enum admin_stage { ADMIN_WAITING, ADMIN_BEGUN, ADMIN_GIVEN_UP };

/* One call that the rule thread works for. It has copies of what it needs, since a call that took too long is answered
 * before its work is done. */
struct admin_job {
    struct source_job job; /* first */
    struct loop_task task;
    uv_timer_t late;
    struct loop *loop;
    struct http_call *call; /* of the loop's thread; NULL: answered */
    int stage;              /* enum admin_stage; atomic */

    const struct admin_work *work;
    enum role role; /* of the caller */
    struct arena arena;
    sv id, subject, body, if_match, if_none_match;
    sv texts[ADMIN_TEXTS]; /* of the parameters work->texts */
    struct source_author author;
    bool dry_run;
    bool shown; /* `out` has what would be */
    uint64_t numbers[ADMIN_NUMBERS];
    const uint64_t *read_version; /* the change is based on this version of the settings; NULL: on any */
    bool moved;                   /* others have changed the settings since that version */

    /* The result of the work, for the answer. */
    unsigned status; /* 0: as the result says */
    struct buf out;
    struct buf stored; /* the subject as the source spells it */
    uint64_t version;  /* its ETag; 0: none */
    int result;
    struct weir_error error;
};

/* Suspends the call, and answers it when the work is done. Answers it at once if it is wrong. */
void admin_job_start(struct http_call *call, struct server *server, sv id, sv subject, const struct admin_work *work);

/* In the rule thread: the changes that follow are made under the call's conditions (If-Match, dry_run). `enable`: see
 * source_terms. */
void admin_set_terms(struct source *source, struct admin_job *job, bool enable);
void admin_clear_terms(struct source *source);
/* The check of these terms: If-Match and If-None-Match. */
int admin_check_tags(uint64_t version, void *job, struct weir_error *error);
/* The row of the job's rule; NULL: none. */
const struct source_row *admin_find_row(const struct source_reading *reading, const struct admin_job *job);

/* Only the admin role, which may set them, sees settings that are secret. */
enum source_secrets admin_secrets(const struct admin_job *job);

/* If-Match, If-None-Match: whether one of the tags is that of `version`. `*` is any that is there. */
bool admin_tag_in(sv tags, uint64_t version);
/* `*`, or tags in quotes with commas between. */
bool admin_tags_are_good(sv tags);

/* ---- subjects ---- */

struct subject;
/* From admin_record.c. The author and the note of a change that is not a job; false: they are invalid, and the call has
 * been answered. */
bool admin_read_author(struct http_call *call, struct source_author *ret);
/* Has the rule thread record in the history what was done to a subject; length_us 0: none. Nobody waits for it: what was
 * done is done, also if the source is unavailable. Then the log says so. */
void admin_record(struct server *server, const char *what, const struct subject *subject, int64_t length_us,
                  struct source_author author);

struct subject_reset {
    const char *rule;
    const struct weir_str *values; /* that the rule counts by */
    size_t count;
    struct weir_str author;
    const char *from;
};
/* Forgets what a subject has used, and logs that. Returns 0, with the subject in *ret; 1 if nothing was counted for it; or
 * what the engine says. Unless it is 0, `error` has the reason. From any thread; with a store it waits for that. */
int subject_reset(struct server *server, const struct subject_reset *whom, int64_t now_us, struct subject *ret,
                  struct weir_error *error);

/* ---- routes ---- */

void admin_page(struct http_call *call, struct server *server);
void admin_lint(struct http_call *call, struct server *server);
void admin_show_session(struct http_call *call, struct server *server);
void admin_sign_in(struct http_call *call, struct server *server);
void admin_sign_out(struct http_call *call, struct server *server);
void admin_counts(struct http_call *call, struct server *server);
void admin_explain(struct http_call *call, struct server *server);
/* admin_refusals.c. The plans of the newest refusals of all loops; false: out of memory. */
void admin_refusals(struct http_call *call, struct server *server);
/* admin_subjects.c */
void admin_find_subjects(struct http_call *call, struct server *server);
void admin_get_subject(struct http_call *call, struct server *server);
void admin_reset(struct http_call *call, struct server *server);
void admin_lift(struct http_call *call, struct server *server);
void admin_penalise(struct http_call *call, struct server *server);
/* admin_simulate.c */
void admin_sample(struct http_call *call, struct server *server);
void admin_simulate(struct http_call *call, struct server *server);

#endif
