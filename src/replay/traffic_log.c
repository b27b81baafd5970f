/* Access logs of nginx and Apache, common and combined:
 *
 *     203.0.113.9 - alice [10/Oct/2000:13:55:36 -0700] "GET /x?y HTTP/1.1" 200 2326 "http://from/" "agent"
 *
 * The rest of a line is ignored, since many add fields of their own. Apache's vhost_combined puts the host before it.
 * Clients write the request lines: one that is not valid is read as a request without method and path. */
#include <stdio.h>

#include "base/ip.h"
#include "replay/time_text.h"
#include "replay/traffic.h"

/* The byte that nginx or Apache wrote as a backslash and this letter: both write \xHH, Apache also the letters. */
static char unescape_letter(char c)
{
    static const char letters[] = "ntrbv", bytes[] = "\n\t\r\b\v";
    const char *found = memchr(letters, c, sizeof letters - 1);
    return found ? bytes[found - letters] : c;
}

/* The byte that "\xHH" stands for; -1: text is something else. */
static int hex_escape(const char *text, size_t len)
{
    if (len < 4 || text[1] != 'x')
        return -1;
    int high = ascii_hex(text[2]), low = ascii_hex(text[3]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Undoes the escapes in place. */
static sv unescape(char *text, size_t len)
{
    if (!memchr(text, '\\', len))
        return sv_of(text, len);
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\\' || i + 1 == len) {
            text[out++] = text[i];
            continue;
        }
        int byte = hex_escape(text + i, len - i);
        text[out++] = byte >= 0 ? (char)byte : unescape_letter(text[i + 1]);
        i += byte >= 0 ? 3 : 1;
    }
    return sv_of(text, out);
}

/* The quote that ends the field which begins at `start`; NULL: none does. Few fields have escapes. */
static char *find_quote(char *start, const char *end)
{
    char *p = memchr(start, '"', (size_t)(end - start));
    if (!p || !memchr(start, '\\', (size_t)(p - start)))
        return p;
    for (p = start; p < end && *p != '"';)
        p += *p == '\\' && p + 1 < end ? 2 : 1;
    return p < end ? p : NULL;
}

/* Takes a field in quotes, with a blank before it, off *rest. */
static bool take_quoted(char **rest, const char *end, sv *ret)
{
    char *p = *rest;
    if (end - p < 3 || p[0] != ' ' || p[1] != '"')
        return false;
    char *start = p + 2, *quote = find_quote(start, end);
    if (!quote)
        return false;
    *ret = unescape(start, (size_t)(quote - start));
    *rest = quote + 1;
    return true;
}

/* The instant between brackets that begins at text[0]. Lines of the same second come together, so the last one is kept. */
static bool read_instant(sv text, int64_t *ret_us, size_t *ret_len)
{
    static _Thread_local char last[32];
    static _Thread_local size_t last_len;
    static _Thread_local int64_t last_us;
    if (last_len && text.len >= last_len + 2 && text.ptr[last_len + 1] == ']' &&
        sv_eq(sv_of(text.ptr + 1, last_len), sv_of(last, last_len))) {
        *ret_us = last_us;
        *ret_len = last_len + 2;
        return true;
    }
    const char *close = memchr(text.ptr, ']', text.len < 40 ? text.len : 40);
    if (!close)
        return false;
    sv inside = sv_of(text.ptr + 1, (size_t)(close - text.ptr) - 1);
    if (!when_parse_clf(inside, ret_us) && !when_parse_rfc3339(inside, ret_us))
        return false;
    *ret_len = inside.len + 2;
    last_len = inside.len <= sizeof last ? inside.len : 0;
    memcpy(last, inside.ptr, last_len);
    last_us = *ret_us;
    return true;
}

static sv none_if_dash(sv s)
{
    if (sv_eq(s, SV("-")))
        s.len = 0;
    return s;
}

/* "http://host/path", as a proxy gets it, becomes host and path. */
static void split_target(sv target, struct log_request *request)
{
    size_t scheme = sv_starts(target, SV("http://")) ? 7 : sv_starts(target, SV("https://")) ? 8 : 0;
    request->path = target;
    if (!scheme)
        return;
    sv rest = sv_from(target, scheme);
    const char *slash = memchr(rest.ptr, '/', rest.len);
    size_t len = slash ? (size_t)(slash - rest.ptr) : rest.len;
    request->host = sv_of(rest.ptr, len);
    request->path = slash ? sv_from(rest, len) : SV("/");
}

static bool is_method(sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!(ascii_lower(s.ptr[i]) >= 'a' && ascii_lower(s.ptr[i]) <= 'z') && s.ptr[i] != '-' && s.ptr[i] != '_')
            return false;
    return s.len > 0 && s.len <= 32;
}

/* "GET /x HTTP/1.1"; blanks within the target stay in it. HTTP/0.9 has no version. */
static void split_request(sv line, struct log_request *request)
{
    sv rest = line, method = sv_cut(&rest, ' ');
    const char *blank = memrchr(rest.ptr, ' ', rest.len);
    sv target = rest;
    if (blank && sv_starts(sv_from(rest, (size_t)(blank - rest.ptr) + 1), SV("HTTP/")))
        target.len = (size_t)(blank - rest.ptr);
    else if (rest.len == 0 || rest.ptr[0] != '/')
        return;
    if (!is_method(method) || target.len == 0)
        return;
    request->method = method;
    split_target(target, request);
}

/* The address, ident and user of the client, up to the bracket of the time. The user may contain blanks. */
static void split_client(sv client, struct log_request *request)
{
    struct ip ip;
    sv rest = client, first = sv_cut(&rest, ' ');
    if (!ip_parse(first, &ip)) {
        sv after = rest, second = sv_cut(&after, ' ');
        if (ip_parse(second, &ip)) {
            request->host = first;
            first = second;
            rest = after;
        }
    }
    sv_cut(&rest, ' ');
    request->ip = first;
    request->user = none_if_dash(rest);
}

/* " 200 2326": digits, and digits or a dash. */
static bool take_status(char **rest, const char *end)
{
    char *p = *rest;
    if (end - p < 4 || p[0] != ' ' || !ascii_digit(p[1]) || !ascii_digit(p[2]) || !ascii_digit(p[3]))
        return false;
    p += 4;
    if (p < end && *p == ' ') {
        char *size = p + 1;
        while (size < end && (ascii_digit(*size) || *size == '-'))
            size++;
        p = size > p + 1 ? size : p;
    }
    *rest = p;
    return p == end || *p == ' ';
}

/* The first bracket that a time follows; names of users may hold brackets, too. */
static bool find_instant(sv line, size_t *ret_at, size_t *ret_len, int64_t *ret_us)
{
    for (size_t at = 1; at < line.len; at++) {
        const char *bracket = memchr(line.ptr + at, '[', line.len - at);
        if (!bracket)
            return false;
        at = (size_t)(bracket - line.ptr);
        if (bracket[-1] == ' ' && read_instant(sv_from(line, at), ret_us, ret_len)) {
            *ret_at = at - 1;
            return true;
        }
    }
    return false;
}

#define NOT_A_LINE "not an access log line: "

const char *log_request_read(char *line, size_t len, struct log_request *ret)
{
    const char *end = line + len;
    size_t at, instant_len;
    sv request_line;
    if (!find_instant(sv_of(line, len), &at, &instant_len, &ret->now_us))
        return NOT_A_LINE "no time such as [10/Oct/2000:13:55:36 -0700], from 1970 to 2112";
    char *rest = line + at + 1 + instant_len;
    ret->host = ret->method = ret->path = ret->referer = ret->agent = (sv){ 0 };
    split_client(sv_of(line, at), ret);
    if (ret->ip.len == 0)
        return NOT_A_LINE "no address before the time";
    if (!take_quoted(&rest, end, &request_line))
        return NOT_A_LINE "no request in quotes after the time";
    if (!take_status(&rest, end))
        return NOT_A_LINE "no status after the request";
    split_request(request_line, ret);
    if (take_quoted(&rest, end, &ret->referer)) {
        ret->referer = none_if_dash(ret->referer);
        if (take_quoted(&rest, end, &ret->agent))
            ret->agent = none_if_dash(ret->agent);
    }
    return NULL;
}

void log_request_as(const struct log_request *log, struct weir_request *ret, struct weir_header headers[LOG_HEADERS])
{
    size_t count = 0;
    if (log->referer.len > 0)
        headers[count++] = (struct weir_header){ SV("referer"), log->referer };
    if (log->agent.len > 0)
        headers[count++] = (struct weir_header){ SV("user-agent"), log->agent };
    *ret = (struct weir_request){ .method = log->method,
                                  .path = log->path,
                                  .host = log->host,
                                  .ip = log->ip,
                                  .user = log->user,
                                  .headers = count > 0 ? headers : NULL,
                                  .header_count = count,
                                  .cost = 1 };
}

bool traffic_from_log(char *line, size_t len, struct traffic *ret, char *why)
{
    struct log_request log;
    const char *missing = log_request_read(line, len, &log);
    ret->set_rules = NULL;
    ret->json = NULL;
    if (missing) {
        ret->request = (struct weir_request){ .cost = 1 };
        snprintf(why, TRAFFIC_WHY_MAX, "%s", missing);
        return false;
    }
    ret->now_us = log.now_us;
    log_request_as(&log, &ret->request, ret->headers);
    return true;
}
