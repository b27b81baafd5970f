/* What the files of the module share. README.md in this folder shows how they work together. */
#ifndef NGINX_MODULE_H
#define NGINX_MODULE_H

#include <ngx_config.h>

#include <ngx_core.h>
#include <ngx_http.h>
#include <weir/weir.h>

#include <pthread.h>

#include "stats.h"

extern ngx_module_t ngx_http_weir_module;

/* ---- what the configuration says ---- */

enum {
    ZONES_MAX = 64,      /* one bit each in a request_state */
    RULES_POLL_MS = 400, /* a changed rules file is seen within a second */
};

/* Where a directive is in nginx.conf. */
struct conf_position {
    ngx_str_t file;
    ngx_uint_t line;
};

/* Limits how many lines of a kind are logged in a second. */
struct log_sampler {
    time_t second;
    ngx_uint_t asked; /* in this second */
    ngx_uint_t left_out;
};

struct main_conf;

struct zone {
    struct main_conf *main;
    ngx_str_t name;
    struct conf_position position; /* of its weir_zone, or of the directive that named it first */
    ngx_uint_t bit;
    bool declared;
    off_t bytes;
    char *rules_file;
    char *cells_file; /* NULL: in nginx's shared memory */
    struct stats *stats;
    struct stats_known known; /* where they are */
    void *cells_memory;       /* NULL: in a file */
    struct weir *weir;
    struct log_sampler refusals, bad_costs;
    ngx_cycle_t *cycle;
    ngx_slab_pool_t *pool; /* the zone's shared memory */

    /* The result of the last change of the rules, for the log and the status. The thread that reads the rules writes it. */
    pthread_mutex_t report_lock;
    bool has_report; /* one that log_report has not handled yet */
    struct weir_error report;
    uint64_t report_version_ns;
    time_t rules_since; /* when this process installed the rules */
};

struct main_conf {
    ngx_array_t zones;  /* of struct zone * */
    ngx_event_t timer;  /* of a worker: looks for changed rules */
    bool after_auth;    /* some location decides after access control */
    bool later;         /* some location charges after the response */
    unsigned variables; /* bits of those that the configuration uses */
    char *trusted_proxies;
};

/* $http_NAME in an expression: a client may send the header more than once. */
struct header_variable {
    ngx_str_t name;   /* of the variable after http_, in lower case: x_api_key */
    ngx_str_t header; /* x-api-key */
    ngx_int_t index;  /* of the variable */
};

/* Variables in an expression that are wrong until the request's body was read. */
enum body_use {
    BODY_UNUSED,
    BODY_LENGTH,   /* $content_length: empty while the length is unknown */
    BODY_RECEIVED, /* $request_length: what nginx has read so far */
};

struct expression {
    ngx_http_complex_value_t value;
    enum body_use body;
    ngx_str_t response;   /* a variable in it whose value is not known before the response; empty: it has none */
    ngx_array_t *headers; /* of struct header_variable; NULL: it has none */
};

/* ATTRIBUTE=VALUE, cost=VALUE, cost:UNIT=VALUE, header:NAME=VALUE or descriptor:KEY=VALUE */
struct named_value {
    const char *attribute;              /* the text before the `=` */
    const struct weir_attribute *field; /* NULL: a cost, a header or an entry */
    ngx_str_t name;                     /* of a header, an entry, or the unit of a cost; empty: requests */
    struct expression value;
    bool wanted; /* some rule looks at it; of directive.rules */
};

enum { STATUS_FIRST = 100, STATUS_LAST = 599, STATUS_WORDS = (STATUS_LAST + 64) / 64 };

/* One `weir` directive, or the costs of weir_after. */
struct directive {
    struct zone *zone;
    bool after_auth;
    /* status=: charged after a response with one of these; the zone only looks before the response */
    bool by_status;
    uint64_t statuses[STATUS_WORDS]; /* a bit for each */
    enum body_use body;              /* of the costs */
    ngx_array_t values;              /* of struct named_value: attributes, and the costs */
    ngx_uint_t units;                /* number of costs in other units than requests */
    ngx_array_t headers;             /* of struct named_value */
    ngx_array_t entries;             /* of the descriptor, in their order: of struct named_value */

    /* What the rules of this version look at, as this worker asked last; 0: it has not asked. */
    uint64_t rules;
    bool wants_headers; /* those that clients send */
    const char **names; /* to ask for */
    bool *looks;        /* the answers */
    size_t name_count;
};

/* Whether the directive sets this header. */
bool directive_sets_header(const struct directive *directive, const ngx_str_t *header);
/* All of it was read. */
char *directive_end(ngx_conf_t *cf, struct directive *directive);
/* Asks what the rules in force look at. */
void directive_ask(struct directive *directive);

/* $weir_verdict and so on. */
enum variable { VAR_VERDICT, VAR_RULE, VAR_LIMIT, VAR_REMAINING, VAR_RETRY_AFTER, VAR_SHADOW, VAR_PENALTY };

enum header_mode { HEADERS_OFF, HEADERS_REFUSED, HEADERS_ALWAYS, HEADERS_LEGACY, HEADERS_OPENAI };

struct location_conf {
    ngx_array_t *directives; /* of struct directive; NULL: none */
    struct directive *after; /* of weir_after: costs, and no zone; NULL: none */
    ngx_uint_t headers;
    ngx_flag_t dry_run;
    struct zone *status;
};

/* ---- text ---- */

static inline struct weir_str str_of(const ngx_str_t *text)
{
    return (struct weir_str){ (const char *)text->data, text->len };
}

static inline bool str_starts(const ngx_str_t *text, const char *with)
{
    size_t len = strlen(with);
    return text->len >= len && ngx_strncmp(text->data, with, len) == 0;
}

static inline bool str_is(const ngx_str_t *text, const char *word)
{
    return text->len == strlen(word) && str_starts(text, word);
}

/* ---- expressions ---- */

char *expression_compile(ngx_conf_t *cf, ngx_str_t text, struct expression *ret);
/* The value for a request. A header that is repeated with the same value counts once. If the values differ, the settings of
 * the zone's rules say which one counts; or it returns NGX_DECLINED, and *ret_verdict refuses the request. */
ngx_int_t expression_value(ngx_http_request_t *r, struct zone *zone, const struct expression *expression,
                           const char *attribute, ngx_str_t *ret, struct weir_verdict *ret_verdict);

extern ngx_command_t conf_commands[];
void *conf_create_main(ngx_conf_t *cf);
char *conf_init_main(ngx_conf_t *cf, void *conf);
void *conf_create_location(ngx_conf_t *cf);
char *conf_merge_location(ngx_conf_t *cf, void *parent, void *child);

/* ---- zones ---- */

/* Asks nginx for the zone's memory. nginx calls back when it has that, and then the zone is opened. */
char *zone_declare(ngx_conf_t *cf, struct zone *zone);
/* Called in a worker, which inherits the zones that the master opened. */
void zones_begin(struct main_conf *main, ngx_cycle_t *cycle);

/* ---- logs ---- */

/* Whether a line may be logged in this second. */
bool may_log(struct log_sampler *sampler);
/* Says how many lines were left out since the last one. */
void write_left_out(struct log_sampler *sampler, char *text, size_t cap);
/* Writes the ids of the request's traceparent, for the end of a line; nothing unless there is one, and it is valid. */
void write_trace(const ngx_http_request_t *r, char *text, size_t cap);

/* ---- requests ---- */

enum { HEADERS_INLINE = 64 };

/* Makes weir's request, without its cost. `headers` has room for HEADERS_INLINE. all: also what directive->rules do not
 * look at. Returns NGX_DECLINED if *ret_verdict already refuses the request. */
ngx_int_t make_request(ngx_http_request_t *r, const struct directive *directive, bool all, struct weir_header *headers,
                       struct weir_request *ret, struct weir_verdict *ret_verdict);
/* `directive` has the costs: of the zone itself, or of weir_after. */
ngx_int_t copy_costs(ngx_http_request_t *r, struct zone *zone, const struct directive *directive, struct weir_request *ret,
                     struct weir_verdict *verdict);
/* Adds the headers to a request that was made without: a refusal follows the Accept of its client. */
void add_all_headers(ngx_http_request_t *r, const struct directive *directive, struct weir_header *headers,
                     struct weir_request *ret);

/* ---- decisions ---- */

/* A zone to charge after the response. Its location may not be the one that the request ends in. */
struct later_charge {
    const struct directive *directive; /* that decided */
    const struct directive *after;     /* has the costs: the same if it has status=, else of weir_after */
    struct later_charge *next;
};

/* Kept from a request's first decision to its end, through internal redirects. */
struct request_state {
    struct later_charge *later;
    uint64_t zones;         /* that have decided */
    bool waits;             /* for a slice of the zone that comes next, … */
    ngx_msec_t wait_end_ms; /* … until this time of ngx_current_msec */
    enum outcome outcome;
    bool applied;      /* the rest is known */
    bool named;        /* a rule said so */
    bool rate_headers; /* the answer has some */
    ngx_str_t rule, limit, shadow;
    uint64_t remaining;
    bool penalty;
    int64_t retry_after_s; /* 0: not refused; -1: never */
};

/* NULL: nothing was decided yet. */
struct request_state *request_state_find(ngx_http_request_t *r);
/* NULL: no memory. */
struct request_state *request_state_make(ngx_http_request_t *r);

ngx_int_t decide_preaccess(ngx_http_request_t *r);
ngx_int_t decide_after_auth(ngx_http_request_t *r);
/* Keeps what the receipt holds until the request is over. Returns NGX_ERROR if out of memory. */
ngx_int_t hold_for_request(ngx_http_request_t *r, struct zone *zone, const struct weir_receipt *receipt);
/* Frees the slots of all requests of a worker that ends without them. */
void release_all(void);
/* Charges what is known only after the response. */
ngx_int_t charge_later(ngx_http_request_t *r);

/* ---- answers ---- */

/* Sends an answer whose body and type live as long as the request. */
ngx_int_t send_answer(ngx_http_request_t *r, ngx_uint_t status, ngx_str_t type, ngx_str_t body);
/* Ends the request. Returns what a phase handler returns. */
ngx_int_t refuse(ngx_http_request_t *r, const struct location_conf *location, struct zone *zone,
                 const struct weir_request *request, const struct weir_verdict *verdict);
/* RateLimit headers, for the answer that will follow. */
ngx_int_t add_rate_headers(ngx_http_request_t *r, const struct location_conf *location, struct zone *zone,
                           const struct weir_request *request, const struct weir_verdict *verdict);
ngx_int_t status_handler(ngx_http_request_t *r);
ngx_int_t variables_add(ngx_conf_t *cf);
/* Bits of the variables that the configuration uses: what nobody reads is not kept. */
unsigned variables_used(ngx_conf_t *cf);

#endif
