/* Zones: opened by the master, with its rights, when nginx has their shared memory; used by the workers, which inherit
 * them.
 *
 * The counts for the status always lie in nginx's shared memory, the cells there or in a file. */
#include "module.h"

/* ---- errors ---- */

/* Logs each line of the text with the position in nginx.conf. Returns NGX_ERROR. */
static ngx_int_t complain(const struct zone *zone, ngx_log_t *log, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        ngx_log_error(NGX_LOG_EMERG, log, 0, "weir_zone \"%V\": %*s in %V:%ui", &zone->name, len, text,
                      &zone->position.file, zone->position.line);
        text += len + (text[len] == '\n');
    }
    return NGX_ERROR;
}

/* ---- rules that change ---- */

/* When the file was last changed, in nanoseconds: the same for every worker. If the file is missing, the folder's time. */
static uint64_t version_of(const char *path)
{
    struct stat st;
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (stat(path, &st) != 0) {
        snprintf(folder, sizeof folder, "%.*s/", slash ? (int)(slash - path) : 0, path);
        if (stat(folder, &st) != 0)
            return 0;
    }
    return (uint64_t)st.st_ctim.tv_sec * 1000000000 + (uint64_t)st.st_ctim.tv_nsec;
}

/* Runs in a thread of weir, which may not use nginx's log. */
static void on_rules(const struct weir_error *error, void *data)
{
    struct zone *zone = data;
    uint64_t version_ns = version_of(zone->rules_file);
    pthread_mutex_lock(&zone->report_lock);
    zone->has_report = true;
    zone->report = *error;
    zone->report_version_ns = version_ns;
    if (error->code == WEIR_OK)
        zone->rules_since = time(NULL);
    pthread_mutex_unlock(&zone->report_lock);
}

/* Several errors share one line of the log. */
static void join_lines(char *text)
{
    for (; *text; text++)
        *text = *text == '\n' ? ';' : *text;
}

/* Each worker finds the change, and one of them logs it. */
static void log_report(struct zone *zone, ngx_log_t *log)
{
    pthread_mutex_lock(&zone->report_lock);
    bool has_report = zone->has_report;
    struct weir_error report = zone->report;
    uint64_t version_ns = zone->report_version_ns;
    zone->has_report = false;
    pthread_mutex_unlock(&zone->report_lock);
    if (!has_report)
        return;
    bool good = report.code == WEIR_OK;
    /* nginx unlocks the mutex of a worker that dies. */
    ngx_shmtx_lock(&zone->pool->mutex);
    bool is_news = stats_claim_report(zone->stats, version_ns, good ? "" : report.text);
    ngx_shmtx_unlock(&zone->pool->mutex);
    if (!is_news)
        return;
    struct weir_status status;
    weir_status(zone->weir, &status);
    join_lines(report.text);
    if (good) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0, "weir: zone \"%V\": the rules changed: %uL in force", &zone->name,
                      status.rules);
    } else {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: zone \"%V\": not all rules are in force: %s", &zone->name, report.text);
    }
}

static void on_timer(ngx_event_t *timer)
{
    struct main_conf *main = timer->data;
    struct zone **zones = main->zones.elts;
    for (ngx_uint_t i = 0; i < main->zones.nelts; i++) {
        weir_poll_aside(zones[i]->weir);
        log_report(zones[i], timer->log);
    }
    ngx_add_timer(timer, RULES_POLL_MS);
}

/* ---- opening ---- */

/* An existing file keeps its size, which has to be the configured one. */
static ngx_int_t check_size(const struct zone *zone, ngx_log_t *log)
{
    enum { SLACK = 4096, KB = 1024 };
    struct weir_status status;
    char text[WEIR_ERROR_MAX];
    weir_status(zone->weir, &status);
    if (status.bytes <= (uint64_t)zone->bytes && (uint64_t)zone->bytes - status.bytes < SLACK)
        return NGX_OK;
    bool in_kb = status.bytes % KB == 0;
    snprintf(text, sizeof text, "%s has another size; ask for %llu%s, or remove the file (its counts are lost then)",
             zone->cells_file, (unsigned long long)(in_kb ? status.bytes / KB : status.bytes), in_kb ? "k" : "");
    return complain(zone, log, text);
}

/* Two zones must not use one cells file. Zones are opened one after another, so a file that an earlier zone has just
 * created exists here. */
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
        snprintf(text, sizeof text, "%s is already the cells file of zone \"%.*s\"; give each zone its own",
                 zone->cells_file, (int)zones[i]->name.len, zones[i]->name.data);
        return complain(zone, log, text);
    }
    return NGX_OK;
}

static void log_copied(const struct zone *zone, ngx_log_t *log)
{
    if (weir_cells_copied(zone->weir))
        ngx_log_error(
            NGX_LOG_NOTICE, log, 0,
            "weir: zone \"%V\": %s is a copy of another cells file, or comes from another machine: from now on it "
            "counts as a host of its own; the counts stay, slices of the original are not valid here",
            &zone->name, zone->cells_file);
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
        .never_wait = true,
    };
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cycle->pool, 0);
    if (!cleanup || check_shared(zone, cycle->log) != NGX_OK)
        return NGX_ERROR;
    if (weir_open(&zone->weir, &options, &error) < 0)
        return complain(zone, cycle->log, error.text);
    zone->rules_since = time(NULL);
    pthread_mutex_init(&zone->report_lock, NULL);
    cleanup->handler = close_zone;
    cleanup->data = zone;
    log_copied(zone, cycle->log);
    return zone->cells_file ? check_size(zone, cycle->log) : NGX_OK;
}

/* ---- shared memory ---- */

/* New pages of shared memory are zero, and pages that nobody touches take no memory, so nothing is cleared here. */
static bool make_shared(struct zone *zone)
{
    zone->stats = ngx_slab_alloc(zone->pool, sizeof *zone->stats);
    if (!zone->cells_file)
        zone->cells_memory = ngx_slab_alloc(zone->pool, (size_t)zone->bytes);
    return zone->stats && (zone->cells_file || zone->cells_memory);
}

/* nginx calls it when it has the memory: new memory, or that of the previous configuration (`data`), whose pointers into it
 * are used. The memory itself holds no pointers: workers can write to it, and the master is root. */
static ngx_int_t init_zone(ngx_shm_zone_t *shm, void *data)
{
    struct zone *zone = shm->data;
    const struct zone *before = data;
    zone->pool = (ngx_slab_pool_t *)shm->shm.addr;
    if (before) {
        zone->stats = before->stats;
        zone->cells_memory = before->cells_memory;
    } else if (!make_shared(zone)) {
        return complain(zone, shm->shm.log, "its shared memory is too small");
    }
    if (open_zone(zone, zone->cycle) != NGX_OK)
        return NGX_ERROR;
    /* These rules are good, so a later error is logged again, even one that was logged before. */
    zone->stats->logged_version_ns = zone->stats->logged_hash = 0;
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
    /* Whole pages: a reload keeps memory of the same size, and the table in it must then have the same size, too. */
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

/* The master has the rules as they were when it read its configuration. A worker that starts later reads the file again
 * before its first decision. */
static void begin_zone(struct zone *zone, ngx_log_t *log)
{
    weir_poll(zone->weir, NULL);
    if (ngx_worker == 0 && access(zone->rules_file, R_OK) != 0)
        ngx_log_error(
            NGX_LOG_ERR, log, ngx_errno,
            "weir: zone \"%V\": the user of the workers may not read %s, so weir sees changes of it only at a reload",
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
    main->timer.cancelable = 1; /* a worker that shuts down does not wait for it */
    ngx_add_timer(&main->timer, RULES_POLL_MS);
}
