/* The trace that a request belongs to: the header `traceparent` of W3C Trace Context, version 00. Its ids go into the log
 * of refusals, so that a refusal can be found from a trace and the other way round. weir makes no spans of its own. */
#ifndef SERVE_TRACE_H
#define SERVE_TRACE_H

#include <weir/weir.h>

#include "base/sv.h"

/* 00-TRACE_ID-SPAN_ID-FLAGS, each in lower-case hexadecimal digits. */
enum { TRACE_ID_AT = 3, TRACE_ID_LEN = 32, TRACE_SPAN_AT = 36, TRACE_SPAN_LEN = 16, TRACE_FLAGS_AT = 53, TRACE_LEN = 55 };

/* Finds the traceparent of a call that `of` knows and `request` is a part of; empty: none. */
typedef sv trace_find(const void *of, const struct weir_request *request);

/* A client sends it, so nothing is accepted but the exact form: it can contain nothing that would change a log line. An id
 * of zeros is invalid, too. */
bool trace_is_valid(sv text);

/* Returns the only traceparent of these headers. Empty: there is none, it is invalid, or there are several. */
sv trace_of_headers(const struct weir_header *headers, size_t count);

#endif
