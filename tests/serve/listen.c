/* Listening sockets: addresses, ports that are taken, files of unix sockets, and what a service manager hands over. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../ports.h"
#include "base/err.h"
#include "serve/listen.h"

enum { FDS = 3 };

static char folder[] = "/tmp/weir-listen-XXXXXX";

struct opened {
    int fds[FDS];
    unsigned count;
    char where[LISTEN_WHERE_MAX];
};

static struct opened opened(const char *address, unsigned count)
{
    struct opened o = { .fds = { -1, -1, -1 }, .count = count };
    struct weir_error error = { 0 };
    if (listen_open("http", address, count, o.fds, o.where, &error) < 0)
        fail_msg("%s: %s", address, error.text);
    return o;
}

static void close_fds(struct opened *o)
{
    for (unsigned i = 0; i < o->count; i++)
        close(o->fds[i]);
}

static void is_refused(const char *address, unsigned count, const char *why)
{
    int fds[FDS] = { -1, -1, -1 };
    char where[LISTEN_WHERE_MAX] = "as it was";
    struct weir_error error = { 0 };
    if (listen_open("http", address, count, fds, where, &error) == 0)
        fail_msg("%s is taken", address);
    if (!strstr(error.text, why))
        fail_msg("%s: no \"%s\" in: %s", address, why, error.text);
    assert_string_equal(where, "as it was");
}

static int connected(const char *where)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET };
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    bool local = strncmp(where, "unix:", 5) == 0;
    const char *colon = strrchr(where, ':');
    if (local) {
        memcpy(un.sun_path, where + 5, strlen(where + 5) + 1);
    } else {
        v4.sin_port = htons((uint16_t)atoi(colon + 1));
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr *address = local ? (struct sockaddr *)&un : (struct sockaddr *)&v4;
    if (connect(fd, address, local ? sizeof un : sizeof v4) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int flag_of(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const right[] = { "127.0.0.1:80", "0.0.0.0:0",   "[::1]:65535", "[::]:1", "localhost:8080",
                                         "*:8080",       "unix:/run/x", "unix:x",      "off",    "[fe80::1%lo]:8080" };
    static const char *const wrong[] = { "",          ":8080",         "8080",        "127.0.0.1", "127.0.0.1:",
                                         "1.2.3.4:x", "1.2.3.4:65536", "1.2.3.4:-1",  "::1:80",    "[::1]",
                                         "[::1:80",   "[1.2.3.4]:80",  "example:80",  "unix:",     "OFF",
                                         "[]:80",     "1.2.3:80 ",     "127.0.0.1:+1" };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (!listen_is_address(right[i]))
            fail_msg("%s", right[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (listen_is_address(wrong[i]))
            fail_msg("%s", wrong[i]);
    char path[200] = "unix:/";
    memset(path + 6, 'x', 102 + 1);
    assert_true(listen_is_address(path) == (strlen(path) - 5 < sizeof(((struct sockaddr_un *)0)->sun_path)));
    memset(path + 6, 'x', 150);
    assert_false(listen_is_address(path));
    is_refused("example:80", 1, "--http: 'example:80' is not allowed here; allowed: HOST:PORT");
}

static void test_off(void **state)
{
    (void)state;
    struct opened o = opened("off", 2);
    assert_string_equal(o.where, "off");
    assert_int_equal(o.fds[0], -1);
    listen_close("http", o.where);
}

/* All of them get connections, on one port, and no other process does. */
static void test_port_of_its_own_choice(void **state)
{
    (void)state;
    for (unsigned count = 1; count <= FDS; count++) {
        struct opened o = opened("localhost:0", count);
        assert_ptr_equal(strstr(o.where, "127.0.0.1:"), o.where);
        assert_int_not_equal(atoi(o.where + 10), 0);
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(flag_of(o.fds[i], SOL_SOCKET, SO_ACCEPTCONN), 1);
            assert_int_equal(flag_of(o.fds[i], IPPROTO_TCP, TCP_NODELAY), 1);
            assert_true(fcntl(o.fds[i], F_GETFL) & O_NONBLOCK);
            assert_true(fcntl(o.fds[i], F_GETFD) & FD_CLOEXEC);
            struct sockaddr_in at;
            socklen_t len = sizeof at;
            assert_int_equal(getsockname(o.fds[i], (struct sockaddr *)&at, &len), 0);
            assert_int_equal(ntohs(at.sin_port), atoi(o.where + 10));
        }
        int client = connected(o.where);
        assert_true(client >= 0);
        close(client);
        close_fds(&o);
    }
}

/* Also where the other one shares its port, as another weir does. */
static void test_port_in_use(void **state)
{
    (void)state;
    for (unsigned first = 1; first <= 2; first++)
        for (unsigned second = 1; second <= 2; second++) {
            char place[40], expected[400];
            snprintf(place, sizeof place, "127.0.0.1:%u", free_port());
            struct opened o = opened(place, first);
            snprintf(expected, sizeof expected, "%s is in use; choose another address with --http", o.where);
            is_refused(o.where, second, expected);
            close_fds(&o);
            struct opened again = opened(o.where, second);
            assert_string_equal(again.where, o.where);
            close_fds(&again);
        }
}

static void test_not_of_this_host(void **state)
{
    (void)state;
    is_refused("192.0.2.1:80", 2, "192.0.2.1:80 is not an address of this host; choose another one with --http");
}

/* IPv4 and IPv6 alike, where there is IPv6. */
static void test_every_address(void **state)
{
    (void)state;
    struct opened o = opened("*:0", 2);
    int client = connected(o.where);
    assert_true(client >= 0);
    close(client);
    close_fds(&o);
}

static void place(char out[LISTEN_WHERE_MAX], const char *name)
{
    snprintf(out, LISTEN_WHERE_MAX, "unix:%s/%s", folder, name);
}

static void test_unix(void **state)
{
    (void)state;
    char where[LISTEN_WHERE_MAX], expected[400];
    struct stat st;
    place(where, "a");
    mode_t mask = umask(0077);
    struct opened o = opened(where, 2);
    umask(mask);
    assert_string_equal(o.where, where);
    assert_int_equal(stat(where + 5, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    int client = connected(where);
    assert_true(client >= 0);
    close(client);

    snprintf(expected, sizeof expected, "%s is in use; choose another address with --http", where);
    is_refused(where, 1, expected);
    client = connected(where);
    assert_true(client >= 0);
    close(client);
    listen_close("http", where);
    close_fds(&o);
    assert_int_equal(stat(where + 5, &st), -1);
}

static void test_stale_unix(void **state)
{
    (void)state;
    char where[LISTEN_WHERE_MAX];
    place(where, "stale");
    struct opened o = opened(where, 1);
    close_fds(&o);
    o = opened(where, 1);
    listen_close("http", where);
    close_fds(&o);
}

static void test_unix_files_that_are_none(void **state)
{
    (void)state;
    char where[LISTEN_WHERE_MAX];
    place(where, "file");
    int fd = open(where + 5, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    is_refused(where, 1, "is a file that is not a socket, and weir leaves it as it is; choose another path with --http");
    assert_int_equal(unlink(where + 5), 0);
    place(where, "none/socket");
    is_refused(where, 1, "No such file or directory");
}

/* ---- socket activation ---- */

/* Descriptors from 3 on are another's while a test runs, hence a child for each case. Exit status 0: as expected. */
static void in_child(void (*body)(int listener, const char *where))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char own[20];
        struct opened o = opened("127.0.0.1:0", 1);
        int high = fcntl(o.fds[0], F_DUPFD_CLOEXEC, 100);
        snprintf(own, sizeof own, "%d", (int)getpid());
        setenv("LISTEN_PID", own, 1);
        body(high, o.where);
        _exit(0);
    }
    int status = -1;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
}

static void hand_over(const char *names, int *fds, size_t count)
{
    char number[20];
    for (size_t i = 0; i < count; i++)
        if (dup2(fds[i], 3 + (int)i) < 0)
            _exit(10);
    snprintf(number, sizeof number, "%zu", count);
    setenv("LISTEN_FDS", number, 1);
    setenv("LISTEN_FDNAMES", names, 1);
}

/* Leaves the child with `status` unless it holds; cmocka's own ways out belong to the parent. */
static void hold(bool holds, int status)
{
    if (!holds)
        _exit(status);
}

static void takes_over(int listener, const char *where)
{
    int fds[FDS];
    char now[LISTEN_WHERE_MAX];
    struct weir_error error;
    hand_over("resp:http", (int[]){ listener, listener }, 2);
    hold(listen_open("http", "off", FDS, fds, now, &error) == 0, 11);
    hold(strcmp(now, where) == 0, 12);
    hold(fds[0] == 4 && fds[1] > 4 && fds[2] > 4, 13);
    for (int i = 0; i < FDS; i++)
        hold((fcntl(fds[i], F_GETFL) & O_NONBLOCK) && (fcntl(fds[i], F_GETFD) & FD_CLOEXEC), 14);
    hold(listen_open("admin", "off", 1, fds, now, &error) == 0 && strcmp(now, "off") == 0, 15);
}

static void knows_the_names(int listener, const char *where)
{
    int fds[FDS];
    char now[LISTEN_WHERE_MAX];
    struct weir_error error;
    (void)where;
    hand_over("http:web", (int[]){ listener, listener }, 2);
    hold(listen_open("http", "off", 1, fds, now, &error) < 0, 11);
    hold(strstr(error.text, "a socket named 'web'; allowed: http, resp, grpc, admin") != NULL, 12);
    hand_over("http:http", (int[]){ listener, listener }, 2);
    hold(listen_open("http", "off", 1, fds, now, &error) < 0, 13);
    hold(strstr(error.text, "two sockets named http") != NULL, 14);
}

static void wants_a_listener(int listener, const char *where)
{
    int fds[FDS], pair[2];
    char now[LISTEN_WHERE_MAX];
    struct weir_error error;
    (void)listener, (void)where;
    hold(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, 11);
    hand_over("http", pair, 1);
    hold(listen_open("http", "off", 1, fds, now, &error) < 0, 12);
    hold(strstr(error.text, "not a listening stream socket") != NULL, 13);
}

/* What the service manager made, it removes. */
static void leaves_the_file(int listener, const char *where)
{
    int fds[FDS], made;
    char place_now[LISTEN_WHERE_MAX], now[LISTEN_WHERE_MAX];
    struct weir_error error;
    (void)listener, (void)where;
    place(place_now, "handed");
    hold(listen_open("resp", place_now, 1, &made, now, &error) == 0, 11);
    made = fcntl(made, F_DUPFD_CLOEXEC, 100);
    hand_over("resp", &made, 1);
    hold(listen_open("resp", "off", 1, fds, now, &error) == 0 && strcmp(now, place_now) == 0, 12);
    listen_close("resp", now);
    hold(access(now + 5, F_OK) == 0, 13);
    listen_close("http", now);
    hold(access(now + 5, F_OK) < 0, 14);
}

static void test_handed_over(void **state)
{
    (void)state;
    in_child(takes_over);
    in_child(knows_the_names);
    in_child(wants_a_listener);
    in_child(leaves_the_file);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_port_of_its_own_choice),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_not_of_this_host),
        cmocka_unit_test(test_every_address),
        cmocka_unit_test(test_unix),
        cmocka_unit_test(test_stale_unix),
        cmocka_unit_test(test_unix_files_that_are_none),
        cmocka_unit_test(test_handed_over),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
