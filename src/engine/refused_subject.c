/* Finds the subject that a refused request was counted for, and its plan. */
#include <stdio.h>

#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/named.h"
#include "engine/verdict.h"
#include "refused/recent.h"

/* A refused subject, and the hash of its values. */
struct found {
    struct subject *subject;
    uint64_t hash;
};

static bool subject_of(struct subject *ret, const struct rule *rule, struct facts *facts, const struct hash_key *key)
{
    struct weir_str values[RULE_BY_MAX];
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        values[i] = facts_attribute(facts, &rule->kind->by[i]);
        if (!fact_is_there(&rule->kind->by[i], values[i]))
            return false;
    }
    subject_fill(ret, rule, values, key);
    return true;
}

static bool find_subject(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                         struct found *ret)
{
    if (verdict->allowed || !verdict->applied)
        return false;
    char user_buf[WEIR_USER_MAX];
    sv user;
    const struct bound *bound = weir_acquire(weir, request, user_buf, &user);
    if (!bound)
        return false;
    bool known = false;
    const struct bound_rule *rule = verdict_rule(bound, verdict);
    if (rule) {
        struct facts facts;
        facts_init(&facts, bound->ruleset, request, user);
        /* With other rules by now, the path may have other readings. */
        if (verdict_version(verdict) == bound->version && verdict_reading(verdict) < facts_readings(&facts))
            facts_select_reading(&facts, verdict_reading(verdict));
        else
            facts_select_first_match(&facts, (size_t)(rule - bound->rules));
        known = subject_of(ret->subject, rule->rule, &facts, cells_hash_key(bound->cells));
        ret->hash = subject_hash(bound, rule, &facts);
    }
    hazard_release();
    return known;
}

bool weir_subject(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                  struct subject *ret)
{
    struct found found = { .subject = ret };
    return find_subject(weir, request, verdict, &found);
}

bool weir_penalised(struct weir *weir, const struct weir_request *request, const struct weir_verdict *verdict,
                    int64_t now_us, struct penalised_entry *ret)
{
    struct found found = { .subject = &ret->subject };
    if (!verdict->penalty || !find_subject(weir, request, verdict, &found))
        return false;
    ret->hash = found.hash;
    ret->ends_us = verdict->retry_after_ms < 0 ? CLOCK_END_US : now_us + verdict->retry_after_ms * US_PER_MS;
    return true;
}

bool weir_subject_of(struct weir *weir, const struct weir_request *request, const char *rule_id, struct subject *ret)
{
    char user_buf[WEIR_USER_MAX];
    sv user;
    const struct bound *bound = weir_acquire(weir, request, user_buf, &user);
    if (!bound)
        return false;
    const struct bound_rule *rule = bound_find(bound, weir_str(rule_id));
    bool known = false;
    if (rule) {
        struct facts facts;
        facts_init(&facts, bound->ruleset, request, user);
        facts_select_first_match(&facts, (size_t)(rule - bound->rules));
        known = subject_of(ret, rule->rule, &facts, cells_hash_key(bound->cells));
    }
    hazard_release();
    return known;
}

void weir_plan_of(struct weir *weir, const struct weir_request *request, sv rule_id, struct recent_plan *ret)
{
    char user_buf[WEIR_USER_MAX];
    sv user;
    ret->name[0] = ret->header[0] = '\0';
    const struct bound *bound = rule_id.len > 0 ? weir_acquire(weir, request, user_buf, &user) : NULL;
    if (!bound)
        return;
    const struct bound_rule *rule = bound_find(bound, rule_id);
    const struct rule_plan *plan = NULL;
    if (rule && rule->rule->kind->rest->plan_count > 0) {
        struct facts facts;
        facts_init(&facts, bound->ruleset, request, user);
        facts_select_first_match(&facts, (size_t)(rule - bound->rules));
        plan = bound_plan(rule, &facts);
    }
    if (plan) {
        snprintf(ret->name, sizeof ret->name, "%.*s", SV_FMT(plan->name));
        if (rule->rule->kind->rest->plan.attribute == ATTR_HEADER)
            snprintf(ret->header, sizeof ret->header, "%.*s", SV_FMT(rule->rule->kind->rest->plan.name));
    }
    hazard_release();
}

int weir_name_subject(struct weir *weir, const struct subject_name *name, struct subject *ret, bool *ret_plans,
                      struct weir_error *error)
{
    struct named named;
    int r = named_begin(weir, name, &named, error);
    if (r < 0)
        return r;
    subject_fill(ret, named.rule->rule, named.values, cells_hash_key(named.bound->cells));
    *ret_plans = named.rule->rule->kind->rest->plan_count > 0;
    named_end(&named);
    return 0;
}

size_t weir_client(struct weir *weir, const struct weir_request *request, char out[IP_TEXT_MAX])
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    size_t len = 0;
    if (!bound)
        return 0;
    struct facts facts;
    facts_init(&facts, bound->ruleset, request, request->user);
    const struct ip *ip = facts_ip(&facts);
    if (ip)
        len = ip_text(ip, out);
    hazard_release();
    return len;
}
