/* Which copy of a table this is: what is recognised as a copy when it is opened, and what is not. Another machine, or
 * another boot, is made by changing what the file says of those where it was last opened. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

enum { SMALL_CELLS = 64, SMALL_BYTES = CELLS_HEADER_BYTES + SMALL_CELLS * CELL_BYTES + 4 * 256 };

static char folder[200];

static int make_folder(void **unused)
{
    (void)unused;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/cells-identity-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **unused)
{
    (void)unused;
    return chdir("/") | rmdir(folder);
}

static int remove_files(void **unused)
{
    (void)unused;
    unlink("a");
    unlink("b");
    unlink("c");
    return 0;
}

/* ---- files ---- */

static struct cells *must_open(const char *path)
{
    struct cells *table = NULL;
    struct weir_error error;
    if (cells_open(&table, path, (struct cells_size){ .bytes = SMALL_CELLS * CELL_BYTES }, &error) < 0)
        fail_msg("%s", error.text);
    return table;
}

static void copy_file(const char *from, const char *to)
{
    char bytes[SMALL_BYTES];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(read(in, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(write(out, bytes, sizeof bytes), sizeof bytes);
    close(in);
    close(out);
}

static word16 word_in(const char *path)
{
    word16 word;
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &word, sizeof word, offsetof(struct cells_header, origin)), sizeof word);
    close(fd);
    return word;
}

static struct origin origin_in(const char *path)
{
    return origin_of(word_in(path));
}

static void write_word(const char *path, word16 word)
{
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &word, sizeof word, offsetof(struct cells_header, origin)), sizeof word);
    close(fd);
}

static void write_origin(const char *path, struct origin origin)
{
    write_word(path, origin_word(&origin));
}

struct seen {
    uint64_t id, host;
    bool copied;
};

static struct seen look(const char *path)
{
    struct cells *table = must_open(path);
    struct seen seen = { cells_identity(table), cells_host(table), cells_copied(table) };
    cells_close(table);
    return seen;
}

/* ---- files that are what they were ---- */

static void test_stays(void **unused)
{
    (void)unused;
    struct seen made = look("a"), again = look("a");
    assert_int_equal(made.id, 0);
    assert_false(made.copied);
    assert_false(again.copied);
    assert_int_equal(again.id, 0);
    assert_int_equal(again.host, made.host);
    struct origin origin = origin_in("a");
    assert_true(origin.boot && origin.inode);
    assert_int_equal(rename("a", "b"), 0);
    assert_int_equal(link("b", "c"), 0);
    assert_int_equal(look("b").host, made.host);
    assert_int_equal(look("c").host, made.host);
    assert_false(look("c").copied);
    assert_int_equal(look("c").id, 0);
    struct origin later = origin_in("c");
    assert_memory_equal(&later, &origin, sizeof origin);
}

/* One that a version of weir made which knew no identities. */
static void test_file_of_before(void **unused)
{
    (void)unused;
    look("a");
    write_word("a", (word16){ 0, 0 });
    struct seen seen = look("a");
    assert_false(seen.copied);
    assert_int_equal(seen.id, 0);
    copy_file("a", "b");
    assert_true(look("b").copied);
}

static void test_reboot(void **unused)
{
    (void)unused;
    struct seen before = look("a");
    struct origin origin = origin_in("a"), booted = origin;
    if (!origin.machine) { /* then it cannot be told from another machine */
        print_message("# /etc/machine-id is missing\n");
        skip();
    }
    booted.boot ^= 1;
    booted.id = 12345;
    write_origin("a", booted);
    struct seen after = look("a");
    assert_false(after.copied);
    assert_int_equal(after.id, 12345);
    assert_int_equal(origin_in("a").boot, origin.boot);
    assert_int_not_equal(after.host, before.host);
}

static void test_memory(void **unused)
{
    (void)unused;
    struct cells *a = table_of_cells(32), *b = table_of_cells(32);
    assert_int_equal(cells_identity(a), 0);
    assert_false(cells_copied(a));
    assert_int_not_equal(cells_host(a), cells_host(b));
    cells_close(a);
    cells_close(b);
}

/* ---- copies ---- */

static void check_copy(const char *path, const struct seen *original)
{
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S);
    struct cells *copy = must_open(path);
    uint64_t id = cells_identity(copy);
    assert_true(cells_copied(copy));
    assert_int_not_equal(id, 0);
    assert_int_not_equal(id, original->id);
    assert_int_not_equal(cells_host(copy), original->host);
    assert_int_equal(count_of(state_in(copy, key_of(1), &limit, T0_US)), 3);
    /* It is said once, and it stays. */
    assert_int_equal(look(path).id, id);
    assert_false(look(path).copied);
    assert_true(cells_copied(copy));
    cells_close(copy);
}

static struct cells *open_charged(const char *path)
{
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S);
    struct cells *table = must_open(path);
    assert_true(take(table, key_of(1), &limit, T0_US, 3));
    return table;
}

static void test_copies(void **unused)
{
    (void)unused;
    struct cells *a = open_charged("a"); /* open all the time */
    struct seen original = { cells_identity(a), cells_host(a), false };
    copy_file("a", "b");
    check_copy("b", &original);
    struct seen b = look("b");
    copy_file("b", "c");
    check_copy("c", &b);
    assert_int_equal(unlink("c"), 0);
    copy_file("a", "c");
    check_copy("c", &b);
    assert_int_equal(cells_identity(a), 0);
    assert_int_equal(cells_host(a), original.host);
    assert_int_equal(look("a").host, original.host);
    assert_false(look("a").copied);
    cells_close(a);
}

/* File systems use the number of a file that was removed for the next one that is made. */
static void test_restored(void **unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        cells_close(open_charged("a"));
        struct seen original = look("a");
        if (!origin_in("a").birth) {
            print_message("# the file system does not know when a file was made\n");
            skip();
        }
        copy_file("a", "b");
        usleep(20000); /* the clock of file systems is a coarse one */
        assert_int_equal(unlink("a"), 0);
        copy_file("b", "a");
        check_copy("a", &original);
        remove_files(NULL);
    }
}

static void test_another_machine(void **unused)
{
    (void)unused;
    cells_close(open_charged("a"));
    struct seen original = look("a");
    struct origin origin = origin_in("a");
    origin.boot ^= 1;
    origin.machine ^= 2; /* known or not: now it is another */
    write_origin("a", origin);
    check_copy("a", &original);
}

/* What is not known says nothing. Each row is what the file says, of what is here: 1 the same, 2 another, 0 not known. */
static void test_evidence(void **unused)
{
    (void)unused;
    static const struct {
        uint32_t boot, machine, inode, birth;
        bool copied;
    } cases[] = {
        { 1, 1, 1, 1, false }, { 1, 2, 1, 1, false }, /* containers of one machine */
        { 1, 0, 1, 1, false }, { 2, 1, 1, 1, false }, /* a reboot */
        { 0, 1, 1, 1, false }, { 0, 0, 1, 1, false }, { 0, 0, 0, 0, false },
        { 0, 2, 1, 1, true },  { 2, 2, 1, 1, true },  { 2, 0, 1, 1, true }, /* who knows where that was */
        { 1, 1, 2, 1, true },  { 1, 1, 1, 2, true },  { 1, 1, 1, 0, false },
        { 1, 1, 2, 0, true },  { 1, 1, 0, 2, true },  { 2, 1, 2, 1, true },
    };
    look("a");
    struct origin here = origin_in("a");
    if (!here.machine || !here.birth) {
        print_message("# /etc/machine-id is missing, or the file system does not know when a file was made\n");
        skip();
    }
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct origin was = { .id = 7,
                              .boot = cases[i].boot == 2 ? here.boot ^ 1
                                      : cases[i].boot    ? here.boot
                                                         : 0,
                              .machine = cases[i].machine == 2 ? here.machine ^ 1
                                         : cases[i].machine    ? here.machine
                                                               : 0,
                              .inode = cases[i].inode == 2 ? here.inode ^ 1
                                       : cases[i].inode    ? here.inode
                                                           : 0,
                              .birth = cases[i].birth == 2 ? here.birth ^ 1
                                       : cases[i].birth    ? here.birth
                                                           : 0 };
        write_origin("a", was);
        struct seen seen = look("a");
        if (seen.copied != cases[i].copied || (seen.id == 7) != !seen.copied)
            fail_msg("case %u: copied %d, identity %llu", i, seen.copied, (unsigned long long)seen.id);
        struct origin now = origin_in("a");
        assert_int_equal(now.boot, here.boot);
        /* The first container on this machine stays: containers differ, and would write their own by turns. */
        assert_int_equal(now.machine, cases[i].machine == 2 && !seen.copied ? was.machine : here.machine);
        assert_int_equal(now.inode, here.inode);
        assert_int_equal(now.birth, here.birth);
        assert_false(look("a").copied);
    }
}

/* Damage, or somebody's idea: any word opens, and is settled by the first who opens. */
static void test_any_word(void **unused)
{
    (void)unused;
    struct random random = { random_seed() };
    look("a");
    for (int i = 0; i < 500 / SLOWER; i++) {
        word16 word = { random_u64(&random), random_u64(&random) };
        write_word("a", i < 2 ? (word16){ i ? UINT64_MAX : 0, UINT64_MAX } : word);
        struct seen first = look("a"), second = look("a");
        assert_false(second.copied);
        assert_int_equal(first.id, second.id);
        assert_int_equal(first.host, second.host);
    }
}

/* ---- many at once ---- */

enum { PROCESSES = 16 };

struct meeting {
    uint32_t ready;
    struct seen seen[PROCESSES];
};

static void open_at_once(struct meeting *m, unsigned number)
{
    __atomic_fetch_add(&m->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&m->ready, __ATOMIC_SEQ_CST) < PROCESSES)
        ;
    struct cells *table;
    if (cells_open(&table, "b", (struct cells_size){ 0 }, NULL) < 0)
        _exit(1);
    m->seen[number] = (struct seen){ cells_identity(table), cells_host(table), cells_copied(table) };
    _exit(0);
}

static void test_many_open_a_copy(void **unused)
{
    (void)unused;
    look("a");
    for (int round = 0; round < 40 / SLOWER + 1; round++) {
        struct meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(m, MAP_FAILED);
        copy_file("a", "b");
        for (unsigned i = 0; i < PROCESSES; i++)
            if (fork() == 0)
                open_at_once(m, i);
        for (int status; wait(&status) > 0;)
            assert_int_equal(status, 0);
        unsigned told = 0;
        for (unsigned i = 0; i < PROCESSES; i++) {
            assert_int_equal(m->seen[i].id, m->seen[0].id);
            assert_int_equal(m->seen[i].host, m->seen[0].host);
            told += m->seen[i].copied;
        }
        assert_int_not_equal(m->seen[0].id, 0);
        assert_int_equal(told, 1);
        munmap(m, sizeof *m);
        unlink("b");
    }
}

/* Killed at any time: the file is as it was, or has its identity, whole. */
static void test_killed_while_opening(void **unused)
{
    (void)unused;
    look("a");
    for (int round = 0; round < 200 / SLOWER; round++) {
        copy_file("a", "b");
        struct origin before = origin_in("b");
        pid_t pid = fork();
        if (pid == 0) {
            for (;;)
                look("b");
        }
        usleep((useconds_t)(round * 7 % 300));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        struct origin after = origin_in("b");
        bool done = after.id != 0;
        if (!done)
            assert_memory_equal(&after, &before, sizeof after);
        struct seen seen = look("b");
        assert_int_equal(seen.copied, !done);
        if (done)
            assert_int_equal(seen.id, after.id);
        unlink("b");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_stays, remove_files),
        cmocka_unit_test_teardown(test_file_of_before, remove_files),
        cmocka_unit_test_teardown(test_reboot, remove_files),
        cmocka_unit_test_teardown(test_memory, remove_files),
        cmocka_unit_test_teardown(test_copies, remove_files),
        cmocka_unit_test_teardown(test_restored, remove_files),
        cmocka_unit_test_teardown(test_another_machine, remove_files),
        cmocka_unit_test_teardown(test_evidence, remove_files),
        cmocka_unit_test_teardown(test_any_word, remove_files),
        cmocka_unit_test_teardown(test_many_open_a_copy, remove_files),
        cmocka_unit_test_teardown(test_killed_while_opening, remove_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
