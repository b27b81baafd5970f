/* weir top: what it was told, what it knows, what it shows. */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include <jansson.h>

#include "cli/term.h"

struct top_options {
    const char *data, *admin, *rule;
    uint64_t interval_ms;
    uint64_t most;
    bool once;
};

enum { TOP_PENALTIES = 5 }; /* that are listed */

/* The last answers of the service. */
struct top_view {
    json_t *status, *top, *penalties; /* see src/serve/openapi.json; NULL: nothing yet */
    bool no_rule;                     /* there is no rule with the id that was asked for */
    int64_t steady_us;                /* when */
    /* Decisions a second since the view before; has_rates false: there were none. */
    bool has_rates;
    double allowed_per_s, refused_per_s, shadow_per_s;
    struct weir_error away; /* code 0: the newest question was answered */
};

void top_view_done(struct top_view *view);
/* 0: there is a token. */
int top_find_token(const struct top_options *options, struct weir_error *error);
/* Asks the service for at most so many subjects. False: view->away says why. */
bool top_ask(struct top_view *view, const struct top_options *options, unsigned most);

/* As lines, no more than `rows`; UINT32_MAX: as many as there are, to be printed once. */
void top_draw(const struct top_view *view, const struct top_options *options, const struct term *term, unsigned rows,
              struct buf *out);
/* How many subjects there is room for. */
unsigned top_room(unsigned rows);

#endif
