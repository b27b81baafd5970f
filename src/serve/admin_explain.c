/* Explaining a request, which asks only the engine. */
#include "base/cleanup.h"
#include "base/err.h"
#include "engine/handle.h"
#include "present/present.h"
#include "serve/admin.h"

enum { HEADERS_MAX = 64 };

/* ---- the request ---- */

struct asked {
    struct weir_request request;
    struct weir_header headers[HEADERS_MAX];
    struct weir_header entries[WEIR_DESCRIPTOR_MAX];
    struct weir_cost costs[WEIR_COSTS_MAX];
};

static bool read_headers(struct http_call *call, struct asked *asked)
{
    sv text;
    for (unsigned i = 0; (text = http_parameter(call, "header", i)).ptr; i++) {
        bool colon = memchr(text.ptr, ':', text.len);
        sv name = sv_cut(&text, ':');
        if (i == HEADERS_MAX || !colon || sv_trim(name).len == 0) {
            http_error(call, 400, "such as header=X-Plan:free", "the parameter `header` is Name:value, at most %d times",
                       HEADERS_MAX);
            return false;
        }
        asked->headers[i] = (struct weir_header){ sv_trim(name), text };
        asked->request.header_count = i + 1;
    }
    asked->request.headers = asked->headers;
    return true;
}

/* descriptor=KEY=VALUE, in the order of the entries */
static bool read_descriptor(struct http_call *call, struct asked *asked)
{
    sv text;
    for (unsigned i = 0; (text = http_parameter(call, "descriptor", i)).ptr; i++) {
        bool equals = memchr(text.ptr, '=', text.len);
        sv key = sv_cut(&text, '=');
        if (i == WEIR_DESCRIPTOR_MAX || !equals || key.len == 0) {
            http_error(call, 400, "such as descriptor=plan=free",
                       "the parameter `descriptor` is KEY=VALUE, at most %d times", WEIR_DESCRIPTOR_MAX);
            return false;
        }
        asked->entries[i] = (struct weir_header){ key, text };
        asked->request.descriptor_count = i + 1;
    }
    asked->request.descriptor = asked->entries;
    return true;
}

/* cost=N or cost=UNIT:N */
static bool read_costs(struct http_call *call, struct asked *asked)
{
    struct cost_list list = { .room = asked->costs };
    sv text;
    asked->request.cost = 1;
    for (unsigned i = 0; (text = http_parameter(call, "cost", i)).ptr; i++) {
        sv amount = text, unit = memchr(text.ptr, ':', text.len) ? sv_cut(&amount, ':') : SV(UNIT_REQUESTS);
        uint64_t cost;
        bool number = sv_u64(amount, WEIR_AMOUNT_MAX, &cost);
        const char *wrong = number ? request_add_cost(&asked->request, &list, unit, cost) : NULL;
        if (number && !wrong)
            continue;
        http_error(call, 400, "such as cost=2 or cost=tokens:1200",
                   "the parameter `cost` is a whole number from 0 to 9007199254740991, or UNIT:N; '%.*s'%s",
                   SV_SHOWN(number ? unit : text, 100), number ? wrong : " is neither");
        return false;
    }
    return true;
}

#define NAME(NAME, field, ...) #field,

static bool read_request(struct http_call *call, struct asked *asked)
{
    static const char *const names[] = { REQUEST_ATTRIBUTES(NAME) "cost", "header", "descriptor", "applies", NULL };
    if (!admin_check_parameters(call, names) || !read_costs(call, asked))
        return false;
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv text = http_parameter(call, names[i], 0);
        if (!attribute_accepts(i, text)) {
            http_error(call, 400,
                       "put a whole X-Forwarded-For into `header` (header=X-Forwarded-For:…), and the address that sent it "
                       "into `peer`",
                       "the parameter `%s` must be one IPv4 or IPv6 address, not `%.*s`", names[i],
                       text.len < 200 ? (int)text.len : 200, text.ptr);
            return false;
        }
        request_set(&asked->request, i, text);
    }
    return read_headers(call, asked) && read_descriptor(call, asked);
}

void admin_explain(struct http_call *call, struct server *server)
{
    struct asked asked = { 0 };
    uint64_t applies;
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, ADMIN_BODY_MAX);
    if (!read_request(call, &asked) || !admin_number(call, "applies", 0, 1, 0, &applies))
        return;
    int r =
        explain_json(server->weir, &asked.request, applies ? EXPLAIN_APPLYING : EXPLAIN_ALL, loop_now_us(call->loop), &out);
    if (r < 0)
        http_error(call, 503, NULL, "the request cannot be judged: %s", err_text((enum weir_code)r));
    else
        admin_answer(call, SV(""), &out);
}
