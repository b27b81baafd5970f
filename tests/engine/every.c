/* Every function of the public header, as a program would use it: against the shared library, with nothing but the header.
 * Compiled as C, and as C++ by way of every.cc. Ends with 0 if all answers were as expected. */
#include <stdio.h>
#include <string.h>

#include <weir/weir.h>

static const char rules[] = "rules:\n"
                            "  - id: ocr\n"
                            "    match: { event: ocr }\n"
                            "    by: [key]\n"
                            "    limits: [ 3 per 60s ]\n"
                            "  - id: upload\n"
                            "    match: { method: POST, path: '/files/*' }\n"
                            "    by: [user]\n"
                            "    limits: [ 2 per 365d ]\n"
                            "    reject: { status: 503, body: later }\n";

static int wrong;

static void expect(bool good, const char *what)
{
    if (!good)
        fprintf(stderr, "wrong: %s\n", what);
    wrong += !good;
}

/* ---- the host's functions ---- */

static size_t user_id(const struct weir_request *request, char *buf, size_t cap, void *data)
{
    const char *user = (const char *)(request->context ? request->context : data);
    size_t len = strlen(user);
    memcpy(buf, user, len < cap ? len : cap);
    return len;
}

static void refuse(const struct weir_request *request, const struct weir_verdict *verdict, struct weir_refusal *refusal,
                   void *data)
{
    (void)request;
    if (strcmp(verdict->rule, "upload") == 0)
        refusal->content_type = weir_str((const char *)data);
}

static void on_rules(const struct weir_error *error, void *data)
{
    *(enum weir_code *)data = error->code;
}

/* ---- one function after another ---- */

static void add_holds(const struct weir_in_flight *in_flight, void *data)
{
    *(uint64_t *)data += in_flight->holds;
}

static void ask(struct weir *weir)
{
    static char context[] = "u2";
    struct weir_request request;
    struct weir_verdict verdict, verdicts[4];
    struct weir_request requests[4];
    char json[500];
    memset(&request, 0, sizeof request);
    request.method = WEIR_STR("POST");
    request.path = WEIR_STR("/files/a%2Fb?x=1");
    request.cost = 1;
    expect(weir_check(weir, &request, weir_now_us(), &verdict) == 0 && verdict.allowed, "the first upload passes");
    expect(weir_verdict_json(&request, &verdict, json, sizeof json) > 0 && strstr(json, "\"rule\":\"upload\"") != NULL,
           "JSON");
    for (int i = 0; i < 4; i++)
        requests[i] = request;
    requests[3].context = context;
    expect(weir_check_batch(weir, requests, 4, weir_now_us(), verdicts) == 0, "a batch");
    expect(verdicts[0].allowed && !verdicts[1].allowed && !verdicts[2].allowed && verdicts[3].allowed, "its verdicts");

    struct weir_refusal refusal;
    expect(weir_refuse(weir, &request, &verdicts[1], &refusal) == 0 && refusal.status == 503, "a refusal");
    expect(refusal.body.len == 5 && memcmp(refusal.body.ptr, "later", 5) == 0, "its body");
    expect(refusal.content_type.len == 3 && refusal.header_count == 3, "its type and headers");
    expect(weir_refuse_as(weir, &request, &verdicts[1], 0, &refusal) == 0 && refusal.header_count == 0,
           "one without headers");
    struct weir_headers headers;
    weir_headers(weir, &request, &verdicts[1], WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY, &headers);
    expect(headers.count == 6, "headers");
    struct weir_usage usage;
    request.usage = &usage;
    expect(weir_check(weir, &request, weir_now_us(), &verdict) == 0 && usage.count == 1, "what is left");
    weir_headers(weir, &request, &verdict,
                 WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY | WEIR_HEADERS_OPENAI | WEIR_HEADERS_SETTING, &headers);
    expect(headers.count == 9 && headers.count <= WEIR_HEADERS_MAX, "all headers");
    request.usage = NULL;

    const struct weir_attribute *attribute = weir_attribute(0);
    expect(attribute && strcmp(attribute->name, "method") == 0 && !attribute->is_address &&
               attribute->offset == offsetof(struct weir_request, method),
           "the first attribute");
    size_t attributes = 0;
    for (; (attribute = weir_attribute(attributes)); attributes++)
        expect(strcmp(attribute->name, "peer") != 0 && attribute->is_address == (strcmp(attribute->name, "ip") == 0),
               attribute->name);
    expect(attributes > 0 && !weir_attribute(attributes + 1), "an end of the attributes");
    expect(weir_repeated(weir, "user", WEIR_STR("x-user"), weir_now_us(), &verdict) == WEIR_TAKE_NONE &&
               verdict.status == 400,
           "a user from a header that is there twice");
    bool looks[2];
    static const char *const asked[] = { "user", "header" };
    uint64_t version = weir_looks_at(weir, asked, 2, looks);
    expect(version > 0 && looks[0] && !looks[1], "what rules look at");
    expect(weir_check_for(weir, version + 1, &request, weir_now_us(), 0, &verdict) == WEIR_E_CHANGED && !verdict.allowed,
           "a request that was made for other rules");
    expect(weir_subject_text(weir, &request, &verdicts[1], json, sizeof json) > 0 && strcmp(json, "user=\"u1\"") == 0,
           "whom it was for");
    expect(weir_cells_used(weir, weir_now_us(), UINT64_MAX) > 0, "cells in use");

    uint64_t holds = 0;
    expect(weir_each_in_flight(weir, weir_now_us(), add_holds, &holds) == 0 && holds == 0, "nothing in flight");

    struct weir_str by = WEIR_STR("u1");
    struct weir_error error;
    expect(weir_reset(weir, "upload", &by, 1, &error) == 0, "a reset");
    expect(weir_check(weir, &request, weir_now_us(), &verdict) == 0 && verdict.allowed, "an upload after it");
}

static void prepared(struct weir *weir)
{
    struct weir_request request;
    struct weir_prepared *ocr = NULL;
    struct weir_verdict verdict;
    struct weir_error error;
    memset(&request, 0, sizeof request);
    request.event = WEIR_STR("ocr");
    expect(weir_prepare(&ocr, weir, &request, "path", &error) == WEIR_E_INVALID && !ocr, "a path cannot vary");
    expect(weir_prepare(&ocr, weir, &request, "key", &error) == 0 && ocr, "a prepared check");
    for (int i = 0; i < 4; i++)
        expect(weir_prepared_check(ocr, WEIR_STR("prepared"), 1, weir_now_us(), &verdict) == 0 &&
                   verdict.allowed == (i < 3) && strcmp(verdict.rule, "ocr") == 0,
               "its verdicts");
    weir_prepared_free(ocr);
    weir_prepared_free(NULL);
}

static void note_rule(const struct weir_rule_said *said, void *context)
{
    int *counts = (int *)context;
    counts[said->said]++;
    expect(said->rule.len > 0 && (said->limit.len > 0) == (said->said != WEIR_SAYS_PASS), "what a rule says");
}

static void each_rule(struct weir *weir)
{
    int counts[3] = { 0, 0, 0 };
    struct weir_request request;
    struct weir_verdict verdict;
    memset(&request, 0, sizeof request);
    request.event = weir_str("ocr");
    request.key = weir_str("each");
    request.cost = 1;
    request.each_rule = note_rule;
    request.context = counts;
    for (int i = 0; i < 5; i++)
        expect(weir_check(weir, &request, weir_now_us(), &verdict) == 0 && verdict.matched, "a rule applies");
    expect(counts[WEIR_SAYS_PASS] == 3 && counts[WEIR_SAYS_REFUSE] == 2 && counts[WEIR_SAYS_WOULD_REFUSE] == 0,
           "each rule");
    request.event = weir_str("none");
    expect(weir_check(weir, &request, weir_now_us(), &verdict) == 0 && !verdict.matched && counts[WEIR_SAYS_PASS] == 3,
           "no rule applies");
}

static void detect(struct weir *weir)
{
    int done = 0, refused = 0, detected = 0;
    struct weir_verdict verdict;
    for (int i = 0; i < 5; i++) {
        WEIR_DETECT(weir, "ocr", "u1") {
            done++;
        } else {
            refused += weir_last(&detected)->retry_after_ms > 0;
        }
    }
    expect(done == 3 && refused == 2 && detected == WEIR_REFUSED, "three of five pass the guard");
    expect(weir_detect(weir, "speech", "u1", &verdict) == WEIR_NO_RULE, "no rule");
    expect(weir_detect(weir, "", "u1", NULL) == WEIR_E_BLANK, "a blank event");
}

static void change(struct weir *weir, enum weir_code *told)
{
    struct weir_status status;
    struct weir_error error;
    weir_status(weir, &status);
    expect(status.rules == 2 && status.cells > 0 && !status.rules_bad, "the status");
    expect(!weir_cells_copied(weir), "the cells");
    expect(weir_rules_error(weir, &error) == 0 && error.code == WEIR_OK, "good rules");
    expect(weir_poll(weir, &error) == 0 && *told == WEIR_E_BLANK, "nothing to poll");
    expect(weir_poll_aside(weir) == 0, "nothing to poll aside, either");
    expect(weir_set_rules(weir, "rules: [x]", 10, &error) == WEIR_E_RULES && strstr(error.text, "rules:1") != NULL,
           "bad rules");
    expect(weir_set_rules(weir, "problems: [x]\nrules: []", 23, &error) == 0, "rules with problems where they come from");
    expect(weir_rules_error(weir, &error) == WEIR_E_RULES && strcmp(error.text, "x") == 0, "the problems");
    expect(weir_set_rules(weir, "[]", 2, &error) == 0 && weir_rules_error(weir, NULL) == 0, "no rules");
    weir_status(weir, &status);
    expect(status.rules == 0, "the status without rules");
}

int main(void)
{
    static char user[] = "u1", type[] = "a/b";
    enum weir_code told = WEIR_E_BLANK;
    struct weir_options options;
    struct weir_error error;
    struct weir *weir;
    expect(weir_abi_version() == WEIR_ABI_VERSION && weir_version()[0] != '\0', "versions");
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.rules_text = rules;
    options.cells_keys = 1000;
    options.user_id = user_id;
    options.user_id_data = user;
    options.refuse = refuse;
    options.refuse_data = type;
    options.on_rules = on_rules;
    options.on_rules_data = &told;
    if (weir_open(&weir, &options, &error) < 0) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    ask(weir);
    detect(weir);
    prepared(weir);
    each_rule(weir);
    change(weir, &told);
    weir_close(weir);
    return wrong > 0;
}
