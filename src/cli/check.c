/* weir check: one decision. */
#include <stdio.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/request.h"
#include "present/present.h"

static const struct command command = {
    .name = "check",
    .usage = "--rules FILE [--cells FILE] [--counters ADDRESS] [OPTION]...",
    .text = "Decides one request, charges it if it is allowed, and prints the verdict as one line of JSON.",
    .footer = "The exit status is 0 if the request is allowed, 1 if it is refused, 2 after an error.\n\n"
              "Example:\n  weir check --rules rules.yaml --cells cells --event ocr --key u1",
    .options = request_check_options,
};

int cli_check(int argc, char **argv)
{
    struct request_options options = REQUEST_OPTIONS_DEFAULT;
    struct request_lists lists;
    struct weir_request request;
    struct weir *weir;
    int status = request_read(&command, argc, argv, &options, &lists, &request);
    if (status >= 0)
        return status;
    bool charges = request.cost > 0;
    for (size_t i = 0; i < request.cost_count; i++)
        charges = charges || request.costs[i].amount > 0;
    if ((options.peek || !charges) && request_cells_missing(&options))
        options.cells = NULL;
    if (!request_open(&options, &weir))
        return EXIT_BAD;
    struct weir_verdict verdict;
    struct weir_shadows shadows;
    request.shadows = &shadows;
    int code = weir_check(weir, &request, options.now_us >= 0 ? options.now_us : weir_now_us(), &verdict);
    request_close(weir);
    if (code < 0)
        return cli_error("cannot decide about the request: %s", err_text((enum weir_code)code));
    char line[VERDICT_JSON_MAX];
    weir_verdict_json(&request, &verdict, line, sizeof line);
    puts(line);
    return verdict.allowed ? EXIT_ALLOWED : EXIT_REFUSED;
}
