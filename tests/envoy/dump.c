/* Reads messages from standard input, each after its length in 4 bytes, and prints what the codec makes of each: a line for
 * tests/envoy/test_protobuf.py. */
#include <stdio.h>
#include <stdlib.h>

#include "envoy/envoy.h"

static struct envoy_request request;

static void put_hex(sv s)
{
    putchar('"');
    for (size_t i = 0; i < s.len; i++)
        printf("%02x", (unsigned char)s.ptr[i]);
    putchar('"');
}

static void put_descriptor(const struct envoy_descriptor *d)
{
    printf("{\"entries\":[");
    for (size_t i = 0; i < d->entry_count; i++) {
        const struct weir_header *entry = &request.entries[d->first_entry + i];
        printf(i ? ",[" : "[");
        put_hex(entry->name);
        putchar(',');
        put_hex(entry->value);
        putchar(']');
    }
    printf("],\"negative\":%s", d->negative ? "true" : "false");
    if (d->has_hits)
        printf(",\"hits\":%llu", (unsigned long long)d->hits);
    if (d->limit.given)
        printf(",\"limit\":[%u,%d]", d->limit.requests_per_unit, d->limit.unit);
    if (d->limit.has_multiplier)
        printf(",\"multiplier\":%u", d->limit.multiplier);
    putchar('}');
}

static void put_request(void)
{
    printf("{\"error\":0,\"domain\":");
    put_hex(request.domain);
    printf(",\"hits\":%u,\"descriptors\":[", request.hits);
    for (size_t i = 0; i < request.descriptor_count; i++) {
        if (i)
            putchar(',');
        put_descriptor(&request.descriptors[i]);
    }
    puts("]}");
}

int main(void)
{
    unsigned char prefix[4];
    while (fread(prefix, 1, sizeof prefix, stdin) == sizeof prefix) {
        size_t len = (size_t)prefix[0] << 24 | (size_t)prefix[1] << 16 | (size_t)prefix[2] << 8 | prefix[3];
        char *bytes = malloc(len ? len : 1); /* of its size: a sanitizer sees a step too far */
        char why[ENVOY_WHY_MAX] = "";
        if (!bytes || fread(bytes, 1, len, stdin) != len)
            return 1;
        enum envoy_error error = envoy_read_request(&request, sv_of(bytes, len), why);
        if (error == ENVOY_OK)
            put_request();
        else
            printf("{\"error\":%d,\"why\":\"%s\"}\n", error, why);
        free(bytes);
    }
    return 0;
}
