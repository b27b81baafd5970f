/* Making, opening and closing the mapping. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/new_file.h"
#include "cells/blocks.h"
#include "cells/saved_layout.h"

static const char MAGIC[8] = "weircell";

#define CELLS_MAX (UINT64_C(1) << 36)
enum { BUCKET_BYTES = BUCKET_CELLS * CELL_BYTES, ALIGNMENT = _Alignof(struct cells_header) };

static uint64_t checksum(const struct cells_header *h)
{
    struct hash_key none = { 0, 0 };
    struct cells_header summed = *h;
    struct hash hash;
    summed.version = CELLS_VERSION_SUMMED;
    hash_init(&hash, &none);
    hash_bytes(&hash, &summed, offsetof(struct cells_header, checksum));
    return hash_final(&hash);
}

void cells_init_header(struct cells_header *h, uint64_t bucket_count, const struct hash_key *secret, uint64_t made_us)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, MAGIC, sizeof MAGIC);
    h->version = CELLS_VERSION;
    h->header_bytes = CELLS_HEADER_BYTES;
    h->bucket_count = bucket_count;
    h->made_us = made_us;
    h->secret = *secret;
    h->checksum = checksum(h);
}

static int init_header(struct cells_header *h, uint64_t bucket_count, struct weir_error *error)
{
    struct hash_key secret;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
        return err_set(error, WEIR_E_SYSTEM, "cannot get random bytes: %s", strerror(errno));
    cells_init_header(h, bucket_count, &secret, (uint64_t)clock_now_us());
    return 0;
}

bool cells_valid_size(uint64_t bucket_count)
{
    return bucket_count >= 2 && bucket_count <= CELLS_MAX / BUCKET_CELLS;
}

int cells_buckets(struct cells_size size, uint64_t *ret, struct weir_error *error)
{
    uint64_t buckets = CELLS_DEFAULT / BUCKET_CELLS;
    if (size.keys)
        buckets = size.keys / BUCKET_FILL + (size.keys % BUCKET_FILL > 0);
    else if (size.bytes)
        buckets = size.bytes / BUCKET_BYTES;
    if (buckets > CELLS_MAX / BUCKET_CELLS)
        return err_set(error, WEIR_E_INVALID, "a table can have at most %llu cells", (unsigned long long)CELLS_MAX);
    *ret = buckets < 2 ? 2 : buckets;
    return 0;
}

static size_t cell_bytes(uint64_t buckets)
{
    return CELLS_HEADER_BYTES + (size_t)buckets * BUCKET_BYTES;
}

static size_t total_bytes(uint64_t buckets)
{
    return cell_bytes(buckets) + blocks_bytes(buckets);
}

/* Returns whether the file has a version without blocks. */
static bool is_older(const struct cells_header *h)
{
    return h->version == CELLS_VERSION_NARROW || h->version == CELLS_VERSION_WIDE;
}

/* The header is one that was checked, not the one in the mapping, which others can write to. */
static int use_memory(struct cells **ret, void *map, const struct cells_header *header, struct weir_error *error)
{
    CHECK((uintptr_t)map % ALIGNMENT == 0 && header->bucket_count >= 2);
    struct cells *cells = malloc(sizeof *cells);
    if (!cells) {
        err_no_memory(error);
        return WEIR_E_NO_MEMORY;
    }
    *cells = (struct cells){
        .cell = (struct cell *)((char *)map + CELLS_HEADER_BYTES),
        .bucket_count = header->bucket_count,
        .secret = header->secret,
        .header = map,
    };
    if (!is_older(header))
        blocks_place(cells, (char *)map + cell_bytes(header->bucket_count));
    *ret = cells;
    return 0;
}

static int use_mapping(struct cells **ret, void *map, const struct cells_header *header, struct weir_error *error)
{
    size_t bytes = total_bytes(header->bucket_count);
    int r = use_memory(ret, map, header, error);
    if (r < 0)
        munmap(map, bytes);
    else
        (*ret)->mapped_bytes = bytes;
    return r;
}

static int open_memory(struct cells **ret, uint64_t buckets, struct weir_error *error)
{
    size_t bytes = total_bytes(buckets);
    /* Shared, so that children of a fork count in it, too. */
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return err_set(error, WEIR_E_NO_MEMORY, "cannot get memory for a table of %zu bytes: %s", bytes, strerror(errno));
    int r = init_header(map, buckets, error);
    if (r < 0) {
        munmap(map, bytes);
        return r;
    }
    return use_mapping(ret, map, map, error);
}

/* ---- files ---- */

static int check_header(const char *path, const struct cells_header *h, uint64_t file_bytes, struct weir_error *error)
{
    if (memcmp(h->magic, SAVED_MAGIC, sizeof h->magic) == 0)
        return err_set(
            error, WEIR_E_CELLS,
            "%s: the saved counts of a table, not the table itself; name the table (weir serve has it beside this "
            "file, without .saved), and keep this file",
            path);
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0)
        return err_set(error, WEIR_E_CELLS,
                       "%s: not a cells file; name another file, or remove this one if it is not needed", path);
    if ((h->version != CELLS_VERSION && !is_older(h)) || h->header_bytes != CELLS_HEADER_BYTES)
        return err_set(
            error, WEIR_E_CELLS,
            "%s: a cells file of layout %u, but this weir supports layout %d, %d and %d; use another file, or remove this "
            "one (its counts are lost then)",
            path, h->version, CELLS_VERSION, CELLS_VERSION_NARROW, CELLS_VERSION_WIDE);
    if (h->checksum != checksum(h))
        return err_set(error, WEIR_E_CELLS,
                       "%s: its header is damaged; restore the file, or remove it (its counts are lost then)", path);
    bool sized = file_bytes == total_bytes(h->bucket_count) || (is_older(h) && file_bytes == cell_bytes(h->bucket_count));
    if (!cells_valid_size(h->bucket_count) || !sized)
        return err_set(
            error, WEIR_E_CELLS,
            "%s: has %llu bytes, but its header says %llu: it was cut or added to; restore the file, or remove it (its "
            "counts are lost then)",
            path, (unsigned long long)file_bytes, (unsigned long long)total_bytes(h->bucket_count));
    return 0;
}

/* Room is reserved now: writing to a hole in a file on a full disk would kill the process later. */
static int reserve_file(int fd, const char *path, uint64_t buckets, struct weir_error *error)
{
    int no;
    do {
        no = posix_fallocate(fd, 0, (off_t)total_bytes(buckets));
    } while (no == EINTR);
    if (no != 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: no room for %zu bytes: %s", path, total_bytes(buckets), strerror(no));
    return 0;
}

static int fill_table(int fd, const char *path, const struct cells_file *file, struct weir_error *error)
{
    struct cells *cells = NULL;
    size_t bytes = total_bytes(file->header->bucket_count);
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be mapped: %s", path, strerror(errno));
    int r = use_mapping(&cells, map, file->header, error);
    if (r < 0)
        return r;
    r = file->fill(cells, fd, file->data, error);
    cells_close(cells);
    return r;
}

static int fill_file(int fd, const char *path, const struct cells_file *file, struct weir_error *error)
{
    int r = reserve_file(fd, path, file->header->bucket_count, error);
    if (r < 0)
        return r;
    if (pwrite(fd, file->header, sizeof *file->header, 0) != sizeof *file->header)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
    if (file->fill && (r = fill_table(fd, path, file, error)) < 0)
        return r;
    if (fsync(fd) < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
    return 0;
}

static int map_file(struct cells **ret, int fd, const char *path, struct weir_error *error)
{
    struct stat st;
    struct cells_header header;
    if (fstat(fd, &st) < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(error, WEIR_E_CELLS, "%s: not a regular file", path);
    if ((uint64_t)st.st_size < CELLS_HEADER_BYTES || pread(fd, &header, sizeof header, 0) != sizeof header)
        return err_set(
            error, WEIR_E_CELLS,
            "%s: too short for a cells file (%lld bytes); name another file, or remove this one if it is not needed", path,
            (long long)st.st_size);
    int r = check_header(path, &header, (uint64_t)st.st_size, error);
    if (r < 0)
        return r;
    bool older = is_older(&header);
    if (older && (r = reserve_file(fd, path, header.bucket_count, error)) < 0)
        return r;
    struct cells_header *map = mmap(NULL, total_bytes(header.bucket_count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be mapped: %s", path, strerror(errno));
    /* The file has its blocks now. Several processes may do this at once. */
    if (older)
        __atomic_store_n(&map->version, header.version = CELLS_VERSION, __ATOMIC_RELAXED);
    r = use_mapping(ret, map, &header, error);
    if (r == 0 && (r = cells_check_identity(*ret, fd, path, error)) < 0) {
        cells_close(*ret);
        *ret = NULL;
    }
    return r;
}

/* The owner and group first: changing them may clear bits of the mode. A process that may not give the file away keeps it.
 */
static bool set_access(int fd, const struct stat *like)
{
    if (like && fchown(fd, like->st_uid, like->st_gid) < 0 && errno == EPERM && fchown(fd, (uid_t)-1, like->st_gid) < 0 &&
        errno != EPERM)
        return false;
    return fchmod(fd, like ? like->st_mode & 0777 : 0660) == 0;
}

/* The file gets its name when it is complete, and only if no other process has made one meanwhile. */
int cells_make_file(const char *path, const struct cells_file *file, struct weir_error *error)
{
    char name[PATH_MAX];
    bool named;
    CLEANUP_CLOSE int fd = new_file_open(path, name, &named);
    if (fd < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be created: %s", path, strerror(errno));
    int r = fill_file(fd, path, file, error);
    if (r == 0 && (!set_access(fd, file->like) || linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0))
        r = errno == EEXIST ? 1 : err_set(error, WEIR_E_SYSTEM, "%s: cannot be created: %s", path, strerror(errno));
    if (named)
        unlink(name);
    if (r >= 0)
        new_file_sync_folder(path);
    return r;
}

static int make_file(const char *path, uint64_t buckets, struct weir_error *error)
{
    struct cells_header header;
    int r = init_header(&header, buckets, error);
    return r < 0 ? r : cells_make_file(path, &(struct cells_file){ .header = &header }, error);
}

/* A link to a table in memory that was there before a reboot must not become a table of its own. */
static int no_target(const char *path, struct weir_error *error)
{
    char target[PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return 0;
    target[n] = '\0';
    return err_set(
        error, WEIR_E_SYSTEM,
        "%s: links to %s: %s; a reboot removes a table in memory: start the weir serve that saves it, which reads "
        "it back",
        path, target, strerror(ENOENT));
}

static int open_file(struct cells **ret, const char *path, uint64_t buckets, struct weir_error *error)
{
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        int r = no_target(path, error);
        if (r == 0)
            r = make_file(path, buckets, error);
        if (r < 0)
            return r;
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (fd < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be opened for reading and writing: %s", path, strerror(errno));
    return map_file(ret, fd, path, error);
}

int cells_open(struct cells **ret, const char *path, struct cells_size size, struct weir_error *error)
{
    uint64_t buckets = 0;
    int r = cells_buckets(size, &buckets, error);
    if (r < 0)
        return r;
    return path ? open_file(ret, path, buckets, error) : open_memory(ret, buckets, error);
}

int cells_memory_bytes(struct cells_size size, size_t *ret, struct weir_error *error)
{
    uint64_t buckets = 0;
    int r = cells_buckets(size, &buckets, error);
    if (r == 0)
        *ret = total_bytes(buckets);
    return r;
}

static bool is_blank(const void *memory)
{
    static const char blank[sizeof(struct cells_header)];
    return memcmp(memory, blank, sizeof blank) == 0;
}

int cells_open_at(struct cells **ret, void *memory, size_t bytes, struct weir_error *error)
{
    if ((uintptr_t)memory % ALIGNMENT)
        return err_set(error, WEIR_E_INVALID, "memory for a table must begin at a multiple of %d", ALIGNMENT);
    if (bytes < total_bytes(2))
        return err_set(error, WEIR_E_INVALID, "%zu bytes are too few for a table; it needs at least %zu", bytes,
                       total_bytes(2));
    uint64_t buckets = (bytes - CELLS_HEADER_BYTES) / BUCKET_BYTES, older = buckets;
    while (total_bytes(buckets) > bytes)
        buckets -= 1 + (total_bytes(buckets) - bytes) / (2 * BUCKET_BYTES);
    int r = is_blank(memory) ? init_header(memory, buckets, error) : 0;
    if (r < 0)
        return r;
    struct cells_header header;
    memcpy(&header, memory, sizeof header);
    r = check_header("cells_memory", &header, is_older(&header) ? cell_bytes(older) : total_bytes(buckets), error);
    return r < 0 ? r : use_memory(ret, memory, &header, error);
}

void cells_close(struct cells *cells)
{
    if (!cells)
        return;
    if (cells->mapped_bytes)
        munmap(cells->header, cells->mapped_bytes);
    free(cells);
}

const struct hash_key *cells_hash_key(const struct cells *cells)
{
    return &cells->secret;
}
