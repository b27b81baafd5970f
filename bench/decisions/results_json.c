/* The results of a bench, for programs. */
#include <stdio.h>

#include "decisions/bench.h"

static const char *what_name(enum bench_what what)
{
    static const char *const names[] = {
        [BENCH_CAS] = "cas",
        [BENCH_ACCESS] = "access",
        [BENCH_PREFETCHED] = "prefetched_cas",
        [BENCH_DECIDE] = "decide",
        [BENCH_REFUSE] = "refuse",
        [BENCH_MAP] = "mutex_map",
        [BENCH_MAP_OPEN] = "open_mutex_map",
        [BENCH_CHECK] = "check",
        [BENCH_CHECK_ALL] = "check_all_rules",
        [BENCH_PREPARED] = "prepared",
        [BENCH_BRIEF] = "prepared_brief",
        [BENCH_RESERVE] = "reserve_settle",
        [BENCH_PLAIN] = "check_plain",
        [BENCH_NO_OVERRIDE] = "check_no_override",
        [BENCH_OVERRIDE] = "check_override",
        [BENCH_PLAN] = "check_plan",
        [BENCH_ROUTES] = "check_routes",
        [BENCH_HEADERS] = "check_headers",
        [BENCH_REGEXES] = "check_regexes",
        [BENCH_SEVERAL_LIMITS] = "check_several_limits",
        [BENCH_NEW_LIMITS] = "check_new_subject_limits",
        [BENCH_SEVERAL_RULES] = "check_several_rules",
        [BENCH_NEW_RULES] = "check_new_subject_rules",
    };
    return names[what];
}

static void add_result(struct buf *out, const struct bench_result *r)
{
    const struct bench_kind *k = &r->kind;
    char keys[BENCH_KEYS_TEXT_MAX];
    bench_keys_text(k->keys, keys);
    const char *order = k->order == BENCH_ZIPF ? "zipf" : "uniform";
    buf_printf(out, "{\"name\":\"%s/%s/%s%s/%u-threads/%u-limits/%s", what_name(k->what), keys, order,
               k->aged ? "-aged" : "", k->threads, k->limits, k->batch ? "batch" : "single");
    if (k->rules)
        buf_printf(out, "/%u-rules", k->rules);
    buf_printf(out,
               "\",\"ns\":%.2f,\"best_ns\":%.2f,\"what\":\"%s\",\"keys\":%llu,\"order\":\"%s\",\"aged\":%s,\"threads\":%u,"
               "\"limits\":%u,\"rules\":%u,\"batch\":%u,\"refused\":%.4f}",
               r->ns, r->best_ns, what_name(k->what), (unsigned long long)k->keys, order, k->aged ? "true" : "false",
               k->threads, k->limits, k->rules, k->batch ? BENCH_TURN : 1, r->refused);
}

static void add_ratio(struct buf *out, const struct bench_ratio *r)
{
    buf_add(out, SV("{\"ratio\":"));
    buf_json(out, weir_str(r->text));
    buf_printf(out, ",\"value\":%.3f,\"value_median\":%.3f,\"target\":%g,\"at_most\":%s,\"met\":%s}", r->value,
               r->value_median, r->target, r->at_most ? "true" : "false", r->met ? "true" : "false");
}

static void add_memory(struct buf *out, const struct bench_memory *m)
{
    buf_printf(out,
               ",\"memory\":{\"keys\":%llu,\"table_bytes\":%llu,\"bytes_per_key\":%.2f,\"resident_bytes_per_key\":%.2f,"
               "\"requests\":%llu,\"resident_bytes_per_key_after\":%.2f}",
               (unsigned long long)m->keys, (unsigned long long)m->table_bytes, m->bytes_per_key, m->resident_per_key,
               (unsigned long long)m->requests, m->resident_per_key_used);
}

static void add_source(struct buf *out, const struct bench_source *m)
{
    buf_printf(out,
               ",\"source\":{\"rules\":%u,\"read_ms\":%.2f,\"file_ms\":%.2f,\"still_ns\":%.2f,\"changing_ns\":%.2f,"
               "\"changes\":%u}",
               m->rules, m->read_ms, m->file_ms, m->still_ns, m->changing_ns, m->changes);
}

void bench_json(const struct bench *bench, const struct bench_ratio *ratios, size_t ratio_count, struct buf *out)
{
    buf_add(out, SV("{\"version\":"));
    buf_json(out, weir_str(weir_version()));
    char machine[BENCH_MACHINE_MAX];
    bench_machine(machine, sizeof machine);
    buf_add(out, SV(",\"cpu\":"));
    buf_json(out, weir_str(machine));
    buf_printf(out, ",\"cpus\":%u,\"quick\":%s,\"rounds\":%u,\"notes\":[", bench_cpus(), bench->quick ? "true" : "false",
               bench->rounds);
    for (size_t i = 0; i < bench->note_count; i++) {
        buf_add(out, weir_str(i ? "," : ""));
        buf_json(out, weir_str(bench->notes[i]));
    }
    buf_add(out, SV("],\"results\":["));
    for (size_t i = 0; i < bench->result_count; i++) {
        buf_add(out, weir_str(i ? ",\n" : "\n"));
        add_result(out, &bench->results[i]);
    }
    buf_add(out, SV("],\n\"ratios\":["));
    for (size_t i = 0; i < ratio_count; i++) {
        buf_add(out, weir_str(i ? ",\n" : "\n"));
        add_ratio(out, &ratios[i]);
    }
    buf_char(out, ']');
    if (bench->memory.keys)
        add_memory(out, &bench->memory);
    if (bench->source.rules)
        add_source(out, &bench->source);
    if (bench->rules.many)
        buf_printf(out,
                   ",\"rules\":{\"few\":%u,\"many\":%u,\"few_ms\":%.3f,\"many_ms\":%.2f,\"add_ms\":%.2f,\"start_ms\":%.2f,"
                   "\"bytes_per_"
                   "rule\":%.1f}",
                   bench->rules.few, bench->rules.many, bench->rules.few_ms, bench->rules.many_ms, bench->rules.add_ms,
                   bench->rules.start_ms, bench->rules.bytes);
    if (bench->overrides.count)
        buf_printf(out, ",\"overrides\":{\"count\":%u,\"read_ms\":%.2f}", bench->overrides.count, bench->overrides.read_ms);
    buf_add(out, SV("}\n"));
}
