#include "servers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ports.h"

enum { START_MS = 60000, STOP_MS = 10000, STEP_MS = 20, ARGS_MAX = 40, TAIL_MAX = 4000, PORT_TRIES = 3 };

/* What the test asks of the process that looks after the server, a port behind DO_PORT; it answers with one byte. */
enum { DO_PORT = 'p', DO_START = 's', DO_KILL = 'k', DO_FREEZE = 'f', DO_THAW = 't', DONE = '+', FAILED = '-' };

struct server {
    enum source_kind kind;
    char folder[100];
    unsigned port;
    int link;
    pid_t keeper;
    char address[512], tcp_address[512], other_address[512];
};

static bool postgres_program(const char *name, char path[PATH_MAX])
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "/usr/lib/postgresql/*/bin/%s", name);
    bool there = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0;
    if (there)
        snprintf(path, PATH_MAX, "%s", found.gl_pathv[found.gl_pathc - 1]);
    globfree(&found);
    return there;
}

const char *server_missing(enum source_kind kind)
{
    char path[PATH_MAX];
    if (kind == SOURCE_POSTGRES)
        return postgres_program("initdb", path) && postgres_program("postgres", path) ? NULL : "postgresql";
    if (kind == SOURCE_MYSQL)
        return access("/usr/sbin/mariadbd", X_OK) == 0 && access("/usr/bin/mariadb-install-db", X_OK) == 0
                   ? NULL
                   : "mariadb-server";
    return NULL;
}

/* ---- the process that looks after a server ---- */

struct keeper {
    enum source_kind kind;
    const char *folder;
    unsigned port;
    pid_t pid; /* of the server; 0: it is not running */
};

struct args {
    char *list[ARGS_MAX + 1];
    int count;
};

__attribute__((format(printf, 2, 3))) static void arg(struct args *args, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    if (args->count == ARGS_MAX || vasprintf(&args->list[args->count++], format, values) < 0)
        _exit(2);
    va_end(values);
}

static void args_done(struct args *args)
{
    for (int i = 0; i < args->count; i++)
        free(args->list[i]);
}

/* Servers refuse to be root. */
static const struct passwd *servant(void)
{
    return geteuid() == 0 ? getpwnam("nobody") : NULL;
}

static pid_t spawn(const struct keeper *k, struct args *args)
{
    const struct passwd *user = servant();
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/log", k->folder);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC), out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || chdir(k->folder) < 0)
        _exit(126);
    if (user && (setgroups(0, NULL) < 0 || setgid(user->pw_gid) < 0 || setuid(user->pw_uid) < 0))
        _exit(126);
    /* SIGQUIT makes PostgreSQL go at once, and still remove its shared memory. */
    prctl(PR_SET_PDEATHSIG, k->kind == SOURCE_POSTGRES ? SIGQUIT : SIGKILL);
    unsetenv("LD_PRELOAD");
    execv(args->list[0], args->list);
    _exit(127);
}

static void nap(void)
{
    usleep(STEP_MS * 1000);
}

/* true: it has ended within that time. */
static bool reap(pid_t pid, int timeout_ms, int *ret_status)
{
    for (int waited_ms = 0; waited_ms < timeout_ms; waited_ms += STEP_MS) {
        if (waitpid(pid, ret_status, WNOHANG) == pid)
            return true;
        nap();
    }
    return false;
}

static bool run_program(const struct keeper *k, struct args *args)
{
    int status = 0;
    pid_t pid = spawn(k, args);
    args_done(args);
    if (pid < 0)
        return false;
    if (!reap(pid, START_MS, &status)) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return false;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool write_file(const struct keeper *k, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", k->folder, name);
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    bool written = fputs(text, file) >= 0;
    return fclose(file) == 0 && written;
}

static bool init_postgres(const struct keeper *k)
{
    struct args args = { 0 };
    char program[PATH_MAX];
    if (!write_file(k, "password", SERVER_PASSWORD "\n") || !postgres_program("initdb", program))
        return false;
    arg(&args, "%s", program);
    arg(&args, "--pgdata=%s/data", k->folder);
    arg(&args, "--username=%s", SERVER_USER);
    arg(&args, "--pwfile=%s/password", k->folder);
    arg(&args, "--auth=scram-sha-256");
    arg(&args, "--encoding=UTF8");
    arg(&args, "--locale=C");
    arg(&args, "--no-sync");
    return run_program(k, &args);
}

static pid_t spawn_postgres(const struct keeper *k)
{
    struct args args = { 0 };
    char program[PATH_MAX];
    if (!postgres_program("postgres", program))
        return -1;
    arg(&args, "%s", program);
    arg(&args, "-D%s/data", k->folder);
    arg(&args, "-cport=%u", k->port);
    arg(&args, "-clisten_addresses=127.0.0.1");
    arg(&args, "-cunix_socket_directories=%s", k->folder);
    arg(&args, "-cfsync=off");
    arg(&args, "-cshared_buffers=8MB");
    arg(&args, "-cmax_connections=30");
    arg(&args, "-cdynamic_shared_memory_type=mmap");
    pid_t pid = spawn(k, &args);
    args_done(&args);
    return pid;
}

static void mariadb_args(const struct keeper *k, struct args *args)
{
    arg(args, "--no-defaults");
    arg(args, "--datadir=%s/data", k->folder);
    arg(args, "--tmpdir=%s", k->folder);
    arg(args, "--innodb-buffer-pool-size=16M");
    arg(args, "--innodb-log-file-size=4M");
    arg(args, "--innodb-use-native-aio=0");
    /* Tests kill the server, not the machine: nothing needs to be on disk. */
    arg(args, "--innodb-flush-log-at-trx-commit=2");
    arg(args, "--innodb-flush-method=nosync");
    arg(args, "--innodb-doublewrite=0");
    arg(args, "--skip-name-resolve");
}

static bool init_mariadb(const struct keeper *k)
{
    struct args args = { 0 };
    arg(&args, "/usr/bin/mariadb-install-db");
    mariadb_args(k, &args);
    arg(&args, "--auth-root-authentication-method=normal");
    arg(&args, "--skip-test-db");
    return run_program(k, &args);
}

/* For --init-file: MariaDB runs it at each start. */
static bool write_init_sql(const struct keeper *k)
{
    static const char sql[] =
        "CREATE DATABASE IF NOT EXISTS weir CHARACTER SET utf8mb4;\n"
        "CREATE USER IF NOT EXISTS '" SERVER_USER "'@'localhost' IDENTIFIED BY '" SERVER_PASSWORD "';\n"
        "CREATE USER IF NOT EXISTS '" SERVER_USER "'@'127.0.0.1' IDENTIFIED BY '" SERVER_PASSWORD "';\n"
        "GRANT ALL ON *.* TO '" SERVER_USER "'@'localhost' WITH GRANT OPTION;\n"
        "GRANT ALL ON *.* TO '" SERVER_USER "'@'127.0.0.1';\n";
    return write_file(k, "init.sql", sql);
}

static pid_t spawn_mariadb(const struct keeper *k)
{
    struct args args = { 0 };
    arg(&args, "/usr/sbin/mariadbd");
    mariadb_args(k, &args);
    arg(&args, "--socket=%s/socket", k->folder);
    arg(&args, "--port=%u", k->port);
    arg(&args, "--bind-address=127.0.0.1");
    arg(&args, "--pid-file=%s/pid", k->folder);
    arg(&args, "--init-file=%s/init.sql", k->folder);
    const char *tls =
        getenv("WEIR_TEST_DATABASE_TLS"); /* a folder with a certificate and its key; PostgreSQL is told by SQL */
    if (tls) {
        arg(&args, "--ssl-cert=%s/server.pem", tls);
        arg(&args, "--ssl-key=%s/server.key", tls);
    }
    pid_t pid = spawn(k, &args);
    args_done(&args);
    return pid;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    remove(path);
    return 0;
}

static void remove_folder(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* With the owners of its files. */
static bool copy_folder(const char *from, const char *to)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/cp", "cp", "-a", "--reflink=auto", from, to, NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* Younger than this program and the server's, either of which may make other data. */
static bool is_current(const struct keeper *k, const char *kept)
{
    char server[PATH_MAX] = "/usr/sbin/mariadbd";
    struct stat data, others[2];
    if (k->kind == SOURCE_POSTGRES && !postgres_program("postgres", server))
        return false;
    return access(kept, R_OK | X_OK) == 0 && stat(kept, &data) == 0 && stat("/proc/self/exe", &others[0]) == 0 &&
           stat(server, &others[1]) == 0 && data.st_ctime > others[0].st_ctime && data.st_ctime > others[1].st_ctime;
}

static bool keep_data(const char *data, const char *kept)
{
    char unfinished[PATH_MAX];
    snprintf(unfinished, sizeof unfinished, "%s.new", kept);
    remove_folder(unfinished);
    remove_folder(kept);
    return copy_folder(data, unfinished) && rename(unfinished, kept) == 0;
}

/* Making the data takes longer than most tests: the first makes it, and keeps a copy in the build folder for the others. */
static bool make_data(const struct keeper *k)
{
    bool postgres = k->kind == SOURCE_POSTGRES, made;
    const char *kept = postgres ? SERVERS_DATA "/postgres.data" : SERVERS_DATA "/mysql.data";
    const char *lock_path = postgres ? SERVERS_DATA "/postgres.lock" : SERVERS_DATA "/mysql.lock";
    char data[PATH_MAX];
    snprintf(data, sizeof data, "%s/data", k->folder);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    bool locked = lock >= 0 && flock(lock, LOCK_EX) == 0;
    if (locked && is_current(k, kept)) {
        made = copy_folder(kept, data);
    } else {
        made = postgres ? init_postgres(k) : init_mariadb(k);
        if (made && locked && !keep_data(data, kept))
            fprintf(stderr, "%s: cannot keep the data of a new server here\n", kept);
    }
    if (lock >= 0)
        close(lock);
    return made && (postgres || write_init_sql(k));
}

/* PostgreSQL says so in a file; MariaDB opens its socket last. */
static bool ready(const struct keeper *k)
{
    char path[PATH_MAX], text[1000], pid[32];
    struct sockaddr_un place = { .sun_family = AF_UNIX };
    if (k->kind == SOURCE_POSTGRES) {
        snprintf(path, sizeof path, "%s/data/postmaster.pid", k->folder);
        snprintf(pid, sizeof pid, "%d\n", (int)k->pid);
        FILE *file = fopen(path, "re");
        size_t len = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[len] = '\0';
        if (file)
            fclose(file);
        return strncmp(text, pid, strlen(pid)) == 0 && strstr(text, "\nready");
    }
    snprintf(place.sun_path, sizeof place.sun_path, "%s/socket", k->folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool there = connect(fd, (struct sockaddr *)&place, sizeof place) == 0;
    close(fd);
    return there;
}

static bool start(struct keeper *k)
{
    char socket_path[PATH_MAX];
    snprintf(socket_path, sizeof socket_path, "%s/socket", k->folder);
    unlink(socket_path);
    k->pid = k->kind == SOURCE_POSTGRES ? spawn_postgres(k) : spawn_mariadb(k);
    for (int waited_ms = 0; k->pid > 0 && waited_ms < START_MS; waited_ms += STEP_MS) {
        if (ready(k))
            return true;
        if (waitpid(k->pid, NULL, WNOHANG) == k->pid)
            break;
        nap();
    }
    k->pid = 0;
    return false;
}

/* PostgreSQL has a process for each connection. */
static bool freeze(const struct keeper *k, int signal)
{
    char path[64];
    int child;
    if (k->pid <= 0 || kill(k->pid, signal) < 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)k->pid, (int)k->pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fscanf(file, "%d", &child) == 1)
        kill(child, signal);
    fclose(file);
    return true;
}

static void end(struct keeper *k, int signal)
{
    if (k->pid <= 0)
        return;
    freeze(k, SIGCONT);
    kill(k->pid, signal);
    if (!reap(k->pid, STOP_MS, NULL)) {
        kill(k->pid, SIGKILL);
        waitpid(k->pid, NULL, 0);
    }
    k->pid = 0;
}

static void show_log(const struct keeper *k)
{
    char path[PATH_MAX], text[TAIL_MAX];
    snprintf(path, sizeof path, "%s/log", k->folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, text, sizeof text, size > TAIL_MAX ? size - TAIL_MAX : 0);
    fprintf(stderr, "the server does not start; what it said last:\n%.*s\n", n > 0 ? (int)n : 0, text);
    close(fd);
}

static bool obey(struct keeper *k, char command, int fd)
{
    bool frozen = command == DO_FREEZE;
    switch (command) {
    case DO_PORT:
        return read(fd, &k->port, sizeof k->port) == sizeof k->port;
    case DO_KILL:
        end(k, SIGKILL);
        return true;
    case DO_START:
        if (start(k))
            return true;
        show_log(k);
        return false;
    case DO_FREEZE:
    case DO_THAW:
        return freeze(k, frozen ? SIGSTOP : SIGCONT);
    }
    return false;
}

__attribute__((noreturn)) static void keep(struct keeper *k, int fd)
{
    char command, answer;
    bool good = make_data(k);
    if (!good)
        show_log(k);
    answer = good ? DONE : FAILED;
    if (write(fd, &answer, 1) == 1)
        while (read(fd, &command, 1) == 1) {
            answer = obey(k, command, fd) ? DONE : FAILED;
            if (write(fd, &answer, 1) != 1)
                break;
        }
    end(k, k->kind == SOURCE_POSTGRES ? SIGQUIT : SIGKILL);
    remove_folder(k->folder);
    _exit(0);
}

/* ---- the side of the test ---- */

static bool ask(struct server *s, char command)
{
    char answer = FAILED;
    if (command && send(s->link, &command, 1, MSG_NOSIGNAL) != 1)
        return false;
    while (read(s->link, &answer, 1) < 0 && errno == EINTR)
        continue;
    return answer == DONE;
}

/* Not below a long $TMPDIR: the path of a socket has at most 107 bytes. */
static bool make_folder(struct server *s)
{
    const char *tmp = getenv("TMPDIR");
    const struct passwd *user = servant();
    snprintf(s->folder, sizeof s->folder, "%s/weir-server-XXXXXX", tmp && *tmp && strlen(tmp) < 50 ? tmp : "/tmp");
    return mkdtemp(s->folder) && (!user || chown(s->folder, user->pw_uid, user->pw_gid) == 0);
}

/* Through the socket: of PostgreSQL its folder and the port, of MariaDB its path. */
static void write_address(const struct server *s, char address[512], const char *password)
{
    char folder[310] = "", port[16] = "";
    size_t len = 0;
    bool postgres = s->kind == SOURCE_POSTGRES;
    for (const char *c = s->folder; *c && len + 4 < sizeof folder; c++)
        len += (size_t)snprintf(folder + len, sizeof folder - len, *c == '/' ? "%%2F" : "%c", *c);
    if (postgres)
        snprintf(port, sizeof port, ":%u", s->port);
    snprintf(address, 512, "%s://%s%s%s@%s%s/%s", postgres ? "postgres" : "mysql", SERVER_USER, password ? ":" : "",
             password ? password : "", folder, postgres ? port : "%2Fsocket", postgres ? "postgres" : "weir");
}

static bool make_keeper(struct server *s)
{
    int links[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, links) < 0)
        return false;
    fflush(NULL);
    s->keeper = fork();
    if (s->keeper == 0) {
        struct keeper k = { .kind = s->kind, .folder = s->folder };
        /* Away from the terminal and the test's pipes; the links of other servers are not ours to hold open. */
        setsid();
        dup2(2, 1);
        dup2(links[1], 3);
        close_range(4, UINT_MAX, 0);
        fcntl(3, F_SETFD, FD_CLOEXEC);
        signal(SIGPIPE, SIG_IGN);
        keep(&k, 3);
    }
    close(links[1]);
    s->link = links[0];
    return s->keeper > 0;
}

/* On a port that was free just before. Somebody else may have been quicker: then there are others. */
static bool start_somewhere(struct server *s)
{
    for (int i = 0; i < PORT_TRIES; i++) {
        s->port = free_port();
        char message[1 + sizeof s->port] = { DO_PORT };
        memcpy(message + 1, &s->port, sizeof s->port);
        if (s->port == 0 || send(s->link, message, sizeof message, MSG_NOSIGNAL) != sizeof message || !ask(s, 0))
            return false;
        if (ask(s, DO_START))
            return true;
    }
    return false;
}

struct server *server_start(enum source_kind kind)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->kind = kind;
    s->link = -1;
    if (!make_folder(s) || !make_keeper(s) || !ask(s, 0) || !start_somewhere(s)) {
        server_stop(s);
        return NULL;
    }
    write_address(s, s->address, SERVER_PASSWORD_ENCODED);
    bool postgres = kind == SOURCE_POSTGRES;
    snprintf(s->tcp_address, sizeof s->tcp_address, "%s://%s:%s@127.0.0.1:%u/%s", postgres ? "postgres" : "mysql",
             SERVER_USER, SERVER_PASSWORD_ENCODED, s->port, postgres ? "postgres" : "weir");
    return s;
}

void server_stop(struct server *s)
{
    if (!s)
        return;
    if (s->link >= 0)
        close(s->link);
    if (s->keeper > 0)
        waitpid(s->keeper, NULL, 0);
    else if (s->folder[0])
        rmdir(s->folder);
    free(s);
}

const char *server_address(const struct server *s)
{
    return s->address;
}

const char *server_tcp_address(const struct server *s)
{
    return s->tcp_address;
}

const char *server_address_with(struct server *s, const char *password)
{
    write_address(s, s->other_address, password);
    return s->other_address;
}

unsigned server_port(const struct server *s)
{
    return s->port;
}

bool server_kill(struct server *s)
{
    return ask(s, DO_KILL);
}

bool server_restart(struct server *s)
{
    return ask(s, DO_START);
}

bool server_freeze(struct server *s, bool frozen)
{
    return ask(s, frozen ? DO_FREEZE : DO_THAW);
}
