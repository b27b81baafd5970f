/* Hodor's limits as rules.
 *
 * Hodor checks its own limits and then every entry of sub_limits whose urls match, each in the order all, address, user;
 * all of them apply to a request. weir does the same with rules, so each capacity becomes a rule. */
#include <stdio.h>

#include "cli/convert.h"
#include "cli/plain_text.h"
#include "rules/rules.h"

static void add_list(struct buf *out, const struct node *list)
{
    buf_char(out, '[');
    for (const struct node_item *item = list->first; item; item = item->next) {
        yaml_quote(out, item->value->text);
        buf_add(out, weir_str(item->next ? ", " : ""));
    }
    buf_char(out, ']');
}

/* ---- what differs ---- */

/* Which kinds of limits there are in the groups that Hodor uses. */
struct used {
    bool any, ip, user, urls;
};

static void add_used(struct used *used, const struct hodor_group *g)
{
    bool any = g->capacity || g->ip_capacity || g->user_capacity;
    used->any |= any;
    used->ip |= g->ip_capacity > 0;
    used->user |= g->user_capacity > 0;
    used->urls |= g->urls && any;
}

static struct used used_by(const struct hodor *h)
{
    struct used used = { 0 };
    add_used(&used, &h->main);
    for (size_t i = 0; i < h->sub_count; i++)
        if (!h->subs[i].skipped)
            add_used(&used, &h->subs[i]);
    return used;
}

/* An entry of the list at the top, in lines of at most 100 columns. */
static void note_text(struct buf *out, sv rest)
{
    for (bool first = true; rest.len > 0; first = false) {
        size_t n = rest.len;
        if (n > 96)
            for (n = 96; n > 0 && rest.ptr[n] != ' ';)
                n--;
        n = n ? n : rest.len;
        buf_add(out, weir_str(first ? "# - " : "#   "));
        plain_add(out, sv_of(rest.ptr, n), SIZE_MAX);
        buf_char(out, '\n');
        rest = sv_from(rest, n + (n < rest.len));
    }
}

static void note(struct buf *out, const char *text)
{
    note_text(out, weir_str(text));
}

static void write_algorithm_notes(const struct hodor *h, struct buf *out)
{
    if (h->algorithm == LIMIT_TOKEN_BUCKET)
        note(out, "A bucket of N lets N through at once. Hodor's bucket lets N - 1 through, and with a capacity of 1 none "
                  "at all.");
    else if (h->algorithm == LIMIT_SLIDING_WINDOW)
        note(out,
             "weir counts the part of the previous window that is still in view exactly. Hodor lets one more request "
             "through "
             "while that part is a fraction. The first window begins with the first request, not when the program starts.");
    else
        note(out,
             "The first window begins with the first request. The first window of Hodor's \"capacity\" begins when the "
             "program starts.");
}

static void write_path_notes(struct buf *out)
{
    note(out,
         "weir normalises paths before it matches them: it resolves escapes, //, /./, /../ and ;parameters, and removes a "
         "slash at the end, so that other spellings of a path do not evade a limit.");
    note(out, "Drogon treats /API as /api, and so do these rules (ignore_case). Hodor's urls do not, so /API evaded them.");
    note(out, "Regexes are PCRE2, and Hodor's are ECMAScript; what is usual in urls means the same in both. Both match the "
              "whole path.");
}

static void write_address_notes(const struct hodor *h, struct buf *out)
{
    if (used_by(h).ip)
        note(out,
             "weir counts IPv6 clients by their /64, because each has at least that many addresses. Hodor counts every "
             "address; \"ipv6_prefix: 128\" in the settings does the same.");
    if (!h->use_real_ip_resolver) {
        if (h->proxies)
            note(out, "RealIpResolver is configured, but Hodor did not use it (use_real_ip_resolver is false) and used the "
                      "peer's address. trusted_proxies is below as a comment.");
        return;
    }
    if (!h->has_resolver)
        note(out, "use_real_ip_resolver is true without the plugin RealIpResolver: Hodor uses the peer's address, and so "
                  "do these "
                  "rules.");
    if (h->proxies)
        note(out,
             "X-Forwarded-For: an invalid entry ends the search, while Drogon continues it. If all hops are trusted, the "
             "leftmost is the client, while Drogon uses the peer. Several headers count as one.");
    if (h->from_header.len > 0 && !sv_eq_nocase(h->from_header, SV("x-forwarded-for")))
        note(out, "from_header names another header than X-Forwarded-For, the only one that weir reads: let the proxy set "
                  "X-Forwarded-For, or pass the address as the request's ip.");
}

static void write_notes(const struct hodor *h, struct buf *out)
{
    note(out, "A refused request charges nothing. Hodor charges the limits that it checked before the one that refused.");
    write_algorithm_notes(h, out);
    if (used_by(h).urls)
        write_path_notes(out);
    write_address_notes(h, out);
    if (used_by(h).user)
        note(out, "The caller gives the user, as setUserIdGetter did (in C: weir_options.user_id). An empty user counts as "
                  "no user.");
    note(out, "settings.reject is the reply; weir_options.refuse replaces setRejectResponseFactory. Hodor also closes the "
              "connection.");
    note(
        out,
        "multi_threads and limiter_expire_time have no counterpart: counting is always safe between threads, and memory is "
        "bounded by the table.");
    if (h->hodors > 1)
        note(out, "There is more than one plugin Hodor; Drogon uses the last, and so do these rules.");
    if (h->resolvers > 1)
        note(out, "There is more than one plugin RealIpResolver; Drogon uses the last, and so do these rules.");
    for (sv rest = buf_sv(&h->notes); rest.len > 0;)
        note_text(out, sv_cut(&rest, '\n'));
}

/* ---- the rules ---- */

/* weir removes a slash at the end of paths, so a regex that ends in one would never match. Removes it, except from the
 * root.
 */
static sv without_slash(sv regex, struct buf *scratch)
{
    size_t tail = regex.len > 0 && regex.ptr[regex.len - 1] == '$' ? 1 : 0;
    if (regex.len < tail + 2 || regex.ptr[regex.len - tail - 1] != '/')
        return regex;
    size_t keep = regex.len - tail - 1;
    keep -= regex.ptr[keep - 1] == '\\'; /* "\/" is a slash */
    if (keep == 0 || strchr("^|(\\", regex.ptr[keep - 1]))
        return regex;
    buf_clear(scratch);
    buf_add(scratch, sv_of(regex.ptr, keep));
    buf_add(scratch, weir_str(tail ? "$" : ""));
    return buf_sv(scratch);
}

static void write_urls(const struct node *urls, struct buf *out)
{
    CLEANUP(buf_done) struct buf scratch;
    buf_init(&scratch, 1 << 20);
    buf_add(out, SV("    match:\n      path:\n"));
    for (const struct node_item *item = urls->first; item; item = item->next) {
        sv regex = without_slash(item->value->text, &scratch);
        buf_add(out, SV("        - regex: "));
        yaml_quote(out, regex);
        buf_add(out, weir_str(regex.len < item->value->text.len
                                  ? "   # without the slash at the end, which weir removes from paths"
                                  : ""));
        buf_char(out, '\n');
    }
}

static void write_rule(const struct hodor *h, const struct hodor_group *group, const char *name, const char *by,
                       uint32_t max, struct buf *out)
{
    if (max == 0)
        return;
    buf_printf(out, "  - id: %s%s%s\n", name, by ? "-" : "", by ? by : "");
    if (group->urls)
        write_urls(group->urls, out);
    if (by)
        buf_printf(out, "    by: [%s]\n", by);
    buf_printf(out, "    limits: [{ algorithm: %s, max: %u, per: %us }]\n", algorithm_names[h->algorithm], max,
               h->time_unit_s);
}

static void write_group(const struct hodor *h, const struct hodor_group *group, const char *name, struct buf *out)
{
    write_rule(h, group, name, NULL, group->capacity, out);
    write_rule(h, group, name, "ip", group->ip_capacity, out);
    write_rule(h, group, name, "user", group->user_capacity, out);
}

static void write_subs(const struct hodor *h, struct buf *out)
{
    for (size_t i = 0; i < h->sub_count; i++) {
        const struct hodor_group *sub = &h->subs[i];
        char name[40];
        snprintf(name, sizeof name, "hodor-sub-%zu", i + 1);
        if (sub->skipped)
            buf_printf(out, "  # %s (line %d) is left out: %s, so Hodor ignores it.\n", name, sub->line, sub->skipped);
        else
            write_group(h, sub, name, out);
    }
}

static void write_settings(const struct hodor *h, struct buf *out)
{
    buf_add(out, SV("settings:\n"));
    if (used_by(h).urls)
        buf_add(out, SV("  ignore_case: true\n"));
    if (h->proxies) {
        buf_add(out, weir_str(h->use_real_ip_resolver ? "  trusted_proxies: " : "  # trusted_proxies: "));
        add_list(out, h->proxies);
        buf_char(out, '\n');
    }
    if (h->trust_ips) {
        buf_add(out, SV("  except: { ip: "));
        add_list(out, h->trust_ips);
        buf_add(out, SV(" }\n"));
    }
    buf_add(out, SV("  reject: { status: 429, content_type: \"text/html; charset=utf-8\", body: "));
    yaml_quote(out, h->rejection_message);
    buf_add(out, SV(" }\n"));
}

void hodor_write(const struct hodor *h, const char *file, struct buf *out)
{
    buf_add(out, SV("# Written by 'weir convert hodor' from "));
    plain_add(out, weir_str(file), SIZE_MAX);
    buf_add(out, SV(". Differences from Hodor:\n"));
    write_notes(h, out);
    buf_char(out, '\n');
    write_settings(h, out);
    if (!used_by(h).any) {
        buf_add(out, SV("\n# Every capacity is 0, which limits nothing.\nrules: []\n"));
        return;
    }
    buf_add(out, SV("\nrules:\n"));
    write_group(h, &h->main, "hodor", out);
    write_subs(h, out);
}
