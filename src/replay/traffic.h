/* One line of recorded traffic, from JSON Lines or from an access log: when, and what was asked. */
#ifndef REPLAY_TRAFFIC_H
#define REPLAY_TRAFFIC_H

#include "base/sv.h"

/* TRAFFIC_BAD_SHOWN: how many lines that are skipped are shown; the others are only counted. */
enum { TRAFFIC_HEADERS_MAX = 256, TRAFFIC_WHY_MAX = 400, TRAFFIC_BAD_SHOWN = 5 };

struct traffic {
    int64_t now_us;
    struct weir_request
        request;     /* its strings lie in the line or in `json`, its headers in `headers`, its entries in `entries` */
    char *set_rules; /* instead of a request: new rules, as a JSON list or document; owned */
    void *json;      /* owned */
    struct weir_header headers[TRAFFIC_HEADERS_MAX];
    struct weir_header entries[WEIR_DESCRIPTOR_MAX];
    struct weir_cost costs[WEIR_COSTS_MAX];
};

/* What a line of an access log says: its strings lie in the line. */
struct log_request {
    int64_t now_us;
    sv ip, user, host, method, path;
    sv referer, agent; /* headers */
};
enum { LOG_HEADERS = 2 };

/* Returns NULL, or why it is not a line of an access log. `line` may be changed: escapes are undone in place. */
const char *log_request_read(char *line, size_t len, struct log_request *ret);
/* The request, whose headers lie in `headers`. */
void log_request_as(const struct log_request *log, struct weir_request *ret, struct weir_header headers[LOG_HEADERS]);

/* Each returns false with a sentence in `why` (TRAFFIC_WHY_MAX bytes) if the line has another form. `line` may be changed:
 * escapes are undone in place. Call traffic_done after success. */
bool traffic_from_json(char *line, size_t len, struct traffic *ret, char *why);
bool traffic_from_log(char *line, size_t len, struct traffic *ret, char *why);
void traffic_done(struct traffic *traffic);

#endif
