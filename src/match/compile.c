/* Rules become a ruleset.
 *
 * A request finds its rules through lists: those of its event, user, key and host, of its headers, its address and the
 * entries of its descriptor, of every template that its path matches, of every literal in its path that a regex needs, and
 * of the rules that none of these can find. Each rule stands under one kind of
 * index only, the most selective that it offers: the one in which the fewest other rules have the same event, template or
 * host. A thousand rules for one event that differ in their paths are found by path, a thousand tenants' rules for "/login"
 * by host. Conditions that the index implies are not checked again (compiled_kind.checks). */
#include <stdlib.h>

#include "match/builder.h"

static void builder_done(struct builder *b)
{
    table_done(&b->known);
    free(b->kinds);
    free(b->listed);
}

static int compile_ids(struct builder *b)
{
    struct ruleset *ruleset = b->ruleset;
    const struct settings *settings = &ruleset->rules->settings;
    struct ids *ids = &ruleset->ids;
    if (!settings->ids)
        return 0;
    ids->custom = true;
    ids->regexes = ARENA_ARRAY(&ruleset->arena, struct regex *, settings->id_count);
    if (!ids->regexes)
        return no_memory(b);
    for (; ids->count < settings->id_count; ids->count++) {
        char why[200];
        int r = regex_new(&ids->regexes[ids->count], settings->ids[ids->count], settings->ignore_case, why, sizeof why);
        if (r < 0)
            return err_set(b->error, r == WEIR_E_NO_MEMORY ? r : WEIR_E_RULES, "settings: ids: the regex `%.*s`: %s",
                           SV_FMT(settings->ids[ids->count]), why);
    }
    return 0;
}

static int compile_settings(struct builder *b)
{
    struct ruleset *ruleset = b->ruleset;
    const struct settings *settings = &ruleset->rules->settings;
    struct arena *arena = &ruleset->arena;
    ruleset->strip_prefixes = ARENA_ARRAY(arena, sv, settings->strip_prefix_count);
    if (!ruleset->strip_prefixes ||
        !networks_init(&ruleset->trusted, arena, settings->trusted_proxies, settings->trusted_proxy_count) ||
        !compile_except(&ruleset->except, arena, &settings->except))
        return no_memory(b);
    ruleset->has_except = settings->except.ip_count > 0 || settings->except.user_count > 0;
    for (size_t i = 0; i < settings->strip_prefix_count; i++) {
        char out[PATH_BYTES_MAX];
        struct path_segments segments;
        unsigned notes;
        sv prefix = path_normalise(settings->strip_prefixes[i], settings->ignore_case, out, sizeof out, &notes, &segments);
        ruleset->strip_prefixes[i] = arena_copy(arena, prefix);
        if (!ruleset->strip_prefixes[i].ptr)
            return no_memory(b);
    }
    return compile_ids(b);
}

/* A need of a regex: its texts, and how many rules have the most frequent one. */
struct need {
    const struct need_text *texts;
    size_t count;
    uint32_t rules;
};

/* The end of the need that begins with the text `from`. */
static size_t need_end(const struct regex_needs *needs, size_t from)
{
    size_t to = from;
    while (to < needs->count && needs->texts[to].need == needs->texts[from].need)
        to++;
    return to;
}

/* Returns the need of a regex that finds it among the fewest others; if several do, the one whose first text is longest. */
static struct need choose_need(const struct builder *b, const struct regex *regex)
{
    const struct regex_needs *needs = regex_needs(regex);
    struct need best = { .rules = UINT32_MAX };
    for (size_t i = 0; i < needs->count;) {
        struct need need = { &needs->texts[i], need_end(needs, i) - i, 0 };
        for (size_t k = 0; k < need.count; k++) {
            uint32_t count = table_find(&b->known, COUNT_LITERAL, need.texts[k].text);
            need.rules = count > need.rules ? count : need.rules;
        }
        bool longer = best.texts && need.texts->text.len > best.texts->text.len;
        if (need.rules < best.rules || (need.rules == best.rules && longer))
            best = need;
        i += need.count;
    }
    return best;
}

/* An index can find the path: it is a template that is not too deep, or a regex that needs something. */
static bool path_is_found(const struct ruleset *ruleset, struct compiled_path path)
{
    if (!path_is_regex(&path))
        return template_depth(path_template(&path)) <= PATH_SEGMENTS_MAX;
    return ruleset->regex_count >= REGEX_INDEX_MIN && regex_needs(ruleset->regexes[path.regex])->count > 0;
}

/* An index can find the rule by any of its paths. */
static bool paths_find(const struct ruleset *ruleset, const struct compiled_rule *compiled)
{
    for (size_t i = 0; i < compiled->rule->match.path_count; i++)
        if (!path_is_found(ruleset, compiled_path(ruleset, compiled, i)))
            return false;
    return compiled->rule->match.path_count > 0;
}

static bool has_regex(const struct compiled_rule *compiled)
{
    for (size_t i = 0; i < compiled->rule->match.path_count; i++)
        if (rule_path(&compiled->rule->match, i).is_regex)
            return true;
    return false;
}

static bool count_one(struct builder *b, uint32_t space, sv text)
{
    uint32_t *count = table_put(&b->known, space, text, 0);
    if (count)
        ++*count;
    return count;
}

/* The texts by which the table finds a condition. */
struct texts {
    const sv *list;
    const struct networks *networks; /* in place of a list */
    size_t count;                    /* 0: the table cannot find it */
    uint32_t space;
};

/* Methods are too few to tell rules apart. A header that has to be there is found by its name if it is not by its value. */
static struct texts texts_of(const struct compiled_condition *condition)
{
    const struct networks *networks = condition->is.networks;
    if (condition->attribute == ATTR_METHOD)
        return (struct texts){ 0 };
    if (condition->attribute == ATTR_IP && condition->has_is && networks)
        return (struct texts){ .networks = networks, .count = networks->v4_count + networks->v6_count };
    if (condition_is_list(condition))
        return (struct texts){ .list = condition->is.equal.sorted,
                               .count = condition->is.equal.count,
                               .space = condition->space };
    if (condition->attribute == ATTR_HEADER && (condition->has_is || condition->presence == PRESENT))
        return (struct texts){ .list = &condition->name, .count = 1, .space = NAMED_SPACE };
    return (struct texts){ 0 };
}

static sv text_at(const struct texts *texts, size_t i, uint32_t *ret_space)
{
    *ret_space = texts->space;
    if (!texts->networks)
        return texts->list[i];
    const struct networks *networks = texts->networks;
    const struct cidr *cidr = i < networks->v4_count ? &networks->v4[i] : &networks->v6[i - networks->v4_count];
    *ret_space = NETWORK_SPACE + cidr->prefix;
    return sv_of((const char *)cidr->ip.bytes, sizeof cidr->ip.bytes);
}

static bool count_path(struct builder *b, struct compiled_path path)
{
    if (!path_is_regex(&path))
        return count_one(b, COUNT_TEMPLATE, path_template(&path));
    const struct regex_needs *needs = regex_needs(b->ruleset->regexes[path.regex]);
    for (size_t i = 0; i < needs->count; i++)
        if (!count_one(b, COUNT_LITERAL, needs->texts[i].text))
            return false;
    return true;
}

static bool count_rule(struct builder *b, const struct compiled_rule *compiled)
{
    const struct compiled_rest *rest = compiled_rest(b->ruleset, compiled);
    for (size_t i = 0; i < rest->condition_count; i++) {
        struct texts texts = texts_of(&rest->conditions[i]);
        for (size_t k = 0; k < texts.count; k++) {
            uint32_t space;
            sv text = text_at(&texts, k, &space);
            if (!count_one(b, COUNT_TEXT + space, text))
                return false;
        }
    }
    for (size_t i = 0; paths_find(b->ruleset, compiled) && i < compiled->rule->match.path_count; i++)
        if (!count_path(b, compiled_path(b->ruleset, compiled, i)))
            return false;
    return true;
}

/* Returns how many rules have the template or the need of this rule that is most in use. */
static uint32_t most_paths(const struct builder *b, const struct compiled_rule *compiled)
{
    uint32_t most = 0;
    for (size_t i = 0; i < compiled->rule->match.path_count; i++) {
        struct compiled_path path = compiled_path(b->ruleset, compiled, i);
        uint32_t count = path_is_regex(&path) ? choose_need(b, b->ruleset->regexes[path.regex]).rules
                                              : table_find(&b->known, COUNT_TEMPLATE, path_template(&path));
        most = count > most ? count : most;
    }
    return most;
}

/* Returns how many rules share the most frequent one of these texts. */
static uint32_t most_texts(const struct builder *b, const struct texts *texts)
{
    uint32_t most = 0;
    for (size_t i = 0; i < texts->count; i++) {
        uint32_t space;
        sv text = text_at(texts, i, &space);
        uint32_t count = table_find(&b->known, COUNT_TEXT + space, text);
        most = count > most ? count : most;
    }
    return most;
}

/* Returns the condition whose index finds the rule among the fewest others; NULL if none does, or if that of paths is
 * better. If both are equal, a template comes before a host (many rules share a host once there are more of them), a header
 * and an address, and a regex after everything: many paths may have what it needs. */
static const struct compiled_condition *choose_index(const struct builder *b, const struct compiled_rule *compiled)
{
    const uint32_t weak = BIT(ATTR_HOST) | BIT(ATTR_HEADER) | BIT(ATTR_IP);
    const struct compiled_condition *best = NULL;
    const struct compiled_rest *rest = compiled_rest(b->ruleset, compiled);
    bool regex = has_regex(compiled);
    uint32_t fewest = paths_find(b->ruleset, compiled) ? most_paths(b, compiled) : UINT32_MAX;
    for (size_t i = 0; i < rest->condition_count; i++) {
        struct texts texts = texts_of(&rest->conditions[i]);
        if (texts.count == 0)
            continue;
        uint32_t count = most_texts(b, &texts);
        bool wins_equal = !(BIT(rest->conditions[i].attribute) & weak) || (regex && !best);
        if (count < fewest || (count == fewest && wins_equal)) {
            best = &rest->conditions[i];
            fewest = count;
        }
    }
    return best;
}

/* Puts a rule on the list whose number is in *slot. */
static bool enlist(struct builder *b, uint32_t *slot, uint32_t rule)
{
    if (!slot)
        return false;
    if (*slot == 0)
        *slot = ++b->list_count;
    if (b->listed_count == b->listed_cap) {
        size_t cap = b->listed_cap ? b->listed_cap * 2 : 64;
        struct listed *listed = realloc(b->listed, cap * sizeof *listed);
        if (!listed)
            return false;
        b->listed = listed;
        b->listed_cap = cap;
    }
    b->listed[b->listed_count++] = (struct listed){ *slot, rule };
    return true;
}

static void note_network(struct ruleset *ruleset, uint32_t space)
{
    uint32_t length = space - NETWORK_SPACE;
    ruleset->network_lengths[length / 64] |= UINT64_C(1) << length % 64;
}

/* What a request has to look at to find a rule by this condition. */
static bool note_index(struct builder *b, const struct compiled_condition *condition, const struct texts *texts,
                       uint32_t rule)
{
    struct ruleset *ruleset = b->ruleset;
    if (condition->attribute == ATTR_DESCRIPTOR)
        ruleset->finds |= FINDS_ENTRIES;
    else if (condition->attribute == ATTR_IP)
        ruleset->finds |= FINDS_NETWORKS;
    else if (condition->attribute != ATTR_HEADER)
        ruleset->indexed |= BIT(condition->attribute);
    if (condition->attribute != ATTR_HEADER)
        return true;
    ruleset->finds |= FINDS_HEADERS;
    ruleset->header_lengths |= UINT64_C(1) << condition->name.len % 64;
    ruleset->folds = ruleset->folds || condition->ignore_case;
    return texts->space == NAMED_SPACE || enlist(b, table_put(&ruleset->table, VALUED_SPACE, condition->name, 0), rule);
}

/* The index implies these conditions, but for their `is_not`. A rule may have conditions on several headers and entries,
 * which have one bit, and the table finds IPv4 addresses in networks of IPv6. */
static bool is_implied(const struct compiled_condition *condition)
{
    const uint32_t not_implied = BIT(ATTR_DESCRIPTOR) | BIT(ATTR_HEADER) | BIT(ATTR_IP);
    return !condition->is_not && !(BIT(condition->attribute) & not_implied);
}

/* Puts a rule on the lists of all texts of a condition. */
static bool index_texts(struct builder *b, const struct compiled_condition *condition, uint32_t rule)
{
    struct ruleset *ruleset = b->ruleset;
    struct texts texts = texts_of(condition);
    if (is_implied(condition))
        b->kinds[rule].checks &= ~BIT(condition->attribute);
    if (!note_index(b, condition, &texts, rule))
        return false;
    for (size_t i = 0; i < texts.count; i++) {
        uint32_t space;
        sv text = text_at(&texts, i, &space);
        if (texts.networks)
            note_network(ruleset, space);
        if (!enlist(b, table_put(&ruleset->table, space, text, 0), rule))
            return false;
    }
    return true;
}

/* Puts a rule on the lists of all its templates, and of what its regexes need. Templates imply the condition. */
static bool index_paths(struct builder *b, uint32_t rule)
{
    struct ruleset *ruleset = b->ruleset;
    const struct compiled_rule *compiled = &ruleset->compiled[rule];
    bool regex = has_regex(compiled);
    if (regex && !enlist(b, &ruleset->with_regex, rule))
        return false;
    if (!regex)
        b->kinds[rule].checks &= ~(uint32_t)CHECK_PATHS;
    for (size_t i = 0; i < compiled->rule->match.path_count; i++) {
        struct compiled_path path = compiled_path(ruleset, compiled, i);
        ruleset->finds |= path_is_regex(&path) ? FINDS_REGEXES : FINDS_PATHS;
        if (!path_is_regex(&path) && !enlist(b, tree_add(&ruleset->tree, &ruleset->table, path_template(&path)), rule))
            return false;
        struct need need = path_is_regex(&path) ? choose_need(b, ruleset->regexes[path.regex]) : (struct need){ 0 };
        for (size_t k = 0; k < need.count; k++)
            if (!enlist(b, literal_index_add(&ruleset->literals, need.texts[k].text), rule))
                return false;
    }
    return true;
}

uint32_t entry_list(const struct ruleset *ruleset, sv name, sv value)
{
    uint32_t entry = table_find(&ruleset->table, ATTR_DESCRIPTOR, name);
    return entry == TABLE_NONE ? TABLE_NONE : table_find(&ruleset->table, ENTRY_SPACE + entry, value);
}

/* The index has room for the literals of a rule, if all of them are new. */
static bool literals_fit(const struct ruleset *ruleset, const struct compiled_rule *compiled)
{
    return !has_regex(compiled) ||
           ruleset->literals.count + compiled->rule->match.path_count * NEED_TEXTS_MAX < LITERALS_MAX;
}

static bool index_rule(struct builder *b, uint32_t rule)
{
    struct ruleset *ruleset = b->ruleset;
    const struct compiled_rule *compiled = &ruleset->compiled[rule];
    const struct compiled_condition *index = choose_index(b, compiled);
    if (index)
        return index_texts(b, index, rule);
    if (paths_find(ruleset, compiled) && literals_fit(ruleset, compiled))
        return index_paths(b, rule);
    return enlist(b, &ruleset->always, rule);
}

/* Gives every list its start in the pool, but for those of one rule, which are in no pool. Rules were listed in their
 * order, so each list comes out rising. lists: how many rules each has; it becomes the list. */
static bool fill_pool(struct builder *b, uint32_t *lists)
{
    uint32_t size = 1;
    for (size_t i = 1; i <= b->list_count; i++) {
        uint32_t length = lists[i];
        lists[i] = length == 1 ? LIST_ONE : size;
        size += length == 1 ? 0 : 1 + length;
    }
    uint32_t *pool = ARENA_ARRAY(&b->ruleset->arena, uint32_t, size);
    for (size_t i = 0; pool && i < b->listed_count; i++) {
        uint32_t *list = &lists[b->listed[i].list], rule = b->listed[i].rule;
        if (*list & LIST_ONE)
            *list |= rule;
        else
            pool[*list + ++pool[*list]] = rule;
    }
    b->ruleset->pool = pool;
    return pool;
}

/* Slots held numbers of lists until now; they get the lists themselves. Number 0 is the empty list. */
static bool fill_slots(struct builder *b)
{
    struct ruleset *ruleset = b->ruleset;
    CLEANUP_FREE uint32_t *lists = cleanup_calloc(b->list_count + 1, sizeof *lists);
    for (size_t i = 0; lists && i < b->listed_count; i++)
        lists[b->listed[i].list]++;
    if (!lists || !fill_pool(b, lists))
        return false;
    ruleset->always = lists[ruleset->always];
    ruleset->with_regex = lists[ruleset->with_regex];
    for (uint32_t i = 1; i <= ruleset->literals.count; i++)
        ruleset->literals.lists[i] = lists[ruleset->literals.lists[i]];
    for (size_t i = 0; i < ruleset->tree.count; i++) {
        struct tree_node *node = &ruleset->tree.nodes[i];
        node->ends = lists[node->ends];
        node->rest = lists[node->rest];
    }
    size_t next = 0;
    for (struct table_entry entry; table_each(&ruleset->table, &next, &entry);) {
        bool names = *entry.space == ATTR_DESCRIPTOR || *entry.space == ATTR_HEADER;
        bool texts = *entry.space < TREE_SPACE ? !names : *entry.space >= ENTRY_SPACE;
        if (texts)
            *entry.value = lists[*entry.value];
    }
    return true;
}

static bool name_headers(struct ruleset *ruleset)
{
    ruleset->header_names = ARENA_ARRAY(&ruleset->arena, sv, ruleset->header_count);
    for (size_t i = 0; ruleset->header_names && i < ruleset->rules->rule_count; i++) {
        const struct compiled_rest *rest = compiled_rest(ruleset, &ruleset->compiled[i]);
        for (size_t k = 0; k < rest->condition_count; k++)
            if (rest->conditions[k].attribute == ATTR_HEADER)
                ruleset->header_names[(rest->conditions[k].space - HEADER_SPACE) / 2] = rest->conditions[k].name;
    }
    return ruleset->header_names;
}

/* Room for the paths of all rules, as long as it is not known which of them are as they are written. */
static bool make_paths(struct ruleset *ruleset)
{
    size_t count = 1;
    for (size_t i = 0; i < ruleset->rules->rule_count; i++)
        count += rule_path_count(&ruleset->rules->rules[i]->match);
    ruleset->paths = malloc(count * sizeof *ruleset->paths);
    return ruleset->paths;
}

/* A list in no more room than it needs, if that can be had. */
static void *fit(void *list, size_t bytes)
{
    void *fitted = realloc(list, bytes);
    if (!fitted)
        return list;
    return fitted;
}

/* Gives back what rules do not need of the room for paths, and for what few of them have. */
static void trim(struct ruleset *ruleset)
{
    ruleset->paths = fit(ruleset->paths, (ruleset->path_count + (size_t)1) * sizeof *ruleset->paths);
    ruleset->rests = fit(ruleset->rests, ruleset->rest_count * sizeof *ruleset->rests);
}

/* Numbers the kinds of rules. False: no memory. */
static bool compile_kinds(struct builder *b)
{
    struct ruleset *ruleset = b->ruleset;
    uint32_t count = 0;
    for (size_t i = 0; i < ruleset->compiled_count; i++) {
        sv text = sv_of((const char *)&b->kinds[i], sizeof b->kinds[i]);
        uint32_t *number = table_put(&b->known, KNOWN_KIND, text, count);
        if (!number)
            return false;
        ruleset->compiled[i].kind = *number;
        if (*number == count)
            b->kinds[count++] = b->kinds[i]; /* of rules that were numbered */
    }
    ruleset->kinds = ARENA_ARRAY(&ruleset->arena, struct compiled_kind, count);
    if (ruleset->kinds)
        memcpy(ruleset->kinds, b->kinds, count * sizeof *ruleset->kinds);
    return ruleset->kinds;
}

/* Most rules have one text, and nodes of the tree. */
static bool reserve_tables(struct builder *b)
{
    size_t count = b->ruleset->rules->rule_count;
    return table_reserve(&b->known, count) && table_reserve(&b->ruleset->table, count);
}

/* Before the first rule. False: no memory. */
static bool make_room(struct builder *b)
{
    struct ruleset *ruleset = b->ruleset;
    size_t count = ruleset->rules->rule_count;
    struct compiled_rule shared = { .rest = 0 };
    ruleset->compiled = cleanup_calloc(count + 1, sizeof *ruleset->compiled);
    ruleset->compiled_count = count;
    ruleset->methods = ARENA_ARRAY(&ruleset->arena, sv, RULESET_METHODS_MAX);
    b->kinds = cleanup_calloc(count + 1, sizeof *b->kinds);
    return ruleset->compiled && ruleset->methods && b->kinds && own_rest(b, &shared) && make_paths(ruleset) &&
           reserve_tables(b);
}

static int compile(struct builder *b)
{
    struct ruleset *ruleset = b->ruleset;
    size_t count = ruleset->rules->rule_count;
    int r = compile_settings(b);
    if (r < 0)
        return r;
    if (!make_room(b))
        return no_memory(b);
    for (uint32_t i = 0; i < count; i++) {
        r = compile_rule(b, i);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < count; i++)
        if (ruleset->rules->rules[i]->kind->mode != MODE_OFF && !count_rule(b, &ruleset->compiled[i]))
            return no_memory(b);
    for (size_t i = 0; i < count; i++)
        if (ruleset->rules->rules[i]->kind->mode != MODE_OFF && !index_rule(b, (uint32_t)i))
            return no_memory(b);
    ruleset_load_beside(ruleset, ruleset->compiled, sizeof *ruleset->compiled);
    trim(ruleset);
    return compile_kinds(b) && fill_slots(b) && tree_finish(&ruleset->tree, &ruleset->table) &&
                   prefix_index_init(&ruleset->begin, &ruleset->tree, &ruleset->table, &ruleset->arena) &&
                   name_headers(ruleset) && literal_index_finish(&ruleset->literals) && compile_looks(ruleset)
               ? 0
               : no_memory(b);
}

int ruleset_new(struct ruleset **ret, struct rules *rules, struct weir_error *error)
{
    struct ruleset *ruleset = calloc(1, sizeof *ruleset);
    if (!ruleset) {
        rules_free(rules);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for a set of rules");
    }
    ruleset->rules = rules_hold(rules); /* the indexes point to its texts */
    struct builder b = { .ruleset = ruleset, .error = error };
    int r = compile(&b);
    builder_done(&b);
    if (r < 0) {
        ruleset_free(ruleset);
        return r;
    }
    *ret = ruleset;
    return 0;
}

/* Frees the indexes, when no ruleset uses them any more. */
static void release(struct ruleset *first)
{
    if (__atomic_fetch_sub(&first->sharers, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (size_t i = 0; i < first->ids.count; i++)
        regex_free(first->ids.regexes[i]);
    for (size_t i = 0; i < first->regex_count; i++)
        regex_free(first->regexes[i]);
    free(first->regexes);
    free(first->compiled);
    free(first->rests);
    free(first->paths);
    free(first->looks.headers);
    table_done(&first->table);
    tree_done(&first->tree);
    literal_index_done(&first->literals);
    arena_done(&first->arena);
    rules_let_go(first->rules);
    free(first);
}

void ruleset_free(struct ruleset *ruleset)
{
    if (!ruleset)
        return;
    struct ruleset *base = ruleset->base;
    rules_free(ruleset->rules);
    if (base) {
        if (ruleset->looks.headers != base->looks.headers)
            free(ruleset->looks.headers);
        ruleset_free(ruleset->added);
        free(ruleset->places);
    }
    free(ruleset->numbers);
    ruleset->numbers = NULL;
    if (base)
        free(ruleset);
    release(base ? base : ruleset);
}

const struct rules *ruleset_rules(const struct ruleset *ruleset)
{
    return ruleset->rules;
}

bool ruleset_trusts(const struct ruleset *ruleset, sv address)
{
    struct ip ip;
    return ip_parse(address, &ip) && networks_has(&ruleset->trusted, &ip);
}

bool ruleset_wants_user(const struct ruleset *ruleset)
{
    return ruleset->looks.user;
}
