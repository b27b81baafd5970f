/* weir rules penalties, penalise and lift: the penalties of a running service, which are not part of the source. */
#include <jansson.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "cli/admin_client.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"
#include "present/present.h"

enum { QUERY_BYTES_MAX = 8192, RULE_COLUMNS = 20, WHO_MAX = 1000 };

/* One question. Returns the status of the answer; negative: *error says why there is none. */
static int ask(const struct rules_call *call, const char *method, const char *path, sv body, struct buf *ret_body,
               struct weir_error *error)
{
    const struct client_service service = { call->options->admin, call->options->data, strcmp(method, "GET") != 0 };
    CLEANUP(buf_done) struct buf token = { 0 };
    struct weir_error why = { 0 };
    int r = client_read_token(&service, &token, error);
    if (r < 0)
        return r;
    int status = client_ask(service.admin, sv_trim(buf_sv(&token)), method, path, &call->author, body, ret_body, &why);
    if (status < 0)
        return err_set(error, why.code, "%s: %s", service.admin, why.text);
    return status;
}

static int bad_answer(const struct rules_call *call, int status, sv body)
{
    const struct client_service service = { .admin = call->options->admin, .data = call->options->data };
    struct weir_error error = { 0 };
    client_bad_status(&service, status, body, &error);
    return cli_fail(&error);
}

/* ---- listing ---- */

static sv text_of(const json_t *string)
{
    return json_is_string(string) ? sv_of(json_string_value(string), json_string_length(string)) : SV("?");
}

/* "login    ip=203.0.113.9    12 min 3 s    2 in a row" */
static void print_penalty(json_t *penalty, struct buf *out)
{
    json_t *by = json_object_get(penalty, "by"), *one;
    char rest[SPAN_TEXT_MAX];
    size_t i, before = out->len;
    plain_add(out, text_of(json_object_get(penalty, "rule")), WEIR_ID_MAX);
    size_t width = term_width(sv_of(out->ptr + before, out->len - before));
    buf_printf(out, "%*s", width < RULE_COLUMNS ? (int)(RULE_COLUMNS - width) : 2, "");
    json_array_foreach(by, i, one)
    {
        buf_add(out, i ? SV(" ") : SV(""));
        plain_add(out, text_of(json_object_get(one, "name")), RULE_NAME_MAX);
        buf_char(out, '=');
        plain_add(out, text_of(json_object_get(one, "value")), WHO_MAX);
    }
    if (json_array_size(by) == 0)
        buf_add(out, SV("everybody"));
    wait_text((int64_t)json_integer_value(json_object_get(penalty, "rest_ms")) * US_PER_MS, rest);
    buf_printf(out, "%s  another %s", json_is_true(json_object_get(penalty, "cut")) ? " (cut)" : "", rest);
    json_int_t level = json_integer_value(json_object_get(penalty, "level"));
    if (level > 1)
        buf_printf(out, ", %lld in a row", (long long)level);
    buf_char(out, '\n');
}

static int print_all(const struct rules_call *call, sv body)
{
    json_auto_t *json = json_loadb(body.ptr, body.len, JSON_ALLOW_NUL, NULL);
    json_t *penalties = json_object_get(json, "penalties"), *penalty;
    CLEANUP(buf_done) struct buf out;
    size_t i;
    buf_init(&out, RULES_OUTPUT_MAX);
    if (!json_is_array(penalties))
        return cli_error("%s: the answer is not a list of penalties; is this a weir service?", call->options->admin);
    if (call->options->json)
        buf_add(&out, body);
    else
        json_array_foreach(penalties, i, penalty)
        {
            print_penalty(penalty, &out);
        }
    if (json_integer_value(json_object_get(json, "left_out")) > 0)
        cli_error("the service remembers the names of %d penalised subjects for each thread; some are not listed", 1000);
    if (json_array_size(penalties) == 0 && !call->options->json)
        cli_error("nobody is penalised%s%s, as far as the service knows: it remembers who was refused since %.*s",
                  call->word_count ? " by rule " : "", call->word_count ? call->words[0] : "",
                  SV_FMT(text_of(json_object_get(json, "since"))));
    return cli_print(&out, json_array_size(penalties) > 0 ? RULES_DONE : RULES_NOTHING);
}

int rules_penalties(struct rules_call *call)
{
    CLEANUP(buf_done) struct buf path, body = { 0 };
    struct weir_error error = { 0 };
    buf_init(&path, QUERY_BYTES_MAX);
    buf_add(&path, SV("/v1/penalties"));
    if (call->word_count > 0) {
        buf_add(&path, SV("?rule="));
        client_encode(weir_str(call->words[0]), &path);
    }
    if (path.failed)
        return cli_error("the id of the rule is too long");
    int status = ask(call, "GET", path.ptr, SV(""), &body, &error);
    if (status < 0)
        return cli_fail(&error);
    return status == 200 ? print_all(call, buf_sv(&body)) : bad_answer(call, status, buf_sv(&body));
}

/* ---- one subject ---- */

/* Asks for a change of the penalty of the subject in the words; `done` is printed after its name if it was made. */
static int change(const struct rules_call *call, const char *method, sv document, const char *done)
{
    CLEANUP(buf_done) struct buf path, body = { 0 }, out;
    struct weir_error error = { 0 };
    buf_init(&path, QUERY_BYTES_MAX);
    buf_init(&out, RULES_OUTPUT_MAX);
    for (size_t i = 0; i < call->word_count; i++) {
        buf_add(&path, i ? SV("&by=") : SV("/v1/penalties?rule="));
        client_encode(weir_str(call->words[i]), &path);
        buf_add(&out, i ? SV(", ") : SV(""));
        plain_add(&out, weir_str(call->words[i]), i ? WHO_MAX : WEIR_ID_MAX);
    }
    if (path.failed)
        return cli_error("the values are too long");
    int status = ask(call, method, path.ptr, document, &body, &error);
    if (status < 0)
        return cli_fail(&error);
    if (status != 204) {
        bad_answer(call, status, buf_sv(&body));
        if (status == 409)
            cli_error("'weir rules override RULE SUBJECT... --deny --for TIME' refuses a subject of any rule");
        return status == 404 ? RULES_NOTHING : EXIT_BAD;
    }
    buf_printf(&out, ": %s\n", done);
    return cli_print(&out, RULES_DONE);
}

int rules_lift(struct rules_call *call)
{
    return change(call, "DELETE", SV(""), "the penalty is lifted");
}

int rules_penalise(struct rules_call *call)
{
    char document[60], span[SPAN_TEXT_MAX], done[SPAN_TEXT_MAX + 20];
    if (call->options->for_ms == 0)
        return options_error(call->command, "penalise needs --for TIME, how long the penalty lasts: 1s to 31d");
    snprintf(document, sizeof document, "{\"for\": \"%llums\"}", (unsigned long long)call->options->for_ms);
    span_text((int64_t)call->options->for_ms * US_PER_MS, span);
    snprintf(done, sizeof done, "penalised for %s", span);
    return change(call, "PUT", weir_str(document), done);
}
