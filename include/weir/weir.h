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
 * Threads: any number of threads may use one handle at the same time. A decision takes no lock. It allocates memory only in
 * the first decision of a thread, for a request that more than 32 limits apply to, and if it may have to wait for a store.
 *
 * Time: the caller passes it to every decision, in microseconds since 1970.
 *
 * fork: the child may decide with the handle and close it. The watcher does not run in the child. The child may poll or
 * change the rules only if no thread of the parent could have been doing so during the fork. It is better to open a handle
 * after the fork.
 *
 * Errors: a function that can fail returns a negative enum weir_code; if it takes a struct weir_error, the text there says
 * why. A refusal is not an error. Functions write their `ret` parameters only on success, unless their comment says
 * otherwise.
 *
 * Link with `pkg-config --cflags --libs weir`. */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#if defined(__GNUC__) && !defined(__clang__)
/* As with stat(2), some functions have the same name as the struct that they fill. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#endif

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

/* This number increases when a change breaks programs that were built against an earlier header. struct weir_options begins
 * with its size, so new fields at its end break nothing; a change of any other structure increases the number. */
#define WEIR_ABI_VERSION 4
/* Returns the WEIR_ABI_VERSION that the library was built with. */
WEIR_API int weir_abi_version(void);
/* Returns the version of the library, such as "1.2.0"; a static string. */
WEIR_API const char *weir_version(void);

/* ---- words ---- */

enum {
    WEIR_ID_MAX = 100,            /* bytes in a rule's id */
    WEIR_NAME_MAX = 50,           /* bytes in a limit's name */
    WEIR_UNIT_MAX = 50,           /* bytes in the name of a limit's unit */
    WEIR_COSTS_MAX = 16,          /* costs of a request in other units */
    WEIR_TOGETHER_MAX = 64,       /* requests that are decided together */
    WEIR_DESCRIPTOR_MAX = 256,    /* entries of a descriptor */
    WEIR_SHADOW_MAX = 16,         /* names in a struct weir_shadows */
    WEIR_ERROR_MAX = 1000,        /* bytes in an error's text, with the NUL */
    WEIR_USAGE_LIMITS = 16,       /* limits in a struct weir_usage, and in the header RateLimit-Policy */
    WEIR_RECEIPT_LIMITS = 16,     /* limits in a receipt */
    WEIR_RECEIPT_KEYS_MAX = 1000, /* bytes in a receipt for the names of limits that count in the store */
    WEIR_RECEIPT_TEXT_MAX = 4000, /* bytes in the text of a receipt, with the NUL */
    WEIR_BAD_REQUEST = 400,       /* status of a request that is refused because of a repeated header, see weir_verdict */
    WEIR_NEVER = -1               /* value of retry_after_ms and reset_ms: no wait is long enough */
};

/* The largest max, burst and cost: 2^53 - 1, so that JSON and doubles hold it exactly. A cost above it never passes a limit
 * without overdraft. */
#define WEIR_AMOUNT_MAX UINT64_C(9007199254740991)

/* Errors: name, number, text. */
#define WEIR_CODES(X)                             \
    X(INVALID, -1, "invalid argument")            \
    X(NO_MEMORY, -2, "out of memory")             \
    X(SYSTEM, -3, "a system call failed")         \
    X(RULES, -4, "the rules have errors")         \
    X(CELLS, -5, "the cells file cannot be used") \
    X(UNKNOWN_RULE, -6, "no such rule")           \
    X(BLANK, -7, "the event or the key is blank") \
    X(CHANGED, -8, "the rules have changed")

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

/* A string that need not end in NUL. { NULL, 0 } and "" both mean that there is no value. */
struct weir_str {
    const char *ptr;
    size_t len;
};

/* Returns a view of `s`, which must end in NUL or be NULL; it is not copied. */
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

/* The cost of a request in a unit other than `requests`, such as "tokens": limits with this `unit` count it. */
struct weir_cost {
    struct weir_str unit;
    uint64_t amount; /* up to WEIR_AMOUNT_MAX */
};

/* One charged limit. All of it is private to weir. */
struct weir_charged {
    uint64_t limit, key, origin, rate, cost;
    uint32_t unit;
    uint32_t how;
};

/* Records what a request was charged or holds, for weir_settle, weir_renew, weir_refund and weir_release. It is complete:
 * the request is not needed again. Callers may read `count`; all other fields are private to weir. */
struct weir_receipt {
    uint32_t count;  /* number of charged limits, at most the first WEIR_RECEIPT_LIMITS; 0: nothing to settle */
    uint32_t hold;   /* number of the hold; 0: all charges stay unless they are settled */
    uint64_t number; /* unique to this receipt */
    int64_t at_us, until_us, store_us;
    uint64_t seal;       /* keyed hash of all other fields, with the secret of the cells table: prevents forged receipts */
    uint64_t store_seal; /* the same, with the secret of the store */
    struct weir_charged charged[WEIR_RECEIPT_LIMITS];
    uint32_t keys_len;
    char keys[WEIR_RECEIPT_KEYS_MAX];
};

/* The shadow rules that would have refused a request. */
struct weir_shadows {
    uint32_t count; /* number of names, at most the first WEIR_SHADOW_MAX; weir writes no others */
    char names[WEIR_SHADOW_MAX][WEIR_ID_MAX + 1];
};

/* The rest of one limit of a request. All fields are private to weir. */
struct weir_left {
    uint32_t rule, limit;
    bool known, refuses;
    uint8_t reading;
    uint64_t remaining, given_max;
    int64_t more_ms, reset_ms, window_ms;
};

/* The rest of the limits of a request, for weir_headers and weir_refuse: the first WEIR_USAGE_LIMITS limits of enforced
 * rules that apply, in the order of the rules, and the limit that the verdict names. All fields are private to weir. */
struct weir_usage {
    uint32_t count; /* 0: nothing is known */
    uint32_t named, listed;
    uint64_t rules; /* their version */
    struct weir_left left[WEIR_USAGE_LIMITS + 1];
};

/* The result of one rule for a request that it applies to. The strings are valid only during the call. As long as the
 * version of the rules is the same (weir_looks_at), `rule` has the same address in each call for the same rule. */
enum weir_said {
    WEIR_SAYS_PASS,        /* all of its limits have room, whatever other rules say */
    WEIR_SAYS_REFUSE,      /* `limit` has no room, or the subject is penalised */
    WEIR_SAYS_WOULD_REFUSE /* the same, in shadow mode */
};
enum weir_penalty {
    WEIR_PENALTY_NONE,
    WEIR_PENALTY_BEGINS, /* with this refusal by `limit` */
    WEIR_PENALTY_RUNS    /* the rule refuses the request because of an earlier one, whatever its limits say */
};
struct weir_rule_said {
    struct weir_str rule;
    struct weir_str limit; /* the one with the longest wait that has no room; empty if the rule lets the request pass, or
                              refuses it because of a penalty */
    enum weir_said said;
    uint64_t overdrawn; /* what the request was charged beyond `max` of the rule's limits with overdraft, all units added */
    uint32_t private_rule; /* private to weir: the rule, and the version of the rules */
    uint64_t private_rules;
    enum weir_penalty penalty;
};

/* How a request is charged. Slots of limits with `concurrent` are taken only if the request passes, whatever this
 * says, and are not given back by it. */
enum weir_charging {
    WEIR_CHARGE_IF_ROOM, /* charges them if all limits have room */
    /* Charges each limit, whether or not there is room: the verdict says whether there was, and counts go beyond `max`. A
     * limit with a lease spends its slice, and owes the rest to the store. */
    WEIR_CHARGE_ALWAYS,
    /* Gives them back, whoever was charged, and passes: at most what the current window counts. On this host and in the
     * store that is exact. A limit with a lease fills the slice of this host, as far as it has one, and no further. */
    WEIR_GIVE_BACK
};

/* The request to decide about. Fields that are not set (zero) are ignored. Spaces and tabs at the beginning and end of
 * method, host, ip and header values are ignored, too; user, event, key, domain and descriptor count as they are given, so
 * trim what you take from a header. weir does not keep the request or its strings after the call. It writes *receipt,
 * *shadows and *usage when it makes the decision; until then they must remain valid. */
struct weir_request {
    struct weir_str method;
    struct weir_str path; /* as the client sent it, with the query; weir normalises it */
    struct weir_str host;
    struct weir_str ip;   /* the client's address, if the caller knows it; it takes precedence over peer */
    struct weir_str peer; /* address of the connection; weir finds the client with X-Forwarded-For and trusted_proxies */
    struct weir_str user; /* if it is not set, weir calls options.user_id */
    struct weir_str event;
    struct weir_str key;
    struct weir_str domain; /* of the descriptor, as Envoy's rate limit filter sends it */
    const struct weir_header *headers;
    size_t header_count;
    /* The entries of a descriptor of Envoy's rate limit service, in its order: the name is the key. An entry with an empty
     * value is there all the same. Values count as they are given. At most WEIR_DESCRIPTOR_MAX: rules do not see more. */
    const struct weir_header *descriptor;
    size_t descriptor_count;
    /* The address of the connection in binary, which takes precedence over peer: the 4 bytes of an IPv4 or the 16 of an
     * IPv6 address, in network order, as in sin_addr and sin6_addr. With another length it is not a valid address. */
    struct weir_str peer_bytes;
    /* A limit that the caller brings, for rules with `limits: given`: at most given_max in each window of given_window_ms,
     * counted from 1970. given_window_ms is 0: it brings none. */
    uint64_t given_max;
    uint64_t given_window_ms;
    uint64_t cost; /* how much to charge in the unit `requests`, up to WEIR_AMOUNT_MAX; 0 decides without charging */
    /* Costs in other units, at most WEIR_COSTS_MAX, each unit once and never `requests`. A unit that is not named costs 0:
     * its limits refuse only if more than their max is used. All units pass or fail together. */
    const struct weir_cost *costs;
    size_t cost_count;
    /* > 0: the charge is a hold, see weir_reserve. It ends after this many milliseconds unless it is settled or renewed. */
    uint32_t ttl_ms;
    bool keep;                   /* a hold that ends by itself is kept as a charge; else it is released */
    bool peek;                   /* decide as if `cost` were charged, but charge nothing */
    bool brief;                  /* the caller does not need remaining, reset_ms and window_ms of an allowed verdict */
    bool attempt;                /* a peek whose charge follows, see weir_charge: its refusal counts for penalties */
    enum weir_charging charging; /* what happens to the costs; WEIR_CHARGE_IF_ROOM unless it is set */
    /* May be NULL: another request that is decided together with this one, and so on: at most WEIR_TOGETHER_MAX in all. All
     * of them pass, or none is charged; only requests that charge always or give back do so whatever the others say. The
     * requests, not their strings, stay valid until the decision is made. What the first says of peek, brief, ttl_ms, keep,
     * attempt, if_held and receipt counts for all. Requests that charge always or give back cannot be holds (ttl_ms), and
     * receipts do not name what they charge. The verdict is that of all; its shadow_count, too. `shadows`, `usage` and
     * `each_rule` of each request are about its own rules. */
    const struct weir_request *with;
    /* out, may be NULL: what the rules of this request say, without those of the others. `allowed`: they have room; of a
     * limit that several requests count in, after those before this one. If one of the others refuses, nothing is charged,
     * and `remaining` is what is there. A limit in the store that was not asked, because this host refused, counts as
     * unused. For weir_headers, weir_refuse and others that take a request and its verdict, this is the verdict. */
    struct weir_verdict *own;
    /* out, may be NULL: what the shadow rules of this request say, as if they alone were enforced. `applied` is false if
     * none applies. */
    struct weir_verdict *own_shadow;
    void *context;                /* for the callbacks; weir does not use it */
    struct weir_receipt *receipt; /* out, may be NULL: what was charged, for weir_settle */
    bool if_held;                 /* write *receipt only if something is held, such as a slot; else it has a count of 0 */
    struct weir_shadows *shadows; /* out, may be NULL: the shadow rules that would have refused */
    struct weir_usage *usage;     /* out, may be NULL: what all limits have left, for headers; empty if brief and allowed */
    /* May be NULL. weir calls it for each rule that applies, with `context`, in the thread that makes the decision, just
     * before it returns the verdict or calls `decided`. It must return soon, and must not call weir. */
    void (*each_rule)(const struct weir_rule_said *said, void *context);
};

/* An attribute of a request that rules can use, for programs whose configuration names attributes. */
struct weir_attribute {
    const char *name; /* the name of its field in struct weir_request, such as "user" */
    size_t offset;    /* of that field */
    bool is_address;  /* weir expects an IPv4 or IPv6 address */
};

/* Returns the attribute number `i`, counted from 0, or NULL if there is none with this number. `peer` and headers are not
 * included. The structure is static. */
WEIR_API const struct weir_attribute *weir_attribute(size_t i);

/* The decision. It names one limit: the one with the longest wait if the request is refused, else the one with the least
 * left. A verdict contains no pointers: it may be copied and kept. The request asks for names of shadow rules and for a
 * receipt, if they are needed.
 *
 * By default weir refuses a request that repeats a header with different values if a rule matches or counts by that header
 * (setting `repeated_headers`): allowed and applied are false, status is WEIR_BAD_REQUEST, `limit` is the name of the
 * header, and nothing is charged. */
struct weir_verdict {
    bool allowed;
    bool applied;       /* false: no rule applies; rule, limit, and max to window_ms have no meaning */
    bool unavailable;   /* refused because the store does not answer, not because a limit is reached */
    bool matched;       /* some rule applies, if only one in shadow mode, or one that limits nothing */
    uint16_t status;    /* HTTP status of the refusal; 0 if allowed */
    bool penalty;       /* refused because the subject is penalised: its rule refused it too often */
    bool unnamed;       /* the rules do not name the limit: weir made the name */
    uint64_t max;       /* capacity of the named limit */
    uint64_t remaining; /* whole units left after this charge */
    uint64_t debt;      /* of a limit with overdraft: units used beyond `max`, which time repays before anything passes */
    int64_t reset_ms;   /* until the limit is unused again; WEIR_NEVER for a bucket in use whose max is now 0 */
    int64_t retry_after_ms; /* 0 if allowed, WEIR_NEVER, or the time after which this request would pass */
    int64_t window_ms;      /* the time in which `max` becomes available again */
    int64_t window_end_ms;  /* of a calendar limit: until its window ends, used or not; 0 for others */
    uint32_t shadow_count;  /* number of shadow rules that would have refused; request.shadows receives their names */
    char rule[WEIR_ID_MAX + 1];
    char limit[WEIR_NAME_MAX + 1];
    char unit[WEIR_UNIT_MAX + 1]; /* of the limit: max and remaining count this; "" for requests */
    uint32_t private_rule;        /* private to weir: the rule, and the version of the rules */
    uint64_t private_rules;
};

/* ---- open and close ---- */

struct weir;

/* The refusal of one request, as HTTP. The strings and headers belong to weir. They are valid until the same thread calls
 * weir_refuse or weir_refuse_as again. */
struct weir_refusal {
    uint16_t status;
    struct weir_str body;
    struct weir_str content_type;
    const struct weir_header *headers; /* those of the rule, and the standard ones whose names the rule does not use */
    size_t header_count;
};

/* Changes in the state of the store that `counters` names. */
enum weir_store_event {
    WEIR_STORE_UP = 1,   /* the store answers, for the first time or again */
    WEIR_STORE_DOWN,     /* it does not answer: rules follow their on_store_failure */
    WEIR_STORE_REPLACED, /* another or a restarted server answers: counts that it did not save are lost */
    WEIR_STORE_EMPTIED,  /* its counts are lost */
    WEIR_STORE_ODD       /* it answers, but a key is unusable: not written by weir, or with another layout */
};

/* Set `size` and either rules_file or rules_text; zero means the default for all other fields. weir_open copies the
 * strings. The callbacks and their data must remain valid until weir_close returns; any thread of weir or of
 * its users may call them. */
struct weir_options {
    size_t size; /* sizeof(struct weir_options) */

    const char *rules_file; /* YAML or JSON; weir_poll or the watcher notices changes, also of files that it includes */
    const char *rules_text; /* the rules themselves, instead of a file */
    size_t rules_text_len;  /* in bytes; 0: rules_text ends in NUL */

    const char *cells_file; /* shared by all that open it, created if missing; NULL: this process and its children */
    uint64_t cells_keys;    /* size of a new table: keys that it holds at its default fill of 3/4 … */
    uint64_t cells_bytes;   /* … or bytes. Set one of them; both 0: 1,048,576 cells */

    uint32_t watch_ms; /* > 0: a thread checks the rules file for changes at this interval */

    /* Finds the user of a request that has no `user` (Hodor's setUserIdGetter). It writes at most `cap` bytes to `buf` and
     * returns their number, or 0 if there is no user. weir calls it only if a rule uses the user. */
    size_t (*user_id)(const struct weir_request *request, char *buf, size_t cap, void *data);
    void *user_id_data;

    /* Changes the refusal (Hodor's setRejectResponseFactory). `refusal` already contains the refusal of the rule. Strings
     * and headers that the callback sets must remain valid for as long as the caller of weir_refuse uses them. */
    void (*refuse)(const struct weir_request *request, const struct weir_verdict *verdict, struct weir_refusal *refusal,
                   void *data);
    void *refuse_data;

    /* weir calls this for every change of the rules file that it notices. error->code is 0 if all rules are in force; else
     * error->text says what is wrong, see also weir_rules_error. Called by weir_poll or from weir's threads. It must not
     * close the handle. */
    void (*on_rules)(const struct weir_error *error, void *data);
    void *on_rules_data;

    /* Memory for the table that the caller shares with its other processes, instead of cells_file and the sizes. Its
     * address is a multiple of 128, and it remains mapped until the handle is closed. If all bytes are zero, weir_open
     * creates a table in it: let one process do this before the others open it. Else the memory must contain a table of
     * this size. */
    void *cells_memory;
    size_t cells_memory_bytes;

    /* Networks, separated by spaces or commas; replaces the setting trusted_proxies of the rules. "": trust no proxy. */
    const char *trusted_proxies;

    /* Address of the store: the Redis or Valkey server with the counters that many hosts share, such as
     * redis://HOST:PORT/DB (docs/redis.md). Rules count there unless they say `counters: local`. An unreachable store is
     * not an error: weir_open waits for it for at most store_deadline_ms, and rules follow their `on_store_failure` while
     * it is unreachable. Each cells table is one host to the store: let the processes of a host share a cells_file. */
    const char *counters;
    uint32_t store_deadline_ms; /* how long a decision waits for the store; 0: 20 */
    uint32_t store_hosts;       /* number of hosts that share the store, for `on_store_failure: local`; 0: detect it */
    /* weir calls this once for each change of the store's state, from its own threads or those of its event loops. `text`
     * is for people. It must not close the handle. */
    void (*on_store)(enum weir_store_event event, const char *text, void *data);
    void *on_store_data;

    /* Decisions must not wait. A rule that counts in the store without `lease` is then an error. A rule with `lease` is an
     * error without cells_file or counters, since no process could put slices into its cells. */
    bool never_wait;
};

/* Reads the rules, opens or creates the cells table and starts the threads that the options ask for. Returns 0 and the
 * handle in *ret, which the caller closes with weir_close. Errors: WEIR_E_INVALID for an option, WEIR_E_RULES (the text has
 * a line for each error), WEIR_E_CELLS, WEIR_E_SYSTEM, WEIR_E_NO_MEMORY. */
WEIR_API int weir_open(struct weir **ret, const struct weir_options *options, struct weir_error *error);
/* Ends weir's threads and frees the handle; NULL is allowed. No thread may use the handle, and its loops must be closed. */
WEIR_API void weir_close(struct weir *weir);

/* ---- decide ---- */

/* Returns CLOCK_REALTIME in microseconds, as it is or was less than 10 microseconds ago: a thread that calls it often does
 * not read the clock each time. It still costs a part of a decision, so call it once for a batch. Call it at least once in
 * the shortest period of a limit, or that limit refuses too much. */
WEIR_API int64_t weir_now_us(void);

/* Decides about a request and charges it if it is allowed. Returns 0 if a decision was made, allowed or refused. Always
 * writes *ret_verdict, and what request->receipt and request->shadows point to: a request that cannot be judged is refused
 * with status 503. Errors: WEIR_E_INVALID (now_us is negative or beyond the year 2112), WEIR_E_NO_MEMORY. */
WEIR_API int weir_check(struct weir *weir, const struct weir_request *request, int64_t now_us,
                        struct weir_verdict *ret_verdict);

/* Decides about `count` requests, each on its own and in order. Faster than separate calls, because cache misses overlap.
 * Writes all verdicts. Each request needs a receipt and shadows of its own, if it has any. Returns 0, or the last error if
 * requests could not be judged. */
WEIR_API int weir_check_batch(struct weir *weir, const struct weir_request *requests, size_t count, int64_t now_us,
                              struct weir_verdict *ret_verdicts);

/* Charges what a request has cost when that is known only afterwards, such as the bytes of its response. Every limit of
 * every rule that applies is charged `cost` and `costs`, whether or not it has room; an amount beyond its max is owed: it
 * refuses requests, also those that cost 0 there, until time has repaid it. Check the request first, without these costs.
 * Limits that count in the store are charged there with the next request for the same subject. Never waits. Ignores peek,
 * receipt, shadows, usage and each_rule. Returns 0; WEIR_E_INVALID (now_us) or WEIR_E_NO_MEMORY, and then nothing is
 * charged. */
WEIR_API int weir_charge(struct weir *weir, const struct weir_request *request, int64_t now_us);

enum weir_take {
    WEIR_TAKE_NONE,  /* the request is refused */
    WEIR_TAKE_FIRST, /* use the first value that is not empty */
    WEIR_TAKE_LAST   /* use the last value that is not empty */
};

/* For programs that fill an attribute of a request ("user", "key", "header:NAME", …) from a header that a client may
 * repeat. Call it if the header has different values. Returns which of its values to use, as the setting `repeated_headers`
 * says. With `refuse` it returns WEIR_TAKE_NONE and writes a refusal to *ret_verdict if an enforced rule uses the
 * attribute; else WEIR_TAKE_FIRST. `header` is the name of the header, for people. */
WEIR_API enum weir_take weir_repeated(struct weir *weir, const char *attribute, struct weir_str header, int64_t now_us,
                                      struct weir_verdict *ret_verdict);

/* For programs that make requests of something larger, such as the requests of an HTTP server: what no rule looks at need
 * not be made. `attributes` has `count` names: "user", "key", "header:NAME", "descriptor:KEY" and so on. "header" means the
 * headers that clients send: all of them are needed if a rule looks at one, or if a trusted proxy may name the client in
 * X-Forwarded-For. ret_looks[i] tells whether a rule in force that is not off looks at attributes[i]. Returns the version
 * of these rules, for weir_check_for; 0 if out of memory: then all of ret_looks is true. */
WEIR_API uint64_t weir_looks_at(struct weir *weir, const char *const *attributes, size_t count, bool *ret_looks);

/* ---- prepared checks ---- */

/* Requests that differ in one attribute only, such as all requests of an event that count by `key`. weir finds the rules
 * that apply to them once for each version of the rules, not for each request:
 *
 *     struct weir_request ocr = { .event = WEIR_STR("ocr") };
 *     weir_prepare(&prepared, weir, &ocr, "key", &error);
 *     ...
 *     weir_prepared_check(prepared, weir_str(user_id), 1, weir_now_us(), &verdict);
 *
 * The verdicts are those of weir_check. New rules count from the next request on. If the rules that apply depend on the
 * value of the attribute, or count in a store, weir_prepared_check does what weir_check does, and takes as long. */
struct weir_prepared;

/* Prepares checks of requests like `request`, whose attribute `varies` (the string "key" or "user") is given with each
 * check instead. It copies the request with its strings; `cost` is ignored. The request must not set ttl_ms, costs,
 * charging, with, or anything that weir writes. Returns 0 and the prepared check in *ret, which the caller frees before it
 * closes the handle. Errors: WEIR_E_INVALID for a request that cannot be prepared, or if the handle has 4,096 prepared
 * checks; WEIR_E_NO_MEMORY. */
WEIR_API int weir_prepare(struct weir_prepared **ret, struct weir *weir, const struct weir_request *request,
                          const char *varies, struct weir_error *error);
/* Decides as weir_check does about the request with this value of the attribute that varies and this cost. Any number of
 * threads may use one prepared check at the same time. Returns what weir_check returns. */
WEIR_API int weir_prepared_check(struct weir_prepared *prepared, struct weir_str value, uint64_t cost, int64_t now_us,
                                 struct weir_verdict *ret_verdict);
/* No thread may use it any more; NULL is allowed. */
WEIR_API void weir_prepared_free(struct weir_prepared *prepared);

/* ---- decide in an event loop ---- */

/* With `counters` a decision may have to wait for the store. weir_check blocks for up to store_deadline_ms. An event loop
 * does not block: it uses a weir_loop, from one thread only.
 *
 *     watch weir_loop_fd for reading; call weir_loop_run when it is readable
 *     call weir_loop_check for each request, and weir_loop_flush once at the end of the turn: it sends all in one write */
struct weir_loop;

/* weir_loop_run, weir_loop_flush and weir_loop_close call this with the verdict of a request that had to wait. The verdict
 * is valid only during the call. The callback may call weir_loop_check; it must not close the loop. */
typedef void weir_decided(const struct weir_verdict *verdict, void *data);

/* Returns 0 and the loop in *ret. The caller closes it with weir_loop_close before it closes the handle. Errors:
 * WEIR_E_INVALID for a handle without options.counters, WEIR_E_SYSTEM, WEIR_E_NO_MEMORY. */
WEIR_API int weir_loop_open(struct weir_loop **ret, struct weir *weir, struct weir_error *error);
/* Decides the requests that still wait as if the store were unreachable, and frees the loop; NULL is allowed. */
WEIR_API void weir_loop_close(struct weir_loop *loop);
/* Returns a descriptor that is readable when weir_loop_run has work to do. It belongs to the loop and never changes. */
WEIR_API int weir_loop_fd(const struct weir_loop *loop);
/* Reads the answers of the store and calls `decided` for each request that is decided or timed out. Does not block. */
WEIR_API void weir_loop_run(struct weir_loop *loop);
/* Sends what weir_loop_check has queued. Does not block. */
WEIR_API void weir_loop_flush(struct weir_loop *loop);
/* Returns 1 if the request is decided: *ret_verdict is written. Returns 0 if it has to wait: `decided` will be called with
 * `data`, within store_deadline_ms. Returns the errors of weir_check; then *ret_verdict refuses the request. `decided` is
 * called only after a return of 0. The request and its strings need not remain valid after the call. The receipt and
 * shadows that it points to must remain valid until `decided` is called; requests of one loop may share them if `decided`
 * uses them at once. */
WEIR_API int weir_loop_check(struct weir_loop *loop, const struct weir_request *request, int64_t now_us,
                             struct weir_verdict *ret_verdict, weir_decided *decided, void *data);

/* For event loops that wait with a timer and have no connection to the store, such as nginx's workers: the `weir serve` of
 * this host fetches the slices of leased rules, through the cells file. Returns 1 if the request is not decided and nothing
 * is charged: call it again after about a millisecond. It never returns 1 once now_us has reached until_us. Else it returns
 * what weir_check returns. */
WEIR_API int weir_check_soon(struct weir *weir, const struct weir_request *request, int64_t now_us, int64_t until_us,
                             struct weir_verdict *ret_verdict);

/* weir_check_soon for a request that has only what `rules` look at: the version that weir_looks_at returned. If other rules
 * are in force by now, it returns WEIR_E_CHANGED, and nothing is charged: ask weir_looks_at again, make the request again
 * and call it again. A version of 0 is that of any rules: the request is complete. */
WEIR_API int weir_check_for(struct weir *weir, uint64_t rules, const struct weir_request *request, int64_t now_us,
                            int64_t until_us, struct weir_verdict *ret_verdict);

/* ---- hold, settle, give back ---- */

enum {
    WEIR_TTL_MAX_MS = 24 * 3600 * 1000 /* the longest time to live of a hold */
};

/* Checks a request whose true costs are known only later, and holds `cost` and `costs` for it. What is held counts at once,
 * as a charge does. Ends in one of these ways: weir_settle says the true amounts; weir_renew lets it go on; or nobody
 * comes, and after request->ttl_ms (from 1 to WEIR_TTL_MAX_MS) it is released, or kept as a charge if request->keep is set.
 * Returns what weir_check returns, and WEIR_E_INVALID for another ttl_ms or a request without a receipt. The same as
 * weir_check and weir_loop_check of a request with a ttl_ms.
 *
 * A request that touches a limit with `concurrent` holds a slot of it, also without a ttl_ms: weir_release frees it. The
 * slot belongs to this process: if it dies, the slot is free at once where others can know that (same host, same pid
 * namespace), else after its ttl. */
WEIR_API int weir_reserve(struct weir *weir, const struct weir_request *request, int64_t now_us,
                          struct weir_verdict *ret_verdict);

#define WEIR_AS_HELD UINT64_MAX /* a cost of weir_settle: what was held or charged is right */

/* Says what a request has truly cost. Less than was held is given back; more is charged whether or not there is room, and
 * an amount beyond max is owed. Units that are not named keep what was held; a cost of 0 without `costs` gives back
 * everything. After its time to live a hold has been released: then the true amount is charged, as long as its window
 * lasts. Slots of limits with `concurrent` are freed in any case.
 *
 * Returns the number of limits that were settled; 0 if the receipt was used before, so that settling twice is once. Nothing
 * is done for a window that is over, and nothing is given back to a rule that was removed, a subject that was reset or a
 * bucket whose rate has changed since. A receipt cannot be used more than a day after its hold or charge, after 16,320
 * later ones of its subject, or with another cells table, except for limits that count in the store: any host of the store
 * settles these. The store is told, and sees to it that twice is once, but the call does not wait for its answer. While the
 * store is unavailable these limits are not settled and not counted in the result: call again later. Returns WEIR_E_INVALID
 * (now_us, an amount, or a receipt that cannot be one) or WEIR_E_NO_MEMORY. */
WEIR_API int weir_settle(struct weir *weir, const struct weir_receipt *receipt, uint64_t cost,
                         const struct weir_cost *costs, size_t cost_count, int64_t now_us);
/* The hold lasts for ttl_ms from now on, in place of what is left. With a ttl_ms of 0, slots of limits with `concurrent`
 * last for the ttl of their limits, and other holds stay as they are. A slot that another process took belongs to no
 * process from now on: it lasts for its ttl, whoever dies. Returns the number of limits that still hold; 0: the
 * hold is over or settled. Errors as those of weir_settle. */
WEIR_API int weir_renew(struct weir *weir, const struct weir_receipt *receipt, uint32_t ttl_ms, int64_t now_us);
/* Returns the shortest ttl of the limits with `concurrent` of which the receipt holds a slot, as the rules in force say; 0
 * if it holds none. Work that takes longer renews them at half of that. */
WEIR_API uint32_t weir_slot_ttl_ms(struct weir *weir, const struct weir_receipt *receipt);
/* Settles with what was held or charged: frees slots of limits with `concurrent`, and everything else stays. */
WEIR_API int weir_release(struct weir *weir, const struct weir_receipt *receipt, int64_t now_us);
/* Cancels a hold, or gives back a charge, for example because the work failed: settles with 0. */
WEIR_API int weir_refund(struct weir *weir, const struct weir_receipt *receipt, int64_t now_us);

/* Returns whether some limit of the receipt counts this unit; without a name, requests. Amounts in other units are not
 * settled, for example because their name is misspelt. */
WEIR_API bool weir_receipt_counts(const struct weir_receipt *receipt, struct weir_str unit);

/* Writes a receipt as hexadecimal digits, to send it elsewhere. Returns the length of the whole text; writes at
 * most cap - 1 bytes of it and a NUL, or nothing if cap is 0. */
WEIR_API size_t weir_receipt_text(const struct weir_receipt *receipt, char *buf, size_t cap);
/* Reads such a text. Returns 0, or WEIR_E_INVALID if it is not a receipt. */
WEIR_API int weir_receipt_read(struct weir_str text, struct weir_receipt *ret);

/* ---- reset ---- */

/* Forgets what one subject has used of one rule. `by` contains the values of the subject in the order of the rule's `by`,
 * as requests have them or as `weir explain` shows them. Returns 0, also if the subject has no count. Errors:
 * WEIR_E_UNKNOWN_RULE; WEIR_E_INVALID for a wrong number of values or an invalid value; WEIR_E_SYSTEM if the store did not
 * confirm the reset in time; WEIR_E_NO_MEMORY. */
WEIR_API int weir_reset(struct weir *weir, const char *rule_id, const struct weir_str *by, size_t by_count,
                        struct weir_error *error);

/* ---- answer ---- */

/* May be combined with |. */
enum weir_header_style {
    WEIR_HEADERS_STANDARD = 1, /* RateLimit-Policy and RateLimit: draft-ietf-httpapi-ratelimit-headers-11 */
    WEIR_HEADERS_LEGACY = 2,   /* X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset */
    WEIR_HEADERS_OPENAI = 4,   /* x-ratelimit-limit-requests, x-ratelimit-limit-tokens and so on, for language models */
    WEIR_HEADERS_SETTING = 8   /* the styles that the setting `headers` of the rules names */
};

enum { WEIR_HEADERS_MAX = 12, WEIR_HEADER_VALUE_MAX = 1024, WEIR_HEADERS_BYTES = 2700 };

/* `header` points into `text` of the same structure: do not copy it. Each value ends in NUL and has at most
 * WEIR_HEADER_VALUE_MAX bytes with it. */
struct weir_headers {
    size_t count;
    struct weir_header header[WEIR_HEADERS_MAX];
    char text[WEIR_HEADERS_BYTES];
};

/* Writes the headers for the response to a request, in the styles of `style`, and with any of them Retry-After if the
 * request is refused and a wait helps. Writes none with a style of 0, or if no rule applies. docs/headers.md describes
 * them. Let the request ask for its `usage`: without it, or if the rules have changed since the decision, the headers speak
 * only of the limit that the verdict names. `request` may be NULL. */
WEIR_API void weir_headers(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                           unsigned style, struct weir_headers *ret);

/* Writes the refusal as the rule, the settings and options.refuse define it, with the headers of WEIR_HEADERS_SETTING. If
 * neither the rule nor the settings define a body and the Accept header of the request prefers it, the body is
 * application/problem+json (RFC 9457). `request` may be NULL, and should have the `usage` that it was decided with. Returns
 * 0 or WEIR_E_NO_MEMORY. See struct weir_refusal for how long it is valid. */
WEIR_API int weir_refuse(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                         struct weir_refusal *ret);

/* The same with the headers of `style`; 0: only those of the rule. */
WEIR_API int weir_refuse_as(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                            unsigned style, struct weir_refusal *ret);

/* Writes the verdict as one line of JSON, without a newline, and with it the shadow rules and the receipt that the request
 * asked for. Returns the length of the whole text; writes at most cap - 1 bytes of it and a NUL, or nothing if cap is 0. */
WEIR_API size_t weir_verdict_json(const struct weir_request *request, const struct weir_verdict *verdict, char *buf,
                                  size_t cap);

/* ---- rules that change ---- */

/* Checks whether the rules file has changed, and loads it if so. Returns 1 if new rules are in force and 0 if nothing has
 * changed. Returns WEIR_E_RULES or another error once for each bad version of the file. Then its good rules are in force,
 * and its bad rules keep their last good version; a file that cannot be parsed as rules changes nothing. A file that cannot
 * be read (WEIR_E_SYSTEM) is retried at each call and reported once. It reads the file and waits for other calls that
 * change the rules. */
WEIR_API int weir_poll(struct weir *weir, struct weir_error *error);

/* The same for event loops that must not block: a short-lived thread reads the changed file and calls options.on_rules with
 * the result. Returns 1 while a file is being read or rules are being changed, and 0 if nothing has changed. If no thread
 * can be started, it calls weir_poll and returns its result. Only one thread of a process may call it. */
WEIR_API int weir_poll_aside(struct weir *weir);

/* Replaces the rules with `text`, `len` bytes of YAML or JSON. Counts are kept, by rule id and limit name. If `text` is
 * only a list of rules, the settings are kept, too. Returns 0, or WEIR_E_RULES, WEIR_E_NO_MEMORY; after an error nothing
 * has changed. */
WEIR_API int weir_set_rules(struct weir *weir, const char *text, size_t len, struct weir_error *error);

/* ---- watch ---- */

struct weir_status {
    uint64_t rules;          /* number of rules in force: neither off nor expired */
    uint64_t cells;          /* number of cells in the table */
    uint64_t bytes;          /* size of the table */
    uint64_t drops;          /* live cells dropped for a new subject since the table was created */
    uint64_t drops_at_limit; /* those of them that were at their limit: the table is too small if this grows */
    bool rules_bad;          /* weir_rules_error returns an error */
};

/* Never waits for a thread that reads rules. */
WEIR_API void weir_status(struct weir *weir, struct weir_status *ret);

/* Returns true if weir_open found that cells_file is a copy of another cells file, or comes from another machine. From then
 * on the file belongs to a separate host: its counts are kept, but receipts and slices of the original are void. Only the
 * first handle that opens such a file gets true. */
WEIR_API bool weir_cells_copied(const struct weir *weir);

/* State of the store that `counters` names; all zero without a store. Counts begin when the handle is opened. */
struct weir_store_status {
    bool configured, up;
    uint32_t hosts;      /* hosts that share the store */
    uint32_t nodes;      /* servers that the store is made of: 1, or the masters of a cluster */
    uint32_t nodes_up;   /* those that answer; `up`: at least one */
    int64_t offset_us;   /* the store's clock minus this host's clock */
    uint64_t calls;      /* script calls: decisions, slices, refunds */
    uint64_t late;       /* decisions that timed out: the store had not answered by the deadline */
    uint64_t failed;     /* calls that the store answered with an error */
    uint64_t lost;       /* calls with an unknown result, because the connection broke */
    uint64_t unsent;     /* decisions that were not sent: the store was unreachable, or too many calls were waiting */
    uint64_t refunded;   /* late answers that were not used, and whose charges were refunded */
    uint64_t opened;     /* how often the circuit breaker opened */
    uint64_t replaced;   /* how often WEIR_STORE_REPLACED happened */
    uint64_t emptied;    /* how often WEIR_STORE_EMPTIED happened */
    uint64_t reconciled; /* tokens that were spent while the store was unreachable and were charged there later */
    uint64_t slices;     /* slices that the store lent to this host */
    uint64_t lent;       /* tokens in these slices */
    uint64_t returned;   /* those of them that this host gave back */
    uint64_t held;       /* unspent tokens on this host; all hosts together may refuse as many too early */
    char address[200];   /* of the server, without the password */
    char problem[200];   /* the last known reason why the store, or a node of it, is unreachable; "" while all answer */
};
WEIR_API void weir_store_status(struct weir *weir, struct weir_store_status *ret);

/* Returns the number of cells in use at now_us, estimated from a sample of about `most` cells; exact if the table has no
 * more. */
WEIR_API uint64_t weir_cells_used(struct weir *weir, int64_t now_us, uint64_t most);

/* The holds of one limit that are in flight. */
struct weir_in_flight {
    struct weir_str rule, limit; /* valid during the call */
    uint64_t holds;              /* that are not over; of a limit with `concurrent` its slots that are taken */
};
/* Calls `each` for each limit with `concurrent`, and for each other limit that has holds on this host. Holds that change
 * meanwhile may be counted twice or not at all. In a table of more than 8 million cells the numbers are an estimate. `each`
 * must not use the handle. Returns 0, WEIR_E_INVALID (now_us) or WEIR_E_NO_MEMORY. */
WEIR_API int weir_each_in_flight(struct weir *weir, int64_t now_us,
                                 void (*each)(const struct weir_in_flight *in_flight, void *data), void *data);

/* Writes the subject of a refusal, as the rule counts it: `ip="203.0.113.7" user="ann"`. Control and format characters are
 * escaped as in JSON. A header value of more than 8 bytes is cut to its first 4, since it may be a password. Returns the
 * length of the whole text, or 0 if no rule refused the request; writes at most cap - 1 bytes of it and a NUL, or nothing
 * if cap is 0. */
WEIR_API size_t weir_subject_text(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                                  char *buf, size_t cap);

/* Returns WEIR_OK, or the error in the newest rules: a file that could not be loaded completely, or bad rows in the
 * database that `weir sync` copied it from. *ret (may be NULL) receives the error that on_rules received. Never waits for a
 * thread that reads rules. */
WEIR_API int weir_rules_error(struct weir *weir, struct weir_error *ret);

/* ---- the guard ---- */

enum weir_detected {
    WEIR_REFUSED = 0,
    WEIR_ALLOWED = 1,
    WEIR_NO_RULE = 2 /* allowed, because no rule applies */
};

/* Charges 1 for `event` and `key`, at the current time. Returns an enum weir_detected, WEIR_E_BLANK for a blank event or
 * key, or an error of weir_check. Always writes *ret_verdict, which may be NULL. */
WEIR_API int weir_detect(struct weir *weir, const char *event, const char *key, struct weir_verdict *ret_verdict);

/* The same for rules that count what is in flight: *ret_held receives what the call holds, for weir_release when the work
 * is done. Its count is 0 if it holds nothing. (After weir_detect a slot is free only when its time to live is over.) */
WEIR_API int weir_detect_held(struct weir *weir, const char *event, const char *key, struct weir_receipt *ret_held,
                              struct weir_verdict *ret_verdict);

/* Returns the verdict of this thread's last weir_detect or WEIR_DETECT, valid until its next one. *ret_detected (may be
 * NULL) receives what that call returned. */
WEIR_API const struct weir_verdict *weir_last(int *ret_detected);

/* WEIR_DETECT(weir, "ocr", user_id) { the protected work } else { refused or an error, see weir_last } */
#define WEIR_DETECT(weir, event, key) if (weir_detect((weir), (event), (key), NULL) > 0)

#ifdef __cplusplus
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}
#endif
#endif
