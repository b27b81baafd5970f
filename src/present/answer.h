/* The answer to one request, as the files of this folder share it. */
#ifndef PRESENT_ANSWER_H
#define PRESENT_ANSWER_H

#include "base/buf.h"
#include "engine/handle.h"

/* A decided request, with the rules in force. */
struct answer {
    struct weir *weir;
    const struct bound *bound;
    const struct weir_request *request; /* may be NULL */
    const struct weir_verdict *verdict;
    const struct weir_usage *usage; /* NULL: only the verdict is known */
    sv user;                        /* only if headers have partition keys */
    char user_buf[WEIR_USER_MAX];
};

/* Acquires the rules. Returns false if out of memory; else the caller calls hazard_release. */
bool answer_begin(struct answer *ret, struct weir *weir, const struct weir_request *request,
                  const struct weir_verdict *verdict);

/* weir_headers, with the rules acquired. */
void answer_headers(const struct answer *a, unsigned style, struct weir_headers *ret);

/* ---- policies ---- */

/* Bytes of a policy's name, without quotes and NUL: each byte of the id may be escaped. */
enum { POLICY_NAME_MAX = 3 * WEIR_ID_MAX + 1 + WEIR_NAME_MAX };
/* Writes "rule/limit". It has only characters that a String of structured fields has as they are. In the id of the rule
 * `/`, `%`, `"`, `\` and bytes that are not printable ASCII become %XX, so two limits never have the same name. Returns the
 * end; writes no NUL. */
char *policy_name_put(char *to, sv rule, sv limit);

/* ---- problems ---- */

#define PROBLEM_CONTENT_TYPE SV("application/problem+json")
enum { PROBLEM_MAX = (WEIR_USAGE_LIMITS + 2) * (POLICY_NAME_MAX + 3) + 1000 }; /* bytes of a problem */

/* Adds the refusal as application/problem+json (RFC 9457). */
void problem_write(const struct answer *a, struct buf *out);
/* Returns whether the client prefers a problem to plain text, by the Accept headers of the request. */
bool problem_accepted(const struct weir_request *request);

#endif
