#include "serve/server.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/handle.h"
#include "serve/admin.h"
#include "serve/counts.h"
#include "serve/counts_lists.h"
#include "serve/grpc.h"
#include "serve/http_decide.h"
#include "serve/live.h"
#include "serve/log.h"
#include "serve/refusals.h"
#include "serve/resp_conn.h"
#include "serve/rule_sync.h"
#include "serve/sample.h"
#include "serve/saving.h"
#include "serve/tally.h"
#include "serve/tls_relay.h"
#include "serve/top_watch.h"

enum {
    EXIT_DONE = 0,
    EXIT_UNUSABLE = 2,
    ADMIN_CONNECTIONS = 256, /* of the admin listener, in addition to config.connections */
    DESCRIPTORS_SPARE = 100,
    DATA_MODE = 0750,
    THREADS_MAX = 256,
};

/* ---- making it ---- */

static int make_folder(const char *path, struct weir_error *error)
{
    if (mkdir(path, DATA_MODE) < 0 && errno != EEXIST)
        return err_set(error, WEIR_E_SYSTEM, "cannot create the data folder %s: %s", path, strerror(errno));
    if (access(path, W_OK | X_OK) < 0)
        return err_set(error, WEIR_E_SYSTEM, "cannot use the data folder %s: %s; choose another with --data", path,
                       strerror(errno));
    return 0;
}

/* Each connection takes a descriptor. Where there may not be enough of them, there are fewer connections. */
static void fit_descriptors(struct server *server)
{
    const struct config *config = &server->config;
    struct rlimit limit;
    /* With TLS two more: see tls_relay.h. */
    rlim_t each = config->certificate ? 3 : 1,
           wanted = each * (config->connections + ADMIN_CONNECTIONS) + DESCRIPTORS_SPARE;
    server->connections = config->connections;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted)
        return;
    struct rlimit raised = { .rlim_cur = wanted, .rlim_max = limit.rlim_max > wanted ? limit.rlim_max : wanted };
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    rlim_t most = limit.rlim_max > 2 * DESCRIPTORS_SPARE ? limit.rlim_max - DESCRIPTORS_SPARE : limit.rlim_max / 2;
    if (most / each < config->connections)
        server->connections = (unsigned)(most / each);
}

static void tell_of_descriptors(const struct server *server)
{
    if (server->connections < server->config.connections)
        log_say(LEVEL_WARNING, "start",
                "at most %u connections instead of %u: the limit of open files is too low (ulimit -n, LimitNOFILE=)",
                server->connections, server->config.connections);
}

/* Clients refuse an expired certificate, and this is the only place where the service can notice. */
static void note_certificate(struct server *server)
{
    int64_t until_us = tls_setup_valid_until_us(&server->tls);
    __atomic_store_n(&server->certificate_until_us, until_us, __ATOMIC_RELAXED);
    if (until_us > 0 && until_us <= clock_now_us())
        log_say(LEVEL_WARNING, "certificate",
                "the certificate in %s has expired: clients will refuse it; replace it and send SIGHUP",
                server->config.certificate);
}

static unsigned thread_count(const struct config *config)
{
    cpu_set_t cpus; /* that this process may use */
    int usable = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    unsigned count = config->threads ? config->threads : (unsigned)usable;
    return count < THREADS_MAX ? count : THREADS_MAX;
}

/* Rounded up: one for each loop at least. */
static unsigned share(const struct server *server, unsigned all)
{
    return (all + server->loop_count - 1) / server->loop_count;
}

static struct conns_limits limits_of(const struct server *server, unsigned loop)
{
    const struct config *config = &server->config;
    bool admin = loop == server->loop_count;
    return (struct conns_limits){
        .most = admin ? ADMIN_CONNECTIONS : share(server, server->connections),
        .most_per_address = admin ? ADMIN_CONNECTIONS : share(server, config->connections_per_address),
        .idle_ms = config->idle_ms,
        .request_ms = config->request_ms,
    };
}

static int no_loop(int uv_error, struct weir_error *error)
{
    return err_set(error, WEIR_E_SYSTEM, "cannot create an event loop: %s", uv_strerror(uv_error));
}

static int make_loops(struct server *server, struct weir_error *error)
{
    server->loop_count = thread_count(&server->config);
    server->loops = calloc(server->loop_count + 1, sizeof *server->loops);
    if (!server->loops)
        return err_no_memory(error);
    for (unsigned i = 0; i <= server->loop_count; i++) {
        struct conns_limits limits = limits_of(server, i);
        int r = loop_init(&server->loops[i], server, &limits);
        if (r < 0)
            return no_loop(r, error);
    }
    return 0;
}

static int make_samples(struct server *server, struct weir_error *error)
{
    const struct config *config = &server->config;
    bool hashed = config->sample_values == CONFIG_SAMPLE_HASHED;
    if (config->sample == 0)
        return 0;
    if (getrandom(&server->sample_key, sizeof server->sample_key, 0) != sizeof server->sample_key)
        return err_set(error, WEIR_E_SYSTEM, "cannot make a random key for --sample: %s", strerror(errno));
    for (unsigned i = 0; i < server->loop_count; i++)
        if (sample_new(&server->loops[i].sample, share(server, config->sample), hashed, &server->sample_key) < 0)
            return err_set(error, WEIR_E_NO_MEMORY, "no memory for %u requests of --sample", config->sample);
    return 0;
}

static int make_acceptor(struct server *server, struct loop *loop, enum front front, struct loop_acceptor *ret)
{
    if (front == FRONT_RESP) {
        struct resp *resp = NULL;
        int r = resp_new(&resp, loop);
        *ret = (struct loop_acceptor){ resp_accept, resp_free, resp };
        return r;
    }
    if (front == FRONT_GRPC) {
        struct h2 *h2 = NULL;
        int r = h2_new(&h2, loop, &grpc_service);
        *ret = (struct loop_acceptor){ h2_accept, h2_free, h2, h2_drain };
        return r;
    }
    struct http_service service = { decide_screen, decide_handle, server, decide_body_max };
    if (front == FRONT_ADMIN)
        service = (struct http_service){ admin_screen, admin_handle, server, admin_body_max, admin_headers, ADMIN_HEADERS };
    struct http *http = NULL;
    int r = http_new(&http, loop, front, &service);
    *ret = (struct loop_acceptor){ http_accept, http_free, http };
    return r;
}

/* Takes over fd. */
static int listen_in(struct server *server, struct loop *loop, enum front front, int fd)
{
    struct loop_acceptor acceptor;
    int r = make_acceptor(server, loop, front, &acceptor);
    if (r == 0 && tls_setup_has(&server->config, front, server->where[front])) {
        r = tls_relay_wrap(loop, front, &acceptor);
        if (r < 0)
            acceptor.free(acceptor.data);
    }
    if (r == 0)
        return loop_listen(loop, front, fd, &acceptor);
    close(fd);
    return r;
}

static int listen_at(struct server *server, enum front front, const char *address, struct weir_error *error)
{
    unsigned count = front == FRONT_ADMIN ? 1 : server->loop_count;
    struct loop *first = &server->loops[front == FRONT_ADMIN ? server->loop_count : 0];
    int fds[THREADS_MAX], failed = 0;
    int r = listen_open(front_names[front], address, count, fds, server->where[front], error);
    if (r < 0 || strcmp(server->where[front], "off") == 0)
        return r;
    for (unsigned i = 0; i < count; i++) {
        if (failed == 0)
            failed = listen_in(server, &first[i], front, fds[i]);
        else
            close(fds[i]);
    }
    return failed ? no_loop(failed, error) : 0;
}

static int listen_all(struct server *server, struct weir_error *error)
{
    const char *addresses[FRONTS] = { server->config.http, server->config.resp, server->config.grpc, server->config.admin };
    for (int front = 0; front < FRONTS; front++) {
        int r = listen_at(server, (enum front)front, addresses[front], error);
        if (r < 0)
            return r;
    }
    return 0;
}

static void restore(struct server *server, struct counts_earlier *earlier)
{
    top_watch_restore(server->top_watch, STEAL(earlier->top), earlier->since_us);
    refusals_restore(server->refusals, &earlier->recent);
}

static int watch(struct server *server, struct weir_error *error)
{
    int r = tally_new(&server->tally, server);
    if (r == 0)
        r = refusals_new(&server->refusals, server);
    if (r == 0)
        r = top_watch_start(&server->top_watch, server);
    if (r == 0)
        r = counts_new(&server->counts, server, restore);
    if (r == 0)
        r = live_new(&server->live, server);
    return r < 0 ? err_no_memory(error) : 0;
}

static int start(struct server *server, struct weir_error *error)
{
    const struct config *config = &server->config;
    int r = make_folder(config->data, error);
    if (r == 0)
        r = make_loops(server, error);
    if (r == 0)
        r = make_samples(server, error);
    if (r == 0)
        r = tls_setup_read(&server->tls, config, error);
    if (r == 0)
        r = listen_all(server, error);
    if (r == 0)
        r = tokens_read(&server->tokens, config, error);
    if (r == 0)
        r = admin_state_new(&server->admin, server, error);
    if (r == 0)
        server->tokens_posted = server->tokens->generation;
    if (r == 0)
        r = table_place_prepare(&server->table_place, config, error);
    if (r == 0)
        r = rule_sync_start(&server->rule_sync, config, &server->weir, error);
    if (r == 0 && server->table_place.live)
        r = saving_start(&server->saving, server->weir->cells, server->table_place.live, server->table_place.saved,
                         config->save_ms, error);
    if (r == 0)
        r = watch(server, error);
    for (unsigned i = 0; r == 0 && config->counters && i < server->loop_count; i++)
        r = loop_open_store(&server->loops[i], server->weir, error);
    for (unsigned i = 0; r == 0 && i <= server->loop_count; i++) {
        server->loops[i].tokens = tokens_ref(server->tokens);
        server->loops[i].tls = tls_setup_ref(&server->tls);
        int no = loop_start(&server->loops[i]);
        if (no < 0)
            r = err_set(error, WEIR_E_SYSTEM, "cannot start a thread: %s", uv_strerror(no));
    }
    return r;
}

/* ---- telling of it ---- */

/* The stage comes first: whoever reads where the service listens may ask at once whether it is ready. */
static void tell_ready(struct server *server)
{
    __atomic_store_n(&server->stage, STAGE_READY, __ATOMIC_RELEASE);
    for (int front = 0; front < FRONTS; front++)
        if (strcmp(server->where[front], "off") != 0)
            log_say(LEVEL_INFO, "listen", "%s on %s", front_names[front], server->where[front]);
    tell_of_descriptors(server);
    note_certificate(server);
    server_greet(server);
    sd_notifyf(0, "READY=1\nSTATUS=deciding on %s and %s", server->where[FRONT_HTTP], server->where[FRONT_RESP]);
}

/* ---- reloading ---- */

struct reload {
    struct loop_task task;
    struct loop *loop;
    struct tokens *tokens;
    struct tls_setup tls;
    struct conns_limits limits;
};

static void take_over(struct loop_task *task)
{
    struct reload *reload = (struct reload *)task;
    tokens_unref(reload->loop->tokens);
    reload->loop->tokens = reload->tokens;
    tls_setup_done(&reload->loop->tls);
    reload->loop->tls = reload->tls;
    reload->loop->conns.limits = reload->limits;
    free(reload);
}

/* A loop that there is no memory for is told at the next look at the tokens. */
static void post_reload(struct server *server)
{
    bool all = true;
    for (unsigned i = 0; i <= server->loop_count; i++) {
        struct reload *reload = calloc(1, sizeof *reload);
        if (!reload) {
            all = false;
            continue;
        }
        *reload = (struct reload){ .task = { .run = take_over },
                                   .loop = &server->loops[i],
                                   .tokens = tokens_ref(server->tokens),
                                   .tls = tls_setup_ref(&server->tls),
                                   .limits = limits_of(server, i) };
        loop_post(&server->loops[i], &reload->task);
    }
    if (all)
        server->tokens_posted = server->tokens->generation;
}

/* Both, or nothing changes. */
static int read_secrets(struct server *server, struct weir_error *error)
{
    struct tls_setup fresh;
    int r = tls_setup_read(&fresh, &server->config, error);
    if (r < 0)
        return r;
    r = tokens_read(&server->tokens, &server->config, error);
    if (r < 0) {
        tls_setup_done(&fresh);
        return r;
    }
    tls_setup_done(&server->tls);
    server->tls = fresh;
    return 0;
}

static void reload(struct server *server, int argc, char **argv)
{
    struct weir_error error;
    struct config fresh;
    struct config_changes changes = { .live = "" };
    unsigned generation = server->tokens->generation;
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)clock_steady_us());
    int r = config_read(&fresh, argc, argv, &error);
    if (r == 0) {
        config_exchange(&server->config, &fresh, &changes);
        r = read_secrets(server, &error);
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
        note_certificate(server);
        post_reload(server);
        log_say(LEVEL_INFO, "reload", "done; changed: %s%s", changes.live[0] ? changes.live : "no option",
                server->tokens->generation != generation ? "; the tokens have changed" : "");
        if (changes.restart[0])
            log_say(LEVEL_WARNING, "reload", "these options need a restart: %s", changes.restart);
    }
    rule_sync_look_now(server->rule_sync);
    sd_notify(0, "READY=1");
}

/* ---- running ---- */

static void begin_end(struct server *server)
{
    __atomic_store_n(&server->stage, STAGE_ENDING, __ATOMIC_RELEASE);
    sd_notify(0, "STOPPING=1");
    log_say(LEVEL_INFO, "stop", "answering the requests that were accepted, for at most %u ms", server->config.drain_ms);
}

/* top_watch_stop and counts_free read what the loops have counted, hence after their end. rule_sync_stop ends what the
 * admin listener had begun, hence before the loops are gone; and it closes the engine, hence after they have left the
 * store, and after a simulation, which reads its rules. saving_free saves what all of them have counted. */
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
    for (unsigned i = 0; i < loops; i++)
        loop_close_store(&server->loops[i]);
    top_watch_stop(server->top_watch);
    counts_free(server->counts);
    simulation_stop(server);
    saving_end(server->saving);
    rule_sync_stop(server->rule_sync);
    saving_free(server->saving);
    for (unsigned i = 0; i < loops; i++)
        loop_done(&server->loops[i]);
    live_free(server->live);
    tally_free(server->tally);
    top_watch_free(server->top_watch);
    refusals_free(server->refusals);
    for (unsigned i = 0; i < loops; i++)
        tokens_unref(server->loops[i].tokens), tls_setup_done(&server->loops[i].tls);
    free(server->loops);
    tokens_unref(server->tokens);
    tls_setup_done(&server->tls);
    admin_state_free(server->admin);
    table_place_done(&server->table_place);
    config_done(&server->config);
}

/* What is wrong is logged if it is still wrong at the next look: somebody may be writing the file. */
static void follow_tokens(struct server *server)
{
    struct weir_error error = { .code = WEIR_OK };
    bool failed = tokens_read(&server->tokens, &server->config, &error) < 0;
    if (server->tokens->generation != server->tokens_posted) {
        post_reload(server);
        log_say(LEVEL_INFO, "tokens", "%zu tokens are in force", server->tokens->count);
    }
    bool again = failed && strcmp(error.text, server->tokens_error) == 0;
    if (again && !server->tokens_failing)
        log_say(LEVEL_ERROR, "tokens", "the tokens stay as they were: %s", error.text);
    else if (!failed && server->tokens_failing)
        log_say(LEVEL_INFO, "tokens", "the tokens can be read again");
    server->tokens_failing = again;
    snprintf(server->tokens_error, sizeof server->tokens_error, "%s", error.text);
}

static void serve(struct server *server, const sigset_t *signals, int argc, char **argv)
{
    const struct timespec look = { .tv_sec = 1 };
    int signal;
    do {
        signal = sigtimedwait(signals, NULL, &look);
        if (signal == SIGHUP)
            reload(server, argc, argv);
        if (signal == SIGHUP || signal < 0)
            follow_tokens(server);
    } while (signal < 0 || signal == SIGHUP);
    begin_end(server);
}

/* So that no socket gets a number under which others print. */
static void fill_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Large blocks, such as the lists and texts of many rules, go back to the system when they are freed. By default glibc
 * keeps more and more of them: it raises this threshold to the largest block that was freed. */
static void give_large_blocks_back(void)
{
    enum { LARGE = 1 << 20 };
    mallopt(M_MMAP_THRESHOLD, LARGE);
}

int server_run(int argc, char **argv)
{
    struct server server = { .started_us = clock_now_us() };
    struct weir_error error = { .code = WEIR_OK };
    sigset_t signals;
    give_large_blocks_back();
    fill_standard_descriptors();
    sigemptyset(&signals);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of that write, as on a full disk */
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
