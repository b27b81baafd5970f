#include "cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { WAIT_MS = 30000, STEP_MS = 5, NODES_TEXT_MAX = 1 << 18 };

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "cluster: %s\n", what);
    abort();
}

/* ---- asking nodes ---- */

static bool runs(const struct cluster *c, size_t i)
{
    return c->nodes[i].pid > 0 && !c->frozen[i];
}

/* The port that nodes and MIGRATE use. */
static unsigned port_of(const struct cluster *c, size_t i)
{
    const struct redis_server *server = &c->nodes[i].server;
    return server->tls_port ? server->tls_port : server->port;
}

/* Calls that have to work. */
static void must(const char *answer)
{
    if (answer[0] == '-')
        fprintf(stderr, "cluster: %s\n", answer);
    require(answer[0] != '-', "a command failed");
}

#define MUST(c, i, ...) must(daemon_ask(&(c)->nodes[i], __VA_ARGS__, NULL))

/* The answer to CLUSTER NODES. It may have a word for each slot. */
static const char *nodes_of(const struct cluster *c, size_t i)
{
    static char text[NODES_TEXT_MAX];
    struct talk talk;
    struct reply reply;
    require(talk_open(&talk, &c->nodes[i].server), "a node does not accept connections");
    talk_write(&talk, "CLUSTER", "NODES", NULL);
    require(talk_read(&talk, &reply) && reply.kind == REPLY_BULK && reply.text.len < sizeof text, "CLUSTER NODES failed");
    memcpy(text, reply.text.ptr, reply.text.len);
    text[reply.text.len] = '\0';
    talk_close(&talk);
    return text;
}

/* Does this line of CLUSTER NODES name the slot? Words 9… are slots: "5", "5-9", and "[5->-ID]" for one that moves. */
static bool line_has_slot(sv line, unsigned slot)
{
    for (int word = 0; line.len > 0; word++) {
        sv text = sv_cut(&line, ' ');
        char range[32];
        unsigned first, last;
        if (word < 8 || text.len == 0 || text.ptr[0] == '[' || text.len >= sizeof range)
            continue;
        snprintf(range, sizeof range, "%.*s", SV_FMT(text));
        char *end;
        first = last = (unsigned)strtoul(range, &end, 10);
        if (*end == '-')
            last = (unsigned)strtoul(end + 1, NULL, 10);
        if (slot >= first && slot <= last)
            return true;
    }
    return false;
}

static size_t index_of(const struct cluster *c, sv id)
{
    for (size_t i = 0; i < c->count; i++)
        if (sv_eq(id, weir_str(c->ids[i])))
            return i;
    return c->count;
}

/* The node that serves the slot, as node i sees it; c->count: none. */
static size_t owner_seen(const struct cluster *c, size_t i, unsigned slot)
{
    sv text = weir_str(nodes_of(c, i));
    while (text.len > 0) {
        sv line = sv_cut(&text, '\n');
        sv whole = line;
        if (line_has_slot(whole, slot))
            return index_of(c, sv_cut(&line, ' '));
    }
    return c->count;
}

/* As all nodes that run see it; c->count: they do not agree. */
static size_t owner_agreed(const struct cluster *c, unsigned slot)
{
    size_t owner = c->count;
    for (size_t i = 0; i < c->count; i++) {
        if (!runs(c, i))
            continue;
        size_t seen = owner_seen(c, i, slot);
        if (seen == c->count || (owner != c->count && seen != owner))
            return c->count;
        owner = seen;
    }
    return owner;
}

static void pause_until(int64_t end_us, const char *what)
{
    require(clock_steady_us() < end_us, what);
    usleep(STEP_MS * 1000);
}

size_t cluster_owner(const struct cluster *c, unsigned slot)
{
    int64_t end_us = clock_steady_us() + WAIT_MS * US_PER_MS;
    for (;;) {
        size_t owner = owner_agreed(c, slot);
        if (owner != c->count)
            return owner;
        pause_until(end_us, "the nodes do not agree on a slot");
    }
}

static bool is_ok(const struct cluster *c, size_t i)
{
    return strstr(daemon_ask(&c->nodes[i], "CLUSTER", "INFO", NULL), "cluster_state:ok") != NULL;
}

void cluster_wait_ok(const struct cluster *c)
{
    int64_t end_us = clock_steady_us() + WAIT_MS * US_PER_MS;
    for (size_t i = 0; i < c->count; i++)
        while (runs(c, i) && !is_ok(c, i))
            pause_until(end_us, "the cluster does not serve");
}

/* ---- life ---- */

static void start_nodes(struct cluster *c, const char *const *more)
{
    static const char *const tls[] = { "--tls-cluster", "yes", "--tls-replication", "yes" };
    static const char *args[DAEMON_ARGS_MAX] = { "--cluster-node-timeout",
                                                 "1000",
                                                 "--cluster-replica-validity-factor",
                                                 "0",
                                                 "--cluster-allow-replica-migration",
                                                 "no",
                                                 "--repl-diskless-sync-delay",
                                                 "0",
                                                 "--repl-diskless-load",
                                                 "swapdb" };
    size_t n = 10;
    _Static_assert(CLUSTER_NODE_TIMEOUT_MS == 1000, "see above");
    for (size_t i = 0; getenv(SERVERS_TLS) && i < sizeof tls / sizeof *tls; i++)
        args[n++] = tls[i];
    for (size_t i = 0; more && more[i] && n < DAEMON_ARGS_MAX - 1; i++)
        args[n++] = more[i];
    args[n] = NULL;
    for (size_t i = 0; i < c->count; i++) {
        daemon_start_node(&c->nodes[i], args);
        snprintf(c->ids[i], sizeof c->ids[i], "%s", daemon_ask(&c->nodes[i], "CLUSTER", "MYID", NULL));
    }
}

/* The nodes end with the test, since they are its children. Their folders would stay if it is killed. */
static void start_cleaner(struct cluster *c)
{
    int links[2];
    char byte;
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, links) == 0, "no socket for the cleaner");
    fflush(NULL);
    c->cleaner = fork();
    if (c->cleaner == 0) {
        setsid();
        dup2(links[1], 3);
        close_range(4, UINT_MAX, 0);
        dup2(2, 1);
        while (read(3, &byte, 1) < 0 && errno == EINTR)
            continue;
        usleep(50 * 1000); /* the nodes may still write their files */
        for (size_t i = 0; i < c->count; i++) {
            c->nodes[i].pid = 0;
            daemon_end(&c->nodes[i]);
        }
        _exit(0);
    }
    close(links[1]);
    c->link = links[0];
}

unsigned cluster_first_slot(const struct cluster *c, size_t i)
{
    return (unsigned)(CLUSTER_SLOTS * i / c->masters);
}

unsigned cluster_last_slot(const struct cluster *c, size_t i)
{
    return cluster_first_slot(c, i + 1) - 1;
}

/* Everybody meets everybody, instead of hearing of the others after a while. */
static void meet(const struct cluster *c)
{
    char port[16];
    for (size_t i = 0; i < c->count; i++)
        for (size_t j = 0; j < c->count; j++) {
            snprintf(port, sizeof port, "%u", port_of(c, j));
            if (i != j)
                MUST(c, i, "CLUSTER", "MEET", "127.0.0.1", port, c->nodes[j].bus);
        }
}

static void divide(const struct cluster *c)
{
    char first[16], last[16], epoch[24];
    for (size_t i = 0; i < c->masters; i++) {
        snprintf(first, sizeof first, "%u", cluster_first_slot(c, i));
        snprintf(last, sizeof last, "%u", cluster_last_slot(c, i));
        snprintf(epoch, sizeof epoch, "%zu", i + 1);
        MUST(c, i, "CLUSTER", "SET-CONFIG-EPOCH", epoch);
        MUST(c, i, "CLUSTER", "ADDSLOTSRANGE", first, last);
    }
}

/* A node becomes a replica when it knows the master, and serves when the master has sent it everything. */
static void replicate(const struct cluster *c)
{
    int64_t end_us = clock_steady_us() + WAIT_MS * US_PER_MS;
    for (size_t i = c->masters; i < c->count; i++)
        while (strcmp(daemon_ask(&c->nodes[i], "CLUSTER", "REPLICATE", c->ids[i % c->masters], NULL), "OK") != 0)
            pause_until(end_us, "a node does not become a replica");
    for (size_t i = c->masters; i < c->count; i++)
        while (!strstr(daemon_ask(&c->nodes[i], "INFO", "replication", NULL), "master_link_status:up"))
            pause_until(end_us, "a replica does not reach its master");
}

/* Does node i know all others, and the replicas as such? Else failovers would need more time. */
static bool knows_all(const struct cluster *c, size_t i)
{
    size_t known = 0, replicas = 0;
    sv text = weir_str(nodes_of(c, i));
    while (text.len > 0) {
        sv line = sv_cut(&text, '\n');
        known += index_of(c, sv_cut(&line, ' ')) < c->count;
        sv_cut(&line, ' ');
        sv flags = sv_cut(&line, ' ');
        replicas += sv_starts(flags, SV("slave")) || sv_starts(flags, SV("myself,slave"));
    }
    return known == c->count && replicas == c->count - c->masters;
}

void cluster_start(struct cluster *c, size_t masters, size_t replicas, const char *const *more)
{
    *c = (struct cluster){ .masters = masters, .count = masters * (1 + replicas), .link = -1 };
    require(masters > 0 && c->count <= CLUSTER_NODES_MAX, "too many nodes");
    start_nodes(c, more);
    start_cleaner(c);
    divide(c);
    meet(c);
    replicate(c);
    int64_t end_us = clock_steady_us() + WAIT_MS * US_PER_MS;
    for (size_t i = 0; i < c->count; i++)
        while (!knows_all(c, i))
            pause_until(end_us, "the nodes do not find each other");
    cluster_wait_ok(c);
}

void cluster_end(struct cluster *c)
{
    for (size_t i = 0; i < c->count; i++)
        daemon_end(&c->nodes[i]);
    if (c->link >= 0)
        close(c->link);
    if (c->cleaner > 0)
        waitpid(c->cleaner, NULL, 0);
    *c = (struct cluster){ .link = -1 };
}

const char *cluster_address(const struct cluster *c, size_t seeds, const char *more, char ret[SERVER_ADDRESS_MAX])
{
    bool tls = getenv(SERVERS_TLS) != NULL;
    int n = snprintf(ret, SERVER_ADDRESS_MAX, "redis%s+cluster://", tls ? "s" : "");
    for (size_t i = 0; i < seeds && i < c->count; i++)
        n += snprintf(ret + n, (size_t)(SERVER_ADDRESS_MAX - n), "%s127.0.0.1:%u", i > 0 ? "," : "", port_of(c, i));
    n += snprintf(ret + n, (size_t)(SERVER_ADDRESS_MAX - n), "%s", more);
    if (tls)
        snprintf(ret + n, (size_t)(SERVER_ADDRESS_MAX - n), "%cca=%s/ca.pem", strchr(more, '?') ? '&' : '?',
                 getenv(SERVERS_TLS));
    return ret;
}

/* ---- slots ---- */

/* CRC-16/XMODEM, bit by bit: here nothing depends on speed, and it is a second opinion on that of src/. */
unsigned cluster_slot(sv key)
{
    const char *open = memchr(key.ptr, '{', key.len);
    if (open) {
        sv rest = sv_from(key, (size_t)(open - key.ptr) + 1);
        const char *close = memchr(rest.ptr, '}', rest.len);
        if (close && close > rest.ptr)
            key = sv_of(rest.ptr, (size_t)(close - rest.ptr));
    }
    unsigned crc = 0;
    for (size_t i = 0; i < key.len; i++) {
        crc ^= (unsigned)(unsigned char)key.ptr[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1;
    }
    return crc % CLUSTER_SLOTS;
}

const char *cluster_tag(unsigned first, unsigned last, unsigned nth, char ret[CLUSTER_KEY_MAX])
{
    for (unsigned i = 0;; i++) {
        snprintf(ret, CLUSTER_KEY_MAX, "u%u", i);
        unsigned slot = cluster_slot(weir_str(ret));
        if (slot >= first && slot <= last && nth-- == 0)
            return ret;
    }
}

/* ---- failures ---- */

void cluster_kill(struct cluster *c, size_t i)
{
    daemon_kill(&c->nodes[i]);
    c->frozen[i] = false;
}

void cluster_again(struct cluster *c, size_t i)
{
    daemon_again(&c->nodes[i]);
}

void cluster_freeze(struct cluster *c, size_t i, bool frozen)
{
    daemon_freeze(&c->nodes[i], frozen);
    c->frozen[i] = frozen;
}

size_t cluster_wait_failover(const struct cluster *c, unsigned slot, size_t i)
{
    int64_t end_us = clock_steady_us() + WAIT_MS * US_PER_MS;
    for (;;) {
        size_t owner = owner_agreed(c, slot);
        if (owner != c->count && owner != i)
            return owner;
        pause_until(end_us, "no other node takes over");
    }
}

/* The flags of a node, and the index of its master (c->count: none), as node i sees it. */
static sv flags_seen(const struct cluster *c, size_t i, size_t node, size_t *ret_master)
{
    sv text = weir_str(nodes_of(c, i));
    while (text.len > 0) {
        sv line = sv_cut(&text, '\n');
        bool found = index_of(c, sv_cut(&line, ' ')) == node;
        sv_cut(&line, ' ');
        sv flags = sv_cut(&line, ' ');
        *ret_master = index_of(c, sv_cut(&line, ' '));
        if (found)
            return sv_starts(flags, SV("myself,")) ? sv_from(flags, 7) : flags;
    }
    return SV("");
}

static bool is_agreed(const struct cluster *c, size_t master, size_t replica)
{
    size_t its_master;
    for (size_t i = 0; i < c->count; i++)
        if (runs(c, i) && (!sv_starts(flags_seen(c, i, master, &its_master), SV("master")) ||
                           !sv_starts(flags_seen(c, i, replica, &its_master), SV("slave")) || its_master != master))
            return false;
    return true;
}

void cluster_failover(const struct cluster *c, size_t replica)
{
    int64_t end_us = clock_steady_us() + WAIT_MS * US_PER_MS;
    size_t master, its_master;
    flags_seen(c, replica, replica, &master);
    require(master != c->count, "a failover needs a replica");
    while (!is_agreed(c, replica, master)) {
        /* An election that was not won is not repeated by itself. */
        if (sv_starts(flags_seen(c, replica, replica, &its_master), SV("slave")))
            MUST(c, replica, "CLUSTER", "FAILOVER");
        int64_t again_us = clock_steady_us() + 6 * CLUSTER_NODE_TIMEOUT_MS * US_PER_MS;
        while (!is_agreed(c, replica, master) && clock_steady_us() < again_us)
            pause_until(end_us, "the replica does not become a master");
    }
}

/* ---- moving slots ---- */

static const char *slot_text(unsigned slot)
{
    static char text[16];
    snprintf(text, sizeof text, "%u", slot);
    return text;
}

void cluster_move_begin(const struct cluster *c, unsigned slot, size_t from, size_t to)
{
    MUST(c, to, "CLUSTER", "SETSLOT", slot_text(slot), "IMPORTING", c->ids[from]);
    MUST(c, from, "CLUSTER", "SETSLOT", slot_text(slot), "MIGRATING", c->ids[to]);
}

bool cluster_move_key(const struct cluster *c, const char *key, size_t from, size_t to)
{
    char port[16];
    snprintf(port, sizeof port, "%u", port_of(c, to));
    const char *answer = daemon_ask(&c->nodes[from], "MIGRATE", "127.0.0.1", port, key, "0", "10000", NULL);
    must(answer);
    return strcmp(answer, "OK") == 0;
}

size_t cluster_move_keys(const struct cluster *c, unsigned slot, size_t from, size_t to, size_t most)
{
    struct talk talk;
    struct reply keys, key;
    char count[24], name[1024];
    snprintf(count, sizeof count, "%zu", most);
    require(talk_open(&talk, &c->nodes[from].server), "a node does not accept connections");
    talk_write(&talk, "CLUSTER", "GETKEYSINSLOT", slot_text(slot), count, NULL);
    require(talk_read(&talk, &keys) && keys.kind == REPLY_ARRAY, "CLUSTER GETKEYSINSLOT failed");
    size_t moved = 0;
    while (reply_next(&keys, &key)) {
        require(key.text.len < sizeof name, "a key is too long");
        snprintf(name, sizeof name, "%.*s", SV_FMT(key.text));
        moved += cluster_move_key(c, name, from, to);
    }
    talk_close(&talk);
    return moved;
}

static void end_move(const struct cluster *c, unsigned slot, size_t from, size_t to)
{
    MUST(c, to, "CLUSTER", "SETSLOT", slot_text(slot), "NODE", c->ids[to]);
    MUST(c, from, "CLUSTER", "SETSLOT", slot_text(slot), "NODE", c->ids[to]);
}

void cluster_move_end(const struct cluster *c, unsigned slot, size_t from, size_t to)
{
    end_move(c, slot, from, to);
    require(cluster_owner(c, slot) == to, "the slot did not move");
}

void cluster_move(const struct cluster *c, unsigned first, unsigned last, size_t from, size_t to)
{
    for (unsigned slot = first; slot <= last; slot++) {
        cluster_move_begin(c, slot, from, to);
        while (cluster_move_keys(c, slot, from, to, 100) > 0)
            continue;
        end_move(c, slot, from, to);
    }
    /* Nodes tell each other all of their slots at once. */
    require(cluster_owner(c, first) == to && cluster_owner(c, last) == to, "a slot did not move");
}
