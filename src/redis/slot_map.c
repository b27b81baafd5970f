#include "redis/slot_map.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

#define MOVING_US (5 * US_PER_S)
#define OLD_US (10 * US_PER_S) /* then a map of an older epoch counts, too: the cluster was made anew */

/* ---- hash slots ---- */

/* CRC16-CCITT (XMODEM), bit by bit: four bits at a time. */
static uint16_t crc16(uint16_t crc, sv bytes)
{
    static const uint16_t nibbles[] = { 0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
                                        0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef };
    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t byte = (uint8_t)bytes.ptr[i];
        crc = (uint16_t)(crc << 4 ^ nibbles[crc >> 12 ^ byte >> 4]);
        crc = (uint16_t)(crc << 4 ^ nibbles[crc >> 12 ^ (byte & 15)]);
    }
    return crc;
}

/* Returns what is between the first braces; nothing if it is empty, or there are none. */
static sv hash_tag(sv key)
{
    const char *open = key.len > 0 ? memchr(key.ptr, '{', key.len) : NULL;
    if (!open)
        return (sv){ 0 };
    sv rest = sv_from(key, (size_t)(open - key.ptr) + 1);
    const char *close = rest.len > 0 ? memchr(rest.ptr, '}', rest.len) : NULL;
    return close ? sv_of(rest.ptr, (size_t)(close - rest.ptr)) : (sv){ 0 };
}

uint16_t hash_slot(sv key)
{
    sv tag = hash_tag(key);
    return crc16(0, tag.len > 0 ? tag : key) % HASH_SLOTS;
}

/* Five letters suffice for every slot: there are 2^16 checksums, and 26^5 words. */
void hash_slot_word(uint16_t slot, char ret[8])
{
    for (unsigned n = 0;; n++) {
        unsigned rest = n;
        for (size_t i = 0; i < 5; i++, rest /= 26)
            ret[i] = (char)('a' + rest % 26);
        ret[5] = '\0';
        if (crc16(0, sv_of(ret, 5)) % HASH_SLOTS == slot)
            return;
    }
}

/* ---- the map ---- */

int map_new(struct slot_map **ret)
{
    struct slot_map *c = calloc(1, sizeof *c);
    if (!c)
        return WEIR_E_NO_MEMORY;
    for (size_t i = 0; i < HASH_SLOTS; i++)
        atomic_init(&c->node_of[i], c->lost_by[i] = MAP_NO_NODE);
    *ret = c;
    return 0;
}

struct node *map_node(const struct store *store, uint16_t slot)
{
    uint16_t number = atomic_load_explicit(&store->map->node_of[slot], memory_order_acquire);
    return number == MAP_NO_NODE ? NULL : store->nodes[number];
}

void map_first_slots(const struct store *store, uint16_t ret[NODES_MAX])
{
    for (unsigned i = 0; i < NODES_MAX; i++)
        ret[i] = HASH_SLOTS;
    for (uint16_t slot = HASH_SLOTS; slot-- > 0;) {
        const struct node *node = map_node(store, slot);
        if (node)
            ret[node->number] = slot;
    }
}

/* Returns the node that it was at. A slot that is elsewhere now has moved. Otherwise that it is moving would be believed
 * for as long as any slot moves. */
static uint16_t set_node(struct slot_map *c, uint16_t slot, uint16_t number)
{
    uint16_t old = atomic_exchange(&c->node_of[slot], number);
    if (old != number)
        atomic_fetch_and(&c->moving[slot / 64], ~(UINT64_C(1) << slot % 64));
    return old;
}

void map_set(struct store *store, uint16_t slot, const struct node *node)
{
    set_node(store->map, slot, (uint16_t)node->number);
}

bool store_up_for(const struct store *store, sv key)
{
    if (!store->map)
        return store_up(store);
    const struct node *node = map_node(store, hash_slot(key));
    return node && node_takes_calls(node);
}

void map_outdated(struct store *store)
{
    if (!atomic_exchange(&store->map->outdated, true))
        store_wake(store);
}

void map_set_moving(struct store *store, uint16_t slot)
{
    struct slot_map *c = store->map;
    atomic_store(&c->moved_us, clock_steady_us());
    atomic_fetch_or(&c->moving[slot / 64], UINT64_C(1) << slot % 64);
}

bool map_is_moving(const struct store *store, uint16_t slot)
{
    return atomic_load_explicit(&store->map->moving[slot / 64], memory_order_relaxed) >> slot % 64 & 1;
}

void map_sweep(struct store *store, int64_t now_us)
{
    struct slot_map *c = store->map;
    if (now_us - atomic_load(&c->moved_us) < MOVING_US)
        return;
    for (size_t i = 0; i < HASH_SLOTS / 64; i++)
        if (atomic_load_explicit(&c->moving[i], memory_order_relaxed) != 0)
            atomic_store(&c->moving[i], 0);
}

/* ---- what nodes say ---- */

/* A node that does not know its own address, or prefers that clients use the one they know, says nothing, or "?". */
static bool read_host(struct node *asked, sv host, struct redis_endpoint *ret)
{
    if (host.len > REDIS_HOST_MAX)
        return false;
    if (host.len == 0 || sv_eq(host, SV("?"))) {
        HOLD_LOCK(&asked->store->lock);
        memcpy(ret->host, asked->endpoint.host, sizeof ret->host);
        return true;
    }
    memcpy(ret->host, host.ptr, host.len);
    ret->host[host.len] = '\0';
    return true;
}

static void want_newcomer(struct store *store, const struct redis_endpoint *endpoint)
{
    {
        HOLD_LOCK(&store->lock);
        store->map->wanted = true;
        store->map->newcomer = *endpoint;
    }
    store_wake(store);
}

/* The port stands after the last colon: an IPv6 address has no brackets here. */
struct node *map_read_target(struct node *asked, sv text, bool is_ask)
{
    struct redis_endpoint endpoint;
    uint64_t slot, port;
    sv number = sv_cut(&text, ' ');
    const char *colon = text.len > 0 ? memrchr(text.ptr, ':', text.len) : NULL;
    if (!colon || !sv_u64(number, HASH_SLOTS - 1, &slot))
        return NULL;
    sv host = sv_of(text.ptr, (size_t)(colon - text.ptr));
    if (!sv_u64(sv_from(text, host.len + 1), UINT16_MAX, &port) || !read_host(asked, host, &endpoint))
        return NULL;
    endpoint.port = (uint16_t)port;
    struct node *node = node_find(asked->store, &endpoint);
    bool known = node && atomic_load(&node->used);
    if (is_ask && known)
        atomic_store(&node->asked_us, clock_steady_us());
    else if (is_ask)
        want_newcomer(asked->store, &endpoint);
    return known ? node : NULL;
}

uint64_t map_epoch(sv info)
{
    const sv name = SV("cluster_current_epoch:");
    uint64_t epoch = 0;
    while (info.len > 0) {
        sv line = sv_trim(sv_cut(&info, '\n'));
        if (sv_starts(line, name) && !sv_u64(sv_from(line, name.len), INT64_MAX, &epoch))
            return 0;
    }
    return epoch;
}

struct range {
    uint64_t first, last;
    struct redis_endpoint endpoint; /* of its master */
};

static bool next_integer(struct reply *array, uint64_t max, uint64_t *ret)
{
    struct reply element;
    if (!reply_next(array, &element) || element.kind != REPLY_INTEGER || element.integer < 0 ||
        (uint64_t)element.integer > max)
        return false;
    *ret = (uint64_t)element.integer;
    return true;
}

/* [first, last, [host, port, …], replicas …] */
static bool read_range(struct node *asked, struct reply *slots, struct range *ret)
{
    struct reply range, master, host;
    uint64_t port;
    if (!reply_next(slots, &range) || range.kind != REPLY_ARRAY || !next_integer(&range, HASH_SLOTS - 1, &ret->first) ||
        !next_integer(&range, HASH_SLOTS - 1, &ret->last) || !reply_next(&range, &master) || master.kind != REPLY_ARRAY ||
        !reply_next(&master, &host) || (host.kind != REPLY_BULK && host.kind != REPLY_NULL) ||
        !next_integer(&master, UINT16_MAX, &port))
        return false;
    ret->endpoint.port = (uint16_t)port;
    return ret->first <= ret->last && read_host(asked, host.kind == REPLY_BULK ? host.text : (sv){ 0 }, &ret->endpoint);
}

static struct node *node_for(struct store *store, const struct redis_endpoint *endpoint)
{
    struct node *node = node_find(store, endpoint);
    if (!node)
        return node_add(store, endpoint);
    node_use(node, true);
    return node;
}

static bool take_newcomer(struct store *store, struct redis_endpoint *ret)
{
    HOLD_LOCK(&store->lock);
    bool wanted = store->map->wanted;
    *ret = store->map->newcomer;
    store->map->wanted = false;
    return wanted;
}

struct node *map_add_newcomer(struct store *store, int64_t now_us)
{
    struct redis_endpoint endpoint;
    struct node *node = take_newcomer(store, &endpoint) ? node_for(store, &endpoint) : NULL;
    if (node)
        atomic_store(&node->asked_us, now_us);
    return node;
}

/* Reads the map; slots that it does not mention have no node. */
static bool read_map(struct node *asked, struct reply slots, uint16_t map[HASH_SLOTS])
{
    bool any = false;
    if (slots.kind != REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < HASH_SLOTS; i++)
        map[i] = MAP_NO_NODE;
    while (slots.count > 0) {
        struct range range;
        if (!read_range(asked, &slots, &range))
            return false;
        const struct node *node = node_for(asked->store, &range.endpoint);
        for (uint64_t slot = range.first; node && slot <= range.last; slot++)
            map[slot] = (uint16_t)node->number;
        any = any || node;
    }
    return any;
}

/* The slots of a node that does not answer are now at another: a replica has taken its place. */
static void tell_replaced(struct store *store, struct node *old, struct node *now)
{
    char was[REDIS_SHOWN_MAX + 1], is[REDIS_SHOWN_MAX + 1];
    node_read_shown(old, was);
    node_read_shown(now, is);
    store_count(&store->counts.replaced, 1);
    breaker_tell(&now->breaker, WEIR_STORE_REPLACED,
                 "in the store %s, %s has taken the place of %s: counts that it did not receive are lost",
                 store->address.shown, is, was);
}

/* Has a slot lately been on its way to the node? */
static bool is_newcomer(const struct node *node, int64_t now_us)
{
    int64_t asked_us = atomic_load(&node->asked_us);
    return asked_us > 0 && now_us - asked_us < MOVING_US;
}

/* Puts a slot at a node, or at none. Returns the number of the node that had it last, if that one was down; else
 * MAP_NO_NODE. While a replica is elected, some nodes give a map without the slots of the dead master. */
static uint16_t put_slot(struct store *store, uint16_t slot, uint16_t number)
{
    struct slot_map *c = store->map;
    uint16_t old = set_node(c, slot, number), down = c->lost_by[slot];
    if (old != MAP_NO_NODE)
        down = node_up(store->nodes[old]) ? MAP_NO_NODE : old;
    c->lost_by[slot] = number == MAP_NO_NODE ? down : MAP_NO_NODE;
    return down;
}

/* Puts the map in force. Nodes without a slot are not used any more. */
static void install_map(struct store *store, const uint16_t map[HASH_SLOTS], int64_t now_us)
{
    bool used[NODES_MAX] = { false }, told[NODES_MAX] = { false };
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        uint16_t number = map[slot], down = put_slot(store, (uint16_t)slot, number);
        if (number == MAP_NO_NODE)
            continue;
        used[number] = true;
        if (down != MAP_NO_NODE && down != number && !told[down]) {
            told[down] = true;
            tell_replaced(store, store->nodes[down], store->nodes[number]);
        }
    }
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++) {
        atomic_store(&store->nodes[i]->serves, used[i]);
        if (!used[i] && !is_newcomer(store->nodes[i], now_us))
            node_use(store->nodes[i], false);
    }
}

bool map_read(struct node *asked, uint64_t epoch, struct reply slots)
{
    struct slot_map *c = asked->store->map;
    uint16_t map[HASH_SLOTS];
    int64_t now_us = clock_steady_us();
    if ((epoch < c->epoch && now_us - c->read_us < OLD_US) || !read_map(asked, slots, map))
        return false;
    c->epoch = epoch;
    c->read_us = now_us;
    install_map(asked->store, map, now_us);
    return true;
}
