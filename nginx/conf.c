/* The directives. */
#include "module.h"

/* ---- errors ---- */

#define COMPLAIN(cf, ...) (ngx_conf_log_error(NGX_LOG_EMERG, (cf), 0, __VA_ARGS__), (char *)NGX_CONF_ERROR)

static struct conf_position position_of(const ngx_conf_t *cf)
{
    return (struct conf_position){ cf->conf_file->file.name, cf->conf_file->line };
}

/* ---- zones ---- */

/* A zone exists from its first mention: a location may come before the weir_zone that it names. */
static struct zone *zone_named(ngx_conf_t *cf, const ngx_str_t *name)
{
    struct main_conf *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    struct zone **zones = main->zones.elts;
    for (ngx_uint_t i = 0; i < main->zones.nelts; i++)
        if (zones[i]->name.len == name->len && ngx_strncmp(zones[i]->name.data, name->data, name->len) == 0)
            return zones[i];
    if (main->zones.nelts == ZONES_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "weir supports at most %d zones", ZONES_MAX);
        return NULL;
    }
    struct zone **slot = ngx_array_push(&main->zones);
    struct zone *zone = slot ? ngx_pcalloc(cf->pool, sizeof *zone) : NULL;
    if (!zone)
        return NULL;
    *slot = zone;
    zone->name = *name;
    zone->main = main;
    zone->bit = main->zones.nelts - 1;
    zone->position = position_of(cf);
    return zone;
}

/* The full path after rules= or cells=, ending in NUL. NULL: there is none, or no memory. */
static char *file_named(ngx_conf_t *cf, const ngx_str_t *argument, ngx_uint_t conf_prefix)
{
    size_t word = strlen("rules=");
    ngx_str_t name = { argument->len - word, argument->data + word };
    if (name.len == 0 || ngx_conf_full_name(cf->cycle, &name, conf_prefix) != NGX_OK)
        return NULL;
    return (char *)name.data;
}

static char *read_zone_files(ngx_conf_t *cf, struct zone *zone)
{
    ngx_str_t *words = cf->args->elts;
    for (ngx_uint_t i = 3; i < cf->args->nelts; i++) {
        bool rules = str_starts(&words[i], "rules=");
        char **file = rules ? &zone->rules_file : &zone->cells_file;
        if (!rules && !str_starts(&words[i], "cells="))
            return COMPLAIN(cf,
                            "weir_zone \"%V\": unknown parameter `%V`; after the size it takes rules=FILE and cells=FILE",
                            &zone->name, &words[i]);
        if (*file)
            return COMPLAIN(cf, "weir_zone \"%V\": `%V` repeats a parameter; give it once", &zone->name, &words[i]);
        *file = file_named(cf, &words[i], rules);
        if (!*file)
            return COMPLAIN(cf, "weir_zone \"%V\": `%V` does not name a file", &zone->name, &words[i]);
    }
    if (!zone->rules_file)
        return COMPLAIN(cf, "weir_zone \"%V\" needs rules=FILE", &zone->name);
    return NGX_CONF_OK;
}

static char *set_zone(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command, (void)conf;
    enum { BYTES_MIN = 64 * 1024 };
    ngx_str_t *words = cf->args->elts;
    struct zone *zone = zone_named(cf, &words[1]);
    if (!zone)
        return NGX_CONF_ERROR;
    if (zone->declared)
        return COMPLAIN(cf, "weir_zone \"%V\" is declared twice; the first is in %V:%ui", &zone->name, &zone->position.file,
                        zone->position.line);
    if (zone->name.len == 0 || str_is(&zone->name, "off"))
        return COMPLAIN(cf, "a zone needs a name other than `off`, because `weir off` means no zone");
    zone->declared = true;
    zone->position = position_of(cf);
    zone->bytes = ngx_parse_offset(&words[2]);
    if (str_starts(&words[2], "rules=") || str_starts(&words[2], "cells="))
        return COMPLAIN(cf, "weir_zone \"%V\": the size is missing; write it after the name, such as 64m", &zone->name);
    if (zone->bytes == NGX_ERROR || zone->bytes < BYTES_MIN)
        return COMPLAIN(cf, "weir_zone \"%V\": the size must be 64k or more, followed by k, m or g, not `%V`", &zone->name,
                        &words[2]);
    char *result = read_zone_files(cf, zone);
    return result == NGX_CONF_OK ? zone_declare(cf, zone) : result;
}

static char *check_zone(ngx_conf_t *cf, const struct zone *zone)
{
    if (zone->declared)
        return NGX_CONF_OK;
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "there is no weir_zone \"%V\"; declare it in http {} with: weir_zone %V 64m rules=FILE; in %V:%ui",
                  &zone->name, &zone->name, &zone->position.file, zone->position.line);
    return NGX_CONF_ERROR;
}

/* ---- trusted proxies ---- */

static char *set_trusted(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct main_conf *main = conf;
    ngx_str_t *words = cf->args->elts;
    size_t len = main->trusted_proxies ? strlen(main->trusted_proxies) : 0, room = len + 1;
    bool none = cf->args->nelts == 2 && str_is(&words[1], "none"), had_none = main->trusted_proxies && len == 0;
    if (main->trusted_proxies && (none || had_none))
        return COMPLAIN(cf, "weir_trusted_proxies: `none` cannot be combined with networks");
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++)
        room += words[i].len + 1;
    char *list = ngx_pcalloc(cf->pool, room);
    if (!list)
        return NGX_CONF_ERROR;
    if (len > 0)
        memcpy(list, main->trusted_proxies, len);
    for (ngx_uint_t i = 1; i < cf->args->nelts && !none; i++) {
        ngx_cidr_t network;
        if (ngx_ptocidr(&words[i], &network) == NGX_ERROR)
            return COMPLAIN(cf, "weir_trusted_proxies takes networks such as 10.0.0.0/8 or fd00::/8, or `none`, not `%V`",
                            &words[i]);
        memcpy(list + len, words[i].data, words[i].len);
        len += words[i].len;
        list[len++] = ' ';
    }
    main->trusted_proxies = list;
    return NGX_CONF_OK;
}

/* ---- weir ---- */

/* PREFIX:NAME=VALUE. The name is empty if the word has another form. */
static ngx_str_t name_in(const ngx_str_t *word, size_t prefix)
{
    u_char *equals = ngx_strlchr(word->data, word->data + word->len, '=');
    return (ngx_str_t){ equals ? (size_t)(equals - word->data) - prefix : 0, word->data + prefix };
}

static char *add_named(ngx_conf_t *cf, ngx_array_t *list, const ngx_str_t *word, const ngx_str_t *name)
{
    struct named_value *named = ngx_array_push(list);
    size_t before = (size_t)(name->data + name->len - word->data); /* the `=` */
    char *attribute = ngx_pcalloc(cf->pool, before + 1);
    if (!named || !attribute)
        return NGX_CONF_ERROR;
    named->name = *name;
    named->attribute = memcpy(attribute, word->data, before);
    ngx_str_t value = { word->len - before - 1, word->data + before + 1 };
    return expression_compile(cf, value, &named->value);
}

static char *read_header(ngx_conf_t *cf, struct directive *directive, const ngx_str_t *word)
{
    ngx_str_t name = name_in(word, strlen("header:"));
    if (name.len == 0)
        return COMPLAIN(cf, "weir: write a header as header:NAME=VALUE, not `%V`", word);
    if (directive_sets_header(directive, &name))
        return COMPLAIN(cf, "weir: `header:%V=` is given twice", &name);
    return add_named(cf, &directive->headers, word, &name);
}

static char *read_entry(ngx_conf_t *cf, struct directive *directive, const ngx_str_t *word)
{
    ngx_str_t key = name_in(word, strlen("descriptor:"));
    if (key.len == 0)
        return COMPLAIN(cf, "weir: write an entry of the descriptor as descriptor:KEY=VALUE, not `%V`", word);
    if (directive->entries.nelts == WEIR_DESCRIPTOR_MAX)
        return COMPLAIN(cf, "weir: `descriptor:%V=` is too many: a descriptor has at most 256 entries", &key);
    return add_named(cf, &directive->entries, word, &key);
}

static char *complain_unknown(ngx_conf_t *cf, const ngx_str_t *word)
{
    char names[500] = "";
    const struct weir_attribute *attribute;
    for (size_t i = 0, len = 0; (attribute = weir_attribute(i)) && len < sizeof names; i++)
        len += (size_t)snprintf(names + len, sizeof names - len, "%s=, ", attribute->name);
    return COMPLAIN(cf,
                    "weir: unknown parameter `%V`; after the zone it takes after_auth, %scost=, cost:UNIT=, "
                    "header:NAME= and descriptor:KEY=, and status= "
                    "with the statuses to count",
                    word, names);
}

/* The value after NAME= in a word; data is NULL if the word begins with something else. */
static ngx_str_t value_after(const ngx_str_t *word, const char *name)
{
    size_t len = strlen(name) + 1;
    if (!str_starts(word, name) || word->len < len || word->data[len - 1] != '=')
        return (ngx_str_t)ngx_null_string;
    return (ngx_str_t){ word->len - len, word->data + len };
}

static bool same_name(const ngx_str_t *a, const ngx_str_t *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static char *add_value(ngx_conf_t *cf, struct directive *directive, const struct named_value *named, ngx_str_t text)
{
    const struct weir_attribute *field = named->field;
    struct named_value *values = directive->values.elts;
    for (ngx_uint_t k = 0; k < directive->values.nelts; k++)
        if (values[k].field == field && same_name(&values[k].name, &named->name))
            return COMPLAIN(cf, "weir: `%s=` is given twice", named->attribute);
    struct named_value *value = ngx_array_push(&directive->values);
    if (!value)
        return NGX_CONF_ERROR;
    *value = *named;
    directive->units += named->name.len > 0;
    if (directive->units > WEIR_COSTS_MAX)
        return COMPLAIN(cf, "weir: `%s=` is too many: a request has costs in at most 16 units besides requests",
                        named->attribute);
    if (expression_compile(cf, text, &value->value) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    if (!field)
        directive->body = ngx_max(directive->body, value->value.body);
    if (!field && directive->zone && value->value.response.len > 0) /* weir_after has no zone */
        return COMPLAIN(cf, "weir: `%s=%V`: $%V is not known before the response; charge it afterwards: weir_after %s=%V;",
                        named->attribute, &text, &value->value.response, named->attribute, &text);
    /* Without variables it is known now. */
    if (!field && !value->value.value.lengths && ngx_atoi(text.data, text.len) == NGX_ERROR)
        return COMPLAIN(cf, "weir: the cost must be a whole number, or an expression that results in one, not `%V`", &text);
    return NGX_CONF_OK;
}

static bool is_unit(const ngx_str_t *name)
{
    for (size_t i = 0; i < name->len; i++) {
        u_char c = name->data[i], lower = c | 0x20;
        if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'z') && c != '_' && c != '-' && c != '.')
            return false;
    }
    return name->len > 0 && name->len <= WEIR_UNIT_MAX;
}

static char *read_unit_cost(ngx_conf_t *cf, struct directive *directive, const ngx_str_t *word)
{
    size_t prefix = strlen("cost:");
    u_char *equals = ngx_strlchr(word->data, word->data + word->len, '=');
    ngx_str_t unit = { equals ? (size_t)(equals - word->data) - prefix : 0, word->data + prefix };
    if (!is_unit(&unit))
        return COMPLAIN(cf,
                        "weir: write a cost as cost:UNIT=VALUE, with a unit of letters, digits, `_`, `-` and `.`, 1 to 50 "
                        "bytes, not `%V`",
                        word);
    ngx_str_t text = { word->len - (size_t)(equals + 1 - word->data), equals + 1 };
    char *attribute = ngx_pcalloc(cf->pool, prefix + unit.len + 1);
    if (!attribute)
        return NGX_CONF_ERROR;
    memcpy(attribute, word->data, prefix + unit.len);
    struct named_value named = { .attribute = attribute };
    if (!str_is(&unit, "requests"))
        named.name = unit;
    return add_value(cf, directive, &named, text);
}

static char *read_value(ngx_conf_t *cf, struct directive *directive, const ngx_str_t *word)
{
    const struct weir_attribute *field;
    size_t i = 0;
    if (str_starts(word, "cost:"))
        return read_unit_cost(cf, directive, word);
    while ((field = weir_attribute(i)) && !value_after(word, field->name).data)
        i++;
    struct named_value named = { .attribute = field ? field->name : "cost", .field = field };
    ngx_str_t text = value_after(word, named.attribute);
    return text.data ? add_value(cf, directive, &named, text) : complain_unknown(cf, word);
}

/* ---- status= ---- */

/* Adds "401" or "4xx". Returns false if the text is neither. */
static bool add_statuses(struct directive *directive, const ngx_str_t *text)
{
    bool class = text->len == 3 && text->data[1] == 'x' && text->data[2] == 'x';
    ngx_int_t first = class ? ngx_atoi(text->data, 1) : text->len == 3 ? ngx_atoi(text->data, 3) : NGX_ERROR;
    if (class && first != NGX_ERROR)
        first *= 100;
    if (first < STATUS_FIRST || first > STATUS_LAST)
        return false;
    for (ngx_int_t status = first; status < first + (class ? 100 : 1); status++)
        directive->statuses[status / 64] |= UINT64_C(1) << status % 64;
    return true;
}

static char *read_statuses(ngx_conf_t *cf, struct directive *directive, const ngx_str_t *word)
{
    ngx_str_t rest = value_after(word, "status");
    struct main_conf *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    if (directive->by_status)
        return COMPLAIN(cf, "weir: `status=` is given twice; write all statuses in one, as in status=401,403");
    for (bool more = true; more;) {
        u_char *comma = ngx_strlchr(rest.data, rest.data + rest.len, ',');
        ngx_str_t one = { comma ? (size_t)(comma - rest.data) : rest.len, rest.data };
        if (!add_statuses(directive, &one))
            return COMPLAIN(cf,
                            "weir: `%V`: `%V` is not a status; write numbers from 100 to 599 and classes such as 4xx, with "
                            "commas between them",
                            word, &one);
        more = comma != NULL;
        rest = more ? (ngx_str_t){ rest.len - one.len - 1, comma + 1 } : rest;
    }
    directive->by_status = main->later = true;
    return NGX_CONF_OK;
}

static char *read_directive(ngx_conf_t *cf, struct directive *directive)
{
    ngx_str_t *words = cf->args->elts;
    if (ngx_array_init(&directive->headers, cf->pool, 1, sizeof(struct named_value)) != NGX_OK ||
        ngx_array_init(&directive->entries, cf->pool, 1, sizeof(struct named_value)) != NGX_OK ||
        ngx_array_init(&directive->values, cf->pool, 1, sizeof(struct named_value)) != NGX_OK)
        return NGX_CONF_ERROR;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (str_is(&words[i], "after_auth")) {
            directive->after_auth = directive->zone->main->after_auth = true;
            continue;
        }
        char *result = (str_starts(&words[i], "header:")       ? read_header
                        : str_starts(&words[i], "descriptor:") ? read_entry
                        : str_starts(&words[i], "status=")     ? read_statuses
                                                               : read_value)(cf, directive, &words[i]);
        if (result != NGX_CONF_OK)
            return result;
    }
    return directive_end(cf, directive);
}

static char *set_weir(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct location_conf *location = conf;
    ngx_str_t *words = cf->args->elts;
    bool off = str_is(&words[1], "off"), first = location->directives == NGX_CONF_UNSET_PTR;
    if (off && (cf->args->nelts > 2 || !first))
        return COMPLAIN(cf, "`weir off` cannot be combined with other `weir` directives or parameters");
    if (!off && !location->directives)
        return COMPLAIN(cf, "`weir off` is already set here; remove one of the two");
    if (first)
        location->directives = off ? NULL : ngx_array_create(cf->pool, 1, sizeof(struct directive));
    if (off)
        return NGX_CONF_OK;
    struct zone *zone = zone_named(cf, &words[1]);
    if (!zone || !location->directives)
        return NGX_CONF_ERROR;
    struct directive *directives = location->directives->elts;
    for (ngx_uint_t i = 0; i < location->directives->nelts; i++)
        if (directives[i].zone == zone)
            return COMPLAIN(cf, "weir \"%V\" is given twice; a zone decides once about a request", &zone->name);
    struct directive *directive = ngx_array_push(location->directives);
    if (!directive)
        return NGX_CONF_ERROR;
    memset(directive, 0, sizeof *directive);
    directive->zone = zone;
    return read_directive(cf, directive);
}

/* ---- weir_after ---- */

static char *read_after(ngx_conf_t *cf, struct directive *after)
{
    ngx_str_t *words = cf->args->elts;
    if (ngx_array_init(&after->values, cf->pool, 1, sizeof(struct named_value)) != NGX_OK)
        return NGX_CONF_ERROR;
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        bool status = str_starts(&words[i], "status=");
        if (!status && !str_starts(&words[i], "cost=") && !str_starts(&words[i], "cost:"))
            return COMPLAIN(cf, "weir_after: unknown parameter `%V`; it takes cost=, cost:UNIT= and status=, or `off`",
                            &words[i]);
        if ((status ? read_statuses : read_value)(cf, after, &words[i]) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

static char *set_after(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct location_conf *location = conf;
    struct main_conf *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_str_t *words = cf->args->elts;
    if (location->after != NGX_CONF_UNSET_PTR)
        return COMPLAIN(cf, "weir_after is given twice; write all costs in one");
    location->after = NULL;
    if (cf->args->nelts == 2 && str_is(&words[1], "off"))
        return NGX_CONF_OK;
    location->after = ngx_pcalloc(cf->pool, sizeof *location->after);
    if (!location->after)
        return NGX_CONF_ERROR;
    main->later = true;
    return read_after(cf, location->after);
}

/* ---- weir_status ---- */

static char *set_status(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    (void)command;
    struct location_conf *location = conf;
    ngx_str_t *words = cf->args->elts;
    if (location->status)
        return COMPLAIN(cf, "weir_status is given twice");
    location->status = zone_named(cf, &words[1]);
    if (!location->status)
        return NGX_CONF_ERROR;
    ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    core->handler = status_handler;
    return NGX_CONF_OK;
}

/* ---- weir_headers ---- */

static char *set_headers(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    static const char *const modes[] = {
        [HEADERS_OFF] = "off",       [HEADERS_REFUSED] = "refused", [HEADERS_ALWAYS] = "always",
        [HEADERS_LEGACY] = "legacy", [HEADERS_OPENAI] = "openai",
    };
    (void)command;
    struct location_conf *location = conf;
    ngx_str_t *words = cf->args->elts;
    if (location->headers != NGX_CONF_UNSET_UINT)
        return COMPLAIN(cf, "weir_headers is given twice");
    for (ngx_uint_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (str_is(&words[1], modes[i]))
            location->headers = i;
    if (location->headers == NGX_CONF_UNSET_UINT)
        return COMPLAIN(cf, "weir_headers takes off, refused, always, legacy or openai, not `%V`", &words[1]);
    return NGX_CONF_OK;
}

/* ---- all of them ---- */

enum { ANYWHERE = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF };

ngx_command_t conf_commands[] = {
    { ngx_string("weir_zone"), NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE, set_zone, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },
    { ngx_string("weir_trusted_proxies"), NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE, set_trusted, NGX_HTTP_MAIN_CONF_OFFSET, 0,
      NULL },
    { ngx_string("weir"), ANYWHERE | NGX_CONF_1MORE, set_weir, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
    { ngx_string("weir_after"), ANYWHERE | NGX_CONF_1MORE, set_after, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
    { ngx_string("weir_headers"), ANYWHERE | NGX_CONF_TAKE1, set_headers, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
    { ngx_string("weir_dry_run"), ANYWHERE | NGX_CONF_FLAG, ngx_conf_set_flag_slot, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(struct location_conf, dry_run), NULL },
    { ngx_string("weir_status"), NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1, set_status, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
    ngx_null_command,
};

void *conf_create_main(ngx_conf_t *cf)
{
    struct main_conf *main = ngx_pcalloc(cf->pool, sizeof *main);
    if (!main || ngx_array_init(&main->zones, cf->pool, 4, sizeof(struct zone *)) != NGX_OK)
        return NULL;
    return main;
}

char *conf_init_main(ngx_conf_t *cf, void *conf)
{
    struct main_conf *main = conf;
    struct zone **zones = main->zones.elts;
    for (ngx_uint_t i = 0; i < main->zones.nelts; i++)
        if (check_zone(cf, zones[i]) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    return NGX_CONF_OK;
}

void *conf_create_location(ngx_conf_t *cf)
{
    struct location_conf *location = ngx_pcalloc(cf->pool, sizeof *location);
    if (!location)
        return NULL;
    location->directives = NGX_CONF_UNSET_PTR;
    location->after = NGX_CONF_UNSET_PTR;
    location->headers = NGX_CONF_UNSET_UINT;
    location->dry_run = NGX_CONF_UNSET;
    return location;
}

/* An `if` has a configuration of its own, but the handler of the location around it answers there. */
static bool is_if(ngx_conf_t *cf)
{
    const ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    return core->noname;
}

char *conf_merge_location(ngx_conf_t *cf, void *parent, void *child)
{
    struct location_conf *outer = parent, *inner = child;
    /* The status must be readable while all requests are refused: only limits in its own location apply to it. */
    ngx_conf_merge_ptr_value(inner->directives, (inner->status ? NULL : outer->directives), NULL);
    ngx_conf_merge_ptr_value(inner->after, outer->after, NULL);
    ngx_conf_merge_uint_value(inner->headers, outer->headers, HEADERS_REFUSED);
    ngx_conf_merge_value(inner->dry_run, outer->dry_run, 0);
    if (!inner->status && is_if(cf))
        inner->status = outer->status;
    return NGX_CONF_OK;
}
