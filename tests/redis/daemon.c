#include "daemon.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ports.h"

enum { START_MS = 30000, STEP_MS = 2, TRIES = 10, WORDS_MAX = 8 };

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void spawn(struct daemon *d)
{
    fflush(NULL);
    d->pid = fork();
    if (d->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        unsetenv("LD_PRELOAD");
        execvp(d->args[0], (char *const *)d->args);
        _exit(127);
    }
}

static bool ask(const struct daemon *d, const char *const words[WORDS_MAX], char *text, size_t size)
{
    struct talk talk;
    struct reply reply = { 0 };
    bool answered = talk_open(&talk, &d->server);
    if (answered) {
        talk_write(&talk, words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7], NULL);
        answered = talk_read(&talk, &reply);
    }
    if (reply.kind == REPLY_INTEGER)
        snprintf(text, size, ":%lld", (long long)reply.integer);
    else
        snprintf(text, size, "%s%.*s", reply.kind == REPLY_ERROR ? "-" : "", SV_FMT(reply.text));
    talk_close(&talk);
    return answered;
}

/* Another process may have been quicker to take the port: then that one answers. */
static bool is_ready(const struct daemon *d)
{
    static const char *const words[WORDS_MAX] = { "INFO", "server" };
    char mine[32], text[4096];
    snprintf(mine, sizeof mine, "process_id:%d\r", (int)d->pid);
    return ask(d, words, text, sizeof text) && strstr(text, mine);
}

/* False: it has ended. */
static bool start(struct daemon *d)
{
    spawn(d);
    for (int waited_ms = 0; waited_ms < START_MS; waited_ms += STEP_MS) {
        if (is_ready(d))
            return true;
        if (waitpid(d->pid, NULL, WNOHANG) == d->pid)
            return false;
        usleep(STEP_MS * 1000);
    }
    require(false, "redis-server does not start");
    return false;
}

void daemon_again(struct daemon *d)
{
    for (int i = 0; i < TRIES; i++)
        if (start(d))
            return;
    require(false, "redis-server does not start again");
}

static void make_args(struct daemon *d, const char *const *more)
{
    static const char *const usual[] = { "--bind", "127.0.0.1", "--save",    "",  "--appendonly", "no", "--daemonize",
                                         "no",     "--logfile", "/dev/null", NULL };
    size_t n = 0;
    d->args[n++] = "redis-server";
    d->args[n++] = "--port";
    d->args[n++] = d->port;
    d->args[n++] = "--dir";
    d->args[n++] = d->folder;
    for (size_t i = 0; usual[i]; i++)
        d->args[n++] = usual[i];
    if (d->bus_port != 0) {
        d->args[n++] = "--cluster-enabled";
        d->args[n++] = "yes";
        d->args[n++] = "--cluster-port";
        d->args[n++] = d->bus;
    }
    n += redis_server_tls_args(&d->server, d->args + n);
    for (size_t i = 0; more && more[i] && n < DAEMON_ARGS_MAX; i++)
        d->args[n++] = more[i];
}

static void take_port(struct daemon *d)
{
    d->server = (struct redis_server){ .link = -1, .port = free_port(), .tls_port = getenv(SERVERS_TLS) ? free_port() : 0 };
    snprintf(d->port, sizeof d->port, "%u", d->server.port);
}

static void start_in_folder(struct daemon *d, bool is_node, const char *const *more)
{
    *d = (struct daemon){ .folder = "/tmp/weir-redis-XXXXXX" };
    require(mkdtemp(d->folder) != NULL, "no folder for redis-server");
    for (int i = 0; i < TRIES; i++) {
        take_port(d);
        d->bus_port = is_node ? free_port() : 0;
        snprintf(d->bus, sizeof d->bus, "%u", d->bus_port);
        make_args(d, more);
        if (start(d))
            return;
    }
    require(false, "redis-server finds no port");
}

void daemon_start(struct daemon *d, const char *const *more)
{
    start_in_folder(d, false, more);
}

void daemon_start_node(struct daemon *d, const char *const *more)
{
    start_in_folder(d, true, more);
}

/* It fails over when it is told to, and not because a master has stood still for a moment; and it is told once, so it must
 * not give up because the replica or it had to wait for a CPU. */
static void write_config(const struct daemon *d, const char *path, const char *folder, unsigned master_port)
{
    FILE *file = fopen(path, "we");
    require(file != NULL, "no file for the sentinel");
    fprintf(file,
            "port %u\nbind 127.0.0.1\ndir %s\nlogfile /dev/null\nsentinel monitor main 127.0.0.1 %u 1\n"
            "sentinel down-after-milliseconds main 600000\nsentinel failover-timeout main 60000\n",
            d->server.port, folder, master_port);
    require(fclose(file) == 0, "the sentinel's file cannot be written");
}

void daemon_start_sentinel(struct daemon *d, const char *folder, unsigned master_port)
{
    static char path[200];
    *d = (struct daemon){ .args = { "redis-server", path, "--sentinel" } };
    snprintf(path, sizeof path, "%s/sentinel.conf", folder);
    for (int i = 0; i < TRIES; i++) {
        take_port(d);
        write_config(d, path, folder, master_port);
        if (start(d))
            return;
    }
    require(false, "redis-sentinel finds no port");
}

void daemon_kill(struct daemon *d)
{
    if (d->pid > 0) {
        kill(d->pid, SIGKILL);
        waitpid(d->pid, NULL, 0);
    }
    d->pid = 0;
}

void daemon_end(struct daemon *d)
{
    static const char *const names[] = { "dump.rdb", "nodes.conf" }; /* of replicas, and of nodes of a cluster */
    char path[100];
    daemon_kill(d);
    if (d->folder[0] == '\0')
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", d->folder, names[i]);
        unlink(path);
    }
    rmdir(d->folder);
}

void daemon_freeze(struct daemon *d, bool frozen)
{
    int status;
    kill(d->pid, frozen ? SIGSTOP : SIGCONT);
    waitpid(d->pid, &status, frozen ? WUNTRACED : WCONTINUED);
}

const char *daemon_ask(const struct daemon *d, ...)
{
    static char text[4096];
    const char *words[WORDS_MAX] = { NULL };
    size_t n = 0;
    va_list args;
    va_start(args, d);
    while (n < WORDS_MAX && (words[n] = va_arg(args, const char *)))
        n++;
    va_end(args);
    require(ask(d, words, text, sizeof text), "the server does not answer");
    return text;
}
