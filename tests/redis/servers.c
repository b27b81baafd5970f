#include "servers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ports.h"
#include "redis/script.h"

enum { START_MS = 30000, STEP_MS = 5, IN_MAX = 64 << 20 };

size_t redis_server_tls_args(struct redis_server *server, const char *args[SERVER_TLS_ARGS])
{
    static const char *const options[] = { "--tls-ca-cert-file", "--tls-cert-file", "--tls-key-file" };
    static const char *const names[] = { "ca.pem", "server.pem", "server.key" };
    char(*texts)[sizeof *server->tls_texts] = server->tls_texts;
    size_t n = 0;
    if (server->tls_port == 0)
        return 0;
    snprintf(texts[3], sizeof *texts, "%u", server->tls_port);
    args[n++] = "--tls-port";
    args[n++] = texts[3];
    args[n++] = "--tls-auth-clients";
    args[n++] = "no";
    for (size_t i = 0; i < 3; i++) {
        snprintf(texts[i], sizeof *texts, "%s/%s", getenv(SERVERS_TLS), names[i]);
        args[n++] = options[i];
        args[n++] = texts[i];
    }
    return n;
}

const char *redis_server_address(const struct redis_server *server, char ret[SERVER_ADDRESS_MAX], const char *more)
{
    if (server->tls_port == 0)
        snprintf(ret, SERVER_ADDRESS_MAX, "redis://127.0.0.1:%u%s", server->port, more);
    else
        snprintf(ret, SERVER_ADDRESS_MAX, "rediss://127.0.0.1:%u%s%cca=%s/ca.pem", server->tls_port, more,
                 strchr(more, '?') ? '&' : '?', getenv(SERVERS_TLS));
    return ret;
}

static pid_t spawn(const char *folder, struct redis_server *server)
{
    char number[16];
    const char *args[20 + SERVER_TLS_ARGS] = { "redis-server", "--port",      number,   "--bind",    "127.0.0.1",
                                               "--dir",        folder,        "--save", "",          "--appendonly",
                                               "no",           "--daemonize", "no",     "--logfile", "/dev/null" };
    snprintf(number, sizeof number, "%u", server->port);
    redis_server_tls_args(server, args + 15);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("LD_PRELOAD");
    execvp(args[0], (char *const *)args);
    _exit(127);
}

/* Ends with the test, which has the other end of `link`. */
__attribute__((noreturn)) static void keep(const char *folder, struct redis_server *server, int link)
{
    char byte;
    pid_t pid = spawn(folder, server);
    while (read(link, &byte, 1) < 0 && errno == EINTR)
        continue;
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    rmdir(folder);
    _exit(0);
}

int redis_server_connect(const struct redis_server *server)
{
    struct sockaddr_in place = { .sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)server->port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&place, sizeof place) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool wait_until_ready(const struct redis_server *server)
{
    for (int waited_ms = 0; waited_ms < START_MS; waited_ms += STEP_MS) {
        struct talk talk;
        struct reply reply;
        if (talk_open(&talk, server)) {
            talk_write(&talk, "PING", NULL);
            bool ready = talk_read(&talk, &reply) && reply.kind == REPLY_STATUS;
            talk_close(&talk);
            if (ready)
                return true;
        }
        usleep(STEP_MS * 1000);
    }
    return false;
}

bool redis_server_start(struct redis_server *server)
{
    int links[2];
    char folder[] = "/tmp/weir-redis-XXXXXX";
    *server = (struct redis_server){ .link = -1, .port = free_port(), .tls_port = getenv(SERVERS_TLS) ? free_port() : 0 };
    if (server->port == 0 || !mkdtemp(folder))
        return false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, links) < 0)
        return false;
    fflush(NULL);
    server->keeper = fork();
    if (server->keeper == 0) {
        /* Away from the terminal and from the test's pipes. */
        setsid();
        dup2(links[1], 3);
        close_range(4, UINT_MAX, 0);
        fcntl(3, F_SETFD, FD_CLOEXEC);
        dup2(2, 1);
        keep(folder, server, 3);
    }
    close(links[1]);
    server->link = links[0];
    return server->keeper > 0 && wait_until_ready(server);
}

void redis_server_stop(struct redis_server *server)
{
    if (server->link >= 0)
        close(server->link);
    if (server->keeper > 0)
        waitpid(server->keeper, NULL, 0);
}

/* ---- talking ---- */

bool talk_open(struct talk *talk, const struct redis_server *server)
{
    *talk = (struct talk){ .fd = redis_server_connect(server) };
    buf_init(&talk->out, IN_MAX);
    buf_init(&talk->in, IN_MAX);
    return talk->fd >= 0;
}

void talk_close(struct talk *talk)
{
    if (talk->fd >= 0)
        close(talk->fd);
    buf_done(&talk->out);
    buf_done(&talk->in);
}

void talk_write(struct talk *talk, ...)
{
    va_list words;
    int count = 0;
    va_start(words, talk);
    while (va_arg(words, const char *))
        count++;
    va_end(words);
    buf_printf(&talk->out, "*%d\r\n", count);
    va_start(words, talk);
    for (int i = 0; i < count; i++) {
        const char *word = va_arg(words, const char *);
        buf_printf(&talk->out, "$%zu\r\n%s\r\n", strlen(word), word);
    }
    va_end(words);
}

static bool flush(struct talk *talk)
{
    size_t sent = 0;
    while (sent < talk->out.len) {
        ssize_t n = send(talk->fd, talk->out.ptr + sent, talk->out.len - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return false;
        sent += n > 0 ? (size_t)n : 0;
    }
    buf_clear(&talk->out);
    return !talk->out.failed;
}

bool talk_read(struct talk *talk, struct reply *ret)
{
    char bytes[65536];
    if (!flush(talk))
        return false;
    for (;;) {
        ssize_t used = reply_parse(sv_from(buf_sv(&talk->in), talk->taken), ret);
        if (used < 0)
            return false;
        talk->taken += (size_t)used;
        if (used > 0)
            return true;
        if (talk->taken == talk->in.len) {
            buf_clear(&talk->in);
            talk->taken = 0;
        }
        ssize_t n = read(talk->fd, bytes, sizeof bytes);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        if (n > 0)
            buf_add(&talk->in, sv_of(bytes, (size_t)n));
    }
}

bool talk_load_scripts(struct talk *talk)
{
    struct reply reply;
    for (int i = 0; i < SCRIPTS; i++) {
        talk_write(talk, "SCRIPT", "LOAD", scripts[i].text.ptr, NULL);
        if (!talk_read(talk, &reply) || !sv_eq(reply.text, sv_of(scripts[i].sha, strlen(scripts[i].sha))))
            return false;
    }
    return true;
}
