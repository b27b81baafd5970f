/* Time zones: the files of the system's zone database, each read once for a set of rules. UTC needs no file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rules/reader.h"

enum { ZONE_BYTES_MAX = 256 * 1024, ZONE_NAMES_MAX = 4000, ZONE_DEPTH_MAX = 3, ZONE_DIR_MAX = 3000 };

static const char *zone_dir(void)
{
    const char *dir = secure_getenv("TZDIR");
    return dir && dir[0] == '/' && strlen(dir) < ZONE_DIR_MAX ? dir : "/usr/share/zoneinfo";
}

/* Segments of letters, digits, `_`, `+` and `-`: nothing that could leave the database. */
static bool zone_name_valid(sv name)
{
    if (name.len == 0 || name.len > RULE_NAME_MAX || name.ptr[0] == '/' || name.ptr[name.len - 1] == '/')
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = ascii_lower(name.ptr[i]);
        bool word = ascii_digit(c) || (c >= 'a' && c <= 'z') || c == '_' || c == '+' || c == '-';
        if (!word && (c != '/' || name.ptr[i + 1] == '/'))
            return false;
    }
    return true;
}

/* ---- the set's own list ---- */

static struct zone *find_zone(const struct rules *rules, sv name)
{
    for (struct zone *zone = rules->zones; zone; zone = zone->next)
        if (sv_eq(zone->name, name))
            return zone;
    return NULL;
}

static struct zone *add_zone(struct rules *rules, sv name, sv bytes, const struct tz *tz)
{
    struct zone *zone = ARENA_NEW(&rules->arena, struct zone);
    sv copy = arena_copy(&rules->arena, name);
    if (!zone || !copy.ptr)
        return NULL;
    *zone = (struct zone){ .name = copy, .tz = *tz, .bytes = bytes, .next = rules->zones };
    rules->zones = zone;
    return zone;
}

static const struct zone *zone_utc(struct rules *rules)
{
    const struct zone *zone = find_zone(rules, SV("UTC"));
    if (zone)
        return zone;
    struct tz tz;
    tz_utc(&tz);
    return add_zone(rules, SV("UTC"), (sv){ 0 }, &tz);
}

const struct zone *zone_copy(struct rules *rules, const struct zone *zone)
{
    const struct zone *found = find_zone(rules, zone->name);
    if (found || zone->bytes.len == 0)
        return found ? found : zone_utc(rules);
    sv bytes = arena_copy(&rules->arena, zone->bytes);
    struct tz tz;
    const char *why;
    if (!bytes.ptr || tz_parse(bytes.ptr, bytes.len, &tz, &why) < 0)
        return NULL;
    return add_zone(rules, zone->name, bytes, &tz);
}

/* ---- files ---- */

/* The bytes of a zone's file in `arena`; empty with errno. */
static sv read_zone_file(struct arena *arena, sv name)
{
    char path[ZONE_DIR_MAX + RULE_NAME_MAX + 2];
    snprintf(path, sizeof path, "%s/%.*s", zone_dir(), SV_FMT(name));
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return (sv){ 0 };
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > ZONE_BYTES_MAX) {
        errno = EINVAL;
        return (sv){ 0 };
    }
    char *bytes = arena_alloc(arena, (size_t)st.st_size);
    errno = ENOMEM;
    ssize_t n = bytes ? read(fd, bytes, (size_t)st.st_size) : -1;
    return n > 0 ? sv_of(bytes, (size_t)n) : (sv){ 0 };
}

/* ---- suggestions ---- */

static void list_names(struct reader *r, const char *below, int depth)
{
    char path[ZONE_DIR_MAX + RULE_NAME_MAX + 2];
    snprintf(path, sizeof path, "%s/%s", zone_dir(), below);
    DIR *dir = opendir(path);
    if (!dir)
        return;
    const struct dirent *entry;
    while ((entry = readdir(dir)) && r->zone_name_count < ZONE_NAMES_MAX) {
        char name[RULE_NAME_MAX + 1];
        int n = snprintf(name, sizeof name, "%s%s%s", below, below[0] ? "/" : "", entry->d_name);
        bool copies = strcmp(name, "posix") == 0 || strcmp(name, "right") == 0;
        if (n < 0 || (size_t)n >= sizeof name || copies || !zone_name_valid(sv_of(name, (size_t)n)))
            continue;
        if (entry->d_type == DT_DIR && depth < ZONE_DEPTH_MAX)
            list_names(r, name, depth + 1);
        else if (entry->d_type != DT_DIR)
            r->zone_names[r->zone_name_count++] = arena_copy(r->scratch, sv_of(name, (size_t)n)).ptr;
    }
    closedir(dir);
}

/* "asia/shanghai", "Asia/Shanghia" and "Shanghai" all mean one; NULL if nothing is near. */
static const char *nearest_zone(struct reader *r, sv name)
{
    if (!r->zone_names) {
        r->zone_names = ARENA_ARRAY(r->scratch, const char *, ZONE_NAMES_MAX);
        if (r->zone_names)
            list_names(r, "", 1);
    }
    unsigned best = name.len < 5 ? 1 : 3;
    const char *nearest = NULL;
    for (size_t i = 0; i < r->zone_name_count; i++) {
        const char *candidate = r->zone_names[i];
        if (!candidate)
            continue;
        const char *slash = strrchr(candidate, '/');
        unsigned distance = word_distance(name, weir_str(candidate), best);
        if (slash && sv_eq_nocase(name, weir_str(slash + 1)))
            distance = 0;
        if (distance < best) {
            best = distance;
            nearest = candidate;
        }
    }
    return nearest;
}

static void no_such_zone(struct reader *r, const struct node *node)
{
    const char *nearest = r->report->error_count < RULES_ERRORS_MAX ? nearest_zone(r, node->text) : NULL;
    if (nearest)
        report_error(r, node->line, "unknown time zone %s; did you mean `%s`?", shown_node(r, node), nearest);
    else if (access(zone_dir(), R_OK) < 0)
        report_error(r, node->line, "unknown time zone %s; only UTC is known, because %s cannot be read; install tzdata",
                     shown_node(r, node), zone_dir());
    else
        report_error(r, node->line, "unknown time zone %s; `timedatectl list-timezones` lists them", shown_node(r, node));
}

const struct zone *read_zone(struct reader *r, const struct node *node)
{
    if (node && !check_text(r, node, 1, RULE_NAME_MAX))
        return NULL;
    if (!node || sv_eq(node->text, SV("UTC"))) {
        const struct zone *utc = zone_utc(r->rules);
        r->no_memory = r->no_memory || !utc;
        return utc;
    }
    sv name = node->text;
    const struct zone *zone = find_zone(r->rules, name);
    if (zone)
        return zone;
    errno = ENOENT;
    sv bytes = zone_name_valid(name) ? read_zone_file(&r->rules->arena, name) : (sv){ 0 };
    struct tz tz;
    const char *why = NULL;
    if (bytes.len == 0 && errno == ENOMEM) {
        r->no_memory = true;
    } else if (bytes.len == 0) {
        no_such_zone(r, node);
    } else if (tz_parse(bytes.ptr, bytes.len, &tz, &why) < 0) {
        report_error(r, node->line, "the file of the time zone %s cannot be used: %s", shown_node(r, node), why);
    } else {
        zone = add_zone(r->rules, name, bytes, &tz);
        r->no_memory = r->no_memory || !zone;
    }
    return zone;
}
