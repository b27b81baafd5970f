#include "serve/server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "serve/keeper.h"
#include "serve/log.h"

enum { EXIT_DONE = 0, EXIT_UNUSABLE = 2, DESCRIPTORS_SPARE = 200, DATA_MODE = 0750, THREADS_MAX = 256 };

static const char *const front_names[FRONTS] = { "http", "resp", "admin" };

bool server_ready(const struct server *server)
{
    return __atomic_load_n(&server->ready, __ATOMIC_ACQUIRE);
}

/* ---- making it ---- */

static int make_folder(const char *path, struct weir_error *error)
{
    if (mkdir(path, DATA_MODE) < 0 && errno != EEXIST)
        return err_set(error, WEIR_E_SYSTEM, "the data folder %s cannot be made: %s", path, strerror(errno));
    if (access(path, W_OK | X_OK) < 0)
        return err_set(error, WEIR_E_SYSTEM, "the data folder %s cannot be used: %s; choose another with --data", path,
                       strerror(errno));
    return 0;
}

/* Each connection takes a descriptor. Where there may not be enough of them, there are fewer connections. */
static void fit_descriptors(struct server *server)
{
    const struct config *config = &server->config;
    struct rlimit limit;
    rlim_t wanted = (rlim_t)config->connections + DESCRIPTORS_SPARE;
    server->connections = config->connections;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted)
        return;
    struct rlimit raised = { .rlim_cur = wanted, .rlim_max = limit.rlim_max > wanted ? limit.rlim_max : wanted };
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    server->connections =
        limit.rlim_max > 2 * DESCRIPTORS_SPARE ? (unsigned)limit.rlim_max - DESCRIPTORS_SPARE : DESCRIPTORS_SPARE;
}

static void tell_of_descriptors(const struct server *server)
{
    if (server->connections < server->config.connections)
        log_say(LEVEL_WARNING, "start",
                "%u connections at most, not %u: more files may not be open here (ulimit -n, LimitNOFILE=)",
                server->connections, server->config.connections);
}

static unsigned thread_count(const struct config *config)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned count = config->threads ? config->threads : cpus > 0 ? (unsigned)cpus : 1;
    return count < THREADS_MAX ? count : THREADS_MAX;
}

static struct loop *admin_loop(struct server *server)
{
    return &server->loops[server->loop_count];
}

static int make_loops(struct server *server, struct weir_error *error)
{
    server->loop_count = thread_count(&server->config);
    server->loops = calloc(server->loop_count + 1, sizeof *server->loops);
    if (!server->loops)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    for (unsigned i = 0; i <= server->loop_count; i++) {
        int r = loop_init(&server->loops[i], server, i);
        if (r < 0)
            return err_set(error, WEIR_E_SYSTEM, "no event loop: %s", uv_strerror(r));
    }
    return 0;
}

static int listen_at(struct server *server, enum front front, const char *address, struct weir_error *error)
{
    unsigned count = front == FRONT_ADMIN ? 1 : server->loop_count;
    struct loop *first = front == FRONT_ADMIN ? admin_loop(server) : server->loops;
    int fds[THREADS_MAX], failed = 0;
    int r = listen_open(front_names[front], address, count, fds, server->where[front], error);
    if (r < 0 || strcmp(server->where[front], "off") == 0)
        return r;
    for (unsigned i = 0; i < count; i++) {
        if (failed == 0)
            failed = loop_listen(&first[i], front, fds[i]);
        else
            close(fds[i]);
    }
    return failed ? err_set(error, WEIR_E_SYSTEM, "no event loop: %s", uv_strerror(failed)) : 0;
}

static int listen_all(struct server *server, struct weir_error *error)
{
    const char *addresses[FRONTS] = { server->config.http, server->config.resp, server->config.admin };
    for (int front = 0; front < FRONTS; front++) {
        int r = listen_at(server, (enum front)front, addresses[front], error);
        if (r < 0)
            return r;
    }
    return 0;
}

static int start(struct server *server, struct weir_error *error)
{
    const struct config *config = &server->config;
    struct tokens tokens;
    int r = make_folder(config->data, error);
    if (r == 0)
        r = tokens_read(&tokens, config, error);
    if (r == 0)
        r = make_loops(server, error);
    if (r == 0)
        r = listen_all(server, error);
    if (r == 0)
        r = keeper_start(&server->keeper, config, &server->weir, error);
    for (unsigned i = 0; r == 0 && i <= server->loop_count; i++) {
        server->loops[i].tokens = tokens;
        int no = loop_start(&server->loops[i]);
        if (no < 0)
            r = err_set(error, WEIR_E_SYSTEM, "no thread: %s", uv_strerror(no));
    }
    return r;
}

/* ---- telling of it ---- */

static bool is_on(const struct server *server, enum front front)
{
    return strcmp(server->where[front], "off") != 0;
}

static bool is_tcp(const struct server *server, enum front front)
{
    return is_on(server, front) && strncmp(server->where[front], "unix:", 5) != 0;
}

/* The token only to somebody who looks, never into a log. */
static void greet(const struct server *server)
{
    struct keeper_state state;
    keeper_state(server->keeper, &state);
    printf("weir %s\n", weir_version());
    for (int front = 0; front < FRONTS; front++)
        printf("  %-6s %s%s\n", front_names[front],
               front != FRONT_RESP && is_tcp(server, (enum front)front) ? "http://" : "", server->where[front]);
    printf("  rules  %zu from %s\n", state.rules, state.source);
    if (is_on(server, FRONT_ADMIN) && isatty(STDOUT_FILENO))
        printf("  token  %s (of the admin listener; kept in %s/admin-token)\n",
               admin_loop((struct server *)server)->tokens.admin, server->config.data);
    if (is_tcp(server, FRONT_HTTP))
        printf(
            "\nTry a decision:\n"
            "  curl -i -H 'Content-Type: application/json' -d '{\"event\": \"ocr\", \"key\": \"u1\"}' http://%s/v1/check\n",
            server->where[FRONT_HTTP]);
    if (is_tcp(server, FRONT_RESP))
        printf("  redis-cli -p %s WEIR.CHECK event ocr key u1\n", strrchr(server->where[FRONT_RESP], ':') + 1);
    if (is_tcp(server, FRONT_ADMIN))
        printf("And look at the rules:\n  curl -H \"Authorization: Bearer $(cat %s/admin-token)\" http://%s/v1/rules\n",
               server->config.data, server->where[FRONT_ADMIN]);
    fflush(stdout);
}

static void tell_ready(struct server *server)
{
    for (int front = 0; front < FRONTS; front++)
        if (is_on(server, (enum front)front))
            log_say(LEVEL_INFO, "listen", "%s on %s", front_names[front], server->where[front]);
    tell_of_descriptors(server);
    greet(server);
    __atomic_store_n(&server->ready, true, __ATOMIC_RELEASE);
    sd_notifyf(0, "READY=1\nSTATUS=deciding on %s and %s", server->where[FRONT_HTTP], server->where[FRONT_RESP]);
}

/* ---- reloading ---- */

struct reload {
    struct loop_task task;
    struct loop *loop;
    struct tokens tokens;
    struct conns_limits limits;
};

static void take_over(struct loop_task *task)
{
    struct reload *reload = (struct reload *)task;
    reload->loop->tokens = reload->tokens;
    reload->loop->conns.limits = reload->limits;
    free(reload);
}

static void post_reload(struct server *server, const struct tokens *tokens)
{
    for (unsigned i = 0; i <= server->loop_count; i++) {
        struct reload *reload = calloc(1, sizeof *reload);
        if (!reload)
            continue;
        *reload = (struct reload){
            .task = { .run = take_over }, .loop = &server->loops[i], .tokens = *tokens, .limits = loop_limits(server)
        };
        loop_post(&server->loops[i], &reload->task);
    }
}

static void reload(struct server *server, int argc, char **argv)
{
    struct weir_error error;
    struct config fresh;
    struct config_changes changes = { .live = "" };
    struct tokens tokens;
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)clock_steady_us());
    int r = config_read(&fresh, argc, argv, &error);
    if (r == 0) {
        config_exchange(&server->config, &fresh, &changes);
        r = tokens_read(&tokens, &server->config, &error);
        if (r < 0)
            config_exchange(&server->config, &fresh, &changes);
        config_done(&fresh);
    }
    if (r < 0)
        log_say(LEVEL_ERROR, "reload", "nothing was changed: %s", error.text);
    else {
        log_setup(server->config.log, server->config.log_refusals);
        fit_descriptors(server);
        tell_of_descriptors(server);
        post_reload(server, &tokens);
        log_say(LEVEL_INFO, "reload", "done; changed: %s", changes.live[0] ? changes.live : "nothing");
        if (changes.restart[0])
            log_say(LEVEL_WARNING, "reload", "needs a restart to be changed: %s", changes.restart);
    }
    keeper_poke(server->keeper);
    sd_notify(0, "READY=1");
}

/* ---- running ---- */

static void begin_end(struct server *server)
{
    __atomic_store_n(&server->ready, false, __ATOMIC_RELEASE);
    sd_notify(0, "STOPPING=1");
    log_say(LEVEL_INFO, "stop", "answering what has been accepted, for %u ms at most", server->config.drain_ms);
}

/* The keeper ends what the admin listener had begun, hence before the loops are gone. */
static void server_done(struct server *server)
{
    unsigned loops = server->loops ? server->loop_count + 1 : 0;
    for (int front = 0; front < FRONTS; front++)
        if (server->where[front][0])
            listen_close(front_names[front], server->where[front]);
    for (unsigned i = 0; i < loops; i++)
        if (server->loops[i].started)
            loop_drain(&server->loops[i]);
    for (unsigned i = 0; i < loops; i++)
        loop_join(&server->loops[i]);
    keeper_stop(server->keeper);
    for (unsigned i = 0; i < loops; i++)
        loop_done(&server->loops[i]);
    free(server->loops);
    config_done(&server->config);
}

static void serve(struct server *server, const sigset_t *signals, int argc, char **argv)
{
    int signal;
    while (sigwait(signals, &signal) == 0 && signal == SIGHUP)
        reload(server, argc, argv);
    begin_end(server);
}

int server_run(int argc, char **argv)
{
    struct server server = { .started_us = clock_now_us() };
    struct weir_error error = { .code = WEIR_OK };
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    int r = config_read(&server.config, argc, argv, &error);
    if (r < 0) {
        fprintf(stderr, "weir serve: %s\n", error.text);
        return EXIT_UNUSABLE;
    }
    log_setup(server.config.log, server.config.log_refusals);
    fit_descriptors(&server);
    r = start(&server, &error);
    if (r == 0) {
        tell_ready(&server);
        serve(&server, &signals, argc, argv);
    } else
        fprintf(stderr, "weir serve: %s\n", error.text);
    server_done(&server);
    if (r == 0)
        log_say(LEVEL_INFO, "stop", "done");
    return r == 0 ? EXIT_DONE : EXIT_UNUSABLE;
}
