/* The files of a configuration of envoyproxy/ratelimit: which they are, and whether they have changed. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/hash.h"
#include "rules/rules.h"
#include "source/envoy.h"

enum { FILES_MAX = 1000 };

struct found {
    sv path; /* ends in NUL */
    struct buf text;
};

struct files {
    struct arena arena;
    struct found *list;
    size_t count;
    struct hash hash;
    struct file_version version;
};

static void files_done(struct files *files)
{
    for (size_t i = 0; i < files->count; i++)
        buf_done(&files->list[i].text);
    free(files->list);
    arena_done(&files->arena);
}

static int files_init(struct files *files)
{
    static const struct hash_key key = { 0 };
    *files = (struct files){ .list = calloc(FILES_MAX, sizeof *files->list) };
    hash_init(&files->hash, &key);
    return files->list ? 0 : WEIR_E_NO_MEMORY;
}

static void add_version(struct files *files, const struct file_version *version)
{
    hash_word(&files->hash, version->device);
    hash_word(&files->hash, version->inode);
    hash_word(&files->hash, version->bytes);
    hash_word(&files->hash, (uint64_t)version->modified_ns);
    hash_word(&files->hash, (uint64_t)version->changed_ns);
    files->version.bytes += version->bytes;
    if (version->modified_ns > files->version.modified_ns)
        files->version.modified_ns = version->modified_ns;
}

static int cannot_read(const char *path, struct weir_error *error)
{
    return err_set(error, WEIR_E_SYSTEM, "%s: cannot be read: %s", path, strerror(errno));
}

static int add_file(struct files *files, sv path, struct weir_error *error)
{
    struct file_version version;
    if (files->count == FILES_MAX)
        return err_set(error, WEIR_E_INVALID, "%.*s: more than %d files", SV_FMT(path), FILES_MAX);
    if (!rules_file_version(path.ptr, &version))
        return cannot_read(path.ptr, error);
    add_version(files, &version);
    struct found *file = &files->list[files->count++];
    file->path = path;
    buf_init(&file->text, RULES_BYTES_MAX);
    return 0;
}

/* Names that begin with a dot are those of editors, and of the links of a mounted ConfigMap. */
static int choose(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_entry(struct files *files, const char *folder, const char *name, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf path;
    struct stat st;
    buf_init(&path, 2 * (size_t)PATH_MAX);
    buf_printf(&path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
    sv copy = arena_copy(&files->arena, buf_sv(&path));
    if (path.failed || !copy.ptr)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for the names of files");
    if (stat(copy.ptr, &st) < 0)
        return cannot_read(copy.ptr, error);
    if (S_ISDIR(st.st_mode))
        return err_set(error, WEIR_E_INVALID, "%s: is a folder; put its files into %s, or name it, too", copy.ptr, folder);
    return add_file(files, copy, error);
}

static int add_folder(struct files *files, const char *path, const struct stat *st, struct weir_error *error)
{
    struct dirent **entries;
    hash_word(&files->hash, (uint64_t)st->st_ino);
    int count = scandir(path, &entries, choose, compare_entries), r = 0;
    if (count < 0)
        return cannot_read(path, error);
    for (int i = 0; i < count; i++) {
        if (r == 0)
            r = add_entry(files, path, entries[i]->d_name, error);
        free(entries[i]);
    }
    free(entries);
    return r;
}

static int add_path(struct files *files, const char *path, struct weir_error *error)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return cannot_read(path, error);
    return S_ISDIR(st.st_mode) ? add_folder(files, path, &st, error) : add_file(files, weir_str(path), error);
}

static int find_files(struct files *files, const char *const *paths, size_t count, struct weir_error *error)
{
    int r = files_init(files);
    if (r < 0)
        return err_set(error, r, "out of memory for the names of files");
    for (size_t i = 0; i < count && r == 0; i++)
        r = add_path(files, paths[i], error);
    files->version.inode = hash_final(&files->hash);
    return r;
}

bool envoy_version(const char *path, struct file_version *ret)
{
    CLEANUP(files_done) struct files files = { 0 };
    int r = find_files(&files, &path, 1, NULL);
    *ret = files.version;
    return r == 0;
}

/* The version is found before the content is read, so that the next look sees a change in between. */
int envoy_read(const char *const *paths, size_t count, const struct envoy_options *options, struct buf *out,
               struct file_version *ret_version, struct weir_error *error)
{
    CLEANUP(files_done) struct files files = { 0 };
    int r = find_files(&files, paths, count, error);
    *ret_version = files.version;
    CLEANUP(envoy_config_freep) struct envoy_config *config = r == 0 ? envoy_config_new(options) : NULL;
    if (r < 0)
        return r;
    if (!config)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for the configuration");
    for (size_t i = 0; i < files.count && r == 0; i++) {
        struct found *file = &files.list[i];
        r = rules_file_read(file->path.ptr, &file->text, &(struct file_version){ 0 }, error);
        if (r == 0)
            envoy_config_add(config, file->path, buf_sv(&file->text));
    }
    if (r == 0 && files.count == 0)
        return err_set(error, WEIR_E_RULES, "%s: has no files", paths[0]);
    if (r < 0)
        return r;
    r = envoy_config_write(config, out);
    if (r == WEIR_E_RULES)
        return err_set(error, r, "%.*s", SV_FMT(sv_trim(buf_sv(out))));
    return r < 0 ? err_set(error, r, "out of memory for the configuration") : 0;
}
