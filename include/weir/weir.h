/* weir: may this go through?
 *
 *     struct weir_options options = { .size = sizeof options, .rules_file = "rules.yaml" };
 *     struct weir_error error;
 *     struct weir *weir;
 *     if (weir_open(&weir, &options, &error) < 0)
 *         errx(1, "%s", error.text);
 *
 *     struct weir_request request = { .event = WEIR_STR("ocr"), .key = weir_str(user_id), .cost = 1 };
 *     struct weir_verdict verdict;
 *     weir_check(weir, &request, weir_now_us(), &verdict);
 *     if (!verdict.allowed) ...
 *
 * Or, in front of something costly, in one line:
 *
 *     WEIR_DETECT(weir, "ocr", user_id) { submit(...); } else { too_frequent(weir_last(NULL)); }
 *
 * A handle may be used by any number of threads at once. Deciding takes no lock, and no memory but in a thread's first
 * decision, for a request that more than 32 limits apply to, and where it may have to wait for a store. Time is always
 * passed in, in microseconds since 1970.
 * After a fork the child may decide with the handle and close it. It has no watcher, and may poll or change the
 * rules only if no thread of the parent could have been doing so at that moment; better open a handle after the fork.
 * Functions that can fail return a negative enum weir_code; those that take a struct weir_error say why in it. A refusal is
 * not a failure. Link with `pkg-config --cflags --libs weir`. */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#if defined(__GNUC__) && !defined(__clang__)
/* As with stat(2), some functions are called like the struct that they fill. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#endif

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

/* Raised when a change breaks programs built against an earlier header. struct weir_options begins with its size, so that
 * fields can be added at its end without breaking anyone; a change of any other structure raises this. */
#define WEIR_ABI_VERSION 2
WEIR_API int weir_abi_version(void);
WEIR_API const char *weir_version(void);

/* ---- words ---- */

enum {
    WEIR_ID_MAX = 100,           /* bytes in a rule's id */
    WEIR_NAME_MAX = 50,          /* bytes in a limit's name */
    WEIR_SHADOW_MAX = 16,        /* shadow rules listed in one verdict */
    WEIR_ERROR_MAX = 1000,       /* bytes in an error's text */
    WEIR_RECEIPT_LIMITS = 16,    /* limits in a receipt */
    WEIR_RECEIPT_TEXT_MAX = 848, /* bytes in the text of a receipt */
    WEIR_BAD_REQUEST = 400,      /* status of a request that is refused for a repeated header, see weir_verdict */
    WEIR_NEVER = -1              /* retry_after_ms, reset_ms: no wait will help */
};

/* Errors: name, number, text. */
#define WEIR_CODES(X)                             \
    X(INVALID, -1, "an argument is wrong")        \
    X(NO_MEMORY, -2, "out of memory")             \
    X(SYSTEM, -3, "the system refused")           \
    X(RULES, -4, "the rules have errors")         \
    X(CELLS, -5, "the cells file cannot be used") \
    X(UNKNOWN_RULE, -6, "there is no such rule")  \
    X(BLANK, -7, "a blank event or key")

enum weir_code {
    WEIR_OK = 0,
#define WEIR_CODE_ENUM(name, number, text) WEIR_E_##name = number,
    WEIR_CODES(WEIR_CODE_ENUM)
#undef WEIR_CODE_ENUM
};

struct weir_error {
    enum weir_code code;
    char text[WEIR_ERROR_MAX];
};

/* A string that need not end in NUL. { NULL, 0 } and "" both mean: not there. */
struct weir_str {
    const char *ptr;
    size_t len;
};

static inline struct weir_str weir_str(const char *s)
{
    struct weir_str r;
    r.ptr = s;
    r.len = s ? strlen(s) : 0;
    return r;
}
#ifndef __cplusplus
#define WEIR_STR(literal) ((struct weir_str){ (literal), sizeof(literal) - 1 })
#else
#define WEIR_STR(literal) weir_str(literal)
#endif

struct weir_header {
    struct weir_str name;
    struct weir_str value;
};

/* What is asked about. Leave out what there is none of. Blanks and tabs at the ends of method, host, ip and the values of
 * headers are no part of them. user, event and key count as they are given: trim what you take from a header. */
struct weir_request {
    struct weir_str method;
    struct weir_str path; /* as the client sent it, query and all: weir normalises it */
    struct weir_str host;
    struct weir_str ip;   /* the client's address, if the caller knows it; it wins over peer */
    struct weir_str peer; /* who is connected; the client is found with X-Forwarded-For and trusted_proxies */
    struct weir_str user; /* left out: options.user_id is asked */
    struct weir_str event;
    struct weir_str key;
    const struct weir_header *headers;
    size_t header_count;
    uint32_t cost;   /* 0 looks without charging */
    bool peek;       /* answer for the cost, charge nothing */
    bool brief;      /* if it passes, nobody looks at remaining, reset_ms and window_ms */
    bool refundable; /* the verdict is to have a receipt, for weir_refund */
    void *context;   /* handed to the callbacks */
};

/* Of one limit: which cell, which window. */
struct weir_charged {
    uint64_t limit, time;
    uint32_t window, place;
};

/* What a request was charged, so that weir_refund can give it back. `count` is for everybody, the rest is weir's own. */
struct weir_receipt {
    uint32_t count; /* limits that were charged, of many the first WEIR_RECEIPT_LIMITS; 0: nothing can be given back */
    uint32_t cost;
    uint64_t number; /* no two receipts have the same */
    int64_t at_us, store_us;
    uint64_t seal; /* of all else, with the secret of the table of cells: nobody can make or change one */
    struct weir_charged charged[WEIR_RECEIPT_LIMITS];
};

/* A request that repeats a header which a rule matches or counts by, with different values, is refused unless the settings
 * say otherwise (`repeated_headers`): allowed and applied are false, status is WEIR_BAD_REQUEST, `limit` has the name of
 * the header, and nothing is charged. */
struct weir_verdict {
    bool allowed;
    bool applied;           /* false: no rule applies, and the fields from rule to retry_after_ms say nothing */
    bool unavailable;       /* refused because the store does not answer, not for being too frequent */
    uint16_t status;        /* HTTP status of the refusal, 0 when allowed */
    uint32_t max;           /* capacity of the limit that is named */
    uint32_t remaining;     /* whole units left after this charge */
    int64_t reset_ms;       /* until the limit is as if unused; WEIR_NEVER for a bucket in use whose max is now 0 */
    int64_t retry_after_ms; /* 0 when allowed, WEIR_NEVER, or the wait after which this request would pass */
    int64_t window_ms;      /* the time in which `max` comes back */
    uint32_t shadow_count;  /* shadow rules that would have refused; the first WEIR_SHADOW_MAX are listed */
    char rule[WEIR_ID_MAX + 1];
    char limit[WEIR_NAME_MAX + 1];
    char shadow[WEIR_SHADOW_MAX][WEIR_ID_MAX + 1];
    uint32_t private_rule; /* weir's own: which rule of which rules this was */
    uint64_t private_rules;
    struct weir_receipt receipt; /* of a request that was `refundable` and was charged; else its count is 0 */
};

/* ---- open and close ---- */

struct weir;

/* The refusal of one request, as HTTP. The strings live until the next call of weir_refuse in the same thread. */
struct weir_refusal {
    uint16_t status;
    struct weir_str body;
    struct weir_str content_type;
    const struct weir_header *headers; /* the rule's own, and the standard ones whose names the rule does not use */
    size_t header_count;
};

/* What becomes of the store that `counters` names. */
enum weir_store_event {
    WEIR_STORE_UP = 1,   /* it answers (again) */
    WEIR_STORE_DOWN,     /* it does not: rules go by their on_store_failure */
    WEIR_STORE_REPLACED, /* another server, or the same one started again, answers now: what it did not save is forgotten */
    WEIR_STORE_EMPTIED,  /* its counts are gone */
    WEIR_STORE_ODD       /* it answers, but a key cannot be used: not weir's, or of another layout */
};

struct weir_options {
    size_t size; /* sizeof(struct weir_options) */

    const char *rules_file; /* YAML or JSON; a change is seen by weir_poll or the watcher */
    const char *rules_text; /* instead of a file */
    size_t rules_text_len;  /* 0: up to its NUL */

    const char *cells_file; /* shared by all processes that open it, made if missing; NULL: this process and its children */
    uint64_t cells_keys;    /* size of a new table as the keys that it holds at its default fill … */
    uint64_t cells_bytes;   /* … or in bytes; both 0: 1,048,576 cells */

    uint32_t watch_ms; /* > 0: a thread looks for a changed rules file this often */

    /* The user of a request whose caller left it out (Hodor's setUserIdGetter). Write at most `cap` bytes to `buf`, return
     * how many; 0 if there is none. Called only if a rule wants the user. */
    size_t (*user_id)(const struct weir_request *request, char *buf, size_t cap, void *data);
    void *user_id_data;

    /* Builds the refusal (Hodor's setRejectResponseFactory). `refusal` comes filled with the rule's own; change it. What it
     * points to must outlive the caller's use of it. */
    void (*refuse)(const struct weir_request *request, const struct weir_verdict *verdict, struct weir_refusal *refusal,
                   void *data);
    void *refuse_data;

    /* Told of every change of the rules file that is noticed: taken over whole (error->code 0), or bad, and why; see also
     * weir_rules_error. Called by weir_poll or from weir's threads; must not close the handle. */
    void (*on_rules)(const struct weir_error *error, void *data);
    void *on_rules_data;

    /* A table in memory that the caller shares with its other processes, instead of cells_file and the sizes. It begins at
     * a multiple of 128 and stays until the handle is closed. All zero: a table is made in it, by one process before the
     * others open it; else it has to hold one of this size. */
    void *cells_memory;
    size_t cells_memory_bytes;

    /* Networks with blanks or commas between them, instead of the trusted_proxies of the rules; "": nobody is trusted. */
    const char *trusted_proxies;

    /* Counters that many hosts share, in Redis or Valkey: redis://HOST:PORT/DB and the like (docs/redis.md). Rules count
     * there unless they say `counters: local`. A store that cannot be reached is no error (weir_open waits for it for
     * store_deadline_ms): what rules do then they say themselves (`on_store_failure`). Each table of cells counts as a host
     * there: let the processes of a host share a cells_file. */
    const char *counters;
    uint32_t store_deadline_ms; /* how long a decision waits for it; 0: 20 */
    uint32_t store_hosts; /* how many hosts count there, for `on_store_failure: local`; 0: counted through the store */
    /* Told once of each change, from weir's threads or those of its event loops; must not close the handle. */
    void (*on_store)(enum weir_store_event event, const char *text, void *data);
    void *on_store_data;

    /* Nothing here may wait: a rule that counts in the store, and not in slices of it (`lease`), is an error. So is a
     * leased one without cells_file (or counters), since nobody could put slices into its cells. */
    bool never_wait;
};

WEIR_API int weir_open(struct weir **ret, const struct weir_options *options, struct weir_error *error);
WEIR_API void weir_close(struct weir *weir);

/* ---- decide ---- */

/* CLOCK_REALTIME. Read it once for a batch of decisions: it costs more than a decision. Read it again at least as often as
 * the shortest period of a limit, or that limit refuses too much. */
WEIR_API int64_t weir_now_us(void);

/* Decides, and fills *ret_verdict always: a request that cannot be judged (WEIR_E_*) is refused. */
WEIR_API int weir_check(struct weir *weir, const struct weir_request *request, int64_t now_us,
                        struct weir_verdict *ret_verdict);

/* The same for many, faster: their cache misses overlap. Each is decided on its own, in order. */
WEIR_API int weir_check_batch(struct weir *weir, const struct weir_request *requests, size_t count, int64_t now_us,
                              struct weir_verdict *ret_verdicts);

enum weir_take {
    WEIR_TAKE_NONE, /* the request is refused */
    WEIR_TAKE_FIRST,
    WEIR_TAKE_LAST
};

/* For programs that make an attribute of a request ("user", "key", "header:NAME", …) from a header that a client may
 * repeat: to be asked when its values differ. Says which value to take, of those that are not empty; or WEIR_TAKE_NONE, and
 * *ret_verdict refuses the request, because some enforced rule looks at the attribute. `header` is the name for people. */
WEIR_API enum weir_take weir_repeated(struct weir *weir, const char *attribute, struct weir_str header, int64_t now_us,
                                      struct weir_verdict *ret_verdict);

/* ---- decide in an event loop ---- */

/* With `counters` a decision may have to wait for the store, and weir_check waits, for store_deadline_ms at most. An event
 * loop does not: it has a weir_loop, used by its thread alone.
 *
 *     watch weir_loop_fd for reading; call weir_loop_run when it is readable
 *     weir_loop_check as often as need be, then, once at the end of the turn, weir_loop_flush: all goes in one write */
struct weir_loop;

/* Called by weir_loop_run (or weir_loop_flush, weir_loop_close). The verdict is gone when it returns. It may ask for
 * further decisions, and must not close the loop. */
typedef void weir_decided(const struct weir_verdict *verdict, void *data);

WEIR_API int weir_loop_open(struct weir_loop **ret, struct weir *weir, struct weir_error *error);
/* What still waits is decided as if the store were away. */
WEIR_API void weir_loop_close(struct weir_loop *loop);
WEIR_API int weir_loop_fd(const struct weir_loop *loop);
WEIR_API void weir_loop_run(struct weir_loop *loop);
WEIR_API void weir_loop_flush(struct weir_loop *loop);
/* 1: decided, *ret_verdict is filled; 0: `decided` will be called, within store_deadline_ms; negative: as weir_check. The
 * request and what it points to need not stay. */
WEIR_API int weir_loop_check(struct weir_loop *loop, const struct weir_request *request, int64_t now_us,
                             struct weir_verdict *ret_verdict, weir_decided *decided, void *data);

/* For loops that wait by a timer and have no connection of their own, such as nginx's workers: slices of leased rules are
 * fetched by the `weir serve` of this host, through the cells file. 1: not decided and nothing charged, ask again in a
 * millisecond or so; never once now_us has reached until_us. Else as weir_check. */
WEIR_API int weir_check_soon(struct weir *weir, const struct weir_request *request, int64_t now_us, int64_t until_us,
                             struct weir_verdict *ret_verdict);

/* ---- give back ---- */

/* Gives back what a request was charged, for one whose work came to nothing: the same request, and the receipt of its
 * verdict. Returns to how many limits, 0 or more: none to a window that is over, to a rule that is gone, to a subject that
 * was set free since, by a receipt that was used before, is older than an hour or than the last 4,032 of its subject, or
 * was given with another table of cells; of a bucket, the cost less what has refilled since. Limits that count in the
 * store, leased ones too, are given back there, without waiting for its answer. */
WEIR_API int weir_refund(struct weir *weir, const struct weir_request *request, const struct weir_receipt *receipt,
                         int64_t now_us);

/* A receipt as hexadecimal digits, to be sent elsewhere. Returns its length; writes at most cap - 1 bytes and a NUL. */
WEIR_API size_t weir_receipt_text(const struct weir_receipt *receipt, char *buf, size_t cap);
/* WEIR_E_INVALID: it is no receipt. */
WEIR_API int weir_receipt_read(struct weir_str text, struct weir_receipt *ret);

/* ---- reset ---- */

/* Forgets what one subject has used of one rule: `by` holds its values in the order of the rule's `by`, as requests have
 * them or as `weir explain` shows them. */
WEIR_API int weir_reset(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count,
                        struct weir_error *error);

/* ---- answer ---- */

enum weir_header_style { WEIR_HEADERS_STANDARD = 1, WEIR_HEADERS_LEGACY = 2 };

enum { WEIR_HEADERS_MAX = 6, WEIR_HEADER_VALUE_MAX = 160 };

struct weir_headers {
    size_t count;
    struct weir_header header[WEIR_HEADERS_MAX];
    char value[WEIR_HEADERS_MAX][WEIR_HEADER_VALUE_MAX];
};

/* RateLimit-Policy, RateLimit and, when refused, Retry-After; with WEIR_HEADERS_LEGACY also X-RateLimit-*; with 0 none. */
WEIR_API void weir_headers(const struct weir_verdict *verdict, unsigned style, struct weir_headers *ret);

/* The refusal as the rule, the settings or options.refuse want it. */
WEIR_API int weir_refuse(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                         struct weir_refusal *ret);

/* The same with headers of this style; 0: with the rule's own only. */
WEIR_API int weir_refuse_as(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                            unsigned style, struct weir_refusal *ret);

/* The verdict as one line of JSON without a line end. Returns its length; writes at most cap - 1 bytes and a NUL. */
WEIR_API size_t weir_verdict_json(const struct weir_verdict *verdict, char *buf, size_t cap);

/* ---- rules that change ---- */

/* For event loops: looks whether the rules file has changed and takes it over. 1: new rules are in force; 0: nothing new;
 * negative: the file is bad (once for each bad version). Its good rules are in force then, and its bad ones stay as they
 * were; a file that cannot be read as rules changes nothing. */
WEIR_API int weir_poll(struct weir *weir, struct weir_error *error);

/* The same for loops that must not wait: a file that has changed is read by a thread, which ends when it has;
 * options.on_rules is told there what came of it. 1: it is being read; 0: nothing new. For one thread of a process. */
WEIR_API int weir_poll_aside(struct weir *weir);

/* Replaces the rules. What was used stays used, by rule id and limit name. A bare list of rules keeps the settings. Any
 * error, and nothing changes. */
WEIR_API int weir_set_rules(struct weir *weir, const char *text, size_t len, struct weir_error *error);

/* ---- watch ---- */

struct weir_status {
    uint64_t rules;          /* in force: neither off nor expired */
    uint64_t cells;          /* in the table */
    uint64_t bytes;          /* of the table */
    uint64_t drops;          /* live cells dropped for a newcomer since the table was made */
    uint64_t drops_at_limit; /* those of them that were at their limit: the table is too small */
    bool rules_bad;          /* weir_rules_error has something to say */
};

WEIR_API void weir_status(struct weir *weir, struct weir_status *ret);

/* cells_file was found to be a copy of another one, or to come from another machine, when this handle was opened. From then
 * on it is a host of its own: its counts stay, receipts and slices of the original are void. True for the first who opens
 * it. */
WEIR_API bool weir_cells_copied(const struct weir *weir);

/* Of the store that `counters` names; all zero where there is none. Counts since the handle was opened. */
struct weir_store_status {
    bool configured, up;
    uint32_t hosts;      /* that count there */
    int64_t offset_us;   /* its clock less ours */
    uint64_t calls;      /* scripts that were called: decisions, slices, refunds */
    uint64_t late;       /* decisions that waited in vain: the answer was not there by the deadline */
    uint64_t failed;     /* calls that it refused */
    uint64_t lost;       /* calls of which nobody knows what came: the connection broke */
    uint64_t unsent;     /* decisions that did not ask: it was away, or too much waited */
    uint64_t refunded;   /* answers that came too late to be used, and were given back */
    uint64_t opened;     /* times that the circuit breaker opened */
    uint64_t replaced;   /* WEIR_STORE_REPLACED */
    uint64_t emptied;    /* WEIR_STORE_EMPTIED */
    uint64_t reconciled; /* tokens charged there that were spent while it was away */
    uint64_t slices;     /* that were lent to this host */
    uint64_t lent;       /* tokens of these … */
    uint64_t returned;   /* … of which so many were given back */
    uint64_t held;       /* tokens that this host has and has not spent: all hosts together may refuse so many too early */
    char address[200];   /* of the server, without a password */
    char problem[200];   /* why it is away, as far as was last seen; "" while it answers */
};
WEIR_API void weir_store_status(struct weir *weir, struct weir_store_status *ret);

/* Cells in use. Looks at about `most` of them, and reckons the rest; exact where there are no more. */
WEIR_API uint64_t weir_cells_used(struct weir *weir, int64_t now_us, uint64_t most);

/* Whom a refusal was for, as the rule counts: `ip="203.0.113.7" user="ann"`. Control and format characters are escaped as
 * in JSON. Of a header of more than 8 bytes it has the first 4 only, since it may be a password. Returns its length, 0 if
 * it was for no rule; writes at most cap
 * - 1 bytes and a NUL. */
WEIR_API size_t weir_subject_text(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                                  char *buf, size_t cap);

/* What is wrong with the newest rules: a file that could not be taken over whole, or bad rows of the database that `weir
 * sync` copied it from. 0 (WEIR_OK): nothing. Else the code, and *ret (may be NULL) says it as on_rules was told. */
WEIR_API int weir_rules_error(struct weir *weir, struct weir_error *ret);

/* ---- the guard ---- */

enum weir_detected {
    WEIR_REFUSED = 0,
    WEIR_ALLOWED = 1,
    WEIR_NO_RULE = 2 /* allowed, since no rule is for this event */
};

/* Charges 1 for `event` and `key` now. Negative: WEIR_E_BLANK for a blank event or key, or another error. */
WEIR_API int weir_detect(struct weir *weir, const char *event, const char *key, struct weir_verdict *ret_verdict);

/* What the last weir_detect or WEIR_DETECT of this thread found, and what it returned. */
WEIR_API const struct weir_verdict *weir_last(int *ret_detected);

/* WEIR_DETECT(weir, "ocr", user_id) { the protected work } else { refused, or an error: weir_last(NULL) tells } */
#define WEIR_DETECT(weir, event, key) if (weir_detect((weir), (event), (key), NULL) > 0)

#ifdef __cplusplus
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}
#endif
#endif
