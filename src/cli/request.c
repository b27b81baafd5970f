#include "cli/request.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/program.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "engine/handle.h"
#include "library/open.h"
#include "redis/address.h"
#include "rules/included.h"

static bool is_database(const char *path)
{
    static const char *const kinds[] = { "sqlite:", "mysql:", "mariadb:", "postgres:", "postgresql:" };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (sv_starts(weir_str(path), weir_str(kinds[i])))
            return true;
    return false;
}

struct rules *read_rules(const char *path, sv text, struct rules_report *ret_report, bool *ret_includes)
{
    struct included included = { 0 };
    bool is_stdin = strcmp(path, "-") == 0;
    struct rules *rules = is_stdin ? rules_read(text, ret_report) : rules_read_file(text, path, &included, ret_report);
    if (ret_includes)
        *ret_includes = included.count > 0;
    included_done(&included);
    return rules;
}

/* One text that says what several files say. */
static bool write_whole(const struct rules *rules, struct buf *text)
{
    buf_done(text);
    buf_init(text, 4 * (size_t)RULES_BYTES_MAX);
    rules_write(rules, text);
    return !text->failed;
}

bool load_rules(const char *path, struct buf *ret_text, struct rules **ret_rules)
{
    const char *name = cli_file_name(path), *why;
    if (!cli_read_file(path, ret_text, &why)) {
        if (is_database(path))
            cli_error("--rules takes a file, not a database; 'weir rules export --from ADDRESS' prints the rules of a "
                      "database as a file");
        else
            cli_error("%s: %s", name, why);
        return false;
    }
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    bool includes = false;
    CLEANUP(rules_freep) struct rules *rules = read_rules(path, buf_sv(ret_text), &report, &includes);
    if (rules && report.error_count == 0 && (!includes || write_whole(rules, ret_text))) {
        if (ret_rules)
            *ret_rules = STEAL(rules);
        return true;
    }
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, 16 << 20);
    rules_report_print(&report, weir_str(name), false, &out);
    if (out.len > 0)
        plain_print(buf_sv(&out));
    if (!rules || report.error_count == 0)
        cli_error("%s: out of memory", name);
    buf_done(ret_text);
    return false;
}

#define AT(field) offsetof(struct request_options, field)
#define ATTRIBUTE_OPTION(NAME, field, uses, argument, help) \
    { #field, argument, OPTION_TEXT, AT(attributes[ATTR_##NAME]), help },

#define RULES_OPTION                                                                               \
    {                                                                                              \
        "rules", "FILE", OPTION_TEXT, AT(rules), "the rules, in YAML or JSON (required; -: stdin)" \
    }

#define CELLS_SIZE_OPTIONS(keys_help, bytes_help)                                                             \
    { "cells-keys", "N", OPTION_COUNT, AT(cells_keys), keys_help, .min = 1, .max = OPTION_CELLS_KEYS_MAX },   \
    {                                                                                                         \
        "cells-bytes", "N", OPTION_SIZE, AT(cells_bytes), bytes_help, .min = 1, .max = OPTION_CELLS_BYTES_MAX \
    }

/* Where counts are in a store, who asks, and when. */
#define REQUEST_OPTIONS(what_cost_does)                                                                                   \
    { "counters", "ADDRESS", OPTION_TEXT, AT(counters),                                                                   \
      "Redis or Valkey server in which rules count unless they are local: the same address as for 'weir serve "           \
      "--counters'" },                                                                                                    \
        { "hosts", "N", OPTION_NUMBER, AT(hosts),                                                                         \
          "number of hosts that share the store of --counters; 0 detects it (default)" },                                 \
        REQUEST_ATTRIBUTES(ATTRIBUTE_OPTION){                                                                             \
            "header", "NAME:VALUE", OPTION_LIST, AT(headers),                                                             \
            "a header of the request, as for curl: 'X-Api-Key: k1'; NAME=VALUE is the same; may be repeated"              \
        },                                                                                                                \
        { "descriptor", "KEY=VALUE", OPTION_LIST, AT(entries),                                                            \
          "an entry of the request's descriptor; may be repeated, and the order counts" },                                \
        { "cost", "N|UNIT=N", OPTION_LIST, AT(costs), what_cost_does },                                                   \
    {                                                                                                                     \
        "now", "TIME", OPTION_TIME, AT(now_us), "decide at this time: RFC 3339 or milliseconds since 1970 (default: now)" \
    }

const struct option request_check_options[] = {
    RULES_OPTION,
    { "cells", "FILE", OPTION_TEXT, AT(cells),
      "the table of counts, shared by all processes that open it; a missing one is created with the first charge. Without "
      "this option the counts begin at 0 and are not kept" },
    CELLS_SIZE_OPTIONS("size of a new table, in keys: one for each subject of each limit (500k, 10m)",
                       "bytes of the cells of a new table (64m, 1g); the room for holds adds an eighth"),
    { "peek", NULL, OPTION_FLAG, AT(peek), "decide as if the cost were charged, but charge nothing" },
    REQUEST_OPTIONS("how much to charge, of requests (default 1) or of another unit; may be repeated. 0 decides without "
                    "charging; with UNIT=N alone requests cost 0"),
    { 0 },
};

/* It accepts what only matters for a charge, so that the options of a check explain it. */
const struct option request_explain_options[] = {
    RULES_OPTION,
    { "cells", "FILE", OPTION_TEXT, AT(cells),
      "the table of counts, which must exist: 'weir serve' has it as cells in its data folder. Without this option the "
      "counts are 0" },
    REQUEST_OPTIONS("how much the request would cost, of requests (default 1) or of another unit; may be repeated. With "
                    "UNIT=N alone requests cost 0"),
    CELLS_SIZE_OPTIONS(NULL, NULL),
    { "peek", NULL, OPTION_FLAG, AT(peek), NULL },
    { 0 },
};

/* A name, one of the signs, and a value. */
static int read_pairs(const struct command *command, const char *option, const char *signs, const char *allowed,
                      const struct option_list *list, struct weir_header *ret)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *item = list->items[i], *sign = strpbrk(item, signs);
        if (!sign || sign == item)
            return options_error(command, "--%s: '%s' is not allowed here; allowed: %s", option, item, allowed);
        ret[i] = (struct weir_header){ sv_of(item, (size_t)(sign - item)), weir_str(sign + 1) };
        if (*sign == ':')
            ret[i].value = sv_trim(ret[i].value);
    }
    return -1;
}

static int read_costs(const struct command *command, struct request_options *o, struct weir_request *request)
{
    struct cost_list list = { .room = o->cost_room };
    for (size_t i = 0; i < o->costs.count; i++) {
        sv amount = weir_str(o->costs.items[i]), unit = SV(UNIT_REQUESTS);
        uint64_t cost;
        if (strchr(o->costs.items[i], '='))
            unit = sv_cut(&amount, '=');
        if (!sv_u64(amount, WEIR_AMOUNT_MAX, &cost))
            return options_error(command,
                                 "--cost: '%s' is not allowed here; allowed: N or UNIT=N, with N from 0 to %" PRIu64,
                                 o->costs.items[i], WEIR_AMOUNT_MAX);
        const char *wrong = request_add_cost(request, &list, unit, cost);
        if (wrong)
            return options_error(command, "--cost: '%.*s'%s", SV_FMT(unit), wrong);
    }
    return -1;
}

static int check_counters(const struct command *command, const char *text)
{
    struct redis_address address;
    struct weir_error error;
    int r = text ? redis_address_read(&address, text, &error) : 0;
    explicit_bzero(&address, sizeof address);
    return r < 0 ? options_error(command, "--counters: %s", error.text) : -1;
}

static int read_attributes(const struct command *command, const char *const *texts, struct weir_request *request)
{
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv text = weir_str(texts[i]);
        if (!attribute_accepts(i, text))
            return options_error(command, "--%s: '%s' is not allowed here; allowed: an IPv4 or IPv6 address",
                                 attribute_table[i].name.ptr, text.ptr);
        request_set(request, i, text);
    }
    return -1;
}

int request_read(const struct command *command, int argc, char **argv, struct request_options *o,
                 struct request_lists *lists, struct weir_request *ret_request)
{
    size_t count;
    int status = options_read(command, argc, argv, o, &count);
    if (status >= 0)
        return status;
    if (count > 0)
        return options_error(command, "unexpected argument '%s'", argv[0]);
    if (!o->rules)
        return options_error(command, "--rules FILE is required");
    if (o->cells_keys && o->cells_bytes)
        return options_error(command, "--cells-keys and --cells-bytes both give the size; leave out one");
    if (o->hosts && !o->counters)
        return options_error(command, "--hosts has no effect without --counters; give --counters ADDRESS, too");
    if (o->counters && o->now_us >= 0)
        return options_error(
            command, "--now cannot be combined with --counters, because the store's clock counts there; leave out one");
    struct weir_request request = { .headers = lists->headers,
                                    .header_count = o->headers.count,
                                    .descriptor = lists->entries,
                                    .descriptor_count = o->entries.count,
                                    .cost = 1,
                                    .peek = o->peek };
    status = check_counters(command, o->counters);
    if (status < 0)
        status = read_costs(command, o, &request);
    if (status < 0)
        status = read_attributes(command, o->attributes, &request);
    if (status < 0)
        status = read_pairs(command, "header", ":=", "NAME: VALUE or NAME=VALUE", &o->headers, lists->headers);
    if (status < 0)
        status = read_pairs(command, "descriptor", "=", "KEY=VALUE", &o->entries, lists->entries);
    if (status < 0)
        *ret_request = request;
    return status;
}

bool request_cells_missing(const struct request_options *o)
{
    return o->cells && access(o->cells, F_OK) < 0 && errno == ENOENT;
}

/* A table keeps its size, whatever the options say later. */
static void warn_size(const struct weir *weir, const struct request_options *o)
{
    uint64_t keys;
    char room[PROGRAM_WORD_BYTES];
    if (!o->cells || (!o->cells_keys && !o->cells_bytes) ||
        cells_has_size(weir->cells, (struct cells_size){ o->cells_keys, o->cells_bytes }, &keys))
        return;
    cli_error("%s has room for %" PRIu64 " keys, and keeps this size although --cells-%s is %" PRIu64
              "; to change it, run: %s cells resize %s --%s %" PRIu64,
              o->cells, keys, o->cells_keys ? "keys" : "bytes", o->cells_keys ? o->cells_keys : o->cells_bytes,
              program_command(), program_word(o->cells, room), o->cells_keys ? "keys" : "bytes",
              o->cells_keys ? o->cells_keys : o->cells_bytes);
}

/* Longer than for a service: a command has no connection yet, and asks once. */
enum { STORE_DEADLINE_MS = 1000 };

bool request_open(const struct request_options *o, struct weir **ret)
{
    struct buf text;
    struct weir_error error;
    if (!load_rules(o->rules, &text, NULL))
        return false;
    char *counters = o->counters ? strdup(o->counters) : NULL;
    if (o->counters)
        plain_hide_password((char *)o->counters); /* a word of argv */
    struct weir_options options = {
        .size = sizeof options,
        .rules_text = buf_sv(&text).ptr,
        .rules_text_len = text.len,
        .cells_file = o->cells,
        .cells_keys = o->cells_keys,
        .cells_bytes = o->cells_bytes,
        .counters = counters,
        .store_deadline_ms = STORE_DEADLINE_MS,
        .store_hosts = (uint32_t)o->hosts,
    };
    int code = o->counters && !counters ? err_no_memory(&error) : weir_open_visit(ret, &options, &error);
    if (code < 0) {
        plain_say(weir_str(error.text));
    } else {
        cli_warn_copied(weir_cells_copied(*ret), o->cells);
        warn_size(*ret, o);
    }
    buf_done(&text);
    if (counters)
        explicit_bzero(counters, strlen(counters));
    free(counters);
    return code >= 0;
}

void request_close(struct weir *weir)
{
    struct weir_store_status store;
    weir_store_status(weir, &store);
    if (store.configured && !store.up)
        cli_error("the store %s does not answer%s%s; rules that count there follow their on_store_failure", store.address,
                  store.problem[0] ? ": " : "", store.problem);
    weir_close(weir);
}
