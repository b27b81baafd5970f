/* Zones: opened by the master, with its rights, when nginx has their shared memory; used by the workers, which inherit
 * them.
 *
 * The counts for the status always lie in nginx's shared memory, the cells there or in a file. */
#include "module.h"

/* ---- mistakes ---- */

/* One line of the log for each line of the text, each with the place in nginx.conf. */
static ngx_int_t complain(const struct zone *zone, ngx_log_t *log, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        ngx_log_error(NGX_LOG_EMERG, log, 0, "weir_zone \"%V\": %*s in %V:%ui", &zone->name, len, text, &zone->where.file,
                      zone->where.line);
        text += len + (text[len] == '\n');
    }
    return NGX_ERROR;
}

/* ---- rules that change ---- */

/* The same in every worker for the same state of the file. */
static uint64_t mark_of(const struct zone *zone, const struct weir_error *error)
{
    struct stat st;
    char text[128] = "";
    if (error->code != WEIR_OK)
        return stats_hash(error->text);
    if (stat(zone->rules_file, &st) == 0)
        snprintf(text, sizeof text, "%lld %lld %lld.%09ld", (long long)st.st_ino, (long long)st.st_size,
                 (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    return stats_hash(text);
}

/* In a thread of weir's, where nginx's log may not be used. */
static void on_rules(const struct weir_error *error, void *data)
{
    struct zone *zone = data;
    if (error->code == WEIR_OK)
        __atomic_store_n(&zone->since, time(NULL), __ATOMIC_RELAXED);
    __atomic_store_n(&zone->news, mark_of(zone, error), __ATOMIC_RELEASE);
}

/* Several mistakes stand in one line of the log. */
static void join_lines(char *text)
{
    for (; *text; text++)
        *text = *text == '\n' ? ';' : *text;
}

/* Each worker looks for itself, and one of them tells. */
static void tell_news(struct zone *zone, ngx_log_t *log)
{
    uint64_t mark = __atomic_exchange_n(&zone->news, 0, __ATOMIC_ACQ_REL);
    if (mark == 0 || !stats_tell(zone->stats, mark))
        return;
    struct weir_error error = { .code = WEIR_OK };
    struct weir_status status;
    weir_rules_error(zone->weir, &error);
    weir_status(zone->weir, &status);
    join_lines(error.text);
    if (error.code == WEIR_OK) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0, "weir: zone \"%V\": the rules changed: %uL in force", &zone->name,
                      status.rules);
    } else {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: zone \"%V\": rules not taken over whole: %s", &zone->name, error.text);
    }
}

static void on_timer(ngx_event_t *timer)
{
    struct main_conf *main = timer->data;
    struct zone **zones = main->zones.elts;
    for (ngx_uint_t i = 0; i < main->zones.nelts; i++) {
        weir_poll_aside(zones[i]->weir);
        tell_news(zones[i], timer->log);
    }
    ngx_add_timer(timer, LOOK_MS);
}

/* ---- opening ---- */

/* A file that was there keeps its size: it has to be what is asked for. */
static ngx_int_t check_size(const struct zone *zone, ngx_log_t *log)
{
    enum { SLACK = 4096, KB = 1024 };
    struct weir_status status;
    char text[WEIR_ERROR_MAX];
    weir_status(zone->weir, &status);
    if (status.bytes <= (uint64_t)zone->bytes && (uint64_t)zone->bytes - status.bytes < SLACK)
        return NGX_OK;
    bool in_kb = status.bytes % KB == 0;
    snprintf(text, sizeof text, "%s is of another size; ask for %llu%s, or remove the file (which forgets its counts)",
             zone->cells_file, (unsigned long long)(in_kb ? status.bytes / KB : status.bytes), in_kb ? "k" : "");
    return complain(zone, log, text);
}

/* Zones are opened one after another, so that a file that an earlier one has just made is there. */
static ngx_int_t check_shared(const struct zone *zone, ngx_log_t *log)
{
    struct zone **zones = zone->main->zones.elts;
    struct stat own, other;
    char text[WEIR_ERROR_MAX];
    if (!zone->cells_file || stat(zone->cells_file, &own) != 0)
        return NGX_OK;
    for (ngx_uint_t i = 0; i < zone->main->zones.nelts; i++) {
        if (!zones[i]->weir || !zones[i]->cells_file || stat(zones[i]->cells_file, &other) != 0 ||
            own.st_dev != other.st_dev || own.st_ino != other.st_ino)
            continue;
        snprintf(text, sizeof text, "%s is the cells file of zone \"%.*s\" already; give each its own", zone->cells_file,
                 (int)zones[i]->name.len, zones[i]->name.data);
        return complain(zone, log, text);
    }
    return NGX_OK;
}

static void close_zone(void *data)
{
    struct zone *zone = data;
    weir_close(zone->weir);
    zone->weir = NULL;
}

static ngx_int_t open_zone(struct zone *zone, ngx_cycle_t *cycle)
{
    struct weir_error error;
    struct weir_options options = {
        .size = sizeof options,
        .rules_file = zone->rules_file,
        .cells_file = zone->cells_file,
        .cells_bytes = zone->cells_file ? (uint64_t)zone->bytes : 0,
        .cells_memory = zone->cells_memory,
        .cells_memory_bytes = zone->cells_memory ? (size_t)zone->bytes : 0,
        .trusted_proxies = zone->main->trusted_proxies,
        .on_rules = on_rules,
        .on_rules_data = zone,
    };
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cycle->pool, 0);
    if (!cleanup || check_shared(zone, cycle->log) != NGX_OK)
        return NGX_ERROR;
    if (weir_open(&zone->weir, &options, &error) < 0)
        return complain(zone, cycle->log, error.text);
    zone->since = time(NULL);
    cleanup->handler = close_zone;
    cleanup->data = zone;
    return zone->cells_file ? check_size(zone, cycle->log) : NGX_OK;
}

/* ---- shared memory ---- */

/* New pages of shared memory are zero, and those that nobody touches are not taken: they are not cleared here. */
static bool make_shared(struct zone *zone, ngx_slab_pool_t *pool)
{
    zone->stats = ngx_slab_alloc(pool, sizeof *zone->stats);
    if (!zone->cells_file)
        zone->cells_memory = ngx_slab_alloc(pool, (size_t)zone->bytes);
    return zone->stats && (zone->cells_file || zone->cells_memory);
}

/* Called when the memory is there: new, or that of the configuration before this one, which knows what lies where. (Nothing
 * in the memory does: workers can write to it, and the master is root.) */
static ngx_int_t init_zone(ngx_shm_zone_t *shm, void *data)
{
    struct zone *zone = shm->data;
    const struct zone *before = data;
    if (before) {
        zone->stats = before->stats;
        zone->cells_memory = before->cells_memory;
    } else if (!make_shared(zone, (ngx_slab_pool_t *)shm->shm.addr)) {
        return complain(zone, shm->shm.log, "its shared memory is too small");
    }
    if (open_zone(zone, zone->cycle) != NGX_OK)
        return NGX_ERROR;
    /* These rules are good: a mistake that comes later is to be told, also one that was told before. */
    stats_tell(zone->stats, 0);
    return NGX_OK;
}

/* nginx keeps a record for each page, and some for the whole. */
static size_t pool_bytes(size_t bytes)
{
    size_t pages = bytes / ngx_pagesize + 2;
    return pages * (ngx_pagesize + sizeof(ngx_slab_page_t)) + 16 * ngx_pagesize;
}

char *zone_declare(ngx_conf_t *cf, struct zone *zone)
{
    /* Other modules may have zones of the same name. */
    ngx_str_t name = { zone->name.len + strlen("weir:"), ngx_pnalloc(cf->pool, zone->name.len + strlen("weir:")) };
    if (!name.data)
        return NGX_CONF_ERROR;
    ngx_memcpy(ngx_cpymem(name.data, "weir:", strlen("weir:")), zone->name.data, zone->name.len);
    /* Whole pages: nginx keeps memory of the same size at a reload, and then the table in it has to be the same, too. */
    if (!zone->cells_file)
        zone->bytes = (off_t)ngx_align((size_t)zone->bytes, ngx_pagesize);
    size_t bytes = sizeof(struct stats) + (zone->cells_file ? 0 : (size_t)zone->bytes);
    ngx_shm_zone_t *shm = ngx_shared_memory_add(cf, &name, pool_bytes(bytes), &ngx_http_weir_module);
    if (!shm)
        return NGX_CONF_ERROR;
    zone->cycle = cf->cycle;
    shm->init = init_zone;
    shm->data = zone;
    return NGX_CONF_OK;
}

/* ---- workers ---- */

/* The master has the rules of when it read its configuration; one that is started later has to catch up before it decides.
 */
static void begin_zone(struct zone *zone, ngx_log_t *log)
{
    weir_poll(zone->weir, NULL);
    if (ngx_worker == 0 && access(zone->rules_file, R_OK) != 0)
        ngx_log_error(
            NGX_LOG_ERR, log, ngx_errno,
            "weir: zone \"%V\": the workers' user may not read %s, so its changes will not be seen before a reload",
            &zone->name, zone->rules_file);
}

void zones_begin(struct main_conf *main, ngx_cycle_t *cycle)
{
    struct zone **zones = main->zones.elts;
    for (ngx_uint_t i = 0; i < main->zones.nelts; i++)
        begin_zone(zones[i], cycle->log);
    if (main->zones.nelts == 0)
        return;
    main->timer.handler = on_timer;
    main->timer.data = main;
    main->timer.log = cycle->log;
    main->timer.cancelable = 1; /* a worker that is to end does not wait for it */
    ngx_add_timer(&main->timer, LOOK_MS);
}
