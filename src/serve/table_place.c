#include "serve/table_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "cells/saved.h"
#include "serve/config.h"
#include "serve/log.h"
#include "slices/asks.h"

enum { PREFIX_MAX = 32 };

struct prepare {
    const struct config *config;
    struct table_place *place;
    struct stat folder;      /* the data folder */
    char memory[PATH_MAX];   /* the folder for the table; "": none, because … */
    char why[300];           /* … */
    char prefix[PREFIX_MAX]; /* of the names of its tables: a copied data folder has another */
};

enum found { FOUND_NONE, FOUND_PLAIN, FOUND_LIVE, FOUND_LOST /* a link to a table that is gone, or not this folder's */ };

static int system_error(const char *path, struct weir_error *error)
{
    return err_set(error, WEIR_E_SYSTEM, "%s: %s", path, strerror(errno));
}

/* ---- which folder ---- */

static bool is_memory(const struct statfs *fs)
{
    return fs->f_type == TMPFS_MAGIC || fs->f_type == RAMFS_MAGIC;
}

/* The folder that systemd keeps while the service restarts, or the shared memory of the system. The memory of a container
 * goes with its first process. */
static const char *default_folder(struct prepare *p, char scratch[PATH_MAX])
{
    const char *given = getenv("RUNTIME_DIRECTORY");
    if (given && *given) {
        snprintf(scratch, PATH_MAX, "%.*s", (int)strcspn(given, ":"), given);
        return scratch;
    }
    if (getpid() != 1)
        return "/dev/shm";
    snprintf(
        p->why, sizeof p->why,
        "the memory of a container goes with its first process, which this is; --cells-memory can name a tmpfs that stays");
    return NULL;
}

static int choose_folder(struct prepare *p, struct weir_error *error)
{
    char scratch[PATH_MAX];
    const char *given = p->config->cells_memory, *folder = given ? given : default_folder(p, scratch);
    if (given && strcmp(given, "none") == 0)
        return 0;
    if (!folder)
        return 0;
    struct statfs fs;
    if (statfs(folder, &fs) < 0 || !realpath(folder, p->memory) || access(folder, W_OK | X_OK) < 0)
        snprintf(p->why, sizeof p->why, "cannot use the folder %.200s: %s", folder, strerror(errno));
    else if (!is_memory(&fs))
        snprintf(p->why, sizeof p->why, "the folder %.200s is not in memory (tmpfs)", folder);
    else
        return 0;
    p->memory[0] = '\0';
    return given ? err_set(error, WEIR_E_INVALID, "--cells-memory: %s", p->why) : 0;
}

/* ---- what is there ---- */

/* Somebody else may have made a file of this name in a folder that all can write to. */
static bool is_own_table(const struct prepare *p, const char *target)
{
    const char *slash = strrchr(target, '/');
    struct stat st;
    struct statfs fs;
    return slash && strncmp(slash + 1, p->prefix, strlen(p->prefix)) == 0 && lstat(target, &st) == 0 &&
           S_ISREG(st.st_mode) && (st.st_uid == geteuid() || st.st_uid == p->folder.st_uid || st.st_uid == 0) &&
           statfs(target, &fs) == 0 && is_memory(&fs);
}

void table_tell_copied(const char *path)
{
    log_say(LEVEL_WARNING, "cells",
            "%s is a copy of another cells file, or comes from another machine: from now on weir counts here as a separate "
            "host; the counts stay, receipts and slices of the original are invalid here",
            path);
}

/* Only the first who opens a copy learns of it: here, not the engine. */
static int open_table(struct cells **ret, const char *path, struct weir_error *error)
{
    int r = cells_open(ret, path, (struct cells_size){ 0 }, error);
    if (r == 0 && cells_copied(*ret)) {
        lender_status_note_copy(*ret);
        table_tell_copied(path);
    }
    return r;
}

/* A table that is damaged is replaced by the saved one; but one that this user may not open has others who count in it. */
static int look_at_live(const char *target, enum found *ret, struct weir_error *error)
{
    struct cells *cells = NULL;
    int r = open_table(&cells, target, error);
    cells_close(cells);
    if (r == 0)
        *ret = FOUND_LIVE;
    if (r == WEIR_E_CELLS)
        log_say(LEVEL_WARNING, "saving", "the table in memory cannot be used, the saved one is read back: %s", error->text);
    return r == WEIR_E_CELLS ? 0 : r;
}

static int look(const struct prepare *p, enum found *ret, char target[PATH_MAX], struct weir_error *error)
{
    const char *path = p->place->path;
    struct stat st;
    *ret = FOUND_NONE;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : system_error(path, error);
    *ret = FOUND_PLAIN;
    if (!S_ISLNK(st.st_mode))
        return 0;
    ssize_t n = readlink(path, target, PATH_MAX - 1);
    if (n < 0)
        return system_error(path, error);
    target[n] = '\0';
    *ret = FOUND_LOST;
    return is_own_table(p, target) ? look_at_live(target, ret, error) : 0;
}

/* ---- from one place to another ---- */

static int save_table(const char *path, const char *saved, struct weir_error *error)
{
    struct cells *cells = NULL;
    struct cells_saver *saver = NULL;
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    int r = fd < 0 ? system_error(path, error) : open_table(&cells, path, error);
    if (r == 0)
        r = cells_saver_new(&saver, cells, fd, saved, error);
    if (r == 0)
        r = cells_save_all(saver, clock_now_us(), error);
    cells_saver_free(saver);
    cells_close(cells);
    return r;
}

static int read_back(const struct prepare *p, const char *to, struct weir_error *error)
{
    const char *saved = p->place->saved;
    struct cells_restored restored;
    int64_t now_us = clock_now_us();
    int r = cells_restore(saved, to, now_us, &restored, error);
    if (r < 0)
        return r;
    if (restored.saved_us == 0) {
        log_say(LEVEL_WARNING, "saving", "%s: no save in it is complete: the counts start from zero", saved);
        return 0;
    }
    double age_s = now_us > restored.saved_us ? (double)(now_us - restored.saved_us) / (double)US_PER_S : 0;
    log_say(LEVEL_INFO, "saving", "the counts were read back from %s, as they were %.1f s ago", saved, age_s);
    if (restored.damaged > 0)
        log_say(LEVEL_WARNING, "saving",
                "%s: %llu bytes are damaged and were left out: the counts that they had are older, or start from zero",
                saved, (unsigned long long)restored.damaged);
    if (restored.dropped > 0)
        log_say(LEVEL_WARNING, "saving", "%s: the slots of %llu subjects could not be read back: they are free", saved,
                (unsigned long long)restored.dropped);
    return 0;
}

/* A table of a folder whose files inherit its group gets that group, too. */
static int make_new(const struct prepare *p, const char *path, struct weir_error *error)
{
    struct cells *cells = NULL;
    int r = cells_open(&cells, path, (struct cells_size){ .keys = p->config->cells_keys }, error);
    cells_close(cells);
    if (r == 0 && p->folder.st_mode & S_ISGID && chown(path, (uid_t)-1, p->folder.st_gid) < 0)
        log_say(LEVEL_WARNING, "saving", "%s: cannot get the group of the data folder: %s", path, strerror(errno));
    return r;
}

/* Tables that no link names any more: of a process that was killed while it made one, or whose link was removed. One that a
 * service saves stays. */
static void remove_left(const struct prepare *p)
{
    char path[PATH_MAX + NAME_MAX + 2];
    DIR *folder = opendir(p->memory);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (strncmp(entry->d_name, p->prefix, strlen(p->prefix)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", p->memory, entry->d_name);
        CLEANUP_CLOSE int fd = is_own_table(p, path) ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlink(path);
    }
    if (folder)
        closedir(folder);
}

static int replace_link(const struct prepare *p, const char *live, struct weir_error *error)
{
    CLEANUP_FREE char *fresh = NULL;
    if (asprintf(&fresh, "%s.link", p->place->path) < 0)
        return err_no_memory(error);
    unlink(fresh);
    if (symlink(live, fresh) < 0 || rename(fresh, p->place->path) < 0) {
        int r = system_error(fresh, error);
        unlink(fresh);
        return r;
    }
    return 0;
}

/* ---- in memory ---- */

static char *new_name(const struct prepare *p)
{
    uint32_t number;
    char *path = NULL;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return NULL;
    return asprintf(&path, "%s/%s%08x", p->memory, p->prefix, number) < 0 ? NULL : path;
}

static int make_live(const struct prepare *p, enum found found, const char *live, struct weir_error *error)
{
    const struct table_place *place = p->place;
    int r = found == FOUND_PLAIN ? save_table(place->path, place->saved, error) : 0;
    if (r < 0)
        return r;
    if (found == FOUND_PLAIN)
        log_say(LEVEL_INFO, "saving", "the counts of the file %s are taken over", place->path);
    r = access(place->saved, F_OK) == 0 ? read_back(p, live, error) : make_new(p, live, error);
    if (r == 0)
        r = replace_link(p, live, error);
    if (r < 0)
        unlink(live);
    return r;
}

static int use_memory(const struct prepare *p, struct weir_error *error)
{
    char target[PATH_MAX];
    enum found found;
    int r = look(p, &found, target, error);
    if (r < 0)
        return r;
    CLEANUP_FREE char *live = found == FOUND_LIVE ? strdup(target) : new_name(p);
    if (!live)
        return err_no_memory(error);
    if (found != FOUND_LIVE) {
        remove_left(p);
        r = make_live(p, found, live, error);
    }
    if (r == 0)
        p->place->live = STEAL(live);
    return r;
}

/* ---- in a plain file ---- */

static int restore_plain(const struct prepare *p, struct weir_error *error)
{
    const struct table_place *place = p->place;
    CLEANUP_FREE char *fresh = NULL;
    if (asprintf(&fresh, "%s.plain", place->path) < 0)
        return err_no_memory(error);
    unlink(fresh);
    int r = read_back(p, fresh, error);
    if (r == 0 && rename(fresh, place->path) < 0)
        r = system_error(fresh, error);
    if (r < 0)
        unlink(fresh);
    return r;
}

static int use_file(const struct prepare *p, struct weir_error *error)
{
    const struct table_place *place = p->place;
    char target[PATH_MAX];
    enum found found;
    int r = look(p, &found, target, error);
    if (r == 0 && found == FOUND_LIVE)
        r = save_table(target, place->saved, error);
    if (r == 0 && found != FOUND_PLAIN && access(place->saved, F_OK) == 0)
        r = restore_plain(p, error);
    else if (r == 0 && found == FOUND_LOST && unlink(place->path) < 0)
        r = system_error(place->path, error);
    if (r < 0)
        return r;
    unlink(place->saved);
    if (found == FOUND_LIVE)
        unlink(target);
    return 0;
}

/* ---- both ---- */

static int name_files(struct prepare *p, struct weir_error *error)
{
    struct table_place *place = p->place;
    struct hash hash;
    if (asprintf(&place->path, "%s/cells", p->config->data) < 0 ||
        asprintf(&place->saved, "%s/cells.saved", p->config->data) < 0)
        return err_no_memory(error);
    if (stat(p->config->data, &p->folder) < 0)
        return system_error(p->config->data, error);
    hash_init(&hash, &(struct hash_key){ 0, 0 });
    hash_word(&hash, p->folder.st_dev);
    hash_word(&hash, p->folder.st_ino);
    hash_word(&hash, p->folder.st_uid);
    snprintf(p->prefix, sizeof p->prefix, "weir-%08x-", (uint32_t)hash_final(&hash));
    return 0;
}

/* Services that start at the same time in one data folder do this one after the other. */
static int prepare_locked(struct prepare *p, struct weir_error *error)
{
    CLEANUP_CLOSE int lock = open(p->config->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return system_error(p->config->data, error);
    int r = choose_folder(p, error);
    if (r < 0)
        return r;
    if (p->memory[0]) {
        r = use_memory(p, error);
        if (r == 0)
            log_say(LEVEL_INFO, "saving", "the counts are in memory, in %s, and are saved to %s", p->place->live,
                    p->place->saved);
        if (r != WEIR_E_SYSTEM || p->config->cells_memory)
            return r;
        snprintf(p->why, sizeof p->why, "%.*s", (int)sizeof p->why - 1, error->text);
    }
    r = use_file(p, error);
    if (r == 0 && p->why[0])
        log_say(LEVEL_WARNING, "saving", "the counts are in the file %s, where some decisions wait for the disk: %s",
                p->place->path, p->why);
    return r;
}

int table_place_prepare(struct table_place *ret, const struct config *config, struct weir_error *error)
{
    struct prepare p = { .config = config, .place = ret };
    *ret = (struct table_place){ 0 };
    if (config->cells && config->cells_memory)
        return err_set(error, WEIR_E_INVALID,
                       "--cells and --cells-memory cannot be combined: --cells names a plain file, which is not saved");
    if (config->cells) {
        ret->path = strdup(config->cells);
        return ret->path ? 0 : err_no_memory(error);
    }
    int r = name_files(&p, error);
    return r < 0 ? r : prepare_locked(&p, error);
}

void table_place_done(struct table_place *place)
{
    free(place->path);
    free(place->live);
    free(place->saved);
    *place = (struct table_place){ 0 };
}
