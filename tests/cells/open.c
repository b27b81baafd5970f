/* Making and opening tables: sizes, files, and files that are none. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

enum {
    SMALL_CELLS = 64,
    OLDER_BYTES = CELLS_HEADER_BYTES + SMALL_CELLS * CELL_BYTES, /* without blocks */
    SMALL_BYTES = OLDER_BYTES + 4 * 256,
};

static char folder[200];
static const char *const path = "cells"; /* in the folder, where the tests run */

static int make_folder(void **unused)
{
    (void)unused;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/cells-open-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **unused)
{
    (void)unused;
    return chdir("/") | rmdir(folder);
}

/* Whatever a test has left in the folder is a mistake, but for the one file. */
static int remove_file(void **unused)
{
    (void)unused;
    unlink(path);
    int left = 0;
    DIR *dir = opendir(".");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        print_error("left behind: %s\n", e->d_name);
        unlink(e->d_name);
        left = -1;
    }
    closedir(dir);
    return left;
}

static int open_small(struct cells **ret, struct weir_error *error)
{
    return cells_open(ret, path, (struct cells_size){ .bytes = SMALL_CELLS * CELL_BYTES }, error);
}

static struct cells *must_open_small(void)
{
    struct cells *table = NULL;
    struct weir_error error;
    if (open_small(&table, &error) < 0)
        fail_msg("%s", error.text);
    return table;
}

/* ---- sizes ---- */

static void test_sizes(void **unused)
{
    (void)unused;
    static const struct {
        struct cells_size size;
        uint64_t cells;
    } cases[] = {
        { { 0, 0 }, 1 << 20 },           { { .keys = 1 }, 32 },           { { .keys = 24 }, 32 },
        { { .keys = 25 }, 48 },          { { .keys = 786432 }, 1 << 20 }, { { .keys = 786433 }, (1 << 20) + 16 },
        { { .bytes = 1 }, 32 },          { { .bytes = 1024 }, 32 },       { { .bytes = 2047 }, 48 },
        { { .bytes = 1 << 20 }, 32768 },
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cells *table;
        assert_int_equal(cells_open(&table, NULL, cases[i].size, NULL), 0);
        struct cells_stats stats = cells_stats(table);
        assert_int_equal(stats.cells, cases[i].cells);
        assert_int_equal(stats.bytes, cases[i].cells * 32);
        assert_int_equal(stats.drops, 0);
        cells_close(table);
    }
    cells_close(NULL);
}

static void test_bytes_for_each_key(void **unused)
{
    (void)unused;
    for (uint64_t keys = 1000; keys <= 10000000; keys = keys * 3 + 1) {
        struct cells *table;
        assert_int_equal(cells_open(&table, NULL, (struct cells_size){ .keys = keys }, NULL), 0);
        assert_true(cells_stats(table).bytes <= keys * 43 + 512); /* whole buckets */
        assert_true(cells_stats(table).cells * 3 / 4 >= keys);
        cells_close(table);
    }
}

static void test_sizes_that_are_too_large(void **unused)
{
    (void)unused;
    static const struct cells_size sizes[] = {
        { .keys = UINT64_MAX },
        { .keys = (UINT64_C(1) << 36) / 4 * 3 + 1 },
        { .bytes = UINT64_MAX },
        { .bytes = (UINT64_C(1) << 41) + 512 },
    };
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct cells *table = NULL;
        struct weir_error error;
        assert_int_equal(cells_open(&table, path, sizes[i], &error), WEIR_E_INVALID);
        assert_non_null(strstr(error.text, "68719476736 cells"));
        assert_null(table);
    }
}

/* ---- files that are tables ---- */

static void test_file_keeps_counts(void **unused)
{
    (void)unused;
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S);
    struct cells *table = must_open_small();
    struct hash_key secret = *cells_hash_key(table);
    for (int i = 0; i < 3; i++)
        assert_true(take(table, key_of(1), &limit, T0_US, 1));
    for (uint64_t i = 100; i < 200; i++)
        assert_true(take(table, key_of(i), &limit, T0_US + 1, 1));
    uint64_t drops = cells_stats(table).drops;
    assert_true(drops > 0);
    cells_close(table);

    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, SMALL_BYTES);
    /* A size is for a file that is made. */
    assert_int_equal(cells_open(&table, path, (struct cells_size){ .keys = 1000000 }, NULL), 0);
    assert_int_equal(cells_stats(table).cells, SMALL_CELLS);
    assert_int_equal(cells_stats(table).drops, drops);
    assert_memory_equal(cells_hash_key(table), &secret, sizeof secret);
    assert_int_equal(count_of(state_in(table, key_of(1), &limit, T0_US)), 3);
    assert_true(take(table, key_of(1), &limit, T0_US, 2));
    assert_false(take(table, key_of(1), &limit, T0_US, 1));
    cells_close(table);
}

static void test_file_of_default_size(void **unused)
{
    (void)unused;
    struct cells *table;
    assert_int_equal(cells_open(&table, path, (struct cells_size){ 0 }, NULL), 0);
    assert_int_equal(cells_stats(table).cells, 1 << 20);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, CELLS_HEADER_BYTES + (1 << 25) + (1 << 22)); /* an eighth for blocks */
    cells_close(table);
}

static void test_two_mappings_count_together(void **unused)
{
    (void)unused;
    struct limit limit = limit_of(LIMIT_TOKEN_BUCKET, 5, 60 * US_PER_S);
    struct cells *a = must_open_small(), *b = must_open_small();
    for (int i = 0; i < 5; i++)
        assert_true(take(i & 1 ? a : b, key_of(1), &limit, T0_US, 1));
    assert_false(take(a, key_of(1), &limit, T0_US, 1));
    assert_false(take(b, key_of(1), &limit, T0_US, 1));
    cells_close(a);
    assert_false(take(b, key_of(1), &limit, T0_US, 1));
    cells_close(b);
}

static void test_secrets_differ(void **unused)
{
    (void)unused;
    struct cells *a = table_of_cells(32), *b = table_of_cells(32);
    assert_memory_not_equal(cells_hash_key(a), cells_hash_key(b), sizeof(struct hash_key));
    cells_close(a);
    cells_close(b);
}

/* Sixteen processes find no file, and wait for each other before they make one. */
static void open_at_once(uint32_t *shared, unsigned processes)
{
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S);
    __atomic_fetch_add(&shared[0], 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared[0], __ATOMIC_SEQ_CST) < processes)
        ;
    struct cells *table;
    if (open_small(&table, NULL) < 0)
        _exit(1);
    __atomic_fetch_add(&shared[1], take(table, key_of(1), &limit, T0_US, 1), __ATOMIC_SEQ_CST);
    _exit(0);
}

static void test_many_make_one_file(void **unused)
{
    (void)unused;
    enum { PROCESSES = 16, ROUNDS = 8 };
    uint32_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    for (int i = 0; i < ROUNDS; i++) {
        memset(shared, 0, 4096);
        for (int p = 0; p < PROCESSES; p++) {
            pid_t pid = fork();
            assert_true(pid >= 0);
            if (pid == 0)
                open_at_once(shared, PROCESSES);
        }
        for (int p = 0; p < PROCESSES; p++) {
            int status;
            assert_true(wait(&status) > 0);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        assert_int_equal(shared[1], 5);
        assert_int_equal(remove_file(NULL), 0);
    }
    munmap(shared, 4096);
}

/* ---- files that are none ---- */

static void write_file(const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

static size_t read_file(char *bytes, size_t size)
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, bytes, size);
    close(fd);
    assert_true(n >= 0);
    return (size_t)n;
}

/* Opening fails, says why, and leaves the file as it was. */
static void check_refused(const char *bytes, size_t size, const char *why)
{
    static char after[2 * SMALL_BYTES];
    struct cells *table = NULL;
    struct weir_error error;
    write_file(bytes, size);
    assert_int_equal(open_small(&table, &error), WEIR_E_CELLS);
    assert_null(table);
    if (!strstr(error.text, why) || strncmp(error.text, "cells: ", 7) != 0)
        fail_msg("expected \"cells: … %s …\", found: %s", why, error.text);
    assert_int_equal(read_file(after, sizeof after), size);
    assert_memory_equal(after, bytes, size);
}

static void make_good(char *bytes)
{
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S);
    struct cells *table = must_open_small();
    for (uint64_t i = 0; i < 40; i++)
        take(table, key_of(i), &limit, T0_US, 1);
    cells_close(table);
    assert_int_equal(read_file(bytes, SMALL_BYTES), SMALL_BYTES);
}

static void test_foreign_files(void **unused)
{
    (void)unused;
    static char zeros[SMALL_BYTES], text[SMALL_BYTES];
    memset(text, 'a', sizeof text);
    check_refused("", 0, "too short for a cells file (0 bytes)");
    check_refused("rules:\n", 7, "too short for a cells file (7 bytes)");
    check_refused("weircell", 8, "too short for a cells file (8 bytes)");
    check_refused(text, sizeof text, "not a cells file");
    check_refused(zeros, sizeof zeros, "not a cells file");
}

static void test_cut_and_extended_files(void **unused)
{
    (void)unused;
    static char good[SMALL_BYTES + 4096];
    make_good(good);
    check_refused(good, CELLS_HEADER_BYTES - 1, "too short");
    check_refused(good, CELLS_HEADER_BYTES, "has 4096 bytes, but its header says 7168");
    check_refused(good, SMALL_BYTES - 1, "has 7167 bytes, but its header says 7168");
    check_refused(good, SMALL_BYTES - 512, "was cut or added to");
    check_refused(good, SMALL_BYTES + 1, "has 7169 bytes, but its header says 7168");
    check_refused(good, SMALL_BYTES + 512, "was cut or added to");
}

static void test_damaged_headers(void **unused)
{
    (void)unused;
    static char good[SMALL_BYTES], bad[SMALL_BYTES];
    make_good(good);
    for (size_t i = 0; i < offsetof(struct cells_header, checksum) + 8; i++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bad, good, sizeof bad);
            bad[i] ^= (char)(1 << bit);
            check_refused(bad, sizeof bad,
                          i < 8    ? "not a cells file"
                          : i < 16 ? "but this weir supports layout 9"
                                   : "its header is damaged");
        }
    }
    /* Beyond lie counters, and room. */
    for (size_t i = offsetof(struct cells_header, checksum) + 8; i < CELLS_HEADER_BYTES; i += 7) {
        memcpy(bad, good, sizeof bad);
        bad[i] ^= 1;
        write_file(bad, sizeof bad);
        cells_close(must_open_small());
    }
}

static void test_other_layout(void **unused)
{
    (void)unused;
    static _Alignas(struct cells_header) char bytes[SMALL_BYTES];
    make_good(bytes);
    ((struct cells_header *)(void *)bytes)->version = 77;
    check_refused(bytes, sizeof bytes, "a cells file of layout 77, but this weir supports layout 9");
}

/* A file of a version without blocks gets them, and keeps what it counted; also if its maker died before it was done. */
static void test_older_layouts(void **unused)
{
    (void)unused;
    static const uint32_t versions[] = { CELLS_VERSION_NARROW, CELLS_VERSION_WIDE };
    static const size_t sizes[] = { OLDER_BYTES, SMALL_BYTES };
    for (unsigned i = 0; i < 4; i++) {
        static _Alignas(struct cells_header) char bytes[SMALL_BYTES];
        struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 1, 60 * US_PER_S);
        unlink(path);
        make_good(bytes);
        write_file(bytes, sizeof bytes);
        struct cells *table = must_open_small();
        assert_true(take(table, key_of(777), &limit, T0_US, 1));
        cells_close(table);
        assert_int_equal(read_file(bytes, sizeof bytes), sizeof bytes);
        ((struct cells_header *)(void *)bytes)->version = versions[i / 2];
        write_file(bytes, sizes[i % 2]);
        table = must_open_small();
        assert_int_equal(table->header->version, CELLS_VERSION);
        assert_false(take(table, key_of(777), &limit, T0_US, 1));
        cells_close(table);
        assert_int_equal(read_file(bytes, sizeof bytes), SMALL_BYTES);
        cells_close(must_open_small());
    }
}

/* The checksum is right, but no table is like this. */
static void test_impossible_sizes(void **unused)
{
    (void)unused;
    static const uint64_t counts[] = { 0,         1, 3, 5, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_MAX / 512 + 5,
                                       UINT64_MAX };
    static _Alignas(struct cells_header) char bytes[SMALL_BYTES];
    make_good(bytes);
    struct cells_header *h = (struct cells_header *)(void *)bytes;
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct hash hash;
        h->bucket_count = counts[i];
        h->version = CELLS_VERSION_SUMMED;
        hash_init(&hash, &(struct hash_key){ 0, 0 });
        hash_bytes(&hash, h, offsetof(struct cells_header, checksum));
        h->version = CELLS_VERSION;
        h->checksum = hash_final(&hash);
        check_refused(bytes, sizeof bytes, "was cut or added to");
    }
}

/* Any cell may hold anything: no one is harmed, and the file still opens. */
static void test_damaged_cells_open(void **unused)
{
    (void)unused;
    static _Alignas(struct cells_header) char bytes[SMALL_BYTES];
    struct random random = { random_seed() };
    struct limit limit = limit_of(LIMIT_SLIDING_WINDOW, 5, 60 * US_PER_S);
    make_good(bytes);
    for (size_t i = CELLS_HEADER_BYTES; i < sizeof bytes; i++)
        bytes[i] = (char)random_u64(&random);
    write_file(bytes, sizeof bytes);
    struct cells *table = must_open_small();
    for (uint64_t i = 0; i < 1000; i++)
        take(table, key_of(i), &limit, T0_US, 1);
    cells_close(table);
}

/* ---- memory of the caller's ---- */

/* As nginx's: whole pages, zero at first, shared with the children of a fork. */
static char *shared_memory(void)
{
    void *memory = mmap(NULL, 2 * SMALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static struct cells *must_open_at(void *memory, size_t bytes)
{
    struct cells *table = NULL;
    struct weir_error error;
    if (cells_open_at(&table, memory, bytes, &error) < 0)
        fail_msg("%s", error.text);
    return table;
}

static void test_memory_keeps_counts(void **unused)
{
    (void)unused;
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S);
    char *memory = shared_memory();
    memset(memory + SMALL_BYTES, 'x', SMALL_BYTES);
    struct cells *table = must_open_at(memory, SMALL_BYTES);
    struct hash_key secret = *cells_hash_key(table);
    assert_int_equal(cells_stats(table).cells, SMALL_CELLS);
    assert_int_equal(cells_stats(table).bytes, SMALL_CELLS * CELL_BYTES);
    for (uint64_t i = 0; i < 3 * SMALL_CELLS; i++)
        take(table, key_of(i), &limit, T0_US, 1);
    assert_true(take(table, key_of(1000), &limit, T0_US, 3));
    cells_close(table);
    /* It is still there, and what is no whole bucket is left alone. */
    struct cells *again = must_open_at(memory, SMALL_BYTES + 511), *beside = must_open_at(memory, SMALL_BYTES);
    assert_memory_equal(cells_hash_key(again), &secret, sizeof secret);
    assert_int_equal(count_of(state_in(again, key_of(1000), &limit, T0_US)), 3);
    assert_true(take(again, key_of(1000), &limit, T0_US, 1));
    assert_true(take(beside, key_of(1000), &limit, T0_US, 1));
    assert_false(take(again, key_of(1000), &limit, T0_US, 1));
    cells_close(again);
    cells_close(beside);
    for (int i = 0; i < SMALL_BYTES; i++)
        assert_int_equal(memory[SMALL_BYTES + i], 'x');
    munmap(memory, 2 * SMALL_BYTES);
}

static void check_memory(void *memory, size_t bytes, int code, const char *why)
{
    struct cells *table = NULL;
    struct weir_error error;
    assert_int_equal(cells_open_at(&table, memory, bytes, &error), code);
    assert_null(table);
    if (!strstr(error.text, why))
        fail_msg("expected \"%s\", found: %s", why, error.text);
    assert_int_equal(cells_open_at(&table, memory, bytes, NULL), code);
}

static void test_memory_that_will_not_do(void **unused)
{
    (void)unused;
    enum { LEAST = CELLS_HEADER_BYTES + 32 * CELL_BYTES + 4 * 256 };
    static const char blank[2 * SMALL_BYTES];
    char *memory = shared_memory();
    check_memory(memory + 1, SMALL_BYTES, WEIR_E_INVALID, "a multiple of 128");
    check_memory(memory + 64, SMALL_BYTES, WEIR_E_INVALID, "a multiple of 128");
    check_memory(memory, 0, WEIR_E_INVALID, "0 bytes are too few for a table; it needs at least 6144");
    check_memory(memory, LEAST - 1, WEIR_E_INVALID, "6143 bytes are too few");
    assert_memory_equal(memory, blank, sizeof blank);
    cells_close(must_open_at(memory + 128, LEAST));
    memset(memory, 0, 2 * SMALL_BYTES);

    cells_close(must_open_at(memory, SMALL_BYTES));
    check_memory(memory, SMALL_BYTES - 1, WEIR_E_CELLS, "has 6656 bytes, but its header says 7168");
    check_memory(memory, SMALL_BYTES + 512, WEIR_E_CELLS, "has 7680 bytes, but its header says 7168");
    cells_close(must_open_at(memory, SMALL_BYTES));
    memset(memory, 'a', SMALL_BYTES);
    check_memory(memory, SMALL_BYTES, WEIR_E_CELLS, "cells_memory: not a cells file");
    munmap(memory, 2 * SMALL_BYTES);
}

static void test_memory_that_is_damaged(void **unused)
{
    (void)unused;
    struct random random = { random_seed() };
    struct limit limit = limit_of(LIMIT_SLIDING_WINDOW, 5, 60 * US_PER_S);
    char *memory = shared_memory();
    cells_close(must_open_at(memory, SMALL_BYTES));
    for (size_t i = 0; i < offsetof(struct cells_header, checksum) + 8; i++) {
        memory[i] ^= 4;
        check_memory(memory, SMALL_BYTES, WEIR_E_CELLS,
                     i < 8    ? "not a cells file"
                     : i < 16 ? "but this weir supports layout 9"
                              : "its header is damaged");
        memory[i] ^= 4;
    }
    for (size_t i = CELLS_HEADER_BYTES; i < SMALL_BYTES; i++)
        memory[i] = (char)random_u64(&random);
    struct cells *table = must_open_at(memory, SMALL_BYTES);
    for (uint64_t i = 0; i < 1000; i++)
        take(table, key_of(i), &limit, T0_US, 1);
    cells_close(table);
    munmap(memory, 2 * SMALL_BYTES);
}

/* Some go on with what they inherited, the others open it themselves. */
static void test_memory_of_several_processes(void **unused)
{
    (void)unused;
    enum { PROCESSES = 8, TRIES = 100 };
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 250, 60 * US_PER_S);
    char *memory = shared_memory();
    struct cells *table = must_open_at(memory, SMALL_BYTES);
    unsigned passed = 0;
    for (int p = 0; p < PROCESSES; p++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid > 0)
            continue;
        if (p & 1 && cells_open_at(&table, memory, SMALL_BYTES, NULL) < 0)
            _exit(255);
        for (int i = 0; i < TRIES; i++)
            passed += take(table, key_of(1), &limit, T0_US, 1);
        cells_close(table);
        _exit((int)passed);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= TRIES);
        passed += (unsigned)WEXITSTATUS(status);
    }
    assert_int_equal(passed, 250);
    assert_int_equal(count_of(state_in(table, key_of(1), &limit, T0_US)), 250);
    cells_close(table);
    munmap(memory, 2 * SMALL_BYTES);
}

/* ---- paths ---- */

static void check_error(const char *where, int code, const char *why)
{
    struct cells *table = NULL;
    struct weir_error error;
    assert_int_equal(cells_open(&table, where, (struct cells_size){ .keys = 10 }, &error), code);
    assert_null(table);
    if (!strstr(error.text, why) || strncmp(error.text, where, strlen(where)) != 0)
        fail_msg("expected \"%s: … %s\", found: %s", where, why, error.text);
}

static void test_paths(void **unused)
{
    (void)unused;
    char name[400];
    check_error(".", WEIR_E_SYSTEM, "Is a directory");
    check_error("missing/cells", WEIR_E_SYSTEM, "No such file or directory");
    check_error("/dev/null", WEIR_E_CELLS, "not a regular file");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    check_error(name, WEIR_E_SYSTEM, "File name too long");
    assert_int_equal(symlink("nowhere", path), 0);
    check_error(path, WEIR_E_SYSTEM, "No such file or directory");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_error(path, WEIR_E_CELLS, "not a regular file");
}

/* Runs as somebody who may not, also where the tests are run by root. How the child ended: 0 if all was as it should be. */
static int in_child(int (*work)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(work());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int open_forbidden(void)
{
    struct cells *table;
    struct weir_error error;
    if (geteuid() == 0 && setuid(65534) < 0)
        return 1;
    if (open_small(&table, &error) != WEIR_E_SYSTEM)
        return 2;
    return strstr(error.text, "cells: cannot be opened for reading and writing: Permission denied") ? 0 : 3;
}

static void test_unreadable(void **unused)
{
    (void)unused;
    cells_close(must_open_small());
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(in_child(open_forbidden), 0);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(in_child(open_forbidden), 0);
}

/* A disk that is full, as far as this process can tell. */
static int open_without_room(void)
{
    struct rlimit room = { 100000, 100000 };
    struct cells *table;
    struct weir_error error;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &room) < 0)
        return 1;
    if (cells_open(&table, path, (struct cells_size){ .keys = 1000000 }, &error) != WEIR_E_SYSTEM)
        return 2;
    if (!strstr(error.text, "cells: no room for 48004096 bytes") || !strstr(error.text, "File too large"))
        return 3;
    return access(path, F_OK) == 0 ? 4 : 0;
}

static void test_no_room(void **unused)
{
    (void)unused;
    assert_int_equal(in_child(open_without_room), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, remove_file)
    const struct CMUnitTest tests[] = {
        CASE(test_sizes),
        CASE(test_bytes_for_each_key),
        CASE(test_sizes_that_are_too_large),
        CASE(test_file_keeps_counts),
        CASE(test_file_of_default_size),
        CASE(test_two_mappings_count_together),
        CASE(test_secrets_differ),
        CASE(test_many_make_one_file),
        CASE(test_foreign_files),
        CASE(test_cut_and_extended_files),
        CASE(test_damaged_headers),
        CASE(test_other_layout),
        CASE(test_older_layouts),
        CASE(test_impossible_sizes),
        CASE(test_damaged_cells_open),
        CASE(test_memory_keeps_counts),
        CASE(test_memory_that_will_not_do),
        CASE(test_memory_that_is_damaged),
        CASE(test_memory_of_several_processes),
        CASE(test_paths),
        CASE(test_unreadable),
        CASE(test_no_room),
    };
    return cmocka_run_group_tests_name("cells/open", tests, make_folder, remove_folder);
}
