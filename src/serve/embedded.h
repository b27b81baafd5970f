/* Files that the service carries with it; embed.py makes them at build. */
#ifndef SERVE_EMBEDDED_H
#define SERVE_EMBEDDED_H

#include <stddef.h>

extern const char embedded_openapi[]; /* src/serve/openapi.json */
/* The entry in it that has the default address for decisions. */
#define OPENAPI_DECIDE_SERVER "{\"url\": \"http://127.0.0.1:8080\", \"description\": \"The decision listener.\"}"
extern const size_t embedded_openapi_len;
extern const char embedded_rules[]; /* examples/rules.yaml */
extern const size_t embedded_rules_len;

/* The files of ui/. */
struct embedded_file {
    const char *name, *content_type;
    const char *tag; /* an ETag: another one whenever the file changes */
    size_t len;
    const char *bytes;
};
extern const struct embedded_file embedded_page[];
extern const size_t embedded_page_count;

#endif
