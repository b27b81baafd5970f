/* The store's thread sends these by itself: every second the beat, probes of nodes that do not answer, and the question
 * for the map of a cluster. */
#include <stdio.h>
#include <sys/random.h>

#include "base/hash.h"
#include "redis/store_thread.h"

#define BEAT_US US_PER_S
#define BEAT_ANSWER_US US_PER_S /* at least: no decision waits for it */
#define HOST_GONE_S 10
#define HOSTS_TTL_MS "60000"
#define PROBE_MIN_US (50 * US_PER_MS)
#define PROBE_MAX_US US_PER_S
#define STEADY_US US_PER_S      /* a breaker that opens again sooner than this is probed less often */
#define ALONE_US (2 * US_PER_S) /* then the nodes of the address are asked again */
#define MAP_AGAIN_US (20 * US_PER_MS)

/* ---- commands ---- */

static void ignore(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    (void)lane, (void)data, (void)how, (void)reply;
}

static const struct lane_kind ignored = { .done = ignore };

#define SEND(lane, kind, t, until_us, ...) (COMMAND_WRITE(lane_begin(lane), __VA_ARGS__), lane_end(lane, kind, t, until_us))

/* The lane to a node, if it is connected. */
static struct lane *connected_lane(const struct store_thread *t, struct node *node)
{
    struct lane *lane = atomic_load(&node->used) ? link_lane(t->link, node) : NULL;
    return lane && lane_connected(lane) ? lane : NULL;
}

/* The lane to the node that has a key of the store's own, if it is connected. */
static struct lane *lane_of_name(struct store_thread *t, const char *key)
{
    struct store *store = t->store;
    struct node *node = store->map ? map_node(store, hash_slot(weir_str(key))) : store->nodes[0];
    return node ? connected_lane(t, node) : NULL;
}

/* The same for the beat. A server that answers with errors only (it is full, it loads its data) gets probes instead: a beat
 * that nobody counts in t->beating would be sent again at once. */
static struct lane *lane_of_beat(struct store_thread *t, const char *key)
{
    struct lane *lane = lane_of_name(t, key);
    return lane && node_up(lane->node) ? lane : NULL;
}

/* ---- marks ---- */

/* The mark identifies the data of a node: a different mark means different data. Each call makes a new one: a host that
 * wrote the same mark twice would not notice that it was gone in between. */
static bool send_mark(struct store_thread *t, struct lane *lane, const char *key, const struct lane_kind *kind,
                      int64_t until_us)
{
    char mark[STORE_MARK_MAX + 1];
    uint64_t random[2] = { 0 };
    if (getrandom(random, sizeof random, GRND_NONBLOCK) < 0)
        random[0] = (uint64_t)clock_now_us();
    snprintf(mark, sizeof mark, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    return SEND(lane, kind, t, until_us, SV("SET"), weir_str(key), weir_str(mark), SV("NX"));
}

/* In a cluster each node has a mark of its own, in the first of its slots. When that changes, so does the key, and what
 * was known of the old one says nothing. */
static void name_mark(const struct store_thread *t, struct node_watch *watch, uint16_t slot)
{
    char word[8];
    if (watch->mark_key[0] != '\0' && watch->mark_slot == slot)
        return;
    watch->mark_slot = slot;
    watch->mark_key[0] = watch->mark[0] = '\0';
    if (slot == HASH_SLOTS)
        return;
    hash_slot_word(slot, word);
    snprintf(watch->mark_key, sizeof watch->mark_key, "%.*s:{%s}", SCRIPT_PREFIX_MAX + 16, t->born_key, word);
}

static void set_secret(struct store *store, sv mark)
{
    static const struct hash_key none = { 0, 0 };
    for (uint64_t i = 2; i-- > 0;) {
        struct hash h;
        hash_init(&h, &none);
        hash_word(&h, i);
        hash_text(&h, mark.ptr, mark.len);
        uint64_t word = hash_final(&h);
        atomic_store(&store->secret[i], word ? word : 1);
    }
}

/* After an outage, and in a store that was restarted or has lost its data, the other hosts have yet to come back: one that
 * took itself for the only one would let through all of each limit in the next outage. */
void beat_gather_hosts(struct store_thread *t)
{
    t->known_hosts = store_hosts(t->store);
    t->gathering_us = clock_steady_us() + HOST_GONE_S * US_PER_S;
}

static bool is_mark(enum store_result how, const struct reply *reply)
{
    return how == STORE_DECIDED && reply->kind == REPLY_BULK && reply->text.len <= STORE_MARK_MAX;
}

static void mark_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    struct store_thread *t = data;
    struct node *node = lane->node;
    struct node_watch *watch = &node->watch;
    if (!is_mark(how, reply))
        return;
    bool known = watch->mark[0] != '\0', same = sv_eq(reply->text, weir_str(watch->mark));
    snprintf(watch->mark, sizeof watch->mark, "%.*s", SV_FMT(reply->text));
    if (!known || same)
        return;
    beat_gather_hosts(t);
    store_count(&t->store->counts.emptied, 1);
    breaker_tell(&node->breaker, WEIR_STORE_EMPTIED, "the store %s has lost its data: all counts in it begin anew",
                 node->name);
}

static const struct lane_kind mark_kind = { .done = mark_done };

/* The mark of the store as a whole is the secret that its hosts share. */
static void born_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    const struct store_thread *t = data;
    if (is_mark(how, reply))
        set_secret(t->store, reply->text);
    if (!t->store->map)
        mark_done(lane, data, how, reply);
}

static const struct lane_kind born_kind = { .done = born_done };

/* ---- clocks and hosts ---- */

static void time_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    struct store_thread *t = data;
    int64_t took_us = clock_steady_us() - t->asked_us, server_us;
    t->beating--;
    /* An answer that was long on its way tells less than the one before. In a cluster the clock of one node counts: scripts
     * go by their own, and say so if that is in another window. */
    if (how == STORE_DECIDED && lane == lane_of_name(t, t->born_key) &&
        took_us <= t->store->options.deadline_ms * US_PER_MS && reply_time(*reply, &server_us))
        atomic_store(&t->store->offset_us, server_us - (t->asked_now_us + took_us / 2));
}

static const struct lane_kind time_kind = { .done = time_done };

static void hosts_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    struct store_thread *t = data;
    struct store *store = lane->store;
    if (how != STORE_DECIDED || reply->kind != REPLY_INTEGER || reply->integer < 1 || reply->integer > UINT32_MAX ||
        store->options.hosts > 0)
        return;
    uint64_t server = (uint64_t)lane->node->number << 48 | lane->server;
    if (t->server != server)
        beat_gather_hosts(t);
    t->server = server;
    unsigned hosts = (unsigned)reply->integer;
    bool gathering = clock_steady_us() < t->gathering_us;
    atomic_store(&store->hosts, gathering && hosts < t->known_hosts ? t->known_hosts : hosts);
}

static const struct lane_kind hosts_kind = { .done = hosts_done };

void beat_leave(struct store_thread *t, int64_t until_us)
{
    struct lane *lane = t->id[0] ? lane_of_name(t, t->hosts_key) : NULL;
    if (lane)
        SEND(lane, &ignored, t, until_us, SV("ZREM"), weir_str(t->hosts_key), weir_str(t->id));
}

/* Processes that share a table of cells are one host, since they share its counts while the store is unreachable; that
 * includes containers, whose host names differ. Each beat reads the name again, so that the processes agree when the table
 * gets another identity. */
static void name_host(struct store_thread *t, int64_t until_us)
{
    char id[HOST_ID_MAX];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)cells_host(t->store->cells));
    if (t->id[0] && strcmp(t->id, id) != 0)
        beat_leave(t, until_us);
    memcpy(t->id, id, sizeof id);
}

static void count_hosts(struct store_thread *t, int64_t until_us)
{
    struct lane *lane = lane_of_beat(t, t->hosts_key);
    char now[24], gone[24];
    int64_t server_s = (t->asked_now_us + store_offset_us(t->store)) / US_PER_S;
    sv hosts = weir_str(t->hosts_key);
    if (!lane)
        return;
    snprintf(now, sizeof now, "%lld", (long long)server_s);
    snprintf(gone, sizeof gone, "(%lld", (long long)server_s - HOST_GONE_S);
    if (!t->store->options.visits) {
        name_host(t, until_us);
        SEND(lane, &ignored, t, until_us, SV("ZADD"), hosts, weir_str(now), weir_str(t->id));
        SEND(lane, &ignored, t, until_us, SV("ZREMRANGEBYSCORE"), hosts, SV("-inf"), weir_str(gone));
        SEND(lane, &ignored, t, until_us, SV("PEXPIRE"), hosts, SV(HOSTS_TTL_MS));
    }
    SEND(lane, &hosts_kind, t, until_us, SV("ZCARD"), hosts);
}

static void read_born(struct store_thread *t, int64_t until_us)
{
    struct lane *lane = lane_of_beat(t, t->born_key);
    if (!lane)
        return;
    if (!t->store->options.visits)
        send_mark(t, lane, t->born_key, &ignored, until_us);
    SEND(lane, &born_kind, t, until_us, SV("GET"), weir_str(t->born_key));
}

static void beat_node(struct store_thread *t, struct node *node, int64_t until_us)
{
    struct lane *lane = node_up(node) ? connected_lane(t, node) : NULL;
    if (!lane)
        return;
    t->beating += SEND(lane, &time_kind, t, until_us, SV("TIME"));
    if (!t->store->map || node->watch.mark_key[0] == '\0')
        return;
    if (!t->store->options.visits)
        send_mark(t, lane, node->watch.mark_key, &ignored, until_us);
    SEND(lane, &mark_kind, t, until_us, SV("GET"), weir_str(node->watch.mark_key));
}

/* Returns false if no node is available. */
static bool beat(struct store_thread *t)
{
    struct store *store = t->store;
    int64_t until_us = thread_deadline_us(t), least_us = clock_steady_us() + BEAT_ANSWER_US;
    if (until_us < least_us)
        until_us = least_us;
    t->asked_us = clock_steady_us();
    t->asked_now_us = clock_now_us();
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++)
        beat_node(t, store->nodes[i], until_us);
    read_born(t, until_us);
    count_hosts(t, until_us);
    return t->beating > 0;
}

/* ---- the map of a cluster ---- */

static void epoch_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    struct store_thread *t = data;
    (void)lane;
    t->epoch = how == STORE_DECIDED && reply->kind == REPLY_BULK ? map_epoch(reply->text) : 0;
}

static const struct lane_kind epoch_kind = { .done = epoch_done };

static void map_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    struct store_thread *t = data;
    struct store *store = t->store;
    store->map->asking = false;
    if (how != STORE_DECIDED || !map_read(lane->node, t->epoch, *reply))
        return;
    uint16_t slots[NODES_MAX];
    map_first_slots(store, slots);
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++)
        if (atomic_load(&store->nodes[i]->used)) {
            name_mark(t, &store->nodes[i]->watch, slots[i]);
            link_lane(t->link, store->nodes[i]);
        }
}

static const struct lane_kind map_kind = { .done = map_done };

/* Asks one node after another, since one that is cut off from the others may know an old map only. */
static void ask_for_map(struct store_thread *t, int64_t now_us)
{
    struct slot_map *c = t->store->map;
    unsigned count = atomic_load(&t->store->node_count);
    int64_t until_us = now_us + BEAT_ANSWER_US;
    struct lane *lane = NULL;
    for (unsigned i = 0; i < count && !lane; i++)
        lane = connected_lane(t, t->store->nodes[c->asked = (c->asked + 1) % count]);
    if (!lane)
        return;
    c->asked_us = now_us;
    SEND(lane, &epoch_kind, t, until_us, SV("CLUSTER"), SV("INFO"));
    c->asking = SEND(lane, &map_kind, t, until_us, SV("CLUSTER"), SV("SLOTS"));
}

/* All nodes of the map are gone, or it was never read: those of the address may know others. */
static void look_for_nodes(struct store_thread *t, int64_t now_us)
{
    struct store *store = t->store;
    bool connected = false;
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++)
        connected = connected || connected_lane(t, store->nodes[i]);
    if (connected || t->alone_us == 0)
        t->alone_us = connected ? 0 : now_us;
    if (connected || now_us - t->alone_us < ALONE_US)
        return;
    for (unsigned i = 0; i < store->address.endpoint_count; i++)
        node_use(store->nodes[i], true);
    for (unsigned i = 0; i < store->address.endpoint_count; i++)
        link_lane(t->link, store->nodes[i]);
}

static void follow_map(struct store_thread *t, int64_t now_us)
{
    struct slot_map *c = t->store->map;
    look_for_nodes(t, now_us);
    struct node *newcomer = map_add_newcomer(t->store, now_us);
    if (newcomer)
        link_lane(t->link, newcomer);
    map_sweep(t->store, now_us);
    bool outdated = atomic_load(&c->outdated) && now_us - c->asked_us >= MAP_AGAIN_US;
    if (c->asking || !(outdated || now_us - c->asked_us >= BEAT_US))
        return;
    atomic_store(&c->outdated, false);
    ask_for_map(t, now_us);
}

/* ---- probes ---- */

/* Never 0, also before the first: the thread may not have seen that the breaker was closed for a moment. */
static int64_t longer_backoff(int64_t backoff_us)
{
    if (backoff_us < PROBE_MIN_US)
        return PROBE_MIN_US;
    return backoff_us * 2 < PROBE_MAX_US ? backoff_us * 2 : PROBE_MAX_US;
}

/* Only an answer that a decision could have waited for closes the breaker; after one that was late the next is sent at
 * once, since a server that was stopped goes on. */
static void probe_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    const struct store_thread *t = data;
    struct node_watch *watch = &lane->node->watch;
    int64_t now_us = clock_steady_us();
    watch->probing = false;
    watch->probe_us = now_us;
    /* The slot of the mark is being moved: the node does its work. */
    bool works = how == STORE_DECIDED || (how == STORE_FAILED && sv_starts(reply->text, SV("ASK ")));
    if (works && now_us - watch->probed_us <= t->store->options.deadline_ms * US_PER_MS)
        node_answers(lane->node);
    else if (!works) {
        watch->backoff_us = longer_backoff(watch->backoff_us);
        watch->probe_us += watch->backoff_us;
    }
}

static const struct lane_kind probe_kind = { .done = probe_done };

/* A write, since a server that is full, or that cannot save, still answers to reads. A node without a slot has no key. */
static void probe(struct store_thread *t, struct node *node, int64_t now_us)
{
    struct node_watch *watch = &node->watch;
    struct lane *lane = link_lane(t->link, node);
    int64_t until_us = thread_deadline_us(t);
    watch->probed_us = now_us;
    watch->probing = watch->mark_key[0] ? send_mark(t, lane, watch->mark_key, &probe_kind, until_us)
                                        : SEND(lane, &probe_kind, t, until_us, SV("PING"));
    if (!watch->probing) /* the queue is full */
        watch->probe_us = now_us + watch->backoff_us;
}

/* The breaker has opened or was closed since the last turn. */
static void notice_change(struct store_thread *t, struct node *node, int64_t now_us)
{
    struct node_watch *watch = &node->watch;
    bool up = node_up(node);
    if (up == watch->up)
        return;
    watch->up = up;
    t->beat_us = up ? now_us : t->beat_us;
    if (up) {
        watch->up_us = now_us;
        return;
    }
    bool again = watch->backoff_us > 0 && now_us - watch->up_us < STEADY_US;
    watch->backoff_us = again ? longer_backoff(watch->backoff_us) : PROBE_MIN_US;
    watch->probe_us = now_us + watch->backoff_us;
    if (t->store->map)
        map_outdated(t->store);
}

static bool may_probe(const struct store_thread *t, struct node *node)
{
    return !node->watch.up && !node->watch.probing && connected_lane(t, node);
}

/* ---- turns ---- */

void beat_init(struct store_thread *t)
{
    struct store *store = t->store;
    snprintf(t->hosts_key, STORE_KEY_NAME_MAX, "%.*s:%d:hosts", SV_FMT(store->prefix), SCRIPT_LAYOUT);
    snprintf(t->born_key, STORE_KEY_NAME_MAX, "%.*s:%d:born", SV_FMT(store->prefix), SCRIPT_LAYOUT);
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++)
        link_lane(t->link, store->nodes[i]);
    if (!store->map)
        memcpy(store->nodes[0]->watch.mark_key, t->born_key, sizeof t->born_key);
}

void beat_run(struct store_thread *t, int64_t now_us)
{
    struct store *store = t->store;
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++) {
        struct node *node = store->nodes[i];
        notice_change(t, node, now_us);
        if (may_probe(t, node) && node->watch.probe_us <= now_us)
            probe(t, node, now_us);
    }
    if (store->map)
        follow_map(t, now_us);
    if (t->beating == 0 && t->beat_us <= now_us && beat(t))
        t->beat_us = now_us + BEAT_US;
}

int64_t beat_next_us(const struct store_thread *t)
{
    const struct store *store = t->store;
    int64_t next_us = INT64_MAX;
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++) {
        struct node *node = store->nodes[i];
        if (may_probe(t, node) && node->watch.probe_us < next_us)
            next_us = node->watch.probe_us;
    }
    return next_us;
}
