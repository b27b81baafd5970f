/* Any bytes as a line of traffic: refused with a reason, or a request whose strings lie where they may. The same bytes as a
 * Drogon configuration: refused, or rules that weir reads. */
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/convert.h"
#include "replay/traffic.h"
#include "rules/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* Reads every byte of s, for the sanitizer to see. */
static size_t touch(sv s)
{
    volatile size_t sum = 0;
    for (size_t i = 0; i < s.len; i++)
        sum += (unsigned char)s.ptr[i];
    return sum;
}

static void check_request(const struct traffic *t)
{
    const struct weir_request *r = &t->request;
    const sv strings[] = { r->method, r->path, r->host, r->ip, r->peer, r->user, r->event, r->key };
    require(clock_valid(t->now_us));
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        touch(strings[i]);
    require(r->header_count <= TRAFFIC_HEADERS_MAX);
    for (size_t i = 0; i < r->header_count; i++) {
        touch(r->headers[i].name);
        touch(r->headers[i].value);
    }
}

static void check_line(const uint8_t *data, size_t size, bool (*read)(char *, size_t, struct traffic *, char *))
{
    static struct traffic traffic;
    char why[TRAFFIC_WHY_MAX] = "";
    char *line = malloc(size + (size == 0));
    require(line != NULL);
    memcpy(line, data, size);
    if (read(line, size, &traffic, why)) {
        check_request(&traffic);
        traffic_done(&traffic);
    } else {
        require(why[0] != '\0');
    }
    free(line);
}

static void check_hodor(const uint8_t *data, size_t size)
{
    struct hodor hodor;
    struct buf out;
    buf_init(&out, 64 << 20);
    if (hodor_read(&hodor, sv_of((const char *)data, size))) {
        struct rules_report report = { 0 };
        hodor_write(&hodor, "input", &out);
        require(!out.failed);
        struct rules *rules = rules_read(buf_sv(&out), &report);
        require(rules && report.error_count == 0);
        rules_free(rules);
        rules_report_done(&report);
    } else {
        require(hodor.errors.len > 0);
    }
    hodor_done(&hodor);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t which = data[0];
    data++;
    size--;
    if (which == 'L')
        check_line(data, size, traffic_from_log);
    else if (which == 'H')
        check_hodor(data, size);
    else
        check_line(data, size, traffic_from_json);
    return 0;
}
