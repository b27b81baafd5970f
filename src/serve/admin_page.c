/* The page: its files, which are part of the program. Everything else that the page shows comes from the API. */
#include "serve/admin.h"
#include "serve/embedded.h"

/* Nothing but the files of this listener runs or loads, so that a name that a client has chosen stays a text whatever it
 * contains. No other page may show this one in a frame. */
#define CONTENT_POLICY                                                                                                  \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; " \
    "base-uri 'none'; frame-ancestors 'none'"

static const struct embedded_file *find_file(sv path)
{
    sv name = sv_starts(path, SV("/ui/")) ? sv_from(path, 4) : SV("index.html");
    for (size_t i = 0; i < embedded_page_count; i++)
        if (sv_eq(name, weir_str(embedded_page[i].name)))
            return &embedded_page[i];
    return NULL;
}

void admin_page(struct http_call *call, struct server *server)
{
    const struct embedded_file *file = find_file(call->path);
    (void)server;
    if (!file) {
        http_error(call, 404, "the page is at /", "there is nothing at %.*s", SV_SHOWN(call->path, 200));
        return;
    }
    /* A browser asks each time whether its copy is current, so that the files of two versions never mix. */
    const struct weir_header headers[] = {
        { WEIR_STR("Content-Security-Policy"), WEIR_STR(CONTENT_POLICY) },
        { WEIR_STR("Cross-Origin-Opener-Policy"), WEIR_STR("same-origin") },
        { WEIR_STR("Cache-Control"), WEIR_STR("no-cache") },
        { WEIR_STR("ETag"), weir_str(file->tag) },
    };
    sv seen = http_header(call, "if-none-match");
    bool known = seen.ptr && memmem(seen.ptr, seen.len, file->tag, strlen(file->tag));
    http_answer(call, &(struct http_answer){ .status = known ? 304 : 200,
                                             .content_type = weir_str(file->content_type),
                                             .body = known ? SV("") : sv_of(file->bytes, file->len),
                                             .headers = headers,
                                             .header_count = sizeof headers / sizeof *headers });
}
