/* The log of the service: lines on stderr, plain or JSON. For everything that runs in src/serve; the folders below it do
 * not log. Any thread may log. Nobody's token or password comes here. */
#ifndef SERVE_LOG_H
#define SERVE_LOG_H

#include <weir/weir.h>

struct subject; /* refused/subject.h */

enum log_level { LEVEL_ERROR, LEVEL_WARNING, LEVEL_INFO };

/* format: enum config_log. refusals_per_second 0: none are logged. */
void log_setup(int format, unsigned refusals_per_second);

/* plain: "2026-11-15T10:46:17Z info rules: 12 rules are in force"; JSON: time, level, event, message. A line that stderr
 * does not take at once is dropped, since nobody waits for whoever reads the log; the next one says how many were
 * (not_logged). */
void log_say(enum log_level level, const char *event, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What clients can make happen as often as they like. Mistakes that nobody might see otherwise, since a gateway hides them
 * from people, and who tries tokens tells nobody; and newcomers for whom there is no file descriptor. */
enum seldom {
    SELDOM_CHECK,
    SELDOM_CHECK_TOKEN,
    SELDOM_AUTH,
    SELDOM_AUTH_TOKEN,
    SELDOM_RESP_TOKEN,
    SELDOM_ADMIN_TOKEN,
    SELDOM_ACCEPT,
    SELDOMS
};

/* A line a minute for each kind, whatever the number of clients and threads. */
void log_seldom(enum seldom kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Somebody was set free of a rule. A rule that counts by nothing: everybody was. No author: over RESP. */
void log_freed(const struct subject *subject, struct weir_str author, const char *from);

/* One refused request, sampled: at most so many lines a second, and how many were left out says the first one of a later
 * second. The handle is asked whom the rule counts for. */
void log_refusal(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict, int64_t now_us);

#endif
